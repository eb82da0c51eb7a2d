//! Who may do what, and what an ACL may say.

use crate::bytes::{AclEntry, Body, Multi, MultiResult, acl, err, mode, op, open_acl, perms};
use crate::fixture::{TestServer, server};
use crate::raw::Client;

/// `u:p` as the digest scheme stores it.
const DIGEST_OF_U_P: &str = "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=";

fn connect_as(server: &TestServer, user_and_password: &str) -> Client {
    let mut client = server.connect();
    client.add_digest(user_and_password);
    client
}

/// create and setACL must both refuse this ACL.
fn assert_invalid(server: &TestServer, entries: &[AclEntry]) {
    let path = server.scratch();
    let mut client = server.connect();
    let created = client.create_with(&format!("{path}/a"), None, entries, mode::PERSISTENT);
    assert_eq!(created, Err(err::INVALID_ACL), "create with {entries:?}");
    assert_eq!(client.set_acl(&path, entries, -1), Err(err::INVALID_ACL), "set {entries:?}");
    assert_eq!(client.acl(&path).unwrap().0, open_acl(), "nothing changed");
}

#[test]
fn an_invalid_acl_is_refused() {
    let server = server();
    assert_invalid(&server, &[]);
    for (scheme, id) in [
        ("world", "bob"),
        ("world", ""),
        ("nope", "x"),
        ("", ""),
        ("digest", "nocolon"),
        ("digest", "a:b:c"),
        ("digest", ""),
        ("digest", ":"),
        ("digest", "a:"),
        ("ip", "127.0.0.1/33"),
        ("ip", "127.0.0.1/-1"),
        ("ip", "127.0.0.256"),
        ("ip", "localhost"),
        ("ip", ""),
        ("x509", "a"),
        ("super", "x"),
        ("super", ""),
        ("auth", ""),
        ("auth", "u:p"),
    ] {
        assert_invalid(&server, &acl(perms::ALL, scheme, id));
    }
    let one_is_enough = [open_acl(), acl(perms::ALL, "nope", "x")].concat();
    assert_invalid(&server, &one_is_enough);
}

#[test]
fn a_null_acl_is_refused() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    let create = Body::new().string(&format!("{path}/a")).null().null().int(0);
    assert_eq!(client.call(op::CREATE, &create).err, err::INVALID_ACL);
    let set = Body::new().string(&path).null().int(-1);
    assert_eq!(client.call(op::SET_ACL, &set).err, err::INVALID_ACL);
}

#[test]
fn null_fields_of_an_acl_entry_are_refused() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    let set = |entry: Body| Body::new().string(&path).int(1).raw(&entry.0).int(-1);
    let world_null = set(Body::new().int(perms::ALL).string("world").null());
    assert_eq!(client.call(op::SET_ACL, &world_null).err, err::MARSHALLING);
    let null_scheme = set(Body::new().int(perms::ALL).null().string("anyone"));
    assert_eq!(client.call(op::SET_ACL, &null_scheme).err, err::INVALID_ACL);
    for scheme in ["digest", "ip"] {
        // ZooKeeper stumbles over it (-5); that it is no valid ACL (-114) is as good an answer.
        let null_id = set(Body::new().int(perms::ALL).string(scheme).null());
        let code = client.call(op::SET_ACL, &null_id).err;
        assert!([err::MARSHALLING, err::INVALID_ACL].contains(&code), "{scheme}: {code}");
    }
    assert_eq!(client.acl(&path).unwrap().0, open_acl(), "nothing changed");
}

#[test]
fn valid_acls_are_stored_as_given() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    for (scheme, id) in [
        ("ip", "127.0.0.1"),
        ("ip", "127.0.0.1/32"),
        ("ip", "10.0.0.0/0"),
        ("ip", "::1"),
        ("ip", "fe80::/10"),
        ("digest", "a:b"),
        ("digest", ":b"),
    ] {
        // An ADMIN of last resort, so that the next round may set again.
        let entries = [acl(255, scheme, id), acl(perms::ALL, "world", "anyone")].concat();
        client.set_acl(&path, &entries, -1).unwrap_or_else(|err| panic!("{entries:?}: {err}"));
        assert_eq!(client.acl(&path).unwrap().0, entries);
    }
    let twice = [open_acl(), open_acl()].concat();
    client.set_acl(&path, &twice, -1).unwrap();
    assert_eq!(client.acl(&path).unwrap().0, open_acl(), "duplicates are dropped");
}

#[test]
fn create_and_delete_ask_the_parent() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let parent = client.create(&format!("{root}/p"));
    // The child itself allows nothing but changing its ACL.
    let child = format!("{parent}/c");
    client.create_with(&child, None, &acl(perms::ADMIN, "world", "anyone"), 0).unwrap();
    client.allow(&parent, perms::ALL & !perms::DELETE);
    assert_eq!(client.delete(&child, -1), Err(err::NO_AUTH));
    client.allow(&parent, perms::ALL & !perms::CREATE);
    assert_eq!(client.create_as(&format!("{parent}/d"), mode::PERSISTENT), Err(err::NO_AUTH));
    assert_eq!(client.delete(&child, -1), Ok(()));
}

/// Tries one operation on a path.
type Attempt = fn(&mut Client, &str) -> Result<(), i32>;

#[test]
fn each_operation_needs_its_permission() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    let attempts: [(i32, Attempt); 5] = [
        (perms::READ, |client, path| client.exists(path, false).map(drop)),
        (perms::READ, |client, path| client.data(path, false).map(drop)),
        (perms::READ, |client, path| client.children(path, false).map(drop)),
        (perms::WRITE, |client, path| client.set_data(path, b"", -1).map(drop)),
        (perms::READ | perms::ADMIN, |client, path| client.acl(path).map(drop)),
    ];
    for (number, (needed, attempt)) in attempts.into_iter().enumerate() {
        // Only the super user can repair what each round does to the ACL.
        let mut operator = connect_as(&server, "super:test");
        operator.allow(&path, perms::ALL & !needed);
        assert_eq!(attempt(&mut client, &path), Err(err::NO_AUTH), "attempt {number}");
        for bit in (0..5).map(|shift| 1 << shift).filter(|bit| bit & needed != 0) {
            operator.allow(&path, bit);
            assert_eq!(attempt(&mut client, &path), Ok(()), "attempt {number}, bit {bit}");
        }
    }
    client.delete(&path, -1).unwrap();
}

#[test]
fn set_acl_needs_admin() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.allow(&path, perms::ALL & !perms::ADMIN);
    assert_eq!(client.set_acl(&path, &open_acl(), -1), Err(err::NO_AUTH));
}

#[test]
fn a_check_inside_a_multi_needs_read() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.allow(&path, perms::ALL & !perms::READ);
    let results = client.multi(&Multi::new().check(&path, -1).done());
    assert_eq!(results, Ok(vec![MultiResult::Error(err::NO_AUTH)]));
}

#[test]
fn a_missing_znode_is_told_to_everyone() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.allow(&path, perms::ADMIN);
    let missing = format!("{path}/missing");
    assert_eq!(client.exists(&missing, false), Err(err::NO_NODE));
    assert_eq!(client.data(&missing, false).map(drop), Err(err::NO_NODE));
}

#[test]
fn the_digest_of_a_password_is_zookeepers() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = connect_as(&server, "u:p");
    client.create_with(&path, None, &acl(perms::ALL, "auth", ""), 0).unwrap();
    let (entries, _) = client.acl(&path).unwrap();
    assert_eq!(entries, acl(perms::ALL, "digest", DIGEST_OF_U_P));
}

#[test]
fn an_acl_hides_digests_from_those_who_may_not_change_it() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let entries = [
        acl(perms::ALL, "digest", DIGEST_OF_U_P),
        acl(perms::READ, "world", "anyone"),
        acl(perms::WRITE, "ip", "10.0.0.1"),
    ]
    .concat();
    let mut stranger = server.connect();
    stranger.create_with(&path, None, &entries, 0).unwrap();
    let mut masked = entries.clone();
    masked[0].2 = "u:x".to_owned();
    assert_eq!(stranger.acl(&path).unwrap().0, masked);
    assert_eq!(connect_as(&server, "u:p").acl(&path).unwrap().0, entries);
}

#[test]
fn the_auth_scheme_stands_for_all_identities_of_the_connection() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = connect_as(&server, "u:p");
    client.add_digest("v:q");
    client.create_with(&path, None, &acl(perms::ALL, "auth", "ignored"), 0).unwrap();
    let mut users: Vec<String> = client
        .acl(&path)
        .unwrap()
        .0
        .into_iter()
        .map(|(perms, scheme, id)| {
            assert_eq!((perms, scheme.as_str()), (perms::ALL, "digest"));
            id.split(':').next().unwrap().to_owned()
        })
        .collect();
    users.sort();
    assert_eq!(users, ["u", "v"]);
    assert!(connect_as(&server, "v:q").data(&path, false).is_ok());
    assert_eq!(server.connect().data(&path, false).map(drop), Err(err::NO_AUTH));
    assert_eq!(connect_as(&server, "u:wrong").data(&path, false).map(drop), Err(err::NO_AUTH));
}

#[test]
fn an_ip_entry_matches_the_clients_address() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for (id, allowed) in
        [("127.0.0.1", true), ("127.0.0.0/8", true), ("10.0.0.0/8", false), ("0.0.0.0/0", true)]
    {
        let path =
            client.create_with(&format!("{root}/n"), None, &acl(perms::READ, "ip", id), 2).unwrap();
        let expected = if allowed { Ok(()) } else { Err(err::NO_AUTH) };
        assert_eq!(client.data(&path, false).map(drop), expected, "{id}");
    }
}

#[test]
fn the_super_user_may_do_everything() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    client.create_with(&path, None, &acl(perms::ALL, "digest", "nobody:x"), 0).unwrap();
    assert_eq!(client.set_data(&path, b"", -1), Err(err::NO_AUTH));
    let mut operator = connect_as(&server, "super:test");
    assert!(operator.set_data(&path, b"", -1).is_ok());
    assert!(operator.set_acl(&path, &open_acl(), -1).is_ok());
    assert!(client.set_data(&path, b"", -1).is_ok());
    let mut impostor = connect_as(&server, "super:wrong");
    impostor.allow(&path, perms::READ);
    assert_eq!(impostor.set_data(&path, b"", -1), Err(err::NO_AUTH));
}
