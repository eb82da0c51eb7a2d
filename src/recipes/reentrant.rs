//! The lock that its owner can take again.
//!
//! *Owns* [`ReentrantMutex`], [`Owner`] and [`ReentrantGuard`]. *Invariants*: of all guards of one
//! owner only the first asks a server, and only the end of the last gives the lock away; who is lost
//! is lost for all of them. *Never* takes a thread or a task for an owner: tasks move between
//! threads, and work between tasks; an owner is who has the [`Owner`], or a clone of it.
//!
//! Curator's `InterProcessMutex`, whose owner is a thread.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync;
use zookeeper_client::Client;

use super::error::LockError;
use super::guard::Guard;
use super::keeper::Hold;
use super::mutex::Mutex;
use super::wait::Wait;

/// An exclusive lock that its owner can take again and again.
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    mutex: Mutex,
}

impl ReentrantMutex {
    /// The lock that `mutex` is.
    #[must_use]
    pub fn new(mutex: Mutex) -> Self {
        Self { mutex }
    }

    /// One who may own the lock. Two of them exclude each other, also on the same client.
    #[must_use]
    pub fn owner(&self, client: &Client) -> Owner {
        let held = Arc::default();
        Owner { mutex: self.mutex.clone(), client: client.clone(), held }
    }
}

/// One who may own a [`ReentrantMutex`]; its clones are the same one.
#[derive(Clone, Debug)]
pub struct Owner {
    mutex: Mutex,
    client: Client,
    held: Arc<sync::Mutex<Weak<Guard>>>,
}

impl Owner {
    /// Takes the lock: at once if this owner has it, or else as [`Mutex::acquire`] does.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over; [`LockError::Lost`] if this owner has had
    /// the lock, has lost it, and not all of its guards have been dropped yet; and whatever else a
    /// server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, wait: Wait) -> Result<ReentrantGuard, LockError> {
        let begun = Instant::now();
        let taken = || LockError::Held { path: self.mutex.path().to_string() };
        let mut held = if wait.may_wait() {
            let session = self.client.session_timeout();
            wait.bound(session, taken, async { Ok(self.held.lock().await) }).await?
        } else {
            // Another task of this owner waits for the lock.
            self.held.try_lock().map_err(|_| taken())?
        };
        if let Some(guard) = held.upgrade() {
            return match guard.hold() {
                Hold::Lost(reason) => Err(LockError::Lost(reason)),
                Hold::Held | Hold::Jeopardy => Ok(ReentrantGuard { guard }),
            };
        }
        let guard = Arc::new(self.mutex.acquire(&self.client, wait.after(begun)).await?);
        *held = Arc::downgrade(&guard);
        Ok(ReentrantGuard { guard })
    }
}

/// A [`Guard`] that is shared with the other guards of its [`Owner`].
#[derive(Debug)]
#[must_use = "dropping the last guard of an owner gives the lock away"]
pub struct ReentrantGuard {
    guard: Arc<Guard>,
}

impl ReentrantGuard {
    /// Gives the lock away if this is the owner's last guard, and returns when the server has
    /// confirmed it. Tells whether it was.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<bool, LockError> {
        match Arc::into_inner(self.guard) {
            Some(guard) => guard.release().await.map(|()| true),
            None => Ok(false),
        }
    }
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
