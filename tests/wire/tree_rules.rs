//! What operations do to the tree: stats, names, paths, kinds of znodes.

use std::time::Duration;

use crate::bytes::{Body, Fields, acl, err, mode, op, open_acl, perms};
use crate::fixture::{differs_from_zookeeper, server, server_with};
use crate::raw::{EventKind, wait_for};

/// How long the reaper of containers and TTL znodes may take, when it looks every 100 ms.
const REAPED: Duration = Duration::from_secs(20);

#[test]
fn a_failed_write_consumes_a_zxid() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let good = client.call(op::SET_DATA, &Body::new().string(&root).buffer(b"a").int(-1));
    let missing = format!("{root}/missing");
    let bad = client.call(op::SET_DATA, &Body::new().string(&missing).buffer(b"a").int(-1));
    assert_eq!((good.err, bad.err), (0, err::NO_NODE));
    assert!(bad.zxid > good.zxid, "{} after {}", bad.zxid, good.zxid);
    let next = client.set_data(&root, b"b", -1).unwrap();
    assert!(next.mzxid > bad.zxid);
}

#[test]
fn reads_consume_no_zxid() {
    let Some(server) = server_with(&[]) else { return };
    let mut client = server.connect();
    client.create("/a");
    let before = client.last_zxid;
    client.stat("/a");
    client.data("/a", true).unwrap();
    client.children("/", true).unwrap();
    client.add_watch("/a", true);
    client.add_digest("u:p");
    client.ping();
    assert_eq!((client.events().len(), client.last_zxid), (0, before));
    assert_eq!(client.create2(op::CREATE2, "/b", 0).unwrap().1.czxid, before + 1);
}

#[test]
fn a_fresh_server_has_the_four_special_znodes() {
    let Some(server) = server_with(&[]) else { return };
    let mut client = server.connect();
    let root = client.stat("/");
    assert_eq!((root.cversion, root.num_children, root.version, root.czxid), (-1, 1, 0, 0));
    assert_eq!((root.mzxid, root.pzxid, root.ctime, root.mtime), (0, 0, 0, 0));
    let zookeeper = client.stat("/zookeeper");
    assert_eq!((zookeeper.cversion, zookeeper.num_children), (-2, 2));
    assert_eq!(client.children("/", false).unwrap(), ["zookeeper"]);
    assert_eq!(client.children("/zookeeper", false).unwrap(), ["config", "quota"]);
    let quota = client.stat("/zookeeper/quota");
    assert_eq!((quota.cversion, quota.num_children, quota.version), (0, 0, 0));
    let (entries, config) = client.acl("/zookeeper/config").unwrap();
    assert_eq!((entries, config.aversion), (acl(perms::READ, "world", "anyone"), -1));
    for path in ["/", "/zookeeper", "/zookeeper/quota"] {
        assert_eq!(client.acl(path).unwrap().0, open_acl(), "{path}");
    }
}

#[test]
fn a_new_znode_has_the_stat_of_its_transaction() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    let body = Body::new().create(&path, Some(b"abc"), &open_acl(), 0);
    let reply = client.call(op::CREATE2, &body);
    let (created, stat) = reply.parse(|fields| (fields.string(), fields.stat())).unwrap();
    assert_eq!(created, path);
    assert_eq!((stat.czxid, stat.czxid), (stat.mzxid, stat.pzxid));
    assert!(stat.czxid <= reply.zxid && stat.czxid > 0);
    assert_eq!(stat.ctime, stat.mtime);
    assert!(stat.ctime > 1_600_000_000_000, "milliseconds since 1970: {}", stat.ctime);
    assert_eq!((stat.version, stat.cversion, stat.aversion), (0, 0, 0));
    assert_eq!((stat.ephemeral_owner, stat.data_length, stat.num_children), (0, 3, 0));
    assert_eq!(client.stat(&path), stat);
}

#[test]
fn create_and_delete_of_a_child_count_twice_in_cversion_and_pzxid() {
    let server = server();
    let root = server.scratch();
    let child = format!("{root}/child");
    let mut client = server.connect();
    let before = client.stat(&root);
    client.create(&child);
    let with = client.stat(&root);
    client.delete(&child, -1).unwrap();
    let after = client.stat(&root);
    assert_eq!((with.cversion, after.cversion), (before.cversion + 1, before.cversion + 2));
    assert_eq!((with.num_children, after.num_children), (1, 0));
    assert!(before.pzxid < with.pzxid && with.pzxid < after.pzxid);
    let kept = |stat: crate::bytes::Stat| (stat.mzxid, stat.mtime, stat.version, stat.aversion);
    assert_eq!((kept(with), kept(after)), (kept(before), kept(before)));
}

#[test]
fn set_data_with_the_same_bytes_still_counts() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    let one = client.set_data(&path, b"same", -1).unwrap();
    let two = client.set_data(&path, b"same", one.version).unwrap();
    assert_eq!(two.version, one.version + 1);
    assert!(two.mzxid > one.mzxid && two.mtime >= one.mtime);
    assert_eq!((two.czxid, two.pzxid, two.cversion), (one.czxid, one.pzxid, one.cversion));
}

#[test]
fn set_acl_raises_only_the_acl_version() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    let before = client.stat(&path);
    let after = client.set_acl(&path, &acl(perms::ALL, "ip", "127.0.0.1"), 0).unwrap();
    assert_eq!(after, crate::bytes::Stat { aversion: before.aversion + 1, ..before });
    assert_eq!(client.stat(&path), after);
    assert_eq!(client.set_acl(&path, &open_acl(), 0), Err(err::BAD_VERSION));
    assert_eq!(client.set_acl(&path, &open_acl(), 1).map(|stat| stat.aversion), Ok(2));
}

#[test]
fn sequence_numbers_count_every_create_and_survive_deletes() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let next = |client: &mut crate::raw::Client, flags| {
        let path = client.create_as(&format!("{root}/n-"), flags).unwrap();
        path.strip_prefix(&format!("{root}/n-")).unwrap().to_owned()
    };
    assert_eq!(next(&mut client, mode::PERSISTENT_SEQUENTIAL), "0000000000");
    assert_eq!(next(&mut client, mode::EPHEMERAL_SEQUENTIAL), "0000000001");
    client.create(&format!("{root}/plain"));
    assert_eq!(next(&mut client, mode::PERSISTENT_SEQUENTIAL), "0000000003");
    client.delete(&format!("{root}/n-0000000003"), -1).unwrap();
    client.delete(&format!("{root}/plain"), -1).unwrap();
    assert_eq!(next(&mut client, mode::EPHEMERAL_SEQUENTIAL), "0000000004");
}

#[test]
fn a_sequence_restarts_when_the_parent_is_made_anew() {
    let server = server();
    let parent = format!("{}/p", server.scratch());
    let mut client = server.connect();
    for _ in 0..2 {
        client.create(&parent);
        let child = client.create_as(&format!("{parent}/"), mode::PERSISTENT_SEQUENTIAL).unwrap();
        assert_eq!(child, format!("{parent}/0000000000"));
        client.delete(&child, -1).unwrap();
        client.delete(&parent, -1).unwrap();
    }
}

#[test]
fn a_sequential_name_that_is_taken_is_refused() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.create(&format!("{root}/n0000000001"));
    let taken = client.create_as(&format!("{root}/n"), mode::PERSISTENT_SEQUENTIAL);
    assert_eq!(taken, Err(err::NODE_EXISTS));
}

#[test]
fn a_refused_sequential_create_does_not_advance_the_counter() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let prefix = format!("{root}/n");
    client.create_as(&prefix, mode::PERSISTENT_SEQUENTIAL).unwrap();
    client.allow(&root, perms::ALL & !perms::CREATE);
    assert_eq!(client.create_as(&prefix, mode::PERSISTENT_SEQUENTIAL), Err(err::NO_AUTH));
    client.allow(&root, perms::ALL);
    let path = client.create_as(&prefix, mode::PERSISTENT_SEQUENTIAL).unwrap();
    assert_eq!(path, format!("{root}/n0000000001"));
}

#[test]
fn a_sequential_path_may_end_in_a_slash() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for number in 0..3 {
        let path = client.create_as(&format!("{root}/"), mode::PERSISTENT_SEQUENTIAL).unwrap();
        assert_eq!(path, format!("{root}/000000000{number}"));
    }
    let path = client.create_as("/", mode::EPHEMERAL_SEQUENTIAL).unwrap();
    assert!(path.len() == 11 && path[1..].bytes().all(|byte| byte.is_ascii_digit()), "{path}");
}

#[test]
fn a_dot_is_no_name_but_may_begin_a_sequential_one() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for name in [".", ".."] {
        let path = format!("{root}/{name}");
        assert_eq!(client.create_as(&path, mode::PERSISTENT), Err(err::BAD_ARGUMENTS), "{path}");
    }
    let path = client.create_as(&format!("{root}/."), mode::PERSISTENT_SEQUENTIAL);
    assert_eq!(path, Ok(format!("{root}/.0000000000")));
    for name in [".a", "a..", "...", "a b", "\u{d7ff}", "a\u{a0}"] {
        client.create(&format!("{root}/{name}"));
    }
}

#[test]
fn invalid_paths_are_refused_once_the_parent_is_found() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.create(&format!("{root}/a"));
    for name in [
        "a/",
        "a/.",
        "a/..",
        "\u{1}",
        "\u{1f}",
        "\u{7f}",
        "\u{9f}",
        "\u{e000}",
        "\u{f8ff}",
        "\u{fff0}",
        "\u{ffff}",
        "\u{1f600}",
    ] {
        let path = format!("{root}/{name}");
        assert_eq!(client.create_as(&path, mode::PERSISTENT), Err(err::BAD_ARGUMENTS), "{name:?}");
    }
    for path in ["//a", "", "a", "/a\0b"] {
        assert_eq!(client.create_as(path, mode::PERSISTENT), Err(err::BAD_ARGUMENTS), "{path:?}");
    }
    // The parent is looked for first: even an absurd path is then merely not there.
    assert_eq!(client.create_as("a/b", mode::PERSISTENT), Err(err::NO_NODE));
    for name in ["nope/x", "nope//x", "a/../b", "a//b", "nope/"] {
        let path = format!("{root}/{name}");
        assert_eq!(client.create_as(&path, mode::PERSISTENT), Err(err::NO_NODE), "{name:?}");
    }
    assert_eq!(client.children(&root, false).unwrap(), ["a"]);
}

#[test]
fn set_data_and_set_acl_check_the_whole_path_and_reads_do_not() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for path in [format!("{root}/"), "//".to_owned(), format!("{root}/.."), "nope".to_owned()] {
        assert_eq!(client.set_data(&path, b"", -1), Err(err::BAD_ARGUMENTS), "{path}");
        assert_eq!(client.set_acl(&path, &open_acl(), -1), Err(err::BAD_ARGUMENTS), "{path}");
        assert_eq!(client.exists(&path, false), Err(err::NO_NODE), "{path}");
        assert_eq!(client.data(&path, false).map(|_| ()), Err(err::NO_NODE), "{path}");
        assert_eq!(client.children(&path, false), Err(err::NO_NODE), "{path}");
    }
    assert_eq!(client.exists("/a\0b", false), Err(err::BAD_ARGUMENTS));
    assert_eq!(client.stat(""), client.stat("/"), "the empty path is the root");
    assert!(client.children("", false).is_ok());
}

#[test]
fn the_special_znodes_are_neither_created_nor_deleted() {
    let server = server();
    let mut client = server.connect();
    assert_eq!(client.create_as("/", mode::PERSISTENT), Err(err::NODE_EXISTS));
    for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
        assert_eq!(client.delete(path, -1), Err(err::BAD_ARGUMENTS), "{path}");
    }
    let missing = format!("{}/x/y", server.scratch());
    assert_eq!(client.delete(&missing, -1), Err(err::NO_NODE));
    assert_eq!(client.delete("nope", -1), Err(err::BAD_ARGUMENTS));
}

#[test]
fn only_ephemerals_may_not_have_children() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let ephemeral = client.create_as(&format!("{root}/e"), mode::EPHEMERAL).unwrap();
    for flags in [mode::PERSISTENT, mode::EPHEMERAL, mode::PERSISTENT_SEQUENTIAL] {
        let refused = client.create_as(&format!("{ephemeral}/x"), flags);
        assert_eq!(refused, Err(err::NO_CHILDREN_FOR_EPHEMERALS), "flags {flags}");
    }
    let container = client.create_container(&format!("{root}/c")).unwrap().0;
    client.create(&format!("{container}/x"));
    let with_ttl = format!("{root}/t");
    client.create_ttl(&with_ttl, mode::PERSISTENT_WITH_TTL, 60_000).unwrap();
    client.create_as(&format!("{with_ttl}/x"), mode::EPHEMERAL).unwrap();
}

#[test]
fn only_ephemerals_show_an_owner() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let ephemeral = client.create_as(&format!("{root}/e"), mode::EPHEMERAL).unwrap();
    assert_eq!(client.stat(&ephemeral).ephemeral_owner, client.session.session_id);
    let container = client.create_container(&format!("{root}/c")).unwrap();
    let with_ttl = client.create_ttl(&format!("{root}/t"), mode::PERSISTENT_WITH_TTL, 60_000);
    let plain = client.create2(op::CREATE2, &format!("{root}/p"), mode::PERSISTENT).unwrap();
    for stat in [container.1, with_ttl.unwrap(), plain.1] {
        assert_eq!(stat.ephemeral_owner, 0);
    }
}

#[test]
fn another_session_may_set_and_delete_an_ephemeral() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let (mut owner, mut other) = (server.connect(), server.connect());
    owner.create_as(&path, mode::EPHEMERAL).unwrap();
    let stat = other.set_data(&path, b"x", -1).unwrap();
    assert_eq!(stat.ephemeral_owner, owner.session.session_id);
    assert_eq!(other.delete(&path, stat.version), Ok(()));
    assert_eq!(owner.exists(&path, false), Err(err::NO_NODE));
}

#[test]
fn delete_checks_the_version_before_the_children() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.create(&format!("{root}/x"));
    assert_eq!(client.delete(&root, 7), Err(err::BAD_VERSION));
    assert_eq!(client.delete(&root, 0), Err(err::NOT_EMPTY));
    assert_eq!(client.delete(&root, -1), Err(err::NOT_EMPTY));
}

#[test]
fn only_minus_one_matches_any_version() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    for version in [-2, i32::MIN, 1, i32::MAX] {
        assert_eq!(client.set_data(&path, b"", version), Err(err::BAD_VERSION), "{version}");
        assert_eq!(client.set_acl(&path, &open_acl(), version), Err(err::BAD_VERSION), "{version}");
        assert_eq!(client.delete(&path, version), Err(err::BAD_VERSION), "{version}");
    }
    assert_eq!(client.delete(&path, -1), Ok(()));
}

#[test]
fn null_data_stays_null_and_empty_data_stays_empty() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    client.create_with(&path, None, &open_acl(), mode::PERSISTENT).unwrap();
    let (data, stat) = client.data(&path, false).unwrap();
    assert_eq!((data, stat.data_length), (None, 0));
    client.set_data(&path, b"", -1).unwrap();
    let (data, stat) = client.data(&path, false).unwrap();
    assert_eq!((data, stat.data_length), (Some(vec![]), 0));
    let reply = client.call(op::SET_DATA, &Body::new().string(&path).null().int(-1));
    assert_eq!(reply.err, 0);
    assert_eq!(client.data(&path, false).unwrap().0, None);
}

#[test]
fn ttl_znodes_need_the_extended_types() {
    let Some(server) = server_with(&["extendedTypesEnabled=false"]) else { return };
    let mut client = server.connect();
    let refused = client.create_ttl("/t", mode::PERSISTENT_WITH_TTL, 1000);
    assert_eq!(refused, Err(err::UNIMPLEMENTED));
    assert_eq!(client.exists("/t", false), Err(err::NO_NODE), "the connection stays");
}

#[test]
fn a_ttl_is_positive_and_below_two_to_the_forty() {
    let server = server();
    let path = format!("{}/t", server.scratch());
    let mut client = server.connect();
    for ttl_ms in [0, -1, -5, i64::MIN, 1 << 40, i64::MAX] {
        let refused = client.create_ttl(&path, mode::PERSISTENT_WITH_TTL, ttl_ms);
        assert_eq!(refused, Err(err::BAD_ARGUMENTS), "ttl {ttl_ms}");
    }
    assert_eq!(client.exists(&path, false), Err(err::NO_NODE));
    assert!(client.create_ttl(&path, mode::PERSISTENT_WITH_TTL, (1 << 40) - 1).is_ok());
    let sequential = client.create_ttl(&path, mode::PERSISTENT_SEQUENTIAL_WITH_TTL, 60_000);
    assert!(sequential.is_ok());
}

#[test]
fn create_ttl_without_a_ttl_mode_harms_nobody() {
    if differs_from_zookeeper("it logs a transaction that kills it now and at every start") {
        return;
    }
    let server = server();
    let path = format!("{}/t", server.scratch());
    let mut client = server.connect();
    for flags in 0..=4 {
        for ttl_ms in [-1, 0, 1000] {
            let refused = client.create_ttl(&path, flags, ttl_ms);
            assert_eq!(refused, Err(err::BAD_ARGUMENTS), "flags {flags}, ttl {ttl_ms}");
        }
    }
    assert_eq!(client.exists(&path, false), Err(err::NO_NODE));
    server.assert_serves();
}

#[test]
fn the_opcode_decides_the_kind_and_not_the_flags() {
    let Some(server) = server_with(&["znode.container.checkIntervalMs=100"]) else { return };
    let mut client = server.connect();
    // Flags of a container in a plain create: a plain znode, which is never reaped.
    client.create_as("/plain", mode::CONTAINER).unwrap();
    client.create2(op::CREATE_CONTAINER, "/container", mode::PERSISTENT).unwrap();
    for parent in ["/plain", "/container"] {
        client.create(&format!("{parent}/x"));
        client.delete(&format!("{parent}/x"), -1).unwrap();
    }
    server.wait_gone(&mut client, "/container", REAPED);
    assert!(client.exists("/plain", false).is_ok());
}

#[test]
fn a_container_goes_with_its_last_child_and_not_before_its_first() {
    let Some(server) = server_with(&["znode.container.checkIntervalMs=100"]) else { return };
    let (mut client, mut watcher) = (server.connect(), server.connect());
    client.create_container("/unused").unwrap();
    client.create_container("/full").unwrap();
    client.create("/full/x");
    client.create_container("/used").unwrap();
    client.create("/used/x");
    watcher.exists("/used", true).unwrap();
    watcher.children("/", true).unwrap();
    client.delete("/used/x", -1).unwrap();
    let events = [watcher.wait_event(), watcher.wait_event()];
    let seen = events.clone().map(|event| (event.kind, event.path));
    assert_eq!(seen[0], (EventKind::Deleted, "/used".to_owned()));
    assert_eq!(seen[1], (EventKind::ChildrenChanged, "/".to_owned()));
    assert_eq!(events[0].zxid, events[1].zxid);
    assert_eq!(client.exists("/used", false), Err(err::NO_NODE));
    assert!(client.exists("/unused", false).is_ok(), "it never had a child");
    assert!(client.exists("/full", false).is_ok(), "it has a child");
}

#[test]
fn a_ttl_znode_goes_when_childless_and_unchanged_for_its_ttl() {
    let Some(server) = server_with(&["znode.container.checkIntervalMs=100"]) else { return };
    let mut client = server.connect();
    for path in ["/parent", "/renewed", "/idle"] {
        client.create_ttl(path, mode::PERSISTENT_WITH_TTL, 1500).unwrap();
    }
    client.create("/parent/x");
    wait_for("the end of /idle", REAPED, || {
        client.set_data("/renewed", b"again", -1).expect("renewed in time");
        client.exists("/idle", false).err()
    });
    assert!(client.exists("/parent", false).is_ok(), "it has a child");
    client.delete("/parent/x", -1).unwrap();
    server.wait_gone(&mut client, "/parent", REAPED);
    server.wait_gone(&mut client, "/renewed", REAPED);
}

#[test]
fn all_children_number_counts_descendants() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for name in ["a", "a/b", "a/b/c", "ab"] {
        client.create(&format!("{root}/{name}"));
    }
    let mut count = |path: &str| {
        client.call(op::ALL_CHILDREN_NUMBER, &Body::new().string(path)).parse(Fields::int)
    };
    assert_eq!(count(&root), Ok(4));
    assert_eq!(count(&format!("{root}/a")), Ok(2));
    assert_eq!(count(&format!("{root}/ab")), Ok(0));
    assert_eq!(count(&format!("{root}/nope")), Err(err::NO_NODE));
    assert!(count("/").unwrap() >= 8, "with /zookeeper, quota and config");
}
