//! Certificates of clients that are of the first version of X.509, which has no extensions.
//!
//! *Owns* the judgement on one of them: Java takes it, and small tools make it to this day, but the library that judges
//! all others does not. *Invariants*: it must be signed by an authority of the trust store itself, with nothing
//! between them, by an algorithm that is not broken, and be valid now; it is its owner's only if the handshake is
//! signed by its key. *Never* taken where certificates can be revoked: that is for the listener to say.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error};
use x509_parser::oid_registry::{
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA,
    OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519, Oid,
};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

use super::trust::{Trust, is_valid_at};

/// By what it may be signed.
const ALGORITHMS: [Oid<'static>; 6] = [
    OID_PKCS1_SHA256WITHRSA,
    OID_PKCS1_SHA384WITHRSA,
    OID_PKCS1_SHA512WITHRSA,
    OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ED25519,
];

/// Whether it is one.
pub(super) fn is_one(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, known)| known.version() == X509Version::V1)
}

/// Whether an authority of the trust store has signed it.
pub(super) fn is_signed_by(certificate: &CertificateDer<'_>, trust: &Trust, now: UnixTime) -> bool {
    let Ok((rest, certificate)) = X509Certificate::from_der(certificate) else { return false };
    if !rest.is_empty() || !is_valid_at(&certificate, now) {
        return false;
    }
    let is_allowed = ALGORITHMS.contains(&certificate.signature_algorithm.algorithm);
    let has_signed = |authority: &CertificateDer<'static>| {
        let Ok((_, authority)) = X509Certificate::from_der(authority) else { return false };
        authority.subject().as_raw() == certificate.issuer().as_raw()
            && certificate.verify_signature(Some(authority.public_key())).is_ok()
    };
    is_allowed && trust.vouching().any(has_signed)
}

/// Whether the handshake of TLS 1.3 is signed by its key.
///
/// # Errors
/// It is not.
pub(super) fn verify_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let (_, known) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let key = SubjectPublicKeyInfoDer::from(known.public_key().raw);
    verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
}

/// The same of TLS 1.2.
///
/// # Errors
/// It is not.
pub(super) fn verify_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let (_, known) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let key = known.public_key().subject_public_key.as_ref();
    let of_scheme = algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
    // One for each curve that a scheme may go with: a key of another kind verifies nothing.
    let is_signed = of_scheme
        .flat_map(|(_, algorithms)| algorithms.iter())
        .any(|algorithm| algorithm.verify_signature(key, message, signed.signature()).is_ok());
    match is_signed {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(Error::InvalidCertificate(CertificateError::BadSignature)),
    }
}

fn unreadable() -> Error {
    Error::InvalidCertificate(CertificateError::BadEncoding)
}
