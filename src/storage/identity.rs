//! Whose data directory this is, and of which format.
//!
//! *Owns* the file `identity`: a few lines of text and their checksum. *Invariants*: it is replaced
//! as a whole; it says `ready` only once there is a log, so that a log that is missing later is
//! never taken for one that was not made yet. *Never* guesses: a directory that has data but no
//! identity is refused.

use std::path::{Path, PathBuf};

use super::fs::{Fs, FsError, read_file};

/// Version of the layout of a data directory.
pub const FORMAT: u32 = 1;
/// Its name.
pub(super) const FILE: &str = "identity";
const TEMPORARY: &str = "identity.tmp";
const FIRST_LINE: &str = "lockkeeper data directory";
/// Most bytes of the file.
const BYTES_MAX: u64 = 4096;

/// Whose data it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The ensemble, a random number chosen when it was made.
    pub cluster_id: u128,
    /// The server.
    pub node_id: u64,
    /// Whether the log was made.
    pub ready: bool,
}

/// Why an identity cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A later version made the directory.
    #[error("{}: data format {format}, this program knows up to {FORMAT}: use the version of \
             lockkeeper that wrote it", path.display())]
    Future {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// The file is not what was written.
    #[error("{}: damaged: {what}; nothing was changed: restore the file from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Identity {
    /// Reads the identity of `dir`; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of a later version.
    pub fn load(fs: &dyn Fs, dir: &Path) -> Result<Option<Self>, IdentityError> {
        if !fs.list(dir)?.iter().any(|n| n == FILE) {
            return Ok(None);
        }
        let path = dir.join(FILE);
        let bytes = read_file(fs, &path, BYTES_MAX)?;
        match parse(&bytes) {
            Ok(identity) => Ok(Some(identity)),
            Err(Unusable::Future(format)) => Err(IdentityError::Future { path, format }),
            Err(Unusable::Damaged(what)) => Err(IdentityError::Damaged { path, what }),
        }
    }

    /// Writes it to `dir`, durable on return.
    ///
    /// # Errors
    /// The file system failed; what was there before still is.
    pub fn store(&self, fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
        let temporary = dir.join(TEMPORARY);
        if fs.list(dir)?.iter().any(|n| n == TEMPORARY) {
            fs.remove(&temporary)?;
        }
        let mut file = fs.create(&temporary)?;
        file.write_at(self.text().as_bytes(), 0)?;
        file.sync()?;
        fs.rename(&temporary, &dir.join(FILE))?;
        fs.sync_dir(dir)
    }

    fn text(&self) -> String {
        let body = format!(
            "{FIRST_LINE}\nformat {FORMAT}\ncluster {:032x}\nnode {}\nstate {}\n",
            self.cluster_id,
            self.node_id,
            if self.ready { "ready" } else { "new" }
        );
        let crc = crc32c::crc32c(body.as_bytes());
        format!("{body}crc32c {crc:08x}\n")
    }
}

enum Unusable {
    Future(u32),
    Damaged(String),
}

fn parse(bytes: &[u8]) -> Result<Identity, Unusable> {
    let damaged = |what: &str| Unusable::Damaged(what.to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(damaged("it does not begin like an identity"));
    }
    let mut value = |name: &str| {
        lines
            .next()
            .and_then(|l| l.strip_prefix(name)?.strip_prefix(' '))
            .ok_or_else(|| Unusable::Damaged(format!("no line '{name}'")))
    };
    let format = value("format")?.parse().map_err(|_| damaged("its format is not a number"))?;
    if format > FORMAT {
        return Err(Unusable::Future(format));
    }
    let cluster_id =
        u128::from_str_radix(value("cluster")?, 16).map_err(|_| damaged("no cluster id"))?;
    let node_id = value("node")?.parse().map_err(|_| damaged("its node is not a number"))?;
    let ready = match value("state")? {
        "ready" => true,
        "new" => false,
        other => return Err(Unusable::Damaged(format!("unknown state '{other}'"))),
    };
    let identity = Identity { cluster_id, node_id, ready };
    // The only text that is right is the one that would be written: it holds the checksum.
    if identity.text() == text { Ok(identity) } else { Err(damaged("checksum mismatch")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::OsFs;

    const IDENTITY: Identity = Identity { cluster_id: 0xabc, node_id: 3, ready: true };

    #[test]
    fn an_identity_survives_storing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Identity::load(&OsFs, dir.path()).unwrap(), None);
        for ready in [false, true] {
            let identity = Identity { ready, ..IDENTITY };
            identity.store(&OsFs, dir.path()).unwrap();
            assert_eq!(Identity::load(&OsFs, dir.path()).unwrap(), Some(identity));
        }
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let text = IDENTITY.text();
        for at in 0..text.len() {
            assert!(parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(parse(&bytes).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("{FIRST_LINE}\nformat 2\nsomething new\n");
        std::fs::write(dir.path().join(FILE), text).unwrap();
        let error = Identity::load(&OsFs, dir.path()).unwrap_err();
        assert!(matches!(error, IdentityError::Future { format: 2, .. }), "{error}");
        assert!(error.to_string().contains("data format 2, this program knows up to 1"));
    }
}
