//! The exclusive lock: fair, and without a herd.
//!
//! *Owns* [`Mutex`]. *Invariants*: grants come in the order in which the contenders entered; a waiter
//! watches the data of the one contender before it (a read, so that no watch is left on what is not
//! there), and nothing else; whatever ends an attempt (timeout, error, or its future being dropped)
//! leaves neither a znode nor a watch behind. *Never* reentrant: a second attempt through the same
//! client waits for the first like anybody else's.
//!
//! Curator's `InterProcessMutex`.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client as zk;
use zookeeper_client::{Acl, Acls, Client, CreateMode};

use super::boottime::BootTime;
use super::dialect::{Dialect, Style};
use super::entry::{Entry, patiently};
use super::error::LockError;
use super::guard::Guard;
use super::keeper::Standing;
use super::queue::{Place, strangers};

/// How long to wait for a lock that others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// For this long; zero is [`Wait::No`].
    For(Duration),
    /// Until it is ours, or the session is over.
    Forever,
}

/// An exclusive lock: the name of one, until it is [acquired](Mutex::acquire).
#[derive(Clone, Debug)]
pub struct Mutex {
    path: String,
    style: Style,
    id: String,
    acl: Vec<Acl>,
    refuses_strangers: bool,
}

impl Mutex {
    /// The lock at this path; its parents need not exist. Curator's layout, open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(path: &str) -> Result<Self, LockError> {
        let fault = if path == "/" {
            Some("the root has children of many kinds")
        } else if !path.starts_with('/') {
            Some("it does not begin with a slash")
        } else if path.ends_with('/') {
            Some("it ends with a slash")
        } else if path.split('/').skip(1).any(|name| matches!(name, "" | "." | "..")) {
            Some("it has an empty or a relative part")
        } else if path.chars().any(char::is_control) {
            Some("it has a control character")
        } else {
            None
        };
        match fault {
            Some(reason) => Err(LockError::Path { path: path.to_string(), reason }),
            None => Ok(Self {
                path: path.to_string(),
                style: Style::default(),
                id: format!("pid {}", std::process::id()),
                acl: Acls::anyone_all().iter().cloned().collect(),
                refuses_strangers: false,
            }),
        }
    }

    /// Names our contender as others do who share the path.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Who we are, for people who look at the lock: it becomes the znode's data.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The access control list of our znode and of parents that are missing.
    #[must_use]
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = acl.into();
        self
    }

    /// Refuses to take the lock while contenders share its path that would not wait for us. By
    /// default that is a warning in the log, and [`Guard::strangers`].
    #[must_use]
    pub fn refuse_strangers(mut self) -> Self {
        self.refuses_strangers = true;
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Enters the queue and waits for its turn. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        let mut entry = Entry::new(client, &self.path, self.style, &self.id, &self.acl)?;
        let session = client.session_timeout();
        let granted = match wait {
            Wait::Forever => self.turn(&mut entry, true).await,
            Wait::No | Wait::For(Duration::ZERO) => {
                let turn = timeout(session, self.turn(&mut entry, false)).await;
                turn.unwrap_or(Err(LockError::Unreachable))
            }
            Wait::For(time) => {
                let turn = timeout(time, self.turn(&mut entry, true)).await;
                turn.unwrap_or_else(|_| Err(self.held()))
            }
        };
        match granted {
            Ok(Turn { standing, strangers }) => Ok(Guard::new(entry, standing, strangers)),
            Err(error) => {
                // Whatever comes of it, it is not what the caller asked for; it is logged there.
                let _ = entry.withdraw(session / 3).await;
                Err(error)
            }
        }
    }

    /// Waits until the entry is the first.
    async fn turn(&self, entry: &mut Entry, may_wait: bool) -> Result<Turn, LockError> {
        let parents = match self.style {
            Style::Curator => CreateMode::Container,
            Style::Kazoo | Style::Plain | Style::ZooKeeper => CreateMode::Persistent,
        };
        let led = entry.enter(parents).await?;
        let client = entry.client().clone();
        let refused = |error| LockError::refused("look into", &self.path, error);
        loop {
            let seen = BootTime::now();
            let children = patiently(|| client.list_children(&self.path)).await;
            let children = match children {
                Ok(children) => children,
                Err(zk::Error::NoNode) => Vec::new(),
                Err(error) => return Err(refused(error)),
            };
            match Place::of(entry.name(), &children, |_| true) {
                Place::First => {
                    let strangers = self.judge(strangers(self.style, &children))?;
                    let standing = Standing::at_first(led, seen, client.session_timeout());
                    return Ok(Turn { standing, strangers });
                }
                Place::Gone => {
                    return Err(LockError::Lost(super::LostReason::Removed));
                }
                Place::Behind(_) if !may_wait => return Err(self.held()),
                Place::Behind(name) => {
                    let path = format!("{}/{name}", self.path);
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

    fn judge(&self, strangers: Vec<Dialect>) -> Result<Vec<Dialect>, LockError> {
        if strangers.is_empty() {
            return Ok(strangers);
        }
        let names: Vec<String> = strangers.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        if self.refuses_strangers {
            return Err(LockError::Foreign { path: self.path.clone(), names });
        }
        tracing::warn!(path = self.path, names, "contenders of this lock will not wait for us");
        Ok(strangers)
    }

    fn held(&self) -> LockError {
        LockError::Held { path: self.path.clone() }
    }
}

/// It is our turn.
struct Turn {
    standing: Standing,
    strangers: Vec<Dialect>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_a_lock_is_refused_with_the_reason() {
        for path in ["", "/", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/a\n"] {
            assert!(matches!(Mutex::new(path), Err(LockError::Path { .. })), "{path:?}");
        }
        assert_eq!(Mutex::new("/a/b.c").unwrap().path(), "/a/b.c");
    }
}
