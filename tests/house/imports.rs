//! Walls between modules: the imports that each may have, and that every thread and task of a server is supervised.

use std::path::Path;

use super::sources::{code, names_crate, sources};

/// A name, and the names of what it may import.
type Arrows = &'static [(&'static str, &'static [&'static str])];

/// Imports that each module may have (docs/ARCHITECTURE.md). `main` is the crate's front door.
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
            "learner",
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
        "admin",
        &[
            ("text", &[]),
            ("version", &[]),
            ("metrics", &["text", "version"]),
            ("source", &["metrics"]),
            ("http", &["source"]),
            ("console", &["http"]),
            ("backup", &["http", "source"]),
            ("locks", &["http", "source"]),
            ("scrape", &["source", "metrics", "locks"]),
            ("ensemble", &["http", "source", "metrics", "version"]),
            ("commands", &["http", "source", "text", "version", "metrics", "ensemble"]),
            ("words", &["source", "version", "ensemble", "commands"]),
            (
                "routes",
                &[
                    "http", "console", "backup", "locks", "metrics", "scrape", "ensemble",
                    "commands",
                ],
            ),
        ],
    ),
    (
        "server",
        &[
            ("clock", &[]),
            ("cpu_policy", &[]),
            ("error", &[]),
            ("limits", &[]),
            ("stop", &[]),
            ("ports", &["cpu_policy", "error", "limits"]),
            ("transport", &["clock", "limits"]),
            ("mailbox", &["error", "limits", "transport"]),
            ("gssapi", &["mailbox"]),
            ("io_threads", &["cpu_policy", "error", "limits", "mailbox"]),
            ("metrics", &["clock", "mailbox"]),
            ("zookeeper", &["clock", "transport", "mailbox"]),
            (
                "clients",
                &[
                    "clock",
                    "cpu_policy",
                    "error",
                    "limits",
                    "stop",
                    "ports",
                    "transport",
                    "mailbox",
                    "io_threads",
                    "metrics",
                ],
            ),
            ("log_lines", &["metrics"]),
            (
                "disk",
                &["clock", "cpu_policy", "error", "limits", "mailbox", "metrics", "log_lines"],
            ),
            (
                "peer",
                &[
                    "clock",
                    "error",
                    "limits",
                    "stop",
                    "ports",
                    "transport",
                    "mailbox",
                    "metrics",
                    "disk",
                ],
            ),
            ("credentials", &["error", "mailbox", "peer"]),
            (
                "driver",
                &[
                    "clock",
                    "cpu_policy",
                    "error",
                    "limits",
                    "stop",
                    "ports",
                    "mailbox",
                    "gssapi",
                    "metrics",
                    "zookeeper",
                    "log_lines",
                    "disk",
                    "peer",
                ],
            ),
            (
                "operators",
                &[
                    "clock",
                    "cpu_policy",
                    "error",
                    "limits",
                    "transport",
                    "mailbox",
                    "metrics",
                    "clients",
                    "peer",
                    "credentials",
                ],
            ),
            (
                "lifecycle",
                &[
                    "clock",
                    "cpu_policy",
                    "error",
                    "limits",
                    "stop",
                    "ports",
                    "transport",
                    "mailbox",
                    "gssapi",
                    "io_threads",
                    "metrics",
                    "zookeeper",
                    "clients",
                    "log_lines",
                    "disk",
                    "peer",
                    "credentials",
                    "driver",
                    "operators",
                ],
            ),
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
    ("tokio", &["server", "admin", "supervision", "tls", "cli", "main", "recipes"]),
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
    ["src/server/peer/image_tests.rs", "src/admin/http/served.rs", "src/admin/fake.rs"];
/// Names that start a thread or task without supervision.
const UNSUPERVISED: [&str; 6] =
    ["JoinSet", "thread::Builder", "thread::scope", "spawn_local", "tokio::spawn", "task::spawn"];

/// The path below the root of the modules: `src/core`, whose modules are the lowest ones, or `src`.
fn below_root(name: &str) -> &Path {
    let path = Path::new(name);
    path.strip_prefix("src/core").or(path.strip_prefix("src")).expect("a file of src")
}

/// The module of `src/<module>/...`, `src/<module>.rs` or the same below `src/core`.
pub(super) fn module_of(name: &str) -> &str {
    let below = below_root(name);
    let first = below.components().next().expect("a name").as_os_str();
    first.to_str().expect("UTF-8").trim_end_matches(".rs")
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
            if names_crate(line, krate) && !places.contains(&module) {
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
            [("src/supervision/lib.rs", text), ("src/server/x.rs", as_test.as_str())]
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
