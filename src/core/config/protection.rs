//! What is protected by what: each port of a server, what is spoken there, and who gets in.
//!
//! *Owns* the words of that table, which `lockkeeper config check` prints. *Invariant*: they say no more than the
//! configuration does: whether a file of keys is any good is seen by who opens it. *Never* shows a password.

use super::Config;
use super::listener_tls::{ClientAuthKey, ListenerTls};
use super::peer_security::PeerSecurityKey;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    /// The key that opens it, and where.
    pub port: String,
    /// What is spoken there.
    pub speaks: &'static str,
    /// Who gets in.
    pub who: String,
}

impl Config {
    /// Every port that a server with this configuration opens.
    #[must_use]
    pub fn protection(&self) -> Vec<Protected> {
        let mut ports = Vec::new();
        let mut port = |key: &str, at: &dyn std::fmt::Display, speaks, who| {
            ports.push(Protected { port: format!("{key} {at}"), speaks, who });
        };
        let (plain, both) = (self.clients("any client"), self.clients_of(&self.tls.listener));
        match (self.tls.is_only, self.tls.port_unification) {
            (true, _) => port("secureClientPort", &self.client_addr, TLS, both.clone()),
            (false, true) => port("clientPort", &self.client_addr, EITHER, plain),
            (false, false) => port("clientPort", &self.client_addr, PLAIN, plain),
        }
        if let Some(number) = self.tls.secure_client_port.filter(|_| !self.tls.is_only) {
            let at = format!("{}:{number}", self.tls.secure_client_host);
            port("secureClientPort", &at, TLS, both);
        }
        if let Some(own) = self.own_server().filter(|_| self.is_ensemble()) {
            let (speaks, who) = self.servers_get_in();
            for address in &own.addresses {
                let at = format!("{}:{}", address.host, address.peer_port);
                port(&format!("server.{}", own.id), &at, speaks, who.clone());
            }
        }
        if self.admin.enabled {
            let admin = &self.admin;
            let speaks = match (admin.force_https, admin.port_unification) {
                (true, _) => TLS,
                (false, true) => EITHER,
                (false, false) => PLAIN,
            };
            let mut who = match admin.need_client_auth && admin.force_https {
                true => "who has a certificate of ssl.quorum.trustStore".to_owned(),
                false => "figures: all; names and data of znodes: this machine".to_owned(),
            };
            if admin.token_file.is_some() {
                who += ", or with the token of lockkeeper.adminTokenFile";
            }
            port("admin.serverPort", &admin.addr, speaks, who);
        }
        if let Some(at) = &self.metrics_addr {
            port("metricsProvider.httpPort", at, PLAIN, "figures: all".to_owned());
        }
        if let Some(at) = &self.metrics_secure_addr {
            let who = certificates(&self.metrics_tls.resolved(), "figures: all");
            port("metricsProvider.httpsPort", at, TLS, who);
        }
        ports
    }

    /// Whether there is a key, a password or a token that no other user may read, in a file that this names.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        let files = [
            &self.admin.token_file,
            &self.sasl.jaas_file,
            &self.peer_security.secret_file,
            &self.migration.jaas_file,
        ];
        files.iter().any(|file| file.is_some())
            || self.tls.is_offered()
            || self.peer_tls.is_offered()
            || self.speaks_tls_to_zookeeper()
            || self.admin.speaks_tls()
            || self.metrics_secure_addr.is_some()
    }

    fn clients(&self, who: &str) -> String {
        match self.sasl.enforced_schemes().as_slice() {
            [] => format!("{who}, as ACLs allow"),
            schemes => format!("{who} that authenticates ({})", schemes.join(", ")),
        }
    }

    fn clients_of(&self, tls: &ListenerTls) -> String {
        self.clients(&certificates(tls, "any client"))
    }

    fn servers_get_in(&self) -> (&'static str, String) {
        let (tls, security) = (&self.peer_tls, &self.peer_security);
        let speaks = match (tls.is_demanded(), tls.is_offered()) {
            (true, _) => TLS,
            (false, true) => EITHER,
            (false, false) => PLAIN,
        };
        let mut who: Vec<&str> = Vec::new();
        if tls.is_demanded() && tls.listener.client_auth == ClientAuthKey::Need {
            who.push(match tls.verifies_host && tls.verifies_host_of_client {
                true => "members with a certificate that names them",
                false => "who has a certificate of ssl.quorum.trustStore",
            });
        }
        if security.secret_file.is_some() && security.mode != PeerSecurityKey::Transition {
            who.push("members with the secret of lockkeeper.peerSecretFile");
        }
        match who.is_empty() {
            true => (speaks, "ANY PROGRAM that poses as a member".to_owned()),
            false => (speaks, who.join(", ")),
        }
    }
}

const PLAIN: &str = "plain text";
const EITHER: &str = "TLS or plain text";
const TLS: &str = "TLS";

fn certificates(tls: &ListenerTls, any: &str) -> String {
    match tls.client_auth {
        ClientAuthKey::None | ClientAuthKey::Want => any.to_owned(),
        ClientAuthKey::Need => "who has a certificate of the trust store".to_owned(),
    }
}
