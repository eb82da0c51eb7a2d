"""kazoo, under the orders of README.md beside this file."""

import logging
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl


def client(words):
    options = {}
    if "ca" in words:
        options.update(use_ssl=True, ca=words["ca"], certfile=words.get("certificate"), keyfile=words.get("key"))
    if "user" in words:
        password = open(words["password_file"]).read().strip()
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": words["user"], "password": password}
    if "service" in words:
        options["sasl_options"] = {"mechanism": "GSSAPI", "service": words["service"]}
    return KazooClient(words["address"], timeout=10, **options)


def obey(zk, order):
    verb, path, *rest = order.split()
    try:
        if verb == "create":
            zk.retry(zk.create, path, b"kept", acl=[make_acl(*rest, all=True)])
            return "CREATED"
        return "DATA " + zk.retry(zk.get, path)[0].decode()
    except NoAuthError:
        return "DENIED"
    except Exception as error:  # whatever it is, the case has it
        return f"ERROR {error!r}"


def main():
    logging.basicConfig(level=logging.CRITICAL)
    zk = client(dict(word.split("=", 1) for word in sys.argv[1:]))
    try:
        zk.start(timeout=6)
        # It is connected before it has authenticated.
        zk.exists("/")
    except Exception as error:
        print(f"REFUSED {error!r}", flush=True)
        return
    print("READY", flush=True)
    for order in sys.stdin:
        print(obey(zk, order), flush=True)
    zk.stop()


main()
