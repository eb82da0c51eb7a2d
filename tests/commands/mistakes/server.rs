//! Mistakes with a server: its files, ports, keys and disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use testkit::authority::Validity;
use testkit::ports::port;

use crate::mistakes::place::{End, Place, Row, three};

const WRONG: End = End::With(2);
const FAILS: End = End::With(1);

macro_rules! rows {
    ($($mistake:literal, $make:expr, $cause:literal, $cure:literal, $end:expr;)*) => {
        [$(Row { mistake: $mistake, make: $make, cause: $cause, cure: $cure, end: $end }),*]
    };
}
pub(crate) use rows;

pub static ROWS: [Row; 40] = rows! {
    "the configuration file is not there",
        |place| Some(place.lockkeeper(&["server", "nothere.cfg"])),
        "nothere.cfg: cannot be read: No such file", "check the path", WRONG;
    "a directory is given for the configuration file",
        |place| { place.data_dir("d", "1"); Some(place.lockkeeper(&["server", "d"])) },
        "d: cannot be read: Is a directory", "name a file, such as the zoo.cfg in it", WRONG;
    "the configuration file may not be read",
        |place| {
            place.config("closed.cfg", &["dataDir=d"]);
            fs::set_permissions(place.path("closed.cfg"), Permissions::from_mode(0o600)).unwrap();
            place.as_stranger(place.lockkeeper(&["server", "closed.cfg"]))
        },
        "closed.cfg: cannot be read: Permission denied", "let the user of this process read it", WRONG;
    "the file myid is missing",
        |place| { fs::create_dir_all(place.path("no-id")).unwrap(); place.server(&["dataDir=no-id", &three()]) },
        "no-id/myid: missing", "or give it once with --myid N", WRONG;
    "myid is not among the servers",
        |place| { place.data_dir("d", "9"); place.server(&["dataDir=d", &three()]) },
        "9 has no server line (there are 1, 2, 3)", "lockkeeper member add", WRONG;
    "myid is not a number",
        |place| { place.data_dir("d", "one"); place.server(&["dataDir=d", &three()]) },
        "the server id `one`", "is not a number from 0 to 254", WRONG;
    "the data directory is another server's",
        another_servers, "this directory belongs to server 1, but this is server 2", "check dataDir and myid",
            FAILS;
    "the data directory is ZooKeeper's",
        |place| {
            fs::create_dir_all(place.path("zk/version-2")).unwrap();
            place.file("zk/version-2/log.1", "");
            place.server(&["dataDir=zk"])
        },
        "this directory holds data of Apache ZooKeeper", "start on a new, empty dataDir", FAILS;
    "the data directory has files of others",
        |place| {
            fs::create_dir_all(place.path("home")).unwrap();
            place.file("home/notes.txt", "");
            place.server(&["dataDir=home", "admin.enableServer=false"])
        },
        "it has files of other programs, such as notes.txt", "give it one of its own", End::GoesOn;
    "the data directory may not be made",
        |place| place.as_stranger(place.server(&["dataDir=new/d"])?),
        "cannot create directory: Permission denied", "give the directory to the user of this process", FAILS;
    "the data directory is a file",
        |place| { place.file("plain", ""); place.server(&["dataDir=plain"]) },
        "Not a directory", "dataDir is to name a directory", FAILS;
    "the disk is full",
        full_disk, "No space left on device", "make room on this disk", FAILS;
    "two servers have one data directory",
        two_on_one, "another lockkeeper server is using this directory", "stop that one, or give this one", FAILS;
    "the client port is taken",
        |place| {
            let port = place.clients.rsplit(':').next().unwrap().to_owned();
            Some(place.lockkeeper(&["server", "--in-memory", "--port", &port, "--admin-addr", "off"]))
        },
        "Address already in use", "stop it, or give another one (clientPort)", FAILS;
    "the port for other servers is taken",
        |place| {
            place.data_dir("d", "1");
            let others = format!("server.2=127.0.0.1:{}:{}\nserver.3=127.0.0.1:{}:{}", port(), port(),
            port(), port());
            place.server(&["dataDir=d", &format!("server.1={}:{}\n{others}", place.clients, port())])
        },
        "cannot listen for other servers", "give another one (the own server line)", FAILS;
    "the HTTP port is taken",
        |place| Some(place.lockkeeper(&["server", "--in-memory", "--port", "0", "--admin-addr", &place.clients])),
        "no HTTP port: it cannot be bound", "give another one (admin.serverPort)", End::GoesOn;
    "the port for metrics is taken",
        |place| {
            let port = place.clients.rsplit(':').next().unwrap();
            let provider =
                "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider";
            let keys = [provider, "metricsProvider.httpHost=127.0.0.1",
            &format!("metricsProvider.httpPort={port}")];
            place.data_dir("d", "1");
            place.server(&[&["dataDir=d", "admin.enableServer=false"][..], &keys].concat())
        },
        "no HTTP port: it cannot be bound", "give another one (metricsProvider.httpPort)", End::GoesOn;
    "a port below 1024 is given to a user who may not have it",
        |place| place.as_stranger(place.lockkeeper(&["server", "--in-memory", "--port", "80", "--admin-addr",
            "off"])),
        "127.0.0.1:80: Permission denied", "give one above 1023 (clientPort)", FAILS;
    "the client address is another machine's",
        |place| Some(place.lockkeeper(&["server", "--in-memory", "--client-addr", "192.0.2.1:0", "--admin-addr",
            "off"])),
        "192.0.2.1:0: Cannot assign requested address", "give one of its own (clientPort)", FAILS;
    "the name of the client address does not resolve",
        |place| Some(place.lockkeeper(&["server", "--in-memory", "--client-addr", "no.invalid:0", "--admin-addr",
            "off"])),
        "no.invalid:0: failed to lookup address", "the name does not resolve: give an address", FAILS;
    "the name of another server does not resolve",
        |place| {
            place.data_dir("d", "1");
            place.server(&["dataDir=d", "admin.enableServer=false", &three().replace("server.2=127.0.0.1",
            "server.2=no.invalid")])
        },
        "no connection to server 2 (no.invalid", "mend it in the server lines", End::GoesOn;
    "a key is misspelt",
        |place| { place.data_dir("d", "1"); place.server(&["dataDir=d", "admin.enableServer=false",
            "tickTme=2000"]) },
        "tickTme: neither this server nor ZooKeeper 3.9 has such a key", "did you mean tickTime?", End::GoesOn;
    "a key is misspelt, and the file is checked",
        |place| { place.config("check.cfg", &["dataDir=d", "tickTme=2000"]); Some(place.lockkeeper(&["config",
            "check", "--strict", "check.cfg"])) },
        "check.cfg:3: tickTme", "did you mean tickTime?", WRONG;
    "a value is no number",
        |place| place.server(&["dataDir=d", "tickTime=fast"]),
        "zoo.cfg:3: tickTime: `fast`", "is not a whole number", WRONG;
    "a value is too large",
        |place| place.server(&["dataDir=d", "clientPort=99999"]),
        "99999 is too large", "the greatest value is 65535", WRONG;
    "two servers have one number",
        |place| {
            place.data_dir("d", "1");
            place.server(&["dataDir=d", "admin.enableServer=false", &three(),
            &format!("server.1=127.0.0.1:{}:{}", port(), port())])
        },
        "server.1: given again in line", "give it the number of another server", End::GoesOn;
    "two servers have one address",
        |place| { place.data_dir("d", "1"); place.server(&["dataDir=d", "server.1=127.0.0.1:1111:1112",
            "server.2=127.0.0.1:1111:1113", "server.3=127.0.0.1:1114:1115"]) },
        "server.2: 127.0.0.1:1111", "is the address of server 1, too", WRONG;
    "the two ports of a server line are one",
        |place| { place.data_dir("d", "1"); place.server(&["dataDir=d", "server.1=127.0.0.1:1111:1111",
            "server.2=127.0.0.1:1112:1113", "server.3=127.0.0.1:1114:1115"]) },
        "server.1: peer port and election port", "are both 1111", WRONG;
    "a server line has no ports",
        |place| { place.data_dir("d", "1"); place.server(&["dataDir=d", &three(), "server.4=127.0.0.1"]) },
        "server.4", "expected host:peerPort:electionPort", WRONG;
    "an ensemble has two servers",
        |place| {
            place.data_dir("d", "1");
            let lines = three();
            let two: Vec<&str> = lines.lines().take(2).collect();
            place.server(&["dataDir=d", "admin.enableServer=false", &two.join("\n")])
        },
        "two participants: neither may fail", "so there should be three", End::GoesOn;
    "initLimit differs from that of the others",
        |place| { place.data_dir("d", "1"); place.server(&["dataDir=d", "admin.enableServer=false",
            "initLimit=99", &three()]) },
        "keys without effect here", "initLimit", End::GoesOn;
    "the key store is not there",
        |place| tls(place, "none.pem", ""), "none.pem", "No such file", FAILS;
    "the password of the key store is wrong",
        |place| {
            let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/tls/stores/openssl.p12");
            fs::copy(stored, place.path("store.p12")).unwrap();
            tls(place, "store.p12", "wrong")
        },
        "store.p12", "password", FAILS;
    "the certificate has expired",
        |place| {
            place.file("old.pem", &place.authority.issue_valid("localhost", Validity::Past).pem());
            tls(place, "old.pem", "")
        },
        "is not valid any more", "put a valid one in its place", End::GoesOn;
    "the JAAS file is not there",
        |place| place.server(&["dataDir=d",
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "lockkeeper.jaasFile=none.jaas"]),
        "none.jaas: cannot be read", "have lockkeeper.jaasFile name another one", WRONG;
    "the file with the token can be read by all",
        |place| {
            place.data_dir("d", "1");
            place.file("token", "0123456789abcdefghij");
            fs::set_permissions(place.path("token"), Permissions::from_mode(0o644)).unwrap();
            place.server(&["dataDir=d", "admin.serverPort=0", "lockkeeper.adminTokenFile=token"])
        },
        "other users may read or change this file", "chmod 600", End::GoesOn;
    "the file with the token has none",
        |place| { place.data_dir("d", "1"); place.file("token", "x"); place.server(&["dataDir=d",
            "admin.serverPort=0", "lockkeeper.adminTokenFile=token"]) },
        "token: holds no token", "one word of at least 16 characters", FAILS;
    "SASL between servers is asked for",
        |place| place.server(&["dataDir=d", "quorum.auth.enableSasl=true"]),
        "SASL between servers is not offered", "lockkeeper.peerSecretFile", WRONG;
    "a server on its own is to fetch its data from others",
        |place| Some(place.lockkeeper(&["server", "--data-dir", "d", "--port", "0", "--rejoin"])),
        "--rejoin: there are no other servers", "which its configuration file names", WRONG;
    "a flag is misspelt",
        |place| Some(place.lockkeeper(&["server", "--prot", "2181"])),
        "unexpected argument '--prot'", "a similar argument exists: '--port'", WRONG;
};

/// A directory that was a server's before.
fn another_servers(place: &Place) -> Option<Command> {
    place.data_dir("was", "1");
    let first = place.server(&["dataDir=was", "admin.enableServer=false"])?;
    place.run(first, &["stop     Ctrl-C"], End::GoesOn);
    place.file("was/myid", "2");
    place.server(&["dataDir=was", "admin.enableServer=false", &three()])
}

/// The directory of the server that speaks TLS, which runs.
fn two_on_one(place: &Place) -> Option<Command> {
    Some(place.lockkeeper(&[
        "server",
        "--data-dir",
        "secure",
        "--port",
        "0",
        "--admin-addr",
        "off",
    ]))
}

/// A file system of its own, in a name space of its own, that ends with the process.
fn full_disk(place: &Place) -> Option<Command> {
    fs::create_dir_all(place.path("full")).unwrap();
    let mounted = "mount -t tmpfs -o size=64k tmpfs full";
    let mut probe = Command::new("unshare");
    probe.args(["-m", "sh", "-c", mounted]).current_dir(place.path("."));
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let script = format!(
        "{mounted} && head -c 60k /dev/zero >full/filler; exec {} server --data-dir full --port 0 --admin-addr off",
        testkit::binary().display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).current_dir(place.path("."));
    Some(command)
}

/// A server that is to speak TLS by this key store.
fn tls(place: &Place, store: &str, password: &str) -> Option<Command> {
    place.data_dir("d", "1");
    fs::write(place.path("ca.pem"), place.authority.pem()).unwrap();
    place.server(&[
        "dataDir=d",
        "admin.enableServer=false",
        &format!("secureClientPort={}", port()),
        &format!("ssl.keyStore.location={store}"),
        &format!("ssl.keyStore.password={password}"),
        "ssl.trustStore.location=ca.pem",
    ])
}
