//! The secrets that servers share, and the text of the file that holds them.
//!
//! *Owns* the form of that file: one secret a line, of base64 or hexadecimal digits; blank lines and what follows
//! `#` are passed over. *Invariants*: a secret has at least 32 bytes, and there are one to eight; no error and no
//! debug output shows a part of one.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::hmac;

use super::{ID_BYTES, Id, Nonce, is_same};

/// Shortest secret, bytes.
const SECRET_BYTES_MIN: usize = 32;
/// Longest secret, bytes.
const SECRET_BYTES_MAX: usize = 1024;
/// Most secrets: one is used, the others are of a rotation.
pub const SECRETS_MAX: usize = 8;

/// One or more secrets: the first one is used where the other server has it, too.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// What a file says.
    ///
    /// # Errors
    /// What is wrong with it, by the number of a line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut secrets: Vec<Vec<u8>> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(line, _)| line).trim();
            if line.is_empty() {
                continue;
            }
            let number = at + 1;
            let secret = decode(line)
                .ok_or_else(|| format!("line {number} is neither base64 nor hexadecimal"))?;
            if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
                let bytes = secret.len();
                return Err(format!(
                    "line {number} has {bytes} bytes: a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
                ));
            }
            if secrets.contains(&secret) {
                return Err(format!("line {number} is there twice"));
            }
            secrets.push(secret);
        }
        match secrets.len() {
            0 => Err("there is no secret in it: `lockkeeper peer-secret` makes one".to_owned()),
            1..=SECRETS_MAX => Ok(Self(secrets)),
            count => {
                Err(format!("there are {count} secrets in it, and at most {SECRETS_MAX} may be"))
            }
        }
    }

    /// How the secrets are named to one who has them, in a connection with this random number: who has none of
    /// them cannot tell whether two names are of the same one.
    pub fn ids(&self, nonce: &Nonce) -> Vec<Id> {
        self.0.iter().map(|secret| id(secret, nonce)).collect()
    }

    /// The first of these secrets that is among those that are offered.
    pub(super) fn first_of(&self, nonce: &Nonce, offered: &[Id]) -> Option<(&[u8], Id)> {
        let named = self.0.iter().map(|secret| (&secret[..], id(secret, nonce)));
        named.into_iter().find(|(_, id)| offered.contains(id))
    }

    /// The secret of this name.
    pub(super) fn named(&self, nonce: &Nonce, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().map(Vec::as_slice).find(|secret| is_same(&id(secret, nonce), name))
    }
}

/// A line with a new secret, of 32 random bytes.
pub fn new_line(random: &[u8; SECRET_BYTES_MIN]) -> String {
    format!("{}\n", STANDARD.encode(random))
}

fn decode(line: &str) -> Option<Vec<u8>> {
    let is_hex = line.len().is_multiple_of(2) && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex && line.len() >= 2 * SECRET_BYTES_MIN {
        let digits: Vec<char> = line.chars().collect();
        let byte = |pair: &[char]| Some(pair[0].to_digit(16)? * 16 + pair[1].to_digit(16)?);
        return digits
            .chunks(2)
            .map(|pair| byte(pair).and_then(|b| u8::try_from(b).ok()))
            .collect();
    }
    STANDARD.decode(line).or_else(|_| STANDARD_NO_PAD.decode(line)).ok()
}

fn id(secret: &[u8], nonce: &Nonce) -> Id {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(b"lockkeeper name of a secret, 1");
    context.update(nonce);
    let mut id = [0; ID_BYTES];
    id.copy_from_slice(&context.sign().as_ref()[..ID_BYTES]);
    id
}
