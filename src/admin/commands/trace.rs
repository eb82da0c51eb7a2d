//! The trace mask of `gtmk` and `stmk`.
//!
//! One per process, as in ZooKeeper (`ZooTrace`). It is kept for the tools that set and read it
//! back; what is logged is decided by the log filter.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use super::asked::{Asked, By, Shown};

/// ZooKeeper's default: client requests, session events, server packets and warnings.
const MASK_DEFAULT: i64 = 306;

static MASK: AtomicI64 = AtomicI64::new(MASK_DEFAULT);

/// The mask in force.
pub(super) fn get(asked: &Asked<'_>) -> Option<Shown> {
    let mask = MASK.load(Ordering::Relaxed);
    asked.shown(|| mask.to_string(), || json!({ "tracemask": mask }))
}

/// Replaces the mask.
pub(super) fn set(asked: &Asked<'_>) -> Option<Shown> {
    let mask = match asked.by {
        // Big-endian. Nothing is said, as nothing can be set, where the mask did not come along.
        By::Word(rest, _) => match rest.first_chunk() {
            Some(mask) => i64::from_be_bytes(*mask),
            None => return Some(Shown::Text(String::new())),
        },
        By::Request(question) => {
            let refused = |got| Some(Shown::Error(format!("{REFUSAL}{got}")));
            match question.parameter("traceMask").map(|text| text.parse().map_err(|_| text)) {
                Some(Ok(mask)) => mask,
                Some(Err(text)) => return refused(format!(", got {text}")),
                None => return refused(String::new()),
            }
        }
    };
    MASK.store(mask, Ordering::Relaxed);
    get(asked)
}

const REFUSAL: &str = "setTraceMask requires long traceMask argument";

/// Held by the tests that change the process's mask.
#[cfg(test)]
pub(in crate::admin) static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Undoes what a test has changed.
#[cfg(test)]
pub(in crate::admin) fn restore_default() {
    MASK.store(MASK_DEFAULT, Ordering::Relaxed);
}
