//! TLS of the commands that are clients: a file of properties, as ZooKeeper's clients take it.
//!
//! *Owns* `--client-configuration`. *Invariants*: passwords come from files alone; a key of TLS that would have no
//! effect is an error. *Never* falls back to plain text.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::ClientConfig;

use crate::config::properties_of;
use crate::tls::{ClientSettings, PasswordSource, Store, StoreKind, client_config};

/// The flag of every command that talks to servers as a client.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TlsFlags {
    /// A file of properties with the keys of TLS, as ZooKeeper's clients take it: ssl.trustStore.location, and
    /// ssl.keyStore.location if the server asks for a certificate
    #[arg(long, value_name = "FILE")]
    client_configuration: Option<PathBuf>,
}

impl TlsFlags {
    /// What to speak TLS by; `None`: plain text.
    ///
    /// # Errors
    /// What is wrong with the file, or with one that it names.
    pub(super) fn config(&self) -> Result<Option<Arc<ClientConfig>>, String> {
        self.client_configuration.as_deref().map_or(Ok(None), of_file)
    }
}

/// What such a file says; `None`: it does not ask for TLS.
///
/// # Errors
/// What is wrong with it.
pub(super) fn of_file(file: &Path) -> Result<Option<Arc<ClientConfig>>, String> {
    let named = |reason: String| format!("{}: {reason}", file.display());
    let text = fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let mut given = Given::default();
    for (key, value) in properties_of(&text).map_err(named)? {
        given.take(key.strip_prefix("zookeeper.").unwrap_or(&key), value.trim()).map_err(named)?;
    }
    let Some(settings) = given.settings().map_err(named)? else { return Ok(None) };
    client_config(&settings).map(Some).map_err(|error| error.to_string())
}

#[derive(Default)]
struct Given {
    is_off: bool,
    key_store: GivenStore,
    trust_store: GivenStore,
    ignores_host: bool,
}

#[derive(Default)]
struct GivenStore {
    path: Option<PathBuf>,
    kind: Option<StoreKind>,
    password: PasswordSource,
}

impl Given {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(rest) = key.strip_prefix("ssl.keyStore.") {
            return self.key_store.take(key, rest, value);
        }
        if let Some(rest) = key.strip_prefix("ssl.trustStore.") {
            return self.trust_store.take(key, rest, value);
        }
        match key {
            "client.secure" => self.is_off = value != "true",
            "ssl.hostnameVerification" => self.ignores_host = value == "false",
            _ if key.starts_with("ssl.") => {
                return Err(format!("{key}: this key of TLS is not offered"));
            }
            // What concerns another client: its sockets, its SASL.
            _ => {}
        }
        Ok(())
    }

    fn settings(self) -> Result<Option<ClientSettings>, String> {
        if self.is_off {
            return Ok(None);
        }
        let trust_store = self
            .trust_store
            .store()
            .ok_or("ssl.trustStore.location is missing: what vouches for servers")?;
        let (key_store, verifies_host) = (self.key_store.store(), !self.ignores_host);
        Ok(Some(ClientSettings { key_store, trust_store, verifies_host }))
    }
}

impl GivenStore {
    fn take(&mut self, key: &str, rest: &str, value: &str) -> Result<(), String> {
        let path = || Some(PathBuf::from(value)).filter(|_| !value.is_empty());
        match rest {
            "location" => self.path = path(),
            "password" => self.password.text = value.to_owned(),
            "passwordPath" => self.password.path = path(),
            "type" => {
                self.kind = match value {
                    "" => None,
                    "PEM" => Some(StoreKind::Pem),
                    "PKCS12" => Some(StoreKind::Pkcs12),
                    "JKS" => Some(StoreKind::Jks),
                    _ => return Err(format!("{key}: `{value}` is none of PEM, PKCS12 and JKS")),
                }
            }
            _ => return Err(format!("{key}: there is no such key")),
        }
        Ok(())
    }

    fn store(self) -> Option<Store> {
        Some(Store { path: self.path?, kind: self.kind, password: self.password })
    }
}
