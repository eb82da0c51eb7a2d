//! A lock that is held.
//!
//! *Owns* [`Guard`]. *Invariants*: while it exists its session is kept open; dropping it removes its
//! znode, in the background if need be; a write through [`Guard::txn`] takes place only if the znode
//! is there at that very moment. *Never* promises that no other client believes that it holds the lock: a
//! process that was stopped learns of its loss when it runs again. Only what checks the
//! [token](Guard::token), or a guarded write, is safe from that.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;
use zookeeper_client as zk;
use zookeeper_client::{
    Acl, Acls, CheckWriteError, CheckWriter, Client, CreateMode, MultiWriteResult,
};

use super::boottime::BootTime;
use super::dialect::Dialect;
use super::entry::Entry;
use super::error::{LockError, LostReason};
use super::keeper::{Hold, HoldWatch, Keeper, Shared, Standing};
use super::role::Role;

/// A lock that is held, until this is dropped, released or lost.
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock away"]
pub struct Guard {
    entry: Entry,
    shared: Shared,
    keeper: Keeping,
    strangers: Vec<Dialect>,
}

impl Guard {
    pub(super) fn new(entry: Entry, standing: Standing, strangers: Vec<Dialect>) -> Self {
        Self::keep(entry, Shared::new(standing), strangers)
    }

    fn keep(entry: Entry, shared: Shared, strangers: Vec<Dialect>) -> Self {
        let keeper = Keeper::new(entry.client().clone(), entry.path(), shared.clone());
        let keeper = Keeping(tokio::spawn(keeper.keep()).abort_handle());
        Self { entry, shared, keeper, strangers }
    }

    /// The fencing token: the transaction that created our znode (`czxid`). Of two holders the later
    /// one has the greater token, whatever becomes of the lock's path in between. Hand it to whatever
    /// the lock protects, and have *that* refuse tokens smaller than the greatest it has seen.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.entry.token()
    }

    /// The path of our znode.
    #[must_use]
    pub fn node(&self) -> String {
        self.entry.path()
    }

    pub(super) fn client(&self) -> &Client {
        self.entry.client()
    }

    /// The id of the session that holds the lock.
    #[must_use]
    pub fn session(&self) -> i64 {
        self.entry.client().session_id().0
    }

    /// How long the server waits for a silent holder.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.entry.client().session_timeout()
    }

    /// How sure it is, at this moment, that the lock is held.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.shared.hold()
    }

    /// The lock is ours until then, even if no server answers any more. Moves on with every answer.
    #[must_use]
    pub fn deadline(&self) -> BootTime {
        self.shared.deadline()
    }

    /// Tells of changes of [`Guard::hold`] from now on.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.shared.watch()
    }

    /// Waits until the lock is lost; for as long as it is held, that is for ever.
    pub async fn lost(&self) -> LostReason {
        self.shared.watch().lost().await
    }

    /// Runs `body` for as long as the lock is held: with the loss, it is dropped where it waits.
    ///
    /// # Errors
    /// [`LockError::Lost`] before it was finished.
    pub async fn with<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(LockError::Lost(reason)),
            done = body => Ok(done),
        }
    }

    /// Kinds of contenders that were seen on the lock's path before we had it and that would not wait
    /// for us: the lock does not exclude them. Empty is good.
    #[must_use]
    pub fn strangers(&self) -> &[Dialect] {
        &self.strangers
    }

    /// Begins a guarded write: all of it takes place, or nothing, and nothing unless our znode exists
    /// then. For data on the same servers this is better than a token.
    ///
    /// # Errors
    /// [`LockError::Lost`] if that is known already.
    pub fn txn(&self) -> Result<Txn<'_>, LockError> {
        if let Hold::Lost(reason) = self.hold() {
            return Err(LockError::Lost(reason));
        }
        let path = self.entry.path();
        let writer = self.entry.client().new_check_writer(&path, None);
        let writer = writer.map_err(|error| LockError::refused("write under", &path, error))?;
        Ok(Txn { writer, path })
    }

    /// Goes on in another role, in the same place of the queue and with the same token. With an
    /// error, or if the future is dropped, the lock is given away.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it was not held any more, or another refusal.
    pub(super) async fn exchange(self, role: &Role) -> Result<Self, LockError> {
        if let Hold::Lost(reason) = self.hold() {
            return Err(LockError::Lost(reason));
        }
        let Self { entry, shared, keeper, strangers } = self;
        // It would take the exchange for a loss.
        drop(keeper);
        let patience = match mutant!("exchange-outlasts-the-hold") {
            true => Duration::MAX,
            false => shared.deadline().remaining(),
        };
        let exchanged = timeout(patience, entry.exchange(role)).await;
        match exchanged {
            Ok(Ok(entry)) => Ok(Self::keep(entry, shared, strangers)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(LockError::Lost(LostReason::Silence)),
        }
    }

    /// Gives the lock away, and returns when the server has confirmed it.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it was not held any more; [`LockError::Unreachable`] if no server has
    /// confirmed it within the session timeout: it goes on being tried in the background.
    pub async fn release(self) -> Result<(), LockError> {
        let hold = self.hold();
        let Self { entry, keeper, .. } = self;
        drop(keeper);
        let patience = entry.client().session_timeout().max(PATIENCE_MIN);
        if let Hold::Lost(reason) = hold {
            return Err(LockError::Lost(reason));
        }
        match entry.withdraw(patience).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(LockError::Lost(LostReason::Removed)),
            Err(LockError::Session(_)) => Err(LockError::Lost(LostReason::Session)),
            Err(error) => Err(error),
        }
    }
}

/// A write that takes place only while the lock is held: see [`Guard::txn`].
#[must_use = "nothing is written before `commit`"]
pub struct Txn<'a> {
    writer: CheckWriter<'a>,
    path: String,
}

impl Txn<'_> {
    /// Sets a znode's data; with a version, only if that is still the current one.
    ///
    /// # Errors
    /// The path is none.
    pub fn set(mut self, path: &str, data: &[u8], version: Option<i32>) -> Result<Self, LockError> {
        let added = self.writer.add_set_data(path, data, version);
        added.map_err(|error| LockError::refused("set", path, error))?;
        Ok(self)
    }

    /// Creates a znode.
    ///
    /// # Errors
    /// The path is none, or the access control list is empty.
    pub fn create(
        mut self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl],
    ) -> Result<Self, LockError> {
        let added = self.writer.add_create(path, data, &mode.with_acls(Acls::new(acl)));
        added.map_err(|error| LockError::refused("create", path, error))?;
        Ok(self)
    }

    /// Deletes a znode; with a version, only if that is still the current one.
    ///
    /// # Errors
    /// The path is none.
    pub fn delete(mut self, path: &str, version: Option<i32>) -> Result<Self, LockError> {
        let added = self.writer.add_delete(path, version);
        added.map_err(|error| LockError::refused("delete", path, error))?;
        Ok(self)
    }

    /// Demands that a znode's version is this one.
    ///
    /// # Errors
    /// The path is none.
    pub fn check(mut self, path: &str, version: i32) -> Result<Self, LockError> {
        let added = self.writer.add_check_version(path, version);
        added.map_err(|error| LockError::refused("check", path, error))?;
        Ok(self)
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock is not held: nothing was written.
    /// [`LockError::Server`] with a [`zk::Error::ConnectionLoss`] or an error without a name: it may
    /// have been written or not. With any other: nothing was written.
    pub async fn commit(self) -> Result<Vec<MultiWriteResult>, LockError> {
        let path = self.path;
        self.writer.commit().await.map_err(|error| match error {
            CheckWriteError::CheckFailed { source: zk::Error::NoNode } => {
                LockError::Lost(LostReason::Removed)
            }
            CheckWriteError::CheckFailed { source }
            | CheckWriteError::OperationFailed { source, .. }
            | CheckWriteError::RequestFailed { source } => {
                LockError::refused("write under", &path, source)
            }
        })
    }
}

/// A release waits for its confirmation for the session timeout, but at least so long.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// The keeper's task, for as long as this exists.
#[derive(Debug)]
struct Keeping(AbortHandle);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}
