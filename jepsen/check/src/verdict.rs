//! What a check says: valid, invalid with the violation, or unknown with the reason.
//!
//! *Owns* the verdict and how several become one. *Invariant*: the worst wins, and not to know is
//! worse than valid and better than invalid. *Never* a bool: a check that saw nothing it could judge
//! says `Unknown`.

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
            (Verdict::Valid, Verdict::Valid) => self,
        }
    }

    /// The broken rule, if one is.
    #[must_use]
    pub fn broken(&self) -> Option<Rule> {
        match self {
            Verdict::Invalid(violation) => Some(violation.rule),
            Verdict::Valid | Verdict::Unknown(_) => None,
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
    }
}
