//! The directory of a run: what was planned, what happened, what is to be said of it.
//!
//! *Owns* the names of the files in it. *Invariant*: history, servers' accounts and settings there are
//! all that is needed to judge the run again.

use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_check::audit::{AuditLog, read_audit};
use lockkeeper_check::history::History;
use lockkeeper_check::json::{read_history, write_history};
use serde_json::Value;

/// Settings and plan.
pub const TEST: &str = "test.json";
/// Verdicts and counts.
pub const RESULTS: &str = "results.json";
/// What clients and faults did.
pub const HISTORY: &str = "history.jsonl";
/// For people.
pub const REPORT: &str = "report.html";
/// The history for Jepsen's own tools.
pub const EDN: &str = "history.edn";
/// Without a server's name and ending.
const AUDIT: &str = "audit-";
const JSON_LINES: &str = ".jsonl";

/// A run's directory.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Makes a new directory, whose name no other has, and points `latest` at it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(below: &Path, name: &str) -> Result<Self, String> {
        fs::create_dir_all(below).map_err(|error| format!("{}: {error}", below.display()))?;
        let below =
            below.canonicalize().map_err(|error| format!("{}: {error}", below.display()))?;
        let tries = std::iter::once(name.to_owned()).chain((2..).map(|at| format!("{name}-{at}")));
        for name in tries {
            let folder = below.join(&name);
            match fs::create_dir(&folder) {
                Ok(()) => {
                    point_latest_at(&below, &name);
                    return Ok(Self { folder });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", folder.display())),
            }
        }
        unreachable!("the names never end")
    }

    /// The directory of an earlier run.
    ///
    /// # Errors
    /// It is none.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let store = Self { folder: folder.to_owned() };
        match store.folder.join(HISTORY).is_file() {
            true => Ok(store),
            false => Err(format!("{} is no run: it has no {HISTORY}", folder.display())),
        }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let file = self.folder.join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Writes a file of JSON.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_json(&self, name: &str, value: &Value) -> Result<(), String> {
        self.write(name, &format!("{value:#}\n"))
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let file = self.folder.join(name);
        fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Reads a file of JSON.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read_json(&self, name: &str) -> Result<Value, String> {
        let text = self.read(name)?;
        let at = || self.folder.join(name);
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", at().display()))
    }

    /// Writes the history.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_history(&self, history: &History) -> Result<(), String> {
        self.write(HISTORY, &write_history(history))
    }

    /// Reads the history's lines.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn history_lines(&self) -> Result<String, String> {
        self.read(HISTORY)
    }

    /// Reads the history.
    ///
    /// # Errors
    /// It cannot be read, or has a broken line.
    pub fn history(&self) -> Result<History, String> {
        read_history(HISTORY, &self.read(HISTORY)?).map_err(|error| error.to_string())
    }

    /// Writes the account of a server.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_audit(&self, node: &str, text: &str) -> Result<(), String> {
        self.write(&format!("{AUDIT}{node}{JSON_LINES}"), text)
    }

    /// Reads the accounts of all servers, in the order of their names.
    ///
    /// # Errors
    /// One cannot be read, or has a broken line.
    pub fn audit(&self) -> Result<Vec<AuditLog>, String> {
        let entries = fs::read_dir(&self.folder);
        let entries = entries.map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let mut nodes: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some(name.strip_prefix(AUDIT)?.strip_suffix(JSON_LINES)?.to_owned())
            })
            .collect();
        nodes.sort();
        let of_node = |node: &String| {
            let file = format!("{AUDIT}{node}{JSON_LINES}");
            read_audit(&file, node, &self.read(&file)?).map_err(|error| error.to_string())
        };
        nodes.iter().map(of_node).collect()
    }
}

/// For convenience alone: a file system without symbolic links has no `latest`.
fn point_latest_at(below: &Path, name: &str) {
    let latest = below.join("latest");
    let _ = fs::remove_file(&latest);
    let _ = std::os::unix::fs::symlink(name, &latest);
}
