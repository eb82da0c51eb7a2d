//! Readiness conditions: what is wrong with this server now, one sentence for each cause.
//!
//! *Owns* the sentences, from when a cause appears until it is gone. *Invariants*: a sentence is logged
//! once when it appears or changes, and once when it is over; as long as there is one, `/readyz` fails
//! and shows it. *Never* decides anything: the code that finds the cause does, and takes it back.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A reason for which a server is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Cause {
    /// It cannot become a member of an ensemble as things are, or is none any more.
    Founding,
    /// A disk does not answer.
    Disk,
    /// A majority of the voters is missing in a way that no election mends.
    Majority,
    /// Its driver was busy for long with one thing.
    LongTurn,
    /// Its data is older than what it once promised, or not what the others have.
    Refused,
    /// Its state is not that of the majority, and it goes on.
    Differs,
    /// It cannot listen where the other servers are to find it.
    PeerPort,
    /// It cannot listen where clients are to find it.
    ClientPort,
}

/// The conditions of one server. Shared by its threads and tasks.
#[derive(Debug, Default)]
pub(in crate::server) struct Conditions(Mutex<BTreeMap<Cause, String>>);

impl Conditions {
    /// What is wrong because of `cause` from now on; `None`: nothing.
    pub(in crate::server) fn set(&self, cause: Cause, words: Option<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match words {
            Some(words) if known.get(&cause) == Some(&words) => {}
            Some(words) => {
                tracing::warn!("{words}");
                known.insert(cause, words);
            }
            None => {
                if let Some(words) = known.remove(&cause) {
                    tracing::info!("over: {words}");
                }
            }
        }
    }

    /// All of them, in the order of their causes.
    #[must_use]
    pub(in crate::server) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_there_until_its_cause_is_gone() {
        let conditions = Conditions::default();
        assert_eq!(conditions.all(), Vec::<String>::new());
        conditions.set(Cause::Disk, Some("the disk hangs".into()));
        conditions.set(Cause::Founding, Some("server 1 serves by itself".into()));
        assert_eq!(conditions.all(), ["server 1 serves by itself", "the disk hangs"]);
        conditions.set(Cause::Founding, None);
        conditions.set(Cause::Majority, None);
        assert_eq!(conditions.all(), ["the disk hangs"]);
    }
}
