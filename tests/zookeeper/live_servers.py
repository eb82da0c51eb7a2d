"""Two ensembles of three servers on one machine, and the commands that move one's clients to the other."""

import asyncio
import json
import pathlib
import random
import signal
import socket
import subprocess
import time
import urllib.request

from real import Process, SetupError, word, zookeeper

TICK_MS = 1000
TIMES = f"tickTime={TICK_MS}\ninitLimit=10\nsyncLimit=5\nclientPortAddress=127.0.0.1\n"
JAVA = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def server_lines(first, quorum, election, kind=""):
    return "".join(f"server.{first + at}=127.0.0.1:{quorum[at]}:{election[at]}{kind}\n" for at in range(3))


def make_data(folder, first):
    for at in range(3):
        data = folder / str(at + 1)
        data.mkdir()
        (data / "myid").write_text(f"{first + at}\n")


class Ports:
    """Ports from a number on, or free ones that no outgoing connection takes while their server is away."""

    FREE = range(20000, 32000)

    def __init__(self, first):
        self.next, self.taken = first, set()

    def take(self, count=3):
        if not self.next:
            return [self.free() for _ in range(count)]
        taken = list(range(self.next, self.next + count))
        self.next += count
        return taken

    def free(self):
        while True:
            port = random.choice(self.FREE)
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            if port not in self.taken:
                self.taken.add(port)
                return port


class Ensemble:
    """Three servers, by number from 0."""

    def __init__(self, setting, folder):
        self.setting, self.folder, self.servers, self.closed = setting, folder, [None] * 3, set()
        folder.mkdir(parents=True)

    def port(self, at):
        return self.ports[at]

    def host(self, at):
        return "127.0.0.1"

    def hosts(self):
        return [(self.host(at), self.port(at)) for at in range(3)]

    def role(self, at):
        """leader, follower, observer, or None."""
        if self.servers[at] is None or self.servers[at].process.poll() is not None:
            return None
        try:
            said = word(self.port(at), "srvr", self.host(at))
        except OSError:
            return None
        return next((line.split(": ")[1] for line in said.splitlines() if line.startswith("Mode: ")), None)

    def zxid(self, at):
        said = word(self.port(at), "srvr", self.host(at))
        return next(int(line.split(": ")[1], 16) for line in said.splitlines() if line.startswith("Zxid: "))

    def leader(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at in range(3):
                if self.role(at) == "leader":
                    return at
            time.sleep(0.05)
        raise AssertionError(f"{self.name} has no leader for {seconds} s")

    def start_all(self):
        for at in range(3):
            self.start(at, waits=False)
        for server in self.servers:
            server.wait()
        self.leader()

    def stop(self, at, how=signal.SIGTERM):
        self.servers[at].stop(how)

    def restart(self, at, closed=None):
        """Stops a server and starts it again; with `closed`, where clients find it not, or find it again."""
        self.stop(at)
        if closed is True:
            self.closed.add(at)
        elif closed is False:
            self.closed.discard(at)
        self.start(at)

    def in_order(self):
        """The followers first, as an operator restarts them."""
        leader = self.leader()
        return [at for at in range(3) if at != leader] + [leader]


class ZooKeeper(Ensemble):
    """`hidden` ports are known to this test alone: what closed client ports are where all run on one machine."""

    name = "ZooKeeper"

    def __init__(self, setting, lib, ports, digest=True, secured=None):
        super().__init__(setting, setting.folder / "zookeeper")
        self.more = secured.zookeeper_lines() if secured else ""
        self.java = (*JAVA, f"-Dzookeeper.digest.enabled={str(digest).lower()}", *(secured.java() if secured else ()))
        self.lib, self.ports, self.hidden = lib, ports.take(), ports.take()
        self.quorum, self.election = ports.take(), ports.take()
        self.lines = server_lines(1, self.quorum, self.election)
        make_data(self.folder, 1)

    def port(self, at):
        return self.hidden[at] if at in self.closed else self.ports[at]

    def start(self, at, waits=True):
        server = zookeeper(self.lib, self.folder / str(at + 1), self.folder / f"{at + 1}.txt", port=self.port(at), waits=waits,
                           extra=TIMES + self.lines + self.more, java=self.java)
        self.servers[at] = self.setting.server(server)


class Lockkeeper(Ensemble):
    name = "Lockkeeper"

    def __init__(self, setting, ports, secured=None, keys="", named=True):
        """`named`: the server lines have addresses for clients."""
        super().__init__(setting, setting.folder / "lockkeeper")
        # Of a key that is given twice the last one counts.
        more = (secured.lockkeeper_lines() if secured else "") + keys
        self.ports, self.peers, self.election, self.admin = (ports.take() for _ in range(4))
        for at in range(3):
            lines = "".join(f"server.{one + 1}=127.0.0.1:{self.peers[one]}:{self.election[one]}"
                            + (f";127.0.0.1:{self.ports[one]}\n" if named else "\n") for one in range(3))
            (self.folder / f"{at + 1}.cfg").write_text(
                f"dataDir={self.folder / str(at + 1)}\nclientPort={self.ports[at]}\nclientPortAddress=127.0.0.1\n"
                f"tickTime={TICK_MS}\ninitLimit=10\nsyncLimit=5\n{lines}admin.serverAddress=127.0.0.1\n"
                f"admin.serverPort={self.admin[at]}\n4lw.commands.whitelist=*\nextendedTypesEnabled=true\nmaxClientCnxns=0\n{more}")

    def start(self, at, waits=True):
        command = [str(self.setting.binary), "server", "--myid", str(at + 1), str(self.folder / f"{at + 1}.cfg")]
        self.servers[at] = self.setting.server(Process(command, self.ports[at], self.folder / f"{at + 1}.txt", waits))


class Observers(Ensemble):
    """A stand-in for Lockkeeper up to the cutover: three observers of that ZooKeeper."""

    name = "the observers"

    def __init__(self, setting, theirs, ports):
        super().__init__(setting, setting.folder / "observers")
        self.lib, self.ports = theirs.lib, ports.take()
        self.lines = theirs.lines = theirs.lines + server_lines(4, ports.take(), ports.take(), ":observer")
        make_data(self.folder, 4)

    def start(self, at, waits=True):
        self.servers[at] = self.setting.server(zookeeper(
            self.lib, self.folder / str(at + 1), self.folder / f"{at + 1}.txt", port=self.port(at), waits=waits,
            extra=f"{TIMES}{self.lines}peerType=observer\n", java=JAVA))

    def leader(self, seconds=60):
        return 0


class NoMigration:
    """What goes with the stand-in: all is as it is to be, and nothing happens."""

    def __init__(self):
        self.state = "none"

    async def follow(self):
        self.state = "following"

    async def status(self):
        return {"state": self.state, "compared": 0}

    async def wait_for(self, *_states, seconds=90):
        return await self.status()

    async def cutover(self):
        await asyncio.sleep(0.1)
        self.state = "done"

    async def finish(self):
        return None

    async def abort(self):
        if self.state == "done":
            return "it is done"
        self.state = "none"
        return None


class Migration:
    """The commands of `lockkeeper migrate`: all that this test knows of their text is here."""

    def __init__(self, binary, theirs, ours):
        self.binary, self.theirs, self.ours = binary, theirs, ours
        self.admin = ",".join(f"127.0.0.1:{port}" for port in ours.admin)
        help = subprocess.run([str(binary), "migrate", "--help"], capture_output=True, text=True)
        if help.returncode != 0:
            raise SetupError(f"{binary} has no command migrate")

    def commands(self):
        listed = ",".join(f"127.0.0.1:{port}" for port in self.theirs.ports)
        quorum = ",".join(f"127.0.0.1:{port}" for port in self.theirs.quorum)
        where = ["--from", listed, "--quorum", quorum]
        return {"check": where, "follow": where, "status": ["-o", "json"],
                "cutover": ["--ports", f"127.0.0.1={','.join(map(str, self.theirs.ports))}"], "abort": [], "finish": []}

    async def run(self, name, seconds=120, more=()):
        """The exit code, standard output, standard error."""
        child = await asyncio.create_subprocess_exec(
            str(self.binary), "migrate", name, *self.commands()[name], *more, "--admin", self.admin,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, errors = await asyncio.wait_for(child.communicate(), seconds)
        except asyncio.TimeoutError:
            child.kill()
            await child.wait()
            raise AssertionError(f"`migrate {name}` takes longer than {seconds} s") from None
        return child.returncode, out.decode(), errors.decode()

    async def check(self):
        """What can be looked at before says that it can follow, and the plan names the commands with their addresses."""
        code, out, errors = await self.run("check")
        assert code == 0, f"`migrate check` says {errors or out}"
        for name in ("follow", "cutover", "finish", "abort"):
            assert any(f"lockkeeper migrate {name} " in line and self.admin in line for line in out.splitlines()), out

    async def follow(self):
        code, out, errors = await self.run("follow")
        assert code == 0, f"`migrate follow` says {errors or out}"
        return await self.wait_for("following")

    async def status(self):
        code, out, errors = await self.run("status")
        assert code == 0, f"`migrate status` says {errors or out}"
        return json.loads(out)

    async def wait_for(self, *states, seconds=90):
        deadline, last = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            try:
                last = await self.status()
                if last["state"] in states:
                    return last
                assert last["state"] != "stopped", f"the migration stopped: {last.get('why')}"
            except (AssertionError, ValueError) as error:
                if "stopped" in str(error):
                    raise
                last = error
            await asyncio.sleep(0.2)
        raise AssertionError(f"the migration is not {' or '.join(states)} within {seconds} s: {last}")

    async def cutover(self):
        """None when it is done, or the line that says why it is not."""
        code, out, errors = await self.run("cutover")
        if code == 0:
            return None
        return one_line("cutover", out + errors)

    async def finish(self):
        """None when it is done, or the line that says why it is not."""
        code, out, errors = await self.run("finish")
        if code == 0:
            return None
        return one_line("finish", out + errors)

    def figures(self):
        """Of the live migration, as the server that leads tells them to a collector of metrics."""
        port = self.ours.admin[self.ours.leader()]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line.startswith("lockkeeper_migration_"))

    async def abort(self):
        code, out, errors = await self.run("abort")
        if code == 0:
            return None
        return one_line("abort", out + errors)


def one_line(name, said):
    lines = said.strip().splitlines()
    assert len(lines) == 1, f"`migrate {name}` is to say one line, and says {lines}"
    return lines[0]


def tail(path, lines=6):
    file = pathlib.Path(path)
    return file.read_text(errors="replace").splitlines()[-lines:] if file.exists() else []
