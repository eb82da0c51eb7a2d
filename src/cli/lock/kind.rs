//! Which lock is meant: alone, shared, or with a number of holders.
//!
//! *Owns* [`Lock`] and [`Names`]. *Invariant*: what cannot be named as was asked for is refused before
//! a server is asked for anything.

use zookeeper_client::Client;

use crate::recipes::{
    Guard, LockError, Mutex, ReadWriteLock, RecipeOptions, Semaphore, SharedStyle, Style, Wait,
};

/// Whose names are used in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Those of an exclusive lock.
    Style(Style),
    /// Those of Curator's read-write lock, also for an exclusive lock.
    CuratorReadWrite,
}

/// Who else may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// No one.
    None,
    /// Everybody who asks for a shared lock.
    Shared,
    /// As many as this, with us.
    Permits(u32),
}

/// The lock that is meant.
#[derive(Clone, Debug)]
pub(super) enum Lock {
    Exclusive(Mutex),
    Read(ReadWriteLock),
    Write(ReadWriteLock),
    Permits(Semaphore),
}

impl Lock {
    /// What is wrong with the flags, if anything.
    pub(super) fn new(
        options: RecipeOptions,
        others: Others,
        names: Names,
    ) -> Result<Self, String> {
        let words = |error: LockError| error.to_string();
        let shared = match names {
            Names::Style(Style::Curator) | Names::CuratorReadWrite => Some(SharedStyle::Curator),
            Names::Style(Style::Kazoo) => Some(SharedStyle::Kazoo),
            Names::Style(Style::Plain | Style::ZooKeeper) => None,
        };
        match (others, names) {
            (Others::None, Names::Style(style)) => {
                Ok(Self::Exclusive(Mutex::new(options).map_err(words)?.style(style)))
            }
            (Others::None, Names::CuratorReadWrite) => {
                Ok(Self::Write(ReadWriteLock::new(options).map_err(words)?))
            }
            (Others::Shared, _) => {
                let style =
                    shared.ok_or("--shared: there are names for it in curator and kazoo only")?;
                let lock = ReadWriteLock::new(options).map_err(words)?;
                Ok(Self::Read(lock.style(style)))
            }
            (Others::Permits(permits), Names::Style(Style::Curator)) => {
                let permits = usize::try_from(permits).unwrap_or(usize::MAX);
                Ok(Self::Permits(Semaphore::new(options, permits).map_err(words)?))
            }
            (Others::Permits(_), _) => {
                Err("--permits: there are names for it in the style curator only".to_string())
            }
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Exclusive(mutex) => mutex.path(),
            Self::Read(lock) | Self::Write(lock) => lock.path(),
            Self::Permits(semaphore) => semaphore.path(),
        }
    }

    /// The directory of those who hold it, and of most who wait.
    pub(super) fn queue(&self) -> String {
        match self {
            Self::Exclusive(_) | Self::Read(_) | Self::Write(_) => self.path().to_owned(),
            Self::Permits(_) => format!("{}/leases", self.path()),
        }
    }

    pub(super) async fn acquire(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        match self {
            Self::Exclusive(mutex) => mutex.acquire(client, wait).await,
            Self::Read(lock) => lock.read(client, wait).await,
            Self::Write(lock) => lock.write(client, wait).await.map(Guard::from),
            Self::Permits(semaphore) => semaphore.acquire(client, wait).await,
        }
    }
}
