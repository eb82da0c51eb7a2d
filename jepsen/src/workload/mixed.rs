//! `mixed`: every client does a step of this and a step of that, over one session.

use std::sync::Arc;

use lockkeeper_check::coverage::{Event, Planned};

use super::{Body, Required, Settings, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

/// The workloads of which it is made.
const PARTS: [&str; 10] = [
    "register",
    "lock",
    "rw-lock",
    "ephemeral",
    "watch",
    "sequence",
    "queue",
    "tree",
    "fifo",
    "multi",
];

/// The workload.
pub struct Mixed {
    parts: Vec<Arc<dyn Workload>>,
}

impl Mixed {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let named = |name: &&str| name.parse::<w::Named>().expect("they are all there");
        Self { parts: PARTS.iter().map(named).map(|named| named.make(settings)).collect() }
    }
}

impl Workload for Mixed {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        self.parts.iter().try_for_each(|part| part.setup(client))
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { bodies: self.parts.iter().map(|part| part.body()).collect() })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        self.parts.iter().try_for_each(|part| part.finale(client))
    }

    fn required(&self) -> Required {
        Required {
            always: &["witness", "fifo", "monotonic", "queue"],
            with_account: &["ephemerals", "locks", "sequence", "watches", "session-timing"],
        }
    }

    fn planned(&self) -> Vec<Planned> {
        vec![
            w::at_least(1, Event::Expiry),
            w::at_least(1, Event::LockGranted),
            w::at_least(1, Event::WatchFired),
        ]
    }
}

/// What one client does.
struct One {
    bodies: Vec<Box<dyn Body>>,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let at = client.random().index(self.bodies.len());
        self.bodies[at].step(client)
    }

    fn session_is_new(&mut self) {
        self.bodies.iter_mut().for_each(|body| body.session_is_new());
    }

    fn finish(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        self.bodies.iter_mut().try_for_each(|body| body.finish(client))
    }
}
