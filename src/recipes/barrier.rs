//! Waiting for a word, and for each other.
//!
//! *Owns* [`Barrier`], [`DoubleBarrier`] and [`Inside`]. *Invariants*: who waits watches one znode; who
//! gives up leaves neither a znode nor a watch; a meeting that is over, however it ended, does not
//! open the door of the next.
//!
//! Curator's `DistributedBarrier` and `DistributedDoubleBarrier`.

use std::collections::BTreeSet;

use zookeeper_client as zk;
use zookeeper_client::{Acls, Client, CreateMode};

use super::entry::{Entry, PARENTS_MADE_MAX, children, outlast, patiently};
use super::error::{LockError, LostReason};
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// A gate: while its znode is there, everybody waits.
#[derive(Clone, Debug)]
pub struct Barrier {
    options: RecipeOptions,
}

impl Barrier {
    /// The barrier at this path; its parents need not exist. Open to everybody.
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

    /// Sets it up, unless it is there. It stays until it is lifted, whatever becomes of us.
    ///
    /// # Errors
    /// No permission, the session is over, or another refusal.
    pub async fn set(&self, client: &Client) -> Result<(), LockError> {
        let RecipeOptions { path, id, acl, .. } = &self.options;
        let acls = Acls::new(acl);
        let (parent, _) = path.rsplit_once('/').expect("a path begins with a slash");
        let mut created = Err(zk::Error::NoNode);
        for _ in 0..PARENTS_MADE_MAX {
            let options = CreateMode::Persistent.with_acls(acls);
            created = patiently(|| client.create(path, id.as_bytes(), &options)).await.map(drop);
            if created != Err(zk::Error::NoNode) {
                break;
            }
            let options = CreateMode::Container.with_acls(acls);
            let made = patiently(|| client.mkdir(parent, &options)).await;
            made.map_err(|error| LockError::refused("create", parent, error))?;
        }
        match created {
            Ok(()) | Err(zk::Error::NodeExists) => Ok(()),
            Err(error) => Err(LockError::refused("create", path, error)),
        }
    }

    /// Lets everybody go on.
    ///
    /// # Errors
    /// No permission, the session is over, or another refusal.
    pub async fn lift(&self, client: &Client) -> Result<(), LockError> {
        remove(client, &self.options.path).await
    }

    /// Waits until it is lifted, or goes on at once if it is not there.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn pass(&self, client: &Client, wait: Wait) -> Result<(), LockError> {
        let path = &self.options.path;
        let pass = async {
            if wait.may_wait() {
                while outlast(client, path).await? && !mutant!("any-change-lifts-the-barrier") {}
                return Ok(());
            }
            match patiently(|| client.check_stat(path)).await {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err(self.options.held()),
                Err(error) => Err(LockError::refused("look at", path, error)),
            }
        };
        wait.bound(client.session_timeout(), || self.options.held(), pass).await
    }
}

/// A meeting: no member begins before all are there, and none goes before all have finished. Who comes
/// while a meeting goes on joins it.
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    options: RecipeOptions,
    members: usize,
}

impl DoubleBarrier {
    /// The barrier at this path, for so many members; the path's parents need not exist. Open to
    /// everybody.
    ///
    /// # Errors
    /// [`LockError::Path`], also for no members at all.
    pub fn new(options: impl Into<RecipeOptions>, members: usize) -> Result<Self, LockError> {
        let options = options.into().checked()?;
        if members == 0 {
            let reason = "without members, none could ever meet";
            return Err(LockError::Path { path: options.path, reason });
        }
        Ok(Self { options, members })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.options.path
    }

    /// Waits until all members are there. Dropping the future leaves.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn enter(&self, client: &Client, wait: Wait) -> Result<Inside, LockError> {
        let mut entry = Entry::new(client, &self.options, &Role::Member)?;
        let meet = self.meet(&mut entry, wait.may_wait());
        let met = wait.bound(client.session_timeout(), || self.options.held(), meet).await;
        let (entry, ()) = entry.settle(met).await?;
        Ok(Inside { entry, options: self.options.clone() })
    }

    async fn meet(&self, entry: &mut Entry, may_wait: bool) -> Result<(), LockError> {
        let path = &self.options.path;
        let client = entry.client().clone();
        let ready = format!("{path}/{READY}");
        sweep(&client, path).await?;
        entry.enter().await?;
        loop {
            let looked = patiently(|| client.check_and_watch_stat(&ready)).await;
            let (stat, watcher) =
                looked.map_err(|error| LockError::refused("look at", &ready, error))?;
            // After the watch was left: of all who look, the one that came last sees the others.
            let present = members(&client, path).await?;
            if !present.contains(entry.name()) {
                return Err(LockError::Lost(LostReason::Removed));
            }
            if stat.is_some() {
                return Ok(());
            }
            if present.len() >= self.members {
                let options = CreateMode::Persistent.with_acls(Acls::new(&self.options.acl));
                return match patiently(|| client.create(&ready, b"", &options)).await {
                    Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
                    Err(error) => Err(LockError::refused("create", &ready, error)),
                };
            }
            if !may_wait {
                return Err(self.options.held());
            }
            watcher.changed().await;
        }
    }
}

/// A member that is inside of a [`DoubleBarrier`]. Dropped, it does not wait for the others.
#[derive(Debug)]
#[must_use = "dropping it leaves at once"]
pub struct Inside {
    entry: Entry,
    options: RecipeOptions,
}

impl Inside {
    /// Waits until all who are inside now have finished. Whatever ends it, an error or the future
    /// being dropped, we have left.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    pub async fn leave(self, wait: Wait) -> Result<(), LockError> {
        let Self { entry, options } = self;
        let session = entry.client().session_timeout();
        let part = part(entry, &options, wait.may_wait());
        wait.bound(session, || options.held(), part).await
    }
}

/// The first by name goes last: it watches the others one after another, and they, whose znodes go at
/// once, watch it. Who comes only now is not waited for: it may have come for the next meeting.
async fn part(entry: Entry, options: &RecipeOptions, may_wait: bool) -> Result<(), LockError> {
    let path = &options.path;
    let client = entry.client().clone();
    let mut others = members(&client, path).await?;
    others.remove(entry.name());
    let goes_last = others.first().is_none_or(|other| entry.name() < other.as_str());
    let mut stays = Some(entry);
    if !goes_last && let Some(entry) = stays.take() {
        entry.withdraw(client.session_timeout()).await?;
    }
    while let Some(other) = if goes_last { others.last() } else { others.first() } {
        if !may_wait {
            return Err(options.held());
        }
        outlast(&client, &format!("{path}/{other}")).await?;
        let present = members(&client, path).await?;
        others.retain(|other| present.contains(other));
    }
    match stays {
        Some(entry) => close(entry, &format!("{path}/{READY}")).await,
        // The one that was to go last may have ended otherwise.
        None => sweep(&client, path).await,
    }
}

/// Ends the meeting together with the last membership: who has waited for that comes back to a closed
/// door.
async fn close(entry: Entry, ready: &str) -> Result<(), LockError> {
    let (client, own) = (entry.client().clone(), entry.path());
    let closed = patiently(|| async {
        let mut writer = client.new_multi_writer();
        writer.add_delete(ready, None)?;
        writer.add_delete(&own, None)?;
        writer.commit().await.map(drop).map_err(zk::Error::from)
    });
    match closed.await {
        // Without the one there is still the other.
        Ok(()) | Err(zk::Error::NoNode) => {}
        Err(error) => return Err(LockError::refused("delete", ready, error)),
    }
    entry.withdraw(client.session_timeout()).await.map(drop)
}

/// Removes the sign of a meeting of which no member is left.
async fn sweep(client: &Client, path: &str) -> Result<(), LockError> {
    match children(client, path).await?.as_slice() {
        [only] if only == READY => remove(client, &format!("{path}/{READY}")).await,
        _ => Ok(()),
    }
}

async fn members(client: &Client, path: &str) -> Result<BTreeSet<String>, LockError> {
    let children = children(client, path).await?;
    Ok(children.into_iter().filter(|name| name != READY).collect())
}

async fn remove(client: &Client, path: &str) -> Result<(), LockError> {
    match patiently(|| client.delete(path, None)).await {
        Ok(()) | Err(zk::Error::NoNode) => Ok(()),
        Err(error) => Err(LockError::refused("delete", path, error)),
    }
}

/// Says that all members are there.
const READY: &str = "ready";
