//! What the driver publishes with every turn: the replica's figures, and what is wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::conditions::Conditions;
use crate::admin::Leaders;
use crate::replica::Status;
use crate::server::clock::wall_ms;

/// The replica's figures, as of the driver's last batch, and what is wrong.
#[derive(Debug)]
pub(in crate::server) struct Published {
    status: Mutex<Status>,
    /// Leaders, and when they led.
    pub(in crate::server) leaders: Mutex<Leaders>,
    /// Time of the last publication, in milliseconds since `born`; 0: never.
    published_ms: AtomicU64,
    born: Instant,
    /// Why this server is not ready.
    pub conditions: Conditions,
    /// The file of the audit log may have been moved away: it is to be opened anew.
    pub reopens_audit: AtomicBool,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            status: Mutex::default(),
            leaders: Mutex::default(),
            published_ms: AtomicU64::new(0),
            born: Instant::now(),
            conditions: Conditions::default(),
            reopens_audit: AtomicBool::new(false),
        }
    }
}

impl Published {
    /// How long ago the driver has published last, which it does in every turn, if that is longer than
    /// turns are apart; nothing before it has begun.
    #[must_use]
    pub(in crate::server) fn stalled(&self) -> Option<Duration> {
        let published = Duration::from_millis(self.published_ms.load(Ordering::Acquire));
        let ago = self.born.elapsed().saturating_sub(published);
        (!published.is_zero() && ago > TURN_USUAL_MAX).then_some(ago)
    }

    /// A copy.
    #[must_use]
    pub(in crate::server) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it.
    pub(in crate::server) fn publish(&self, status: Status) {
        let mut leaders = self.leaders.lock().unwrap_or_else(PoisonError::into_inner);
        leaders.note(status.leader, status.term, wall_ms);
        drop(leaders);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        let now_ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.published_ms.store(now_ms.max(1), Ordering::Release);
    }
}

/// An idle driver has a turn with every tick; a busy one is not stuck yet.
const TURN_USUAL_MAX: Duration = Duration::from_secs(1);
