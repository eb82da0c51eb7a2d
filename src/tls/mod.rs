//! TLS: files of keys and certificates -> what listeners and clients do, and who clients are.
//!
//! *Owns* key stores and trust stores, the one function that makes the configuration of every listener, that of
//! clients, and the text of a certificate's subject. *Invariants*: what asks for protection and cannot be had is an
//! error; no password is ever shown. *Never* touches a socket: the threads that own them do. Reproduces `X509Util`,
//! `ClientX509Util` and `X509AuthenticationProvider`.

mod client;
mod error;
mod first_version;
mod jks;
mod listener;
mod names;
mod pem_file;
mod reload;
mod stores;
pub(crate) mod subject;
mod trust;

pub(crate) use client::{ClientLine, ClientSettings, client_config, session};
pub use error::TlsError;
pub(crate) use listener::{ClientAuth, ListenerSettings, Loaded, unknown_cipher_suites};
pub(crate) use names::names;
pub(crate) use reload::Reloadable;
pub(crate) use stores::{PasswordSource, Store, StoreKind};
