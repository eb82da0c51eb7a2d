//! `fifo`: clients that send many requests before they hear of the first.
//!
//! Each burst begins with a multi over all of a client's znodes: what many pipelines at once do to a
//! znode is too much for a search for an order, and the search leaves alone what a multi changes.

use std::time::{Duration, Instant};

use lockkeeper_check::op::{Call, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/fifo";
/// Requests in flight at once.
const BURST_MAX: u64 = 12;
/// A burst that is not answered in this time never is.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The workload.
#[derive(Debug)]
pub struct Pipelines;

impl Workload for Pipelines {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { written: 0 })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &["fifo", "witness"], with_account: &[] }
    }
}

/// What one client knows.
struct One {
    written: u64,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let burst = 1 + client.random().below(BURST_MAX);
        let paths = [client.process(), 0].map(|whose| format!("{ROOT}/p{whose}"));
        let set = |path: &String| w::set(path, "burst", -1);
        client.send(Call::Multi(paths.iter().map(set).collect()))?;
        for _ in 0..burst {
            let path = paths[usize::from(client.random().chance(30))].clone();
            self.written += 1;
            let value = format!("{}.{}", client.process(), self.written);
            let call = match client.random().below(100) {
                0..45 => w::set(&path, &value, -1),
                45..65 => w::get(&path),
                65..80 => w::create(&path, &value, Mode::Persistent),
                80..85 => w::delete(&path, -1),
                85..95 => w::exists(&path, false),
                _ => w::sync(&path),
            };
            client.send(call)?;
        }
        let until = Instant::now() + ANSWER_MAX;
        for _ in 0..=burst {
            if client.next_reply(until)?.is_none() {
                client.disconnect("a burst was not answered");
                return Err(Disconnected);
            }
        }
        Ok(())
    }
}
