"""How long writes stay away when the leader goes, and whether anything is lost by it.

Each round opens a session per other server through the leader, strikes the leader and starts a clock. Every other
server is then asked by a client that takes its session there, writes, and tries again 20 ms after whatever failed; the
clock stops at the first write that is acknowledged. Load runs all the while. `rolling` restarts all servers one after
the other as an operator does it, and reports the longest gap between two acknowledged writes of any client.
"""

import contextlib
import statistics
import threading
import time

from proof import Load, judge
from suites.common import say
from wire import SESSION_EXPIRED, Client, Expired, Lost, Refused, Session

RETRY_SECONDS = 0.02
# An attempt that is not answered for so long is given up, as one that hangs would hide a server that has recovered.
ATTEMPT_SECONDS = 0.25
OUTAGE_SECONDS_MAX = 60
# So much longer than writes are back a leader stays paused or parted: what it still believes then must not matter.
BLIND_SECONDS = 1.0


class Probe(threading.Thread):
    """A client of one of the other servers. `went`: when its first write after the fault was acknowledged."""

    def __init__(self, address, session, begin, stop):
        super().__init__(daemon=True)
        self.address, self.session, self.begin, self.stopped = address, session, begin, stop
        self.went = self.broken = self.client = None
        self.attempts = 0

    def run(self):
        self.begin.wait()
        while not self.stopped.is_set():
            self.attempts += 1
            try:
                if self.client is None:
                    self.client = Client(*self.address, self.session, ATTEMPT_SECONDS)
                self.client.set("/probe", b"x")
                self.went = time.monotonic()
                self.stopped.set()
                return
            except Lost:
                if self.client:
                    self.client.close()
                self.client = None
            except Expired:
                self.broken = "the session expired"
                return
            except Refused as refusal:
                if refusal.code == SESSION_EXPIRED:
                    self.broken = "the session expired"
                    return
            self.stopped.wait(RETRY_SECONDS)

    def close(self):
        """Ends the session, wherever it is now."""
        with contextlib.suppress(Lost, Expired, Refused):
            if self.client is None:
                self.client = Client(*self.address, self.session, 5)
            self.client.wait(5)
            self.client.end_session()


class Witness(threading.Thread):
    """A client that stays with the deposed leader: asks it to write and to sync, and notes any assent."""

    def __init__(self, client, begin):
        super().__init__(daemon=True)
        self.client, self.begin = client, begin
        self.wrote = self.synced = None

    def run(self):
        self.begin.wait()
        try:
            self.client.wait(OUTAGE_SECONDS_MAX)
            first = self.client.request(5, b"\0\0\0\x06/probe" + b"\0\0\0\x01y" + b"\xff\xff\xff\xff")
            second = self.client.request(9, b"\0\0\0\x06/probe")
            self.client.reply(first)
            self.wrote = time.monotonic()
            self.client.reply(second)
            self.synced = time.monotonic()
        except (Lost, Refused, Expired):
            pass
        self.client.close()


def outage(ensemble, leader, strike, witness=False):
    """Strikes the leader; seconds until a write was acknowledged elsewhere, and the words of the witness."""
    begin, stop = threading.Event(), threading.Event()
    probes = []
    for i in ensemble.ids:
        if i == leader:
            continue
        client = Client(*ensemble.address(leader), Session())
        client.sync("/probe")
        client.close()
        probes.append(Probe(ensemble.address(i), client.session, begin, stop))
    onlooker = Witness(Client(*ensemble.address(leader), Session()), begin) if witness else None
    for thread in [*probes, *([onlooker] if onlooker else [])]:
        thread.start()
    start = time.monotonic()
    strike()
    begin.set()
    stop.wait(OUTAGE_SECONDS_MAX)
    stop.set()
    for probe in probes:
        probe.join()
    broken = [probe.broken for probe in probes if probe.broken]
    assert not broken, f"a probe: {broken[0]}"
    went = [probe.went for probe in probes if probe.went]
    assert went, f"no write succeeds within {OUTAGE_SECONDS_MAX} s\n{ensemble.describe()}"
    return min(went) - start, probes, onlooker


def kill(ensemble, leader):
    seconds, probes, _ = outage(ensemble, leader, lambda: ensemble.kill(leader))
    ensemble.start(leader)
    return seconds, probes, None


def pause(ensemble, leader):
    seconds, probes, _ = outage(ensemble, leader, lambda: ensemble.pause(leader))
    time.sleep(BLIND_SECONDS)
    ensemble.resume(leader)
    return seconds, probes, None


def part(ensemble, leader):
    seconds, probes, onlooker = outage(ensemble, leader, lambda: ensemble.part(leader), witness=True)
    time.sleep(BLIND_SECONDS)
    healed = time.monotonic()
    ensemble.heal(leader)
    onlooker.join()
    lies = [what for what, when in (("write", onlooker.wrote), ("sync", onlooker.synced)) if when and when < healed]
    return seconds, probes, lies


FAULTS = {"kill": (kill, "kill -9 of the leader"), "pause": (pause, "SIGSTOP of the leader"),
          "part": (part, "partition of the leader")}


def strike_repeatedly(ensemble, load, name, rounds):
    fault, words = FAULTS[name]
    times, lies = [], []
    load.mark()
    for number in range(rounds):
        leader = ensemble.wait_for_leader()
        seconds, probes, lied = fault(ensemble, leader)
        lies += lied or []
        times.append(seconds * 1000)
        say(f"   {name} {number + 1}: server {leader}: writes again after {times[-1]:.0f} ms "
            f"({', '.join(str(p.attempts) for p in probes)} attempts){' LIES: ' + str(lied) if lied else ''}")
        for probe in probes:
            probe.close()
        ensemble.wait_until_all_synced()
    figures = load.mark()
    assert not figures["expired"], f"{figures['expired']} sessions expired"
    return {"fault": f"{words}, {rounds} times", "median": statistics.median(times), "max": max(times),
            "min": min(times), "lies": lies, **figures}


def rolling(ensemble, load, rounds):
    worst = []
    for number in range(rounds):
        load.mark()
        for i in ensemble.ids:
            ensemble.stop(i)
            ensemble.start(i)
            ensemble.wait_until_all_synced()
        figures = load.mark()
        assert not figures["expired"], f"{figures['expired']} sessions expired"
        say(f"   rolling restart {number + 1}: longest gap {figures['gap_ms']} ms, {figures['lost']} requests lost, "
            f"{figures['acknowledged']} acknowledged")
        worst.append(figures)
    gaps = [figures["gap_ms"] for figures in worst]
    return {"fault": f"rolling restart of all, {rounds} times", "median": statistics.median(gaps), "max": max(gaps),
            "min": min(gaps), "lies": [], "lost": sum(f["lost"] for f in worst),
            "acknowledged": sum(f["acknowledged"] for f in worst), "gap_ms": max(gaps)}


def run(ensemble, chosen):
    """All faults in turn; a row for each."""
    rows = []
    ensemble.start_all()
    first = Client(*ensemble.address(ensemble.wait_for_leader()), Session())
    first.ensure("/probe")
    first.end_session()
    load = Load(ensemble)
    try:
        for name in ("kill", "pause", "part"):
            if chosen.rounds(name):
                rows.append(strike_repeatedly(ensemble, load, name, chosen.rounds(name)))
        if chosen.rounds("rolling"):
            rows.append(rolling(ensemble, load, chosen.rounds("rolling")))
        words = judge(ensemble, load)
    finally:
        load.close()
    say(f"| {ensemble.context.kind} | writes again after, median ms | min | max | lost requests | acknowledged | longest gap of a client ms |")
    say("|---|---|---|---|---|---|---|")
    for row in rows:
        say(f"| {row['fault']} | {row['median']:.0f} | {row['min']:.0f} | {row['max']:.0f} | {row['lost']} | "
            f"{row['acknowledged']} | {row['gap_ms']} |")
    say(words)
    lies = [lie for row in rows for lie in row["lies"]]
    if lies:
        say(f"a deposed leader assented while it was parted: {len(lies)} times ({', '.join(sorted(set(lies)))})")
        assert ensemble.context.kind == "zookeeper" and set(lies) == {"sync"}, "a deposed leader must not assent"
    return rows
