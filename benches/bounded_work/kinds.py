"""`run kinds`: each row of rows.py once, then without a pause, at a leader, while two neighbours get and set."""

import itertools
import re
import threading
import time

from neighbour import Pair
from rows import CHANGES, ROUTES, WORDS, requests
from servers import TOKEN, Lockkeeper, ZooKeeper
from tree import Tree, owned
from wire import GET_ALL_CHILDREN_NUMBER, Connection, Lost, http, text, word

IDLE_S, FLOOD_S, OPERATORS = 0.7, 3, 8
P99_MS_MAX, MAX_MS_MAX = 20, 100
HEAD = ("row", "unit ms", "answers", "get p50", "p99", "max", "set p50", "p99", "max", "idle get p99", "max", "term")


def request_row(bench, row):
    """(unit ms, errors, answers, whether it was cut off)"""
    link = bench.tree.connect(row.who)
    frames, errors, begun = row.frames(), [], time.monotonic()
    try:
        for _ in range(row.per):
            link.socket.sendall(next(frames))
            errors.append(link.answer()[0])
        unit, cut = 1000 * (time.monotonic() - begun), False
    except (OSError, Lost):
        unit, cut = 1000 * (time.monotonic() - begun), True
    answers, until = 0, time.monotonic() + FLOOD_S
    while (left := until - time.monotonic()) > 0:
        try:
            if cut:
                link.drop()
                link = bench.tree.connect(row.who)
            more, cut_now = link.flood(frames, left)
            answers, cut = answers + more, cut or cut_now
        except (OSError, Lost):
            time.sleep(0.01)
    link.drop()
    return unit, sorted({error for error in errors if error}), answers, cut


def operator_row(ask):
    """The same of what operators ask, on many connections at once."""
    begun = time.monotonic()
    said = ask()
    unit, until, answers = 1000 * (time.monotonic() - begun), time.monotonic() + FLOOD_S, itertools.count()

    def loop():
        while time.monotonic() < until:
            try:
                ask()
                next(answers)
            except OSError:
                pass

    threads = [threading.Thread(target=loop) for _ in range(OPERATORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = re.match(rb"HTTP/1.1 (\d+)", said)
    return unit, [int(status[1])] if status and status[1] != b"200" else [], next(answers), False


def session_ends(bench):
    """closeSession of a session with as many ephemerals as the tree has children."""
    link = owned(bench.port(), bench.tree.children, 600_000)
    bench.begin()
    begun = time.monotonic()
    link.close()
    return 1000 * (time.monotonic() - begun), [], 1, False


def watches_end(bench):
    """A connection with as many watches as the tree has children ends."""
    bench.tree.watching.drop()
    begun, link = time.monotonic(), Connection(bench.port())
    link.ask(GET_ALL_CHILDREN_NUMBER, text("/c"))
    unit = 1000 * (time.monotonic() - begun)
    link.close()
    time.sleep(1)
    return unit, [], 1, False


def sessions_come(bench):
    """Sessions are opened and closed, in turn, on one connection after the other."""
    begun, answers = time.monotonic(), 0
    while time.monotonic() < begun + FLOOD_S:
        Connection(bench.port()).close()
        answers += 1
    return 1000 * (time.monotonic() - begun) / answers, [], answers, False


class Bench:
    """The servers, the tree and the neighbours of all rows."""

    def __init__(self, options):
        made = ZooKeeper if options.server == "zookeeper" else Lockkeeper
        self.options, self.pair, self.since, self.servers = options, None, 0, made(options, "kinds")

    def port(self):
        return self.servers.ports[self.at]

    def find_leader(self):
        self.at = self.servers.leader()
        self.term = self.servers.term()
        if self.pair:
            self.pair.stop()
        ports = self.servers.ports
        self.pair = Pair(ports[self.at:] + ports[:self.at])

    def begin(self):
        """What was before does not count."""
        self.pair.window(time.monotonic())
        self.since = time.monotonic()

    def rows(self):
        """(name, function) of all rows that were asked for."""
        found = [(row.name, lambda row=row: request_row(self, row)) for row in requests()]
        found += [("createSession, closeSession", lambda: sessions_come(self)),
                  ("closeSession with 200,000 ephemerals", lambda: session_ends(self)),
                  ("a connection with 200,000 watches ends", lambda: watches_end(self))]
        found += [(f"word {one}", lambda one=one: operator_row(lambda: word(self.port(), one))) for one in WORDS]
        stmk = b"stmk" + b"\0" * 8
        found.append(("word stmk", lambda: operator_row(lambda: word(self.port(), stmk))))
        if self.options.server == "lockkeeper":
            port = self.servers.admin[self.at]
            commands = re.findall(r'href="(/commands/[^"]+)"', http(port, "/commands").decode())
            asked = [("GET", path) for path in (*ROUTES, *commands)] + [("POST", path) for path in CHANGES]
            found += [(f"{method} {path}", lambda method=method, path=path: operator_row(
                lambda: http(self.servers.admin[self.at], path, method, TOKEN))) for method, path in asked]
        return [(name, act) for name, act in found if re.search(self.options.rows, name)]

    def measure(self, name, act):
        """A line of the table; whether it is as expected."""
        start = time.monotonic()
        self.pair.window(start)
        time.sleep(IDLE_S)
        idle = self.pair.window(start)[0]
        self.begin()
        try:
            unit, errors, answers, cut = act()
        except (OSError, Lost, AssertionError) as error:
            unit, errors, answers, cut = 0, [str(error)], 0, True
        get, put = self.pair.window(self.since)
        time.sleep(0.2)
        term = self.servers.term()
        changed, self.term = term - self.term, term
        bad = bool(changed) or max(get[1], put[1]) >= P99_MS_MAX or max(get[2], put[2]) >= MAX_MS_MAX
        remarks = " ".join([*(f"[{error}]" for error in errors), "[cut off]" * cut, "!" * bad]).strip()
        figures = [f"{unit:.2f}", str(answers), *(f"{value:.1f}" for value in (*get, *put, *idle[1:])), str(changed)]
        print("| " + " | ".join([f"{name} {remarks}".strip(), *figures]) + " |", flush=True)
        if changed or self.servers.role(self.at) != "leader":
            self.find_leader()
            self.tree.port = self.port()
        if changed or name.startswith("a connection with"):
            self.tree.watch()
        return not bad

    def run(self):
        self.servers.start_all()
        self.find_leader()
        begun = time.monotonic()
        self.tree = Tree(self.port(), self.options.children)
        print(f"{self.servers.name}: tree built in {time.monotonic() - begun:.0f} s; times in ms, ! unlike expected")
        print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
        self.term = self.servers.term()
        time.sleep(2)
        good = [self.measure(name, act) for name, act in self.rows()]
        print(f"{good.count(True)} of {len(good)} rows as expected; longest turns named in the logs: "
              f"{self.servers.long_turns()[:8]}")
        return all(good)

    def end(self):
        if self.pair:
            self.pair.stop()
        self.servers.end()


def kinds(options):
    bench = Bench(options)
    try:
        return bench.run()
    finally:
        bench.end()


