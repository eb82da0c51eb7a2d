//! Reads the state of a data directory whose server does not run, and changes nothing.
//!
//! *Owns* what is allowed to be read although no server may start with it: what was set aside, and what was rolled
//! back. *Invariants*: no server runs on it meanwhile, as far as a lock can tell; what is damaged is refused as by a
//! start. *Never* writes.

use super::identity::Identity;
use super::open_error::OpenError;
use super::place::Place;
use super::recovery::{Recovered, Recovery};
use super::unusable::unusable;
use crate::formats::Formats;
use crate::log::SEGMENT_BYTES;
use lockkeeper_core::replica::{Entry, HardState, Membership, Restore};

/// What a directory holds.
#[derive(Debug)]
pub struct ReadState {
    /// Whose it is.
    pub identity: Identity,
    /// Who took part at the state that the reading began with: entries behind it may have changed that.
    pub membership: Membership,
    /// The hard state of the log.
    pub hard_state: HardState,
    /// Index and term of the last entry that is in the state: the last one of which this server knew that it is
    /// committed.
    pub applied: (u64, u64),
    /// The entries behind it, which are not in the state: a majority may have them or not.
    pub tail: Vec<Entry>,
    /// What was dropped at the end of the log, if a write was cut off there.
    pub torn: Option<String>,
    /// Whether the directory is marked as older than what its server had acknowledged.
    pub is_unusable: bool,
}

/// Gives the state in `place` to `restore`, up to the last entry that is known to be committed.
///
/// # Errors
/// A server runs on it, there is no data, or it is damaged: see [`OpenError`].
pub fn read(place: Place, restore: &mut dyn Restore) -> Result<ReadState, OpenError> {
    place.refuse_zookeeper()?;
    place.refuse_half_replaced()?;
    let _lock = place.lock_if_used()?;
    let identity = match Identity::load(&*place.fs, &place.data)? {
        Some(identity) if identity.ready => identity,
        Some(_) => return Err(OpenError::NoData { dir: place.data }),
        None => {
            place.refuse_nameless()?;
            return Err(OpenError::NoData { dir: place.data });
        }
    };
    let is_unusable = unusable(&*place.fs, &place.data)?.is_some();
    let options = identity.log_options(SEGMENT_BYTES, !identity.is_standalone());
    let formats = Formats::of(identity.version);
    let mut recovery = Recovery::begin(place, &identity, options, &formats, restore)?;
    let Recovered { membership, applied, tail, .. } = recovery.restore(&identity.membership)?;
    let found = recovery.found;
    let (hard_state, torn) = (found.hard_state, found.torn);
    Ok(ReadState { identity, membership, hard_state, applied, tail, torn, is_unusable })
}
