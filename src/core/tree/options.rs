//! Settings of the tree.
//!
//! *Owns* [`Options`]. *Invariant*: the defaults are ZooKeeper's. *Never* changes while a tree lives.

/// What is configured about the tree. All but the hash seed must be equal on all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether znodes with a time to live may be created (`extendedTypesEnabled`).
    pub extended_types: bool,
    /// Whether hard limits of quotas are enforced (`enforceQuota`).
    pub enforce_quota: bool,
    /// Whether access control lists are ignored (`skipACL`).
    pub skip_acl: bool,
    /// Whether the scheme `digest` exists (`DigestAuthenticationProvider.enabled`).
    pub digest_auth: bool,
    /// The digest id that is super, `user:base64(sha1(user:password))`
    /// (`DigestAuthenticationProvider.superDigest`).
    pub super_digest: Option<String>,
    /// Whether ZooKeeper's own 64-bit digest is kept too.
    pub legacy_digest: bool,
    /// Makes the table of paths unpredictable to clients. May differ between servers.
    pub hash_seed: u64,
}

impl Default for Options {
    /// As ZooKeeper is configured unless told otherwise.
    fn default() -> Self {
        Self {
            extended_types: false,
            enforce_quota: false,
            skip_acl: false,
            digest_auth: true,
            super_digest: None,
            legacy_digest: false,
            hash_seed: 0,
        }
    }
}
