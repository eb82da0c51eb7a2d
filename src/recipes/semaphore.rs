//! The lock of a limited number of holders.
//!
//! *Owns* [`Semaphore`]. *Invariants*: a lease is held when fewer than the limit are there that came
//! before it; who waits does so in a queue of its own, so that only one at a time watches the leases,
//! and one release wakes one waiter; whatever ends an attempt leaves neither a znode nor a watch
//! behind. *Never* knows the limit of the others: all who share a path must name the same.
//!
//! Curator's `InterProcessSemaphoreV2`: a mutex in `locks`, the holders' znodes in `leases`.

use zookeeper_client as zk;
use zookeeper_client::Client;

use super::boottime::BootTime;
use super::dialect::compare;
use super::entry::{Entry, patiently};
use super::error::{LockError, LostReason};
use super::guard::Guard;
use super::keeper::Standing;
use super::mutex::Mutex;
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// A lock that has several holders at a time, but not more than a limit.
#[derive(Clone, Debug)]
pub struct Semaphore {
    options: RecipeOptions,
    permits: usize,
}

impl Semaphore {
    /// The semaphore at this path, for at most `permits` holders at a time; the path's parents need
    /// not exist. Open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`], also for no permits at all.
    pub fn new(options: impl Into<RecipeOptions>, permits: usize) -> Result<Self, LockError> {
        let options = options.into().checked()?;
        if permits == 0 {
            let reason = "with no permits, no client could ever hold it";
            return Err(LockError::Path { path: options.path, reason });
        }
        Ok(Self { options, permits })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.options.path
    }

    /// Waits until a lease is ours. Those who wait come in the order of their arrival; who does not
    /// wait may overtake them if a lease is free. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        let leases = self.options.below(LEASES);
        let mut entry = Entry::new(client, &leases, &Role::Lease)?;
        let session = client.session_timeout();
        let turn = async {
            if wait.may_wait() {
                // Who waits for a lease is the first of this queue.
                let queue = Mutex::on(self.options.below(QUEUE));
                let first = queue.acquire(client, Wait::Forever).await?;
                let standing = self.lease(&mut entry, true).await;
                drop(first);
                standing
            } else {
                self.lease(&mut entry, false).await
            }
        };
        let turn = wait.bound(session, || self.options.held(), turn).await;
        let (entry, standing) = entry.settle(turn).await?;
        Ok(Guard::new(entry, standing, Vec::new()))
    }

    /// Enters a lease, and waits until it is one of the first.
    async fn lease(&self, entry: &mut Entry, may_wait: bool) -> Result<Standing, LockError> {
        let client = entry.client().clone();
        let dir = format!("{}/{LEASES}", self.options.path);
        let refused = |error| LockError::refused("look into", &dir, error);
        if !may_wait {
            match patiently(|| client.list_children(&dir)).await {
                // Without a lease of ours whose end would wake who waits.
                Ok(children) if children.len() >= self.permits => return Err(self.options.held()),
                Ok(_) | Err(zk::Error::NoNode) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        let led = entry.enter().await?;
        loop {
            let seen = BootTime::now();
            let listed = patiently(|| client.list_and_watch_children(&dir)).await;
            let (children, watcher) = match listed {
                Ok(listed) => listed,
                Err(zk::Error::NoNode) => return Err(LockError::Lost(LostReason::Removed)),
                Err(error) => return Err(refused(error)),
            };
            if !children.iter().any(|name| name == entry.name()) {
                return Err(LockError::Lost(LostReason::Removed));
            }
            // What is no lease we know nothing of; Curator counts it, too.
            let is_after = |name: &String| {
                let number = Role::Lease.rival(name);
                number.is_some_and(|number| compare(number, entry.sequence()).is_ge())
            };
            let before = children.iter().filter(|name| !is_after(name)).count();
            if before < self.permits {
                return Ok(Standing::at_first(led, seen, client.session_timeout()));
            }
            if !may_wait {
                return Err(self.options.held());
            }
            watcher.changed().await;
        }
    }
}

/// Where those queue who wait for a lease.
const QUEUE: &str = "locks";
/// Where the leases are.
const LEASES: &str = "leases";
