"""What makes an alert fire: things that are done to three servers, sorted by the ensemble that they are done to.

Each kind of ensemble yields its causes in order. A cause names the rules that have to fire by it, and none of them may
have fired before.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable

from suites.common import SetupError, end_group
from three import HOST, IDS, Three, until
from wire import (CREATE, EPHEMERAL, EXISTS, OPEN_ACL, SEQUENTIAL, SYNC, Client, Expired, Lost, Refused, Session, blob,
                  text)

TOOLS = ("openssl", "cc", "mount", "prlimit")
FIRST_PORT = 24300
SESSION_MS = 40000
IN_FLIGHT = 1000
ANSWER_SECONDS_MAX = 30.0
HERE = pathlib.Path(__file__).resolve().parent
SLOW_DISK = HERE / "slow_disk.c", "SLOW_DISK_FILE"
WALL_CLOCK = HERE.parents[1] / "ensemble" / "wall_clock.c", "WALL_CLOCK_FILE"
KIB, MIB = 1 << 10, 1 << 20


def look_for_tools():
    if os.geteuid() != 0:
        raise SetupError("only root can mount")
    for tool in TOOLS:
        if not shutil.which(tool):
            raise SetupError(f"not installed: {tool}")


def call(*words):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SetupError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


@dataclasses.dataclass
class Cause:
    """What is done, in words and as a call, and which rules fire by it."""

    what: str
    make: Callable
    rules: list


class Loaded(Three):
    """Three servers with what clients and causes leave open, which ends with them.

    A kind may have a library in front of libc, which takes a number from a file while its server runs.
    """

    KEYS = ""
    # The library's source, and the variable with the file's name.
    LIBRARY = None

    def __init__(self, folder, command):
        self.open = contextlib.ExitStack()
        self.is_over = threading.Event()
        self.library = folder / "library.so"
        folder.mkdir(exist_ok=True)
        if self.LIBRARY:
            call("cc", "-shared", "-fPIC", "-O2", "-o", self.library, self.LIBRARY[0])
        super().__init__(folder, command, FIRST_PORT, self.KEYS)

    def environment(self, i):
        if not self.LIBRARY:
            return super().environment(i)
        self.turn(i, 0)
        return dict(os.environ, LD_PRELOAD=str(self.library)) | {self.LIBRARY[1]: str(self.number_file(i))}

    def number_file(self, i):
        return self.folder / str(i) / "number"

    def turn(self, i, number):
        """What the library of server i goes by from now on."""
        file = os.open(self.number_file(i), os.O_RDWR | os.O_CREAT)
        os.pwrite(file, struct.pack("=q", number), 0)
        os.close(file)

    def causes(self):
        raise NotImplementedError

    def stay(self, i):
        """A client of server i that stays."""
        client = Client(HOST, self.client_ports[i], Session(SESSION_MS), ANSWER_SECONDS_MAX)
        self.open.callback(client.close)
        return client

    def follower(self):
        leader = self.leader()
        return next(i for i in IDS if i != leader)

    def beside(self, run, *arguments):
        """Does that in a thread, again and again, until the ensemble is closed. A server may refuse it."""
        def again():
            while not self.is_over.is_set():
                try:
                    run(*arguments)
                except (Lost, Expired, Refused):
                    time.sleep(0.1)
        threading.Thread(target=again, daemon=True).start()

    def write(self, i, path, size):
        with self.client(i) as client:
            client.wait(ANSWER_SECONDS_MAX)
            client.ensure(path)
            while not self.is_over.is_set():
                client.set(path, b"\1" * size)
                time.sleep(0.005)

    def close(self):
        self.is_over.set()
        self.open.close()
        super().close()


def pipelined(client, op, bodies):
    """Has a thousand requests in flight. A server may refuse them."""
    xids = collections.deque()
    for body in bodies:
        xids.append(client.request(op, body))
        if len(xids) == IN_FLIGHT:
            answered(client, xids.popleft())
    for xid in xids:
        answered(client, xid)


def answered(client, xid):
    try:
        client.reply(xid)
    except Refused:
        pass


class Clients(Loaded):
    """Clients that want much of servers that may open three thousand files."""

    OPEN_FILES, ADDRESS_MAX = 3000, 2500
    KEYS = f"maxClientCnxns={ADDRESS_MAX}\nlockkeeper.checkpointMillis=1000\n"

    def __init__(self, folder, command):
        folder.mkdir(exist_ok=True)
        self.program, self.token = command[0], folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text("a-token-of-this-test-alone\n")
        self.KEYS = f"{Clients.KEYS}lockkeeper.adminTokenFile={self.token}\n"
        super().__init__(folder, ["prlimit", f"--nofile={self.OPEN_FILES}:{self.OPEN_FILES}", *command])

    def causes(self):
        self.at = self.leader()
        yield Cause(f"{self.ADDRESS_MAX + 10:,} connections from one address", self.connect_all,
                    ["connections_50", "connections_100", "open_files", "open_files_ratio", "LockkeeperFileDescriptors",
                     "refused", "LockkeeperRefusesConnections"])
        # Clients cannot take the last files: the server keeps some for itself.
        yield Cause("the limit of open files is lowered to what is open", self.lower_files, ["open_files_left"])
        yield Cause("a backup, and none after it", self.back_up, ["LockkeeperBackupOld"])
        # A follower has room for other clients.
        self.at = self.follower()
        yield Cause("10,001 watches", self.watch, ["watches"])
        yield Cause("101 ephemerals", lambda: self.fill("/ephemeral", 101, 0, EPHEMERAL), ["ephemerals"])
        yield Cause("10,001 znodes", lambda: self.fill("/many", 10_001, 0), ["znodes"])
        yield Cause("20 MB of data", lambda: self.fill("/large", 40, 500 * 1000), ["data_size", "LockkeeperNoImage"])
        yield Cause("two sessions hold a lock each, and wait for the other's", self.lock_out,
                    ["LockkeeperLockFindings", "LockkeeperLockWaits"])
        yield Cause("contenders of a lock come and go", self.count_up, ["LockkeeperLockCounter"])

    def connect_all(self):
        for _ in range(self.ADDRESS_MAX + 10):
            connection = socket.create_connection((HOST, self.client_ports[self.at]), ANSWER_SECONDS_MAX)
            self.open.callback(connection.close)

    def lower_files(self):
        pid = self.processes[self.at].pid
        limit = len(os.listdir(f"/proc/{pid}/fd")) + 8
        call("prlimit", "--pid", pid, f"--nofile={limit}:{limit}")

    def back_up(self):
        call(self.program, "snapshot", "save", self.folder / "backup", "--admin", f"{HOST}:{self.admin_ports[self.follower()]}",
             "--admin-token-file", self.token)

    def watch(self):
        pipelined(self.stay(self.at), EXISTS, [text(f"/missing/{number}") + b"\1" for number in range(10_001)])

    def fill(self, top, count, size, flags=0):
        client, data = self.stay(self.at), b"\1" * size
        client.ensure(top)
        pipelined(client, CREATE, [text(f"{top}/{number}") + blob(data) + OPEN_ACL + struct.pack(">i", flags)
                                   for number in range(count)])

    def lock_out(self):
        one, other = self.stay(self.at), self.stay(self.at)
        one.ensure("/a")
        one.ensure("/b")
        for client, path in ((one, "/a"), (other, "/b"), (one, "/b"), (other, "/a")):
            client.create(f"{path}/lock-", b"", EPHEMERAL | SEQUENTIAL)

    def count_up(self):
        client = self.stay(self.at)
        client.ensure("/counted")
        for _ in range(30):
            client.delete(client.create("/counted/lock-", b"", EPHEMERAL | SEQUENTIAL))
        client.create("/counted/lock-", b"", EPHEMERAL | SEQUENTIAL)


class SlowDisks(Loaded):
    """Disks that take long for a sync, all of them."""

    KEYS = f"lockkeeper.imageLogBytes={MIB}\nlockkeeper.checkpointMillis=1000\n"
    LIBRARY = SLOW_DISK
    WRITERS, SYNC_MICROS = 20, 800_000

    def causes(self):
        yield Cause("each sync takes 0.8 s longer, and 20 clients write", self.slow_down,
                    ["LockkeeperSlowFsync", "LockkeeperSlowWrites", "slow_fsync", "slow_snapshots", "latency_100",
                     "latency_500", "outstanding", "session_queues"])

    def slow_down(self):
        leader = self.leader()
        for i in IDS:
            self.turn(i, self.SYNC_MICROS)
        for number in range(self.WRITERS):
            self.beside(self.write, leader, f"/written-{number}", 100 * KIB)


class BadDisks(Loaded):
    """Each server has a disk of its own, in memory; one hangs, another one fills up."""

    KEYS = f"lockkeeper.imageLogBytes={MIB}\nlockkeeper.checkpointMillis=1000\n"
    LIBRARY = SLOW_DISK

    def prepare(self, i):
        self.mount(i, "data", 3000)

    def mount(self, i, name, mib):
        path = self.folder / str(i) / name
        call("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", path)
        self.open.callback(call, "umount", path)

    def causes(self):
        yield Cause("no sync of the leader's disk returns, and a client writes", self.hang, ["LockkeeperDiskHangs"])
        self.turn(self.hung, 0)
        self.at = self.follower()
        yield Cause("900 MiB are free", lambda: self.leave(900 * MIB), ["LockkeeperDiskFillsUp"])
        yield Cause("images are on a disk that is too small", self.mount_images, ["LockkeeperImagesFail"])
        yield Cause("nothing is free; with room again, the server is started", self.fill_up,
                    ["LockkeeperEndsByItself", "unrecoverable"])

    def hang(self):
        self.hung = self.leader()
        self.turn(self.hung, 600_000_000)
        self.beside(lambda: self.write(self.leader(), "/written", 100 * KIB))

    def leave(self, size):
        path = self.folder / str(self.at) / "data"
        there = os.statvfs(path)
        used = (there.f_blocks - there.f_bfree) * there.f_frsize
        call("mount", "-o", f"remount,size={used + size}", path)

    def mount_images(self):
        self.mount(self.at, "data/image", 1)
        with self.client(self.leader()) as client:
            for number in range(4):
                client.create(f"/large-{number}", b"\1" * 500 * 1000)

    def fill_up(self):
        process = self.processes[self.at]
        self.leave(4 * KIB)
        until(lambda: process.poll() is not None, 20)
        self.leave(2000 * MIB)
        self.start(self.at)

    def close(self):
        self.is_over.set()
        # Before their disks are taken away.
        for process in self.processes.values():
            end_group(process)
        super().close()


class Leaders(Loaded):
    """Servers that are asked much, stand still, and are killed."""

    def causes(self):
        yield Cause("a thousand syncs are in flight for 5 s", self.sync, ["pending_syncs"])
        first = self.leader()
        yield Cause("the leader is killed", lambda: self.kill(first),
                    ["elections", "leader_unavailable", "LockkeeperDown", "instance_down", "LockkeeperServerMissing",
                     "members_missing"])
        self.start(first)
        until(lambda: self.serves(first), 20)
        yield Cause("four leaders stand still for 3 s each", lambda: [self.pause() for _ in range(4)],
                    ["LockkeeperLeaderChanges"])
        still = self.follower()
        yield Cause("a follower stands still", lambda: self.stop(still), ["LockkeeperServerLags"])
        yield Cause("the leader is killed besides", lambda: self.kill(self.leader()),
                    ["LockkeeperServesNoClients", "LockkeeperHasNoLeader"])

    def sync(self):
        until_then = time.monotonic() + 5
        with self.client(self.leader()) as client:
            while time.monotonic() < until_then:
                pipelined(client, SYNC, [text("/")] * 2000)

    def stop(self, i):
        self.processes[i].send_signal(signal.SIGSTOP)

    def pause(self):
        paused = self.leader()
        self.stop(paused)
        time.sleep(3)
        self.processes[paused].send_signal(signal.SIGCONT)
        until(lambda: all(self.serves(i) for i in IDS), 20)


class Keys(Loaded):
    """Servers that take TLS at their client ports, each with a wall clock of its own."""

    LIBRARY = WALL_CLOCK
    CERTIFICATE_DAYS = 30

    def __init__(self, folder, command):
        folder.mkdir()
        self.store = folder / "store.pem"
        self.certify(self.CERTIFICATE_DAYS)
        self.KEYS = f"client.portUnification=true\nssl.clientAuth=none\nssl.keyStore.location={self.store}\n"
        super().__init__(folder, command)

    def certify(self, days):
        """A new certificate takes the place of the one that is there."""
        key, certificate = self.store.with_suffix(".key"), self.store.with_suffix(".crt")
        call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x",
             "-addext", "subjectAltName=IP:127.0.0.1", "-days", days, "-keyout", key, "-out", certificate)
        self.replace(certificate.read_text() + key.read_text())

    def replace(self, content):
        new = self.store.with_suffix(".new")
        new.write_text(content)
        new.rename(self.store)

    def causes(self):
        yield Cause("a client begins a handshake and falls silent", self.begin_handshake, ["tls_handshakes"])
        yield Cause("the certificate gives way to one for 3 days", lambda: self.certify(3), ["LockkeeperCertificateEnds"])
        yield Cause("it gives way to something else", lambda: self.replace("no certificate\n"), ["LockkeeperKeysOutdated"])
        yield Cause("a follower's clock is 5 s ahead", lambda: self.turn(self.follower(), 5000), ["LockkeeperClocksApart"])

    def begin_handshake(self):
        connection = socket.create_connection((HOST, self.client_ports[self.leader()]), ANSWER_SECONDS_MAX)
        self.open.callback(connection.close)
        connection.sendall(b"\x16\x03\x01\x00\xc8\x01")


KINDS = {"clients": Clients, "slow_disks": SlowDisks, "bad_disks": BadDisks, "leaders": Leaders, "keys": Keys}
