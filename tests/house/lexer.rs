//! A reader of Rust sources that knows as much of the language as the house rules need: comments, literals, the items
//! of tests, paths and functions. All that it returns has the lines and columns of the file.

/// A path that a file names: `use a::{b, c as d};` has two.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) line: usize,
    pub(super) parts: Vec<String>,
    /// The name that a `use` gives it.
    pub(super) as_what: String,
    pub(super) is_use: bool,
    pub(super) is_public_use: bool,
}

/// Words with which an item begins; what does not begin with one ends with a comma.
const ITEMS: [&str; 15] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "let",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "use",
];

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The text with comments and the contents of literals replaced by spaces.
pub(super) fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => end_of(bytes, at, b"\n"),
            b'/' if bytes[at..].starts_with(b"/*") => end_of(bytes, at, b"*/") + 2,
            b'"' => end_of_string(bytes, at),
            b'r' if at == 0 || !is_word(bytes[at - 1]) => end_of_raw(bytes, at).unwrap_or(at),
            b'\'' => end_of_char(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            at += 1;
            continue;
        }
        let end = end.min(bytes.len());
        out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    String::from_utf8(out.iter().map(|byte| if byte.is_ascii() { *byte } else { b' ' }).collect())
        .expect("ASCII")
}

fn end_of(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    let found = bytes[from..].windows(what.len()).position(|window| window == what);
    found.map_or(bytes.len(), |found| from + found)
}

fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn end_of_raw(bytes: &[u8], from: usize) -> Option<usize> {
    let hashes = bytes[from + 1..].iter().take_while(|byte| **byte == b'#').count();
    (bytes.get(from + 1 + hashes) == Some(&b'"')).then(|| {
        let end = [&b"\""[..], &vec![b'#'; hashes]].concat();
        end_of(bytes, from + 2 + hashes, &end) + end.len()
    })
}

/// None for a lifetime.
fn end_of_char(bytes: &[u8], from: usize) -> Option<usize> {
    if bytes.get(from + 1) == Some(&b'\\') {
        return Some(end_of(bytes, from + 3, b"'") + 1);
    }
    (bytes.get(from + 2) == Some(&b'\'')).then_some(from + 3)
}

/// The code of the product and that of its tests, each with the other blanked. `code` is from [`plain`].
pub(super) fn without_tests(code: &str) -> (String, String) {
    let blank =
        |text: &str| -> String { text.chars().map(|c| if c == '\n' { c } else { ' ' }).collect() };
    if code.contains("#![cfg(test)]") {
        return (blank(code), code.to_owned());
    }
    let (mut product, mut tests) = (String::new(), String::new());
    let mut at = 0;
    while let Some(found) =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| code[at..].find(mark)).min()
    {
        let start = at + found;
        let end = end_of_item(code, start);
        product += &code[at..start];
        product += &blank(&code[start..end]);
        tests += &blank(&code[at..start]);
        tests += &code[start..end];
        at = end;
    }
    product += &code[at..];
    tests += &blank(&code[at..]);
    (product, tests)
}

/// Where the item ends whose first attribute is at `start`.
fn end_of_item(code: &str, start: usize) -> usize {
    let bytes = code.as_bytes();
    let mut at = start;
    // Attributes.
    while bytes.get(at) == Some(&b'#') {
        at = matching(bytes, at + 1);
        at += bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }
    let first: String = code[at..].chars().take_while(|c| is_word(*c as u8)).collect();
    let is_item = ITEMS.contains(&first.as_str());
    let words = &code[at..(at + 40).min(code.len())];
    let ends_with_semicolon = ["use ", "let ", "const ", "static ", "type "].iter().any(|word| {
        let words = words
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub ");
        words.starts_with(word) && !words.starts_with("const fn")
    });
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => at = matching(bytes, at),
            b'{' => {
                at = matching(bytes, at);
                if !ends_with_semicolon {
                    return at;
                }
            }
            b';' => return at + 1,
            b',' if !is_item => return at + 1,
            b'}' | b')' | b']' => return at,
            _ => at += 1,
        }
    }
    at
}

/// Behind the bracket that closes the one at `from`.
fn matching(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

/// Every path of two parts or more, and all of each `use`.
pub(super) fn paths(code: &str) -> Vec<Path> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        if bytes[at] == b'\n' {
            line += 1;
        }
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let end = at + bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
        let word = &code[at..end];
        let statement = word == "use" && bytes.get(end).is_some_and(u8::is_ascii_whitespace);
        if statement {
            let stop = end_of(bytes, end, b";");
            let before = code[..at].trim_end();
            let is_public =
                before.ends_with("pub") || (before.ends_with(')') && visibility(before));
            let head = Path {
                line,
                parts: Vec::new(),
                as_what: String::new(),
                is_use: true,
                is_public_use: is_public,
            };
            tree(&code[end..stop], &head, &mut found);
            line += code[at..stop].matches('\n').count();
            at = stop;
        } else if code[..at].ends_with("pub(in ") {
            // Who may see it, and no import.
            at += end_of(&bytes[at..], 0, b")");
        } else if code[end..].starts_with("::") && !code[..at].ends_with("::") {
            let length =
                code[at..].bytes().take_while(|byte| is_word(*byte) || *byte == b':').count();
            let parts: Vec<String> = code[at..at + length]
                .split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect();
            found.push(Path {
                line,
                parts,
                as_what: String::new(),
                is_use: false,
                is_public_use: false,
            });
            at += length;
        } else {
            at = end;
        }
    }
    found.retain(|path| path.parts.len() > 1 || (path.is_use && !path.parts.is_empty()));
    found
}

fn visibility(before: &str) -> bool {
    before.rfind("pub(").is_some_and(|open| !before[open..before.len() - 1].contains(')'))
}

/// The leaves of a tree of `use`.
fn tree(text: &str, head: &Path, found: &mut Vec<Path>) {
    let text = text.trim();
    if let Some(open) = text.find('{') {
        let mut head = head.clone();
        head.parts.extend(
            text[..open]
                .split("::")
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(str::to_owned),
        );
        let end = matching(text.as_bytes(), open).max(open + 2) - 1;
        let (mut depth, mut start) = (0_usize, open + 1);
        for (at, c) in text.char_indices().skip(open + 1) {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if (c == ',' && depth == 0) || at == end {
                tree(&text[start..at.max(start)], &head, found);
                start = at + 1;
            }
            if at == end {
                break;
            }
        }
        return;
    }
    if text.is_empty() {
        return;
    }
    let mut path = head.clone();
    let (name, as_what) =
        text.split_once(" as ").map_or((text, None), |(name, other)| (name, Some(other.trim())));
    path.parts.extend(
        name.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()),
    );
    let last = path.parts.iter().rev().find(|part| *part != "self").cloned().unwrap_or_default();
    path.as_what = as_what.map_or(last, str::to_owned);
    found.push(path);
}

/// Each function with a body, and its lines.
pub(super) fn functions(code: &str) -> Vec<(String, usize)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(bytes[at - 1]) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| is_word(*c as u8)).collect();
        let mut end = at + 3;
        while end < bytes.len() && !matches!(bytes[end], b'{' | b';') {
            end = if matches!(bytes[end], b'(' | b'[') { matching(bytes, end) } else { end + 1 };
        }
        if name.is_empty() || bytes.get(end) != Some(&b'{') {
            continue;
        }
        found.push((name, code[at..matching(bytes, end)].lines().count()));
    }
    found
}
