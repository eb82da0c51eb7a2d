//! Connections that have not said yet what they want, in the order in which they were accepted.
//!
//! *Owns* the table of them, by which the oldest can be made to yield its place to a new one.
//! *Invariants*: a connection that has asked for a session, or has proved to be another server, is not
//! in it any more and never yields; one that has said nothing yields before one that is being
//! answered; a place is free again only when the socket is closed. *Never* decides whether there is
//! room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::supervision::{Task, TaskSet};

/// The connections of one kind of port.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    table: Mutex<Table>,
    /// How many there were.
    accepted: AtomicU64,
    /// Connections that are open, whatever they have said.
    open: AtomicU64,
    /// Told when one of them has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// Those that have not said anything whole.
    silent: BTreeMap<u64, Ending>,
    /// Those that have asked for something and no session, and are being answered.
    asking: BTreeMap<u64, Ending>,
    /// Those that have said what they are and may not be many of that.
    groups: BTreeMap<Group, BTreeMap<u64, Ending>>,
}

/// Ends the task of a connection. Empty until the task is spawned: on another thread it may already run then.
type Ending = Arc<OnceLock<AbortHandle>>;

fn end(ending: &Ending) {
    if let Some(task) = ending.get() {
        task.abort();
    }
}

/// What connections have in common: the server that they are of, and what for.
pub(in crate::server) type Group = (u8, u8);

/// One connection. Dropping the last reference, which its sockets must not outlive, frees its place.
#[derive(Debug)]
pub(crate) struct Arrival {
    arrivals: Arc<Arrivals>,
    number: u64,
}

impl Arrivals {
    /// Runs the task of a new connection in a runtime: what `serve` makes of the place that it takes.
    pub(crate) fn spawn<F>(
        self: &Arc<Self>,
        task: Task,
        (tasks, runtime): (&mut TaskSet<()>, &Handle),
        serve: impl FnOnce(Arc<Arrival>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let arrivals = Arc::clone(self);
        let arrival = Arc::new(Arrival { arrivals, number });
        self.open.fetch_add(1, Ordering::Relaxed);
        let ending = Ending::default();
        self.lock().silent.insert(number, Arc::clone(&ending));
        // A runtime that ends drops the task, and its place, here.
        let handle = tasks.spawn_on(task, serve(arrival), runtime);
        // Cannot be there: it is set here only.
        let _ = ending.set(handle);
    }

    /// Connections that are open.
    #[must_use]
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections that have not said yet what they want.
    #[must_use]
    pub(crate) fn unknown(&self) -> usize {
        let table = self.lock();
        table.silent.len() + table.asking.len()
    }

    /// Ends the oldest connection that has not said what it wants, and waits until its socket is
    /// closed. False: there is none.
    pub(crate) async fn oldest_yields(&self) -> bool {
        let open = self.open();
        let Some(oldest) = self.lock().take_oldest() else { return false };
        end(&oldest);
        // Nothing is accepted meanwhile: this is done by who accepts.
        while self.open() >= open {
            self.ended.notified().await;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code that holds the lock can panic half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take_oldest(&mut self) -> Option<Ending> {
        let oldest = self.silent.pop_first().or_else(|| self.asking.pop_first());
        oldest.map(|(_, task)| task)
    }

    fn take(&mut self, number: u64) -> Option<Ending> {
        self.silent.remove(&number).or_else(|| self.asking.remove(&number))
    }

    fn take_from_groups(&mut self, number: u64) {
        self.groups.retain(|_, group| {
            group.remove(&number);
            !group.is_empty()
        });
    }
}

impl Arrival {
    /// It has asked for something that is answered at once, and for no session.
    pub(crate) fn asks(&self) {
        let mut table = self.arrivals.lock();
        if let Some(task) = table.silent.remove(&self.number) {
            table.asking.insert(self.number, task);
        }
    }

    /// It has said what it is, and never yields from now on.
    pub(crate) fn is_known(&self) {
        self.arrivals.lock().take(self.number);
    }

    /// It has said what it is. Of more than `max` of that, the oldest ends.
    pub(crate) fn is_known_as(&self, group: Group, max: usize) {
        let mut table = self.arrivals.lock();
        let Some(task) = table.take(self.number) else { return };
        let members = table.groups.entry(group).or_default();
        members.insert(self.number, task);
        if members.len() > max
            && let Some((_, oldest)) = members.pop_first()
        {
            end(&oldest);
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut table = self.arrivals.lock();
        table.take(self.number);
        table.take_from_groups(self.number);
        drop(table);
        self.arrivals.open.fetch_sub(1, Ordering::Relaxed);
        self.arrivals.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    /// Connections that wait, each with its place.
    fn arrive(
        arrivals: &Arc<Arrivals>,
        tasks: &mut TaskSet<()>,
        count: usize,
    ) -> Vec<Arc<Arrival>> {
        let (sender, places) = std::sync::mpsc::channel();
        for _ in 0..count {
            arrivals.spawn(Task::Peer, (tasks, &Handle::current()), |arrival| {
                sender.send(Arc::clone(&arrival)).expect("received below");
                async move {
                    pending::<()>().await;
                    drop(arrival);
                }
            });
        }
        places.try_iter().collect()
    }

    /// The numbers of those that yield, until none does.
    async fn all_yield(arrivals: &Arc<Arrivals>, places: Vec<Arc<Arrival>>) -> Vec<u64> {
        let mut watched: Vec<_> = places.iter().map(|at| (at.number, Arc::downgrade(at))).collect();
        drop(places);
        let mut order = Vec::new();
        while arrivals.oldest_yields().await {
            watched.retain(|(number, place)| {
                let is_gone = place.strong_count() == 0;
                order.extend(is_gone.then_some(*number));
                !is_gone
            });
        }
        order
    }

    #[tokio::test]
    async fn the_oldest_yield_first_and_those_that_are_answered_behind_the_silent_ones() {
        let (arrivals, mut tasks) = (Arc::default(), TaskSet::default());
        let places = arrive(&arrivals, &mut tasks, 6);
        places[0].asks();
        places[2].is_known();
        places[3].asks();
        places[3].is_known();
        assert_eq!((arrivals.open(), arrivals.unknown()), (6, 4));
        assert_eq!(all_yield(&arrivals, places).await, [2, 5, 6, 1]);
        assert_eq!((arrivals.open(), arrivals.unknown()), (2, 0));
    }

    #[tokio::test]
    async fn of_too_many_that_are_the_same_the_oldest_ends() {
        let (arrivals, mut tasks) = (Arc::default(), TaskSet::default());
        let places = arrive(&arrivals, &mut tasks, 5);
        for (place, group) in places.iter().zip([(1, 1), (1, 2), (1, 1), (2, 1), (1, 1)]) {
            place.is_known_as(group, 2);
        }
        drop(places);
        assert!(tasks.join_next().await.expect("one ends").expect_err("aborted").is_cancelled());
        assert_eq!((arrivals.open(), arrivals.unknown(), arrivals.lock().groups.len()), (4, 0, 3));
        tasks.shutdown().await;
        assert_eq!((arrivals.open(), arrivals.lock().groups.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_place_is_free_when_the_connection_ends_by_itself() {
        let (arrivals, mut tasks): (Arc<Arrivals>, _) = (Arc::default(), TaskSet::default());
        let runtime = Handle::current();
        arrivals.spawn(Task::Peer, (&mut tasks, &runtime), |arrival| async move { drop(arrival) });
        tasks.join_next().await.expect("one").expect("no panic");
        assert_eq!((arrivals.open(), arrivals.unknown()), (0, 0));
    }
}
