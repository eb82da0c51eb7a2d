//! Several locks in one directory, told apart by their names.
//!
//! *Owns* [`NamedMutex`]. *Invariants*: those of `contest.rs`; contenders for other names are neither
//! waited for nor watched. *Never* takes a part of a name for the name: "b" is not "a-b".
//!
//! The `DistributedLock(basePath, name)` of many tutorials, without their herd; with the Rust client,
//! `LockPrefix::new_curator(directory, "name-")` names its contenders alike.

use zookeeper_client::Client;

use super::contest::Contest;
use super::error::LockError;
use super::guard::Guard;
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// An exclusive lock that shares its directory with others of other names.
#[derive(Clone, Debug)]
pub struct NamedMutex {
    options: RecipeOptions,
    role: Role,
}

impl NamedMutex {
    /// The lock of this name in the directory; that and its parents need not exist. Its contenders are
    /// called `_c_<uuid>-<name>-N`; `<name>-N` is respected, too.
    ///
    /// # Errors
    /// [`LockError::Path`], also for a name that is empty, ends with a hyphen, or has a slash or a
    /// control character.
    pub fn new(options: impl Into<RecipeOptions>, name: &str) -> Result<Self, LockError> {
        let options = options.into().checked()?;
        let fault = if name.is_empty() {
            Some("the lock's name is empty")
        } else if name.ends_with('-') {
            // The name "a-" with the number 5 would be "a" with the number -5.
            Some("the lock's name ends with a hyphen")
        } else if name.contains('/') || name.chars().any(char::is_control) {
            Some("the lock's name has a slash or a control character")
        } else {
            None
        };
        if let Some(reason) = fault {
            return Err(LockError::Path { path: format!("{}/{name}", options.path), reason });
        }
        Ok(Self { options, role: Role::Named(format!("{name}-")) })
    }

    /// The directory.
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
