"""Apache's own Java client, through its command line zkCli (org.apache.zookeeper.ZooKeeperMain)."""

import functools

from . import control
from .common import Cases, Dialogue, Server

NAME = "zkcli"
CLIENT = f"Apache ZooKeeper {control.VERSION} zkCli"

# Name, then pairs of a command and what its output must show. One shell runs all of them in this order.
SCRIPT = [
    ("create", [("create /cli one", r"^Created /cli$")]),
    ("create sequential", [("create -s /cli/s- x", r"^Created /cli/s-0000000000$"),
                           ("create -s /cli/s- x", r"^Created /cli/s-0000000001$")]),
    ("create ephemeral", [("create -e /cli/e x", r"^Created /cli/e$"),
                          ("stat /cli/e", r"^ephemeralOwner = 0x[1-9a-f][0-9a-f]*$")]),
    ("create ephemeral sequential", [("create -e -s /cli/es- x", r"^Created /cli/es-\d{10}$")]),
    ("create container", [("create -c /cli/c x", r"^Created /cli/c$"),
                          ("stat /cli/c", r"^ephemeralOwner = 0x0$")]),
    ("create with a time to live", [("create -t 600000 /cli/t x", r"^Created /cli/t$"),
                                    ("stat /cli/t", r"^ephemeralOwner = 0x0$")]),
    ("create twice", [("create /cli", r"Node already exists: /cli")]),
    ("create below an ephemeral", [("create /cli/e/x", r"Ephemerals cannot have children: /cli/e/x")]),
    ("create without a parent", [("create /none/x", r"Node does not exist: /none/x")]),
    ("get", [("get /cli", r"^one$")]),
    ("get with stat", [("get -s /cli", r"^numChildren = 6$")]),
    ("get of a missing znode", [("get /none", r"Node does not exist: /none")]),
    ("set", [("set -s /cli two", r"^dataVersion = 1$"), ("get /cli", r"^two$")]),
    ("set with a version", [("set -v 1 /cli three", None), ("set -v 1 /cli four", r"version No is not valid : /cli")]),
    ("ls", [("ls /cli", r"^\[c, e, es-0000000003, s-0000000000, s-0000000001, t\]$")]),
    ("ls recursive", [("ls -R /cli", r"^/cli\n/cli/c\n/cli/e\n/cli/es-")]),
    ("ls with stat", [("ls -s /cli", r"^cversion = 6$")]),
    ("stat", [("stat /cli", r"^dataLength = 5$")]),
    ("sync", [("sync /cli", r"^Sync is OK$")]),
    ("getEphemerals", [("getEphemerals /cli", r"/cli/e\b")]),
    ("getAllChildrenNumber", [("getAllChildrenNumber /cli", r"^6$")]),
    ("data watch", [("get -w /cli", None),
                    ("set /cli w", r"WatchedEvent state:SyncConnected type:NodeDataChanged path:/cli")]),
    ("child watch", [("ls -w /cli", None), ("create /cli/w", r"type:NodeChildrenChanged path:/cli\b"),
                     ("delete /cli/w", None)]),
    ("exists watch", [("stat -w /cli/later", None), ("create /cli/later", r"type:NodeCreated path:/cli/later"),
                      ("delete /cli/later", None)]),
    ("persistent watch", [("addWatch -m PERSISTENT /cli/c", None),
                          ("set /cli/c 1", r"type:NodeDataChanged path:/cli/c"),
                          ("set /cli/c 2", r"type:NodeDataChanged path:/cli/c")]),
    ("recursive watch", [("addWatch -m PERSISTENT_RECURSIVE /cli/t", None),
                         ("create /cli/t/deep", r"type:NodeCreated path:/cli/t/deep"),
                         ("delete /cli/t/deep", r"type:NodeDeleted path:/cli/t/deep")]),
    ("removewatches", [("removewatches /cli/c -a", r"type:PersistentWatchRemoved path:/cli/c")]),
    ("removewatches without a watch", [("removewatches /cli/s-0000000000", r"No such watcher for /cli/s-0000000000")]),
    ("getAcl", [("getAcl /cli", r"^'world,'anyone\n: cdrwa$")]),
    ("addauth and setAcl", [("addauth digest bob:pw", None), ("create /cli/acl x", r"Created"),
                            ("setAcl /cli/acl auth:bob:pw:crwa", None),
                            ("getAcl -s /cli/acl", r"^'digest,'bob:[A-Za-z0-9+/]{27}=\n: crwa$")]),
    ("setAcl of nonsense", [("setAcl /cli/acl nosuch:x:r", r"Acl is not valid : /cli/acl")]),
    ("whoami", [("whoami", r"^digest: bob$")]),
    ("setquota and listquota", [("setquota -n 5 /cli/s-0000000001", None),
                                ("listquota /cli/s-0000000001", r"Output quota for /cli/s-0000000001 count=5,bytes=-1")]),
    ("delquota", [("delquota -n /cli/s-0000000001", None), ("listquota /cli/s-0000000001", r"count=-1,bytes=-1")]),
    ("config", [("config", r"^(\n|server\.1=)")]),
    ("version", [("version", r"ZooKeeper CLI version: ")]),
    ("delete", [("delete /cli/s-0000000000", None), ("stat /cli/s-0000000000", r"Node does not exist")]),
    ("delete with a version", [("delete -v 7 /cli/s-0000000001", r"version No is not valid")]),
    ("delete of a parent", [("delete /cli", r"Node not empty: /cli")]),
    ("deleteall", [("deleteall /cli", None), ("ls /", r"^\[zookeeper\]$")]),
]
# These talk to the server in shells of their own.
OWN_SHELL = ["ephemerals end with close", "chroot"]


def prepare(context):
    control.jars(context)


def list_tests(_context):
    return [name for name, _ in SCRIPT] + OWN_SHELL


def shell(context, address):
    """A zkCli that reads commands from its standard input, connected, unless it cannot: its commands then fail."""
    dialogue = Dialogue(control.java(
        context, "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-timeout", "10000", "-server", address,
        heap_mb=128, log_level="error"))
    dialogue.wait_for("WatchedEvent state:SyncConnected type:None", seconds=30)
    return dialogue


def run_tests(context, names):
    cases = Cases(names)
    with Server(context) as server:
        dialogue = shell(context, server.address)
        for name, steps in SCRIPT:
            cases.follow(name, functools.partial(follow, dialogue, steps))
        dialogue.close()
        context.log("zkcli.log").write_text(dialogue.output)
        cases.check("ephemerals end with close", lambda: close_ends_ephemerals(context, server.address))
        cases.check("chroot", lambda: chroot(context, server.address))
    return cases.results


def follow(dialogue, steps):
    """Sends each command and waits for its pattern, then for the answer to a marker command behind it."""
    for command, pattern in steps:
        since = dialogue.send(command)
        if pattern and not dialogue.wait_for(pattern, since):
            return f"{command}: no /{pattern}/ in: {dialogue.output[since:]}"
        since = dialogue.send("ls /marker")
        if not dialogue.wait_for("Node does not exist: /marker", since):
            return f"{command}: no answer any more: {dialogue.output[since:]}"
    return ""


def close_ends_ephemerals(context, address):
    owner, reader = shell(context, address), shell(context, address)
    try:
        wrong = follow(owner, [("create -e /held x", "^Created /held$")])
        wrong = wrong or follow(reader, [("stat -w /held", "ephemeralOwner = 0x[1-9a-f]")])
        owner.send("close")
        if not wrong and not reader.wait_for("type:NodeDeleted path:/held"):
            wrong = "no event for the closed session's znode"
        return wrong
    finally:
        owner.close()
        reader.close()


def chroot(context, address):
    top = shell(context, address)
    wrong = follow(top, [("create /app", "^Created /app$")])
    top.close()
    below = shell(context, address + "/app")
    try:
        return wrong or follow(below, [("create /x y", "^Created /x$"), ("ls /", r"^\[x\]$"), ("get /x", "^y$")])
    finally:
        below.close()
