"""kazoo (Python): its own test suite, out of its source distribution, with ZOOKEEPER_CLUSTER_SIZE=1, or 3.

Its harness starts `java ... QuorumPeerMain zoo.cfg`; shims/java turns that into the server under test.
"""

import re
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree

from .common import HERE, Result, SetupError, build, free_ports, one_line, run_limited

NAME = "kazoo"
VERSION = "2.11.0"
CLIENT = f"kazoo {VERSION}"
PER_TEST_SECONDS = 90
# What its tests import. pyOpenSSL 24 removed a call that its harness makes.
REQUIREMENTS = ["pytest<9", "pytest-timeout", "objgraph", "gevent>=1.2", "eventlet>=0.17.1", "pyjks", "pyOpenSSL<24",
                "pure_sasl>=0.5.1", "setuptools<81", "wheel"]


def folder(context):
    return context.work / f"kazoo-{VERSION}"


def python(context):
    return context.work / "venv" / "bin" / "python"


def prepare(context):
    log = context.log("kazoo.build.log")
    ready = context.work / "venv" / f"ready-{VERSION}"
    if not ready.exists():
        build([sys.executable, "-m", "venv", context.work / "venv"], log)
        build([python(context), "-m", "pip", "install", "-q", *REQUIREMENTS], log)
        ready.touch()
    archive = context.work / f"kazoo-{VERSION}.tar.gz"
    if not archive.exists():
        build([python(context), "-m", "pip", "download", "-q", f"kazoo=={VERSION}", "--no-deps", "--no-binary", ":all:",
               "--no-build-isolation", "-d", context.work], log)
    if not folder(context).exists():
        with tarfile.open(archive) as tar:
            # Older releases of Python 3.11 have no filters.
            tar.extractall(context.work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def environment(context):
    env = context.environment(
        ZOOKEEPER_CLUSTER_SIZE=context.servers, ZOOKEEPER_VERSION="3.9.5", ZOOKEEPER_PATH=folder(context), ZOOKEEPER_CLASSPATH="shim",
        ZOOKEEPER_PORT_OFFSET=free_ports(10 * context.servers), PYTHONPATH=folder(context), SUT_LOG=context.log("kazoo.server.log"))
    env.pop("CI", None)  # with it set, kazoo also checks which version its own CI has installed
    env["PATH"] = f"{HERE / 'shims'}:{env['PATH']}"
    return env


def pytest(context, arguments, seconds):
    command = [python(context), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *arguments]
    code, output = run_limited(command, seconds, cwd=folder(context), env=environment(context))
    with open(context.log("kazoo.log"), "a") as log:
        log.write(output)
    return code, output


def list_tests(context):
    code, output = pytest(context, ["--collect-only", "kazoo/tests"], 120)
    names = [name_of(line.strip()) for line in output.splitlines() if "::" in line and ".py" in line]
    if code != 0 or not names:
        raise SetupError(f"pytest collects nothing: {output[-2000:]}")
    return names


def name_of(node):
    """kazoo/tests/test_x.py::Class::test -> kazoo.tests.test_x.Class::test (as in pytest's report)."""
    path, *rest = node.split("::")
    return ".".join([path[:-3].replace("/", "."), *rest[:-1]]) + "::" + rest[-1]


def node_of(name):
    """The reverse of name_of."""
    dotted, test = name.split("::")
    module, inner = re.match(r"(kazoo\.tests\.[a-z0-9_]+)(?:\.(.+))?$", dotted).groups()
    return "::".join(part for part in [module.replace(".", "/") + ".py", inner, test] if part)


def run_tests(context, names):
    report = context.log("kazoo.xml")
    report.unlink(missing_ok=True)
    limit = 120 + min(len(names), 20) * PER_TEST_SECONDS
    options = [f"--timeout={PER_TEST_SECONDS}", "-o", "junit_family=xunit1", f"--junitxml={report}"]
    start = time.monotonic()
    code, output = pytest(context, options + [node_of(name) for name in names], limit)
    if not report.exists():
        ms = int((time.monotonic() - start) * 1000)
        note = "no report: " + ("out of time" if code is None else one_line(output[-400:]))
        return [Result("TIMEOUT" if code is None else "FAIL", name, ms, note) for name in names]
    return [result_of(case) for case in ElementTree.parse(report).getroot().iter("testcase")]


def result_of(case):
    status, note = "PASS", ""
    for child in case:
        message = (child.get("message") or "").split("\n")[0]
        if child.tag == "skipped":
            status, note = "SKIP", message
        elif child.tag in ("failure", "error"):
            status, note = ("TIMEOUT" if message.startswith("Failed: Timeout") else "FAIL"), message
    name = f"{case.get('classname')}::{case.get('name')}"
    return Result(status, name, int(float(case.get("time") or 0) * 1000), one_line(note))
