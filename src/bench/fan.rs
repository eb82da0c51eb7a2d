//! Connections that watch one znode, and one that changes it when all of them do.
//!
//! An operation is a notification; its latency runs from sending the change to having received it.
//! *Invariants*, checked: each watcher is told of each change once, and reads it when it watches anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::step::Step;
use super::{Fault, wire};

/// What the connections know of each other.
#[derive(Debug)]
pub(super) struct Fan {
    watchers: usize,
    /// Of these, how many watch now.
    armed: usize,
    /// The znode's version once all changes are made.
    version: i32,
    changed: Option<Instant>,
}

/// A fan that several connections know.
pub(super) type Shared = Arc<Mutex<Fan>>;

fn enter(shared: &Shared) -> MutexGuard<'_, Fan> {
    // It is whole between any two of its statements.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Has nothing under way: the writer, or a watcher that does not watch.
    Idle,
    Asking,
    Watching,
}

/// One of the connections.
#[derive(Debug)]
pub(super) struct Member {
    is_writer: bool,
    state: State,
    request: Vec<u8>,
    fan: Shared,
}

impl Member {
    /// One that writes and so many that watch a znode, which has this data in this version.
    pub(super) fn all(path: &str, data: &[u8], version: i32, watchers: usize) -> Vec<Member> {
        let fan = Arc::new(Mutex::new(Fan { watchers, armed: 0, version, changed: None }));
        let member = |is_writer: bool, request: Vec<u8>| Member {
            is_writer,
            state: State::Idle,
            request,
            fan: Arc::clone(&fan),
        };
        let mut all = vec![member(true, wire::set(path, data))];
        all.extend((0..watchers).map(|_| member(false, wire::get_and_watch(path))));
        all
    }

    /// Appends the next request; false while there is none.
    pub(super) fn next(&mut self, now: Instant, xid: i32, out: &mut Vec<u8>) -> bool {
        let mut fan = enter(&self.fan);
        if self.state != State::Idle || self.is_writer && fan.armed < fan.watchers {
            return false;
        }
        if self.is_writer {
            fan.armed = 0;
            fan.version += 1;
            fan.changed = Some(now);
        }
        self.state = State::Asking;
        wire::patch_xid(&mut self.request, xid);
        out.extend_from_slice(&self.request);
        true
    }

    /// Judges the reply to the request under way.
    pub(super) fn check(&mut self, reply: &wire::Reply<'_>) -> Result<Step, Fault> {
        if reply.err != 0 {
            return Err(Fault::refused("a watched znode", reply.err));
        }
        let mut fan = enter(&self.fan);
        let stat_at = match (self.is_writer, wire::buffer_at(reply.body, 0)) {
            (true, _) => 0,
            (false, Some(data)) => 4 + data.len(),
            (false, None) => return Err(Fault::wrong("get without data")),
        };
        let version = wire::int_at(reply.body, stat_at + wire::STAT_VERSION_AT);
        if version != Some(fan.version) {
            return Err(Fault::wrong(format!(
                "version {version:?} is read after the notification of version {}",
                fan.version
            )));
        }
        self.state = if self.is_writer { State::Idle } else { State::Watching };
        fan.armed += usize::from(!self.is_writer);
        Ok(Step::Within)
    }

    /// A watch has fired.
    pub(super) fn event(&mut self) -> Result<Step, Fault> {
        let changed = enter(&self.fan).changed;
        match changed {
            Some(changed) if self.state == State::Watching => {
                self.state = State::Idle;
                Ok(Step::Done(changed))
            }
            _ => Err(Fault::wrong("a watch event that no client waits for")),
        }
    }
}
