//! `queue`: clients that put elements in, as sequential znodes, and take out the lowest.

use lockkeeper_check::op::Mode;

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/queue";
/// Elements that a client looks at before it has had one, or gives up.
const TRIES_MAX: usize = 3;

/// The workload.
#[derive(Debug)]
pub struct Queues;

impl Workload for Queues {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { put: 0 })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &["queue", "witness"], with_account: &["sequence"] }
    }
}

/// What one client knows.
struct One {
    /// How many it has put in.
    put: u64,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        if client.random().chance(55) {
            self.put += 1;
            let element = format!("{}.{}", client.process(), self.put);
            let call = w::create(&format!("{ROOT}/e-"), &element, Mode::PersistentSequential);
            return client.call(call).map(drop);
        }
        let reply = client.call(w::list(ROOT))?;
        for name in w::names(&reply).into_iter().take(TRIES_MAX) {
            let path = format!("{ROOT}/{name}");
            if client.call(w::get(&path))?.result.is_ok()
                && client.call(w::delete(&path, -1))?.result.is_ok()
            {
                break;
            }
        }
        Ok(())
    }
}
