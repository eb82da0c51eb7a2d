//! Several locks at once: all of them, or none.
//!
//! *Owns* [`MultiLock`] and [`MultiGuard`]. *Invariants*: they are taken in the order of their paths,
//! so that two who want some of the same cannot wait for each other; who does not get one gives
//! back the others; the loss of one is the loss of all.
//!
//! Curator's `InterProcessMultiLock`, which takes its locks in the order in which they are given.

use std::time::Instant;

use tokio::task::JoinSet;
use zookeeper_client::Client;

use super::boottime::BootTime;
use super::error::{LockError, LostReason};
use super::guard::Guard;
use super::keeper::Hold;
use super::mutex::Mutex;
use super::wait::Wait;

/// Several exclusive locks that are held together.
#[derive(Clone, Debug)]
pub struct MultiLock {
    mutexes: Vec<Mutex>,
}

impl MultiLock {
    /// All of these, in whatever order.
    ///
    /// # Errors
    /// [`LockError::Path`] if there is none, or one path twice.
    pub fn new(mutexes: impl IntoIterator<Item = Mutex>) -> Result<Self, LockError> {
        let mut mutexes: Vec<Mutex> = mutexes.into_iter().collect();
        mutexes.sort_by(|one, other| one.path().cmp(other.path()));
        let twice = mutexes.windows(2).find(|pair| pair[0].path() == pair[1].path());
        let fault = match twice {
            Some(pair) => Some((pair[0].path(), "it would wait for itself")),
            None if mutexes.is_empty() => Some(("", "there is no lock at all")),
            None => None,
        };
        match fault {
            Some((path, reason)) => Err(LockError::Path { path: path.to_string(), reason }),
            None => Ok(Self { mutexes }),
        }
    }

    /// Waits for all of them, no longer than `wait` in sum. Dropping the future leaves all queues.
    ///
    /// # Errors
    /// [`LockError::Held`] with the path of the first that others hold when the time to wait is over,
    /// and whatever else a server says. Those that were acquired are given away, then.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, client: &Client, wait: Wait) -> Result<MultiGuard, LockError> {
        let begun = Instant::now();
        let mut held = MultiGuard { guards: Vec::new() };
        for mutex in &self.mutexes {
            // One that was lost meanwhile will not come back.
            let left = if mutant!("waits-anew-for-each-lock") { wait } else { wait.after(begun) };
            let next = mutex.acquire(client, left);
            let next = tokio::select! {
                biased;
                reason = held.lost() => Err(LockError::Lost(reason)),
                next = next => next,
            };
            match next {
                Ok(guard) => held.guards.push(guard),
                Err(error) => {
                    // It is the reason why there is no lock that matters.
                    let _ = held.release().await;
                    return Err(error);
                }
            }
        }
        Ok(held)
    }
}

/// Several locks that are held, until this is dropped or released, or one of them is lost.
#[derive(Debug)]
#[must_use = "dropping the guard gives the locks away"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards of the locks, in the order of the paths. Each has its own token.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// How sure it is, at this moment, that all of them are held.
    #[must_use]
    pub fn hold(&self) -> Hold {
        let holds = self.guards.iter().map(Guard::hold);
        holds.fold(Hold::Held, |worst, hold| match (worst, hold) {
            (Hold::Lost(reason), _) | (_, Hold::Lost(reason)) => Hold::Lost(reason),
            (Hold::Jeopardy, _) | (_, Hold::Jeopardy) => Hold::Jeopardy,
            (Hold::Held, Hold::Held) => Hold::Held,
        })
    }

    /// All of them are ours until then, even if no server answers any more.
    ///
    /// # Panics
    /// Never: there is at least one.
    #[must_use]
    pub fn deadline(&self) -> BootTime {
        self.guards.iter().map(Guard::deadline).min().expect("there is at least one")
    }

    /// Waits until one of them is lost.
    pub async fn lost(&self) -> LostReason {
        let mut watches = JoinSet::new();
        for guard in &self.guards {
            let mut watch = guard.watch();
            watches.spawn(async move { watch.lost().await });
        }
        match watches.join_next().await {
            Some(Ok(reason)) => reason,
            // Nothing is held yet, or the runtime is ending.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// Runs `body` for as long as all of them are held: with the loss of one, it is dropped where it
    /// waits.
    ///
    /// # Errors
    /// [`LockError::Lost`] before it was finished.
    pub async fn with<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(LockError::Lost(reason)),
            done = body => Ok(done),
        }
    }

    /// Gives all of them away, the last acquired first, and returns when the server has confirmed it.
    ///
    /// # Errors
    /// The first error of [`Guard::release`]; the others are given away nevertheless.
    pub async fn release(self) -> Result<(), LockError> {
        let mut released = Ok(());
        for guard in self.guards.into_iter().rev() {
            released = released.and(guard.release().await);
        }
        released
    }
}
