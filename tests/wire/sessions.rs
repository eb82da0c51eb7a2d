//! Sessions: how they end, and what ends with them.

use std::time::{Duration, Instant};

use crate::bytes::{Body, Fields, err, mode, op};
use crate::fixture::server;
use crate::raw::{ConnectRequest, EventKind, wait_for};

/// How much later than promised a loaded machine may do something.
const SLACK: Duration = Duration::from_secs(10);

/// More than come at one moment without waiting, and a silence after which they are a crowd.
const CROWD: usize = 200;
const SILENCE: Duration = Duration::from_secs(1);

#[test]
fn close_session_is_answered_then_closed_and_takes_the_ephemerals() {
    let server = server();
    let root = server.scratch();
    let mut observer = server.connect();
    let mut owner = server.connect();
    let session = owner.session.clone();
    for name in ["a", "b", "c"] {
        owner.create_as(&format!("{root}/{name}"), mode::EPHEMERAL).unwrap();
    }
    owner.create(&format!("{root}/stays"));
    assert_eq!(observer.children(&root, true).map(|names| names.len()), Ok(4));
    let before = owner.last_zxid;

    let reply = owner.close_session();
    assert_eq!((reply.err, reply.body.len()), (0, 0));
    assert!(reply.zxid > before, "closing takes a zxid");
    assert_eq!(observer.events(), [(EventKind::ChildrenChanged, root.clone())]);
    assert_eq!(observer.children(&root, false), Ok(vec!["stays".to_owned()]));

    let again = server.open(&ConnectRequest::again(&session));
    assert!(!again.has_session());
    assert_eq!(again.session.timeout_ms, 0);
}

#[test]
fn all_ephemerals_of_a_session_go_at_one_zxid() {
    let server = server();
    let (one, other) = (server.scratch(), server.scratch());
    let mut owner = server.connect();
    let mut observer = server.connect();
    for root in [&one, &other] {
        owner.create_as(&format!("{root}/a"), mode::EPHEMERAL).unwrap();
        owner.create_as(&format!("{root}/b"), mode::EPHEMERAL_SEQUENTIAL).unwrap();
        observer.add_watch(root, true);
    }
    owner.close_session();
    let events = observer.events_with_zxid();
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(events.iter().all(|event| event.kind == EventKind::Deleted));
    assert!(events.iter().all(|event| event.zxid == events[0].zxid), "{events:?}");
    assert_eq!(observer.stat(&one).pzxid, events[0].zxid);
    assert_eq!(observer.stat(&other).pzxid, events[0].zxid);
}

#[test]
fn a_connection_that_closes_its_session_sees_its_ephemerals_go_first() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut owner = server.connect();
    owner.create_as(&path, mode::EPHEMERAL).unwrap();
    owner.exists(&path, true).unwrap();
    let reply = owner.call(op::CLOSE_SESSION, &Body::new());
    assert_eq!(reply.err, 0);
    let events = owner.events_so_far();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].kind, &events[0].path), (EventKind::Deleted, &path));
    assert_eq!(events[0].zxid, reply.zxid);
}

#[test]
fn a_lost_connection_keeps_its_ephemerals_until_the_timeout() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut observer = server.connect();
    let mut owner = server.connect_for(server.session_timeout_ms_min);
    let timeout = Duration::from_millis(owner.session.timeout_ms.unsigned_abs().into());
    owner.create_as(&path, mode::EPHEMERAL).unwrap();
    let last_contact = Instant::now();
    drop(owner);
    assert!(observer.exists(&path, false).is_ok(), "right after the loss");
    server.wait_gone(&mut observer, &path, timeout + server.tick + SLACK);
    // The server counts from when it read the create, a little before we saw the reply.
    let kept = last_contact.elapsed() + Duration::from_millis(50);
    assert!(kept >= timeout, "gone after {kept:?}, the timeout is {timeout:?}");
}

#[test]
fn an_expired_session_is_closed_without_a_packet() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut observer = server.connect();
    let mut idle = server.connect_for(server.session_timeout_ms_min);
    idle.create_as(&path, mode::EPHEMERAL).unwrap();
    idle.wire.assert_closed();
    server.wait_gone(&mut observer, &path, server.tick + SLACK);
    assert!(!idle.reattach(server.address).has_session());
}

#[test]
fn pings_keep_a_session_alive() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut owner = server.connect_for(server.session_timeout_ms_min);
    let timeout = Duration::from_millis(owner.session.timeout_ms.unsigned_abs().into());
    owner.create_as(&path, mode::EPHEMERAL).unwrap();
    let end = Instant::now() + timeout * 3;
    wait_for("three timeouts", timeout * 4 + SLACK, || {
        assert_eq!(owner.ping().err, 0);
        (Instant::now() > end).then_some(())
    });
    assert_eq!(owner.stat(&path).ephemeral_owner, owner.session.session_id);
}

#[test]
fn an_expired_lock_holder_is_told_to_its_watchers_once() {
    let server = server();
    let path = format!("{}/lock", server.scratch());
    let mut waiter = server.connect();
    let mut holder = server.connect_for(server.session_timeout_ms_min);
    holder.create_as(&path, mode::EPHEMERAL).unwrap();
    waiter.exists(&path, true).unwrap();
    drop(holder);
    let event = waiter.wait_event();
    assert_eq!((event.kind, event.path), (EventKind::Deleted, path.clone()));
    assert_eq!(waiter.exists(&path, false), Err(err::NO_NODE));
    assert_eq!(waiter.events(), []);
}

#[test]
fn a_reattached_session_is_not_expired_by_its_old_deadline() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut old = server.connect_for(server.session_timeout_ms_min);
    let timeout = Duration::from_millis(old.session.timeout_ms.unsigned_abs().into());
    old.create_as(&path, mode::EPHEMERAL).unwrap();
    let longer = ConnectRequest { timeout_ms: 30_000, ..ConnectRequest::again(&old.session) };
    let mut new = server.open(&longer);
    let end = Instant::now() + timeout * 2;
    let mut observer = server.connect();
    wait_for("two short timeouts", timeout * 2 + SLACK, || {
        assert!(observer.exists(&path, false).is_ok(), "the session is gone");
        (Instant::now() > end).then_some(())
    });
    assert_eq!(new.ping().err, 0);
}

#[test]
fn ephemerals_lists_what_the_session_owns_below_a_prefix() {
    let server = server();
    let root = server.scratch();
    let (mut owner, mut other) = (server.connect(), server.connect());
    for name in ["aa", "ab", "b"] {
        owner.create_as(&format!("{root}/{name}"), mode::EPHEMERAL).unwrap();
    }
    other.create_as(&format!("{root}/ac"), mode::EPHEMERAL).unwrap();
    let mut list = |prefix: Option<&str>| {
        let body = Body::new().buffer_or_null(prefix.map(str::as_bytes));
        let mut paths = owner.call(op::EPHEMERALS, &body).parse(Fields::strings).unwrap();
        paths.sort();
        paths
    };
    let all = ["aa", "ab", "b"].map(|name| format!("{root}/{name}"));
    for prefix in [None, Some(""), Some("/"), Some(root.as_str())] {
        assert_eq!(list(prefix), all, "prefix {prefix:?}");
    }
    assert_eq!(list(Some(&format!("{root}/a"))), all[..2], "a prefix of characters, not of names");
    assert_eq!(list(Some("/nowhere")), [""; 0]);
}

#[test]
fn who_am_i_lists_the_identities_of_the_connection() {
    let server = server();
    let mut client = server.connect();
    let identities = |client: &mut crate::raw::Client| {
        let reply = client.call(op::WHO_AM_I, &Body::new());
        let mut list = reply
            .parse(|fields| {
                (0..fields.int()).map(|_| (fields.string(), fields.string())).collect::<Vec<_>>()
            })
            .unwrap();
        list.sort();
        list
    };
    let ip = ("ip".to_owned(), "127.0.0.1".to_owned());
    assert_eq!(identities(&mut client), std::slice::from_ref(&ip));
    client.add_digest("u:p");
    client.add_digest("u:p");
    let digest = ("digest".to_owned(), "u".to_owned());
    assert_eq!(identities(&mut client), [digest, ip.clone()]);
    // They belong to the connection: the session taken up again starts without them.
    assert_eq!(identities(&mut client.reattach(server.address)), [ip]);
}

#[test]
fn sessions_of_a_crowd_are_all_opened_and_all_closed() {
    let server = server();
    let root = server.scratch();
    let mut crowd: Vec<_> = (0..CROWD).map(|_| server.connect()).collect();
    for (number, client) in crowd.iter_mut().enumerate() {
        client.create_as(&format!("{root}/{number}"), mode::EPHEMERAL).unwrap();
    }
    let mut observer = server.connect();
    assert_eq!(observer.children(&root, false).map(|names| names.len()), Ok(CROWD));
    std::thread::sleep(SILENCE);
    for client in &mut crowd {
        client.send(op::CLOSE_SESSION, &Body::new());
    }
    for client in &mut crowd {
        assert_eq!(client.receive().err, 0);
        client.assert_closed();
    }
    assert_eq!(observer.children(&root, false), Ok(vec![]));
}
