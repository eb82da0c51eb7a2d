"""A server that lost its disk, its place in the log or some bytes comes back whole, and never shows what it has not.

In every case one server of three is struck while load runs and, beside it, an onlooker asks that server for znodes whose
data is known: no answer at all is well, a wrong one is a failure. `wiped` and `lagging` are repeated with the way back
interrupted at each of its steps: the receiver or the sender is killed, or the link between them is cut for a while.
`damaged` turns over bytes of images, of the state store and of the log, which must be refused and healed by
`lockkeeper server --rejoin`.
"""

import itertools
import json
import os
import random
import shutil
import struct
import threading
import time

from proof import Load, judge
from suites.common import say
from wire import CREATE, OPEN_ACL, SET_DATA, Client, Expired, Lost, Refused, Session, blob, text

# What makes the way back take a while, and the log be cut behind images soon.
KEYS = {"lockkeeper.imageLogBytes": 1 << 20, "lockkeeper.checkpointMillis": 200}
FIXED, FIXED_BYTES = 2000, 24576
BULK_BYTES, PIPELINE = 16384, 32
REFUSED_SECONDS = 30
LOG_BYTES_MIN = 1 << 17
# Of the first segment of a log, as src/storage/log/segment.rs has it.
LOG_HEADER_BYTES, LOG_BASE_AT = 128, 56


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
    """Of the last whole line of its audit log."""
    with open(ensemble.audit_log(i), "rb") as log:
        log.seek(0, 2)
        log.seek(max(0, log.tell() - 4096))
        whole = log.read().rpartition(b"\n")[0]
    return json.loads(whole.rpartition(b"\n")[2])["index"]


def image_indexes(ensemble, i):
    return sorted(int(path.stem, 16) for path in (ensemble.data(i) / "image").glob("*.image"))


def log_base(ensemble, i):
    """The index behind which the log of server i begins: it has no entry up to this one."""
    while True:
        try:
            with open(min((ensemble.data(i) / "log").glob("*.log")), "rb") as first:
                return struct.unpack_from("<Q", first.read(LOG_HEADER_BYTES), LOG_BASE_AT)[0]
        except FileNotFoundError:
            # It was cut in between.
            continue


def behind_the_log(ensemble, i):
    """Kills server i and writes until no other server's log has an entry that server i lacks; returns its last one."""
    ensemble.kill(i)
    # What follows was begun after it was killed, so it is not in the end of its log either.
    write_much(ensemble, 8)
    last = last_index(ensemble, ensemble.wait_for_leader())
    deadline = time.monotonic() + 180
    while True:
        # A log is cut behind the older of two images, a segment at a time, and no more than ten of these in a second.
        write_much(ensemble, 8)
        bases = [log_base(ensemble, other) for other in ensemble.ids if other != i]
        if min(bases) > last:
            return last
        assert time.monotonic() < deadline, f"logs begin behind {bases}, not behind {last}, where server {i} lacks entries"


def wipe(ensemble, i):
    ensemble.kill(i)
    ensemble.wipe(i)
    return None


def come_back(ensemble, i, seconds=60):
    start = time.monotonic()
    ensemble.start(i)
    ensemble.wait_until_synced(i, seconds)
    return time.monotonic() - start


# The steps of the way back, as the struck server's directory of images shows them; `any` is a random moment.
STEPS = {
    "begun": lambda names: any(name.endswith(".tmp") for name in names),
    # Over in a few milliseconds: it may be the next one already.
    "received": lambda names: any(name.endswith((".received", ".image")) for name in names),
    "installed": lambda names: any(name.endswith(".image") for name in names),
    "any": None,
}
VICTIMS = ("receiver", "sender", "link")
STEP_SECONDS = 30
CUT_SECONDS = (0.3, 5.0)


def names_of_images(ensemble, i):
    try:
        return os.listdir(ensemble.data(i) / "image")
    except FileNotFoundError:
        return []


def wait_for_step(ensemble, i, step, peace, before, generator):
    """Returns as soon as server i has come to a step: without a pause, for some of them last milliseconds."""
    if STEPS[step] is None:
        time.sleep(generator.uniform(0, 1.2 * peace))
        return
    deadline = time.monotonic() + STEP_SECONDS
    while not STEPS[step]([name for name in names_of_images(ensemble, i) if name not in before]):
        assert time.monotonic() < deadline, f"server {i} is sent no image within {STEP_SECONDS} s\n{ensemble.describe()}"
    if step == "begun":
        # Anywhere in the transfer, which takes most of the time.
        time.sleep(generator.uniform(0, peace / 3))


def interrupt(ensemble, victim, struck, leader, generator):
    """Returns words for what was done."""
    if victim == "link":
        seconds = generator.choice(CUT_SECONDS)
        ensemble.part(struck)
        time.sleep(seconds)
        ensemble.heal(struck)
        return f"link cut for {seconds} s"
    target = struck if victim == "receiver" else leader
    ensemble.kill(target)
    left = [name.split(".", 1)[1] for name in names_of_images(ensemble, struck)]
    ensemble.start(target)
    return f"{victim} (server {target}) killed, the receiver has {', '.join(sorted(left)) or 'nothing'}"


def strike_and_return(ensemble, name, strike, rounds, generator):
    """The way back once in peace, then `rounds` times with an interruption in the middle of it."""
    leader = ensemble.wait_for_leader()
    struck = next(i for i in ensemble.ids if i != leader)
    strike(ensemble, struck)
    peace = come_back(ensemble, struck)
    say(f"   {name}: server {struck} is back after {peace:.2f} s")
    kinds = list(itertools.product(VICTIMS, STEPS))
    generator.shuffle(kinds)
    reads, times = 0, []
    for number, (victim, step) in zip(range(rounds), itertools.cycle(kinds)):
        ensemble.wait_until_all_synced()
        leader = ensemble.wait_for_leader()
        struck = generator.choice([i for i in ensemble.ids if i != leader])
        last = strike(ensemble, struck)
        leader = ensemble.wait_for_leader()
        onlooker = Onlooker(ensemble, struck)
        onlooker.start()
        before = set(names_of_images(ensemble, struck))
        ensemble.start(struck)
        wait_for_step(ensemble, struck, step, peace, before, generator)
        what = interrupt(ensemble, victim, struck, leader, generator)
        start = time.monotonic()
        ensemble.wait_until_synced(struck)
        ensemble.wait_until_all_synced()
        times.append(time.monotonic() - start)
        seen = onlooker.finish()
        reads += seen
        say(f"   {name} {number + 1}: {step}: {what}; all whole {times[-1]:.2f} s later, {seen} reads meanwhile")
        if last is not None:
            assert skipped(ensemble, struck, last + 1), f"server {struck} got entry {last + 1} from a log, not an image"
    times.sort()
    median = f"{times[len(times) // 2]:.2f}" if times else "-"
    return (f"{name}: back after {peace:.2f} s undisturbed; interrupted {rounds} times, all whole again {median} s "
            f"(median; at most {max(times, default=0):.2f} s) later; {reads} reads, none wrong")


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
    files = {p: p.read_bytes() for p in sorted((ensemble.data(i) / "log").iterdir())}
    path = generator.choice([p for p, data in files.items() if len(data.rstrip(b"\0")) > LOG_BYTES_MIN])
    written = len(files[path].rstrip(b"\0"))
    data = bytearray(files[path])
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
            # The last damage may have left it none.
            while not image_indexes(ensemble, struck):
                write_much(ensemble, 8)
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
