"""kazoo and zkCli with tickets of a real KDC: SASL GSSAPI.

The KDC is MIT's, from Debian's packages, on the loopback address, with a realm and files of its own. Lockkeeper must be built with the
feature gssapi; without it the suite is not run.
"""

import shutil
import subprocess
import time

from . import control, kazoo
from .common import Cases, Dialogue, SetupError, build, end_group, free_ports, need, port_is_free, start_group
from .secured import (CONNECTS, CREATES, READS, RETURNS, SOURCES, TELLS, Client, SecuredServer, ZkCli, expected, is_refused)

NAME = "secured-kerberos"
CLIENT = f"{kazoo.CLIENT} and Apache ZooKeeper {control.VERSION} zkCli, with MIT Kerberos"
REALM = "LOCKKEEPER.TEST"
SERVICE, OTHER_SERVICE = "zookeeper", "other"
OTHER, WHO = "a ticket for another service is refused", "whoami names the principal"
# What each server is told, and who two principals are to it then.
NAMINGS = {
    "whole names": ([], {"alice": f"alice@{REALM}", "bob": f"bob@{REALM}"}),
    "short names": (["kerberos.removeRealmFromPrincipal=true", "security.auth_to_local=RULE:[1:$1](bob)s/bob/robert/ DEFAULT"],
                    {"alice": "alice", "bob": "robert"}),
}


class Kdc:
    """A realm with a KDC that answers. Its files, and those of its principals, are in `folder`."""

    def __init__(self, context):
        self.context, self.folder = context, context.temporary / "kdc"
        self.log = context.log("secured-kerberos.kdc.log")

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        port = free_ports(1)
        (self.folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nrdns = false\n"
            "dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{port}\n}}\n")
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n{REALM} = {{\n"
            f" database_name = {self.folder}/principal\n key_stash_file = {self.folder}/stash\n acl_file = {self.folder}/acl\n}}\n"
            f"[logging]\nkdc = FILE:{self.log}\n")
        self.env = self.context.environment(KRB5_CONFIG=self.folder / "krb5.conf", KRB5_KDC_PROFILE=self.folder / "kdc.conf",
                                            PATH="/usr/sbin:/sbin:" + self.context.environment()["PATH"])
        build(["kdb5_util", "create", "-s", "-r", REALM, "-P", "of this test alone"], self.log, env=self.env)
        for name in ("alice", "bob", f"{SERVICE}/localhost", f"{OTHER_SERVICE}/localhost"):
            build(["kadmin.local", "-r", REALM, "addprinc", "-randkey", name], self.log, env=self.env)
            build(["kadmin.local", "-r", REALM, "ktadd", "-k", self.key_tab(name), name], self.log, env=self.env)
        self.process = start_group(["krb5kdc", "-n", "-r", REALM], env=self.env, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while port_is_free(port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise SetupError(f"the KDC does not answer, see {self.log}")
            time.sleep(0.05)
        for name in ("alice", "bob"):
            build(["kinit", "-k", "-t", self.key_tab(name), "-c", self.tickets(name), name], self.log, env=self.env)
        return self

    def key_tab(self, name):
        return self.folder / f"{name.partition('/')[0]}.keytab"

    def tickets(self, name):
        return self.folder / f"{name}.tickets"

    def __exit__(self, *_):
        end_group(self.process)


class KerberosServer(SecuredServer):
    """Takes clients with tickets, under these keys besides."""

    def __init__(self, context, kdc, lines):
        super().__init__(context)
        self.kdc, self.lines = kdc, lines

    def login_module(self):
        return ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false "
                f'keyTab="{self.kdc.key_tab(SERVICE)}" principal="{SERVICE}/localhost@{REALM}";')

    def configure(self, i, first):
        super().configure(i, first)
        self.env["KRB5_CONFIG"] = str(self.kdc.folder / "krb5.conf")
        self.env["JAVA_TOOL_OPTIONS"] += f" -Djava.security.krb5.conf={self.kdc.folder}/krb5.conf"
        with open(self.home(i) / "zoo.cfg", "a") as lines:
            lines.write("".join(f"{line}\n" for line in self.lines))

    def address_for(self, _words):
        # The name that is in the service's.
        return self.address.replace("127.0.0.1", "localhost")


NO_WORDS = {"tls": False, "certificate": None, "user": None}


def start_kazoo(context, server, who, service):
    env = context.environment(PYTHONPATH=f"{kazoo.folder(context)}:{python_folder(context)}", PYTHONDONTWRITEBYTECODE="1",
                              KRB5_CONFIG=server.kdc.folder / "krb5.conf", KRB5CCNAME=server.kdc.tickets(who))
    return Client([kazoo.python(context), SOURCES / "kazoo_secured.py", f"service={service}"], env, server, NO_WORDS)


class KerberosZkCli(ZkCli):
    """zkCli with the key of a principal."""

    def __init__(self, context, server, who, service):
        jaas = server.files / f"{who}.jaas"
        jaas.write_text("Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
                        f'useTicketCache=false keyTab="{server.kdc.key_tab(who)}" principal="{who}@{REALM}"; }};\n')
        command = control.java(context, "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-timeout", "10000",
                               "-server", server.address_for(NO_WORDS), heap_mb=128, log_level="error")
        at = command.index("-cp")
        command[at:at] = [f"-Djava.security.krb5.conf={server.kdc.folder}/krb5.conf", f"-Djava.security.auth.login.config={jaas}",
                          f"-Dzookeeper.server.principal={service}/localhost@{REALM}"]
        self.proves_by_sasl = True
        self.dialogue = Dialogue(command, context.environment())

    def is_who(self, name):
        said = self.marked("whoami")
        return "" if f"sasl: {name}\n" in said else said


CLIENTS = {"kazoo": start_kazoo, "zkcli": KerberosZkCli}


def python_folder(context):
    return context.work / "kerberos-for-python"


def prepare(context):
    for command in ("/usr/sbin/krb5kdc", "/usr/sbin/kdb5_util", "/usr/sbin/kadmin.local", "/usr/bin/kinit"):
        need(command, "apt-get install krb5-kdc krb5-admin-server krb5-user")
    control.jars(context)
    kazoo.prepare(context)
    if not python_folder(context).exists():
        need("krb5-config", "apt-get install libkrb5-dev")
        build([kazoo.python(context), "-m", "pip", "install", "-q", "--target", python_folder(context), "kerberos==1.3.1"],
              context.log("secured-kerberos.build.log"))


def cases_of(client):
    return [CONNECTS, CREATES, READS, TELLS, *([WHO] if client == "zkcli" else []), RETURNS, OTHER]


def list_tests(_context):
    return [f"{client}, {naming}: {case}" for naming in NAMINGS for client in CLIENTS for case in cases_of(client)]


def run_tests(context, names):
    cases = Cases(names)
    with open(context.log(f"{NAME}.log"), "w") as log, Kdc(context) as kdc:
        for naming, (lines, ids) in NAMINGS.items():
            with KerberosServer(context, kdc, lines) as server:
                for client in CLIENTS:
                    go(f"{client}, {naming}", CLIENTS[client], server, ids, cases, log)
    return cases.results


def go(prefix, start, server, ids, cases, log):
    clients = []

    def started(who, service=SERVICE):
        clients.append(start(server.context, server, who, service))
        return clients[-1]

    def follow(case, test):
        cases.follow(f"{prefix}: {case}", test)

    znode = "/" + prefix.replace(", ", "-").replace(" ", "-")
    try:
        owner, other = started("alice"), started("bob")
        follow(CONNECTS, lambda: "" if owner.is_connected() and other.is_connected() else "it is not connected")
        follow(CREATES, lambda: expected("CREATED", owner.create(znode, "sasl", ids["alice"]))
               or expected("CREATED", other.create(f"{znode}-2", "sasl", ids["bob"])))
        follow(READS, lambda: expected("DATA kept", owner.get(znode)) or expected("DATA kept", other.get(f"{znode}-2")))
        follow(TELLS, lambda: expected("DENIED", other.get(znode)))
        if isinstance(owner, KerberosZkCli):
            follow(WHO, lambda: owner.is_who(ids["alice"]) or other.is_who(ids["bob"]))
        server.crash_and_restart()
        follow(RETURNS, lambda: expected("DATA kept", owner.get(znode)))
        follow(OTHER, lambda: is_refused(started("alice", OTHER_SERVICE)))
    finally:
        for client in clients:
            client.close()
            log.write(f"=== {prefix}\n{client.said()}\n")
