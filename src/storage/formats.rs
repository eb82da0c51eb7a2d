//! Which formats the files of a server have.
//!
//! *Owns* the numbers of the formats by the version of the ensemble, and which version this server writes.
//! *Invariants*: all that this program knows is read; what is written is of the version of the ensemble, so that the
//! release before can go on with the files until an operator has finished the upgrade; the file `identity` is the first
//! that has the formats of a new version, so that an earlier release refuses the directory at the first look. *Never*
//! raises the version of the ensemble: that is an entry of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lockkeeper_core::replica::txn_version::{FIRST, NEWEST};

/// The numbers in the heads of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The layout of the directory, in the file `identity`.
    pub(crate) identity: u32,
    /// Segments of the log.
    pub(crate) segment: u32,
    /// Images.
    pub(crate) image: u32,
    /// Manifests of the state's copy.
    pub(crate) manifest: u8,
}

/// Formats written at a version of the ensemble. Those of the second one differ in their numbers alone: the entries in
/// them carry rules.
pub(crate) const fn written_at(version: u8) -> Numbers {
    let later = version - FIRST;
    Numbers {
        identity: 3 + later as u32,
        segment: 1 + later as u32,
        image: 1 + later as u32,
        manifest: 2 + later,
    }
}

/// The last ones that this program reads.
pub(crate) const KNOWN: Numbers = written_at(NEWEST);

/// The formats that one server writes. Clones are the same.
#[derive(Clone, Debug)]
pub struct Formats(Arc<AtomicU8>);

impl Default for Formats {
    fn default() -> Self {
        Self::of(FIRST)
    }
}

impl Formats {
    /// Those of a version of the ensemble.
    pub(crate) fn of(version: u8) -> Self {
        Self(Arc::new(AtomicU8::new(version)))
    }

    pub(crate) fn set_version(&self, version: u8) {
        self.0.store(version, Ordering::Relaxed);
    }

    pub(crate) fn numbers(&self) -> Numbers {
        written_at(self.0.load(Ordering::Relaxed))
    }
}
