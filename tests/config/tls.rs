//! The keys of TLS: what a port of it needs, and what cannot be honoured.

use lockkeeper::internals::config::{Config, Draft};

use super::{fault, good, parse, with};

#[test]
fn a_port_of_tls_needs_a_key_and_what_to_judge_clients_by() {
    let both = "ssl.keyStore.location=/k.p12\nssl.trustStore.location=/t.p12";
    for asks in ["secureClientPort=2281", "client.portUnification=true"] {
        assert_eq!(with(asks).unwrap_err().len(), 2, "{asks}");
        let error = fault(&format!("{asks}\nssl.keyStore.location=/k.p12"));
        assert!(error.contains("needs ssl.trustStore.location"), "{error}");
        good(&format!("{asks}\nssl.keyStore.location=/k.p12\nssl.clientAuth=none"));
        good(&format!("{asks}\n{both}"));
        good(&format!("{asks}\n{both}\nssl.clientAuth=WANT"));
    }
    assert!(fault("ssl.clientAuth=perhaps").contains("none of none, want and need"));
    good("secureClientPort=0");
    assert!(fault("secureClientPort=https").contains("not a whole number"));
}

#[test]
fn a_port_of_tls_may_be_the_only_one() {
    let config = parse(
        "dataDir=/data\nsecureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k.p12\n\
         ssl.clientAuth=none\n",
    );
    let config = config.expect("a good file");
    assert!(config.tls.is_only);
    assert_eq!(config.client_addr.to_string(), "127.0.0.1:2281");
    assert!(parse("dataDir=/data\n").unwrap_err()[0].contains("clientPort: missing"));
}

#[test]
fn no_password_of_a_store_is_shown() {
    let text = "ssl.keyStore.password=hidden\nssl.trustStore.password=hidden\nssl.quorum.keyStore.password=hidden";
    let config = good(text);
    assert!(!config.describe().contains("hidden"));
    assert!(!config.given().contains("hidden"));
    assert!(!format!("{config:?}").contains("hidden"));
    assert!(config.values().iter().all(|(_, value)| !value.contains("hidden")));
    let error = fault("ssl.keyStore.type=hidden-by-no-one\nssl.keyStore.password=hidden");
    assert!(!error.ends_with("hidden"), "{error}");
}

#[test]
fn versions_and_suites_of_tls_go_by_their_java_names() {
    let tls = |text: &str| good(text).tls.listener;
    assert_eq!(tls("").protocols(), [""; 0]);
    assert_eq!(tls("ssl.protocol=TLSv1.2").protocols(), ["TLSv1.2"]);
    assert_eq!(tls("ssl.enabledProtocols=TLSv1.3, TLSv1.2").protocols(), ["TLSv1.3", "TLSv1.2"]);
    assert_eq!(tls("ssl.ciphersuites=A,B").cipher_suites, ["A", "B"]);
    for line in ["ssl.protocol=TLSv1.1", "ssl.enabledProtocols=TLSv1.3,SSLv3"] {
        assert!(fault(line).contains("is not offered"), "{line}");
    }
}

#[test]
fn keys_of_tls_that_cannot_be_honoured_are_refused_by_name() {
    for line in [
        "ssl.crl=true",
        "ssl.ocsp=true",
        "ssl.context.supplier.class=x",
        "ssl.keyStore.type=BCFKS",
        "ssl.quorum.crl=true",
        "ssl.quorum.ocsp=true",
        "ssl.quorum.context.supplier.class=x",
        "ssl.quorum.keyStore.type=BCFKS",
    ] {
        let error = fault(line);
        assert!(
            error.starts_with(&format!("zoo.cfg:3: {}: ", line.split('=').next().unwrap())),
            "{error}"
        );
    }
}

/// A server of an ensemble, with these lines besides.
fn member(lines: &str) -> Result<Config, Vec<String>> {
    let servers = "server.1=10.0.0.1:1:2\nserver.2=10.0.0.2:1:2\nserver.3=10.0.0.3:1:2\n";
    let text = format!("dataDir=/data\nclientPort=1\n{servers}{lines}\n");
    let mut draft = Draft::from_text("zoo.cfg", &text);
    draft.set_myid("myid", "1\n");
    draft.resolve().map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

const STORES: &str = "ssl.quorum.keyStore.location=/k.p12\nssl.quorum.trustStore.location=/t.p12\n";

#[test]
fn tls_between_servers_needs_a_key_and_what_to_judge_others_by() {
    for asks in ["sslQuorum=true", "portUnification=true"] {
        let errors = member(asks).unwrap_err();
        assert!(errors[0].contains("needs ssl.quorum.keyStore.location"), "{errors:?}");
        assert!(errors[1].contains("needs ssl.quorum.trustStore.location"), "{errors:?}");
        let config = member(&format!("{asks}\n{STORES}")).unwrap();
        assert!(config.peer_tls.is_offered() && config.peer_tls.verifies_host);
        // A server on its own has no links.
        good(asks);
    }
    let config = member(&format!("sslQuorum=true\n{STORES}")).unwrap();
    assert!(config.peer_tls.is_demanded());
    let config = member(&format!("sslQuorum=true\nportUnification=true\n{STORES}")).unwrap();
    assert!(!config.peer_tls.is_demanded());
}

#[test]
fn security_between_servers_is_required_of_certificates_or_of_a_secret() {
    let required = |lines: &str| member(&format!("lockkeeper.peerSecurity=required\n{lines}"));
    let on = format!("sslQuorum=true\n{STORES}");
    assert!(required(&on).is_ok());
    assert!(required("lockkeeper.peerSecretFile=/s").is_ok());
    for less in ["", "portUnification=true\n", "ssl.quorum.clientAuth=want\n"] {
        let lines = if less.is_empty() { String::new() } else { format!("{on}{less}") };
        let errors = required(&lines).unwrap_err();
        assert!(errors[0].contains("required needs lockkeeper.peerSecretFile"), "{errors:?}");
    }
}
