"""Three servers (or five) from zoo.cfg files, and what can be done to them."""

import pathlib
import re
import shutil
import signal
import subprocess
import time

from network import CLIENT_NET, PEER_NET, Network
from suites.common import SUPER_DIGEST, end_group, start_group
from wire import Client, Expired, Lost, Refused, Session, four_letter_word

CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888
# What a production server of this size gets; the flags of bin/server-under-test suit many short-lived ones.
JAVA = ["java", "-XX:+UseG1GC", "-Xms512m", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
        "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
        "-Dzookeeper.admin.enableServer=false"]
SECONDS_MAX = 90


class Ensemble:
    """`keys` are further lines of every zoo.cfg; everything that the zoo.cfg does not say is the server's default."""

    def __init__(self, context, folder, ids=(1, 2, 3), keys=None):
        self.context, self.ids, self.keys = context, list(ids), dict(keys or {})
        self.folder = pathlib.Path(folder)
        self.processes = {}
        # By server: another program than the usual one.
        self.binaries = {}
        self.network = Network(self.ids)
        for i in self.ids:
            self.configure(i)

    def home(self, i):
        return self.folder / str(i)

    def data(self, i):
        return self.home(i) / "data"

    def audit_log(self, i):
        return self.home(i) / "audit.log"

    def output(self, i):
        return self.home(i) / "server.log"

    def host(self, i):
        return f"{CLIENT_NET}.{i}"

    def address(self, i):
        return self.host(i), CLIENT_PORT

    def connect_string(self):
        return ",".join(f"{self.host(i)}:{CLIENT_PORT}" for i in self.ids)

    def configure(self, i):
        self.data(i).mkdir(parents=True)
        (self.data(i) / "myid").write_text(f"{i}\n")
        self.reconfigure(i, {})

    def reconfigure(self, i, keys):
        """Writes the zoo.cfg of a server, with these keys besides."""
        lines = ["tickTime=2000", "initLimit=10", "syncLimit=5", f"dataDir={self.data(i)}", f"clientPort={CLIENT_PORT}",
                 "maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=*",
                 f"DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"]
        lines += [f"server.{j}={PEER_NET}.{j}:{PEER_PORT}:{ELECTION_PORT}" for j in self.ids]
        if self.context.kind == "lockkeeper":
            lines += [f"lockkeeper.auditLog={self.audit_log(i)}"]
        lines += [f"{key}={value}" for key, value in (self.keys | keys).items()]
        (self.home(i) / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def command(self, i, *more):
        config = str(self.home(i) / "zoo.cfg")
        if self.context.kind == "lockkeeper":
            return [str(self.binaries.get(i, self.context.lockkeeper)), "server", *more, config]
        # This one is no key of zoo.cfg to ZooKeeper.
        read_only = self.keys.get("readonlymode.enabled", "false")
        return [*JAVA, f"-Dreadonlymode.enabled={read_only}", "-cp", f"{self.context.zookeeper_lib}/*",
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", config]

    def start(self, i, *more):
        with open(self.output(i), "ab") as out:
            self.processes[i] = start_group([*self.network.enter(i), *self.command(i, *more)], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=subprocess.STDOUT, cwd=self.home(i))

    def start_all(self):
        for i in self.ids:
            self.start(i)
        self.wait_for("all servers serving", lambda: self.leader() and all(self.mode(i) for i in self.ids))

    def signal(self, i, number):
        self.processes[i].send_signal(number)

    def kill(self, i):
        """As a crash does it: no warning."""
        end_group(self.processes[i])

    def stop(self, i, seconds=30):
        """As an operator does it. Returns the exit code."""
        self.signal(i, signal.SIGTERM)
        try:
            code = self.processes[i].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"server {i} does not stop within {seconds} s of SIGTERM") from None
        end_group(self.processes[i])
        return code

    def pause(self, i):
        self.signal(i, signal.SIGSTOP)

    def resume(self, i):
        self.signal(i, signal.SIGCONT)

    def part(self, i):
        self.network.part(i)

    def heal(self, i):
        self.network.heal(i)

    def wipe(self, i):
        """What a new disk looks like: nothing but myid. The audit log stays: it is this test's, not the server's."""
        shutil.rmtree(self.data(i))
        self.data(i).mkdir()
        (self.data(i) / "myid").write_text(f"{i}\n")

    def alive(self, i):
        return i in self.processes and self.processes[i].poll() is None

    def srvr(self, i):
        return four_letter_word(*self.address(i), "srvr")

    def mode(self, i):
        found = re.search(r"^Mode: (leader|follower|observer)$", self.srvr(i), re.MULTILINE)
        return found.group(1) if found else None

    def zxid(self, i):
        found = re.search(r"^Zxid: 0x([0-9a-f]+)$", self.srvr(i), re.MULTILINE)
        return int(found.group(1), 16) if found else -1

    def figures(self, i):
        rows = [line.split("\t") for line in four_letter_word(*self.address(i), "mntr").splitlines()]
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def leader(self):
        for i in self.ids:
            if self.alive(i) and self.mode(i) == "leader":
                return i
        return None

    def wait_for(self, what, condition, seconds=SECONDS_MAX):
        """Looks every 20 ms."""
        deadline = time.monotonic() + seconds
        while True:
            outcome = condition()
            if outcome:
                return outcome
            for i, process in self.processes.items():
                if process.poll() not in (None, -signal.SIGKILL, -signal.SIGTERM, 0, 143):
                    raise AssertionError(f"waiting for {what}: server {i} ended with {process.poll()}:\n{self.tail(i)}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}\n{self.describe()}")
            time.sleep(0.02)

    def wait_for_leader(self):
        return self.wait_for("a leader", self.leader)

    def wait_until_synced(self, i, seconds=SECONDS_MAX):
        """Server i follows (or leads) and has everything that the leader had when this was called."""
        newest = self.wait_for("a leader that takes a write", self.newest_zxid)
        self.wait_for(f"server {i} to have zxid {newest:x}", lambda: self.mode(i) and self.zxid(i) >= newest, seconds)

    def newest_zxid(self):
        """That of a transaction made for the purpose: a leader of ZooKeeper without one tells of a zxid of its own."""
        leader = self.leader()
        if not leader:
            return None
        try:
            session = Session()
            client = Client(*self.address(leader), session, 2.0)
            client.set("/", b"")
            newest = session.zxid
            client.end_session()
            return newest
        except (Lost, Expired, Refused):
            return None

    def wait_until_all_synced(self):
        """Every server follows the one leader, which counts all of them as synced."""
        self.wait_for_leader()
        for i in self.ids:
            self.wait_until_synced(i)

        def counted():
            leader = self.leader()
            synced = self.figures(leader).get("zk_synced_followers") if leader else None
            return synced is not None and int(float(synced)) == len(self.ids) - 1
        self.wait_for("the leader to count the others as synced", counted)

    def tail(self, i, lines=15):
        path = self.output(i)
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    def describe(self):
        parts = []
        for i in self.ids:
            state = self.mode(i) if self.alive(i) else "not running"
            parts.append(f"server {i}: {state}, zxid {self.zxid(i):x}\n{self.tail(i)}")
        return "\n".join(parts)

    def cpu_ticks(self, i):
        fields = pathlib.Path(f"/proc/{self.processes[i].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def close(self):
        for process in self.processes.values():
            end_group(process)
        self.network.close()

    def keep_logs(self, folder):
        """Copies what explains a failure."""
        for i in self.ids:
            target = pathlib.Path(folder) / str(i)
            target.mkdir(parents=True, exist_ok=True)
            for path in (self.output(i), self.home(i) / "zoo.cfg"):
                if path.exists():
                    shutil.copy(path, target / path.name)


