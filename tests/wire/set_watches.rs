//! setWatches: watches brought back after a reconnect, and what was missed meanwhile.

use crate::bytes::{Body, err, op};
use crate::fixture::server;
use crate::raw::{Client, EventKind, EventKind::*};

/// xid that clients give to setWatches.
const XID: i32 = -8;

/// Sends setWatches for data, exist and child watches; returns the events that came before its reply.
fn set_watches(
    client: &mut Client,
    seen: i64,
    data: &[&str],
    exist: &[&str],
    child: &[&str],
) -> Vec<(EventKind, String)> {
    let body = Body::new().long(seen).strings(data).strings(exist).strings(child);
    send(client, op::SET_WATCHES, &body)
}

fn send(client: &mut Client, opcode: i32, body: &Body) -> Vec<(EventKind, String)> {
    client.send_as(XID, opcode, body);
    let reply = client.receive();
    assert_eq!((reply.err, reply.body.len()), (0, 0));
    let mut events: Vec<_> = client
        .events_so_far()
        .into_iter()
        .map(|event| {
            assert_eq!(event.zxid, -1, "made up, not of a transaction: {event:?}");
            (event.kind, event.path)
        })
        .collect();
    events.sort();
    events
}

fn one(kind: EventKind, path: &str) -> Vec<(EventKind, String)> {
    vec![(kind, path.to_owned())]
}

#[test]
fn a_data_watch_is_told_of_what_it_missed() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut writer = server.connect();
    writer.create(&path);
    let seen = writer.last_zxid;
    writer.set_data(&path, b"x", -1).unwrap();
    let mut client = server.connect();
    assert_eq!(set_watches(&mut client, seen, &[&path], &[], &[]), one(DataChanged, &path));
    assert_eq!(client.check_watches(&path, 2), Err(err::NO_WATCHER), "told, not registered");
    writer.delete(&path, -1).unwrap();
    assert_eq!(set_watches(&mut client, seen, &[&path], &[], &[]), one(Deleted, &path));
    assert_eq!(client.events(), []);
}

#[test]
fn an_exist_watch_is_told_that_the_znode_is_there() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut writer = server.connect();
    writer.create(&path);
    let mut client = server.connect();
    // Whatever the zxid: a znode deleted and made again must not go unnoticed.
    let seen = writer.last_zxid;
    assert_eq!(set_watches(&mut client, seen, &[], &[&path], &[]), one(Created, &path));
    assert_eq!(client.events(), []);
}

#[test]
fn a_child_watch_is_told_of_what_it_missed() {
    let server = server();
    let root = server.scratch();
    let path = format!("{root}/a");
    let mut writer = server.connect();
    writer.create(&path);
    let seen = writer.last_zxid;
    let mut client = server.connect();
    writer.set_data(&path, b"x", -1).unwrap();
    assert_eq!(set_watches(&mut client, seen, &[], &[], &[&path]), [], "data is not children");
    client = server.connect();
    writer.create(&format!("{path}/b"));
    assert_eq!(set_watches(&mut client, seen, &[], &[], &[&path]), one(ChildrenChanged, &path));
    let seen = writer.last_zxid;
    writer.delete(&format!("{path}/b"), -1).unwrap();
    assert_eq!(set_watches(&mut client, seen, &[], &[], &[&path]), one(ChildrenChanged, &path));
    writer.delete(&path, -1).unwrap();
    assert_eq!(set_watches(&mut client, seen, &[], &[], &[&path]), one(Deleted, &path));
}

#[test]
fn watches_that_missed_nothing_are_registered() {
    let server = server();
    let root = server.scratch();
    let (data, exist, child) =
        (format!("{root}/data"), format!("{root}/exist"), format!("{root}/child"));
    let mut writer = server.connect();
    writer.create(&data);
    writer.create(&child);
    let seen = writer.last_zxid;
    let mut client = server.connect();
    assert_eq!(set_watches(&mut client, seen, &[&data], &[&exist], &[&child]), []);
    let stat = writer.set_data(&data, b"x", -1).unwrap();
    writer.create(&exist);
    writer.create(&format!("{child}/b"));
    let events = client.events_with_zxid();
    assert_eq!(events[0].zxid, stat.mzxid, "a true event again");
    let seen: Vec<_> = events.into_iter().map(|event| (event.kind, event.path)).collect();
    assert_eq!(seen, [(DataChanged, data), (Created, exist), (ChildrenChanged, child)]);
}

#[test]
fn many_watches_come_back_in_one_request() {
    let server = server();
    let root = server.scratch();
    let paths: Vec<String> = (0..50).map(|number| format!("{root}/n{number:02}")).collect();
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut writer = server.connect();
    for path in &names[..40] {
        writer.create(path);
    }
    let seen = writer.last_zxid;
    for path in &names[..20] {
        writer.set_data(path, b"x", -1).unwrap();
    }
    let mut client = server.connect();
    let events = set_watches(&mut client, seen, &names, &[], &[]);
    let changed = names[..20].iter().map(|path| (DataChanged, (*path).to_owned()));
    let missing = names[40..].iter().map(|path| (Deleted, (*path).to_owned()));
    let mut expected: Vec<_> = changed.chain(missing).collect();
    expected.sort();
    assert_eq!(events, expected);
    for path in &names[20..40] {
        assert_eq!(client.check_watches(path, 2), Ok(()), "{path}");
    }
}

#[test]
fn persistent_watches_come_back_and_replay_nothing() {
    let server = server();
    let root = server.scratch();
    let (plain, deep) = (format!("{root}/plain"), format!("{root}/deep"));
    let mut writer = server.connect();
    writer.create(&plain);
    let mut client = server.connect();
    let none: &[&str] = &[];
    let body = Body::new()
        .long(0)
        .strings(none)
        .strings(none)
        .strings(none)
        .strings(&[&plain])
        .strings(&[&deep]);
    assert_eq!(send(&mut client, op::SET_WATCHES2, &body), []);
    assert_eq!(client.check_watches(&plain, 4), Ok(()));
    assert_eq!(client.check_watches(&deep, 5), Ok(()));
    writer.set_data(&plain, b"x", -1).unwrap();
    writer.create(&deep);
    writer.create(&format!("{deep}/b"));
    writer.create(&format!("{plain}/b"));
    assert_eq!(
        client.events(),
        [
            (DataChanged, plain.clone()),
            (Created, deep.clone()),
            (Created, format!("{deep}/b")),
            (ChildrenChanged, plain),
        ]
    );
}

#[test]
fn a_client_that_reconnects_misses_nothing() {
    let server = server();
    let path = server.scratch();
    let mut old = server.connect();
    old.data(&path, true).unwrap();
    let seen = old.last_zxid;
    old.wire.shut_write();
    old.assert_closed();
    server.connect().set_data(&path, b"x", -1).unwrap();
    let mut new = old.reattach(server.address);
    assert_eq!(set_watches(&mut new, seen, &[&path], &[], &[]), one(DataChanged, &path));
}

#[test]
fn an_empty_set_watches_is_answered() {
    let server = server();
    let mut client = server.connect();
    assert_eq!(set_watches(&mut client, 0, &[], &[], &[]), []);
    // Counts below -1 read as empty.
    let odd = Body::new().long(0).int(-2).int(-7).int(i32::MIN);
    assert_eq!(send(&mut client, op::SET_WATCHES, &odd), []);
}
