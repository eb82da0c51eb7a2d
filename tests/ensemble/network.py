"""Two networks of our own, in namespaces of the kernel: the servers' and the clients'.

The runner starts itself again in a network namespace and a process namespace (`isolated`), so that nothing it makes can
outlive it or meet anything else on the machine. Each server gets a network namespace with two cables, one to the bridge
of the servers and one to the bridge of the clients; to part a server from the others is to pull the first out of the
bridge: packets vanish without a word, in both directions, while clients still reach it.
"""

import os
import shutil
import subprocess
import sys

from suites.common import SetupError, end_group, start_group

PEER_NET, CLIENT_NET = "10.77.1", "10.77.2"
INSIDE = "LOCKKEEPER_ENSEMBLE_NAMESPACE"


def isolated():
    """Goes on in namespaces of its own; returns there, or fails if the kernel does not allow it."""
    if os.environ.get(INSIDE):
        return
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            raise SetupError(f"{tool} is not installed (util-linux, iproute2)")
    base = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    if os.geteuid() != 0:
        base[1:1] = ["--user", "--map-root-user"]
    if subprocess.run([*base, "true"], capture_output=True).returncode != 0:
        raise SetupError("the kernel allows no namespaces (unshare); run it as root")
    os.environ[INSIDE] = "1"
    os.execvp(base[0], [*base, sys.executable, *sys.argv])


def ip(*arguments, inside=None):
    prefix = ["nsenter", "-t", str(inside), "-n"] if inside else []
    done = subprocess.run([*prefix, "ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SetupError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Network:
    """The bridges, and a namespace for each of the servers."""

    def __init__(self, ids):
        self.holders = {}
        ip("link", "set", "lo", "up")
        for bridge, net in (("peers", PEER_NET), ("clients", CLIENT_NET)):
            ip("link", "add", bridge, "type", "bridge")
            ip("link", "set", bridge, "up")
            ip("addr", "add", f"{net}.254/24", "dev", bridge)
        for i in ids:
            self.add(i)

    def add(self, i):
        """The namespace lives as long as a process in it: `cat`, which waits for the end of its input."""
        holder = start_group(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.holders[i] = holder
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            if holder.poll() is not None:
                raise SetupError("unshare --net failed")
        ip("link", "set", "lo", "up", inside=holder.pid)
        for bridge, net in (("peers", PEER_NET), ("clients", CLIENT_NET)):
            cable = f"{bridge}{i}"
            ip("link", "add", cable, "type", "veth", "peer", "name", bridge, "netns", str(holder.pid))
            ip("addr", "add", f"{net}.{i}/24", "dev", bridge, inside=holder.pid)
            ip("link", "set", bridge, "up", inside=holder.pid)
            ip("link", "set", cable, "master", bridge, "up")

    def enter(self, i):
        """What to put before a command so that it runs as server i."""
        return ["nsenter", "-t", str(self.holders[i].pid), "-n"]

    def part(self, i):
        """No packet between server i and the others any more."""
        ip("link", "set", f"peers{i}", "nomaster")

    def heal(self, i):
        ip("link", "set", f"peers{i}", "master", "peers")

    def close(self):
        for i, holder in self.holders.items():
            # The kernel takes them away some time after the namespace has ended: too late for the next network.
            for bridge in ("peers", "clients"):
                ip("link", "del", f"{bridge}{i}")
            end_group(holder)
        self.holders.clear()
        for bridge in ("peers", "clients"):
            ip("link", "del", bridge)
