//! Settings of one server, and rules by which requests are judged.
//!
//! *Owns* [`Options`] and [`Rules`]. *Invariants*: the defaults are ZooKeeper's; the tree is given the rules with each
//! request, and no other setting changes an outcome. *Never* changes while a tree lives.

/// Settings of one server that concern its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Rules of this server's file.
    pub rules: Rules,
    /// The digest id that is super, `user:base64(sha1(user:password))`
    /// (`DigestAuthenticationProvider.superDigest`): resolved where a connection proves it.
    pub super_digest: Option<String>,
    /// Whether ZooKeeper's own 64-bit digest is kept too.
    pub legacy_digest: bool,
    /// Makes the table of paths unpredictable to clients.
    pub hash_seed: u64,
}

/// Rules by which a request is judged: for a read, those of the server that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether znodes with a time to live may be created (`extendedTypesEnabled`).
    pub extended_types: bool,
    /// Whether hard limits of quotas are enforced (`enforceQuota`).
    pub enforce_quota: bool,
    /// Whether access control lists are ignored (`skipACL`).
    pub skip_acl: bool,
    /// Whether the scheme `digest` exists (`DigestAuthenticationProvider.enabled`).
    pub digest_auth: bool,
}

impl Rules {
    /// As ZooKeeper is configured unless told otherwise.
    pub const DEFAULT: Self =
        Self { extended_types: false, enforce_quota: false, skip_acl: false, digest_auth: true };

    /// Keys of the configuration that give the rules, and their values as a file has them.
    #[must_use]
    pub fn settings(self) -> [(&'static str, &'static str); 4] {
        let Self { extended_types, enforce_quota, skip_acl, digest_auth } = self;
        let switch = |is_on| if is_on { "true" } else { "false" };
        [
            ("extendedTypesEnabled", switch(extended_types)),
            ("enforceQuota", switch(enforce_quota)),
            ("skipACL", if skip_acl { "yes" } else { "no" }),
            ("DigestAuthenticationProvider.enabled", switch(digest_auth)),
        ]
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::DEFAULT
    }
}
