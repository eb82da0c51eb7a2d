//! Names of owners of certificates, as ids of the scheme `x509` have them.
//!
//! *Owns* the judgement whether text is one: parts with commas between them, each `type=value`. *Invariant*: every
//! server judges alike. *Never* compares two: ACLs do so byte by byte. Reproduces what the constructor of
//! `X500Principal` refuses.

/// The types that Java knows by name.
const KEYWORDS: [&str; 21] = [
    "C",
    "CN",
    "DC",
    "DNQ",
    "DNQUALIFIER",
    "EMAILADDRESS",
    "GENERATION",
    "GIVENNAME",
    "INITIALS",
    "IP",
    "L",
    "O",
    "OU",
    "S",
    "SERIALNUMBER",
    "ST",
    "STREET",
    "SURNAME",
    "T",
    "UID",
    "IPADDRESS",
];

/// Whether this is one. Nothing at all is.
pub(super) fn is_one(text: &str) -> bool {
    text.trim().is_empty() || parts(text).all(is_part)
}

/// Between the separators that are neither quoted nor behind a backslash.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_escaped, mut is_quoted) = (false, false);
    text.split(move |c: char| {
        let separates = matches!(c, ',' | ';' | '+') && !is_escaped && !is_quoted;
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        separates
    })
}

fn is_part(part: &str) -> bool {
    let Some((kind, _)) = part.split_once('=') else { return false };
    let kind = kind.trim();
    let number = kind.strip_prefix("OID.").or_else(|| kind.strip_prefix("oid.")).unwrap_or(kind);
    let is_number = number.split('.').count() > 1
        && number
            .split('.')
            .all(|arc| !arc.is_empty() && arc.bytes().all(|byte| byte.is_ascii_digit()));
    is_number || KEYWORDS.contains(&kind.to_ascii_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::is_one;

    #[test]
    fn names_are_parts_of_a_known_type_with_a_value() {
        for name in [
            "",
            "CN=a",
            "cn=a",
            "CN=a,OU=b\\, c,O=\"d, e\"",
            "CN=a+UID=b",
            "CN=",
            "1.2.840.113549.1.9.1=#1603612e62",
            "OID.2.5.4.3=a",
            "CN=a, O=b",
        ] {
            assert!(is_one(name), "{name}");
        }
        for text in
            ["CN", "a", "user:password", "CN=a,", ",CN=a", "XY=a", "=a", "1=a", "1..2=a", "CN=a,b"]
        {
            assert!(!is_one(text), "{text}");
        }
    }
}
