"""Every request kind, four-letter word and HTTP route at its dearest: the rows of `run kinds`."""

import itertools
import struct

from tree import BELOW, BIG, BIG_BYTES, DEEPEST, STRANGERS, child, fitting
from wire import (ADD_WATCH, AUTH, CHECK, CHECK_WATCHES, CONTAINER, CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL,
                  DELETE, DELETE_CONTAINER, EPHEMERAL, EXISTS, GET_ACL, GET_ALL_CHILDREN_NUMBER, GET_CHILDREN,
                  GET_CHILDREN2, GET_DATA, GET_EPHEMERALS, MULTI, MULTI_READ, OPEN, PING, RECONFIG, REMOVE_WATCHES,
                  SASL, SEQUENTIAL, SET_ACL, SET_DATA, SET_WATCHES, SET_WATCHES2, SYNC, TTL, WHO_AM_I, acl, blob,
                  create, delete, framed, multi, number, text, texts)

WORDS = "ruok srvr stat cons crst srst conf dump wchs wchc wchp dirs envi gtmk isro mntr hash".split()
ROUTES = """/ /console.css /console.js /livez /locks /locks?prefix=/e /locks/history?path=/e /metrics /migration
    /overview /pre_stop /readyz /sessions /watches /znodes?path=/c&limit=500 /znodes?path=/e&limit=500
    /znodes?path=/big/0 /znodes?path=/listed /snapshot /commands""".split()
CHANGES = """/bootstrap?without=2 /locks/break?node=/e/0000001&token=1 /locks/revoke?node=/e/0000001&token=1 /upgrade
    /migration/abort /migration/cutover /migration/finish /migration/follow?from=127.0.0.1:1""".split()
LATE, EARLY = struct.pack(">q", 1 << 61), struct.pack(">q", 0)
LARGE = b"x" * BIG_BYTES
ONE = number(-1)


class Row:
    """`frames`: what is sent over and over; `per` of them are a unit. `who` sends: see Tree.connect."""

    def __init__(self, name, op, bodies, who="new", xid=1):
        self.name, self.op, self.who, self.xid = name, op, who, xid
        self.bodies = [bodies] if isinstance(bodies, bytes) else bodies
        self.per = len(self.bodies) if isinstance(self.bodies, list) else 1

    def frames(self):
        """Endless; bodies are bytes, of pairs (op, bytes) where requests differ."""
        if isinstance(self.bodies, list):
            made = [self.frame(body) for body in self.bodies]
            return itertools.cycle(made)
        return map(self.frame, self.bodies())

    def frame(self, body):
        op, body = body if isinstance(body, tuple) else (self.op, body)
        return framed(op, body, self.xid)


def pair(path, data=b"", flags=0, access=OPEN, op=CREATE, more=b""):
    return [(op, create(path, data, flags, access) + more), (DELETE, delete(path))]


def lists(paths, kinds):
    return b"".join(texts(paths if at == 0 else []) for at in range(kinds))


def reads():
    yield Row("ping", PING, b"", xid=-2)
    yield Row("exists", EXISTS, text("/c/0000001") + b"\0")
    yield Row("exists, 255 components", EXISTS, text(DEEPEST) + b"\0")
    yield Row("exists, a path of 1 MB, watched", EXISTS, text("/" + "x" * BIG_BYTES) + b"\1")
    yield Row("exists, other watches each", EXISTS, lambda: (text(f"/w{at}") + b"\1" for at in itertools.count()))
    yield Row("getData", GET_DATA, text("/c/0000001") + b"\1")
    yield Row("getData of 1 MB", GET_DATA, text("/big/0") + b"\0")
    yield Row("getData refused by 20,000 entries, 64 identities", GET_DATA, text("/closed") + b"\0", "judged")
    yield Row("getACL of 20,000 entries", GET_ACL, text("/listed"))
    yield Row("getChildren of 200,000", GET_CHILDREN, text("/c") + b"\0")
    yield Row("getChildren2 of 200,000, watched", GET_CHILDREN2, text("/c") + b"\1")
    yield Row("getEphemerals, all of 200,000", GET_EPHEMERALS, text("/e"), "owner")
    yield Row("getEphemerals, none of 200,000", GET_EPHEMERALS, text("/e/none"), "owner")
    yield Row("getEphemerals, none of 20,000 deep", GET_EPHEMERALS, text(BELOW + "/none"), "deep_owner")
    yield Row("getAllChildrenNumber of all", GET_ALL_CHILDREN_NUMBER, text("/"))
    yield Row("getAllChildrenNumber of 200,000", GET_ALL_CHILDREN_NUMBER, text("/c"))
    big = [(GET_DATA, text(f"/big/{at}") + b"\0") for at in range(BIG)]
    yield Row("multiRead of 60 MB", MULTI_READ, multi(big[:60]))
    yield Row("multiRead of 70 MB, refused", MULTI_READ, multi(big))
    yield Row("multiRead, a frame of getData", MULTI_READ, many(GET_DATA, lambda at: text("/c") + b"\0"))
    yield Row("multiRead, 2,000 of getData, 255 components", MULTI_READ,
              many(GET_DATA, lambda at: text(DEEPEST) + b"\0"))
    yield Row("multiRead, 40,000 refused by 20,000 entries, 64 identities", MULTI_READ,
              multi([(GET_DATA, text("/closed") + b"\0")] * 40_000), "judged")
    yield Row("multiRead, 20 of getChildren of 200,000", MULTI_READ, multi([(GET_CHILDREN, text("/c") + b"\0")] * 20))
    yield Row("multiRead, a frame of getChildren, refused", MULTI_READ,
              many(GET_CHILDREN, lambda at: text("/c") + b"\0"))
    yield Row("sync", SYNC, text("/"))
    yield Row("whoAmI, 64 identities", WHO_AM_I, b"", "judged")


def many(op, make):
    """A multi as large as a frame."""
    return multi([(op, one) for one in fitting(make)])


def watches():
    watched = [child("/c", at) for at in range(70_000)]
    deep = [DEEPEST[:-2 * (at % 5)] if at % 5 else DEEPEST for at in range(2_000)]
    yield Row("setWatches of 70,000", SET_WATCHES, LATE + lists(watched, 3), xid=-8)
    yield Row("setWatches of 70,000, all changed", SET_WATCHES, EARLY + lists(watched, 3), xid=-8)
    yield Row("setWatches of 2,000, 255 components", SET_WATCHES, LATE + lists(deep, 3), xid=-8)
    for kind, more in (("persistent", texts(watched) + texts([])), ("recursive", texts([]) + texts(watched))):
        yield Row(f"setWatches2 of 70,000, {kind}", SET_WATCHES2, LATE + lists([], 3) + more, xid=-8)
    both = [(ADD_WATCH, text(DEEPEST) + number(1)), (REMOVE_WATCHES, text(DEEPEST) + number(3))]
    yield Row("addWatch, removeWatches, 255 components", ADD_WATCH, both)
    yield Row("addWatch, other paths each", ADD_WATCH,
              lambda: (text(f"/w{at}") + number(1) for at in itertools.count()))
    yield Row("removeWatches, none", REMOVE_WATCHES, text("/c") + number(3))
    yield Row("checkWatches, none", CHECK_WATCHES, text("/c") + number(3))


def writes():
    yield Row("create, delete below 200,000", CREATE, pair("/c/x"))
    yield Row("create2, delete, 255 components", CREATE2, pair("/d" * 254 + "/x", op=CREATE2))
    yield Row("create, delete of 1 MB", CREATE, pair("/n/large", LARGE))
    yield Row("create, delete with 20,000 entries", CREATE, pair("/n/listed", access=acl(STRANGERS)))
    yield Row("create refused by 20,000 entries, 64 identities", CREATE, create("/closed/x"), "judged")
    yield Row("create of 256 components, refused", CREATE, create(DEEPEST + "/x"))
    yield Row("create, another each", CREATE, lambda: (create(f"/n/a{at}") for at in itertools.count()))
    yield Row("create, sequential", CREATE2, create("/n/s", flags=SEQUENTIAL))
    yield Row("create, sequential ephemeral", CREATE2, create("/n/e", flags=EPHEMERAL | SEQUENTIAL))
    yield Row("createContainer, delete", CREATE_CONTAINER, pair("/n/c", flags=CONTAINER, op=CREATE_CONTAINER))
    yield Row("createTTL, delete", CREATE_TTL, pair("/n/t", flags=TTL, op=CREATE_TTL, more=struct.pack(">q", 10**8)))
    yield Row("delete, none there", DELETE, delete("/n/none"))
    yield Row("setData", SET_DATA, text("/n") + blob(b"x" * 100) + ONE)
    yield Row("setData of 1 MB", SET_DATA, text("/big/0") + blob(LARGE) + ONE)
    yield Row("setData, 255 components", SET_DATA, text(DEEPEST) + blob(b"") + ONE)
    yield Row("setData refused by 20,000 entries, 64 identities", SET_DATA, text("/closed") + blob(b"") + ONE, "judged")
    yield Row("setACL of 20,000 entries", SET_ACL, text("/n") + acl(STRANGERS[1:] + [(31, "world", "anyone")]) + ONE)
    yield Row("setACL", SET_ACL, text("/n") + OPEN + ONE)
    yield Row("reconfig of 64 KB, refused", RECONFIG, text("x" * 64_000) + text("") + text("") + struct.pack(">q", -1))
    yield Row("auth", AUTH, number(0) + text("digest") + blob(b"a:b"), xid=-4)
    quota = "/zookeeper/quota/c/zookeeper_stats"
    yield Row("zookeeper_stats of 200,000, create and delete in a multi", MULTI,
              multi([(CREATE, create(quota, b"count=1,bytes=0")), (DELETE, delete(quota))]))
    yield Row("opcodes that close: createSession", -10, b"")
    yield Row("opcodes that close: deleteContainer", DELETE_CONTAINER, text("/c"))
    yield Row("opcodes that close: check", CHECK, text("/c") + ONE)
    yield Row("sasl", SASL, blob(b"x"))


def transactions():
    pairs = len(fitting(lambda at: create(f"/n{at:05}") + b"\0" * 9 + delete(f"/n{at:05}")))
    both = [of for at in range(pairs) for of in ((CREATE, create(f"/n{at:05}")), (DELETE, delete(f"/n{at:05}")))]
    made = fitting(lambda at: create(f"/n{at:05}"), spare=100)
    creates = [(CREATE, one) for one in made]
    deletes = [(DELETE, delete(f"/n{at:05}")) for at in range(len(made))]
    names = fitting(lambda at: create(f"{'/d' * 254}/x{at:03}"))
    deep = [(CREATE, one) for one in names[:900]] + [(DELETE, delete(f"{'/d' * 254}/x{at:03}")) for at in range(900)]
    yield Row("multi, a frame of check", MULTI, many(CHECK, lambda at: text("/c") + ONE))
    yield Row("multi, a frame of check, 255 components", MULTI, many(CHECK, lambda at: text(DEEPEST) + ONE))
    yield Row("multi, a frame of check refused at its end", MULTI, multi(
        [(CHECK, text("/c") + ONE)] * 50_000 + [(CHECK, text("/none") + ONE)]))
    yield Row("multi, a frame of create and delete", MULTI, multi(both))
    yield Row("multi, a frame of create and delete, told to a watch on all", MULTI, multi(both), "recursive")
    yield Row("multi, a frame of create refused at its end", MULTI, multi(creates + [(DELETE, delete("/none"))]))
    yield Row("multi, a frame of create, one of delete", MULTI, [multi(creates), multi(deletes)])
    yield Row("multi of 1,800 create and delete, 255 components", MULTI, multi(deep))
    yield Row("multi, a frame of setData", MULTI, many(SET_DATA, lambda at: text("/n") + blob(b"") + ONE))
    yield Row("multi, a frame refused by 20,000 entries, 64 identities", MULTI, many(
        SET_DATA, lambda at: text("/closed") + blob(b"") + ONE), "judged")


def requests():
    return [*reads(), *watches(), *writes(), *transactions()]
