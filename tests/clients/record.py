#!/usr/bin/env python3
"""A TCP proxy that records what a ZooKeeper client and server say to each other, frame by frame.

    record.py LISTEN_PORT SERVER_HOST:PORT OUT.txt ["# comment" ...]

One file per connection: OUT.txt, OUT-2.txt, OUT-3.txt ... in the order in which they were made. A line is one frame
without its length prefix: `> hex` from the client, `< hex` from the server; the first of each are ConnectRequest and
ConnectResponse. Lines that start with `#` are comments. A request stands before its reply, always.

An `exists` of /drop ends the connection right after its reply, so that a client shows how it takes its session up again.
"""

import pathlib
import socket
import struct
import sys
import threading

FRAME_MAX = 16 * 1024 * 1024
EXISTS = 3
DROP_PATH = b"/drop"

OPCODES = {
    -11: "closeSession", 0: "notification", 1: "create", 2: "delete", 3: "exists", 4: "getData", 5: "setData",
    6: "getACL", 7: "setACL", 8: "getChildren", 9: "sync", 11: "ping", 12: "getChildren2", 13: "check", 14: "multi",
    15: "create2", 16: "reconfig", 17: "checkWatches", 18: "removeWatches", 19: "createContainer", 20: "deleteContainer",
    21: "createTTL", 22: "multiRead", 100: "auth", 101: "setWatches", 102: "sasl", 103: "getEphemerals",
    104: "getAllChildrenNumber", 105: "setWatches2", 106: "addWatch", 107: "whoAmI",
}
SPECIAL_XIDS = {-1: "notification", -2: "ping", -4: "auth", -8: "setWatches"}


def receive(connection, size):
    """Exactly `size` bytes, or b"" if the connection ends first."""
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return b""
        data += chunk
    return data


def receive_frame(connection):
    """One frame without its length, or None at the end."""
    prefix = receive(connection, 4)
    if not prefix:
        return None
    (size,) = struct.unpack(">i", prefix)
    if not 0 <= size <= FRAME_MAX:
        raise ValueError(f"not a frame: length {size}")
    return receive(connection, size) if size else b""


def send_frame(connection, frame):
    connection.sendall(struct.pack(">i", len(frame)) + frame)


class Conversation:
    """One recorded connection. The comments name the frames for readers; nothing depends on them."""

    def __init__(self, path, comments, client, server):
        self.client, self.server = client, server
        self.lock = threading.Lock()
        self.out = open(path, "w")
        self.asked = {}
        self.drop_xid = None
        self.frames = {">": 0, "<": 0}
        for comment in comments:
            self.out.write(comment + "\n")

    def start(self):
        self.threads = [threading.Thread(target=self.pump, args=arguments, daemon=True)
                        for arguments in ((">", self.client, self.server), ("<", self.server, self.client))]
        for thread in self.threads:
            thread.start()

    def pump(self, direction, source, target):
        try:
            while (frame := receive_frame(source)) is not None:
                # Recorded before it is passed on: the other side cannot have answered yet.
                drop = self.record(direction, frame)
                send_frame(target, frame)
                if drop:
                    break
        except OSError:
            pass
        for connection in (source, target):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def record(self, direction, frame):
        """Writes the frame; True if the connection is to be dropped behind it."""
        with self.lock:
            first = self.frames[direction] == 0
            self.frames[direction] += 1
            drop = False
            if first:
                name = "ConnectRequest" if direction == ">" else "ConnectResponse"
            elif direction == ">":
                name = self.name_request(frame)
            else:
                name, drop = self.name_reply(frame)
            self.out.write(f"# {name}\n{direction} {frame.hex()}\n")
            self.out.flush()
            return drop

    def name_request(self, frame):
        xid, opcode = struct.unpack(">ii", frame[:8])
        self.asked[xid] = opcode
        if opcode == EXISTS and frame[12:12 + len(DROP_PATH)] == DROP_PATH:
            self.drop_xid = xid
        return f"{OPCODES.get(opcode, opcode)} xid {xid}"

    def name_reply(self, frame):
        xid, zxid, error = struct.unpack(">iqi", frame[:16])
        opcode = self.asked.get(xid)
        name = SPECIAL_XIDS.get(xid) or OPCODES.get(opcode, opcode)
        return f"{name} reply xid {xid} zxid {zxid:#x} error {error}", xid == self.drop_xid


class Recorder:
    """Accepts connections on `port` (0: any) of the loopback address and passes them on to `server`."""

    def __init__(self, port, server, path, comments=()):
        self.server = server
        self.path = pathlib.Path(path)
        self.comments = list(comments)
        self.conversations = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            number = len(self.conversations) + 1
            stem = self.path.stem + (f"-{number}" if number > 1 else "")
            upstream = socket.create_connection(self.server)
            for connection in (client, upstream):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one = Conversation(self.path.with_name(stem + self.path.suffix), self.comments, client, upstream)
            self.conversations.append(one)
            one.start()

    def close(self):
        """Waits for the conversations to end, then stops."""
        self.listener.close()
        for one in self.conversations:
            for thread in one.threads:
                thread.join(5)
            one.out.close()


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    host, port = sys.argv[2].rsplit(":", 1)
    recorder = Recorder(int(sys.argv[1]), (host, int(port)), sys.argv[3], sys.argv[4:])
    print(f"recording on 127.0.0.1:{recorder.port}; end with Ctrl-C", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        recorder.close()


if __name__ == "__main__":
    main()
