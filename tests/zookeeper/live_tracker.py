"""Curator with its defaults in a live migration: the part `migrate-curator`.

20 contenders of an InterProcessMutex and a LeaderLatch. Their EnsembleTracker goes where `/zookeeper/config` says, so each is
made to connect again and again. Server lines of ZooKeeper name addresses for clients, or do not; those of Lockkeeper do, or
get them by the command that a refused `follow` says. --source chooses ZooKeeper's version.
"""

import asyncio
import base64
import hashlib
import re
import shlex
import subprocess
from collections import Counter

from live import in_folder, with_loop
from live_checks import History
from live_clients import HERE, Child, connect_string
from live_machines import MACHINES, Machines, Orders
from live_servers import Lockkeeper, Ports, tail
from real import SetupError, fetched

CURATOR = [("org.apache.curator", "curator-recipes", "5.9.0"), ("org.slf4j", "slf4j-simple", "1.7.36")]
# Without these two the command that a refused `follow` says is refused as well, and says so.
SUPER = "super:test"
MEMBERS_CHANGE = ("reconfigEnabled=true\nDigestAuthenticationProvider.superDigest=super:"
                  f"{base64.b64encode(hashlib.sha1(SUPER.encode()).digest()).decode()}\n")
COUNT, ROOT = 20, "/tracker"
# A latch whose leader has to connect again is without one for so long at most: half of a session's timeout.
WITHOUT_LEADER_MAX = 10.0


class Told:
    """What clients of another process need of a world."""

    def __init__(self):
        self.history, self.root = History(), ROOT


class Tracked:
    """One way from ZooKeeper to Lockkeeper, and a rolling restart behind it."""

    def __init__(self, setting, theirs_named, ours_named):
        self.setting, self.told = setting, Told()
        self.theirs = Machines(setting, named=theirs_named)
        self.ours = Lockkeeper(setting, Ports(0), named=ours_named, keys="" if ours_named else MEMBERS_CHANGE)
        self.ours_named, self.orders = ours_named, Orders(setting, self.ours)
        self.child = None

    def say(self, what):
        self.told.history.phase = what
        print(f"  -- {what}", flush=True)

    async def start(self):
        await asyncio.to_thread(self.theirs.start_all)
        lib = await asyncio.to_thread(fetched, self.setting.work, "curator-5.9.0", CURATOR)
        classes = self.setting.folder / "classes"
        if subprocess.run(["javac", "-cp", f"{lib}/*", "-d", str(classes), str(HERE / "LiveTracker.java")]).returncode:
            raise SetupError("LiveTracker.java does not compile")
        self.child = Child("Curator", COUNT, self.told)
        await self.child.start("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
                               *self.log_options(), "-cp", f"{lib}/*:{classes}", "LiveTracker",
                               connect_string(self.theirs.hosts()), COUNT, ROOT)
        await asyncio.to_thread(self.ours.start_all)

    def log_options(self):
        """What trackers read, and to which server each client connects."""
        told = {"defaultLogLevel": "off", "showDateTime": "true", "dateTimeFormat": "HH:mm:ss.SSS",
                "logFile": self.setting.folder / "curator.txt", "log.org.apache.zookeeper.ClientCnxn": "info",
                "log.org.apache.curator.framework.imps.EnsembleTracker": "info"}
        return [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in told.items()]

    async def where(self):
        """Of each client its server, the addresses that its tracker has, and its session."""
        self.child.order(where=True)
        answer = await asyncio.wait_for(self.child.answers.get(), 60)
        return answer["where"]

    def addresses(self):
        return {f"127.0.0.1:{port}" for port in self.ours.ports}

    async def how_many_here(self, phase):
        where = await self.where()
        here = sum(server in self.addresses() for server, *_ in where)
        strings = {addresses for _, addresses, _ in where}
        print(f"           {phase}: {here} of {COUNT} clients are on Lockkeeper, and have {len(strings)} lists of addresses: "
              f"{' or '.join(sorted(strings))}", flush=True)
        return here

    async def all_here(self, phase, seconds=30, moving=False):
        """Until all are, and none goes away again. ZooKeeper's client takes no notice of new addresses while it connects."""
        deadline = asyncio.get_running_loop().time() + seconds
        while away := [at for at, (server, *_) in enumerate(await self.where()) if server not in self.addresses()]:
            for number in away if moving else ():
                self.child.order(move=number, hosts=connect_string(self.ours.hosts()))
            if asyncio.get_running_loop().time() > deadline:
                here = await self.how_many_here(phase)
                raise AssertionError(f"{phase}: {COUNT - here} clients are not on Lockkeeper after {seconds} s")
            await asyncio.sleep(1)
        await asyncio.sleep(2)
        here = await self.how_many_here(phase)
        assert here == COUNT, f"{phase}: {COUNT - here} clients went away from Lockkeeper"

    async def roll(self, what):
        for at in await asyncio.to_thread(self.ours.in_order):
            await asyncio.to_thread(self.ours.restart, at)
            await asyncio.to_thread(self.ours.leader)
            await asyncio.sleep(2)
        print(f"           {what}: Lockkeeper's servers were restarted one by one", flush=True)

    def follow(self):
        """Where the own lines name no address for clients: a refusal, and the command that it says."""
        if not self.ours_named:
            for left in (3, 2, 1):
                said = self.orders.refused("follow", "--from", self.theirs.from_(), names=["lockkeeper member add 'server."])
                command = shlex.split(said[said.index("lockkeeper member add"):])
                line = command[3]
                at = int(line.removeprefix("server.").split("=")[0]) - 1
                line = line.replace("<client port>", str(self.ours.ports[at]))
                done = subprocess.run([str(self.setting.binary), "member", "add", line, "--auth", f"digest:{SUPER}", "--server",
                                       connect_string(self.ours.hosts())], capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, f"`member add {line}` says {done.stdout + done.stderr}"
                print(f"           member add {line}: {done.stdout.strip()!r} ({left - 1} left)", flush=True)
        self.orders.follow(self.theirs.from_(0))

    async def move(self, hosts):
        """Half of the clients are started again with these addresses, and the others are told them."""
        for number in range(COUNT):
            self.child.order(**{"restart" if number % 2 else "move": number}, hosts=connect_string(hosts))

    async def way(self):
        await self.start()
        self.say("follow")
        await asyncio.to_thread(self.follow)
        await asyncio.sleep(2)
        self.say("clients get the addresses of both, half of them by a restart")
        await self.move(self.theirs.hosts() + self.ours.hosts())
        await asyncio.sleep(5)
        await self.how_many_here("addresses of both")
        await self.roll("addresses of both")
        await self.how_many_here("after it")
        self.say("clients get Lockkeeper's addresses, half of them by a restart")
        await self.move(self.ours.hosts())
        await self.all_here("Lockkeeper's addresses", moving=True)
        for number in (1, 2, 3):
            await self.roll(f"while it follows, round {number}")
            await self.all_here("after it")
        self.say("ZooKeeper is closed, cutover, ZooKeeper is stopped, finish")
        await asyncio.to_thread(self.theirs.close_to_clients, 0, 1, 2)
        await asyncio.to_thread(self.orders.wait, lambda status: status["sessions_elsewhere"] == 0)
        ports = [word for host in MACHINES for word in ("--ports", f"{host}={self.theirs.client}")]
        print(f"           {await asyncio.to_thread(self.orders.do, 'cutover', *ports)}", flush=True)
        await asyncio.sleep(2)
        await asyncio.to_thread(self.theirs.stop_all)
        await asyncio.to_thread(self.orders.do, "finish")
        self.say("a rolling restart of Lockkeeper, ZooKeeper is gone")
        await self.roll("after the migration")
        await self.all_here("at the end")
        await self.judge()

    def connections(self, sessions):
        """How often each of these was connected, as the clients' log says."""
        log = (self.setting.folder / "curator.txt").read_text(errors="replace")
        made = Counter(re.findall(r"Session establishment complete .* session id = (0x[0-9a-f]+)", log))
        return sorted(made[session] for session in sessions)

    async def judge(self):
        connections = self.connections([session for *_, session in await self.where()])
        self.child.order(stop=True)
        await self.child.answer("stopped", 60)
        history = self.told.history
        turns = history.check_locks()
        latch = sorted(history.turns[f"{ROOT}/latch"])
        gaps = [begin - max(end for _, end, *_ in latch[:at + 1]) for at, (begin, *_) in enumerate(latch[1:])]
        longest, holders = max(gaps, default=0.0), {holder for *_, holder in history.turns[f"{ROOT}/mutex"]}
        print(f"  {turns} turns of {len(holders)} holders, {len(latch)} of the latch's leaders, which had none for "
              f"{longest:.1f} s at most; a session was connected {connections[0]} to {connections[-1]} times", flush=True)
        if len(holders) != COUNT or len(latch) < 2:
            history.broken("coverage", f"only {len(holders)} clients had the mutex, {len(latch)} leaders had the latch")
        if connections[0] < 3:
            history.broken("coverage", f"a client was connected only {connections[0]} times")
        if longest > WITHOUT_LEADER_MAX:
            history.broken("latch", f"it had no leader for {longest:.1f} s")
        history.verdict()

    def show_logs(self):
        for at in range(3):
            for line in tail(self.ours.folder / f"{at + 1}.txt"):
                print(f"  server {at + 1}: {line:.300}")
        for _, line in self.told.history.violations[:12]:
            print(f"  BROKEN {line}")

    async def close(self):
        if self.child:
            await self.child.close()


def migrate_curator(setting):
    failed = []
    for number, (theirs, ours) in enumerate(((False, True), (True, True), (False, False), (True, False))):
        if setting.chosen.lines and setting.chosen.lines != number + 1:
            continue
        name = (f"ZooKeeper's lines {'name' if theirs else 'do not name'} addresses for clients, Lockkeeper's "
                f"{'do' if ours else 'get them by a command'}")
        print(f"-- {name}", flush=True)
        try:
            with_loop(Tracked(in_folder(setting, f"lines-{number}"), theirs, ours), Tracked.way)
        except SetupError:
            raise
        except Exception as failure:
            print(f"  FAILED: {failure}", flush=True)
            failed.append(f"{name}: {failure}")
    assert not failed, "; ".join(failed)


PARTS = {"migrate-curator": migrate_curator}
