//! The house rules that a compiler does not know, as tests.
//!
//! Import arrows between modules, sizes of files and lines, ASCII, markers of unfinished work.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file, comments and inline tests included. A larger file has a second noun.
const FILE_LINES_MAX: usize = 800;
/// Columns of a line: rustfmt keeps code within 100, prose and literals get some slack.
const LINE_COLUMNS_MAX: usize = 120;

/// A name, and the names of what it may import.
type Arrows = &'static [(&'static str, &'static [&'static str])];

/// Who may import whom (docs/ARCHITECTURE.md). `main` is the crate's front door.
const ARROWS: Arrows = &[
    ("proto", &[]),
    ("config", &[]),
    ("sasl", &[]),
    ("zookeeper", &["proto"]),
    ("tree", &["proto", "sasl", "zookeeper"]),
    ("learner", &["proto", "zookeeper", "sasl", "tree"]),
    ("locks", &[]),
    ("replica", &["proto", "tree", "locks", "config", "sasl", "zookeeper", "learner"]),
    ("supervision", &[]),
    ("tls", &[]),
    ("peer_auth", &[]),
    ("transfer", &["proto", "replica", "tree", "zookeeper"]),
    ("storage", &["replica", "supervision"]),
    ("backup", &["replica", "tree"]),
    ("admin", &["replica", "proto", "locks", "config", "supervision", "tls", "backup"]),
    (
        "server",
        &[
            "proto",
            "tree",
            "locks",
            "replica",
            "storage",
            "admin",
            "config",
            "sasl",
            "supervision",
            "tls",
            "peer_auth",
            "backup",
            "transfer",
        ],
    ),
    ("recipes", &["locks"]),
    ("bench", &["tls"]),
    ("mutants", &[]),
    (
        "cli",
        &[
            "server",
            "admin",
            "mutants",
            "config",
            "proto",
            "tree",
            "locks",
            "recipes",
            "bench",
            "sasl",
            "supervision",
            "tls",
            "transfer",
            "peer_auth",
            "backup",
        ],
    ),
    ("main", &["server", "config", "cli", "admin"]),
    (
        "lib",
        &[
            "server",
            "config",
            "cli",
            "admin",
            "storage",
            "replica",
            "locks",
            "sasl",
            "tree",
            "proto",
            "learner",
            "zookeeper",
            "mutants",
            "peer_auth",
            "supervision",
        ],
    ),
    (
        "internals",
        &[
            "server",
            "config",
            "cli",
            "admin",
            "storage",
            "replica",
            "locks",
            "sasl",
            "tree",
            "proto",
            "bench",
            "zookeeper",
        ],
    ),
];

/// Within a module: which of its rooms (and of the files beside them that are named here) may import which others.
/// Files that are not named may import all of them, and all may import those.
const ROOMS: &[(&str, Arrows)] = &[
    (
        "server",
        &[
            ("cpu_policy", &[]),
            ("io_threads", &["cpu_policy"]),
            ("clients", &["cpu_policy", "io_threads"]),
            ("peer", &["clients", "disk"]),
            ("disk", &["cpu_policy"]),
            ("gssapi", &[]),
            (
                "lifecycle",
                &["cpu_policy", "io_threads", "clients", "peer", "disk", "gssapi", "driver"],
            ),
            ("driver", &["cpu_policy", "clients", "peer", "disk", "gssapi"]),
        ],
    ),
    (
        "replica",
        &[
            ("messages", &[]),
            ("inspect", &[]),
            ("machine", &[]),
            ("clients", &["inspect", "machine"]),
            ("consensus", &["machine", "messages"]),
            ("ensemble", &["inspect", "machine", "messages"]),
            ("migration", &["machine"]),
            ("sessions", &["machine", "messages"]),
            // What joins the owners. No room knows of it, or of the replica that they are parts of.
            (
                "steps",
                &[
                    "clients",
                    "consensus",
                    "ensemble",
                    "inspect",
                    "machine",
                    "messages",
                    "migration",
                    "sessions",
                    "Replica",
                ],
            ),
            ("Replica", &[]),
        ],
    ),
    (
        "storage",
        &[
            ("fs", &[]),
            ("log", &["fs"]),
            ("copy", &[]),
            ("image", &["fs", "log", "copy"]),
            ("checkpoint", &["copy", "image"]),
            ("dir", &["fs", "log", "copy", "image", "checkpoint"]),
        ],
    ),
];

/// Crates that belong to one place only.
const CRATES: &[(&str, &[&str])] = &[
    ("tokio", &["server", "admin", "supervision", "cli", "main", "recipes"]),
    ("sled", &["storage"]),
    ("raft", &["replica"]),
    ("nom", &["proto"]),
    ("hyper", &["admin"]),
    ("libgssapi", &["server"]),
    ("rustls", &["tls", "server", "cli", "bench"]),
    ("ring", &["peer_auth", "tls"]),
    ("clap", &["cli", "main", "mutants"]),
    ("mio", &["bench"]),
    ("zookeeper_client", &["recipes", "cli"]),
];

/// Modules whose threads and tasks are supervised: a panic in one of them ends its server.
const SUPERVISED: [&str; 4] = ["server", "admin", "storage", "replica"];
/// Files of those that are parts of tests.
const TEST_FILES: [&str; 3] =
    ["src/server/peer/image_tests.rs", "src/admin/served.rs", "src/admin/fake.rs"];
/// What starts a thread or task that nobody supervises.
const UNSUPERVISED: [&str; 6] =
    ["JoinSet", "thread::Builder", "thread::scope", "spawn_local", "tokio::spawn", "task::spawn"];

/// Words that mark unfinished work. This file alone may name them.
const UNFINISHED: [&str; 4] = ["todo!(", "unimplemented!(", "FIXME", "#[ignore"];

/// Words of this project's own that stood for a term of the field: docs/GLOSSARY.md has the terms.
const BANNED: [&str; 4] = ["turnstile", "courtesy", "leisure", "parcel"];
/// Words in whose place a sentence of the product or of a document names who acts.
const WITHOUT_ACTOR: [&str; 2] = ["whoever", "nobody"];

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source below `folder`, relative to the root, sorted.
pub(super) fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    found.sort();
    found
}

fn all_sources() -> Vec<(String, String)> {
    ["src", "tests", "examples", "benches", "fuzz", "jepsen"]
        .into_iter()
        .flat_map(sources)
        .collect()
}

/// The path below the root of the modules: `src/core`, whose modules are the lowest ones, or `src`.
fn below_root(name: &str) -> &Path {
    let path = Path::new(name);
    path.strip_prefix("src/core").or(path.strip_prefix("src")).expect("a file of src")
}

/// The module of `src/<module>/...`, `src/<module>.rs` or the same below `src/core`.
fn module_of(name: &str) -> &str {
    let below = below_root(name);
    let first = below.components().next().expect("a name").as_os_str();
    first.to_str().expect("UTF-8").trim_end_matches(".rs")
}

pub(super) fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Modules that are crates of their own, by the names that others import them under.
const OWN_CRATES: [(&str, &str); 3] = [
    ("lockkeeper_peer_auth", "peer_auth"),
    ("lockkeeper_storage", "storage"),
    ("lockkeeper_supervision", "supervision"),
];

/// The project's own modules named by `crate::x`, `lockkeeper_core::x` or their crates in one line, lists included.
fn own_modules(line: &str) -> Vec<String> {
    let crates = OWN_CRATES.iter().filter(|(name, _)| line.contains(name));
    let mut named: Vec<String> = crates.map(|(_, module)| (*module).to_owned()).collect();
    for (at, root) in line.match_indices("crate::").chain(line.match_indices("lockkeeper_core::")) {
        let rest = &line[at + root.len()..];
        if let Some(list) = rest.strip_prefix('{') {
            named.extend(list.split(['}', ';']).next().unwrap_or_default().split(',').map(word));
        } else {
            named.push(word(rest));
        }
    }
    named
}

fn word(text: &str) -> String {
    text.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

fn forbidden_arrows(name: &str, text: &str) -> Vec<String> {
    let module = module_of(name);
    let Some((_, may)) = ARROWS.iter().find(|(known, _)| *known == module) else {
        return vec![format!("{name}: the module {module} is not in the table of arrows")];
    };
    let modules: Vec<&str> = ARROWS.iter().map(|(known, _)| *known).collect();
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = code(line);
        for named in own_modules(line) {
            let known = modules.contains(&named.as_str()) && named != module;
            if known && !may.contains(&named.as_str()) {
                wrong.push(format!("{name}:{}: {module} may not import {named}", number + 1));
            }
        }
        for (krate, places) in CRATES {
            let used = line.contains(&format!("{krate}::")) && !places.contains(&module);
            let whole = line.match_indices(&format!("{krate}::")).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':')
            });
            if used && whole {
                wrong.push(format!("{name}:{}: {krate} does not belong into {module}", number + 1));
            }
        }
    }
    wrong
}

/// The paths below `crate` that a source file names, resolved: `super::x::Y` in `src/server/peer/z.rs` is
/// `server::peer::x::Y`. With their lines.
fn own_paths(name: &str, text: &str) -> Vec<(usize, Vec<String>)> {
    let below = below_root(name).with_extension("");
    let module = module_of(name);
    // The root of a crate of its own is its module.
    let is_crate = OWN_CRATES.iter().any(|(_, known)| *known == module);
    let mut here: Vec<String> =
        below.iter().map(|part| part.to_str().expect("UTF-8").to_owned()).collect();
    here.retain(|part| part != "mod" && part != "lib");
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // A test within the file is one module further down.
        let inner = usize::from(line.starts_with("    use "));
        let line = code(line);
        for (at, _) in line.match_indices("::") {
            let start = line[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_');
            let first = &line[start.map_or(0, |start| start + 1)..at];
            if !["crate", "super"].contains(&first) {
                continue;
            }
            let mut parts: Vec<&str> = line[at - first.len()..].split("::").collect();
            let ups = parts.iter().take_while(|part| **part == "super").count();
            parts.drain(..ups + usize::from(first == "crate"));
            let kept = match first {
                "super" => (here.len() + inner).saturating_sub(ups).min(here.len()),
                _ => 0,
            };
            let rest = parts.iter().map(|part| word(part)).filter(|part| !part.is_empty());
            let root = (is_crate && first == "crate").then(|| module.to_owned());
            let before = root.into_iter().chain(here[..kept].iter().cloned());
            found.push((number + 1, before.chain(rest).collect()));
        }
    }
    found
}

fn forbidden_doors(name: &str, text: &str) -> Vec<String> {
    let module = module_of(name);
    let Some((_, rooms)) = ROOMS.iter().find(|(known, _)| *known == module) else {
        return Vec::new();
    };
    if name.ends_with("tests.rs") {
        return Vec::new();
    }
    let inside = below_root(name).strip_prefix(module).unwrap_or(Path::new(""));
    let inside = inside.to_str().expect("UTF-8");
    let own = inside.split(['/', '.']).next().unwrap_or_default();
    let Some((_, may)) = rooms.iter().find(|(room, _)| *room == own) else { return Vec::new() };
    let mut wrong = Vec::new();
    for (line, path) in own_paths(name, text) {
        let [first, second, ..] = &path[..] else { continue };
        let is_room = rooms.iter().any(|(room, _)| room == second);
        if first == module && is_room && second != own && !may.contains(&second.as_str()) {
            wrong.push(format!("{name}:{line}: {module}/{own} may not import {module}/{second}"));
        }
    }
    wrong
}

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
fn imports_follow_the_table_of_arrows() {
    let wrong: Vec<String> =
        sources("src").iter().flat_map(|(name, text)| forbidden_arrows(name, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_planted_import_is_caught() {
    for (name, text) in [
        ("src/core/proto/x.rs", "use crate::tree::Tree;"),
        ("src/core/tree/x.rs", "use crate::{proto::Stat, replica::Input};"),
        ("src/core/replica/x.rs", "    let x = tokio::spawn(y);"),
        ("src/core/replica/x.rs", "use lockkeeper_storage::Log;"),
        ("src/storage/x.rs", "use lockkeeper_core::proto::Stat;"),
        ("src/admin/x.rs", "use crate::storage::Log;"),
        ("src/recipes/x.rs", "use crate::proto::Stat;"),
        ("src/server/x.rs", "use zookeeper_client::Client;"),
        ("src/bench/x.rs", "use crate::proto::jute;"),
        ("src/novel/x.rs", "fn f() {}"),
    ] {
        assert_eq!(forbidden_arrows(name, text).len(), 1, "{name}: {text}");
    }
    assert_eq!(
        forbidden_arrows("src/core/tree/x.rs", "use crate::proto::Stat; // tokio::x"),
        [""; 0]
    );
}

/// Threads and tasks that are not spawned by `supervision`, which wants to know what they are.
fn bare_spawns(name: &str, text: &str) -> Vec<String> {
    if !SUPERVISED.contains(&module_of(name)) || TEST_FILES.contains(&name) {
        return Vec::new();
    }
    let text: String = text.lines().map(|line| format!("{}\n", code(line))).collect();
    // Tests are the last thing in a file.
    let tests = ["\n#[cfg(test)]\nmod tests", "\n#[cfg(test)]\npub(super) mod tests"];
    let end = tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    let text = &text[..end];
    let at = |position: usize| format!("{name}:{}", text[..position].lines().count());
    let mut wrong = Vec::new();
    for (position, word) in text.match_indices("spawn") {
        let rest = &text[position + word.len()..];
        let Some(first) = rest.trim_start_matches("_blocking").strip_prefix('(') else { continue };
        let is_definition = text[..position].ends_with("fn ");
        let says_what = ["Task::", "supervision::Task::", "task,"];
        let says_what = says_what.iter().any(|task| first.trim_start().starts_with(task));
        if !is_definition && !says_what {
            wrong.push(format!("{}: spawned without supervision", at(position)));
        }
    }
    for word in UNSUPERVISED {
        let found = text.match_indices(word);
        wrong.extend(
            found.map(|(position, _)| format!("{}: {word} is for supervision", at(position))),
        );
    }
    wrong
}

#[test]
fn every_thread_and_task_of_a_server_is_supervised() {
    let wrong: Vec<String> =
        sources("src").iter().flat_map(|(name, text)| bare_spawns(name, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_planted_bare_spawn_is_caught() {
    for text in [
        "    tokio::spawn(work());",
        "    let task = tokio::task::spawn_blocking(work);",
        "use tokio::task::JoinSet;",
        "    runtime.spawn(async move { work() });",
        "    thread.spawn(\n        work,\n    )",
        "    std::thread::Builder::new()",
        "    spawn_blocking(move || work())",
    ] {
        assert!(!bare_spawns("src/server/x.rs", text).is_empty(), "{text}");
        assert!(!bare_spawns("src/admin/x.rs", text).is_empty(), "{text}");
        let as_test = format!("\n#[cfg(test)]\nmod tests {{\n{text}\n}}");
        for (name, text) in
            [("src/supervision/tasks.rs", text), ("src/server/x.rs", as_test.as_str())]
        {
            assert_eq!(bare_spawns(name, text), [""; 0], "{name}: {text}");
        }
    }
    for text in [
        "    supervision::spawn(Task::Driver, drive())",
        "    tasks.spawn(\n        Task::Clients,\n        accept())",
        "    pub fn spawn(task: Task, future: F) -> Self {\n        supervision::spawn(task, future)",
        "use crate::supervision::{self, Task, spawn_blocking}; // not tokio::spawn(x)",
    ] {
        assert_eq!(bare_spawns("src/server/x.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn rooms_keep_to_their_doors() {
    let wrong: Vec<String> =
        sources("src").iter().flat_map(|(name, text)| forbidden_doors(name, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_planted_way_around_a_door_is_caught() {
    for (name, line) in [
        ("src/server/clients/x.rs", "use crate::server::peer::Links;"),
        ("src/server/clients/x.rs", "use super::super::peer::Links;"),
        ("src/server/disk/x.rs", "    let x = crate::server::driver::Driver;"),
        ("src/server/peer/mod.rs", "use super::lifecycle::Builder;"),
        ("src/server/driver.rs", "use super::lifecycle::Builder;"),
        ("src/core/replica/consensus/x.rs", "use crate::replica::Replica;"),
        ("src/core/replica/sessions/x.rs", "use crate::replica::consensus::Consensus;"),
        ("src/core/replica/clients/x.rs", "use super::super::steps::X;"),
    ] {
        assert_eq!(forbidden_doors(name, line).len(), 1, "{name}: {line}");
    }
    for (name, line) in [
        (
            "src/server/clients/x.rs",
            "use super::listener::Port; use crate::server::limits::Limits;",
        ),
        ("src/server/lifecycle/x.rs", "use crate::server::driver::Driver;"),
        ("src/server/clients/x.rs", "    use super::super::listener::Port;"),
        ("src/server/shared.rs", "use super::clients::Line;"),
        (
            "src/core/replica/steps/x.rs",
            "use crate::replica::Replica; use crate::replica::clients::X;",
        ),
        ("src/core/replica/cluster.rs", "use crate::replica::Replica;"),
    ] {
        assert_eq!(forbidden_doors(name, line), [""; 0], "{name}: {line}");
    }
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

/// What stands between `before` and the next quote, each time.
fn quoted_after(text: &str, before: &str) -> Vec<String> {
    let behind = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    behind.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_deliberate_bug_is_hunted_and_recorded() {
    let sites = sources("src").into_iter().filter(|(name, _)| name != "src/core/mutants.rs");
    let mut planted: Vec<String> =
        sites.flat_map(|(_, text)| quoted_after(&text, "mutant!(\"")).collect();
    planted.sort();
    planted.dedup();
    let catalogue = fs::read_to_string(root().join("tests/simulation/catalogue.rs"));
    let catalogue = catalogue.expect("the catalogue");
    let mut hunted = quoted_after(&catalogue, "    mutant(\"");
    let of_recipes = fs::read_to_string(root().join("tests/locks/recipes/mutants.rs"));
    hunted.extend(quoted_after(&of_recipes.expect("the recipes' catalogue"), "name: \""));
    let of_sasl = fs::read_to_string(root().join("tests/simulation/runs/authentication.rs"));
    hunted.extend(quoted_after(&of_sasl.expect("the catalogue of SASL"), "name: \""));
    // Those of models: the bugs stand in lists behind the models.
    let models = fs::read_to_string(root().join("tests/hand_over/models.rs")).expect("the models");
    let lists = models.split("&[\"").skip(1).filter_map(|rest| rest.split(']').next());
    hunted.extend(
        lists
            .flat_map(|list| list.split('"').step_by(2).map(str::to_owned))
            .filter(|n| !n.trim().is_empty()),
    );
    // The exploration hunts some alone.
    let explored = fs::read_to_string(root().join("tests/simulation/runs/exploration_raft.rs"));
    hunted.extend(quoted_after(&explored.expect("the scopes with Raft"), "        (\""));
    // What gets past the secret between servers.
    let attacks = fs::read_to_string(root().join("tests/simulation/attacks.rs"));
    let attacks = attacks.expect("the attacks on the secret");
    let names = quoted_after(&attacks, "    \"peer-auth-").into_iter();
    hunted.extend(names.map(|name| format!("peer-auth-{name}")));
    hunted.sort();
    // Two tests may catch one.
    hunted.dedup();
    assert_eq!(planted, hunted);
    let record = fs::read_to_string(root().join("jepsen/TRACK_RECORD.md")).expect("the record");
    let missing: Vec<_> =
        hunted.iter().filter(|name| !record.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in jepsen/TRACK_RECORD.md: {missing:?}");
}

/// How many scenarios must have a test.
const SCENARIOS_WITH_TESTS_MIN: usize = 58;

#[test]
fn every_scenario_names_tests_and_bugs_that_exist() {
    let text = fs::read_to_string(root().join("jepsen/SCENARIOS.md")).expect("the scenarios");
    let record = fs::read_to_string(root().join("jepsen/TRACK_RECORD.md")).expect("the record");
    let code: String = all_sources().into_iter().map(|(_, text)| text).collect();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #"));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split('|').map(str::trim).collect()).collect();
    let mut with_tests = 0;
    for (number, row) in (1..).zip(&rows) {
        assert_eq!(row[1], format!("{number}"), "the table is in order and complete");
        let names: Vec<&str> = row[4].split('`').skip(1).step_by(2).collect();
        for name in &names {
            let is_there = match name.contains('-') {
                true => record.contains(&format!("| `{name}` |")),
                false => code.contains(&format!("fn {name}() {{")),
            };
            assert!(is_there, "scenario {number}: there is no {name}");
        }
        with_tests += usize::from(!names.is_empty());
    }
    assert!(with_tests >= SCENARIOS_WITH_TESTS_MIN, "only {with_tests} have a test");
}

#[test]
fn no_release_has_a_deliberate_bug() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let named = manifest.lines().filter(|line| code_of_toml(line).contains("mutants"));
    let only = ["mutants = [\"lockkeeper-core/mutants\"]"];
    assert_eq!(named.collect::<Vec<_>>(), only, "no other feature may bring it along");
    let core = fs::read_to_string(root().join("src/core/Cargo.toml")).expect("the core's");
    let named = core.lines().filter(|line| code_of_toml(line).contains("mutants"));
    assert_eq!(named.collect::<Vec<_>>(), ["mutants = []"], "no other feature may bring it along");
    for (name, text) in sources("src") {
        if name == "src/core/mutants.rs" {
            assert!(text.contains("not(debug_assertions)))]\ncompile_error!"), "{name}");
        } else {
            let asks = text.contains("feature = \"mutants\"");
            assert!(!asks || name == "src/cli/plant.rs", "{name} asks for the feature itself");
        }
    }
}

fn code_of_toml(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}
