"""Two neighbours of the load: processes of their own that get and set a znode of theirs, and note how long each takes.

A pause of a millisecond is between two requests, so that the neighbours leave the processors to the servers. What is
noted lies in memory that the measuring process reads: start and duration of each request, in a ring.
"""

import mmap
import os
import signal
import struct
import time

from wire import GET_DATA, SET_DATA, Connection, Lost, blob, create, number, text

RING = 1 << 19
SAMPLE = struct.Struct("dd")
PAUSE_S = 0.001
AGAIN_S = 0.02


class Neighbour:
    """One process; of several ports it goes to the next one when a connection ends."""

    def __init__(self, kind, ports):
        self.shared = mmap.mmap(-1, 16 + RING * SAMPLE.size)
        self.read, self.kind = 0, kind
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.loop(kind, list(ports))
            finally:
                os._exit(1)

    def loop(self, kind, ports):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        path, link, at, parent = f"/neighbour-{kind}", None, 0, os.getppid()
        request = (GET_DATA, text(path) + b"\0")
        if kind == "set":
            request = (SET_DATA, text(path) + blob(b"x" * 100) + number(-1))
        while os.getppid() == parent:
            start = time.monotonic()
            while True:
                try:
                    if not link:
                        link = Connection(ports[0], timeout_ms=10_000)
                        link.ask(1, create(path, b"x" * 100))
                    link.ask(*request)
                    break
                except (OSError, Lost):
                    if link:
                        link.drop()
                    link = None
                    ports.append(ports.pop(0))
                    time.sleep(AGAIN_S)
            SAMPLE.pack_into(self.shared, 16 + at % RING * SAMPLE.size, start, time.monotonic() - start)
            at += 1
            struct.pack_into("q", self.shared, 0, at)
            time.sleep(PAUSE_S)

    def samples(self):
        """(start, duration) of all requests since the last call."""
        (end,) = struct.unpack_from("q", self.shared, 0)
        found = [SAMPLE.unpack_from(self.shared, 16 + at % RING * SAMPLE.size) for at in range(self.read, end)]
        self.read = end
        return found

    def window(self, since, seconds=60):
        """p50, p99 and maximum in ms since a moment, up to the first request that began after now and is done."""
        now, found = time.monotonic(), []
        while time.monotonic() < now + seconds:
            found += self.samples()
            if found and found[-1][0] > now:
                break
            time.sleep(0.01)
        took = sorted(1000 * lasted for start, lasted in found if start + lasted > since)
        return (took[len(took) // 2], took[len(took) * 99 // 100], took[-1]) if took else (0.0, 0.0, 0.0)

    def stop(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Pair:
    """One that gets, one that sets."""

    def __init__(self, ports):
        self.both = [Neighbour(kind, ports) for kind in ("get", "set")]

    def window(self, since):
        return [one.window(since) for one in self.both]

    def stop(self):
        for one in self.both:
            one.stop()
