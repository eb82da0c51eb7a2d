//! One contest for a lock: enter the queue, and wait for one's turn.
//!
//! *Owns* [`Contest`]. *Invariants*: grants come in the order in which the contenders entered; a waiter
//! watches the data of the nearest contender before it that concerns it (a read, so that no watch is
//! left on what is not there), and nothing else; whatever ends an attempt (timeout, error, or its
//! future being dropped) leaves neither a znode nor a watch behind.

use zookeeper_client as zk;
use zookeeper_client::Client;

use super::boottime::BootTime;
use super::dialect::Dialect;
use super::entry::{Entry, patiently};
use super::error::LockError;
use super::guard::Guard;
use super::keeper::{LostReason, Standing};
use super::queue::Place;
use super::role::Role;
use super::terms::{Terms, Wait};

/// What is contended for, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest<'a> {
    pub(super) terms: &'a Terms,
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
        let mut entry = Entry::new(client, self.terms, self.role)?;
        let session = client.session_timeout();
        let turn = self.turn(&mut entry, wait.may_wait());
        match wait.bound(session, || self.terms.held(), turn).await {
            Ok(Turn { standing, strangers }) => Ok(Guard::new(entry, standing, strangers)),
            Err(error) => {
                // Whatever comes of it, it is not what the caller asked for; it is logged there.
                let _ = entry.withdraw(session / 3).await;
                Err(error)
            }
        }
    }

    /// Waits until nobody is before the entry.
    async fn turn(self, entry: &mut Entry, may_wait: bool) -> Result<Turn, LockError> {
        let led = entry.enter().await?;
        let client = entry.client().clone();
        let dir = &self.terms.path;
        let refused = |error| LockError::refused("look into", dir, error);
        loop {
            let seen = BootTime::now();
            let children = match patiently(|| client.list_children(dir)).await {
                Ok(children) => children,
                Err(zk::Error::NoNode) => Vec::new(),
                Err(error) => return Err(refused(error)),
            };
            let rival = |name: &str| self.role.rival(name);
            match Place::of(entry.name(), entry.sequence(), &children, rival) {
                Place::First => {
                    let strangers = self.judge(self.role.strangers(&children))?;
                    let standing = Standing::at_first(led, seen, client.session_timeout());
                    return Ok(Turn { standing, strangers });
                }
                Place::Gone => return Err(LockError::Lost(LostReason::Removed)),
                Place::Behind(_) if !may_wait => return Err(self.terms.held()),
                Place::Behind(name) => {
                    let path = format!("{dir}/{name}");
                    match patiently(|| client.get_and_watch_data(&path)).await {
                        // It may also be that its data changed, or that the session is over: the
                        // next look tells.
                        Ok((_, _, watcher)) => drop(watcher.changed().await),
                        Err(zk::Error::NoNode) => {}
                        Err(error) => return Err(refused(error)),
                    }
                }
            }
        }
    }

    fn judge(self, strangers: Vec<Dialect>) -> Result<Vec<Dialect>, LockError> {
        if strangers.is_empty() {
            return Ok(strangers);
        }
        let path = &self.terms.path;
        let names: Vec<String> = strangers.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        if self.terms.refuses_strangers {
            return Err(LockError::Foreign { path: path.clone(), names });
        }
        tracing::warn!(path, names, "contenders of this lock will not wait for us");
        Ok(strangers)
    }
}

/// It is our turn.
struct Turn {
    standing: Standing,
    strangers: Vec<Dialect>,
}
