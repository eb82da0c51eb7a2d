//! Alarm for turns that take long.
//!
//! *Owns* the longest turn, and the words for one that was too long. *Invariants*: a turn is named by what cost most in
//! it; a condition holds for [`SHOWN`] after the last such turn. *Never* shortens one: the driver and the replica do.

use std::time::{Duration, Instant};

use crate::replica::Dearest;

/// From here on a turn is worth a line, in microseconds: a leader that is silent for longer may be given up.
const LONG_US: u64 = 250_000;
/// From here on it is a condition.
const TOO_LONG_US: u64 = 1_000_000;
/// How long the condition holds.
const SHOWN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LongTurns {
    /// The message that took longest in this turn, and how long.
    message: Option<(&'static str, u64)>,
    shown: Option<(Instant, String)>,
}

impl LongTurns {
    /// A message that is no client's request took so long.
    pub(super) fn message(&mut self, name: &'static str, took_us: u64) {
        if self.message.is_none_or(|(_, longest_us)| longest_us < took_us) {
            self.message = Some((name, took_us));
        }
    }

    /// A turn is over, with this as the dearest of its requests and transactions. Words for the log, if it was long.
    pub(super) fn turned(
        &mut self,
        took_us: u64,
        dearest: Option<Dearest>,
        now: Instant,
    ) -> Option<String> {
        let message = self.message.take();
        if took_us < LONG_US {
            return None;
        }
        let cause = match (message, dearest) {
            (Some((name, longest_us)), _) if longest_us > took_us / 2 => name.to_owned(),
            (_, Some(Dearest { op: Some(op), session, .. })) => {
                format!("{op:?} of session {session:#x}")
            }
            (_, Some(Dearest { op: None, .. })) => "a step of the migration".to_owned(),
            _ => "many requests".to_owned(),
        };
        let words =
            format!("a turn took {}.{:03} s: {cause}", took_us / 1_000_000, took_us / 1000 % 1000);
        if took_us >= TOO_LONG_US {
            self.shown = Some((now, words.clone()));
        }
        Some(words)
    }

    /// The condition, as long as it holds.
    pub(super) fn condition(&mut self, now: Instant) -> Option<String> {
        self.shown.take_if(|(since, _)| now.saturating_duration_since(*since) >= SHOWN);
        self.shown.as_ref().map(|(_, words)| words.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::OpCode;

    #[test]
    fn a_long_turn_is_named_by_what_took_longest_in_it_and_is_a_condition_for_a_while() {
        let (mut turns, begun) = (LongTurns::default(), Instant::now());
        let dearest = Some(Dearest { work_ns: 9, op: Some(OpCode::GetEphemerals), session: 0x1a });
        turns.message("a question of an operator", 900);
        assert_eq!(turns.turned(249_999, dearest, begun), None);
        let words = turns.turned(250_000, dearest, begun);
        assert_eq!(words.as_deref(), Some("a turn took 0.250 s: GetEphemerals of session 0x1a"));
        assert_eq!(turns.condition(begun), None, "a line is enough");
        turns.message("a question of an operator", 1_000_000);
        let words = turns.turned(1_800_000, dearest, begun);
        assert_eq!(words.as_deref(), Some("a turn took 1.800 s: a question of an operator"));
        assert_eq!(turns.condition(begun), words);
        assert_eq!(turns.condition(begun + SHOWN), None);
    }
}
