"""The jars of real Apache ZooKeeper: the control, the Java command line client, Curator. And Java programs that use them."""

import fcntl

from .common import HERE, build, need

VERSION = "3.9.5"
CURATOR = "5.9.0"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"


def jars(context):
    """The folder with the jars, filled by Maven the first time."""
    need("java", "apt-get install default-jre-headless")
    target = context.work / f"zookeeper-{VERSION}"
    if not (target / "ready").exists():
        need("mvn", "apt-get install maven")
        # The gate runs two programs at a time that need them.
        with open(context.work / "control.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (target / "ready").exists():
                build(["mvn", "-q", "-B", "-f", HERE / "control" / "pom.xml", COPY, f"-DoutputDirectory={target}",
                       "-DincludeScope=runtime"], context.log("control.build.log"))
                (target / "ready").touch()
    return target


def compile_java(context, log, target, *sources):
    """Compiles sources into the folder `target`."""
    need("javac", "apt-get install default-jdk-headless")
    build(["javac", "-cp", f"{jars(context)}/*", "-d", target, *sources], context.log(log))


def java(context, *command, classes="", heap_mb=256, log_level="off"):
    """The command that runs a class of the jars, or of the folder `classes`, with these arguments."""
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{heap_mb}m",
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}", "-cp",
            f"{jars(context)}/*" + (f":{classes}" if classes else ""), *command]
