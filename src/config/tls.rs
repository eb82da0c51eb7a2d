//! The keys of TLS: where clients connect through it, with which key, and whom it trusts.
//!
//! *Owns* the entries of `ssl.*` and what belongs to them, and their values. *Invariants*: no password is ever shown;
//! the text of a value that may be one is not repeated in an error. *Never* opens a file: whether a store is one is
//! seen by who starts a server or checks its configuration.

use std::fmt;
use std::path::PathBuf;

use super::Config;
use super::address::host_of;
use super::key::Key;
use super::values::{optional_path, path_text, u32_of};

/// What a store of keys or certificates is told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreType {
    /// `PEM`.
    Pem,
    /// `PKCS12`.
    Pkcs12,
    /// `JKS`.
    Jks,
}

/// `ssl.clientAuth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuthKey {
    /// Clients are not asked for a certificate.
    None,
    /// One that they show must be trusted.
    Want,
    /// They must show one.
    #[default]
    Need,
}

/// A password. Shows nothing of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Secret {
    fn shown(&self) -> &'static str {
        if self.0.is_empty() { "" } else { "(not shown)" }
    }
}

/// `ssl.keyStore.*` or `ssl.trustStore.*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreConfig {
    /// `location`.
    pub location: Option<PathBuf>,
    /// `password`: of the store, and of the key in it.
    pub password: Secret,
    /// `passwordPath`: the file that has it; goes before `password`.
    pub password_path: Option<PathBuf>,
    /// `type`; by the suffix of the file unless given.
    pub kind: Option<StoreType>,
}

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
    /// `ssl.keyStore.*`.
    pub key_store: StoreConfig,
    /// `ssl.trustStore.*`.
    pub trust_store: StoreConfig,
    /// `ssl.clientAuth`.
    pub client_auth: ClientAuthKey,
    /// `ssl.enabledProtocols`, or what `ssl.protocol` stands for. Empty: all that there are.
    pub protocols: Vec<String>,
    /// `ssl.ciphersuites`. Empty: all that there are.
    pub cipher_suites: Vec<String>,
    /// `lockkeeper.ssl.crlFile`: certificates that are revoked.
    pub crl_file: Option<PathBuf>,
    /// `ssl.handshakeDetectionTimeoutMillis`: how long a handshake may take.
    pub handshake_timeout_ms: u32,
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

const STORE_TYPE: &str = "PEM, PKCS12 or JKS, or nothing";
const LIST: &str = "names with commas between them, or nothing";
const PATH: &str = "a path, or nothing";
const ANY: &str = "any text";

/// The entries.
pub(super) static KEYS: [Key; 18] = [
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
        "ssl.keyStore.location",
        "",
        |c| c.tls.key_store.location.as_deref().map_or_else(String::new, path_text),
        "File with the server's private key and the certificates that vouch for it.",
    )
    .text(PATH, |c, text| {
        c.tls.key_store.location = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.keyStore.password",
        "",
        |c| c.tls.key_store.password.shown().to_owned(),
        "Password of the key store and of the key in it. A file of PEM must have an encrypted key (PKCS#8) \
         with one, and a \
         plain one without.",
    )
    .text(ANY, |c, text| {
        c.tls.key_store.password = Secret(text.to_owned());
        Ok(())
    }),
    Key::effective(
        "ssl.keyStore.passwordPath",
        "",
        |c| c.tls.key_store.password_path.as_deref().map_or_else(String::new, path_text),
        "File with that password; goes before ssl.keyStore.password.",
    )
    .text(PATH, |c, text| {
        c.tls.key_store.password_path = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.keyStore.type",
        "",
        |c| type_text(c.tls.key_store.kind),
        "What the key store is. Empty: by the suffix of its file, .pem, .p12 or .jks.",
    )
    .text(STORE_TYPE, |c, text| {
        c.tls.key_store.kind = store_type(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.trustStore.location",
        "",
        |c| c.tls.trust_store.location.as_deref().map_or_else(String::new, path_text),
        "File with the certificates that vouch for clients.",
    )
    .text(PATH, |c, text| {
        c.tls.trust_store.location = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.trustStore.password",
        "",
        |c| c.tls.trust_store.password.shown().to_owned(),
        "Password of the trust store; a file of PEM has none.",
    )
    .text(ANY, |c, text| {
        c.tls.trust_store.password = Secret(text.to_owned());
        Ok(())
    }),
    Key::effective(
        "ssl.trustStore.passwordPath",
        "",
        |c| c.tls.trust_store.password_path.as_deref().map_or_else(String::new, path_text),
        "File with that password; goes before ssl.trustStore.password.",
    )
    .text(PATH, |c, text| {
        c.tls.trust_store.password_path = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.trustStore.type",
        "",
        |c| type_text(c.tls.trust_store.kind),
        "What the trust store is. Empty: by the suffix of its file, .pem, .p12 or .jks.",
    )
    .text(STORE_TYPE, |c, text| {
        c.tls.trust_store.kind = store_type(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.clientAuth",
        "need",
        |c| match c.tls.client_auth {
            ClientAuthKey::None => "none".to_owned(),
            ClientAuthKey::Want => "want".to_owned(),
            ClientAuthKey::Need => "need".to_owned(),
        },
        "Whether clients show a certificate: none: they are not asked; want: one that they show must be \
         trusted; need: they \
         must show one.",
    )
    .text("none, want or need", |c, text| {
        c.tls.client_auth = match text.to_ascii_lowercase().as_str() {
            "none" => ClientAuthKey::None,
            "want" => ClientAuthKey::Want,
            "need" => ClientAuthKey::Need,
            _ => return Err(format!("`{text}` is none of none, want and need")),
        };
        Ok(())
    }),
    Key::effective(
        "ssl.protocol",
        "TLSv1.3",
        |c| c.raw.ssl_protocol.clone(),
        "The newest version of TLS that is spoken, TLSv1.3 or TLSv1.2 (ZooKeeper 3.9 speaks this one alone).",
    )
    .text("TLSv1.2 or TLSv1.3", |c, text| {
        c.raw.ssl_protocol = protocol(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.enabledProtocols",
        "",
        |c| c.raw.ssl_enabled_protocols.join(","),
        "The versions of TLS that are spoken. Empty: ssl.protocol and those before it. Those before TLSv1.2 \
         are not offered.",
    )
    .text(LIST, |c, text| {
        c.raw.ssl_enabled_protocols =
            list(text).iter().map(|name| protocol(name)).collect::<Result<_, _>>()?;
        Ok(())
    }),
    Key::effective(
        "ssl.ciphersuites",
        "",
        |c| c.tls.cipher_suites.join(","),
        "Cipher suites by their Java names; the first that a client has, too, is taken. Those that are not \
         offered are left \
         out; with none left the server does not start. Empty: TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, \
         TLS_CHACHA20_POLY1305_SHA256, and TLS_ECDHE_ECDSA and TLS_ECDHE_RSA with the same.",
    )
    .text(LIST, |c, text| {
        c.tls.cipher_suites = list(text);
        Ok(())
    }),
    Key::effective(
        "lockkeeper.ssl.crlFile",
        "",
        |c| c.tls.crl_file.as_deref().map_or_else(String::new, path_text),
        "File with the revocation lists of those who vouch for clients, of PEM or one of DER. Clients whose \
         certificate is \
         in one are refused. Nothing is fetched.",
    )
    .text(PATH, |c, text| {
        c.tls.crl_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "ssl.handshakeDetectionTimeoutMillis",
        "5000",
        |c| c.tls.handshake_timeout_ms.to_string(),
        "How long a handshake of TLS may take, ms.",
    )
    .number(1, 3_600_000, |c, n| c.tls.handshake_timeout_ms = u32_of(n))
    .or_else("5000"),
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

fn store_type(text: &str) -> Result<Option<StoreType>, String> {
    match text {
        "" => Ok(None),
        "PEM" => Ok(Some(StoreType::Pem)),
        "PKCS12" => Ok(Some(StoreType::Pkcs12)),
        "JKS" => Ok(Some(StoreType::Jks)),
        "BCFKS" => Err(
            "BCFKS is not offered; `keytool -importkeystore -deststoretype PKCS12` makes a PKCS12 \
                        store of it"
                .to_owned(),
        ),
        _ => Err(format!("`{text}` is none of PEM, PKCS12 and JKS")),
    }
}

fn type_text(kind: Option<StoreType>) -> String {
    match kind {
        None => "",
        Some(StoreType::Pem) => "PEM",
        Some(StoreType::Pkcs12) => "PKCS12",
        Some(StoreType::Jks) => "JKS",
    }
    .to_owned()
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A version that is spoken.
fn protocol(text: &str) -> Result<String, String> {
    match text {
        "TLSv1.2" | "TLSv1.3" => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is not offered: TLSv1.2 and TLSv1.3 are")),
    }
}

/// The versions that are spoken, of what is given: a list, or else the newest one.
pub(super) fn protocols(config: &Config) -> Vec<String> {
    match (config.raw.ssl_enabled_protocols.as_slice(), config.raw.ssl_protocol.as_str()) {
        ([], "TLSv1.2") => vec!["TLSv1.2".to_owned()],
        (given, _) => given.to_vec(),
    }
}
