//! Files that the house rules are about.

use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the repository").to_owned()
}

/// Every Rust source below `folder`, relative to the root, sorted.
pub(super) fn sources(folder: &str) -> Vec<(String, String)> {
    sources_below(&root(), folder)
}

/// The same of a checkout that is elsewhere.
pub(super) fn sources_below(root: &Path, folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("below the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    found.sort();
    found
}

pub(super) fn all_sources() -> Vec<(String, String)> {
    ["src", "tests", "examples", "benches", "fuzz", "jepsen"]
        .into_iter()
        .flat_map(sources)
        .collect()
}

pub(super) fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether a line names the crate: at the beginning of a path, not as a part of another's (`std::time`).
pub(super) fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let begins = !before.ends_with(|c: char| is_part(c) || c == ':');
        let is_imported = ["use ", "extern crate "].iter().any(|word| before.ends_with(word));
        begins && !after.starts_with(is_part) && (after.starts_with("::") || is_imported)
    })
}
