//! Messages as they are on the wire, and what is no message.

use raft::eraftpb::{ConfState, EntryType, Message, MessageType};

use super::*;
use crate::replica::bounds::{INDEX_MAX, RAFT_ID_MAX, TERM_MAX};
use crate::replica::comparison::{DigestReport, Value, Window};
use crate::replica::messages::raft_codec::{TYPES, numbers};
use crate::rng::Rng;

struct Dice(Rng);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// Often 0, sometimes at the edge.
    fn number(&mut self) -> u64 {
        self.up_to(INDEX_MAX)
    }

    fn term(&mut self) -> u64 {
        self.up_to(TERM_MAX)
    }

    fn up_to(&mut self, most: u64) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => most,
            2 => self.below(1000),
            _ => self.below(most),
        }
    }

    fn bytes(&mut self) -> Bytes {
        let count = self.below(40);
        (0..count).map(|_| self.below(256) as u8).collect::<Vec<_>>().into()
    }

    fn ids(&mut self) -> Vec<u64> {
        (0..self.below(5)).map(|_| self.up_to(RAFT_ID_MAX)).collect()
    }

    fn raft(&mut self) -> Message {
        let mut message = Message::default();
        let (kind, _) = TYPES[self.below(TYPES.len() as u64) as usize];
        message.set_msg_type(kind);
        for (_, part, most) in numbers(&mut message) {
            *part = self.up_to(most);
        }
        message.term = 1 + self.below(TERM_MAX);
        message.from = 1 + self.below(1 << 40);
        message.reject = self.below(2) == 1;
        message.context = self.bytes();
        let has_entries = [MessageType::MsgAppend, MessageType::MsgReadIndex].contains(&kind);
        if has_entries {
            message.index = self.below(1 << 40);
            message.log_term = self.below(message.term + 1);
            let mut entries = Vec::new();
            for at in 1..=self.below(6) {
                let index = message.index + at;
                let kinds = [EntryType::EntryNormal, EntryType::EntryConfChangeV2];
                entries.push(Entry {
                    entry_type: kinds[self.below(2) as usize],
                    term: message.log_term,
                    index,
                    data: self.bytes(),
                    context: self.bytes(),
                    ..Entry::default()
                });
            }
            message.set_entries(entries.into());
        }
        if kind == MessageType::MsgSnapshot {
            let metadata = message.mut_snapshot().mut_metadata();
            metadata.index = self.number();
            metadata.term = self.term();
            let auto_leave = self.below(2) == 1;
            let mut state = ConfState { auto_leave, ..ConfState::default() };
            state.voters = self.ids();
            state.learners = self.ids();
            state.voters_outgoing = self.ids();
            state.learners_next = self.ids();
            metadata.set_conf_state(state);
        }
        message
    }

    fn stamp(&mut self) -> Stamp {
        Stamp { process: self.0.next() | 1, number: self.number() }
    }

    fn window(&mut self) -> Window {
        let (one, other) = (self.number(), self.number());
        Window { from: one.min(other), to: one.max(other) }
    }

    fn message(&mut self) -> PeerMessage {
        match self.below(13) {
            12 => {
                let voters = (0..self.below(9)).map(|_| self.up_to(RAFT_ID_MAX)).collect();
                PeerMessage::Voters { question: self.0.next(), index: self.number(), voters }
            }
            11 => PeerMessage::Compare { term: self.term(), window: self.window() },
            10 => {
                let definition = self.below(256) as u8;
                let (window, term) = (self.window(), self.term());
                let (digest, sum) = (u128::from(self.0.next()) << 64, self.0.next().into());
                let value = Value { digest, sum };
                let report = DigestReport { definition, window, term, value };
                PeerMessage::Digests { report }
            }
            9 => PeerMessage::Ask { question: self.0.next() },
            8 => {
                let promise = Promise {
                    term: self.term(),
                    index: self.number(),
                    log_term: self.term(),
                    vote: self.up_to(RAFT_ID_MAX),
                };
                let promise = (self.below(2) == 1).then_some(promise);
                PeerMessage::Recall { question: self.0.next(), promise }
            }
            7 => {
                let heard = (self.below(2) == 1).then(|| self.stamp());
                let steady_ms = self.up_to(STEADY_MS_MAX.unsigned_abs()).cast_signed();
                let (term, at_us) = (self.term(), self.number());
                PeerMessage::Ping { term, at_us, steady_ms, heard }
            }
            6 => PeerMessage::Return { term: self.term(), batch: self.bytes() },
            0 => PeerMessage::Forward { term: self.term(), batch: self.bytes() },
            1 => {
                let sessions = (0..self.below(9)).map(|_| self.0.next() as i64).collect();
                let (term, at_us) = (self.term(), self.number());
                let (stamp, base) = (self.stamp(), self.number());
                let wall_ms = self.0.next().cast_signed();
                PeerMessage::Touch { term, at_us, wall_ms, stamp, base, sessions }
            }
            _ => PeerMessage::Raft(Box::new(self.raft())),
        }
    }
}

fn dice(seed: u64) -> Dice {
    Dice(Rng::new(seed, 0))
}

fn encoded(message: &PeerMessage) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

fn decoded(bytes: &[u8]) -> Result<PeerMessage, Malformed> {
    PeerMessage::decode(Bytes::copy_from_slice(bytes))
}

#[test]
fn what_was_encoded_decodes_to_the_same_message() {
    let mut dice = dice(1);
    for _ in 0..5000 {
        let message = dice.message();
        assert_eq!(decoded(&encoded(&message)), Ok(message));
    }
}

#[test]
fn a_message_that_is_cut_short_is_malformed() {
    let mut dice = dice(2);
    for _ in 0..300 {
        let message = dice.message();
        let bytes = encoded(&message);
        for at in 0..bytes.len() {
            let cut = decoded(&bytes[..at]);
            let is_whole = matches!(message, PeerMessage::Touch { .. }) && at >= TOUCH_BYTES_MIN
                || matches!(message, PeerMessage::Recall { .. }) && at == 10
                || matches!(message, PeerMessage::Voters { .. }) && at >= 18;
            assert!(cut.is_err() || is_whole, "{message:?} cut at {at}");
        }
    }
}

#[test]
fn a_changed_byte_gives_an_error_or_what_encodes_to_it() {
    let mut dice = dice(3);
    for _ in 0..300 {
        let bytes = encoded(&dice.message());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << dice.below(8);
            if let Ok(message) = decoded(&changed) {
                assert_eq!(encoded(&message), changed);
            }
        }
    }
}

#[test]
fn data_of_entries_shares_the_memory_of_what_was_received() {
    let mut message = dice(4).raft();
    message.set_msg_type(MessageType::MsgAppend);
    message.term = 5;
    message.log_term = 5;
    message.index = 6;
    let data = Bytes::from_static(b"a payload");
    let entry = Entry { term: 5, index: 7, data, ..Entry::default() };
    message.set_entries(vec![entry].into());
    let received = Bytes::from(encoded(&PeerMessage::Raft(Box::new(message))));
    let range = received.as_ptr_range();
    let Ok(PeerMessage::Raft(message)) = PeerMessage::decode(received.clone()) else {
        panic!("it decodes")
    };
    assert!(range.contains(&message.entries[0].data.as_ptr()));
}

fn append(entries: &[(u64, u64)]) -> Message {
    let mut message =
        Message { from: 2, to: 1, term: 5, log_term: 3, index: 6, ..Message::default() };
    message.set_msg_type(MessageType::MsgAppend);
    let entry = |&(index, term): &(u64, u64)| Entry { index, term, ..Entry::default() };
    message.set_entries(entries.iter().map(entry).collect::<Vec<_>>().into());
    message
}

#[test]
fn what_raft_would_panic_at_is_malformed() {
    let try_raft = |message: Message| decoded(&encoded(&PeerMessage::Raft(Box::new(message))));
    assert!(try_raft(append(&[(7, 3), (8, 5)])).is_ok());
    for (entries, why) in [
        (&[(8, 3)][..], "a gap"),
        (&[(6, 3)], "what is there already"),
        (&[(7, 3), (7, 3)], "one index twice"),
        (&[(7, 2)], "a term that falls"),
        (&[(7, 6)], "a term of the future"),
    ] {
        assert!(try_raft(append(entries)).is_err(), "{why}");
    }
    let changes: [fn(&mut Message); 11] = [
        |message| message.term = 0,
        |message| message.term = TERM_MAX + 1,
        |message| message.commit_term = TERM_MAX + 1,
        |message| message.from = 0,
        |message| message.from = RAFT_ID_MAX + 1,
        |message| message.reject_hint = INDEX_MAX + 1,
        |message| message.index = INDEX_MAX + 1,
        |message| message.commit = u64::MAX,
        |message| message.set_msg_type(MessageType::MsgHup),
        |message| message.set_msg_type(MessageType::MsgSnapStatus),
        |message| message.set_msg_type(MessageType::MsgHeartbeat),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut message = append(&[(7, 3)]);
        change(&mut message);
        assert!(try_raft(message).is_err(), "change {number}");
    }
}

#[test]
fn counts_are_not_believed() {
    let bytes = encoded(&PeerMessage::Raft(Box::new(append(&[]))));
    let count_at = bytes.len() - 4;
    for count in [1, 2, i32::MAX, -1, -2] {
        let mut wrong = bytes.clone();
        wrong[count_at..].copy_from_slice(&count.to_be_bytes());
        let refused = decoded(&wrong);
        assert!(refused.is_err(), "{count}: {refused:?}");
    }
}

/// The bytes of version 1. Once it is released they do not change: see [`PEER_FORMAT`].
/// A change of membership, a message with every number, and one that announces an image.
fn golden_raft(term: u64) -> [Message; 3] {
    let mut changes = append(&[(7, 3)]);
    changes.entries[0].set_entry_type(EntryType::EntryConfChangeV2);
    changes.entries[0].data = Bytes::from_static(b"d");
    changes.entries[0].context = Bytes::from_static(b"c");
    let mut numbered = Message { reject: true, ..Message::default() };
    numbered.set_msg_type(MessageType::MsgHeartbeat);
    for ((_, part, _), number) in numbers(&mut numbered).into_iter().zip(1..) {
        *part = number;
    }
    numbered.context = Bytes::from_static(b"x");
    let mut announcing = Message { from: 2, term, ..Message::default() };
    announcing.set_msg_type(MessageType::MsgSnapshot);
    let metadata = announcing.mut_snapshot().mut_metadata();
    (metadata.index, metadata.term) = (50, 4);
    let mut state = ConfState { auto_leave: true, ..ConfState::default() };
    (state.voters, state.learners, state.learners_next) = (vec![1, 2], vec![3], vec![4]);
    metadata.set_conf_state(state);
    [changes, numbered, announcing]
}

#[test]
fn messages_are_written_as_their_version_has_them() {
    assert_eq!(PEER_FORMAT, 1);
    let batch = Bytes::from_static(b"ab");
    let stamp = |number| Stamp { process: 0x0a02, number };
    let (term, at_us) = (5, 6);
    let [changes, numbered, announcing] = golden_raft(term);
    let raft = |message| PeerMessage::Raft(Box::new(message));
    let golden = [
        (
            PeerMessage::Forward { term, batch: batch.clone() },
            "01 02 0000000000000005 00000002 6162",
        ),
        (PeerMessage::Ask { question: 11 }, "01 06 000000000000000b"),
        (PeerMessage::Recall { question: 11, promise: None }, "01 07 000000000000000b"),
        (
            PeerMessage::Recall {
                question: 11,
                promise: Some(Promise { term, index: 9, log_term: 4, vote: 2 }),
            },
            "01 07 000000000000000b 0000000000000005 0000000000000009 0000000000000004 \
             0000000000000002",
        ),
        (
            PeerMessage::Voters { question: 11, index: 9, voters: vec![2, 259] },
            "01 0a 000000000000000b 0000000000000009 0000000000000002 0000000000000103",
        ),
        (PeerMessage::Return { term, batch }, "01 04 0000000000000005 00000002 6162"),
        (
            PeerMessage::Ping { term, at_us, steady_ms: 12, heard: None },
            "01 05 0000000000000005 0000000000000006 000000000000000c 0000000000000000 \
             0000000000000000",
        ),
        (
            PeerMessage::Ping { term, at_us, steady_ms: 12, heard: Some(stamp(7)) },
            "01 05 0000000000000005 0000000000000006 000000000000000c 0000000000000a02 \
             0000000000000007",
        ),
        (
            PeerMessage::Touch {
                term,
                at_us,
                wall_ms: -3,
                stamp: stamp(8),
                base: 7,
                sessions: vec![9, -1],
            },
            "01 03 0000000000000005 0000000000000006 fffffffffffffffd 0000000000000a02 \
             0000000000000008 0000000000000007 0000000000000009 ffffffffffffffff",
        ),
        (
            raft(changes),
            "01 01 03 001f 0000000000000001 0000000000000002 0000000000000005 \
             0000000000000003 0000000000000006 00 00000000 \
             00000001 02 0000000000000003 0000000000000007 00000001 64 00000001 63",
        ),
        (
            raft(numbered),
            "01 01 08 01ff 0000000000000001 0000000000000002 0000000000000003 \
             0000000000000004 0000000000000005 0000000000000006 0000000000000007 \
             0000000000000008 0000000000000009 01 00000001 78 00000000",
        ),
        (
            raft(announcing),
            "01 01 07 0006 0000000000000002 0000000000000005 00 00000000 00000000 \
             0000000000000032 0000000000000004 01 00000002 0000000000000001 0000000000000002 \
             00000001 0000000000000003 00000000 00000001 0000000000000004",
        ),
    ];
    for (message, bytes) in golden {
        let hex: String = encoded(&message).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, bytes.replace(' ', ""), "{message:?}");
    }
    let types = TYPES.map(|(kind, _)| wire_type_of(kind));
    assert_eq!(types, [3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18]);
}

fn wire_type_of(kind: MessageType) -> u8 {
    let mut message = Message { from: 1, term: 1, ..Message::default() };
    message.set_msg_type(kind);
    encoded(&PeerMessage::Raft(Box::new(message)))[2]
}

#[test]
fn a_steady_clock_that_no_ensemble_has_come_to_is_refused() {
    for steady_ms in [-1, STEADY_MS_MAX + 1] {
        let bytes = encoded(&PeerMessage::Ping { term: 1, at_us: 2, steady_ms, heard: None });
        let refused = Malformed::new("steady clock", "is out of range");
        assert_eq!(decoded(&bytes), Err(refused));
    }
}

#[test]
fn a_later_version_is_refused() {
    let mut bytes = encoded(&PeerMessage::Ping { term: 1, at_us: 2, steady_ms: 3, heard: None });
    bytes[0] = PEER_FORMAT + 1;
    assert_eq!(decoded(&bytes), Err(Malformed::new("version", "is not known")));
}
