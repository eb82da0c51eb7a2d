"""Three servers of Lockkeeper or Apache ZooKeeper on the loopback address, for scripts that do something to one of them."""

import contextlib
import os
import pathlib
import socket
import subprocess
import time

from suites.common import ROOT, SetupError, end_group, start_group
from wire import Client, Expired, Lost, Refused, Session, four_letter_word

IDS = (1, 2, 3)
HOST = "127.0.0.1"
START_SECONDS_MAX = 60


def until(condition, seconds):
    """What the condition gives once it is neither None nor False, or None if it is not within that time."""
    deadline = time.monotonic() + seconds
    while True:
        outcome = condition()
        if outcome is not None and outcome is not False:
            return outcome
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)


def server_command(zookeeper, *properties):
    """How a server is started: Apache ZooKeeper out of a folder of jars, with these Java properties, or Lockkeeper."""
    if zookeeper:
        jars = pathlib.Path(zookeeper).resolve()
        if not list(jars.glob("zookeeper-3*.jar")):
            raise SetupError(f"no ZooKeeper in {jars}")
        return ["java", "-Xmx256m", *properties, "-cp", f"{jars}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = pathlib.Path(os.environ.get("LOCKKEEPER_BIN", target / "debug" / "lockkeeper")).resolve()
    if not os.access(binary, os.X_OK):
        raise SetupError(f"no binary {binary}: cargo build")
    return [str(binary), "server"]


class Three:
    """Three servers, each with a folder of its own."""

    def __init__(self, folder, command, next_port, keys=""):
        self.folder, self.command, self.next_port = folder, command, next_port
        self.processes = {}
        self.client_ports = {i: self.fresh() for i in IDS}
        self.admin_ports = {i: self.fresh() for i in IDS}
        lines = "".join(f"server.{i}={HOST}:{self.fresh()}:{self.fresh()}\n" for i in IDS)
        has_admin = "true" if command[0] != "java" else "false"
        for i in IDS:
            home = folder / str(i)
            (home / "data").mkdir(parents=True)
            self.prepare(i)
            (home / "data" / "myid").write_text(f"{i}\n")
            (home / "zoo.cfg").write_text(
                f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={home}/data\nclientPort={self.client_ports[i]}\n"
                f"clientPortAddress={HOST}\n4lw.commands.whitelist=*\nadmin.enableServer={has_admin}\n"
                f"admin.serverAddress={HOST}\nadmin.serverPort={self.admin_ports[i]}\n{keys}{lines}")

    def prepare(self, i):
        """What a script does to the folder of server i before there is anything in it."""

    def environment(self, i):
        """The environment of server i."""
        return dict(os.environ)

    def fresh(self):
        """A port that nothing has."""
        while True:
            self.next_port += 1
            with socket.socket() as probe:
                try:
                    probe.bind((HOST, self.next_port))
                    return self.next_port
                except OSError:
                    continue

    def start(self, i):
        home = self.folder / str(i)
        with open(home / "log", "ab") as out:
            self.processes[i] = start_group([*self.command, home / "zoo.cfg"], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, cwd=home, env=self.environment(i))

    def start_all(self):
        for i in IDS:
            self.start(i)
        for i in IDS:
            if until(lambda i=i: self.serves(i), START_SECONDS_MAX) is None:
                raise SetupError(f"server {i} does not serve:\n{(self.folder / str(i) / 'log').read_text()[-3000:]}")

    def serves(self, i):
        try:
            with self.client(i) as client:
                client.set("/", b"")
                return True
        except (Lost, Expired, Refused):
            return False

    def kill(self, i):
        end_group(self.processes[i])

    def leader(self):
        """The one server that leads; waits for it."""
        def look():
            for i in IDS:
                if "Mode: leader" in four_letter_word(HOST, self.client_ports[i], "srvr", 1.0):
                    return i
            return None
        leader = until(look, START_SECONDS_MAX)
        assert leader is not None, "the servers have no leader"
        return leader

    @contextlib.contextmanager
    def client(self, i):
        client = Client(HOST, self.client_ports[i], Session(30000), 5.0)
        try:
            yield client
            client.end_session()
        finally:
            client.close()

    def close(self):
        for process in self.processes.values():
            end_group(process)
