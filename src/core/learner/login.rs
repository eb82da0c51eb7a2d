//! QuorumAuth: the packets in which two servers of ZooKeeper prove who they are, before any other.
//!
//! *Owns* those packets and how far the proof is. *Invariant*: it is over only when the leader has proved that it knows
//! the password, too. *Never* shows a password.

use super::Ended;
use super::inbox::Inbox;
use super::packet::take;
use crate::proto::{Malformed, Writer as _};
use crate::sasl::{CNONCE_BYTES, ClientLogin, Dialogue, Disbelief, Next};

/// What each of these packets begins with. No quorum packet does.
const MAGIC: i64 = 0xa0db_cafe_cafe_1234_u64.wrapping_neg().cast_signed();
/// Longest token that is believed. Those of DIGEST-MD5 have a few hundred bytes.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// How far it is.
const IN_PROGRESS: i32 = 0;
const SUCCESS: i32 = 1;
const ERROR: i32 = -1;

/// The proof, as far as it is.
#[derive(Debug)]
pub(super) struct Login {
    dialogue: Dialogue<'static>,
}

impl Login {
    /// Begins it: appends the first packet.
    pub(super) fn new(login: ClientLogin, cnonce: [u8; CNONCE_BYTES], out: &mut Vec<u8>) -> Self {
        put(b"", out);
        Self { dialogue: Dialogue::with_server(login, cnonce) }
    }

    /// Reads the leader's next packet and answers it. True: it is over, and both sides have proved themselves. False:
    /// more bytes must come.
    ///
    /// # Errors
    /// One side has not.
    pub(super) fn step(&mut self, inbox: &mut Inbox, out: &mut Vec<u8>) -> Result<bool, Ended> {
        while let Some((status, token, length)) = decode(inbox.unread())? {
            if status == ERROR {
                return Err(Ended::Refused);
            }
            let next = self.dialogue.step(token)?;
            inbox.skip(length);
            match (status, next) {
                (IN_PROGRESS, Next::Send(answer)) => put(&answer, out),
                (SUCCESS, Next::Done) => return Ok(true),
                _ => return Err(Disbelief::NoProof.into()),
            }
        }
        Ok(false)
    }
}

/// Status, token and length of the packet that these bytes begin with.
type Decoded<'a> = Option<(i32, Option<&'a [u8]>, usize)>;

fn decode(bytes: &[u8]) -> Result<Decoded<'_>, Malformed> {
    let mut rest = bytes;
    let Some(magic) = take::<8>(&mut rest) else { return Ok(None) };
    if i64::from_be_bytes(magic) != MAGIC {
        return Err(Malformed::new("login", "the leader does not ask for one"));
    }
    let Some(status) = take::<4>(&mut rest) else { return Ok(None) };
    let status = i32::from_be_bytes(status);
    if ![IN_PROGRESS, SUCCESS, ERROR].contains(&status) {
        return Err(Malformed::new("status", "is none that a login has"));
    }
    let Some(length) = take::<4>(&mut rest).map(i32::from_be_bytes) else { return Ok(None) };
    if length == -1 {
        return Ok(Some((status, None, bytes.len() - rest.len())));
    }
    match usize::try_from(length) {
        Ok(length) if length <= TOKEN_BYTES_MAX => {
            let Some((token, rest)) = rest.split_at_checked(length) else { return Ok(None) };
            Ok(Some((status, Some(token), bytes.len() - rest.len())))
        }
        _ => Err(Malformed::new("token", "has a length that none has")),
    }
}

fn put(token: &[u8], out: &mut Vec<u8>) {
    out.put_long(MAGIC);
    out.put_int(IN_PROGRESS);
    out.put_buffer(Some(token));
}
