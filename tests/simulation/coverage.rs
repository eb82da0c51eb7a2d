//! What a run has seen. A fault that never happens tests nothing.

use std::fmt;

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// Counters, added up over all seeds.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Coverage {
            $(pub $name: u64,)*
        }

        impl Coverage {
            /// Adds another run's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// By name.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters!(
    simulated_ms,
    operations,
    starved,
    replies,
    events,
    txns,
    txns_failed,
    multis,
    multis_failed,
    replayed,
    first_applied_at_restart,
    kills,
    power_cuts,
    crashes_at_an_operation,
    crashes_while_opening,
    torn_tails,
    writes_torn,
    writes_dropped,
    names_dropped,
    sync_errors,
    full_stops,
    flips_of_images,
    flips_of_images_survived,
    flips_of_logs,
    refused_to_open,
    images_loaded,
    images_set_aside,
    log_alone,
    started_from_state,
    log_cuts,
    sled_refilled,
    sled_broken,
    sled_emptied,
    sled_older,
    sled_altered,
    sled_errors,
    checkpoints,
    batches_of_many,
    sessions_opened,
    sessions_expired,
    sessions_closed,
    sessions_moved,
    sessions_refused,
    hang_ups,
    sent_away,
    writes_moved,
    installs,
    images_sent,
    elections,
    membership_changes,
    wipes,
    rollbacks,
    rollbacks_recognised,
    rollbacks_of_votes,
    acknowledged_entries_cut,
    observer_worlds,
    links,
    link_cuts,
    links_refused,
    forged_hellos,
    forged_frames,
    peer_messages,
    partitions,
    pauses,
    reaped,
    setwatches,
    malformed,
    locks_granted,
    clean_stops,
    disk_hangs,
    hung_leaders,
    disk_handovers,
    wrong_clocks,
    time_returns,
    upgrades,
    entries_in_portions,
);

impl Coverage {
    /// A transaction was applied.
    pub fn count_txn(&mut self, op: &str, result: &str) {
        let failed = result != "ok";
        self.txns_failed += u64::from(failed);
        match op {
            "multi" => {
                self.multis += 1;
                self.multis_failed += u64::from(failed);
            }
            "createSession" => self.sessions_opened += 1,
            "expireSession" => self.sessions_expired += u64::from(!failed),
            "closeSession" => self.sessions_closed += u64::from(!failed),
            _ => {}
        }
    }

    /// Those that are below what is asked.
    pub fn missing(&self, minimum: &[(&str, u64)]) -> Vec<String> {
        let all = self.all();
        let seen =
            |name: &str| all.iter().find(|(known, _)| *known == name).expect("a counter's name").1;
        minimum
            .iter()
            .filter(|(name, least)| seen(name) < *least)
            .map(|(name, least)| format!("{name}: {} of at least {least}", seen(name)))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.all() {
            writeln!(f, "{name:>26} {count}")?;
        }
        Ok(())
    }
}
