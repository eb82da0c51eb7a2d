"""`run capped`: what servers do by themselves, each with a share of a core; elections and the longest turn."""

import itertools
import shutil
import threading
import time

from neighbour import Pair
from servers import Lockkeeper, ZooKeeper, until
from tree import batches, owned
from wire import (CREATE, CREATE_TTL, GET_ALL_CHILDREN_NUMBER, MULTI, SET_DATA, TTL, Connection, Lost, blob,
                  create, number, text, word)

SLOW_S = 1200
RATE = 300
FILLED_PER_S = 15_000


def fill(port, znodes, data, parents=1000):
    """Znodes of this data, so many below each parent."""
    link, begun = Connection(port), time.monotonic()
    link.ask(CREATE, create("/f"))

    def operations():
        for at in range(znodes):
            if at % parents == 0:
                yield CREATE, create(f"/f/{at // parents:x}")
            yield CREATE, create(f"/f/{at // parents:x}/{at % parents:x}", data)

    link.fill(batches(operations()))
    link.close()
    return time.monotonic() - begun


def left(port, path):
    """How many znodes are below it."""
    link = Connection(port, timeout_ms=10_000)
    error, body = link.ask(GET_ALL_CHILDREN_NUMBER, text(path))
    link.close()
    return int.from_bytes(body[:4], "big") if not error else 0


class Case:
    """What is measured from `begin` on: the servers have their share from there."""

    def __init__(self, options, name, keys="", alone=False):
        self.options, self.name, self.pair = options, name, None
        self.servers = Lockkeeper(options, name, keys, shares=True, alone=alone)

    def begin(self, neighbours=True):
        servers = self.servers
        for at in range(3):
            if servers.role(at):
                word(servers.port(at), "srst")
        self.term = servers.term()
        servers.limit(self.options.share)
        if neighbours:
            at = 0 if servers.alone else servers.leader()
            self.pair = Pair(servers.ports[at:] + servers.ports[:at])
        self.since = time.monotonic()

    def end(self, expected=0, remarks=""):
        """Prints the line; whether it is as expected."""
        took = time.monotonic() - self.since
        waits = self.pair.window(self.since) if self.pair else []
        servers = self.servers
        servers.limit(0)
        elections = servers.term() - self.term - expected
        turn, server = servers.longest_turn_ms()
        said = "".join(f", {kind} p50 {of[0]:.1f} p99 {of[1]:.1f} max {of[2]:.0f} ms"
                       for kind, of in zip(("get", "set"), waits))
        print(f"{self.name} at {self.options.share} %: {took:.1f} s, {elections} elections, longest turn {turn:.0f} ms "
              f"(server {server}){said}{remarks}; turns named in the logs: {servers.long_turns()[:5]}", flush=True)
        return elections == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pair:
            self.pair.stop()
        self.servers.end()


def expire(options):
    """A session with 200,000 ephemerals expires."""
    with Case(options, "expire") as case:
        servers = case.servers.start_all()
        port = servers.ports[servers.leader()]
        link = owned(port, options.znodes or 200_000, timeout_ms=6_000)
        case.begin()
        link.drop()
        dropped = time.monotonic()
        time.sleep(5)
        until(lambda: left(port, "/owned") == 0, SLOW_S)
        gone = time.monotonic() - dropped
        time.sleep(5)
        return case.end(remarks=f", the last ephemeral gone {gone - 6:.1f} s after the timeout")


def copy(options):
    """A ZooKeeper ensemble is copied, once for each run."""
    theirs, znodes, good = ZooKeeper(options, "copied"), options.znodes or 500_000, []
    try:
        theirs.start_all()
        print(f"{znodes} znodes filled in {fill(theirs.ports[theirs.leader()], znodes, b'x' * 100):.0f} s", flush=True)
        for _ in range(options.runs):
            with Case(options, "copy") as case:
                good.append(copy_once(options, theirs, case))
    finally:
        theirs.end()
    return all(good)


def copy_once(options, theirs, case):
    ours = case.servers.start_all()
    case.begin(neighbours=False)
    ports, quorum = (",".join(f"127.0.0.1:{port}" for port in of) for of in (theirs.ports, theirs.quorum))
    ours.run("migrate", "follow", "--no-wait", "--from", ports, "--quorum", quorum, *ours.flags())
    until(lambda: ours.migration()["state"] == "following", SLOW_S)
    took = time.monotonic() - case.since
    return case.end(remarks=f", following after {took:.1f} s")


def join(options):
    """An image is written, and a server that has been emptied joins by it."""
    with Case(options, "join") as case:
        servers = case.servers.start_all()
        *_, at, leader = servers.in_order()
        fill(servers.ports[leader], options.znodes or 1_000_000, b"x" * 100)
        save = "snapshot", "save", servers.folder / "backup", *servers.flags(leader)
        # The log is cut up to the older one of two images.
        servers.run(*save)
        servers.stop(at)
        shutil.rmtree(servers.folder / str(at + 1))
        case.begin()
        until(lambda: servers.run(*save), SLOW_S)
        saved = time.monotonic()
        servers.start(at)
        joined = time.monotonic() - saved
        time.sleep(5)
        received = [value for name, value in servers.metrics(at).items() if "images_moved" in name and "rece" in name]
        return case.end(remarks=f", image written and saved in {saved - case.since:.1f} s, the emptied server serves "
                                f"after {joined:.1f} s, images received: {received}")


class Writers:
    """Some 300 writes in a second, on servers in turn, by threads that go on when a connection ends."""

    def __init__(self, ports, count=24):
        self.ports, self.running, self.done, self.longest = ports, True, 0, 0.0
        self.threads = [threading.Thread(target=self.loop, args=(at, count)) for at in range(count)]
        for thread in self.threads:
            thread.start()

    def loop(self, at, count):
        link, path, last = None, f"/writer-{at}", time.monotonic()
        for step in itertools.count():
            if not self.running:
                return
            begun = time.monotonic()
            try:
                if not link:
                    link = Connection(self.ports[(at + step) % len(self.ports)], timeout_ms=10_000)
                    link.ask(CREATE, create(path))
                error, _ = link.ask(SET_DATA, text(path) + blob(b"x" * 100) + number(-1))
                if not error:
                    now, self.done = time.monotonic(), self.done + 1
                    self.longest, last = max(self.longest, now - last), now
            except (OSError, Lost):
                if link:
                    link.drop()
                link = None
            time.sleep(max(0, count / RATE - time.monotonic() + begun))

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()


def rolling(options):
    """A rolling restart under writes, the leader last: its own restart makes one election."""
    with Case(options, "rolling") as case:
        servers = case.servers.start_all()
        fill(servers.ports[servers.leader()], options.znodes or 1_000_000, b"x" * 100)
        case.begin(neighbours=False)
        writers = Writers(servers.ports)
        try:
            for at in servers.in_order():
                time.sleep(3)
                servers.stop(at)
                servers.start(at)
            time.sleep(5)
        finally:
            writers.stop()
        took = time.monotonic() - case.since
        return case.end(expected=1, remarks=f", {writers.done} writes ({writers.done / took:.0f}/s), a writer waited "
                                            f"{1000 * writers.longest:.0f} ms at most")


def reaper(options):
    """TTL znodes that are all due when the reaper looks for the first time, and no bound on how many go in a minute."""
    znodes = options.znodes or 200_000
    keys = f"znode.container.checkIntervalMs={10_000 + 1000 * znodes // FILLED_PER_S}\n"
    keys += "znode.container.maxPerMinute=2147483647"
    with Case(options, "reaper", keys=keys) as case:
        servers = case.servers.start_all()
        port, link = servers.ports[servers.leader()], None
        link = Connection(port)
        link.ask(CREATE, create("/t"))
        ttl = (1).to_bytes(8, "big")
        link.fill(batches((CREATE_TTL, create(f"/t/{at:x}", flags=TTL) + ttl) for at in range(znodes)), MULTI)
        there = left(port, "/t")
        case.begin()
        until(lambda: left(port, "/t") == 0, SLOW_S)
        time.sleep(3)
        return case.end(remarks=f", {there} due")


def ten(options):
    """One server alone with ten million small znodes: a backup beside a neighbour, a restore, a start."""
    with Case(options, "ten", alone=True) as case, Case(options, "ten-restored", alone=True) as other:
        servers, after, backup = case.servers, other.servers, case.servers.folder / "backup"
        servers.start(0)
        print(f"filled in {fill(servers.ports[0], options.znodes or 10_000_000, b'x' * 20):.0f} s", flush=True)
        case.begin()
        servers.run("snapshot", "save", backup, *servers.flags())
        good = case.end(remarks=", snapshot save")
        servers.stop(0)
        shutil.rmtree(servers.folder / "1")
        after.limit(options.share)
        begun = time.monotonic()
        after.run("snapshot", "restore", backup, after.folder / "1.cfg", share=after.shares[0])
        restored = time.monotonic()
        after.start(0)
        started = time.monotonic() - restored
        print(f"ten at {options.share} %: restore {restored - begun:.1f} s, start {started:.1f} s, "
              f"{left(after.ports[0], '/f')} znodes, longest turn {after.longest_turn_ms()[0]:.0f} ms", flush=True)
        return good


CASES = {of.__name__: of for of in (expire, copy, join, rolling, reaper, ten)}


def capped(options):
    good = []
    for name in options.cases:
        for _ in range(1 if name == "copy" else options.runs):
            good.append(CASES[name](options))
    return all(good)


