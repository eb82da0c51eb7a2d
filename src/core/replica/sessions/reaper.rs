//! When the leader removes containers and TTL znodes, and how many at once.
//!
//! *Owns* the time of the next look and the allowance that is left. *Invariants*: looks are an interval apart, or a
//! tick if that is longer; in a minute no more are removed than are allowed. *Never* chooses one: the tree does.

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Reaper {
    at_us: u64,
    /// How many it may remove then.
    allowance: Allowance,
}

impl Reaper {
    /// This server begins to lead.
    pub(in crate::replica) fn begin(&mut self, now_us: u64, interval_ms: u64) {
        self.at_us = now_us + interval_ms * 1000;
    }

    /// If the time for a look has come: how many may be removed.
    pub(in crate::replica) fn look(
        &mut self,
        now_us: u64,
        interval_ms: u64,
        per_minute: u32,
    ) -> Option<usize> {
        if now_us < self.at_us {
            return None;
        }
        // Looks are as far apart as ticks are, however short the interval is.
        let late_ms = (now_us - self.at_us) / 1000;
        self.at_us = now_us + interval_ms * 1000;
        Some(self.allowance.take(per_minute, interval_ms + late_ms))
    }

    /// So many are to be removed.
    pub(in crate::replica) fn spend(&mut self, znodes: usize) {
        self.allowance.spend(znodes);
    }
}

/// How many containers and TTL znodes may be removed: so many in a minute, at whatever moments.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// Sixty-thousandths of a znode: what a millisecond adds is a whole number of them.
    saved: u64,
}

impl Allowance {
    const ONE: u64 = 60_000;

    /// How many there may be now, `elapsed_ms` after the last time that this was asked. Of what was not used no
    /// more than one is saved.
    fn take(&mut self, per_minute: u32, elapsed_ms: u64) -> usize {
        let added = u64::from(per_minute).saturating_mul(elapsed_ms);
        self.saved = self.saved.min(Self::ONE).saturating_add(added);
        usize::try_from(self.saved / Self::ONE).unwrap_or(usize::MAX)
    }

    fn spend(&mut self, znodes: usize) {
        self.saved = self.saved.saturating_sub((znodes as u64).saturating_mul(Self::ONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are removed in a minute of looks that are `every_ms` apart, if there are always some.
    fn in_a_minute(per_minute: u32, every_ms: u64) -> usize {
        let mut allowance = Allowance::default();
        let looks = 60_000 / every_ms;
        let one = |_| {
            let most = allowance.take(per_minute, every_ms);
            allowance.spend(most);
            most
        };
        (0..looks).map(one).sum()
    }

    #[test]
    fn as_many_are_removed_in_a_minute_as_are_allowed_however_often_is_looked() {
        for every_ms in [1, 50, 1000, 60_000] {
            for per_minute in [1, 7, 60, 1000, 10_000] {
                let removed = in_a_minute(per_minute, every_ms);
                let most = usize::try_from(per_minute).unwrap();
                assert!(
                    removed == most || removed + 1 == most,
                    "{per_minute} a minute, every {every_ms} ms: {removed}"
                );
            }
        }
    }

    #[test]
    fn a_look_comes_an_interval_after_the_last_one_and_counts_the_time_that_it_is_late() {
        let mut reaper = Reaper::default();
        reaper.begin(0, 1000);
        assert_eq!(reaper.look(999_999, 1000, 60), None);
        assert_eq!(reaper.look(1_000_000, 1000, 60), Some(1));
        reaper.spend(1);
        assert_eq!(reaper.look(3_000_000, 1000, 60), Some(2));
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let mut allowance = Allowance::default();
        for _ in 0..1000 {
            assert!(allowance.take(10_000, 50) <= 9);
        }
        allowance.spend(9);
        assert_eq!(allowance.take(10_000, 60_000), 10_000);
    }
}
