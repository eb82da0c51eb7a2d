//! Two locks not to use, to compare the others with.
//!
//! *Owns* [`SimpleLock`] and [`ChildWatchLock`], which are in many tutorials. Both exclude, and both
//! have a *herd*: a release wakes everybody who waits, and all of them ask again: n waiters cost n
//! events and n requests, where [`Mutex`](super::Mutex) costs one. *Invariant*: apart from that they
//! are held, lost and given up like any other lock here, so that a comparison is one of the herds.

use zookeeper_client::Client;

use super::contest::Contest;
use super::entry::{Entry, outlast};
use super::error::LockError;
use super::guard::Guard;
use super::keeper::Standing;
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// One ephemeral znode, `lock`, that everybody tries to create. Not to be used: besides the herd, it
/// is not fair (who asks first after a release has it, and who is far from the leader may never), and
/// all holders have the same name: if somebody breaks the lock at the very moment at which its holder
/// gives it away, it is the next one's znode that the holder removes.
#[derive(Clone, Debug)]
pub struct SimpleLock {
    options: RecipeOptions,
}

impl SimpleLock {
    /// The lock in this directory; that and its parents need not exist. Open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(options: impl Into<RecipeOptions>) -> Result<Self, LockError> {
        Ok(Self { options: options.into().checked()? })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.options.path
    }

    /// Tries until it is ours. Dropping the future gives up.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        let mut entry = Entry::new(client, &self.options, &Role::Only)?;
        let session = client.session_timeout();
        let attempt = async {
            loop {
                match entry.enter().await {
                    Ok(led) => return Ok(Standing::at_first(led, led, session)),
                    Err(LockError::Held { .. }) if wait.may_wait() => {
                        // Everybody watches the same znode: here is the herd.
                        outlast(client, &entry.asked_path()).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let attempt = wait.bound(session, || self.options.held(), attempt).await;
        let (entry, standing) = entry.settle(attempt).await?;
        Ok(Guard::new(entry, standing, Vec::new()))
    }
}

/// The znodes of a [`Mutex`](super::Mutex), with which it can share the path, but who waits watches
/// the whole directory. Not to be used: besides the herd at a release, every arrival and every
/// departure of anybody wakes all who wait, too.
#[derive(Clone, Debug)]
pub struct ChildWatchLock {
    options: RecipeOptions,
}

impl ChildWatchLock {
    /// The lock at this path; its parents need not exist. Open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(options: impl Into<RecipeOptions>) -> Result<Self, LockError> {
        Ok(Self { options: options.into().checked()? })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.options.path
    }

    /// Enters the queue and waits for its turn. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        Contest { options: &self.options, role: &Role::Crowd }.enter(client, wait).await
    }
}
