//! multi and multiRead: all or nothing, and how the nothing is told.

use crate::bytes::{Body, Multi, MultiResult, acl, err, mode, op, open_acl, perms};
use crate::fixture::{differs_from_zookeeper, server, server_with};
use crate::raw::EventKind;

/// The results of a multi that failed.
fn errors(codes: &[i32]) -> Vec<MultiResult> {
    codes.iter().map(|code| MultiResult::Error(*code)).collect()
}

#[test]
fn a_multi_succeeds_at_one_zxid_and_types_its_creates() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let at = |name: &str| format!("{root}/{name}");
    let multi = Multi::new()
        .create(&at("plain"))
        .create_as(op::CREATE2, &at("two"), mode::PERSISTENT)
        .create_as(op::CREATE_CONTAINER, &at("container"), mode::CONTAINER)
        .create_ttl(&at("ttl"), 60_000)
        .create_as(op::CREATE2, &at("n-"), mode::EPHEMERAL_SEQUENTIAL)
        .set_data(&root, b"x", 0)
        .check(&root, 1)
        .delete(&at("plain"), 0)
        .done();
    let results = client.multi(&multi).unwrap();
    let [
        MultiResult::Create(plain),
        MultiResult::Create2(two, two_stat),
        MultiResult::Create2(container, container_stat),
        MultiResult::Create2(ttl, ttl_stat),
        MultiResult::Create2(sequential, sequential_stat),
        MultiResult::SetData(set),
        MultiResult::Check,
        MultiResult::Delete,
    ] = results.as_slice()
    else {
        panic!("{results:?}")
    };
    let expected = ["plain", "two", "container", "ttl", "n-0000000004"].map(at);
    assert_eq!([plain, two, container, ttl, sequential], expected.each_ref());
    for stat in [two_stat, container_stat, ttl_stat, sequential_stat] {
        assert_eq!((stat.czxid, stat.ctime), (set.mzxid, set.mtime));
    }
    assert_eq!((set.version, client.stat(&root).pzxid), (1, set.mzxid));
    assert_eq!(client.exists(&format!("{root}/plain"), false), Err(err::NO_NODE));
}

#[test]
fn a_failed_multi_answers_each_operation_and_changes_nothing() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let prefix = format!("{root}/n-");
    let before = client.stat(&root);
    let multi = Multi::new()
        .create_as(op::CREATE, &prefix, mode::PERSISTENT_SEQUENTIAL)
        .set_data(&root, b"x", -1)
        .check(&root, 77)
        .delete(&root, -1)
        .create(&format!("{root}/never"))
        .done();
    let reply = client.call(op::MULTI, &multi);
    let results = reply.parse(crate::bytes::Fields::multi_results).expect("the header says 0");
    assert_eq!(
        results,
        errors(&[0, 0, err::BAD_VERSION, err::RUNTIME_INCONSISTENCY, err::RUNTIME_INCONSISTENCY])
    );
    assert!(reply.zxid > before.czxid);
    assert_eq!(client.stat(&root), before);
    let next = client.create_as(&prefix, mode::PERSISTENT_SEQUENTIAL).unwrap();
    assert_eq!(next, format!("{root}/n-0000000000"), "the counter did not move");
}

#[test]
fn a_failed_multi_consumes_a_zxid() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let before = client.set_data(&root, b"x", -1).unwrap().mzxid;
    let reply = client.call(op::MULTI, &Multi::new().check(&root, 77).done());
    assert!(reply.zxid > before);
    assert!(client.set_data(&root, b"x", -1).unwrap().mzxid > reply.zxid);
}

#[test]
fn the_first_failure_is_told_whatever_it_is() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let missing = format!("{root}/missing");
    client
        .create_with(&format!("{root}/shut"), None, &acl(perms::READ, "world", "anyone"), 0)
        .unwrap();
    let shut = format!("{root}/shut");
    for (multi, code) in [
        (Multi::new().check(&missing, -1), err::NO_NODE),
        (Multi::new().set_data(&missing, b"", -1), err::NO_NODE),
        (Multi::new().delete(&missing, -1), err::NO_NODE),
        (Multi::new().create(&root), err::NODE_EXISTS),
        (Multi::new().create(&format!("{missing}/x")), err::NO_NODE),
        (Multi::new().create(&format!("{root}/a/")), err::NO_NODE),
        (Multi::new().create(&format!("{root}/..")), err::BAD_ARGUMENTS),
        (Multi::new().create(&format!("{shut}/x")), err::NO_AUTH),
        (Multi::new().set_data(&shut, b"", -1), err::NO_AUTH),
        (Multi::new().delete("/", -1), err::BAD_ARGUMENTS),
        (Multi::new().delete(&root, -1), err::NOT_EMPTY),
        (Multi::new().check("nope", -1), err::BAD_ARGUMENTS),
        (Multi::new().create_ttl(&missing, 0), err::BAD_ARGUMENTS),
    ] {
        let results = client.multi(&multi.done()).unwrap();
        assert_eq!(results, errors(&[code]));
    }
}

#[test]
fn an_empty_multi_succeeds_with_an_empty_list() {
    let server = server();
    let mut client = server.connect();
    assert_eq!(client.multi(&Multi::new().done()), Ok(vec![]));
    assert_eq!(client.multi_read(&Multi::new().done()), Ok(vec![]));
}

#[test]
fn a_multi_holds_writes_only() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let acl_record = Body::new().string(&root).acl(&open_acl()).int(-1);
    let path_record = Body::new().string(&root);
    let with_flags = |opcode, flags| Multi::new().create_as(opcode, &format!("{root}/x"), flags);
    let ttl_mode = mode::PERSISTENT_WITH_TTL;
    for multi in [
        Multi::new().data(&root),
        Multi::new().children(&root),
        Multi::new().create(&format!("{root}/x")).data(&root),
        Multi::new().op(op::SET_ACL, acl_record),
        Multi::new().op(op::DELETE_CONTAINER, path_record.clone()),
        Multi::new().op(op::EXISTS, path_record.boolean(false)),
        Multi::new().op(op::MULTI, Multi::new().done()),
        Multi::new().op(999, Body::new()),
        Multi::new().op(0, Body::new()),
        with_flags(op::CREATE, ttl_mode),
        with_flags(op::CREATE2, ttl_mode),
        with_flags(op::CREATE_CONTAINER, ttl_mode),
        with_flags(op::CREATE, 7),
    ] {
        let body = multi.done();
        assert_eq!(client.multi(&body), Err(err::MARSHALLING), "{:?}", body.0);
    }
    assert_eq!(client.children(&root, false), Ok(vec![]), "and nothing was applied");
}

#[test]
fn a_multi_read_holds_reads_only() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for multi in [
        Multi::new().create(&format!("{root}/x")),
        Multi::new().data(&root).delete(&root, -1),
        Multi::new().check(&root, -1),
    ] {
        let reply = client.call(op::MULTI_READ, &multi.done());
        assert_eq!(reply.err, err::MARSHALLING);
    }
    assert_eq!(client.children(&root, false), Ok(vec![]));
}

#[test]
fn each_read_of_a_multi_read_succeeds_or_fails_by_itself() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.create_with(&format!("{root}/a"), Some(b"x"), &open_acl(), 0).unwrap();
    client
        .create_with(&format!("{root}/shut"), None, &acl(perms::ADMIN, "world", "anyone"), 0)
        .unwrap();
    let missing = format!("{root}/missing");
    let multi = Multi::new()
        .data(&format!("{root}/a"))
        .data(&missing)
        .children(&root)
        .data(&format!("{root}/shut"))
        .children(&missing)
        .done();
    let mut results = client.multi_read(&multi).unwrap();
    if let MultiResult::Children(names) = &mut results[2] {
        names.sort();
    }
    let stat = client.stat(&format!("{root}/a"));
    assert_eq!(
        results,
        [
            MultiResult::Data(Some(b"x".to_vec()), stat),
            MultiResult::Error(err::NO_NODE),
            MultiResult::Children(vec!["a".to_owned(), "shut".to_owned()]),
            MultiResult::Error(err::NO_AUTH),
            MultiResult::Error(err::NO_NODE),
        ]
    );
}

#[test]
fn a_multi_read_sets_no_watches() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let watching = Body::new().string(&root).boolean(true);
    let multi = Multi::new().op(op::DATA, watching.clone()).op(op::CHILDREN, watching).done();
    assert_eq!(client.multi_read(&multi).unwrap().len(), 2);
    client.set_data(&root, b"x", -1).unwrap();
    client.create(&format!("{root}/x"));
    assert_eq!(client.events(), []);
}

#[test]
fn a_multi_sees_its_own_earlier_operations() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let path = format!("{root}/a");
    let multi = Multi::new()
        .create(&path)
        .check(&path, 0)
        .set_data(&path, b"x", 0)
        .check(&path, 1)
        .create(&format!("{path}/b"))
        .delete(&format!("{path}/b"), 0)
        .delete(&path, 1)
        .done();
    assert_eq!(client.multi(&multi).map(|results| results.len()), Ok(7));
    let after = client.stat(&root);
    assert_eq!((after.num_children, after.cversion), (0, 2));
}

#[test]
fn the_watchers_of_a_multi_are_told_in_its_order_at_its_zxid() {
    let server = server();
    let root = server.scratch();
    let (mut client, mut watcher) = (server.connect(), server.connect());
    watcher.add_watch(&root, true);
    watcher.children(&root, true).unwrap();
    let multi = Multi::new()
        .create(&format!("{root}/a"))
        .set_data(&root, b"x", -1)
        .create(&format!("{root}/b"))
        .delete(&format!("{root}/a"), -1)
        .done();
    let results = client.multi(&multi).unwrap();
    let MultiResult::SetData(stat) = &results[1] else { panic!("{results:?}") };
    let events = watcher.events_with_zxid();
    let seen: Vec<_> = events.iter().map(|event| (event.kind, event.path.as_str())).collect();
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    let expected = [
        (EventKind::Created, a.as_str()),
        (EventKind::ChildrenChanged, root.as_str()),
        (EventKind::DataChanged, root.as_str()),
        (EventKind::Created, b.as_str()),
        (EventKind::Deleted, a.as_str()),
    ];
    assert_eq!(seen, expected);
    assert!(events.iter().all(|event| event.zxid == stat.mzxid), "{events:?}");
}

#[test]
fn a_failed_multi_tells_no_watcher() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.add_watch(&root, true);
    let multi = Multi::new().create(&format!("{root}/a")).check(&root, 77).done();
    assert_eq!(client.multi(&multi), Ok(errors(&[0, err::BAD_VERSION])));
    assert_eq!(client.events(), []);
}

#[test]
fn a_multi_cannot_overshoot_a_quota() {
    if differs_from_zookeeper("creates inside one multi do not see each other's usage") {
        return;
    }
    let Some(server) = server_with(&["enforceQuota=true"]) else { return };
    let mut client = server.connect();
    client.create("/q");
    client.create("/zookeeper/quota/q");
    let limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2";
    let stats = b"count=1,bytes=0";
    for (name, text) in [("zookeeper_limits", &limits[..]), ("zookeeper_stats", &stats[..])] {
        let path = format!("/zookeeper/quota/q/{name}");
        client.create_with(&path, Some(text), &open_acl(), 0).unwrap();
    }
    let two = Multi::new().create("/q/a").create("/q/b").done();
    assert_eq!(client.multi(&two), Ok(errors(&[0, err::QUOTA_EXCEEDED])));
    let one = Multi::new().create("/q/a").done();
    assert_eq!(client.multi(&one), Ok(vec![MultiResult::Create("/q/a".to_owned())]));
    assert_eq!(client.create_as("/q/b", mode::PERSISTENT), Err(err::QUOTA_EXCEEDED));
}
