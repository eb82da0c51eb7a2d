//! How a command that is a client reaches servers: a file of properties, as ZooKeeper's clients take it.
//!
//! *Owns* the file of `--client-configuration`: the keys of TLS, and who the client is by SASL. *Invariants*: passwords
//! come from files alone; a key of TLS that would have no effect is an error, and so is a JAAS file without the section
//! of the client. *Never* falls back to plain text, nor to a client that proves nothing.
//! Reproduces what `ZKClientConfig` and `ZooKeeperSaslClient` read.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::config::properties_of;
use crate::sasl::{ClientLogin, jaas};
use crate::tls::{ClientSettings, PasswordSource, Store, StoreKind, client_config};

/// How servers are reached.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientConfiguration {
    /// What to speak TLS by; `None`: plain text.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Who to prove to be by SASL; `None`: that is not done.
    pub(super) login: Option<ClientLogin>,
}

impl ClientConfiguration {
    /// Contents of the file.
    ///
    /// # Errors
    /// Faults of it, or of one that it names.
    pub(super) fn of_file(file: &Path) -> Result<Self, String> {
        let named = |reason: String| format!("{}: {reason}", file.display());
        let text = fs::read_to_string(file)
            .map_err(|error| named(format!("{error}: check the path and its permissions")))?;
        let mut given = Given::default();
        for (key, value) in properties_of(&text).map_err(named)? {
            let key = key.strip_prefix("zookeeper.").unwrap_or(&key);
            given.take(key, value.trim()).map_err(named)?;
        }
        let login = given.sasl.login()?;
        let settings = given.tls.settings(login.is_some()).map_err(named)?;
        let tls = settings.as_ref().map(client_config).transpose();
        Ok(Self { tls: tls.map_err(|error| error.to_string())?, login })
    }
}

#[derive(Default)]
struct Given {
    tls: GivenTls,
    sasl: GivenSasl,
}

#[derive(Default)]
struct GivenTls {
    /// `client.secure`, if it is said.
    is_wanted: Option<bool>,
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

#[derive(Default)]
struct GivenSasl {
    is_off: bool,
    /// By the name of the JVM's property, and by ours.
    jaas_file: Option<PathBuf>,
    section: Option<String>,
}

impl Given {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Self { tls, sasl } = self;
        if let Some(rest) = key.strip_prefix("ssl.keyStore.") {
            return tls.key_store.take(key, rest, value);
        }
        if let Some(rest) = key.strip_prefix("ssl.trustStore.") {
            return tls.trust_store.take(key, rest, value);
        }
        match key {
            "client.secure" => tls.is_wanted = Some(value == "true"),
            "ssl.hostnameVerification" => tls.ignores_host = value == "false",
            "sasl.client" => sasl.is_off = value == "false",
            "sasl.clientconfig" => {
                sasl.section = Some(value.to_owned()).filter(|name| !name.is_empty());
            }
            "java.security.auth.login.config" | "lockkeeper.jaasFile" => {
                sasl.jaas_file = Some(PathBuf::from(value)).filter(|_| !value.is_empty());
            }
            _ if key.starts_with("ssl.") => {
                return Err(format!("{key}: this key of TLS is not offered"));
            }
            // What concerns another client: its sockets, its Kerberos (`sasl.client.username` names its service).
            _ => {}
        }
        Ok(())
    }
}

impl GivenTls {
    /// `is_for_sasl`: the file is there for something else, and need not say anything of TLS.
    fn settings(self, is_for_sasl: bool) -> Result<Option<ClientSettings>, String> {
        let says_nothing = self.key_store.path.is_none() && self.trust_store.path.is_none();
        match self.is_wanted {
            Some(false) => return Ok(None),
            None if is_for_sasl && says_nothing => return Ok(None),
            Some(true) | None => {}
        }
        let trust_store = self
            .trust_store
            .store()
            .ok_or("ssl.trustStore.location is missing: what vouches for servers")?;
        let (key_store, verifies_host) = (self.key_store.store(), !self.ignores_host);
        let settings = ClientSettings::trusting(trust_store);
        Ok(Some(ClientSettings { key_store, verifies_host, ..settings }))
    }
}

impl GivenSasl {
    /// Who the client is; `None`: the file does not say.
    fn login(self) -> Result<Option<ClientLogin>, String> {
        let Some(file) = self.jaas_file.filter(|_| !self.is_off) else { return Ok(None) };
        let section = self.section.as_deref().unwrap_or(jaas::CLIENT_SECTION_DEFAULT);
        let named = |reason: String| format!("{}: {reason}", file.display());
        let text = read(&file).map_err(|error| named(error.to_string()))?;
        let login = jaas::client_login(&text, section);
        let login = login.map_err(|fault| format!("{}:{fault}", file.display()))?;
        let missing = || named(format!("there is no section {section}"));
        login.ok_or_else(missing).map(Some)
    }
}

/// A bounded length of a file.
fn read(file: &Path) -> std::io::Result<String> {
    let limit = u64::try_from(jaas::JAAS_TEXT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    File::open(file)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who a file says that the client is, with a JAAS file of this text beside it.
    fn login(keys: &str, jaas: &str) -> Result<Option<ClientLogin>, String> {
        let directory = tempfile::tempdir().unwrap();
        let (file, users) = (directory.path().join("client.cfg"), directory.path().join("jaas"));
        fs::write(&users, jaas).unwrap();
        fs::write(&file, keys.replace("JAAS", &users.display().to_string())).unwrap();
        ClientConfiguration::of_file(&file).map(|read| {
            assert!(read.tls.is_none());
            read.login
        })
    }

    const JAAS: &str = "Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=bob\n\
         password=hidden; };\n\
         Other { org.apache.zookeeper.server.auth.DigestLoginModule required username=carl\n\
         password=hidden; };";

    #[test]
    fn a_file_for_sasl_names_a_file_with_a_section() {
        let user = |keys: &str| login(keys, JAAS).unwrap().map(|login| login.user);
        assert_eq!(user("java.security.auth.login.config=JAAS").as_deref(), Some("bob"));
        assert_eq!(
            user("lockkeeper.jaasFile=JAAS\nzookeeper.client.secure=false").as_deref(),
            Some("bob")
        );
        let other = "lockkeeper.jaasFile=JAAS\nzookeeper.sasl.clientconfig=Other\nzookeeper.sasl.client.username=zk";
        assert_eq!(user(other).as_deref(), Some("carl"));
        let off =
            "lockkeeper.jaasFile=JAAS\nzookeeper.sasl.client=false\nzookeeper.client.secure=false";
        assert_eq!(user(off), None);
    }

    #[test]
    fn what_is_said_and_cannot_be_done_is_an_error_without_the_password() {
        for (keys, jaas, words) in [
            ("lockkeeper.jaasFile=JAAS", "Server { };", "there is no section Client"),
            ("lockkeeper.jaasFile=JAAS", "Client { half", "jaas:1: "),
            ("lockkeeper.jaasFile=JAAS\nsasl.clientconfig=None", JAAS, "there is no section None"),
            ("lockkeeper.jaasFile=/there/is/none", "", "/there/is/none: "),
            (
                "lockkeeper.jaasFile=JAAS\nclient.secure=true",
                JAAS,
                "ssl.trustStore.location is missing",
            ),
            ("", "", "ssl.trustStore.location is missing"),
        ] {
            let reason = login(keys, jaas).unwrap_err();
            assert!(reason.contains(words) && !reason.contains("hidden"), "{keys}: {reason}");
        }
    }
}
