//! What a listener does for TLS: one function makes the configuration of every one of them.
//!
//! *Owns* [`server_config`]: protocols, cipher suites, the key, and what clients must show. *Invariants*: where a
//! client must or may show a certificate there is something that decides about it; with revocation lists every
//! certificate of a chain is looked up; what cannot be honoured is an error and never left out. *Never* fetches
//! anything, and knows no socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureAlgorithm, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::TlsError;
use super::client::{ClientSettings, client_config};
use super::first_version;
use super::stores::Store;
use super::suites::{protocols, provider};
use super::trust::Trust;

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// They are not asked for one.
    None,
    /// One that they show must be trusted.
    Want,
    /// They must show one.
    Need,
}

/// What a listener is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerSettings {
    /// Its key.
    pub(crate) key_store: Store,
    /// What it trusts.
    pub(crate) trust_store: Option<Store>,
    /// Whether clients show a certificate.
    pub(crate) client_auth: ClientAuth,
    /// Versions by their Java names; empty: all that there are.
    pub(crate) protocols: Vec<String>,
    /// Suites by their Java names; empty: all that there are.
    pub(crate) cipher_suites: Vec<String>,
    /// File of revocation lists, PEM or one of DER.
    pub(crate) crl_file: Option<PathBuf>,
    /// Whether the same key and trust are for connections that are made as well.
    pub(crate) connects: bool,
}

impl ListenerSettings {
    /// Every file that says something about it.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let stores = [Some(&self.key_store), self.trust_store.as_ref()].into_iter().flatten();
        stores.flat_map(Store::files).chain(self.crl_file.as_deref())
    }
}

/// What a listener speaks TLS by, and what is to be known of that.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// For new connections.
    pub(crate) config: Arc<ServerConfig>,
    /// For new connections that are made, if any are. The certificate may be of any name: who connects looks at that.
    pub(crate) client: Option<Arc<ClientConfig>>,
    /// When the first of the certificates that it shows is not valid any more, seconds since 1970.
    pub(crate) expires_s: i64,
    /// Whether its key is one of RSA: to sign with it takes about a millisecond.
    pub(crate) is_rsa: bool,
}

/// The configuration of a listener: the only place where one is made.
///
/// # Errors
/// A file is at fault, or what is asked for is not there.
pub(crate) fn server_config(settings: &ListenerSettings) -> Result<Loaded, TlsError> {
    let provider = provider(&settings.cipher_suites)?;
    let verifier = client_verifier(settings, &provider)?;
    let keys = provider.key_provider;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocols(&settings.protocols)?)
        .map_err(|error| TlsError::general(format!("protocols and cipher suites: {error}")))?
        .with_client_cert_verifier(verifier);
    let entry = settings.key_store.key()?;
    let expires = entry.chain.iter().map(not_after).collect::<Option<Vec<_>>>();
    let expires = expires.and_then(|moments| moments.into_iter().min());
    let expires_s = expires.ok_or_else(|| {
        TlsError::of(&settings.key_store.path, "holds a certificate that cannot be read")
    })?;
    let at_fault = |reason: String| TlsError::of(&settings.key_store.path, reason);
    let key = keys
        .load_private_key(entry.key)
        .map_err(|error| at_fault(format!("its private key cannot be used: {error}")))?;
    // A key that does not say what it is could not be checked: those of ring do.
    if key
        .public_key()
        .is_some_and(|public| Some(public.as_ref()) != public_key(&entry.chain[0]).as_deref())
    {
        return Err(at_fault("its key is not that of its certificate".to_owned()));
    }
    let is_rsa = key.algorithm() == SignatureAlgorithm::RSA;
    let shown = SingleCertAndKey::from(CertifiedKey::new(entry.chain, key));
    let mut config = config.with_cert_resolver(Arc::new(shown));
    // A session that is resumed would not be judged by what is trusted and revoked now.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let client = if settings.connects { Some(outgoing(settings)?) } else { None };
    Ok(Loaded { config: Arc::new(config), client, expires_s, is_rsa })
}

/// What connections are made by, of the same settings.
fn outgoing(settings: &ListenerSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let trust_store = settings.trust_store.clone();
    let trust_store = trust_store.ok_or_else(|| {
        TlsError::general(
            "there is no trust store to judge other servers by, which are connected to",
        )
    })?;
    client_config(&ClientSettings {
        key_store: Some(settings.key_store.clone()),
        verifies_host: false,
        protocols: settings.protocols.clone(),
        cipher_suites: settings.cipher_suites.clone(),
        crl_file: settings.crl_file.clone(),
        ..ClientSettings::trusting(trust_store)
    })
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.public_key().raw.to_vec())
}

fn client_verifier(
    settings: &ListenerSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    if settings.client_auth == ClientAuth::None {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let store = settings.trust_store.as_ref().ok_or_else(|| {
        TlsError::general(
            "clients are asked for certificates, and there is no trust store to judge them by; \
             give one, or set the client authentication to none",
        )
    })?;
    let (trust, revoked) = Trust::of(store, settings.crl_file.as_deref())?;
    let revokes = revoked.is_some();
    let chain = if trust.authorities.is_empty() {
        None
    } else {
        let authorities = Arc::clone(&trust.authorities);
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(authorities, Arc::clone(provider));
        if let Some(lists) = revoked {
            builder = builder.with_crls(lists).allow_unknown_revocation_status();
        }
        let chain = builder.build().map_err(|error| {
            let path = settings.crl_file.as_ref().unwrap_or(&store.path);
            TlsError::of(path, format!("clients cannot be judged by it: {error}"))
        })?;
        Some(chain)
    };
    let is_mandatory = settings.client_auth == ClientAuth::Need;
    let algorithms = provider.signature_verification_algorithms;
    let hints = trust.subjects();
    Ok(Arc::new(ClientVerifier { chain, hints, trust, revokes, is_mandatory, algorithms }))
}

/// As Java: a certificate is trusted by its issuer, or because it is in the trust store itself; it may be of the first
/// version.
#[derive(Debug)]
struct ClientVerifier {
    /// What authorities vouch for, if there are any.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    hints: Vec<DistinguishedName>,
    trust: Trust,
    /// Whether certificates can be revoked: then each has an authority that says so.
    revokes: bool,
    is_mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let refused = match &self.chain {
            None => Error::InvalidCertificate(CertificateError::UnknownIssuer),
            Some(chain) => match chain.verify_client_cert(certificate, intermediates, now) {
                Ok(verified) => return Ok(verified),
                Err(refused) => refused,
            },
        };
        let is_good = !self.revokes
            && (self.trust.holds(certificate, now)
                || (first_version::is_one(certificate)
                    && first_version::is_signed_by(certificate, &self.trust, now)));
        match is_good {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(refused),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match first_version::is_one(certificate) {
            true => first_version::verify_tls12(message, certificate, signed, &self.algorithms),
            false => verify_tls12_signature(message, certificate, signed, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match first_version::is_one(certificate) {
            true => first_version::verify_tls13(message, certificate, signed, &self.algorithms),
            false => verify_tls13_signature(message, certificate, signed, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }
}
