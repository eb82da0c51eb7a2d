//! The keys of SASL, and of what clients must have proved.

use super::{fault, good, reasons};

const PROVIDER: &str = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";

#[test]
fn what_clients_must_prove_has_to_be_offered() {
    let provided = |lines: &str| format!("{PROVIDER}\nlockkeeper.jaasFile=/jaas\n{lines}");
    let required = good(&provided("sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true"));
    assert_eq!(required.sasl.enforced_schemes(), ["sasl"]);
    let listed = good(&provided("enforce.auth.enabled=true\nenforce.auth.schemes= sasl ,digest"));
    assert_eq!(listed.sasl.enforced_schemes(), ["sasl", "digest"]);
    assert_eq!(good("enforce.auth.schemes=sasl").sasl.enforced_schemes(), [""; 0]);
    assert_eq!(good("sessionRequireClientSASLAuth=false").sasl.enforced_schemes(), [""; 0]);
    // Users that one scheme has are enough: clients may use the other.
    good(&format!("{PROVIDER}\nenforce.auth.enabled=true\nenforce.auth.schemes=sasl,digest"));
    for (lines, expected) in [
        (
            "sessionRequireClientSASLAuth=true",
            "sessionRequireClientSASLAuth: needs authProvider.1=",
        ),
        ("enforce.auth.enabled=true", "enforce.auth.enabled: needs enforce.auth.schemes"),
        ("enforce.auth.enabled=true\nenforce.auth.schemes=, ,", "needs enforce.auth.schemes"),
        (
            "enforce.auth.enabled=true\nenforce.auth.schemes=nope",
            "the scheme `nope` is not offered",
        ),
        (
            "enforce.auth.enabled=true\nenforce.auth.schemes=digest\nDigestAuthenticationProvider.enabled=false",
            "the scheme `digest` is not offered",
        ),
        ("enforce.auth.enabled=perhaps", "neither true nor false"),
        ("sessionRequireClientSASLAuth=perhaps", "neither true nor false"),
    ] {
        let error = fault(lines);
        assert!(error.contains(expected), "{lines}: {error}");
    }
    let error = fault(&format!("{PROVIDER}\nsessionRequireClientSASLAuth=true"));
    assert!(
        error.starts_with("zoo.cfg:4: sessionRequireClientSASLAuth: needs lockkeeper.jaasFile"),
        "{error}"
    );
}

#[test]
fn keys_of_sasl_are_read_and_passwords_are_not_shown() {
    let lines = format!(
        "{PROVIDER}\nlockkeeper.jaasFile=/jaas\nsasl.serverconfig=Other\nsuperUser=root\n\
         zookeeper.superUser.2=admin\nsuperUser.3=\nallowSaslFailedClients=true\nletAnySaslUserDoX=any\n\
         kerberos.removeHostFromPrincipal=true\nkerberos.removeRealmFromPrincipal=true\n\
         SASLAuthenticationProvider.superPassword=hidden"
    );
    let mut config = good(&lines);
    assert_eq!(reasons(&config.warnings), [""; 0]);
    let sasl = config.sasl.clone();
    assert_eq!(sasl.jaas_file.as_deref(), Some(std::path::Path::new("/jaas")));
    assert_eq!(sasl.section, "Other");
    assert!(
        sasl.offers_scheme && sasl.allow_failed_clients && sasl.remove_host && sasl.remove_realm
    );
    assert_eq!(sasl.super_users.values().collect::<Vec<_>>(), ["root", "admin"]);
    assert_eq!(sasl.any_user_id.as_deref(), Some("any"));
    assert_eq!(sasl.super_password.as_ref().map(|password| password.0.as_str()), Some("hidden"));
    let shown =
        format!("{config:?} {} {} {:?}", config.describe(), config.given(), config.values());
    assert!(
        !shown.contains("hidden")
            && shown.contains("SASLAuthenticationProvider.superPassword = (not shown)")
    );
    // A value that is given again goes before the first.
    config.set("superUser", "other", "--set").unwrap();
    assert_eq!(config.sasl.super_users.values().collect::<Vec<_>>(), ["other", "admin"]);
    let bare = good("");
    assert_eq!((bare.sasl.section.as_str(), bare.sasl.offers_scheme), ("Server", false));
}

#[test]
fn half_a_setup_of_sasl_is_warned_of() {
    assert_eq!(reasons(&good("lockkeeper.jaasFile=/jaas").warnings), ["lockkeeper.jaasFile"]);
    assert_eq!(reasons(&good(PROVIDER).warnings), ["authProvider.N"]);
    let mut config = good(PROVIDER);
    config.set("lockkeeper.jaasFile", "/jaas", "--set").unwrap();
    assert_eq!(reasons(&config.warnings), [""; 0], "it is judged again");
    let other = good("authProvider.1=com.example.Other");
    assert_eq!(reasons(&other.warnings), ["authProvider.1"]);
    assert!(!other.sasl.offers_scheme);
    for key in ["requireClientAuthScheme=sasl", "java.security.auth.login.config=/jaas"] {
        assert_eq!(good(key).warnings.len(), 1, "{key}");
    }
    assert_eq!(reasons(&good("jaasLoginRenew=3600000").ignored), ["jaasLoginRenew"]);
}
