//! What a trust store is good for.
//!
//! *Owns* the difference between authorities, which vouch for others, and certificates that are trusted because they
//! are there. *Invariants*: a certificate that does not say that it is an authority's vouches for none but itself:
//! who owns it could otherwise make certificates of any name; one of the first version of X.509, which can say
//! nothing, is no authority's. *Never* looks at a name.
//! Reproduces how Java judges trust anchors, but for those of the first version, which it lets vouch for others.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::{DistinguishedName, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::TlsError;
use super::stores::{Store, revocation_lists};

/// See the module.
#[derive(Debug)]
pub(super) struct Trust {
    /// Those who vouch for others.
    pub(super) authorities: Arc<RootCertStore>,
    /// All of the store.
    all: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Of a store, with the lists of the file that revokes certificates, if there is one.
    ///
    /// # Errors
    /// A file cannot be read, the store holds what is no certificate, or has no authority that could revoke.
    pub(super) fn of(
        store: &Store,
        crl_file: Option<&Path>,
    ) -> Result<(Self, Option<Vec<CertificateRevocationListDer<'static>>>), TlsError> {
        let all = store.trusted()?;
        let mut authorities = RootCertStore::empty();
        for certificate in all.iter().filter(|certificate| is_authority(certificate)) {
            authorities.add(certificate.clone()).map_err(|error| {
                TlsError::of(
                    &store.path,
                    format!("holds a certificate that cannot be used: {error}"),
                )
            })?;
        }
        if let Some(at) = all.iter().position(|known| X509Certificate::from_der(known).is_err()) {
            let reason = format!("certificate {} of it cannot be read", at + 1);
            return Err(TlsError::of(&store.path, reason));
        }
        let revoked = crl_file.map(revocation_lists).transpose()?;
        if let Some(path) = crl_file.filter(|_| authorities.is_empty()) {
            let reason = "is of no use: the trust store has no authority that could revoke";
            return Err(TlsError::of(path, reason));
        }
        Ok((Self { authorities: Arc::new(authorities), all }, revoked))
    }

    /// Whether a certificate is trusted because it is there.
    pub(super) fn holds(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
        let known = X509Certificate::from_der(certificate);
        self.all.iter().any(|trusted| trusted == certificate)
            && known.is_ok_and(|(_, known)| is_valid_at(&known, now))
    }

    /// The certificates of authorities.
    pub(super) fn vouching(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.all.iter().filter(|certificate| is_authority(certificate))
    }

    /// Subjects of all of it, by which a client chooses what to show.
    pub(super) fn subjects(&self) -> Vec<DistinguishedName> {
        let known = self.all.iter().filter_map(|known| X509Certificate::from_der(known).ok());
        known.map(|(_, known)| DistinguishedName::from(known.subject().as_raw().to_vec())).collect()
    }
}

fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, known)| known.is_ca())
}

/// Whether it is within its validity.
pub(super) fn is_valid_at(certificate: &X509Certificate<'_>, now: UnixTime) -> bool {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now)
}
