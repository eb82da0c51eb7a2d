//! `watch`: clients that watch a few znodes while all of them change these, and that take their
//! watches to other servers.

use std::time::{Duration, Instant};

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::op::{Call, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/watch";
/// Znodes that are watched, each with a child that comes and goes.
const NAMES: u64 = 5;

/// The workload.
#[derive(Debug)]
pub struct Watchers;

impl Workload for Watchers {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One)
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &[], with_account: &["witness", "watches", "watches-reconnect"] }
    }

    fn planned(&self) -> Vec<Planned> {
        vec![w::at_least(20, Event::WatchFired), w::at_least(1, Event::Reconnect)]
    }
}

struct One;

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        client.forget_events(ROOT);
        let path = format!("{ROOT}/n{}", client.random().below(NAMES));
        let child = format!("{path}/child");
        let call = match client.random().below(1000) {
            0..12 => {
                client.move_on();
                return Ok(());
            }
            12..20 => {
                let until = Instant::now() + Duration::from_millis(300);
                return client.idle(until);
            }
            20..170 => w::exists(&path, true),
            170..320 => Call::GetData { path, watch: true },
            320..450 => Call::GetChildren { path, watch: true, stat: true },
            450..500 => w::exists(&child, true),
            500..620 => w::create(&path, "", Mode::Persistent),
            620..760 => w::set(&path, "changed", -1),
            760..860 => w::create(&child, "", Mode::Ephemeral),
            860..930 => w::delete(&child, -1),
            _ => w::delete(&path, -1),
        };
        client.call(call).map(drop)
    }
}
