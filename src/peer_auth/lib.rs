//! Peer authentication: the challenge-response by which two servers prove that they share a secret.
//!
//! *Owns* the secrets, the proof, the keys of a connection and the tag of each of its frames. It is a value without
//! clock, socket or thread: the caller brings the random numbers and moves the bytes. *Invariants*: the proof and
//! the keys depend on every byte of the hello of the server that connects (its id, what the connection is for, its
//! ensemble) and of the challenge of the one that accepts (its id), and on a random number of each; a key serves one
//! direction of one connection; a frame is taken once, in its place, unchanged. *Never* shows a secret or a key.
//!
//! ```text
//! connects                                            accepts
//! hello, with the offer: nonce, an id of each secret -->
//!                     <-- challenge: server u8 | nonce | id of the secret    the first of its own that was offered
//! proof                                             -->                      nothing was believed before it
//!                     <-- answer, with a tag: the proof of the one that accepts
//! every frame behind that has a tag, in both directions
//! ```
//!
//! proof, keys: HKDF-SHA256 of the secret, salted with SHA-256 of hello and challenge; one label for each role, so
//! that what one side says is of no use in the other's place. tag: HMAC-SHA256 of the frame's number and its bytes,
//! cut to 16 bytes. The ensemble of the one that connects is in its hello, that of the other in its answer, and
//! the caller compares both.
//!
//! Protected are integrity and authenticity, not secrecy: who listens on the network reads all of it. Without that
//! there is no forward secrecy to lose. Who has the secret is every server at once: a server is not protected
//! against another one that has it. That a connection is cut short is seen at its end by the protocol above.

#![deny(unreachable_pub)]
#![deny(missing_docs)]
#![allow(rustdoc::private_intra_doc_links, reason = "its readers are those who change it")]

#[macro_use]
extern crate lockkeeper_core;

mod secrets;

use std::fmt;

use ring::digest::{Context, SHA256};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;

pub use secrets::{SECRETS_MAX, Secrets, new_line};

/// Bytes of the random number of each side.
pub const NONCE_BYTES: usize = 32;
/// Bytes of what names a secret to one who has it.
pub const ID_BYTES: usize = 8;
/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 1 + NONCE_BYTES + ID_BYTES;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes that a tag adds to a frame.
pub const TAG_BYTES: usize = 16;

/// A random number of one side.
pub type Nonce = [u8; NONCE_BYTES];
/// What names a secret in one connection.
pub type Id = [u8; ID_BYTES];

/// Why a connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The challenge is not one that answers the offer.
    Challenge,
    /// The proof is wrong.
    Proof,
    /// The tag of a frame is wrong: it was changed, or it is not the next one.
    Tag,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Challenge => "its challenge does not answer what was offered",
            Self::Proof => "it did not prove that it has the secret that it offered",
            Self::Tag => {
                "a frame is not what a server with the secret sent here next: it was changed, left out or sent again"
            }
        })
    }
}

/// The side that connects, before the challenge came.
#[derive(Debug)]
pub struct Connecting<'a> {
    /// The secrets that were offered.
    pub secrets: &'a Secrets,
    /// The server that is meant.
    pub server: u8,
    /// Its own random number, which the hello holds.
    pub nonce: Nonce,
    /// All of its hello.
    pub hello: &'a [u8],
}

impl Connecting<'_> {
    /// Answers a challenge: the proof, and what the frames of the connection are sealed with.
    ///
    /// # Errors
    /// It is none, or another server's.
    pub fn answer(self, challenge: &[u8]) -> Result<([u8; PROOF_BYTES], Seals), Broken> {
        let id = challenge.get(1 + NONCE_BYTES..).ok_or(Broken::Challenge)?;
        let server = challenge.first().copied();
        if server != Some(self.server) && !mutant!("peer-auth-any-server") {
            return Err(Broken::Challenge);
        }
        let secret = self.secrets.named(&self.nonce, id).ok_or(Broken::Challenge)?;
        let keys = Keys::new(secret, self.hello, challenge);
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(hmac::sign(&keys.proof, PROOF_LABEL).as_ref());
        Ok((proof, Seals { send: Some(keys.to_acceptor), receive: Some(keys.to_connector) }))
    }
}

/// The side that accepts, before the proof came.
#[derive(Debug)]
pub struct Accepting(Keys);

impl Accepting {
    /// Challenges the sender of `hello`, which offers these secrets with its random number; `None`: this server
    /// has none of them.
    pub fn challenge(
        secrets: &Secrets,
        (server, nonce): (u8, &Nonce),
        hello: &[u8],
        (offered, ids): (&Nonce, &[Id]),
    ) -> Option<(Self, [u8; CHALLENGE_BYTES])> {
        let (secret, id) = secrets.first_of(offered, ids)?;
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[0] = server;
        challenge[1..=NONCE_BYTES].copy_from_slice(nonce);
        challenge[1 + NONCE_BYTES..].copy_from_slice(&id);
        Some((Self(Keys::new(secret, hello, &challenge)), challenge))
    }

    /// Judges the proof: what the frames of the connection are sealed with.
    ///
    /// # Errors
    /// It is wrong.
    pub fn check(self, proof: &[u8]) -> Result<Seals, Broken> {
        let Self(keys) = self;
        // In constant time.
        let is_right = hmac::verify(&keys.proof, PROOF_LABEL, proof).is_ok();
        if is_right || mutant!("peer-auth-any-proof") {
            return Ok(Seals { send: Some(keys.to_connector), receive: Some(keys.to_acceptor) });
        }
        Err(Broken::Proof)
    }
}

/// What the frames of a connection are sealed with; nothing on one that is plain.
#[derive(Debug, Default)]
pub struct Seals {
    /// For what is sent.
    pub send: Option<Seal>,
    /// For what comes.
    pub receive: Option<Seal>,
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Seal {
    key: hmac::Key,
    /// Of the next frame.
    number: u64,
}

impl Seal {
    fn new(key: hmac::Key) -> Self {
        Self { key, number: 0 }
    }

    /// Appends the tag of a frame that stands behind `start`.
    pub fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let tag = self.sign(&out[start..]);
        out.extend_from_slice(&tag.as_ref()[..TAG_BYTES]);
        self.number += 1;
    }

    /// Judges a frame and the tag behind it: the length of the frame without it.
    ///
    /// # Errors
    /// It is not the next frame of the other side.
    pub fn open(&mut self, sealed: &[u8]) -> Result<usize, Broken> {
        let length = sealed.len().checked_sub(TAG_BYTES).ok_or(Broken::Tag)?;
        let (frame, tag) = sealed.split_at(length);
        let expected = self.sign(frame);
        if !is_same(&expected.as_ref()[..TAG_BYTES], tag) && !mutant!("peer-auth-any-tag") {
            return Err(Broken::Tag);
        }
        self.number += 1;
        Ok(length)
    }

    fn sign(&self, frame: &[u8]) -> hmac::Tag {
        let number = if mutant!("peer-auth-any-order") { 0 } else { self.number };
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&number.to_be_bytes());
        context.update(frame);
        context.sign()
    }
}

/// Compares in a time that depends on the lengths alone.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differs) == 0
}

/// What both sides make of the secret, the hello and the challenge.
#[derive(Debug)]
struct Keys {
    proof: hmac::Key,
    to_acceptor: Seal,
    to_connector: Seal,
}

impl Keys {
    fn new(secret: &[u8], hello: &[u8], challenge: &[u8]) -> Self {
        let mut transcript = Context::new(&SHA256);
        transcript.update(TRANSCRIPT_LABEL);
        transcript.update(&(hello.len() as u64).to_be_bytes());
        if !mutant!("peer-auth-hello-unbound") {
            transcript.update(hello);
        }
        if !mutant!("peer-auth-challenge-unbound") {
            transcript.update(challenge);
        }
        let root = Salt::new(HKDF_SHA256, transcript.finish().as_ref()).extract(secret);
        let key = |label: &'static [u8]| {
            let label = [label];
            let key = root.expand(&label, hmac::HMAC_SHA256);
            hmac::Key::from(key.expect("a key is far shorter than HKDF can make"))
        };
        Self {
            proof: key(b"proof of the server that connects"),
            to_acceptor: Seal::new(key(b"frames of the server that connects")),
            to_connector: Seal::new(key(b"frames of the server that accepts")),
        }
    }
}

const TRANSCRIPT_LABEL: &[u8] = b"lockkeeper link between servers, 1";
const PROOF_LABEL: &[u8] = b"lockkeeper proof, 1";
