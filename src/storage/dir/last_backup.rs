//! When the last good backup of a data directory was taken: known to the process after the one that made it.
//!
//! *Owns* the file `last-backup`. *Never* refuses a start: a file that cannot be read counts as none, because nothing
//! but what operators see depends on it.

use std::path::Path;

use crate::fs::{Fs, FsError, read_file};

const FILE: &str = "last-backup";
const TEMPORARY: &str = "last-backup.tmp";
/// Longest file, bytes.
const BYTES_MAX: u64 = 256;

/// A backup that a client has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupMade {
    /// When it was complete, milliseconds since the epoch.
    pub wall_ms: i64,
    /// zxid of the last transaction in it.
    pub zxid: i64,
    /// Its size.
    pub bytes: u64,
}

impl BackupMade {
    /// That of the data directory `dir`, if one is known.
    pub fn load(fs: &dyn Fs, dir: &Path) -> Option<Self> {
        let bytes = read_file(fs, &dir.join(FILE), BYTES_MAX).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let mut words = text.split_whitespace();
        let wall_ms = words.next()?.parse().ok()?;
        let zxid = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        Some(Self { wall_ms, zxid, bytes })
    }

    /// Leaves word of it.
    ///
    /// # Errors
    /// The file system failed: the next process knows of an earlier one.
    pub fn store(&self, fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
        let (path, new) = (dir.join(FILE), dir.join(TEMPORARY));
        if fs.has(dir, TEMPORARY)? {
            fs.remove(&new)?;
        }
        let mut file = fs.create(&new)?;
        let Self { wall_ms, zxid, bytes } = self;
        file.write_at(format!("{wall_ms} {zxid} {bytes}\n").as_bytes(), 0)?;
        fs.rename(&new, &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsFs;

    #[test]
    fn the_next_process_knows_of_the_last_backup() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(BackupMade::load(&OsFs, dir.path()), None);
        for wall_ms in [5, 7] {
            let made = BackupMade { wall_ms, zxid: 1 << 32, bytes: 9 };
            made.store(&OsFs, dir.path()).unwrap();
            assert_eq!(BackupMade::load(&OsFs, dir.path()), Some(made));
        }
        std::fs::write(dir.path().join(FILE), "who knows\n").unwrap();
        assert_eq!(BackupMade::load(&OsFs, dir.path()), None);
    }
}
