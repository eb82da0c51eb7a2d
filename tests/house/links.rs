//! Links of the documents: each leads to a file that is there, and to a heading that it has.
//!
//! Links to other hosts are not followed. A heading's anchor is made as GitHub and mdBook make it: lower case, blanks
//! to hyphens, what is neither a letter, a digit, a hyphen nor an underscore left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::sources::root;

/// The documents, by path from the root.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let folders = [
        ".",
        "docs",
        "docs/internals",
        "docs/performance",
        "jepsen",
        "spec",
        "tests",
        "tests/simulation/exploration",
    ];
    for folder in folders {
        let folder = root().join(folder);
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(root()).unwrap().components().collect(), text);
            }
        }
    }
    assert!(found.len() > 20, "the documents are there: {found:?}");
    found
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn anchor(heading: &str) -> String {
    let mut out = String::new();
    for letter in heading.trim().to_lowercase().chars() {
        match letter {
            ' ' => out.push('-'),
            _ if letter.is_alphanumeric() || letter == '-' || letter == '_' => out.push(letter),
            _ => {}
        }
    }
    out
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| anchor(line.trim_start_matches('#')));
    // Of two that are equal the second one has a number.
    let mut seen = BTreeMap::new();
    headings
        .map(|anchor| {
            let times = seen.entry(anchor.clone()).and_modify(|times| *times += 1).or_insert(0);
            if *times == 0 { anchor } else { format!("{anchor}-{times}") }
        })
        .collect()
}

/// Where the links of a text lead.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // What is between backticks is no link.
        let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for (at, _) in spoken.match_indices("](") {
            let rest = &spoken[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].split(' ').next().unwrap_or_default().to_owned());
            }
        }
    }
    found
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(out.pop()),
            std::path::Component::CurDir => {}
            _ => out.push(part),
        }
    }
    out
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let documents = documents();
    let mut broken = Vec::new();
    for (path, text) in &documents {
        for target in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => path.clone(),
                _ => plain(&path.parent().unwrap().join(file)),
            };
            if !root().join(&file).exists() {
                broken.push(format!("{}: {target}: there is no such file", path.display()));
            } else if !heading.is_empty() {
                let known = documents.get(&file).map(|text| anchors(text));
                if !known.is_some_and(|known| known.contains(heading)) {
                    broken.push(format!("{}: {target}: there is no such heading", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_document_is_a_chapter_of_the_book() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let chapters: BTreeSet<String> = targets(&summary).into_iter().collect();
    for path in documents().keys() {
        let Ok(chapter) = path.strip_prefix("docs") else { continue };
        let chapter = chapter.display().to_string();
        assert!(
            chapter == "SUMMARY.md" || chapters.contains(&chapter),
            "docs/SUMMARY.md does not name {chapter}"
        );
    }
}

#[test]
fn a_heading_has_the_anchor_that_readers_make() {
    assert_eq!(anchor(" Ask for it, or take it away"), "ask-for-it-or-take-it-away");
    assert_eq!(anchor("`lockkeeper lock`: a command"), "lockkeeper-lock-a-command");
    let text = "# A\n## B\n```\n# no heading\n```\n## B\n";
    assert_eq!(anchors(text), BTreeSet::from(["a", "b", "b-1"].map(str::to_owned)));
    assert_eq!(targets("See [this](a.md#b) and `[no](link)`.\n```\n[no](c)\n```"), ["a.md#b"]);
}
