//! The exclusive lock: fair, and without a herd.
//!
//! *Owns* [`Mutex`]. *Invariants*: those of `contest.rs`. *Never* reentrant: a second attempt through
//! the same client waits for the first like anybody else's.
//!
//! Curator's `InterProcessMutex`.

use zookeeper_client::Client;

use super::contest::Contest;
use super::dialect::Style;
use super::error::LockError;
use super::guard::Guard;
use super::role::Role;
use super::terms::{Terms, Wait, common_terms};

/// An exclusive lock: the name of one, until it is [acquired](Mutex::acquire).
#[derive(Clone, Debug)]
pub struct Mutex {
    terms: Terms,
    role: Role,
}

impl Mutex {
    /// The lock at this path; its parents need not exist. Curator's layout, open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(path: &str) -> Result<Self, LockError> {
        Ok(Self::on(Terms::new(path)?))
    }

    pub(super) fn on(terms: Terms) -> Self {
        Self { terms, role: Role::Exclusive(Style::default()) }
    }

    /// Names our contender as others do who share the path.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.role = Role::Exclusive(style);
        self
    }

    /// Refuses to take the lock while contenders share its path that would not wait for us. By
    /// default that is a warning in the log, and [`Guard::strangers`].
    #[must_use]
    pub fn refuse_strangers(mut self) -> Self {
        self.terms.refuses_strangers = true;
        self
    }

    common_terms!();

    /// Enters the queue and waits for its turn. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn acquire(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        Contest { terms: &self.terms, role: &self.role }.enter(client, wait).await
    }
}
