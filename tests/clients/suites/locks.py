"""What tests/clients/interop takes locks with: a program for each client (locks/), which obeys orders of one line."""

import pathlib
import re
import shutil
import tarfile
import threading

from . import c, control, kazoo
from .common import HERE, Dialogue, SetupError, build, build_go, cargo_examples, need, up_to_date

SOURCES = HERE / "locks"
LOG = "interop.build.log"
# Annotations that ZooKeeper's recipes are compiled with, and that mean nothing.
ANNOTATION = ("package edu.umd.cs.findbugs.annotations;\n"
              "public @interface SuppressFBWarnings { String value(); String justification(); }\n")


def folder(context, name):
    target = context.work / "locks" / name
    target.mkdir(parents=True, exist_ok=True)
    return target


def recipes(context):
    """ZooKeeper's own recipes for locks, src/main/c and src/main/java, out of its source package in Debian."""
    target = folder(context, "recipes")
    if (target / "ready").exists():
        return target
    need("apt-get", "Debian, whose source package has ZooKeeper's recipes")
    release = dict(re.findall(r"^(\w+)=\"?([^\"\n]*)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE))
    if release.get("ID") != "debian":
        raise SetupError("ZooKeeper's recipes are taken from Debian's source package, and this is not Debian")
    # The system's lists have no sources, so apt gets lists of its own.
    for part in ("state/lists/partial", "cache/archives/partial"):
        (target / part).mkdir(parents=True, exist_ok=True)
    (target / "sources.list").write_text(
        "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        f"http://deb.debian.org/debian {release['VERSION_CODENAME']} main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::SourceList={target}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State={target}/state", "-o", f"Dir::Cache={target}/cache"]
    build([*apt, "update"], context.log(LOG), cwd=target)
    build([*apt, "source", "--download-only", "--tar-only", "zookeeper"], context.log(LOG), cwd=target)
    with tarfile.open(next(target.glob("zookeeper_*.orig.tar.*"))) as tar:
        for member in tar.getmembers():
            below = member.name.partition("/zookeeper-recipes-lock/src/main/")[2]
            if below and member.isfile():
                (target / below).parent.mkdir(parents=True, exist_ok=True)
                (target / below).write_bytes(tar.extractfile(member).read())
    for part in ("state", "cache"):
        shutil.rmtree(target / part)
    (target / "ready").touch()
    return target


def java(context):
    target, source = folder(context, "java"), SOURCES / "java" / "Locks.java"
    if not up_to_date(target / "Locks.class", source):
        annotation = target / "SuppressFBWarnings.java"
        annotation.write_text(ANNOTATION)
        theirs = sorted((recipes(context) / "java").rglob("*.java"))
        control.compile_java(context, LOG, target, source, annotation, *theirs)
    return control.java(context, "Locks", classes=target), {}


def go(context):
    target = folder(context, "go") / "locks"
    build_go(context, LOG, SOURCES / "go", target)
    return [target], {}


def python(context):
    kazoo.prepare(context)
    return ([kazoo.python(context), SOURCES / "kazoo_locks.py"],
            {"PYTHONPATH": kazoo.folder(context), "PYTHONDONTWRITEBYTECODE": "1"})


def zkr(context):
    c.prepare(context)
    target, source = folder(context, "c") / "zkr_lock", SOURCES / "zkr_lock.c"
    if not up_to_date(target, source):
        theirs = recipes(context) / "c"
        c.compile_c(context, LOG, target, f"-I{c.include(context)}/zookeeper", f"-I{theirs}/include", source,
                    theirs / "src" / "zoo_lock.c")
    return [target], {"LD_LIBRARY_PATH": c.library(context)}


def rust(context):
    return [cargo_examples("interop_locks") / "interop_locks"], {}


PROGRAMS = {"java": java, "go": go, "kazoo": python, "c": zkr, "rust": rust}
# The recipe in C can crash, so each of its locks has a process of its own.
ALONE = {"c"}


class Program:
    """One of the programs, with two sessions. Orders are told apart by their numbers."""

    def __init__(self, name, command, environment, context, address):
        self.name = name
        env = context.environment(**environment)
        self.start = lambda: Dialogue([*command, address], env)
        self.dialogues = []
        self.lock = threading.Lock()
        if name not in ALONE:
            self.shared = self.started()

    def started(self):
        dialogue = self.start()
        with self.lock:
            self.dialogues.append(dialogue)
        if not dialogue.wait_for(r"^READY\n", seconds=30):
            raise SetupError(f"{self.name}: no session: {dialogue.output[-500:]}")
        return dialogue

    def order(self, number, order):
        return Order(self.started() if self.name in ALONE else self.shared, number, order)

    def close(self):
        for dialogue in self.dialogues:
            dialogue.close()


class Order:
    """`take` or `look`, and what the program says of it."""

    def __init__(self, dialogue, number, order):
        self.dialogue, self.number = dialogue, number
        self.since = dialogue.send(order)

    def hears(self, words, seconds):
        """(word, what is behind it) or None; a program that has ended says ERROR."""
        found = self.dialogue.wait_for(rf"^({words}) {self.number} (.*)\n", self.since, seconds)
        if found:
            return found.group(1), found.group(2).strip()
        return ("ERROR", "it crashes") if self.dialogue.ended else None

    def free(self, seconds=10):
        self.dialogue.send(f"free {self.number}")
        return self.hears("FREED|ERROR", seconds)
