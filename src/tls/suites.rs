//! Versions and cipher suites of TLS, by the names that Java gives them.
//!
//! *Owns* which of them are offered. *Invariant*: of the suites that are asked for those count that there are, in the
//! order of the names, and there must be one; a version that is not there is an error.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

use super::TlsError;

/// What offers these suites.
pub(super) fn provider(names: &[String]) -> Result<Arc<CryptoProvider>, TlsError> {
    let cipher_suites = cipher_suites(names)?;
    Ok(Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() }))
}

/// The versions of these names.
pub(super) fn protocols(
    names: &[String],
) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    if names.is_empty() {
        return Ok(vec![&version::TLS13, &version::TLS12]);
    }
    let of_name = |name: &String| match name.as_str() {
        "TLSv1.3" => Ok(&version::TLS13),
        "TLSv1.2" => Ok(&version::TLS12),
        _ => Err(TlsError::general(format!(
            "the protocol `{name}` is not offered; TLSv1.2 and TLSv1.3 are"
        ))),
    };
    names.iter().map(of_name).collect()
}

/// Those of the names that there are, in the order of the names.
fn cipher_suites(names: &[String]) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let all = ring::default_provider().cipher_suites;
    if names.is_empty() {
        return Ok(all);
    }
    let named = names.iter().filter_map(|name| all.iter().find(|suite| java_name(suite) == *name));
    let chosen: Vec<SupportedCipherSuite> = named.copied().collect();
    if chosen.is_empty() {
        let offered: Vec<String> = all.iter().map(java_name).collect();
        let reason =
            format!("none of the cipher suites is offered; there are {}", offered.join(", "));
        return Err(TlsError::general(reason));
    }
    Ok(chosen)
}

/// Names that stand for no suite here.
#[must_use]
pub(crate) fn unknown_cipher_suites(names: &[String]) -> Vec<&str> {
    let all = ring::default_provider().cipher_suites;
    let is_unknown = |name: &&String| !all.iter().any(|suite| java_name(suite) == **name);
    names.iter().filter(is_unknown).map(String::as_str).collect()
}

/// Java has no number in the names of the suites of TLS 1.3.
fn java_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}
