//! Clients that mean harm, or have lost their mind: each may lose its connection, nobody else may
//! notice.

use std::time::Duration;

use crate::bytes::{Body, Fields, Multi, err, mode, op, open_acl};
use crate::fixture::{TestServer, server};
use crate::raw::{Client, ConnectRequest, frame, request};
use testkit::rng::Rng;

/// What the server sent must be whole frames.
fn assert_whole_frames(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let mut fields = Fields(bytes);
        fields.buffer().expect("a frame");
        bytes = fields.0;
        count += 1;
    }
    count
}

/// The bytes of a short session: handshake, writes, reads, a multi, a close.
fn session_bytes(path: &str) -> Vec<u8> {
    let create = Body::new().create(path, Some(b"data"), &open_acl(), mode::EPHEMERAL);
    let multi = Multi::new().check(path, -1).set_data(path, b"x", -1).done();
    [
        frame(&ConnectRequest::fresh(8000).payload()),
        frame(&request(-4, op::AUTH, &Body::new().int(0).string("digest").string("u:p"))),
        frame(&request(1, op::CREATE, &create)),
        frame(&request(2, op::DATA, &Body::new().string(path).boolean(true))),
        frame(&request(3, op::MULTI, &multi)),
        frame(&request(4, op::CLOSE_SESSION, &Body::new())),
    ]
    .concat()
}

#[test]
fn a_session_cut_at_any_byte_harms_nobody() {
    let server = server();
    let path = format!("{}/cut", server.scratch());
    let bytes = session_bytes(&path);
    let mut witness = server.connect();
    for count in 0..bytes.len() {
        let mut wire = server.wire();
        wire.send(&bytes[..count]);
        wire.shut_write();
        assert_whole_frames(&wire.rest());
        if count % 32 == 0 {
            assert!(witness.exists("/", false).is_ok(), "after {count} bytes");
        }
    }
    assert!(witness.exists("/", false).is_ok());
    server.assert_serves();
}

#[test]
fn a_whole_session_may_be_sent_at_once() {
    let server = server();
    let path = format!("{}/whole", server.scratch());
    let mut wire = server.wire();
    wire.send(&session_bytes(&path));
    // The connect answer, five replies, and the event of the multi's change.
    assert_eq!(assert_whole_frames(&wire.rest()), 7);
    assert_eq!(server.connect().exists(&path, false), Err(err::NO_NODE));
}

#[test]
fn noise_instead_of_a_handshake_harms_nobody() {
    let server = server();
    let mut noise = Rng::new(0x10CC_4EE9_E500_0001, 0);
    let mut witness = server.connect();
    for round in 0..150 {
        let count = 1 + noise.index(600);
        let mut bytes = noise.bytes(count);
        if round % 3 == 0 {
            // A length that fits, so that the record behind it is looked at.
            bytes = frame(&bytes);
        }
        let mut wire = server.wire();
        wire.send_if_open(&bytes);
        wire.shut_write();
        wire.rest();
        assert!(witness.exists("/", false).is_ok(), "round {round}");
    }
    server.assert_serves();
}

#[test]
fn noise_behind_a_handshake_harms_nobody() {
    let server = server();
    let mut noise = Rng::new(0x10CC_4EE9_E500_0002, 0);
    let mut witness = server.connect();
    let path = Body::new().string("/nowhere").boolean(false);
    for round in 0..150 {
        let count = noise.index(400);
        let garbage = noise.bytes(count);
        let bytes = match round % 3 {
            0 => garbage,
            1 => frame(&garbage),
            // A valid opcode (but those that ZooKeeper does not survive) with a body of noise.
            _ => {
                let opcode = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 17, 18, 22, 101, 105, 106];
                frame(&request(1, noise.of(&opcode), &Body::new().raw(&garbage)))
            }
        };
        let mut client = server.connect();
        client.wire.send_if_open(&bytes);
        client.wire.send_if_open(&frame(&request(2, op::EXISTS, &path)));
        client.wire.shut_write();
        assert_whole_frames(&client.wire.rest());
        assert!(witness.exists("/", false).is_ok(), "round {round}");
    }
    server.assert_serves();
}

#[test]
fn requests_with_some_bytes_turned_harm_nobody() {
    let server = server();
    let path = format!("{}/turned", server.scratch());
    let mut noise = Rng::new(0x10CC_4EE9_E500_0003, 0);
    let mut witness = server.connect();
    let valid = session_bytes(&path);
    let handshake = frame(&ConnectRequest::fresh(8000).payload()).len();
    for round in 0..200 {
        let mut bytes = valid.clone();
        for _ in 0..=noise.index(4) {
            let at = handshake + noise.index(bytes.len() - handshake);
            bytes[at] ^= 1 << noise.index(8);
        }
        let mut wire = server.wire();
        wire.send_if_open(&bytes);
        wire.shut_write();
        assert_whole_frames(&wire.rest());
        assert!(witness.exists("/", false).is_ok(), "round {round}");
    }
    server.assert_serves();
}

#[test]
fn absurd_lengths_and_counts_are_malformed_and_cost_nothing() {
    let server = server();
    let path = format!("{}/absurd", server.scratch());
    let mut client = server.connect();
    for absurd in [i32::MAX, i32::MAX - 1, 0x4000_0000, 0x00ff_ffff] {
        let huge_path = Body::new().int(absurd).raw(b"/x").int(0);
        let huge_data = Body::new().string(&path).int(absurd).raw(b"x").int(-1);
        let huge_acl = Body::new().string(&path).buffer(b"").int(absurd).int(31);
        let huge_id = Body::new().string(&path).buffer(b"").int(1).int(31).int(absurd);
        let huge_watches = Body::new().long(0).int(absurd);
        let multi = Body::new().multi_header(op::CREATE, false, -1).raw(&huge_acl.0);
        for (opcode, body) in [
            (op::EXISTS, &huge_path),
            (op::DATA, &huge_path),
            (op::DELETE, &huge_path),
            (op::SET_DATA, &huge_data),
            (op::CREATE, &huge_data),
            (op::CREATE, &huge_acl),
            (op::CREATE2, &huge_id),
            (op::SET_WATCHES, &huge_watches),
            (op::SET_WATCHES2, &huge_watches),
            (op::MULTI, &multi),
            (op::SYNC, &huge_path),
            (op::ADD_WATCH, &huge_path),
        ] {
            let reply = client.call(opcode, body);
            assert_eq!(reply.err, err::MARSHALLING, "opcode {opcode}, {absurd}");
        }
    }
    assert_eq!(client.exists(&path, false), Err(err::NO_NODE));
    server.assert_serves();
}

#[test]
fn a_frame_that_never_ends_keeps_only_its_own_connection_busy() {
    let server = server();
    let mut stuck: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.wire.send(&1_000_000_i32.to_be_bytes());
        client.wire.send(&[0; 1000]);
    }
    server.assert_serves();
    for client in &mut stuck {
        client.wire.shut_write();
        client.assert_closed();
    }
}

#[test]
fn a_client_that_never_reads_does_not_stop_others() {
    let server = server();
    let path = format!("{}/large", server.scratch());
    let mut writer = server.connect();
    writer.create_with(&path, Some(&vec![b'x'; 200_000]), &open_acl(), 0).unwrap();
    let mut deaf = server.connect();
    let read = request(1, op::DATA, &Body::new().string(&path).boolean(false));
    for _ in 0..300 {
        deaf.wire.send_if_open(&frame(&read));
    }
    for _ in 0..50 {
        writer.set_data(&path, b"small", -1).unwrap();
        server.assert_serves();
    }
}

#[test]
fn a_half_closed_connection_ends_and_its_session_stays() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut client = server.connect();
    client.create_as(&path, mode::EPHEMERAL).unwrap();
    client.wire.shut_write();
    client.wire.rest();
    let mut again = client.reattach(server.address);
    assert!(again.has_session());
    assert_eq!(again.stat(&path).ephemeral_owner, client.session.session_id);
}

#[test]
fn two_connect_requests_do_not_make_two_sessions() {
    let server = server();
    let mut wire = server.wire();
    let connect = frame(&ConnectRequest::fresh(8000).payload());
    wire.send(&[connect.clone(), connect].concat());
    // The second is read as a request: xid 0, opcode 0.
    let mut client = Client::shake_hands(wire);
    client.expect_reply_to(0);
    assert_eq!(client.receive().err, err::UNIMPLEMENTED);
    client.assert_closed();
}

#[test]
fn nothing_is_said_to_a_connection_that_says_nothing() {
    let server = server();
    let mut silent = server.wire();
    assert!(!silent.is_readable_within(Duration::from_millis(300)));
    silent.send(&ConnectRequest::fresh(8000).payload()[..2]);
    assert!(!silent.is_readable_within(Duration::from_millis(300)));
    server.assert_serves();
}

#[test]
fn many_connections_come_and_go() {
    let server = server();
    let mut wires: Vec<_> = (0..100).map(|_| server.wire()).collect();
    for wire in wires.iter_mut().step_by(2) {
        wire.send_frame(&ConnectRequest::fresh(8000).payload());
    }
    for wire in wires.iter_mut().step_by(2) {
        assert!(wire.frame().is_some());
    }
    drop(wires);
    server.assert_serves();
    assert_few_connections(&server);
}

/// The connections that went away must be forgotten.
fn assert_few_connections(server: &TestServer) {
    crate::raw::wait_for("few connections", Duration::from_secs(20), || {
        let text = server.four_letters("srvr");
        let line = text.lines().find_map(|line| line.strip_prefix("Connections: "))?;
        (line.parse::<usize>().ok()? < 80).then_some(())
    });
}
