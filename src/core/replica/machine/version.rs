//! The version of an ensemble: which formats its servers write, and which rules they follow.
//!
//! *Owns* the numbers. *Invariants*: it only rises, by an entry of the log (`TxnOp::Upgrade`), so that every server has
//! it from the same entry on; it is raised when an operator says that the upgrade is finished, never by a new program
//! alone, so that until then every server can go back to the release before; a program that does not know the version
//! stops in front of that entry, and says which release it takes. *Never* is the version of the protocol between two
//! servers: they agree on that when they connect.

use std::fmt;

use crate::tree::Rules;

/// The version of the ensembles of 0.1.0-rc.1, and of data without a version.
pub const FIRST: u8 = 1;

/// The version from which on entries carry the rules that decide them: see [`LegacyRules`].
pub const SECOND: u8 = 2;

/// The last one that this program knows, and the one that new ensembles begin with. It writes the formats of any that
/// it knows.
pub const NEWEST: u8 = SECOND;

/// The release that stands for this program in what is to be read by earlier ones.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Rules that decide the entries which carry none. It is the only place where a setting of one server reaches what is
/// replicated: 0.1.0-rc.1 decided such entries by the file of each server. The entry that ends the first version names
/// the rules of its leader, with which all states were equal then: a replay goes by those, whatever the file is by now.
#[derive(Clone, Copy, Debug)]
pub(super) struct LegacyRules {
    /// Rules of this server's file, or those that the log names.
    rules: Rules,
    /// A transaction was decided by them in this process.
    is_used: bool,
    /// The log has named others.
    is_corrected: bool,
}

impl LegacyRules {
    pub(super) fn new(file: Rules) -> Self {
        Self { rules: file, is_used: false, is_corrected: false }
    }

    /// Rules of an entry without rules, in an ensemble of this version. After the upgrade there is such an entry only
    /// where a leader did not know yet that it was finished: ZooKeeper's defaults then decide it, on every server.
    pub(super) fn at(&mut self, version: u8) -> Rules {
        if version >= SECOND {
            return Rules::DEFAULT;
        }
        self.is_used = true;
        self.rules
    }

    /// The log names the rules that decided what came before.
    ///
    /// # Errors
    /// They are others than those by which this process has decided it.
    pub(super) fn named(&mut self, rules: Rules) -> Result<(), String> {
        if rules == self.rules || !self.is_used {
            return Ok(());
        }
        (self.rules, self.is_corrected) = (rules, true);
        Err("the entries before it were decided by other rules than those of this server's file. A start decides them \
             by the right ones: start the server again"
            .to_owned())
    }

    /// Rules for another replay.
    pub(super) fn anew(self) -> Self {
        Self { is_used: false, is_corrected: false, ..self }
    }

    /// Whether another replay comes to another state.
    pub(super) fn is_corrected(self) -> bool {
        self.is_corrected
    }
}

/// That an ensemble is at a version that this program does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVersion {
    /// The version of the ensemble.
    pub version: u8,
    /// The last one that is known.
    pub known: u8,
    /// The release that wrote it.
    pub release: String,
}

impl fmt::Display for UnknownVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, known, release } = self;
        write!(
            f,
            "the ensemble has gone on to version {version} with lockkeeper {release}; this program, lockkeeper \
             {RELEASE}, knows up to {known}: start lockkeeper {release} or a later one"
        )
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::proto::Acl;
    use crate::proto::request::{Create, CreateKind, Request};
    use crate::replica::durable::{Drained, Entry, EntryKind, Membership, Restore};
    use crate::replica::machine::state::{Machine, open_entry};
    use crate::replica::machine::txn::{BatchBuilder, EntryTime, Origin, TxnOp, stamp};
    use crate::replica::machine::xid_of;
    use crate::tree::Options;

    fn machine(known: u8) -> Machine {
        Machine::fresh(Options::default()).knowing(known)
    }

    fn upgrade(index: u64, version: u8) -> Entry {
        let mut builder = BatchBuilder::default();
        let op = TxnOp::Upgrade { version, release: "7.8.9".into() };
        builder.push(Origin::default(), 0, 0, &[], &op);
        let mut data = builder.take();
        let time = EntryTime { wall_ms: 1, is_agreed: true, steady_ms: Some(1) };
        stamp(&mut data, &time, Rules::DEFAULT, FIRST);
        Entry { term: 1, index, kind: EntryKind::Normal, data: Bytes::from(data) }
    }

    #[test]
    fn the_version_rises_by_an_entry_and_never_falls() {
        let mut machine = machine(SECOND);
        let (at_first, digest) = (machine.version(), machine.digest());
        machine.entry(&upgrade(1, SECOND)).unwrap();
        assert_eq!((at_first, machine.version()), (FIRST, SECOND));
        assert_ne!(machine.digest(), digest, "it is part of the state");
        machine.entry(&upgrade(2, FIRST)).unwrap();
        assert_eq!(machine.version(), SECOND);
    }

    #[test]
    fn who_does_not_know_it_stops_in_front_of_the_entry_and_names_the_release() {
        let mut machine = machine(FIRST);
        let digest = machine.digest();
        let refused = open_entry(&mut machine, &upgrade(5, SECOND)).unwrap_err();
        assert!(
            refused.contains("entry 5 of term 1: the ensemble has gone on to version 2"),
            "{refused}"
        );
        assert!(refused.contains("start lockkeeper 7.8.9 or a later one"), "{refused}");
        assert_eq!(machine.digest(), digest, "nothing was changed");
    }

    #[test]
    fn it_is_in_the_records_and_who_does_not_know_it_refuses_them() {
        let mut origin = machine(SECOND);
        let without_one = drained(&mut origin);
        assert!(
            !without_one.iter().any(|(key, _)| key == b"v"),
            "data of the first has no such record"
        );
        origin.entry(&upgrade(1, SECOND)).unwrap();
        origin.mark_all_changed();
        let records = drained(&mut origin);
        let restored = |known| {
            let mut machine = machine(known);
            for (key, value) in &records {
                machine.record(key, value)?;
            }
            Ok::<_, String>(machine)
        };
        let same = restored(SECOND).unwrap();
        assert_eq!((same.version(), same.digest()), (SECOND, origin.digest()));
        let refused = restored(FIRST).unwrap_err();
        assert!(
            refused.contains("version 2 of its ensemble, this program knows up to 1"),
            "{refused}"
        );
    }

    fn entry_of(index: u64, session: i64, cxid: i32, op: &TxnOp) -> Entry {
        let mut builder = BatchBuilder::default();
        builder.push(Origin::default(), session, cxid, &[], op);
        let mut data = builder.take();
        let time = EntryTime { wall_ms: 1, is_agreed: true, steady_ms: Some(1) };
        stamp(&mut data, &time, Rules::DEFAULT, FIRST);
        Entry { term: 1, index, kind: EntryKind::Normal, data: Bytes::from(data) }
    }

    #[test]
    fn a_replay_after_the_upgrade_goes_by_the_rules_that_the_upgrade_names_and_not_by_the_file() {
        let open = TxnOp::OpenSession { timeout_ms: 4000, password: Some([7; 16]) };
        let session = 1 << 56 | 1 << 32 | 1;
        let create = Request::Create(Create {
            kind: CreateKind::Ttl,
            path: "/ttl".into(),
            data: None,
            acl: Some(vec![Acl::open()]),
            flags: 5,
            ttl_ms: 1000,
        });
        let mut body = Vec::new();
        create.encode(&mut body);
        let create = TxnOp::Client { op: create.op() as i32, body: body.into() };
        let finish = TxnOp::Upgrade { version: SECOND, release: "0.2.0".into() };
        let log = [
            entry_of(1, 1 << 56, 0, &open),
            entry_of(2, session, 1, &create),
            entry_of(3, 0, xid_of(Rules::DEFAULT), &finish),
        ];
        let mut before = machine(SECOND);
        log.iter().for_each(|entry| before.entry(entry).unwrap());
        assert_eq!(before.tree().node_count(), 4, "the file of then refuses a time to live");
        let rules = Rules { extended_types: true, ..Rules::DEFAULT };
        let mut after = Machine::fresh(Options { rules, ..Options::default() });
        after.entry(&log[0]).unwrap();
        after.entry(&log[1]).unwrap();
        let refused = after.entry(&log[2]).unwrap_err();
        assert!(refused.contains("start the server again") && after.wants_again(), "{refused}");
        after.restart();
        log.iter().for_each(|entry| after.entry(entry).unwrap());
        assert_eq!((after.digest(), after.wants_again()), (before.digest(), false));
    }

    /// The records of a whole state, sorted; those of the mark agree with them.
    fn drained(machine: &mut Machine) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Drained::Changes(changes) =
            machine.drain_changes(1000, Some((1, 1)), Membership::default())
        else {
            panic!("nothing was drained")
        };
        let mark = changes.mark.expect("all of it at once");
        let mut records: Vec<_> = changes
            .records
            .iter()
            .map(|record| (record.key.to_vec(), record.value.expect("it is there").to_vec()))
            .collect();
        records.sort();
        assert_eq!(mark.records, records.len() as u64);
        let digest = machine.record_digest();
        let sum = records.iter().fold(0_u128, |sum, (key, value)| {
            sum.wrapping_add(digest(key, value).expect("it is a record"))
        });
        assert_eq!(mark.digest, sum);
        records
    }
}
