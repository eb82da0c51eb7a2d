//! A [`Mark`] as bytes, in images and in the state store.
//!
//! *Owns* the encoding: little-endian, fixed fields, then the members. *Never* checks its own
//! integrity: the caller that stores it does.

use lockkeeper_core::replica::{Mark, Membership};

/// Most voters, and most learners, a mark can name.
pub(crate) const MEMBERS_MAX: usize = 1024;

/// Appends `mark` to `out`.
///
/// # Panics
/// If it names more members than there can be server ids.
pub fn encode(mark: &Mark, out: &mut Vec<u8>) {
    out.extend_from_slice(&mark.index.to_le_bytes());
    out.extend_from_slice(&mark.term.to_le_bytes());
    out.extend_from_slice(&mark.zxid.to_le_bytes());
    out.extend_from_slice(&mark.digest.to_le_bytes());
    out.extend_from_slice(&mark.records.to_le_bytes());
    for members in [&mark.membership.voters, &mark.membership.learners] {
        let count = u32::try_from(members.len()).expect("membership is bounded by MEMBERS_MAX");
        out.extend_from_slice(&count.to_le_bytes());
        for member in members {
            out.extend_from_slice(&member.to_le_bytes());
        }
    }
}

/// Takes a mark off the front of `bytes`; `None` if there is none.
#[must_use]
pub fn decode(bytes: &mut &[u8]) -> Option<Mark> {
    let index = u64::from_le_bytes(take(bytes)?);
    let term = u64::from_le_bytes(take(bytes)?);
    let zxid = i64::from_le_bytes(take(bytes)?);
    let digest = u128::from_le_bytes(take(bytes)?);
    let records = u64::from_le_bytes(take(bytes)?);
    let voters = members(bytes)?;
    let learners = members(bytes)?;
    Some(Mark { index, term, zxid, digest, records, membership: Membership { voters, learners } })
}

fn members(bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let count = u32::from_le_bytes(take(bytes)?) as usize;
    if count > MEMBERS_MAX {
        return None;
    }
    (0..count).map(|_| take(bytes).map(u64::from_le_bytes)).collect()
}

/// Takes `N` bytes off the front.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_encoding_and_no_shorter_form_decodes() {
        let mark = Mark {
            index: 7,
            term: 3,
            zxid: -1,
            digest: u128::MAX - 5,
            records: 9,
            membership: Membership { voters: vec![1, 2, 3], learners: vec![4] },
        };
        let mut bytes = Vec::new();
        encode(&mark, &mut bytes);
        assert_eq!(decode(&mut &bytes[..]), Some(mark));
        for len in 0..bytes.len() {
            assert_eq!(decode(&mut &bytes[..len]), None);
        }
    }

    #[test]
    fn too_many_members_are_refused_before_memory_is_taken() {
        let mut bytes = Vec::new();
        encode(&Mark::default(), &mut bytes);
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&mut &bytes[..]), None);
    }
}
