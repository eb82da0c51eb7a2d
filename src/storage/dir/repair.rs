//! Gives a directory a copy of the state again, when its log is whole and all copies are damaged.
//!
//! *Owns* the directory between two attempts to open it. The copy is an image of another server, which
//! is received into this directory (`image/images.rs`). *Invariants*: the log keeps every entry that this
//! server ever acknowledged, unless the image contains it; an image that the log continues replaces
//! nothing else, and behind one that lies beyond the log that begins anew, as `image/install.rs` says.
//! *Never* removes what is damaged: it is set aside, once there is something better.

use std::path::PathBuf;

use super::identity::Identity;
use super::open::Options;
use super::open_error::OpenError;
use super::place::{IMAGES, LOG, Lock, Place};
use crate::formats::Formats;
use crate::image::Images;
use crate::log::{Log, LogRecovery};
use lockkeeper_core::replica::Mark;

/// A directory that lacks a copy of the state.
#[derive(Debug)]
pub struct Mending {
    log: Log,
    found: LogRecovery,
    images: Images,
    #[expect(dead_code, reason = "held, not read")]
    lock: Lock,
}

impl Mending {
    /// Takes a directory that [`super::open`] has refused with [`OpenError::NothingToBeginFrom`].
    ///
    /// # Errors
    /// It cannot be read, or is not what it was any more.
    pub fn begin(place: &Place, options: &Options) -> Result<Self, OpenError> {
        let fs = &*place.fs;
        let lock = place.lock()?;
        let identity = Identity::load(fs, &place.data)?.ok_or_else(|| {
            let found = place.log.join(LOG).display().to_string();
            OpenError::NoIdentity { dir: place.data.clone(), found }
        })?;
        place.refuse_other_server(&identity, options.new.server_id)?;
        let formats = Formats::of(identity.version);
        let log_options = identity.log_options(options.segment_bytes, options.ensemble);
        let (log, found) = place.open_log(log_options, &formats)?;
        // It may have been lost as a whole.
        fs.create_dir(&place.data.join(IMAGES))?;
        fs.sync_dir(&place.data)?;
        let images = place.images(identity.cluster_id, &formats);
        images.remove_unfinished()?;
        Ok(Self { log, found, images, lock })
    }

    /// Where the image is to be received ([`Images::receive`]).
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// An image of an earlier index is of no use: the log does not continue it.
    #[must_use]
    pub fn index_min(&self) -> u64 {
        self.found.base.index
    }

    /// Makes the image of `mark`, which was received, the one to begin from; durable on return. All
    /// others are set aside: none of them was of use. Returns where they are now.
    ///
    /// # Errors
    /// It holds less than the log says is committed, and the log does not continue it; or the file
    /// system failed.
    pub fn install(mut self, mark: &Mark) -> Result<Vec<PathBuf>, OpenError> {
        let reach = self.found.base.index..=self.found.last.index;
        let continues = reach.contains(&mark.index) && self.log.term(mark.index)? == mark.term;
        self.log.begin()?;
        if !continues {
            self.log.reset(mark)?;
        }
        let mut set_aside = Vec::new();
        for index in self.images.list()? {
            set_aside.push(self.images.set_aside(index)?);
        }
        self.images.install(mark.index)?;
        Ok(set_aside)
    }
}
