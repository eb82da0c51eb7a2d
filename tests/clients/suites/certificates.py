"""Keys and certificates for clients and servers, made with openssl in a folder of the run."""

import subprocess

from .common import SetupError, need

# The subject of a client's certificate is its name alone: zkCli takes an ACL's id to end at a comma.
NAMES_OF_SERVER = "DNS:localhost,IP:127.0.0.1"


class Certificates:
    """An authority `ca`, certificates of it, and one of an authority that is not trusted.

    >>> Certificates(folder).path("alice.pem")
    """

    def __init__(self, folder):
        need("openssl", "apt-get install openssl")
        self.folder = folder
        folder.mkdir(parents=True)
        self.authority("ca")
        self.authority("others")
        self.issue("server", "ca", "serverAuth,clientAuth", NAMES_OF_SERVER)
        self.issue("alice", "ca", "clientAuth")
        self.issue("bob", "ca", "clientAuth")
        self.issue("stranger", "others", "clientAuth")

    def path(self, name):
        return self.folder / name

    def authority(self, name):
        self.openssl("req", "-x509", *self.new_key(name), "-days", "2", "-subj", f"/CN={name}",
                     "-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                     "-out", f"{name}.pem")

    def issue(self, name, issuer, usage, names=None):
        """`name.pem`, `name.key`, and both in `name-store.pem`."""
        extensions = ["-addext", f"extendedKeyUsage={usage}"]
        if names:
            extensions += ["-addext", f"subjectAltName={names}"]
        self.openssl("req", *self.new_key(name), "-subj", f"/CN={name}", *extensions, "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial",
                     "-days", "1", "-copy_extensions", "copy", "-out", f"{name}.pem")
        both = self.path(f"{name}.pem").read_text() + self.path(f"{name}.key").read_text()
        self.path(f"{name}-store.pem").write_text(both)

    @staticmethod
    def new_key(name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SetupError(f"openssl {' '.join(arguments)}: {done.stderr[-1000:]}")
