//! Changes of Raft's membership as log entries hold them.
//!
//! *Owns* the reading of an entry's bytes. *Invariant*: total: bytes that are no change give an error.
//! Raft's leader writes them in protobuf; they come back from the disk and from other servers, and no
//! general parser is let near those.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

/// Changes in one entry.
const CHANGES_MAX: usize = 1024;

const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// Reads the payload of an entry; the empty one leaves a joint configuration.
///
/// # Errors
/// What is wrong with it.
pub(in crate::replica) fn decode(bytes: &[u8]) -> Result<ConfChangeV2, String> {
    let mut change = ConfChangeV2::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        match tag(&mut rest)? {
            (1, VARINT) => change.set_transition(match varint(&mut rest)? {
                0 => ConfChangeTransition::Auto,
                1 => ConfChangeTransition::Implicit,
                2 => ConfChangeTransition::Explicit,
                other => return Err(format!("a change of membership of the kind {other}")),
            }),
            (2, BYTES) => {
                if change.changes.len() == CHANGES_MAX {
                    return Err(format!("more than {CHANGES_MAX} changes of membership"));
                }
                let one = single(sized(&mut rest)?)?;
                change.mut_changes().push(one);
            }
            (3, BYTES) => change.context = sized(&mut rest)?.to_vec().into(),
            (field, kind) => {
                return Err(format!("a change of membership with the field {field}/{kind}"));
            }
        }
    }
    Ok(change)
}

fn single(mut rest: &[u8]) -> Result<ConfChangeSingle, String> {
    let mut one = ConfChangeSingle::default();
    while !rest.is_empty() {
        match tag(&mut rest)? {
            (1, VARINT) => one.set_change_type(match varint(&mut rest)? {
                0 => ConfChangeType::AddNode,
                1 => ConfChangeType::RemoveNode,
                2 => ConfChangeType::AddLearnerNode,
                other => return Err(format!("a change of one member of the kind {other}")),
            }),
            (2, VARINT) => one.node_id = varint(&mut rest)?,
            (field, kind) => {
                return Err(format!("a change of one member with the field {field}/{kind}"));
            }
        }
    }
    if one.node_id == 0 { Err("a change of no member".into()) } else { Ok(one) }
}

fn tag(rest: &mut &[u8]) -> Result<(u64, u64), String> {
    let tag = varint(rest)?;
    Ok((tag >> 3, tag & 7))
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let Some((byte, behind)) = rest.split_first() else {
            return Err("a change of membership that is cut off".into());
        };
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number that does not end in a change of membership".into())
}

fn sized<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = usize::try_from(varint(rest)?).unwrap_or(usize::MAX);
    let Some((part, behind)) = rest.split_at_checked(length) else {
        return Err("a change of membership that is cut off".into());
    };
    *rest = behind;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What raft writes for: joint, implicit; remove 258, add learner 70000.
    fn sample() -> (ConfChangeV2, Vec<u8>) {
        let mut change = ConfChangeV2::default();
        change.set_transition(ConfChangeTransition::Implicit);
        for (kind, id) in
            [(ConfChangeType::RemoveNode, 258), (ConfChangeType::AddLearnerNode, 70_000)]
        {
            let mut one = ConfChangeSingle::default();
            one.set_change_type(kind);
            one.node_id = id;
            change.mut_changes().push(one);
        }
        let bytes = vec![
            0x08, 1, 0x12, 5, 0x08, 1, 0x10, 0x82, 0x02, 0x12, 6, 0x08, 2, 0x10, 0xf0, 0xa2, 0x04,
        ];
        (change, bytes)
    }

    #[test]
    fn a_change_reads_back() {
        let (change, bytes) = sample();
        assert_eq!(decode(&bytes), Ok(change));
        assert_eq!(decode(&[]), Ok(ConfChangeV2::default()));
    }

    #[test]
    fn bytes_that_are_no_change_are_refused_or_read_but_never_panic() {
        let (_, bytes) = sample();
        for at in 0..bytes.len() {
            let _ = decode(&bytes[..at]);
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let _ = decode(&flipped);
            }
        }
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode(&[0xff; 20]).is_err());
    }
}
