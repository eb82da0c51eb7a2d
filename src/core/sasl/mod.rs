//! SASL: how a client proves that it knows the password of a user, without showing it.
//!
//! *Owns* both sides of the mechanism DIGEST-MD5 (RFC 2831) as ZooKeeper's clients and servers speak it, the users and
//! their passwords, the names of principals and the rules that make them short, and the JAAS files that hold the
//! users. *Invariants*: a response proves something once, for the challenge that it answers; an unknown user is
//! answered as a wrong password is; neither `Debug` nor an error shows a password. *Never* reads a file, a clock or a
//! source of chance: it is given texts, tokens and nonces. What GSSAPI makes of a token, which needs files and clocks,
//! is told to it ([`Verdict`]).
//!
//! Reproduces `ZooKeeperSaslServer`, `SaslServerCallbackHandler`, `DigestLoginModule` and `KerberosName`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod auth_to_local;
mod client;
mod digest_md5;
mod directives;
pub mod jaas;
mod principal;

use std::collections::BTreeMap;
use std::fmt;

pub use auth_to_local::AuthToLocal;
pub use client::{CNONCE_BYTES, ClientLogin, Dialogue, Disbelief, Next};
pub use digest_md5::{NONCE_BYTES, Negotiation, Refused, Step};
pub use principal::Principal;

#[cfg(test)]
pub use digest_md5::{client_response, nonce_of};

/// What a server is told about SASL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaslSetup {
    /// Who may authenticate. `None`: SASL is not offered, and a client that tries is told so as ZooKeeper does,
    /// by a null token.
    pub users: Option<SaslUsers>,
    /// The key by which tokens are judged outside, by GSSAPI (Kerberos): then there are no users.
    pub service: Option<ServiceKey>,
    /// Whether access control lists that name the scheme are taken from clients of this server (`authProvider.N`).
    pub offers_scheme: bool,
    /// Whether a client that fails to authenticate is served as one that did not try (`allowSaslFailedClients`).
    pub allow_failed_clients: bool,
    /// What makes short names of principals (`security.auth_to_local`).
    pub names: AuthToLocal,
    /// Whether ids lose the host of their principal (`kerberos.removeHostFromPrincipal`).
    pub remove_host: bool,
    /// Whether ids lose the realm of their principal (`kerberos.removeRealmFromPrincipal`).
    pub remove_realm: bool,
    /// The id whose permissions every user of the scheme has, too (`letAnySaslUserDoX`).
    pub any_user_id: Option<String>,
    /// The ids that may do everything (`superUser`, `superUser.*`).
    pub super_users: Vec<String>,
}

/// By what a server proves to clients of Kerberos which service it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceKey {
    /// The service's name, as in `zookeeper/host@REALM`.
    pub principal: String,
    /// The file with its key.
    pub key_tab: String,
}

/// What a mechanism that runs outside makes of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client must answer this.
    Challenge(Vec<u8>),
    /// It has proved to be this principal.
    Proven {
        /// All of its name.
        principal: String,
    },
    /// It has proved nothing.
    Refused,
}

impl SaslSetup {
    /// The id that a principal has in access control lists. Where no rule applies to its name that is all of the name:
    /// nothing is taken away from names of other realms, which could be taken for names of the own one then. `None`: it
    /// has more than one realm, or more than one host.
    #[must_use]
    pub fn id_of(&self, name: &str) -> Option<String> {
        let principal = Principal::parse(name)?;
        let short = self.names.short_name(&principal);
        let id = |short: String| principal.id(&short, self.remove_host, self.remove_realm);
        Some(short.map_or_else(|| name.to_owned(), id))
    }

    /// Whether the user with this id may do everything.
    #[must_use]
    pub fn is_super(&self, id: &str) -> bool {
        !id.is_empty() && self.super_users.iter().any(|known| known == id)
    }
}

/// The users and their passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SaslUsers {
    passwords: BTreeMap<String, String>,
}

/// Names alone.
impl fmt::Debug for SaslUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.passwords.keys()).finish()
    }
}

impl SaslUsers {
    /// Adds a user.
    ///
    /// # Errors
    /// What is wrong with the name or the password, which is not repeated.
    pub fn add(&mut self, name: &str, password: &str) -> Result<(), String> {
        let Some(principal) = Principal::parse(name) else {
            return Err(format!("`{name}` is not a name like primary/instance@REALM"));
        };
        if principal.primary().is_empty() {
            return Err("the name is empty".to_owned());
        }
        if password.is_empty() {
            return Err(format!("the password of {name} is empty"));
        }
        if self.passwords.contains_key(name) {
            return Err(format!("there are two passwords of {name}"));
        }
        self.passwords.insert(name.to_owned(), password.to_owned());
        Ok(())
    }

    /// Gives a user another password. False: there is no such user.
    pub fn replace_password(&mut self, name: &str, password: &str) -> bool {
        let known = self.passwords.get_mut(name);
        known.map(|known| password.clone_into(known)).is_some()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.passwords.keys().map(String::as_str)
    }

    fn password_of(&self, name: &str) -> Option<&str> {
        self.passwords.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_password() {
        let mut users = SaslUsers::default();
        users.add("bob", "bobsecret").unwrap();
        let setup = SaslSetup { users: Some(users), ..SaslSetup::default() };
        let shown = format!("{setup:?} {setup:#?}");
        assert!(shown.contains("bob") && !shown.contains("bobsecret"), "{shown}");
    }

    #[test]
    fn users_that_make_no_sense_are_refused_without_their_passwords() {
        let mut users = SaslUsers::default();
        users.add("bob", "hidden").unwrap();
        for (name, password) in [("bob", "hidden2"), ("", "hidden"), ("a@b@c", "hidden"), ("x", "")]
        {
            let reason = users.add(name, password).unwrap_err();
            assert!(!reason.contains("hidden"), "{reason}");
        }
        assert_eq!(users.names().collect::<Vec<_>>(), ["bob"]);
        assert!(users.replace_password("bob", "other") && !users.replace_password("eve", "other"));
        assert_eq!(users.password_of("bob"), Some("other"));
        assert_eq!(users.password_of("eve"), None);
    }

    #[test]
    fn ids_are_principals_and_some_of_them_may_do_everything() {
        let mut setup = SaslSetup { super_users: vec!["admin".to_owned()], ..SaslSetup::default() };
        assert_eq!(setup.id_of("bob/host@REALM").as_deref(), Some("bob/host@REALM"));
        setup.remove_host = true;
        setup.remove_realm = true;
        assert_eq!(setup.id_of("bob/host@REALM").as_deref(), Some("bob"));
        setup.names = AuthToLocal::parse("RULE:[2:$1-$2] DEFAULT").unwrap().in_realm("REALM");
        assert_eq!(setup.id_of("bob/host@REALM").as_deref(), Some("bob-host"));
        assert_eq!(setup.id_of("bob@OTHER").as_deref(), Some("bob@OTHER"), "it is not bob");
        assert_eq!(setup.id_of("bob@REALM@OTHER"), None);
        assert!(setup.is_super("admin") && !setup.is_super("super") && !setup.is_super(""));
    }
}
