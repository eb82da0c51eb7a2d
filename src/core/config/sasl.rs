//! The keys of SASL, and of what clients must have proved before they are served.
//!
//! *Owns* [`SaslConfig`] and the entries of the table for it. *Invariants*: a scheme that is enforced is offered; a
//! password is never shown. *Never* reads the JAAS file: the server does. Reproduces what `AuthenticationHelper`,
//! `ProviderRegistry` and `ServerCnxnFactory.configureSaslLogin` read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Config;
use super::key::Key;
use super::listener_tls::Secret;
use super::values::{optional_path, path_text};

/// How clients authenticate by SASL, and whether they must authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaslConfig {
    /// `lockkeeper.jaasFile`: the file with the users. None: SASL is not offered.
    pub jaas_file: Option<PathBuf>,
    /// `sasl.serverconfig`: the section of that file.
    pub section: String,
    /// `SASLAuthenticationProvider.superPassword`: the password of the user `super`, in place of that in the file.
    pub super_password: Option<Secret>,
    /// `authProvider.N`: access control lists may name the scheme `sasl`.
    pub offers_scheme: bool,
    /// `allowSaslFailedClients`: clients that fail to authenticate are served.
    pub allow_failed_clients: bool,
    /// `letAnySaslUserDoX`: the id whose permissions every user has.
    pub any_user_id: Option<String>,
    /// `security.auth_to_local`: the rules that make short names of principals.
    pub auth_to_local: String,
    /// `kerberos.removeHostFromPrincipal`.
    pub remove_host: bool,
    /// `kerberos.removeRealmFromPrincipal`.
    pub remove_realm: bool,
    /// `superUser` and `superUser.N`, by key: the ids that may do everything.
    pub super_users: BTreeMap<String, String>,
    /// `enforce.auth.enabled`.
    pub(super) is_enforced: bool,
    /// `enforce.auth.schemes`, as it was given.
    pub(super) given_schemes: String,
    /// `sessionRequireClientSASLAuth`.
    pub(super) is_sasl_required: bool,
}

impl SaslConfig {
    /// The schemes of which a client must have proved an identity before it is served; any one will do. None: it
    /// need not.
    #[must_use]
    pub fn enforced_schemes(&self) -> Vec<String> {
        match (self.is_sasl_required, self.is_enforced) {
            (true, _) => vec!["sasl".to_string()],
            (false, true) => {
                let schemes = self.given_schemes.split(',').map(str::trim);
                schemes.filter(|scheme| !scheme.is_empty()).map(str::to_string).collect()
            }
            (false, false) => Vec::new(),
        }
    }

    /// Whether no client is served without it.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let schemes = self.enforced_schemes();
        !schemes.is_empty() && schemes.iter().all(|scheme| scheme == "sasl")
    }
}

/// What is wrong with the keys together: the key to blame, and why.
pub(super) fn fault(config: &Config) -> Option<(&'static str, String)> {
    let sasl = &config.sasl;
    let key = if sasl.is_sasl_required { REQUIRE } else { ENFORCE };
    let schemes = sasl.enforced_schemes();
    if sasl.is_enforced && schemes.is_empty() {
        return Some((ENFORCE, "needs enforce.auth.schemes: which schemes will do".to_string()));
    }
    for scheme in &schemes {
        let missing = match scheme.as_str() {
            "ip" => continue,
            "digest" if config.digest_auth_enabled => continue,
            "x509" if config.tls.is_offered() => continue,
            "sasl" if sasl.offers_scheme => continue,
            "sasl" => format!("needs authProvider.1={PROVIDER}, as in ZooKeeper"),
            other => format!("the scheme `{other}` is not offered, and no client could be served"),
        };
        return Some((key, missing));
    }
    if sasl.is_needed() && sasl.jaas_file.is_none() {
        let reason = "needs lockkeeper.jaasFile, which names the users: without it no client could be served";
        return Some((key, reason.to_string()));
    }
    None
}

/// What is probably not meant.
pub(super) fn warnings(config: &Config) -> Vec<(&'static str, &'static str)> {
    match (&config.sasl.jaas_file, config.sasl.offers_scheme) {
        (Some(_), false) => vec![(
            JAAS_FILE,
            "access control lists cannot name its users: that needs authProvider.1=\
             org.apache.zookeeper.server.auth.SASLAuthenticationProvider, as in ZooKeeper",
        )],
        (None, true) => vec![(
            PROVIDERS,
            "no client can prove to be a user of the scheme sasl: lockkeeper.jaasFile, which names the \
             users, is missing",
        )],
        (Some(_), true) | (None, false) => Vec::new(),
    }
}

/// Whether it is the class of ZooKeeper that offers the scheme `sasl`.
pub(super) fn is_provider(class: &str) -> bool {
    class == PROVIDER
}

/// Takes a key of the family whose values add up; no other one.
pub(super) fn give(config: &mut Config, name: &str, value: &str) {
    if name != "superUser" && !name.starts_with("superUser.") {
        return;
    }
    config.sasl.super_users.remove(name);
    if !value.is_empty() {
        config.sasl.super_users.insert(name.to_string(), value.to_string());
    }
}

/// The section's keys.
pub(super) static KEYS: [Key; 14] = [
    Key::effective(
        JAAS_FILE,
        "",
        |c| c.sasl.jaas_file.as_deref().map_or_else(String::new, path_text),
        "File with the users who may authenticate by SASL (DIGEST-MD5), in the syntax that ZooKeeper's servers have \
         it in: `Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_NAME=\"password\"; };`. \
         Or the server's key of Kerberos (GSSAPI), in a build with the feature `gssapi`: \
         `Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"FILE\" \
         principal=\"zookeeper/HOST@REALM\"; };`. ZooKeeper is told of it by \
         -Djava.security.auth.login.config. Empty: SASL is not offered.",
    )
    .text("a path, or nothing", |c, text| {
        c.sasl.jaas_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "sasl.serverconfig",
        "Server",
        |c| c.sasl.section.clone(),
        "The section of that file that has the users.",
    )
    .text("the name of a section", |c, text| {
        if text.is_empty() {
            return Err("the name is empty".to_string());
        }
        c.sasl.section = text.to_string();
        Ok(())
    })
    .or_else("Server"),
    Key::effective(
        PROVIDERS,
        "",
        |c| if c.sasl.offers_scheme { PROVIDER.to_string() } else { String::new() },
        "org.apache.zookeeper.server.auth.SASLAuthenticationProvider: access control lists may name users of the \
         scheme `sasl`; without it such a list is refused (-114), as in ZooKeeper. Of other classes the server warns: \
         plugins are not offered; world, ip, digest, x509 and super are built in.",
    )
    .text("a class of Java", |c, text| {
        c.sasl.offers_scheme |= is_provider(text);
        Ok(())
    }),
    Key::effective(
        "SASLAuthenticationProvider.superPassword",
        "",
        |c| c.sasl.super_password.as_ref().map_or("", |_| NOT_SHOWN).to_string(),
        "The password of the user `super`, if the file has such a user: it goes before the one in the file.",
    )
    .text("any text", |c, text| {
        c.sasl.super_password = (!text.is_empty()).then(|| Secret(text.to_string()));
        Ok(())
    }),
    Key::effective(
        "superUser",
        "",
        |c| c.sasl.super_users.get("superUser").cloned().unwrap_or_default(),
        "The id of the scheme `sasl` that may do everything. (The id `super` has only what any id of the \
         scheme has.)",
    )
    .text("an id, or nothing", |_, _| Ok(())),
    Key::effective(
        "superUser.N",
        "",
        |c| {
            let users = c.sasl.super_users.iter().filter(|(key, _)| *key != "superUser");
            users.map(|(_, user)| user.as_str()).collect::<Vec<_>>().join(", ")
        },
        "Further ids that may do everything; N is any text.",
    )
    .text("an id, or nothing", |_, _| Ok(())),
    Key::effective(
        "allowSaslFailedClients",
        "false",
        |c| c.sasl.allow_failed_clients.to_string(),
        "Serve clients that fail to authenticate, as clients that did not try. Without effect where the scheme \
         `sasl` is enforced.",
    )
    .switch(|c, on| c.sasl.allow_failed_clients = on)
    .or_else("false"),
    Key::effective(
        "letAnySaslUserDoX",
        "",
        |c| c.sasl.any_user_id.clone().unwrap_or_default(),
        "What an access control list gives to this id of the scheme `sasl`, every user of the scheme has.",
    )
    .text("an id, or nothing", |c, text| {
        c.sasl.any_user_id = (!text.is_empty()).then(|| text.to_string());
        Ok(())
    }),
    Key::effective(
        AUTH_TO_LOCAL,
        "DEFAULT",
        |c| c.sasl.auth_to_local.clone(),
        "The rules that make short names of principals with a realm, tried in their order: DEFAULT (a name of the \
         realm of the server's own principal, or of any realm where users have passwords, without its host) or \
         `RULE:[n:format](match)s/from/to/g`. A principal for which there is none keeps all of its name.",
    )
    .text("rules", |c, text| {
        c.sasl.auth_to_local = text.to_string();
        Ok(())
    })
    .or_else("DEFAULT"),
    Key::effective(
        "kerberos.removeHostFromPrincipal",
        "false",
        |c| c.sasl.remove_host.to_string(),
        "Of a user `primary/host@REALM` the id has no host.",
    )
    .switch(|c, on| c.sasl.remove_host = on)
    .or_else("false"),
    Key::effective(
        "kerberos.removeRealmFromPrincipal",
        "false",
        |c| c.sasl.remove_realm.to_string(),
        "Of a user `primary/host@REALM` the id has no realm.",
    )
    .switch(|c, on| c.sasl.remove_realm = on)
    .or_else("false"),
    Key::effective(
        ENFORCE,
        "false",
        |c| c.sasl.is_enforced.to_string(),
        "Serve only clients that have proved an identity of one of enforce.auth.schemes: the first other request \
         is answered with -124, and the connection is closed.",
    )
    .switch(|c, on| c.sasl.is_enforced = on),
    Key::effective(
        "enforce.auth.schemes",
        "",
        |c| c.sasl.given_schemes.clone(),
        "These schemes, any of which will do: sasl, digest, x509, ip (which every client has).",
    )
    .text("schemes, separated by commas", |c, text| {
        c.sasl.given_schemes = text.to_string();
        Ok(())
    }),
    Key::effective(
        REQUIRE,
        "false",
        |c| c.sasl.is_sasl_required.to_string(),
        "As enforce.auth.enabled with the scheme sasl; enforce.auth.* is then not looked at.",
    )
    .switch(|c, on| c.sasl.is_sasl_required = on),
];

/// What is said of classes that are none of ZooKeeper's that are offered.
pub(super) const OTHER_PROVIDER: &str =
    "authentication plugins are not offered; world, ip, digest, x509, sasl and super are built in";
/// The key of the file with the users.
pub(super) const JAAS_FILE: &str = "lockkeeper.jaasFile";
/// The key of the rules for names.
pub(crate) const AUTH_TO_LOCAL: &str = "security.auth_to_local";
/// The family of keys that name classes.
pub(super) const PROVIDERS: &str = "authProvider.N";
const ENFORCE: &str = "enforce.auth.enabled";
const REQUIRE: &str = "sessionRequireClientSASLAuth";
const PROVIDER: &str = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
const NOT_SHOWN: &str = "(not shown)";
