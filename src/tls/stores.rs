//! Key stores and trust stores: files of PEM, PKCS12 and JKS, as ZooKeeper takes them.
//!
//! *Owns* the reading of such a file: which key and chain it has, which certificates it trusts, and of PEM which blocks
//! count: every one whose label has CERTIFICATE in it, and the first one whose label has PRIVATE KEY in it, in the
//! order of the file; text between them says nothing.
//! *Invariants*: a password never shows in an error or in debug output; a file that holds not what is asked of it is
//! an error that names the file; nothing is guessed from the content: the type is what the configuration or the
//! file's suffix says; only of revocation lists both forms are taken.
//! *Never* decides whether a certificate is good for anything.
//! Reproduces `X509Util.loadKeyStore`, `PEMFileLoader` and `FileKeyStoreLoaderBuilderProvider`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use p12_keystore::Pkcs12Archive;
use pem::Pem;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::{TlsError, jks};

/// Longest file of keys, certificates or a password: what a mistaken path must not fill the memory with.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a file of keys or certificates is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// Text, with the certificates and the key one behind the other.
    Pem,
    /// What Java and OpenSSL write.
    Pkcs12,
    /// What Java wrote before.
    Jks,
}

impl StoreKind {
    /// By the suffix of a file.
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "pem" => Some(Self::Pem),
            "p12" => Some(Self::Pkcs12),
            "jks" => Some(Self::Jks),
            _ => None,
        }
    }
}

/// A password, or the file that has it. Shows nothing of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct PasswordSource {
    /// As it stands in the configuration.
    pub(crate) text: String,
    /// The file, which goes first.
    pub(crate) path: Option<PathBuf>,
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.text.is_empty() { "" } else { "(not shown)" };
        f.debug_struct("PasswordSource").field("text", &text).field("path", &self.path).finish()
    }
}

impl PasswordSource {
    /// Reads it. One line end behind it is none of it.
    fn read(&self) -> Result<String, TlsError> {
        let Some(path) = &self.path else { return Ok(self.text.clone()) };
        let bytes = read_file(path)?;
        let mut text = String::from_utf8(bytes).map_err(|_| TlsError::of(path, "is no text"))?;
        for end in ["\r\n", "\n", "\r"] {
            if let Some(rest) = text.strip_suffix(end) {
                text.truncate(rest.len());
                break;
            }
        }
        Ok(text)
    }
}

/// A file of keys or certificates, and what opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What it is; `None`: its suffix says so.
    pub(crate) kind: Option<StoreKind>,
    /// Of the store and of the key in it.
    pub(crate) password: PasswordSource,
}

/// A key with the certificates that vouch for it, the key's own first.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) chain: Vec<CertificateDer<'static>>,
}

impl Store {
    /// It, and what has its password.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path.as_path()).chain(self.password.path.as_deref())
    }

    /// The key of a key store, with its chain.
    ///
    /// # Errors
    /// The file cannot be read, is not of its type, has another password, or holds no key.
    pub(super) fn key(&self) -> Result<KeyEntry, TlsError> {
        let (kind, bytes, password) = self.read()?;
        let entry = match kind {
            StoreKind::Pem => key_of_pem(&bytes, &password),
            StoreKind::Jks => jks::read(&bytes, &password).and_then(|entries| {
                let (key, chain) = entries.key.ok_or("holds no private key")?;
                Ok(KeyEntry { key, chain })
            }),
            StoreKind::Pkcs12 => pkcs12(&bytes, &password).and_then(key_of_pkcs12),
        };
        let entry = entry.map_err(|reason| TlsError::of(&self.path, reason))?;
        match entry.chain.is_empty() {
            true => Err(TlsError::of(&self.path, "holds no certificate of its key")),
            false => Ok(entry),
        }
    }

    /// The certificates of a trust store.
    ///
    /// # Errors
    /// The file cannot be read, is not of its type, has another password, or trusts none.
    pub(super) fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let (kind, bytes, password) = self.read()?;
        let trusted = match kind {
            StoreKind::Pem => certificates_of_pem(&bytes),
            StoreKind::Jks => jks::read(&bytes, &password).map(|entries| entries.trusted),
            StoreKind::Pkcs12 => pkcs12(&bytes, &password).map(trusted_of_pkcs12),
        };
        let trusted = trusted.map_err(|reason| TlsError::of(&self.path, reason))?;
        if trusted.is_empty() {
            let hint = match kind {
                StoreKind::Pkcs12 => {
                    "; keytool marks those that are (keytool -importcert), OpenSSL does not: \
                     give a PEM file, or have keytool make the store"
                }
                StoreKind::Pem | StoreKind::Jks => "",
            };
            return Err(TlsError::of(&self.path, format!("holds no trusted certificate{hint}")));
        }
        Ok(trusted)
    }

    fn read(&self) -> Result<(StoreKind, Vec<u8>, String), TlsError> {
        let kind = self.kind.or_else(|| StoreKind::of(&self.path)).ok_or_else(|| {
            TlsError::of(
                &self.path,
                "has none of the suffixes .pem, .p12 and .jks, and no type is given",
            )
        })?;
        Ok((kind, read_file(&self.path)?, self.password.read()?))
    }
}

/// The whole of a file that is not larger than any of its kind.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let of = |error: std::io::Error| TlsError::of(path, error);
    if fs::metadata(path).map_err(of)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::of(path, format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    fs::read(path).map_err(of)
}

/// The revocation lists of a file of PEM, or the one of DER that it is.
///
/// # Errors
/// It cannot be read, is no PEM, or holds none.
pub(super) fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let bytes = read_file(path)?;
    let is_pem = |window: &[u8]| window == b"-----BEGIN";
    if !bytes.starts_with(b"-----") && !bytes.windows(b"-----BEGIN".len()).any(is_pem) {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    let blocks = blocks(&bytes).map_err(|reason| TlsError::of(path, reason))?;
    let lists = blocks.into_iter().filter(|block| block.tag().contains("CRL"));
    let lists: Vec<_> =
        lists.map(|block| CertificateRevocationListDer::from(block.into_contents())).collect();
    match lists.is_empty() {
        true => Err(TlsError::of(path, "holds no revocation list")),
        false => Ok(lists),
    }
}

/// All certificates of a file of PEM.
fn certificates_of_pem(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let blocks = blocks(bytes)?.into_iter().filter(|block| block.tag().contains("CERTIFICATE"));
    Ok(blocks.map(|block| CertificateDer::from(block.into_contents())).collect())
}

/// The certificates of a file of PEM, and its key. With a password that must be encrypted and without one it must not
/// be, as in ZooKeeper.
fn key_of_pem(bytes: &[u8], password: &str) -> Result<KeyEntry, String> {
    let blocks = blocks(bytes)?;
    let key = blocks.iter().find(|block| block.tag().contains("PRIVATE KEY"));
    let key = private_key(key.ok_or("holds no private key")?, password)?;
    Ok(KeyEntry { key, chain: certificates_of_pem(bytes)? })
}

fn blocks(bytes: &[u8]) -> Result<Vec<Pem>, String> {
    pem::parse_many(bytes).map_err(|error| format!("is no PEM: {error}"))
}

fn private_key(block: &Pem, password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let contents = block.contents();
    let of = |bytes: &[u8]| {
        PrivateKeyDer::try_from(bytes.to_vec())
            .map_err(|reason| format!("its private key cannot be read: {reason}"))
    };
    match (EncryptedPrivateKeyInfoRef::try_from(contents), password) {
        (Ok(_), "") => Err("its private key is encrypted, and no password is given".to_owned()),
        (Ok(encrypted), password) => {
            let key = encrypted.decrypt(password.as_bytes()).map_err(|error| {
                format!("its private key is not opened by this password: {error}")
            })?;
            of(key.as_bytes())
        }
        (Err(_), "") => of(contents),
        (Err(_), _) => Err("a password is given, but its private key is not encrypted".to_owned()),
    }
}

fn pkcs12(bytes: &[u8], password: &str) -> Result<Pkcs12Archive, String> {
    Pkcs12Archive::from_pkcs12(bytes, password)
        .map_err(|error| format!("is no PKCS12 store that this password opens: {error}"))
}

fn key_of_pkcs12(archive: Pkcs12Archive) -> Result<KeyEntry, String> {
    let Pkcs12Archive { keys, certs, .. } = archive;
    let key = keys.into_iter().next().ok_or("holds no private key")?;
    let own = certs.iter().find(|bag| {
        let (of_key, of_cert) = (key.local_key_id.as_ref(), bag.local_key_id.as_ref());
        of_key.zip(of_cert).is_some_and(|(key, cert)| key.as_ref() == cert.as_slice())
    });
    let Some(own) = own else { return Err("holds no certificate of its key".to_owned()) };
    let mut chain = vec![&own.cert];
    // Each issuer behind what it vouches for; one that comes up again ends the chain.
    while let Some(last) = chain.last()
        && last.issuer() != last.subject()
        && let Some(issuer) = certs.iter().find(|bag| bag.cert.subject() == last.issuer())
        && !chain.contains(&&issuer.cert)
    {
        chain.push(&issuer.cert);
    }
    let chain = chain.iter().map(|cert| CertificateDer::from(cert.as_der().to_vec())).collect();
    let key = PrivateKeyDer::try_from(key.key.as_der().to_vec())
        .map_err(|reason| format!("its private key cannot be read: {reason}"))?;
    Ok(KeyEntry { key, chain })
}

fn trusted_of_pkcs12(archive: Pkcs12Archive) -> Vec<CertificateDer<'static>> {
    let trusted = archive.certs.into_iter().filter(|bag| bag.trusted);
    trusted.map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect()
}
