//! Ctrl-C, and the word of a service manager to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use super::EXIT_INTERRUPTED;
use crate::bench::Go;

/// Whether the user wants it to end.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT and SIGTERM do nothing by themselves, the first time; the second ends the
    /// process at once.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn catch() -> io::Result<Self> {
        let come = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut interrupts, mut ends) = {
            let _within = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let told = Arc::clone(&come);
        std::thread::Builder::new().name("lk-signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupts.recv() => {}
                        _ = ends.recv() => {}
                    }
                    if told.swap(true, Ordering::Relaxed) {
                        std::process::exit(EXIT_INTERRUPTED);
                    }
                }
            });
        })?;
        Ok(Interrupt(come))
    }

    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn go(&self) -> Go {
        if self.has_come() { Go::Stop } else { Go::On }
    }
}
