"""A server whose state becomes another one: by a transaction that it applies wrongly, as a follower and as the leader, and by a
byte that changes in its memory. It is named, ends and serves no client. It comes back by `--rejoin` with its log and identity, or,
where its memory alone has changed, by a start.

Needs a program that plants bugs (feature `mutants`): LOCKKEEPER_BIN=target/debug/lockkeeper tests/ensemble/run diverged
"""

import time

from rules import connect
from suites.common import say
from wire import Lost

KEYS = {}
NAMED = "the state of this server is not that of the majority"
CHANGED = "the memory of this server changed under its znodes"
# Beside other work; the simulation asks for one second of its own time.
NAMED_SECONDS_MAX = 3.0
# A pass of the scrub begins every ten seconds.
SCRUBBED_SECONDS_MAX = 15.0
ELECTIONS_MAX = 20


def run(ensemble, chosen):
    ensemble.start_all()
    ensemble.wait_until_all_synced()
    leader = ensemble.wait_for_leader()
    victim = next(i for i in ensemble.ids if i != leader)
    client = connect(ensemble, leader)
    client.create("/n0", b"right")
    client.close()
    ensemble.said = 0
    for is_leader in (False, True):
        replant(ensemble, victim, "applies-wrongly", is_leader)
        applies_wrongly(ensemble, victim, is_leader)
        rejoin(ensemble, victim)
    # The first pass may be over before it serves.
    ensemble.stop(victim)
    ensemble.start(victim, "--plant", "flipped-byte")
    changes_in_memory(ensemble, victim)


def replant(ensemble, victim, bug, is_leader):
    """Starts the victim again with a bug, as the leader or as a follower."""
    ensemble.stop(victim)
    ensemble.start(victim, "--plant", bug)
    for _ in range(ELECTIONS_MAX):
        leader = ensemble.wait_for_leader()
        ensemble.wait_for("the victim to serve", lambda: ensemble.mode(victim))
        if (leader == victim) == is_leader:
            return
        ensemble.stop(leader)
        ensemble.start(leader, *(("--plant", bug) if leader == victim else ()))
        ensemble.wait_for("all servers serving", lambda: all(ensemble.mode(i) for i in ensemble.ids))
    raise AssertionError("the victim does not come to its role")


def applies_wrongly(ensemble, victim, is_leader):
    writer = next(i for i in ensemble.ids if i != victim)
    reader = connect(ensemble, victim)
    client = connect(ensemble, writer)
    begun = time.monotonic()
    client.set("/n0", b"right again")
    took = named(ensemble, victim, begun, NAMED_SECONDS_MAX)
    expect_closed(reader)
    say(f"   a {'leader' if is_leader else 'follower'} that applies wrongly: named after {took * 1000:.0f} ms")
    survivor = connect(ensemble, ensemble.wait_for_leader())
    survivor.set("/n0", b"right")
    survivor.close()


def changes_in_memory(ensemble, victim):
    """It ends by itself. Its disk has what was written: a start is enough."""
    begun = time.monotonic()
    ensemble.wait_for("the victim to end", lambda: not ensemble.alive(victim), SCRUBBED_SECONDS_MAX)
    say(f"   a byte that changed in memory: the server ends {time.monotonic() - begun:.1f} s after the start")
    assert ensemble.processes.pop(victim).poll() != 0, "it ended as if all were well"
    assert CHANGED in ensemble.tail(victim, 400), ensemble.tail(victim)
    assert not (ensemble.data(victim) / "diverged").exists(), "the directory is marked"
    ensemble.start(victim)
    ensemble.wait_until_all_synced()
    has_the_state(ensemble, victim)


def named(ensemble, victim, begun, seconds_max):
    ensemble.wait_for("the victim to be named", lambda: said(ensemble, victim) > ensemble.said, seconds_max + 10)
    took = time.monotonic() - begun
    ensemble.wait_for("the victim to end", lambda: not ensemble.alive(victim), 10)
    assert took < seconds_max, f"named after {took:.1f} s"
    assert ensemble.processes.pop(victim).poll() != 0, "it ended as if all were well"
    words = ensemble.tail(victim, 400)
    assert "zxid 0x" in words and "--rejoin" in words, words
    others = [i for i in ensemble.ids if i != victim]
    assert all(ensemble.alive(i) for i in others), "another server has ended"
    ensemble.said = said(ensemble, victim)
    return took


def said(ensemble, victim):
    return ensemble.output(victim).read_text(errors="replace").count(NAMED)


def expect_closed(client):
    try:
        client.get("/n0")
        raise AssertionError("a server whose state is another one answers")
    except Lost:
        pass


def rejoin(ensemble, victim):
    identity = (ensemble.data(victim) / "identity").read_text()
    assert (ensemble.data(victim) / "diverged").exists(), "the directory is not marked"
    ensemble.start(victim)
    ensemble.wait_for("a start without --rejoin to be refused", lambda: not ensemble.alive(victim), 30)
    assert ensemble.processes.pop(victim).poll() != 0, "the directory is used again"
    ensemble.said = said(ensemble, victim)
    ensemble.start(victim, "--rejoin")
    ensemble.wait_until_all_synced()
    assert (ensemble.data(victim) / "identity").read_text() == identity, "it comes back as another server"
    assert not (ensemble.data(victim) / "diverged").exists(), "the mark is still there"
    assert list(ensemble.data(victim).glob("diverged-*")), "nothing was put aside"
    has_the_state(ensemble, victim)


def has_the_state(ensemble, victim):
    client = connect(ensemble, victim)
    client.sync()
    assert client.get("/n0")[0] == b"right", "the state is not that of the others"
    client.close()
