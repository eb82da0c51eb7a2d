//! The keys of TLS between servers: whether links go through it, by which keys, and whose certificates count.
//!
//! *Owns* `sslQuorum`, `portUnification` and the entries of `ssl.quorum.*`, and their values. *Never* opens a file:
//! whether a store is one is seen by who starts a server or checks its configuration.

use super::key::Key;
use super::listener_tls::{LIST, ListenerTls, list, listener_keys};

/// `sslQuorum`, `portUnification` and `ssl.quorum.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsConfig {
    /// `sslQuorum`: this server connects to others through TLS, and takes links through TLS.
    pub is_on: bool,
    /// `portUnification`: links are taken with TLS and without.
    pub port_unification: bool,
    /// `ssl.quorum.*`, which is what the HTTP port goes by as well.
    pub listener: ListenerTls,
    /// `ssl.quorum.hostnameVerification`: a certificate must name the address of its server.
    pub verifies_host: bool,
    /// `ssl.quorum.clientHostnameVerification`: that of a server that connects as well.
    pub verifies_host_of_client: bool,
    /// `lockkeeper.ssl.quorum.allowedNames`: names that count as the address of any server.
    pub allowed_names: Vec<String>,
}

impl Default for PeerTlsConfig {
    fn default() -> Self {
        Self {
            is_on: false,
            port_unification: false,
            listener: ListenerTls::default(),
            verifies_host: true,
            verifies_host_of_client: true,
            allowed_names: Vec::new(),
        }
    }
}

impl PeerTlsConfig {
    /// Whether links may go through TLS.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.is_on || self.port_unification
    }

    /// Whether links go through TLS alone.
    #[must_use]
    pub fn is_demanded(&self) -> bool {
        self.is_on && !self.port_unification
    }
}

/// The entries.
pub(super) static KEYS: [Key; 5] = [
    Key::effective(
        "sslQuorum",
        "false",
        |c| c.peer_tls.is_on.to_string(),
        "Whether servers connect to each other through TLS. It needs ssl.quorum.keyStore.location and \
         ssl.quorum.trustStore.location.",
    )
    .switch(|c, on| c.peer_tls.is_on = on),
    Key::effective(
        "portUnification",
        "false",
        |c| c.peer_tls.port_unification.to_string(),
        "Whether links are taken with TLS and without, while a running ensemble is changed: first true everywhere, \
         then with sslQuorum=true everywhere, and at last false. Nothing is protected meanwhile.",
    )
    .switch(|c, on| c.peer_tls.port_unification = on),
    Key::effective(
        "ssl.quorum.hostnameVerification",
        "true",
        |c| c.peer_tls.verifies_host.to_string(),
        "Whether the certificate of a server must name it: by a subject alternative name that is the host of its \
         server line, or an address of that. False: each certificate that the trust store vouches for is any \
         server's.",
    )
    .switch(|c, on| c.peer_tls.verifies_host = on)
    .or_else("true"),
    Key::effective(
        "ssl.quorum.clientHostnameVerification",
        "true",
        |c| c.peer_tls.verifies_host_of_client.to_string(),
        "Whether that holds for a server that connects to this one, too.",
    )
    .switch(|c, on| c.peer_tls.verifies_host_of_client = on)
    .or_else("true"),
    Key::effective(
        "lockkeeper.ssl.quorum.allowedNames",
        "",
        |c| c.peer_tls.allowed_names.join(","),
        "Names of which a server's certificate may have one in place of its own address.",
    )
    .text(LIST, |c, text| {
        c.peer_tls.allowed_names = list(text);
        Ok(())
    }),
];

listener_keys!(pub(super) LISTENER_KEYS, "ssl.quorum.", peer_tls.listener);
