"""A server that lost its disk, its place in the log or some bytes comes back whole, and never shows what it has not.

In every case one server of three is struck while load runs and, beside it, an onlooker asks that server for znodes whose
data is known: no answer at all is well, a wrong one is a failure. `wiped` and `lagging` are repeated with the receiver or
the sender killed at a random moment of the way back; `damaged` turns over bytes of images, of the state store and of the
log, which must be refused and healed by `lockkeeper server --rejoin`.
"""

import json
import random
import shutil
import threading
import time

from proof import Load, judge
from suites.common import say
from wire import CREATE, OPEN_ACL, SET_DATA, Client, Expired, Lost, Refused, Session, blob, text

# What makes the way back take a while, and the log be cut behind images soon.
KEYS = {"lockkeeper.imageLogBytes": 1 << 20, "lockkeeper.checkpointMillis": 200}
FIXED, FIXED_BYTES = 2000, 4096
BULK_BYTES, PIPELINE = 16384, 32
REFUSED_SECONDS = 30


def fixed(number):
    return f"/fixed/{number}", (b"%06d" % number) * (FIXED_BYTES // 6)


def pipelined(client, calls):
    """Sends (op, body) requests, at most PIPELINE at a time ahead of their answers."""
    waiting = []
    for op, body in calls:
        waiting.append(client.request(op, body))
        if len(waiting) == PIPELINE:
            client.reply(waiting.pop(0))
    for xid in waiting:
        client.reply(xid)


def fill(ensemble):
    client = Client(*ensemble.address(ensemble.wait_for_leader()), Session(), 60)
    for path in ("/fixed", "/bulk"):
        client.ensure(path)
    pipelined(client, ((CREATE, text(path) + blob(data) + OPEN_ACL + b"\0\0\0\0")
                       for path, data in map(fixed, range(FIXED))))
    pipelined(client, ((CREATE, text(f"/bulk/{n}") + blob(b"") + OPEN_ACL + b"\0\0\0\0") for n in range(16)))
    client.end_session()


def write_much(ensemble, megabytes):
    """Sets that make log and no tree, wherever the leader is."""
    left = (megabytes << 20) // BULK_BYTES
    deadline = time.monotonic() + 120
    while left > 0:
        assert time.monotonic() < deadline, "no way to write for 120 s"
        count = min(left, 256)
        client = None
        try:
            client = Client(*ensemble.address(ensemble.wait_for_leader()), Session(), 10)
            pipelined(client, ((SET_DATA, text(f"/bulk/{n % 16}") + blob(random.randbytes(BULK_BYTES))
                                + b"\xff\xff\xff\xff") for n in range(count)))
            client.end_session()
            left -= count
        except (Lost, Expired):
            if client:
                client.close()


class Onlooker(threading.Thread):
    """Reads from one server, whatever its state, with a new session each time it loses one."""

    def __init__(self, ensemble, i):
        super().__init__(daemon=True)
        self.address, self.stopped = ensemble.address(i), threading.Event()
        self.reads, self.wrong = 0, None

    def run(self):
        client, session = None, Session()
        while not self.stopped.wait(0.005):
            path, data = fixed(random.randrange(FIXED))
            try:
                if client is None:
                    client = Client(*self.address, session, 1.0)
                got = client.get(path)[0]
                if got != data:
                    self.wrong = f"{path} is {got[:24]!r}..."
                    return
                self.reads += 1
            except Refused as refusal:
                self.wrong = f"{path}: error {refusal.code}"
                return
            except (Lost, Expired) as error:
                if client:
                    client.close()
                client = None
                if isinstance(error, Expired):
                    session = Session()

    def finish(self):
        self.stopped.set()
        self.join()
        assert self.wrong is None, f"the struck server showed what is not so: {self.wrong}"
        return self.reads


def last_index(ensemble, i):
    with open(ensemble.audit_log(i), "rb") as log:
        log.seek(0, 2)
        log.seek(max(0, log.tell() - 4096))
        tail = log.read().decode(errors="replace").rstrip("\n")
    return json.loads(tail[tail.rindex("{"):])["index"]


def image_indexes(ensemble, i):
    return sorted(int(path.stem, 16) for path in (ensemble.data(i) / "image").glob("*.image"))


def behind_the_log(ensemble, i):
    """Kills server i and writes until the leader's images are all newer than what server i has."""
    last = last_index(ensemble, i)
    ensemble.kill(i)
    deadline = time.monotonic() + 180
    while True:
        write_much(ensemble, 8)
        leader = ensemble.wait_for_leader()
        images = image_indexes(ensemble, leader)
        if len(images) >= 2 and images[0] > last:
            # The log is cut to the older image, by whole segments: one more of those.
            write_much(ensemble, 8)
            return last
        assert time.monotonic() < deadline, f"no newer images: server {leader} has {images}, server {i} ended at {last}"


def wipe(ensemble, i):
    ensemble.kill(i)
    ensemble.wipe(i)
    return None


def come_back(ensemble, i, seconds=60):
    start = time.monotonic()
    ensemble.start(i)
    ensemble.wait_until_synced(i, seconds)
    return time.monotonic() - start


def strike_and_return(ensemble, name, strike, rounds, generator):
    """The way back once in peace, then `rounds` times with a kill in the middle of it."""
    leader = ensemble.wait_for_leader()
    struck = next(i for i in ensemble.ids if i != leader)
    strike(ensemble, struck)
    peace = come_back(ensemble, struck)
    say(f"   {name}: server {struck} is back after {peace:.2f} s")
    kills = {"receiver": 0, "sender": 0}
    reads = 0
    for number in range(rounds):
        ensemble.wait_until_all_synced()
        leader = ensemble.wait_for_leader()
        struck = generator.choice([i for i in ensemble.ids if i != leader])
        last = strike(ensemble, struck)
        onlooker = Onlooker(ensemble, struck)
        onlooker.start()
        ensemble.start(struck)
        moment = generator.uniform(0, 1.2 * peace)
        time.sleep(moment)
        victim = generator.choice(["receiver", "sender"])
        kills[victim] += 1
        target = struck if victim == "receiver" else (ensemble.leader() or leader)
        ensemble.kill(target)
        ensemble.start(target)
        start = time.monotonic()
        try:
            ensemble.wait_until_synced(struck)
            ensemble.wait_until_all_synced()
        finally:
            say(f"   {name} {number + 1}: the {victim} (server {target}) killed {moment * 1000:.0f} ms after the start of "
                f"server {struck}, all whole {time.monotonic() - start:.2f} s later, {onlooker.reads} reads meanwhile")
        reads += onlooker.finish()
        if last is not None:
            assert skipped(ensemble, struck, last + 1), f"server {struck} got entry {last + 1} from a log, not an image"
    return (f"{name}: back after {peace:.2f} s undisturbed; {kills['receiver']} times the receiver and "
            f"{kills['sender']} times the sender killed on the way; {reads} reads, none wrong")


def skipped(ensemble, i, index):
    """Whether server i never applied an entry by itself, because an image contained it."""
    needle = f'"index":{index},'
    with open(ensemble.audit_log(i)) as log:
        return not any(needle in line for line in log)


def turn_over(path, generator, count=1, begin=0.0, end=1.0):
    """Inverts bytes somewhere in a part of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(count):
        at = generator.randrange(int(len(data) * begin), max(int(len(data) * end), 1))
        data[at] ^= 0xFF
    path.write_bytes(data)


def damage_newest_image(ensemble, i, generator):
    path = max((ensemble.data(i) / "image").glob("*.image"))
    turn_over(path, generator)
    return f"the newest image ({path.name})"


def damage_all_images(ensemble, i, generator):
    paths = list((ensemble.data(i) / "image").glob("*.image"))
    for path in paths:
        turn_over(path, generator)
    return f"all {len(paths)} images"


def damage_state(ensemble, i, generator):
    paths = [p for p in (ensemble.data(i) / "state").rglob("*") if p.is_file() and p.stat().st_size]
    for path in paths:
        turn_over(path, generator, count=max(4, path.stat().st_size >> 14))
    return f"the state store ({len(paths)} files)"


def damage_images_and_state(ensemble, i, generator):
    return damage_all_images(ensemble, i, generator) + " and " + damage_state(ensemble, i, generator)


def damage_log(ensemble, i, generator):
    """In the middle of what is written, where it cannot be a write that a crash cut short."""
    paths = sorted(p for p in (ensemble.data(i) / "log").iterdir() if p.stat().st_size)
    path = paths[0]
    written = len(path.read_bytes().rstrip(b"\0"))
    data = bytearray(path.read_bytes())
    at = generator.randrange(written // 4, written // 2)
    for offset in range(16):
        data[at + offset] ^= 0xFF
    path.write_bytes(data)
    return f"the log ({path.name}, byte {at} of {written})"


HEALED = [damage_newest_image, damage_all_images, damage_state, damage_images_and_state]


def damaged(ensemble, rounds, generator):
    words = []
    for number in range(rounds):
        for damage in HEALED:
            ensemble.wait_until_all_synced()
            leader = ensemble.wait_for_leader()
            struck = generator.choice([i for i in ensemble.ids if i != leader])
            ensemble.kill(struck)
            what = damage(ensemble, struck, generator)
            onlooker = Onlooker(ensemble, struck)
            onlooker.start()
            seconds = come_back(ensemble, struck)
            say(f"   damaged {number + 1}: {what} of server {struck}: back after {seconds:.2f} s, "
                f"{onlooker.finish()} reads meanwhile")
        words.append(refuse_and_rejoin(ensemble, number, generator))
    return words


def refuse_and_rejoin(ensemble, number, generator):
    """A damaged log is not started from; --rejoin makes the server a new member."""
    ensemble.wait_until_all_synced()
    leader = ensemble.wait_for_leader()
    struck = generator.choice([i for i in ensemble.ids if i != leader])
    # So that the damage is in what no image covers.
    write_much(ensemble, 3)
    ensemble.kill(struck)
    what = damage_log(ensemble, struck, generator)
    before = ensemble.output(struck).stat().st_size
    ensemble.start(struck)
    process = ensemble.processes[struck]
    deadline = time.monotonic() + REFUSED_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() not in (None, 0), f"server {struck} starts with {what} damaged\n{ensemble.tail(struck)}"
    said = ensemble.output(struck).read_text(errors="replace")[before:]
    assert "--rejoin" in said, f"the refusal does not name --rejoin: {said}"
    del ensemble.processes[struck]
    # What an earlier --rejoin put away is in the way of another one.
    for old in ensemble.data(struck).glob("set-aside-*"):
        shutil.rmtree(old)
    onlooker = Onlooker(ensemble, struck)
    onlooker.start()
    start = time.monotonic()
    ensemble.start(struck, "--rejoin")
    ensemble.wait_until_synced(struck)
    ensemble.wait_until_all_synced()
    say(f"   damaged {number + 1}: {what} of server {struck}: refused; back by --rejoin after "
        f"{time.monotonic() - start:.2f} s, {onlooker.finish()} reads meanwhile")
    return what


def run(ensemble, chosen):
    if ensemble.context.kind != "lockkeeper":
        say("   images: for Lockkeeper alone: another server's files are its own affair")
        return []
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 32)
    say(f"   seed {seed}")
    generator = random.Random(seed)
    ensemble.start_all()
    fill(ensemble)
    load = Load(ensemble, clients=3, writes_per_second=60)
    rows = []
    try:
        rows.append(strike_and_return(ensemble, "wiped", wipe, chosen.installs, generator))
        rows.append(strike_and_return(ensemble, "lagging", behind_the_log, chosen.installs, generator))
        damaged(ensemble, chosen.damages, generator)
        ensemble.wait_until_all_synced()
        figures = load.mark()
        words = judge(ensemble, load)
    finally:
        load.close()
    for row in rows:
        say(row)
    say(f"{words}; {figures['expired']} sessions of the load expired")
    return rows
