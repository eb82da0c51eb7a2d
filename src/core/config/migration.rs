//! The keys of a live migration: how the link with ZooKeeper's leader is protected.
//!
//! *Owns* [`MigrationConfig`] and the entries of the table for it. *Invariant*: unless told otherwise the link is
//! protected as those between the servers of this ensemble are. *Never* opens a file: the server does.

use std::path::PathBuf;

use super::Config;
use super::key::Key;
use super::values::{optional_path, path_text};

/// How the link with ZooKeeper's leader is protected, while this ensemble follows one of ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationConfig {
    /// `lockkeeper.migration.sslQuorum`: the link goes through TLS. `None`: as `sslQuorum` says.
    pub ssl_quorum: Option<bool>,
    /// `lockkeeper.migration.jaasFile`: the file that says who this ensemble proves to be. `None`: it proves nothing.
    pub jaas_file: Option<PathBuf>,
    /// `quorum.auth.learner.saslLoginContext`: the section of that file.
    pub section: String,
}

impl Config {
    /// Whether the link with ZooKeeper's leader goes through TLS.
    #[must_use]
    pub fn speaks_tls_to_zookeeper(&self) -> bool {
        self.migration.ssl_quorum.unwrap_or(self.peer_tls.is_on)
    }
}

/// The key of the link's TLS.
pub(super) const SSL_QUORUM: &str = "lockkeeper.migration.sslQuorum";
/// The key of the file that says who this ensemble is.
pub(super) const JAAS_FILE: &str = "lockkeeper.migration.jaasFile";

/// The section's keys.
pub(super) static KEYS: [Key; 3] = [
    Key::effective(
        SSL_QUORUM,
        "",
        |c| c.migration.ssl_quorum.map_or_else(String::new, |is_on| is_on.to_string()),
        "Whether this ensemble, while it follows one of ZooKeeper, connects to ZooKeeper's leader through TLS: by \
         ssl.quorum.keyStore.*, ssl.quorum.trustStore.* and ssl.quorum.hostnameVerification. It must, where \
         ZooKeeper has sslQuorum=true without portUnification. Empty: as sslQuorum says.",
    )
    .text("true, false, or nothing", |c, text| {
        c.migration.ssl_quorum = match text {
            "" => None,
            "true" => Some(true),
            "false" => Some(false),
            _ => return Err(format!("`{text}` is neither true nor false")),
        };
        Ok(())
    }),
    Key::effective(
        JAAS_FILE,
        "",
        |c| c.migration.jaas_file.as_deref().map_or_else(String::new, path_text),
        "File that says who this ensemble proves to be to ZooKeeper's leader, where ZooKeeper has \
         quorum.auth.serverRequireSasl=true: the one of ZooKeeper's servers will do, `QuorumLearner { \
         org.apache.zookeeper.server.auth.DigestLoginModule required username=\"NAME\" password=\"...\"; };`. \
         Kerberos is not offered there. Empty: the leader is proved nothing.",
    )
    .text("a path, or nothing", |c, text| {
        c.migration.jaas_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "quorum.auth.learner.saslLoginContext",
        "QuorumLearner",
        |c| c.migration.section.clone(),
        "The section of that file.",
    )
    .text("the name of a section", |c, text| {
        if text.is_empty() {
            return Err("the name is empty".to_string());
        }
        c.migration.section = text.to_string();
        Ok(())
    })
    .or_else("QuorumLearner"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &str) -> Result<Config, String> {
        let text = format!("dataDir=/d\nclientPort=1\n{lines}");
        let faults = |all: Vec<super::super::ConfigError>| {
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        Config::parse("zoo.cfg", &text).map_err(faults)
    }

    const STORES: &str =
        "ssl.quorum.keyStore.location=/k.pem\nssl.quorum.trustStore.location=/t.pem\n";

    #[test]
    fn the_link_goes_through_tls_where_those_between_servers_do_unless_told_otherwise() {
        for (lines, expected) in [
            ("", false),
            ("sslQuorum=true\n", true),
            ("sslQuorum=true\nlockkeeper.migration.sslQuorum=false\n", false),
            ("lockkeeper.migration.sslQuorum=true\n", true),
        ] {
            let config = config(&format!("{STORES}{lines}")).unwrap();
            assert_eq!(config.speaks_tls_to_zookeeper(), expected, "{lines}");
        }
    }

    #[test]
    fn tls_of_the_link_needs_a_key_and_certificates_to_trust() {
        let refused = config("lockkeeper.migration.sslQuorum=true\n").unwrap_err();
        for key in ["ssl.quorum.keyStore.location", "ssl.quorum.trustStore.location"] {
            assert!(refused.contains(&format!("{SSL_QUORUM}: needs {key}")), "{refused}");
        }
        let refused = config("lockkeeper.migration.sslQuorum=perhaps\n").unwrap_err();
        assert!(refused.contains("neither true nor false"), "{refused}");
    }
}
