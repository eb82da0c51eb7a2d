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
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// An exclusive lock: the name of one, until it is [acquired](Mutex::acquire).
#[derive(Clone, Debug)]
pub struct Mutex {
    options: RecipeOptions,
    role: Role,
}

impl Mutex {
    /// The lock at this path; its parents need not exist. Curator's layout, open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(options: impl Into<RecipeOptions>) -> Result<Self, LockError> {
        Ok(Self::on(options.into().checked()?))
    }

    pub(super) fn on(options: RecipeOptions) -> Self {
        Self { options, role: Role::Exclusive(Style::default()) }
    }

    /// Names our contender as others do who share the path.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.role = Role::Exclusive(style);
        self
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
        Contest { options: &self.options, role: &self.role }.enter(client, wait).await
    }
}
