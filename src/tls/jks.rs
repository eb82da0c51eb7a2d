//! JKS, the key stores of Java before version 9.
//!
//! *Owns* the layout: a magic number, a version, entries, and a SHA-1 over the password and all of it; each private key
//! is masked by a stream of SHA-1s over the password. *Invariants*: nothing is believed before the SHA-1 at the end
//! is right; decoding never panics, whatever the bytes. *Never* writes one.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha1::{Digest as _, Sha1};

const MAGIC: u32 = 0xfeed_feed;
/// That of JCEKS, another format with the same head.
const MAGIC_JCEKS: u32 = 0xcece_cece;
/// What Sun put into the SHA-1 at the end.
const SALT: &[u8] = b"Mighty Aphrodite";
const SHA1_BYTES: usize = 20;
/// The object identifier of Sun's protection of keys, 1.3.6.1.4.1.42.2.17.1.1, as DER.
const KEY_PROTECTOR: &[u8] =
    &[0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];
const TAG_KEY: u32 = 1;
const TAG_CERTIFICATE: u32 = 2;

/// What a store holds.
#[derive(Debug)]
pub(super) struct Entries {
    /// The first key, and the certificates that vouch for it.
    pub(super) key: Option<(PrivateKeyDer<'static>, Vec<CertificateDer<'static>>)>,
    pub(super) trusted: Vec<CertificateDer<'static>>,
}

/// Reads a store.
pub(super) fn read(bytes: &[u8], password: &str) -> Result<Entries, String> {
    let mut reader = Reader(bytes);
    match reader.int()? {
        MAGIC => {}
        MAGIC_JCEKS => {
            return Err("is a JCEKS store; `keytool -importkeystore -deststoretype PKCS12` \
                        makes a PKCS12 store of it"
                .to_owned());
        }
        _ => return Err("is no JKS store".to_owned()),
    }
    let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let body = bytes.len().checked_sub(SHA1_BYTES).ok_or(CUT)?;
    let (body, digest) = bytes.split_at(body);
    let expected = Sha1::new().chain_update(&password).chain_update(SALT).chain_update(body);
    if expected.finalize().as_slice() != digest {
        return Err("is damaged, or has another password".to_owned());
    }
    let mut reader = Reader(body.get(4..).ok_or(CUT)?);
    let version = reader.int()?;
    if !(1..=2).contains(&version) {
        return Err(format!("has the unknown version {version}"));
    }
    let mut entries = Entries { key: None, trusted: Vec::new() };
    for _ in 0..reader.int()? {
        let tag = reader.int()?;
        let _alias = reader.short_text()?;
        let _date = reader.take(8)?;
        match tag {
            TAG_KEY => {
                let masked = reader.block()?;
                let mut chain = Vec::new();
                for _ in 0..reader.int()? {
                    chain.push(certificate(&mut reader, version)?);
                }
                if entries.key.is_none() {
                    entries.key = Some((unmask(masked, &password)?, chain));
                }
            }
            TAG_CERTIFICATE => entries.trusted.push(certificate(&mut reader, version)?),
            _ => return Err(format!("has an entry of the unknown kind {tag}")),
        }
    }
    Ok(entries)
}

fn certificate(reader: &mut Reader<'_>, version: u32) -> Result<CertificateDer<'static>, String> {
    if version == 2 && reader.short_text()? != b"X.509" {
        return Err("has a certificate that is none of X.509".to_owned());
    }
    Ok(CertificateDer::from(reader.block()?.to_vec()))
}

/// A private key is `salt, key xor stream, SHA-1(password, key)`, as the only octet string of an
/// EncryptedPrivateKeyInfo.
fn unmask(info: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let protector = info.windows(KEY_PROTECTOR.len()).position(|part| part == KEY_PROTECTOR);
    let behind = protector.map(|at| &info[at + KEY_PROTECTOR.len()..]);
    let mut rest = behind.ok_or("protects its key by an unknown algorithm")?;
    if let [0x05, 0x00, parameters @ ..] = rest {
        rest = parameters;
    }
    let masked = octet_string(rest).ok_or(CUT)?;
    let (salt, rest) = masked.split_at_checked(SHA1_BYTES).ok_or(CUT)?;
    let (masked, digest) = rest.split_at_checked(rest.len().wrapping_sub(SHA1_BYTES)).ok_or(CUT)?;
    let mut key = Vec::with_capacity(masked.len());
    let mut block = Sha1::new().chain_update(password).chain_update(salt).finalize();
    for part in masked.chunks(SHA1_BYTES) {
        key.extend(part.iter().zip(block).map(|(masked, stream)| masked ^ stream));
        block = Sha1::new().chain_update(password).chain_update(block).finalize();
    }
    let expected = Sha1::new().chain_update(password).chain_update(&key).finalize();
    if expected.as_slice() != digest {
        return Err("its key has another password than the store".to_owned());
    }
    PrivateKeyDer::try_from(key)
        .map_err(|reason| format!("its private key cannot be read: {reason}"))
}

/// The content of the octet string at the front.
fn octet_string(bytes: &[u8]) -> Option<&[u8]> {
    let [0x04, length, rest @ ..] = bytes else { return None };
    match length {
        0..=0x7f => rest.get(..usize::from(*length)),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest.get(..length)
        }
        _ => None,
    }
}

/// What is said of a store whose bytes end too early.
const CUT: &str = "ends in the middle of an entry";

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<u32, String> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    fn short_text(&mut self) -> Result<&'a [u8], String> {
        let (length, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        self.take(u16::from_be_bytes(*length).into())
    }

    fn block(&mut self) -> Result<&'a [u8], String> {
        let length = self.int()?;
        self.take(usize::try_from(length).map_err(|_| CUT)?)
    }
}
