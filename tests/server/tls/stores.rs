//! Key stores and trust stores that Java and OpenSSL have made (tests/server/tls/stores/make.sh): each holds the same.

use std::path::Path;
use std::sync::Arc;

use lockkeeper::{Builder, Server, StartError};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion, version,
};

use crate::tls::{encrypted, secure, shown};
use testkit::{self, Client, fresh};

const PASSWORD: &str = "secret12";

fn path(name: &str) -> String {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/tls/stores");
    stores.join(name).display().to_string()
}

/// Any server is taken for the right one: which certificate it shows is looked at by the test.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client that shows the certificate of the stores.
fn config() -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone));
    let key = PrivateKeyDer::from_pem_file(path("plain.pem")).unwrap();
    Arc::new(config.with_client_auth_cert(vec![certificate("plain.pem")], key).unwrap())
}

/// A client that shows one certificate and has a key: whether they belong together is not its business.
fn showing(
    shown: &str,
    key: &str,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let provider = ring::default_provider();
    let key = PrivateKeyDer::from_pem_file(path(key)).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let owner = SingleCertAndKey::from(CertifiedKey::new(vec![certificate(shown)], key));
    let config = ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_protocol_versions(&[version]).unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone));
    Arc::new(config.with_client_cert_resolver(Arc::new(owner)))
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path(name)).unwrap()
}

fn builder(key_store: &str, password: &str, trust_store: &str) -> Builder {
    let has_password = password.is_empty() || trust_store.ends_with(".pem");
    testkit::builder()
        .set("ssl.keyStore.location", &path(key_store))
        .set("ssl.keyStore.password", password)
        .set("ssl.trustStore.location", &path(trust_store))
        .set("ssl.trustStore.password", if has_password { "" } else { PASSWORD })
        .secure_address("127.0.0.1", 0)
}

async fn start(builder: Builder) -> Server {
    builder.start().await.expect("it starts")
}

#[tokio::test]
async fn every_kind_of_key_store_gives_its_key_and_certificate() {
    for (key_store, password) in [
        ("plain.pem", ""),
        ("encrypted.pem", PASSWORD),
        ("openssl.p12", PASSWORD),
        ("keytool.p12", PASSWORD),
        ("keytool.jks", PASSWORD),
        // A handshake with a key of RSA is computed in another thread.
        ("rsa.pem", ""),
    ] {
        let server = start(builder(key_store, password, "trust.pem")).await;
        let stream = encrypted(secure(&server), config()).await.expect(key_store);
        let expected = certificate(if key_store == "rsa.pem" { "rsa.pem" } else { "plain.pem" });
        assert_eq!(shown(&stream), expected, "{key_store}");
        assert!(Client::open_over(Box::new(stream), &fresh(20_000)).await.is_some(), "{key_store}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn every_kind_of_trust_store_trusts_what_it_holds_also_a_certificate_itself() {
    for trust_store in ["trust.pem", "trust.p12", "trust.jks"] {
        let server = start(builder("keytool.p12", PASSWORD, trust_store)).await;
        let stream = encrypted(secure(&server), config()).await.expect(trust_store);
        assert!(
            Client::open_over(Box::new(stream), &fresh(20_000)).await.is_some(),
            "{trust_store}"
        );
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_of_the_first_version_is_good_by_its_authority_or_by_itself_and_is_none() {
    for (trust, shown, key, is_served) in [
        ("authority.pem", "first.pem", "first.pem", true),
        ("first-alone.pem", "first.pem", "first.pem", true),
        // Of another authority, made by one who is trusted but is none, and shown by one who does not own it.
        ("trust.pem", "first.pem", "first.pem", false),
        ("first-alone.pem", "minted.pem", "minted.pem", false),
        ("authority.pem", "minted.pem", "minted.pem", false),
        ("authority.pem", "first.pem", "plain.pem", false),
    ] {
        let server = start(builder("plain.pem", "", trust)).await;
        for version in [&version::TLS13, &version::TLS12] {
            let client = match encrypted(secure(&server), showing(shown, key, version)).await {
                Ok(stream) => Client::open_over(Box::new(stream), &fresh(20_000)).await,
                Err(_) => None,
            };
            assert_eq!(client.is_some(), is_served, "{trust} {shown} {key} {version:?}");
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_password_may_be_in_a_file_of_its_own() {
    let builder =
        builder("keytool.jks", "", "trust.pem").set("ssl.keyStore.passwordPath", &path("password"));
    start(builder).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_store_that_its_password_does_not_open_or_of_another_kind_is_refused_by_name() {
    for (key_store, password, kind) in [
        ("encrypted.pem", "not-its-own", ""),
        ("encrypted.pem", "", ""),
        ("openssl.p12", "not-its-own", ""),
        ("keytool.p12", "", ""),
        ("keytool.jks", "not-its-own", ""),
        ("keytool.jks", PASSWORD, "PKCS12"),
        ("keytool.p12", PASSWORD, "JKS"),
        ("keytool.p12", PASSWORD, "PEM"),
        ("trust.jks", PASSWORD, ""),
        ("trust.pem", "", ""),
    ] {
        let builder = builder(key_store, password, "trust.pem").set("ssl.keyStore.type", kind);
        let error = builder.start().await.expect_err(key_store);
        assert!(matches!(error, StartError::Tls(_)), "{key_store}: {error}");
        let words = error.to_string();
        assert!(words.contains(&path(key_store)), "{words}");
        assert!(password.is_empty() || !words.contains(password), "{words}");
    }
}
