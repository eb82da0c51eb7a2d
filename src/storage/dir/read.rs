//! Reads the state of a data directory whose server does not run, and changes nothing.
//!
//! *Owns* what is allowed to be read although no server may start with it: what was set aside, and what was rolled
//! back. *Invariants*: no server runs on it meanwhile, as far as a lock can tell; what is damaged is refused as by a
//! start. *Never* writes.

use std::path::Path;
use std::sync::Arc;

use super::identity::Identity;
use super::open::{
    IMAGES, LOCK, LOG, Place, refuse_half_replaced, refuse_nameless, refuse_zookeeper,
};
use super::open_error::OpenError;
use super::recovery::Recovery;
use super::rolled_back::is_rolled_back;
use crate::checkpoint::Source;
use crate::image::Images;
use crate::log::{Log, LogOptions, SEGMENT_BYTES};
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
    pub is_rolled_back: bool,
}

/// Gives the state in `place` to `restore`, up to the last entry that is known to be committed.
///
/// # Errors
/// A server runs on it, there is no data, or it is damaged: see [`OpenError`].
pub fn read(place: Place, restore: &mut dyn Restore) -> Result<ReadState, OpenError> {
    let fs = Arc::clone(&place.fs);
    refuse_zookeeper(&*fs, &place)?;
    refuse_half_replaced(&*fs, &place)?;
    let _locks = lock_if_used(&place)?;
    let Some(identity) = Identity::load(&*fs, &place.data)? else {
        refuse_nameless(&*fs, &place)?;
        return Err(OpenError::NoData { dir: place.data });
    };
    if !identity.ready {
        return Err(OpenError::NoData { dir: place.data });
    }
    let is_rolled_back = is_rolled_back(&*fs, &place.data)?;
    let options = LogOptions {
        cluster_id: identity.cluster_id,
        node_id: identity.log_owner(),
        segment_bytes: SEGMENT_BYTES,
        ensemble: !identity.is_standalone(),
    };
    let (log, found) = Log::open(Arc::clone(&fs), &place.log.join(LOG), options)?;
    let images = Images::new(fs, &place.data.join(IMAGES), identity.cluster_id);
    let mut recovery = Recovery::new(place, log, found, images, restore, !identity.is_standalone());
    let begun = recovery.begin()?;
    let commit = recovery.found.hard_state.commit.max(begun.mark.index);
    recovery.entries(begun.mark.index, commit)?;
    let last = recovery.found.last.index;
    let tail = recovery.log.read(commit + 1, last, usize::MAX)?;
    let applied = (commit, recovery.log.term(commit)?);
    let membership = match begun.source {
        Source::Log => identity.membership.clone(),
        Source::Image(_) | Source::State(_) => begun.mark.membership.clone(),
    };
    let found = recovery.found;
    let hard_state = found.hard_state;
    Ok(ReadState {
        identity,
        membership,
        hard_state,
        applied,
        tail,
        torn: found.torn,
        is_rolled_back,
    })
}

/// A server that runs holds a lock, and there is no such file where none has run.
fn lock_if_used(place: &Place) -> Result<Vec<Box<dyn crate::fs::FileLock>>, OpenError> {
    let mut dirs: Vec<&Path> = vec![&place.data, &place.log];
    dirs.dedup();
    let mut held = Vec::new();
    for dir in dirs {
        if place.fs.list(dir)?.iter().any(|name| name == LOCK) {
            match place.fs.lock(&dir.join(LOCK))? {
                Some(lock) => held.push(lock),
                None => return Err(OpenError::InUse { dir: dir.to_owned() }),
            }
        }
    }
    Ok(held)
}
