//! How far a run has come, for a user at a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::bench::{self, Interim};

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A line on a terminal that says how far it has come.
pub(super) struct Progress {
    shows: bool,
    last: Instant,
    ops: u64,
    is_dirty: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        let shows = io::stderr().is_terminal();
        Progress { shows, last: Instant::now(), ops: 0, is_dirty: false }
    }

    /// Shows it, unless it was shown a moment ago.
    pub(super) fn show(&mut self, interim: &Interim<'_>) {
        let since = self.last.elapsed();
        if !self.shows || since < PROGRESS_INTERVAL {
            return;
        }
        let line = if interim.measured {
            let rate = interim.ops.saturating_sub(self.ops) as f64 / since.as_secs_f64();
            format!(
                "{:5.0} s  {rate:>9.0}/s  p50 {:.2} ms  p99 {:.2} ms",
                interim.elapsed.as_secs_f64(),
                bench::milliseconds(interim.latencies, 0.5),
                bench::milliseconds(interim.latencies, 0.99),
            )
        } else {
            format!("{:5.0} s  warming up", interim.elapsed.as_secs_f64())
        };
        self.write(&format!("\r\x1b[K{line}"));
        (self.last, self.ops, self.is_dirty) = (Instant::now(), interim.ops, true);
    }

    /// Takes the line away.
    pub(super) fn end(&self) {
        if self.is_dirty {
            self.write("\r\x1b[K");
        }
    }

    fn write(&self, text: &str) {
        // A terminal that is gone shows nothing; the figures remain.
        let mut screen = io::stderr();
        let _ = screen.write_all(text.as_bytes()).and_then(|()| screen.flush());
    }
}
