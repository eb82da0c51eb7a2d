//! Looks at the data of a dead server, and at what it said while it lived.
//!
//! *Owns* the comparison of digests: the audit log, which lies outside the data directory, says what
//! the digest of the dead server's tree was at each zxid that anyone was told of. Recovery is run on
//! a copy of the data, step by step, and must come to the same digest at the same zxid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lockkeeper::internals::replica::{Entry, Machine, Mark, RecordDigest, Restore};
use lockkeeper::internals::storage::{self, Options, Place};
use lockkeeper::internals::tree;

/// What servers said of their state by zxid.
#[derive(Debug, Default)]
pub struct Digests {
    known: BTreeMap<i64, u128>,
    /// Transactions that have a line in the audit log.
    told: BTreeSet<i64>,
    /// Bytes of the lines that were read.
    read: usize,
}

impl Digests {
    /// Adds the lines that the audit log has since it was read last. No transaction has two, however often a server was
    /// killed and has applied it again.
    pub fn read(&mut self, audit: &Path) {
        let Ok(text) = std::fs::read_to_string(audit) else {
            // The server was killed before it opened the file.
            return;
        };
        // What is behind the last line was cut off by a kill: the next server removes it.
        let end = text.rfind('\n').map_or(0, |last| last + 1);
        for line in text[self.read..end].lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            let zxid = line["zxid"].as_i64().expect("a zxid");
            let digest = line["digest"].as_str().expect("a digest");
            assert!(self.told.insert(zxid), "the audit log has two lines of zxid {zxid:#x}");
            self.agree(zxid, u128::from_str_radix(digest, 16).expect("hexadecimal"));
        }
        self.read = end;
    }

    /// Every state that servers have had is in the audit log, once a server serves what was found in the data.
    pub fn all_told(&self) {
        let untold = self.known.keys().filter(|zxid| **zxid != 0 && !self.told.contains(zxid));
        assert_eq!(untold.count(), 0, "transactions without a line in the audit log");
    }

    /// Whether anything was said of `zxid`; it must have been the same.
    pub fn agree(&mut self, zxid: i64, digest: u128) -> bool {
        match self.known.insert(zxid, digest) {
            Some(before) => {
                assert_eq!(before, digest, "two digests of the state at zxid {zxid:#x}");
                true
            }
            None => false,
        }
    }
}

/// What was found in the data of a dead server.
#[derive(Debug)]
pub struct Findings {
    /// Whether recovery begins from an image (or the state store) rather than the empty tree.
    pub from_image: bool,
    /// Whether the end of the log was cut off.
    pub is_torn: bool,
    /// States whose digest the dead server had told.
    pub compared: usize,
    /// Whether one of them is exactly that at the highest acknowledged zxid.
    pub compared_highest: bool,
    /// What a server must begin with.
    pub zxid: i64,
    pub digest: u128,
}

/// Recovers from a copy of `data` and compares every state on the way with `digests`. `acknowledged`
/// is the highest zxid that anyone was told; `scratch` is a directory to work in.
pub fn examine(data: &Path, scratch: &Path, digests: &mut Digests, acknowledged: i64) -> Findings {
    let copy = scratch.join("copy");
    copy_directory(data, &copy);
    let mut history = History { machine: fresh(), states: BTreeMap::new() };
    let opened = storage::open(Place::on_disk(&copy, &copy), &Options::standalone(0), &mut history)
        .unwrap_or_else(|error| panic!("it cannot be recovered: {error}"));
    let from_image = opened.report.records > 0;
    let is_torn = opened.report.torn.is_some();
    // Everything in the log of a server on its own is committed when that server starts.
    for entry in &opened.restored.tail {
        history.entry(entry).expect("an entry of our own");
    }
    drop(opened);
    std::fs::remove_dir_all(&copy).expect("our own copy");
    let (zxid, digest) = (history.machine.last_zxid(), history.machine.digest());
    assert!(
        zxid >= acknowledged,
        "the log ends at zxid {zxid:#x}, but {acknowledged:#x} was acknowledged"
    );
    let mut compared = 0;
    let mut compared_beyond = acknowledged == 0;
    let mut compared_highest = false;
    for (&zxid, &digest) in &history.states {
        if digests.agree(zxid, digest) {
            compared += 1;
            compared_highest |= zxid == acknowledged;
            compared_beyond |= zxid >= acknowledged;
        }
    }
    assert!(compared_beyond, "no digest was told of the state at or behind {acknowledged:#x}");
    Findings { from_image, is_torn, compared, compared_highest, zxid, digest }
}

fn fresh() -> Machine {
    Machine::fresh(tree::Options::default())
}

/// A machine that remembers its digest after each step.
struct History {
    machine: Machine,
    states: BTreeMap<i64, u128>,
}

impl History {
    fn remember(&mut self) {
        self.states.insert(self.machine.last_zxid(), self.machine.digest());
    }
}

impl Restore for History {
    fn restart(&mut self) {
        self.machine.restart();
        self.states.clear();
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.machine.record(key, value)
    }

    fn record_digest(&self) -> RecordDigest {
        self.machine.record_digest()
    }

    fn finish(&mut self, mark: &Mark) -> Result<(), String> {
        self.machine.finish(mark)?;
        self.remember();
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        self.machine.entry(entry)?;
        self.remember();
        Ok(())
    }
}

/// Files and directories two levels deep, as a data directory has them.
fn copy_directory(from: &Path, to: &Path) {
    let mut todo = vec![(from.to_path_buf(), to.to_path_buf())];
    while let Some((from, to)) = todo.pop() {
        std::fs::create_dir_all(&to).expect("a new directory");
        // Killed before it made the directory.
        let Ok(entries) = std::fs::read_dir(&from) else { continue };
        for entry in entries.map(|entry| entry.expect("an entry")) {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                todo.push((from, to));
            } else {
                std::fs::copy(&from, &to).expect("a copy");
            }
        }
    }
}
