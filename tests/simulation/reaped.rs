//! How many containers and TTL znodes are removed in which time.
//!
//! *Owns* the removals of the last leader that proposed any, in its term. *Invariant*, checked here: in no time
//! are more proposed than are allowed in it. *Never* counts from one leader to the next: each begins anew.

use super::agreement::Proposal;
use super::checker::Checker;
use super::config::REAPED_PER_MINUTE;
use super::conn::Violation;

/// Removals of one leader in one term.
#[derive(Debug, Default)]
pub struct Reaped {
    by: (usize, u64),
    /// When they were proposed, by its clock.
    at_us: Vec<u64>,
}

impl Checker {
    /// One more is removed by a proposal.
    pub(super) fn are_reaped_in_measure(&mut self, proposal: &Proposal) -> Result<(), Violation> {
        let per_minute = self.rules.reaped_per_minute;
        if per_minute == REAPED_PER_MINUTE {
            return Ok(());
        }
        let by = (proposal.server, proposal.term());
        if self.reaped.by != by {
            self.reaped = Reaped { by, at_us: Vec::new() };
        }
        self.reaped.at_us.push(proposal.at_us);
        // What was not proposed while a server stood still comes behind.
        let own = self.pauses.iter().filter(|(server, ..)| *server == proposal.server);
        let still_us: u64 = own.map(|(_, since_us, until_us)| until_us - since_us).sum();
        let late_us = self.rules.reaped_late_us + still_us;
        let at_us = &self.reaped.at_us;
        for (before, since_us) in at_us.iter().enumerate() {
            let count = (at_us.len() - before) as u64;
            let in_us = proposal.at_us.saturating_sub(*since_us) + late_us;
            // One that was not removed before may be saved, and one may be due in part.
            let most = 2 + u64::from(per_minute) * in_us / 60_000_000;
            if count > most {
                return Err(format!(
                    "{count} removed within {in_us} us, no more than {most} may be"
                ));
            }
        }
        Ok(())
    }
}
