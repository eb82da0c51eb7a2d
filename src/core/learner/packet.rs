//! Quorum packets: what servers of ZooKeeper send each other, without a length in front.
//!
//! *Owns* how bytes of a quorum connection become packets, and packets bytes. *Invariants*: any bytes give a packet, a
//! wish for more bytes, or an error, never a panic; a kind that no leader sends is refused before its data is waited
//! for, and a length is compared with the bound of its kind. *Never* knows what a packet means.

use bytes::Bytes;

use super::Ended;
use crate::proto::jute::wire_len;
use crate::proto::{Malformed, Writer as _};
use crate::tree::Identity;
use crate::zookeeper::FIELD_BYTES_MAX;

/// Numbers of the kinds of packets (`Leader`).
pub mod kind {
    /// A client's request, to the leader.
    pub const REQUEST: i32 = 1;
    /// A transaction that is not committed yet.
    pub const PROPOSAL: i32 = 2;
    /// The learner has everything up to here.
    pub const ACK: i32 = 3;
    /// The oldest proposal is committed.
    pub const COMMIT: i32 = 4;
    /// A sign of life, and its answer.
    pub const PING: i32 = 5;
    /// Is this session open? And the answer.
    pub const REVALIDATE: i32 = 6;
    /// The answer to a sync.
    pub const SYNC: i32 = 7;
    /// A transaction that is committed, to an observer.
    pub const INFORM: i32 = 8;
    /// [`COMMIT`] of a reconfiguration.
    pub const COMMIT_AND_ACTIVATE: i32 = 9;
    /// The learner has everything that the leader had.
    pub const NEW_LEADER: i32 = 10;
    /// What a follower begins with.
    pub const FOLLOWER_INFO: i32 = 11;
    /// The learner is served from now on.
    pub const UP_TO_DATE: i32 = 12;
    /// What the learner lacks comes.
    pub const DIFF: i32 = 13;
    /// The learner has too much.
    pub const TRUNC: i32 = 14;
    /// A snapshot comes.
    pub const SNAP: i32 = 15;
    /// What an observer begins with.
    pub const OBSERVER_INFO: i32 = 16;
    /// What the leader begins with.
    pub const LEADER_INFO: i32 = 17;
    /// The answer to it.
    pub const ACK_EPOCH: i32 = 18;
    /// [`INFORM`] of a reconfiguration.
    pub const INFORM_AND_ACTIVATE: i32 = 19;
}

/// The version of the protocol that all of this is of.
pub const PROTOCOL_VERSION: i32 = 0x1_0000;
/// Longest data of packets that carry no transaction. The longest is the text of `/zookeeper/config`.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// Most identities of a packet, and their longest scheme or id. A leader sends none.
const IDENTITIES_MAX: i32 = 64;
const IDENTITY_BYTES_MAX: usize = 64 << 10;

/// A packet, as a leader sends it. Identities are read over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it is.
    pub kind: i32,
    /// Its transaction, epoch, or -1.
    pub zxid: i64,
    /// What it carries.
    pub data: Option<Bytes>,
}

impl Packet {
    /// Reads the packet that these bytes begin with, and how many of them it has. `None`: it is not complete.
    ///
    /// # Errors
    /// It is none that a leader sends to an observer.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, Ended> {
        let mut rest = bytes;
        let Some(kind) = take::<4>(&mut rest).map(i32::from_be_bytes) else { return Ok(None) };
        let Some(data_bytes_max) = data_bytes_max(kind) else {
            return Err(Ended::UnknownPacket { kind });
        };
        let Some(zxid) = take::<8>(&mut rest).map(i64::from_be_bytes) else { return Ok(None) };
        let Some(data) = take_buffer(&mut rest, "data", data_bytes_max)? else { return Ok(None) };
        let Some(count) = take::<4>(&mut rest).map(i32::from_be_bytes) else { return Ok(None) };
        if !(-1..=IDENTITIES_MAX).contains(&count) {
            return Err(Malformed::new("authinfo", "has a count that none has").into());
        }
        for _ in 0..2 * count.max(0) {
            if take_buffer(&mut rest, "authinfo", IDENTITY_BYTES_MAX)?.is_none() {
                return Ok(None);
            }
        }
        let data = data.map(Bytes::copy_from_slice);
        Ok(Some((Self { kind, zxid, data }, bytes.len() - rest.len())))
    }

    /// Its data, of which there must be some.
    ///
    /// # Errors
    /// There is none.
    pub fn need_data(&self) -> Result<Bytes, Malformed> {
        self.data.clone().ok_or(Malformed::new("data", "is null"))
    }
}

/// The name of a kind.
#[must_use]
pub fn name_of(kind: i32) -> &'static str {
    match kind {
        kind::REQUEST => "REQUEST",
        kind::PROPOSAL => "PROPOSAL",
        kind::ACK => "ACK",
        kind::COMMIT => "COMMIT",
        kind::PING => "PING",
        kind::REVALIDATE => "REVALIDATE",
        kind::SYNC => "SYNC",
        kind::INFORM => "INFORM",
        kind::COMMIT_AND_ACTIVATE => "COMMITANDACTIVATE",
        kind::NEW_LEADER => "NEWLEADER",
        kind::FOLLOWER_INFO => "FOLLOWERINFO",
        kind::UP_TO_DATE => "UPTODATE",
        kind::DIFF => "DIFF",
        kind::TRUNC => "TRUNC",
        kind::SNAP => "SNAP",
        kind::OBSERVER_INFO => "OBSERVERINFO",
        kind::LEADER_INFO => "LEADERINFO",
        kind::ACK_EPOCH => "ACKEPOCH",
        kind::INFORM_AND_ACTIVATE => "INFORMANDACTIVATE",
        _ => "an unknown packet",
    }
}

/// Longest data of a kind that a leader sends to an observer; `None`: it sends none of that kind.
fn data_bytes_max(kind: i32) -> Option<usize> {
    match kind {
        kind::PROPOSAL | kind::INFORM | kind::INFORM_AND_ACTIVATE => Some(FIELD_BYTES_MAX),
        kind::COMMIT
        | kind::COMMIT_AND_ACTIVATE
        | kind::PING
        | kind::REVALIDATE
        | kind::SYNC
        | kind::NEW_LEADER
        | kind::UP_TO_DATE
        | kind::DIFF
        | kind::TRUNC
        | kind::SNAP
        | kind::LEADER_INFO => Some(SMALL_BYTES_MAX),
        _ => None,
    }
}

/// Takes that many bytes from the front.
pub(super) fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (head, rest) = bytes.split_first_chunk::<COUNT>()?;
    *bytes = rest;
    Some(*head)
}

/// Takes a buffer from the front: `None` if it is not there yet, `Some(None)` if it is null.
#[allow(clippy::option_option, reason = "a null buffer is not one that has yet to come")]
fn take_buffer<'a>(
    bytes: &mut &'a [u8],
    field: &'static str,
    bytes_max: usize,
) -> Result<Option<Option<&'a [u8]>>, Malformed> {
    let Some(length) = take::<4>(bytes).map(i32::from_be_bytes) else { return Ok(None) };
    if length == -1 {
        return Ok(Some(None));
    }
    match usize::try_from(length) {
        Ok(length) if length <= bytes_max => {
            let Some((buffer, rest)) = bytes.split_at_checked(length) else { return Ok(None) };
            *bytes = rest;
            Ok(Some(Some(buffer)))
        }
        Ok(_) => Err(Malformed::new(field, "is longer than anything that is believed")),
        Err(_) => Err(Malformed::new(field, "has a negative length")),
    }
}

/// Appends a packet.
pub fn put(
    kind: i32,
    zxid: i64,
    data: Option<&[u8]>,
    identities: Option<&[Identity]>,
    out: &mut Vec<u8>,
) {
    out.put_int(kind);
    out.put_long(zxid);
    out.put_buffer(data);
    out.put_int(identities.map_or(-1, |identities| wire_len(identities.len())));
    for identity in identities.unwrap_or_default() {
        out.put_string(identity.scheme.as_str());
        out.put_string(identity.id.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_only_when_all_of_it_is_there() {
        let ids = [Identity::ip("127.0.0.1"), Identity::all_powerful()];
        for data in [None, Some(&b""[..]), Some(&b"abc"[..])] {
            for identities in [None, Some(&[][..]), Some(&ids[..])] {
                let mut bytes = Vec::new();
                put(kind::INFORM, -1, data, identities, &mut bytes);
                for end in 0..bytes.len() {
                    assert_eq!(Packet::decode(&bytes[..end]), Ok(None));
                }
                let length = bytes.len();
                bytes.push(7);
                let data = data.map(Bytes::copy_from_slice);
                let packet = Packet { kind: kind::INFORM, zxid: -1, data };
                assert_eq!(Packet::decode(&bytes), Ok(Some((packet, length))));
            }
        }
    }

    fn refused(kind: i32, length: i32) -> bool {
        let mut bytes = Vec::new();
        bytes.put_int(kind);
        bytes.put_long(0);
        bytes.put_int(length);
        Packet::decode(&bytes).is_err()
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_before_their_bytes_come() {
        for (kind, max) in [(kind::INFORM, FIELD_BYTES_MAX), (kind::NEW_LEADER, SMALL_BYTES_MAX)] {
            assert!(!refused(kind, wire_len(max)) && refused(kind, wire_len(max + 1)));
            assert!(!refused(kind, -1) && refused(kind, -2));
            assert!(refused(kind, i32::MAX) && refused(kind, i32::MIN));
        }
        for (count, expected) in [(0, false), (-2, true), (64, false), (65, true), (i32::MAX, true)]
        {
            let mut bytes = Vec::new();
            put(kind::SYNC, 0, None, None, &mut bytes);
            bytes.truncate(bytes.len() - 4);
            bytes.put_int(count);
            assert_eq!(Packet::decode(&bytes).is_err(), expected, "{count}");
        }
    }

    #[test]
    fn kinds_that_no_leader_sends_are_refused_by_their_number() {
        for kind in [-1, 0, 1, 3, 11, 16, 18, 20, 99, i32::MIN] {
            let bytes = kind.to_be_bytes();
            assert_eq!(Packet::decode(&bytes), Err(Ended::UnknownPacket { kind }));
            assert_eq!(Packet::decode(&bytes[..3]), Ok(None));
        }
    }
}
