//! The directives of a digest-response: `name=value`, separated by commas.
//!
//! *Owns* their syntax (RFC 2831, section 7): quoted strings with escapes, bare values, blanks around all of them,
//! empty elements. *Invariant*: a name that was given twice is an error. *Never* panics, whatever the bytes.

/// What a client said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Directives {
    /// Names in lower case.
    found: Vec<(Vec<u8>, Vec<u8>)>,
}

/// It is not a list of directives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Directives {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Malformed> {
        let mut rest = text;
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            rest = skip(rest, |byte| is_blank(byte) || byte == b',');
            if rest.is_empty() {
                return Ok(Self { found });
            }
            let (name, behind) = split(rest, |byte| !is_separator(byte));
            let name = name.to_ascii_lowercase();
            let behind = skip(behind, is_blank).strip_prefix(b"=").ok_or(Malformed)?;
            let (value, behind) = value(skip(behind, is_blank))?;
            if name.is_empty() || found.iter().any(|(known, _)| *known == name) {
                return Err(Malformed);
            }
            found.push((name, value));
            rest = skip(behind, is_blank);
            if !rest.is_empty() && !rest.starts_with(b",") {
                return Err(Malformed);
            }
        }
    }

    /// The value of a directive, if it was given.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.found.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }
}

/// A value and what is behind it.
fn value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Malformed> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let (value, behind) = split(text, |byte| !is_separator(byte));
        return if value.is_empty() { Err(Malformed) } else { Ok((value.to_vec(), behind)) };
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Ok((value, &quoted[at + 1..])),
            b'\\' => value.push(*bytes.next().ok_or(Malformed)?.1),
            plain => value.push(*plain),
        }
    }
    Err(Malformed)
}

fn skip(text: &[u8], what: impl Fn(u8) -> bool) -> &[u8] {
    split(text, what).1
}

/// The bytes at the front that are such, and those behind them.
fn split(text: &[u8], what: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !what(*byte)).unwrap_or(text.len()))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_separator(byte: u8) -> bool {
    is_blank(byte) || byte.is_ascii_control() || matches!(byte, b',' | b'=' | b'"' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Directives, Malformed> {
        Directives::parse(text.as_bytes())
    }

    #[test]
    fn values_are_bare_or_quoted_and_may_have_blanks_around_them() {
        let found = of(" a = 1 , ,, B=\"x,\\\"y\\\\=\" ,c=\"\",").unwrap();
        assert_eq!(found.get("a"), Some(&b"1"[..]));
        assert_eq!(found.get("b"), Some(&b"x,\"y\\="[..]));
        assert_eq!(found.get("c"), Some(&b""[..]));
        assert_eq!(found.get("d"), None);
        assert!(of("").unwrap().found.is_empty());
    }

    #[test]
    fn what_is_no_list_of_directives_is_malformed() {
        for text in
            ["a", "a=", "=1", "a=\"", "a=\"\\", "a=1 b=2", "a=\"x\"y", "a=1,A=2", "\"a\"=1", "a==1"]
        {
            assert_eq!(of(text), Err(Malformed), "{text}");
        }
    }
}
