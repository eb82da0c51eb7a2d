//! The keys of TLS: what a port of it needs, and what cannot be honoured.

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
    let tls = |text: &str| good(text).tls;
    assert_eq!(tls("").protocols, [""; 0]);
    assert_eq!(tls("ssl.protocol=TLSv1.2").protocols, ["TLSv1.2"]);
    assert_eq!(tls("ssl.enabledProtocols=TLSv1.3, TLSv1.2").protocols, ["TLSv1.3", "TLSv1.2"]);
    assert_eq!(tls("ssl.ciphersuites=A,B").cipher_suites, ["A", "B"]);
    for line in ["ssl.protocol=TLSv1.1", "ssl.enabledProtocols=TLSv1.3,SSLv3"] {
        assert!(fault(line).contains("is not offered"), "{line}");
    }
}

#[test]
fn keys_of_tls_that_cannot_be_honoured_are_refused_by_name() {
    for line in
        ["ssl.crl=true", "ssl.ocsp=true", "ssl.context.supplier.class=x", "ssl.keyStore.type=BCFKS"]
    {
        let error = fault(line);
        assert!(
            error.starts_with(&format!("zoo.cfg:3: {}: ", line.split('=').next().unwrap())),
            "{error}"
        );
    }
}
