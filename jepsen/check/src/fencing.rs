//! Fencing (C8): a store that asks for the token of a lock takes no write that is older than what it
//! has seen, so that none is lost whatever its writers believe.
//!
//! *Owns* the writes to the run's own stores in their order. A write with the token 0 goes to a store
//! that does not ask: it is not judged, but what it loses is counted, for a run whose faults never
//! cost such a store a write was too gentle to show anything.

use std::collections::BTreeMap;

use crate::history::{History, Notice, NoticeKind, StoreWrite};
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// Checks the stores that ask for tokens.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let mut last: BTreeMap<&str, (&Notice, &StoreWrite)> = BTreeMap::new();
    let mut is_checked = false;
    for (notice, write) in writes(history).filter(|(_, write)| write.token != 0) {
        is_checked = true;
        if !write.accepted {
            continue;
        }
        let before = last.insert(&write.store, (notice, write));
        let wrong = |rule: Rule, what: String| {
            let mut around: Vec<String> =
                before.iter().map(|(notice, _)| report::notice(notice)).collect();
            around.push(format!("> {}", report::notice(notice)));
            Verdict::Invalid(Violation { rule, what: format!("{}: {what}", write.store), around })
        };
        let (token, value) = before.map_or((0, 0), |(_, before)| (before.token, before.wrote));
        if write.token < token {
            let what = format!("token {:#x} was accepted after {token:#x}", write.token);
            return wrong(Rule::Fencing, what);
        }
        if write.read != value {
            let what = format!("{} was read, {value} is lost", write.read);
            return wrong(Rule::LostUpdate, what);
        }
    }
    match is_checked {
        true => Verdict::Valid,
        false => Verdict::Moot("no store asked for tokens".to_owned()),
    }
}

/// Writes that stores which ask for no token have lost.
#[must_use]
pub fn lost_without(history: &History) -> u64 {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    let mut lost = 0;
    for (_, write) in writes(history).filter(|(_, write)| write.token == 0 && write.accepted) {
        let before = last.insert(&write.store, write.wrote).unwrap_or_default();
        lost += u64::from(write.read != before);
    }
    lost
}

fn writes(history: &History) -> impl Iterator<Item = (&Notice, &StoreWrite)> {
    history.notices.iter().filter_map(|notice| match &notice.kind {
        NoticeKind::Stored(write) => Some((notice, write)),
        NoticeKind::Watch { .. }
        | NoticeKind::Disconnected
        | NoticeKind::Expired
        | NoticeKind::Holds { .. }
        | NoticeKind::HoldsNoMore { .. } => None,
    })
}
