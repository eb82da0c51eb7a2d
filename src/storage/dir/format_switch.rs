//! The switch to the formats of a later version of the ensemble.
//!
//! *Owns* the order of it: the file `identity` is durable before anything is written in the new formats.

use std::path::PathBuf;
use std::sync::Arc;

use super::identity::Identity;
use crate::formats::Formats;
use crate::fs::{Fs, FsError};

/// See the module.
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

    /// The directory is that of this identity from here on, which is stored.
    pub fn identified(&mut self, identity: Identity) {
        self.identity = identity;
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

    use super::super::IdentityError;
    use super::*;
    use crate::formats::written_at;
    use crate::testing::TestFs;
    use lockkeeper_core::replica::txn_version::{FIRST, NEWEST};

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
    #[test]
    fn a_directory_of_the_next_version_is_refused_with_the_release_that_reads_it() {
        let fs = TestFs::default();
        switch(&fs).follow(NEWEST + 1).unwrap();
        let refused = Identity::load(&fs, Path::new(DIR)).unwrap_err();
        let IdentityError::Future { format: 5, release: Some(release), .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(release, lockkeeper_core::replica::txn_version::RELEASE);
    }
}
