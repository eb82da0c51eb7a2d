//! Watches: what registers one, what fires it, and for whom.

use crate::bytes::{Body, acl, err, mode, op, perms};
use crate::fixture::server;
use crate::raw::{Client, EventKind, EventKind::*};

/// Types of checkWatches and removeWatches.
const CHILDREN: i32 = 1;
const DATA: i32 = 2;
const ANY: i32 = 3;
const PERSISTENT: i32 = 4;
const RECURSIVE: i32 = 5;

/// The one event that is expected.
fn only(kind: EventKind, path: &str) -> [(EventKind, String); 1] {
    [(kind, path.to_owned())]
}

#[test]
fn the_event_of_a_write_arrives_before_its_reply() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.data(&path, true).unwrap();
    let stat = client.set_data(&path, b"x", -1).unwrap();
    let events = client.events_so_far();
    assert_eq!(events.len(), 1, "met while waiting for the reply");
    assert_eq!((events[0].kind, &events[0].path), (DataChanged, &path));
    assert_eq!(events[0].zxid, stat.mzxid);
}

#[test]
fn the_event_of_anothers_write_arrives_before_a_reply_that_shows_it() {
    let server = server();
    let path = server.scratch();
    let (mut writer, mut reader) = (server.connect(), server.connect());
    reader.data(&path, true).unwrap();
    writer.set_data(&path, b"new", -1).unwrap();
    let (data, _) = reader.data(&path, false).unwrap();
    assert_eq!(data.as_deref(), Some(&b"new"[..]));
    assert_eq!(reader.events_so_far().len(), 1);
}

#[test]
fn a_one_shot_watch_fires_once() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.data(&path, true).unwrap();
    client.set_data(&path, b"1", -1).unwrap();
    client.set_data(&path, b"2", -1).unwrap();
    assert_eq!(client.events(), only(DataChanged, &path));
}

#[test]
fn only_exists_leaves_a_watch_on_a_missing_znode() {
    let server = server();
    let path = format!("{}/missing", server.scratch());
    let (mut exists, mut data, mut children) =
        (server.connect(), server.connect(), server.connect());
    assert_eq!(exists.exists(&path, true), Err(err::NO_NODE));
    assert_eq!(data.data(&path, true).map(drop), Err(err::NO_NODE));
    assert_eq!(children.children(&path, true), Err(err::NO_NODE));
    server.connect().create(&path);
    assert_eq!(exists.events(), only(Created, &path));
    assert_eq!((data.events(), children.events()), (vec![], vec![]));
}

#[test]
fn a_deleted_znode_is_told_once_to_a_connection_that_watches_it_thrice() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    client.create(&path);
    client.data(&path, true).unwrap();
    client.exists(&path, true).unwrap();
    client.children(&path, true).unwrap();
    client.delete(&path, -1).unwrap();
    assert_eq!(client.events(), only(Deleted, &path));
    client.create(&path);
    assert_eq!(client.events(), [], "all three are used up");
}

#[test]
fn a_child_watch_alone_is_told_of_the_deletion() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    client.create(&path);
    client.children(&path, true).unwrap();
    client.set_data(&path, b"x", -1).unwrap();
    client.delete(&path, -1).unwrap();
    assert_eq!(client.events(), only(Deleted, &path));
}

#[test]
fn a_child_watch_sees_children_come_and_go_and_nothing_else() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let child = client.create(&format!("{root}/a"));
    client.children(&root, true).unwrap();
    client.create(&format!("{child}/grandchild"));
    client.set_data(&child, b"x", -1).unwrap();
    client.set_data(&root, b"x", -1).unwrap();
    client.allow(&root, perms::ALL);
    assert_eq!(client.events(), []);
    client.create(&format!("{root}/b"));
    assert_eq!(client.events(), only(ChildrenChanged, &root));
    client.children(&root, true).unwrap();
    client.delete(&format!("{root}/b"), -1).unwrap();
    assert_eq!(client.events(), only(ChildrenChanged, &root));
}

#[test]
fn a_data_watch_sees_no_children_and_no_acl() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.data(&root, true).unwrap();
    client.create(&format!("{root}/a"));
    client.delete(&format!("{root}/a"), -1).unwrap();
    client.allow(&root, perms::ALL);
    assert_eq!(client.events(), []);
}

#[test]
fn a_persistent_watch_survives_its_events_and_the_znode() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    client.add_watch(&path, false);
    client.create(&path);
    client.set_data(&path, b"1", -1).unwrap();
    client.set_data(&path, b"2", -1).unwrap();
    client.create(&format!("{path}/b"));
    client.set_data(&format!("{path}/b"), b"x", -1).unwrap();
    client.delete(&format!("{path}/b"), -1).unwrap();
    client.delete(&path, -1).unwrap();
    client.create(&path);
    let kinds: Vec<EventKind> = client
        .events()
        .into_iter()
        .map(|(kind, event_path)| {
            assert_eq!(event_path, path);
            kind
        })
        .collect();
    let expected =
        [Created, DataChanged, DataChanged, ChildrenChanged, ChildrenChanged, Deleted, Created];
    assert_eq!(kinds, expected);
}

#[test]
fn a_one_shot_watch_beside_a_persistent_one_adds_no_event() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.add_watch(&path, false);
    client.data(&path, true).unwrap();
    client.set_data(&path, b"1", -1).unwrap();
    assert_eq!(client.events(), only(DataChanged, &path));
    assert_eq!(client.check_watches(&path, DATA), Err(err::NO_WATCHER), "it is used up");
    assert_eq!(client.check_watches(&path, PERSISTENT), Ok(()));
    client.set_data(&path, b"2", -1).unwrap();
    assert_eq!(client.events(), only(DataChanged, &path));
}

/// Creates, changes and deletes a child and a grandchild of `root`.
fn stir(client: &mut Client, root: &str) {
    let (child, grandchild) = (format!("{root}/a"), format!("{root}/a/b"));
    client.create(&child);
    client.create(&grandchild);
    client.set_data(&grandchild, b"x", -1).unwrap();
    client.delete(&grandchild, -1).unwrap();
    client.delete(&child, -1).unwrap();
}

/// What a recursive watch on `root` or above sees of [`stir`].
fn stirred(root: &str) -> Vec<(EventKind, String)> {
    let (child, grandchild) = (format!("{root}/a"), format!("{root}/a/b"));
    vec![
        (Created, child.clone()),
        (Created, grandchild.clone()),
        (DataChanged, grandchild.clone()),
        (Deleted, grandchild),
        (Deleted, child),
    ]
}

#[test]
fn a_recursive_watch_sees_every_depth_and_no_child_events() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.add_watch(&root, true);
    stir(&mut client, &root);
    assert_eq!(client.events(), stirred(&root));
    client.set_data(&root, b"x", -1).unwrap();
    client.delete(&root, -1).unwrap();
    client.create(&root);
    assert_eq!(
        client.events(),
        [(DataChanged, root.clone()), (Deleted, root.clone()), (Created, root)]
    );
}

#[test]
fn a_recursive_watch_may_be_set_where_nothing_is_yet() {
    let server = server();
    let root = format!("{}/missing", server.scratch());
    let mut client = server.connect();
    client.add_watch(&root, true);
    client.create(&root);
    stir(&mut client, &root);
    let mut expected = stirred(&root);
    expected.insert(0, (Created, root));
    assert_eq!(client.events(), expected);
}

#[test]
fn a_recursive_watch_on_the_root_sees_everything() {
    let server = server();
    let root = server.scratch();
    let (mut client, mut watcher) = (server.connect(), server.connect());
    watcher.add_watch("/", true);
    stir(&mut client, &root);
    let ours: Vec<_> = watcher
        .events()
        .into_iter()
        .filter(|(kind, path)| {
            assert_ne!(*kind, ChildrenChanged, "{path}");
            path.starts_with(&root)
        })
        .collect();
    assert_eq!(ours, stirred(&root));
}

#[test]
fn a_recursive_watch_does_not_match_names_that_only_begin_alike() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.add_watch(&format!("{root}/a"), true);
    client.create(&format!("{root}/ab"));
    assert_eq!(client.events(), []);
}

#[test]
fn a_recursive_watch_and_a_child_watch_get_the_node_event_first() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.add_watch(&root, true);
    client.children(&root, true).unwrap();
    let child = client.create(&format!("{root}/a"));
    assert_eq!(client.events(), [(Created, child), (ChildrenChanged, root)]);
}

#[test]
fn two_recursive_watches_that_both_match_give_one_event() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    client.add_watch(&root, true);
    client.add_watch(&format!("{root}/a"), true);
    client.add_watch(&format!("{root}/a"), false);
    client.create(&format!("{root}/a"));
    assert_eq!(client.events(), only(Created, &format!("{root}/a")));
}

/// Registers one kind of watch on a path.
type Register = fn(&mut Client, &str);

#[test]
fn watches_are_checked_and_removed_by_their_type() {
    let server = server();
    let root = server.scratch();
    let registrations: [(&[i32], Register); 4] = [
        (&[DATA, ANY], |client, path| drop(client.data(path, true).unwrap())),
        (&[CHILDREN, ANY], |client, path| drop(client.children(path, true).unwrap())),
        (&[PERSISTENT, ANY], |client, path| client.add_watch(path, false)),
        (&[RECURSIVE, ANY], |client, path| client.add_watch(path, true)),
    ];
    let expected = |kinds: &[i32], kind| match kinds.contains(&kind) {
        true => Ok(()),
        false => Err(err::NO_WATCHER),
    };
    for (number, (kinds, register)) in registrations.into_iter().enumerate() {
        for kind in CHILDREN..=RECURSIVE {
            let mut client = server.connect();
            register(&mut client, &root);
            let found = expected(kinds, kind);
            let label = format!("registration {number}, type {kind}");
            assert_eq!(client.check_watches(&root, kind), found, "check {label}");
            assert_eq!(client.remove_watches(&root, kind), found, "remove {label}");
            assert_eq!(client.remove_watches(&root, kind), Err(err::NO_WATCHER), "again {label}");
            client.set_data(&root, b"x", -1).unwrap();
            let child = client.create(&format!("{root}/c"));
            client.delete(&child, -1).unwrap();
            assert_eq!(client.events().is_empty(), found.is_ok(), "{label}");
        }
    }
    let mut client = server.connect();
    assert_eq!(client.remove_watches(&format!("{root}/missing"), ANY), Err(err::NO_WATCHER));
    assert_eq!(client.exists(&format!("{root}/missing"), true), Err(err::NO_NODE));
    assert_eq!(client.remove_watches(&format!("{root}/missing"), DATA), Ok(()));
}

#[test]
fn removing_a_watch_sends_no_event() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.data(&path, true).unwrap();
    client.add_watch(&path, true);
    assert_eq!(client.remove_watches(&path, ANY), Ok(()));
    client.set_data(&path, b"x", -1).unwrap();
    assert_eq!(client.events(), []);
}

#[test]
fn another_connections_watch_is_not_mine_to_remove() {
    let server = server();
    let path = server.scratch();
    let (mut one, mut other) = (server.connect(), server.connect());
    one.data(&path, true).unwrap();
    assert_eq!(other.check_watches(&path, ANY), Err(err::NO_WATCHER));
    assert_eq!(other.remove_watches(&path, ANY), Err(err::NO_WATCHER));
    other.set_data(&path, b"x", -1).unwrap();
    assert_eq!(one.events(), only(DataChanged, &path));
}

#[test]
fn an_event_that_the_watcher_may_not_read_is_not_delivered() {
    let server = server();
    let root = server.scratch();
    let (mut owner, mut stranger) = (server.connect(), server.connect());
    owner.add_digest("u:p");
    let secret = format!("{root}/secret");
    stranger.exists(&secret, true).unwrap_err();
    stranger.add_watch(&secret, false);
    stranger.add_watch(&root, true);
    let private = acl(perms::ALL, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=");
    owner.create_with(&secret, None, &private, mode::PERSISTENT).unwrap();
    owner.set_data(&secret, b"x", -1).unwrap();
    owner.delete(&secret, -1).unwrap();
    assert_eq!(stranger.events(), []);
    assert_eq!(stranger.check_watches(&secret, DATA), Err(err::NO_WATCHER), "it is used up");
    assert_eq!(stranger.check_watches(&secret, PERSISTENT), Ok(()));
    // The same watches deliver what may be read.
    owner.create(&secret);
    assert_eq!(stranger.events(), only(Created, &secret));
}

#[test]
fn a_child_event_is_delivered_to_those_who_may_read_the_parent() {
    let server = server();
    let root = server.scratch();
    let (mut owner, mut stranger) = (server.connect(), server.connect());
    let secret = acl(perms::ALL, "digest", "nobody:x");
    stranger.children(&root, true).unwrap();
    owner.create_with(&format!("{root}/secret"), None, &secret, mode::PERSISTENT).unwrap();
    assert_eq!(stranger.events(), only(ChildrenChanged, &root));
    stranger.children(&root, true).unwrap();
    owner.allow(&root, perms::ALL & !perms::READ);
    owner.create(&format!("{root}/b"));
    assert_eq!(stranger.events(), []);
}

#[test]
fn an_exists_that_may_not_read_leaves_no_watch() {
    let server = server();
    let path = server.scratch();
    let (mut owner, mut stranger) = (server.connect(), server.connect());
    owner.allow(&path, perms::ALL & !perms::READ);
    assert_eq!(stranger.exists(&path, true), Err(err::NO_AUTH));
    owner.allow(&path, perms::ALL);
    owner.set_data(&path, b"x", -1).unwrap();
    assert_eq!(stranger.events(), []);
}

#[test]
fn watches_end_with_their_connection() {
    let server = server();
    let path = server.scratch();
    let mut old = server.connect();
    old.data(&path, true).unwrap();
    old.add_watch(&path, true);
    let mut new = old.reattach(server.address);
    assert_eq!(new.check_watches(&path, ANY), Err(err::NO_WATCHER));
    new.set_data(&path, b"x", -1).unwrap();
    assert_eq!(new.events(), []);
}

#[test]
fn a_watch_is_told_by_every_write_that_a_multi_holds() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.data(&path, true).unwrap();
    let multi = crate::bytes::Multi::new().set_data(&path, b"1", -1).set_data(&path, b"2", -1);
    client.multi(&multi.done()).unwrap();
    assert_eq!(client.events(), only(DataChanged, &path), "one-shot: once");
}

#[test]
fn add_watch_answers_an_int_of_zero() {
    let server = server();
    let mut client = server.connect();
    let reply = client.call(op::ADD_WATCH, &Body::new().string("/").int(1));
    assert_eq!((reply.err, reply.body), (0, vec![0; 4]));
}
