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

/// Who gets in at each port of a server of an ensemble.
fn who_gets_in(lines: &str) -> Vec<String> {
    let ports = member(lines).unwrap().protection();
    ports.iter().map(|port| format!("{}: {}: {}", port.port, port.speaks, port.who)).collect()
}

#[test]
fn the_table_of_ports_says_what_is_protected_by_what() {
    assert_eq!(
        who_gets_in(""),
        [
            "clientPort 0.0.0.0:1: plain text: any client, as ACLs allow",
            "server.1 10.0.0.1:1: plain text: ANY PROGRAM that poses as a member",
            "admin.serverPort 127.0.0.1:8080: plain text: figures: all; names and data of znodes: this machine",
        ]
    );
    let clients =
        "secureClientPort=3\nssl.keyStore.location=/k.p12\nssl.trustStore.location=/t.p12\n";
    let operators =
        "admin.forceHttps=true\nadmin.needClientAuth=true\nlockkeeper.adminTokenFile=/token\n";
    let who = who_gets_in(&format!("{STORES}sslQuorum=true\n{clients}{operators}"));
    assert_eq!(
        who,
        [
            "clientPort 0.0.0.0:1: plain text: any client, as ACLs allow",
            "secureClientPort 0.0.0.0:3: TLS: who has a certificate of the trust store, as ACLs allow",
            "server.1 10.0.0.1:1: TLS: members with a certificate that names them",
            "admin.serverPort 127.0.0.1:8080: TLS: who has a certificate of ssl.quorum.trustStore, or with the \
             token of lockkeeper.adminTokenFile",
        ]
    );
    let server = |lines: &str| who_gets_in(&format!("{STORES}{lines}"))[1].clone();
    assert!(server("sslQuorum=true\nportUnification=true").contains("TLS or plain text: ANY"));
    assert!(
        server("lockkeeper.peerSecretFile=/s").ends_with("the secret of lockkeeper.peerSecretFile")
    );
    let transition = "lockkeeper.peerSecretFile=/s\nlockkeeper.peerSecurity=transition";
    assert!(server(transition).contains("ANY PROGRAM"));
    let any = "sslQuorum=true\nssl.quorum.hostnameVerification=false";
    assert!(server(any).ends_with("who has a certificate of ssl.quorum.trustStore"));
}
