//! COMPARISON: whether this server's state is that of the others.
//!
//! *Owns* the digests of this server's own states, the last reports of each other server, the verdict on them, and the
//! search for the first entry whose outcome differs. *Invariants*: every server hears every other one's report on the
//! link between the two and judges by itself, so that there is no verdict to be forged or replayed; it compares with
//! what it has reported itself. *Never* ends a server: the replica does.

mod record;
mod search;
mod verdict;

use std::collections::{BTreeMap, VecDeque};

pub use record::{DEFINITION, DigestReport, Value, Window};

pub(in crate::replica) use search::{Divergence, Search};

use record::Record;
use verdict::{Values, Verdict, judge};

/// Reports that are kept of each server, and windows that wait until their entries are applied.
const REPORTS_MAX: usize = 8;
/// Least time between the begin of two passes of the scrub, in microseconds.
const SCRUB_INTERVAL_US: u64 = 10_000_000;
/// Time between two windows of a leader, in microseconds.
const INTERVAL_US: u64 = 250_000;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Comparison {
    record: Record,
    /// Windows of the leader whose entries are yet to be applied here.
    asked: VecDeque<Window>,
    own: VecDeque<DigestReport>,
    others: BTreeMap<u64, VecDeque<DigestReport>>,
    /// Last entry of the last window that this leader has named, and when.
    named: Option<(u64, u64)>,
    /// Other servers whose last report differs from that of a majority, and the entry.
    differing: BTreeMap<u64, u64>,
    /// Last entry of a window in which this server differed from a majority, where that ends no service.
    differs: Option<u64>,
    /// Windows in which this server agreed with a majority, since the start.
    agreed: u64,
    /// The last window is among them.
    is_counted: bool,
    /// Passes of the scrub that are complete, since the start.
    scrubs: u64,
    /// When the next pass may begin.
    scrubs_from_us: u64,
    /// This server has diverged.
    search: Option<Search>,
}

impl Comparison {
    /// The state is that after this entry, read from a disk or received.
    pub(in crate::replica) fn begin(&mut self, at: (u64, u64), zxid: i64, digest: u128) {
        self.record.begin(at, zxid, digest);
        self.asked.clear();
    }

    /// An entry was applied.
    pub(in crate::replica) fn applied(&mut self, at: (u64, u64), zxid: i64, digest: u128) {
        self.record.applied(at, zxid, digest);
    }

    /// Whether the scrub goes on now.
    pub(in crate::replica) fn scrubs(&self, now_us: u64) -> bool {
        now_us >= self.scrubs_from_us
    }

    /// A pass of the scrub is complete.
    pub(in crate::replica) fn scrubbed(&mut self, now_us: u64) {
        self.scrubs += 1;
        self.scrubs_from_us = now_us + SCRUB_INTERVAL_US;
    }

    /// Passes of the scrub that are complete, since the start.
    pub(in crate::replica) fn scrubs_done(&self) -> u64 {
        self.scrubs
    }

    /// This server leads anew: its first window begins where that of the leader before has ended.
    pub(in crate::replica) fn begin_to_lead(&mut self) {
        self.named = self.own.back().map(|report| (report.window.to, 0));
    }

    /// The next window that this leader names: from the last one to the entry that it has applied. `None`: it is not
    /// time yet.
    pub(in crate::replica) fn next_window(&mut self, applied: u64, now_us: u64) -> Option<Window> {
        let is_due = self.named.is_none_or(|(_, at_us)| now_us >= at_us + INTERVAL_US);
        if !is_due || self.search.is_some() {
            return None;
        }
        let from = self.named.map_or(applied, |(to, _)| to.min(applied));
        self.named = Some((applied, now_us));
        Some(Window { from, to: applied })
    }

    /// The leader has named a window.
    pub(in crate::replica) fn asked(&mut self, window: Window) {
        push(&mut self.asked, window);
    }

    /// Reports of the windows whose entries are applied now.
    pub(in crate::replica) fn due(&mut self, applied: u64) -> Vec<DigestReport> {
        if self.asked.is_empty() || self.search.is_some() {
            return Vec::new();
        }
        let (due, later) =
            std::mem::take(&mut self.asked).into_iter().partition(|w| w.to <= applied);
        self.asked = later;
        let due: VecDeque<Window> = due;
        let reports: Vec<_> = due.into_iter().filter_map(|w| self.record.report(w)).collect();
        for report in &reports {
            push(&mut self.own, *report);
            self.is_counted = false;
        }
        reports
    }

    /// Report of a window that a server which has diverged asks for.
    pub(in crate::replica) fn report(&self, window: Window) -> Option<DigestReport> {
        self.record.report(window).filter(|_| self.search.is_none())
    }

    /// Another server reports. Its definition of the digest is this one's.
    pub(in crate::replica) fn take(&mut self, from: u64, report: DigestReport) {
        push(self.others.entry(from).or_default(), report);
    }

    /// Only these servers are members: others have no report.
    pub(in crate::replica) fn retain(&mut self, is_member: impl Fn(u64) -> bool) {
        self.others.retain(|id, _| is_member(*id));
        self.differing.retain(|id, _| is_member(*id));
    }

    /// Judges the reports of a window: evidence, if a majority has another state than this server. `voters`: raft ids
    /// of both sets. `own`: this server's.
    pub(in crate::replica) fn judge(
        &mut self,
        voters: &[Vec<u64>],
        own: u64,
        about: DigestReport,
    ) -> Option<Divergence> {
        let is_it =
            |report: &&DigestReport| (report.window, report.term) == (about.window, about.term);
        // Without its own report, a server does not know whether the others have the same log.
        let own_report = self.own.iter().rev().find(is_it).copied()?;
        let mut values: Values = BTreeMap::from([(own, own_report.value)]);
        for (id, reports) in &self.others {
            values.extend(reports.iter().rev().find(is_it).map(|report| (*id, report.value)));
        }
        let agreed = match judge(voters, &values) {
            Verdict::Unknown => return None,
            Verdict::Agreed(value) if value == own_report.value => {
                self.agreed += u64::from(!std::mem::replace(&mut self.is_counted, true));
                self.differs = None;
                self.note_others(own, value, &values, about.window.to);
                return None;
            }
            Verdict::Agreed(value) => Some(value),
            Verdict::Impossible => None,
        };
        Some(Divergence { agreed, report: own_report, values })
    }

    fn note_others(&mut self, own: u64, agreed: Value, values: &Values, to: u64) {
        for (id, value) in values.iter().filter(|(id, _)| **id != own) {
            if *value == agreed {
                self.differing.remove(id);
            } else {
                self.differing.entry(*id).or_insert(to);
            }
        }
    }

    /// This server differs from a majority, and goes on.
    pub(in crate::replica) fn differs_here(&mut self, to: u64) {
        self.differs.get_or_insert(to);
    }

    /// Raft ids of the servers whose state is known to differ from that of a majority, this one included.
    pub(in crate::replica) fn differing(&self, own: u64) -> Vec<u64> {
        self.differing.keys().copied().chain(self.differs.map(|_| own)).collect()
    }

    /// Windows in which this server agreed with a majority, since the start.
    pub(in crate::replica) fn agreed(&self) -> u64 {
        self.agreed
    }

    /// This server has diverged: the first entry that differs is looked for.
    pub(in crate::replica) fn diverged(&mut self, divergence: Divergence, now_us: u64) {
        self.search = Some(Search::new(divergence, self.record.first(), now_us));
    }

    /// The search, once this server has diverged.
    pub(in crate::replica) fn search(&self) -> Option<&Search> {
        self.search.as_ref()
    }

    /// Goes on with the search: gives the next question, and the server that is asked. `None`: it waits, or is over.
    pub(in crate::replica) fn ask(&mut self, now_us: u64) -> Option<(u64, Window)> {
        self.search.as_mut()?.ask(now_us)
    }

    /// A report that may answer a question of the search.
    pub(in crate::replica) fn answered(&mut self, from: u64, report: &DigestReport) {
        let own = self.record.report(report.window);
        if let (Some(search), Some(own)) = (&mut self.search, own) {
            search.answered(from, report, &own);
        }
    }

    /// zxid of the last transaction up to an entry.
    pub(in crate::replica) fn zxid(&self, index: u64) -> Option<i64> {
        self.record.zxid(index)
    }
}

fn push<T>(kept: &mut VecDeque<T>, next: T) {
    if kept.len() == REPORTS_MAX {
        kept.pop_front();
    }
    kept.push_back(next);
}

#[cfg(test)]
mod cluster_tests;

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Value = Value { digest: 1, sum: 0 };
    const WRONG: Value = Value { digest: 2, sum: 0 };
    const WINDOW: Window = Window { from: 4, to: 4 };
    const VOTERS: [u64; 3] = [1, 2, 3];

    fn report(value: Value) -> DigestReport {
        DigestReport { definition: DEFINITION, window: WINDOW, term: 1, value }
    }

    /// A server with this state that has reported it.
    fn server(value: Value) -> Comparison {
        let mut comparison = Comparison::default();
        comparison.begin((4, 1), 9, value.digest);
        comparison.asked(WINDOW);
        assert_eq!(comparison.due(4), [report(value)]);
        comparison
    }

    fn judged(comparison: &mut Comparison, own: u64) -> bool {
        comparison.judge(&[VOTERS.to_vec()], own, report(RIGHT)).is_some()
    }

    #[test]
    fn an_observer_is_judged_by_the_voters_and_judges_none() {
        let mut observer = server(WRONG);
        observer.take(1, report(RIGHT));
        assert!(!judged(&mut observer, 9));
        observer.take(2, report(RIGHT));
        assert!(judged(&mut observer, 9));
        let mut voter = server(RIGHT);
        for other_observer in [9, 10, 11] {
            voter.take(other_observer, report(WRONG));
        }
        assert!(!judged(&mut voter, 1));
        voter.take(2, report(RIGHT));
        assert!(!judged(&mut voter, 1));
        assert_eq!(voter.differing(1), [9, 10, 11], "an operator is shown them");
    }

    #[test]
    fn reports_of_other_windows_are_no_evidence_and_are_bounded() {
        let mut victim = server(WRONG);
        for to in 5..5 + 3 * REPORTS_MAX as u64 {
            let window = Window { from: 4, to };
            for other in [2, 3] {
                victim.take(other, DigestReport { window, ..report(RIGHT) });
                assert!(!judged(&mut victim, 1));
            }
        }
        assert!(victim.others.values().all(|kept| kept.len() == REPORTS_MAX));
        // An entry of a later leader at the same place is another entry.
        for other in [2, 3] {
            victim.take(other, DigestReport { term: 2, ..report(RIGHT) });
        }
        assert!(!judged(&mut victim, 1));
    }

    #[test]
    fn a_server_that_is_no_member_any_more_counts_no_longer() {
        let mut victim = server(WRONG);
        victim.take(2, report(RIGHT));
        victim.take(3, report(RIGHT));
        victim.retain(|id| id != 3);
        assert!(!judged(&mut victim, 1));
    }
}
