//! The background budget: how much of the cores checkpoints, compaction and images may take.
//!
//! *Owns* the one budget of a server that all such work asks: writing checkpoints, compaction, and writing, verifying
//! and sending images. *Invariants*: by the plain policy no work rests for the cores. Otherwise, while they are short,
//! work that nothing waits for rests, the less the nearer it is to being late, and not at all once it is late; work
//! that somebody waits for never rests, and only lets other threads of its core have their turns. Images that nothing
//! waits for leave the disk to the log while that is written to, by either policy. *Never* looks at a clock.

use super::CpuPolicy;
use crate::storage::{DiskBudget, WorkBudget};

/// While cores are short, work in the background rests so many times as long as it works: it takes a ninth of a
/// core, which is enough for most of what changes.
const REST_TIMES: u32 = 8;
/// And from this part of the way to being late, so many times: a quarter of a core, for seconds, so that it does not
/// come to be late. What is made up for later takes all of a core.
const LATENESS_BEHIND: f64 = 0.25;
/// See [`LATENESS_BEHIND`].
const REST_TIMES_BEHIND: u32 = 3;
/// During a reconnect storm, so many times, unless it is late: for those seconds the cores are for the clients that
/// come and for those that are active.
const REST_TIMES_IN_STORM: u32 = 64;
/// Niceness of the thread that writes checkpoints and images, by either policy: it costs nothing while a core is free.
const NICENESS: i32 = 5;

/// What background work asks; clones are one budget.
#[derive(Clone, Debug)]
pub(crate) struct BackgroundBudget {
    /// Of work that nothing waits for.
    deferrable: WorkBudget,
    /// Of work that somebody waits for.
    awaited: WorkBudget,
    /// What images leave to the log.
    disk: DiskBudget,
    policy: CpuPolicy,
}

impl BackgroundBudget {
    /// Nothing rests yet.
    #[must_use]
    pub(crate) fn new(policy: CpuPolicy) -> Self {
        let budget = || match policy {
            CpuPolicy::Sharing => WorkBudget::default(),
            CpuPolicy::Plain => WorkBudget::unlimited(),
        };
        let disk = DiskBudget::default();
        Self { deferrable: budget().beside_log(&disk), awaited: budget(), disk, policy }
    }

    /// What work asks that nothing waits for.
    #[must_use]
    pub(crate) fn deferrable(&self) -> &WorkBudget {
        &self.deferrable
    }

    /// What work asks that somebody waits for: an image that another server needs.
    #[must_use]
    pub(crate) fn awaited(&self) -> &WorkBudget {
        &self.awaited
    }

    /// What is told of each sync of the log.
    #[must_use]
    pub(crate) fn disk(&self) -> &DiskBudget {
        &self.disk
    }

    /// Says how late the deferrable work is (1.0: it is late), and whether cores are short and a reconnect storm comes.
    pub(crate) fn adapt(&self, lateness: f64, are_cores_short: bool, is_storm: bool) {
        self.disk.set_late(lateness >= 1.0);
        if self.policy == CpuPolicy::Sharing {
            let times = rest_times(lateness, is_storm);
            self.deferrable.set(if are_cores_short { times } else { 0 });
        }
    }

    /// The server ends, and waits for all of it.
    pub(crate) fn end(&self) {
        self.adapt(1.0, false, false);
    }
}

/// How many times as long as it works deferrable work rests while cores are short.
fn rest_times(lateness: f64, is_storm: bool) -> u32 {
    match lateness {
        ..1.0 if is_storm => REST_TIMES_IN_STORM,
        ..LATENESS_BEHIND => REST_TIMES,
        ..1.0 => REST_TIMES_BEHIND,
        _ => 0,
    }
}

/// Gives the calling thread, which works in the background, a lower priority: commits never wait for it.
pub(crate) fn lower_priority() {
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "a background thread keeps its normal priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_rests_the_less_the_later_it_is() {
        assert_eq!(rest_times(0.0, false), REST_TIMES);
        assert_eq!(rest_times(0.24, false), REST_TIMES);
        assert_eq!(rest_times(0.25, false), REST_TIMES_BEHIND);
        assert_eq!(rest_times(0.99, false), REST_TIMES_BEHIND);
        assert_eq!(rest_times(1.0, false), 0);
    }

    #[test]
    fn work_waits_for_a_storm_unless_it_is_late() {
        assert_eq!(rest_times(0.0, true), REST_TIMES_IN_STORM);
        assert_eq!(rest_times(0.99, true), REST_TIMES_IN_STORM);
        assert_eq!(rest_times(1.0, true), 0, "late is late");
    }

    #[test]
    fn work_rests_only_while_cores_are_short_and_until_the_server_ends() {
        let budget = BackgroundBudget::new(CpuPolicy::Sharing);
        assert_eq!(budget.deferrable().rest_times(), Some(0));
        budget.adapt(0.0, true, false);
        assert_eq!(budget.deferrable().rest_times(), Some(REST_TIMES));
        assert_eq!(budget.awaited().rest_times(), Some(0), "somebody waits for that");
        budget.adapt(0.0, false, true);
        assert_eq!(budget.deferrable().rest_times(), Some(0));
        budget.adapt(0.0, true, false);
        budget.end();
        assert_eq!(budget.deferrable().rest_times(), Some(0));
    }

    #[test]
    fn by_the_plain_policy_nothing_is_held_back() {
        let budget = BackgroundBudget::new(CpuPolicy::Plain);
        budget.adapt(0.0, true, true);
        let asked = [budget.deferrable(), budget.awaited()].map(WorkBudget::rest_times);
        assert_eq!(asked, [None, None]);
    }
}
