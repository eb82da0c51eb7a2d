"""Live migration from three servers of ZooKeeper to three of Lockkeeper, under load: the parts `migrate...`.

    migrate-harness   the same load and checks on ZooKeeper alone, whose servers are restarted one by one, and its leader killed
    migrate-plants    a fault of each kind, made on purpose on ZooKeeper alone: each must be found
    migrate-stand-in  the whole way with ZooKeeper's observers in Lockkeeper's place
    migrate-short     the whole way with 60 sessions: for the gate
    migrate           the whole way with 1,000 sessions and 1,000 writes/s; with --repeat 20, the pause's median and maximum
    migrate-secured   the same as migrate-short, where ZooKeeper has TLS and SASL between its servers
    migrate-faults    each leader killed in each phase, abort in each phase, and a client that is still there at the cutover

--kill, --abort and --phase choose one fault for `migrate` and `migrate-short`. The phases: Lockkeeper follows; clients are
moved one by one, both ways; ZooKeeper's client ports are closed; cutover; after it, and ZooKeeper is stopped.
"""

import asyncio
import statistics
import time

from live import PHASES, Run, Size, in_folder, whole_way, with_loop
from live_checks import History
from live_clients import Children
from live_load import PLANTS, World
from real import VERSIONS

LONG, SHORT = Size(980, 20, 2, 1000, 20), Size(57, 3, 0, 300, 3)


def migrate(size):
    def part(setting):
        chosen, pauses = setting.chosen, []
        for number in range(chosen.repeat):
            run = Run(in_folder(setting, f"run-{number}"), size, kill=chosen.kill, abort=chosen.abort, phase=chosen.phase)
            pause = with_loop(run, whole_way)
            pauses += [pause] if pause is not None else []
        if pauses:
            print(f"  the pause of {len(pauses)} cutovers: median {statistics.median(pauses):.0f} ms, maximum {max(pauses):.0f} ms")
    return part


def migrate_secured(setting):
    """What lacks TLS or the password is told so in one line, and follows nothing; what has both goes the whole way."""
    async def refused(run):
        await asyncio.to_thread(run.theirs.start_all)
        await asyncio.to_thread(run.ours.start_all)
        await run.migration.run("follow", more=["--no-wait"])
        deadline, why = time.monotonic() + 30, ""
        while not any(words in why for words in expected):
            assert time.monotonic() < deadline, f"the status is to say one of {expected}, and says {why!r}"
            await asyncio.sleep(0.2)
            why = (await run.migration.status()).get("why", "")
        print(f"  {lacks}: {why}", flush=True)

    for number, (lacks, keys, expected) in enumerate((
            ("without TLS", "lockkeeper.migration.sslQuorum=false\n", ["migration.sslQuorum"]),
            ("without the password", "lockkeeper.migration.jaasFile=\n", ["migration.jaasFile"]))):
        print(f"-- {lacks}", flush=True)
        run = Run(in_folder(setting, f"lacks-{number}"), SHORT, secured=True, keys=keys)
        with_loop(run, refused)
    print("-- with both", flush=True)
    with_loop(Run(setting, SHORT, secured=True), whole_way)


def migrate_faults(setting):
    failed = []
    cases = [(dict(kill=kill, phase=phase), f"{kill} killed, {phase}") for kill in ("zookeeper-leader", "lockkeeper-leader")
             for phase in PHASES]
    cases += [(dict(abort=True, phase=phase), f"abort, {phase}") for phase in PHASES]
    cases += [(dict(intruder=True), "a client that stays")]
    for number, (fault, name) in enumerate(cases):
        print(f"-- {name}", flush=True)
        try:
            with_loop(Run(in_folder(setting, f"run-{number}"), SHORT, **fault), whole_way)
        except Exception as failure:
            print(f"  FAILED: {failure}", flush=True)
            failed.append(f"{name}: {failure}")
    assert not failed, f"{len(failed)} of {len(cases)}: {'; '.join(failed)}"


async def around_in_zookeeper(run, plant=None, seconds=None):
    """What the harness is proved by: no Lockkeeper, and everything else."""
    seconds = seconds or run.size.seconds
    hosts = run.theirs.hosts()
    run.window = [time.monotonic()]
    places = [hosts, hosts[:1], hosts[1:2], hosts[2:]]
    run.say("moving")
    await run.move_about(seconds, places)
    if plant:
        run.world.plant = plant
        await run.world.plant_now()
        await run.move_about(seconds, places)
    else:
        await run.move_all(hosts)
        run.say("restarted one by one")
        await run.restart_theirs()
        run.say("its leader killed")
        run.kill, run.phase = "zookeeper-leader", "follow"
        await run.fault("follow")
        await run.move_about(seconds, places)
        run.window.append(time.monotonic())
    await run.move_all(hosts)
    await run.compare_all(hosts, [f"server {at + 1}" for at in range(3)])


def harness(setting):
    size = Size(setting.chosen.sessions, 8, 2, 1000, 10)

    async def way(run):
        await run.start()
        await around_in_zookeeper(run)
        await run.finish()
        pause, longest = run.history.gap(*run.window)
        print(f"  the largest gap between writes was {pause:.0f} ms (servers restarted, a leader killed); the longest write took "
              f"{longest:.0f} ms; this program was busy with itself for {run.stalls * 1000:.0f} ms at most")

    with_loop(Run(setting, size, ours="alone" if setting.chosen.server == "lockkeeper" else None), way)


def plants(setting):
    """Each planted fault must be found by the check that is for it."""
    async def way(run):
        await asyncio.to_thread(run.theirs.start_all)
        missed = []
        for plant in run.setting.chosen.plant or PLANTS:
            kind = PLANTS[plant]
            run.history = History()
            run.world = World(run.history, run.theirs.hosts(), 60, 300, root=f"/{plant}")
            print(f"-- {plant}", flush=True)
            run.children, run.begin = Children(run.setting, run.world, 0, 0), time.monotonic()
            await run.world.start()
            await around_in_zookeeper(run, plant, seconds=2)
            try:
                await run.finish()
                missed.append(f"{plant} was not found")
            except AssertionError as found:
                if run.history.kinds[kind] == 0:
                    missed.append(f"{plant} was found as {found}")
            await run.world.close()
        run.world = None
        assert not missed, "; ".join(missed)
        print("  all planted faults were found")

    with_loop(Run(setting, SHORT, ours=None), way)


def stand_in(setting):
    """The whole way with observers of ZooKeeper in Lockkeeper's place, with faults: what fails here is wrong in the harness."""
    cases = [{}, dict(kill="zookeeper-leader", phase="closed"), dict(kill="lockkeeper-leader", phase="moving"),
             dict(abort=True, phase="closed")]
    for number, fault in enumerate(cases):
        print(f"-- {fault or 'no fault'}", flush=True)
        with_loop(Run(in_folder(setting, f"run-{number}"), SHORT, ours="observers", **fault), whole_way)


def add_arguments(parser):
    parser.add_argument("--repeat", type=int, default=1, help="how often migrate is run, and the rounds of migrate-hung")
    parser.add_argument("--source", choices=[version for version in VERSIONS], default="3.9.4", help="which ZooKeeper is migrated from")
    parser.add_argument("--seconds", type=int, default=13, help="how long migrate-hung stops the leader")
    parser.add_argument("--lines", type=int, choices=(1, 2, 3, 4), help="only this case of migrate-curator")
    parser.add_argument("--sessions", type=int, default=400, help="how many migrate-harness has")
    parser.add_argument("--server", choices=("zookeeper", "lockkeeper"), default="zookeeper", help="of migrate-harness")
    parser.add_argument("--plant", action="append", choices=list(PLANTS), help="only these of migrate-plants")
    parser.add_argument("--kill", choices=("zookeeper-leader", "lockkeeper-leader"), help="of migrate and migrate-short: in --phase")
    parser.add_argument("--abort", action="store_true", help="the migration is given up in --phase")
    parser.add_argument("--phase", choices=PHASES)


PARTS = {"migrate-harness": harness, "migrate-plants": plants, "migrate-stand-in": stand_in, "migrate-short": migrate(SHORT), "migrate": migrate(LONG),
         "migrate-secured": migrate_secured, "migrate-faults": migrate_faults}
