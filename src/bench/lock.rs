//! One connection that takes and releases a lock, over and over, by the recipe of real clients.
//!
//! Create an ephemeral sequential znode, list the directory, and hold the lock if none is lower;
//! otherwise read the next lower znode with a watch, wait until it is gone, and list again. The lock
//! is released by deleting the znode. A cycle is three requests without contention and five with it,
//! and counts as one operation. The naive recipe, for comparison, lists with a watch instead, and
//! lists again whenever anything changed. That each grant is one is for `arena.rs` to judge.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::arena::{self, Shared};
use super::step::Step;
use super::{Fault, wire};

/// What every lock node's name begins with.
const PREFIX: &str = "lock-";
/// Digits of a sequence number.
const DIGITS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The next request is a create, a list, a watching read of this node, a delete.
    Create,
    List,
    Watch(i64),
    /// Not before this moment.
    Delete(Instant),
    /// These are under way.
    Creating,
    Listing,
    Watching,
    Deleting,
    /// Until the watch fires.
    Waiting,
}

/// One contender.
#[derive(Debug)]
pub(super) struct Lock {
    state: State,
    /// Sequence number and czxid of the own node, while there is one.
    own: (i64, i64),
    began: Instant,
    /// An event has come since.
    waited: bool,
    hold: Duration,
    is_naive: bool,
    arena: Shared,
    create: Vec<u8>,
    list: Vec<u8>,
    /// These end in the digits of a node.
    watch: Vec<u8>,
    delete: Vec<u8>,
    /// Where those digits are.
    digits: Range<usize>,
}

impl Lock {
    /// A lock whose nodes are created below `directory`, which must be there, and which is held for
    /// `hold`.
    pub(super) fn new(directory: &str, hold: Duration, arena: Shared, is_naive: bool) -> Self {
        let node = format!("{directory}/{PREFIX}");
        let numbered = format!("{node}{:0DIGITS$}", 0);
        let digits_at = wire::PATH_AT + node.len();
        Lock {
            state: State::Create,
            own: (-1, -1),
            began: Instant::now(),
            waited: false,
            hold,
            is_naive,
            arena,
            create: wire::create_ephemeral_sequential(&node),
            list: wire::children(directory, is_naive),
            watch: wire::get_and_watch(&numbered),
            delete: wire::delete(&numbered),
            digits: digits_at..digits_at + DIGITS,
        }
    }

    /// Whether the next request begins a cycle.
    pub(super) fn begins(&self) -> bool {
        self.state == State::Create
    }

    /// When the lock is to be released, if it is held.
    pub(super) fn held_until(&self) -> Option<Instant> {
        match self.state {
            State::Delete(at) => Some(at),
            State::Create
            | State::List
            | State::Watch(_)
            | State::Creating
            | State::Listing
            | State::Watching
            | State::Deleting
            | State::Waiting => None,
        }
    }

    /// Appends the next request; false while a reply, an event or a moment must come first. A cycle
    /// that it begins was due at `due`.
    pub(super) fn next(&mut self, now: Instant, due: Instant, xid: i32, out: &mut Vec<u8>) -> bool {
        let (request, next) = match self.state {
            State::Create => {
                self.began = due;
                self.waited = false;
                (&mut self.create, State::Creating)
            }
            State::List => (&mut self.list, State::Listing),
            State::Watch(node) => {
                wire::patch_digits(&mut self.watch[self.digits.clone()], node.unsigned_abs());
                (&mut self.watch, State::Watching)
            }
            State::Delete(at) if at <= now => {
                let own = self.own.0.unsigned_abs();
                wire::patch_digits(&mut self.delete[self.digits.clone()], own);
                arena::enter(&self.arena).release(now);
                (&mut self.delete, State::Deleting)
            }
            State::Delete(_)
            | State::Creating
            | State::Listing
            | State::Watching
            | State::Deleting
            | State::Waiting => return false,
        };
        wire::patch_xid(request, xid);
        out.extend_from_slice(request);
        self.state = next;
        true
    }

    /// Judges the reply to the request under way.
    pub(super) fn check(&mut self, now: Instant, reply: &wire::Reply<'_>) -> Result<Step, Fault> {
        let gone = self.state == State::Watching && reply.err == wire::NO_NODE;
        if reply.err != 0 && !gone {
            return Err(Fault::refused("within a lock cycle", reply.err));
        }
        self.state = match self.state {
            State::Creating => {
                let node = wire::buffer_at(reply.body, 0)
                    .and_then(sequence)
                    .ok_or_else(|| Fault::wrong("create: no path"))?;
                self.own = (node, reply.zxid);
                State::List
            }
            State::Listing => match self.predecessor(reply.body)? {
                Some(_) if self.is_naive => State::Waiting,
                Some(node) => State::Watch(node),
                None => {
                    self.state = State::Delete(now + self.hold);
                    return self.granted();
                }
            },
            State::Watching if gone => State::List,
            State::Watching => State::Waiting,
            State::Deleting => {
                self.state = State::Create;
                return Ok(Step::Done(self.began));
            }
            State::Create | State::List | State::Watch(_) | State::Delete(_) | State::Waiting => {
                return Err(Fault::wrong("a reply that nothing was asked for"));
            }
        };
        Ok(Step::Within)
    }

    /// A watch has fired.
    pub(super) fn event(&mut self) -> Result<Step, Fault> {
        if self.state == State::Waiting {
            self.waited = true;
            self.state = State::List;
            return Ok(Step::Within);
        }
        // A list that is under way, or the next one, shows what this event tells of.
        if self.is_naive {
            return Ok(Step::Within);
        }
        Err(Fault::wrong("a watch event that no client waits for"))
    }

    /// The next lower node than the own in a list of children.
    fn predecessor(&self, body: &[u8]) -> Result<Option<i64>, Fault> {
        let names = wire::names(body).ok_or_else(|| Fault::wrong("a list without a count"))?;
        let (mut own, mut lower) = (false, None);
        for name in names {
            let name = name.ok_or_else(|| Fault::wrong("a list is cut short"))?;
            let node = sequence(name).ok_or_else(|| Fault::wrong("a node that is no lock's"))?;
            own |= node == self.own.0;
            if node < self.own.0 {
                lower = lower.max(Some(node));
            }
        }
        if own { Ok(lower) } else { Err(Fault::wrong("the own node is not in the list")) }
    }

    fn granted(&self) -> Result<Step, Fault> {
        let mut arena = arena::enter(&self.arena);
        arena.grant(self.own.0, self.own.1)?;
        Ok(Step::Granted { began: self.began, released: arena.released().filter(|_| self.waited) })
    }
}

/// The number that a path or name ends in.
fn sequence(path: &[u8]) -> Option<i64> {
    let digits = path.get(path.len().checked_sub(DIGITS)?..)?;
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_is_ten_digits_at_the_end() {
        assert_eq!(sequence(b"lock-0000000042"), Some(42));
        assert_eq!(sequence(b"lock-00000000x2"), None);
        assert_eq!(sequence(b"42"), None);
    }
}
