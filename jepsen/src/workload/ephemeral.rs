//! `ephemeral`: clients that contend for ephemeral znodes of the same names and die with them.

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::op::{Call, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/ephemeral";
/// Names that clients contend for.
const NAMES: u64 = 8;

/// The workload.
#[derive(Debug)]
pub struct Ephemerals;

impl Workload for Ephemerals {
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
        Required { always: &[], with_account: &["witness", "ephemerals", "session-timing"] }
    }

    fn planned(&self) -> Vec<Planned> {
        vec![w::at_least(1, Event::Expiry)]
    }
}

struct One;

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let path = format!("{ROOT}/n{}", client.random().below(NAMES));
        let call = match client.random().below(1000) {
            0..8 => {
                client.abandon_session();
                return Ok(());
            }
            8..14 => return client.close(),
            14..22 => {
                client.move_on();
                return Ok(());
            }
            22..330 => w::create(&path, "", Mode::Ephemeral),
            330..420 => w::create(&path, "", Mode::EphemeralSequential),
            420..560 => w::delete(&path, -1),
            560..640 => w::set(&path, "taken", -1),
            640..800 => w::exists(&path, false),
            // A znode of a session has no children.
            800..830 => w::create(&format!("{path}/child"), "", Mode::Persistent),
            830..900 => Call::Ephemerals { prefix: ROOT.to_owned() },
            _ => w::list(ROOT),
        };
        client.call(call).map(drop)
    }
}
