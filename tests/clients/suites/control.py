"""The jars of real Apache ZooKeeper: the control, the Java command line client, Curator."""

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
        build(["mvn", "-q", "-B", "-f", HERE / "control" / "pom.xml", COPY, f"-DoutputDirectory={target}",
               "-DincludeScope=runtime"], context.log("control.build.log"))
        (target / "ready").touch()
    return target
