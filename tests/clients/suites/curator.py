"""Apache Curator: curator/Recipes.java through its recipes, with a crash of the server in the middle of one case."""

import time

from . import control
from .common import HERE, Dialogue, Result, Server, one_line, run_limited, up_to_date

NAME = "curator"
CLIENT = f"Apache Curator {control.CURATOR} on Apache ZooKeeper {control.VERSION}'s client"
SECONDS_MAX = 300


def classes(context):
    return context.work / "curator"


def prepare(context):
    source = HERE / "curator" / "Recipes.java"
    if not up_to_date(classes(context) / "Recipes.class", source):
        control.compile_java(context, "curator.build.log", classes(context), source)


def program(context, argument):
    return control.java(context, "Recipes", argument, classes=classes(context))


def list_tests(context):
    return run_limited(program(context, "--list"), 30)[1].splitlines()


def run_tests(context, names):
    """The cases build on each other, so all of them run, whichever are asked for."""
    with Server(context) as server:
        dialogue = Dialogue(program(context, server.address))
        deadline = time.monotonic() + SECONDS_MAX
        if dialogue.wait_for("^RESTART$", seconds=SECONDS_MAX):
            server.crash_and_restart()
            dialogue.send("restarted")
        dialogue.wait_for("^(PASS|FAIL)\tcrash: what it kept", seconds=deadline - time.monotonic())
        dialogue.close()
    context.log("curator.log").write_text(dialogue.output)
    rows = [line.split("\t") for line in dialogue.output.splitlines() if line.startswith(("PASS\t", "FAIL\t"))]
    results = {row[1]: Result(row[0], row[1], int(row[2]), one_line(row[3])) for row in rows}
    return [results.get(name, Result("FAIL", name, 0, "not reached")) for name in names]
