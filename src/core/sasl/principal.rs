//! Names of principals: `primary[/host][@REALM]`, as Kerberos writes them.
//!
//! *Owns* what is such a name, and what is left of it in the id of an access control list. *Never* makes a name
//! short: the rules (`security.auth_to_local`) do. Reproduces `KerberosName`.

/// A principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal<'a> {
    primary: &'a str,
    host: Option<&'a str>,
    realm: Option<&'a str>,
}

impl<'a> Principal<'a> {
    /// Takes a name apart. Without a realm all of it is the primary, as in ZooKeeper. `None`: it has more than one
    /// realm, or more than one host.
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let Some((front, realm)) = name.split_once('@') else {
            return Some(Self { primary: name, host: None, realm: None });
        };
        let (primary, host) = match front.split_once('/') {
            Some((primary, host)) => (primary, Some(host)),
            None => (front, None),
        };
        let is_plain = |part: &str| !part.contains(['/', '@']);
        let fits = is_plain(realm) && host.is_none_or(is_plain);
        fits.then_some(Self { primary, host, realm: Some(realm) })
    }

    /// In front of all.
    pub(super) fn primary(&self) -> &'a str {
        self.primary
    }

    /// Behind a `/`.
    pub(super) fn host(&self) -> Option<&'a str> {
        self.host
    }

    /// Behind an `@`.
    pub(super) fn realm(&self) -> Option<&'a str> {
        self.realm
    }

    /// The id that it has in access control lists under this short name.
    #[must_use]
    pub fn id(&self, short: &str, without_host: bool, without_realm: bool) -> String {
        let mut id = short.to_owned();
        if let Some(host) = self.host.filter(|_| !without_host) {
            id.push('/');
            id.push_str(host);
        }
        if let Some(realm) = self.realm.filter(|_| !without_realm) {
            id.push('@');
            id.push_str(realm);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_at_most_one_host_and_one_realm() {
        for name in ["", "bob", "bob@R", "bob/h@R", "a/b", "a/b/c", "@R", "/h@R", "bob/@", "bob@"] {
            let parsed = Principal::parse(name).unwrap_or_else(|| panic!("{name} is one"));
            assert_eq!(parsed.id(parsed.primary, false, false), name);
        }
        for name in ["a@b@c", "a/b/c@R", "a@b/c", "@@"] {
            assert_eq!(Principal::parse(name), None, "{name}");
        }
    }

    #[test]
    fn host_and_realm_are_removed_where_that_is_configured() {
        let name = Principal::parse("hbase/node1@EXAMPLE").unwrap();
        assert_eq!(name.id("hbase", true, false), "hbase@EXAMPLE");
        assert_eq!(name.id("hbase", false, true), "hbase/node1");
        assert_eq!(name.id("hbase", true, true), "hbase");
        // Without a realm nothing is a host.
        let name = Principal::parse("hbase/node1").unwrap();
        assert_eq!(name.id(name.primary, true, true), "hbase/node1");
    }
}
