//! All listeners of TLS of one server: none of them lets in what another one keeps out.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto, version};

use testkit::authority::{Authority, Owner, Validity, put};
use testkit::three::{ADMIN_PORT, CLIENT_PORT, PEER_PORT, Three};
use testkit::{PATIENCE, wait_until};

const SECURE_PORT: u16 = 17495;
const METRICS_PORT: u16 = 17496;

/// Each listener that speaks TLS, by its name in the metrics, and its port.
const LISTENERS: [(&str, u16); 5] = [
    ("clients", SECURE_PORT),
    ("clients", CLIENT_PORT),
    ("servers", PEER_PORT),
    ("operators", ADMIN_PORT),
    ("metrics", METRICS_PORT),
];

/// All of them at this address, with certificates from both sides and a list of those that are revoked.
fn keys(host: &str) -> String {
    let families = ["ssl", "ssl.quorum", "metricsProvider.ssl"].map(|family| {
        format!(
            "{family}.keyStore.location=DIRECTORY/server.pem\n{family}.trustStore.location=DIRECTORY/trust.pem\n\
             lockkeeper.{family}.crlFile=DIRECTORY/revoked.pem\n"
        )
    });
    format!(
        "{}secureClientPort={SECURE_PORT}\nsecureClientPortAddress={host}\n\
         client.portUnification=true\nsslQuorum=true\nadmin.forceHttps=true\n\
         admin.needClientAuth=true\nmetricsProvider.httpsPort={METRICS_PORT}\nmetricsProvider.httpHost={host}\n\
         metricsProvider.ssl.need.client.auth=true\n\
         metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n",
        families.concat()
    )
}

/// A client of TLS 1.2, where the handshake says whether it is taken.
async fn shakes_hands(
    at: SocketAddr,
    trusts: &Authority,
    shows: Option<&Owner>,
) -> Option<TlsStream<TcpStream>> {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_slice(trusts.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[&version::TLS12]).unwrap();
    let config = config.with_root_certificates(trusted);
    let config = match shows {
        None => config.with_no_client_auth(),
        Some(owner) => {
            let key = PrivateKeyDer::from_pem_slice(owner.key.serialize_pem().as_bytes()).unwrap();
            config.with_client_auth_cert(vec![owner.certificate.der().clone()], key).unwrap()
        }
    };
    let stream = TcpStream::connect(at).await.expect("it listens");
    let name = ServerName::from(at.ip());
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    timeout(PATIENCE, handshake).await.expect("an answer").ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listener_keeps_out_the_same_certificates_and_says_when_its_own_ends() {
    let (ours, others) = (Authority::new("ours"), Authority::new("theirs"));
    let mut three = Three::new();
    let host = three.host(1);
    put(three.path(), "server.pem", &ours.issue_for(&[&host]).pem());
    put(three.path(), "trust.pem", &ours.pem());
    let revoked = ours.issue_for(&[&host]);
    fs::write(three.path().join("revoked.pem"), ours.revokes(&[&revoked])).unwrap();
    let good = ours.issue_for(&[&host]);
    let foreign = others.issue_for(&[&host]);
    let (past, future) =
        (ours.issue_valid(&host, Validity::Past), ours.issue_valid(&host, Validity::Future));
    three.start(1, &keys(&host)).await;
    for (_, port) in LISTENERS {
        let at = three.address(1, port);
        wait_until("it listens", async || TcpStream::connect(at).await.is_ok()).await;
    }
    for (listener, port) in LISTENERS {
        let at = three.address(1, port);
        let is_taken = async |shows| shakes_hands(at, &ours, shows).await.is_some();
        assert!(is_taken(Some(&good)).await, "{listener}");
        for (what, owner) in
            [("revoked", &revoked), ("foreign", &foreign), ("past", &past), ("future", &future)]
        {
            assert!(!is_taken(Some(owner)).await, "{listener}: {what}");
        }
        assert!(!is_taken(None).await, "{listener}: none");
    }
    // The list above is that of the server.
    let at = three.address(1, METRICS_PORT);
    let mut stream = shakes_hands(at, &ours, Some(&good)).await.expect("it is taken");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut metrics = String::new();
    // It may end without a word.
    let _ = stream.read_to_string(&mut metrics).await;
    let told: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("lockkeeper_certificate_expiry_seconds{key=\""))
        .filter_map(|line| Some(line.split_once('"')?.0))
        .collect();
    assert_eq!(told, LISTENERS.iter().map(|(name, _)| *name).collect(), "{metrics}");
}
