//! The places of an HTTP port's connections, and which of them yields to a new one.
//!
//! *Owns* the table of the port's connections. *Invariants*: there are at most so many; a new connection
//! always gets a place, so that a health check is answered whatever strangers hold open; the one that
//! yields is of the address that holds the most, one that waits for its client before one that takes an
//! answer, and that before one that an answer is made for; of those, the one that has for the longest time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant};

use super::idle::{Activity, Phase};

/// The connections of one port.
#[derive(Debug)]
pub(super) struct Places {
    max: usize,
    table: Arc<Mutex<Table>>,
    /// How many have yielded since that was last said, and when that was.
    yielded: u64,
    said: Option<Instant>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    remote: IpAddr,
    activity: Arc<Activity>,
    /// What ends it, once it runs.
    task: Option<AbortHandle>,
}

/// A connection's place. Dropping it frees it.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    table: Arc<Mutex<Table>>,
    /// What the connection is doing.
    pub(super) activity: Arc<Activity>,
}

impl Places {
    /// All of them are free.
    pub(super) fn new(max: usize) -> Self {
        Self { max, table: Arc::default(), yielded: 0, said: None }
    }

    /// A place for a new connection from there. If there is none, another connection is ended.
    pub(super) fn take(&mut self, remote: IpAddr) -> Place {
        let mut table = lock(&self.table);
        if table.taken.len() >= self.max
            && let Some(number) = table.yielding()
            && let Some(Taken { task, .. }) = table.taken.remove(&number)
        {
            if let Some(task) = task {
                task.abort();
            }
            self.yielded += 1;
        }
        let number = table.next;
        table.next += 1;
        let activity = Activity::new();
        let taken = Taken { remote, activity: Arc::clone(&activity), task: None };
        table.taken.insert(number, taken);
        drop(table);
        self.complain();
        Place { number, table: Arc::clone(&self.table), activity }
    }

    /// The connection of this place is served by that task.
    pub(super) fn runs(&self, number: u64, task: AbortHandle) {
        // Absent if it has ended.
        if let Some(taken) = lock(&self.table).taken.get_mut(&number) {
            taken.task = Some(task);
        }
    }

    /// Says, now and then, that connections yield.
    fn complain(&mut self) {
        let is_new = self.said.is_none_or(|said| said.elapsed() >= COMPLAINT_INTERVAL);
        if self.yielded > 0 && is_new {
            let (yielded, max) = (self.yielded, self.max);
            tracing::warn!(target: "lockkeeper::admin::places", yielded, max,
                "all HTTP connections are taken: those that wait yield");
            (self.yielded, self.said) = (0, Some(Instant::now()));
        }
    }
}

impl Place {
    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.table).taken.remove(&self.number);
    }
}

impl Table {
    /// The connection that yields.
    fn yielding(&self) -> Option<u64> {
        let mut held: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for taken in self.taken.values() {
            *held.entry(taken.remote).or_default() += 1;
        }
        let most = held.values().copied().max()?;
        let of_most = self.taken.iter().filter(|(_, taken)| held[&taken.remote] == most);
        let order = |(number, taken): (&u64, &Taken)| {
            let (phase, since) = taken.activity.get();
            let rank = match phase {
                Phase::Idle | Phase::Requesting => 0,
                Phase::Writing => 1,
                Phase::Answering => 2,
            };
            (rank, since, *number)
        };
        of_most.map(order).min().map(|(_, _, number)| number)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // A panic ends the server.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between two lines about connections that yield.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn from(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    fn taken(places: &Places) -> Vec<u64> {
        lock(&places.table).taken.keys().copied().collect()
    }

    async fn later() {
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_waits_for_its_client_the_longest_yields() {
        let mut places = Places::new(4);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(places.take(from(1)));
            later().await;
        }
        held[0].activity.set(Phase::Answering);
        held[1].activity.set(Phase::Writing);
        held[2].activity.set(Phase::Idle);
        held.push(places.take(from(1)));
        assert_eq!(taken(&places), [0, 1, 2, 4], "3 has waited for longer than 2");
        held.push(places.take(from(1)));
        held.push(places.take(from(1)));
        assert_eq!(taken(&places), [0, 1, 5, 6]);
        held[5].activity.set(Phase::Answering);
        held[6].activity.set(Phase::Answering);
        later().await;
        held.push(places.take(from(1)));
        assert_eq!(taken(&places), [0, 5, 6, 7], "an answer that is being taken yields next");
        held[7].activity.set(Phase::Answering);
        held.push(places.take(from(1)));
        assert_eq!(taken(&places), [5, 6, 7, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_that_holds_the_most_yields_before_one_that_holds_few() {
        let mut places = Places::new(4);
        let monitor = places.take(from(1));
        later().await;
        let strangers = [(); 3].map(|()| places.take(from(2)));
        strangers.iter().for_each(|place| place.activity.set(Phase::Answering));
        let _health = places.take(from(3));
        assert_eq!(taken(&places), [0, 2, 3, 4]);
        drop(monitor);
        assert_eq!(taken(&places), [2, 3, 4]);
    }

    #[tokio::test]
    async fn a_place_is_free_when_its_connection_ends_and_its_task_ends_when_it_yields() {
        let mut places = Places::new(1);
        drop(places.take(from(1)));
        let place = places.take(from(1));
        let number = place.number();
        let task = tokio::spawn(async move {
            let _place = place;
            std::future::pending::<()>().await;
        });
        places.runs(number, task.abort_handle());
        let _next = places.take(from(1));
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(taken(&places), [2]);
    }
}
