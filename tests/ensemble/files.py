"""Files that differ: each key that decides what a transaction does, alone and in pairs, is rolled through three servers under load.

After each restart every server is asked for what the keys decide. A write must come out by the file of the server that leads, a read
by that of the server that answers it, on ZooKeeper as here; and at the end all servers have the same tree.
"""

import itertools
import struct

from proof import Load, judge
from rules import connect
from suites.common import say
from wire import CREATE, GET_DATA, SET_DATA, Lost, Refused, blob, text

KEYS = {}
CREATE_TTL, SET_WATCHES_NONE = 21, b"\0"
TTL_FLAGS = 5
UNIMPLEMENTED, NO_AUTH, INVALID_ACL, QUOTA_EXCEEDED = -6, -102, -114, -125
STRANGER = b"stranger:p9V7QYnv5v7s+HZpYzW9pv1DjvA="
RULES = {
    "extendedTypesEnabled": ("true", "false"),
    "enforceQuota": ("true", "false"),
    "skipACL": ("yes", "no"),
    "DigestAuthenticationProvider.enabled": ("false", "true"),
    "enableEagerACLCheck": ("true", "false"),
}


def acl(scheme, identity):
    return struct.pack(">ii", 1, 31) + blob(scheme) + blob(identity)


DIGEST_ACL = acl(b"digest", STRANGER)
OPEN_ACL = acl(b"world", b"anyone")
# An address that no client of this test has.
ELSEWHERE_ACL = acl(b"ip", b"192.0.2.1")


def create(client, path, acls=OPEN_ACL, data=b""):
    client.call(CREATE, text(path) + blob(data) + acls + struct.pack(">i", 0))


def outcome(call):
    try:
        call()
        return 0
    except Refused as refusal:
        return refusal.code


def probe(client, number):
    """What each of the keys decides, asked of one server: (name, code)."""
    ttl = text(f"/files/ttl-{number}") + blob(b"") + OPEN_ACL + struct.pack(">iq", TTL_FLAGS, 3_600_000)
    return {
        "ttl": outcome(lambda: client.call(CREATE_TTL, ttl)),
        "quota": outcome(lambda: create(client, f"/files/quota/{number}")),
        "write": outcome(lambda: client.call(SET_DATA, text("/files/locked") + blob(b"") + struct.pack(">i", -1))),
        "read": outcome(lambda: client.call(GET_DATA, text("/files/locked") + SET_WATCHES_NONE)),
        "digest": outcome(lambda: create(client, f"/files/digest-{number}", DIGEST_ACL)),
    }


def expected(kind, leads, answers):
    """By the files of the server that leads and of the one that answers."""
    due = by_files(leads, answers)
    # There the server of the connection judges such a write by its own file as well, before it passes it on.
    if kind == "zookeeper" and answers["enableEagerACLCheck"] == "true":
        own = by_files(answers, answers)
        due |= {name: own[name] or due[name] for name in ("write", "digest")}
    return due


def by_files(leads, answers):
    return {
        "ttl": 0 if leads["extendedTypesEnabled"] == "true" else UNIMPLEMENTED,
        "quota": QUOTA_EXCEEDED if leads["enforceQuota"] == "true" else 0,
        "write": 0 if leads["skipACL"] == "yes" else NO_AUTH,
        "read": 0 if answers["skipACL"] == "yes" else NO_AUTH,
        "digest": 0 if leads["DigestAuthenticationProvider.enabled"] == "true" else INVALID_ACL,
    }


class Dance:
    def __init__(self, ensemble):
        self.ensemble, self.number = ensemble, 0
        self.files = {i: {key: default for key, (_, default) in RULES.items()} for i in ensemble.ids}

    def prepare(self):
        client = connect(self.ensemble, self.ensemble.ids[0])
        for path in ("/files", "/files/quota", "/zookeeper/quota/files", "/zookeeper/quota/files/quota"):
            create(client, path)
        limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1"
        create(client, "/zookeeper/quota/files/quota/zookeeper_limits", data=limits)
        create(client, "/zookeeper/quota/files/quota/zookeeper_stats", data=b"count=0,bytes=0")
        create(client, "/files/locked", ELSEWHERE_ACL)
        client.end_session()

    def look(self):
        """Asks every server. One that loses its leader meanwhile is asked again."""
        while True:
            leader = self.ensemble.wait_for_leader()
            self.ensemble.wait_for("all servers serving", lambda: all(self.ensemble.mode(i) for i in self.ensemble.ids))
            try:
                found = {i: self.ask(i) for i in self.ensemble.ids}
            except Lost:
                continue
            if self.ensemble.leader() == leader:
                break
        for i, codes in found.items():
            due = expected(self.ensemble.context.kind, self.files[leader], self.files[i])
            assert codes == due, f"server {i}, while {leader} leads: {codes}, expected {due}; files: {self.files}"

    def ask(self, i):
        self.number += 1
        client = connect(self.ensemble, i)
        codes = probe(client, self.number)
        client.end_session()
        return codes

    def roll(self, changed):
        """Restarts every server with these keys at their other value, the leader last."""
        leader = self.ensemble.wait_for_leader()
        for i in sorted(self.ensemble.ids, key=lambda i: i == leader):
            self.files[i] = {key: other if key in changed else default for key, (other, default) in RULES.items()}
            self.ensemble.stop(i)
            self.ensemble.reconfigure(i, self.files[i])
            self.ensemble.start(i)
            self.ensemble.wait_until_synced(i)
            self.look()


def run(ensemble, chosen):
    ensemble.start_all()
    ensemble.wait_until_all_synced()
    dance = Dance(ensemble)
    dance.prepare()
    load = Load(ensemble)
    try:
        pairs = list(itertools.combinations(RULES, 2))
        sets = [(key,) for key in RULES] + pairs[:chosen.pairs]
        for changed in sets:
            load.mark()
            dance.roll(changed)
            figures = load.mark()
            assert not figures["expired"], f"{changed}: {figures['expired']} sessions expired"
        dance.roll(())
        say(f"   {len(sets)} sets of keys rolled through {len(ensemble.ids)} servers: {dance.number} times asked")
        say(judge(ensemble, load))
    except BaseException:
        load.finish()
        raise
