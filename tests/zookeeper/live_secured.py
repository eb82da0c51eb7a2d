"""What protects the ports between servers: certificates for TLS, and a password for SASL (DIGEST-MD5)."""

import subprocess

from real import SetupError

USER, PASSWORD = "learner", "a password of this test alone"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"


class Secured:
    """Files in a folder, and the lines of the configurations that name them. All servers share one certificate."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self.openssl("req", "-x509", *key, "-keyout", "ca.key", "-days", "2", "-subj", "/CN=ca", "-addext",
                     "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", "ca.pem")
        self.openssl("req", *key, "-keyout", "server.key", "-subj", "/CN=server", "-addext", "extendedKeyUsage=serverAuth,clientAuth",
                     "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", "server.csr")
        self.openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1",
                     "-copy_extensions", "copy", "-out", "server.pem")
        (folder / "store.pem").write_text((folder / "server.pem").read_text() + (folder / "server.key").read_text())
        (folder / "jaas.conf").write_text(f'QuorumServer {{ {MODULE} user_{USER}="{PASSWORD}"; }};\n'
                                          f'QuorumLearner {{ {MODULE} username="{USER}" password="{PASSWORD}"; }};\n')
        for file in folder.iterdir():
            file.chmod(0o600)
        self.tls = (f"sslQuorum=true\nssl.quorum.keyStore.location={folder}/store.pem\n"
                    f"ssl.quorum.trustStore.location={folder}/ca.pem\n")

    def openssl(self, *arguments):
        try:
            done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True)
        except OSError as error:
            raise SetupError(f"openssl: {error}") from error
        if done.returncode != 0:
            raise SetupError(f"openssl {' '.join(arguments)}: {done.stderr[-1000:]}")

    def zookeeper_lines(self):
        sasl = "".join(f"quorum.auth.{key}=true\n" for key in ("enableSasl", "learnerRequireSasl", "serverRequireSasl"))
        return self.tls + sasl

    def client_lines(self):
        """For a port at which clients come by TLS."""
        return (f"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nssl.keyStore.location={self.folder}/store.pem\n"
                f"ssl.trustStore.location={self.folder}/ca.pem\nssl.clientAuth=none\n")

    def java(self):
        # Its mode for FIPS knows no DIGEST-MD5.
        return f"-Djava.security.auth.login.config={self.folder}/jaas.conf", "-Dzookeeper.fips-mode=false"

    def lockkeeper_lines(self):
        return f"{self.tls}lockkeeper.migration.jaasFile={self.folder}/jaas.conf\n"
