"""ZooKeeper's leader is stopped (SIGSTOP) and woken in a live migration: the part `migrate-hung`.

Each server of ZooKeeper leads in turn. Clients are on ZooKeeper's followers, on Lockkeeper, and on their way between both.
An "expired" of Lockkeeper is checked: ZooKeeper, asked with the same id and password, must not have that session.
--repeat: rounds; --seconds: how long the leader is stopped; --source.
"""

import asyncio
import itertools
import random
import signal
import struct
import time

from live import with_loop
from live_checks import History
from live_machines import MACHINES, Machines, Orders
from live_servers import Lockkeeper, Ports, tail
from live_wire import EPHEMERAL, LENGTH, Expired, Lost, Refused, Session, blob, read_blob, tick

TICK_MS, SESSION_MS = 2000, 30_000
SESSION_EXPIRED = -112
# As long as ZooKeeper's own clients may wait, and this much.
LATER_MAX = 5.0


class Witness(Session):
    """A session that says where it was told "expired"."""

    def __init__(self, name, hosts, hung):
        super().__init__(name, hosts, hung.history, SESSION_MS)
        self.hung = hung

    def shaken(self, link, timeout_ms, number, password):
        if timeout_ms <= 0:
            self.told(link.transport.get_extra_info("peername"))
        super().shaken(link, timeout_ms, number, password)

    def told(self, peer):
        if not self.expired:
            self.hung.expired.append(asyncio.create_task(self.hung.compare_expired(self, peer)))


class Client:
    """Writes, reads and syncs a znode of its own, and measures the longest time between two answers."""

    def __init__(self, hung, side, number):
        self.hung, self.side, self.name = hung, side, f"{side}-{number}"
        self.session = Witness(self.name, hung.places(side), hung)
        self.path, self.last, self.longest, self.task = f"/hung/{self.name}", time.monotonic(), 0.0, None

    async def start(self):
        await self.session.ensure(self.path)
        await self.session.ensure(f"/alive/{self.name}", flags=EPHEMERAL)
        self.last = time.monotonic()
        self.task = asyncio.create_task(self.work())

    async def work(self):
        session = self.session
        for number in itertools.count():
            try:
                if number % 3 == 0:
                    await session.set(self.path, str(number).encode())
                elif number % 3 == 1:
                    await session.get(self.path)
                else:
                    await session.sync(self.path)
            except Lost:
                await asyncio.sleep(0.02)
                continue
            except Expired:
                return
            except Refused as refusal:
                if refusal.code != SESSION_EXPIRED:
                    raise
                session.told(session.host)
                return
            now = time.monotonic()
            self.longest, self.last = max(self.longest, now - self.last), now
            await asyncio.sleep(0.1)

    def measure(self):
        self.longest, self.last = 0.0, time.monotonic()


class Hung:
    """The two ensembles, and clients of both."""

    SIDES = {"zookeeper": 8, "lockkeeper": 16, "between": 8}

    def __init__(self, setting):
        self.setting, self.seconds, self.history = setting, setting.chosen.seconds, History()
        self.theirs = Machines(setting, tick_ms=TICK_MS)
        self.ours = Lockkeeper(setting, Ports(0), keys=f"tickTime={TICK_MS}\n")
        self.orders = Orders(setting, self.ours)
        self.clients, self.expired, self.tasks, self.going = [], [], [], True
        self.followers, self.longest, self.shared = list(range(3)), {side: 0.0 for side in self.SIDES}, 0

    def places(self, side):
        theirs = [(MACHINES[at], self.theirs.client) for at in self.followers]
        return {"zookeeper": theirs, "lockkeeper": self.ours.hosts(), "between": theirs + self.ours.hosts()}[side]

    async def start(self):
        await asyncio.to_thread(self.theirs.start_all)
        await asyncio.to_thread(self.ours.start_all)
        await asyncio.to_thread(self.orders.follow, self.theirs.from_())
        first = Session("first", self.theirs.hosts(), self.history)
        for path in ("/hung", "/alive"):
            await first.ensure(path)
        await first.close()
        self.clients = [Client(self, side, number) for side, count in self.SIDES.items() for number in range(count)]
        self.tasks = [asyncio.create_task(tick([client.session for client in self.clients])), asyncio.create_task(self.wander())]
        await asyncio.gather(*(client.start() for client in self.clients))

    async def wander(self):
        """Those between both sides change it all the time, and some of Lockkeeper's their server."""
        while True:
            await asyncio.sleep(0.25)
            client = random.choice([client for client in self.clients if client.side != "zookeeper"])
            client.session.move([random.choice(self.places(client.side))])
            await asyncio.sleep(0.25)
            client.session.move(self.places(client.side), drop=False)

    async def compare_expired(self, session, peer):
        """Whether ZooKeeper has a session that was told "expired" by this server."""
        start, at = time.monotonic(), itertools.cycle(range(3))
        while time.monotonic() - start < SESSION_MS / 1000:
            granted = await self.ask_zookeeper(MACHINES[next(at)], session)
            if granted is None:
                await asyncio.sleep(0.1)
                continue
            if granted > 0:
                self.history.broken("expired", f"{peer} told {session.name} that {session.id:#x} is over, and ZooKeeper has it")
            else:
                self.shared += 1
                self.history.broken("sessions", f"{session.name} lost its session {session.id:#x}, told so by {peer}; "
                                                "ZooKeeper has it no more")
            return
        self.history.broken("expired", f"{peer} told {session.name} that its session is over, and ZooKeeper does not answer")

    async def ask_zookeeper(self, host, session):
        """The timeout that a server of ZooKeeper grants this session; 0 if it is over, None if nothing is said."""
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, self.theirs.client), 2)
        except (OSError, asyncio.TimeoutError):
            return None
        try:
            asked = struct.pack(">iqiq", 0, 0, SESSION_MS, session.id) + blob(session.password) + b"\0"
            writer.write(LENGTH.pack(len(asked)) + asked)
            (length,) = LENGTH.unpack(await asyncio.wait_for(reader.readexactly(4), 5))
            answer = await asyncio.wait_for(reader.readexactly(length), 5)
            assert read_blob(answer, 16) is not None
            return struct.unpack_from(">i", answer, 4)[0]
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()

    async def have_lead(self, at):
        """Has this server lead: what it has and the others lack decides an election."""
        now = await asyncio.to_thread(self.theirs.leader)
        if now == at:
            return
        (other,) = set(range(3)) - {now, at}
        await asyncio.to_thread(self.theirs.stop, other, signal.SIGKILL)
        await asyncio.sleep(1)
        await asyncio.to_thread(self.theirs.stop, now, signal.SIGKILL)
        await asyncio.to_thread(self.theirs.start, other, False)
        await asyncio.to_thread(self.theirs.servers[other].wait)
        await asyncio.to_thread(self.theirs.start, now)
        assert await asyncio.to_thread(self.theirs.leader) == at, f"server {at + 1} of ZooKeeper is to lead"

    async def all_served(self, seconds, since=None):
        """Every client gets an answer from now on."""
        since, start = since or time.monotonic(), time.monotonic()
        while True:
            waiting = [client for client in self.clients if client.last < since and not client.session.over]
            if not waiting:
                return
            if time.monotonic() > start + seconds:
                raise AssertionError(f"{len(waiting)} clients have no answer for {seconds} s: {waiting[0].name}, which is on "
                                     f"{waiting[0].session.host if waiting[0].session.link else 'none'}")
            await asyncio.sleep(0.1)

    async def round(self, number):
        at = number % 3
        self.followers = list(range(3))
        for client in self.clients:
            client.session.move(self.places(client.side), drop=False)
        await self.have_lead(at)
        self.followers = [one for one in range(3) if one != at]
        for client in self.clients:
            client.session.move(self.places(client.side), drop=client.side == "zookeeper")
        await asyncio.to_thread(self.orders.wait, lambda status: status["state"] == "following")
        await self.all_served(60)
        await asyncio.sleep(1.5)
        for client in self.clients:
            client.measure()
        process = self.theirs.servers[at].process
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            process.send_signal(signal.SIGCONT)
        await self.all_served(90)
        await asyncio.sleep(5)
        await self.all_served(60)
        for task in list(self.expired):
            await task
        waits = {side: max(client.longest for client in self.clients if client.side == side) for side in self.SIDES}
        self.longest = {side: max(self.longest[side], waits[side]) for side in self.SIDES}
        print(f"  round {number + 1}: server {at + 1} led and was stopped for {self.seconds} s: the longest wait was "
              f"{said(waits)}; {len(self.expired)} were told \"expired\"", flush=True)
        assert waits["lockkeeper"] <= waits["zookeeper"] + LATER_MAX, (
            f"clients of Lockkeeper waited {waits['lockkeeper']:.1f} s, those of ZooKeeper {waits['zookeeper']:.1f} s")

    async def all_alive(self):
        """Each session has its ephemeral, on both sides."""
        for where in (self.theirs.hosts(), self.ours.hosts()):
            looker = Session("looker", where, self.history)
            await looker.sync("/alive")
            names = set(await looker.children("/alive"))
            missing = [client.name for client in self.clients if client.name not in names]
            if missing:
                self.history.broken("ephemerals", f"those of {missing} are not there, as one of {where} says")
            await looker.close()

    def show_logs(self):
        for at in range(3):
            for line in tail(self.ours.folder / f"{at + 1}.txt"):
                print(f"  server {at + 1}: {line:.300}")

    async def close(self):
        for task in [*self.tasks, *self.expired, *(client.task for client in self.clients if client.task)]:
            task.cancel()
        for client in self.clients:
            client.session.abandon()


def said(waits):
    names = (("zookeeper", "at ZooKeeper"), ("lockkeeper", "at Lockkeeper"), ("between", "between both"))
    return ", ".join(f"{waits[side]:.1f} s {name}" for side, name in names)


async def stop_and_wake(hung):
    await hung.start()
    for number in range(hung.setting.chosen.repeat):
        await hung.round(number)
    await hung.all_alive()
    for client in hung.clients:
        if client.task.done() and client.task.exception():
            raise client.task.exception()
    chosen = hung.setting.chosen
    print(f"  {chosen.repeat} rounds of {hung.seconds} s with ZooKeeper {chosen.source}: the longest wait was "
          f"{said(hung.longest)}; {len(hung.expired)} of {len(hung.clients)} sessions were told \"expired\", "
          f"{hung.shared} of which ZooKeeper had lost as well", flush=True)
    hung.history.verdict()


def migrate_hung(setting):
    with_loop(Hung(setting), stop_and_wake)


PARTS = {"migrate-hung": migrate_hung}
