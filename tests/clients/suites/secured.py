"""Clients as they are published, over TLS, with certificates, and with SASL DIGEST-MD5: kazoo, the Rust crate zookeeper-client, zkCli
and the C client. In each of these ways a client connects, creates a znode with an ACL of its own identity, reads it, comes back after a
crash of the servers as the one it was, and is told from others.
"""

import shutil

from . import c, control, debian, kazoo, rust
from .certificates import Certificates
from .common import HERE, Cases, Dialogue, Server, SetupError, build, need, one_line, up_to_date

SOURCES = HERE / "secured"
PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
PASSWORDS = {"alice": "alice's secret", "bob": "bob's secret"}
ANSWER_SECONDS = 30


class Way:
    """`scheme`: what it proves, if anything."""

    def __init__(self, name, scheme, tls=False, certificate=False, sasl=False):
        self.name, self.scheme, self.tls, self.certificate, self.sasl = name, scheme, tls, certificate, sasl

    def words(self, who, password=None):
        """Who a client is, and what it uses for that."""
        return {"tls": self.tls, "certificate": who if self.certificate else None, "user": who if self.sasl else None,
                "password": password or who}


TLS = Way("tls", None, tls=True)
MTLS = Way("mtls", "x509", tls=True, certificate=True)
DIGEST = Way("digest-md5", "sasl", sasl=True)
BOTH = Way("digest-md5 over tls", "sasl", tls=True, sasl=True)


class SecuredServer(Server):
    """Takes clients with and without certificates at one port, plain ones at another, and SASL at both."""

    PORTS_EACH = Server.PORTS_EACH + 1

    def __enter__(self):
        self.secure_ports = {}
        self.files = self.context.temporary / "secured"
        shutil.rmtree(self.files, ignore_errors=True)
        self.certificates = Certificates(self.files)
        (self.files / "server.jaas").write_text(f"Server {{ {self.login_module()} }};\n")
        for user, password in {**PASSWORDS, "wrong": "another secret"}.items():
            (self.files / f"{user}.password").write_text(password + "\n")
        super().__enter__()
        self.secure_address = ",".join(f"127.0.0.1:{port}" for port in self.secure_ports.values())
        return self

    def login_module(self):
        """Of the file of JAAS."""
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        return f"org.apache.zookeeper.server.auth.DigestLoginModule required {users};"

    def configure(self, i, first):
        super().configure(i, first)
        self.secure_ports[i] = first + Server.PORTS_EACH * len(self.ids) + i - 1
        # Not a key of zoo.cfg for ZooKeeper, which is told of the file by a property of Java.
        self.env["JAVA_TOOL_OPTIONS"] = f"-Djava.security.auth.login.config={self.files}/server.jaas"
        with open(self.home(i) / "zoo.cfg", "a") as lines:
            lines.write(
                f"secureClientPort={self.secure_ports[i]}\nssl.keyStore.location={self.files}/server-store.pem\n"
                f"ssl.trustStore.location={self.files}/ca.pem\nssl.clientAuth=want\nauthProvider.1={PROVIDER}\n"
                f"lockkeeper.jaasFile={self.files}/server.jaas\n"
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n")

    def address_for(self, words):
        return self.secure_address if words["tls"] else self.address


class Client:
    """A program of tests/clients/secured."""

    def __init__(self, command, env, server, words):
        files = server.files
        arguments = [f"address={server.address_for(words)}"]
        if words["tls"]:
            arguments.append(f"ca={files}/ca.pem")
        if who := words["certificate"]:
            arguments += [f"certificate={files}/{who}.pem", f"key={files}/{who}.key"]
        if user := words["user"]:
            arguments += [f"user={user}", f"password_file={files}/{words['password']}.password"]
        self.dialogue = Dialogue([*command, *arguments], env)

    def is_connected(self):
        found = self.dialogue.wait_for("^(READY|REFUSED.*)$", seconds=ANSWER_SECONDS)
        return bool(found) and found.group(1) == "READY"

    def order(self, order):
        since = self.dialogue.send(order)
        found = self.dialogue.wait_for("^(.+)\n", since, ANSWER_SECONDS)
        return found.group(1) if found else f"no answer: {self.dialogue.output[-300:]}"

    def create(self, path, scheme, who):
        return self.order(f"create {path} {scheme} {who}")

    def get(self, path):
        return self.order(f"get {path}")

    def said(self):
        return self.dialogue.output

    def close(self):
        self.dialogue.close()


class ZkCli(Client):
    """Apache's shell, in place of such a program."""

    def __init__(self, context, server, words):
        files = server.files
        properties = []
        if words["tls"]:
            properties += ["zookeeper.client.secure=true", "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
                           f"zookeeper.ssl.trustStore.location={files}/ca.pem"]
        if who := words["certificate"]:
            properties.append(f"zookeeper.ssl.keyStore.location={files}/{who}-store.pem")
        if user := words["user"]:
            password = (files / f"{words['password']}.password").read_text().strip()
            jaas = files / f"{user}-{words['password']}.jaas"
            jaas.write_text("Client { org.apache.zookeeper.server.auth.DigestLoginModule required "
                            f'username="{user}" password="{password}"; }};\n')
            # Java's client has no DIGEST-MD5 otherwise.
            properties += [f"java.security.auth.login.config={jaas}", "zookeeper.fips-mode=false"]
        command = control.java(context, "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-timeout", "10000",
                               "-server", server.address_for(words), heap_mb=128, log_level="error")
        at = command.index("-cp")
        command[at:at] = [f"-D{line}" for line in properties]
        self.proves_by_sasl = words["user"] is not None
        self.dialogue = Dialogue(command, context.environment())

    def is_connected(self):
        state = "SaslAuthenticated" if self.proves_by_sasl else "SyncConnected"
        # It tries for ever where it is refused.
        found = self.dialogue.wait_for(f"state:({state}|AuthFailed)", seconds=12)
        return bool(found) and found.group(1) == state

    def marked(self, command):
        """What it says until the answer to an order behind this one; again while it is not connected."""
        for _ in range(20):
            since = self.dialogue.send(command)
            self.dialogue.send("ls /marker")
            self.dialogue.wait_for(r"/marker", since, ANSWER_SECONDS)
            said = self.dialogue.output[since:]
            if "ConnectionLoss" not in said:
                return said
        return said

    def create(self, path, scheme, who):
        said = self.marked(f"create {path} kept {scheme}:{who}:cdrwa")
        return "CREATED" if f"Created {path}\n" in said else said

    def get(self, path):
        said = self.marked(f"get {path}")
        if "Insufficient permission" in said or "NoAuth" in said:
            return "DENIED"
        return "DATA kept" if "kept\n" in said else said


class Secured:
    """A suite of tests/clients/run. `start(context, server, words)` makes a client."""

    def __init__(self, name, client, ways, prepare, start):
        self.NAME, self.CLIENT, self.ways = f"secured-{name}", client, ways
        self.prepare, self.start = prepare, start

    def list_tests(self, _context):
        return [f"{way.name}: {case}" for way in self.ways for case in cases_of(way)]

    def run_tests(self, context, names):
        cases = Cases(names)
        with open(context.log(f"{self.NAME}.log"), "w") as log, SecuredServer(context) as server:
            for way in self.ways:
                if any(name.startswith(f"{way.name}: ") for name in names):
                    self.go(way, server, cases, log)
        return cases.results

    def go(self, way, server, cases, log):
        """All cases of one way: later ones build on those before."""
        clients = []

        def started(who, password=None):
            clients.append(self.start(server.context, server, way.words(who, password)))
            return clients[-1]

        def connects():
            return "" if owner.is_connected() else "it is not connected"

        def follow(case, test):
            cases.follow(f"{way.name}: {case}", test)

        znode = "/" + way.name.replace(" ", "-")
        try:
            owner = started("alice")
            follow(CONNECTS, connects)
            acl = (way.scheme, identity(way, "alice")) if way.scheme else ("world", "anyone")
            follow(CREATES, lambda: expected("CREATED", owner.create(znode, *acl)))
            follow(READS, lambda: expected("DATA kept", owner.get(znode)))
            if way.scheme:
                follow(TELLS, lambda: self.is_denied(started("bob"), znode))
            else:
                follow(HAS_NONE, lambda: expected("CREATED", owner.create(f"{znode}-2", "x509", "CN=alice"))
                       or expected("DENIED", owner.get(f"{znode}-2")))
            server.crash_and_restart()
            follow(RETURNS, lambda: expected("DATA kept", owner.get(znode)))
            if way.certificate:
                follow(STRANGER, lambda: is_kept_out(started("stranger"), znode))
            if way.sasl:
                follow(WRONG, lambda: is_refused(started("alice", "wrong")))
        finally:
            for client in clients:
                client.close()
                log.write(f"=== {way.name}\n{client.said()}\n")

    @staticmethod
    def is_denied(other, znode):
        return "the other is not connected" if not other.is_connected() else expected("DENIED", other.get(znode))


CONNECTS, CREATES, READS = "connects", "creates with an ACL of its identity", "reads what it created"
TELLS, HAS_NONE = "another identity is denied", "without a certificate it is denied"
RETURNS = "comes back after a crash as the one it was"
STRANGER, WRONG = "a certificate of another authority is worth nothing", "a wrong password is refused"


def cases_of(way):
    return [CONNECTS, CREATES, READS, TELLS if way.scheme else HAS_NONE, RETURNS,
            *([STRANGER] if way.certificate else []), *([WRONG] if way.sasl else [])]


def identity(way, who):
    return f"CN={who}" if way.scheme == "x509" else who


def expected(answer, given):
    return "" if given == answer else f"{answer} is expected: {one_line(given)}"


def is_kept_out(client, znode):
    """Java shows no certificate where the server names none of its authorities, and is a client without one then."""
    return expected("DENIED", client.get(znode)) if client.is_connected() else ""


def is_refused(client):
    return "it is connected" if client.is_connected() else ""


def program(command, env):
    """Starts a program of tests/clients/secured."""
    def start(context, server, words):
        return Client(command(context), context.environment(**env(context)), server, words)
    return start


def rust_folder(context):
    return context.work / "secured" / "rust"


def prepare_rust(context):
    need("cargo", "the Rust toolchain that builds Lockkeeper")
    target = rust_folder(context)
    sources = [SOURCES / "rust" / "Cargo.toml", SOURCES / "rust" / "src" / "main.rs"]
    if up_to_date(target / "debug" / "secured", *sources):
        return
    # Copied, so that its lock file is not written into the repository.
    copy = target / "source"
    shutil.copytree(SOURCES / "rust", copy, dirs_exist_ok=True)
    env = context.environment(CARGO_TARGET_DIR=target, CARGO_PROFILE_DEV_DEBUG=0)
    build(["cargo", "build", "-q"], context.log("secured-rust.build.log"), cwd=copy, env=env)


# Unpacked into the cache, as the C client's other packages.
C_PACKAGES = ("libsasl2-2", "libsasl2-dev", "libsasl2-modules", "libssl-dev", "libssl3")


def c_folder(context):
    return context.work / "secured" / "c"


def c_libraries(context):
    found = sorted(c_folder(context).glob("root/usr/lib/*/libsasl2.so"))
    if not found:
        raise SetupError(f"no libsasl2.so under {c_folder(context)}")
    return found[0].parent


def prepare_c(context):
    """Builds ZooKeeper's C client out of its source package in Debian: the package itself has neither TLS nor SASL."""
    need("cmake", "apt-get install cmake")
    need("cc", "apt-get install gcc libc6-dev")
    target = c_folder(context)
    target.mkdir(parents=True, exist_ok=True)
    log = context.log("secured-c.build.log")
    library = target / "build" / "libzookeeper.a"
    if not library.exists():
        c.download(target, log, C_PACKAGES)
        for package in sorted(target.glob("*.deb")):
            build(["dpkg", "-x", package, target / "root"], log)
        build_library(context, target, log)
    source, built = SOURCES / "secured.c", target / "secured"
    if not up_to_date(built, source, library):
        root, client = target / "root" / "usr", c_source(target)
        multiarch = root / "include" / c_libraries(context).name
        build(["cc", "-Wall", "-DTHREADED", "-DHAVE_OPENSSL_H", "-DHAVE_CYRUS_SASL_H", f"-I{client}/include", f"-I{client}/generated",
               f"-I{root}/include", f"-I{multiarch}", "-o", built, source, library, library.parent / "libhashtable.a",
               f"-L{c_libraries(context)}", "-lsasl2", "-lssl", "-lcrypto", "-lpthread", "-lm"], log)


def c_source(target):
    return next(iter(target.glob("source/*/zookeeper-client/zookeeper-client-c")), target / "none")


def build_library(context, target, log):
    shutil.unpack_archive(debian.source_package(target, log), target / "source")
    client, root = c_source(target), target / "root" / "usr"
    (client / "generated").mkdir()
    jute = client.parent.parent / "zookeeper-jute" / "src" / "main" / "resources" / "zookeeper.jute"
    # The sources of the records, which the tarball leaves to the build.
    build(control.java(context, "org.apache.jute.compiler.generated.Rcc", "-l", "c", jute), log, cwd=client / "generated")
    libraries = c_libraries(context)
    build(["cmake", "-S", client, "-B", target / "build", "-DWANT_CPPUNIT=OFF", "-DWITH_OPENSSL=ON", "-DWITH_CYRUS_SASL=ON",
           f"-DCYRUS_SASL_INCLUDE_DIR={root}/include", f"-DCYRUS_SASL_SHARED_LIB={libraries}/libsasl2.so",
           f"-DOPENSSL_INCLUDE_DIR={root}/include", f"-DOPENSSL_SSL_LIBRARY={libraries}/libssl.so",
           f"-DOPENSSL_CRYPTO_LIBRARY={libraries}/libcrypto.so", f"-DCMAKE_C_FLAGS=-I{root}/include/{libraries.name}"], log)
    build(["cmake", "--build", target / "build", "--target", "zookeeper"], log)


def c_environment(context):
    libraries = c_libraries(context)
    return {"LD_LIBRARY_PATH": libraries, "SASL_PATH": libraries / "sasl2"}


SUITES = (
    Secured("kazoo", kazoo.CLIENT, (TLS, MTLS, DIGEST, BOTH), kazoo.prepare,
            program(lambda context: [kazoo.python(context), SOURCES / "kazoo_secured.py"],
                    lambda context: {"PYTHONPATH": kazoo.folder(context), "PYTHONDONTWRITEBYTECODE": "1"})),
    Secured("rust", rust.CLIENT, (TLS, MTLS, DIGEST, BOTH), prepare_rust,
            program(lambda context: [rust_folder(context) / "debug" / "secured"], lambda _context: {})),
    Secured("zkcli", f"Apache ZooKeeper {control.VERSION} zkCli", (TLS, MTLS, DIGEST, BOTH), control.jars, ZkCli),
    Secured("c", "the C client of Debian's source package", (MTLS, DIGEST), prepare_c,
            program(lambda context: [c_folder(context) / "secured"], c_environment)),
)
