"""A raw ZooKeeper client: one connection, blocking, no retries and no thread of its own.

What it does not do is what makes it useful here: it hides nothing from a test that counts errors.
"""

import socket
import struct

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_CHILDREN, SYNC, PING, CREATE2, CLOSE = 1, 2, 3, 4, 5, 8, 9, 11, 15, -11
RECONFIG, AUTH = 16, 100
EPHEMERAL, SEQUENTIAL = 1, 2
NO_NODE, NODE_EXISTS, SESSION_EXPIRED, SESSION_MOVED, NOT_READ_ONLY = -101, -110, -112, -118, -119
FRAME_BYTES_MAX = 64 << 20
# world:anyone, all permissions
OPEN_ACL = struct.pack(">ii", 1, 31) + struct.pack(">i", 5) + b"world" + struct.pack(">i", 6) + b"anyone"
STAT = struct.Struct(">qqqqiiiqiiq")


class Lost(OSError):
    """The connection ended, or did not answer in time: whether the request was carried out is unknown."""


class Expired(Exception):
    """The server does not know the session any more."""


class Refused(Exception):
    """The server answered with an error code."""

    def __init__(self, code):
        super().__init__(f"error {code}")
        self.code = code


def text(value):
    data = value.encode()
    return struct.pack(">i", len(data)) + data


def blob(value):
    return struct.pack(">i", len(value)) + value


class Session:
    """What outlives a connection: id, password, the negotiated timeout and the newest zxid seen."""

    def __init__(self, timeout_ms=30000):
        self.id, self.password, self.timeout_ms, self.zxid = 0, b"\0" * 16, timeout_ms, 0


class Client:
    """One connection of a session, new or taken along from another server.

    >>> client = Client("127.0.0.1", 2181, Session())
    """

    def __init__(self, host, port, session, seconds=10.0, read_only=False):
        self.session = session
        self.address = (host, port)
        self.xid = 0
        self.buffer = b""
        try:
            self.socket = socket.create_connection((host, port), seconds)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.read_only = self.shake_hands(read_only)
        except OSError as error:
            self.close()
            raise Lost(str(error)) from error
        except Expired:
            self.close()
            raise

    def shake_hands(self, read_only):
        session = self.session
        self.send(struct.pack(">iqiq", 0, session.zxid, session.timeout_ms, session.id) + blob(session.password)
                  + (b"\1" if read_only else b"\0"))
        answer = self.frame()
        if len(answer) < 20:
            raise Lost("something else than a connect reply")
        _, timeout_ms, session_id = struct.unpack_from(">iiq", answer)
        if timeout_ms <= 0:
            raise Expired()
        length = struct.unpack_from(">i", answer, 16)[0]
        session.id, session.timeout_ms, session.password = session_id, timeout_ms, answer[20:20 + length]
        return len(answer) > 20 + length and answer[20 + length] == 1

    def send(self, payload):
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def frame(self):
        (length,) = struct.unpack(">i", self.exactly(4))
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise Lost(f"a frame of {length} bytes")
        return self.exactly(length)

    def exactly(self, count):
        while len(self.buffer) < count:
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise Lost("closed by the server")
            self.buffer += chunk
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def request(self, op, body):
        """Sends a request; its answer is the next one."""
        self.xid += 1
        try:
            self.send(struct.pack(">ii", self.xid, op) + body)
        except OSError as error:
            raise Lost(str(error)) from error
        return self.xid

    def reply(self, xid):
        """The body of the reply to `xid`; watch events and pings before it are dropped."""
        try:
            while True:
                answer = self.frame()
                got, zxid, code = struct.unpack_from(">iqi", answer)
                if got == xid:
                    break
                if got >= 0:
                    raise Lost(f"an answer to {got} where one to {xid} was due")
        except OSError as error:
            raise error if isinstance(error, Lost) else Lost(str(error)) from error
        if zxid > 0:
            if zxid < self.session.zxid:
                raise AssertionError(f"a reply's zxid went back from {self.session.zxid:x} to {zxid:x}")
            self.session.zxid = zxid
        if code != 0:
            raise Refused(code)
        return answer[16:]

    def call(self, op, body):
        return self.reply(self.request(op, body))

    def create(self, path, data=b"", flags=0):
        answer = self.call(CREATE, text(path) + blob(data) + OPEN_ACL + struct.pack(">i", flags))
        return answer[4:].decode()

    def ensure(self, path):
        """Creates every missing znode of a path."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            try:
                self.create("/" + "/".join(parts[:depth]))
            except Refused as refusal:
                if refusal.code != NODE_EXISTS:
                    raise

    def set(self, path, data, version=-1):
        return self.call(SET_DATA, text(path) + blob(data) + struct.pack(">i", version))

    def delete(self, path, version=-1):
        self.call(DELETE, text(path) + struct.pack(">i", version))

    def get(self, path):
        """Data and (czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid)."""
        answer = self.call(GET_DATA, text(path) + b"\0")
        (length,) = struct.unpack_from(">i", answer)
        length = max(length, 0)
        return answer[4:4 + length], STAT.unpack_from(answer, 4 + length)

    def exists(self, path):
        try:
            return STAT.unpack_from(self.call(EXISTS, text(path) + b"\0"))
        except Refused as refusal:
            if refusal.code == NO_NODE:
                return None
            raise

    def children(self, path):
        answer = self.call(GET_CHILDREN, text(path) + b"\0")
        (count,) = struct.unpack_from(">i", answer)
        names, at = [], 4
        for _ in range(count):
            (length,) = struct.unpack_from(">i", answer, at)
            names.append(answer[at + 4:at + 4 + length].decode())
            at += 4 + length
        return names

    def sync(self, path="/"):
        self.call(SYNC, text(path))

    def authenticate(self, scheme, auth):
        self.send(struct.pack(">iii", -4, AUTH, 0) + text(scheme) + blob(auth.encode()))
        self.reply(-4)

    def reconfig(self, joining=None, leaving=None, members=None):
        parts = [struct.pack(">i", -1) if part is None else text(part) for part in (joining, leaving, members)]
        self.call(RECONFIG, b"".join(parts) + struct.pack(">q", -1))

    def ping(self):
        self.socket.sendall(struct.pack(">iii", 8, -2, PING))

    def wait(self, seconds):
        """How long a call may take from now on."""
        self.socket.settimeout(seconds)

    def end_session(self):
        """Closes the session, and with it its ephemerals."""
        try:
            self.call(CLOSE, b"")
        except Lost:
            pass
        self.close()

    def close(self):
        """Drops the connection; the session lives on."""
        connection = getattr(self, "socket", None)
        if connection:
            connection.close()


def four_letter_word(host, port, word, seconds=2.0):
    """The server's answer, or "" if it gives none."""
    try:
        with socket.create_connection((host, port), seconds) as connection:
            connection.sendall(word.encode())
            answer = b""
            while chunk := connection.recv(1 << 16):
                answer += chunk
            return answer.decode(errors="replace")
    except OSError:
        return ""
