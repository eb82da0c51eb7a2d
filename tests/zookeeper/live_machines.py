"""ZooKeeper as on three machines: each server has an address of its own of the loopback's, and all have the same ports.

What an operator does to close the ports for clients is done here as well: `clientPortAddress` names another address, which
no client has, as 127.0.0.1 would be on a machine of its own.
"""

import json
import random
import socket
import subprocess
import time
import urllib.request

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
from live_secured import Secured
from live_servers import JAVA, TICK_MS, Ensemble, make_data
from parts import forget
from real import admin_jars, jars, zookeeper

MACHINES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
INSIDE = ("127.0.0.12", "127.0.0.13", "127.0.0.14")
FREE = range(20000, 32000)


def free_everywhere(count):
    """Ports that are free on all machines, and that no outgoing connection takes."""
    found = set()
    while len(found) < count:
        port = random.choice(FREE)
        try:
            for host in ("127.0.0.1", *MACHINES, *INSIDE):
                with socket.socket() as probe:
                    probe.bind((host, port))
        except OSError:
            continue
        found.add(port)
    return list(found)


class Machines(Ensemble):
    """Server lines name no address for clients, as most do, or, `named`, that of each server (a dynamic configuration)."""

    name = "ZooKeeper"

    def __init__(self, setting, named=False, admin=False, tick_ms=TICK_MS):
        super().__init__(setting, setting.folder / "zookeeper")
        version = setting.chosen.source
        self.lib, self.named, self.tick_ms = (jars(setting.work, version),), named, tick_ms
        self.client, self.quorum, self.election, self.secure, self.admin = free_everywhere(5)
        self.ports, self.secured, self.keys = [self.client] * 3, set(), ""
        if admin:
            self.lib += (admin_jars(setting.work, version),)
            self.keys = Secured(setting.folder / "secured").client_lines()
        self.has_admin = admin
        make_data(self.folder, 1)

    def host(self, at):
        return INSIDE[at] if at in self.closed else MACHINES[at]

    def from_(self, *which):
        return ",".join(f"{MACHINES[at]}:{self.client}" for at in which or range(3))

    def admins(self):
        return ",".join(f"{host}:{self.admin}" for host in MACHINES)

    def lines(self):
        tail = [f":participant;{self.host(at)}:{self.client}" if self.named else "" for at in range(3)]
        return "".join(f"server.{at + 1}={MACHINES[at]}:{self.quorum}:{self.election}{tail[at]}\n" for at in range(3))

    def start(self, at, waits=True):
        more = f"tickTime={self.tick_ms}\ninitLimit=10\nsyncLimit=5\n{self.lines()}"
        if not self.named:
            more += f"clientPortAddress={self.host(at)}\n"
        if self.has_admin:
            more += f"admin.enableServer=true\nadmin.serverAddress={MACHINES[at]}\nadmin.serverPort={self.admin}\n"
        if at in self.secured:
            more += f"secureClientPort={self.secure}\nsecureClientPortAddress={MACHINES[at]}\n{self.keys}"
        server = zookeeper(self.lib, self.folder / str(at + 1), self.folder / f"{at + 1}.txt", port=self.client, waits=waits,
                           client_port=not self.named, extra=more, java=JAVA, host=self.host(at))
        self.servers[at] = self.setting.server(server)

    def close_to_clients(self, *which):
        """As an operator does it: server by server, the leader last."""
        for at in [at for at in self.in_order() if at in which]:
            self.restart(at, closed=True)
            self.leader()

    def stop_all(self):
        for at in range(3):
            self.stop(at)

    def ask_admin(self, at, command):
        with urllib.request.urlopen(f"http://{MACHINES[at]}:{self.admin}/commands/{command}", timeout=10) as answer:
            return json.load(answer)


class Silent:
    """A port behind a firewall that drops: a listener whose queue is full, which Linux drops connections to."""

    def __init__(self, host, port):
        self.listener = socket.create_server((host, port), backlog=0)
        self.queued = socket.create_connection((host, port), timeout=5)
        with socket.socket() as probe:
            probe.settimeout(1)
            assert probe.connect_ex((host, port)) != 0, f"{host}:{port} is to be silent, and takes connections"

    def close(self):
        self.queued.close()
        self.listener.close()


class Orders:
    """`lockkeeper migrate`, as an operator gives it."""

    def __init__(self, setting, ours):
        self.binary = setting.binary
        self.admin = ",".join(f"127.0.0.1:{port}" for port in ours.admin)

    def give(self, *words, seconds=120):
        """The exit code, and all that it says."""
        done = subprocess.run([str(self.binary), "migrate", *words, "--admin", self.admin], capture_output=True, text=True,
                              timeout=seconds, stdin=subprocess.DEVNULL)
        return done.returncode, (done.stdout + done.stderr).strip()

    def do(self, *words):
        code, said = self.give(*words)
        assert code == 0, f"`migrate {' '.join(words)}` ends with {code}: {said}"
        return said

    def refused(self, *words, names=(), not_names=()):
        """It is to be refused in one line that names all of these, and nothing is to have changed."""
        before = self.status()["state"]
        code, said = self.give(*words)
        print(f"           {' '.join(words[:1])}: {said}", flush=True)
        assert code == 1, f"`migrate {' '.join(words)}` is to be refused, and ends with {code}: {said}"
        missing = [name for name in names if name not in said] + [f"not {name}" for name in not_names if name in said]
        assert not missing, f"`migrate {' '.join(words)}` is to name {missing}, and says: {said}"
        assert len(said.splitlines()) == 1, f"`migrate {' '.join(words)}` is to say one line: {said}"
        after = self.status()["state"]
        assert before == after, f"a refused `migrate {words[0]}` changed the state from {before} to {after}"
        return said

    def status(self):
        return json.loads(self.do("status", "-o", "json"))

    def wait(self, what, seconds=60):
        """Until the status is as it is to be."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            if what(status):
                return status
            assert time.monotonic() < deadline, f"the status is not as it is to be within {seconds} s: {status}"
            time.sleep(0.2)

    def follow(self, from_, *more):
        self.do("follow", "--from", from_, *more)
        return self.wait(lambda status: status["state"] == "following")


class Holders:
    """Creates of the same znodes on both sides at once: one of each two may succeed."""

    def __init__(self, orders):
        self.orders, self.count = orders, 0

    def check(self, one, other, names=20):
        """Two servers, of this and of that side. Their clients are gone behind it."""
        clients = [KazooClient(f"{host}:{port}", timeout=10) for host, port in (one, other)]
        winners = [0, 0]
        try:
            for client in clients:
                client.start(30)
            for number in range(names):
                path = f"/holder-{self.count}"
                self.count += 1
                asked = [client.create_async(path, str(at).encode(), ephemeral=True)
                         for at, client in list(enumerate(clients))[::1 if number % 2 else -1]]
                held = [of for of in asked if not isinstance(error_of(of), NodeExistsError)]
                for of in held:
                    of.get(timeout=30)
                assert len(held) == 1, f"{path} was created {len(held)} times, by clients of {one} and {other}"
                holder = int(clients[number % 2].get(path)[0])
                winners[holder] += 1
        finally:
            for client in clients:
                forget(client)
        self.orders.wait(lambda status: status["sessions_elsewhere"] == 0)
        print(f"           {names} locks taken by clients of both sides at once: {winners[0]} got by ZooKeeper's, {winners[1]} "
              "by Lockkeeper's, none by both", flush=True)


def error_of(asked):
    asked.wait(30)
    assert asked.ready(), "a create is not answered within 30 s"
    return asked.exception
