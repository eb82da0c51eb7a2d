"""What is tried: one function for each part."""

import json
import pathlib
import resource
import shutil
import signal
import subprocess
import time

from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl
from real import free_port, jars, lockkeeper, word, zookeeper


class Setting:
    """Where a part works, and what it has started."""

    def __init__(self, work, binary, folder, chosen):
        self.work, self.binary, self.folder, self.chosen = work, binary, folder, chosen
        self.started, self.clients = [], []

    def server(self, made):
        self.started.append(made)
        return made

    def client(self, port, **more):
        client = KazooClient(f"127.0.0.1:{port}", timeout=20, **more)
        client.start(30)
        self.clients.append(client)
        return client

    def close(self):
        for client in self.clients:
            forget(client)
        for server in self.started:
            server.stop(signal.SIGKILL)

    def run(self, *arguments, refused=None, file_bytes_max=None):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

        done = subprocess.run([str(self.binary), *map(str, arguments)], capture_output=True, text=True, timeout=600,
                              preexec_fn=limit if file_bytes_max else None)
        said = done.stdout + done.stderr
        if refused is None:
            assert done.returncode == 0, said
            return done.stdout
        assert done.returncode != 0 and refused in said, f"{refused!r} is not in: {said}"
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, f"one line is to be said: {lines}"
        return said


def forget(client):
    """Ends a client whose server does not run any more: its session stays open there."""
    try:
        client.stop()
        client.close()
    except Exception as error:
        print(f"  (a client does not end: {error})")


def session(client):
    return client.client_id


def walk(client, path="/"):
    """Every znode: data, Stat, list."""
    found, unseen = {}, [path]
    while unseen:
        path = unseen.pop()
        data, stat = client.get(path)
        acls, _ = client.get_acls(path)
        found[path] = (data, tuple(stat), sorted(acls))
        unseen += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
    return found


def compare(one, other, leave_out=lambda path: False):
    paths = {path for path in set(one) ^ set(other) if not leave_out(path)}
    assert not paths, f"only one has {sorted(paths)[:10]}"
    differ = [path for path in one if path in other and not leave_out(path) and one[path] != other[path]]
    for path in differ[:5]:
        print("differs:", path, one[path], other[path])
    assert not differ, f"{len(differ)} znodes differ: {sorted(differ)[:10]}"
    return len(one)


def is_rewritten(path):
    """The members are each ensemble's own, and their znode is below one of ZooKeeper's."""
    return path == "/zookeeper/config"


def has(version, least):
    return tuple(map(int, version.split("."))) >= least


def fill(client, version, count=60):
    """Every kind of znode that a version has."""
    client.add_auth("digest", "user:secret")
    client.create("/app", b"application")
    for number in range(count):
        client.create(f"/app/{number}", b"x" * number)
    for number in range(0, count, 3):
        client.set(f"/app/{number}", b"changed")
    for number in range(0, count, 7):
        client.delete(f"/app/{number}")
    client.create("/queue")
    for _ in range(5):
        client.create("/queue/n-", b"", sequence=True)
    client.delete("/queue/n-0000000004")
    client.create("/empty", b"")
    client.create("/secret", b"s", acl=[make_digest_acl("user", "secret", all=True), make_acl("world", "anyone", read=True)])
    client.set_acls("/empty", [make_acl("ip", "127.0.0.1", all=True), make_acl("world", "anyone", read=True)])
    client.create("/with-umlaut-\u00e4", "\u00e4".encode())
    transaction = client.transaction()
    transaction.create("/multi", b"m")
    transaction.create("/multi/a", b"a")
    transaction.set_data("/multi", b"changed")
    transaction.check("/app", 0)
    transaction.commit()
    failing = client.transaction()
    failing.create("/never", b"")
    failing.check("/app", 99)
    failing.commit()
    client.ensure_path("/zookeeper/quota/app")
    client.create("/zookeeper/quota/app/zookeeper_limits", b"count=1000,bytes=-1")
    client.create("/zookeeper/quota/app/zookeeper_stats", b"count=0,bytes=0")
    client.create("/app/counted", b"12345")
    if has(version, (3, 5)):
        subcreate(client, 19, "/container", b"c", flags=4)
        client.create("/container/child")
    if has(version, (3, 5, 3)):
        subcreate(client, 21, "/ttl", b"t", flags=5, ttl=3_600_000)


def subcreate(client, opcode, path, data, flags, ttl=None):
    """createContainer and createTTL, which kazoo does not have."""
    import struct

    from kazoo.protocol.serialization import int_struct, write_buffer, write_string
    from kazoo.security import OPEN_ACL_UNSAFE

    class Request:
        type = opcode

        @staticmethod
        def serialize():
            out = bytearray()
            out.extend(write_string(path))
            out.extend(write_buffer(data))
            out.extend(int_struct.pack(len(OPEN_ACL_UNSAFE)))
            for acl in OPEN_ACL_UNSAFE:
                out.extend(int_struct.pack(acl.perms) + write_string(acl.id.scheme) + write_string(acl.id.id))
            out.extend(int_struct.pack(flags))
            if ttl is not None:
                out.extend(struct.Struct("!q").pack(ttl))
            return out

        @staticmethod
        def deserialize(bytes, offset):
            return True

    result = client.handler.async_result()
    client._call(Request, result)
    result.get(10)


def judge_of(setting, data, log):
    """ZooKeeper 3.9 itself on a copy of a directory, a client of it, and the copy."""
    copy = setting.folder / f"copy-{time.monotonic_ns()}"
    shutil.copytree(data, copy)
    if log != data:
        shutil.copytree(log, setting.folder / f"{copy.name}-log")
    extra = f"dataLogDir={setting.folder / (copy.name + '-log')}\n" if log != data else ""
    server = setting.server(zookeeper(jars(setting.work, "3.9.4"), copy, setting.folder / "copy.txt", extra=extra,
                                     java=("-Dzookeeper.snapshot.trust.empty=true",)))
    client = setting.client(server.port)
    client.add_auth("digest", "user:secret")
    return server, client, copy


def import_of(version, compression=None, torn=True, split_log=False):
    def run(setting):
        lib = jars(setting.work, version)
        data = setting.folder / "zookeeper"
        log = setting.folder / "zookeeper-log" if split_log else data
        options = (f"-Dzookeeper.snapshot.compression.method={compression}",) if compression else ()
        # Snapshots come often, so that some are written while transactions go on.
        java = ("-Dzookeeper.snapCount=40", *options)
        extra = f"dataLogDir={log}\n" if split_log else ""
        server = setting.server(zookeeper(lib, data, setting.folder / "one.txt", extra=extra, java=java))
        first = setting.client(server.port)
        fill(first, version)
        lost = setting.client(server.port)
        lost.create("/of-a-session-that-ends", b"", ephemeral=True)
        lost.stop()
        server.stop()
        server = setting.server(zookeeper(lib, data, setting.folder / "two.txt", extra=extra, java=java, port=server.port))
        live = setting.client(server.port)
        live.create("/lock", b"")
        mine = live.create("/lock/c-", b"held", ephemeral=True, sequence=True)
        for _ in range(30):
            live.set("/app", b"again")
        known = session(live)
        server.stop(signal.SIGKILL)
        forget(live), forget(first)
        if torn:
            tear(log)
        source = f"{data},{log}" if split_log else str(data)

        new = setting.folder / "lockkeeper"
        dry = json.loads(setting.run("import", source, "--data-dir", new, "--dry-run", "-o", "json"))
        assert not new.exists() or not any(new.iterdir()), "a dry run writes nothing"
        said = setting.run("import", source, "--data-dir", new, "-o", "json")
        report = json.loads(said)
        assert (report["digest"], report["done"]) == (dry["digest"], "imported")
        assert bool(report["torn"]) == torn, report
        if has(version, (3, 6)):
            assert report["digests_compared"] > 0 and report["digest_differs_at"] is None, report
        print(f"  {version}: {report['znodes']} znodes, {report['sessions']} sessions, {report['transactions']} transactions "
              f"behind {report['snapshot'].rsplit('/', 1)[-1]}, digests compared {report['digests_compared']}, torn {torn}")
        setting.run("import", source, "--data-dir", new, refused="there is data")

        ours = setting.server(lockkeeper(setting.binary, new, setting.folder / "ours.txt"))
        again = setting.client(ours.port, client_id=known)
        assert session(again)[0] == known[0], f"another session: {session(again)} after {known}"
        again.add_auth("digest", "user:secret")
        assert again.exists(mine).owner_session_id == known[0]
        # ZooKeeper 3.9 on a copy of the same directory is the judge, whatever version wrote it.
        other, judge, copy = judge_of(setting, data, log)
        count = compare(walk(judge), walk(again), lambda path: is_rewritten(path) or path == "/zookeeper")
        print(f"  {count} znodes and Stats are those of ZooKeeper 3.9 on the same directory")
        assert again.create("/queue/n-", b"", sequence=True) == "/queue/n-0000000005"
        assert judge.create("/queue/n-", b"", sequence=True) == "/queue/n-0000000005"
        before = again.exists("/queue/n-0000000005").czxid
        assert before > int(report["last_zxid"], 16), "tokens grow"
        setting.run("server", "--data-dir", data, refused="lockkeeper import")
        # 3.9 has gone on from those files, and wrote its digest into each transaction: the old snapshot and all logs
        # together must come to that digest.
        other.stop(signal.SIGKILL)
        forget(judge)
        logs = copy if log == data else copy.parent / f"{copy.name}-log"
        for file in (copy / "version-2").glob("snapshot.*"):
            if not (data / "version-2" / file.name).exists():
                file.unlink()
        judged = json.loads(setting.run("import", f"{copy},{logs}", "--data-dir", new, "--dry-run", "-o", "json"))
        assert judged["digests_compared"] > 0 and judged["digest_differs_at"] is None, judged
        print(f"  and the digest is 3.9's at {judged['last_zxid']}: {judged['digest']}")

    return run


def tear(log):
    """Cuts the last entry of the newest log in its middle."""
    files = sorted((log / "version-2").glob("log.*"), key=lambda file: int(file.suffix[1:], 16))
    raw = files[-1].read_bytes()
    at, last = 16, None
    while at + 12 <= len(raw):
        length = int.from_bytes(raw[at + 8:at + 12], "big")
        if length == 0:
            break
        last, at = at, at + 12 + length + 1
    with open(files[-1], "r+b") as file:
        file.seek(last + 30)
        file.write(bytes(len(raw[last + 30:at])))


def bad_input(setting):
    """Every fault is one clear line, and nothing is imported."""
    lib = jars(setting.work, "3.9.4")
    data = setting.folder / "zookeeper"
    java = ("-Dzookeeper.snapCount=40",)
    for _ in range(2):
        server = setting.server(zookeeper(lib, data, setting.folder / "one.txt", java=java))
        client = setting.client(server.port)
        if not client.exists("/app"):
            fill(client, "3.9.4")
        for _ in range(60):
            client.set("/app", b"again")
        client.stop()
        server.stop()
    versioned = data / "version-2"
    new = setting.folder / "new"

    def spoiled(name, spoil):
        copy = setting.folder / name
        shutil.copytree(data, copy)
        spoil(copy / "version-2")
        return copy

    def snapshots(folder):
        return sorted(folder.glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16))

    def logs(folder):
        return sorted(folder.glob("log.*"), key=lambda file: int(file.suffix[1:], 16))

    def flip(file, at):
        raw = bytearray(file.read_bytes())
        raw[at] ^= 1
        file.write_bytes(raw)

    assert len(snapshots(versioned)) > 1 and len(logs(versioned)) > 1
    older = spoiled("older", lambda folder: flip(snapshots(folder)[-1], 300))
    report = json.loads(setting.run("import", older, "--data-dir", new, "--dry-run", "-o", "json"))
    good = json.loads(setting.run("import", data, "--data-dir", new, "--dry-run", "-o", "json"))
    assert len(report["not_used"]) == 1 and report["digest"] == good["digest"], report
    print(f"  a damaged snapshot: {report['not_used'][0].rsplit('/', 1)[-1]}")

    def no_logs_back(folder):
        flip(snapshots(folder)[-1], 300)
        for file in logs(folder)[:-1]:
            file.unlink()

    gone = spoiled("gone", no_logs_back)
    print("  ", setting.run("import", gone, "--data-dir", new, refused="missing").strip())
    cut = spoiled("cut", lambda folder: [snapshots(folder)[-1].write_bytes(snapshots(folder)[-1].read_bytes()[:200])])
    assert json.loads(setting.run("import", cut, "--data-dir", new, "--dry-run", "-o", "json"))["not_used"]
    damaged = spoiled("damaged", lambda folder: flip(logs(folder)[-1], 50))
    print("  ", setting.run("import", damaged, "--data-dir", new, refused="damaged").strip())

    def future(folder):
        for file in snapshots(folder) + logs(folder):
            flip(file, 7)

    print("  ", setting.run("import", spoiled("future", future), "--data-dir", new, refused="version").strip())
    empty = setting.folder / "nothing"
    empty.mkdir()
    print("  ", setting.run("import", empty, "--data-dir", new, refused="no snapshot").strip())
    assert not new.exists() or not any(new.iterdir()), "nothing was imported"
    # A file that cannot grow any more is what a full disk looks like.
    print("  ", setting.run("import", data, "--data-dir", new, refused="too large", file_bytes_max=4096).strip())
    setting.run("import", data, "--data-dir", new)
    out = setting.folder / "out"
    print("  ", setting.run("export", "--zookeeper", out, "--data-dir", new, refused="too large", file_bytes_max=1024).strip())
    assert not list(out.rglob("snapshot.*")), "nothing was exported"
    setting.run("export", "--zookeeper", out, "--data-dir", new)


def ensemble(setting):
    """Three servers, of which one stops early and one has a transaction that no other has."""
    lib = jars(setting.work, "3.9.4")
    ports = [[free_port() for _ in range(3)] for _ in range(3)]
    lines = "".join(f"server.{at + 1}=127.0.0.1:{peer}:{election};127.0.0.1:{client}\n"
                    for at, (client, peer, election) in enumerate(ports))
    dirs = [setting.folder / f"zk{at + 1}" for at in range(3)]
    for at, data in enumerate(dirs):
        data.mkdir()
        (data / "myid").write_text(f"{at + 1}\n")

    def start(at):
        return zookeeper(lib, dirs[at], setting.folder / f"zk{at + 1}.txt", port=ports[at][0], waits=False, client_port=False,
                         extra=f"initLimit=10\nsyncLimit=5\nreconfigEnabled=true\n{lines}", java=("-Dzookeeper.snapCount=40",))

    servers = [setting.server(start(at)) for at in range(3)]
    for server in servers:
        server.wait()
    client = setting.client(ports[0][0])
    fill(client, "3.9.4")
    mine = client.create("/mine", b"", ephemeral=True)
    servers[2].stop(signal.SIGKILL)
    for _ in range(50):
        client.retry(client.set, "/app", b"again")
    known, last = session(client), client.exists("/app").mzxid
    for server in servers[:2]:
        server.stop(signal.SIGKILL)
    forget(client)
    new = setting.folder / "lockkeeper"
    report = json.loads(setting.run("import", dirs[2], dirs[1], dirs[0], "--data-dir", new, "-o", "json"))
    assert report["taken"] in [str(one) for one in dirs[:2]] and report["digests_compared"] > 0, report
    assert int(report["last_zxid"], 16) >= last and report["digest_differs_at"] is None, report
    print(f"  {report['why'].replace(str(setting.folder), '')}; {report['tail']} transactions in no majority")
    ours = setting.server(lockkeeper(setting.binary, new, setting.folder / "ours.txt"))
    again = setting.client(ours.port, client_id=known)
    assert session(again)[0] == known[0] and again.exists(mine).owner_session_id == known[0]
    assert again.get("/zookeeper/config")[0] == b"", "the members of the other ensemble are forgotten"
    other = setting.folder / "other"
    single = setting.server(zookeeper(lib, other, setting.folder / "other.txt"))
    writer = setting.client(single.port)
    writer.create("/other", b"")
    writer.stop()
    single.stop()
    print("  ", setting.run("import", dirs[0], other, "--data-dir", setting.folder / "no", refused="on its own").strip())


def export(setting):
    lib = jars(setting.work, "3.9.4")
    data = setting.folder / "zookeeper"
    server = setting.server(zookeeper(lib, data, setting.folder / "one.txt"))
    theirs = setting.client(server.port)
    fill(theirs, "3.9.4")
    theirs.create("/of-zookeepers-session", b"", ephemeral=True)
    known = session(theirs)
    server.stop()
    forget(theirs)
    new = setting.folder / "lockkeeper"
    setting.run("import", data, "--data-dir", new)
    ours = setting.server(lockkeeper(setting.binary, new, setting.folder / "ours.txt"))
    again = setting.client(ours.port, client_id=known)
    assert session(again)[0] == known[0]
    again.add_auth("digest", "user:secret")
    own = setting.client(ours.port)
    own.create("/of-our-session", b"", ephemeral=True)
    for number in range(50):
        again.create("/queue/n-", str(number).encode(), sequence=True)
    again.set("/app", b"changed here")
    before = walk(again)
    ours.stop(signal.SIGKILL)
    forget(again), forget(own)
    out = setting.folder / "exported"
    report = json.loads(setting.run("export", "--zookeeper", out, "--data-dir", new, "-o", "json"))
    left = [path for session in report["sessions_left_out"] for path in session["ephemerals"]]
    assert left == ["/of-our-session"], report
    setting.run("export", "--zookeeper", out, "--data-dir", new, refused="not empty")
    snapshot = next((out / "version-2").glob("snapshot.*"))
    toolkit = subprocess.run(["java", "-cp", f"{lib}/*", "org.apache.zookeeper.server.SnapshotFormatter", str(snapshot)],
                             capture_output=True, text=True, timeout=120)
    assert toolkit.returncode == 0 and "/queue/n-0000000054" in toolkit.stdout, toolkit.stdout + toolkit.stderr
    real = setting.server(zookeeper(lib, out, setting.folder / "real.txt"))
    back = setting.client(real.port, client_id=known)
    assert session(back)[0] == known[0], "ZooKeeper does not know the session"
    back.add_auth("digest", "user:secret")
    root_changed = ("/", "/of-our-session", "/zookeeper")
    after = walk(back)
    count = compare(before, after, lambda path: is_rewritten(path) or path in root_changed)
    # The ephemeral that is left out was the root's child: its cversion and pzxid show that.
    assert before["/"][1][:2] == after["/"][1][:2]
    assert back.create("/queue/n-", b"", sequence=True) == "/queue/n-0000000055"
    log = (setting.folder / "real.txt").read_text(errors="replace")
    assert "igest" not in "".join(line for line in log.splitlines() if "ERROR" in line), "ZooKeeper computes another digest"
    print(f"  {count} znodes and Stats are the same; the session goes on, {len(left)} ephemeral left out; digest "
          f"{report['digest']}")


def large(setting):
    """A million znodes and a hundred sessions: how long it takes."""
    lib = jars(setting.work, "3.9.4")
    data = setting.folder / "zookeeper"
    server = setting.server(zookeeper(lib, data, setting.folder / "one.txt"))
    clients = [setting.client(server.port) for _ in range(100)]
    for number, client in enumerate(clients):
        client.create(f"/live-{number}", b"", ephemeral=True)
    maker, start = clients[0], time.monotonic()
    folders = max(1, setting.chosen.znodes // 1000)
    for folder in range(folders):
        waiting = []
        for part in range(10):
            transaction = maker.transaction()
            if part == 0:
                transaction.create(f"/f{folder}", b"")
            for number in range(100):
                transaction.create(f"/f{folder}/{part * 100 + number}", b"0123456789" * 10)
            waiting.append(transaction.commit_async())
        for one in waiting:
            assert not any(isinstance(result, Exception) for result in one.get(60))
    print(f"  made in {time.monotonic() - start:.0f} s")
    known = [session(client) for client in clients]
    server.stop(signal.SIGKILL)
    for client in clients:
        forget(client)
    new = setting.folder / "lockkeeper"
    start = time.monotonic()
    report = json.loads(setting.run("import", data, "--data-dir", new, "-o", "json"))
    took = time.monotonic() - start
    assert report["digest_differs_at"] is None and report["sessions"] == 100, report
    print(f"  {report['znodes']} znodes, {report['sessions']} sessions: imported in {took:.1f} s, digests compared "
          f"{report['digests_compared']}")
    start = time.monotonic()
    ours = setting.server(lockkeeper(setting.binary, new, setting.folder / "ours.txt"))
    print(f"  serves {time.monotonic() - start:.1f} s after its start")
    for number, one in enumerate(known):
        again = setting.client(ours.port, client_id=one)
        assert session(again)[0] == one[0] and again.exists(f"/live-{number}").owner_session_id == one[0]
    print(f"  all {len(known)} sessions are taken up again")


def fixtures(setting):
    """Makes the small directories of the unit tests anew (src/transfer/tests.rs); to be asked for."""
    made = pathlib.Path(__file__).resolve().parent / "fixtures"
    shutil.rmtree(made, ignore_errors=True)
    for version, method in (("3.4.14", None), ("3.5.10", None), ("3.8.4", "gz"), ("3.9.4", "snappy"), ("3.9.4", None)):
        lib = jars(setting.work, version)
        name = version + (f"-{method}" if method else "")
        data = setting.folder / name
        java = ("-Dzookeeper.snapCount=1000", *((f"-Dzookeeper.snapshot.compression.method={method}",) if method else ()))
        server = setting.server(zookeeper(lib, data, setting.folder / "log.txt", java=java))
        client = setting.client(server.port)
        fill(client, version, count=4)
        client.create("/live", b"", ephemeral=True)
        server.stop()
        server = setting.server(zookeeper(lib, data, setting.folder / "log.txt", java=java, port=server.port))
        client.set("/app", b"behind the snapshot")
        server.stop(signal.SIGKILL)
        forget(client)
        copy = made / name / "version-2"
        copy.mkdir(parents=True)
        snapshots = sorted((data / "version-2").glob("snapshot.*"), key=lambda file: int(file.name.split(".")[1], 16))
        logs = sorted((data / "version-2").glob("log.*"), key=lambda file: int(file.suffix[1:], 16))
        # A server of 3.4 writes no snapshot at its start: all is in the logs.
        for file in snapshots[-1:]:
            shutil.copy(file, copy)
        for file in logs[-1:] if snapshots else logs:
            (copy / file.name).write_bytes(file.read_bytes().rstrip(b"\0") + bytes(64))
        _, judge, _ = judge_of(setting, data, data)
        report = json.loads(setting.run("import", data, "--data-dir", setting.folder / f"{name}-new", "--dry-run", "-o", "json"))
        znodes = walk(judge)
        (made / name / "expected").write_text(f"{report['digest']} {len(znodes)} {report['sessions']} {report['last_zxid']}\n")


PARTS = {
    "import-3.4": import_of("3.4.14"),
    "import-3.5": import_of("3.5.10", split_log=True),
    "import-3.8": import_of("3.8.4", compression="gz"),
    "import-3.9": import_of("3.9.4"),
    "import-3.9-snappy": import_of("3.9.4", compression="snappy", torn=False),
    "ensemble": ensemble,
    "bad-input": bad_input,
    "export": export,
    "large": large,
    "fixtures": fixtures,
}
# What takes long, or changes files: to be asked for.
ASKED_FOR = ["large", "fixtures"]
