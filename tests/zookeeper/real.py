"""Real servers: those of ZooKeeper, whose jars Maven brings, and Lockkeeper's."""

import pathlib
import shutil
import signal
import socket
import subprocess
import time

# Each version, and what its server needs that it does not name itself.
LOG = ("org.slf4j", "slf4j-simple")
METRICS = [("io.dropwizard.metrics", "metrics-core", "4.1.12.1"), ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
           ("commons-cli", "commons-cli", "1.5.0")]
VERSIONS = {
    "3.4.14": [(*LOG, "1.7.25")],
    "3.5.10": [(*LOG, "1.7.25")],
    "3.8.4": [(*LOG, "1.7.36"), *METRICS],
    "3.9.4": [(*LOG, "2.0.13"), *METRICS],
}
# What its AdminServer needs, which its pom calls provided.
SERVLETS = ("jetty-server", "jetty-servlet")
ADMIN = {version: [*(("org.eclipse.jetty", artifact, jetty) for artifact in SERVLETS),
                   ("com.fasterxml.jackson.core", "jackson-databind", jackson)]
         for version, jetty, jackson in (("3.5.10", "9.4.46.v20220331", "2.13.3"), ("3.8.4", "9.4.53.v20231009", "2.15.2"),
                                         ("3.9.4", "9.4.57.v20241219", "2.15.2"))}
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class SetupError(Exception):
    pass


def jars(work, version):
    """The folder with the jars of a version, which is made once."""
    return fetched(work, f"zookeeper-{version}", [("org.apache.zookeeper", "zookeeper", version), *VERSIONS[version]])


def admin_jars(work, version):
    """Those that its AdminServer needs beside them."""
    return fetched(work, f"zookeeper-{version}-admin", ADMIN[version])


def fetched(work, name, needed):
    """The folder with what Maven brings for these, which is made once; logs go to slf4j-simple, if it is among them."""
    lib = work / name / "lib"
    if any(lib.glob("*.jar")):
        return lib
    made = work / f"{name}.new"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    excluded = "".join(f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
                       for group, artifact in (("ch.qos.logback", "*"), ("org.slf4j", "slf4j-log4j12"), ("log4j", "log4j")))
    dependencies = "".join(f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{of}</version>"
                           f"<exclusions>{excluded}</exclusions></dependency>" for group, artifact, of in needed)
    (made / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>")
    command = ["mvn", "-q", "-B", COPY, "-DoutputDirectory=lib", "-DincludeScope=runtime"]
    try:
        subprocess.run(command, cwd=made, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"Maven brings no {name}: {error}") from error
    shutil.rmtree(lib.parent, ignore_errors=True)
    made.rename(lib.parent)
    return lib


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def word(port, text, host="127.0.0.1"):
    """The answer to a four-letter word."""
    with socket.create_connection((host, port), timeout=10) as link:
        link.sendall(text.encode())
        answer = b""
        while piece := link.recv(65536):
            answer += piece
    return answer.decode()


class Process:
    """A server that listens on a port."""

    def __init__(self, command, port, log, waits=True, host="127.0.0.1"):
        self.host, self.port = host, port
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        if waits:
            self.wait()

    def wait(self):
        deadline = time.monotonic() + 90
        while True:
            try:
                if "Mode:" in word(self.port, "srvr", self.host):
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = pathlib.Path(self.log).read_text(errors="replace")[-2000:]
                raise AssertionError(f"no server at {self.host}:{self.port}: {said}")
            time.sleep(0.1)

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def zookeeper(lib, data, log, port=None, extra="", java=(), waits=True, client_port=True, host="127.0.0.1"):
    """A server of ZooKeeper; `lib` may be several folders."""
    port = port or free_port()
    data.mkdir(parents=True, exist_ok=True)
    config = data.parent / f"{data.name}.cfg"
    line = f"clientPort={port}\n" if client_port else ""
    config.write_text(f"tickTime=2000\ndataDir={data}\n{line}admin.enableServer=false\n"
                      f"4lw.commands.whitelist=*\nmaxClientCnxns=0\n{extra}")
    path = ":".join(f"{folder}/*" for folder in (lib if isinstance(lib, tuple) else (lib,)))
    # 3.4 would show its log4j to JMX, and has none here.
    command = ["java", "-Xmx1500m", "-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.4lw.commands.whitelist=*",
               "-Dzookeeper.jmx.log4j.disable=true", *java, "-cp", path,
               "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    return Process(command, port, log, waits, host)


def lockkeeper(binary, data, log, port=None):
    """A server of Lockkeeper on its own."""
    port = port or free_port()
    config = data.parent / f"{data.name}.cfg"
    config.write_text(f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
                      "4lw.commands.whitelist=*\nextendedTypesEnabled=true\nmaxClientCnxns=0\n")
    return Process([str(binary), "server", str(config)], port, log)
