"""Clients that are not this test's own: kazoo and Curator, each in a process, told what to do by lines."""

import asyncio
import itertools
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def connect_string(hosts):
    return ",".join(f"{host}:{port}" for host, port in hosts)


class Child:
    """A process with clients. It says in lines of JSON what counts, and is ordered by such lines."""

    def __init__(self, name, count, world):
        self.name, self.count, self.world, self.process = name, count, world, None
        self.answers, self.task = asyncio.Queue(), None

    async def start(self, *command):
        self.process = await asyncio.create_subprocess_exec(*map(str, command), stdin=asyncio.subprocess.PIPE,
                                                            stdout=asyncio.subprocess.PIPE, limit=1 << 20)
        self.task = asyncio.create_task(self.listen())
        await self.answer("ready", 60)

    async def listen(self):
        history = self.world.history
        async for line in self.process.stdout:
            told = json.loads(line)
            if "turn" in told:
                history.turn(told["turn"], told["begin"], told["end"], told["token"], told["holder"])
            elif "write" in told:
                history.wrote(*told["write"])
            elif "broken" in told:
                history.broken(told["broken"], told["line"])
            else:
                await self.answers.put(told)

    def order(self, **what):
        if self.process.returncode is None:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")

    async def answer(self, name, seconds=60):
        try:
            told = await asyncio.wait_for(self.answers.get(), seconds)
        except asyncio.TimeoutError:
            raise AssertionError(f"the clients of {self.name} do not say {name} within {seconds} s") from None
        assert name in told, f"the clients of {self.name} say {told} instead of {name}"

    async def close(self):
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self.task:
            self.task.cancel()


class Children:
    def __init__(self, setting, world, kazoo, curators):
        self.setting, self.world, self.kazoo, self.curators = setting, world, kazoo, curators
        self.all, self.turn = [], itertools.count()

    def count(self):
        return sum(child.count for child in self.all)

    async def start(self):
        world = self.world
        if self.kazoo:
            child = Child("kazoo", self.kazoo, world)
            self.all.append(child)
            await child.start(sys.executable, HERE / "live_kazoo.py", connect_string(world.hosts), self.kazoo, world.root,
                              min(world.locks, max(1, self.kazoo // 2)))
        if self.curators:
            await self.start_curators()

    async def start_curators(self):
        """In Java, with the jars that the tests of clients have. Where those are missing, they are left out by name."""
        jars = self.setting.work / "zookeeper-3.9.5"
        if not any(jars.glob("curator-recipes-*.jar")):
            print("LEFT OUT: Curator in the live migration: its jars come with tests/clients/run curator")
            return
        classes = self.setting.folder / "classes"
        compiler = await asyncio.create_subprocess_exec("javac", "-cp", f"{jars}/*", "-d", str(classes), str(HERE / "LiveCurator.java"))
        assert await compiler.wait() == 0, "LiveCurator.java does not compile"
        child = Child("Curator", self.curators, self.world)
        self.all.append(child)
        await child.start("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
                          "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{jars}/*:{classes}", "LiveCurator",
                          connect_string(self.world.hosts), self.curators, self.world.root)

    def move_one(self, hosts):
        if self.all:
            number = next(self.turn)
            child = self.all[number % len(self.all)]
            child.order(move=number // len(self.all) % child.count, hosts=connect_string(hosts))

    def move_every(self, hosts):
        for child in self.all:
            for number in range(child.count):
                child.order(move=number, hosts=connect_string(hosts))

    async def quiet(self, still):
        for child in self.all:
            child.order(quiet=still)
        for child in self.all:
            await child.answer("quiet")

    async def stop(self):
        for child in self.all:
            child.order(stop=True)
        for child in self.all:
            await child.answer("stopped", 90)

    async def close(self):
        for child in self.all:
            await child.close()
