"""Ensembles of Lockkeeper and ZooKeeper as tests/zookeeper starts them, with shares of a core, and what they report."""

import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import live_servers
from real import word
from wire import Lost, http

TOKEN = "a-token-for-this-bench"
KEYS = "maxSessionTimeout=600000\nreconfigEnabled=true\n"
CGROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000
START_S = 1200
LONG_TURN = re.compile(r"a turn took (\d+\.\d+) s: (.*)")


class Ports(live_servers.Ports):
    FREE = range(41000, 43000)


class Setting:
    """What the ensembles of tests/zookeeper want to know."""

    def __init__(self, options, name):
        self.binary, self.folder = options.lockkeeper, pathlib.Path(options.folder) / name
        shutil.rmtree(self.folder, ignore_errors=True)

    def server(self, process):
        return process


class Share:
    """A control group of one server, without a limit until it gets one."""

    numbers = itertools.count()

    def __init__(self):
        self.folder = CGROUPS / f"bounded-work-{os.getpid()}-{next(self.numbers)}"
        self.folder.mkdir()
        self.limit(0)

    def limit(self, percent):
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.folder / "cpu.cfs_quota_us").write_text(str(percent * PERIOD_US // 100 if percent else -1))

    def enter(self, pid=0):
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self):
        until(lambda: self.folder.rmdir() is None, 10)


class Common:
    """What both kinds of ensembles have; with shares each server has a control group."""

    shares = ()

    def start(self, at, waits=True):
        super().start(at, waits=False)
        if self.shares:
            self.shares[at].enter(self.servers[at].process.pid)
        if waits:
            self.wait(at)

    def start_all(self):
        for at in range(3):
            self.start(at, waits=False)
        for at in range(3):
            self.wait(at)
        self.leader()
        return self

    def wait(self, at):
        until(lambda: self.role(at) or self.servers[at].process.poll() is not None, START_S, 0.05)
        assert self.role(at), f"server {at + 1} ended: {live_servers.tail(self.log(at))}"

    def log(self, at):
        return self.folder / f"{at + 1}.txt"

    def end(self):
        """Leaves no process, control group or file."""
        for share in self.shares:
            share.limit(0)
        for server in self.servers:
            if server:
                server.stop(signal.SIGKILL)
        for share in self.shares:
            share.remove()
        if not self.keep:
            shutil.rmtree(self.setting.folder, ignore_errors=True)


class Lockkeeper(Common, live_servers.Lockkeeper):
    """Three servers, or `alone` the first one."""

    def __init__(self, options, name, keys="", shares=False, alone=False):
        setting, self.keep, self.alone = Setting(options, name), options.keep, alone
        self.token = setting.folder / "token"
        super().__init__(setting, Ports(0), keys=f"{KEYS}lockkeeper.adminTokenFile={self.token}\n{keys}\n")
        self.token.write_text(TOKEN + "\n")
        self.token.chmod(0o600)
        self.shares = [Share() for _ in range(3)] if shares else []
        if alone:
            for config in self.folder.glob("*.cfg"):
                config.write_text(re.sub(r"server\.\d.*\n", "", config.read_text()))

    def metrics(self, at):
        """Names with labels, and their values; nothing of a server that is down."""
        try:
            said = http(self.admin[at], "/metrics").decode()
        except OSError:
            return {}
        return dict(line.rsplit(" ", 1) for line in said.splitlines() if " " in line and line[0] != "#")

    def term(self):
        return max(int(float(self.metrics(at).get("lockkeeper_raft_term", 0))) for at in range(3))

    def long_turns(self):
        """(seconds, cause) of all that the logs name, the longest first."""
        logs = [self.log(at).read_text(errors="replace") for at in range(3) if self.log(at).exists()]
        return sorted(((float(took), cause) for log in logs for took, cause in LONG_TURN.findall(log)), reverse=True)

    def longest_turn_ms(self):
        """The longest turn since the start or the last `srst`, and the server that had it."""
        found = []
        for at in range(3):
            if self.role(at):
                said = re.search(r"zk_max_lockkeeper_turn_time\s+(\S+)", word(self.port(at), "mntr"))
                found.append((float(said[1]) if said else 0, at + 1))
        return max(found)

    def limit(self, percent):
        for share in self.shares:
            share.limit(percent)

    def run(self, *arguments, share=None):
        """Runs a command of Lockkeeper; its standard output."""
        done = subprocess.run([self.setting.binary, *map(str, arguments)], capture_output=True, text=True,
                              timeout=START_S, preexec_fn=share.enter if share else None)
        if done.returncode:
            raise AssertionError(f"{arguments}: {done.stderr or done.stdout}")
        return done.stdout

    def flags(self, *which):
        """Where commands find these servers, and their token."""
        listed = ",".join(f"127.0.0.1:{self.admin[at]}" for at in which or range(1 if self.alone else 3))
        return "--admin", listed, "--admin-token-file", self.token

    def migration(self):
        return json.loads(self.run("migrate", "status", "-o", "json", *self.flags()))


class ZooKeeper(Common, live_servers.ZooKeeper):
    """Servers of Apache ZooKeeper, of the jars of `fetch_zookeeper`."""

    def __init__(self, options, name):
        self.keep = options.keep
        super().__init__(Setting(options, name), options.zookeeper, Ports(0))
        self.java = ("-Xmx1500m", "-XX:+UseSerialGC")
        self.more = KEYS

    def term(self):
        """The epoch of the last transaction."""
        return max(self.zxid(at) >> 32 for at in range(3) if self.role(at))

    def long_turns(self):
        return []


def until(asked, seconds, pause=0.1):
    """Waits for a true answer; an error counts as none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if asked():
                return
        except (OSError, Lost, AssertionError, ValueError, subprocess.SubprocessError):
            pass
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s")
