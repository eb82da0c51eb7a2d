//! What depends on several keys: derived and cross-checked once all texts and flags are in.
//!
//! *Owns* the steps of [`Draft::resolve`]. *Invariant*: none of them stops at an error; it is added to the draft's.

use super::super::address::HostPort;
use super::super::ensemble::{self, Blame, Fault};
use super::super::error::Origin;
use super::super::groups;
use super::super::key::INT_MAX;
use super::super::listener_tls::ClientAuthKey;
use super::super::migration;
use super::super::peer_security::PeerSecurityKey;
use super::super::sasl;
use super::super::servers::SERVER_ID_MAX;
use super::{Draft, JUDGED, PROMETHEUS_PORT_DEFAULT, note};

/// Shortest: several elections fit in.
const DISK_STALL_MS_MIN: i64 = 200;
/// Unless configured, it is no longer than this, ms.
const DISK_STALL_MS_DEFAULT_MAX: i64 = 5000;

impl Draft {
    /// A file must say where the data is and where clients connect.
    pub(super) fn require(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let whole = Origin { file, line: 0 };
        if self.config.data_dir.as_os_str().is_empty() && !self.has_error("dataDir") {
            self.fail(whole.error("dataDir", "missing: the directory of the server's data"));
        }
        // The caller that could not read that file has said so, and what it would have given is not known.
        if self.has_error("dynamicConfigFile") {
            return;
        }
        if let Some(name) = self.config.dynamic_config_file.clone().filter(|_| !self.has_dynamic) {
            let reason = format!("the text of {name} was not given");
            self.fail(self.origin_of("dynamicConfigFile").error("dynamicConfigFile", reason));
        }
        let own_client = self.config.own_server().and_then(|spec| spec.client.clone());
        match (self.config.origin("clientPort").cloned(), own_client) {
            (None, Some(client)) => self.config.client_addr = client,
            (None, None) => match self.config.tls.secure_client_port {
                Some(port) => {
                    let host = self.config.tls.secure_client_host.clone();
                    self.config.client_addr = HostPort { host, port };
                    self.config.tls.is_only = true;
                }
                None if self.has_error("clientPort") => {}
                None => self.fail(whole.error("clientPort", "missing: the TCP port for clients")),
            },
            (Some(origin), Some(client)) => self.check_client_address(&origin, client),
            (Some(_), None) => {}
        }
    }

    /// The client address of the own server line and that of `clientPort` must agree.
    fn check_client_address(&mut self, origin: &Origin, client: HostPort) {
        let configured = &self.config.client_addr;
        // Names are not resolved here: only two addresses can be seen to differ.
        let same_host = match (configured.ip(), client.ip()) {
            (Some(ip), Some(other)) => ip.is_unspecified() || ip == other,
            (None, _) | (_, None) => true,
        };
        let agree = configured.port == client.port && same_host;
        if agree {
            self.config.client_addr = client;
        } else if self.config.server_id.is_none() && !self.config.is_ensemble() {
            // Without myid ZooKeeper does not look at the line.
            let reason = format!(
                "{configured} holds and not {client}, which the server line says: there is no myid"
            );
            note(&mut self.config.warnings, "clientPort", &reason);
        } else {
            let reason = format!("{configured} differs from {client} of the own server line");
            self.fail(origin.error("clientPort", reason));
        }
    }

    /// What asks for TLS needs a key, and something to judge clients by.
    pub(super) fn resolve_tls(&mut self) {
        let tls = &self.config.tls;
        let asks = match (tls.secure_client_port, tls.port_unification) {
            (Some(_), _) => "secureClientPort",
            (None, true) => "client.portUnification",
            (None, false) => return,
        };
        let listener = &tls.listener;
        let (has_key, has_trust) =
            (listener.key_store.location.is_some(), listener.trust_store.location.is_some());
        let needs_trust = listener.client_auth != ClientAuthKey::None;
        if !has_key {
            let reason =
                "needs ssl.keyStore.location: the file with the server's key and its certificates";
            self.fail(self.origin_of(asks).error(asks, reason));
        }
        if needs_trust && !has_trust {
            let reason = "needs ssl.trustStore.location, to judge the certificates of clients by; or \
                          ssl.clientAuth=none, \
                          which asks for none";
            self.fail(self.origin_of(asks).error(asks, reason));
        }
    }

    /// TLS between servers needs a key, and something to judge the certificates of others by.
    pub(super) fn resolve_peer_tls(&mut self) {
        let tls = &self.config.peer_tls;
        let asks = match (tls.is_on, tls.port_unification) {
            _ if !self.config.is_ensemble() => return,
            (true, _) => "sslQuorum",
            (false, true) => "portUnification",
            (false, false) => return,
        };
        self.require_peer_stores(asks);
    }

    /// TLS of the link with ZooKeeper's leader needs the same.
    pub(super) fn resolve_zookeeper_tls(&mut self) {
        if self.config.migration.ssl_quorum == Some(true) {
            self.require_peer_stores(migration::SSL_QUORUM);
        }
    }

    fn require_peer_stores(&mut self, asks: &'static str) {
        let listener = &self.config.peer_tls.listener;
        let missing = [
            (
                "ssl.quorum.keyStore.location",
                &listener.key_store,
                "with the server's key and its certificates",
            ),
            (
                "ssl.quorum.trustStore.location",
                &listener.trust_store,
                "to judge the certificates of other servers by",
            ),
        ];
        let missing = missing.into_iter().filter(|(_, store, _)| store.location.is_none());
        let reasons: Vec<String> =
            missing.map(|(key, _, what)| format!("needs {key}: the file {what}")).collect();
        for reason in reasons {
            self.fail(self.origin_of(asks).error(asks, reason));
        }
    }

    /// TLS of the HTTP port needs a key, and something to judge certificates by where one is asked for.
    pub(super) fn resolve_admin_tls(&mut self) {
        let admin = &self.config.admin;
        let asks = match (admin.force_https, admin.port_unification) {
            _ if !admin.enabled => return,
            (true, _) => "admin.forceHttps",
            (false, true) => "admin.portUnification",
            (false, false) if admin.need_client_auth => {
                let key = "admin.needClientAuth";
                let reason = "needs admin.forceHttps=true, or admin.portUnification=true: a certificate is \
                              shown through TLS";
                return self.fail(self.origin_of(key).error(key, reason));
            }
            (false, false) => return,
        };
        let (needs_client, listener) = (admin.need_client_auth, &self.config.peer_tls.listener);
        let (has_key, has_trust) =
            (listener.key_store.location.is_some(), listener.trust_store.location.is_some());
        if !has_key {
            let reason = "needs ssl.quorum.keyStore.location: the file with the server's key and its certificates";
            self.fail(self.origin_of(asks).error(asks, reason));
        }
        if needs_client && !has_trust {
            let key = "admin.needClientAuth";
            let reason =
                "needs ssl.quorum.trustStore.location, to judge the certificates of clients by";
            self.fail(self.origin_of(key).error(key, reason));
        }
    }

    /// What demands a secret needs one.
    pub(super) fn resolve_peer_security(&mut self) {
        let security = &self.config.peer_security;
        let words = match security.mode {
            PeerSecurityKey::Required => "required",
            PeerSecurityKey::Transition => "transition",
            PeerSecurityKey::BySecret => return,
        };
        let tls = &self.config.peer_tls;
        let by_tls = tls.is_demanded() && tls.listener.client_auth == ClientAuthKey::Need;
        if security.secret_file.is_none() && !(by_tls && security.mode == PeerSecurityKey::Required)
        {
            let key = "lockkeeper.peerSecurity";
            let or = match security.mode {
                PeerSecurityKey::Required => {
                    ", or sslQuorum=true with ssl.quorum.clientAuth=need and without portUnification"
                }
                PeerSecurityKey::Transition | PeerSecurityKey::BySecret => "",
            };
            let reason = format!(
                "{words} needs lockkeeper.peerSecretFile: `lockkeeper peer-secret FILE` makes such a file{or}"
            );
            self.fail(self.origin_of(key).error(key, reason));
        }
    }

    pub(super) fn resolve_servers(&mut self) {
        debug_assert!(self.config.servers.len() <= usize::from(SERVER_ID_MAX));
        for Fault { blame, reason } in ensemble::faults(&self.config) {
            let error = match blame {
                Blame::Line(id) => {
                    let origin = self.server_lines.get(&id).cloned();
                    let origin = origin.unwrap_or(Origin { file: String::new(), line: 0 });
                    origin.error(&format!("server.{id}"), reason)
                }
                Blame::StandaloneEnabled => {
                    self.origin_of("standaloneEnabled").error("standaloneEnabled", reason)
                }
                Blame::Myid => self.myid_origin(1).error("", reason),
            };
            self.fail(error);
        }
        match (self.config.is_ensemble(), self.myid_fault.take()) {
            (true, Some(fault)) => self.fail(fault),
            (true, None) => self.require_myid(),
            (false, Some(fault)) => {
                let reason = format!("{fault}. A server on its own needs none: it is ignored");
                note(&mut self.config.warnings, "myid", &reason);
            }
            (false, None) => {}
        }
    }

    /// Whether groups agree with the server lines is to be seen where those can be read.
    pub(super) fn resolve_groups(&mut self) {
        if self.errors.iter().any(|error| error.key.starts_with("server.")) {
            return;
        }
        if let Some(fault) = self.groups.fault(&self.config.servers) {
            return self.fail(fault);
        }
        for key in self.groups.keys() {
            note(&mut self.config.ignored, key, groups::TAKEN);
        }
    }

    /// A server of an ensemble must know which one it is.
    fn require_myid(&mut self) {
        let origin = self.myid_origin(0);
        // The caller that could not read the file has said so.
        let is_known = self.errors.iter().any(|error| error.file == origin.file);
        if self.config.server_id.is_none() && !is_known && self.data_dir().is_some() {
            let reason = format!(
                "missing: write the number of this server ({}: the N of its own line server.N) \
                 into this file, or give it once with --myid N",
                ensemble::ids(&self.config.servers)
            );
            self.fail(origin.error("", reason));
        }
    }

    /// Where the number of this server came from, or should have.
    fn myid_origin(&self, line: u32) -> Origin {
        match &self.myid {
            Some(origin) => origin.clone(),
            None => {
                let file = self.config.data_dir.join("myid").display().to_string();
                Origin { file, line }
            }
        }
    }

    pub(super) fn resolve_session_timeouts(&mut self) {
        let config = &mut self.config;
        let tick = i64::from(config.tick_time_ms);
        let (min, max) = (config.raw.min_session_timeout_ms, config.raw.max_session_timeout_ms);
        if max == 0 {
            let origin = self.origin_of("maxSessionTimeout");
            self.fail(
                origin.error("maxSessionTimeout", "0 is too small: the least value is 1, or -1"),
            );
            return;
        }
        // Without a shortest one a session lasts a millisecond at least: one of 0 would be over at once.
        let min = if min == -1 { tick * 2 } else { min.max(1) };
        let max = if max < 0 { tick * 20 } else { max };
        if min > max {
            let name = match self.config.origin("minSessionTimeout") {
                Some(_) => "minSessionTimeout",
                None => "maxSessionTimeout",
            };
            let reason = format!("the shortest timeout, {min} ms, is above the longest, {max} ms");
            self.fail(self.origin_of(name).error(name, reason));
            return;
        }
        let ms = |value: i64| u32::try_from(value.min(INT_MAX)).expect("ticks are bounded");
        self.config.min_session_timeout_ms = ms(min);
        self.config.max_session_timeout_ms = ms(max);
    }

    pub(super) fn resolve_disk_stall(&mut self) {
        const KEY: &str = "lockkeeper.diskStallMillis";
        let config = &self.config;
        let given = config.raw.disk_stall_ms;
        if (0..DISK_STALL_MS_MIN).contains(&given) {
            let reason =
                format!("{given} is too small: the least value is {DISK_STALL_MS_MIN}, or -1");
            return self.fail(self.origin_of(KEY).error(KEY, reason));
        }
        let ticks = config.sync_limit().map(|ticks| ticks.max(1));
        let limit = ticks.map(|ticks| ticks.saturating_mul(config.tick_time_ms.into()));
        let default = limit.unwrap_or(i64::MAX).clamp(DISK_STALL_MS_MIN, DISK_STALL_MS_DEFAULT_MAX);
        let ms = if given < 0 { default } else { given };
        self.config.disk_stall_ms = u32::try_from(ms).expect("the table bounds it");
    }

    pub(super) fn resolve_metrics(&mut self) {
        let raw = &self.config.raw;
        let is_given = self.config.origin("metricsProvider.httpPort").is_some();
        // A port that takes TLS is enough.
        let is_secure = self.config.metrics_tls.port >= 0;
        let port = match raw.prometheus && !is_given && !is_secure {
            true => PROMETHEUS_PORT_DEFAULT,
            false => raw.metrics_port,
        };
        let host = raw.metrics_host.clone();
        let at = |port: i64| {
            // -1 is "none": it is no port.
            let addr = u16::try_from(port).ok().map(|port| HostPort::new(&host, port));
            addr.map(|addr| addr.expect("the host was checked"))
        };
        self.config.metrics_addr = at(port);
        self.config.metrics_secure_addr = at(self.config.metrics_tls.port);
        let faults = if is_secure { self.config.metrics_tls.faults() } else { Vec::new() };
        for (key, reason) in faults {
            self.fail(self.origin_of(key).error(key, reason));
        }
    }

    /// What clients must prove has to be something that they can.
    pub(super) fn resolve_authentication(&mut self) {
        if let Some((key, reason)) = sasl::fault(&self.config)
            && !self.has_error(key)
        {
            self.fail(self.origin_of(key).error(key, reason));
        }
    }

    pub(super) fn warn_of_weakness(&mut self) {
        let config = &mut self.config;
        // A configuration that is changed later is judged again.
        config.warnings.retain(|(key, _)| !JUDGED.contains(&key.as_str()));
        config.warnings.retain(|(key, _)| !key.starts_with("server."));
        if config.raw.force_sync_off {
            let reason = "ignored: every write is on disk before it is acknowledged";
            note(&mut config.warnings, "forceSync", reason);
        }
        if config.raw.leader_serves_not {
            let reason = "ignored: the leader serves clients as every other server does";
            note(&mut config.warnings, "leaderServes", reason);
        }
        if config.skip_acl {
            note(&mut config.warnings, "skipACL", "no ACL is checked: everybody may do everything");
        }
        for (key, reason) in sasl::warnings(config) {
            note(&mut config.warnings, key, reason);
        }
        for (key, reason) in ensemble::warnings(config) {
            note(&mut config.warnings, &key, &reason);
        }
    }
}
