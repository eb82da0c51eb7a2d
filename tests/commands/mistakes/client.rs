//! Mistakes with the commands that are clients.

use std::fs;
use std::process::Command;

use testkit::authority::Authority;
use testkit::ports::port;

use crate::mistakes::place::{End, Place, Row};
use crate::mistakes::server::rows;

const REFUSED: End = End::With(1);
const WRONG: End = End::With(2);
const WRONG_LOCK: End = End::With(64);
const NO_SERVER: End = End::With(69);
const NOT_NOW: End = End::With(75);

pub static ROWS: [Row; 26] = rows! {
    "no server runs where the lock is to be",
        |place| place.client(&["lock", "--server", &nowhere(), "-w", "1s", "/l", "true"]),
        "Connection refused", "is the server started, and is this its clientPort?", NO_SERVER;
    "the server's name does not resolve",
        |place| place.client(&["lock", "--server", "no.invalid", "-w", "1s", "/l", "true"]),
        "no.invalid:2181: failed to lookup address", "check its spelling", NO_SERVER;
    "the server has no leader",
        |place| place.client(&["lock", "--server", &place.leaderless, "-w", "1s", "/l", "true"]),
        "it does not serve clients, for lack of a leader", "until a majority runs", NO_SERVER;
    "znodes are asked for at a server without a leader",
        |place| place.client(&["cli", "--server", &place.leaderless, "ls", "/"]),
        "it does not serve clients, for lack of a leader", "until a majority runs", NO_SERVER;
    "the server is silent",
        |place| place.client(&["cli", "--timeout", "300ms", "--server", &place.silent.to_string(), "ls", "/"]),
        "it does not answer in time", "does a firewall drop the connection", NO_SERVER;
    "the HTTP port is named for the client port",
        |place| place.client(&["cli", "--server", &place.admin, "ls", "/"]),
        "it does not speak ZooKeeper's protocol", "name its clientPort", NO_SERVER;
    "the client port is named for the HTTP port",
        |place| place.client(&["locks", "--admin", &place.clients]),
        "it does not answer as a lockkeeper server's HTTP port does", "not the clientPort", REFUSED;
    "nothing listens at the HTTP port",
        |place| place.client(&["locks", "--admin", &nowhere()]),
        "Connection refused", "is this its admin.serverPort?", NO_SERVER;
    "TLS is spoken to a port without it",
        |place| place.client(&["cli", "--client-configuration", &trust(place), "--server", &place.clients, "ls",
            "/"]),
        "it does not speak TLS at this port", "name its secureClientPort", NO_SERVER;
    "TLS is not spoken to a port that wants it",
        |place| place.client(&["cli", "--server", &place.secure, "ls", "/"]),
        "it speaks TLS at this port", "name a file with its trust store by --client-configuration", NO_SERVER;
    "another authority is trusted than the one that vouches for the server",
        |place| {
            place.file("other.pem", &Authority::new("another").pem());
            place.file("other.cfg", "ssl.trustStore.location=other.pem\n");
            place.client(&["cli", "--client-configuration", "other.cfg", "--server", &place.secure, "ls", "/"])
        },
        "TLS does not come about", "check the trust store of --client-configuration", NO_SERVER;
    "the trust store is not there",
        |place| {
            place.file("lost.cfg", "ssl.trustStore.location=nothere.pem\n");
            place.client(&["cli", "--client-configuration", "lost.cfg", "--server", &place.clients, "ls", "/"])
        },
        "--client-configuration: ", "nothere.pem", WRONG;
    "the file with the client's configuration is not there",
        |place| place.client(&["cli", "--client-configuration", "nothere.cfg", "ls", "/"]),
        "--client-configuration: nothere.cfg: No such file", "check the path", WRONG;
    "the file with the credentials is not there",
        |place| place.client(&["member", "list", "--auth-file", "nothere"]),
        "--auth-file: nothere: No such file", "check the path", WRONG;
    "the scheme of the credential is forgotten",
        |place| place.client(&["lock", "--auth", "secret", "/l", "true"]),
        "expected SCHEME:CREDENTIAL", "as digest:user:password", WRONG_LOCK;
    "the path of the lock has no slash",
        |place| place.client(&["lock", "--server", &place.clients, "report", "true"]),
        "cannot be the path of a lock", "it does not begin with a slash", WRONG_LOCK;
    "the lock has no path",
        |place| place.client(&["lock", "--server", &place.clients]),
        "required arguments were not provided", "<PATH>", WRONG_LOCK;
    "the command under the lock is misspelt",
        |place| place.client(&["lock", "--server", &place.clients, "/l", "no-such-command"]),
        "cannot execute no-such-command", "No such file or directory", End::With(127);
    "a member is added to a server on its own",
        |place| place.client(&["member", "add", "--server", &place.clients, "server.2=127.0.0.1:1:2;3"]),
        "this server runs on its own", "An ensemble begins with the same server.N lines", REFUSED;
    "a member is added without its client port",
        |place| place.client(&["member", "add", "--server", &place.clients, "server.2=127.0.0.1:1:2"]),
        "it must say where its clients connect", "append ;<clientPort>", WRONG;
    "a member is removed without which those that run would be no majority",
        |place| place.client(&["member", "remove", "--timeout", "20s", "--server", &place.two_of_three, "1"]),
        "of the 2 servers that would vote, the leader hears no majority", "Or remove one that is down instead", NOT_NOW;
    "all members but one are removed",
        |place| place.client(&["member", "remove", "--timeout", "20s", "--server", &place.two_of_three, "2", "3"]),
        "a single server would vote: an ensemble keeps at least two", "Add another one first", REFUSED;
    "a lock is broken where that is not allowed",
        closed, "NOAUTH", "--auth says who asks", End::With(77);
    "what is no lock is broken",
        |place| place.client(&["locks", "break", "--yes", "--server", &place.clients, "/zookeeper"]),
        "/zookeeper is no contender of a lock", "`lockkeeper locks` lists them", REFUSED;
    "the time to wait has no unit that is known",
        |place| place.client(&["lock", "-w", "5d", "/l", "true"]),
        "expected a time", "seconds, or 500ms, 10s, 2m, 1h", WRONG_LOCK;
    "a command is misspelt",
        |place| place.client(&["memebr", "list"]),
        "unrecognized subcommand 'memebr'", "a similar subcommand exists: 'member'", WRONG;
};

/// A port at which nothing listens.
fn nowhere() -> String {
    format!("127.0.0.1:{}", port())
}

/// A file for `--client-configuration` that trusts the authority.
fn trust(place: &Place) -> String {
    fs::write(place.path("trust.pem"), place.authority.pem()).unwrap();
    place.file("tls.cfg", "ssl.trustStore.location=trust.pem\n");
    "tls.cfg".to_owned()
}

/// A contender in a directory that only another user may change.
fn closed(place: &Place) -> Option<Command> {
    for verb in [
        &["create", "/closed", "x"][..],
        &["create", "/closed/lock-0000000000", "x"],
        &["setAcl", "/closed", "world:anyone:r"],
    ] {
        let mut command = place.client(&["cli", "--server", &place.clients])?;
        let output = command.args(verb).output().expect("the binary runs");
        assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    place.client(&[
        "locks",
        "break",
        "--yes",
        "--server",
        &place.clients,
        "/closed/lock-0000000000",
    ])
}
