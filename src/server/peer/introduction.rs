//! The codec of what a server says of itself in a hello and in the answer to one.
//!
//! *Owns* the two parts in which an [`Introduction`] travels: the first stands in front of the words of a
//! hello, for ever as it is; the second stands behind them, where earlier versions pass it over and say
//! nothing. *Invariants*: lists and texts are bounded before anything is allocated for them; what one
//! server encodes another decodes to the same. *Never* judges what is said (`peer/hello.rs`, `peer/founding.rs`).
//!
//! ```text
//! first    0 | nonce u64 | candidate u8, 0 for none, 255 for server 0    belongs to no ensemble yet
//!          1 | ensemble u128 | raft id u64 | count u32, each id u8, nonce u64    the founders
//!            | count u32, raft ids u64 | the same    voters and learners at the founding
//! second   0 | 1 | 2, ensemble u128, znodes u64      brings nothing, an unread disk, a state
//!          3, ensemble u128, term u64, index u64     the log of an ensemble that lost its majority
//!          16 more: an operator's word comes next    to found without some
//!            told u8 | count u8, ids u8 | count u8, each id u8, nonce u64    left out, and those that are there
//!          lines: string                             server lines: its own, or those that it began with
//! ```

use crate::config::{SERVER_LINES_BYTES_MAX, ServerSpec};
use crate::proto::{Malformed, Reader, Writer};
use crate::replica::Membership;
use crate::replica::bounds::{INDEX_MAX, RAFT_ID_MAX, TERM_MAX};
use crate::replica::founding::{Brings, Identified, Introduction, Position, Undecided, Word};

/// Most founders: one for each server id.
const FOUNDERS_MAX: usize = 255;
/// No candidate is known, and how server 0 is written, which versions before did not have.
const NO_CANDIDATE: u8 = 0;
const CANDIDATE_0: u8 = 255;
/// Added to the byte of what a server brings where an operator's word follows.
const HAS_WORD: u8 = 16;

/// The part in front of the words.
pub(super) fn encode_first(introduction: &Introduction, out: &mut Vec<u8>) {
    match introduction {
        Introduction::Founding(Undecided { nonce, candidate, .. }) => {
            out.push(0);
            out.extend_from_slice(&nonce.to_be_bytes());
            out.push(match candidate {
                None => NO_CANDIDATE,
                Some(0) => CANDIDATE_0,
                Some(id) => *id,
            });
        }
        Introduction::Founded(Identified { ensemble, raft_id, founders, initial, .. }) => {
            out.push(1);
            out.extend_from_slice(&ensemble.to_be_bytes());
            out.extend_from_slice(&raft_id.to_be_bytes());
            out.put_int(i32::try_from(founders.len()).expect("at most one for each server id"));
            for (id, nonce) in founders {
                out.push(*id);
                out.extend_from_slice(&nonce.to_be_bytes());
            }
            encode_ids(&initial.voters, out);
            encode_ids(&initial.learners, out);
        }
    }
}

/// The part behind the words.
pub(super) fn encode_second(introduction: &Introduction, out: &mut Vec<u8>) {
    let (brings, lines) = match introduction {
        Introduction::Founding(said) => (said.brings, &said.lines),
        Introduction::Founded(identity) => (Brings::Nothing, &identity.members),
    };
    let begins = out.len();
    match brings {
        Brings::Nothing => out.push(0),
        Brings::Unread => out.push(1),
        Brings::Position(Position { ensemble, term, index }) => {
            out.push(3);
            out.extend_from_slice(&ensemble.to_be_bytes());
            out.extend_from_slice(&term.to_be_bytes());
            out.extend_from_slice(&index.to_be_bytes());
        }
        Brings::State { ensemble, znodes } => {
            out.push(2);
            out.extend_from_slice(&ensemble.to_be_bytes());
            out.extend_from_slice(&znodes.to_be_bytes());
        }
    }
    if let Introduction::Founding(Undecided { word: Some(word), is_told, .. }) = introduction {
        out[begins] += HAS_WORD;
        encode_word(word, *is_told, out);
    }
    let line = |spec: &ServerSpec| format!("server.{}={spec}\n", spec.id);
    out.put_string(&lines.iter().map(line).collect::<String>());
}

fn encode_word(word: &Word, is_told: bool, out: &mut Vec<u8>) {
    let count = |len: usize| u8::try_from(len).expect("at most one for each server id");
    out.extend_from_slice(&[u8::from(is_told), count(word.without.len())]);
    out.extend_from_slice(&word.without);
    out.push(count(word.with.len()));
    for (id, nonce) in &word.with {
        out.push(*id);
        out.extend_from_slice(&nonce.to_be_bytes());
    }
}

/// The word, and whether it was said to that server.
fn decode_word(reader: &mut Reader) -> Result<(Word, bool), Malformed> {
    let is_told = reader.byte("told")? != 0;
    let count = reader.byte("left out")?;
    let without = (0..count).map(|_| reader.byte("left out")).collect::<Result<_, _>>()?;
    let count = reader.byte("there")?;
    let with =
        (0..count).map(|_| Ok((reader.byte("there")?, reader.long("nonce")?.cast_unsigned())));
    Ok((Word { without, with: with.collect::<Result<_, _>>()? }, is_told))
}

/// Reads the part in front of the words.
///
/// # Errors
/// It is cut off or no introduction.
pub(super) fn decode_first(reader: &mut Reader) -> Result<Introduction, Malformed> {
    match reader.byte("state")? {
        0 => {
            let nonce = reader.long("nonce")?.cast_unsigned();
            let candidate = match reader.byte("candidate")? {
                NO_CANDIDATE => None,
                CANDIDATE_0 => Some(0),
                id => Some(id),
            };
            Ok(Introduction::Founding(Undecided { nonce, candidate, ..Undecided::default() }))
        }
        1 => {
            let ensemble = wide(reader, "ensemble")?;
            let raft_id = raft_id(reader, "raft id")?;
            let count = reader.count_of("founders", 9, FOUNDERS_MAX)?;
            let mut founders = Vec::with_capacity(count);
            for _ in 0..count {
                let id = reader.byte("founder")?;
                founders.push((id, reader.long("nonce")?.cast_unsigned()));
            }
            let initial = Membership { voters: ids(reader)?, learners: ids(reader)? };
            let members = Vec::new();
            let identity = Identified { ensemble, raft_id, founders, initial, members };
            Ok(Introduction::Founded(identity))
        }
        _ => Err(Malformed::new("state", "is not known")),
    }
}

/// Reads the part behind the words into what the first one said, if there is one.
///
/// # Errors
/// It is cut off, or its lines are none of servers.
pub(super) fn decode_second(reader: &mut Reader, said: &mut Introduction) -> Result<(), Malformed> {
    if reader.remaining() == 0 {
        return Ok(());
    }
    let kind = reader.byte("brings")?;
    let found = match kind % HAS_WORD {
        _ if kind >= 2 * HAS_WORD => return Err(Malformed::new("brings", "is not known")),
        0 => Brings::Nothing,
        1 => Brings::Unread,
        2 => {
            let ensemble = wide(reader, "ensemble")?;
            Brings::State { ensemble, znodes: reader.long("znodes")?.cast_unsigned() }
        }
        3 => {
            let ensemble = wide(reader, "ensemble")?;
            let term = reader.long("term")?.cast_unsigned();
            let index = reader.long("index")?.cast_unsigned();
            if term > TERM_MAX || index > INDEX_MAX {
                return Err(Malformed::new("position", "is out of range"));
            }
            Brings::Position(Position { ensemble, term, index })
        }
        _ => return Err(Malformed::new("brings", "is not known")),
    };
    let (word, is_told) = match kind >= HAS_WORD {
        true => decode_word(reader).map(|(word, is_told)| (Some(word), is_told))?,
        false => (None, false),
    };
    let text = reader.string("lines")?;
    if text.as_bytes().len() > SERVER_LINES_BYTES_MAX {
        return Err(Malformed::new("lines", "are longer than any can be"));
    }
    let parsed: Result<Vec<ServerSpec>, String> =
        text.as_str().lines().map(ServerSpec::parse_line).collect();
    let parsed = parsed.map_err(|_| Malformed::new("lines", "are not those of servers"))?;
    if parsed.len() > FOUNDERS_MAX {
        return Err(Malformed::new("lines", "are more than there can be"));
    }
    match said {
        Introduction::Founding(said) => {
            (said.brings, said.lines) = (found, parsed);
            (said.word, said.is_told) = (word, is_told);
        }
        Introduction::Founded(identity) => identity.members = parsed,
    }
    Ok(())
}

fn encode_ids(ids: &[u64], out: &mut Vec<u8>) {
    out.put_int(i32::try_from(ids.len()).expect("at most one for each server id"));
    for id in ids {
        out.extend_from_slice(&id.to_be_bytes());
    }
}

fn ids(reader: &mut Reader) -> Result<Vec<u64>, Malformed> {
    let count = reader.count_of("members", 8, FOUNDERS_MAX)?;
    (0..count).map(|_| raft_id(reader, "member")).collect()
}

fn raft_id(reader: &mut Reader, field: &'static str) -> Result<u64, Malformed> {
    match reader.long(field)?.cast_unsigned() {
        id if id <= RAFT_ID_MAX => Ok(id),
        _ => Err(Malformed::new(field, "is out of range")),
    }
}

fn wide(reader: &mut Reader, field: &'static str) -> Result<u128, Malformed> {
    let high = reader.long(field)?.cast_unsigned();
    let low = reader.long(field)?.cast_unsigned();
    Ok(u128::from(high) << 64 | u128::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<ServerSpec> {
        [(1, "0.0.0.0:2888:3888;2181"), (2, "zk2:2888:3888:observer")]
            .map(|(id, text)| ServerSpec::parse(id, text).unwrap())
            .to_vec()
    }

    fn undecided(brings: Brings) -> Introduction {
        let (nonce, candidate) = (u64::MAX, Some(2));
        let lines = lines();
        Introduction::Founding(Undecided {
            nonce,
            candidate,
            brings,
            lines,
            ..Undecided::default()
        })
    }

    fn told(is_told: bool) -> Introduction {
        let word = Word { without: vec![0, 2], with: vec![(1, u64::MAX), (254, 0), (3, 7)] };
        let brings = Brings::State { ensemble: 1 << 100, znodes: 12 };
        let word = Some(word);
        Introduction::Founding(Undecided { brings, word, is_told, ..Undecided::default() })
    }

    fn decode(first: &[u8], second: &[u8]) -> Result<Introduction, Malformed> {
        let mut said = decode_first(&mut Reader::new(first.to_vec().into()))?;
        decode_second(&mut Reader::new(second.to_vec().into()), &mut said)?;
        Ok(said)
    }

    #[test]
    fn introductions_come_back_as_they_were_and_cut_ones_are_malformed() {
        let identity = Identified {
            ensemble: u128::MAX - 7,
            raft_id: 0x77_0000_0002,
            founders: vec![(1, 5), (2, u64::MAX)],
            initial: Membership { voters: vec![1, 2], learners: vec![3] },
            members: lines(),
        };
        for introduction in [
            Introduction::Founded(identity),
            undecided(Brings::Nothing),
            undecided(Brings::Unread),
            undecided(Brings::State { ensemble: 1 << 100, znodes: 12 }),
            undecided(Brings::Position(Position { ensemble: 1 << 99, term: 7, index: 1 << 40 })),
            told(true),
            told(false),
        ] {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            encode_first(&introduction, &mut first);
            encode_second(&introduction, &mut second);
            assert_eq!(decode(&first, &second), Ok(introduction));
            for at in 0..first.len() {
                assert!(decode(&first[..at], &second).is_err(), "{at}");
            }
            for at in 1..second.len() {
                assert!(decode(&first, &second[..at]).is_err(), "{at}");
            }
        }
    }

    #[test]
    fn server_0_as_the_candidate_is_another_thing_than_no_candidate() {
        for candidate in [None, Some(0), Some(1), Some(254)] {
            let said = Undecided { candidate, ..Undecided::default() };
            let (mut first, mut second) = (Vec::new(), Vec::new());
            encode_first(&Introduction::Founding(said.clone()), &mut first);
            encode_second(&Introduction::Founding(said.clone()), &mut second);
            assert_eq!(decode(&first, &second), Ok(Introduction::Founding(said)));
        }
    }

    #[test]
    fn an_earlier_version_says_nothing_of_what_it_brings_or_of_its_lines() {
        let mut first = Vec::new();
        encode_first(&undecided(Brings::Unread), &mut first);
        let Ok(Introduction::Founding(said)) = decode(&first, &[]) else { panic!() };
        assert_eq!((said.brings, said.lines), (Brings::Nothing, Vec::new()));
    }

    #[test]
    fn lines_that_are_none_are_malformed() {
        let mut first = Vec::new();
        encode_first(&undecided(Brings::Nothing), &mut first);
        for text in ["server.1=nonsense\n".to_owned(), "x".repeat(SERVER_LINES_BYTES_MAX + 1)] {
            let mut second = vec![0];
            second.put_string(&text);
            assert!(decode(&first, &second).is_err());
        }
    }
}
