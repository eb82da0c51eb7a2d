//! The word by which a server is asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Tells threads and tasks alike that the server is to end.
#[derive(Debug)]
pub(in crate::server) struct Stop {
    flag: AtomicBool,
    tasks: watch::Sender<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { flag: AtomicBool::new(false), tasks: watch::Sender::new(false) }
    }
}

impl Stop {
    /// Asks for the end. The driver looks when it is woken.
    pub(in crate::server) fn ask(&self) {
        self.flag.store(true, Ordering::Release);
        self.tasks.send_replace(true);
    }

    /// Whether the end was asked for.
    #[must_use]
    pub(in crate::server) fn is_asked(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Runs a task until its end, or until then.
    pub(in crate::server) async fn before(self: Arc<Self>, task: impl Future<Output = ()>) {
        tokio::select! {
            () = self.asked() => {}
            () = task => {}
        }
    }

    /// Waits until it is.
    pub(in crate::server) async fn asked(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.tasks.subscribe().wait_for(|asked| *asked).await;
    }
}
