//! `sync`: clients that write, and that read behind a `sync` what others have written.
//!
//! Half of the clients write nothing, one of them at each server of three: a write waits where there is no leader,
//! and who waits for it does not ask whether an old state is shown there.
//!
//! As in `register`, the znodes change after a number of operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_check::op::Mode;

use super::{Body, Required, Settings, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/sync";

/// The workload.
#[derive(Debug)]
pub struct Syncs {
    ops_per_key: u64,
    /// So many of the clients, the first ones, write nothing.
    readers: u64,
    operations: Arc<AtomicU64>,
}

impl Syncs {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let readers = u64::try_from(settings.clients / 2).expect("a few clients");
        Self { ops_per_key: settings.ops_per_key, readers, operations: Arc::default() }
    }
}

impl Workload for Syncs {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        let operations = self.operations.clone();
        let readers = self.readers;
        Box::new(One { ops_per_key: self.ops_per_key, operations, readers, written: 0 })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &["sync", "search", "witness"], with_account: &[] }
    }
}

/// What one client knows.
struct One {
    ops_per_key: u64,
    readers: u64,
    operations: Arc<AtomicU64>,
    written: u64,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let before = self.operations.fetch_add(1, Ordering::Relaxed);
        let path = format!("{ROOT}/k{}", before / self.ops_per_key);
        // The first clients are spread over the servers.
        let writes = client.process() > self.readers && client.random().chance(70);
        if writes {
            self.written += 1;
            let value = format!("{}.{}", client.process(), self.written);
            let reply = client.call(w::set(&path, &value, -1))?;
            if w::is_missing(&reply) {
                client.call(w::create(&path, &value, Mode::Persistent))?;
            }
            return Ok(());
        }
        client.call(w::sync(&path))?;
        client.call(w::get(&path)).map(drop)
    }
}
