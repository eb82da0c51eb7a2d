//! The users of SASL, or the key of Kerberos, and who this ensemble is to ZooKeeper: from files of JAAS.
//!
//! *Owns* the reading of the JAAS file, a bounded length of it. *Invariant*: a file that is named and cannot be used
//! is an error that names it and its line, and shows no password. *Never* watches the file: it is read at a start.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::config::{Config, ConfigError, SaslConfig};
use crate::sasl::{AuthToLocal, ClientLogin, SaslSetup, jaas};

/// What the configuration and the file that it names say about SASL.
///
/// # Errors
/// What is wrong with the file, or with the rules for names.
pub fn sasl_setup(config: &Config) -> Result<SaslSetup, ConfigError> {
    let sasl = &config.sasl;
    let names = AuthToLocal::parse(&sasl.auth_to_local).map_err(|reason| {
        let (file, key) = ("configuration".to_owned(), "security.auth_to_local".to_owned());
        ConfigError { file, line: 0, key, reason }
    })?;
    let mut setup = SaslSetup {
        users: None,
        service: None,
        offers_scheme: sasl.offers_scheme,
        allow_failed_clients: sasl.allow_failed_clients,
        names,
        remove_host: sasl.remove_host,
        remove_realm: sasl.remove_realm,
        any_user_id: sasl.any_user_id.clone(),
        super_users: sasl.super_users.values().cloned().collect(),
    };
    let Some(path) = &sasl.jaas_file else { return Ok(setup) };
    match login(path, sasl)? {
        None => {}
        Some(jaas::Login::Users(mut users)) => {
            if let Some(password) = &sasl.super_password {
                // Without such a user in the file ZooKeeper does not look at the password either.
                users.replace_password("super", &password.0);
            }
            setup.users = Some(users);
        }
        Some(jaas::Login::Kerberos { key, line }) => {
            if cfg!(not(feature = "gssapi")) {
                return Err(fault(path, line, NOT_BUILT.to_owned()));
            }
            if let Some((_, realm)) = key.principal.rsplit_once('@') {
                setup.names = setup.names.in_realm(realm);
            } else {
                let reason = "the principal is without a realm: zookeeper/HOST@REALM".to_owned();
                return Err(fault(path, line, reason));
            }
            setup.service = Some(key);
        }
    }
    Ok(setup)
}

/// Who this ensemble proves to be to ZooKeeper's leader, in a live migration; `None`: it proves nothing.
///
/// # Errors
/// What is wrong with the file.
pub(in crate::server) fn learner_login(
    config: &Config,
) -> Result<Option<ClientLogin>, ConfigError> {
    let Some(path) = &config.migration.jaas_file else { return Ok(None) };
    let section = &config.migration.section;
    let advice = "make the file, or have lockkeeper.migration.jaasFile name another one";
    let text = read(path).map_err(|reason| fault(path, 0, format!("{reason}: {advice}")))?;
    let login = jaas::client_login(&text, section)
        .map_err(|found| fault(path, found.line, found.reason))?;
    let missing = || fault(path, 0, format!("there is no section {section}"));
    login.map(Some).ok_or_else(missing)
}

/// `None`: the file has no such section, and goes for a client's, as with ZooKeeper.
fn login(path: &Path, sasl: &SaslConfig) -> Result<Option<jaas::Login>, ConfigError> {
    let section = &sasl.section;
    let advice = "make the file, or have lockkeeper.jaasFile name another one";
    let text = read(path).map_err(|reason| fault(path, 0, format!("{reason}: {advice}")))?;
    let login =
        jaas::login(&text, section).map_err(|found| fault(path, found.line, found.reason))?;
    match login {
        None if sasl.is_needed() => Err(fault(path, 0, format!("there is no section {section}"))),
        login => Ok(login),
    }
}

fn fault(path: &Path, line: u32, reason: String) -> ConfigError {
    ConfigError { file: path.display().to_string(), line, key: String::new(), reason }
}

fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let limit = u64::try_from(jaas::JAAS_TEXT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_string())
}

const NOT_BUILT: &str = "refused: Kerberos needs a build with the feature gssapi (cargo build --release --features \
     gssapi, where MIT Kerberos and libclang are installed: libkrb5-dev and libclang-dev of Debian)";

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// What a file makes of the configuration.
    fn setup(module: &str) -> Result<SaslSetup, ConfigError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "Server {{\n {module};\n}};").unwrap();
        let mut config = Config::without_file();
        config.sasl.jaas_file = Some(file.path().to_path_buf());
        sasl_setup(&config)
    }

    #[test]
    fn a_key_of_kerberos_takes_a_build_that_can_use_it() {
        let module =
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=k";
        let setup = setup(&format!("{module} principal=\"zookeeper/h@R\""));
        if cfg!(feature = "gssapi") {
            let setup = setup.unwrap();
            assert_eq!(setup.service.as_ref().map(|key| key.key_tab.as_str()), Some("k"));
            assert_eq!(setup.id_of("bob@OTHER").as_deref(), Some("bob@OTHER"));
        } else {
            let refused = setup.unwrap_err();
            assert!(refused.reason.contains("--features gssapi") && refused.line == 2, "{refused}");
        }
    }

    #[test]
    fn rules_that_are_none_are_named() {
        let mut config = Config::without_file();
        config.sasl.auth_to_local = "RULE:[1:$3]".to_owned();
        let refused = sasl_setup(&config).unwrap_err().to_string();
        assert!(refused.contains("security.auth_to_local: `RULE:[1:$3]`"), "{refused}");
    }
}
