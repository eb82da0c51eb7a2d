//! `fifo`: clients that send many requests before they hear of the first.

use std::time::{Duration, Instant};

use lockkeeper_check::op::Mode;

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/fifo";
/// Requests in flight at once.
const BURST_MAX: u64 = 20;
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
        for _ in 0..burst {
            let whose = match client.random().chance(70) {
                true => client.process(),
                false => 0,
            };
            let path = format!("{ROOT}/p{whose}");
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
        for _ in 0..burst {
            if client.next_reply(until)?.is_none() {
                client.disconnect("a burst was not answered");
                return Err(Disconnected);
            }
        }
        Ok(())
    }
}
