//! Busy leaders: clients ask for more than a leader can do, and it keeps its office.
//!
//! *Owns* what they ask: reads that look at much and answer little, writes behind such reads, and a session that ends
//! with all its ephemerals. Work takes time here, as much as the product estimates. *Rules*: a leader that is not cut
//! off keeps its office, and a client that asks for little is answered within [`NEIGHBOUR_US_MAX`]: no request or
//! transaction takes longer by itself.

use lockkeeper_core::proto::request::{Create, CreateKind, SetWatches};
use lockkeeper_core::proto::{Acl, Request, Text};
use lockkeeper_core::replica::Replica;

use super::conn::Violation;
use super::removals::world::World;
use super::rng::Rng;

/// The connection of the busy client, of one that asks for little, and of one that writes all the time.
const BUSY: u64 = 1;
const NEIGHBOUR: u64 = 2;
const WRITER: u64 = 3;
/// Longest time that a small read may wait.
const NEIGHBOUR_US_MAX: u64 = 40_000;
/// Requests that one client sends in one go.
const AT_ONCE: i32 = 1000;

/// A seed that went well.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// Longest time that a small read waited, microseconds.
    pub waited_us: u64,
    pub simulated_ms: u64,
}

/// Plays a seed.
///
/// # Errors
/// The rule that was broken.
pub fn run(seed: u64) -> Result<Played, Violation> {
    let rng = Rng::new(seed, 43);
    let mut world = World::new(rng, 3, &[1, 2, 3], false);
    world.until("a leader", |world| world.serving().is_some())?;
    let leader = world.serving().ok_or("it was there")?;
    world.until("all serve", |world| {
        world.ids().all(|id| world.replica(id).is_some_and(Replica::is_serving))
    })?;
    let mut play = Play { world, leader, xid: 0, waited_us: 0 };
    for conn in [BUSY, NEIGHBOUR, WRITER] {
        play.world.connect(leader, conn);
        play.world.until("a session", |world| !world.answers(leader, conn).is_empty())?;
    }
    play.world.writer = Some((leader, WRITER));
    let term = play.term();
    let owned = 2000 + play.world.rng.below(4000) as i32;
    play.ask((0..owned).map(|number| ephemeral(&format!("/e{number}"))).collect())?;
    for _ in 0..1 + play.world.rng.below(3) {
        let requests = play.draw(owned);
        play.ask(requests)?;
    }
    if play.world.rng.chance(500) {
        play.ask(vec![Request::CloseSession])?;
    }
    play.world.pass(1_000_000)?;
    let is_in_office = play.world.serving() == Some(leader) && play.term() == term;
    if !is_in_office {
        return Err(format!("the leader of term {term} was busy, and lost its office"));
    }
    let Play { world, waited_us, .. } = play;
    Ok(Played { waited_us, simulated_ms: world.now_us / 1000 })
}

/// For how long a seed that went well was simulated.
pub fn simulated_ms(played: &Result<Played, Violation>) -> Option<u64> {
    played.as_ref().ok().map(|played| played.simulated_ms)
}

struct Play {
    world: World,
    leader: u8,
    xid: i32,
    waited_us: u64,
}

impl Play {
    fn term(&self) -> u64 {
        self.world.replica(self.leader).map_or(0, |replica| replica.status().term)
    }

    /// Much that costs much.
    fn draw(&mut self, owned: i32) -> Vec<Request> {
        let kind = self.world.rng.below(3);
        let writes = self.world.rng.chance(300);
        (0..AT_ONCE)
            .map(|number| match kind {
                _ if writes && number % 300 == 299 => create(&format!("/w{}-{number}", self.xid)),
                0 => Request::GetEphemerals { prefix: Some("/none".into()) },
                1 => Request::GetEphemerals { prefix: Some(format!("/e{}", owned - 1).into()) },
                _ => Request::SetWatches {
                    watches: SetWatches {
                        relative_zxid: i64::MAX,
                        data: (0..300).map(|path| Text::from(format!("/e{path}"))).collect(),
                        ..SetWatches::default()
                    },
                    two: false,
                },
            })
            .collect()
    }

    /// Asks for this in one go, and for little beside it, until all is answered.
    fn ask(&mut self, requests: Vec<Request>) -> Result<(), Violation> {
        let from = self.xid;
        let requests: Vec<(i32, Request)> = (from + 1..).zip(requests).collect();
        let last = requests.last().map_or(from, |(xid, _)| *xid);
        self.xid = last + 1;
        self.world.ask_all(self.leader, BUSY, &requests);
        let leader = self.leader;
        loop {
            self.xid += 1;
            let (xid, asked_us) = (self.xid, self.world.now_us);
            let exists = Request::Exists { path: "/".into(), watch: false };
            self.world.ask_busy(leader, NEIGHBOUR, xid, exists);
            self.world.until("a small read", |world| {
                world.answer(leader, NEIGHBOUR, xid).is_some() || world.is_closed(leader, NEIGHBOUR)
            })?;
            let waited_us = self.world.now_us - asked_us;
            self.waited_us = self.waited_us.max(waited_us);
            if waited_us > NEIGHBOUR_US_MAX {
                return Err(format!("a small read waited for {waited_us} us"));
            }
            let is_over = self.world.answer(leader, BUSY, last).is_some();
            if is_over || self.world.is_closed(leader, BUSY) {
                return Ok(());
            }
            self.world.pass(3_000)?;
        }
    }
}

fn create(path: &str) -> Request {
    let acl = Some(vec![Acl::open()]);
    let (kind, path) = (CreateKind::Create, path.into());
    Request::Create(Create { kind, path, data: None, acl, flags: 0, ttl_ms: 0 })
}

fn ephemeral(path: &str) -> Request {
    match create(path) {
        Request::Create(create) => Request::Create(Create { flags: 1, ..create }),
        other => other,
    }
}
