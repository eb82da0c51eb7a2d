//! Who votes, as the checker reads it from the log.
//!
//! *Owns* what a change of membership does, written without looking at `src/replica`. *Invariant*: while
//! two sets of voters are in force, each of them must agree.

use std::collections::BTreeSet;

use lockkeeper_core::replica;

use super::conn::Violation;

/// One step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Vote(u64),
    Remove(u64),
    Learn(u64),
}

/// Raft ids that vote and that learn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    pub voters: BTreeSet<u64>,
    pub learners: BTreeSet<u64>,
    /// The voters before, until the change is complete.
    outgoing: BTreeSet<u64>,
    learners_next: BTreeSet<u64>,
}

impl From<&replica::Membership> for Membership {
    fn from(initial: &replica::Membership) -> Self {
        let replica::Membership { voters, learners } = initial;
        let (voters, learners) =
            (voters.iter().copied().collect(), learners.iter().copied().collect());
        Self { voters, learners, ..Self::default() }
    }
}

impl Membership {
    /// What the change of an entry makes of it.
    pub fn changed(&self, data: &[u8]) -> Result<Self, Violation> {
        let steps = steps(data).ok_or_else(|| format!("{data:?} is no change of membership"))?;
        let mut next = self.clone();
        if steps.is_empty() {
            if self.outgoing.is_empty() {
                return Err("a change is complete that was none".to_owned());
            }
            next.outgoing.clear();
            next.learners.append(&mut next.learners_next);
            return Ok(next);
        }
        if !self.outgoing.is_empty() {
            return Err(format!("{steps:?} in the middle of another change: {self:?}"));
        }
        if steps.len() > 1 {
            next.outgoing.clone_from(&self.voters);
        }
        for step in steps {
            let (Step::Vote(id) | Step::Remove(id) | Step::Learn(id)) = step;
            next.voters.remove(&id);
            next.learners.remove(&id);
            match step {
                Step::Vote(_) => next.voters.insert(id),
                Step::Learn(_) if next.outgoing.contains(&id) => next.learners_next.insert(id),
                Step::Learn(_) => next.learners.insert(id),
                Step::Remove(_) => false,
            };
        }
        if next.voters.is_empty() {
            return Err(format!("nobody votes any more: {next:?}"));
        }
        let servers: BTreeSet<u8> =
            next.voters.iter().map(|id| replica::peer::server_of(*id)).collect();
        if servers.len() < next.voters.len() {
            return Err(format!("a server has two votes: {next:x?}"));
        }
        Ok(next)
    }

    /// Whether the vote of this raft id counts, before a change or behind it.
    pub fn has_vote(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.outgoing.contains(&id)
    }

    /// Number of voters, of the smaller set in the middle of a change.
    pub fn fewest(&self) -> usize {
        let before = if self.is_joint() { self.outgoing.len() } else { usize::MAX };
        self.voters.len().min(before)
    }

    /// Whether two sets of voters count.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether those who are meant are enough to decide.
    pub fn is_quorum(&self, holds: impl Fn(u64) -> bool) -> bool {
        let is_majority = |voters: &BTreeSet<u64>| {
            let holders = voters.iter().filter(|id| holds(**id)).count();
            holders > voters.len() / 2
        };
        is_majority(&self.voters) && (self.outgoing.is_empty() || is_majority(&self.outgoing))
    }
}

/// Those who may stand for election once this entry is there.
pub fn made_voters(data: &[u8]) -> Vec<u64> {
    let voter = |step| match step {
        Step::Vote(id) => Some(id),
        Step::Remove(_) | Step::Learn(_) => None,
    };
    steps(data).unwrap_or_default().into_iter().filter_map(voter).collect()
}

/// A message of protobuf: pairs of fields; those that repeat are a list of changes, each a kind and
/// an id.
fn steps(data: &[u8]) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    for (field, value) in fields(data)? {
        let (2, Value::Bytes(one)) = (field, value) else { continue };
        let (mut kind, mut id) = (0, 0);
        for field in fields(one)? {
            match field {
                (1, Value::Number(value)) => kind = value,
                (2, Value::Number(value)) => id = value,
                _ => return None,
            }
        }
        steps.push(match kind {
            0 => Step::Vote(id),
            1 => Step::Remove(id),
            2 => Step::Learn(id),
            _ => return None,
        });
    }
    Some(steps)
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut data: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let tag = number(&mut data)?;
        let value = number(&mut data)?;
        let value = match tag & 7 {
            0 => Value::Number(value),
            2 => {
                let (bytes, rest) = data.split_at_checked(usize::try_from(value).ok()?)?;
                data = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

fn number(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = data.split_first()?;
        *data = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
