//! Files with secrets: keys, passwords, users, tokens.
//!
//! *Owns* what is said of their permissions, and of those that are missing, at the start, and what a check of the
//! configuration finds wrong with them.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{certificates, sasl};
use crate::admin::read_token;
use crate::config::{ClientAuthKey, Config, PeerSecurityKey};
use crate::server::error::StartError;
use crate::server::peer::security::Security;

/// Permissions of others than the owner and the group.
const OTHERS: u32 = 0o007;

/// What is wrong with the files of keys, certificates, secrets and tokens: a server with them does not start.
#[must_use]
pub fn file_faults(config: &Config) -> Vec<StartError> {
    let stores = [
        certificates::of_clients(&config.tls),
        if config.is_ensemble() { certificates::of_peers(&config.peer_tls) } else { Ok(None) },
        certificates::of_operators(config),
        certificates::of_metrics(config),
        certificates::of_zookeeper(config, None),
    ];
    let stores = stores.into_iter().filter_map(Result::err).map(StartError::from);
    let secret = if config.is_ensemble() { Security::open(config, None).err() } else { None };
    let login = sasl::learner_login(config).err().map(|error| StartError::Config(vec![error]));
    let token = config.admin.token_file.as_ref().filter(|_| config.admin.enabled);
    let token = token.and_then(|path| Some((path, read_token(path).err()?)));
    let token = token.map(|(path, reason)| StartError::Token { path: path.clone(), reason });
    stores.chain(secret).chain(login).chain(token).collect()
}

/// Warns of each file that users beside the owner and the group may read or change.
pub(in crate::server) fn warn_of_readable(config: &Config) {
    for path in files(config).filter(|path| is_open_to_others(path)) {
        let file = path.display();
        tracing::warn!(%file, "other users may read or change this file, which holds a secret: chmod 600");
    }
}

/// Warns of an ensemble whose servers believe any program that reaches their port.
pub(in crate::server) fn warn_of_unknown_peers(config: &Config) {
    let (security, tls) = (&config.peer_security, &config.peer_tls);
    if !config.is_ensemble() {
        return;
    }
    if tls.is_offered() && !tls.is_demanded() {
        tracing::warn!(
            "portUnification is true: links between servers are taken without TLS, too. Leave it out as soon as \
             all servers have sslQuorum=true"
        );
    }
    if tls.is_offered() && !tls.verifies_host {
        tracing::warn!(
            "ssl.quorum.hostnameVerification is false: a program with any certificate that the trust store vouches for \
             can pose as any server"
        );
    }
    if tls.is_demanded() && tls.listener.client_auth == ClientAuthKey::Need {
        return;
    }
    if security.mode == PeerSecurityKey::Transition {
        tracing::warn!(
            "lockkeeper.peerSecurity is transition: links of servers that prove nothing are taken, too. Leave it \
             out as soon as all servers have the secret"
        );
    } else if security.secret_file.is_none() && !is_on_loopback(config) {
        tracing::warn!(
            "the servers of this ensemble do not prove to each other who they are: any program that reaches their \
             ports can read, change and delete everything. Give all servers the same lockkeeper.peerSecretFile \
             (`lockkeeper peer-secret FILE` makes one), or certificates (sslQuorum=true)"
        );
    }
}

/// Whether all servers are on this machine alone.
fn is_on_loopback(config: &Config) -> bool {
    let mut addresses = config.servers.iter().flat_map(|server| &server.addresses);
    addresses.all(|address| match address.host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => address.host.eq_ignore_ascii_case("localhost"),
    })
}

fn files(config: &Config) -> impl Iterator<Item = &Path> {
    let (clients, servers, metrics) = (&config.tls, &config.peer_tls, &config.metrics_tls);
    let of_tls = [
        (clients.is_offered(), &clients.listener),
        // The HTTP port and the link with ZooKeeper go by the same keys.
        (
            servers.is_offered() || config.admin.speaks_tls() || config.speaks_tls_to_zookeeper(),
            &servers.listener,
        ),
        (config.metrics_secure_addr.is_some(), &metrics.listener),
    ];
    let of_tls = of_tls.into_iter().filter(|(is_offered, _)| *is_offered).flat_map(|(_, tls)| {
        [&tls.key_store.location, &tls.key_store.password_path, &tls.trust_store.password_path]
    });
    let others = [
        &config.admin.token_file,
        &config.sasl.jaas_file,
        &config.peer_security.secret_file,
        &config.migration.jaas_file,
    ];
    of_tls.chain(others).filter_map(Option::as_deref)
}

fn is_open_to_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.mode() & OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_ensemble_on_loopback_addresses_alone_needs_no_secret() {
        for (hosts, expected) in [
            (["127.0.0.1", "127.0.0.2", "localhost"], true),
            (["127.0.0.1", "10.0.0.2", "127.0.0.1"], false),
            (["zk1", "127.0.0.1", "127.0.0.1"], false),
            (["0.0.0.0", "127.0.0.1", "127.0.0.1"], false),
        ] {
            let lines =
                hosts.iter().zip(1..).map(|(host, id)| format!("server.{id}={host}:1{id}:2{id}\n"));
            let text = format!("dataDir=/d\nclientPort=1\n{}", lines.collect::<String>());
            let mut draft = crate::config::Draft::from_text("zoo.cfg", &text);
            draft.set_myid("myid", "1\n");
            assert_eq!(is_on_loopback(&draft.resolve().unwrap()), expected, "{hosts:?}");
        }
    }

    #[test]
    fn a_file_is_open_to_others_if_they_may_do_anything_with_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in [(0o600, false), (0o640, false), (0o644, true), (0o602, true)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_others(file.path()), expected, "{mode:o}");
        }
        assert!(!is_open_to_others(Path::new("/there/is/none")));
    }
}
