"""go-zookeeper/zk: its own tests, from the Go module proxy, each test in a process of its own.

Its harness runs $ZOOKEEPER_BIN_PATH/zkServer.sh start-foreground zoo.cfg, which is shims/zkServer.sh. Two changes to
the copy of the module: without --ensemble clusters get one server (the standalone setup), and, for real ZooKeeper only, the client's
parser of `srvr` learns the date form of ZooKeeper 3.7 and later, without which its harness never sees a server.
"""

import json
import re
import shutil
import subprocess
import time

from .common import HERE, Result, SetupError, build, need, one_line, run_limited, up_to_date

NAME = "go"
VERSION = "v1.0.4"
MODULE = "github.com/go-zookeeper/zk"
CLIENT = f"{MODULE} {VERSION}"
PER_TEST_SECONDS = 150


def folder(context):
    return context.work / f"go-zk-{VERSION}-{context.kind}{'' if context.servers == 1 else '-ensemble'}"


def prepare(context):
    need("go", "Go 1.19 or later")
    target = folder(context)
    if up_to_date(target / "zk.test", __file__):
        return
    listing = subprocess.run(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], capture_output=True, text=True)
    if listing.returncode != 0:
        raise SetupError(f"go mod download {MODULE}@{VERSION}: {listing.stdout}{listing.stderr}")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(json.loads(listing.stdout)["Dir"], target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    if context.servers == 1:
        one_server(target / "server_help_test.go")
    if context.kind == "zookeeper":
        newer_build_date(target / "flw.go")
    env = context.environment(GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    build(["go", "test", "-c", "-o", target / "zk.test", "."], context.log("go.build.log"), cwd=target, env=env)


def replace_in(path, old, new):
    text = path.read_text()
    if old not in text:
        raise SetupError(f"{path}: nothing to replace: {old}")
    path.write_text(text.replace(old, new))


def one_server(path):
    replace_in(path, "\tt.Helper()\n\n\tif testing.Short()", "\tt.Helper()\n\tsize = 1\n\n\tif testing.Short()")


def newer_build_date(path):
    replace_in(path, r"built on (\d\d/\d\d/\d\d\d\d \d\d:\d\d [A-Za-z0-9:\+\-]+)",
               r"built on ([0-9/-]+ \d\d:\d\d [A-Za-z0-9:\+\-]+)")
    parse = 'buildTime, err := time.Parse("01/02/2006 15:04 MST", match[1])'
    replace_in(path, parse, parse + '\n\t\tif err != nil {\n\t\t\tbuildTime, err = '
               'time.Parse("2006-01-02 15:04 MST", match[1])\n\t\t}')


def list_tests(context):
    listing = subprocess.run([folder(context) / "zk.test", "-test.list", "."], capture_output=True, text=True,
                             cwd=folder(context), env=context.environment())
    return [line for line in listing.stdout.split() if line.startswith("Test")]


def run_tests(context, names):
    return [run_one(context, name) for name in names]


def run_one(context, name):
    env = context.environment(ZK_VERSION="3.9.5", ZOOKEEPER_BIN_PATH=HERE / "shims", SUT_LOG=context.log("go.server.log"))
    command = [folder(context) / "zk.test", "-test.run", f"^{name}$", "-test.v", "-test.timeout", f"{PER_TEST_SECONDS}s"]
    start = time.monotonic()
    code, output = run_limited(command, PER_TEST_SECONDS + 5, cwd=folder(context), env=env)
    ms = int((time.monotonic() - start) * 1000)
    with open(context.log("go.log"), "a") as log:
        log.write(output)
    if code is None or "panic: test timed out" in output:
        status = "TIMEOUT"
    elif f"--- SKIP: {name} " in output:
        status = "SKIP"
    else:
        status = "PASS" if code == 0 else "FAIL"
    said = [line for line in output.splitlines()
            if re.match(r" +[a-z_]+_test\.go:\d+|panic:", line) and "DEBUG" not in line]
    return Result(status, name, ms, "" if status == "PASS" else one_line(said[-1] if said else f"exit {code}"))
