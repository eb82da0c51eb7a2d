//! One client at work: it connects, does step after step, comes back after faults, and leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Connected};
use crate::workload::Body;

/// When to work and when to come to an end; shared by all.
#[derive(Debug)]
pub struct Times {
    /// The faults are over: finish.
    pub is_over: AtomicBool,
    /// The servers do not come back: no client can finish.
    pub is_broken: AtomicBool,
    /// After this nobody waits for anything any more.
    pub last: Instant,
    /// Time between two steps of a client, on average.
    pub pace: Duration,
}

/// A connection is looked for so long before the time is looked at again.
const CONNECT_FOR: Duration = Duration::from_millis(500);
/// A client that cannot finish so long after the faults are over never will.
const FINISH_MAX: Duration = Duration::from_secs(30);

/// Works until the time is over, then finishes. Whether it could close its session.
pub fn work(client: &mut Client, body: &mut dyn Body, times: &Times) -> bool {
    let goes_on = || !times.is_over.load(Ordering::Relaxed) && Instant::now() < times.last;
    let mut next = Instant::now();
    while goes_on() {
        if !client.is_connected() {
            match client.connect(Instant::now() + CONNECT_FOR) {
                Some(Connected::New) => body.session_is_new(),
                Some(Connected::Again) => {}
                None => continue,
            }
        }
        let gap = client.random().between(Duration::ZERO, times.pace * 2);
        next = (next + gap).max(Instant::now());
        // A lost connection is seen at the next step.
        let _ = client.idle(next).and_then(|()| body.step(client));
    }
    let is_broken = times.is_broken.load(Ordering::Relaxed);
    let deadline = Instant::now() + if is_broken { Duration::ZERO } else { FINISH_MAX };
    while Instant::now() < deadline {
        if !client.is_connected() {
            match client.connect(deadline) {
                Some(Connected::New) => body.session_is_new(),
                Some(Connected::Again) => {}
                None => break,
            }
        }
        if body.finish(client).and_then(|()| client.close()).is_ok() {
            return true;
        }
    }
    client.abandon_session();
    false
}

/// Does something with a client until it succeeds, reconnecting as often as needed.
///
/// # Errors
/// It did not in time.
pub fn insist(
    client: &mut Client,
    patience: Duration,
    mut act: impl FnMut(&mut Client) -> Result<(), crate::client::Disconnected>,
) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if !client.is_connected() && client.connect(deadline).is_none() {
            break;
        }
        if act(client).is_ok() {
            return Ok(());
        }
    }
    Err(format!("process {} did not get through within {patience:?}", client.process()))
}
