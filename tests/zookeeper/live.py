"""The way of a live migration: from three servers of ZooKeeper to three of Lockkeeper, under load.

The phases: Lockkeeper follows; clients are moved one by one, both ways; ZooKeeper's client ports are closed; cutover; after
it, and ZooKeeper is stopped. A fault may come in each of them.
"""

import asyncio
import gc
import random
import shutil
import signal
import time

from live_checks import History, compare_trees
from live_clients import Children
from live_load import World
from live_secured import Secured
from live_servers import Lockkeeper, Migration, NoMigration, Observers, Ports, ZooKeeper, tail
from live_wire import Expired, Refused, Session
from parts import fill
from real import jars, zookeeper

# From here on transactions carry the digest of the tree behind them.
DIGESTS_FROM = (3, 6)
PHASES = ("follow", "moving", "closed", "cutover", "after")


class Size:
    """How much of everything a run has; seconds are those of a phase."""

    def __init__(self, sessions, kazoo, curators, rate, seconds, mixed=0.2):
        self.sessions, self.kazoo, self.curators, self.rate, self.seconds, self.mixed = sessions, kazoo, curators, rate, seconds, mixed


class Run:
    """One way from ZooKeeper to Lockkeeper, or, without Lockkeeper, around in ZooKeeper."""

    def __init__(self, setting, size, ours="lockkeeper", kill=None, abort=False, phase=None, intruder=False, secured=False, keys=""):
        self.setting, self.size, self.kill, self.abort, self.phase, self.intruder = setting, size, kill, abort, phase, intruder
        self.history, self.version = History(), setting.chosen.source
        self.has_digests = tuple(map(int, self.version.split(".")[:2])) >= DIGESTS_FROM
        files = Secured(setting.folder / "secured") if secured else None
        ports = Ports(setting.chosen.port)
        if ours == "alone":
            self.theirs = Lockkeeper(setting, ports)
        else:
            self.theirs = ZooKeeper(setting, jars(setting.work, self.version), ports, secured=files)
        self.ours = self.migration = None
        if ours == "lockkeeper":
            self.ours = Lockkeeper(setting, ports, files, keys)
            self.migration = Migration(setting.binary, self.theirs, self.ours)
        elif ours == "observers":
            self.ours, self.migration = Observers(setting, self.theirs, ports), NoMigration()
        self.world = self.children = None
        self.digests, self.told_by, self.aborted, self.stalls = None, None, False, 0.0

    # Setting up and taking down.

    async def start(self):
        # One after the other: the stand-in has nothing to join before.
        for ensemble in filter(None, (self.theirs, self.ours)):
            await asyncio.to_thread(ensemble.start_all)
        await asyncio.to_thread(self.fill)
        self.world = World(self.history, self.theirs.hosts(), self.size.sessions, self.size.rate)
        await self.world.start()
        self.children = Children(self.setting, self.world, self.size.kazoo, self.size.curators)
        await self.children.start()
        self.lagging = asyncio.create_task(self.watch_itself())
        self.begin = time.monotonic()
        await asyncio.sleep(min(3, self.size.seconds))

    def fill(self):
        """Every kind of znode that there is, lists and containers included."""
        client = self.setting.client(self.theirs.ports[0])
        fill(client, self.version)
        self.setting.clients.remove(client)
        client.stop()
        client.close()

    async def watch_itself(self):
        """How long this program was busy with itself: no pause that is shorter can be measured."""
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.005)
            self.stalls = max(self.stalls, time.monotonic() - start - 0.005)

    async def watch_digests(self):
        """The state, all the time: it stops at the first digest that differs, and the count of those compared only rises."""
        compared = 0
        while True:
            await asyncio.sleep(1)
            try:
                status = await self.migration.status()
            except (AssertionError, ValueError):
                # Between two leaders nobody may know.
                continue
            if status["state"] == "stopped" and not self.abort:
                self.history.broken("digests", f"the migration stopped: {status.get('why')}")
                return
            if status.get("leader") == self.told_by and status.get("compared", 0) < compared:
                self.history.broken("digests", f"{status['compared']} digests compared after {compared}")
            self.told_by, compared = status.get("leader"), status.get("compared", 0)

    async def close(self):
        if self.digests:
            self.digests.cancel()
        if self.children:
            await self.children.close()
        if self.world:
            self.lagging.cancel() if hasattr(self, "lagging") else None
            await self.world.close()

    def show_logs(self):
        """The last lines of each server of Lockkeeper; --keep keeps all of them."""
        for at in range(3) if isinstance(self.ours or self.theirs, Lockkeeper) else ():
            for line in tail((self.ours or self.theirs).folder / f"{at + 1}.txt"):
                print(f"  server {at + 1}: {line:.300}")

    def say(self, phase):
        self.history.phase = phase
        print(f"  {time.monotonic() - getattr(self, 'begin', time.monotonic()):6.1f} s: {phase}", flush=True)

    # Clients on their way.

    def everyone(self):
        return self.world.sessions + self.world.mortals

    async def move_about(self, seconds, places):
        """Clients go from place to place, a few at a time; kazoo's and Curator's too."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for session in random.sample(self.everyone(), max(1, len(self.everyone()) // 40)):
                session.move(random.choice(places))
            self.children.move_one(random.choice(places))
            await asyncio.sleep(0.2)

    async def move_all(self, hosts, mixed=None, seconds=3.0):
        """All clients, one by one. Of each hundred some only get the addresses added to those that they have."""
        # Sessions that are opened from now on go there.
        self.world.hosts = list(hosts)
        everyone = self.everyone()
        random.shuffle(everyone)
        for number, session in enumerate(everyone):
            if mixed and random.random() < self.size.mixed:
                session.move(mixed, drop=False)
            else:
                session.move(hosts)
            if number % max(1, len(everyone) // 50) == 0:
                await asyncio.sleep(seconds / 50)
        self.children.move_every(hosts)

    async def wait_until_on(self, hosts, seconds=60):
        """Everyone is connected to one of these."""
        deadline = time.monotonic() + seconds
        while True:
            away = [one for one in self.everyone() if not one.over and (one.link is None or one.host not in hosts)]
            if not away:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(away)} clients are not on {hosts} after {seconds} s: {away[0].name} is on "
                                     f"{away[0].host if away[0].link else 'none'}")
            for one in away:
                if one.link:
                    one.move(hosts)
            await asyncio.sleep(0.2)

    # Faults.

    async def fault(self, phase, within=0.0):
        """Kills the leader, at some time `within` these seconds."""
        if self.phase != phase or not self.kill:
            return
        ensemble = self.theirs if self.kill == "zookeeper-leader" else self.ours
        self.world.mortality.disturb()
        at = await asyncio.to_thread(ensemble.leader)
        await asyncio.sleep(random.uniform(0.0, within))
        await asyncio.to_thread(ensemble.stop, at, signal.SIGKILL)
        self.say(f"{phase}: server {at + 1} of {ensemble.name}, its leader, was killed")
        await asyncio.sleep(2)
        self.world.mortality.disturb()
        if not (ensemble is self.theirs and phase == "after"):
            await asyncio.to_thread(ensemble.start, at)
            await asyncio.to_thread(ensemble.leader)
        self.world.mortality.disturb()
        await asyncio.sleep(2)

    async def restart_theirs(self, closed=None):
        for at in await asyncio.to_thread(self.theirs.in_order):
            self.world.mortality.disturb()
            await asyncio.to_thread(self.theirs.restart, at, closed)
            await asyncio.to_thread(self.theirs.leader)
            self.world.mortality.disturb()
            await asyncio.sleep(0.5)

    # Comparisons.

    async def walk(self, host):
        """Every znode of one server: data, list, Stat."""
        client = Session(f"walker-{host[1]}", [host], self.history)
        try:
            await client.connected()
            await client.authenticate("digest", b"user:secret")
            await client.sync("/")
            found, unseen = {}, ["/"]

            async def look(path):
                try:
                    (data, stat), acls = await asyncio.gather(client.get(path), client.acls(path))
                    names = await client.children(path)
                except Refused:
                    return []
                found[path] = (data, acls, stat.tuple())
                return [f"{path.rstrip('/')}/{name}" for name in names]

            while unseen:
                some, unseen = unseen[:200], unseen[200:]
                for more in await asyncio.gather(*map(look, some)):
                    unseen += more
            return found
        finally:
            try:
                await client.close()
            except Expired:
                pass
            client.task.cancel()

    async def compare_all(self, hosts, names):
        """All servers have the same tree, while the load stands still."""
        await self.children.quiet(True)
        await self.world.quiet()
        differ = []
        # A session may end between two walks; nothing else changes.
        for _ in range(4):
            trees = [await self.walk(host) for host in hosts]
            if self.world.take("tree"):
                path = self.world.path("bank", 0)
                trees[0][path] = (b"planted", *trees[0][path][1:])
                planted = trees[0][path]
            elif "planted" in locals():
                trees[0][self.world.path("bank", 0)] = planted
            results = [compare_trees(trees[0], tree, (names[0], name)) for tree, name in zip(trees[1:], names[1:])]
            differ = [line for _, lines in results for line in lines]
            if not differ:
                break
            await asyncio.sleep(1)
        for line in differ:
            self.history.broken("trees", line)
        self.world.gate.set()
        await self.children.quiet(False)
        print(f"           {results[0][0]} znodes of each of {len(hosts)} servers compared", flush=True)

    async def compare_both(self):
        await self.compare_all(self.theirs.hosts() + self.ours.hosts(),
                               [f"{one.name} {at + 1}" for one in (self.theirs, self.ours) for at in range(3)])

    async def compare_after(self, cut):
        """ZooKeeper's last state, as a server on its own tells it, with each server of Lockkeeper; what came later is left out."""
        copy = self.setting.folder / "judge"
        newest = max(range(3), key=lambda at: max((int(file.suffix[1:], 16) for file in (
            self.theirs.folder / str(at + 1) / "version-2").glob("log.*")), default=0))
        shutil.copytree(self.theirs.folder / str(newest + 1), copy)
        judge = self.setting.server(await asyncio.to_thread(zookeeper, jars(self.setting.work, self.version), copy,
                                                            self.setting.folder / "judge.txt"))
        theirs = await self.walk(("127.0.0.1", judge.port))
        for path, (_, _, stat) in theirs.items():
            if max(stat[0], stat[1]) > cut:
                self.history.broken("two systems", f"{path} was written in ZooKeeper behind the cutover, which ended at {cut:#x}")
        for at, host in enumerate(self.ours.hosts()):
            count, differ = compare_trees(theirs, await self.walk(host), ("ZooKeeper", f"Lockkeeper {at + 1}"), since=cut)
            for line in differ:
                self.history.broken("trees", line)
        assert count > 20, f"only {count} znodes could be compared after the cutover"
        print(f"           {count} znodes that nobody changed since are as ZooKeeper left them", flush=True)

    # The end of a run.

    async def finish(self):
        """Ends the load, judges it, and says what there was."""
        rate = self.history.rate(self.begin, time.monotonic())
        await self.children.stop()
        await self.world.stop()
        counts = await self.world.judge()
        for what in ("registers", "turns", "watches", "sequences", "mortals"):
            if not counts[what]:
                self.history.broken("coverage", f"there were no {what}")
        moves = sum(session.moves - 1 for session in self.world.sessions)
        print(f"  {len(self.history.writes)} writes ({rate:.0f}/s), {counts['registers']} increments "
              f"({sum(self.history.unknown.values())} not answered), {counts['sequences']} numbers, {counts['turns']} turns of "
              f"{len(self.history.turns)} locks, {counts['watches']} watches, {counts['mortals']} sessions that were to end, "
              f"{counts['sessions']} + {self.children.count()} that were not, {moves} reconnections", flush=True)
        self.history.verdict()


async def whole_way(run):
    """A to E. Returns the pause in milliseconds."""
    size, migration, theirs, ours = run.size, run.migration, run.theirs, run.ours
    await run.start()
    run.say("follow")
    if isinstance(ours, Lockkeeper):
        await migration.check()
    status = await migration.follow()
    run.digests = asyncio.create_task(run.watch_digests())
    await run.fault("follow")
    if await abort_here(run, "follow"):
        return None
    await migration.wait_for("following")
    await asyncio.sleep(size.seconds / 2)

    run.say("moving")
    places = [theirs.hosts(), ours.hosts(), theirs.hosts() + ours.hosts()]
    moving = asyncio.create_task(run.move_about(size.seconds, places))
    await asyncio.sleep(size.seconds / 3)
    await run.fault("moving")
    await moving
    if await abort_here(run, "moving"):
        return None
    await migration.wait_for("following")
    await run.compare_both()
    await run.move_all(ours.hosts(), mixed=theirs.hosts() + ours.hosts())

    run.say("closed")
    await run.restart_theirs(closed=True)
    await run.wait_until_on(set(ours.hosts()))
    await run.fault("closed")
    if await abort_here(run, "closed"):
        return None
    status = await migration.wait_for("following")
    await run.compare_both()
    run.world.nobody_leaves = True
    while run.world.left:
        await asyncio.sleep(0.1)
    await run.wait_until_on(set(ours.hosts()))
    await asyncio.sleep(1)

    run.say("cutover")
    if run.intruder:
        await refuse_with_a_client(run)
    pause = await cut_over(run)
    if run.aborted:
        return None
    real, status = isinstance(ours, Lockkeeper), await migration.status()
    # Where ZooKeeper ended by Lockkeeper's account; what it took behind that is found below.
    cut = int(status["zookeeper_zxid"], 16) if real else 0
    epoch = ours.zxid(ours.leader()) >> 32
    assert not real or epoch >= (cut >> 32) + 4096, f"the epoch is {epoch} behind the cutover, and was {cut >> 32} before"

    run.say("after")
    run.world.nobody_leaves = False
    await asyncio.sleep(size.seconds / 2)
    await run.fault("after")
    if run.abort and run.phase == "after":
        line = await migration.abort()
        assert line, "`migrate abort` behind the cutover is to be refused"
        print(f"           abort: {line}")
    if real:
        line = await migration.finish()
        assert line and "runs at" in line, f"`migrate finish` is to be refused while ZooKeeper runs, and says {line}"
    for at in range(3) if real else ():
        await asyncio.to_thread(theirs.stop, at)
    line = await migration.finish()
    assert line is None, f"`migrate finish` says {line}"
    status = await migration.wait_for("done")
    assert not real or status["compared"] > 0 or not run.has_digests, f"no digest was compared: {status}"
    if real:
        await check_figures(run, status)
    await asyncio.sleep(size.seconds / 2)
    await run.finish()
    if real:
        await run.compare_after(cut)
        run.history.verdict()
        print(f"  {status['compared']} digests compared, up to {status.get('compared_zxid')}")
    return pause


async def check_figures(run, status):
    """What a collector of metrics reads agrees with the status."""
    figures = await asyncio.to_thread(run.migration.figures)
    expected = {'lockkeeper_migration_state{key="done"}': "1", "lockkeeper_migration_compared": str(status["compared"]),
                "lockkeeper_migration_zxid": str(int(status["zookeeper_zxid"], 16)), "lockkeeper_migration_alarms": "0"}
    for name, value in expected.items():
        assert figures.get(name) == value, f"{name} is {figures.get(name)} and not {value}: {figures}"


async def cut_over(run):
    """Until it is done, however often; a fault of this phase comes in its midst. Returns the pause in milliseconds."""
    gc.collect()
    await asyncio.sleep(2)
    before, _ = run.history.gap(time.monotonic() - 1, time.monotonic())
    # What was computed here holds up clients, too: the measurement begins a second behind it.
    await asyncio.sleep(1)
    run.stalls, start = 0.0, time.monotonic()
    # A fault of this phase comes a few milliseconds before the command, or in its midst.
    fault = asyncio.create_task(run.fault("cutover", within=0.05))
    if run.phase == "cutover":
        await asyncio.sleep(0.02)
    command = asyncio.create_task(run.migration.cutover())
    if run.abort and run.phase == "cutover":
        await asyncio.sleep(random.uniform(0.0, 0.03))
        line = await run.migration.abort()
        refused = await command
        assert (line is None) != (refused is None), f"abort and cutover at once: abort says {line}, cutover says {refused}"
        print(f"           abort: {line or 'done'}; cutover: {refused or 'done'}", flush=True)
        if refused:
            await back(run)
            return None
    refused = await command
    deadline = time.monotonic() + 120
    while refused:
        print(f"           cutover: {refused}", flush=True)
        assert run.phase == "cutover", f"the cutover was refused: {refused}"
        assert time.monotonic() < deadline, f"no cutover within 120 s: {refused}"
        state = (await run.migration.wait_for("following", "cut-over", "done"))["state"]
        if state != "following":
            # The server that was asked died: what was not answered may have been done.
            assert run.kill == "lockkeeper-leader", f"the cutover was refused, and the state is {state}: {refused}"
            break
        await asyncio.sleep(0.5)
        refused = await run.migration.cutover()
    took = time.monotonic() - start
    await fault
    await asyncio.sleep(1)
    stalls = run.stalls
    pause, longest = run.history.gap(start - 0.5, start + took + 1)
    print(f"           cutover in {took * 1000:.0f} ms: no write was acknowledged for {pause:.0f} ms ({before:.0f} ms "
          f"in a second before), the longest took {longest:.0f} ms; this program was busy with itself for "
          f"{stalls * 1000:.0f} ms at most", flush=True)
    return pause


async def refuse_with_a_client(run):
    """One server of ZooKeeper has its client port open, and a client on it: a refusal in one line, and nothing has changed."""
    at = (await asyncio.to_thread(run.theirs.in_order))[0]
    await asyncio.to_thread(run.theirs.restart, at, False)
    stranger = Session("stranger", [("127.0.0.1", run.theirs.port(at))], run.history)
    run.world.side.append(stranger)
    await stranger.ensure("/stranger")
    refused = await run.migration.cutover()
    assert refused, "the cutover was done while a client was on a port of ZooKeeper"
    print(f"           cutover: {refused}", flush=True)
    status = await run.migration.status()
    assert status["state"] == "following", f"the cutover was refused, and the state is {status['state']}"
    await stranger.set("/stranger", b"still there")
    await stranger.close()
    await asyncio.to_thread(run.theirs.restart, at, True)
    await run.wait_until_on(set(run.ours.hosts()))
    await run.migration.wait_for("following")
    await asyncio.sleep(1)


async def abort_here(run, phase):
    """The way back: addresses of Lockkeeper are taken out, and nobody has lost anything."""
    if not run.abort or run.phase != phase:
        return False
    if phase == "closed":
        await run.restart_theirs(closed=False)
    # Some clients still have both kinds of addresses when Lockkeeper leaves.
    await run.move_all(run.theirs.hosts(), mixed=run.theirs.hosts() + run.ours.hosts())
    line = await run.migration.abort()
    assert line is None, f"`migrate abort` says {line}"
    await back(run)
    return True


async def back(run):
    run.aborted, run.world.nobody_leaves = True, False
    run.say("aborted")
    if run.theirs.closed:
        # Nobody serves until the ports are open again.
        run.world.mortals_excused = True
        await run.restart_theirs(closed=False)
    await run.move_all(run.theirs.hosts())
    await run.wait_until_on(set(run.theirs.hosts()))
    status = await run.migration.status()
    assert status["state"] in ("none", "aborted"), f"after the abort the state is {status['state']}"
    await asyncio.sleep(run.size.seconds / 2)
    await run.compare_all(run.theirs.hosts(), [f"ZooKeeper {at + 1}" for at in range(3)])
    await run.finish()


def with_loop(run, way):
    """Runs a way to its end, and leaves nothing behind."""
    async def all_of_it():
        try:
            return await way(run)
        except Exception:
            run.show_logs()
            raise
        finally:
            await run.close()
            for server in run.setting.started:
                await asyncio.to_thread(server.stop, 9)
            run.setting.started.clear()

    gc.collect()
    gc.disable()
    try:
        return asyncio.run(all_of_it())
    finally:
        gc.enable()


def in_folder(setting, name):
    """A setting of its own for one run of several."""
    folder = setting.folder / name
    folder.mkdir()
    made = type(setting)(setting.work, setting.binary, folder, setting.chosen)
    made.started, made.clients = setting.started, setting.clients
    return made
