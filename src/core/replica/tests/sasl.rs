//! SASL at the seam: users that change while connections are there, and what a transaction carries.

use super::*;
use crate::sasl::{SaslSetup, SaslUsers, ServiceKey, Verdict, client_response, nonce_of};

fn users(list: &[(&str, &str)]) -> SaslUsers {
    let mut users = SaslUsers::default();
    for (name, password) in list {
        users.add(name, password).unwrap();
    }
    users
}

fn secured(enforced: &[&str]) -> Rig {
    let sasl = SaslSetup {
        users: Some(users(&[("bob", "bobsecret")])),
        offers_scheme: true,
        ..SaslSetup::default()
    };
    let enforced_schemes = enforced.iter().map(|scheme| (*scheme).to_owned()).collect();
    Rig::with(Setup { sasl, enforced_schemes, ..Setup::default() })
}

/// The error and the token of the answer to a token.
fn token(rig: &mut Rig, conn: ConnId, token: &[u8]) -> (i32, Option<Bytes>) {
    rig.send(conn, &[(7, Request::Sasl { token: Some(Bytes::copy_from_slice(token)) })]);
    let mut reader = Reader::new(rig.seen.get_mut(&conn).unwrap().0.remove(0));
    let header = ReplyHeader::decode(&mut reader).unwrap();
    assert_eq!((header.xid, header.zxid), (7, 0));
    (header.err, reader.buffer("token").unwrap())
}

/// The last word on a password: the error, and whether there is a token.
fn prove(rig: &mut Rig, conn: ConnId, user: &str, password: &str) -> (i32, bool) {
    let (err, challenge) = token(rig, conn, b"");
    assert_eq!(err, 0);
    let said = client_response(user, password, &nonce_of(&challenge.expect("a challenge")), "");
    let (err, proof) = token(rig, conn, said.as_bytes());
    (err, proof.is_some())
}

/// The error of a create with this user's list.
fn create_for(rig: &mut Rig, conn: ConnId, path: &str, id: &str) -> i32 {
    let mut request = create(path, 0);
    if let Request::Create(create) = &mut request {
        create.acl = Some(vec![Acl { perms: 31, scheme: "sasl".into(), id: id.into() }]);
    }
    rig.send(conn, &[(1, request)]);
    rig.replies(conn)[0].1
}

#[test]
fn only_the_right_password_is_accepted() {
    let mut rig = secured(&[]);
    for (conn, user, password, expected) in [
        (1, "bob", "bobsecret", (0, true)),
        (2, "bob", "wrong", (ErrorCode::AuthFailed.wire(), false)),
        (3, "eve", "bobsecret", (ErrorCode::AuthFailed.wire(), false)),
    ] {
        rig.connect(conn, 0, &[0; 16]);
        assert_eq!(prove(&mut rig, conn, user, password), expected, "{user}");
        assert_eq!(rig.closed(conn), expected.0 != 0, "{user}: whether it is closed");
    }
    assert_eq!(rig.replica.clients.figures().auth_failed, 2);
}

#[test]
fn nothing_is_served_before_an_enforced_scheme_is_proved() {
    let mut rig = secured(&["sasl"]);
    rig.connect(1, 0, &[0; 16]);
    rig.send(1, &[(1, get("/", false))]);
    assert_eq!(rig.replies(1), [(1, ErrorCode::SessionClosedRequireSaslAuth.wire())]);
    assert!(rig.closed(1));
    rig.connect(2, 0, &[0; 16]);
    assert_eq!(prove(&mut rig, 2, "bob", "bobsecret"), (0, true));
    rig.send(2, &[(1, get("/", false))]);
    assert_eq!(rig.replies(2), [(1, 0)]);
}

#[test]
fn users_may_be_replaced_and_connections_keep_what_they_have_proved() {
    let mut rig = secured(&[]);
    rig.connect(1, 0, &[0; 16]);
    assert_eq!(prove(&mut rig, 1, "bob", "bobsecret"), (0, true));
    // In the middle of it: the users are those of when the answer comes.
    rig.connect(2, 0, &[0; 16]);
    let (_, challenge) = token(&mut rig, 2, b"");
    rig.replica.step(Input::SaslUsers { users: users(&[("bob", "new"), ("carl", "c")]) });
    let said = client_response("bob", "bobsecret", &nonce_of(&challenge.unwrap()), "");
    assert_eq!(token(&mut rig, 2, said.as_bytes()).0, ErrorCode::AuthFailed.wire());
    for (conn, user, password) in [(3, "bob", "new"), (4, "carl", "c")] {
        rig.connect(conn, 0, &[0; 16]);
        assert_eq!(prove(&mut rig, conn, user, password), (0, true));
    }
    assert_eq!(create_for(&mut rig, 1, "/b", "bob"), 0);
    assert_eq!(create_for(&mut rig, 1, "/b/c", "bob"), 0, "it is still bob");
    assert_eq!(create_for(&mut rig, 4, "/b/d", "bob"), ErrorCode::NoAuth.wire());
}

#[test]
fn what_lists_may_name_is_judged_by_the_server_of_the_connection() {
    let mut offers = secured(&[]);
    offers.connect(1, 0, &[0; 16]);
    assert_eq!(create_for(&mut offers, 1, "/a", "bob"), 0);
    // Another server, which does not offer the scheme, applies what this one has logged.
    let mut other = Rig::new();
    other.connect(1, 0, &[0; 16]);
    assert_eq!(create_for(&mut other, 1, "/a", "bob"), ErrorCode::InvalidAcl.wire());
    let mut machine = Machine::fresh(Options::default());
    for entry in &offers.log {
        machine.entry(entry).unwrap();
    }
    assert_eq!(machine.digest(), offers.replica.machine().digest());
}

/// A server whose clients authenticate by Kerberos.
fn kerberos(enforced: &[&str], allow_failed_clients: bool) -> Rig {
    let (principal, key_tab) = ("zookeeper/h@R".to_owned(), "/k".to_owned());
    let sasl = SaslSetup {
        service: Some(ServiceKey { principal, key_tab }),
        offers_scheme: true,
        allow_failed_clients,
        ..SaslSetup::default()
    };
    let enforced_schemes = enforced.iter().map(|scheme| (*scheme).to_owned()).collect();
    Rig::with(Setup { sasl, enforced_schemes, ..Setup::default() })
}

/// Sends a token, which is to go outside.
fn say(rig: &mut Rig, conn: ConnId, xid: i32, token: &'static [u8]) {
    rig.send(conn, &[(xid, Request::Sasl { token: Some(Bytes::from_static(token)) })]);
}

/// Tells what was made of a token.
fn judge(rig: &mut Rig, conn: ConnId, verdict: Verdict) {
    rig.replica.step(Input::SaslJudged { conn, verdict });
    rig.drive();
}

fn proven(principal: &str) -> Verdict {
    Verdict::Proven { principal: principal.to_owned() }
}

#[test]
fn tokens_are_judged_outside_where_there_is_a_key_of_kerberos() {
    let mut rig = kerberos(&["sasl"], false);
    rig.connect(1, 0, &[0; 16]);
    say(&mut rig, 1, 7, b"ticket");
    assert_eq!(rig.tokens, [(1, b"ticket".to_vec())]);
    assert!(rig.replies(1).is_empty(), "the answer comes with the verdict");
    judge(&mut rig, 1, Verdict::Challenge(b"offer".to_vec()));
    assert_eq!(rig.replies(1), [(7, 0)]);
    say(&mut rig, 1, 8, b"accepted");
    judge(&mut rig, 1, proven("bob/host@R"));
    assert_eq!(rig.replies(1), [(8, 0)]);
    assert_eq!(create_for(&mut rig, 1, "/a", "bob/host@R"), 0);
    rig.send(1, &[(9, get("/a", false))]);
    assert_eq!(rig.replies(1), [(9, 0)]);
    // It is over: what comes now is refused without a look at it.
    rig.tokens.clear();
    say(&mut rig, 1, 10, b"again");
    assert!(rig.tokens.is_empty() && rig.closed(1));
}

#[test]
fn what_is_refused_outside_ends_a_connection_or_leaves_it_without_an_identity() {
    for (enforced, allows, principal, err) in [
        (&[][..], false, None, ErrorCode::AuthFailed.wire()),
        (&["sasl"][..], true, None, ErrorCode::SessionClosedRequireSaslAuth.wire()),
        (&[][..], true, None, 0),
        (&[][..], false, Some("a@b@c"), ErrorCode::AuthFailed.wire()),
    ] {
        let mut rig = kerberos(enforced, allows);
        rig.connect(1, 0, &[0; 16]);
        say(&mut rig, 1, 7, b"ticket");
        judge(&mut rig, 1, principal.map_or(Verdict::Refused, proven));
        assert_eq!(rig.replies(1), [(7, err)]);
        assert_eq!(rig.closed(1), err != 0);
    }
}

#[test]
fn one_token_at_a_time_is_outside_and_late_verdicts_change_nothing() {
    let mut rig = kerberos(&[], false);
    rig.connect(1, 0, &[0; 16]);
    judge(&mut rig, 1, proven("bob@R"));
    assert!(rig.replies(1).is_empty(), "it was not asked for");
    assert_eq!(create_for(&mut rig, 1, "/a", "bob@R"), 0);
    rig.send(1, &[(2, get("/a", false))]);
    assert_eq!(rig.replies(1), [(2, ErrorCode::NoAuth.wire())], "nothing was proved");
    say(&mut rig, 1, 7, b"one");
    say(&mut rig, 1, 8, b"two");
    assert_eq!(rig.tokens, [(1, b"one".to_vec())]);
    assert_eq!(rig.replies(1), [(8, ErrorCode::AuthFailed.wire())]);
    assert!(rig.closed(1));
    judge(&mut rig, 1, proven("bob@R"));
    assert!(rig.replies(1).is_empty());
}
