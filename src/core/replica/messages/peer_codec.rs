//! Messages between servers <-> bytes.
//!
//! *Owns* the encoding of [`PeerMessage`]. *Invariants*: decoding is total (no panic, no recursion, no
//! allocation from a count that the bytes do not back) and canonical (whatever decodes encodes to the
//! same bytes). *Never* knows what is in a message of Raft (`messages/raft_codec.rs`).
//!
//! ```text
//! message  version u8 | kind u8 | body
//! forward  term | batch
//! return   term | batch
//! ping     term | time | steady clock | stamp of the last report: process, number
//! ask      question, 8 bytes
//! recall   question | promise: nothing, or term | index | term of the entry | vote
//! compare  term | index before the window | last index
//! digests  definition u8 | index before the window | last index | its term | digest, 16 bytes | sum, 16 bytes
//! touch    term | time | wall clock | stamp | number of the report before | session ids, 8 bytes each
//! ```

use bytes::Bytes;
use raft::eraftpb::Entry;

use super::numbers::{ENTRY_BYTES_MIN, bytes, number, put_number, raft_id, term};
use super::peer::{PeerMessage, Promise, Stamp};
use super::{digest_codec, raft_codec};
use crate::proto::{Malformed, Reader, Writer};
use crate::replica::bounds::STEADY_MS_MAX;

/// Version of the format of messages. It is 1 until something is released: no server that speaks an earlier
/// form is to be met. From then on every change is another version, which is sent only to a server that has
/// said in its hello that it reads it, because servers are upgraded one after the other.
pub const PEER_FORMAT: u8 = 1;
/// Longest encoded message: one entry as long as entries may be, and a full batch beside it.
pub const MESSAGE_BYTES_MAX: usize = 384 << 20;
/// Most session ids in one message.
pub const TOUCHED_SESSIONS_MAX: usize = 1 << 22;

const KIND_RAFT: u8 = 1;
const KIND_FORWARD: u8 = 2;
const KIND_TOUCH: u8 = 3;
const KIND_RETURN: u8 = 4;
const KIND_PING: u8 = 5;
const KIND_ASK: u8 = 6;
const KIND_RECALL: u8 = 7;
const KIND_COMPARE: u8 = 8;
const KIND_DIGESTS: u8 = 9;
const KIND_VOTERS: u8 = 10;

/// Most voters in one message.
const VOTERS_MAX: usize = 1024;

/// A report of no session: version, kind, term, two times, stamp and the report before.
const TOUCH_BYTES_MIN: usize = 2 + 8 + 8 + 8 + 16 + 8;

impl PeerMessage {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(PEER_FORMAT);
        match self {
            Self::Raft(message) => {
                out.push(KIND_RAFT);
                raft_codec::encode(message, out);
            }
            Self::Ask { question } => {
                out.push(KIND_ASK);
                put_number(*question, out);
            }
            Self::Recall { question, promise } => {
                out.push(KIND_RECALL);
                put_number(*question, out);
                if let Some(Promise { term, index, log_term, vote }) = promise {
                    for number in [term, index, log_term, vote] {
                        put_number(*number, out);
                    }
                }
            }
            Self::Voters { question, index, voters } => {
                out.push(KIND_VOTERS);
                put_number(*question, out);
                put_number(*index, out);
                for voter in voters {
                    put_number(*voter, out);
                }
            }
            Self::Forward { term, batch } => {
                out.push(KIND_FORWARD);
                put_number(*term, out);
                out.put_buffer(Some(batch));
            }
            Self::Return { term, batch } => {
                out.push(KIND_RETURN);
                put_number(*term, out);
                out.put_buffer(Some(batch));
            }
            Self::Ping { term, at_us, steady_ms, heard } => {
                out.push(KIND_PING);
                put_number(*term, out);
                put_number(*at_us, out);
                out.put_long(*steady_ms);
                put_stamp(heard.unwrap_or_default(), out);
            }
            Self::Compare { term, window } => {
                out.push(KIND_COMPARE);
                put_number(*term, out);
                digest_codec::put_window(*window, out);
            }
            Self::Digests { report } => {
                out.push(KIND_DIGESTS);
                digest_codec::encode(report, out);
            }
            Self::Touch { term, at_us, wall_ms, stamp, base, sessions } => {
                out.push(KIND_TOUCH);
                put_number(*term, out);
                put_number(*at_us, out);
                out.put_long(*wall_ms);
                put_stamp(*stamp, out);
                put_number(*base, out);
                for session in sessions {
                    out.put_long(*session);
                }
            }
        }
    }

    /// Reads what [`PeerMessage::encode`] wrote; `payload` is all of it.
    ///
    /// # Errors
    /// It is not a message, or not one that a server may send to another.
    pub fn decode(payload: Bytes) -> Result<Self, Malformed> {
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed::new("message", "is too long"));
        }
        let mut reader = Reader::new(payload);
        if reader.byte("version")? != PEER_FORMAT {
            return Err(Malformed::new("version", "is not known"));
        }
        let message = match reader.byte("kind")? {
            KIND_RAFT => Self::Raft(Box::new(raft_codec::decode(&mut reader)?)),
            KIND_FORWARD => Self::Forward { term: term(&mut reader)?, batch: bytes(&mut reader)? },
            KIND_RETURN => Self::Return { term: term(&mut reader)?, batch: bytes(&mut reader)? },
            KIND_PING => ping(&mut reader)?,
            KIND_ASK => Self::Ask { question: reader.long("question")?.cast_unsigned() },
            KIND_RECALL => recall(&mut reader)?,
            KIND_VOTERS => voters(&mut reader)?,
            KIND_COMPARE => {
                let term = term(&mut reader)?;
                Self::Compare { term, window: digest_codec::window(&mut reader)? }
            }
            KIND_DIGESTS => Self::Digests { report: digest_codec::decode(&mut reader)? },
            KIND_TOUCH => return touch(&mut reader),
            _ => return Err(Malformed::new("kind", "is not known")),
        };
        if reader.remaining() > 0 {
            return Err(Malformed::new("message", "has trailing bytes"));
        }
        Ok(message)
    }

    /// About how many bytes [`PeerMessage::encode`] appends.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Raft(message) => {
                let entry = |e: &Entry| ENTRY_BYTES_MIN + e.data.len() + e.context.len();
                let entries = message.entries.iter().map(entry).sum::<usize>();
                128 + message.context.len() + entries
            }
            Self::Forward { batch, .. } | Self::Return { batch, .. } => 16 + batch.len(),
            Self::Ping { .. } | Self::Ask { .. } | Self::Recall { .. } => TOUCH_BYTES_MIN,
            Self::Voters { voters, .. } => TOUCH_BYTES_MIN + 8 * voters.len(),
            Self::Compare { .. } | Self::Digests { .. } => digest_codec::BYTES,
            Self::Touch { sessions, .. } => TOUCH_BYTES_MIN + 8 * sessions.len(),
        }
    }
}

fn recall(reader: &mut Reader) -> Result<PeerMessage, Malformed> {
    let question = reader.long("question")?.cast_unsigned();
    if reader.remaining() == 0 {
        return Ok(PeerMessage::Recall { question, promise: None });
    }
    let (term_of, index) = (term(reader)?, number(reader, "index")?);
    let promise =
        Promise { term: term_of, index, log_term: term(reader)?, vote: raft_id(reader, "vote")? };
    Ok(PeerMessage::Recall { question, promise: Some(promise) })
}

fn voters(reader: &mut Reader) -> Result<PeerMessage, Malformed> {
    let (question, index) = (reader.long("question")?.cast_unsigned(), number(reader, "index")?);
    let mut voters = Vec::new();
    while reader.remaining() > 0 {
        if voters.len() == VOTERS_MAX {
            return Err(Malformed::new("voters", "are too many"));
        }
        voters.push(raft_id(reader, "voter")?);
    }
    Ok(PeerMessage::Voters { question, index, voters })
}

fn ping(reader: &mut Reader) -> Result<PeerMessage, Malformed> {
    let (term, at_us) = (term(reader)?, number(reader, "time")?);
    let steady_ms = reader.long("steady clock")?;
    if !(0..=STEADY_MS_MAX).contains(&steady_ms) {
        return Err(Malformed::new("steady clock", "is out of range"));
    }
    let heard = Some(stamp(reader)?).filter(|stamp| *stamp != Stamp::default());
    Ok(PeerMessage::Ping { term, at_us, steady_ms, heard })
}

fn put_stamp(stamp: Stamp, out: &mut Vec<u8>) {
    out.put_long(stamp.process.cast_signed());
    put_number(stamp.number, out);
}

fn stamp(reader: &mut Reader) -> Result<Stamp, Malformed> {
    let process = reader.long("process")?.cast_unsigned();
    Ok(Stamp { process, number: number(reader, "number of a report")? })
}

fn touch(reader: &mut Reader) -> Result<PeerMessage, Malformed> {
    let (term, at_us) = (term(reader)?, number(reader, "time")?);
    let wall_ms = reader.long("wall clock")?;
    let stamp = stamp(reader)?;
    let base = number(reader, "number of the report before")?;
    let count = reader.remaining() / 8;
    if count * 8 != reader.remaining() {
        return Err(Malformed::new("sessions", "end within a session"));
    }
    if count > TOUCHED_SESSIONS_MAX {
        return Err(Malformed::new("sessions", "are too many"));
    }
    let sessions = (0..count).map(|_| reader.long("session")).collect::<Result<_, _>>()?;
    Ok(PeerMessage::Touch { term, at_us, wall_ms, stamp, base, sessions })
}

#[cfg(test)]
mod tests;
