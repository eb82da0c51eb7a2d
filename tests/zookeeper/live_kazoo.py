"""Clients of kazoo in a process of their own: locks, counters, and their sessions; ordered by lines of JSON.

    live_kazoo.py HOSTS COUNT ROOT LOCKS

Orders: {"move": N, "hosts": "..."}, {"quiet": true|false}, {"stop": true}. Each thing that counts is told as a line:
a turn of a lock, an acknowledged write, what was broken, what is asked for at the end.
"""

import json
import logging
import random
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

TELLING = threading.Lock()


def tell(**what):
    with TELLING:
        print(json.dumps(what), flush=True)


class Worker:
    """One client and the thread that works with it."""

    def __init__(self, number, hosts, root, locks):
        self.number, self.root, self.lock_path = number, root, f"{root}/locks/{number % locks}"
        self.going, self.open, self.idle = True, threading.Event(), threading.Event()
        self.open.set()
        self.client = KazooClient(hosts, timeout=20, randomize_hosts=True, connection_retry=KazooRetry(max_tries=-1, max_delay=0.5),
                                  command_retry=KazooRetry(max_tries=-1, max_delay=0.5))
        self.client.add_listener(self.on_state)
        self.client.start(60)
        self.session = self.client.client_id[0]
        self.mine = f"{root}/sessions/kazoo-{number}"
        self.client.retry(self.client.create, self.mine, b"", ephemeral=True)
        self.register = f"{root}/kazoo-{number % 4}"
        self.client.retry(self.client.ensure_path, self.register)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_state(self, state):
        if state == KazooState.LOST and self.going:
            tell(broken="sessions", line=f"kazoo-{self.number} has lost its session")

    def move(self, hosts):
        """Other addresses, and away: the session goes on."""
        self.client.set_hosts(hosts)
        connection = self.client._connection._socket
        if connection is not None:
            try:
                connection.shutdown(2)
            except OSError:
                pass

    def run(self):
        try:
            while self.going:
                self.turn()
                self.open.wait()
        except Exception as error:
            if self.going:
                tell(broken="kazoo", line=f"kazoo-{self.number}: {type(error).__name__} {error}")
        self.idle.set()

    def turn(self):
        lock = self.client.Lock(self.lock_path, f"kazoo-{self.number}")
        lock.acquire()
        begin = time.monotonic()
        token = self.client.retry(self.client.exists, f"{self.lock_path}/{lock.node}").czxid
        for _ in range(random.randrange(1, 4)):
            self.count()
            time.sleep(random.uniform(0.005, 0.05))
        tell(turn=self.lock_path, begin=begin, end=time.monotonic(), token=token, holder=f"kazoo-{self.number}")
        # What a quiet world has: a lock that is held, and is not given away.
        self.idle.set()
        self.open.wait()
        self.idle.clear()
        lock.release()

    def count(self):
        data, stat = self.client.retry(self.client.get, self.register)
        if int(data or 0) != stat.version:
            tell(broken="registers", line=f"{self.register} holds {data} at version {stat.version}")
        sent = time.monotonic()
        try:
            # Not retried: a write that was not answered may have been made.
            self.client.set(self.register, str(int(data or 0) + 1).encode(), stat.version)
            tell(write=[sent, time.monotonic()])
        except BadVersionError:
            pass
        except Exception as error:
            if type(error).__name__ not in ("ConnectionLoss", "SessionExpiredError", "ConnectionClosedError"):
                raise

    def stop(self):
        self.open.set()
        self.idle.wait(30)
        stat = self.client.retry(self.client.exists, self.mine)
        if stat is None or stat.ephemeralOwner != self.session or self.client.client_id[0] != self.session:
            tell(broken="sessions", line=f"kazoo-{self.number} ends with another session, or without its ephemeral")
        self.going = False


def main():
    # It warns of each connection that ends, and here they end all the time.
    logging.disable(logging.WARNING)
    hosts, count, root, locks = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    workers = [Worker(number, hosts, root, locks) for number in range(count)]
    tell(ready=count)
    for line in sys.stdin:
        order = json.loads(line)
        if "move" in order:
            workers[order["move"]].move(order["hosts"])
        elif "quiet" in order:
            for worker in workers:
                worker.open.clear() if order["quiet"] else worker.open.set()
            if order["quiet"]:
                # Those that wait for a lock write nothing, and those that hold one wait to give it away.
                time.sleep(1.0)
            tell(quiet=order["quiet"])
        elif "stop" in order:
            for worker in workers:
                worker.stop()
            break
    tell(stopped=True)


if __name__ == "__main__":
    main()
