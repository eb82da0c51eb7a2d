//! The keys that each family of TLS has: `ssl.*` for clients, `ssl.quorum.*` for servers and operators.
//!
//! *Owns* their values, and the one text of their entries, from which each family's are made. *Invariants*: no password
//! is ever shown; the text of a value that may be one is not repeated in an error. *Never* opens a file: whether a
//! store is one is seen by who starts a server or checks its configuration.

use std::fmt;
use std::path::PathBuf;

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
    pub(super) fn shown(&self) -> &'static str {
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

/// What a family says of a port that speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// `keyStore.*`.
    pub key_store: StoreConfig,
    /// `trustStore.*`.
    pub trust_store: StoreConfig,
    /// `clientAuth`.
    pub client_auth: ClientAuthKey,
    /// `protocol`: the newest version.
    pub(super) protocol: String,
    /// `enabledProtocols`; empty: by `protocol`.
    pub(super) enabled_protocols: Vec<String>,
    /// `ciphersuites`. Empty: all that there are.
    pub cipher_suites: Vec<String>,
    /// `lockkeeper.*.crlFile`: certificates that are revoked.
    pub crl_file: Option<PathBuf>,
    /// `handshakeDetectionTimeoutMillis`: how long a handshake may take.
    pub handshake_timeout_ms: u32,
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self {
            key_store: StoreConfig::default(),
            trust_store: StoreConfig::default(),
            client_auth: ClientAuthKey::Need,
            protocol: "TLSv1.3".to_owned(),
            enabled_protocols: Vec::new(),
            cipher_suites: Vec::new(),
            crl_file: None,
            handshake_timeout_ms: 5000,
        }
    }
}

impl ListenerTls {
    /// The versions that are spoken. Empty: all that there are.
    #[must_use]
    pub fn protocols(&self) -> Vec<String> {
        match (self.enabled_protocols.as_slice(), self.protocol.as_str()) {
            ([], "TLSv1.2") => vec!["TLSv1.2".to_owned()],
            (given, _) => given.to_vec(),
        }
    }
}

pub(super) const STORE_TYPE: &str = "PEM, PKCS12 or JKS, or nothing";
pub(super) const LIST: &str = "names with commas between them, or nothing";
pub(super) const PATH: &str = "a path, or nothing";
pub(super) const ANY: &str = "any text";

/// The entries of a family: its prefix, and the way from a `Config` to its [`ListenerTls`].
macro_rules! listener_keys {
    ($visibility:vis $name:ident, $prefix:literal, $($at:ident).+) => {
        /// The entries that every family of TLS has.
        $visibility static $name: [$crate::config::key::Key; 14] = {
            use $crate::config::key::Key;
            use $crate::config::listener_tls::{
                ANY, ClientAuthKey, LIST, PATH, STORE_TYPE, Secret, list, protocol, store_type, type_text,
            };
            use $crate::config::values::{optional_path, path_text, u32_of};
            [
    Key::effective(
        concat!($prefix, "keyStore.location"),
        "",
        |c| c.$($at).+.key_store.location.as_deref().map_or_else(String::new, path_text),
        "File with the server's private key and the certificates that vouch for it.",
    )
    .text(PATH, |c, text| {
        c.$($at).+.key_store.location = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "keyStore.password"),
        "",
        |c| c.$($at).+.key_store.password.shown().to_owned(),
        "Password of the key store and of the key in it. A file of PEM must have an encrypted key (PKCS#8) \
         with one, and a \
         plain one without.",
    )
    .text(ANY, |c, text| {
        c.$($at).+.key_store.password = Secret(text.to_owned());
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "keyStore.passwordPath"),
        "",
        |c| c.$($at).+.key_store.password_path.as_deref().map_or_else(String::new, path_text),
        concat!("File with that password; goes before ", $prefix, "keyStore.password."),
    )
    .text(PATH, |c, text| {
        c.$($at).+.key_store.password_path = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "keyStore.type"),
        "",
        |c| type_text(c.$($at).+.key_store.kind),
        "What the key store is. Empty: by the suffix of its file, .pem, .p12 or .jks.",
    )
    .text(STORE_TYPE, |c, text| {
        c.$($at).+.key_store.kind = store_type(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "trustStore.location"),
        "",
        |c| c.$($at).+.trust_store.location.as_deref().map_or_else(String::new, path_text),
        "File with the certificates that vouch for those who connect.",
    )
    .text(PATH, |c, text| {
        c.$($at).+.trust_store.location = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "trustStore.password"),
        "",
        |c| c.$($at).+.trust_store.password.shown().to_owned(),
        "Password of the trust store; a file of PEM has none.",
    )
    .text(ANY, |c, text| {
        c.$($at).+.trust_store.password = Secret(text.to_owned());
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "trustStore.passwordPath"),
        "",
        |c| c.$($at).+.trust_store.password_path.as_deref().map_or_else(String::new, path_text),
        concat!("File with that password; goes before ", $prefix, "trustStore.password."),
    )
    .text(PATH, |c, text| {
        c.$($at).+.trust_store.password_path = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "trustStore.type"),
        "",
        |c| type_text(c.$($at).+.trust_store.kind),
        "What the trust store is. Empty: by the suffix of its file, .pem, .p12 or .jks.",
    )
    .text(STORE_TYPE, |c, text| {
        c.$($at).+.trust_store.kind = store_type(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "clientAuth"),
        "need",
        |c| match c.$($at).+.client_auth {
            ClientAuthKey::None => "none".to_owned(),
            ClientAuthKey::Want => "want".to_owned(),
            ClientAuthKey::Need => "need".to_owned(),
        },
        "Whether those who connect show a certificate: none: they are not asked; want: one that they show must \
         be trusted; need: they must show one.",
    )
    .text("none, want or need", |c, text| {
        c.$($at).+.client_auth = match text.to_ascii_lowercase().as_str() {
            "none" => ClientAuthKey::None,
            "want" => ClientAuthKey::Want,
            "need" => ClientAuthKey::Need,
            _ => return Err(format!("`{text}` is none of none, want and need")),
        };
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "protocol"),
        "TLSv1.3",
        |c| c.$($at).+.protocol.clone(),
        "The newest version of TLS that is spoken, TLSv1.3 or TLSv1.2 (ZooKeeper 3.9 speaks this one alone).",
    )
    .text("TLSv1.2 or TLSv1.3", |c, text| {
        c.$($at).+.protocol = protocol(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "enabledProtocols"),
        "",
        |c| c.$($at).+.enabled_protocols.join(","),
        concat!(
            "The versions of TLS that are spoken. Empty: ", $prefix, "protocol and those before it. Those before \
             TLSv1.2 are not offered."
        ),
    )
    .text(LIST, |c, text| {
        c.$($at).+.enabled_protocols =
            list(text).iter().map(|name| protocol(name)).collect::<Result<_, _>>()?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "ciphersuites"),
        "",
        |c| c.$($at).+.cipher_suites.join(","),
        "Cipher suites by their Java names; the first that the other side has, too, is taken. Those that are not \
         offered are left out; with none left the server does not start. Empty: TLS_AES_256_GCM_SHA384, \
         TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256, and TLS_ECDHE_ECDSA and TLS_ECDHE_RSA with the same.",
    )
    .text(LIST, |c, text| {
        c.$($at).+.cipher_suites = list(text);
        Ok(())
    }),
    Key::effective(
        concat!("lockkeeper.", $prefix, "crlFile"),
        "",
        |c| c.$($at).+.crl_file.as_deref().map_or_else(String::new, path_text),
        "File with the revocation lists of those who vouch for others, of PEM or one of DER. Those whose \
         certificate is in one are refused. Nothing is fetched.",
    )
    .text(PATH, |c, text| {
        c.$($at).+.crl_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        concat!($prefix, "handshakeDetectionTimeoutMillis"),
        "5000",
        |c| c.$($at).+.handshake_timeout_ms.to_string(),
        "How long a handshake of TLS may take, ms.",
    )
    .number(1, 3_600_000, |c, n| c.$($at).+.handshake_timeout_ms = u32_of(n))
    .or_else("5000"),
            ]
        };
    };
}
pub(super) use listener_keys;

pub(super) fn store_type(text: &str) -> Result<Option<StoreType>, String> {
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

pub(super) fn type_text(kind: Option<StoreType>) -> String {
    match kind {
        None => "",
        Some(StoreType::Pem) => "PEM",
        Some(StoreType::Pkcs12) => "PKCS12",
        Some(StoreType::Jks) => "JKS",
    }
    .to_owned()
}

pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A version that is spoken.
pub(super) fn protocol(text: &str) -> Result<String, String> {
    match text {
        "TLSv1.2" | "TLSv1.3" => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is not offered: TLSv1.2 and TLSv1.3 are")),
    }
}
