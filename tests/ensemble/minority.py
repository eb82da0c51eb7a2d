"""The last server of three: what it still answers, what it refuses, and what is as before when the others are back.

Edge case 59 of the protocol's list. A server without a leader holds a write for at most a second and then closes its
clients; with `readonlymode.enabled` it then takes clients that are content with reading.
"""

import struct
import time

from rules import connect
from suites.common import say
from wire import (CREATE, NO_NODE, NOT_READ_ONLY, OPEN_ACL, SET_DATA, SYNC, Client, Lost, Refused, Session, blob,
                  four_letter_word, text)

# ZooKeeper serves read-only clients only if it may give them local sessions.
KEYS = {"readonlymode.enabled": "true", "localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
MULTI = 14
# The rest above one second is for a busy machine.
HELD_SECONDS_MAX = 4.0


def run(ensemble, chosen):
    ensemble.start_all()
    ensemble.wait_until_all_synced()
    leader = ensemble.wait_for_leader()
    last = next(i for i in ensemble.ids if i != leader)
    client = connect(ensemble, last)
    client.ensure("/minority")
    client.set("/minority", b"before")
    kept = Session()
    kept_client = connect(ensemble, last, kept)
    kept_client.create("/minority/held", b"", 1)
    for i in ensemble.ids:
        if i != last:
            ensemble.kill(i)
    start = time.monotonic()
    client.wait(10)
    try:
        client.set("/minority", b"after")
        raise AssertionError("one server of three wrote")
    except Lost as lost:
        took = time.monotonic() - start
        assert "timed out" not in str(lost) and took < HELD_SECONDS_MAX, f"the write is held for {took:.1f} s: {lost}"
    ensemble.wait_for("isro to say ro", lambda: four_letter_word(*ensemble.address(last), "isro") == "ro")
    try:
        Client(*ensemble.address(last), Session(), 10)
        raise AssertionError("a client that wants to write is taken")
    except Lost as lost:
        assert "timed out" not in str(lost), "a client that wants to write is not closed"
    reader = connect(ensemble, last, read_only=True)
    assert reader.read_only, "the server does not say that it is read-only"
    assert reader.get("/minority")[0] == b"before", "a write that was never acknowledged is served"
    assert reader.exists("/minority/held"), "an ephemeral of a living session is gone"
    refused = {"create": (CREATE, text("/no") + blob(b"") + OPEN_ACL + b"\0\0\0\0"),
               "set": (SET_DATA, text("/minority") + blob(b"") + struct.pack(">i", -1)),
               "sync": (SYNC, text("/")),
               "multi": (MULTI, struct.pack(">ib", CREATE, 0) + struct.pack(">i", -1) + text("/no") + blob(b"") + OPEN_ACL
                         + b"\0\0\0\0" + struct.pack(">ibi", -1, 1, -1))}
    for what, (op, body) in refused.items():
        try:
            reader.call(op, body)
            raise AssertionError(f"{what} is answered by a read-only server")
        except Refused as refusal:
            assert refusal.code == NOT_READ_ONLY, f"{what}: error {refusal.code}"
    try:
        reader.get("/no")
        raise AssertionError("/no was created")
    except Refused as refusal:
        assert refusal.code == NO_NODE
    reader.close()
    for i in ensemble.ids:
        if i != last:
            ensemble.start(i)
    ensemble.wait_until_all_synced()
    back = connect(ensemble, last, kept)
    assert back.exists("/minority/held"), "a session that came back in time has lost its ephemeral"
    back.end_session()
    say(f"   the write was let go after {took:.2f} s; reads are served, writes are refused; the session is kept")
    return []
