"""One server that serves by itself becomes three, whatever the others can see of it meanwhile; and servers that miss one found
nothing before an operator has spoken. There is one ensemble with the data, or a wait that says why.

The old server's port for clients is another one than the others expect, or at an address that they do not reach; the first address
of its line is dead; its process stands still; it is away for a while and comes back with the lines of all.
"""

import random
import re
import subprocess
import time

from network import CLIENT_NET, PEER_NET
from rules import connect
from servers import CLIENT_PORT
from suites.common import say
from wire import EPHEMERAL, SEQUENTIAL, Client, Session

KEYS = {"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1"}
OWN_PORT = CLIENT_PORT + 1
# Keys of the old server, and what stands in the place of its host in all lines.
SITUATIONS = {
    "as usual": ({}, None),
    "another port": ({"clientPort": OWN_PORT}, None),
    "another network": ({"clientPortAddress": f"{CLIENT_NET}.1"}, None),
    "a dead address first": ({}, f"{PEER_NET}.99:2888:3888|{PEER_NET}.1"),
}
MISSED = re.compile(r"`lockkeeper (member bootstrap --without 1)`")


def run(ensemble, chosen):
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 32)
    rng = random.Random(seed)
    for number in range(chosen.growths):
        situation = list(SITUATIONS)[(seed + number) % len(SITUATIONS)]
        say(f"   seed {seed}, growth {number + 1}: {situation}")
        grow(ensemble, situation, rng)
        clear(ensemble)
    found_without_one(ensemble)
    clear(ensemble)
    lose_two_disks(ensemble)


def clear(ensemble):
    for i in ensemble.ids:
        if ensemble.alive(i):
            ensemble.stop(i)
        ensemble.wipe(i)
        ensemble.reconfigure(i, {})
        ensemble.output(i).unlink(missing_ok=True)
        ensemble.audit_log(i).unlink(missing_ok=True)


def write_file(ensemble, i, situation, is_alone=False):
    """The file of server i: with all server lines, or none."""
    keys, line = SITUATIONS[situation]
    ensemble.reconfigure(i, {"standaloneEnabled": "true"} | (keys if i == 1 else {}))
    path = ensemble.home(i) / "zoo.cfg"
    text = path.read_text()
    if i == 1 and "clientPort" in keys:
        text = text.replace(f"clientPort={CLIENT_PORT}\n", "")
    if line:
        text = text.replace(f"server.1={PEER_NET}.1", f"server.1={line}")
    if is_alone:
        text = re.sub(r"^server\..*\n", "", text, flags=re.MULTILINE)
    path.write_text(text)


def grow(ensemble, situation, rng):
    port = SITUATIONS[situation][0].get("clientPort", CLIENT_PORT)
    write_file(ensemble, 1, situation, is_alone=True)
    ensemble.start(1)
    session = Session(60_000)
    holder = ensemble.wait_for("server 1 to serve", lambda: try_to_connect(ensemble.host(1), port, session), 30)
    holder.create("/lock", b"")
    held = holder.create("/lock/lock-", b"", EPHEMERAL | SEQUENTIAL)
    token = holder.get(held)[1]
    newcomers = [2, 3]
    rng.shuffle(newcomers)
    for i in newcomers:
        write_file(ensemble, i, situation)
        ensemble.start(i)
        time.sleep(rng.uniform(0, 1))
    none_serves(ensemble, rng.uniform(0, 3))
    if rng.random() < 0.5:
        ensemble.pause(1)
        none_serves(ensemble, rng.uniform(0.5, 4))
        ensemble.resume(1)
    holder.socket.close()
    ensemble.stop(1)
    none_serves(ensemble, rng.uniform(0.5, 5))
    write_file(ensemble, 1, situation)
    ensemble.start(1)
    ensemble.wait_for("server 2 and 3 serving", lambda: all(ensemble.mode(i) for i in (2, 3)))
    again = Client(ensemble.host(3), CLIENT_PORT, session)
    assert again.session.id == session.id and again.get(held)[1] == token, "the lock is not the one that was held"
    rival = Client(ensemble.host(2), CLIENT_PORT, Session(60_000))
    waits = rival.create("/lock/lock-", b"", EPHEMERAL | SEQUENTIAL)
    assert waits > held and rival.get(waits)[1][0] > token[0], "a token goes back"
    again.close()
    rival.close()
    ensemble.wait_for("server 1 to serve", lambda: try_to_connect(ensemble.host(1), port, Session()), 30).close()


def none_serves(ensemble, seconds):
    """For so long, neither newcomer does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for i in (2, 3):
            assert not ensemble.mode(i), f"server {i} serves an ensemble without server 1"
        time.sleep(0.1)


def try_to_connect(host, port, session):
    try:
        return Client(host, port, session, 2.0)
    except OSError:
        return None


def said(ensemble, i):
    return ensemble.output(i).read_text(errors="replace")


def found_without_one(ensemble):
    """The command that the log says, and the one that was left out comes empty later."""
    for i in (2, 3):
        ensemble.start(i)
    command = ensemble.wait_for("the wait to be explained", lambda: MISSED.search(said(ensemble, 3)), 30).group(1)
    none_serves(ensemble, 1)
    program = [*ensemble.network.enter(3), str(ensemble.context.lockkeeper), *command.split()]
    wrong = subprocess.run([*program[:-1], "2"], capture_output=True, text=True, timeout=90)
    assert wrong.returncode == 1 and "server 2 is there" in wrong.stderr, wrong
    done = subprocess.run(program, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0 and "is founded, and this server belongs to it" in done.stdout, done
    ensemble.wait_for("server 2 and 3 serving", lambda: all(ensemble.mode(i) for i in (2, 3)))
    assert '"op":"bootstrap"' in ensemble.audit_log(2).read_text(), "the audit log of the founder does not say so"
    assert "\nwithout 1\n" in (ensemble.data(2) / "identity").read_text(), "the identity of the founder does not say so"
    client = connect(ensemble, 2)
    client.create("/kept", b"")
    client.close()
    ensemble.start(1)
    ensemble.wait_until_all_synced()
    late = subprocess.run(program, capture_output=True, text=True, timeout=90)
    assert late.returncode == 1 and "past that" in late.stderr, late


def lose_two_disks(ensemble):
    ensemble.start_all()
    ensemble.wait_until_all_synced()
    client = connect(ensemble, 1)
    client.create("/kept", b"")
    client.close()
    for i in ensemble.ids:
        ensemble.stop(i)
    for i in (2, 3):
        ensemble.wipe(i)
        ensemble.output(i).unlink()
        ensemble.start(i)
    none_serves(ensemble, 5)
    ensemble.start(1)
    ensemble.wait_for("the loss to be named", lambda: "have come back without the data" in said(ensemble, 1), 30)
    none_serves(ensemble, 1)
