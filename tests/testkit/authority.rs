//! Certificates of a test, and the files that a server is given.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};

/// One that vouches for others.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A key and its certificate.
pub struct Owner {
    pub key: KeyPair,
    pub certificate: Certificate,
    pub serial: SerialNumber,
}

/// How long a certificate is valid.
#[derive(Clone, Copy)]
pub enum Validity {
    Now,
    Past,
    Future,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// A certificate for this name, which is a host's as well.
    pub fn issue(&self, name: &str) -> Owner {
        self.issue_valid(name, Validity::Now)
    }

    /// A certificate for a subject of this name that is no host's.
    pub fn called(&self, name: &str) -> Owner {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        self.sign(params)
    }

    pub fn issue_valid(&self, name: &str, validity: Validity) -> Owner {
        let mut params =
            CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = match validity {
            Validity::Now => (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1)),
            Validity::Past => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
            Validity::Future => (date_time_ymd(2110, 1, 1), date_time_ymd(2120, 1, 1)),
        };
        self.sign(params)
    }

    /// A certificate of a server at these hosts.
    pub fn issue_for(&self, hosts: &[&str]) -> Owner {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a server");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Owner {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let serial = serial_of(&certificate);
        Owner { key, certificate, serial }
    }

    /// One whose certificate does not say that it may vouch for others.
    pub fn that_is_none(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// Of PEM, what others trust.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// That it does not vouch for these any more, of PEM.
    pub fn revokes(&self, owners: &[&Owner]) -> String {
        let revoked = |owner: &&Owner| RevokedCertParams {
            serial_number: owner.serial.clone(),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(2120, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: owners.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// It is in the bytes: version, then an integer.
fn serial_of(certificate: &Certificate) -> SerialNumber {
    let der: &[u8] = certificate.der();
    let at = der.windows(5).position(|bytes| bytes == [0xa0, 3, 2, 1, 2]).expect("a version") + 5;
    let length = usize::from(der[at + 1]);
    SerialNumber::from_slice(&der[at + 2..at + 2 + length])
}

impl Owner {
    /// Of PEM: the key and the certificate.
    pub fn pem(&self) -> String {
        format!("{}{}", self.key.serialize_pem(), self.certificate.pem())
    }
}

/// Writes a file as orchestrators do: whole, under its name at once.
pub fn put(directory: &Path, name: &str, text: &str) -> PathBuf {
    let (path, other) = (directory.join(name), directory.join(format!("{name}.new")));
    fs::write(&other, text).unwrap();
    fs::rename(other, &path).unwrap();
    path
}
