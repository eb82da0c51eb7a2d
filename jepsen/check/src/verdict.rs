//! What a check says: valid, invalid with the violation, or unknown with the reason.
//!
//! *Owns* the verdict and how several become one. *Invariant*: the worst wins, and not to know is
//! worse than valid and better than invalid. *Never* a bool: a check that saw nothing that its rule
//! speaks of says `Moot`, and whoever planned the run knows whether it should have.

use std::fmt;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The rule was checked and holds.
    Valid,
    /// It does not hold.
    Invalid(Violation),
    /// It could not be checked, and why.
    Unknown(String),
    /// Nothing happened that it speaks of.
    Moot(String),
}

/// A rule and the place where it is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule, as tests and reports name it.
    pub rule: Rule,
    /// What is wrong, for people.
    pub what: String,
    /// Lines of the history around it; the one that breaks the rule begins with `>`.
    pub around: Vec<String>,
}

/// Every rule that can be broken, by the name under which reports and golden histories know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Two transactions share a zxid.
    OneZxidEach,
    /// Something returned before an operation that it follows in the claimed order was asked for.
    RealTime,
    /// A result, Stat, child list or sequence number is not what the claimed order makes of it.
    Replay,
    /// No order of a path's operations explains an answer.
    Linearizable,
    /// What was acknowledged is not in the servers' own account of what they applied.
    Acknowledged,
    /// A transaction that no client asked for, or one request that took effect twice.
    Asked,
    /// Servers applied different transactions, or came to different states.
    Agreement,
    /// A sequence number is not the next of its parent.
    Sequence,
    /// An ephemeral znode without its session, or gone while that lives.
    Ephemeral,
    /// A session began or ended twice, or did something after its end.
    SessionOnce,
    /// A session was ended though it was heard of within its timeout.
    SessionKept,
    /// A session was not ended though nobody was heard of for too long.
    SessionEnded,
    /// Another session was given than the one that was asked for.
    SessionIdentity,
    /// A lock had two holders, or was granted out of order.
    LockHolder,
    /// A fencing token did not rise, or is not the holder's.
    LockToken,
    /// Two clients believed to hold a lock, and one could have known better.
    LockBelief,
    /// Who waits for a lock came no closer to it for too long, though the faults were over.
    LockLiveness,
    /// A znode asks for a lock, and its session is gone.
    LockOrphan,
    /// A store accepted a write that is older than one that it had accepted.
    Fencing,
    /// A store's write was based on a value that was not its last.
    LostUpdate,
    /// An element was lost, taken twice or never put in.
    Queue,
    /// A server removed a znode by itself before its time, or one that has none.
    Reaped,
    /// A watch fired not, twice, wrongly or too late.
    Watch,
    /// A watch that was brought along fired not, wrongly or too late.
    WatchReconnect,
    /// Requests of a connection were answered or carried out in another order.
    Fifo,
    /// A session was shown a state that is older than one it had seen.
    Monotonic,
    /// A read behind a sync is older than a write that had returned before.
    Sync,
    /// Servers that were left in peace have different states.
    Converged,
    /// Servers have different entries at one place of the log.
    LogMatching,
    /// A server sent what is no answer to what it was asked.
    Wire,
    /// A server ended by itself, or would not end when it was told to.
    Crash,
}

impl Rule {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::OneZxidEach => "one-zxid-each",
            Rule::RealTime => "real-time",
            Rule::Replay => "replay",
            Rule::Linearizable => "linearizable",
            Rule::Acknowledged => "acknowledged",
            Rule::Asked => "asked",
            Rule::Agreement => "agreement",
            Rule::Sequence => "sequence",
            Rule::Ephemeral => "ephemeral",
            Rule::SessionOnce => "session-once",
            Rule::SessionKept => "session-kept",
            Rule::SessionEnded => "session-ended",
            Rule::SessionIdentity => "session-identity",
            Rule::LockHolder => "lock-holder",
            Rule::LockToken => "lock-token",
            Rule::LockBelief => "lock-belief",
            Rule::LockLiveness => "lock-liveness",
            Rule::LockOrphan => "lock-orphan",
            Rule::Fencing => "fencing",
            Rule::LostUpdate => "lost-update",
            Rule::Queue => "queue",
            Rule::Reaped => "reaped",
            Rule::Watch => "watch",
            Rule::WatchReconnect => "watch-reconnect",
            Rule::Fifo => "fifo",
            Rule::Monotonic => "monotonic",
            Rule::Sync => "sync",
            Rule::Converged => "converged",
            Rule::LogMatching => "log-matching",
            Rule::Wire => "wire",
            Rule::Crash => "crash",
        }
    }
}

impl Violation {
    /// A violation whose neighbourhood is not known yet.
    #[must_use]
    pub fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self { rule, what: what.into(), around: Vec::new() }
    }
}

impl Verdict {
    /// The worse of two; of two alike the first.
    #[must_use]
    pub fn and(self, other: Verdict) -> Verdict {
        match (&self, &other) {
            (Verdict::Invalid(_), _) => self,
            (_, Verdict::Invalid(_)) => other,
            (Verdict::Unknown(_), _) => self,
            (_, Verdict::Unknown(_)) => other,
            (Verdict::Valid, _) => self,
            (_, Verdict::Valid) => other,
            (Verdict::Moot(_), Verdict::Moot(_)) => self,
        }
    }

    /// The broken rule, if one is.
    #[must_use]
    pub fn broken(&self) -> Option<Rule> {
        match self {
            Verdict::Invalid(violation) => Some(violation.rule),
            Verdict::Valid | Verdict::Unknown(_) | Verdict::Moot(_) => None,
        }
    }
}

impl From<Result<(), Violation>> for Verdict {
    fn from(result: Result<(), Violation>) -> Self {
        match result {
            Ok(()) => Verdict::Valid,
            Err(violation) => Verdict::Invalid(violation),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)?;
        for line in &self.around {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Valid => f.write_str("valid"),
            Verdict::Invalid(violation) => write!(f, "INVALID: {violation}"),
            Verdict::Unknown(reason) => write!(f, "unknown: {reason}"),
            Verdict::Moot(reason) => write!(f, "moot: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_verdicts_wins() {
        let invalid = || Verdict::Invalid(Violation::new(Rule::Replay, "x"));
        let unknown = || Verdict::Unknown("y".to_owned());
        assert_eq!(Verdict::Valid.and(unknown()).and(invalid()), invalid());
        assert_eq!(invalid().and(unknown()).and(Verdict::Valid), invalid());
        assert_eq!(Verdict::Valid.and(unknown()).and(Verdict::Valid), unknown());
        assert_eq!(Verdict::Valid.and(Verdict::Valid), Verdict::Valid);
        let moot = || Verdict::Moot("z".to_owned());
        assert_eq!(moot().and(Verdict::Valid), Verdict::Valid);
        assert_eq!(Verdict::Valid.and(moot()), Verdict::Valid);
        assert_eq!(moot().and(unknown()), unknown());
        assert_eq!(moot().and(moot()), moot());
    }
}
