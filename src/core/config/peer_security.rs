//! The keys by which servers prove to each other who they are.
//!
//! *Owns* the entries of `lockkeeper.peerSecretFile` and `lockkeeper.peerSecurity`, and their values. *Never* opens the
//! file: whether it holds secrets is seen by who starts a server.

use std::path::PathBuf;

use super::key::Key;
use super::values::{optional_path, path_text};

/// `lockkeeper.peerSecurity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerSecurityKey {
    /// Nothing: links are secured if there is a secret, and plain otherwise.
    #[default]
    BySecret,
    /// `transition`: the secret is used where the other server has it, too, and plain links are taken.
    Transition,
    /// `required`: a server without a secret does not start.
    Required,
}

/// How servers prove to each other who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSecurityConfig {
    /// `lockkeeper.peerSecretFile`: the file with the secrets that all servers share.
    pub secret_file: Option<PathBuf>,
    /// `lockkeeper.peerSecurity`.
    pub mode: PeerSecurityKey,
}

const PATH: &str = "a path, or nothing";

/// The entries.
pub(super) static KEYS: [Key; 2] = [
    Key::effective(
        "lockkeeper.peerSecretFile",
        "",
        |c| c.peer_security.secret_file.as_deref().map_or_else(String::new, path_text),
        "File with the secret by which the servers of an ensemble prove to each other that they belong to it, \
         the same at all of them; `lockkeeper peer-secret FILE` makes one. It may hold up to 8, a line each: \
         all are accepted, the first that both have is used. A changed file is read when the next link is made. \
         What servers say is protected from changes then, not from being read.",
    )
    .text(PATH, |c, text| {
        c.peer_security.secret_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "lockkeeper.peerSecurity",
        "",
        |c| match c.peer_security.mode {
            PeerSecurityKey::BySecret => String::new(),
            PeerSecurityKey::Transition => "transition".to_owned(),
            PeerSecurityKey::Required => "required".to_owned(),
        },
        "Empty: with lockkeeper.peerSecretFile every link must prove the secret, without it none does. \
         transition: the secret is used with servers that have it, and links without it are taken, too, so that \
         a running ensemble can turn it on; nothing is protected meanwhile. required: a server with \
         neither a secret nor TLS between servers, where each shows a certificate, does not start.",
    )
    .text("transition, required, or nothing", |c, text| {
        c.peer_security.mode = match text {
            "" => PeerSecurityKey::BySecret,
            "transition" => PeerSecurityKey::Transition,
            "required" => PeerSecurityKey::Required,
            _ => return Err(format!("`{text}` is neither transition nor required")),
        };
        Ok(())
    }),
];
