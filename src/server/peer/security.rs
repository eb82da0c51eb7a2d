//! What this server demands of others before it believes them: certificates, the secrets of its file.
//!
//! *Owns* the file `lockkeeper.peerSecretFile` and what was read from it last, and whether links go through TLS.
//! *Invariants*: a file is looked at when a link is made, and what has changed in it counts from then on; one that is
//! wrong by then changes nothing, and that is said once; links that were made go on. *Never* shows a secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use twox_hash::XxHash3_128;

use crate::config::{Config, PeerSecurityKey};
use crate::peer_auth::{Nonce, Secrets};
use crate::server::error::StartError;
use crate::server::transport::{LinkTls, Stream};
use crate::tls::Reloadable;

/// Longest file with secrets: eight of the longest, and words about them.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// How this server knows other servers. Without a file: by nothing.
#[derive(Debug, Default)]
pub(in crate::server) struct Security {
    file: Option<PathBuf>,
    is_transition: bool,
    read: Mutex<Read>,
    tls: Option<LinkTls>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Read {
    secrets: Option<Arc<Secrets>>,
    /// A hash of the file as it was looked at last: two versions of it can have one length, and one time.
    stamp: Option<u128>,
}

impl Security {
    /// Reads the file that the configuration names.
    ///
    /// `tls`: what links go by, where they may go through TLS.
    ///
    /// # Errors
    /// It cannot be read, or holds no secret.
    pub(in crate::server) fn open(
        config: &Config,
        tls: Option<Arc<Reloadable>>,
    ) -> Result<Self, StartError> {
        let tls = tls.map(|source| LinkTls::new(&config.peer_tls, source));
        let security = &config.peer_security;
        let Some(path) = &security.secret_file else { return Ok(Self { tls, ..Self::default() }) };
        let failed = |reason| StartError::PeerSecret { path: path.clone(), reason };
        let text = text(path).map_err(failed)?;
        let secrets = Some(Arc::new(secrets_of(&text).map_err(failed)?));
        let read = Mutex::new(Read { secrets, stamp: Some(XxHash3_128::oneshot(&text)) });
        let is_transition = security.mode == PeerSecurityKey::Transition;
        Ok(Self { file: Some(path.clone()), is_transition, read, tls })
    }

    /// The secrets for a new link; `None` on a server that has none.
    pub(super) fn secrets(&self) -> Option<Arc<Secrets>> {
        let path = self.file.as_ref()?;
        let text = text(path);
        let now = text.as_deref().ok().map(XxHash3_128::oneshot);
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if now != known.stamp {
            known.stamp = now;
            let file = path.display();
            match text.and_then(|text| secrets_of(&text)) {
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

    /// What links go by where they go through TLS.
    pub(super) fn tls(&self) -> Option<&LinkTls> {
        self.tls.as_ref()
    }

    /// Whose files are to be followed.
    pub(in crate::server) fn certificates(&self) -> Option<Arc<Reloadable>> {
        self.tls.as_ref().map(|tls| Arc::clone(tls.source()))
    }

    /// Takes a connection: through TLS, if it begins so and that is offered.
    ///
    /// # Errors
    /// The handshake failed, or nothing came in time.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<Stream> {
        match &self.tls {
            Some(tls) => tls.accept(stream).await,
            None => Ok(Stream::Plain(stream)),
        }
    }

    /// Begins TLS on a connection that was made, if links go through it.
    ///
    /// # Errors
    /// The handshake failed, or took too long.
    pub(super) async fn connect(&self, stream: TcpStream, host: &str) -> std::io::Result<Stream> {
        match &self.tls {
            Some(tls) => tls.connect(stream, host).await,
            None => Ok(Stream::Plain(stream)),
        }
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

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    fs::read(path).map_err(|error| error.to_string())
}

fn secrets_of(text: &[u8]) -> Result<Secrets, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text".to_owned())?;
    Secrets::parse(text)
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
        assert!(Security::open(&config(file.path()), None).is_err(), "it is empty");
        assert!(Security::open(&config(Path::new("/there/is/none")), None).is_err());
        let secrets = |bytes: &[u8]| {
            let lines: String = bytes.iter().map(|byte| new_line(&[*byte; 32])).collect();
            (lines.clone(), Secrets::parse(&lines).unwrap())
        };
        let (old, two) = (secrets(&[1]), secrets(&[2, 1]));
        fs::write(file.path(), &old.0).unwrap();
        let security = Security::open(&config(file.path()), None).unwrap();
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
