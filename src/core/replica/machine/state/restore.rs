//! A machine that is taken back from what the disk holds: records, then entries of the log.
//!
//! *Owns* how a record of each kind is read, and what a replay notes besides the state. *Invariants*: a
//! state counts only when its number of records, its digest and its zxid are those of its mark; entries
//! are applied by the same function as those of a running server. *Never* leaves anything of one source
//! behind when another one is tried.

use bytes::Bytes;
use twox_hash::XxHash3_128;

use super::{
    KEY_CLOCK, KEY_VERSION, Machine, migration_digest, open_entry, steady_without_one,
    version_digest,
};
use crate::replica::audit_line::AuditLine;
use crate::replica::bounds::STEADY_MS_MAX;
use crate::replica::durable::{Entry, EntryKind, Mark, RecordDigest, Restore};
use crate::replica::machine::migration::KEY_MIGRATION;
use crate::replica::machine::sessions::{self, KEY_SESSION};
use crate::tree::{self, Tree};

/// What a replay has seen of the log besides transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::replica) struct Replayed {
    /// Index and term of the first entry of each term.
    pub(in crate::replica) runs: Vec<(u64, u64)>,
    /// Changes of membership, as they are in their entries.
    pub(in crate::replica) conf_changes: Vec<Bytes>,
    /// What the audit log says of the transactions, if somebody asked.
    audit: Vec<AuditLine>,
}

impl Machine {
    /// From here on, a replay keeps an audit line of every transaction: a server that comes back may
    /// be the first one that applies what the others have only agreed on.
    pub fn audit_replay(&mut self) {
        self.audits_replay = true;
    }

    /// Takes the audit lines of a replay.
    pub fn take_replayed_audit(&mut self) -> Vec<AuditLine> {
        std::mem::take(&mut self.replayed.audit)
    }

    /// Whether the entries that were replayed change who takes part.
    pub(in crate::replica) fn has_replayed_changes(&self) -> bool {
        !self.replayed.conf_changes.is_empty()
    }

    /// Takes what a replay has seen.
    pub(in crate::replica) fn take_replayed(&mut self) -> Replayed {
        std::mem::take(&mut self.replayed)
    }
}

impl Restore for Machine {
    fn restart(&mut self) {
        let (audits_replay, known_version) = (self.audits_replay, self.known_version);
        let fresh = Self::fresh(self.tree.options().clone());
        *self = Self { audits_replay, known_version, ..fresh };
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        if self.records_loaded == 0 {
            self.tree = Tree::empty(self.tree.options().clone());
        }
        self.records_loaded += 1;
        match key.first() {
            Some(b'/') => self.tree.load_record(key, value).map_err(|bad| bad.to_string()),
            Some(&KEY_SESSION) => self.sessions.load(key, value),
            _ if key == KEY_CLOCK => {
                let mut times = value.chunks(8).map(|time| <[u8; 8]>::try_from(time).ok());
                let mut next = || times.next().flatten().map(i64::from_be_bytes);
                let (zxid, time_ms, steady_ms) = (next(), next(), next());
                let length = if steady_ms.is_some() { 24 } else { 16 };
                let (Some(zxid), Some(time_ms), true) = (zxid, time_ms, value.len() == length)
                else {
                    return Err("a clock of a wrong length".to_owned());
                };
                (self.last_zxid, self.last_time_ms) = (zxid, time_ms);
                self.steady_ms = steady_ms.unwrap_or_else(|| steady_without_one(time_ms));
                if self.steady_ms < 0 || self.steady_ms > STEADY_MS_MAX {
                    return Err("a steady clock that is out of range".to_owned());
                }
                Ok(())
            }
            _ if key == KEY_VERSION => match value {
                [version] if *version > self.known_version => Err(format!(
                    "the state is of version {version} of its ensemble, this program knows up to {}: use the \
                     release of lockkeeper that wrote it",
                    self.known_version
                )),
                [version] => {
                    self.version = *version;
                    Ok(())
                }
                _ => Err("a version of a wrong length".to_owned()),
            },
            _ if key == KEY_MIGRATION => self.load_migration(value),
            _ => Err(unknown(key)),
        }
    }

    fn record_digest(&self) -> RecordDigest {
        |key, value| match key.first() {
            Some(b'/') => tree::record_digest(key, value).map_err(|bad| bad.to_string()),
            Some(&KEY_SESSION) => sessions::record_digest(key, value),
            _ if key == KEY_CLOCK => Ok(XxHash3_128::oneshot(value)),
            _ if key == KEY_VERSION => Ok(version_digest(value)),
            _ if key == KEY_MIGRATION => Ok(migration_digest(value)),
            _ => Err(unknown(key)),
        }
    }

    fn finish(&mut self, mark: &Mark) -> Result<(), String> {
        self.tree.load_finished().map_err(|bad| bad.to_string())?;
        self.clock_dirty = false;
        self.resume_migration();
        if self.record_count() != mark.records {
            let count = self.record_count();
            return Err(format!("{count} records, but the mark says {}", mark.records));
        }
        if self.digest() != mark.digest && !mutant!("damaged-image-served") {
            let digest = self.digest();
            return Err(format!("digest {digest:032x}, but the mark says {:032x}", mark.digest));
        }
        if self.last_zxid != mark.zxid {
            return Err(format!("zxid {:#x}, but the mark says {:#x}", self.last_zxid, mark.zxid));
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        // The disk may hold a later state than the one that this began with.
        self.keep_all_tombstones(true);
        if self.replayed.runs.last().is_none_or(|(_, term)| *term != entry.term) {
            self.replayed.runs.push((entry.index, entry.term));
        }
        if entry.kind == EntryKind::ConfChange {
            self.replayed.conf_changes.push(entry.data.clone());
            return Ok(());
        }
        for txn in open_entry(self, entry)? {
            let applied = self.apply(entry.term, &txn);
            if self.audits_replay {
                let line = self.audit_line((entry.index, entry.term), &txn, &applied);
                self.replayed.audit.push(line);
            }
        }
        Ok(())
    }
}

fn unknown(key: &[u8]) -> String {
    format!("a record with the unknown key {:?}", String::from_utf8_lossy(key))
}
