"""What an operator may get wrong in a live migration, with real servers: the part `migrate-open`, with --source.

ZooKeeper still takes clients somewhere: each cutover is refused and names the port, or what is not known, and no lock has
two holders behind it. Then ZooKeeper is started by accident, and its clients are alarms.
"""

import time

from kazoo.client import KazooClient
from live_machines import INSIDE, MACHINES, Holders, Machines, Orders, Silent
from live_servers import Lockkeeper, Ports, tail
from parts import forget

# With these the last port is silent at the cutover, and closed by the operator's word; with others it is closed.
SILENT_AT_LAST = ("3.9.4", "3.5.10")


def connected(hosts, **more):
    client = KazooClient(hosts, timeout=10, **more)
    client.start(30)
    return client


class Opened:
    """The two ensembles of `migrate-open`, and what is asked of them."""

    def __init__(self, setting):
        self.theirs = Machines(setting, admin=True)
        self.ours = Lockkeeper(setting, Ports(0))
        self.orders = Orders(setting, self.ours)
        self.holders = Holders(self.orders)
        self.is_silent_at_last = setting.chosen.source in SILENT_AT_LAST
        self.admins = ["--zookeeper-admin", self.theirs.admins()]

    def words(self, secure=()):
        return [word for at, host in enumerate(MACHINES) for word in
                ("--ports", f"{host}={self.theirs.client}" + (f",{self.theirs.secure}" if at in secure else ""))]

    def say(self, what):
        print(f"  -- {what}", flush=True)

    def start(self):
        self.theirs.start_all()
        for at in range(3):
            shown = self.theirs.ask_admin(at, "configuration")
            assert shown["client_port"] == self.theirs.client, f"the AdminServer of {MACHINES[at]} shows {shown}"
            assert self.theirs.ask_admin(at, "connections")["connections"] == []
        self.ours.start_all()
        # Of a server in an ensemble, null, or unknown in 3.5: no AdminServer names a secure port.
        print(f"           initial_configuration: {self.theirs.ask_admin(0, 'initial_configuration')}", flush=True)
        client = connected(self.theirs.from_())
        client.create("/before", b"of ZooKeeper")
        forget(client)
        status = self.orders.follow(self.theirs.from_(0))
        print(f"           follows by {self.theirs.from_(0)} alone: {status['quorum']}", flush=True)

    def hold(self, at):
        """No lock has two holders, with a client at this server of ZooKeeper."""
        self.holders.check((self.theirs.host(at), self.theirs.client), ("127.0.0.1", self.ours.ports[at]))

    # The steps.

    def some_open(self):
        self.say("no server is closed to clients")
        open_at = [f"{host}:{self.theirs.client}" for host in MACHINES]
        self.orders.refused("cutover", *self.admins, *self.words(), names=open_at)
        self.hold(0)
        self.say("one is closed, two are open")
        self.theirs.close_to_clients(0)
        self.orders.refused("cutover", *self.admins, *self.words(), names=open_at[1:], not_names=open_at[:1])
        self.orders.refused("cutover", *self.words(), names=open_at[1:], not_names=open_at[:1])
        self.orders.refused("cutover", names=[f"--ports {host}=" for host in MACHINES])
        self.orders.refused("cutover", *self.words()[:2], names=[f"--ports {host}=" for host in MACHINES[1:]],
                            not_names=[f"--ports {MACHINES[0]}="])
        for at in (1, 2, 0):
            self.hold(at)

    def secure_open(self):
        self.say("all plain ports are closed, and one server has a secure one")
        self.theirs.secured.add(1)
        self.theirs.close_to_clients(1, 2)
        secure = f"{MACHINES[1]}:{self.theirs.secure}"
        for admins in ([], self.admins):
            self.orders.refused("cutover", *admins, names=[f"--ports {host}=" for host in MACHINES])
            self.orders.refused("cutover", *admins, *self.words(secure=[1]), names=[secure])
        self.orders.refused("cutover", "--ports", "zk2=2181", names=["zk2", *MACHINES])
        self.hold(1)
        self.say("a client is at that port, and the operator has forgotten it")
        client = connected(secure, use_ssl=True, verify_certs=False)
        assert len(self.theirs.ask_admin(1, "connections")["secure_connections"]) == 1
        self.orders.refused("cutover", *self.admins, *self.words())
        forget(client)

    def someone_there(self):
        self.say("all is closed, and a client is at a server from its own machine")
        self.theirs.secured.discard(1)
        self.theirs.restart(1)
        self.theirs.leader()
        client = connected(f"{INSIDE[2]}:{self.theirs.client}")
        self.orders.wait(lambda status: status["sessions_elsewhere"] == 1)
        self.orders.refused("cutover", *self.admins, *self.words())
        self.orders.refused("cutover", *self.words())
        forget(client)
        self.orders.wait(lambda status: status["sessions_elsewhere"] == 0)
        self.hold(2)

    def silent(self):
        self.say("a port is silent")
        silent, asked = Silent(MACHINES[2], self.theirs.client), [*self.admins, *self.words()]
        try:
            self.orders.refused("cutover", *asked, names=[f"{MACHINES[2]}:{self.theirs.client}", f"--silent {MACHINES[2]}"])
            self.orders.refused("cutover", *asked, "--silent", MACHINES[1], names=[f"--silent {MACHINES[2]}"])
            self.hold(2)
            if self.is_silent_at_last:
                self.cut_over(*asked, "--silent", MACHINES[2])
        finally:
            silent.close()
        if not self.is_silent_at_last:
            self.say("all is closed")
            self.cut_over(*asked)

    def cut_over(self, *more):
        start = time.monotonic()
        said = self.orders.do("cutover", *more)
        print(f"           cutover in {(time.monotonic() - start) * 1000:.0f} ms: {said}", flush=True)

    def watched(self):
        """Behind the cutover: ZooKeeper is stopped, started by accident, written to, and stopped again."""
        running = [f"{host}:{self.theirs.election}" for host in MACHINES]
        self.orders.refused("finish", names=running)
        self.theirs.stop(0)
        self.orders.refused("finish", names=running[1:], not_names=running[:1])
        self.theirs.stop_all()
        status = self.orders.status()
        assert status["alarms"] == 0, f"no client was at ZooKeeper since the cutover, and there are {status['alarms']} alarms"
        self.say("ZooKeeper is started again by accident")
        self.theirs.closed.clear()
        self.theirs.start_all()
        time.sleep(5)
        quiet = self.orders.status()["alarms"]
        assert quiet == 0, f"ZooKeeper runs, without a client, and there are {quiet} alarms"
        client = connected(self.theirs.from_(1))
        client.create("/by-accident", b"")
        wrote = time.monotonic()
        status = self.orders.wait(lambda status: status["alarms"] > 0, seconds=30)
        took = time.monotonic() - wrote
        session = f"{client.client_id[0] & (1 << 64) - 1:x}"
        logs = "".join(file.read_text(errors="replace") for file in self.ours.folder.glob("*.txt"))
        told = [line for line in logs.splitlines() if session in line or "/by-accident" in line]
        assert any("/by-accident" in line for line in told), f"no log names the path, and they say {told}"
        assert any(session in line for line in told), f"no log names the session {session}, and they say {told}"
        print(f"           {status['alarms']} alarms within {took:.1f} s: {told[-1][-200:]}", flush=True)
        forget(client)
        self.orders.refused("finish", names=running)
        self.theirs.stop_all()
        self.orders.do("finish")
        assert self.orders.status()["state"] == "done"
        # What was written there by accident is ZooKeeper's alone.
        client = connected(f"127.0.0.1:{self.ours.ports[0]}")
        assert client.get("/before")[0] == b"of ZooKeeper" and client.exists("/by-accident") is None
        forget(client)


def migrate_open(setting):
    opened = Opened(setting)
    try:
        opened.start()
        opened.some_open()
        opened.secure_open()
        opened.someone_there()
        opened.silent()
        opened.watched()
    except Exception:
        for at in range(3):
            for line in tail(opened.ours.folder / f"{at + 1}.txt"):
                print(f"  server {at + 1}: {line:.300}")
        raise


PARTS = {"migrate-open": migrate_open}
