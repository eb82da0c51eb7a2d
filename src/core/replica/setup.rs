//! What a replica begins with.
//!
//! *Owns* what is fixed for its life, and what its disk gave back.

use super::durable::{Entry, HardState, Mark, Membership};
use crate::config::ServerSpec;
use crate::sasl::SaslSetup;

/// Ephemerals that the end of a session removes at once, unless tests have it otherwise: a few milliseconds of a core.
const LEAVING_AT_ONCE: usize = 1000;

/// Everything that is fixed for the life of a replica.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Raft id; not 0.
    pub raft_id: u64,
    /// myid: the top byte of the sessions opened here.
    pub server_id: u8,
    /// From the operating system: session passwords, hash seeds.
    pub seed: [u8; 32],
    /// Shortest session timeout granted.
    pub session_timeout_ms_min: i32,
    /// Longest session timeout granted.
    pub session_timeout_ms_max: i32,
    /// Time between two looks for containers and TTL znodes to remove.
    pub container_check_interval_ms: u64,
    /// How many of them are removed in a minute at most.
    pub container_max_per_minute: u32,
    /// Age at which a container that never had a child is removed; 0 is never.
    pub container_never_used_ms: i64,
    /// Whether the ACL is checked before a write is proposed, too.
    pub eager_acl_check: bool,
    /// Whether reconfig is answered by anything but "disabled".
    pub reconfig_enabled: bool,
    /// Whether a member may have several addresses.
    pub multi_address: bool,
    /// Whether `Ready::audit` is filled.
    pub audit: bool,
    /// Whether the servers of an ensemble compare the digests of their states.
    pub compares: bool,
    /// Whether there is a disk: if not, nothing is ever drained.
    pub durable: bool,
    /// The servers of the ensemble as the configuration names them; `None` on its own.
    pub ensemble: Option<Vec<ServerSpec>>,
    /// Whether an operator has declared this server, which founded the ensemble, to be alone: it serves before a
    /// majority of the participants votes.
    pub is_declared_alone: bool,
    /// How much longer than its timeout a silent session lives, in milliseconds.
    pub expiry_grace_ms: u64,
    /// Whether every read is confirmed by a quorum first.
    pub linearizable_reads: bool,
    /// Whether the connections of one address share what makes their load a small one, whose requests come first.
    pub shares_by_address: bool,
    /// Whether clients that ask for it are served while there is no leader.
    pub read_only_mode: bool,
    /// How long the log's disk may take for what something waits for before it counts as hung, in
    /// milliseconds.
    pub disk_stall_ms: u64,
    /// Whether sessions that are opened here get the password that ZooKeeper computes of their id.
    pub computed_passwords: bool,
    /// Users who may authenticate by SASL, and what comes of it.
    pub sasl: SaslSetup,
    /// Ephemerals that the end of a session removes before other servers are heard again.
    pub leaving_at_once: usize,
    /// Schemes of which a connection must have proved an identity before it is served; any one will do. None: it may
    /// be served without.
    pub enforced_schemes: Vec<String>,
}

impl Default for Setup {
    /// A standalone server with ZooKeeper's defaults at a tick of 2 s, in memory, with a seed of
    /// zeros: for tests.
    fn default() -> Self {
        Self {
            raft_id: 1,
            server_id: 1,
            seed: [0; 32],
            session_timeout_ms_min: 4000,
            session_timeout_ms_max: 40_000,
            container_check_interval_ms: 60_000,
            container_max_per_minute: 10_000,
            container_never_used_ms: 300_000,
            eager_acl_check: false,
            reconfig_enabled: false,
            multi_address: true,
            audit: false,
            compares: true,
            durable: false,
            ensemble: None,
            is_declared_alone: false,
            expiry_grace_ms: 0,
            linearizable_reads: false,
            shares_by_address: true,
            read_only_mode: false,
            disk_stall_ms: 5000,
            computed_passwords: false,
            sasl: SaslSetup::default(),
            leaving_at_once: LEAVING_AT_ONCE,
            enforced_schemes: Vec::new(),
        }
    }
}

/// What the disk gave back.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The last hard state that is durable; `commit` is at least `applied`.
    pub hard_state: HardState,
    /// Who took part in the state that the machine was loaded from, or at the beginning if that was the
    /// log alone. Changes in the entries behind it are in the machine.
    pub membership: Membership,
    /// The image that was loaded, if it was one: it can be sent to others.
    pub image: Option<Mark>,
    /// Index and term of the last entry in the image, or whatever else the machine was loaded from:
    /// it has replayed everything from there on. The log may have older ones, whose terms were not
    /// read.
    pub begun_after: (u64, u64),
    /// Index of the last entry that the machine contains.
    pub applied: u64,
    /// Its term.
    pub applied_term: u64,
    /// The entries behind it, all durable.
    pub tail: Vec<Entry>,
}
