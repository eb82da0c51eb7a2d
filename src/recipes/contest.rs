//! One contest for a lock: enter the queue, and wait for one's turn.
//!
//! *Owns* [`Contest`]. *Invariants*: grants come in the order in which the contenders entered; a waiter
//! watches the data of the nearest contender before it that concerns it (a read, so that no watch is
//! left on what is not there), and nothing else, except for the role that is there to show why;
//! whatever ends an attempt (timeout, error, or its future being dropped) leaves neither a znode nor a
//! watch behind.

use std::collections::BTreeSet;

use zookeeper_client as zk;
use zookeeper_client::{Client, OneshotWatcher};

use super::boottime::BootTime;
use super::dialect::Dialect;
use super::entry::{Entry, outlast, patiently};
use super::error::{LockError, LostReason};
use super::guard::Guard;
use super::keeper::Standing;
use super::options::RecipeOptions;
use super::queue::Place;
use super::role::Role;
use super::wait::Wait;

/// What is contended for, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest<'a> {
    pub(super) options: &'a RecipeOptions,
    pub(super) role: &'a Role,
}

impl Contest<'_> {
    /// Enters the queue and waits for its turn. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub(super) async fn enter(self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        let mut entry = Entry::new(client, self.options, self.role)?;
        let session = client.session_timeout();
        let turn = self.turn(&mut entry, wait.may_wait());
        let turn = wait.bound(session, || self.options.held(), turn).await;
        let (entry, Turn { standing, strangers }) = entry.settle(turn).await?;
        Ok(Guard::new(entry, standing, strangers))
    }

    /// Waits until no other is in front of the entry.
    async fn turn(self, entry: &mut Entry, may_wait: bool) -> Result<Turn, LockError> {
        let led = entry.enter().await?;
        let client = entry.client().clone();
        let dir = &self.options.path;
        let mut strangers = BTreeSet::new();
        loop {
            let seen = BootTime::now();
            let (children, watcher) = match self.look(&client).await {
                Ok(looked) => looked,
                Err(zk::Error::NoNode) => (Vec::new(), None),
                Err(error) => return Err(LockError::refused("look into", dir, error)),
            };
            // Those that have left by the time of our turn may come again.
            let present = self.role.strangers(&children);
            strangers.extend(present.iter().copied());
            let rival = |name: &str| self.role.rival(name);
            match Place::of(entry.name(), entry.sequence(), &children, rival) {
                Place::First => {
                    self.judge(&present, &strangers)?;
                    let standing = Standing::at_first(led, seen, client.session_timeout());
                    return Ok(Turn { standing, strangers: strangers.into_iter().collect() });
                }
                Place::Gone if mutant!("who-was-removed-holds") => {
                    let standing = Standing::at_first(led, seen, client.session_timeout());
                    return Ok(Turn { standing, strangers: Vec::new() });
                }
                Place::Gone => return Err(LockError::Lost(LostReason::Removed)),
                Place::Behind(_) if !may_wait => return Err(self.options.held()),
                Place::Behind(name) => match watcher {
                    Some(watcher) => drop(watcher.changed().await),
                    // If it changed only, or was gone already, the next look tells.
                    None => {
                        let is_woken = outlast(&client, &format!("{dir}/{name}")).await?;
                        if is_woken && mutant!("any-wakeup-is-the-lock") {
                            let standing = Standing::at_first(led, seen, client.session_timeout());
                            return Ok(Turn { standing, strangers: Vec::new() });
                        }
                    }
                },
            }
        }
    }

    /// Who is there, and a watch on all of them for who wants that.
    async fn look(
        self,
        client: &Client,
    ) -> Result<(Vec<String>, Option<OneshotWatcher>), zk::Error> {
        let dir = &self.options.path;
        if self.role.wakes_at_everything() {
            let listed = patiently(|| client.list_and_watch_children(dir)).await;
            listed.map(|(children, watcher)| (children, Some(watcher)))
        } else {
            patiently(|| client.list_children(dir)).await.map(|children| (children, None))
        }
    }

    /// Refuses the lock among those who are there, if that is wanted; warns of all that were.
    fn judge(self, present: &[Dialect], seen: &BTreeSet<Dialect>) -> Result<(), LockError> {
        let path = &self.options.path;
        let list = |names: &mut dyn Iterator<Item = &Dialect>| {
            names.map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        if self.options.refuses_strangers && !present.is_empty() {
            let names = list(&mut present.iter());
            return Err(LockError::Foreign { path: path.clone(), names });
        }
        if !seen.is_empty() {
            let names = list(&mut seen.iter());
            tracing::warn!(path, names, "contenders of this lock will not wait for us");
        }
        Ok(())
    }
}

/// It is our turn.
struct Turn {
    standing: Standing,
    strangers: Vec<Dialect>,
}
