//! How servers let the load generator's sessions in: what they name, and TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use super::Fault;
use crate::tls::Session;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Credentials, as scheme and secret, that every session names.
    pub auth: Vec<(String, String)>,
    /// What to speak TLS by; `None`: plain text.
    pub tls: Option<Arc<ClientConfig>>,
    /// The names that certificates have to name, where they are known; else it is the address.
    pub hosts: BTreeMap<SocketAddr, String>,
}

impl Access {
    /// A session of TLS with this server, if there is to be one.
    pub(super) fn session(&self, addr: SocketAddr) -> Result<Option<Session>, Fault> {
        let Some(config) = &self.tls else { return Ok(None) };
        let host = self.hosts.get(&addr).cloned().unwrap_or_else(|| addr.ip().to_string());
        let session = Session::with(config, &host);
        session.map(Some).map_err(|error| Fault::Unreachable(format!("{addr}: {error}")))
    }
}
