//! The subject of a certificate as text, byte for byte as Java's `X500Principal.getName()` writes it: the id of the
//! scheme `x509`, which ACLs compare as it is.
//!
//! *Owns* that form, of RFC 2253: the last part first, nine attributes by name and all others by number with their
//! bytes, more characters escaped than the RFC asks for. *Invariant*: equal subjects have equal texts on all servers.

use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::{Any, Oid, Tag};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};

/// The subject of a certificate.
///
/// # Errors
/// The bytes are no certificate.
pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    Ok(of_name(certificate.subject()))
}

fn of_name(name: &X509Name<'_>) -> String {
    let rdns: Vec<_> = name.iter().collect();
    let mut text = String::new();
    for (at, rdn) in rdns.iter().rev().enumerate() {
        for (part, attribute) in rdn.iter().enumerate() {
            text.push_str(match (at, part) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            push_attribute(&mut text, attribute.attr_type(), attribute.attr_value());
        }
    }
    text
}

/// The attributes that have names there.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// The kinds of text; what else a value may be is shown by its bytes.
const TEXTS: [Tag; 6] = [
    Tag::PrintableString,
    Tag::Utf8String,
    Tag::T61String,
    Tag::Ia5String,
    Tag::BmpString,
    Tag::UniversalString,
];

fn push_attribute(text: &mut String, oid: &Oid<'_>, value: &Any<'_>) {
    let oid = oid.to_id_string();
    let keyword = KEYWORDS.iter().find(|(number, _)| *number == oid).map(|(_, keyword)| *keyword);
    text.push_str(keyword.unwrap_or(&oid));
    text.push('=');
    match keyword {
        Some(_) if TEXTS.contains(&value.tag()) => push_text(text, value.data),
        _ => {
            text.push('#');
            for byte in der(value) {
                let _ = write!(text, "{byte:02x}");
            }
        }
    }
}

/// Java takes the bytes for UTF-8, whatever they are.
fn push_text(text: &mut String, bytes: &[u8]) {
    let value = String::from_utf8_lossy(bytes);
    let is_blank = |character: char| matches!(character, ' ' | '\r');
    let lead = value.chars().take_while(|character| is_blank(*character)).count();
    let trail = value.chars().rev().take_while(|character| is_blank(*character)).count();
    let behind = value.chars().count() - trail.min(value.chars().count() - lead);
    for (at, character) in value.chars().enumerate() {
        if at < lead || at >= behind || ",=+<>#;\"\\".contains(character) {
            text.push('\\');
        }
        match character {
            '\0' => text.push_str("\\00"),
            _ => text.push(character),
        }
    }
}

/// The value with its head.
fn der(value: &Any<'_>) -> Vec<u8> {
    let class = (value.header.class() as u8) << 6;
    let constructed = u8::from(value.header.is_constructed()) << 5;
    // Subjects have no tags above 30.
    let mut der = vec![class | constructed | (value.tag().0 & 0x1f) as u8];
    let length = value.data.len();
    if length < 0x80 {
        der.push(length as u8);
    } else {
        let bytes: Vec<u8> =
            length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        der.push(0x80 | bytes.len() as u8);
        der.extend(bytes);
    }
    der.extend_from_slice(value.data);
    der
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    /// Subjects of certificates made with OpenSSL, and what `getSubjectX500Principal().getName()` of Java 17 says of
    /// them.
    const VECTORS: [(&str, &str); 7] = [
        (
            "MGcxCzAJBgNVBAYTAkRFMRAwDgYDVQQIDAdCYXZhcmlhMQ8wDQYDVQQHDAZNdW5pY2gxEDAOBgNVBAoMB0V4YW1wbGUx\
             DjAMBgNVBAsMBUxvY2tzMRMwEQYDVQQDDApjbGllbnQgb25l",
            "CN=client one,OU=Locks,O=Example,L=Munich,ST=Bavaria,C=DE",
        ),
        (
            "MC8xCjAIBgNVBAMMAXgxFDASBgkqhkiG9w0BCQEWBWFAYi5jMQswCQYDVQQFEwI0Mg==",
            "2.5.4.5=#13023432,1.2.840.113549.1.9.1=#16056140622e63,CN=x",
        ),
        (
            "MDMxCjAIBgNVBAoMAWExJTAIBgNVBAMMAW0wCAYDVQQLDAFuMA8GCgmSJomT8ixkAQEMAXU=",
            "CN=m+OU=n+UID=u,O=a",
        ),
        ("MB4xHDAaBgNVBAMME2EsYitjImRcZTxmPmc7aD1pI2o=", r#"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j"#),
        (
            "MCkxGjAYBgNVBAMMESAjbGVhZCBhbmQgdHJhaWwgMQswCQYDVQQKDAIjeA==",
            r"O=\#x,CN=\ \#lead and trail\ ",
        ),
        (
            "MIGLMRYwFAYDVQQDDA1Kw7xyZ2VuIFdlacOfMQ8wDQYDVQQKDAbml6XmnKwxFzAVBgoJkiaJk/IsZAEZFgdleGFtcGxl\
             MRMwEQYKCZImiZPyLGQBGRYDb3JnMQ4wDAYDVQQJDAVXYXkgMTEKMAgGA1UEDAwBVDEKMAgGA1UEBAwBczEKMAgGA1UE\
             KgwBZw==",
            "2.5.4.42=#0c0167,2.5.4.4=#0c0173,2.5.4.12=#0c0154,STREET=Way 1,DC=org,DC=example,\
             O=\u{65e5}\u{672c},CN=J\u{fc}rgen Wei\u{df}",
        ),
        (
            "MCcxFTATBgNVBAMeDABKAPwAcgBnAGUAbjEOMAwGA1UEChMFcGxhaW4=",
            "O=plain,CN=\\00J\\00\u{fffd}\\00r\\00g\\00e\\00n",
        ),
    ];

    #[test]
    fn subjects_are_written_as_java_writes_them() {
        for (der, text) in VECTORS {
            let der = BASE64.decode(der).unwrap();
            let (_, name) = X509Name::from_der(&der).unwrap();
            assert_eq!(of_name(&name), text);
        }
    }
}
