"""A raw ZooKeeper client for asyncio: sessions that outlive their connections, and can be sent to other servers.

It does what every client library does (it pings, takes its session up again with id and password, sets its watches again
with the last zxid that it saw), hides nothing of it, and writes into a History whatever no client may ever see.
"""

import asyncio
import random
import struct
import time
from collections import deque

from live_checks import History

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, GET_CHILDREN, SYNC, PING = 1, 2, 3, 4, 5, 6, 8, 9, 11
CHECK, MULTI, CREATE2, SET_WATCHES, CLOSE = 13, 14, 15, 101, -11
WRITES = (CREATE, DELETE, SET_DATA, MULTI, CREATE2)
EPHEMERAL, SEQUENTIAL = 1, 2
NO_NODE, BAD_VERSION, NODE_EXISTS = -101, -103, -110
CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4
OPEN_ACL = struct.pack(">ii", 1, 31) + struct.pack(">i", 5) + b"world" + struct.pack(">i", 6) + b"anyone"
STAT = struct.Struct(">qqqqiiiqiiq")
HEADER = struct.Struct(">iqi")
LENGTH = struct.Struct(">i")
# Which watches an event ends.
ENDS = {CREATED: ("data", "exist"), DELETED: ("data", "exist", "child"), CHANGED: ("data", "exist"), CHILDREN: ("child",)}
SECONDS_WITHOUT_SERVER_MAX = 60


class Lost(Exception):
    """The connection ended: whether the request was carried out is unknown."""


class Expired(Exception):
    """The session is over."""


class Refused(Exception):
    def __init__(self, code):
        super().__init__(f"error {code}")
        self.code = code


class Stat:
    """The numbers of a znode."""

    __slots__ = ("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "length", "children", "pzxid")

    def __init__(self, data, at=0):
        for name, value in zip(self.__slots__, STAT.unpack_from(data, at)):
            setattr(self, name, value)

    def tuple(self):
        return tuple(getattr(self, name) for name in self.__slots__)


def text(value):
    data = value.encode()
    return LENGTH.pack(len(data)) + data


def blob(value):
    return LENGTH.pack(len(value)) + value


def texts(values):
    return LENGTH.pack(len(values)) + b"".join(text(value) for value in values)


def read_blob(data, at):
    (length,) = LENGTH.unpack_from(data, at)
    return (None, at + 4) if length < 0 else (data[at + 4:at + 4 + length], at + 4 + length)


class Watch:
    """A one-shot watch, from its registration to its event."""

    def __init__(self, kind, path):
        self.kind, self.path, self.event = kind, path, None
        self.fired = asyncio.get_running_loop().create_future()


class Link(asyncio.Protocol):
    """One connection of a session."""

    def __init__(self, session):
        loop = asyncio.get_running_loop()
        self.session, self.buffer, self.transport, self.waiting, self.xid = session, b"", None, deque(), 0
        self.shaken, self.ended = loop.create_future(), loop.create_future()
        self.sent = self.heard = self.pinged = time.monotonic()

    def connection_made(self, transport):
        self.transport = transport
        session = self.session
        self.write(struct.pack(">iqiq", 0, session.zxid, session.timeout_ms, session.id) + blob(session.password) + b"\0")

    def write(self, payload):
        self.sent = time.monotonic()
        self.transport.write(LENGTH.pack(len(payload)) + payload)

    def connection_lost(self, _error):
        # At once, so that nothing is asked of a connection that will not answer.
        if self.session.link is self:
            self.session.link = None
            self.session.up.clear()
        if not self.shaken.done():
            self.shaken.set_exception(Lost("closed before an answer"))
            self.shaken.exception()
        if not self.ended.done():
            self.ended.set_result(None)
        while self.waiting:
            answer = self.waiting.popleft()[1]
            if not answer.done():
                answer.set_exception(Lost("the connection ended"))
                answer.exception()

    def data_received(self, data):
        self.heard = time.monotonic()
        buffer = self.buffer + data if self.buffer else data
        at = 0
        while len(buffer) - at >= 4:
            (length,) = LENGTH.unpack_from(buffer, at)
            if len(buffer) - at - 4 < length:
                break
            frame = buffer[at + 4:at + 4 + length]
            at += 4 + length
            if self.session.link is not self and self.shaken.done():
                return
            self.frame(frame)
        self.buffer = buffer[at:]

    def frame(self, frame):
        if not self.shaken.done():
            _, timeout_ms, number = struct.unpack_from(">iiq", frame)
            self.session.shaken(self, timeout_ms, number, read_blob(frame, 16)[0])
            return
        xid, zxid, code = HEADER.unpack_from(frame)
        if xid == -1:
            kind, _state = struct.unpack_from(">ii", frame, 16)
            self.session.on_event(kind, read_blob(frame, 24)[0].decode())
        elif xid == -2:
            self.session.contact = max(self.session.contact, self.pinged)
            self.session.saw(zxid)
        elif xid >= 0:
            due, answer, op, watch, sent = self.waiting.popleft()
            if due != xid:
                self.session.history.broken("answers", f"{self.session.name} got an answer to {xid} where {due} was due")
            self.session.contact = max(self.session.contact, sent)
            self.session.saw(zxid)
            if watch:
                self.session.registered(watch, code)
            if op in WRITES and code == 0:
                self.session.history.wrote(sent, self.heard)
            if answer.done():
                return
            if code:
                answer.set_exception(Refused(code))
                answer.exception()
            else:
                answer.set_result(frame[16:])

    def request(self, op, body, watch=None):
        self.xid += 1
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((self.xid, answer, op, watch, time.monotonic()))
        self.write(struct.pack(">ii", self.xid, op) + body)
        return answer

    def ping(self):
        self.pinged = time.monotonic()
        self.write(struct.pack(">ii", -2, PING))

    def close(self):
        if self.transport:
            self.transport.abort()


class Session:
    """A session of a client, and the task that keeps it connected to one of its hosts."""

    def __init__(self, name, hosts, history: History, timeout_ms=20000):
        self.name, self.hosts, self.history, self.timeout_ms = name, list(hosts), history, timeout_ms
        self.id, self.password, self.zxid = 0, b"\0" * 16, 0
        self.link, self.host, self.up = None, None, asyncio.Event()
        self.watches = {"data": {}, "exist": {}, "child": {}}
        self.contact = time.monotonic()
        self.over = self.expired = False
        self.moves = self.next_host = 0
        self.plant = None
        self.task = asyncio.create_task(self.keep_connected())

    async def keep_connected(self):
        self.next_host = random.randrange(len(self.hosts))
        while not self.over:
            host = self.hosts[self.next_host % len(self.hosts)]
            self.next_host += 1
            link = Link(self)
            try:
                await asyncio.wait_for(asyncio.get_running_loop().create_connection(lambda: link, *host), 3)
                await asyncio.wait_for(link.shaken, 6)
            except (OSError, Lost, asyncio.TimeoutError):
                link.close()
                await asyncio.sleep(random.uniform(0.03, 0.15))
                continue
            except Expired:
                return
            self.host = host
            await link.ended

    def shaken(self, link, timeout_ms, number, password):
        if timeout_ms <= 0:
            self.expired = self.over = True
            link.shaken.set_exception(Expired(self.name))
            self.up.set()
            link.close()
            return
        if self.id and number != self.id:
            self.history.broken("sessions", f"{self.name} got another session than its own")
        self.id, self.timeout_ms, self.password = number, timeout_ms, password
        self.link = link
        link.shaken.set_result(None)
        self.contact = time.monotonic()
        if any(self.watches.values()):
            link.write(struct.pack(">iiq", -8, SET_WATCHES, self.zxid)
                       + b"".join(texts(list(self.watches[kind])) for kind in ("data", "exist", "child")))
        self.moves += 1
        self.up.set()

    def saw(self, zxid):
        if self.plant == "zxid-back" and zxid > 0:
            self.plant, zxid = None, zxid - 1000
        if 0 < zxid < self.zxid:
            self.history.broken("zxids", f"{self.name} saw zxid {zxid:#x} after {self.zxid:#x}")
        if zxid > self.zxid:
            self.zxid = zxid

    def on_event(self, kind, path):
        if self.plant == "watch-lost" and kind == CHANGED:
            self.plant = None
            for of in ENDS[kind]:
                self.watches[of].pop(path, None)
            return
        found = [watch for of in ENDS.get(kind, ()) if (watch := self.watches[of].pop(path, None))]
        if not found:
            self.history.broken("watches", f"{self.name} got event {kind} of {path} without a watch: doubled, or of nobody")
        for watch in found:
            watch.event = kind
            if not watch.fired.done():
                watch.fired.set_result(kind)
        if self.plant == "watch-doubled":
            self.plant = None
            self.on_event(kind, path)

    def registered(self, watch, code):
        """As in ZooKeeper's own client: exists() watches a znode that is missing, the others do not."""
        if watch.kind == "exist" and code == 0:
            self.watches["data"][watch.path] = watch
        elif code == 0 or (watch.kind == "exist" and code == NO_NODE):
            self.watches[watch.kind][watch.path] = watch

    def move(self, hosts, drop=True):
        """Gives the client other addresses; with `drop` it goes there at once."""
        self.hosts, self.next_host = list(hosts), random.randrange(len(hosts))
        if drop and self.link:
            self.link.close()

    async def connected(self):
        if not self.link:
            start = time.monotonic()
            while not self.link and not self.expired and not self.over:
                try:
                    await asyncio.wait_for(self.up.wait(), SECONDS_WITHOUT_SERVER_MAX)
                    if not self.link:
                        await asyncio.sleep(0.01)
                except asyncio.TimeoutError:
                    pass
                if time.monotonic() - start > SECONDS_WITHOUT_SERVER_MAX:
                    self.history.broken("service", f"no server let {self.name} in for {SECONDS_WITHOUT_SERVER_MAX} s")
                    raise Lost("no server")
        if self.expired or self.over:
            raise Expired(self.name)
        return self.link

    async def call(self, op, body, watch=None):
        link = await self.connected()
        return await link.request(op, body, watch)

    async def again(self, op, body, watch=None):
        """For what may be carried out twice."""
        while True:
            try:
                return await self.call(op, body, watch)
            except Lost:
                await asyncio.sleep(0.01)

    async def create(self, path, data=b"", flags=0):
        """The path and the Stat."""
        answer = await self.call(CREATE2, text(path) + blob(data) + OPEN_ACL + LENGTH.pack(flags))
        made, at = read_blob(answer, 0)
        return made.decode(), Stat(answer, at)

    async def ensure(self, path, data=b"", flags=0):
        while True:
            try:
                await self.create(path, data, flags)
                return
            except Refused as refusal:
                if refusal.code != NODE_EXISTS:
                    raise
                return
            except Lost:
                continue

    async def set(self, path, data, version=-1):
        return Stat(await self.call(SET_DATA, text(path) + blob(data) + LENGTH.pack(version)))

    async def delete(self, path, version=-1):
        await self.call(DELETE, text(path) + LENGTH.pack(version))

    async def gone(self, path):
        """Deletes, whether it is there or not."""
        try:
            await self.again(DELETE, text(path) + LENGTH.pack(-1))
        except Refused as refusal:
            if refusal.code != NO_NODE:
                raise

    async def get(self, path, watch=None):
        answer = await self.again(GET_DATA, text(path) + (b"\1" if watch else b"\0"), watch)
        data, at = read_blob(answer, 0)
        return data, Stat(answer, at)

    async def exists(self, path, watch=None):
        try:
            return Stat(await self.again(EXISTS, text(path) + (b"\1" if watch else b"\0"), watch))
        except Refused as refusal:
            if refusal.code == NO_NODE:
                return None
            raise

    async def children(self, path, watch=None):
        answer = await self.again(GET_CHILDREN, text(path) + (b"\1" if watch else b"\0"), watch)
        (count,) = LENGTH.unpack_from(answer)
        names, at = [], 4
        for _ in range(count):
            name, at = read_blob(answer, at)
            names.append(name.decode())
        return names

    async def acls(self, path):
        """The bytes of the list; its Stat is left out."""
        return (await self.again(GET_ACL, text(path)))[:-STAT.size]

    async def sync(self, path="/"):
        await self.again(SYNC, text(path))

    async def multi(self, *operations):
        """(op, body)...: all of them or none."""
        body = b"".join(struct.pack(">ibi", op, 0, -1) + of for op, of in operations) + struct.pack(">ibi", -1, 1, -1)
        answer = await self.call(MULTI, body)
        (kind,) = LENGTH.unpack_from(answer)
        if kind == -1:
            at = 0
            while at + 13 <= len(answer):
                (code,) = LENGTH.unpack_from(answer, at + 9)
                if code:
                    raise Refused(code)
                at += 13
        return answer

    async def authenticate(self, scheme, data):
        """For a connection that is not to be moved."""
        link = await self.connected()
        link.write(struct.pack(">iii", -4, 100, 0) + text(scheme) + blob(data))

    async def close(self):
        """Ends the session: its ephemerals are gone then."""
        try:
            await self.again(CLOSE, b"")
        except Expired:
            pass
        self.abandon()

    def abandon(self):
        """What a client does that dies."""
        self.over = True
        if self.link:
            self.link.close()


async def tick(sessions):
    """Pings, and gives up connections that are silent, for all sessions of a list that may grow."""
    while True:
        await asyncio.sleep(0.25)
        now = time.monotonic()
        for session in list(sessions):
            link = session.link
            if not link or session.over:
                continue
            timeout = session.timeout_ms / 1000
            silent = now - link.heard
            if silent > timeout * 2 / 3 and (link.waiting or link.pinged > link.heard):
                link.close()
            elif now - max(link.sent, link.pinged) > timeout / 4 or silent > timeout / 3 and now - link.pinged > 1:
                link.ping()

