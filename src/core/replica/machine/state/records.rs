//! The records of a machine: those that changed go to the disk, and a machine is taken back from them and from the
//! entries of the log.
//!
//! *Owns* how a record of each kind is written and read, and the digest of all. *Invariants*: a
//! state counts only when its number of records, its digest and its zxid are those of its mark; entries
//! are applied by the same function as those of a running server. *Never* leaves anything of one source
//! behind when another one is tried.

use smallvec::SmallVec;
use twox_hash::XxHash3_128;

use super::{Machine, Replayed, open_entry, steady_without_one};
use crate::proto::OpCode;
use crate::replica::audit_line::AuditLine;
use crate::replica::bounds::STEADY_MS_MAX;
use crate::replica::durable::{
    Changes, Drained, Entry, EntryKind, Mark, Membership, RecordDigest, Restore,
};
use crate::replica::machine::migration_record::KEY_MIGRATION;
use crate::replica::machine::sessions::{self, KEY_SESSION};
use crate::replica::machine::txn::TxnOp;
use crate::replica::machine::{members, version};
use crate::tree::{self, Tree};

/// Key of the record that holds the last zxid and time.
const KEY_CLOCK: &[u8] = b"c";
/// Key of the record that holds the version of the ensemble, unless that is the first one.
const KEY_VERSION: &[u8] = b"v";

impl Machine {
    /// Digest of everything that is replicated.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.tree
            .digest()
            .wrapping_add(self.sessions.digest())
            .wrapping_add(XxHash3_128::oneshot(&self.clock_record()))
            .wrapping_add(self.version_record().map_or(0, |record| version_digest(&record)))
            .wrapping_add(self.migration_record().map_or(0, |record| migration_digest(&record)))
    }

    /// The last zxid, its stamp, and the steady clock: unless it is as an earlier version has left it,
    /// which knows none.
    pub(super) fn clock_record(&self) -> SmallVec<[u8; 24]> {
        let mut record = SmallVec::new();
        record.extend_from_slice(&self.last_zxid.to_be_bytes());
        record.extend_from_slice(&self.last_time_ms.to_be_bytes());
        if self.steady_ms != steady_without_one(self.last_time_ms) {
            record.extend_from_slice(&self.steady_ms.to_be_bytes());
        }
        record
    }

    /// The version of the ensemble, if it is not the first one: data of that has no such record.
    fn version_record(&self) -> Option<[u8; 1]> {
        (self.version > version::FIRST).then_some([self.version])
    }

    /// Znodes, sessions and other records that changed and were not drained.
    #[must_use]
    pub fn changes_waiting(&self) -> u64 {
        (self.tree.changes_waiting() + self.sessions.changes_waiting()) as u64
    }

    /// While on, a znode or session that comes and goes leaves a record of its going: the disk may
    /// hold it.
    pub(in crate::replica) fn keep_all_tombstones(&mut self, on: bool) {
        self.tree.keep_all_tombstones(on);
        self.sessions.keep_all_tombstones(on);
    }

    /// Every record is to be drained again, into an empty store.
    pub(in crate::replica) fn mark_all_changed(&mut self) {
        self.tree.mark_all_changed();
        self.sessions.mark_all_changed();
        self.full_pass = true;
        self.clock_dirty = true;
    }

    /// Hands out changed records. The last call, when nothing is left, carries the mark, if index and
    /// term of the last applied entry are given.
    pub(in crate::replica) fn drain_changes(
        &mut self,
        records_max: usize,
        applied: Option<(u64, u64)>,
        membership: Membership,
    ) -> Drained {
        if self.is_loading() || self.changes_waiting() == 0 && !self.clock_dirty && !self.full_pass
        {
            return Drained::Nothing;
        }
        if self.changes_waiting() == 0 && !self.full_pass && applied.is_none() {
            return Drained::NotDurable;
        }
        let mut changes =
            Changes { begins_full_pass: std::mem::take(&mut self.full_pass), ..Changes::default() };
        let records = &mut changes.records;
        let mut push = |key: &[u8], value: Option<&[u8]>| {
            records.push(key, value);
        };
        if self.tree.drain_changes(records_max, &mut push) {
            return Drained::Changes(changes);
        }
        self.sessions.drain(records_max, &mut push);
        let Some((index, term)) = applied.filter(|_| self.sessions.changes_waiting() == 0) else {
            // Or nothing would be left, and no mark be given.
            self.clock_dirty = true;
            return Drained::Changes(changes);
        };
        push(KEY_CLOCK, Some(&self.clock_record()));
        if let Some(record) = self.version_record() {
            push(KEY_VERSION, Some(&record));
        }
        // It never goes again: one that is over stays as such.
        if let Some(record) = self.migration_record() {
            push(KEY_MIGRATION, Some(&record));
        }
        self.clock_dirty = false;
        changes.mark = Some(Mark {
            index,
            term,
            zxid: self.last_zxid,
            digest: self.digest(),
            records: self.record_count(),
            membership,
        });
        Drained::Changes(changes)
    }

    fn record_count(&self) -> u64 {
        let own =
            1 + u64::from(self.version_record().is_some()) + u64::from(self.migration.is_some());
        self.tree.node_count() as u64 + self.sessions.len() as u64 + own
    }

    /// Most audit lines that a replay keeps: some 40 MB of them.
    pub const REPLAYED_LINES_MAX: usize = 1 << 17;

    /// From here on, a replay keeps an audit line of every transaction after a zxid: a server that comes back may
    /// be the first one that applies what the others have only agreed on, and the last one of this server's own life
    /// may have been killed before it wrote its line.
    pub fn audit_replay(&mut self, after: i64) {
        self.audits_replay = Some(after);
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
        let legacy = self.legacy.anew();
        let fresh = Self::fresh(self.tree.options().clone());
        *self = Self { audits_replay, known_version, legacy, ..fresh };
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

    fn wants_again(&self) -> bool {
        self.legacy.is_corrected()
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
            if matches!(&txn.op, TxnOp::Client { op, .. } if *op == OpCode::Reconfig as i32) {
                let before = members::parse(self.members_text());
                self.replayed.members.extend(before);
            }
            let applied = self.apply(entry.term, &txn);
            let is_after = self.audits_replay.is_some_and(|after| applied.zxid > after);
            if is_after && self.replayed.audit.len() < Self::REPLAYED_LINES_MAX {
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

/// What the version's record adds to the digest.
fn version_digest(record: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(u64::from(KEY_VERSION[0]), record)
}

/// What the record of a migration adds to the digest.
fn migration_digest(record: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(u64::from(KEY_MIGRATION[0]), record)
}
