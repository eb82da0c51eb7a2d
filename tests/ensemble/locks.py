"""A lock of a real client, held through every fault that is shorter than its session, and lost by one that is longer.

One process holds the lock, two wait for it, in the order of their znodes. While servers come and go, the holder's own
server first, the holder's znode
must stay the very one (its czxid), no waiter may get the lock, and the holder may not be told that its session is lost.
Then the holder's own process is stopped for longer than the session timeout: exactly one waiter gets the lock, and its
czxid, which is its fencing token, is larger.
"""

import re
import signal
import subprocess
import time

from proof import HERE, Load, judge
from servers import CLIENT_PORT
from suites import control, curator, kazoo
from suites.common import Dialogue, say, up_to_date
from wire import Client, Session

SESSION_TIMEOUT_MS = 10000
FAULT_SECONDS = 5.0


# Whole lines only: the rest of one may be on its way.
HELD = r"^HELD (\S+) (\d+)\n"


class Contender:
    """One client process. `held`: (session, czxid) once it has the lock."""

    def __init__(self, command, env=None):
        self.dialogue = Dialogue(command, env)

    def wait_for(self, pattern, since=0, seconds=60):
        found = self.dialogue.wait_for(pattern, since, seconds)
        assert found, f"not within {seconds} s: {pattern} in: {self.dialogue.output[-2000:]}"
        return found

    def ready(self):
        self.wait_for("^READY")

    @property
    def held(self):
        found = re.search(HELD, self.dialogue.output, re.MULTILINE)
        return (found.group(1), int(found.group(2))) if found else None

    @property
    def told_lost(self):
        return re.search("^STATE LOST\n", self.dialogue.output, re.MULTILINE) is not None

    def check(self, seconds=60):
        """(session, czxid) of its znode as it sees it now, or None."""
        since = self.dialogue.send("check")
        found = self.wait_for(r"^(?:MINE (\S+) (\d+)|(NONE))\n", since, seconds)
        return None if found.group(3) else (found.group(1), int(found.group(2)))

    def states(self, since=0):
        return re.findall(r"^STATE (\S+)\n", self.dialogue.output[since:], re.MULTILINE)

    def close(self):
        self.dialogue.close()


def kazoo_command(context, hosts, path):
    return ([kazoo.python(context), HERE / "holders" / "kazoo_lock.py", hosts, SESSION_TIMEOUT_MS, path],
            dict(context.environment(), PYTHONPATH=str(kazoo.folder(context))))


def curator_command(context, hosts, path):
    classes = context.work / "curator-lock"
    source = HERE / "holders" / "CuratorLock.java"
    if not up_to_date(classes / "CuratorLock.class", source):
        control.compile_java(context, "curator-lock.log", classes, source)
    command = control.java(context, "CuratorLock", hosts, SESSION_TIMEOUT_MS, path, classes=classes, heap_mb=128)
    return command, context.environment()


CLIENTS = {"kazoo": kazoo_command, "curator": curator_command}


def prepare(context):
    kazoo.prepare(context)
    curator.prepare(context)


def queue_length(ensemble, path):
    client = Client(*ensemble.address(ensemble.wait_for_leader()), Session())
    try:
        return len(client.children(path)) if client.exists(path) else 0
    finally:
        client.end_session()


def server_of(ensemble, contender):
    """The server that a client is connected to, or None."""
    command = ["ss", "-tnHp", "state", "established", "dport", "=", f":{CLIENT_PORT}"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if f"pid={contender.dialogue.process.pid}," in line:
            # Java shows an IPv4 address in the form of IPv6, in brackets.
            peers = {f"{ensemble.host(i)}:{CLIENT_PORT}": i for i in ensemble.ids}
            return next((i for peer, i in peers.items() if peer in line.replace("]", "")), None)
    return None


def strike_at(ensemble, holder, leads):
    """The holder's server, once it leads, or once it does not: restarts servers until that is so."""
    for attempt in range(40):
        leader = ensemble.wait_for_leader()
        there = ensemble.wait_for("the holder to be connected", lambda: server_of(ensemble, holder))
        if (there == leader) == leads:
            return there
        struck = leader if attempt % 2 == 0 else there
        ensemble.stop(struck)
        ensemble.start(struck)
        ensemble.wait_until_all_synced()
        holder.check()
    raise AssertionError(f"the holder's server does not come to {'lead' if leads else 'follow'}")


def kill(ensemble, struck):
    ensemble.kill(struck)
    time.sleep(FAULT_SECONDS)
    ensemble.start(struck)


def pause(ensemble, struck):
    ensemble.pause(struck)
    time.sleep(FAULT_SECONDS)
    ensemble.resume(struck)


def part(ensemble, struck):
    ensemble.part(struck)
    time.sleep(FAULT_SECONDS)
    ensemble.heal(struck)


def restart_all(ensemble, _):
    for i in ensemble.ids:
        ensemble.stop(i)
        ensemble.start(i)
        ensemble.wait_until_all_synced()


# What happens to the server that the holder is connected to, and whether that one leads.
FAULTS = {
    "kill -9 of the leader, back after 5 s": (kill, True),
    "kill -9 of a follower, back after 5 s": (kill, False),
    "SIGSTOP of the leader for 5 s": (pause, True),
    "partition of the leader for 5 s": (part, True),
    "rolling restart of all": (restart_all, True),
}


def held_through(ensemble, kind, rows):
    path = f"/locks-{kind}"
    everyone = []

    def contend(hosts):
        contender = Contender(*CLIENTS[kind](ensemble.context, hosts, path))
        everyone.append(contender)
        contender.ready()
        ensemble.wait_for(f"{len(everyone)} in the queue", lambda: queue_length(ensemble, path) == len(everyone))
        return contender

    try:
        holder = contend(ensemble.connect_string())
        holder.wait_for(HELD)
        waiters = [contend(ensemble.connect_string()) for _ in range(2)]
        first = holder.held
        for words, (fault, leads) in FAULTS.items():
            struck = strike_at(ensemble, holder, leads)
            since = len(holder.dialogue.output)
            start = time.monotonic()
            fault(ensemble, struck)
            ensemble.wait_until_all_synced()
            now = holder.check()
            assert now == first, f"{kind}, {words}: the holder's znode was {first}, is {now}"
            assert not holder.told_lost, f"{kind}, {words}: the holder was told that its session is lost"
            assert not any(w.held for w in waiters), f"{kind}, {words}: a waiter has the lock, too"
            seen = " ".join(holder.states(since)) or "nothing"
            rows.append((kind, words, f"kept, czxid {first[1]:#x}; the holder saw: {seen}"))
            say(f"   {kind}: {words}: kept ({time.monotonic() - start:.1f} s; the holder saw: {seen})")
        pass_on(ensemble, kind, rows, holder, waiters)
    finally:
        for contender in everyone:
            contender.close()


def pass_on(ensemble, kind, rows, holder, waiters):
    """Stops the holder's own process until a waiter has the lock, and then some."""
    first = holder.held
    start = time.monotonic()
    holder.dialogue.process.send_signal(signal.SIGSTOP)
    try:
        ensemble.wait_for("a waiter to get the lock", lambda: any(w.held for w in waiters), 4 * SESSION_TIMEOUT_MS / 1000)
        took = time.monotonic() - start
        time.sleep(2)
    finally:
        holder.dialogue.process.send_signal(signal.SIGCONT)
    assert took * 1000 >= SESSION_TIMEOUT_MS * 2 / 3, f"{kind}: the session ended after {took:.1f} s already"
    gone = holder.check()
    assert gone is None, f"{kind}: the stopped holder's znode is still {gone}"
    holder.wait_for("^STATE LOST\n")
    got = [w for w in waiters if w.held]
    assert len(got) == 1, f"{kind}: {len(got)} waiters have the lock"
    session, czxid = got[0].held
    assert czxid > first[1], f"{kind}: czxid {czxid:#x} after {first[1]:#x}"
    words = f"the holder's process stopped for {took + 2:.1f} s"
    rows.append((kind, words, f"one of two waiters got it after {took:.1f} s, czxid {czxid:#x} after {first[1]:#x}; "
                              "the holder was told LOST"))
    say(f"   {kind}: {words}: {rows[-1][2]}")
    got[0].dialogue.send("release")
    last = next(w for w in waiters if w is not got[0])
    last.wait_for(HELD)
    assert last.held[1] > czxid, f"{kind}: czxid {last.held[1]:#x} after {czxid:#x}"


def run(ensemble, chosen):
    prepare(ensemble.context)
    ensemble.start_all()
    load = Load(ensemble, clients=3, writes_per_second=60)
    rows = []
    try:
        for kind in CLIENTS:
            held_through(ensemble, kind, rows)
        figures = load.mark()
        words = judge(ensemble, load)
    finally:
        load.close()
    say(f"| client, session timeout {SESSION_TIMEOUT_MS / 1000:.0f} s | fault ({ensemble.context.kind}) | the lock |")
    say("|---|---|---|")
    for row in rows:
        say("| " + " | ".join(row) + " |")
    say(f"{words}; {figures['expired']} sessions of the load expired")
    assert not figures["expired"], "a session of the load expired"
    return rows
