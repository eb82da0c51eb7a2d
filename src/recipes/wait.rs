//! How long an attempt waits for others.
//!
//! *Owns* [`Wait`]. *Never* asks a server anything.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::error::LockError;

/// How long to wait for a lock that others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// For this long; zero is [`Wait::No`].
    For(Duration),
    /// Until it is ours, or the session is over.
    Forever,
}

impl Wait {
    /// Whether others may be waited for at all.
    pub(super) fn may_wait(self) -> bool {
        match self {
            Self::No | Self::For(Duration::ZERO) => false,
            Self::For(_) | Self::Forever => true,
        }
    }

    /// What is left of it for who has waited since then.
    pub(super) fn after(self, begun: Instant) -> Self {
        match self {
            Self::No | Self::Forever => self,
            Self::For(time) => Self::For(time.saturating_sub(begun.elapsed())),
        }
    }

    /// Ends `attempt` when the time to wait is over, as one for a lock that others hold. Who does not
    /// wait for others waits for an answer of the servers, but for the session timeout at most.
    ///
    /// # Errors
    /// Those of the attempt, `held()`, or [`LockError::Unreachable`].
    pub(super) async fn bound<T>(
        self,
        session: Duration,
        held: impl FnOnce() -> LockError,
        attempt: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        match self {
            Self::Forever => attempt.await,
            Self::No | Self::For(Duration::ZERO) => {
                timeout(session, attempt).await.unwrap_or(Err(LockError::Unreachable))
            }
            Self::For(time) => timeout(time, attempt).await.unwrap_or_else(|_| Err(held())),
        }
    }
}
