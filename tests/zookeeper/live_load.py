"""The load of a live migration: what each session does, over and over, while it is sent from server to server."""

import asyncio
import json
import random
import time

from live_checks import Mortality
from live_wire import (BAD_VERSION, CHANGED, CHECK, CHILDREN, CREATED, EPHEMERAL, Expired, LENGTH, Lost, NO_NODE, NODE_EXISTS,
                       Refused, SEQUENTIAL, SET_DATA, Session, Watch, blob, text, tick)

PLANTS = {
    "mutex": "locks", "watch-lost": "watches", "watch-doubled": "watches", "write-lost": "registers", "write-claimed": "registers",
    "sequence-doubled": "sequences", "session-lost": "sessions", "ephemeral-lost": "ephemerals", "ephemeral-left": "ephemerals",
    "zxid-back": "zxids", "money": "money", "tree": "trees",
}
# The timeout of a session that is to end.
MORTAL_MS = 4000


class World:
    """All raw sessions and their work below one root; `plant` is a fault that one of them makes on purpose."""

    def __init__(self, history, hosts, sessions, rate, root="/live", plant=None):
        self.history, self.hosts, self.root, self.plant = history, list(hosts), root, plant
        self.count, self.rate = sessions, rate
        self.sessions, self.tasks, self.side, self.mortals = [], [], [], []
        self.running, self.busy, self.gate = True, 0, asyncio.Event()
        # While this is set no client leaves its session to expire: a cutover waits for those that nobody is connected for.
        self.nobody_leaves, self.left = False, 0
        # While this is set no server is there for longer than the sessions last that are to end anyhow.
        self.mortals_excused = False
        self.mortality = Mortality(history)
        self.gate.set()
        self.locks = max(2, sessions // 40)
        self.registers = max(4, sessions // 4)
        self.accounts = max(4, sessions // 10)
        self.changers = []
        self.period = 1.0

    # A world stands still when no client is within one of these blocks.
    async def __aenter__(self):
        while not self.gate.is_set():
            await self.gate.wait()
        self.busy += 1

    async def __aexit__(self, *_):
        self.busy -= 1

    async def quiet(self):
        self.gate.clear()
        deadline = time.monotonic() + 60
        while self.busy:
            await asyncio.sleep(0.01)
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.busy} clients wait for an answer for 60 s")

    def take(self, plant):
        """Whether this is the one that makes the planted fault, once."""
        if self.plant != plant:
            return False
        self.plant = None
        return True

    def path(self, *parts):
        return "/".join((self.root, *map(str, parts)))

    def session(self, name, timeout_ms=20000, hosts=None):
        made = Session(name, hosts or self.hosts, self.history, timeout_ms)
        self.side.append(made)
        return made

    async def start(self):
        self.ticker = asyncio.create_task(tick(self.side))
        maker = self.session("maker")
        self.maker = maker
        await maker.ensure(self.root)
        await asyncio.gather(*(maker.ensure(self.path(name)) for name in (
            "registers", "sequences", "locks", "watch", "bank", "ephemerals", "sessions", "mortal")))
        await asyncio.gather(*(maker.ensure(self.path("registers", n), b'{"n": 0, "who": ""}') for n in range(self.registers)),
                             *(maker.ensure(self.path("sequences", n)) for n in range(4)),
                             *(maker.ensure(self.path("locks", n)) for n in range(self.locks)),
                             *(maker.ensure(self.path("bank", n), b"100") for n in range(self.accounts)))
        self.changers = [self.session(f"changer-{n}") for n in range(max(1, self.count // 100))]
        # Of twenty sessions: what they do, and how many writes a round of it makes.
        shares = [(register, 9, 1), (sequence, 3, 2), (bank, 2, 1), (ephemeral, 2, 2), (locker, 2, 0), (watcher, 1, 0), (mortal, 1, 0)]
        roles = [(role, writes) for role, times, writes in shares for _ in range(times)]
        chosen = [roles[(n * 7) % len(roles)] for n in range(self.count)]
        self.period = max(0.001, sum(writes for _, writes in chosen) / self.rate)
        for n in range(self.count):
            session = self.session(f"{chosen[n][0].__name__}-{n}", MORTAL_MS if chosen[n][0] is mortal else 20000)
            (self.mortals if chosen[n][0] is mortal else self.sessions).append(session)
            self.tasks.append(asyncio.create_task(self.work(chosen[n][0], session, n)))
        self.sessions += [*self.changers, maker]

    async def work(self, role, session, n):
        try:
            async with self:
                await session.ensure(self.path("sessions", session.name), flags=EPHEMERAL)
            await role(self, session, n)
        except Lost as lost:
            self.history.broken("service", f"{session.name}: {lost}")
        except Expired:
            if not (role is mortal and self.mortals_excused):
                self.history.broken("sessions", f"{session.name} has lost its session")
        except Refused as refused:
            self.history.broken("answers", f"{session.name} was answered {refused}")

    async def pace(self, start):
        """Waits for the next round, and says whether there is one."""
        await asyncio.sleep(max(0.0, start + self.period * random.uniform(0.9, 1.1) - time.monotonic()))
        return self.running

    async def plant_now(self):
        """The faults that somebody else makes."""
        chosen = [session for session in self.sessions if session.id and session.name.startswith("register")]
        victim = random.choice(chosen)
        if self.take("session-lost"):
            thief = self.session("thief")
            thief.id, thief.password = victim.id, victim.password
            await thief.close()
        if self.take("ephemeral-lost"):
            await self.maker.gone(self.path("sessions", victim.name))
        if self.take("zxid-back"):
            victim.plant = "zxid-back"
        if self.take("money"):
            await self.maker.set(self.path("bank", 0), b"1000")

    async def stop(self):
        """Ends the load, and looks at everything that must be true at its end."""
        self.running = False
        self.gate.set()
        _, late = await asyncio.wait(self.tasks, timeout=90)
        for task in late:
            self.history.broken("service", f"a client does not come to its end within 90 s: {task.get_coro()}")
            task.cancel()

    async def judge(self):
        """At the end, when nobody writes: the last state against what clients were told."""
        history, judge = self.history, self.session("judge")
        await judge.sync(self.root)
        final = {}
        for n in range(self.registers):
            data, stat = await judge.get(self.path("registers", n))
            held = json.loads(data)
            final[self.path("registers", n)] = (held["n"], held["who"], stat.version)
        money = 0
        for n in range(self.accounts):
            money += int((await judge.get(self.path("bank", n)))[0])
        if money != 100 * self.accounts:
            history.broken("money", f"there is {money} in the accounts instead of {100 * self.accounts}: half a multi was done")
        for session in self.sessions:
            if session in self.changers or session is self.maker:
                continue
            stat = await judge.exists(self.path("sessions", session.name))
            if stat is None or stat.owner != session.id:
                history.broken("ephemerals", f"the ephemeral of {session.name} is gone, and its session is open")
            if session.expired:
                history.broken("sessions", f"{session.name} has lost its session")
        return {"registers": history.check_registers(final), "sequences": history.check_sequences(),
                "turns": history.check_locks(), "watches": sum(history.watches_fired.values()),
                "mortals": sum(self.mortality.ended.values()), "sessions": len(self.sessions)}

    async def close(self):
        self.ticker.cancel()
        for task in self.tasks:
            task.cancel()
        for session in self.side:
            session.abandon()
            session.task.cancel()
        await asyncio.sleep(0.05)


async def register(world, session, n):
    """Increments a number in a znode, with the version that it has read."""
    path, history, newest, round = world.path("registers", n % world.registers), world.history, 0, 0
    while True:
        start, round = time.monotonic(), round + 1
        async with world:
            if round % 5 == 0:
                newest = max(newest, history.newest[path])
                await session.sync(path)
            data, stat = await session.get(path)
            held = json.loads(data)
            history.read(path, held["n"], stat, newest, session.name)
            operation = f"{session.name}/{round}"
            try:
                made = await session.set(path, json.dumps({"n": held["n"] + 1, "who": operation}).encode(), stat.version)
                history.acknowledged(path, operation, made)
                newest = made.version
                if world.take("write-lost"):
                    await session.set(path, data)
                if world.take("write-claimed"):
                    made.version += 1
                    history.acknowledged(path, operation, made)
            except Lost:
                history.unknown[path] += 1
            except Refused as refused:
                if refused.code != BAD_VERSION:
                    raise
        if not await world.pace(start):
            return


async def sequence(world, session, n):
    """Takes a number, and removes its znode."""
    parent = world.path("sequences", n % 4)
    while True:
        start = time.monotonic()
        async with world:
            try:
                path, stat = await session.create(f"{parent}/{session.name}-", b"", SEQUENTIAL)
                one = (int(path[-10:]), start, time.monotonic(), stat.czxid, session.name)
                world.history.sequences[parent].append(one)
                if world.take("sequence-doubled"):
                    world.history.sequences[parent].append(one)
                await session.gone(path)
            except Lost:
                await session.sync(parent)
                for name in await session.children(parent):
                    if name.startswith(f"{session.name}-"):
                        await session.gone(f"{parent}/{name}")
        if not await world.pace(start):
            return


async def bank(world, session, n):
    """Moves money from one account to another: two znodes in one transaction, and a check of a third."""
    while True:
        start = time.monotonic()
        one, other = random.sample(range(world.accounts), 2)
        async with world:
            paths = [world.path("bank", one), world.path("bank", other)]
            (have, first), (had, second) = [await session.get(path) for path in paths]
            try:
                await session.multi((CHECK, text(world.root) + LENGTH.pack(-1)),
                                    (SET_DATA, text(paths[0]) + blob(str(int(have) - 1).encode()) + LENGTH.pack(first.version)),
                                    (SET_DATA, text(paths[1]) + blob(str(int(had) + 1).encode()) + LENGTH.pack(second.version)))
            except Lost:
                pass
            except Refused as refused:
                if refused.code not in (BAD_VERSION, -2):
                    raise
        if not await world.pace(start):
            return


async def ephemeral(world, session, n):
    """Makes an ephemeral, sees that it is its own, and removes it."""
    path = world.path("ephemerals", session.name)
    while True:
        start = time.monotonic()
        async with world:
            try:
                await session.create(path, b"", EPHEMERAL)
            except Lost:
                pass
            except Refused as refused:
                if refused.code != NODE_EXISTS:
                    raise
            stat = await session.exists(path)
            if stat and stat.owner != session.id:
                world.history.broken("ephemerals", f"{path} belongs to {stat.owner:#x} instead of {session.id:#x}")
            await session.gone(path)
        if not await world.pace(start):
            return


async def enlist(world, session, lock):
    """Queues up, once, whatever becomes of the connection; returns the name and the token."""
    prefix = f"{session.id & (1 << 64) - 1:032x}__lock__"
    while True:
        async with world:
            try:
                path, stat = await session.create(f"{lock}/{prefix}", session.name.encode(), EPHEMERAL | SEQUENTIAL)
                return path.rsplit("/", 1)[1], stat.czxid
            except Lost:
                # What was on its way is carried out before this, or refused as that of a session that has moved.
                await session.sync(lock)
                for name in await session.children(lock):
                    if name.startswith(prefix) and (stat := await session.exists(f"{lock}/{name}")):
                        return name, stat.czxid


async def wait_for_turn(world, session, lock, mine):
    """Waits for the znode before the own one to go: a watch on it, and no look at others."""
    while True:
        names = sorted(await session.children(lock), key=lambda name: name[-10:])
        if mine not in names:
            world.history.broken("locks", f"{lock}/{mine} of {session.name} is gone, and its session is open")
            return False
        before = names.index(mine) - 1
        if before < 0 or world.take("mutex"):
            return True
        path = f"{lock}/{names[before]}"
        watch = Watch("data", path)
        try:
            await session.get(path, watch)
        except Refused as refused:
            if refused.code != NO_NODE:
                raise
            continue
        while not watch.fired.done():
            await asyncio.wait([watch.fired], timeout=5)
            if not watch.fired.done() and await session.exists(path) is None and not watch.fired.done():
                world.history.broken("watches", f"{session.name} was not told that {path} went")
                break
        world.history.watches_fired["lock"] += 1


async def locker(world, session, n):
    """Takes a lock and holds it for a while; every fourth holder for seconds, so that others queue behind it."""
    lock = world.path("locks", n // 10 % world.locks)
    while world.running:
        mine, token = await enlist(world, session, lock)
        if await wait_for_turn(world, session, lock, mine):
            begin = time.monotonic()
            until = begin + (random.uniform(2, 6) if n % 40 < 10 else random.uniform(0.01, 0.2))
            while time.monotonic() < until and world.running:
                await asyncio.sleep(min(0.1, max(0.0, until - time.monotonic())))
            world.history.turn(lock, begin, time.monotonic(), token, session.name)
        async with world:
            await session.gone(f"{lock}/{mine}")
        await asyncio.sleep(0.01)


async def watcher(world, session, n):
    """Sets a watch of each kind, goes on its way, and must be told once of what another changes meanwhile."""
    changer, base = world.changers[n % len(world.changers)], world.path("watch", n)
    async with world:
        for path in (base, f"{base}/data", f"{base}/list"):
            await session.ensure(path)
    round = 0
    while world.running:
        round += 1
        watches = [Watch("data", f"{base}/data"), Watch("child", f"{base}/list"), Watch("exist", f"{base}/made-{round}")]
        _, before = await session.get(watches[0].path, watches[0])
        await session.children(watches[1].path, watches[1])
        await session.exists(watches[2].path, watches[2])
        await asyncio.sleep(random.uniform(0.0, 3.0))
        if world.take("watch-lost"):
            session.plant = "watch-lost"
        if world.take("watch-doubled"):
            session.plant = "watch-doubled"
        async with world:
            for _ in range(2):
                await changer.again(SET_DATA, text(watches[0].path) + blob(b"x") + LENGTH.pack(-1))
            await changer.ensure(f"{watches[1].path}/{round}")
            await changer.ensure(watches[2].path)
        deadline = time.monotonic() + 30
        while not all(watch.fired.done() for watch in watches):
            await asyncio.wait([watch.fired for watch in watches], timeout=0.3)
            _, stat = await session.get(watches[0].path)
            if stat.version > before.version and not watches[0].fired.done():
                world.history.broken("watches", f"{session.name} read a change of {watches[0].path} and was not told of it")
                break
            if time.monotonic() > deadline:
                silent = [watch.path for watch in watches if not watch.fired.done()]
                world.history.broken("watches", f"{session.name} was not told for 30 s of changes of {silent}")
                break
        kinds = [watch.event for watch in watches]
        if all(kinds) and kinds != [CHANGED, CHILDREN, CREATED]:
            world.history.broken("watches", f"{session.name} got the events {kinds}")
        for watch in watches:
            world.history.watches_fired[watch.kind] += 1
        # A second event, of the second change, would come before this answer.
        await session.sync(base)
        await session.get(watches[0].path)
        async with world:
            await changer.gone(f"{watches[1].path}/{round}")
            await changer.gone(watches[2].path)


async def mortal(world, session, n):
    """Opens a session, and ends it: closed, or left to expire. Another looks at its ephemeral meanwhile."""
    looker = world.changers[n % len(world.changers)]
    round = 0
    while True:
        await asyncio.sleep(random.uniform(1.0, 4.0))
        path, round = world.path("mortal", f"{n}-{round}"), round + 1
        async with world:
            await session.ensure(path, flags=EPHEMERAL)
            closed = world.nobody_leaves or random.random() < 0.4 or world.plant == "ephemeral-left"
            if closed and not world.take("ephemeral-left"):
                await session.close()
            else:
                session.abandon()
            world.left += 1
            may_end, timeout = world.mortality.left(session, closed)
        while True:
            looked_at = time.monotonic()
            await looker.sync(path)
            there = await looker.exists(path)
            if world.mortality.seen(session.name, path, may_end, timeout, closed, there, time.monotonic() if not there else looked_at):
                break
            await asyncio.sleep(0.3)
        world.left -= 1
        world.mortals.remove(session)
        if not world.running:
            return
        session = world.session(f"mortal-{n}-{round}", MORTAL_MS)
        world.mortals.append(session)
