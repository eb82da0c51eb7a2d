"""A rolling restart that asks nothing but `lockkeeper member can-stop`, while clients write and take locks.

Before each stop the command is asked whether the server may be stopped, with --wait; nothing else is waited for. Meanwhile the
usual load writes, one process holds a lock with one session from the beginning to the end, and others take a second lock in
turns, each of which leaves a directory there while it holds the lock: two that hold it at once would find that of the
other. No session may be lost. Before that, what the command says of a server that must not be stopped is looked at.
"""

import subprocess
import threading

from proof import Load, judge
from servers import PEER_NET
from suites.common import SetupError, say

ADMIN_PORT = 8080
KEYS = {"admin.enableServer": "true", "admin.serverAddress": "0.0.0.0", "admin.serverPort": str(ADMIN_PORT)}
WAIT = "60s"
NOT_NOW, REFUSED = 75, 1
TAKERS = 4
# Takes its turn: the directory is there while it holds the lock.
TURN = 'mkdir "$1/held" && sleep 0.02 && rmdir "$1/held" && echo turn >>"$1/turns"'


def can_stop(ensemble, i, *more, at=None):
    at = at or i
    command = [*ensemble.network.enter(at), str(ensemble.context.lockkeeper), "member", "can-stop", str(i), "--admin",
               f"{PEER_NET}.{at}:{ADMIN_PORT}", *more]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


class Takers:
    """Processes of `lockkeeper lock` that take one lock in turns, and one that holds another one throughout."""

    def __init__(self, ensemble):
        self.ensemble, self.folder = ensemble, ensemble.folder / "turns"
        self.folder.mkdir()
        self.stopped, self.faults = threading.Event(), []
        self.lock = [str(ensemble.context.lockkeeper), "lock", "--server", ensemble.connect_string()]
        self.holder = subprocess.Popen([*self.lock, "/can-stop-held", "--", "sh", "-c", "echo held; exec sleep 1000"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "held\n", self.holder.stderr.read()
        self.threads = [threading.Thread(target=self.take, daemon=True) for _ in range(TAKERS)]
        for thread in self.threads:
            thread.start()

    def take(self):
        while not self.stopped.is_set():
            done = subprocess.run([*self.lock, "/can-stop", "--", "sh", "-c", TURN, "turn", str(self.folder)],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                self.faults.append(f"{done.returncode}: {done.stderr.strip()[-300:]}")

    def turns(self):
        path = self.folder / "turns"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def finish(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)
        assert self.holder.poll() is None, f"the lock that was held was lost: {self.holder.stderr.read()[-500:]}"
        self.close()
        assert not self.faults, self.faults

    def close(self):
        self.stopped.set()
        if self.holder.poll() is None:
            self.holder.terminate()
            self.holder.wait(30)


def expect(done, code, words):
    said = done.stdout + done.stderr
    assert done.returncode == code and words in said, f"{done.args}: {done.returncode}: {said}"


def says_no_where_it_must(ensemble):
    ids = ensemble.ids
    leader = ensemble.wait_for_leader()
    followers = [i for i in ids if i != leader]
    expect(can_stop(ensemble, leader, "--wait", WAIT), 0, "hands over first")
    expect(can_stop(ensemble, followers[0], at=followers[1]), 0, "follows")
    expect(can_stop(ensemble, 99, at=leader), REFUSED, "no member")
    ensemble.stop(followers[0])
    for i in (leader, followers[1]):
        expect(can_stop(ensemble, i, at=leader), NOT_NOW, "the majority would be lost")
    expect(can_stop(ensemble, followers[0], at=leader), 0, "follows")
    ensemble.stop(followers[1])
    ensemble.wait_for("the last server to lose its majority", lambda: not ensemble.mode(leader))
    expect(can_stop(ensemble, leader), NOT_NOW, "there is no leader now")
    for i in followers:
        ensemble.start(i)
    say("   it says no while a member is down, and without a majority")


def run(ensemble, chosen):
    if ensemble.context.kind != "lockkeeper":
        raise SetupError("ZooKeeper has no such command")
    ensemble.start_all()
    says_no_where_it_must(ensemble)
    ensemble.wait_for_leader()
    load, takers = Load(ensemble), None
    try:
        takers = Takers(ensemble)
        load.mark()
        for number in range(chosen.rounds("rolling") or 1):
            before = takers.turns()
            for i in ensemble.ids:
                done = can_stop(ensemble, i, "--wait", WAIT)
                expect(done, 0, f"server {i}")
                ensemble.stop(i)
                ensemble.start(i)
            figures = load.mark()
            assert not figures["expired"], f"{figures['expired']} sessions expired"
            say(f"   rolling restart {number + 1} by can-stop: longest gap {figures['gap_ms']} ms, {figures['lost']} requests "
                f"lost, {figures['acknowledged']} acknowledged, {takers.turns() - before} turns of the lock")
        takers.finish()
        ensemble.wait_until_all_synced()
        say(judge(ensemble, load))
    finally:
        if takers:
            takers.close()
        load.close()
