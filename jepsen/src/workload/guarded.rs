//! What a lock guards: a number in the harness, kept twice, once by a store that asks for the lock's
//! token and once by one that does not.
//!
//! *Owns* both numbers and who may still write. *Invariants*: what the journal says about a write is
//! said while the number is held, so that the order of the journal is the store's; the fencing store
//! refuses whoever is older than anybody who has read or written.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkeeper_check::history::StoreWrite;

use crate::client::Client;

/// A pair of stores.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    cells: Mutex<Cells>,
}

#[derive(Debug, Default)]
struct Cells {
    fenced: i64,
    /// The highest token that was shown to the fencing store.
    newest: i64,
    unfenced: i64,
}

/// What a client has read from both.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    fenced: i64,
    unfenced: i64,
}

impl Guarded {
    #[must_use]
    pub fn new(name: String) -> Self {
        Self { name, cells: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads both, as the holder with a token.
    pub fn read(&self, token: i64) -> Seen {
        let mut cells = self.open();
        cells.newest = cells.newest.max(token);
        Seen { fenced: cells.fenced, unfenced: cells.unfenced }
    }

    /// Counts both up from what was read, as far as the stores let it.
    pub fn count_up(&self, client: &Client, token: i64, seen: Seen) {
        let mut cells = self.open();
        let accepted = token >= cells.newest;
        if accepted {
            (cells.fenced, cells.newest) = (seen.fenced + 1, token);
        }
        let store = format!("{}.fenced", self.name);
        let (read, wrote) = (seen.fenced, seen.fenced + 1);
        client.stored(StoreWrite { store, token, read, wrote, accepted });
        cells.unfenced = seen.unfenced + 1;
        let store = format!("{}.unfenced", self.name);
        let (read, wrote) = (seen.unfenced, seen.unfenced + 1);
        client.stored(StoreWrite { store, token: 0, read, wrote, accepted: true });
    }
}
