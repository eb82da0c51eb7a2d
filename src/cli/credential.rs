//! Identities that a command takes on: from its flags, or from a file.

use std::fs;
use std::path::Path;

use bytes::Bytes;

use crate::proto::{Request, Text};

/// An identity to take on: the scheme and what proves it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credential {
    scheme: String,
    secret: String,
}

impl Credential {
    /// From its two parts.
    pub(super) fn new(scheme: &str, secret: &str) -> Self {
        Self { scheme: scheme.to_string(), secret: secret.to_string() }
    }

    /// The request that takes it on.
    pub(super) fn request(&self) -> Request {
        let scheme = Some(Text::copy_from(&self.scheme));
        let auth = Some(Bytes::copy_from_slice(self.secret.as_bytes()));
        Request::Auth { scheme, auth }
    }

    /// Scheme of the proof, for example `digest`.
    #[cfg(any(feature = "bench", feature = "recipes"))]
    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Secret of the proof. Not for any log.
    #[cfg(any(feature = "bench", feature = "recipes"))]
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }
}

/// `SCHEME:SECRET`; the secret may hold colons.
impl std::str::FromStr for Credential {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((scheme, secret)) if !scheme.is_empty() => Ok(Self::new(scheme, secret)),
            // What was given may be a secret.
            Some(_) | None => Err("expected SCHEME:CREDENTIAL, as digest:user:password".into()),
        }
    }
}

/// Reads these credentials, and those of a file with one in a line.
///
/// # Errors
/// The file cannot be read, or a line is none.
pub(super) fn credentials(
    given: &[Credential],
    file: Option<&Path>,
) -> Result<Vec<Credential>, String> {
    let mut credentials = given.to_vec();
    if let Some(file) = file {
        let named = |reason: String| format!("{}: {reason}", file.display());
        let text = fs::read_to_string(file)
            .map_err(|error| named(format!("{error}: check the path and its permissions")))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            credentials.push(line.parse().map_err(named)?);
        }
    }
    Ok(credentials)
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:***", self.scheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_never_shown() {
        let credential: Credential = "digest:super:se:cret".parse().unwrap();
        assert_eq!(
            (credential.scheme.as_str(), credential.secret.as_str()),
            ("digest", "super:se:cret")
        );
        assert_eq!(format!("{credential:?}"), "digest:***");
        let reason = "secret".parse::<Credential>().unwrap_err();
        assert!(!reason.contains("secret"), "{reason}");
    }
}
