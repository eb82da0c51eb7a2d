//! The connect exchange: who gets a session, and what everyone else gets.

use std::time::Duration;

use crate::bytes::{err, mode};
use crate::fixture::{TestServer, differs_from_zookeeper, server};
use crate::raw::{Client, ConnectRequest, ConnectResponse};

/// The payload of the server's first frame.
fn answer(server: &TestServer, connect: &ConnectRequest) -> Option<Vec<u8>> {
    let mut wire = server.wire();
    wire.send_frame(&connect.payload());
    wire.frame()
}

/// The answer to a session that is gone must be this, and then a close.
fn assert_gone(server: &TestServer, connect: &ConnectRequest) {
    let mut wire = server.wire();
    wire.send_frame(&connect.payload());
    let payload = wire.frame().expect("an answer");
    let gone = ConnectResponse {
        timeout_ms: 0,
        session_id: 0,
        password: vec![0; 16],
        read_only: connect.read_only.map(|_| false),
    };
    assert_eq!(ConnectResponse::parse(&payload), gone);
    wire.assert_closed();
}

#[test]
fn the_read_only_byte_is_answered_only_to_those_who_sent_it() {
    let server = server();
    let without = ConnectRequest { read_only: None, ..ConnectRequest::fresh(8000) };
    assert_eq!((without.payload().len(), answer(&server, &without).unwrap().len()), (44, 36));
    for flag in [false, true] {
        let with = ConnectRequest { read_only: Some(flag), ..ConnectRequest::fresh(8000) };
        let answered = answer(&server, &with).unwrap();
        assert_eq!((with.payload().len(), answered.len()), (45, 37));
        assert_eq!(ConnectResponse::parse(&answered).read_only, Some(false));
    }
}

#[test]
fn a_session_has_an_id_and_a_password_of_its_own() {
    let server = server();
    let (one, other) = (server.connect(), server.connect());
    assert!(one.has_session() && other.has_session());
    assert_ne!(one.session.session_id, other.session.session_id);
    assert_ne!(one.session.password, other.session.password);
}

#[test]
fn the_session_timeout_is_clamped() {
    let server = server();
    let (min, max) = (server.session_timeout_ms_min, server.session_timeout_ms_max);
    let middle = i32::midpoint(min, max);
    for (asked, given) in
        [(1, min), (-1, min), (i32::MIN, min), (10_000_000, max), (i32::MAX, max), (middle, middle)]
    {
        assert_eq!(server.connect_for(asked).session.timeout_ms, given, "asked for {asked}");
    }
}

#[test]
fn a_client_from_the_future_is_closed_without_a_byte() {
    let server = server();
    let mut wire = server.wire();
    let future = ConnectRequest { last_zxid_seen: i64::MAX, ..ConnectRequest::fresh(8000) };
    wire.send_frame(&future.payload());
    wire.assert_closed();
}

#[test]
fn a_client_that_has_seen_the_last_zxid_is_welcome() {
    let server = server();
    let mut client = server.connect();
    client.create(&format!("{}/a", server.scratch()));
    let seen = ConnectRequest { last_zxid_seen: client.last_zxid, ..ConnectRequest::fresh(8000) };
    assert!(server.open(&seen).has_session());
}

#[test]
fn wrong_password_unknown_and_expired_sessions_get_identical_answers() {
    let server = server();
    let root = server.scratch();
    let mut observer = server.connect();
    let mut owner = server.connect_for(1);
    let path = owner.create_as(&format!("{root}/e"), mode::EPHEMERAL).unwrap();
    let expired = ConnectRequest::again(&owner.session);
    drop(owner);
    server.wait_gone(&mut observer, &path, Duration::from_secs(20));
    assert_gone(&server, &expired);

    let living = server.connect();
    let again = ConnectRequest::again(&living.session);
    let unknown =
        ConnectRequest { session_id: living.session.session_id ^ 0x7777, ..again.clone() };
    assert_gone(&server, &unknown);
    for password in [Some(vec![7; 16]), Some(vec![]), Some(vec![0; 15]), None] {
        assert_gone(&server, &ConnectRequest { password, ..again.clone() });
    }
    assert_gone(&server, &ConnectRequest { password: None, read_only: None, ..again });
}

#[test]
fn a_wrong_password_does_not_disturb_the_owner() {
    if differs_from_zookeeper("it closes the owner's connection before it checks the password") {
        return;
    }
    let server = server();
    let mut owner = server.connect();
    let again = ConnectRequest::again(&owner.session);
    assert_gone(&server, &ConnectRequest { password: Some(vec![7; 16]), ..again });
    assert!(owner.exists("/", false).is_ok());
}

#[test]
fn reattaching_closes_the_old_connection_and_keeps_id_and_password() {
    let server = server();
    let root = server.scratch();
    let mut old = server.connect_for(9000);
    old.create_as(&format!("{root}/e"), mode::EPHEMERAL).unwrap();
    let mut new = old.reattach(server.address);
    assert_eq!(new.session, old.session);
    old.assert_closed();
    assert_eq!(new.stat(&format!("{root}/e")).ephemeral_owner, new.session.session_id);
}

#[test]
fn a_new_timeout_is_negotiated_when_a_session_is_taken_up_again() {
    let server = server();
    let old = server.connect_for(9000);
    let longer = ConnectRequest { timeout_ms: 12_000, ..ConnectRequest::again(&old.session) };
    let new = server.open(&longer);
    assert_eq!((new.session.session_id, new.session.timeout_ms), (old.session.session_id, 12_000));
}

#[test]
fn requests_pipelined_behind_the_connect_request_are_answered_in_order() {
    use crate::bytes::{Body, op};
    use crate::raw::{frame, request};

    let server = server();
    let path = format!("{}/pipelined", server.scratch());
    let watches = Body::new().long(0).strings(&[]).strings(&[]).strings(&[]);
    let digest = Body::new().int(0).string("digest").string("u:p");
    let create = Body::new().create(&path, Some(b"x"), &crate::bytes::open_acl(), 0);
    let bytes = [
        frame(&ConnectRequest::fresh(8000).payload()),
        frame(&request(-4, op::AUTH, &digest)),
        frame(&request(-8, op::SET_WATCHES, &watches)),
        frame(&request(1, op::CREATE, &create)),
        frame(&request(2, op::DATA, &Body::new().string(&path).boolean(false))),
        frame(&request(-2, op::PING, &Body::new())),
    ]
    .concat();
    let mut wire = server.wire();
    wire.send(&bytes);
    let mut client = Client::shake_hands(wire);
    assert!(client.has_session());
    for xid in [-4, -8, 1, 2, -2] {
        client.expect_reply_to(xid);
        assert_eq!(client.receive().err, 0, "the request with xid {xid}");
    }
}

#[test]
fn the_protocol_version_and_trailing_bytes_are_ignored() {
    let server = server();
    let mut wire = server.wire();
    let odd = ConnectRequest { protocol_version: 7, ..ConnectRequest::fresh(8000) };
    wire.send_frame(&[odd.payload(), vec![1, 2, 3]].concat());
    assert!(Client::shake_hands(wire).has_session());
}

#[test]
fn a_new_session_may_come_with_any_password() {
    let server = server();
    for password in [None, Some(vec![]), Some(vec![9; 3]), Some(vec![9; 100])] {
        let connect = ConnectRequest { password, ..ConnectRequest::fresh(8000) };
        assert!(server.open(&connect).has_session(), "{connect:?}");
    }
}

#[test]
fn a_session_survives_the_loss_of_its_connection() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut old = server.connect();
    old.create_as(&path, mode::EPHEMERAL).unwrap();
    old.wire.shut_write();
    old.assert_closed();
    let mut new = old.reattach(server.address);
    assert!(new.has_session());
    assert_eq!(new.delete(&path, -1), Ok(()));
    assert_eq!(new.exists(&path, false), Err(err::NO_NODE));
}
