//! What a client does for TLS.
//!
//! *Owns* the configuration of one. *Invariant*: a server is taken only if the trust store vouches for its certificate,
//! and that names the host, unless that was switched off.
//! Reproduces `ClientX509Util` and `ZKTrustManager`.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::TlsError;
use super::stores::Store;
use super::suites::{protocols, provider};
use super::trust::Trust;

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// Its key, for servers that ask for a certificate.
    pub(crate) key_store: Option<Store>,
    /// What it trusts.
    pub(crate) trust_store: Store,
    /// Whether a certificate must name the host.
    pub(crate) verifies_host: bool,
    /// Versions by their Java names; empty: all that there are.
    pub(crate) protocols: Vec<String>,
    /// Suites by their Java names; empty: all that there are.
    pub(crate) cipher_suites: Vec<String>,
    /// File of revocation lists, PEM or one of DER.
    pub(crate) crl_file: Option<PathBuf>,
}

impl ClientSettings {
    /// Of one that shows no certificate, and does all that there is.
    pub(crate) fn trusting(trust_store: Store) -> Self {
        let (protocols, cipher_suites) = (Vec::new(), Vec::new());
        let (key_store, crl_file) = (None, None);
        Self { key_store, trust_store, verifies_host: true, protocols, cipher_suites, crl_file }
    }
}

/// The configuration of a client.
///
/// # Errors
/// A file is at fault.
pub(crate) fn client_config(settings: &ClientSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider(&settings.cipher_suites)?;
    let store = &settings.trust_store;
    let (trust, revoked) = Trust::of(store, settings.crl_file.as_deref())?;
    let algorithms = provider.signature_verification_algorithms;
    let revokes = revoked.is_some();
    let chain = if trust.authorities.is_empty() {
        None
    } else {
        let authorities = Arc::clone(&trust.authorities);
        let mut chain =
            WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        if let Some(lists) = revoked {
            chain = chain.with_crls(lists).allow_unknown_revocation_status();
        }
        let path = settings.crl_file.as_ref().unwrap_or(&store.path);
        Some(chain.build().map_err(|error| TlsError::of(path, error))?)
    };
    let verifies_host = settings.verifies_host;
    let verifier = Arc::new(ServerVerifier { chain, trust, revokes, verifies_host, algorithms });
    let keys = provider.key_provider;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocols(&settings.protocols)?)
        .map_err(|error| TlsError::general(format!("protocols and cipher suites: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let Some(store) = &settings.key_store else {
        return Ok(Arc::new(config.with_no_client_auth()));
    };
    let entry = store.key()?;
    let key = keys.load_private_key(entry.key).map_err(|error| {
        TlsError::of(&store.path, format!("its private key cannot be used: {error}"))
    })?;
    let shown = SingleCertAndKey::from(CertifiedKey::new(entry.chain, key));
    Ok(Arc::new(config.with_client_cert_resolver(Arc::new(shown))))
}

/// As Java: a certificate is trusted by its issuer, or because it is in the trust store itself; the name may not
/// matter.
#[derive(Debug)]
struct ServerVerifier {
    /// What authorities vouch for, if there are any.
    chain: Option<Arc<WebPkiServerVerifier>>,
    trust: Trust,
    /// Whether certificates can be revoked: then each has an authority that says so.
    revokes: bool,
    verifies_host: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.revokes && self.trust.holds(certificate, now) {
            if self.verifies_host {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        let chain = self.chain.as_ref();
        let chain = chain.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is what is looked at last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.verifies_host => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
