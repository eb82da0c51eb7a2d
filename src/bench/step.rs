//! How far an answer has brought an operation.

use std::time::Instant;

/// What an answer has brought about.
#[derive(Debug)]
pub(super) enum Step {
    /// The operation goes on.
    Within,
    /// The lock is held.
    Granted {
        /// When the attempt began.
        began: Instant,
        /// When the holder before sent its release, if this one waited for it.
        released: Option<Instant>,
    },
    /// The operation that began then is over.
    Done(Instant),
}
