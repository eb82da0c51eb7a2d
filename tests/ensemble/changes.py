"""Members change while servers are down: of five servers some are killed, and `reconfig` asks for other voters.

It goes through if a majority of the voters before it and of those after it are up; otherwise it is refused at once, and
nothing has changed. Meanwhile a client writes to a server that stays. In half of the changes the servers that leave are
killed as soon as the change is answered. Then the others are started again, and every voter serves and votes.
"""

import random
import re
import sys
import threading
import time
from collections import namedtuple

from founding import clear
from load import Writer
from proof import everything_is_there, same_digests
from servers import CLIENT_PORT, ELECTION_PORT, PEER_NET, PEER_PORT
from suites import kazoo
from suites.common import SetupError, say
from wire import Client, Expired, Lost, Refused, Session

IDS = (1, 2, 3, 4, 5)
KEYS = {"reconfigEnabled": "true"}
# Changes with one ensemble: the next one begins with empty directories, and with the next seed.
CHANGES_EACH = 10
LOST, NO_QUORUM = -4, -13
# Longest time until a refusal, and from an answer to a write that is answered.
SECONDS_MAX = 1.0
GAP_MS_MAX = 1500
SUPER = "super:test"
SERVER_LINES = re.compile(r"^server\..*\n", re.MULTILINE)
MEMBER = re.compile(r"^server\.(\d+)=.*:(participant|observer)\b", re.MULTILINE)

# What is asked for: `joining` and `leaving`; all lines; all lines, where servers without a vote observe.
STEP, ALL, ALL_OBSERVE = "by joining and leaving", "by all lines", "by all lines with observers"
Change = namedtuple("Change", "new down way is_cut")


def run(ensemble, chosen):
    if ensemble.context.kind != "lockkeeper":
        raise SetupError("ZooKeeper asks for other majorities")
    if chosen.kazoo:
        kazoo.prepare(ensemble.context)
        sys.path.insert(0, str(kazoo.folder(ensemble.context)))
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 32)
    five = Five(ensemble, by_kazoo if chosen.kazoo else by_wire)
    try:
        five.found(IDS)
        for number, (words, make) in enumerate(FIXED.items()):
            five.restore(IDS)
            say(f"   {words}")
            five.change(number, make(ensemble.wait_for_leader()), random.Random(number))
        for number in range(chosen.changes):
            if number % CHANGES_EACH == 0:
                five.judge()
                rng = random.Random(seed + number // CHANGES_EACH)
                five.found(rng.sample(IDS, rng.randint(2, 5)))
            five.restore(five.voters)
            change = draw(rng, five.voters)
            say(f"   seed {seed + number // CHANGES_EACH}, change {number % CHANGES_EACH + 1}: {five.describe(change)}")
            five.change(len(FIXED) + number, change, rng)
        five.judge()
    finally:
        five.close()
    say(f"   {five.through} went through, the slowest in {five.slowest_ms} ms, {five.refused} were refused; longest "
        f"time without a write {five.gap_ms} ms; {five.creates} acknowledged creates are on every server; "
        f"{five.compared} audit lines compared, digests equal")


def after_the_leader(leader):
    """The leader leaves, and a server that is down."""
    gone = 3 if leader != 3 else 2
    return Change(set(IDS) - {leader, gone}, {gone}, STEP, False)


FIXED = {
    # Where 2 loses its vote before 5 does, 1 and 4 are two of four voters in between.
    "3 and 5 are down, 2 and 5 leave": lambda leader: Change({1, 3, 4}, {3, 5}, STEP, False),
    "3 and 5 are down, 2 and 5 become observers": lambda leader: Change({1, 3, 4}, {3, 5}, ALL_OBSERVE, False),
    "one is down, it and the leader leave": after_the_leader,
    "3 and 5 are down, 2 and 4 leave": lambda leader: Change({1, 3, 5}, {3, 5}, STEP, False),
}


def draw(rng, voters):
    down = set()
    for i in rng.sample(IDS, len(IDS)):
        if rng.random() < 0.6 and is_majority(set(IDS) - down - {i}, voters):
            down.add(i)
    while True:
        new = set(rng.sample(IDS, rng.randint(2, 5)))
        if new != voters:
            break
    return Change(new, down, rng.choice((STEP, ALL, ALL_OBSERVE)), rng.random() < 0.5)


def is_majority(up, voters):
    return len(up & voters) > len(voters) // 2


def line(i, role="participant"):
    return f"server.{i}={PEER_NET}.{i}:{PEER_PORT}:{ELECTION_PORT}:{role};{CLIENT_PORT}"


def lines(voters, observers):
    return [line(i) for i in sorted(voters)] + [line(i, "observer") for i in sorted(observers)]


def listed(ids):
    return " ".join(map(str, sorted(ids))) or "none"


def code_of(reconfig, asked, *failures):
    """The code of the answer, and after how many seconds it came."""
    begun = time.monotonic()
    try:
        reconfig(*asked)
        code = 0
    except failures as failure:
        code = LOST if isinstance(failure, Lost) else failure.code
    return code, time.monotonic() - begun


def by_wire(ensemble, i, *asked):
    client = Client(*ensemble.address(i), Session(10_000))
    client.authenticate("digest", SUPER)
    answered = code_of(client.reconfig, asked, Refused, Lost)
    client.close()
    return answered


def by_kazoo(ensemble, i, *asked):
    from kazoo.client import KazooClient
    from kazoo.exceptions import ZookeeperError
    client = KazooClient(":".join(map(str, ensemble.address(i))), timeout=10, auth_data=[("digest", SUPER)])
    client.start(10)
    answered = code_of(client.reconfig, asked, ZookeeperError)
    client.stop()
    client.close()
    return answered


class Five:
    """Five servers, and which of them vote and observe by what was answered."""

    def __init__(self, ensemble, ask):
        self.ensemble, self.ask = ensemble, ask
        self.voters, self.observers = set(), set()
        self.writer, self.acknowledged = None, {}
        self.through = self.refused = self.slowest_ms = self.gap_ms = self.creates = self.compared = 0

    def up(self):
        return {i for i in IDS if self.ensemble.alive(i)}

    def found(self, voters):
        """Begins with empty directories; servers without a vote observe."""
        for i in self.up():
            self.ensemble.kill(i)
        clear(self.ensemble)
        self.voters, self.observers = set(voters), set(IDS) - set(voters)
        for i in IDS:
            self.write_file(i)
        self.ensemble.start_all()
        self.wait("all servers to take part")

    def write_file(self, i):
        self.ensemble.reconfigure(i, {})
        path = self.ensemble.home(i) / "zoo.cfg"
        text = SERVER_LINES.sub("", path.read_text())
        path.write_text(text + "\n".join([*lines(self.voters, set(IDS) - self.voters), ""]))

    def restore(self, voters):
        """All five are members again. What was removed and killed may have it in its file that it is no member."""
        for i in set(IDS) - self.up():
            self.write_file(i)
            self.ensemble.start(i)
        wanted = set(voters), set(IDS) - set(voters)
        if wanted != (self.voters, self.observers):
            at = self.ensemble.wait_for_leader()
            answer = self.ask(self.ensemble, at, None, None, ",".join(lines(*wanted)))
            assert answer[0] == 0, f"the others join: {answer} from server {at}"
            self.voters, self.observers = wanted
        self.wait("all servers to take part again")

    def wait(self, what):
        """Until each member that is up serves as what it is, and the leader counts those and no others."""
        self.ensemble.wait_for(what, self.is_settled, 30)

    def is_settled(self):
        up = self.up()
        leader = self.ensemble.leader()
        if leader not in self.voters:
            return False
        figures = self.ensemble.figures(leader)
        counted = [int(float(figures.get(f"zk_synced_{name}", -1))) for name in ("followers", "observers")]
        modes = {i: "leader" if i == leader else "follower" if i in self.voters else "observer"
                 for i in (self.voters | self.observers) & up}
        return (counted == [len(self.voters & up) - 1, len(self.observers & up)]
                and all(self.ensemble.mode(i) == mode for i, mode in modes.items()))

    def describe(self, change):
        more = ", those that leave are killed" if change.is_cut and change.way != ALL_OBSERVE else ""
        return f"{listed(self.voters)} to {listed(change.new)}, down {listed(change.down)}, {change.way}{more}"

    def change(self, number, change, rng):
        for i in change.down:
            self.ensemble.kill(i)
        self.wait("the servers that are down to be missed")
        up, old = self.up(), self.voters
        before = self.config(min(up & old))
        at = rng.choice(sorted(up))
        self.begin_writer(number, up & old & change.new)
        code, seconds = self.ask(self.ensemble, at, *self.asked(change))
        answered, outcome = time.monotonic(), f"{code or 'done'} in {seconds * 1000:.0f} ms, asked of server {at}"
        goes_through = is_majority(up, old) and is_majority(up, change.new)
        if goes_through:
            assert code == 0, f"it has both majorities, and the answer is {outcome}"
            self.adopt(change)
            if change.is_cut:
                for i in up - self.voters - self.observers:
                    self.ensemble.kill(i)
        else:
            assert code == NO_QUORUM and seconds <= SECONDS_MAX, f"it lacks a majority, and the answer is {outcome}"
        for i in sorted(up & self.voters):
            self.takes_write(i, answered + SECONDS_MAX)
            if goes_through:
                self.names_members(i)
            else:
                assert self.config(i) == before, f"the change is refused, and server {i} has another configuration"
        for i in change.down:
            self.ensemble.start(i)
        self.wait("all voters to vote")
        gap_ms = self.end_writer()
        waited = "no client stays" if gap_ms is None else f"longest time without a write {gap_ms} ms"
        say(f"      {outcome}; {waited}")
        assert (gap_ms or 0) <= GAP_MS_MAX, f"a client of a server that stays waited {gap_ms} ms for a write"
        self.count(goes_through, seconds, gap_ms or 0)

    def asked(self, change):
        if change.way == STEP:
            joining, leaving = change.new - self.voters, self.voters - change.new
            return ",".join(lines(joining, ())) or None, ",".join(map(str, sorted(leaving))) or None, None
        observers = set(IDS) - change.new if change.way == ALL_OBSERVE else ()
        return None, None, ",".join(lines(change.new, observers))

    def adopt(self, change):
        self.voters = set(change.new)
        if change.way != STEP:
            self.observers = set(IDS) if change.way == ALL_OBSERVE else set()
        self.observers = self.observers - change.new

    def config(self, i):
        client = Client(*self.ensemble.address(i), Session())
        client.sync("/zookeeper/config")
        text = client.get("/zookeeper/config")[0].decode()
        client.end_session()
        return text

    def names_members(self, i):
        text = self.config(i)
        members = {int(member): role for member, role in MEMBER.findall(text)}
        due = dict.fromkeys(self.voters, "participant") | dict.fromkeys(self.observers, "observer")
        assert members == due, f"server {i} names {members}, and {due} is due"

    def takes_write(self, i, deadline):
        while True:
            try:
                client = Client(*self.ensemble.address(i), Session(), max(deadline - time.monotonic(), 0.01))
                client.set("/", b"")
                client.end_session()
                return
            except (Lost, Expired) as error:
                is_late = time.monotonic() > deadline
                assert not is_late, f"server {i} takes no write within {SECONDS_MAX} s of the answer: {error}"
                time.sleep(0.01)

    def begin_writer(self, number, stay):
        if not stay:
            return
        self.writer = Writer(number, [self.ensemble.address(min(stay))], 0.01, threading.Event())
        self.writer.start()
        self.ensemble.wait_for("the client that stays to write", lambda: self.writer.creates)
        self.writer.mark()

    def end_writer(self):
        """The longest time for which it had no write answered, in milliseconds; `None` if there is no such client."""
        writer, self.writer = self.writer, None
        if not writer:
            return None
        figures = writer.mark()
        writer.stopped.set()
        writer.join(30)
        assert not writer.broken and not figures["expired"], f"the client that stays: {writer.broken}, {figures}"
        self.acknowledged[writer.number] = {
            "creates": writer.creates, "counter": writer.counter, "counter_sent": writer.counter_sent}
        return figures["gap_ms"]

    def count(self, goes_through, seconds, gap_ms):
        self.gap_ms = max(self.gap_ms, gap_ms)
        if goes_through:
            self.through += 1
            self.slowest_ms = max(self.slowest_ms, round(seconds * 1000))
        else:
            self.refused += 1

    def close(self):
        if self.writer:
            self.writer.stopped.set()

    def judge(self):
        """What was acknowledged is on all servers, and they have applied the same."""
        self.restore(self.voters)
        self.creates += everything_is_there(self.ensemble, self.acknowledged)
        self.compared += same_digests(self.ensemble)
        self.acknowledged.clear()
