//! House rules of texts that no compiler knows: sizes of files and lines, ASCII, headers, words, targets of log lines.

use std::fs;

use super::sources::{all_sources, root, sources};

/// Lines of a file of tests, or of anything that is no product: walls.rs has the product's.
const FILE_LINES_MAX: usize = 800;
/// Columns of a line: rustfmt keeps code within 100, prose and literals get some slack.
const LINE_COLUMNS_MAX: usize = 120;

/// Words that mark unfinished work. This file alone may name them.
const UNFINISHED: [&str; 4] = ["todo!(", "unimplemented!(", "FIXME", "#[ignore"];

/// Words of this project's own that stood for a term of the field: docs/GLOSSARY.md has the terms.
const BANNED: [&str; 4] = ["turnstile", "courtesy", "leisure", "parcel"];
/// Words in whose place a sentence of the product or of a document names who acts.
const WITHOUT_ACTOR: [&str; 2] = ["whoever", "nobody"];

fn untidy_lines(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.lines().count() > FILE_LINES_MAX {
        wrong.push(format!("{name}: more than {FILE_LINES_MAX} lines: find its second noun"));
    }
    for (number, line) in text.lines().enumerate() {
        let at = number + 1;
        if line.chars().count() > LINE_COLUMNS_MAX {
            wrong.push(format!("{name}:{at}: longer than {LINE_COLUMNS_MAX} columns"));
        }
        if !line.is_ascii() {
            wrong.push(format!("{name}:{at}: not ASCII"));
        }
        for marker in UNFINISHED {
            if line.contains(marker) && name != "tests/house/tidy.rs" {
                wrong.push(format!("{name}:{at}: {marker} marks unfinished work"));
            }
        }
    }
    wrong
}

#[test]
fn files_are_short_ascii_and_finished() {
    let wrong: Vec<String> =
        all_sources().iter().flat_map(|(name, text)| untidy_lines(name, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_planted_long_line_marker_or_umlaut_is_caught() {
    let long = "x".repeat(LINE_COLUMNS_MAX + 1);
    for line in [long.as_str(), UNFINISHED[2], UNFINISHED[0], "\u{fc}"] {
        assert_eq!(untidy_lines("x.rs", line).len(), 1, "{line}");
    }
    let tall = "\n".repeat(FILE_LINES_MAX + 1);
    assert_eq!(untidy_lines("x.rs", &tall).len(), 1);
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<String> = all_sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!") && !text.starts_with("#!["))
        .map(|(name, _)| name)
        .collect();
    assert!(silent.is_empty(), "without a module comment: {silent:?}");
}

/// Every `x/y.rs` between backticks in a document or a module's own words.
fn named_files(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|name| name.ends_with(".rs") && name.contains('/') && !name.contains(' '))
        .collect()
}

#[test]
fn files_that_documents_and_headers_name_are_there() {
    let names: Vec<String> = all_sources().into_iter().map(|(name, _)| name).collect();
    let is_there = |name: &str| {
        names.iter().any(|known| *known == name || known.ends_with(&format!("/{name}")))
    };
    let mut documents: Vec<(String, String)> = ["docs", "docs/internals", "jepsen", "."]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).expect("a folder"))
        .map(|entry| entry.expect("a folder entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("UTF-8")))
        .collect();
    documents.extend(sources("src").into_iter().map(|(name, text)| {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        (name, head.join("\n"))
    }));
    assert!(documents.len() > 100);
    let mut wrong = Vec::new();
    for (document, text) in &documents {
        wrong.extend(
            named_files(text)
                .into_iter()
                .filter(|name| !is_there(name))
                .map(|name| format!("{document}: there is no {name}")),
        );
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(named_files("see `a/b.rs`, `c.rs` and `d e/f.rs`"), ["a/b.rs"]);
}

#[test]
fn the_walks_through_the_replica_are_told_in_five_steps_with_files() {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("the architecture");
    let inside = text.split("## Inside the replica\n").nth(1).expect("the section");
    let inside = inside.split("\n## ").next().expect("its text");
    let walks: Vec<&str> = inside.split("\n### ").skip(1).collect();
    assert_eq!(walks.len(), 5);
    for walk in walks {
        let steps: Vec<&str> =
            walk.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
        assert_eq!(steps.len(), 5, "{walk}");
        for step in steps {
            assert!(!named_files(step).is_empty(), "no file: {step}");
        }
    }
}

/// Every document for users and contributors, relative to the root, but what jepsen says of its own.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/internals", "spec"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("a folder entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    found
}

/// What is read by somebody who does not know this project yet.
fn is_for_readers(name: &str) -> bool {
    name.starts_with("src/") || name.ends_with(".md")
}

fn banned_words(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        let without_actor = if is_for_readers(name) { &WITHOUT_ACTOR[..] } else { &[] };
        let banned = BANNED.iter().chain(without_actor).filter(|word| line.contains(**word));
        found.extend(banned.map(|word| format!("{name}:{}: {word}", number + 1)));
    }
    found
}

#[test]
fn the_fields_terms_are_used_where_it_has_them() {
    let mut wrong: Vec<String> = all_sources()
        .iter()
        .filter(|(name, _)| name != "tests/house/tidy.rs")
        .flat_map(|(name, text)| banned_words(name, text))
        .collect();
    // The glossary says which words were used before.
    for (name, text) in documents().iter().filter(|(name, _)| name != "docs/GLOSSARY.md") {
        wrong.extend(banned_words(name, text));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(banned_words("x.rs", "let x = Turnstile::new();").len(), 1);
    assert_eq!(banned_words("src/x.rs", "// Whoever asks is told.").len(), 1);
    assert_eq!(banned_words("tests/x.rs", "// Whoever asks is told."), [""; 0]);
}

#[test]
fn the_core_denies_clocks_and_unordered_maps() {
    for module in ["proto", "tree", "locks", "sasl", "replica", "config"] {
        let path = root().join("src/core").join(module).join("mod.rs");
        let text = fs::read_to_string(path).expect("the module's front page");
        let deny = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]";
        assert!(text.contains(deny), "{module} lacks {deny}");
    }
}

/// Log lines that do not name the target that operators know: only the crate `lockkeeper` has it by its own name.
fn lines_without_target(name: &str, text: &str) -> Vec<String> {
    let crates = ["src/core/", "src/peer_auth/", "src/storage/", "src/supervision/"];
    if !crates.iter().any(|folder| name.starts_with(folder)) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for level in ["trace", "debug", "info", "warn", "error", "event"] {
        for (at, call) in text.match_indices(&format!("{level}!(")) {
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let names_target = text[at + call.len()..].trim_start().starts_with("target: crate::");
            if !names_target {
                wrong.push(format!("{name}:{}: without target", text[..at].lines().count()));
            }
        }
    }
    wrong
}

#[test]
fn log_lines_name_the_target_that_operators_know() {
    let wrong: Vec<String> =
        sources("src").iter().flat_map(|(name, text)| lines_without_target(name, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let bare = "    tracing::info!(\"an image\");";
    assert_eq!(lines_without_target("src/storage/x.rs", bare).len(), 1);
    assert_eq!(lines_without_target("src/server/x.rs", bare), [""; 0]);
    let named = "    tracing::info!(\n        target: crate::TARGET, \"an image\");";
    assert_eq!(lines_without_target("src/storage/x.rs", named), [""; 0]);
}
