//! `session`: clients that keep sessions, take them to other servers, leave them without a word, sleep
//! through their timeouts, or end them.

use std::time::Instant;

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::op::Mode;

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/session";

/// The workload.
#[derive(Debug)]
pub struct Sessions;

impl Workload for Sessions {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { made: false, asleep_since: None })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required {
            always: &["monotonic"],
            with_account: &["witness", "session-timing", "ephemerals"],
        }
    }

    fn planned(&self) -> Vec<Planned> {
        vec![w::at_least(1, Event::Expiry), w::at_least(1, Event::Reconnect)]
    }
}

/// What one client knows.
struct One {
    /// Its znode of this session was asked for.
    made: bool,
    asleep_since: Option<Instant>,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let own = format!("{ROOT}/{:x}", client.session());
        if !self.made {
            client.call(w::create(&own, "", Mode::Ephemeral))?;
            self.made = true;
            return Ok(());
        }
        // Out of a thousand: most steps only show that the session lives.
        match client.random().below(1000) {
            0..40 => client.move_on(),
            40..46 => client.abandon_session(),
            46..52 => return client.close(),
            52..58 => self.sleep(client),
            // Long enough that only pings keep the session.
            58..66 => {
                let until = Instant::now() + client.timeout().mul_f64(1.2);
                client.idle(until)?;
            }
            66..500 => drop(client.call(w::exists(&own, false))?),
            500..900 => drop(client.call(w::set(&own, "here", -1))?),
            _ => drop(client.call(w::list(ROOT))?),
        }
        Ok(())
    }

    fn session_is_new(&mut self) {
        self.made = false;
    }
}

impl One {
    /// Sometimes for less than the timeout, sometimes for more.
    fn sleep(&mut self, client: &mut Client) {
        let timeout = client.timeout();
        let rested = self.asleep_since.is_none_or(|since| since.elapsed() > timeout * 3);
        if rested {
            self.asleep_since = Some(Instant::now());
            let time = client.random().between(timeout / 2, timeout.mul_f64(1.8));
            client.sleep(time);
        }
    }
}
