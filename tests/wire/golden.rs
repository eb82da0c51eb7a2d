//! The codec against what real clients and Apache ZooKeeper said to each other: every recorded frame
//! decodes, and encodes again to the same bytes.

use crate::frames;

use std::collections::BTreeSet;

use bytes::Bytes;
use frames::{Conversation, From, Outstanding, conversations};
use lockkeeper::internals::proto::request::XID_EVENT;
use lockkeeper::internals::proto::response::{ReplyHeader, encode_event};
use lockkeeper::internals::proto::{
    ConnectRequest, ConnectResponse, EventType, OpCode, Reader, Request, RequestHeader, Response,
};

/// How many recordings there are at least: one per family of clients.
const RECORDINGS_MIN: usize = 5;

/// Fails with the place of the frame unless the bytes are the same.
fn assert_same(place: &str, recorded: &[u8], encoded: &[u8], what: &dyn std::fmt::Debug) {
    assert_eq!(encoded, recorded, "{place}: {what:?} is encoded differently");
}

/// The first frame of each direction.
fn check_handshake(place: &str, from: From, payload: &[u8]) {
    let mut encoded = Vec::new();
    let bytes = Bytes::copy_from_slice(payload);
    match from {
        From::Client => {
            let request = ConnectRequest::decode(bytes).unwrap_or_else(|e| panic!("{place}: {e}"));
            request.encode(&mut encoded);
            assert_same(place, payload, &encoded, &request);
        }
        From::Server => {
            let answer = ConnectResponse::decode(bytes).unwrap_or_else(|e| panic!("{place}: {e}"));
            answer.encode(&mut encoded);
            assert_same(place, payload, &encoded, &answer);
        }
    }
}

/// A request: bytes behind it are allowed, as a server allows them.
fn check_request(place: &str, payload: &[u8]) -> RequestHeader {
    let mut reader = Reader::new(Bytes::copy_from_slice(payload));
    let header = RequestHeader::decode(&mut reader).unwrap_or_else(|e| panic!("{place}: {e}"));
    let request = Request::decode(header.op, reader.rest())
        .unwrap_or_else(|why| panic!("{place}: opcode {}: {why:?}", header.op));
    assert_eq!(request.op() as i32, header.op, "{place}: {request:?}");
    let mut encoded = Vec::new();
    header.encode(&mut encoded);
    request.encode(&mut encoded);
    let shared = encoded.len().min(payload.len());
    assert_same(place, &payload[..shared], &encoded, &request);
    header
}

fn check_event(place: &str, payload: &[u8], zxid: i64, mut reader: Reader) {
    let kind = match reader.int("type").expect("an event's type") {
        1 => EventType::NodeCreated,
        2 => EventType::NodeDeleted,
        3 => EventType::NodeDataChanged,
        4 => EventType::NodeChildrenChanged,
        other => panic!("{place}: an event of type {other}"),
    };
    reader.int("state").expect("an event's state");
    let path = reader.string("path").expect("an event's path");
    let mut encoded = Vec::new();
    encode_event(kind, path.as_str(), zxid, &mut encoded);
    assert_same(place, payload, &encoded, &(kind, path));
}

/// A reply or an event; gives the opcode of the request that it answers.
fn check_reply(place: &str, payload: &[u8], outstanding: &mut Outstanding) -> Option<i32> {
    let mut reader = Reader::new(Bytes::copy_from_slice(payload));
    let header = ReplyHeader::decode(&mut reader).unwrap_or_else(|e| panic!("{place}: {e}"));
    let Some(opcode) = outstanding.answered(header.xid) else {
        assert_eq!(header.xid, XID_EVENT, "{place}: nothing was asked with this xid");
        check_event(place, payload, header.zxid, reader);
        return None;
    };
    let mut encoded = Vec::new();
    header.encode(&mut encoded);
    if header.err == 0 {
        let op = OpCode::from_wire(opcode).expect("checked when it was sent");
        let response = Response::decode(op, &mut reader)
            .unwrap_or_else(|why| panic!("{place}: the reply to {op:?}: {why}"));
        response.encode(&mut encoded);
        assert_same(place, payload, &encoded, &response);
    } else {
        // A client reads nothing behind an error, and a failed multiRead does leave something.
        assert_same(place, &payload[..encoded.len()], &encoded, &header);
    }
    Some(opcode)
}

/// Checks every frame; gives the opcodes that were asked and answered.
fn check(conversation: &Conversation) -> BTreeSet<i32> {
    let mut outstanding = Outstanding::default();
    let mut opcodes = BTreeSet::new();
    let mut shaken = [false, false];
    for (from, payload, place) in &conversation.frames {
        let is_first = !std::mem::replace(&mut shaken[*from as usize], true);
        match from {
            _ if is_first => check_handshake(place, *from, payload),
            From::Client => {
                let header = check_request(place, payload);
                outstanding.sent(header.xid, header.op);
            }
            From::Server => opcodes.extend(check_reply(place, payload, &mut outstanding)),
        }
    }
    assert_eq!(shaken, [true, true], "a handshake");
    opcodes
}

#[test]
fn every_recorded_frame_decodes_and_encodes_to_the_same_bytes() {
    let conversations = conversations();
    assert!(conversations.len() >= RECORDINGS_MIN, "{} recordings", conversations.len());
    let mut opcodes = BTreeSet::new();
    for conversation in &conversations {
        let answered = check(conversation);
        assert!(!answered.is_empty(), "nothing was asked");
        opcodes.extend(answered);
    }
    // What a lock needs, whatever the client.
    for op in [
        OpCode::Create,
        OpCode::Delete,
        OpCode::Exists,
        OpCode::GetData,
        OpCode::SetData,
        OpCode::GetChildren,
        OpCode::GetChildren2,
        OpCode::Multi,
        OpCode::SetWatches,
        OpCode::Auth,
        OpCode::CloseSession,
    ] {
        assert!(opcodes.contains(&(op as i32)), "no recording asks {op:?}");
    }
}
