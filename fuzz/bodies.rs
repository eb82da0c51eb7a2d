//! What is fuzzed: every decoder that sees bytes from outside, as plain functions.
//!
//! One place for the libFuzzer targets of this folder and for `tests/wire/fuzz_short.rs`, which runs the
//! same functions for a moment with every test. A function panics when a rule is broken; bytes that
//! are refused are as good as bytes that are taken.

use bytes::{Bytes, BytesMut};
use lockkeeper::internals::config::{CONFIG_ERRORS_MAX, Config, Draft};
use lockkeeper::internals::learner::{Event, Joining, Learner};
use lockkeeper::internals::proto::frame;
use lockkeeper::internals::proto::{
    ConnectRequest, ConnectResponse, OpCode, Reader, Request, RequestHeader, Response,
};
use lockkeeper::internals::replica::txn::{Batch, BatchBuilder, EntryTime, stamp};
use lockkeeper::internals::replica::txn_version::{FIRST, SECOND};
use lockkeeper::internals::replica::{
    Entry, EntryKind, ForeignLoad, Machine, PeerMessage, Restore,
};
use lockkeeper::internals::tree::{Options, Rules};
use lockkeeper::internals::zookeeper::log_file::LogEnd;
use lockkeeper::internals::zookeeper::{Item, LogDecoder, SnapshotFileDecoder, Txn};

/// The first frame of a client, and that of a server.
pub fn connect(data: &[u8]) {
    if let Ok(request) = ConnectRequest::decode(Bytes::copy_from_slice(data)) {
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(ConnectRequest::decode(Bytes::from(out)), Ok(request));
    }
    if let Ok(answer) = ConnectResponse::decode(Bytes::copy_from_slice(data)) {
        let mut out = Vec::new();
        answer.encode(&mut out);
        assert_eq!(ConnectResponse::decode(Bytes::from(out)), Ok(answer));
    }
}

/// A request: header and body.
pub fn request(data: &[u8]) {
    let mut reader = Reader::new(Bytes::copy_from_slice(data));
    let Ok(header) = RequestHeader::decode(&mut reader) else { return };
    let Ok(request) = Request::decode(header.op, reader.rest()) else { return };
    assert_eq!(request.op() as i32, header.op);
    let mut out = Vec::new();
    request.encode(&mut out);
    assert_eq!(Request::decode(header.op, Bytes::from(out)), Ok(request));
}

/// The body of a reply; the first byte chooses the opcode that it answers.
pub fn reply(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let op = OpCode::ALL[usize::from(*choice) % OpCode::ALL.len()];
    // The token of a sasl reply is read and dropped: there is nothing to encode again.
    if op == OpCode::Sasl {
        return;
    }
    let Ok(response) = Response::decode(op, &mut Reader::new(Bytes::copy_from_slice(body))) else {
        return;
    };
    let mut out = Vec::new();
    response.encode(&mut out);
    assert_eq!(Response::decode(op, &mut Reader::new(Bytes::from(out))), Ok(response));
}

/// A message of another server: what decodes encodes to the same bytes.
pub fn peer(data: &[u8]) {
    if let Ok(message) = PeerMessage::decode(Bytes::copy_from_slice(data)) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, data);
    }
}

/// The frames of a stream. The first byte says in how large pieces it arrives: however it is cut,
/// the frames are the same.
pub fn frames(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else { return };
    let limit = 1000;
    let at_once = split(std::iter::once(stream), limit);
    let in_pieces = split(stream.chunks(usize::from(*piece).max(1)), limit);
    assert_eq!(at_once, in_pieces);
    assert!(at_once.0.iter().all(|payload| payload.len() <= limit));
}

/// The frames of what arrives, and the length that ended it, if one did.
fn split<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    limit: usize,
) -> (Vec<Bytes>, Option<frame::BadLength>) {
    let (mut buffer, mut payloads) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match frame::next(&mut buffer, limit) {
                Ok(Some(payload)) => payloads.push(payload),
                Ok(None) => break,
                Err(bad) => return (payloads, Some(bad)),
            }
        }
    }
    (payloads, None)
}

/// A configuration file, a dynamic one, and a myid.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Config::parse("zoo.cfg", &text) {
        Ok(config) => assert!(!config.describe().is_empty()),
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= CONFIG_ERRORS_MAX + 1);
            assert!(errors.iter().all(|error| !error.to_string().is_empty()));
        }
    }
    let mut draft = Draft::from_text("zoo.cfg", "dataDir=/data\nclientPort=2181\n");
    draft.load_dynamic("zoo.cfg.dynamic", &text);
    draft.set_myid("myid", text.lines().next().unwrap_or_default());
    if let Ok(config) = draft.resolve() {
        assert!(!config.describe().is_empty());
    }
}

/// What a leader of ZooKeeper sends to an observer. The first byte says in how large pieces it arrives, the second
/// whether the observer has a state already: however it is cut, the events are the same, and behind the end of a
/// connection there are none.
pub fn learner(data: &[u8]) {
    let [piece, has_state, stream @ ..] = data else { return };
    let from_zxid = if has_state & 1 == 0 { 0 } else { 0x1_0000_000f };
    let at_once = heard(from_zxid, std::iter::once(stream));
    let in_pieces = heard(from_zxid, stream.chunks(usize::from(*piece).max(1)));
    assert_eq!(at_once, in_pieces);
}

/// The events of what arrives, with the pieces of a snapshot as one, and what ended the connection, if something did.
fn heard<'a>(
    from_zxid: i64,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Event>, Option<String>) {
    let joining = Joining { server_id: 201, from_zxid, accepted_epoch: 1, login: None };
    let mut learner = Learner::new(joining, 0);
    let (mut events, mut has_asked) = (Vec::new(), false);
    for piece in pieces {
        learner.feed(piece, 0);
        loop {
            if learner.may_request() && !has_asked {
                has_asked = true;
                learner.sync(1, 2);
                learner.revalidate(1, 2);
            }
            match (learner.next_event(), events.last_mut()) {
                (Ok(None), _) => break,
                (Ok(Some(Event::SnapshotBytes(more))), Some(Event::SnapshotBytes(bytes))) => {
                    *bytes = [&bytes[..], &more[..]].concat().into();
                }
                (Ok(Some(event)), _) => events.push(event),
                (Err(ended), _) => {
                    let _ = learner.take_output();
                    learner.feed(piece, 0);
                    assert!(learner.next_event().is_err() && learner.take_output().is_empty());
                    // How much of a snapshot came before its end or a fault is of no matter: it is not used.
                    events.pop_if(|last| matches!(last, Event::SnapshotBytes(_)));
                    return (events, Some(ended.to_string()));
                }
            }
        }
    }
    (events, None)
}

/// A transaction, a log and a snapshot of ZooKeeper, and machines that take what is in them.
pub fn zookeeper(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let (mut one, mut other) = (machine(1), machine(2));
    let mut apply = |txn: &Txn| {
        one.apply_foreign(txn);
        other.apply_foreign(txn);
        assert_eq!(one.digest(), other.digest());
    };
    if let Ok(txn) = Txn::decode(bytes) {
        let mut encoded = Vec::new();
        txn.encode(&mut encoded);
        assert_eq!(Txn::decode(Bytes::from(encoded)).as_ref(), Ok(&txn));
        apply(&txn);
    }
    let mut log = LogDecoder::default();
    log.feed(data);
    let whole = loop {
        match log.next_txn() {
            Ok(Some(txn)) => apply(&txn),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    if whole && let Ok(LogEnd::TornAt(byte)) = log.finish() {
        assert!(byte < data.len() as u64);
    }
    let mut snapshot = SnapshotFileDecoder::default();
    let mut load = ForeignLoad::new(Options::default());
    if snapshot.feed(data).is_ok() {
        while let Ok(Some(item)) = snapshot.next_item() {
            match item {
                Item::Session { id, timeout_ms } => load.session(id, timeout_ms),
                // After an error it is not to be used.
                Item::Node(node) if load.node(&node).is_err() => return,
                Item::Node(_) | Item::End => {}
            }
        }
    }
    if let Ok(mut machine) = load.finish(1) {
        machine.remove_foreign_orphans();
        let _ = machine.settle_foreign();
    }
}

/// The payload of a log entry, and a machine that applies it.
pub fn entry(data: &[u8]) {
    let payload = Bytes::copy_from_slice(data);
    if let Ok(batch) = Batch::decode(&payload)
        && !batch.txns.is_empty()
    {
        let mut builder = BatchBuilder::default();
        for txn in &batch.txns {
            builder.push(txn.origin, txn.session, txn.cxid, &txn.ids, &txn.op);
        }
        // What earlier versions wrote has no steady clock: it is read, and written anew.
        let steady_ms = Some(batch.time.steady_ms.unwrap_or(0));
        let batch = Batch { time: EntryTime { steady_ms, ..batch.time }, ..batch };
        let mut encoded = builder.take();
        let version = if batch.rules.is_some() { SECOND } else { FIRST };
        stamp(&mut encoded, &batch.time, batch.rules.unwrap_or_default(), version);
        assert_eq!(Batch::decode(&Bytes::from(encoded)), Ok(batch));
    }
    let entry = Entry { term: 1, index: 1, kind: EntryKind::Normal, data: payload };
    let (mut one, mut other) = (machine(1), machine(2));
    assert_eq!(one.entry(&entry), other.entry(&entry));
    assert_eq!(one.digest(), other.digest());
}

/// A record of a state on disk: the first byte is the length of its key.
pub fn record(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    let mut machine = machine(1);
    let _refused_or_not: Result<(), String> = machine.record(key, value);
}

/// The hash seed may differ between servers without any effect.
pub fn machine(hash_seed: u64) -> Machine {
    let rules = Rules { extended_types: true, ..Rules::DEFAULT };
    Machine::fresh(Options { rules, hash_seed, ..Options::default() })
}
