//! `session`: clients that keep sessions, take them to other servers, leave them without a word, sleep
//! through their timeouts, or end them.
//!
//! By plan, not by chance, each client stands still for most of its timeout again and again, takes its session
//! to another server, and stands still for half of it once more: so there are always sessions that live by
//! nothing but the attach, and, where leaders change, by nothing but what the next one gives them.

use std::time::Instant;

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::op::Mode;

use super::{Body, Required, Workload};
use crate::client::{Client, Connected, Disconnected};
use crate::workload as w;

const ROOT: &str = "/session";
/// Parts of the timeout for which a client stands still before it goes to another server, in percent.
const STILL_BEFORE: u64 = 80;
/// The same behind it, before it asks for anything.
const STILL_BEHIND: u64 = 50;
/// Such a move begins so many timeouts behind the one before.
const TIMEOUTS_BETWEEN: u32 = 2;

/// The workload.
#[derive(Debug)]
pub struct Sessions;

impl Workload for Sessions {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { made: false, asleep_since: None, moves_at: None })
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
    /// When it takes its session to another server at the last moment.
    moves_at: Option<Instant>,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let own = format!("{ROOT}/{:x}", client.session());
        if !self.made {
            client.call(w::create(&own, "", Mode::Ephemeral))?;
            self.made = true;
            return Ok(());
        }
        let first = client.timeout() * u32::try_from(client.process() % 3).expect("below 3") / 3;
        if Instant::now() >= *self.moves_at.get_or_insert(Instant::now() + first) {
            return self.move_late(client);
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
    /// Goes to another server when the timeout is nearly over, and asks for nothing there for a while.
    fn move_late(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let part = |percent: u64| client.timeout() * u32::try_from(percent).expect("a part") / 100;
        let (before, behind, timeout) = (part(STILL_BEFORE), part(STILL_BEHIND), client.timeout());
        client.sleep(before);
        client.move_on();
        match client.connect(Instant::now() + timeout) {
            Some(Connected::Again) => client.sleep(behind),
            Some(Connected::New) => self.made = false,
            None => {}
        }
        self.moves_at = Some(Instant::now() + timeout * TIMEOUTS_BETWEEN);
        if !self.made {
            return Ok(());
        }
        client.call(w::exists(&format!("{ROOT}/{:x}", client.session()), false)).map(drop)
    }

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
