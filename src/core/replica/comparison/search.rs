//! The search for the first entry after which a server's state differed.
//!
//! *Owns* a bisection over reports of a server that has the majority's state: of the window that convicted this server,
//! or of the entries before it, where the states differed already when it began.
//! *Invariant*: it ends within [`SEARCH_US_MAX`], with what is known by then. *Never* serves anybody.

use super::record::{DigestReport, Value, Window};
use super::verdict::Values;

/// Longest time for the search, in microseconds.
pub(in crate::replica) const SEARCH_US_MAX: u64 = 1_500_000;
/// Time after which another server is asked, in microseconds.
const ANSWER_US_MAX: u64 = 200_000;

/// Evidence that this server has diverged.
#[derive(Clone, Debug)]
pub(in crate::replica) struct Divergence {
    /// Value of a majority; `None`: no majority can have the same.
    pub(in crate::replica) agreed: Option<Value>,
    /// Its own report.
    pub(in crate::replica) report: DigestReport,
    /// All reports of that window, by raft id.
    pub(in crate::replica) values: Values,
}

impl Divergence {
    /// Servers that have the majority's state, by raft id.
    fn agreeing(&self) -> Vec<u64> {
        let agrees = |(_, value): &(&u64, &Value)| Some(**value) == self.agreed;
        self.values.iter().filter(agrees).map(|(id, _)| *id).collect()
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::replica) struct Search {
    divergence: Divergence,
    /// Servers that are asked, in turn.
    agreeing: Vec<u64>,
    turn: usize,
    /// First entry whose state is remembered here.
    first: u64,
    /// Entry after which the states may have been equal, and how far the next one lies before it.
    probe: u64,
    step: u64,
    /// Index of an entry after which the states were equal, once that is known.
    equal: Option<u64>,
    /// Index of an entry up to which they differed.
    differs: u64,
    asked_us: Option<u64>,
    begun_us: u64,
    /// The states differed already after the first entry that is remembered.
    is_older: bool,
}

impl Search {
    pub(super) fn new(divergence: Divergence, first: u64, now_us: u64) -> Self {
        Self {
            first,
            probe: divergence.report.window.from,
            step: 1,
            agreeing: divergence.agreeing(),
            turn: 0,
            equal: None,
            differs: divergence.report.window.to,
            asked_us: None,
            begun_us: now_us,
            is_older: false,
            divergence,
        }
    }

    /// Evidence.
    pub(in crate::replica) fn divergence(&self) -> &Divergence {
        &self.divergence
    }

    /// Whether nothing more is looked for.
    pub(in crate::replica) fn is_over(&self, now_us: u64) -> bool {
        let is_found = self.equal.is_some_and(|equal| equal + 1 >= self.differs);
        // Where no server can be asked, this server's own report shall have left before it falls silent.
        let us_max = if self.agreeing.is_empty() { ANSWER_US_MAX } else { SEARCH_US_MAX };
        is_found || self.is_older || now_us >= self.begun_us + us_max
    }

    /// Index of the first entry that differs: that it is later than the first number, if that is known, and not later
    /// than the second.
    pub(in crate::replica) fn found(&self) -> (Option<u64>, u64) {
        (self.equal, self.differs)
    }

    pub(super) fn ask(&mut self, now_us: u64) -> Option<(u64, Window)> {
        let is_waiting = self.asked_us.is_some_and(|at_us| now_us < at_us + ANSWER_US_MAX);
        if is_waiting || self.agreeing.is_empty() || self.is_over(now_us) {
            return None;
        }
        if self.asked_us.is_some() {
            self.turn += 1;
        }
        self.asked_us = Some(now_us);
        Some((self.agreeing[self.turn % self.agreeing.len()], self.question()))
    }

    /// At first, whether the states were equal before the window, or ever further before it; then half of what is left.
    fn question(&self) -> Window {
        match self.equal {
            None => Window { from: self.probe, to: self.probe },
            Some(equal) => Window { from: equal, to: equal + (self.differs - equal) / 2 },
        }
    }

    pub(super) fn answered(&mut self, from: u64, report: &DigestReport, own: &DigestReport) {
        if !self.agreeing.contains(&from) || report.window != self.question() {
            return;
        }
        let is_equal = (report.term, report.value) == (own.term, own.value);
        match (self.equal, is_equal) {
            (None, true) => self.equal = Some(report.window.to),
            (None, false) => {
                self.differs = report.window.to;
                self.is_older = self.probe <= self.first;
                self.probe = self.probe.saturating_sub(self.step).max(self.first);
                self.step *= 2;
            }
            (Some(_), true) => self.equal = Some(report.window.to),
            (Some(_), false) => self.differs = report.window.to,
        }
        self.asked_us = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::DEFINITION;
    use super::*;

    fn report(window: Window, value: Value) -> DigestReport {
        DigestReport { definition: DEFINITION, window, term: 1, value }
    }

    const RIGHT: Value = Value { digest: 1, sum: 1 };
    const WRONG: Value = Value { digest: 2, sum: 2 };

    fn search(from: u64, to: u64) -> Search {
        let values = [(1, WRONG), (2, RIGHT), (3, RIGHT)].into_iter().collect();
        let report = report(Window { from, to }, WRONG);
        Search::new(Divergence { agreed: Some(RIGHT), report, values }, FIRST, 0)
    }

    const FIRST: u64 = 40;

    /// Answers as a server would whose states differ from the asker's after this entry.
    fn run(search: &mut Search, first_wrong: u64) -> u64 {
        let mut asked = 0;
        while let Some((server, window)) = search.ask(0) {
            asked += 1;
            let value = if window.to < first_wrong { RIGHT } else { WRONG };
            search.answered(server, &report(window, RIGHT), &report(window, value));
        }
        asked
    }

    #[test]
    fn the_first_entry_that_differs_is_found_by_halves() {
        for first_wrong in [41, 63, 99, 100, 101, 102, 777, 1100] {
            let mut search = search(100, 1100);
            let asked = run(&mut search, first_wrong);
            assert_eq!(search.found(), (Some(first_wrong - 1), first_wrong));
            assert!(asked <= 13, "{asked}");
        }
    }

    #[test]
    fn a_difference_from_before_all_that_is_remembered_is_known_as_such() {
        let mut search = search(100, 1100);
        run(&mut search, FIRST);
        assert!(search.is_over(1));
        assert_eq!(search.found(), (None, FIRST));
    }

    #[test]
    fn a_server_that_does_not_answer_is_followed_by_another_and_the_search_ends() {
        let mut search = search(100, 1100);
        assert_eq!(search.ask(0).map(|(server, _)| server), Some(2));
        assert_eq!(search.ask(1000), None);
        assert_eq!(search.ask(ANSWER_US_MAX).map(|(server, _)| server), Some(3));
        assert!(!search.is_over(SEARCH_US_MAX - 1) && search.is_over(SEARCH_US_MAX));
        assert_eq!(search.found(), (None, 1100));
    }
}
