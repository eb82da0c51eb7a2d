//! The lock of many readers or one writer.
//!
//! *Owns* [`ReadWriteLock`] and [`WriteGuard`]. *Invariants*: those of `contest.rs`; a reader waits for
//! the nearest writer before it only, a writer for the nearest contender of any kind, so neither
//! overtakes the other for ever; a writer becomes a reader in one transaction, in which no other can
//! come between. *Never* makes a reader a writer: two readers that tried would wait for each other.
//!
//! Curator's `InterProcessReadWriteLock`.

use std::ops::Deref;

use zookeeper_client::Client;

use super::contest::Contest;
use super::dialect::SharedStyle;
use super::error::LockError;
use super::guard::Guard;
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// A lock that many can hold to read, or one to write.
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    options: RecipeOptions,
    style: SharedStyle,
}

impl ReadWriteLock {
    /// The lock at this path; its parents need not exist. Curator's layout, open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(options: impl Into<RecipeOptions>) -> Result<Self, LockError> {
        Ok(Self { options: options.into().checked()?, style: SharedStyle::default() })
    }

    /// Names our contenders as others do who share the path.
    #[must_use]
    pub fn style(mut self, style: SharedStyle) -> Self {
        self.style = style;
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.options.path
    }

    /// Waits until no writer is before us. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn read(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        Contest { options: &self.options, role: &Role::Read(self.style) }.enter(client, wait).await
    }

    /// Waits until no other contender is in front. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn write(&self, client: &Client, wait: Wait) -> Result<WriteGuard, LockError> {
        let contest = Contest { options: &self.options, role: &Role::Write(self.style) };
        let guard = contest.enter(client, wait).await?;
        Ok(WriteGuard { guard, style: self.style })
    }
}

/// A [`ReadWriteLock`] that is held to write: a [`Guard`], and more.
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock away"]
pub struct WriteGuard {
    guard: Guard,
    style: SharedStyle,
}

impl WriteGuard {
    /// Goes on as a reader, without a moment in between at which another could write; readers that
    /// wait behind us have their turn at once. The fencing token stays the same: a new one would be
    /// greater than that of the writer who waits already, and comes later.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it was not held any more, or whatever else a server says. With an error,
    /// or if the future is dropped, the lock is given away.
    pub async fn downgrade(self) -> Result<Guard, LockError> {
        self.guard.exchange(&Role::Read(self.style)).await
    }

    /// Gives the lock away, and returns when the server has confirmed it.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<(), LockError> {
        self.guard.release().await
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<WriteGuard> for Guard {
    fn from(write: WriteGuard) -> Self {
        write.guard
    }
}
