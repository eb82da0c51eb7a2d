//! Files of PEM: certificates, and a private key that may be encrypted.
//!
//! *Owns* which blocks count: every one whose label has CERTIFICATE in it, and the first one whose label has PRIVATE
//! KEY in it, in the order of the file. *Invariants*: with a password the key must be encrypted and without one it
//! must not be, as in ZooKeeper; text between the blocks says nothing.

use pem::Pem;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::stores::KeyEntry;

/// All certificates of a file.
pub(super) fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let blocks = blocks(bytes)?.into_iter().filter(|block| block.tag().contains("CERTIFICATE"));
    Ok(blocks.map(|block| CertificateDer::from(block.into_contents())).collect())
}

/// The certificates of a file, and its key.
pub(super) fn key_entry(bytes: &[u8], password: &str) -> Result<KeyEntry, String> {
    let blocks = blocks(bytes)?;
    let key = blocks.iter().find(|block| block.tag().contains("PRIVATE KEY"));
    let key = private_key(key.ok_or("holds no private key")?, password)?;
    Ok(KeyEntry { key, chain: certificates(bytes)? })
}

/// The revocation lists of a file of PEM, or the one that it is.
pub(super) fn revocation_lists(
    bytes: Vec<u8>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    if !bytes.starts_with(b"-----") && !contains(&bytes, b"-----BEGIN") {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    let lists = blocks(&bytes)?.into_iter().filter(|block| block.tag().contains("CRL"));
    Ok(lists.map(|block| CertificateRevocationListDer::from(block.into_contents())).collect())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
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
