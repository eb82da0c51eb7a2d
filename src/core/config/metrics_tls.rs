//! The keys of the port for metrics that takes TLS.
//!
//! *Owns* `metricsProvider.httpsPort` and the entries of `metricsProvider.ssl.*`, and their values. *Never* opens a
//! file: whether a store is one is seen by who starts a server or checks its configuration. Reproduces
//! `PrometheusMetricsProvider`.

use super::key::Key;
use super::listener_tls::{
    ANY, ClientAuthKey, LIST, ListenerTls, PATH, STORE_TYPE, Secret, list, protocol, store_type,
    type_text,
};
use super::values::{optional_path, path_text};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsTlsConfig {
    /// `metricsProvider.httpsPort`; -1: there is none.
    pub(super) port: i64,
    /// `metricsProvider.ssl.*`, but for client authentication.
    pub listener: ListenerTls,
    /// `need.client.auth`.
    needs_client: bool,
    /// `want.client.auth`.
    wants_client: bool,
}

impl Default for MetricsTlsConfig {
    fn default() -> Self {
        Self { port: -1, listener: ListenerTls::default(), needs_client: true, wants_client: true }
    }
}

impl MetricsTlsConfig {
    /// What the port speaks TLS by, with client authentication.
    #[must_use]
    pub fn resolved(&self) -> ListenerTls {
        let client_auth = match (self.needs_client, self.wants_client) {
            (true, _) => ClientAuthKey::Need,
            // Without anything to judge certificates by none is asked for, as with ZooKeeper.
            (false, true) if self.listener.trust_store.location.is_some() => ClientAuthKey::Want,
            (false, _) => ClientAuthKey::None,
        };
        ListenerTls { client_auth, ..self.listener.clone() }
    }

    /// What is missing: the key that asks for it, and what that needs.
    pub(super) fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let mut faults = Vec::new();
        if self.listener.key_store.location.is_none() {
            faults.push((
                HTTPS_PORT,
                "needs metricsProvider.ssl.keyStore.location: the file with the server's key and its certificates",
            ));
        }
        if self.needs_client && self.listener.trust_store.location.is_none() {
            faults.push((
                HTTPS_PORT,
                "needs metricsProvider.ssl.trustStore.location, to judge the certificates of clients by; or \
                 metricsProvider.ssl.need.client.auth=false",
            ));
        }
        faults
    }
}

/// The port's key.
const HTTPS_PORT: &str = "metricsProvider.httpsPort";

/// The entries.
pub(super) static KEYS: [Key; 12] = [
    Key::effective(
        HTTPS_PORT,
        "-1",
        |c| c.metrics_tls.port.to_string(),
        "An HTTP port that offers /metrics only, through TLS by metricsProvider.ssl.*, at metricsProvider.httpHost. \
         The same as metricsProvider.httpPort: that takes both. -1: none.",
    )
    .number(-1, u16::MAX as i64, |c, n| c.metrics_tls.port = n)
    .or_else("-1"),
    Key::effective(
        "metricsProvider.ssl.keyStore.location",
        "",
        |c| c.metrics_tls.listener.key_store.location.as_deref().map_or_else(String::new, path_text),
        "File with the key of that port and the certificates that vouch for it.",
    )
    .text(PATH, |c, text| {
        c.metrics_tls.listener.key_store.location = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.keyStore.password",
        "",
        |c| c.metrics_tls.listener.key_store.password.shown().to_owned(),
        "Password of the key store and of the key in it.",
    )
    .text(ANY, |c, text| {
        c.metrics_tls.listener.key_store.password = Secret(text.to_owned());
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.keyStore.type",
        "",
        |c| type_text(c.metrics_tls.listener.key_store.kind),
        "PEM, PKCS12 or JKS. Empty: by the suffix of the file.",
    )
    .text(STORE_TYPE, |c, text| {
        c.metrics_tls.listener.key_store.kind = store_type(text)?;
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.trustStore.location",
        "",
        |c| c.metrics_tls.listener.trust_store.location.as_deref().map_or_else(String::new, path_text),
        "File with the certificates of those who vouch for clients of that port.",
    )
    .text(PATH, |c, text| {
        c.metrics_tls.listener.trust_store.location = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.trustStore.password",
        "",
        |c| c.metrics_tls.listener.trust_store.password.shown().to_owned(),
        "Password of the trust store.",
    )
    .text(ANY, |c, text| {
        c.metrics_tls.listener.trust_store.password = Secret(text.to_owned());
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.trustStore.type",
        "",
        |c| type_text(c.metrics_tls.listener.trust_store.kind),
        "PEM, PKCS12 or JKS. Empty: by the suffix of the file.",
    )
    .text(STORE_TYPE, |c, text| {
        c.metrics_tls.listener.trust_store.kind = store_type(text)?;
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.need.client.auth",
        "true",
        |c| c.metrics_tls.needs_client.to_string(),
        "Clients of that port must show a certificate that the trust store vouches for.",
    )
    .switch(|c, on| c.metrics_tls.needs_client = on),
    Key::effective(
        "metricsProvider.ssl.want.client.auth",
        "true",
        |c| c.metrics_tls.wants_client.to_string(),
        "If they need not: one that they show must be trusted. Without a trust store none is asked for.",
    )
    .switch(|c, on| c.metrics_tls.wants_client = on)
    .or_else("true"),
    Key::effective(
        "metricsProvider.ssl.enabledProtocols",
        "",
        |c| c.metrics_tls.listener.enabled_protocols.join(","),
        "The versions of TLS that are spoken: TLSv1.2, TLSv1.3. Empty: both.",
    )
    .text(LIST, |c, text| {
        c.metrics_tls.listener.enabled_protocols =
            list(text).iter().map(|name| protocol(name)).collect::<Result<_, _>>()?;
        Ok(())
    }),
    Key::effective(
        "metricsProvider.ssl.ciphersuites",
        "",
        |c| c.metrics_tls.listener.cipher_suites.join(","),
        "Cipher suites by their Java names, as ssl.ciphersuites has them. Empty: all that are offered.",
    )
    .text(LIST, |c, text| {
        c.metrics_tls.listener.cipher_suites = list(text);
        Ok(())
    }),
    Key::effective(
        "lockkeeper.metricsProvider.ssl.crlFile",
        "",
        |c| c.metrics_tls.listener.crl_file.as_deref().map_or_else(String::new, path_text),
        "File with the revocation lists of those who vouch for clients of that port, as lockkeeper.ssl.crlFile is one.",
    )
    .text(PATH, |c, text| {
        c.metrics_tls.listener.crl_file = optional_path(text)?;
        Ok(())
    }),
];
