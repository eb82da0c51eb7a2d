//! Whom this server has heard from, for the leader.
//!
//! *Owns* the sessions that the leader has yet to be told of, and when it last confirmed that it was
//! told. *Invariants*: a session is kept until the leader confirms a report with it, and reported again
//! after every cut, so that no cut loses one, and to the next leader once more if that may have been
//! elected by then; a server that was not confirmed for [`CONFIRMED_US_MAX`] is as good as one without a
//! leader, also if it hears one. *Never* decides about sessions; never repeats what is on its way: where
//! many sessions are heard from at once and the link is slow, that would fill it faster than it empties.
//!
//! Takes the place of `Learner.ping` and of `LearnerSessionTracker`'s touch table.

use std::collections::BTreeMap;

use crate::replica::timing::{LEADERLESS_MS_MAX, TICK_MS};

/// How long after the last report that the leader has confirmed this server believes that it is heard,
/// in microseconds. Long beside the time between two reports (a tick, and the way there and back).
pub(in crate::replica) const CONFIRMED_US_MAX: u64 = 1_000_000;
/// Longest time for which a server that is not confirmed serves its clients: it is not sure first, and then sends them
/// away.
pub(super) const UNCONFIRMED_US_MAX: u64 = CONFIRMED_US_MAX + LEADERLESS_MS_MAX * 1000;
/// A leader that no majority has answered for longer confirms nothing: so long after another one was
/// elected, a deposed one may have.
pub(super) const DEPOSED_US_MAX: u64 = 15 * TICK_MS * 1000;

/// What the leader is to be told.
#[derive(Debug, Default)]
pub(super) struct Touches {
    /// Sessions, and the first report that they are in.
    heard: BTreeMap<i64, u64>,
    /// Those that were confirmed lately, and by which report: if another leader was elected by then, and
    /// has given them their timeout already, it does not know.
    confirmed: BTreeMap<i64, u64>,
    /// The term of the leader that confirms.
    term: u64,
    /// Number of the last report: the time when it was made, or more.
    last: u64,
    /// The report that the next one goes on from. 0: it names all, because it may be that the last one does
    /// not arrive.
    base: u64,
    /// When the last report was made that is known to have arrived; of a leader, when it asked those who
    /// have answered, with whom it is a majority.
    confirmed_us: u64,
}

canonical! {
    // Numbers of reports are times. Where this server leads, the report that the next one goes on from does not
    // count: it reports to no server before it follows a leader of a later term.
    Touches(leads: bool): heard, confirmed, term;
    |out, last, base, confirmed_us| {
        // If nothing was heard, it only counts that all that is from now on has a higher number.
        let is_idle = heard.is_empty() && confirmed.is_empty();
        match *last {
            0 => out.value(&()),
            last => out.time_up_to(last, if is_idle { UNCONFIRMED_US_MAX } else { u64::MAX }),
        }
        out.value(&(!leads).then_some(base));
        out.time_up_to(*confirmed_us, UNCONFIRMED_US_MAX);
    }
}

impl Touches {
    /// A session's client was heard from.
    pub(super) fn insert(&mut self, session: i64) {
        self.heard.insert(session, self.last + 1);
    }

    /// How many the leader is to be told of.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heard.len()
    }

    /// There is no need to tell anybody.
    pub(super) fn clear(&mut self) {
        self.heard.clear();
        self.confirmed.clear();
    }

    /// This server leads: what was heard longer ago was heard before anybody else can have been elected,
    /// and that one would give all sessions their timeout.
    pub(super) fn forget_old(&mut self, now_us: u64) {
        self.last = self.last.max(now_us);
        let tells = !mutant!("deposed-leader-tells-nothing");
        self.heard.retain(|_, report| *report + DEPOSED_US_MAX > now_us && tells);
    }

    /// This server is in touch with a majority.
    pub(super) fn confirm(&mut self, now_us: u64) {
        self.confirmed_us = self.confirmed_us.max(now_us);
    }

    /// When a leader has last heard this server, or a majority this leader.
    pub(super) fn confirmed_us(&self) -> u64 {
        self.confirmed_us
    }

    /// When this server begins to doubt that it is heard.
    pub(super) fn confirmed_until_us(&self) -> u64 {
        self.confirmed_us + CONFIRMED_US_MAX
    }

    /// The leader of this term asks.
    pub(super) fn follow(&mut self, term: u64) {
        if self.term != term {
            self.term = term;
            self.base = 0;
            for session in std::mem::take(&mut self.confirmed).into_keys() {
                self.heard.entry(session).or_insert(self.last + 1);
            }
        }
    }

    /// The leader has this report.
    pub(super) fn arrived(&mut self, number: u64, now_us: u64) {
        if number <= self.last {
            let confirmed = &mut self.confirmed;
            self.heard.retain(|session, report| {
                let is_in_it = *report <= number;
                if is_in_it {
                    confirmed.insert(*session, number);
                }
                !is_in_it
            });
            self.confirmed.retain(|_, report| *report + DEPOSED_US_MAX > number);
            self.confirm(number.min(now_us));
        }
    }

    /// What was on its way to another server may be lost.
    pub(super) fn link_changed(&mut self) {
        if !mutant!("report-lost-with-its-link") {
            self.base = 0;
        }
    }

    /// A new report: its number, the one that it goes on from, and what is in it.
    pub(super) fn report(&mut self, now_us: u64) -> (u64, u64, Vec<i64>) {
        self.last = now_us.max(self.last + 1);
        let base = std::mem::replace(&mut self.base, self.last);
        let fresh = self.heard.iter().filter(|(_, first)| **first > base);
        (self.last, base, fresh.map(|(session, _)| *session).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_term(term: u64) -> Touches {
        let mut touches = Touches::default();
        touches.follow(term);
        touches
    }

    #[test]
    fn a_session_is_in_one_report_and_kept_until_that_is_confirmed() {
        let mut touches = of_term(1);
        touches.insert(7);
        assert_eq!(touches.report(100), (100, 0, vec![7]));
        touches.insert(8);
        assert_eq!(touches.report(150), (150, 100, vec![8]));
        assert_eq!(touches.report(200), (200, 150, vec![]));
        touches.arrived(100, 250);
        assert_eq!(touches.len(), 1, "8 was not in it");
        touches.arrived(200, 300);
        assert_eq!(touches.len(), 0);
    }

    #[test]
    fn a_session_that_is_heard_from_again_is_in_the_next_report() {
        let mut touches = of_term(1);
        touches.insert(7);
        touches.report(100);
        touches.insert(7);
        touches.arrived(100, 120);
        assert_eq!(touches.report(150), (150, 100, vec![7]));
    }

    #[test]
    fn behind_a_cut_all_that_is_not_confirmed_is_reported_again() {
        let mut touches = of_term(1);
        touches.insert(7);
        touches.report(100);
        touches.insert(8);
        touches.report(150);
        touches.arrived(100, 180);
        touches.link_changed();
        touches.insert(9);
        assert_eq!(touches.report(200), (200, 0, vec![8, 9]));
        assert_eq!(touches.report(250), (250, 200, vec![]));
    }

    #[test]
    fn the_next_leader_is_told_all_that_was_not_confirmed_or_just_before() {
        let mut touches = of_term(1);
        touches.insert(7);
        touches.report(100);
        touches.arrived(100, 120);
        touches.insert(8);
        touches.report(150);
        touches.follow(2);
        assert_eq!(touches.report(200), (200, 0, vec![7, 8]));
    }
}
