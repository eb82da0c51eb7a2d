//! One connection that takes and releases a lock, over and over, by the recipe of real clients.
//!
//! Create an ephemeral sequential node, list the directory, and hold the lock if none is lower;
//! otherwise read the next lower node with a watch, wait until it is gone, and list again. The lock
//! is released by deleting the node, as soon as it is held. A cycle is three requests without
//! contention and five with it, and counts as one operation. Whoever holds must have a higher
//! sequence number than whoever held before; anything else ends the measurement.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::wire;

/// What every lock node's name begins with.
const PREFIX: &str = "lock-";
/// Digits of a sequence number.
const DIGITS: usize = 10;

/// The last sequence number that held a lock; shared by the connections that contend for it.
pub type Grants = Rc<Cell<i64>>;

/// What a reply has brought about.
pub enum Progress {
    /// The cycle goes on.
    Step,
    /// The cycle that began then is over.
    Cycle(Instant),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next request is a create, a list, a watching read of this node, a delete.
    Create,
    List,
    Watch(i64),
    Delete,
    /// These are under way.
    Creating,
    Listing,
    Watching,
    Deleting,
    /// Until the watch fires.
    Waiting,
}

pub struct Lock {
    state: State,
    /// Sequence number of the own node, while there is one.
    own: i64,
    began: Instant,
    grants: Grants,
    create: Vec<u8>,
    list: Vec<u8>,
    /// These end in the digits of a node.
    watch: Vec<u8>,
    delete: Vec<u8>,
    /// Where those digits begin.
    digits_at: usize,
    issued: u64,
}

impl Lock {
    /// A lock whose nodes are created below `directory`, which must be there.
    pub fn new(directory: &str, grants: Grants) -> Self {
        let node = format!("{directory}/{PREFIX}");
        let numbered = format!("{node}{:0DIGITS$}", 0);
        Lock {
            state: State::Create,
            own: -1,
            began: Instant::now(),
            grants,
            create: wire::create_ephemeral_sequential(&node),
            list: wire::children(directory),
            watch: wire::get_and_watch(&numbered),
            delete: wire::delete(&numbered),
            digits_at: wire::PATH_AT + node.len(),
            issued: 0,
        }
    }

    /// Appends the next request; false while a reply or an event must come first.
    pub fn next(&mut self, now: Instant, xid: i32, out: &mut Vec<u8>) -> bool {
        let (request, next) = match self.state {
            State::Create => {
                self.began = now;
                (&mut self.create, State::Creating)
            }
            State::List => (&mut self.list, State::Listing),
            State::Watch(node) => {
                number(&mut self.watch[self.digits_at..][..DIGITS], node);
                (&mut self.watch, State::Watching)
            }
            State::Delete => {
                number(&mut self.delete[self.digits_at..][..DIGITS], self.own);
                (&mut self.delete, State::Deleting)
            }
            State::Creating
            | State::Listing
            | State::Watching
            | State::Deleting
            | State::Waiting => return false,
        };
        wire::patch_xid(request, xid);
        out.extend_from_slice(request);
        self.state = next;
        self.issued += 1;
        true
    }

    /// Judges the reply to the request under way.
    pub fn check(&mut self, err: i32, body: &[u8]) -> Result<Progress, String> {
        let gone = self.state == State::Watching && err == wire::NO_NODE;
        if err != 0 && !gone {
            return Err(format!("error {err} within a lock cycle"));
        }
        self.state = match self.state {
            State::Creating => {
                self.own = wire::buffer_at(body, 0).and_then(sequence).ok_or("create: no path")?;
                State::List
            }
            State::Listing => match self.predecessor(body)? {
                Some(node) => State::Watch(node),
                None => self.granted()?,
            },
            State::Watching if gone => State::List,
            State::Watching => State::Waiting,
            State::Deleting => {
                self.state = State::Create;
                return Ok(Progress::Cycle(self.began));
            }
            State::Create | State::List | State::Watch(_) | State::Delete | State::Waiting => {
                return Err("a reply that nothing was asked for".into());
            }
        };
        Ok(Progress::Step)
    }

    /// A watch has fired.
    pub fn event(&mut self) -> Result<(), String> {
        if self.state != State::Waiting {
            return Err("a watch event that nobody waits for".into());
        }
        self.state = State::List;
        Ok(())
    }

    /// Requests handed out so far.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// The next lower node than the own in a list of children.
    fn predecessor(&self, body: &[u8]) -> Result<Option<i64>, String> {
        let count = wire::int_at(body, 0).ok_or("a list without a count")?;
        let (mut at, mut own, mut lower) = (4, false, None);
        for _ in 0..count {
            let name = wire::buffer_at(body, at).ok_or("a list is cut short")?;
            at += 4 + name.len();
            let node = sequence(name).ok_or("a node that is no lock's")?;
            own |= node == self.own;
            if node < self.own {
                lower = lower.max(Some(node));
            }
        }
        if own { Ok(lower) } else { Err("the own node is not in the list".into()) }
    }

    fn granted(&mut self) -> Result<State, String> {
        let before = self.grants.replace(self.own);
        if before >= self.own {
            return Err(format!("{} holds the lock after {before} held it", self.own));
        }
        Ok(State::Delete)
    }
}

/// The number that a path or name ends in.
fn sequence(path: &[u8]) -> Option<i64> {
    let digits = path.get(path.len().checked_sub(DIGITS)?..)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Writes a sequence number over the whole of `out`.
fn number(out: &mut [u8], mut value: i64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}
