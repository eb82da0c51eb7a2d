"""A blocking client of ZooKeeper's protocol on one socket: frames are built here, answers are read as bytes."""

import select
import socket
import struct
import time

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC, PING = 1, 2, 3, 4, 5, 6, 7, 8, 9, 11
GET_CHILDREN2, CHECK, MULTI, CREATE2, RECONFIG, CHECK_WATCHES, REMOVE_WATCHES = 12, 13, 14, 15, 16, 17, 18
CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL, MULTI_READ, AUTH, SET_WATCHES, SASL = 19, 20, 21, 22, 100, 101, 102
GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, SET_WATCHES2, ADD_WATCH, WHO_AM_I, CLOSE = 103, 104, 105, 106, 107, -11
EPHEMERAL, SEQUENTIAL, CONTAINER, TTL = 1, 2, 4, 5
PATIENCE_S = 120
PIECE_BYTES = 1 << 20
FLOOD_BYTES = 1 << 16


def number(value):
    return struct.pack(">i", value)


def blob(value):
    return struct.pack(">i", len(value)) + value


def text(value):
    return blob(value.encode())


def texts(values):
    return number(len(values)) + b"".join(map(text, values))


def acl(entries):
    return number(len(entries)) + b"".join(number(perms) + text(scheme) + text(name) for perms, scheme, name in entries)


OPEN = acl([(31, "world", "anyone")])


def framed(op, body=b"", xid=1):
    return struct.pack(">iii", len(body) + 8, xid, op) + body


def create(path, data=b"", flags=0, access=OPEN):
    return text(path) + blob(data) + access + number(flags)


def delete(path):
    return text(path) + number(-1)


def multi(operations):
    """The body of a multi or multiRead of (op, body)."""
    return b"".join(struct.pack(">ibi", op, 0, -1) + body for op, body in operations) + struct.pack(">ibi", -1, 1, -1)


class Lost(Exception):
    """The server closed the connection, or refused the session."""


class Connection:
    """One connection; with `session` (id, password) it takes that session up again."""

    def __init__(self, port, session=None, timeout_ms=600_000):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.need = bytearray(), 0
        of, password = session or (0, b"\0" * 16)
        try:
            self.socket.sendall(blob(struct.pack(">iqiq", 0, 0, timeout_ms, of) + blob(password) + b"\0"))
            answer = self.frame()
        except (OSError, Lost):
            self.drop()
            raise
        _, granted, of = struct.unpack_from(">iiq", answer)
        if granted <= 0:
            self.drop()
            raise Lost("the session is over")
        self.session = (of, bytes(answer[20:36]))

    def take(self, count):
        while len(self.buffer) < count:
            piece = self.socket.recv(PIECE_BYTES)
            if not piece:
                raise Lost("closed")
            self.buffer += piece
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def frame(self):
        return self.take(struct.unpack(">i", self.take(4))[0])

    def answer(self):
        """The error and the body of the next answer; events are passed over."""
        while True:
            frame = self.frame()
            xid, _, error = struct.unpack_from(">iqi", frame)
            if xid != -1:
                return error, frame[16:]

    def ask(self, op, body=b""):
        self.socket.sendall(framed(op, body))
        return self.answer()

    def fill(self, bodies, op=MULTI, window=3):
        """Sends requests, a few on their way at once; the first error ends it."""
        waiting = 0
        for body in bodies:
            self.socket.sendall(framed(op, body))
            waiting += 1
            while waiting >= window:
                self.checked()
                waiting -= 1
        for _ in range(waiting):
            self.checked()

    def checked(self):
        error, _ = self.answer()
        if error:
            raise AssertionError(f"error {error} while filling")

    def flood(self, frames, seconds):
        """Sends frames as fast as the server takes them; says how many answers came, and whether it was cut off."""
        link, out, answers, until = self.socket, memoryview(b""), 0, time.monotonic() + seconds
        link.setblocking(False)
        while time.monotonic() < until:
            if len(out) < FLOOD_BYTES:
                pieces, size = [out], len(out)
                while size < FLOOD_BYTES:
                    pieces.append(next(frames))
                    size += len(pieces[-1])
                out = memoryview(b"".join(pieces))
            readable, writable, _ = select.select([link], [link], [], 0.2)
            try:
                if writable:
                    out = out[link.send(out[:PIECE_BYTES]):]
                if readable:
                    piece = link.recv(PIECE_BYTES)
                    if not piece:
                        return answers, True
                    answers += self.count(piece)
            except OSError:
                return answers, True
        return answers, False

    def count(self, piece):
        """How many frames end in this piece; `need` bytes of the last one are still to come."""
        if self.need >= len(piece):
            self.need -= len(piece)
            return int(self.need == 0)
        ended, data, at = int(self.need > 0), bytes(self.buffer) + piece[self.need:], 0
        self.need = 0
        self.buffer.clear()
        while len(data) - at >= 4:
            end = at + 4 + struct.unpack_from(">i", data, at)[0]
            if end > len(data):
                self.need = end - len(data)
                return ended
            ended, at = ended + 1, end
        self.buffer += data[at:]
        return ended

    def drop(self):
        """Leaves, and lets the session live."""
        self.socket.close()

    def close(self):
        self.socket.settimeout(PATIENCE_S)
        try:
            self.ask(CLOSE)
        except (OSError, Lost):
            pass
        self.drop()


def word(port, said, seconds=60):
    """The answer to a four-letter word, or to a request of HTTP that ends its connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        link.sendall(said if isinstance(said, bytes) else said.encode())
        pieces = []
        while piece := link.recv(PIECE_BYTES):
            pieces.append(piece)
    return b"".join(pieces)


def http(port, path, method="GET", token="", seconds=60):
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Lockkeeper-Change: yes\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    return word(port, f"{head}Content-Length: 0\r\n\r\n", seconds)
