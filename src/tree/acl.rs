//! Who may do what.
//!
//! *Owns* the identities of connections, the lists that znodes carry, the check, and what a list
//! must look like to be taken. *Invariants*: an [`AclList`] is never changed; it is shared by all
//! znodes with the same entries and by the events that need it.
//! *Never* looks at a znode.
//! Reproduces `ZooKeeperServer.checkACL`, `PrepRequestProcessor.fixupACL` and
//! `DigestAuthenticationProvider`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest as _, Sha1};
use smallvec::{SmallVec, smallvec};

use crate::proto::acl::perms;
use crate::proto::{Acl, ErrorCode, Text};

use super::Options;
use super::digest;
use super::distinguished_name;
use super::ip::{IpNetwork, Networks};

/// Most entries that a list may have once `auth` is expanded.
pub const ACL_ENTRIES_MAX: usize = 65_536;

/// The schemes whose ids are proved, and compared as they are. Whether a server lets clients prove them is its own
/// matter: lists that name them are judged alike by all, which apply them.
const PROVEN: [&[u8]; 2] = [b"digest", b"x509"];

/// What a connection is: `ip:127.0.0.1`, `digest:user:hash`, `super:`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The scheme that vouches for it.
    pub scheme: Text,
    /// Who it is there.
    pub id: Text,
}

impl Identity {
    /// Of a connection from `address`, which every connection has.
    #[must_use]
    pub fn ip(address: &str) -> Self {
        Self { scheme: Text::from_static("ip"), id: Text::copy_from(address) }
    }
}

/// The identity that `user:password` proves: `digest:user:base64(sha1(user:password))`. Any bytes
/// prove something, as in ZooKeeper.
#[must_use]
pub fn digest_identity(auth: &[u8]) -> Identity {
    let text = String::from_utf8_lossy(auth);
    let user = text.split(':').next().unwrap_or_default();
    let hash = BASE64.encode(Sha1::digest(text.as_bytes()));
    Identity { scheme: Text::from_static("digest"), id: Text::from(format!("{user}:{hash}")) }
}

/// Everything that an `auth` request of scheme `digest` makes of its connection: the digest
/// identity, behind `super` if it is the configured one. Empty when the scheme is disabled.
#[must_use]
pub fn digest_identities(auth: &[u8], options: &Options) -> SmallVec<[Identity; 2]> {
    if !options.digest_auth {
        return SmallVec::new();
    }
    let identity = digest_identity(auth);
    if options.super_digest.as_deref() == Some(identity.id.as_str()) {
        let all_powerful = Identity { scheme: Text::from_static("super"), id: Text::default() };
        return smallvec![all_powerful, identity];
    }
    smallvec![identity]
}

/// An access control list as znodes carry it: validated, `auth` expanded.
#[derive(Debug)]
pub struct AclList {
    entries: Box<[Acl]>,
    world_perms: i32,
    /// The bits of every id that is compared as it is, with its scheme, sorted, for a check that does not walk
    /// through the entries: a list may have thousands of them, and one request may check it thousands of times.
    exact: Box<[(Text, Text, i32)]>,
    /// The same for `ip`.
    networks: Networks,
    hash: u128,
}

impl AclList {
    pub(super) fn new(entries: Vec<Acl>) -> Self {
        let world_perms =
            entries.iter().filter(|acl| is_world(acl)).fold(0, |perms, acl| perms | acl.perms);
        let of = |scheme: &'static [u8]| {
            entries.iter().filter(move |acl| acl.scheme.as_bytes() == scheme)
        };
        let exact = entries.iter().filter(|acl| PROVEN.contains(&acl.scheme.as_bytes()));
        let mut exact: Box<[_]> =
            exact.map(|acl| (acl.scheme.clone(), acl.id.clone(), acl.perms)).collect();
        exact.sort_unstable();
        let networks = Networks::new(of(b"ip").map(|acl| (acl.id.as_str(), acl.perms)));
        let hash = digest::acl(&entries);
        Self { entries: entries.into_boxed_slice(), world_perms, exact, networks, hash }
    }

    /// What clients see, to those who may administer the znode.
    #[must_use]
    pub fn entries(&self) -> &[Acl] {
        &self.entries
    }

    /// The bits that `world:anyone` has.
    #[must_use]
    pub fn world_perms(&self) -> i32 {
        self.world_perms
    }

    /// For the digest of the tree.
    pub(super) fn hash(&self) -> u128 {
        self.hash
    }

    pub(super) fn is_open(&self) -> bool {
        is_open(&self.entries)
    }

    fn perms_of(&self, Identity { scheme, id }: &Identity) -> i32 {
        let first = self.exact.partition_point(|(of, other, _)| (of, other) < (scheme, id));
        self.exact[first..]
            .iter()
            .take_while(|(of, other, _)| (of, other) == (scheme, id))
            .fold(0, |perms, (_, _, more)| perms | more)
    }

    /// What clients see who may not administer the znode: password hashes are hidden.
    pub(super) fn masked(&self) -> Vec<Acl> {
        let mask = |acl: &Acl| match acl.id.as_str().split_once(':') {
            Some((user, _)) if acl.scheme.as_bytes() == b"digest" => {
                Acl { id: Text::from(format!("{user}:x")), ..acl.clone() }
            }
            _ => acl.clone(),
        };
        self.entries.iter().map(mask).collect()
    }
}

/// Whether `ids` have one of the `wanted` permission bits.
#[must_use]
pub fn allows(list: &AclList, ids: &[Identity], wanted: i32, options: &Options) -> bool {
    if list.world_perms & wanted != 0 || options.skip_acl || list.entries.is_empty() {
        return true;
    }
    if ids.iter().any(|identity| identity.scheme.as_bytes() == b"super") {
        return true;
    }
    ids.iter().any(|identity| {
        let perms = match identity.scheme.as_bytes() {
            b"ip" => list.networks.perms_of(identity.id.as_str()),
            b"digest" if !options.digest_auth => 0,
            scheme if PROVEN.contains(&scheme) => list.perms_of(identity),
            _ => 0,
        };
        perms & wanted != 0
    })
}

/// Checks a list that a client wants to set, drops duplicates and expands `auth`.
///
/// # Errors
/// [`ErrorCode::InvalidAcl`].
pub(super) fn fixup<'a>(
    list: Option<&'a [Acl]>,
    ids: &[Identity],
    options: &Options,
) -> Result<Cow<'a, [Acl]>, ErrorCode> {
    let list = list.unwrap_or_default();
    if is_open(list) {
        return Ok(Cow::Borrowed(list));
    }
    let mut seen = BTreeSet::new();
    let mut fixed = Vec::with_capacity(list.len().min(ACL_ENTRIES_MAX));
    for acl in list.iter().filter(|acl| seen.insert(*acl)) {
        if acl.scheme.as_bytes() == b"auth" {
            let before = fixed.len();
            fixed.extend(ids.iter().filter(|identity| proves(identity, options)).map(|identity| {
                Acl { perms: acl.perms, scheme: identity.scheme.clone(), id: identity.id.clone() }
            }));
            if fixed.len() == before {
                return Err(ErrorCode::InvalidAcl);
            }
        } else if is_world(acl) || is_valid(acl, options) {
            fixed.push(acl.clone());
        } else {
            return Err(ErrorCode::InvalidAcl);
        }
        if fixed.len() > ACL_ENTRIES_MAX {
            return Err(ErrorCode::InvalidAcl);
        }
    }
    if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(Cow::Owned(fixed)) }
}

/// Whether an identity was proved, and not merely observed as an address is.
fn proves(identity: &Identity, options: &Options) -> bool {
    match identity.scheme.as_bytes() {
        b"digest" => options.digest_auth,
        scheme => PROVEN.contains(&scheme),
    }
}

fn is_valid(acl: &Acl, options: &Options) -> bool {
    match acl.scheme.as_bytes() {
        b"ip" => IpNetwork::parse(acl.id.as_str()).is_some(),
        // Java's split drops empty strings at the end: "a:b:" passes, "a:" does not.
        b"digest" => {
            options.digest_auth
                && acl
                    .id
                    .as_str()
                    .trim_end_matches(':')
                    .bytes()
                    .filter(|byte| *byte == b':')
                    .count()
                    == 1
        }
        b"x509" => distinguished_name::is_one(acl.id.as_str()),
        _ => false,
    }
}

fn is_world(acl: &Acl) -> bool {
    acl.scheme.as_bytes() == b"world" && acl.id.as_bytes() == b"anyone"
}

pub(super) fn is_open(list: &[Acl]) -> bool {
    matches!(list, [acl] if acl.perms == perms::ALL && is_world(acl))
}
