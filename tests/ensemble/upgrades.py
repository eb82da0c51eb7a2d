"""Rolling upgrades of what the servers know each other by, while a lock is held and clients write.

Plain links to TLS in three rounds of restarts, to certificates of a new authority, to a shared secret, and to another
secret. In each round every server is stopped, gets its new files and is started again, one after the other. The holder
of a lock must keep its very znode through all of it, and may not be told that its session is lost.
"""

import subprocess
import time

from locks import CLIENTS, HELD, SESSION_TIMEOUT_MS, Contender, prepare, queue_length
from network import PEER_NET
from proof import Load, judge
from suites.common import SetupError, say


def openssl(folder, *words):
    done = subprocess.run(["openssl", *map(str, words)], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"openssl {' '.join(map(str, words))}: {done.stderr}")


class Files:
    """The keys, certificates and secrets of all servers."""

    def __init__(self, ensemble):
        self.ensemble = ensemble
        self.folder = ensemble.folder / "files"
        self.folder.mkdir()

    def authority(self, name):
        openssl(self.folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        for i in self.ensemble.ids:
            (self.folder / "ext").write_text(f"subjectAltName=IP:{PEER_NET}.{i}\n")
            openssl(self.folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN=zk{i}",
                    "-keyout", f"{name}-{i}.key", "-out", "csr")
            openssl(self.folder, "x509", "-req", "-in", "csr", "-CA", f"{name}.pem", "-CAkey", f"{name}.key",
                    "-CAcreateserial", "-days", 2, "-extfile", "ext", "-out", f"{name}-{i}.pem")

    def read(self, name):
        return (self.folder / name).read_text()

    def shows(self, i, name):
        (self.folder / f"key{i}.pem").write_text(self.read(f"{name}-{i}.key") + self.read(f"{name}-{i}.pem"))

    def trusts(self, i, *names):
        (self.folder / f"trust{i}.pem").write_text("".join(self.read(f"{name}.pem") for name in names))

    def stores(self, i):
        return {"ssl.quorum.keyStore.location": self.folder / f"key{i}.pem",
                "ssl.quorum.trustStore.location": self.folder / f"trust{i}.pem"}

    def new_secret(self):
        path = self.folder / f"secret-{time.monotonic_ns()}"
        subprocess.run([self.ensemble.context.lockkeeper, "peer-secret", path], check=True, capture_output=True)
        return path.read_text().splitlines()[-1]

    def has_secrets(self, i, *lines):
        path = self.folder / f"secret{i}"
        path.write_text("".join(f"{line}\n" for line in lines))
        path.chmod(0o600)


def rounds(files):
    """Name, and what is done to the files of server i: returns the keys of its zoo.cfg."""
    first, second = files.new_secret(), files.new_secret()

    def tls(i, shows, trusts, **keys):
        files.shows(i, shows)
        files.trusts(i, *trusts)
        return files.stores(i) | keys

    def secret(i, *lines, **keys):
        files.has_secrets(i, *lines)
        return {"lockkeeper.peerSecretFile": files.folder / f"secret{i}"} | keys

    def dotted(keys):
        return {name.replace("__", "."): value for name, value in keys.items()}

    old, both, new = ["old"], ["old", "new"], ["new"]
    return [
        ("TLS 1: links with TLS are taken, too", lambda i: tls(i, "old", old, portUnification="true")),
        ("TLS 2: links are made with TLS", lambda i: tls(i, "old", old, portUnification="true", sslQuorum="true")),
        ("TLS 3: links without TLS are refused", lambda i: tls(i, "old", old, sslQuorum="true")),
        ("authority 1: a new one is trusted, too", lambda i: tls(i, "old", both, sslQuorum="true")),
        ("authority 2: certificates are of the new one", lambda i: tls(i, "new", both, sslQuorum="true")),
        ("authority 3: the old one is not trusted", lambda i: tls(i, "new", new, sslQuorum="true")),
        ("back 1: links without TLS are taken, too", lambda i: tls(i, "new", new, portUnification="true", sslQuorum="true")),
        ("back 2: links are made without TLS", lambda i: tls(i, "new", new, portUnification="true")),
        ("back 3: no TLS", lambda i: {}),
        ("secret 1: links without it are taken, too",
         lambda i: secret(i, first, **dotted({"lockkeeper__peerSecurity": "transition"}))),
        ("secret 2: links without it are refused", lambda i: secret(i, first)),
        ("another secret 1: both count", lambda i: secret(i, first, second)),
        ("another secret 2: the new one goes first", lambda i: secret(i, second, first)),
        ("another secret 3: the old one is gone", lambda i: secret(i, second)),
    ]


def run(ensemble, _chosen):
    if ensemble.context.kind != "lockkeeper":
        raise SetupError("upgrades is about Lockkeeper alone")
    prepare(ensemble.context)
    files = Files(ensemble)
    files.authority("old")
    files.authority("new")
    ensemble.start_all()
    load = Load(ensemble, clients=3, writes_per_second=60)
    path, contenders, gaps = "/locks-upgrades", {}, []
    try:
        for kind in CLIENTS:
            contenders[kind] = []
            for wanted in (HELD, "^READY"):
                command = CLIENTS[kind](ensemble.context, ensemble.connect_string(), f"{path}-{kind}")
                contenders[kind].append(Contender(*command))
                contenders[kind][-1].wait_for(wanted)
            ensemble.wait_for("two in the queue", lambda kind=kind: queue_length(ensemble, f"{path}-{kind}") == 2)
        first = {kind: pair[0].held for kind, pair in contenders.items()}
        for words, prepared in rounds(files):
            load.mark()
            for i in ensemble.ids:
                ensemble.stop(i)
                ensemble.reconfigure(i, prepared(i))
                ensemble.start(i)
                ensemble.wait_until_all_synced()
            for kind, (holder, waiter) in contenders.items():
                now = holder.check()
                assert now == first[kind], f"{kind}, {words}: the holder's znode was {first[kind]}, is {now}"
                assert not holder.told_lost, f"{kind}, {words}: the holder was told that its session is lost"
                assert not waiter.held, f"{kind}, {words}: the waiter has the lock, too"
            figures = load.mark()
            assert not figures["expired"], f"{words}: a session of the load expired"
            gaps.append(figures["gap_ms"])
            say(f"   {words}: locks kept; longest gap of a client {figures['gap_ms']} ms, {figures['lost']} requests lost")
        for kind, (holder, waiter) in contenders.items():
            holder.dialogue.send("release")
            waiter.wait_for(HELD)
            assert waiter.held[1] > first[kind][1], f"{kind}: czxid {waiter.held[1]:#x} after {first[kind][1]:#x}"
        words = judge(ensemble, load)
    finally:
        load.close()
        for pair in contenders.values():
            for contender in pair:
                contender.close()
    say(f"{len(gaps)} rounds of restarts, session timeout {SESSION_TIMEOUT_MS / 1000:.0f} s: no session expired, "
        f"longest gap of a client {max(gaps)} ms; {words}")
