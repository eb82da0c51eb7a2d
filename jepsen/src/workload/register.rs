//! `register`: a few znodes at a time, read, written, written if the version fits, deleted, created.
//!
//! The znodes change after a number of operations, for a search for an order is only affordable over
//! short stories.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_check::op::{Answer, Mode};

use super::{Body, Required, Settings, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

/// Znodes in use at a time.
const KEYS: u64 = 3;
const ROOT: &str = "/register";

/// The workload.
#[derive(Debug)]
pub struct Registers {
    ops_per_key: u64,
    operations: Arc<AtomicU64>,
}

impl Registers {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { ops_per_key: settings.ops_per_key, operations: Arc::default() }
    }
}

impl Workload for Registers {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One {
            ops_per_key: self.ops_per_key,
            operations: self.operations.clone(),
            versions: BTreeMap::new(),
            written: 0,
        })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &["witness", "search", "sync"], with_account: &[] }
    }
}

/// What one client knows.
struct One {
    ops_per_key: u64,
    operations: Arc<AtomicU64>,
    /// The versions that it saw last.
    versions: BTreeMap<String, i32>,
    written: u64,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let before = self.operations.fetch_add(1, Ordering::Relaxed);
        let generation = before / (self.ops_per_key * KEYS);
        let path = format!("{ROOT}/k{}", generation * KEYS + client.random().below(KEYS));
        let known = self.versions.get(&path).copied();
        self.written += 1;
        let value = format!("{}.{}", client.process(), self.written);
        let call = match client.random().below(100) {
            0..40 => w::get(&path),
            40..60 => w::set(&path, &value, -1),
            60..80 => w::set(&path, &value, known.unwrap_or(0)),
            80..85 => w::delete(&path, known.unwrap_or(-1)),
            _ => w::create(&path, &value, Mode::Persistent),
        };
        let reply = client.call(call)?;
        match reply.result {
            Ok(Answer::Data(_, stat) | Answer::Stat(stat) | Answer::PathStat(_, stat)) => {
                self.versions.insert(path, stat.version);
            }
            Ok(_) => drop(self.versions.remove(&path)),
            Err(_) => {}
        }
        Ok(())
    }
}
