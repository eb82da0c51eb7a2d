"""Baselines, exceptions and the judgement of a run.

A test that real Apache ZooKeeper passes in the same setup must pass here, or stand in exceptions.tsv with its reason.
Tests that real ZooKeeper fails or skips in this setup are not acceptance criteria.
"""

import collections
import fnmatch

from .common import HERE, Result, say

BASELINES = HERE / "baselines"
# What three servers scored.
ENSEMBLE_BASELINES = BASELINES / "ensemble"
EXCEPTIONS = HERE / "exceptions.tsv"
QUICK = HERE / "quick.tsv"


def rows(path):
    """The tab-separated rows of a file, without blank lines and comments."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]


def baseline_path(suite, servers):
    return (BASELINES if servers == 1 else ENSEMBLE_BASELINES) / f"{suite}.tsv"


def baseline(suite, servers):
    """Test name -> status on as many servers of real ZooKeeper."""
    return {row[1]: row[0] for row in rows(baseline_path(suite, servers))}


def exceptions(suite):
    """List of (test name pattern, reason)."""
    return [(row[1], row[2]) for row in rows(EXCEPTIONS) if row[0] == suite]


def reason_for(name, excepted):
    for pattern, reason in excepted:
        if fnmatch.fnmatchcase(name, pattern):
            return reason
    return None


def quick_patterns(suite):
    return [row[1] for row in rows(QUICK) if row[0] == suite]


def selected(names, patterns):
    return [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]


def write(path, results, header):
    """One run's results as a baseline or a report. Times are left out of what is kept in the repository."""
    with open(path, "w") as out:
        for line in header:
            out.write(f"# {line}\n")
        for r in sorted(results, key=lambda r: r.name):
            out.write("\t".join([r.status, r.name, str(r.ms), r.note]).rstrip("\t") + "\n")


def write_baseline(suite, servers, results, header):
    kept = [Result(r.status, r.name, r.ms, "" if r.status == "PASS" else r.note) for r in results]
    path = baseline_path(suite, servers)
    path.parent.mkdir(exist_ok=True)
    write(path, kept, header)


class Verdict:
    """What one suite's run says. `regressions` and `missing` fail it."""

    def __init__(self, suite, results, expected, left_out, skipped_by_us):
        self.suite = suite
        self.counts = collections.Counter(r.status for r in results)
        by_name = {r.name: r for r in results}
        must = [n for n in expected if expected[n] == "PASS" and n not in left_out]
        self.regressions = [by_name[n] for n in must if n in by_name and by_name[n].status != "PASS"]
        self.missing = [n for n in must if n not in by_name and n not in skipped_by_us]
        self.passed = [n for n in must if n in by_name and by_name[n].status == "PASS"]
        self.better = [r.name for r in results if r.status == "PASS" and expected.get(r.name, "FAIL") != "PASS"]
        self.not_criteria = [r for r in results if r.status != "PASS" and expected.get(r.name) != "PASS"]
        self.must = must
        self.excepted = {n: reason for n, reason in left_out.items() if expected.get(n) == "PASS"}
        self.needless = sorted(n for n in left_out if n in by_name and by_name[n].status == "PASS")

    @property
    def ok(self):
        return not self.regressions and not self.missing

    def show(self):
        counts = self.counts
        say(f"{self.suite}: {counts['PASS']} passed, {counts['FAIL']} failed, {counts['TIMEOUT']} timed out, "
            f"{counts['SKIP']} skipped by the suite; of what real ZooKeeper passes "
            f"{len(self.passed)} pass here, {len(self.regressions)} do not, {len(self.excepted)} are excepted")
        for r in self.regressions:
            say(f"   REGRESSION {r.status} {r.name}: {r.note}")
        for name in self.missing:
            say(f"   MISSING {name}")
        for r in self.not_criteria:
            say(f"   (not passed by real ZooKeeper either) {r.status} {r.name}: {r.note}")
        reasons = collections.Counter(self.excepted.values())
        for reason, count in sorted(reasons.items()):
            say(f"   excepted: {count} {reason}")
        for name in self.needless:
            say(f"   passes although it is in exceptions.tsv: {name}")
        for name in self.better:
            say(f"   passes here, not in the baseline: {name}")
