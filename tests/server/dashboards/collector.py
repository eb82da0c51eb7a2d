"""A Prometheus of its own for three servers: rules out of files of ours, with shorter times, and which of them fire.

Rules are read in the form that `packaging/monitoring/alerts.yml` has: an expression is one line, a string of JSON.
"""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from suites.common import SetupError, end_group, start_group
from three import HOST, until

# How often servers are asked, and rules looked at.
INTERVAL = "1s"
ANSWER_SECONDS_MAX = 5
START_SECONDS_MAX = 20
RULE = re.compile(r'- alert: (\w+)\n +expr: (".*")\n(?: +for: (\w+)\n)?')
UNITS = {"s": 1, "m": 60, "h": 3600}
# A window of so much less time, and a wait before the alert that is so much shorter.
WINDOWS_BY, WAITS_BY = 10, 60


def seconds_of(duration):
    return int(duration[:-1]) * UNITS[duration[-1]]


def prometheus():
    """The program: PROMETHEUS, or that of the PATH."""
    found = shutil.which(os.environ.get("PROMETHEUS", "prometheus"))
    if not found:
        raise SetupError("no prometheus: install it, or name it with PROMETHEUS")
    return found


def rules(path, scaled):
    """Name to rule, as Prometheus takes it. `scaled`: by name, which threshold gives way to which other one."""
    found = {}
    for name, expr, lasts in RULE.findall(path.read_text()):
        expr = json.loads(expr)
        if name in scaled:
            before, after = scaled[name]
            assert before in expr, f"{name} does not ask for {before}"
            expr = expr.replace(before, after)
        expr = re.sub(r"\[(\w+)\]", lambda window: f"[{seconds_of(window[1]) // WINDOWS_BY}s]", expr)
        found[name] = {"alert": name, "expr": expr, "for": f"{seconds_of(lasts or '0s') // WAITS_BY}s"}
    if not found:
        raise SetupError(f"no rules in {path}")
    return found


class Prometheus:
    """It asks the servers of `three`, and looks at these rules."""

    def __init__(self, program, folder, three, groups):
        folder.mkdir()
        port = three.fresh()
        self.url = f"http://{HOST}:{port}"
        targets = [f"{HOST}:{port}" for port in three.admin_ports.values()]
        interval = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
        job = {"job_name": "lockkeeper", "static_configs": [{"targets": targets}]}
        config = {"global": interval, "rule_files": [str(folder / "rules.yml")], "scrape_configs": [job]}
        named = [{"name": name, "rules": list(group.values())} for name, group in groups.items()]
        # What is JSON is YAML, too.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        (folder / "rules.yml").write_text(json.dumps({"groups": named}))
        with open(folder / "log", "wb") as out:
            self.process = start_group(
                [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={HOST}:{port}"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        if until(lambda: len(self.ask("sum(up) by (instance) == 1")) == len(targets), START_SECONDS_MAX) is None:
            raise SetupError(f"prometheus does not see the servers:\n{(folder / 'log').read_text()[-3000:]}")
        # What a rule says before all servers were asked says nothing of them.
        time.sleep(2)
        self.began = time.time()

    def ask(self, query):
        """The series that answer a query, each with its labels and its value; none if Prometheus does not answer."""
        try:
            address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            with urllib.request.urlopen(address, timeout=ANSWER_SECONDS_MAX) as answer:
                return json.load(answer)["data"]["result"]
        except (urllib.error.URLError, OSError):
            return []

    def fired(self, state="firing"):
        """The names of alerts that have fired since the start, also of those that fire no longer."""
        seconds = max(1, int(time.time() - self.began))
        series = self.ask(f'count by (alertname) (count_over_time(ALERTS{{alertstate="{state}"}}[{seconds}s]))')
        return {one["metric"]["alertname"] for one in series}

    def close(self):
        end_group(self.process)
