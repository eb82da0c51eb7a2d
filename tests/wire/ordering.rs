//! Order: of replies on a connection, of zxids in a session, of one session's own operations.

use std::collections::BTreeSet;

use crate::bytes::{Body, Fields, Multi, err, mode, op, open_acl};
use crate::fixture::server;
use crate::raw::{EventKind, frame, request};

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let path = Body::new().string(&root);
    let missing = Body::new().string("/nowhere").boolean(false);
    let kinds = [
        (op::SET_DATA, path.clone().buffer(b"x").int(-1), 0),
        (op::DATA, path.clone().boolean(false), 0),
        (op::CREATE, Body::new().create(&format!("{root}/n"), None, &open_acl(), 3), 0),
        (op::EXISTS, missing, err::NO_NODE),
        (op::CHILDREN2, path.clone().boolean(true), 0),
        (op::SYNC, path.clone(), 0),
        (op::DELETE, Body::new().string(&format!("{root}/missing")).int(-1), err::NO_NODE),
        (op::MULTI, Multi::new().check(&root, -1).set_data(&root, b"y", -1).done(), 0),
        (op::ACL, path.clone(), 0),
        (op::DATA, Body::new(), err::MARSHALLING),
        (op::CREATE, Body::new().create(&root, None, &open_acl(), 99), err::BAD_ARGUMENTS),
        (op::MULTI_READ, Multi::new().data(&root).done(), 0),
        (op::ADD_WATCH, path.int(0), 0),
    ];
    let sent: Vec<_> = (0..1000).map(|number| &kinds[number % kinds.len()]).collect();
    let mut bytes = Vec::new();
    for (number, (opcode, body, _)) in sent.iter().enumerate() {
        let xid = i32::try_from(number).unwrap() + 1;
        bytes.extend(frame(&request(xid, *opcode, body)));
        client.expect_reply_to(xid);
    }
    client.wire.send(&bytes);
    let mut zxid = 0;
    for (number, (opcode, _, expected)) in sent.iter().enumerate() {
        let reply = client.receive();
        assert_eq!(reply.err, *expected, "request {number}, opcode {opcode}");
        assert!(reply.zxid >= zxid, "request {number}: {} after {zxid}", reply.zxid);
        zxid = reply.zxid;
    }
    server.assert_serves();
}

#[test]
fn a_read_behind_a_write_sees_it() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    for version in 0..200 {
        let data = version.to_string();
        client.send(op::SET_DATA, &Body::new().string(&path).buffer(data.as_bytes()).int(version));
        client.send(op::DATA, &Body::new().string(&path).boolean(false));
    }
    for version in 0..200 {
        assert_eq!(client.receive().parse(Fields::stat).map(|stat| stat.version), Ok(version + 1));
        let read = client.receive().parse(|fields| (fields.buffer(), fields.stat())).unwrap();
        assert_eq!(read.0, Some(version.to_string().into_bytes()));
        assert_eq!(read.1.version, version + 1);
    }
}

#[test]
fn the_zxid_of_replies_never_decreases_also_across_reconnects() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    let mut last = 0;
    for round in 0..5 {
        let path = format!("{root}/{round}");
        let create = Body::new().create(&path, None, &open_acl(), mode::EPHEMERAL);
        let requests = [
            (op::CREATE, create.clone()),
            (op::CREATE, create),
            (op::EXISTS, Body::new().string(&path).boolean(false)),
            (op::SYNC, Body::new().string("/")),
            (op::DELETE, Body::new().string(&path).int(0)),
            (op::CHILDREN, Body::new().string(&root).boolean(false)),
        ];
        for (opcode, body) in &requests {
            let zxid = client.call(*opcode, body).zxid;
            assert!(zxid >= last, "round {round}, opcode {opcode}: {zxid} after {last}");
            last = zxid;
        }
        let zxid = client.ping().zxid;
        assert!(zxid >= last, "round {round}, ping: {zxid} after {last}");
        last = zxid;
        client = client.reattach(server.address);
        assert!(client.has_session());
    }
}

#[test]
fn a_reply_shows_at_least_its_own_write() {
    let server = server();
    let root = server.scratch();
    let mut client = server.connect();
    for _ in 0..20 {
        let reply = client.call(op::SET_DATA, &Body::new().string(&root).buffer(b"x").int(-1));
        let stat = reply.parse(Fields::stat).unwrap();
        assert!(reply.zxid >= stat.mzxid, "{} below {}", reply.zxid, stat.mzxid);
    }
}

#[test]
fn sessions_that_count_together_lose_no_number() {
    let server = server();
    let root = server.scratch();
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    let body = Body::new().create(&format!("{root}/n"), None, &open_acl(), 2);
    for _ in 0..40 {
        for client in &mut clients {
            client.send(op::CREATE, &body);
        }
    }
    let mut numbers = BTreeSet::new();
    for client in &mut clients {
        let mut previous = String::new();
        for _ in 0..40 {
            let path = client.receive().parse(Fields::string).unwrap();
            assert!(path > previous, "one session's creates keep their order");
            assert!(numbers.insert(path.clone()), "{path} twice");
            previous = path;
        }
    }
    let expected: BTreeSet<_> = (0..200).map(|number| format!("{root}/n{number:010}")).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn events_of_one_connection_keep_the_order_of_the_zxids() {
    let server = server();
    let root = server.scratch();
    let (mut writer, mut watcher) = (server.connect(), server.connect());
    watcher.add_watch(&root, true);
    for number in 0..100 {
        let path = format!("{root}/{number}");
        writer.send(op::CREATE, &Body::new().create(&path, None, &open_acl(), 0));
        writer.send(op::DELETE, &Body::new().string(&path).int(-1));
    }
    for _ in 0..200 {
        assert_eq!(writer.receive().err, 0);
    }
    let events = watcher.events_with_zxid();
    assert_eq!(events.len(), 200);
    for (number, pair) in events.chunks(2).enumerate() {
        let path = format!("{root}/{number}");
        assert_eq!((pair[0].kind, &pair[0].path), (EventKind::Created, &path));
        assert_eq!((pair[1].kind, &pair[1].path), (EventKind::Deleted, &path));
    }
    assert!(events.is_sorted_by(|a, b| a.zxid < b.zxid));
}

#[test]
fn sync_echoes_its_path_whatever_it_is() {
    let server = server();
    let mut client = server.connect();
    for path in [Some("/"), Some("/nowhere"), Some("no path"), Some(""), None] {
        let body = Body::new().buffer_or_null(path.map(str::as_bytes));
        let echo = client.call(op::SYNC, &body).parse(Fields::buffer);
        assert_eq!(echo, Ok(path.map(|path| path.as_bytes().to_vec())), "{path:?}");
    }
}
