//! Access control lists: which are accepted, and whom they let in.
//!
//! Reproduces the rules of `PrepRequestProcessor.fixupACL` and `ZooKeeperServer.checkACL`.

use std::net::IpAddr;

use crate::op::{Acl, Code, Identity};

/// The list as it is stored: checked, `auth` expanded to the digests of the connection, each entry once.
///
/// # Errors
/// `InvalidACL`.
pub fn stored(acl: &[Acl], ids: &[Identity]) -> Result<Vec<Acl>, Code> {
    let mut list: Vec<Acl> = Vec::new();
    for entry in acl {
        let mut entries = vec![entry.clone()];
        match entry.scheme.as_str() {
            "world" if entry.id == "anyone" => {}
            "digest" if entry.id.matches(':').count() == 1 => {}
            "ip" if mask(&entry.id).is_some() => {}
            "auth" => {
                let digests = ids.iter().filter(|(scheme, _)| scheme == "digest");
                entries = digests
                    .map(|(scheme, id)| Acl {
                        perms: entry.perms,
                        scheme: scheme.clone(),
                        id: id.clone(),
                    })
                    .collect();
            }
            _ => return Err(Code::INVALID_ACL),
        }
        if entries.is_empty() {
            return Err(Code::INVALID_ACL);
        }
        for entry in entries {
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
    }
    if list.is_empty() { Err(Code::INVALID_ACL) } else { Ok(list) }
}

/// Whether somebody with these identities has one of the permissions.
#[must_use]
pub fn is_allowed(acl: &[Acl], ids: &[Identity], perms: i32) -> bool {
    let fits = |entry: &Acl| {
        entry.scheme == "world" || ids.iter().any(|(scheme, id)| matches(entry, scheme, id))
    };
    acl.is_empty()
        || ids.iter().any(|(scheme, _)| scheme == "super")
        || acl.iter().any(|entry| entry.perms & perms != 0 && fits(entry))
}

fn matches(entry: &Acl, scheme: &str, id: &str) -> bool {
    if entry.scheme != scheme {
        return false;
    }
    if scheme != "ip" {
        return entry.id == id;
    }
    let (Some((net, bits)), Ok(address)) = (mask(&entry.id), id.parse::<IpAddr>()) else {
        return false;
    };
    match (net, address) {
        (IpAddr::V4(net), IpAddr::V4(address)) => {
            let drop = 32 - bits;
            drop == 32 || (net.to_bits() >> drop) == (address.to_bits() >> drop)
        }
        (IpAddr::V6(net), IpAddr::V6(address)) => {
            let drop = 128 - bits;
            drop == 128 || (net.to_bits() >> drop) == (address.to_bits() >> drop)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Address and number of leading bits of `address[/bits]`.
fn mask(id: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match id.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (id, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
        None => most,
    };
    Some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn id(scheme: &str, id: &str) -> Identity {
        (scheme.to_owned(), id.to_owned())
    }

    #[test]
    fn malformed_lists_are_refused() {
        for bad in [
            entry(31, "world", "bob"),
            entry(31, "digest", "a:b:c"),
            entry(31, "ip", "1.2.3.4/33"),
            entry(31, "super", ""),
            entry(31, "auth", ""),
        ] {
            assert_eq!(stored(std::slice::from_ref(&bad), &[]), Err(Code::INVALID_ACL), "{bad:?}");
        }
        assert_eq!(stored(&[], &[]), Err(Code::INVALID_ACL));
    }

    #[test]
    fn auth_stands_for_the_digests_of_the_connection() {
        let ids = [id("ip", "127.0.0.1"), id("digest", "u:x")];
        let list = stored(&[entry(31, "auth", ""), entry(31, "digest", "u:x")], &ids);
        assert_eq!(list, Ok(vec![entry(31, "digest", "u:x")]));
    }

    #[test]
    fn an_address_matches_by_its_leading_bits() {
        let list = [entry(Acl::READ, "ip", "10.1.0.0/16")];
        assert!(is_allowed(&list, &[id("ip", "10.1.2.3")], Acl::READ));
        assert!(!is_allowed(&list, &[id("ip", "10.2.2.3")], Acl::READ));
        assert!(!is_allowed(&list, &[id("ip", "10.1.2.3")], Acl::WRITE));
        assert!(is_allowed(&list, &[id("super", "")], Acl::WRITE));
        assert!(is_allowed(&[entry(1, "ip", "::/0")], &[id("ip", "fe80::1")], Acl::READ));
    }
}
