"""What must hold after every fault: nothing acknowledged is missing anywhere, and all servers hold the same.

`Load` is the running load; `everything_is_there` and `same_digests` are the two judgements.
"""

import json
import pathlib
import subprocess
import sys

from suites.common import end_group, start_group
from wire import Client, Session

HERE = pathlib.Path(__file__).resolve().parent


class Load:
    """The process of load.py."""

    def __init__(self, ensemble, clients=6, writes_per_second=400):
        self.file = ensemble.folder / "acknowledged.json"
        self.process = start_group(
            [sys.executable, HERE / "load.py", clients, writes_per_second, self.file, ensemble.connect_string()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ensemble.wait_for("the load to begin", lambda: self.mark()["acknowledged"] > 0)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the load has ended")
        return line

    def mark(self):
        """Figures since the last mark, over all clients: sums, and the longest gap of any."""
        rows = json.loads(self.tell("mark"))
        refused = {}
        for row in rows:
            for code, count in row["refused"].items():
                refused[code] = refused.get(code, 0) + count
        return {"acknowledged": sum(r["acknowledged"] for r in rows), "lost": sum(r["lost"] for r in rows),
                "expired": sum(r["expired"] for r in rows), "gap_ms": max(r["gap_ms"] for r in rows), "refused": refused}

    def finish(self):
        """What was acknowledged, by client."""
        self.tell("finish")
        self.close()
        outcome = json.loads(self.file.read_text())
        if outcome["broken"]:
            raise AssertionError(f"the load failed: {outcome['broken']}")
        return outcome["clients"]

    def close(self):
        end_group(self.process)


def everything_is_there(ensemble, acknowledged):
    """Reads every server by itself. Returns the number of acknowledged creates; fails by naming what is missing."""
    total = 0
    for i in ensemble.ids:
        client = Client(*ensemble.address(i), Session(), 30)
        client.sync("/")
        total = 0
        for number, writes in acknowledged.items():
            folders = client.children(f"/load/{number}") if client.exists(f"/load/{number}") else []
            there = {int(name) for folder in folders for name in client.children(f"/load/{number}/{folder}")}
            missing = [n for n in writes["creates"] if n not in there]
            assert not missing, f"server {i} lacks {len(missing)} acknowledged creates of client {number}: {missing[:20]}"
            total += len(writes["creates"])
            if writes["counter"] >= 0:
                value = int(client.get(f"/load/{number}")[0])
                assert writes["counter"] <= value <= writes["counter_sent"], \
                    f"server {i}: counter of client {number} is {value}, acknowledged {writes['counter']}"
        client.end_session()
    return total


def same_digests(ensemble):
    """The audit logs of all servers: what has the same zxid is the same transaction with the same digest of the tree.

    Returns how many lines were compared with another server's.
    """
    seen, common = {}, 0
    for i in ensemble.ids:
        with open(ensemble.audit_log(i)) as lines:
            for text in lines:
                if not text.endswith("\n"):
                    continue  # a server was killed while it wrote its last line
                try:
                    line = json.loads(text)
                except ValueError:
                    # The line after one that was cut off by a kill stands behind it.
                    text = text[text.rindex("{"):]
                    line = json.loads(text)
                key = line["zxid"]
                told = {name: line[name] for name in ("index", "term", "session", "cxid", "op", "path", "digest")}
                first = seen.setdefault(key, (i, told))
                if first[0] != i:
                    common += 1
                assert first[1] == told, f"zxid {key}: server {first[0]} applied {first[1]}, server {i} {told}"
    return common


def newest_digest(ensemble, i):
    """(zxid, digest) of the last line of a server's audit log."""
    with open(ensemble.audit_log(i), "rb") as log:
        log.seek(0, 2)
        log.seek(max(0, log.tell() - 4096))
        text = log.read().decode(errors="replace").rstrip("\n")
    line = json.loads(text[text.rindex("{"):])
    return line["zxid"], line["digest"]


def judge(ensemble, load):
    """Ends the load, waits until all servers have come to rest, and judges. Returns words for the report."""
    acknowledged = load.finish()
    ensemble.wait_until_all_synced()
    count = everything_is_there(ensemble, acknowledged)
    words = f"{count} acknowledged creates are on every server"
    if ensemble.context.kind != "lockkeeper":
        return words
    ensemble.wait_for("all servers to end with the same zxid and digest",
                      lambda: len({newest_digest(ensemble, i) for i in ensemble.ids}) == 1, 60)
    return f"{words}; {same_digests(ensemble)} audit lines compared, digests equal"
