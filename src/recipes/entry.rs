//! Our znode in a lock's queue: from the first attempt to create it until it is certainly gone.
//!
//! *Owns* [`Entry`]. *Invariants*: once a create may have reached a server, dropping the entry, at
//! whatever point its owner was cancelled, removes the znode in a task of its own, with a budget of
//! its own, across reconnects; a create whose answer was lost is looked for by its GUID before it is
//! repeated, and only a znode of this very session counts. *Never* decides who holds the lock.
//!
//! What Curator does as "protection" and "guaranteed delete".

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use zookeeper_client as zk;
use zookeeper_client::{Acl, Acls, Client, CreateMode};

use super::boottime::BootTime;
use super::dialect::Guid;
use super::error::{LockError, LostReason, is_transient};
use super::options::RecipeOptions;
use super::role::Role;

/// Where our znode is, or is to be, and how to tell it from others.
#[derive(Clone, Debug)]
struct Spot {
    client: Client,
    dir: String,
    prefix: String,
    data: Vec<u8>,
    /// Without this the data tells our znode from others of this session.
    is_unique: bool,
    /// The znode's name, once that is known.
    name: Option<String>,
}

/// Our place in the queue. Dropped, it leaves the queue.
#[derive(Debug)]
pub(super) struct Entry {
    spot: Spot,
    acl: Vec<Acl>,
    mode: CreateMode,
    parents: CreateMode,
    token: i64,
    may_exist: bool,
    /// The answer to an attempt to create it was lost.
    is_in_doubt: bool,
    runtime: Handle,
}

impl Entry {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// There are no random numbers.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn new(
        client: &Client,
        options: &RecipeOptions,
        role: &Role,
    ) -> Result<Self, LockError> {
        let guid = Guid::random().map_err(|error| LockError::Random(error.to_string()))?;
        let is_unique = role.names_are_unique();
        let id = &options.id;
        let data = if is_unique { id.clone() } else { format!("{id} {}", guid.hex()) };
        let spot = Spot {
            client: client.clone(),
            dir: options.path.clone(),
            prefix: role.prefix(&guid, client.session_id().0),
            data: data.into_bytes(),
            is_unique,
            name: None,
        };
        Ok(Self {
            spot,
            acl: options.acl.clone(),
            mode: role.mode(),
            parents: role.parents(),
            token: 0,
            may_exist: false,
            is_in_doubt: false,
            runtime: Handle::current(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.spot.client
    }

    /// The znode's name below the lock's path.
    pub(super) fn name(&self) -> &str {
        self.spot.name.as_deref().expect("asked for after `enter` only")
    }

    /// The znode's path.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.spot.dir, self.name())
    }

    /// The path that is asked for: of a znode without a number, also of another owner's, that is the path.
    pub(super) fn asked_path(&self) -> String {
        format!("{}/{}", self.spot.dir, self.spot.prefix)
    }

    /// The number that the server has given the znode.
    pub(super) fn sequence(&self) -> i32 {
        let number = self.name().strip_prefix(&self.spot.prefix);
        let number = number.and_then(|number| number.parse().ok());
        number.expect("the name is the prefix and what the server appended to it")
    }

    /// The transaction that created the znode, or that in whose place it is.
    pub(super) fn token(&self) -> i64 {
        self.token
    }

    /// Creates the znode, and its missing parents. Returns when the request was sent that is known to
    /// have been answered by the leader.
    ///
    /// # Errors
    /// [`LockError::Held`] if the znode has no number, and is there and not ours; no permission, the
    /// session is over, or another refusal.
    pub(super) async fn enter(&mut self) -> Result<BootTime, LockError> {
        let path = self.asked_path();
        let mut parents_made = 0;
        loop {
            let sent = BootTime::now();
            let options = self.mode.with_acls(Acls::new(&self.acl));
            let create = self.spot.client.create(&path, &self.spot.data, &options);
            self.may_exist = true;
            match create.await {
                Ok((stat, sequence)) => {
                    let is_numbered = self.mode == CreateMode::EphemeralSequential;
                    let number = if is_numbered { sequence.to_string() } else { String::new() };
                    self.spot.name = Some(format!("{}{number}", self.spot.prefix));
                    self.token = stat.czxid;
                    return Ok(sent);
                }
                // A container may be removed between its creation and that of the first child.
                Err(zk::Error::NoNode) if parents_made < PARENTS_MADE_MAX => {
                    parents_made += 1;
                    self.make_parents().await?;
                }
                Err(zk::Error::NodeExists) => {
                    if self.is_in_doubt
                        && let Some(sent) = self.find_again().await?
                    {
                        return Ok(sent);
                    }
                    self.may_exist = self.is_in_doubt;
                    return Err(LockError::Held { path: self.spot.dir.clone() });
                }
                Err(error) if is_transient(&error) => {
                    self.is_in_doubt = true;
                    sleep(PAUSE).await;
                    if let Some(sent) = self.find_again().await? {
                        return Ok(sent);
                    }
                }
                Err(error) => {
                    return Err(LockError::refused("create a znode in", &self.spot.dir, error));
                }
            }
        }
    }

    /// Whether the znode is there and ours: if so, when the request was sent that told.
    async fn find_again(&mut self) -> Result<Option<BootTime>, LockError> {
        let sent = BootTime::now();
        let refused = |error| LockError::refused("look into", &self.spot.dir, error);
        let found = self.spot.find().await.map_err(refused)?;
        Ok(found.map(|(name, czxid)| {
            self.spot.name = Some(name);
            self.token = czxid;
            sent
        }))
    }

    /// Goes on with what an attempt has brought, or leaves with its error.
    ///
    /// # Errors
    /// That of the attempt.
    pub(super) async fn settle<T>(
        self,
        attempt: Result<T, LockError>,
    ) -> Result<(Self, T), LockError> {
        match attempt {
            Ok(brought) => Ok((self, brought)),
            Err(error) => {
                let patience = self.client().session_timeout() / 3;
                // Whatever comes of it, it is not what the caller asked for; it is logged there.
                let _ = self.withdraw(patience).await;
                Err(error)
            }
        }
    }

    async fn make_parents(&self) -> Result<(), LockError> {
        let dir = &self.spot.dir;
        let options = self.parents.with_acls(Acls::new(&self.acl));
        let made = patiently(|| self.spot.client.mkdir(dir, &options)).await;
        made.map_err(|error| LockError::refused("create", dir, error))
    }

    /// Puts a znode of the same number, but of another role, in the place of this one, in one
    /// transaction. With an error, or if the future is dropped, both are removed.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the znode was removed by somebody else; or another refusal.
    pub(super) async fn exchange(mut self, role: &Role) -> Result<Self, LockError> {
        let guid = Guid::random().map_err(|error| LockError::Random(error.to_string()))?;
        let client = self.spot.client.clone();
        let number = self.name().strip_prefix(&self.spot.prefix).unwrap_or_default();
        let prefix = role.prefix(&guid, client.session_id().0);
        let name = Some(format!("{prefix}{number}"));
        let spot = Spot { prefix, name, ..self.spot.clone() };
        let (acl, runtime) = (self.acl.clone(), self.runtime.clone());
        let (mode, parents, token) = (self.mode, self.parents, self.token);
        let (may_exist, is_in_doubt) = (true, false);
        let next = Self { spot, acl, mode, parents, token, may_exist, is_in_doubt, runtime };
        let refused = |error| LockError::refused("exchange a znode of", &next.spot.dir, error);
        let options = CreateMode::Ephemeral.with_acls(Acls::new(&next.acl));
        loop {
            let mut writer = client.new_multi_writer();
            let create = writer.add_create(&next.path(), &next.spot.data, &options);
            create.and_then(|()| writer.add_delete(&self.path(), None)).map_err(refused)?;
            match writer.commit().await.map_err(zk::Error::from) {
                Ok(_) => break,
                Err(zk::Error::NoNode) => return Err(LockError::Lost(LostReason::Removed)),
                Err(error) if is_transient(&error) => {
                    sleep(PAUSE).await;
                    if next.spot.find().await.map_err(refused)?.is_some() {
                        break;
                    }
                }
                Err(error) => return Err(refused(error)),
            }
        }
        self.may_exist = false;
        Ok(next)
    }

    /// Leaves the queue: the znode is removed whatever becomes of the caller, who waits for that no
    /// longer than `patience`. Tells whether the znode was still there.
    ///
    /// # Errors
    /// No server has confirmed it in time, or one refuses it.
    pub(super) async fn withdraw(mut self, patience: Duration) -> Result<bool, LockError> {
        let Some(removal) = self.remove() else { return Ok(false) };
        match timeout(patience, removal).await {
            Ok(Ok(result)) => result,
            // Cancelled with its runtime: there is nothing left to wait for.
            Ok(Err(_)) | Err(_) => Err(LockError::Unreachable),
        }
    }

    fn remove(&mut self) -> Option<tokio::task::JoinHandle<Result<bool, LockError>>> {
        if !std::mem::take(&mut self.may_exist) {
            return None;
        }
        let spot = self.spot.clone();
        let budget = REMOVAL_MIN.max(spot.client.session_timeout() * REMOVAL_SESSIONS);
        Some(self.runtime.spawn(async move {
            let result = timeout(budget, spot.remove()).await;
            let result = result.unwrap_or(Err(LockError::Unreachable));
            if let Err(error) = &result {
                tracing::warn!(dir = spot.dir, prefix = spot.prefix, %error, "a lock's znode is left");
            }
            result
        }))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // The task goes on by itself.
        let _ = self.remove();
    }
}

impl Spot {
    /// Our znode, by the GUID in its name or data, if it exists and belongs to this session.
    async fn find(&self) -> Result<Option<(String, i64)>, zk::Error> {
        let children = patiently(|| async {
            // What was on its way through another server comes before what is read now.
            let sync = self.client.sync(&self.dir);
            let list = self.client.list_children(&self.dir);
            sync.await?;
            list.await
        });
        let children = match children.await {
            Ok(children) => children,
            Err(zk::Error::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        };
        for name in children.into_iter().filter(|name| name.starts_with(&self.prefix)) {
            let path = format!("{}/{name}", self.dir);
            let found = match patiently(|| self.client.get_data(&path)).await {
                Ok(found) => found,
                Err(zk::Error::NoNode) => continue,
                // Not ours: ours can be read, or it could not be told from others.
                Err(zk::Error::NoAuth) if !self.is_unique => continue,
                Err(error) => return Err(error),
            };
            let (data, stat) = found;
            let is_ours = stat.ephemeral_owner == self.client.session_id().0;
            if is_ours && (self.is_unique || data == self.data) {
                return Ok(Some((name, stat.czxid)));
            }
        }
        Ok(None)
    }

    /// Whether others who come after us have the same name.
    fn may_be_anothers(&self, name: &str) -> bool {
        !self.is_unique && name == self.prefix
    }

    /// Whether there was something to remove. Goes on until it is known to be gone.
    async fn remove(&self) -> Result<bool, LockError> {
        let refused = |error| LockError::refused("remove a znode of", &self.dir, error);
        let mut attempts = 0;
        loop {
            let found = match &self.name {
                Some(name) if !self.may_be_anothers(name) => Some(name.clone()),
                // Before each attempt: an earlier one may have made room for somebody else.
                Some(_) | None => self.find().await.map_err(refused)?.map(|(name, _)| name),
            };
            let Some(name) = found else { return Ok(attempts > 0) };
            let path = format!("{}/{name}", self.dir);
            attempts += 1;
            match self.client.delete(&path, None).await {
                Ok(()) => return Ok(true),
                // An earlier attempt may have done it.
                Err(zk::Error::NoNode) => return Ok(attempts > 1),
                Err(error) if is_transient(&error) => sleep(PAUSE).await,
                Err(error) => return Err(refused(error)),
            }
        }
    }
}

/// Repeats what is harmless to repeat until there is an answer. While there is no connection, the
/// client holds a request back until there is one, or until the session is over.
pub(super) async fn patiently<T, F>(request: impl Fn() -> F) -> Result<T, zk::Error>
where
    F: Future<Output = Result<T, zk::Error>>,
{
    loop {
        match request().await {
            Err(error) if is_transient(&error) => sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// The names of a znode's children; none if it is not there.
pub(super) async fn children(client: &Client, path: &str) -> Result<Vec<String>, LockError> {
    match patiently(|| client.list_children(path)).await {
        Ok(children) => Ok(children),
        Err(zk::Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(LockError::refused("look into", path, error)),
    }
}

/// Waits until a znode changes or goes; false at once if it is not there. The watch is that of a read,
/// so that none is left on what is not there. That the session is over is for the next request to tell.
pub(super) async fn outlast(client: &Client, path: &str) -> Result<bool, LockError> {
    match patiently(|| client.get_and_watch_data(path)).await {
        Ok((_, _, watcher)) => {
            watcher.changed().await;
            Ok(true)
        }
        Err(zk::Error::NoNode) => Ok(false),
        Err(error) => Err(LockError::refused("look at", path, error)),
    }
}

/// How often missing parents are created again that somebody removed meanwhile.
pub(super) const PARENTS_MADE_MAX: u32 = 10;
/// Pause before a request is repeated whose connection broke.
const PAUSE: Duration = Duration::from_millis(20);
/// A removal is tried for this many session timeouts: by then the session is over, too.
const REMOVAL_SESSIONS: u32 = 3;
/// A removal is tried for so long at least.
const REMOVAL_MIN: Duration = Duration::from_secs(10);
