"""A lock with kazoo that excludes, and is excluded by, the locks of Curator, Go and Lockkeeper. Enter gives it away.

    pip install kazoo==2.11.0
    python examples/clients/python/lock.py 127.0.0.1:2181 /locks/demo
"""

import os
import sys

from kazoo.client import KazooClient, KazooState
from kazoo.recipe.lock import Lock


class CuratorStyleLock(Lock):
    """kazoo's lock under names that Curator understands: `<hex>-lock-N`, where kazoo's own are `<hex>__lock__N`.

    It waits for both kinds; a kazoo lock as it comes does not wait for it.
    """

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-", "__lock__"]


def main():
    servers, path = sys.argv[1:3]
    client = KazooClient(servers, timeout=10)
    client.start()
    lock = CuratorStyleLock(client, path, f"pid {os.getpid()}")
    held = False

    def listen(state):
        # The server says that the lock is lost only when we can hear it again. So stop now.
        if held and state != KazooState.CONNECTED:
            os._exit(75)

    client.add_listener(listen)
    lock.acquire()
    held = True
    node = f"{path}/{lock.node}"
    # The fencing token: whatever the lock protects should refuse smaller ones.
    token = client.retry(client.exists, node).czxid
    print("HELD", node, token, flush=True)
    sys.stdin.readline()
    lock.release()
    held = False
    print("RELEASED", node, token, flush=True)
    client.stop()
    client.close()


if __name__ == "__main__":
    main()
