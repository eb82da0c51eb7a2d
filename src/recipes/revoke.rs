//! Asking a holder to give its lock away.
//!
//! *Owns* [`revoke`] and [`Guard::asked_to_release`]. *Invariant*: both words that are in use are
//! understood, Curator's and that of ZooKeeper's documentation. *Never* takes a lock away: it is up
//! to the holder what comes of it.
//!
//! Curator's `Revoker` and `Revocable`.

use zookeeper_client as zk;
use zookeeper_client::Client;

use super::entry::patiently;
use super::error::{LockError, LostReason};
use super::guard::Guard;
use crate::locks::contender::{RELEASE_WORDS, release_word};

impl Guard {
    /// Waits until somebody asks for the lock: the data of our znode become `__REVOKE__` (Curator) or
    /// `unlock` (ZooKeeper's documentation). A watch is left there for as long as this waits.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock is lost before, or whatever else a server says.
    pub async fn asked_to_release(&self) -> Result<(), LockError> {
        let (client, node) = (self.client(), self.node());
        let asked = async {
            loop {
                match patiently(|| client.get_and_watch_data(&node)).await {
                    Ok((data, _, _)) if is_word(&data) => return Ok(()),
                    Ok((_, _, watcher)) => drop(watcher.changed().await),
                    Err(zk::Error::NoNode) => return Err(LockError::Lost(LostReason::Removed)),
                    Err(error) => return Err(LockError::refused("look at", &node, error)),
                }
            }
        };
        self.with(asked).await?
    }
}

/// Asks the holder, or waiter, whose znode this is to leave. It must listen to that
/// ([`Guard::asked_to_release`]); by the znode's name, the word is chosen that it is likely to
/// understand. Tells whether the znode is there.
///
/// # Errors
/// [`LockError::Path`] if it is not that of a contender: it is not ephemeral. No permission, the
/// session is over, or another refusal.
pub async fn revoke(client: &Client, node: &str) -> Result<bool, LockError> {
    let refused = |error| LockError::refused("write to", node, error);
    match patiently(|| client.check_stat(node)).await.map_err(refused)? {
        None => return Ok(false),
        Some(stat) if stat.ephemeral_owner == 0 => {
            let reason = "it is not ephemeral, and so not a holder's";
            return Err(LockError::Path { path: node.to_string(), reason });
        }
        Some(_) => {}
    }
    let name = node.rsplit('/').next().unwrap_or(node);
    let word = release_word(name).as_bytes();
    match patiently(|| client.set_data(node, word, None)).await {
        Ok(_) => Ok(true),
        Err(zk::Error::NoNode) => Ok(false),
        Err(error) => Err(refused(error)),
    }
}

fn is_word(data: &[u8]) -> bool {
    RELEASE_WORDS.iter().any(|word| word.as_bytes() == data)
}
