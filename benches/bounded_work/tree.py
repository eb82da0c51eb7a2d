"""A tree as bad as one client may build it within docs/LIMITS.md."""

import itertools

from wire import (ADD_WATCH, AUTH, CREATE, EPHEMERAL, EXISTS, SET_ACL, Connection, acl, blob, create, framed,
                  multi, number, text)

CHILDREN = 200_000
DEEP_OWNED = 20_000
BIG = 70
BIG_BYTES = 1_000_000
ENTRIES = 20_000
IDENTITIES = 63
FRAME_BYTES = 1_040_000
BATCH = 1000
DEEPEST = "/d" * 255
BELOW = "/d" * 249
# No identity of a client matches one of these.
STRANGERS = [(31, "digest", f"stranger{at:05}:none") for at in range(ENTRIES)]


def child(parent, at):
    return f"{parent}/{at:07}"


def batches(operations, size=BATCH):
    """Bodies of multis of so many of these."""
    operations = iter(operations)
    while some := list(itertools.islice(operations, size)):
        yield multi(some)


def fitting(make, spare=0):
    """As many of make(0), make(1)... as a frame takes, with 9 bytes before each as in a multi."""
    found, left = [], FRAME_BYTES - spare
    for at in itertools.count():
        one = make(at)
        left -= 9 + len(one)
        if left < 0:
            return found
        found.append(one)


class Tree:
    """The tree, the sessions that own it, and a connection with watches."""

    def __init__(self, port, children=CHILDREN):
        self.port, self.children = port, children
        with_all = Connection(port)
        self.owner = with_all.session
        with_all.fill((create(path) for path in ("/c", "/e", "/n", "/big")), CREATE)
        with_all.fill(batches((CREATE, create(child("/c", at))) for at in range(children)))
        with_all.fill(batches((CREATE, create(child("/e", at), flags=EPHEMERAL)) for at in range(children)))
        with_all.fill((create(f"/big/{at}", b"x" * BIG_BYTES) for at in range(BIG)), CREATE)
        for path, more in (("/listed", [(31, "world", "anyone")]), ("/closed", [])):
            with_all.fill([create(path)], CREATE)
            with_all.fill([text(path) + acl(STRANGERS[len(more):] + more) + number(-1)], SET_ACL)
        with_all.fill([create("/zookeeper/quota/c")], CREATE)
        with_all.fill([create("/zookeeper/quota/c/zookeeper_limits", b"count=100000000,bytes=-1")], CREATE)
        with_all.drop()
        deep = Connection(port)
        self.deep_owner = deep.session
        deep.fill((create("/d" * at) for at in range(1, 256)), CREATE)
        deep.fill(batches((CREATE, create(f"{BELOW}/p{at:05}")) for at in range(DEEP_OWNED)))
        deep.fill(batches((CREATE, create(f"{BELOW}/p{at:05}/e", flags=EPHEMERAL)) for at in range(DEEP_OWNED)))
        deep.drop()
        self.watching = None
        self.watch()

    def watch(self):
        """As many watches as the tree has children, of one connection that stays."""
        if self.watching:
            self.watching.drop()
        self.watching = Connection(self.port)
        self.watching.fill((text(child("/c", at)) + b"\1" for at in range(self.children)), EXISTS, window=100)

    def judged(self, link):
        """Gives a connection as many identities as one may have."""
        for at in range(IDENTITIES):
            link.socket.sendall(framed(AUTH, number(0) + text("digest") + blob(b"identity%02d:secret" % at), xid=-4))
            link.answer()
        return link

    def connect(self, who):
        """A connection of: owner, deep_owner, judged, recursive (a watch on everything), new."""
        if who in ("owner", "deep_owner"):
            return Connection(self.port, getattr(self, who))
        link = Connection(self.port)
        if who == "recursive":
            link.ask(ADD_WATCH, text("/") + number(1))
        return self.judged(link) if who == "judged" else link


def owned(port, count, timeout_ms, parent="/owned"):
    """A connection of a session with so many ephemerals."""
    link = Connection(port, timeout_ms=timeout_ms)
    link.ask(CREATE, create(parent))
    link.fill(batches((CREATE, create(child(parent, at), flags=EPHEMERAL)) for at in range(count)))
    return link
