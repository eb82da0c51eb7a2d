//! The keys of TLS: where clients connect through it, with which key, and whom it trusts.
//!
//! *Owns* the entries of `ssl.*` and what belongs to them, and their values. *Invariants*: no password is ever shown;
//! the text of a value that may be one is not repeated in an error. *Never* opens a file: whether a store is one is
//! seen by who starts a server or checks its configuration.

use super::address::host_of;
use super::key::Key;
use super::listener_tls::{ListenerTls, listener_keys};

/// `ssl.*`, `secureClientPort` and `client.portUnification`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// `secureClientPort`: where clients connect through TLS alone.
    pub secure_client_port: Option<u16>,
    /// `secureClientPortAddress`.
    pub secure_client_host: String,
    /// Whether clients connect at `secureClientPort` alone: no `clientPort` is given.
    pub is_only: bool,
    /// `client.portUnification`: the client port takes TLS as well.
    pub port_unification: bool,
    /// `ssl.*` of the ports that speak it.
    pub listener: ListenerTls,
    /// `X509AuthenticationProvider.superUser`: the subject that may do everything.
    pub x509_super_user: Option<String>,
}

impl TlsConfig {
    /// Whether clients may connect through TLS.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.secure_client_port.is_some() || self.port_unification
    }
}

/// The entries.
pub(super) static KEYS: [Key; 4] = [
    Key::effective(
        "secureClientPort",
        "0",
        |c| c.tls.secure_client_port.unwrap_or(0).to_string(),
        "TCP port for clients that speak TLS, beside clientPort or in its place; 0: none. It needs \
         ssl.keyStore.location, \
         and ssl.trustStore.location unless ssl.clientAuth is none.",
    )
    .number(0, u16::MAX as i64, |c, n| c.tls.secure_client_port = u16::try_from(n).ok().filter(|port| *port > 0)),
    Key::effective(
        "secureClientPortAddress",
        "0.0.0.0",
        |c| c.tls.secure_client_host.clone(),
        "Address or host name to listen on for them.",
    )
    .text("a host name or address", |c, text| {
        c.tls.secure_client_host = host_of(text)?;
        Ok(())
    }),
    Key::effective(
        "client.portUnification",
        "false",
        |c| c.tls.port_unification.to_string(),
        "Whether clientPort takes TLS from clients that begin it, beside plain text from others. What is \
         wrong with the \
         keys of TLS is an error then, too.",
    )
    .switch(|c, on| c.tls.port_unification = on)
    .or_else("false"),
    Key::effective(
        "X509AuthenticationProvider.superUser",
        "",
        |c| c.tls.x509_super_user.clone().unwrap_or_default(),
        "The subject of a certificate whose owner may do everything, exactly as the id of the scheme x509 has it.",
    )
    .text("a subject, or nothing", |c, text| {
        c.tls.x509_super_user = (!text.is_empty()).then(|| text.to_owned());
        Ok(())
    }),
];

listener_keys!(pub(super) LISTENER_KEYS, "ssl.", tls.listener);
