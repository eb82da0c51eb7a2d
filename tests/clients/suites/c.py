"""ZooKeeper's C client (libzookeeper_mt, multi-threaded): Debian's shell cli_mt, and c/session.c through the API.

The Debian packages are unpacked into the cache directory; nothing is installed into the system.
"""

import functools
import subprocess

from .common import HERE, Cases, Dialogue, Result, Server, SetupError, build, need, one_line, run_limited, up_to_date

NAME = "c"
PACKAGES = ("zookeeper-bin", "libzookeeper-mt2", "libzookeeper-mt-dev")
CLIENT = "Debian zookeeper-bin and libzookeeper-mt2"

# The shell cli_mt. Name, then pairs of a command and what its output must show; run in this order.
SCRIPT = [
    ("create", [("create /cli", r"^\tname = /cli$")]),
    ("create ephemeral", [("create +e /cli/e", r"^\tname = /cli/e$")]),
    ("create sequential", [("create +s /cli/s-", r"^\tname = /cli/s-0000000001$")]),
    ("create2", [("create2 /cli/two", r"^\tname = /cli/two$")]),
    ("create container", [("create +c /cli/c", r"^\tname = /cli/c$")]),
    ("create with a time to live", [("create +t=600000 /cli/t", r"^\tname = /cli/t$")]),
    ("ls", [("ls /cli", r"^/cli: rc = 0$(?s:.*)^\te$")]),
    ("ls2", [("ls2 /cli", r"^/cli: rc = 0$(?s:.*)version=0\taversion=0$")]),
    ("set", [("set /cli hello", r"^/cli: rc = 0 Stat:$(?s:.*)version=1\t")]),
    ("get", [("get /cli", r"hello(?s:.*)version=1\t")]),
    ("no node", [("get /cli/none", r"^/cli/none: rc = -101$")]),
    ("node exists", [("create /cli", r"^\[/cli\]: rc = -110$")]),
    ("watch fires", [("wexists /cli/later", r"-101 for /cli/later"),
                     ("create /cli/later", r"CREATED_EVENT state = CONNECTED_STATE for path /cli/later$")]),
    ("sync", [("sync /cli", r"^\[/cli\]: rc = 0$")]),
    ("addauth", [("addauth digest bob:pw", None)]),
    ("delete", [("delete /cli/two", r"^/cli/two: rc = 0$")]),
]


def folder(context):
    return context.work / "c"


def include(context):
    return folder(context) / "root" / "usr" / "include"


def library(context):
    found = sorted(folder(context).glob("root/usr/lib/*/libzookeeper_mt.so.2"))
    if not found:
        raise SetupError(f"no libzookeeper_mt.so.2 under {folder(context)}")
    return found[0].parent


def environment(context):
    return context.environment(LD_LIBRARY_PATH=library(context))


def shell_path(context):
    return folder(context) / "root" / "usr" / "lib" / "zookeeper" / "bin" / "cli_mt"


def prepare(context):
    need("apt-get", "Debian or Ubuntu, whose packages have the C client")
    need("cc", "apt-get install gcc libc6-dev")
    target = folder(context)
    target.mkdir(exist_ok=True)
    log = context.log("c.build.log")
    if not shell_path(context).exists():
        download(target, log, PACKAGES)
        for package in sorted(target.glob("*.deb")):
            build(["dpkg", "-x", package, target / "root"], log)
    source, program = HERE / "c" / "session.c", target / "session"
    if not up_to_date(program, source):
        compile_c(context, "c.build.log", program, "-Wall", source)


def compile_c(context, log, target, *arguments):
    """Compiles a program that uses the client; sources and more options are `arguments`."""
    build(["cc", "-DTHREADED", f"-I{include(context)}", f"-L{library(context)}", "-o", target, *arguments,
           "-l:libzookeeper_mt.so.2"], context.log(log))


def download(target, log, packages):
    """Packages as apt knows them; its lists are refreshed (which needs root) only if it does not know them."""
    command = ["apt-get", "download", "-q", *packages]
    try:
        build(command, log, cwd=target)
    except SetupError:
        build(["apt-get", "update", "-q"], log)
        build(command, log, cwd=target)


def list_tests(context):
    listing = subprocess.run([folder(context) / "session", "--list"], capture_output=True, text=True,
                             env=environment(context))
    return ["cli_mt:" + name for name, _ in SCRIPT] + ["api:" + name for name in listing.stdout.splitlines()]


def run_tests(context, names):
    with Server(context) as server:
        results = shell(context, server, names)
        if any(name.startswith("api:") for name in names):
            results += api(context, server)
    return [r for r in results if r.name in names]


def api(context, server):
    code, output = run_limited([folder(context) / "session", server.address], 90, env=environment(context))
    context.log("c.api.log").write_text(output)
    rows = [line.split("\t") for line in output.splitlines() if line.startswith(("PASS\t", "FAIL\t"))]
    results = [Result(row[0], "api:" + row[1], int(row[2]), one_line(row[3])) for row in rows]
    done = {r.name for r in results}
    lost = [name for name in list_tests(context) if name.startswith("api:") and name not in done]
    return results + [Result("FAIL", name, 0, f"not reached: exit {code}") for name in lost]


def shell(context, server, names):
    cases = Cases(names)
    dialogue = Dialogue([shell_path(context), server.address], env=environment(context))
    dialogue.wait_for(r"SESSION_EVENT.*CONNECTED_STATE", seconds=15)
    for name, steps in SCRIPT:
        cases.follow("cli_mt:" + name, functools.partial(follow, dialogue, steps))
    dialogue.close()
    context.log("c.cli_mt.log").write_text(dialogue.output)
    return cases.results


def follow(dialogue, steps):
    """Sends each command and waits for its pattern, then for the answer to a marker command behind it."""
    for command, pattern in steps:
        since = dialogue.send(command)
        if pattern and not dialogue.wait_for(pattern, since):
            return f"{command}: no /{pattern}/ in: {dialogue.output[since:]}"
        since = dialogue.send("exists /marker")
        if not dialogue.wait_for("Error -101 for /marker", since):
            return f"{command}: no answer any more: {dialogue.output[since:]}"
    return ""
