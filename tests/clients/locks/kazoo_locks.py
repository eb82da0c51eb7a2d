"""The locks of kazoo, under the orders of tests/clients/interop (locks/README.md)."""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, WriteLock


class CuratorStyleLock(Lock):
    """The lock of examples/clients/python/lock.py."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-", "__lock__"]


# The patterns that documentation of kazoo and LOCKS.md suggest to those who share a path with others.
KINDS = {
    "kazoo": (Lock, ()),
    "kazoo+-lock-": (Lock, ("-lock-",)),
    "kazoo+lock-": (Lock, ("lock-",)),
    "kazoo-read": (ReadLock, ()),
    "kazoo-write": (WriteLock, ()),
    "kazoo-read+curator": (ReadLock, ("__WRIT__",)),
    "kazoo-write+curator": (WriteLock, ("__WRIT__", "__READ__")),
    "kazoo-subclass": (CuratorStyleLock, ()),
}

speaking = threading.Lock()
orders_to_free = {}


def say(line):
    with speaking:
        print(line, flush=True)


def hold(number, lock, to_free):
    try:
        lock.acquire()
        say(f"GOT {number} ")
        to_free.wait()
        lock.release()
        say(f"FREED {number} ")
    except Exception as error:  # whatever it is, the cell has it
        say(f"ERROR {number} {error!r}")


def main():
    sessions = [KazooClient(sys.argv[1], timeout=30) for _ in range(2)]
    for session in sessions:
        session.start()
    say("READY")
    for order in sys.stdin:
        verb, number, *words = order.split()
        if verb == "free":
            orders_to_free[number].set()
            continue
        kind, session, path = words
        recipe, patterns = KINDS[kind]
        lock = recipe(sessions[int(session)], path, "interop", extra_lock_patterns=patterns)
        orders_to_free[number] = threading.Event()
        threading.Thread(target=hold, args=(number, lock, orders_to_free[number]), daemon=True).start()


main()
