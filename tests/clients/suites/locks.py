"""What tests/clients/interop takes locks with: a program for each client (locks/), which obeys orders of one line."""

import tarfile
import threading

from . import c, control, debian, kazoo
from .common import HERE, Dialogue, SetupError, build_go, cargo_built, up_to_date

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
    with tarfile.open(debian.source_package(target, context.log(LOG))) as tar:
        for member in tar.getmembers():
            below = member.name.partition("/zookeeper-recipes-lock/src/main/")[2]
            if below and member.isfile():
                (target / below).parent.mkdir(parents=True, exist_ok=True)
                (target / below).write_bytes(tar.extractfile(member).read())
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
    return [cargo_built(["mutex"], ["interop_locks"]) / "interop_locks"], {}


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
