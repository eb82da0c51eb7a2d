//! What a few configuration keys change on the wire, and the order in which a write is checked.

use std::time::Duration;

use crate::bytes::{Body, acl, err, mode, op, open_acl, perms};
use crate::fixture::{differs_from_zookeeper, server, server_with};
use crate::raw::{Client, ConnectRequest, wait_for};

#[test]
fn create_checks_in_zookeepers_order() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let bad_acl = acl(perms::ALL, "nope", "x");
    let shut = format!("{root}/shut");
    client.create_with(&shut, None, &acl(perms::READ, "world", "anyone"), 0).unwrap();
    let ephemeral = client.create_as(&format!("{root}/e"), mode::EPHEMERAL).unwrap();
    let taken = client.create(&format!("{root}/taken"));
    let create = |client: &mut Client, path: &str, entries: &[_], flags| {
        client.create_with(path, None, entries, flags)
    };
    // A slash, then the ACL, the parent, the permission, the name, the znode, the kind of parent.
    assert_eq!(create(&mut client, "noslash", &bad_acl, 0), Err(err::BAD_ARGUMENTS));
    assert_eq!(create(&mut client, &format!("{root}/x/y"), &bad_acl, 0), Err(err::INVALID_ACL));
    assert_eq!(create(&mut client, &format!("{root}/x/.."), &open_acl(), 0), Err(err::NO_NODE));
    assert_eq!(create(&mut client, &format!("{shut}/.."), &open_acl(), 0), Err(err::NO_AUTH));
    assert_eq!(create(&mut client, &format!("{ephemeral}/.."), &open_acl(), 0), Err(-8));
    assert_eq!(create(&mut client, &taken, &open_acl(), 1), Err(err::NODE_EXISTS));
    let under = create(&mut client, &format!("{ephemeral}/x"), &open_acl(), 0);
    assert_eq!(under, Err(err::NO_CHILDREN_FOR_EPHEMERALS));
}

#[test]
fn other_writes_check_in_zookeepers_order() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let missing = format!("{root}/missing");
    client.create(&format!("{root}/child"));
    let bad_acl = acl(perms::ALL, "nope", "x");
    assert_eq!(client.set_acl(&missing, &bad_acl, -1), Err(err::INVALID_ACL));
    assert_eq!(client.set_acl(&missing, &open_acl(), 9), Err(err::NO_NODE));
    client.allow(&root, perms::READ | perms::ADMIN);
    assert_eq!(client.set_data(&missing, b"", 9), Err(err::NO_NODE));
    assert_eq!(client.set_data(&root, b"", 9), Err(err::NO_AUTH), "before the version");
    assert_eq!(client.delete(&missing, 9), Err(err::NO_AUTH), "the parent's before the znode");
    assert_eq!(client.delete(&format!("{root}/child"), 9), Err(err::NO_AUTH));
    client.allow(&root, perms::WRITE | perms::DELETE);
    assert_eq!(client.set_acl(&root, &open_acl(), 99), Err(err::NO_AUTH), "before the version");
}

#[test]
fn an_eager_acl_check_refuses_without_a_zxid() {
    if differs_from_zookeeper("only members of an ensemble look at the key") {
        return;
    }
    let Some(server) = server_with(&["enableEagerACLCheck=true"]) else { return };
    let mut client = server.connect();
    client.create_with("/shut", None, &acl(perms::READ, "world", "anyone"), 0).unwrap();
    let before = client.last_zxid;
    let set = client.call(op::SET_DATA, &Body::new().string("/shut").buffer(b"").int(-1));
    assert_eq!((set.err, set.zxid), (err::NO_AUTH, 0));
    let create = Body::new().create("/shut/a", None, &open_acl(), 0);
    let created = client.call(op::CREATE, &create);
    assert_eq!((created.err, created.zxid), (err::NO_AUTH, 0));
    client.stat("/shut");
    assert_eq!(client.last_zxid, before);
}

#[test]
fn skip_acl_lets_everyone_in() {
    let Some(server) = server_with(&["skipACL=yes"]) else { return };
    let mut client = server.connect();
    client.create_with("/a", None, &acl(perms::ALL, "digest", "nobody:x"), 0).unwrap();
    assert!(client.set_data("/a", b"x", -1).is_ok());
    assert!(client.set_acl("/a", &open_acl(), -1).is_ok());
}

#[test]
fn too_many_connections_from_one_address_are_closed_at_once() {
    let Some(server) = server_with(&["maxClientCnxns=3"]) else { return };
    let mut clients = vec![server.connect(), server.connect(), server.connect()];
    let mut one_more = server.wire();
    one_more.send_if_open(&ConnectRequest::fresh(8000).payload());
    one_more.assert_closed();
    let first = clients.remove(0);
    first.close_session();
    wait_for("a place that became free", Duration::from_secs(20), || {
        let mut wire = server.wire();
        wire.send_if_open(&crate::raw::frame(&ConnectRequest::fresh(8000).payload()));
        wire.frame()
    });
    for client in &mut clients {
        assert_eq!(client.ping().err, 0);
    }
}

#[test]
fn a_connection_that_asks_for_no_session_is_closed_in_time() {
    let Some(server) = server_with(&["nio.sessionlessCnxnTimeout=300"]) else { return };
    let mut silent = server.wire();
    silent.assert_closed();
    let mut stuck = server.wire();
    stuck.send(&[0, 0]);
    stuck.assert_closed();
    let mut client = server.connect_for(10_000);
    assert!(!client.wire.is_readable_within(Duration::from_millis(600)), "it has a session");
    assert_eq!(client.ping().err, 0);
}

#[test]
fn a_quota_counts_silently_and_refuses_only_when_it_is_enforced() {
    let Some(server) = server_with(&["enforceQuota=true"]) else { return };
    let mut client = server.connect();
    client.create("/q");
    client.create("/zookeeper/quota/q");
    let stats = "/zookeeper/quota/q/zookeeper_stats";
    let limits = "/zookeeper/quota/q/zookeeper_limits";
    let text = b"count=1,bytes=1=;byteHardLimit=10;countHardLimit=3";
    client.create_with(limits, Some(text), &open_acl(), 0).unwrap();
    client.create_with(stats, Some(b"count=1,bytes=0"), &open_acl(), 0).unwrap();
    client.data(stats, true).unwrap();
    // The soft limits are passed without a word.
    client.create_with("/q/a", Some(b"12345"), &open_acl(), 0).unwrap();
    let (data, stat) = client.data(stats, false).unwrap();
    assert_eq!(data.as_deref(), Some(&b"count=2,bytes=5"[..]));
    assert_eq!((stat.version, client.events()), (0, vec![]), "no version, no event");
    let too_large = client.create_with("/q/b", Some(b"123456"), &open_acl(), 0);
    assert_eq!(too_large, Err(err::QUOTA_EXCEEDED));
    assert_eq!(client.set_data("/q/a", b"12345678901", -1), Err(err::QUOTA_EXCEEDED));
    assert!(client.set_data("/q/a", b"1234567890", -1).is_ok());
    assert!(client.create_with("/q/b", None, &open_acl(), 0).is_ok());
    assert_eq!(client.create_as("/q/c", mode::PERSISTENT), Err(err::QUOTA_EXCEEDED));
    client.delete("/q/b", -1).unwrap();
    assert!(client.create_with("/q/c", None, &open_acl(), 0).is_ok());
    assert_eq!(client.data(stats, false).unwrap().0.as_deref(), Some(&b"count=3,bytes=10"[..]));
}

#[test]
fn quota_znodes_that_make_no_sense_harm_nobody() {
    if differs_from_zookeeper("a null stats znode ends it with the next change below the path") {
        return;
    }
    for text in [None, Some(&b""[..]), Some(b"some"), Some(b"count=x,bytes="), Some(b"\xff=,;=")] {
        let Some(server) = server_with(&["enforceQuota=true"]) else { return };
        let mut client = server.connect();
        client.create("/q");
        client.create("/zookeeper/quota/q");
        for name in ["zookeeper_limits", "zookeeper_stats"] {
            let path = format!("/zookeeper/quota/q/{name}");
            client.create_with(&path, text, &open_acl(), 0).unwrap();
        }
        client.create("/q/a");
        client.set_data("/q/a", b"x", -1).unwrap();
        client.delete("/q/a", -1).unwrap();
        let stats = client.data("/zookeeper/quota/q/zookeeper_stats", false).unwrap();
        assert_eq!(stats.1.version, 0);
        server.assert_serves();
    }
}

#[test]
fn a_session_id_begins_with_the_servers_id() {
    let Some(server) = server_with(&[]) else { return };
    assert_eq!(server.connect().session.session_id >> 56, 1);
}
