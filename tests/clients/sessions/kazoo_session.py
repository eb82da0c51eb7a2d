"""The golden session of kazoo. Usage: kazoo_session.py HOST:PORT"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoNodeError, NodeExistsError, NotEmptyError
from kazoo.security import make_acl, make_digest_acl


def expect(error, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def main():
    client = KazooClient(sys.argv[1], timeout=10)
    client.start(10)
    client.create("/g", b"one")
    client.create("/g/e", b"", ephemeral=True)
    client.create("/g/s-", b"x", sequence=True)
    client.create("/g/es-", b"x", ephemeral=True, sequence=True)
    client.create("/g/stat", b"y", include_data=True)
    expect(NodeExistsError, client.create, "/g")
    client.get("/g")
    expect(NoNodeError, client.get, "/none")
    client.exists("/g")
    client.exists("/none")
    client.get_children("/g")
    client.get_children("/g", include_data=True)

    seen = threading.Semaphore(0)
    client.get("/g", watch=lambda event: seen.release())
    client.get_children("/g", watch=lambda event: seen.release())
    client.exists("/g/later", watch=lambda event: seen.release())
    client.set("/g", b"two")
    client.create("/g/later")
    for _ in range(3):
        assert seen.acquire(timeout=5)
    expect(BadVersionError, client.set, "/g", b"x", version=0)

    good = client.transaction()
    good.create("/g/t", b"t")
    good.set_data("/g/t", b"u")
    good.check("/g/t", 1)
    good.delete("/g/t")
    assert len(good.commit()) == 4
    bad = client.transaction()
    bad.create("/g/u")
    bad.check("/g", 99)
    bad.commit()

    client.get_acls("/g")
    client.add_auth("digest", "bob:pw")
    client.set_acls("/g/stat", [make_digest_acl("bob", "pw", all=True), make_acl("ip", "127.0.0.1", read=True)])
    client.get_acls("/g/stat")
    client.sync("/g")
    expect(NotEmptyError, client.delete, "/g")

    again = threading.Event()
    client.add_listener(lambda state: again.set() if state == "CONNECTED" else None)
    client.exists("/drop")
    assert again.wait(10)
    client.retry(client.get, "/g/e")
    client.delete("/g/stat")
    client.delete("/g", recursive=True)
    client.stop()
    client.close()


main()
