//! Signals that a user sends to `lockkeeper lock` and means for its command.
//!
//! *Owns* the list of them. *Invariant*: what was ignored from the start (`nohup`, a job in the
//! background of a script) stays ignored, here and in the command.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

/// The signals that have arrived.
#[derive(Debug)]
pub(super) struct Interrupts(mpsc::UnboundedReceiver<i32>);

impl Interrupts {
    /// From now on these signals do nothing by themselves.
    ///
    /// # Errors
    /// The operating system's.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn catch() -> io::Result<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let ignored = ignored();
        for number in SIGNALS.map(Signal::as_raw) {
            if ignored & (1 << (number - 1)) != 0 {
                continue;
            }
            let mut arrivals = unix::signal(SignalKind::from_raw(number))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while arrivals.recv().await.is_some() && sender.send(number).is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    /// The number of the next one.
    pub(super) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(number) => number,
            // All of them are ignored.
            None => std::future::pending().await,
        }
    }
}

const SIGNALS: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// A bit for each ignored signal, as Linux tells it; elsewhere none.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
