//! `watch`: clients that watch a few znodes while all of them change these, one or several in a
//! transaction, and that take their watches to other servers.
//!
//! Each sets the watches that a read sets, and one of three kinds that stay: a recursive one on the root, recursive
//! ones on the znodes below it, persistent ones on these. So each change concerns watches on several levels,
//! of different clients. By plan, each goes to another server again and again, and is away for long
//! enough that something changes meanwhile.

use std::time::{Duration, Instant};

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::op::{Call, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/watch";
/// Znodes that are watched, each with a child that comes and goes.
const NAMES: u64 = 5;
/// Znodes that are always there, and change several at a time.
const FIXED: u64 = 4;
/// A client goes to another server so often.
const STAYS: Duration = Duration::from_millis(1500);
/// Between two servers no leader hears of it for so long.
const AWAY: Duration = Duration::from_millis(100);

/// The workload.
#[derive(Debug)]
pub struct Watchers;

impl Workload for Watchers {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)?;
        (0..FIXED).try_for_each(|at| w::ensure(client, &fixed(at)))
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { watches: false, moves_at: None })
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

fn fixed(at: u64) -> String {
    format!("{ROOT}/fixed{at}")
}

fn named(at: u64) -> String {
    format!("{ROOT}/n{at}")
}

/// What one client knows.
struct One {
    /// Those that stay were asked for in this session.
    watches: bool,
    moves_at: Option<Instant>,
}

impl One {
    /// Sets the watches that stay.
    fn watch(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let add = |path: String, recursive| Call::AddWatch { path, recursive };
        let calls: Vec<Call> = match client.process() % 3 {
            0 => vec![add(ROOT.to_owned(), true)],
            1 => (0..NAMES).map(|at| add(named(at), true)).collect(),
            _ => (0..NAMES).map(|at| add(named(at), false)).collect(),
        };
        for call in calls {
            client.call(call)?;
        }
        self.watches = true;
        Ok(())
    }
}

/// Changes of three znodes at once.
fn changes(client: &mut Client) -> Call {
    let first = client.random().below(FIXED);
    let [a, b, c] = [0, 1, 2].map(|step| fixed((first + step) % FIXED));
    let child = format!("{b}/child");
    let child = match client.random().chance(50) {
        true => w::create(&child, "", Mode::Ephemeral),
        false => w::set(&b, "changed too", -1),
    };
    Call::Multi(vec![w::set(&c, "changed", -1), child, w::set(&a, "changed", -1)])
}

impl Body for One {
    fn session_is_new(&mut self) {
        self.watches = false;
    }

    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        client.forget_events(ROOT);
        if !self.watches {
            return self.watch(client);
        }
        let first = STAYS * u32::try_from(client.process() % 6).expect("below 6") / 6;
        if Instant::now() >= *self.moves_at.get_or_insert(Instant::now() + first) {
            self.moves_at = Some(Instant::now() + STAYS);
            client.move_on();
            std::thread::sleep(AWAY);
            return Ok(());
        }
        let path = named(client.random().below(NAMES));
        let child = format!("{path}/child");
        let call = match client.random().below(1000) {
            0..10 => {
                let until = Instant::now() + Duration::from_millis(300);
                return client.idle(until);
            }
            10..60 => changes(client),
            60..110 => w::delete(&format!("{}/child", fixed(client.random().below(FIXED))), -1),
            110..190 => Call::GetData { path: fixed(client.random().below(FIXED)), watch: true },
            190..260 => w::exists(&path, true),
            260..350 => Call::GetData { path, watch: true },
            350..450 => Call::GetChildren { path, watch: true, stat: true },
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
