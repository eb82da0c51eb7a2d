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
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::proto::acl::perms;
use crate::proto::{Acl, ErrorCode, Text};
use crate::sasl::Principal;

use super::distinguished_name;
use super::ip::{IpNetwork, Networks};
use super::options::{Options, Rules};

/// Most entries that a list may have once `auth` is expanded.
pub const ACL_ENTRIES_MAX: usize = 65_536;

/// The schemes whose ids are proved, and compared as they are.
const PROVEN: [&[u8]; 3] = [b"digest", b"sasl", b"x509"];

/// Keeps lists apart from the other kinds of input of the digest (`digest.rs`).
const HASH_SEED: u64 = 0x6c6f_636b_0000_0001;

/// The id of the scheme `sasl` that matches every id of it.
const SASL_SUPER: &[u8] = b"super";

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

    /// What a user is in the scheme `sasl`.
    #[must_use]
    pub fn sasl(id: &str) -> Self {
        Self { scheme: Text::from_static("sasl"), id: Text::copy_from(id) }
    }

    /// May do everything.
    #[must_use]
    pub fn all_powerful() -> Self {
        Self { scheme: Text::from_static("super"), id: Text::default() }
    }

    /// No identity, but a mark of a connection whose server offers the scheme `sasl`: lists that name the scheme are
    /// judged by it, and so alike by all servers that apply a transaction, however they are configured.
    #[must_use]
    pub fn offers_sasl() -> Self {
        Self { scheme: Text::from_static(OFFERS), id: Text::from_static("sasl") }
    }

    /// No identity, but a mark of a connection that has proved one of the scheme `sasl`: it has also what `id` has
    /// (`letAnySaslUserDoX`).
    #[must_use]
    pub fn any_sasl(id: &str) -> Self {
        Self { scheme: Text::from_static(ANY_SASL), id: Text::copy_from(id) }
    }

    /// Whether it is a mark, which no client sees.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        [OFFERS, ANY_SASL].contains(&self.scheme.as_str())
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
    if !options.rules.digest_auth {
        return SmallVec::new();
    }
    let identity = digest_identity(auth);
    if options.super_digest.as_deref() == Some(identity.id.as_str()) {
        return smallvec![Identity::all_powerful(), identity];
    }
    smallvec![identity]
}

/// An access control list as znodes carry it: validated, `auth` expanded.
#[derive(Debug)]
pub struct AclList {
    entries: Box<[Acl]>,
    world_perms: i32,
    /// The bits of every id that is compared as it is, with its scheme.
    exact: Exact,
    /// The bits of all `sasl` ids.
    sasl_perms: i32,
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
        let exact = Exact::new(exact.map(|acl| {
            (key(acl.scheme.as_str(), &acl.id), acl.scheme.clone(), acl.id.clone(), acl.perms)
        }));
        let sasl_perms = of(b"sasl").fold(0, |perms, acl| perms | acl.perms);
        let networks = Networks::new(of(b"ip").map(|acl| (acl.id.as_str(), acl.perms)));
        let hash = hash(&entries);
        Self { entries: entries.into_boxed_slice(), world_perms, exact, sasl_perms, networks, hash }
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

/// Ids with their schemes and bits, for a check that compares few of them: a list may have thousands, an asker 64
/// identities, and one request may check it thousands of times.
#[derive(Debug)]
struct Exact {
    /// Sorted by a hash of scheme and id.
    entries: Box<[(u64, Text, Text, i32)]>,
    /// Of as many ranges of hashes as there are entries, or some more: where each begins, and where the last one ends.
    begins: Box<[u32]>,
    /// How many of a hash's lowest bits do not say its range.
    shift: u32,
}

impl Exact {
    fn new(entries: impl Iterator<Item = (u64, Text, Text, i32)>) -> Self {
        let mut entries: Box<[_]> = entries.collect();
        entries.sort_unstable();
        let ranges = entries.len().next_power_of_two().max(2);
        let shift = u64::BITS - ranges.trailing_zeros();
        let mut begins = vec![0; ranges + 1];
        for (hash, ..) in &entries {
            begins[(hash >> shift) as usize + 1] += 1;
        }
        for range in 0..ranges {
            begins[range + 1] += begins[range];
        }
        Self { entries, begins: begins.into(), shift }
    }

    fn perms_of(&self, scheme: &str, id: &Text) -> i32 {
        let (key, text) = (key(scheme, id), (scheme, id));
        let range = (key >> self.shift) as usize;
        let (begin, end) = (self.begins[range] as usize, self.begins[range + 1] as usize);
        let entries = &self.entries[begin..end];
        let first = entries.partition_point(|(hash, of, other, _)| {
            hash.cmp(&key).then_with(|| (of.as_str(), other).cmp(&text)).is_lt()
        });
        entries[first..]
            .iter()
            .take_while(|(hash, of, other, _)| *hash == key && (of.as_str(), other) == text)
            .fold(0, |perms, (.., more)| perms | more)
    }
}

/// Hash of an id with its scheme: two may have the same.
fn key(scheme: &str, id: &Text) -> u64 {
    XxHash3_64::oneshot_with_seed(scheme.len() as u64, id.as_bytes())
}

/// Hash of a list, in its order, for the digest of the tree.
pub(super) fn hash(entries: &[Acl]) -> u128 {
    let mut bytes = Vec::new();
    Acl::encode_list(entries, &mut bytes);
    XxHash3_128::oneshot_with_seed(HASH_SEED, &bytes)
}

/// A client that asks, and the rules by which that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its identities.
    pub ids: &'a [Identity],
    /// The rules.
    pub rules: Rules,
}

impl Asker<'_> {
    /// Anyone, by ZooKeeper's default rules.
    pub const ANYONE: Self = Self { ids: &[], rules: Rules::DEFAULT };
}

/// Whether the asker has one of the `wanted` permission bits.
#[must_use]
pub fn allows(list: &AclList, asker: Asker<'_>, wanted: i32) -> bool {
    let Asker { ids, rules } = asker;
    if list.world_perms & wanted != 0 || rules.skip_acl || list.entries.is_empty() {
        return true;
    }
    if ids.iter().any(|identity| identity.scheme.as_bytes() == b"super") {
        return true;
    }
    ids.iter().any(|identity| {
        let perms = match identity.scheme.as_bytes() {
            b"ip" => list.networks.perms_of(identity.id.as_str()),
            b"digest" if !rules.digest_auth => 0,
            b"sasl" if identity.id.as_bytes() == SASL_SUPER => list.sasl_perms,
            scheme if scheme == ANY_SASL.as_bytes() => list.exact.perms_of("sasl", &identity.id),
            scheme if PROVEN.contains(&scheme) => {
                list.exact.perms_of(identity.scheme.as_str(), &identity.id)
            }
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
    asker: Asker<'_>,
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
            fixed.extend(asker.ids.iter().filter(|identity| proves(identity, asker)).map(
                |identity| Acl {
                    perms: acl.perms,
                    scheme: identity.scheme.clone(),
                    id: identity.id.clone(),
                },
            ));
            if fixed.len() == before {
                return Err(ErrorCode::InvalidAcl);
            }
        } else if is_world(acl) || is_valid(acl, asker) {
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
fn proves(identity: &Identity, asker: Asker<'_>) -> bool {
    match identity.scheme.as_bytes() {
        b"digest" => asker.rules.digest_auth,
        b"sasl" => is_sasl_offered(asker.ids),
        scheme => PROVEN.contains(&scheme),
    }
}

/// Whether the server of the connection with these identities offers the scheme `sasl`.
fn is_sasl_offered(ids: &[Identity]) -> bool {
    ids.contains(&Identity::offers_sasl())
}

fn is_valid(acl: &Acl, asker: Asker<'_>) -> bool {
    match acl.scheme.as_bytes() {
        b"ip" => IpNetwork::parse(acl.id.as_str()).is_some(),
        // Java's split drops empty strings at the end: "a:b:" passes, "a:" does not.
        b"digest" => {
            asker.rules.digest_auth
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
        b"sasl" => is_sasl_offered(asker.ids) && Principal::parse(acl.id.as_str()).is_some(),
        _ => false,
    }
}

/// Schemes of marks, which no list may name.
const OFFERS: &str = "offers";
/// See [`OFFERS`].
const ANY_SASL: &str = "any-sasl";

fn is_world(acl: &Acl) -> bool {
    acl.scheme.as_bytes() == b"world" && acl.id.as_bytes() == b"anyone"
}

pub(super) fn is_open(list: &[Acl]) -> bool {
    matches!(list, [acl] if acl.perms == perms::ALL && is_world(acl))
}
