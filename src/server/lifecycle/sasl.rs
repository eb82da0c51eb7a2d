//! The users of SASL, from the file that the configuration names.
//!
//! *Owns* the reading of the JAAS file, a bounded length of it. *Invariant*: a file that is named and cannot be used
//! is an error that names it and its line, and shows no password. *Never* watches the file: it is read at a start.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::config::{Config, ConfigError, SaslConfig};
use crate::sasl::{SaslSetup, SaslUsers, jaas};

/// What the configuration and the file that it names say about SASL.
///
/// # Errors
/// What is wrong with the file.
pub fn sasl_setup(config: &Config) -> Result<SaslSetup, ConfigError> {
    let sasl = &config.sasl;
    let mut users = match &sasl.jaas_file {
        Some(path) => users(path, sasl)?,
        None => None,
    };
    if let (Some(users), Some(password)) = (&mut users, &sasl.super_password) {
        // Without such a user in the file ZooKeeper does not look at the password either.
        users.replace_password("super", &password.0);
    }
    Ok(SaslSetup {
        users,
        offers_scheme: sasl.offers_scheme,
        allow_failed_clients: sasl.allow_failed_clients,
        remove_host: sasl.remove_host,
        remove_realm: sasl.remove_realm,
        any_user_id: sasl.any_user_id.clone(),
        super_users: sasl.super_users.values().cloned().collect(),
    })
}

/// `None`: the file has no such section, and goes for a client's, as with ZooKeeper.
fn users(path: &Path, sasl: &SaslConfig) -> Result<Option<SaslUsers>, ConfigError> {
    let section = &sasl.section;
    let fault = |line, reason| {
        let (file, key) = (path.display().to_string(), String::new());
        ConfigError { file, line, key, reason }
    };
    let text = read(path).map_err(|reason| fault(0, reason))?;
    let users = jaas::users(&text, section).map_err(|found| fault(found.line, found.reason))?;
    match users {
        None if sasl.is_needed() => Err(fault(0, format!("there is no section {section}"))),
        users => Ok(users),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let limit = u64::try_from(jaas::JAAS_TEXT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_string())
}
