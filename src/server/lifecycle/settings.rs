//! What the parts of a server are told of its configuration.
//!
//! *Owns* the translation, and nothing else: what a key means, and whether its value is right, is
//! `config`'s to say.

use std::net::SocketAddr;
use std::path::Path;

use crate::admin::{ClientAddress, Facts, Guard};
use crate::config::Config;
use crate::replica::Setup;
use crate::sasl::SaslSetup;
use crate::server::error::StartError;
use crate::tree;

/// For the replica.
#[must_use]
pub(super) fn setup(
    config: &Config,
    sasl: SaslSetup,
    seed: [u8; 32],
    audit: bool,
    durable: bool,
) -> Setup {
    let ms = |ms: u32| i32::try_from(ms).unwrap_or(i32::MAX);
    Setup {
        raft_id: RAFT_ID_IN_MEMORY,
        server_id: config.server_id.unwrap_or(SERVER_ID_STANDALONE),
        seed,
        session_timeout_ms_min: ms(config.min_session_timeout_ms),
        session_timeout_ms_max: ms(config.max_session_timeout_ms),
        container_check_interval_ms: config.containers.check_interval_ms.into(),
        container_max_per_minute: config.containers.max_per_minute,
        container_never_used_ms: config.containers.max_never_used_interval_ms.into(),
        eager_acl_check: config.eager_acl_check,
        reconfig_enabled: config.reconfig_enabled,
        multi_address: config.multi_address,
        compares: true,
        audit,
        durable,
        ensemble: config.is_ensemble().then(|| config.servers.clone()),
        // Its data says that.
        is_declared_alone: false,
        expiry_grace_ms: config.session_expiry_grace_ms.into(),
        linearizable_reads: config.linearizable_reads,
        shares_by_address: config.shares_by_address,
        read_only_mode: config.read_only_mode_enabled,
        disk_stall_ms: config.disk_stall_ms.into(),
        computed_passwords: config.computed_session_passwords,
        sasl,
        enforced_schemes: config.sasl.enforced_schemes(),
        ..Setup::default()
    }
}

/// What the replica and the tree draw their random numbers from.
///
/// # Errors
/// The system gives none.
pub(super) fn seed() -> Result<[u8; 32], StartError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(StartError::system("random seed"))?;
    Ok(seed)
}

/// For the tree.
#[must_use]
pub(in crate::server) fn tree_options(config: &Config, seed: [u8; 32]) -> tree::Options {
    let hash_seed = seed.first_chunk::<8>().expect("a seed is 32 bytes long");
    tree::Options {
        rules: tree::Rules {
            extended_types: config.extended_types_enabled,
            enforce_quota: config.enforce_quota,
            skip_acl: config.skip_acl,
            digest_auth: config.digest_auth_enabled,
        },
        super_digest: config.super_digest.clone(),
        // Only the `hash` word shows it.
        legacy_digest: config.four_letter_words.allows("hash", true),
        hash_seed: u64::from_le_bytes(*hash_seed),
    }
}

/// For the HTTP port.
#[must_use]
pub(super) fn guard(config: &Config) -> Guard {
    let of_servers = config.servers.iter().flat_map(|server| {
        let addresses = server.addresses.iter().map(|address| address.host.clone());
        addresses.chain(server.client.iter().map(|client| client.host.clone()))
    });
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = config.admin.hosts.iter().cloned().chain(of_servers);
    let hosts = hosts.chain([config.admin.addr.host.clone(), machine]).collect();
    Guard {
        hosts,
        token_file: config.admin.token_file.clone(),
        hides_tree: !config.admin.browser,
        hides_snapshot: !config.admin.snapshot_enabled,
        super_digest: config.super_digest.clone().filter(|_| config.digest_auth_enabled),
    }
}

/// For operators.
#[must_use]
pub(super) fn facts(
    config: &Config,
    is_in_memory: bool,
    (address, secure_address): (SocketAddr, Option<SocketAddr>),
) -> Facts {
    let directory = |path: &Path| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        (!is_in_memory).then_some(absolute)
    };
    let ms = |ms: u32| i32::try_from(ms).unwrap_or(i32::MAX);
    Facts {
        server_id: config.server_id.unwrap_or(0).into(),
        init_limit: config.init_limit(),
        sync_limit: config.sync_limit(),
        client_address: match config.tls.is_only {
            true => ClientAddress::default(),
            false => ClientAddress::at(address),
        },
        secure_client_address: secure_address,
        data_dir: directory(&config.data_dir),
        log_dir: directory(&config.data_log_dir),
        tick_time_ms: config.tick_time_ms,
        connections_per_ip_max: config.max_client_cnxns,
        session_timeout_ms_min: ms(config.min_session_timeout_ms),
        session_timeout_ms_max: ms(config.max_session_timeout_ms),
        listen_backlog: ms(config.listen_backlog),
        initial_configuration: config.given(),
        properties: config.values(),
    }
}

/// The Raft id of a server that has no data directory to say another.
const RAFT_ID_IN_MEMORY: u64 = 1;
/// What ZooKeeper puts into the session ids of a standalone server.
pub(in crate::server) const SERVER_ID_STANDALONE: u8 = 1;
