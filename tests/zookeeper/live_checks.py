"""What clients saw, and what they must not have seen: the checks of a live migration.

All times are those of the monotonic clock, which is one for all processes of a machine.
"""

import time
from collections import Counter, defaultdict

# A holder's times are its own: this much may lie between what happened and when it looked at its clock.
TOLD_MAX = 30


class History:
    """Everything that is judged, from all clients."""

    def __init__(self):
        self.violations, self.kinds = [], Counter()
        self.writes = []
        self.registers = defaultdict(dict)
        self.newest, self.unknown = Counter(), Counter()
        self.sequences, self.turns = defaultdict(list), defaultdict(list)
        self.watches_fired = Counter()
        self.phase = "start"

    def broken(self, kind, line):
        self.kinds[kind] += 1
        if self.kinds[kind] <= TOLD_MAX:
            self.violations.append((kind, f"{kind}: {line} (in phase {self.phase})"))

    def wrote(self, sent, acknowledged):
        self.writes.append((sent, acknowledged))

    def acknowledged(self, path, operation, stat):
        """A version-checked write of a register that a server said yes to."""
        known = self.registers[path]
        if stat.version in known:
            self.broken("registers", f"{path}: version {stat.version} was given to {known[stat.version][0]} and to {operation}")
        known[stat.version] = (operation, stat.mzxid)
        self.newest[path] = max(self.newest[path], stat.version)

    def read(self, path, number, stat, at_least, who):
        if number != stat.version:
            self.broken("registers", f"{path} holds {number} at version {stat.version}: a write was lost, or made twice")
        if stat.version < at_least:
            self.broken("registers", f"{who} read version {stat.version} of {path} when {at_least} was acknowledged before")

    def turn(self, lock, begin, end, token, holder):
        self.turns[lock].append((begin, end, token, holder))

    # Of the whole history, at its end.

    def check_registers(self, final):
        """`final`: for each path what it holds at the end, as (number, who, version)."""
        for path, known in self.registers.items():
            if path not in final:
                self.broken("registers", f"{path} is not there")
                continue
            number, who, version = final[path]
            if number != version:
                self.broken("registers", f"{path} holds {number} at version {version} at the end")
            if version < max(known, default=0):
                self.broken("registers", f"{path} ends at version {version}, and {max(known)} was acknowledged")
            if version - len(known) > self.unknown[path]:
                self.broken("registers", f"{path}: {version} writes, of which {len(known)} were acknowledged and "
                                         f"{self.unknown[path]} not answered")
            if version in known and known[version][0] != who:
                self.broken("registers", f"{path} holds the write of {who}, and {known[version][0]} has its version")
            zxids = [known[version][1] for version in sorted(known)]
            if any(one >= other for one, other in zip(zxids, zxids[1:])):
                self.broken("registers", f"{path}: zxids do not rise with versions")
        return sum(map(len, self.registers.values()))

    def check_sequences(self):
        """Numbers are given once, rise with the zxids, and with time: what was answered before another was asked for is lower."""
        count = 0
        for parent, made in self.sequences.items():
            count += len(made)
            numbers = Counter(number for number, *_ in made)
            for number in [number for number, times in numbers.items() if times > 1][:3]:
                self.broken("sequences", f"{parent} gave {number} {numbers[number]} times")
            made.sort()
            for (low, *_, first, who), (high, *_, second, other) in zip(made, made[1:]):
                if low < high and first >= second:
                    self.broken("sequences", f"{parent}: {high} ({other}) has zxid {second:#x}, and {low} ({who}) {first:#x}")
                    break
            earliest = float("inf")
            for number, sent, answered, _, who in reversed(made):
                if sent > earliest:
                    self.broken("sequences", f"{parent}: {who} asked for {number} after a higher one was answered")
                    break
                earliest = min(earliest, answered)
        return count

    def check_locks(self):
        """One holder at a time; tokens rise from one to the next."""
        count = 0
        for lock, turns in self.turns.items():
            turns.sort()
            count += len(turns)
            until, last = (0.0, "nobody"), (0, "nobody")
            for begin, end, token, holder in turns:
                if begin < until[0]:
                    self.broken("locks", f"{lock}: {holder} held it {(until[0] - begin) * 1000:.1f} ms before {until[1]} gave it away")
                if token <= last[0]:
                    self.broken("locks", f"{lock}: {holder} has token {token:#x}, and {last[1]} had {last[0]:#x} before")
                until = max(until, (end, holder))
                last = (token, holder)
        return count

    def gap(self, begin, end):
        """The largest time between two acknowledged writes in milliseconds, and the longest that one write took."""
        times = sorted(answered for _, answered in self.writes if begin <= answered <= end)
        gap = max((later - one for one, later in zip(times, times[1:])), default=float("inf"))
        longest = max((answered - sent for sent, answered in self.writes if begin <= answered <= end), default=float("inf"))
        return gap * 1000, longest * 1000

    def rate(self, begin, end):
        return sum(begin <= answered <= end for _, answered in self.writes) / max(end - begin, 0.001)

    def verdict(self):
        """Raises what was broken, in one line."""
        for _, line in self.violations[:12]:
            print(f"  BROKEN {line}")
        if self.violations:
            counts = ", ".join(f"{count} of {kind}" for kind, count in self.kinds.items())
            raise AssertionError(f"{self.violations[0][1]} [{counts}]")


def compare_trees(one, other, names, since=None, leave_out=("/zookeeper/config",)):
    """Every znode, its data, its access control list and all numbers of its Stat. Returns how many, and what differs.

    With `since`, what was made, changed or removed behind that zxid on either side is left out.
    """
    def later(node):
        return node is not None and since is not None and max(node[2][0], node[2][1], node[2][10]) > since

    def parent(path):
        return path.rsplit("/", 1)[0] or "/"

    compared, differ = 0, []
    for path in sorted(set(one) | set(other)):
        here, there = one.get(path), other.get(path)
        if path in leave_out or later(here) or later(there):
            continue
        if here is None or there is None:
            above = path
            while above != "/" and not (later(one.get(above)) or later(other.get(above))):
                above = parent(above)
            if later(one.get(above)) or later(other.get(above)):
                continue
            differ.append(f"only {names[1] if here is None else names[0]} has {path}")
            continue
        compared += 1
        for what, mine, theirs in zip(("data", "access control list", "Stat"), here, there):
            if mine != theirs:
                differ.append(f"{path}: the {what} of {names[0]} is {mine!r:.200}, of {names[1]} {theirs!r:.200}")
    return compared, differ


class Mortality:
    """Whether the ephemeral of a session that the test lets die is there as long as it is to be, and no longer."""

    # Ticks of the leader that decides, a look each 0.3 s, and a busy machine.
    LATE_MAX = 6.0

    def __init__(self, history):
        self.history, self.upheaval = history, 0.0
        self.ended = Counter()

    def disturb(self):
        """A server ended or began to lead: it gives every session its full timeout anew."""
        self.upheaval = time.monotonic()

    def left(self, session, closed):
        """What can be said when a client has left: from when on its ephemeral may be gone, and the timeout."""
        return (time.monotonic() if closed else session.contact + session.timeout_ms / 1000), session.timeout_ms / 1000

    def seen(self, name, path, may_end, timeout, closed, there, looked_at):
        """Returns True when it is over."""
        if not there:
            if looked_at < may_end - 0.05 and not closed:
                self.history.broken("ephemerals", f"{path} of {name} was gone {may_end - looked_at:.1f} s before its session could end")
            self.ended["closed" if closed else "expired"] += 1
            return True
        # A close that was answered is done, and the look came behind a sync.
        latest = may_end if closed else self.LATE_MAX + max(may_end, self.upheaval + timeout * 1.5)
        if looked_at > latest:
            self.history.broken("ephemerals", f"{path} of {name} is there {looked_at - may_end:.1f} s after its session "
                                              f"{'was closed' if closed else 'had to end'}")
            return True
        return False
