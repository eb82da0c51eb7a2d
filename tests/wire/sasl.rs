//! SASL, with a client of these tests' own: who proves to be whom, what that is worth, and who is not served without.

use std::io::Write as _;

use tempfile::NamedTempFile;

use crate::bytes::{Body, acl, err, mode, op, open_acl, perms};
use crate::fixture::{TestServer, differs_from_zookeeper, server, server_with};
use crate::raw::{Client, Reply};
use testkit::digest_md5::{nonce_of, proof, response};

const USERS: &str = "Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n    \
                     user_super=\"adminpw\"\n    user_bob=\"bobsecret\"\n    user_carl=\"carlsecret\"\n    \
                     user_root=\"rootsecret\";\n};\n";
const PROVIDER: &str = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";

/// A server with users, which is stopped in front of the file that names them.
struct Secured(
    TestServer,
    #[expect(dead_code, reason = "it is there as long as the server")] NamedTempFile,
);

fn secured(lines: &[&str]) -> Option<Secured> {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(USERS.as_bytes()).expect("the users are written");
    let file_line = format!("lockkeeper.jaasFile={}", file.path().display());
    let lines: Vec<&str> =
        [PROVIDER, file_line.as_str()].into_iter().chain(lines.iter().copied()).collect();
    server_with(&lines).map(|server| Secured(server, file))
}

fn token(reply: &Reply) -> Option<String> {
    let token = reply.parse(|fields| fields.buffer()).expect("no error");
    token.map(|bytes| String::from_utf8(bytes).expect("text"))
}

/// Asks for a challenge: its nonce.
fn challenge(client: &mut Client) -> String {
    let reply = client.call(op::SASL, &Body::new().buffer(b""));
    assert_eq!(reply.zxid, 0);
    let challenge = token(&reply).expect("a challenge");
    for part in ["realm=\"zk-sasl-md5\"", "charset=utf-8", "algorithm=md5-sess"] {
        assert!(challenge.contains(part), "{challenge}");
    }
    nonce_of(&challenge).to_string()
}

/// The server's last word on a user with a password.
fn last_word(client: &mut Client, user: &str, password: &str) -> (Reply, String) {
    let nonce = challenge(client);
    let said = response(user, password, &nonce);
    (client.call(op::SASL, &Body::new().buffer(said.as_bytes())), nonce)
}

fn prove(client: &mut Client, user: &str, password: &str) {
    let (reply, nonce) = last_word(client, user, password);
    assert_eq!(token(&reply), Some(format!("rspauth={}", proof(user, password, &nonce, ""))));
}

fn connect_as(Secured(server, _): &Secured, user: &str, password: &str) -> Client {
    let mut client = server.connect();
    prove(&mut client, user, password);
    client
}

fn assert_refused(reply: &Reply, code: i32) {
    assert_eq!((reply.zxid, reply.err), (0, code));
    assert_eq!(reply.body, (-1_i32).to_be_bytes(), "a null token");
}

fn who(client: &mut Client) -> Vec<(String, String)> {
    const WHO_AM_I: i32 = 107;
    let reply = client.call(WHO_AM_I, &Body::new());
    let pairs = |fields: &mut crate::bytes::Fields<'_>| {
        (0..fields.int()).map(|_| (fields.string(), fields.string())).collect()
    };
    reply.parse(pairs).expect("an answer")
}

#[test]
fn a_sasl_token_without_users_is_answered_with_a_null_token() {
    let server = server();
    let mut client = server.connect();
    for bytes in [&b""[..], b"anything"] {
        assert_eq!(token(&client.call(op::SASL, &Body::new().buffer(bytes))), None);
    }
    assert!(client.exists("/", false).is_ok(), "the connection stays");
    assert!(who(&mut client).iter().all(|(scheme, _)| scheme != "sasl"), "and has proved nothing");
}

#[test]
fn the_right_password_proves_an_identity_to_both_sides() {
    let Some(server) = secured(&[]) else { return };
    let mut client = connect_as(&server, "bob", "bobsecret");
    let shown: Vec<_> = who(&mut client).into_iter().filter(|(scheme, _)| scheme != "ip").collect();
    assert_eq!(shown, [("sasl".to_string(), "bob".to_string())]);
    let mut next = server.0.connect();
    assert_ne!(challenge(&mut next), challenge(&mut server.0.connect()), "each nonce is a new one");
    let mut again = client.reattach(server.0.address);
    assert!(
        who(&mut again).iter().all(|(scheme, _)| scheme != "sasl"),
        "a connection proves, no session"
    );
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_refused_alike_and_closed() {
    let Some(server) = secured(&[]) else { return };
    for (user, password) in [("bob", "wrong"), ("eve", "bobsecret"), ("eve", ""), ("", "")] {
        if user != "bob"
            && differs_from_zookeeper("it closes without a reply on some unknown users")
        {
            return;
        }
        let mut client = server.0.connect();
        let (reply, _) = last_word(&mut client, user, password);
        assert_refused(&reply, err::AUTH_FAILED);
        client.assert_closed();
    }
    server.0.assert_serves();
}

#[test]
fn a_response_is_taken_once_and_for_its_own_challenge() {
    let Some(server) = secured(&[]) else { return };
    let mut first = server.0.connect();
    let nonce = challenge(&mut first);
    let said = response("bob", "bobsecret", &nonce);
    let mut other = server.0.connect();
    challenge(&mut other);
    assert_refused(&other.call(op::SASL, &Body::new().buffer(said.as_bytes())), err::AUTH_FAILED);
    other.assert_closed();
    assert!(token(&first.call(op::SASL, &Body::new().buffer(said.as_bytes()))).is_some());
    assert_refused(&first.call(op::SASL, &Body::new().buffer(said.as_bytes())), err::AUTH_FAILED);
    first.assert_closed();
}

#[test]
fn tokens_that_make_no_sense_are_refused_and_harm_nobody() {
    if differs_from_zookeeper("it answers some of them with success and a null token") {
        return;
    }
    let Some(server) = secured(&[]) else { return };
    let long = vec![b'a'; 100_000];
    for bytes in [&b"="[..], b"username=\"", b"\xff\xfe\0", b",,,", &long] {
        let mut client = server.0.connect();
        challenge(&mut client);
        assert_refused(&client.call(op::SASL, &Body::new().buffer(bytes)), err::AUTH_FAILED);
        client.assert_closed();
        let mut eager = server.0.connect();
        assert_refused(&eager.call(op::SASL, &Body::new().buffer(bytes)), err::AUTH_FAILED);
        eager.assert_closed();
    }
    server.0.assert_serves();
}

#[test]
fn a_null_sasl_token_closes_a_connection_that_could_authenticate() {
    let Some(server) = secured(&[]) else { return };
    let mut client = server.0.connect();
    client.send(op::SASL, &Body::new().null());
    assert!(client.wire.rest().is_empty());
}

#[test]
fn clients_that_fail_may_be_served_all_the_same() {
    let Some(server) = secured(&["allowSaslFailedClients=true"]) else { return };
    let mut client = server.0.connect();
    let (reply, _) = last_word(&mut client, "bob", "wrong");
    assert_eq!(token(&reply), None);
    let right = response("bob", "bobsecret", "any");
    assert_eq!(
        token(&client.call(op::SASL, &Body::new().buffer(right.as_bytes()))),
        None,
        "no second try"
    );
    assert!(client.exists("/", false).is_ok());
    assert!(who(&mut client).iter().all(|(scheme, _)| scheme != "sasl"));
}

#[test]
fn an_acl_of_the_scheme_sasl_lets_its_user_in() {
    let Some(server) = secured(&[]) else { return };
    let mut bob = connect_as(&server, "bob", "bobsecret");
    bob.create_with("/bobs", Some(b"x"), &acl(perms::ALL, "sasl", "bob"), mode::PERSISTENT)
        .unwrap();
    bob.create_with("/auth", None, &acl(perms::ALL, "auth", ""), mode::PERSISTENT).unwrap();
    assert_eq!(bob.acl("/auth").unwrap().0, acl(perms::ALL, "sasl", "bob"));
    assert!(bob.data("/bobs", false).is_ok() && bob.set_data("/bobs", b"y", -1).is_ok());

    let mut carl = connect_as(&server, "carl", "carlsecret");
    let mut stranger = server.0.connect();
    for other in [&mut carl, &mut stranger] {
        assert_eq!(other.data("/bobs", false).err(), Some(err::NO_AUTH));
        assert_eq!(other.set_data("/bobs", b"z", -1).err(), Some(err::NO_AUTH));
    }
    // A server that offers the scheme takes such lists from every client.
    stranger
        .create_with("/given", None, &acl(perms::ALL, "sasl", "bob"), mode::PERSISTENT)
        .unwrap();
    for wrong in ["a@b@c", "a/b/c@R"] {
        let list = acl(perms::ALL, "sasl", wrong);
        assert_eq!(stranger.create_with("/wrong", None, &list, 0), Err(err::INVALID_ACL));
    }
}

#[test]
fn without_its_provider_the_scheme_sasl_is_none() {
    let server = server();
    let mut client = server.connect();
    let list = acl(perms::ALL, "sasl", "bob");
    assert_eq!(client.create_with("/x", None, &list, mode::PERSISTENT), Err(err::INVALID_ACL));
    let reply = client.auth(&Body::new().int(0).string("sasl").buffer(b"bob"));
    assert_eq!(reply.err, err::AUTH_FAILED);
    client.assert_closed();
}

#[test]
fn an_auth_request_proves_nothing_of_the_scheme_sasl() {
    let Some(server) = secured(&[]) else { return };
    let mut client = connect_as(&server, "bob", "bobsecret");
    let reply = client.auth(&Body::new().int(0).string("sasl").buffer(b"bob"));
    assert_eq!(reply.err, err::AUTH_FAILED);
    client.assert_closed();
}

#[test]
fn the_sasl_id_super_has_what_sasl_ids_have_and_a_super_user_has_everything() {
    let lines = ["superUser.1=root", "letAnySaslUserDoX=carl"];
    let Some(server) = secured(&lines) else { return };
    let mut bob = connect_as(&server, "bob", "bobsecret");
    bob.create_with("/bobs", None, &acl(perms::ALL, "sasl", "bob"), mode::PERSISTENT).unwrap();
    bob.create_with("/any", None, &acl(perms::ALL, "sasl", "carl"), mode::PERSISTENT).unwrap();
    bob.create_with("/none", None, &acl(perms::ALL, "digest", "u:hash"), mode::PERSISTENT).unwrap();
    let mut of_sasl = connect_as(&server, "super", "adminpw");
    assert!(of_sasl.data("/bobs", false).is_ok());
    assert_eq!(of_sasl.data("/none", false).err(), Some(err::NO_AUTH));
    let mut root = connect_as(&server, "root", "rootsecret");
    assert!(root.data("/bobs", false).is_ok() && root.data("/none", false).is_ok());
    assert!(bob.data("/any", false).is_ok(), "any user has what carl has");
    assert_eq!(server.0.connect().data("/any", false).err(), Some(err::NO_AUTH));
}

#[test]
fn the_configured_password_of_super_goes_before_that_of_the_file() {
    let lines = ["SASLAuthenticationProvider.superPassword=other"];
    let Some(server) = secured(&lines) else { return };
    connect_as(&server, "super", "other");
    let (reply, _) = last_word(&mut server.0.connect(), "super", "adminpw");
    assert_refused(&reply, err::AUTH_FAILED);
}

/// Requests of a client that has proved nothing of what is enforced.
fn assert_turned_away(server: &TestServer) {
    for (opcode, body) in [
        (op::EXISTS, Body::new().string("/").boolean(false)),
        (op::CREATE, Body::new().create("/x", None, &open_acl(), 0)),
        (op::PING, Body::new()),
        (op::CLOSE_SESSION, Body::new()),
        (999, Body::new()),
    ] {
        let mut client = server.connect();
        let reply = client.call(opcode, &body);
        assert_eq!((reply.zxid, reply.err), (0, -124), "opcode {opcode}");
        client.assert_closed();
    }
}

#[test]
fn where_sasl_is_required_other_requests_wait_for_it() {
    for lines in [
        &["sessionRequireClientSASLAuth=true", "allowSaslFailedClients=true"][..],
        &["enforce.auth.schemes=sasl", "enforce.auth.enabled=true"],
    ] {
        let Some(server) = secured(lines) else { return };
        assert_turned_away(&server.0);
        let mut failed = server.0.connect();
        assert_refused(&last_word(&mut failed, "bob", "wrong").0, -124);
        failed.assert_closed();
        let mut digest = server.0.connect();
        digest.add_digest("bob:bobsecret");
        assert_eq!(digest.exists("/", false).err(), Some(-124), "another scheme will not do");
        let mut bob = connect_as(&server, "bob", "bobsecret");
        assert!(bob.exists("/", false).is_ok());
        bob.close_session();
    }
}

#[test]
fn any_scheme_of_those_enforced_will_do() {
    let lines = ["enforce.auth.schemes=sasl, digest", "enforce.auth.enabled=true"];
    let Some(server) = secured(&lines) else { return };
    assert_turned_away(&server.0);
    let mut digest = server.0.connect();
    digest.add_digest("u:p");
    assert!(digest.exists("/", false).is_ok());
    assert!(connect_as(&server, "bob", "bobsecret").exists("/", false).is_ok());
    let by_address = ["enforce.auth.schemes=ip", "enforce.auth.enabled=true"];
    let Some(server) = secured(&by_address) else { return };
    assert!(server.0.connect().exists("/", false).is_ok(), "every client has an address");
}
