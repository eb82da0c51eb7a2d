//! What this server demands of others before it believes them: the secrets of its file.
//!
//! *Owns* the file `lockkeeper.peerSecretFile` and what was read from it last. *Invariants*: a file that has changed is
//! read again when the next link is made; one that is wrong by then changes nothing, and that is said once; links
//! that were made go on. *Never* shows a secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::config::{Config, PeerSecurityKey};
use crate::peer_auth::{Nonce, Secrets};
use crate::server::error::StartError;

/// Longest file with secrets: eight of the longest, and words about them.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// How this server knows other servers. Without a file: by nothing.
#[derive(Debug, Default)]
pub(in crate::server) struct Security {
    file: Option<PathBuf>,
    is_transition: bool,
    read: Mutex<Read>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Read {
    secrets: Option<Arc<Secrets>>,
    /// Of the file that was looked at last.
    stamp: Option<Stamp>,
}

/// What tells one state of a file from another.
type Stamp = (SystemTime, u64);

impl Security {
    /// Reads the file that the configuration names.
    ///
    /// # Errors
    /// It cannot be read, or holds no secret.
    pub(in crate::server) fn open(config: &Config) -> Result<Self, StartError> {
        let security = &config.peer_security;
        let Some(path) = &security.secret_file else { return Ok(Self::default()) };
        let failed = |reason| StartError::PeerSecret { path: path.clone(), reason };
        // Before its content: a change between the two is read again.
        let stamp = stamp(path);
        let secrets = read(path).map_err(failed)?;
        let read = Mutex::new(Read { secrets: Some(Arc::new(secrets)), stamp });
        let is_transition = security.mode == PeerSecurityKey::Transition;
        Ok(Self { file: Some(path.clone()), is_transition, read })
    }

    /// The secrets for a new link; `None` on a server that has none.
    pub(super) fn secrets(&self) -> Option<Arc<Secrets>> {
        let path = self.file.as_ref()?;
        let now = stamp(path);
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if now != known.stamp {
            known.stamp = now;
            let file = path.display();
            match read(path) {
                Ok(secrets) => {
                    tracing::info!(%file, "the secrets for links between servers were read again");
                    known.secrets = Some(Arc::new(secrets));
                }
                Err(reason) => tracing::warn!(
                    %file,
                    "the changed file of lockkeeper.peerSecretFile is not used, the secrets before it are: {reason}"
                ),
            }
        }
        known.secrets.clone()
    }

    /// Whether a link without the secret is refused.
    pub(super) fn demands(&self) -> bool {
        self.file.is_some() && !self.is_transition
    }
}

/// A number that was never used before.
pub(super) fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(nonce)
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

fn read(path: &Path) -> Result<Secrets, String> {
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(text).map_err(|_| "it is no text".to_owned())?;
    Secrets::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_auth::new_line;

    #[test]
    fn a_changed_file_is_read_again_and_a_wrong_one_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = |path: &Path| {
            let text =
                format!("dataDir=/d\nclientPort=1\nlockkeeper.peerSecretFile={}\n", path.display());
            Config::parse("zoo.cfg", &text).unwrap()
        };
        assert!(Security::open(&config(file.path())).is_err(), "it is empty");
        assert!(Security::open(&config(Path::new("/there/is/none"))).is_err());
        let secrets = |bytes: &[u8]| {
            let lines: String = bytes.iter().map(|byte| new_line(&[*byte; 32])).collect();
            (lines.clone(), Secrets::parse(&lines).unwrap())
        };
        let (old, two) = (secrets(&[1]), secrets(&[2, 1]));
        fs::write(file.path(), &old.0).unwrap();
        let security = Security::open(&config(file.path())).unwrap();
        assert!(security.demands());
        assert_eq!(security.secrets().as_deref(), Some(&old.1));
        fs::write(file.path(), &two.0).unwrap();
        assert_eq!(security.secrets().as_deref(), Some(&two.1));
        fs::write(file.path(), "wrong").unwrap();
        assert_eq!(security.secrets().as_deref(), Some(&two.1));
        fs::remove_file(file.path()).unwrap();
        assert_eq!(security.secrets().as_deref(), Some(&two.1));
    }

    #[test]
    fn a_server_without_a_file_has_no_secret_and_demands_none() {
        assert_eq!(Security::default().secrets(), None);
        assert!(!Security::default().demands());
    }
}
