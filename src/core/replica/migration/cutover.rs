//! A cutover that an operator has asked for, step by step.
//!
//! *Owns* which step it is at, since when, and what came from ZooKeeper meanwhile that no client of this ensemble has
//! asked for. *Invariants*: the steps follow each other, or it is given up and everything goes on as before; nothing is
//! held for longer than [`HELD_US_MAX`], or [`COMPARED_US_MAX`] where nothing else proves the copy. *Never* is there a
//! way to leave a step out.

/// How long requests are held at most, in microseconds: then it is given up.
pub(in crate::replica) const HELD_US_MAX: u64 = 3_000_000;
/// The same where ZooKeeper's whole state has to be compared.
pub(in crate::replica) const COMPARED_US_MAX: u64 = 60_000_000;

/// Where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::replica) enum Stage {
    /// None was asked for.
    #[default]
    None,
    /// Requests are held, and those that ZooKeeper has are waited for.
    Draining,
    /// ZooKeeper's whole state is asked for once more, and compared, because it keeps no digests.
    Comparing,
    /// ZooKeeper was asked for a probe, behind which there is nothing.
    Syncing,
    /// Everything that came is in the log, and is being applied.
    Applying,
    /// The shell looks once more whether ZooKeeper's ports for clients are closed.
    Looking,
    /// The entry is in the log.
    Proposed,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Cutover {
    stage: Stage,
    /// Which attempt it is, or was: an answer to an earlier one says nothing.
    attempt: u64,
    /// Who is to be told.
    token: u64,
    since_us: u64,
    /// What a client of ZooKeeper did meanwhile.
    intruder: Option<String>,
    /// Whether ZooKeeper's whole state was asked for.
    compares: bool,
}

impl Cutover {
    /// Begins one.
    pub(in crate::replica) fn begin(&mut self, token: u64, now_us: u64) {
        *self = Self {
            stage: Stage::Draining,
            attempt: self.attempt + 1,
            token,
            since_us: now_us,
            intruder: None,
            compares: false,
        };
    }

    pub(in crate::replica) fn stage(&self) -> Stage {
        self.stage
    }

    /// The number of this attempt, which no other one of this server has.
    pub(in crate::replica) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Whether this attempt is at this step.
    pub(in crate::replica) fn is_at(&self, stage: Stage, attempt: u64) -> bool {
        self.stage == stage && self.attempt == attempt || mutant!("given-up-cutover-goes-on")
    }

    pub(in crate::replica) fn is_begun(&self) -> bool {
        self.stage != Stage::None
    }

    /// The next step.
    pub(in crate::replica) fn advance(&mut self, stage: Stage) {
        self.stage = stage;
        self.compares |= stage == Stage::Comparing;
    }

    /// Whether ZooKeeper's whole state was asked for.
    pub(in crate::replica) fn compares(&self) -> bool {
        self.compares
    }

    /// A transaction came that no client of this ensemble has asked for.
    pub(in crate::replica) fn intruded(&mut self, by: impl FnOnce() -> String) {
        if self.is_begun() && self.intruder.is_none() {
            self.intruder = Some(by());
        }
    }

    pub(in crate::replica) fn intruder(&self) -> Option<&str> {
        self.intruder.as_deref()
    }

    /// Whether it has taken too long. One whose entry is in the log is not given up: the log decides.
    pub(in crate::replica) fn is_overdue(&self, now_us: u64) -> bool {
        let may_end = self.is_begun() && self.stage != Stage::Proposed;
        let most_us = if self.compares { COMPARED_US_MAX } else { HELD_US_MAX };
        may_end && now_us.saturating_sub(self.since_us) > most_us
    }

    /// Ends it, done or given up. Who is to be told.
    pub(in crate::replica) fn end(&mut self) -> Option<u64> {
        let was = std::mem::take(self);
        self.attempt = was.attempt;
        was.is_begun().then_some(was.token)
    }
}
