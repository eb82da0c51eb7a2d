"""Three servers of a release are upgraded to the next one and taken back, while clients write and take locks.

The servers of `--release` (of its tag: tests/ensemble/releases builds it) stand for what people run; those of `--next` are
this code, which knows the next version of ensembles. One process holds a lock with one session
from the beginning to the end. Each step is a rolling restart that asks `member can-stop` alone.
"""

import hashlib
import json
import subprocess

from can_stop import ADMIN_PORT, KEYS, WAIT, Takers, can_stop, expect
from proof import Load, judge
from suites.common import SetupError, say

REFUSED, NEXT_VERSION = 1, 2
__all__ = ["KEYS", "run"]


def contents(folder):
    """Digests of all files below a folder; the state's copy is a cache, and the lock is the system's."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Releases:
    def __init__(self, ensemble, old, new):
        self.ensemble, self.old, self.new = ensemble, old, new

    def roll(self, binary, words, load, takers):
        """Restarts all servers with this program, the leader last."""
        turns = takers.turns()
        leader = self.ensemble.wait_for_leader()
        for i in sorted(self.ensemble.ids, key=lambda i: i == leader):
            expect(can_stop(self.ensemble, i, "--wait", WAIT), 0, f"server {i}")
            self.ensemble.stop(i)
            self.ensemble.binaries[i] = binary
            self.ensemble.start(i)
        figures = load.mark()
        assert not figures["expired"], f"{words}: {figures['expired']} sessions expired"
        say(f"   {words}: longest gap {figures['gap_ms']} ms, {figures['acknowledged']} acknowledged, "
            f"{takers.turns() - turns} turns of the lock")

    def finish(self):
        """Asks on the machine of the leader; the others say which that is."""
        leader = self.ensemble.wait_for_leader()
        follower = next(i for i in self.ensemble.ids if i != leader and self.ensemble.alive(i))
        expect(self.finish_at(follower), REFUSED, f"server {leader} leads")
        return self.finish_at(leader)

    def finish_at(self, i):
        command = [*self.ensemble.network.enter(i), self.new, "member", "finish-upgrade", "--admin", f"127.0.0.1:{ADMIN_PORT}",
                   "-o", "json"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def identities(self):
        texts = [(self.ensemble.data(i) / "identity").read_text() for i in self.ensemble.ids]
        return [next(line for line in text.splitlines() if line.startswith("format ")) for text in texts]

    def is_refused(self, i, words):
        """The release does not start on this server's directory, says why, and leaves all as it was."""
        self.ensemble.stop(i)
        before = contents(self.ensemble.data(i))
        command = [*self.ensemble.network.enter(i), self.old, "server", str(self.ensemble.home(i) / "zoo.cfg")]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        assert done.returncode == REFUSED and words in said, f"{done.returncode}: {said}"
        after = contents(self.ensemble.data(i))
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert not changed, f"the refused directory was changed: {changed}"
        say("   " + next(line for line in said.splitlines() if words in line).strip()[:300])

    def is_not_linked(self, i, words):
        """An empty server of the release gets no link, and hears why."""
        data, kept = self.ensemble.data(i), self.ensemble.home(i) / "kept"
        data.rename(kept)
        data.mkdir()
        (data / "myid").write_text(f"{i}\n")
        self.ensemble.binaries[i] = self.old
        length = self.ensemble.output(i).stat().st_size
        self.ensemble.start(i)
        self.ensemble.wait_for("the refusal of a server of the earlier release",
                               lambda: words in self.ensemble.output(i).read_bytes()[length:].decode(errors="replace"))
        assert not self.ensemble.mode(i), "it serves"
        self.ensemble.kill(i)
        subprocess.run(["rm", "-r", str(data)], check=True)
        kept.rename(data)


def run(ensemble, chosen):
    old, new = chosen.release or ensemble.context.lockkeeper, chosen.next
    if not new:
        raise SetupError("releases needs --next, a program with the next formats: see tests/ensemble/releases")
    releases = Releases(ensemble, str(old), str(new))
    for i in ensemble.ids:
        ensemble.binaries[i] = releases.old
    ensemble.start_all()
    load, takers = Load(ensemble), None
    try:
        takers = Takers(ensemble)
        load.mark()
        first = releases.identities()
        releases.roll(releases.new, "to the next release", load, takers)
        releases.roll(releases.old, "back to the release", load, takers)
        leader = ensemble.wait_for_leader()
        follower = next(i for i in ensemble.ids if i != leader)
        expect(can_stop(ensemble, follower, "--wait", WAIT), 0, f"server {follower}")
        ensemble.stop(follower)
        ensemble.binaries[follower] = releases.new
        ensemble.start(follower)
        ensemble.wait_until_all_synced()
        releases.roll(releases.new, "to the next release again", load, takers)
        assert releases.identities() == first, "the formats changed before the upgrade was finished"
        # One of them goes back once more: the others must not be taken on without it.
        expect(can_stop(ensemble, follower, "--wait", WAIT), 0, f"server {follower}")
        ensemble.stop(follower)
        ensemble.binaries[follower] = releases.old
        ensemble.start(follower)
        ensemble.wait_until_all_synced()
        expect(releases.finish(), REFUSED, f"server {follower} runs an earlier release")
        expect(can_stop(ensemble, follower, "--wait", WAIT), 0, f"server {follower}")
        ensemble.stop(follower)
        expect(releases.finish(), REFUSED, f"server {follower} is not linked")
        ensemble.binaries[follower] = releases.new
        ensemble.start(follower)
        ensemble.wait_until_all_synced()
        done = releases.finish()
        expect(done, 0, "version")
        assert json.loads(done.stdout)["version"] == NEXT_VERSION, done.stdout
        ensemble.wait_for("all directories to have the next formats",
                          lambda: all(text != before for text, before in zip(releases.identities(), first)))
        figures = load.mark()
        assert not figures["expired"], f"{figures['expired']} sessions expired"
        say(f"   the upgrade is finished: longest gap {figures['gap_ms']} ms, {figures['acknowledged']} acknowledged")
        releases.roll(releases.new, "a restart of the next release", load, takers)
        releases.is_refused(follower, "or a later one")
        releases.is_not_linked(follower, "start it with this release or a later one")
        ensemble.binaries[follower] = releases.new
        ensemble.start(follower)
        ensemble.wait_until_all_synced()
        takers.finish()
        figures = load.mark()
        assert not figures["expired"], f"{figures['expired']} sessions expired"
        say(judge(ensemble, load))
    finally:
        if takers:
            takers.close()
        load.close()
