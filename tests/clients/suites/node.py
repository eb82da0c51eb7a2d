"""node-zookeeper-client (JavaScript): node/session.js through its API, and the package's own examples."""

import shutil
import subprocess
import time

from .common import HERE, Result, Server, build, need, one_line, run_limited

NAME = "node"
VERSION = "1.1.3"
CLIENT = f"node-zookeeper-client {VERSION}"
# Run in this order against one server: each uses what the earlier ones left.
EXAMPLES = {
    "create": ["/ex"],
    "set": ["/ex", "v"],
    "mkdirp": ["/ex/a/b/c"],
    "listSubTreeBFS": ["/ex"],
    "transaction": ["/tx"],
    "delete": ["/ex/a/b/c"],
    "removeRecursive": ["/ex/a/b"],
}


def folder(context):
    return context.work / "node"


def prepare(context):
    need("node", "apt-get install nodejs")
    need("npm", "apt-get install npm")
    target = folder(context)
    target.mkdir(exist_ok=True)
    if not (target / "node_modules" / "node-zookeeper-client").exists():
        (target / "package.json").write_text('{"name": "lockkeeper-clients", "version": "0.0.0", "private": true}\n')
        build(["npm", "install", "--no-audit", "--no-fund", f"node-zookeeper-client@{VERSION}"],
              context.log("node.build.log"), cwd=target)
    shutil.copy(HERE / "node" / "session.js", target / "session.js")


def list_tests(context):
    listing = subprocess.run(["node", "session.js", "--list"], cwd=folder(context), capture_output=True, text=True)
    return ["session:" + name for name in listing.stdout.splitlines()] + ["example:" + name for name in EXAMPLES]


def run_tests(context, names):
    with Server(context) as server:
        results = session(context, server) if any(n.startswith("session:") for n in names) else []
        if any(n.startswith("example:") for n in names):
            results += [example(context, server, name, rest) for name, rest in EXAMPLES.items()]
    return [r for r in results if r.name in names]


def session(context, server):
    _, output = run_limited(["node", "session.js", server.address], 90, cwd=folder(context))
    context.log("node.log").write_text(output)
    rows = [line.split("\t") for line in output.splitlines() if line.startswith(("PASS\t", "FAIL\t"))]
    return [Result(row[0], "session:" + row[1], int(row[2]), one_line(row[3])) for row in rows]


def example(context, server, name, rest):
    start = time.monotonic()
    code, output = run_limited(["node", f"{name}.js", server.address, *rest], 20,
                               cwd=folder(context) / "node_modules" / "node-zookeeper-client" / "examples")
    ms = int((time.monotonic() - start) * 1000)
    # The examples exit with 0 whatever happens; they say so when an operation fails.
    failed = code != 0 or any(word in output.lower() for word in ("fail", "error", "exception"))
    lines = output.splitlines() or [f"exit {code}"]
    return Result("FAIL" if failed else "PASS", f"example:{name}", ms, one_line(lines[-1]) if failed else "")
