#!/usr/bin/env python3
"""Load on an ensemble, from a process of its own: clients that write, and remember what was acknowledged.

    load.py CLIENTS WRITES_PER_SECOND FILE HOST:PORT[,HOST:PORT...]

Each client has one session, which it takes along to the next server 20 ms after it has lost a connection, and one
request in flight: creates and, every fourth time, a set of its own counter. On standard input `mark` asks for the
figures since the last mark, as a line of JSON; `finish` ends the load and writes FILE: what was acknowledged, by client.
"""

import json
import sys
import threading
import time

from wire import NODE_EXISTS, Client, Expired, Lost, Refused, Session

RETRY_SECONDS = 0.02
# A server that does not answer for so long is left for the next one.
ANSWER_SECONDS = 1.0
PER_FOLDER = 1000


class Writer(threading.Thread):
    def __init__(self, number, servers, pause, stop):
        super().__init__(daemon=True)
        self.number, self.servers, self.pause, self.stopped = number, servers, pause, stop
        self.server = number % len(servers)
        self.session, self.client = Session(), None
        self.creates, self.counter, self.counter_sent = [], -1, -1
        self.lock = threading.Lock()
        self.last = None
        self.broken = None
        self.clear()

    def clear(self):
        self.acknowledged = self.lost = self.expired = 0
        self.gap = 0.0
        self.refused = {}

    def mark(self):
        """The figures since the last mark."""
        with self.lock:
            now = time.monotonic()
            # A gap that is still open counts with what there is of it.
            gap = max(self.gap, now - self.last if self.last else 0.0)
            figures = {"acknowledged": self.acknowledged, "lost": self.lost, "expired": self.expired,
                       "gap_ms": round(gap * 1000), "refused": dict(self.refused)}
            self.clear()
            self.last = now if self.last else None
            return figures

    def folder(self, number):
        return f"/load/{self.number}/{number // PER_FOLDER}"

    def connect(self):
        while not self.stopped.is_set():
            try:
                self.client = Client(*self.servers[self.server], self.session, ANSWER_SECONDS)
                return
            except Lost:
                self.server = (self.server + 1) % len(self.servers)
                self.stopped.wait(RETRY_SECONDS)
            except Expired:
                with self.lock:
                    self.expired += 1
                self.session = Session()

    def run(self):
        try:
            number = 0
            while not self.stopped.is_set():
                if self.client is None:
                    self.connect()
                    continue
                self.write(number)
                number += 1
                self.stopped.wait(self.pause)
            if self.client:
                self.client.wait(10)
                self.client.end_session()
        except Exception as error:  # told to the runner, which fails
            self.broken = f"{type(error).__name__}: {error}"

    def write(self, number):
        path = f"{self.folder(number)}/{number}"
        try:
            if number % PER_FOLDER == 0 or number == 0:
                self.client.ensure(self.folder(number))
            if number % 4 == 3:
                self.counter_sent = number
                self.client.set(f"/load/{self.number}", str(number).encode())
            else:
                self.client.create(path, path.encode())
        except Lost:
            self.client.close()
            self.client = None
            self.server = (self.server + 1) % len(self.servers)
            with self.lock:
                self.lost += 1
            return
        except Refused as refusal:
            # A folder whose creation was in flight when the connection was lost: the next write makes it.
            with self.lock:
                self.refused[refusal.code] = self.refused.get(refusal.code, 0) + 1
            if refusal.code != NODE_EXISTS:
                self.mend(number)
            return
        now = time.monotonic()
        with self.lock:
            self.acknowledged += 1
            if self.last is not None:
                self.gap = max(self.gap, now - self.last)
            self.last = now
        if number % 4 == 3:
            self.counter = number
        else:
            self.creates.append(number)

    def mend(self, number):
        try:
            self.client.ensure(self.folder(number))
        except (Lost, Refused):
            self.client.close()
            self.client = None


def main():
    count, rate, target, hosts = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    servers = [(host, int(port)) for host, port in (address.rsplit(":", 1) for address in hosts.split(","))]
    stop = threading.Event()
    writers = [Writer(i, servers, count / rate, stop) for i in range(count)]
    for writer in writers:
        writer.start()
    for line in sys.stdin:
        if line.strip() == "mark":
            print(json.dumps([writer.mark() for writer in writers]), flush=True)
        elif line.strip() == "finish":
            break
    stop.set()
    for writer in writers:
        writer.join(30)
    broken = [writer.broken or ("does not end" if writer.is_alive() else None) for writer in writers]
    with open(target, "w") as out:
        json.dump({"broken": [text for text in broken if text],
                   "clients": {w.number: {"creates": w.creates, "counter": w.counter, "counter_sent": w.counter_sent}
                               for w in writers}}, out)
    print("done", flush=True)


if __name__ == "__main__":
    main()
