"""A kazoo lock in a process of its own. Usage: kazoo_lock.py HOSTS SESSION_TIMEOUT_MS PATH

Takes the lock as soon as it can and says `HELD session czxid`, says every change of state, answers `check` with
`MINE session czxid` or `NONE`, and ends on `release` or at the end of its input.
"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry


def say(*words):
    # In one piece: several threads talk.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main():
    hosts, timeout_ms, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    retry = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
    client = KazooClient(hosts, timeout=timeout_ms / 1000, randomize_hosts=False,
                         connection_retry=KazooRetry(**retry), command_retry=KazooRetry(**retry))
    client.add_listener(lambda state: say("STATE", state))
    client.start(30)
    say("READY", hex(client.client_id[0]))
    lock = client.Lock(path)
    holds = threading.Event()

    def node():
        return f"{path}/{lock.node}"

    def take():
        lock.acquire()
        stat = client.retry(client.exists, node())
        say("HELD", hex(stat.ephemeralOwner), stat.czxid)
        holds.set()

    threading.Thread(target=take, daemon=True).start()
    for line in sys.stdin:
        word = line.strip()
        if word == "check":
            stat = client.retry(client.exists, node()) if holds.is_set() else None
            say(*(("MINE", hex(stat.ephemeralOwner), stat.czxid) if stat else ("NONE",)))
        elif word == "release":
            lock.release()
            say("RELEASED")
    client.stop()
    client.close()


if __name__ == "__main__":
    main()
