//! `lock` and `rw-lock`: ZooKeeper's recipes, with clients that fall asleep while they hold one.
//!
//! *Owns* what a client knows of its place in a queue. A client asks with an ephemeral sequential
//! znode whose name it can find again, watches the one that stands before it, and works on what the
//! lock guards when there is none. Some sleep between reading and writing for longer than their
//! session lasts: the control, for a store that asks for no token must lose writes then. When the
//! faults are over each gets a lock once more before it leaves: that shows that the locks still work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::history::CLIENT_SLEEP;
use lockkeeper_check::op::{Answer, Code, Mode};
use lockkeeper_check::path;

use super::guarded::Guarded;
use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

/// Locks that clients contend for.
const LOCKS: usize = 2;
/// A step waits for a watch so long; the next goes on waiting.
const WAIT: Duration = Duration::from_millis(250);
/// A lock is held for so long at most by who is awake.
const WORK_MAX: Duration = Duration::from_millis(20);
/// Readers among those who ask for a shared lock, in percent.
const READERS_PERCENT: u64 = 60;
/// How often who may fall asleep does, in percent.
const SLEEP_PERCENT: u64 = 4;
/// Who slept does not for so many timeouts.
const AWAKE: u32 = 8;
/// Who has no lock so long after the faults leaves; it is less than a client has to finish.
const PATIENCE: Duration = Duration::from_secs(25);
/// The client that falls asleep as soon as it can, so that every run has one that does.
const SLEEPER: u64 = 1;

/// The workload.
#[derive(Debug)]
pub struct Locks {
    root: &'static str,
    is_shared: bool,
    stores: Arc<Vec<Guarded>>,
}

impl Locks {
    /// One holder at a time.
    #[must_use]
    pub fn exclusive() -> Self {
        Self::new("/lock", false)
    }

    /// One writer, or readers.
    #[must_use]
    pub fn shared() -> Self {
        Self::new("/rw-lock", true)
    }

    fn new(root: &'static str, is_shared: bool) -> Self {
        let stores = (0..LOCKS).map(|at| Guarded::new(format!("{}.{at}", &root[1..])));
        Self { root, is_shared, stores: Arc::new(stores.collect()) }
    }
}

fn lock(root: &str, at: usize) -> String {
    format!("{root}/{at}")
}

impl Workload for Locks {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, self.root)?;
        (0..LOCKS).try_for_each(|at| w::ensure(client, &lock(self.root, at)))
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One {
            root: self.root,
            is_shared: self.is_shared,
            stores: self.stores.clone(),
            asked: 0,
            place: None,
            slept: None,
            leaves_at: None,
            is_served: false,
        })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        (0..LOCKS).try_for_each(|at| w::read_all(client, &lock(self.root, at)))
    }

    fn required(&self) -> Required {
        Required {
            always: &["fencing"],
            with_account: &["witness", "locks", "belief", "liveness", "sequence", "ephemerals"],
        }
    }

    fn planned(&self) -> Vec<Planned> {
        let mut planned = vec![
            w::at_least(10, Event::LockGranted),
            w::at_least(1, Event::WatchFired),
            w::at_least(1, Event::Expiry),
            w::at_least(1, Event::Fault(CLIENT_SLEEP.to_owned())),
        ];
        if !self.is_shared {
            planned.push(w::at_least(1, Event::LostWithoutFencing));
        }
        planned
    }
}

/// What one client knows.
struct One {
    root: &'static str,
    is_shared: bool,
    stores: Arc<Vec<Guarded>>,
    /// How often it asked for a lock.
    asked: u64,
    place: Option<Place>,
    slept: Option<Instant>,
    /// When it leaves with or without a lock, the faults being over.
    leaves_at: Option<Instant>,
    /// It had a lock once the faults were over.
    is_served: bool,
}

/// A place in the queue for a lock.
struct Place {
    store: usize,
    lock: String,
    /// The znode's name before its number: nobody else's is like it.
    begin: String,
    /// Path and token, once they are known.
    znode: Option<(String, i64)>,
    /// A create was sent whose answer was lost.
    is_unsure: bool,
    /// The znode that it waits to be gone.
    behind: Option<String>,
    /// The work is done, the znode is to go.
    is_leaving: bool,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let mut place = match self.place.take() {
            Some(place) => place,
            None => self.ask(client),
        };
        let done = self.advance(client, &mut place);
        if !matches!(done, Ok(true)) {
            self.place = Some(place);
        }
        done.map(drop)
    }

    fn session_is_new(&mut self) {
        self.place = None;
    }

    fn finish(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let leaves_at = *self.leaves_at.get_or_insert_with(|| Instant::now() + PATIENCE);
        while !self.is_served && Instant::now() < leaves_at {
            self.step(client)?;
            self.is_served = self.place.is_none();
        }
        let Some((znode, _)) = self.place.as_ref().and_then(|place| place.znode.clone()) else {
            return Ok(());
        };
        client.let_go();
        client.call(w::delete(&znode, -1))?;
        self.place = None;
        Ok(())
    }
}

impl One {
    /// Chooses a lock to ask for.
    fn ask(&mut self, client: &mut Client) -> Place {
        self.asked += 1;
        let store = client.random().index(LOCKS);
        let reads = self.is_shared && client.random().chance(READERS_PERCENT);
        let kind = if reads { path::SHARED } else { "write-" };
        Place {
            store,
            lock: lock(self.root, store),
            begin: format!("{kind}{}.{}-", client.process(), self.asked),
            znode: None,
            is_unsure: false,
            behind: None,
            is_leaving: false,
        }
    }

    /// Comes closer to the lock. Whether this place is done with.
    fn advance(&mut self, client: &mut Client, place: &mut Place) -> Result<bool, Disconnected> {
        let (znode, token) = match &place.znode {
            Some(known) => known.clone(),
            None => match place.queue_up(client)? {
                Some(found) => place.znode.insert(found).clone(),
                None => return Ok(false),
            },
        };
        if place.is_leaving {
            client.call(w::delete(&znode, -1))?;
            return Ok(true);
        }
        if let Some(before) = &place.behind {
            if !client.wait_for(before, Instant::now() + WAIT)? {
                return Ok(false);
            }
            place.behind = None;
        }
        let reply = client.call(w::list(&place.lock))?;
        let mut names = w::names(&reply);
        names.sort_by_key(|name| path::trailing_number(name));
        let own = w::name_of(&znode);
        let Some(at) = names.iter().position(|name| name == own) else {
            client.let_go();
            return Ok(true);
        };
        if let Some(before) = before(&names, at) {
            let before = format!("{}/{before}", place.lock);
            if client.call(w::exists(&before, true))?.result.is_ok() {
                place.behind = Some(before);
            }
            return Ok(false);
        }
        client.hold(&place.lock, &znode, token);
        self.work(client, place.store, token, own.starts_with(path::SHARED))?;
        client.let_go();
        place.is_leaving = true;
        client.call(w::delete(&znode, -1))?;
        Ok(true)
    }

    /// What the lock is for.
    fn work(
        &mut self,
        client: &mut Client,
        store: usize,
        token: i64,
        only_reads: bool,
    ) -> Result<(), Disconnected> {
        let seen = self.stores[store].read(token);
        if !only_reads && self.falls_asleep(client) {
            // Whether it still holds the lock it would have to ask now. It does not: a process may
            // be stopped right behind the question.
            let timeout = client.timeout();
            let time = client.random().between(timeout.mul_f64(1.3), timeout.mul_f64(2.5));
            client.sleep(time);
        } else {
            let time = client.random().between(Duration::ZERO, WORK_MAX);
            client.idle(Instant::now() + time)?;
        }
        if !only_reads {
            self.stores[store].count_up(client, token, seen);
        }
        Ok(())
    }

    fn falls_asleep(&mut self, client: &mut Client) -> bool {
        let is_awake_long = match self.slept {
            Some(slept) => slept.elapsed() >= client.timeout() * AWAKE,
            None if client.process() == SLEEPER => {
                self.slept = Some(Instant::now());
                return true;
            }
            None => true,
        };
        let sleeps = is_awake_long && client.random().chance(SLEEP_PERCENT);
        if sleeps {
            self.slept = Some(Instant::now());
        }
        sleeps
    }
}

/// Who must be gone before the one at a place may hold the lock; the names are in order.
fn before(names: &[String], at: usize) -> Option<&String> {
    let is_reader = names[at].starts_with(path::SHARED);
    names[..at].iter().rfind(|name| !is_reader || !name.starts_with(path::SHARED))
}

impl Place {
    /// Takes its place, or finds the one that it has. `None` if that has to be tried again.
    fn queue_up(&mut self, client: &mut Client) -> Result<Option<(String, i64)>, Disconnected> {
        if self.is_unsure {
            client.call(w::sync(&self.lock))?;
            let reply = client.call(w::list(&self.lock))?;
            let own = w::names(&reply).into_iter().find(|name| name.starts_with(&self.begin));
            if let Some(own) = own {
                let znode = format!("{}/{own}", self.lock);
                let reply = client.call(w::exists(&znode, false))?;
                let Ok(Answer::Stat(stat)) = reply.result else { return Ok(None) };
                return Ok(Some((znode, stat.czxid)));
            }
        }
        self.is_unsure = true;
        let asked = format!("{}/{}", self.lock, self.begin);
        let reply = client.call(w::create(&asked, "", Mode::EphemeralSequential))?;
        self.is_unsure = false;
        match reply.result {
            Ok(Answer::PathStat(znode, stat)) => Ok(Some((znode, stat.czxid))),
            Ok(_) | Err(Code(_)) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_whoever_is_before_it_and_a_reader_for_the_last_writer() {
        let names: Vec<String> =
            ["read-a", "write-b", "read-c", "read-d", "write-e"].map(str::to_owned).to_vec();
        let before = |at| before(&names, at).map(String::as_str);
        assert_eq!(before(0), None);
        assert_eq!(before(1), Some("read-a"));
        assert_eq!(before(2), Some("write-b"));
        assert_eq!(before(3), Some("write-b"));
        assert_eq!(before(4), Some("read-d"));
    }
}
