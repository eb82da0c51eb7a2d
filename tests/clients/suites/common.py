"""What the suites share: paths, processes, the servers under test, results.

Every process started here leads a process group of its own and is ended by that group; nothing is looked up by name.
"""

import collections
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent

# The super user's password is "test", as in every client's own harness.
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

Result = collections.namedtuple("Result", "status name ms note")

# The leaders of the process groups that run now, for a runner that is itself told to stop.
live_groups = set()


class SetupError(Exception):
    """Something the suite needs is missing: a tool, a package, a build."""


class Context:
    """One run: which server and how many, where the downloads are, where the results go."""

    def __init__(self, kind, work, results, servers=1, lockkeeper=None, zookeeper_lib=None):
        self.kind = kind
        self.servers = servers
        self.work = pathlib.Path(work)
        self.results = pathlib.Path(results)
        self.lockkeeper = lockkeeper
        self.zookeeper_lib = zookeeper_lib
        self.jobs = int(os.environ.get("JOBS", "2"))
        self.temporary = self.work / "tmp" / str(os.getpid())

    def environment(self, **extra):
        """The environment of a suite's processes: what bin/server-under-test reads, and a TMPDIR of their own."""
        env = dict(os.environ)
        self.temporary.mkdir(parents=True, exist_ok=True)
        env.update(SUT_KIND=self.kind, SUT=str(HERE / "bin" / "server-under-test"), TMPDIR=str(self.temporary))
        if self.lockkeeper:
            env["LOCKKEEPER_BIN"] = str(self.lockkeeper)
        if self.zookeeper_lib:
            env["ZOOKEEPER_LIB"] = str(self.zookeeper_lib)
        env.update({key: str(value) for key, value in extra.items()})
        return env

    def log(self, name):
        """The path of a log file of this run."""
        return self.results / name


def say(text):
    print(text, flush=True)


def start_group(arguments, **options):
    process = subprocess.Popen([str(a) for a in arguments], start_new_session=True, **options)
    live_groups.add(process.pid)
    return process


def end_group(process):
    """Ends whatever is left of a process group."""
    kill_group(process.pid)
    process.wait()
    live_groups.discard(process.pid)


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_all_on_signals():
    """Lets SIGTERM and Ctrl-C end this program and all that it started."""
    def end(number, _frame):
        for leader in list(live_groups):
            kill_group(leader)
        os._exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


def need(command, package):
    """Fails with the name of the missing tool."""
    for folder in os.environ["PATH"].split(os.pathsep):
        if os.access(os.path.join(folder, command), os.X_OK):
            return
    raise SetupError(f"{command} is not installed ({package})")


def build(arguments, log, **options):
    """Runs a download or build step; its output goes to `log`, whose end is shown if it fails."""
    with open(log, "ab") as out:
        code = subprocess.call([str(a) for a in arguments], stdout=out, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, **options)
    if code != 0:
        tail = "\n".join(pathlib.Path(log).read_text(errors="replace").splitlines()[-25:])
        raise SetupError(f"{' '.join(str(a) for a in arguments)}: exit {code}\n{tail}")


def build_go(context, log, source, target):
    """Builds the program in the folder `source`, with the modules that its go.sum names."""
    need("go", "Go 1.19 or later")
    if not up_to_date(target, *source.iterdir()):
        env = context.environment(GOFLAGS="-mod=readonly", GOTOOLCHAIN="local")
        build(["go", "build", "-o", target, "."], context.log(log), cwd=source, env=env)


def up_to_date(product, *sources):
    """Whether `product` exists and is newer than all of `sources`."""
    return product.exists() and all(product.stat().st_mtime >= pathlib.Path(s).stat().st_mtime for s in sources)


def run_limited(arguments, seconds, **options):
    """Runs a process group for at most `seconds`. Returns (exit code or None if it ran out of time, its output)."""
    with tempfile.TemporaryFile() as out:
        process = start_group(arguments, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
        out.seek(0)
        return code, out.read().decode(errors="replace")


def free_ports(count):
    """The first port of `count` consecutive free ones, below the range from which outgoing connections are taken."""
    for _ in range(200):
        first = random.randrange(18000, 32000 - count)
        if all(port_is_free(port) for port in range(first, first + count)):
            return first
    raise SetupError(f"no {count} consecutive free ports between 18000 and 32000")


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def four_letter_word(port, word, seconds=3):
    """The server's answer, or "" if it gives none."""
    try:
        with socket.create_connection(("127.0.0.1", port), seconds) as connection:
            connection.sendall(word.encode())
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            return answer.decode(errors="replace")
    except OSError:
        return ""


def work_folder():
    """Where clients are downloaded and built: COMPAT_WORK, or a folder in the temporary directory."""
    default = pathlib.Path(tempfile.gettempdir()) / "lockkeeper-clients"
    return pathlib.Path(os.environ.get("COMPAT_WORK", default)).resolve()


def lockkeeper_binary():
    """LOCKKEEPER_BIN, or the release build, which is made if it is missing."""
    named = os.environ.get("LOCKKEEPER_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise SetupError(f"LOCKKEEPER_BIN: not executable: {named}")
        return pathlib.Path(named).resolve()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = target / "release" / "lockkeeper"
    if not binary.exists():
        say("building target/release/lockkeeper")
        if subprocess.call(["cargo", "build", "--release", "--bin", "lockkeeper"], cwd=ROOT) != 0:
            raise SetupError("cargo build --release failed")
    return binary.resolve()


def cargo_built(examples, programs=()):
    """The folder of what cargo builds, with these examples in Rust (in its `examples`) and these programs of the testkit."""
    flags = [word for name in examples for word in ("--example", name)] + [word for name in programs for word in ("--bin", name)]
    # As `cargo test --workspace` builds them: after the gate's tests little is left to do.
    if subprocess.call(["cargo", "build", "--workspace", "--profile", "test", *flags], cwd=ROOT) != 0:
        raise SetupError("cargo build failed")
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


class Server:
    """The servers under test on free ports of the loopback address: one, or with `--ensemble` three, each started from
    a zoo.cfg and a data directory of its own.

    >>> with Server(context) as server: server.address   # "127.0.0.1:23456"
    """

    # Client port, two for the other servers, admin port: each kind in a row of its own.
    PORTS_EACH = 4

    def __init__(self, context, tick_time_ms=2000, admin=False):
        """`admin`: with the HTTP port, at `admin_ports`."""
        self.context = context
        self.admin = admin
        self.tick_time_ms = tick_time_ms
        self.processes = {}

    def __enter__(self):
        self.ids = list(range(1, self.context.servers + 1))
        first = free_ports(self.PORTS_EACH * len(self.ids))
        self.ports = {i: first + i - 1 for i in self.ids}
        self.admin_ports = {i: first + 3 * len(self.ids) + i - 1 for i in self.ids}
        self.address = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.env = self.context.environment()
        self.folder = tempfile.TemporaryDirectory(dir=self.env["TMPDIR"], prefix="server-")
        for i in self.ids:
            self.configure(i, first)
            self.start(i)
        self.wait_until_serving()
        return self

    def configure(self, i, first):
        folder = self.home(i)
        (folder / "data").mkdir(parents=True)
        lines = (
            f"tickTime={self.tick_time_ms}\ndataDir={folder}/data\nclientPort={self.ports[i]}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
            f"admin.enableServer={'true' if self.admin else 'false'}\nadmin.serverAddress=127.0.0.1\n"
            f"admin.serverPort={self.admin_ports[i]}\n"
            "4lw.commands.whitelist=*\nextendedTypesEnabled=true\n"
            f"DigestAuthenticationProvider.superDigest={SUPER_DIGEST}\n")
        if len(self.ids) > 1:
            lines += "initLimit=10\nsyncLimit=5\n"
            for j in self.ids:
                peer = first + len(self.ids) + 2 * (j - 1)
                lines += f"server.{j}=127.0.0.1:{peer}:{peer + 1}\n"
            (folder / "data" / "myid").write_text(f"{i}\n")
        (folder / "zoo.cfg").write_text(lines)

    def home(self, i):
        return pathlib.Path(self.folder.name) / str(i)

    def start(self, i):
        env = dict(self.env, SUT_LOG=str(self.home(i) / "server.log"))
        self.processes[i] = start_group([env["SUT"], self.home(i) / "zoo.cfg"], env=env, stdin=subprocess.DEVNULL)

    def crash_and_restart(self):
        """Kills a server where it stands, the leader if there are three, and starts it again on its data directory."""
        struck = next((i for i in self.ids if "Mode: leader" in four_letter_word(self.ports[i], "srvr")), self.ids[0])
        end_group(self.processes[struck])
        self.start(struck)
        self.wait_until_serving()

    def wait_until_serving(self, seconds=60):
        deadline = time.monotonic() + seconds
        for i in self.ids:
            while "Mode:" not in four_letter_word(self.ports[i], "srvr"):
                if self.processes[i].poll() is not None or time.monotonic() > deadline:
                    log = self.home(i) / "server.log"
                    output = log.read_text(errors="replace") if log.exists() else ""
                    self.__exit__()
                    raise SetupError(f"the server under test does not serve:\n{output[-3000:]}")
                time.sleep(0.05)

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass
            end_group(process)
        self.folder.cleanup()


class Dialogue:
    """A client that takes commands on its standard input: send a line, wait until its output shows a pattern."""

    def __init__(self, arguments, env=None):
        self.process = start_group(arguments, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        self.changed = threading.Condition()
        self.output = ""
        self.ended = False
        threading.Thread(target=self.collect, daemon=True).start()

    def collect(self):
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            with self.changed:
                self.output += chunk.decode(errors="replace")
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def send(self, line):
        """Returns the position from which output belongs to this command."""
        position = len(self.output)
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the client has ended: the wait for its answer will say so
        return position

    def wait_for(self, pattern, since=0, seconds=10):
        """The match, or None if the output after `since` does not show it in time."""
        expression = re.compile(pattern, re.MULTILINE)
        found = None

        def shown():
            nonlocal found
            found = expression.search(self.output, since)
            return found or self.ended

        with self.changed:
            self.changed.wait_for(shown, seconds)
        return found

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        end_group(self.process)


class Cases:
    """Collects the results of cases that run one after the other."""

    def __init__(self, names):
        self.names = set(names)
        self.results = []

    def check(self, name, test):
        """Runs `test()`, if the case was asked for: "" or None is a pass, a text is what was wrong."""
        if name in self.names:
            self.follow(name, test)

    def follow(self, name, test):
        """Runs `test()` in any case, because later ones build on it."""
        start = time.monotonic()
        try:
            wrong = test()
        except (OSError, ValueError, AssertionError) as error:
            wrong = f"{type(error).__name__}: {error}"
        ms = int((time.monotonic() - start) * 1000)
        if name in self.names:
            self.results.append(Result("FAIL" if wrong else "PASS", name, ms, one_line(wrong or "")))


def one_line(text, limit=160):
    return " ".join(str(text).split()).encode("ascii", "replace").decode()[:limit]
