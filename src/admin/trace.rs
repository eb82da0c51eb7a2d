//! The trace mask of `gtmk` and `stmk`.
//!
//! One per process, as in ZooKeeper (`ZooTrace`). It is kept for the tools that set and read it
//! back; what is logged is decided by the log filter.

use std::sync::atomic::{AtomicI64, Ordering};

/// ZooKeeper's default: client requests, session events, server packets and warnings.
const MASK_DEFAULT: i64 = 306;

static MASK: AtomicI64 = AtomicI64::new(MASK_DEFAULT);

/// The mask in force.
pub(super) fn mask() -> i64 {
    MASK.load(Ordering::Relaxed)
}

/// Replaces the mask.
pub(super) fn set_mask(mask: i64) {
    MASK.store(mask, Ordering::Relaxed);
}

/// Held by the tests that change the process's mask.
#[cfg(test)]
pub(super) static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
