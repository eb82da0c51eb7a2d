//! TLS: files of keys and certificates -> what listeners and clients do, and who clients are.
//!
//! *Owns* key stores and trust stores, the one function that makes the configuration of every listener, that of
//! clients, connections that speak plain text or TLS, and the text of a certificate's subject. *Invariants*: what asks
//! for protection and cannot be had is an error; no password is ever shown. *Never* opens a socket: the threads that
//! own them do. Reproduces `X509Util`, `ClientX509Util` and `X509AuthenticationProvider`.

mod client;
mod error;
mod first_version;
mod jks;
mod listener;
mod names;
mod reload;
mod session;
mod stores;
#[cfg(feature = "server")]
mod stream;
pub(crate) mod subject;
mod suites;
mod trust;

pub(crate) use client::{ClientSettings, client_config};
pub use error::TlsError;
pub(crate) use listener::{ClientAuth, ListenerSettings, Loaded};
pub(crate) use names::names;
pub(crate) use reload::Reloadable;
pub(crate) use session::{ClientLine, Session};
pub(crate) use stores::{PasswordSource, Store, StoreKind};
#[cfg(feature = "server")]
pub(crate) use stream::{Stream, begins_with_tls};
pub(crate) use suites::unknown_cipher_suites;
