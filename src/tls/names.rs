//! Which hosts a certificate is for: its subject alternative names.
//!
//! *Owns* the comparison, of names and of addresses, wildcards included. *Invariant*: the common name counts for
//! nothing, which Java still looks at where there is no other. *Never* decides which names are asked for.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// Whether a certificate is for this host name or address.
#[must_use]
pub(crate) fn names(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let (Ok(certificate), Ok(host)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    verify_server_name(&certificate, &host).is_ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn a_certificate_is_for_its_alternative_names_and_not_for_its_common_name() {
        let names_of = ["zk1.example", "*.pods.example", "10.0.0.1", "fd00::1"];
        let mut params = CertificateParams::new(names_of.map(str::to_owned)).unwrap();
        params.distinguished_name.push(DnType::CommonName, "zk2.example");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let is_for = |host| names(certificate.der(), host);
        for host in ["zk1.example", "ZK1.example", "a.pods.example", "10.0.0.1", "fd00::1"] {
            assert!(is_for(host), "{host}");
        }
        for host in ["zk2.example", "pods.example", "a.b.pods.example", "10.0.0.2", "", "zk1"] {
            assert!(!is_for(host), "{host}");
        }
        assert!(!names(&CertificateDer::from(vec![1, 2, 3]), "zk1.example"));
    }
}
