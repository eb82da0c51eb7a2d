//! Which formats the files of a server have.
//!
//! *Owns* the numbers of the formats by the version of the ensemble, and which version this server writes.
//! *Invariants*: all that this program knows is read; what is written is of the version of the ensemble, so that the
//! release before can go on with the files until an operator has finished the upgrade; the file `identity` is the first
//! that has the formats of a new version, so that an earlier release refuses the directory at the first look. *Never*
//! raises the version of the ensemble: that is an entry of the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::dir::Identity;
use super::fs::{Fs, FsError};
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

/// What is written at a version of the ensemble. The second one is that of tests: it differs in its numbers alone.
pub(crate) const fn written_at(version: u8) -> Numbers {
    match version {
        FIRST => Numbers { identity: 3, segment: 1, image: 1, manifest: 2 },
        _ => Numbers { identity: 4, segment: 2, image: 2, manifest: 3 },
    }
}

/// The last ones that this program reads.
pub(crate) const KNOWN: Numbers = written_at(NEWEST);

/// The formats that one server writes. Clones are the same.
#[derive(Clone, Debug)]
pub struct Formats(Arc<AtomicU8>);

impl Default for Formats {
    fn default() -> Self {
        Self(Arc::new(AtomicU8::new(FIRST)))
    }
}

impl Formats {
    pub(crate) fn set_version(&self, version: u8) {
        self.0.store(version, Ordering::Relaxed);
    }

    pub(crate) fn numbers(&self) -> Numbers {
        written_at(self.0.load(Ordering::Relaxed))
    }
}

/// Goes on with the formats of a later version.
pub struct FormatSwitch {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    identity: Identity,
    formats: Formats,
}

impl FormatSwitch {
    pub(crate) fn new(fs: Arc<dyn Fs>, dir: PathBuf, identity: Identity, formats: Formats) -> Self {
        Self { fs, dir, identity, formats }
    }

    /// The version whose formats are written.
    pub fn version(&self) -> u8 {
        self.identity.version
    }

    /// The ensemble is at this version: what is written from here on has its formats.
    ///
    /// # Errors
    /// The file `identity` cannot be written. The formats are those of before then.
    pub fn follow(&mut self, version: u8) -> Result<(), FsError> {
        if version <= self.identity.version {
            return Ok(());
        }
        let identity = Identity { version, ..self.identity.clone() };
        identity.store(&*self.fs, &self.dir)?;
        self.identity = identity;
        self.formats.set_version(version);
        Ok(())
    }
}

impl std::fmt::Debug for FormatSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FormatSwitch").field("version", &self.version()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::dir::IdentityError;
    use crate::testing::TestFs;

    const DIR: &str = "/data";

    fn switch(fs: &TestFs) -> FormatSwitch {
        let identity = Identity { ready: true, ..Identity::standalone(7, 1) };
        fs.create_dir(Path::new(DIR)).unwrap();
        identity.store(fs, Path::new(DIR)).unwrap();
        FormatSwitch::new(Arc::new(fs.clone()), DIR.into(), identity, Formats::default())
    }

    #[test]
    fn the_identity_changes_first_and_only_when_the_version_rises() {
        let fs = TestFs::default();
        let mut switch = switch(&fs);
        switch.follow(FIRST).unwrap();
        let found = Identity::load(&fs, Path::new(DIR)).unwrap().unwrap();
        assert_eq!((found.version, switch.formats.numbers()), (FIRST, written_at(FIRST)));
        switch.follow(FIRST + 1).unwrap();
        assert_eq!(switch.formats.numbers(), written_at(FIRST + 1));
        assert_eq!(switch.version(), FIRST + 1);
    }

    /// What a release does with a directory that the one after it has gone on with.
    #[cfg(not(feature = "next-release"))]
    #[test]
    fn a_directory_of_the_next_version_is_refused_with_the_release_that_reads_it() {
        let fs = TestFs::default();
        switch(&fs).follow(FIRST + 1).unwrap();
        let refused = Identity::load(&fs, Path::new(DIR)).unwrap_err();
        let IdentityError::Future { format: 4, release: Some(release), .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(release, lockkeeper_core::replica::txn_version::RELEASE);
    }
}
