//! Frames, headers and bodies that are not as they should be: the exact reaction.

use crate::bytes::{Body, Fields, Multi, err, mode, op, open_acl};
use crate::fixture::{TestServer, differs_from_zookeeper, server, server_with};
use crate::raw::{Client, ConnectRequest, Reply, Wire, frame, prefix, request};

/// The longest frame a server accepts by default.
const FRAME_BYTES_MAX: usize = 1_048_575;

/// An unknown opcode is answered like this, and the connection ends.
fn assert_unimplemented(mut client: Client, opcode: i32, body: &Body) {
    let reply = client.call(opcode, body);
    assert_eq!((reply.err, reply.zxid), (err::UNIMPLEMENTED, -1), "opcode {opcode}");
    assert!(reply.body.is_empty(), "opcode {opcode}: {reply:?}");
    client.assert_closed();
}

/// A body that does not fit its opcode is answered like this, and the connection stays.
fn assert_marshalling(client: &mut Client, opcode: i32, body: &Body) {
    let reply = client.call(opcode, body);
    assert_eq!(reply.err, err::MARSHALLING, "opcode {opcode}, body {:?}", body.0);
    assert!(client.exists("/", false).is_ok(), "the next request after opcode {opcode}");
}

#[test]
fn a_bad_frame_length_closes_the_connection() {
    let server = server();
    let lengths =
        [prefix(FRAME_BYTES_MAX + 1), [0xff; 4], [0x80, 0, 0, 0], [0; 4], *b"GET ", *b"RUOK"];
    for length in lengths {
        let mut fresh = server.wire();
        fresh.send(&length);
        fresh.assert_closed();
        let mut client = server.connect();
        client.wire.send(&length);
        client.assert_closed();
    }
    server.assert_serves();
}

#[test]
fn the_longest_frame_is_accepted_stored_and_read_back() {
    let server = server();
    let path = format!("{}/large", server.scratch());
    let mut client = server.connect();
    let around = request(0, op::CREATE, &Body::new().create(&path, Some(b""), &open_acl(), 0));
    let data = vec![b'x'; FRAME_BYTES_MAX - around.len()];
    let body = Body::new().create(&path, Some(&data), &open_acl(), 0);
    assert_eq!(request(1, op::CREATE, &body).len(), FRAME_BYTES_MAX);
    assert_eq!(client.call(op::CREATE, &body).err, 0);
    let (read, stat) = client.data(&path, false).unwrap();
    assert_eq!(read.map(|bytes| bytes.len()), Some(data.len()));
    assert_eq!(usize::try_from(stat.data_length), Ok(data.len()));
    assert_eq!(client.delete(&path, -1), Ok(()));
}

#[test]
fn the_limit_of_a_frame_is_jute_maxbuffer() {
    let Some(server) = server_with(&["jute.maxbuffer=4096"]) else { return };
    let path = format!("{}/limited", server.scratch());
    let mut client = server.connect();
    let around = request(0, op::CREATE, &Body::new().create(&path, Some(b""), &open_acl(), 0));
    let data = vec![b'x'; 4096 - around.len()];
    assert_eq!(client.create_with(&path, Some(&data), &open_acl(), 0), Ok(path));
    client.wire.send(&prefix(4097));
    client.assert_closed();
}

#[test]
fn a_frame_shorter_than_its_header_closes_the_connection() {
    let server = server();
    let connect = ConnectRequest::fresh(8000).payload();
    for count in [1, 4, 8, 24, 28, 43] {
        let mut wire = server.wire();
        wire.send_frame(&connect[..count]);
        wire.assert_closed();
    }
    for count in 1..8 {
        let mut client = server.connect();
        client.wire.send_frame(&request(1, op::EXISTS, &Body::new())[..count]);
        client.assert_closed();
    }
    server.assert_serves();
}

#[test]
fn an_unknown_opcode_is_answered_with_unimplemented_and_a_close() {
    let server = server();
    let check = Body::new().string("/").int(-1);
    for (opcode, body) in [
        (999, Body::new()),
        (0, Body::new()),
        (10, Body::new()),
        (-1, Body::new()),
        (op::CHECK, check),
        (i32::MIN, Body::new()),
        (i32::MAX, Body::new().string("/")),
    ] {
        assert_unimplemented(server.connect(), opcode, &body);
    }
    server.assert_serves();
}

#[test]
fn operations_of_the_server_itself_are_not_for_clients() {
    if differs_from_zookeeper("it executes deleteContainer without an ACL check, and createSession")
    {
        return;
    }
    let server = server();
    let root = server.scratch();
    assert_unimplemented(server.connect(), op::DELETE_CONTAINER, &Body::new().string(&root));
    assert_unimplemented(server.connect(), op::CREATE_SESSION, &Body::new().int(8000));
    assert!(server.connect().exists(&root, false).is_ok());
}

#[test]
fn a_read_with_an_empty_body_is_malformed_and_the_connection_survives() {
    let server = server();
    let mut client = server.connect();
    for opcode in [op::EXISTS, op::DATA, op::CHILDREN, op::CHILDREN2, op::ACL] {
        assert_marshalling(&mut client, opcode, &Body::new());
    }
}

#[test]
fn an_undecodable_body_is_malformed_and_the_connection_survives() {
    let server = server();
    let mut client = server.connect();
    let root = server.scratch();
    let bad = [
        (op::DATA, Body::new().int(-2)),
        (op::DATA, Body::new().int(i32::MIN).boolean(false)),
        (op::DATA, Body::new().int(i32::MAX).raw(b"/")),
        (op::DATA, Body::new().null().boolean(false)),
        (op::DATA, Body::new().string("/")),
        (op::CHILDREN, Body::new().null().boolean(false)),
        (op::ALL_CHILDREN_NUMBER, Body::new()),
        (op::CREATE, Body::new()),
        (op::CREATE, Body::new().string(&root).buffer(b"").acl(&open_acl())),
        (op::CREATE, Body::new().string(&root).buffer(b"").int(i32::MAX).int(0)),
        (op::CREATE2, Body::new().string(&root).int(-7).acl(&open_acl()).int(0)),
        (op::CREATE_TTL, Body::new().create(&root, None, &open_acl(), 5)),
        (op::DELETE, Body::new().string(&root)),
        (op::SET_DATA, Body::new().string(&root).buffer(b"")),
        (op::SET_ACL, Body::new().string(&root).acl(&open_acl())),
        (op::MULTI, Body::new()),
        (op::MULTI, Body::new().multi_header(op::DELETE, false, -1)),
        (op::MULTI_READ, Body::new().multi_header(op::DATA, false, -1)),
        (op::CHECK_WATCHES, Body::new().string("/")),
        (op::ADD_WATCH, Body::new().string("/")),
        (op::SET_WATCHES, Body::new().long(0).strings(&[]).strings(&[])),
        (op::SET_WATCHES2, Body::new().long(0).strings(&[]).strings(&[]).strings(&[])),
    ];
    for (opcode, body) in &bad {
        assert_marshalling(&mut client, *opcode, body);
    }
    assert_eq!(client.children(&root, false), Ok(vec![]));
}

#[test]
fn an_undecodable_write_takes_no_zxid() {
    let Some(server) = server_with(&[]) else { return };
    let mut client = server.connect();
    let before = client.exists("/", false).map(|_| client.last_zxid).unwrap();
    for opcode in [op::CREATE, op::DELETE, op::SET_DATA, op::SET_ACL] {
        assert_marshalling(&mut client, opcode, &Body::new());
    }
    assert_eq!(client.last_zxid, before);
}

#[test]
fn bytes_behind_a_valid_request_are_ignored() {
    let server = server();
    let mut client = server.connect();
    let reply = client.call(op::EXISTS, &Body::new().string("/").boolean(false).raw(&[9; 33]));
    assert!(reply.parse(Fields::stat).is_ok());
    client.send_as(-2, op::PING, &Body::new().raw(&[9; 33]));
    assert_eq!(client.receive().err, 0);
}

#[test]
fn any_byte_but_zero_is_true() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    let reply = client.call(op::EXISTS, &Body::new().string(&path).raw(&[7]));
    assert_eq!(reply.err, 0);
    client.set_data(&path, b"x", -1).unwrap();
    assert_eq!(client.events().len(), 1, "7 asked for a watch");
}

#[test]
fn a_ping_is_answered_with_its_own_xid_whatever_it_was() {
    let server = server();
    let mut client = server.connect();
    client.wire.send_frame(&request(5, op::PING, &Body::new()));
    let reply = client.receive_any();
    assert_eq!((reply.xid, reply.err, reply.body.len()), (-2, 0, 0));
    assert!(reply.zxid > 0);
}

#[test]
fn odd_xids_are_echoed() {
    let server = server();
    let mut client = server.connect();
    for xid in [0, -77, i32::MAX, i32::MIN, 1, 1] {
        client.send_as(xid, op::EXISTS, &Body::new().string("/").boolean(false));
        assert_eq!(client.receive().err, 0, "xid {xid}");
    }
}

#[test]
fn a_create_mode_that_does_not_exist_is_a_bad_argument() {
    let server = server();
    let path = format!("{}/a", server.scratch());
    let mut client = server.connect();
    for flags in [-1, 7, 8, i32::MAX] {
        assert_eq!(client.create_as(&path, flags), Err(err::BAD_ARGUMENTS), "flags {flags}");
        let multi = Multi::new().create_as(op::CREATE, &path, flags).done();
        assert_eq!(client.multi(&multi), Err(err::MARSHALLING), "multi, flags {flags}");
    }
    assert_eq!(client.exists(&path, false), Err(err::NO_NODE));
}

#[test]
fn set_watches_with_a_null_vector_is_malformed() {
    let server = server();
    let mut client = server.connect();
    assert_marshalling(&mut client, op::SET_WATCHES, &Body::new().long(0).null().null().null());
    let last = Body::new().long(0).strings(&[]).strings(&[]).null();
    assert_marshalling(&mut client, op::SET_WATCHES, &last);
    let two = last.strings(&[]).strings(&[]);
    assert_marshalling(&mut client, op::SET_WATCHES2, &two);
}

#[test]
fn watch_modes_and_types_that_do_not_exist_are_malformed() {
    let server = server();
    let mut client = server.connect();
    for mode in [-1, 2, 3] {
        assert_marshalling(&mut client, op::ADD_WATCH, &Body::new().string("/").int(mode));
    }
    for kind in [-1, 0, 6] {
        let body = Body::new().string("/").int(kind);
        assert_marshalling(&mut client, op::CHECK_WATCHES, &body);
        assert_marshalling(&mut client, op::REMOVE_WATCHES, &body);
    }
}

#[test]
fn an_undecodable_auth_packet_closes_without_a_reply() {
    let server = server();
    for body in [Body::new(), Body::new().int(0), Body::new().int(0).string("digest").int(99)] {
        let mut client = server.connect();
        client.wire.send_frame(&request(-4, op::AUTH, &body));
        client.assert_closed();
    }
    server.assert_serves();
}

fn refused_auth(server: &TestServer, body: &Body) -> Reply {
    let mut client = server.connect();
    let reply = client.auth(body);
    client.assert_closed();
    reply
}

#[test]
fn auth_that_no_scheme_accepts_is_refused_and_closed() {
    let server = server();
    for body in [
        Body::new().int(0).string("nope").buffer(b"x"),
        Body::new().int(0).string("").buffer(b"x"),
        Body::new().int(0).string("world").buffer(b"anyone"),
        Body::new().int(0).null().buffer(b"x"),
        Body::new().int(0).string("digest").null(),
    ] {
        let reply = refused_auth(&server, &body);
        assert_eq!((reply.xid, reply.err), (-4, err::AUTH_FAILED), "{body:?}", body = body.0);
        assert_eq!(reply.zxid, 0);
    }
}

#[test]
fn digest_auth_always_succeeds() {
    let server = server();
    let mut client = server.connect();
    for bytes in [&b"u:p"[..], b"no colon", b"", b"a:b:c", &[0xff, 0xfe, 0]] {
        let reply = client.auth(&Body::new().int(0).string("digest").buffer(bytes));
        assert_eq!((reply.xid, reply.zxid, reply.err), (-4, 0, 0), "{bytes:?}");
    }
    // Some clients number it like any other request.
    let reply = client.call(op::AUTH, &Body::new().int(0).string("digest").string("u:p"));
    assert_eq!((reply.zxid, reply.err), (0, 0));
    assert!(client.exists("/", false).is_ok());
}

#[test]
fn a_null_sasl_token_closes_the_connection() {
    let server = server();
    let mut client = server.connect();
    client.send(op::SASL, &Body::new().null());
    assert!(client.wire.rest().is_empty());
}

#[test]
fn reconfig_of_a_standalone_server_is_refused() {
    let body = Body::new().null().null().string("server.1=127.0.0.1:1:2;3").long(-1);
    let Some(disabled) = server_with(&["reconfigEnabled=false"]) else { return };
    let mut client = disabled.connect();
    client.add_digest("super:test");
    assert_eq!(client.call(op::RECONFIG, &body).err, err::RECONFIG_DISABLED);
    let Some(enabled) = server_with(&["reconfigEnabled=true"]) else { return };
    let mut client = enabled.connect();
    client.add_digest("super:test");
    assert_eq!(client.call(op::RECONFIG, &body).err, err::UNIMPLEMENTED);
    assert!(client.exists("/", false).is_ok(), "the connection stays");
}

#[test]
fn frames_may_arrive_byte_by_byte_or_many_at_once() {
    let server = server();
    let path = format!("{}/slow", server.scratch());
    let create = Body::new().create(&path, Some(b"x"), &open_acl(), mode::PERSISTENT);
    let bytes = [
        frame(&ConnectRequest::fresh(8000).payload()),
        frame(&request(1, op::CREATE, &create)),
        frame(&request(2, op::DATA, &Body::new().string(&path).boolean(false))),
    ]
    .concat();
    let mut slow = server.wire();
    for byte in &bytes {
        slow.send(&[*byte]);
    }
    assert_answers(slow, 0);
    let mut fast = server.wire();
    fast.send(&bytes);
    assert_answers(fast, err::NODE_EXISTS);
}

/// The handshake's answer, then replies to a create (with this code) and a read.
fn assert_answers(wire: Wire, created: i32) {
    let mut client = Client::shake_hands(wire);
    client.expect_reply_to(1);
    client.expect_reply_to(2);
    assert_eq!(client.receive().err, created);
    assert_eq!(client.receive().err, 0);
}
