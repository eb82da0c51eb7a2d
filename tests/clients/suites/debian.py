"""ZooKeeper's source package in Debian, which has what its packages leave out."""

import pathlib
import re
import shutil

from .common import SetupError, build, need


def source_package(target, log):
    """Downloads it into the folder `target`: the path of the tarball."""
    need("apt-get", "Debian, whose source package has what is built here")
    release = dict(re.findall(r"^(\w+)=\"?([^\"\n]*)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE))
    if release.get("ID") != "debian":
        raise SetupError("ZooKeeper's sources are taken from Debian's source package, and this is not Debian")
    # The system's lists have no sources, so apt gets lists of its own.
    for part in ("state/lists/partial", "cache/archives/partial"):
        (target / part).mkdir(parents=True, exist_ok=True)
    (target / "sources.list").write_text(
        "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        f"http://deb.debian.org/debian {release['VERSION_CODENAME']} main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::SourceList={target}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State={target}/state", "-o", f"Dir::Cache={target}/cache"]
    build([*apt, "update"], log, cwd=target)
    build([*apt, "source", "--download-only", "--tar-only", "zookeeper"], log, cwd=target)
    for part in ("state", "cache"):
        shutil.rmtree(target / part)
    return next(target.glob("zookeeper_*.orig.tar.*"))
