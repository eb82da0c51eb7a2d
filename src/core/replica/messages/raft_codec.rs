//! Messages of Raft <-> bytes.
//!
//! *Owns* what stands behind the kind in a peer's message (`messages/peer_codec.rs`). *Invariants*: decoding is total
//! and canonical; the data of entries shares the memory of what was received. What is accepted is what
//! Raft may take from another server: types that are local to one server are malformed here, entries
//! are contiguous and their terms do not fall. *Never* lets protobuf's parser see bytes from a socket.
//!
//! ```text
//! raft     type u8 | fields u16 (which of the numbers are not 0) | those numbers, 8 bytes each
//!          | reject u8 | context | entries: count, each kind u8, term, index, data, context
//!          | image: only with the type that announces one: index, term, membership
//! ```

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};

use super::numbers::{
    CONTEXT_BYTES_MAX, ENTRY_BYTES_MIN, MEMBERS_MAX, MESSAGE_ENTRIES_MAX, bounded, bytes, number,
    put_number, raft_id, term,
};
use crate::proto::jute::wire_len;
use crate::proto::{Malformed, Reader, Writer};
use crate::replica::bounds::{INDEX_MAX, RAFT_ID_MAX, TERM_MAX};

/// The numbers of a message, in the order in which they are written, and what each may be at most.
pub(in crate::replica) fn numbers(message: &mut Message) -> [(&'static str, &mut u64, u64); 9] {
    [
        ("to", &mut message.to, RAFT_ID_MAX),
        ("from", &mut message.from, RAFT_ID_MAX),
        ("term", &mut message.term, TERM_MAX),
        ("log_term", &mut message.log_term, TERM_MAX),
        ("index", &mut message.index, INDEX_MAX),
        ("commit", &mut message.commit, INDEX_MAX),
        ("commit_term", &mut message.commit_term, TERM_MAX),
        ("request_snapshot", &mut message.request_snapshot, INDEX_MAX),
        ("reject_hint", &mut message.reject_hint, INDEX_MAX),
    ]
}

/// Appends the message to `out`.
pub(in crate::replica) fn encode(message: &Message, out: &mut Vec<u8>) {
    let parts = [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ];
    out.push(wire_type(message.get_msg_type()));
    let present = (0..parts.len()).filter(|at| parts[*at] != 0);
    let fields = present.clone().fold(0_u16, |fields, at| fields | 1 << at);
    out.extend_from_slice(&fields.to_be_bytes());
    for at in present {
        put_number(parts[at], out);
    }
    out.put_bool(message.reject);
    out.put_buffer(Some(&message.context));
    out.put_int(wire_len(message.entries.len()));
    for entry in &message.entries {
        out.push(match entry.get_entry_type() {
            EntryType::EntryNormal => 0,
            EntryType::EntryConfChange => 1,
            EntryType::EntryConfChangeV2 => 2,
        });
        put_number(entry.term, out);
        put_number(entry.index, out);
        out.put_buffer(Some(&entry.data));
        out.put_buffer(Some(&entry.context));
    }
    if message.get_msg_type() == MessageType::MsgSnapshot {
        let metadata = message.get_snapshot().get_metadata();
        put_number(metadata.index, out);
        put_number(metadata.term, out);
        let state = metadata.get_conf_state();
        out.put_bool(state.auto_leave);
        for part in [&state.voters, &state.learners, &state.voters_outgoing, &state.learners_next] {
            out.put_int(wire_len(part.len()));
            for id in part {
                put_number(*id, out);
            }
        }
    }
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// It is not a message that Raft may take from another server.
pub(in crate::replica) fn decode(reader: &mut Reader) -> Result<Message, Malformed> {
    let mut message = Message::default();
    message.set_msg_type(type_of(reader.byte("type")?)?);
    let fields = u16::from(reader.byte("fields")?) << 8 | u16::from(reader.byte("fields")?);
    let mut parts = numbers(&mut message);
    if fields >> parts.len() != 0 {
        return Err(Malformed::new("fields", "are not known"));
    }
    for (at, (name, part, most)) in parts.iter_mut().enumerate() {
        if fields & 1 << at != 0 {
            **part = bounded(reader, name, *most)?;
            if **part == 0 {
                return Err(Malformed::new(name, "is 0, which is not written"));
            }
        }
    }
    message.reject = flag(reader, "reject")?;
    message.context = context(reader)?;
    let count = reader.count_of("entries", ENTRY_BYTES_MIN, MESSAGE_ENTRIES_MAX)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(entry(reader)?);
    }
    message.set_entries(entries.into());
    if message.get_msg_type() == MessageType::MsgSnapshot {
        message.set_snapshot(announcement(reader)?);
    }
    check(&message)?;
    Ok(message)
}

/// What Raft takes for granted, and would answer with a panic.
fn check(message: &Message) -> Result<(), Malformed> {
    let kind = message.get_msg_type();
    // A message without a term counts as one of this very server.
    if message.term == 0 && kind != MessageType::MsgReadIndex {
        return Err(Malformed::new("term", "is missing"));
    }
    if message.from == 0 {
        return Err(Malformed::new("from", "is missing"));
    }
    match kind {
        MessageType::MsgAppend => {
            let mut before = (message.index, message.log_term);
            for entry in &message.entries {
                if entry.index != before.0 + 1 {
                    return Err(Malformed::new("entries", "are not contiguous"));
                }
                if entry.term < before.1 || entry.term > message.term {
                    return Err(Malformed::new("entries", "have a term out of order"));
                }
                before = (entry.index, entry.term);
            }
            Ok(())
        }
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => Ok(()),
        _ if message.entries.is_empty() => Ok(()),
        _ => Err(Malformed::new("entries", "do not belong here")),
    }
}

fn entry(reader: &mut Reader) -> Result<Entry, Malformed> {
    let kind = match reader.byte("entry kind")? {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChange,
        2 => EntryType::EntryConfChangeV2,
        _ => return Err(Malformed::new("entry kind", "is not known")),
    };
    let mut entry = Entry {
        term: term(reader)?,
        index: number(reader, "entry index")?,
        data: bytes(reader)?,
        context: context(reader)?,
        ..Entry::default()
    };
    entry.set_entry_type(kind);
    Ok(entry)
}

fn announcement(reader: &mut Reader) -> Result<Snapshot, Malformed> {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    metadata.index = number(reader, "image index")?;
    metadata.term = term(reader)?;
    let mut state = ConfState { auto_leave: flag(reader, "auto_leave")?, ..ConfState::default() };
    state.voters = ids(reader)?;
    state.learners = ids(reader)?;
    state.voters_outgoing = ids(reader)?;
    state.learners_next = ids(reader)?;
    metadata.set_conf_state(state);
    Ok(snapshot)
}

fn ids(reader: &mut Reader) -> Result<Vec<u64>, Malformed> {
    let count = reader.count_of("members", 8, MEMBERS_MAX)?;
    (0..count).map(|_| raft_id(reader, "member")).collect()
}

fn context(reader: &mut Reader) -> Result<Bytes, Malformed> {
    let context = bytes(reader)?;
    if context.len() > CONTEXT_BYTES_MAX {
        return Err(Malformed::new("context", "is too long"));
    }
    Ok(context)
}

/// 0 or 1 and nothing else: what decodes must encode to the same bytes.
fn flag(reader: &mut Reader, field: &'static str) -> Result<bool, Malformed> {
    match reader.byte(field)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::new(field, "is neither 0 nor 1")),
    }
}

/// Types that travel, and their numbers.
pub(in crate::replica) const TYPES: [(MessageType, u8); 13] = [
    (MessageType::MsgAppend, 3),
    (MessageType::MsgAppendResponse, 4),
    (MessageType::MsgRequestVote, 5),
    (MessageType::MsgRequestVoteResponse, 6),
    (MessageType::MsgSnapshot, 7),
    (MessageType::MsgHeartbeat, 8),
    (MessageType::MsgHeartbeatResponse, 9),
    (MessageType::MsgTransferLeader, 13),
    (MessageType::MsgTimeoutNow, 14),
    (MessageType::MsgReadIndex, 15),
    (MessageType::MsgReadIndexResp, 16),
    (MessageType::MsgRequestPreVote, 17),
    (MessageType::MsgRequestPreVoteResponse, 18),
];

/// A number without a meaning, for a type that does not travel: the receiver refuses it.
const TYPE_LOCAL: u8 = 0;

fn wire_type(kind: MessageType) -> u8 {
    TYPES.iter().find(|(known, _)| *known == kind).map_or(TYPE_LOCAL, |(_, number)| *number)
}

fn type_of(number: u8) -> Result<MessageType, Malformed> {
    let known = TYPES.iter().find(|(_, known)| *known == number);
    known.map(|(kind, _)| *kind).ok_or(Malformed::new("type", "is not one between servers"))
}
