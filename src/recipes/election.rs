//! The election of one among several.
//!
//! *Owns* [`Election`] and [`Candidate`]. *Invariants*: those of `contest.rs`: the candidate that came
//! first leads until it resigns, is lost or is removed, and only the next is told. *Never*
//! elects again by itself who has lost: that is a new candidacy, with a new token.
//!
//! Curator's `LeaderLatch`, or its `LeaderSelector`.

use zookeeper_client as zk;
use zookeeper_client::Client;

use super::contest::Contest;
use super::dialect::Style;
use super::entry::{children, patiently};
use super::error::LockError;
use super::guard::Guard;
use super::options::RecipeOptions;
use super::role::Role;
use super::wait::Wait;

/// An office that one candidate at a time holds.
#[derive(Clone, Debug)]
pub struct Election {
    options: RecipeOptions,
    role: Role,
}

impl Election {
    /// The election at this path, in the layout of Curator's `LeaderLatch`; the path's parents need
    /// not exist. Open to everybody.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn new(options: impl Into<RecipeOptions>) -> Result<Self, LockError> {
        Ok(Self { options: options.into().checked()?, role: Role::Latch })
    }

    /// As [`Election::new`] in the layout of Curator's `LeaderSelector`, which is that of a
    /// [`Mutex`](super::Mutex).
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub fn selector(options: impl Into<RecipeOptions>) -> Result<Self, LockError> {
        Ok(Self { options: options.into().checked()?, role: Role::Exclusive(Style::Curator) })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.options.path
    }

    /// Stands as a candidate, and waits until it leads. Releasing the guard is resigning; dropping the
    /// future is withdrawing.
    ///
    /// # Errors
    /// [`LockError::Held`] when the time to wait is over, and whatever else a server says.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn campaign(&self, client: &Client, wait: Wait) -> Result<Guard, LockError> {
        Contest { options: &self.options, role: &self.role }.enter(client, wait).await
    }

    /// All candidates in their order, as one server knows them; the first leads, or is about to.
    ///
    /// # Errors
    /// No permission, the session is over, or another refusal.
    pub async fn candidates(&self, client: &Client) -> Result<Vec<Candidate>, LockError> {
        let dir = &self.options.path;
        let numbered = children(client, dir).await?.into_iter();
        let numbered = numbered.filter_map(|name| Some((self.role.rival(&name)?, name)));
        let mut numbered: Vec<_> = numbered.collect();
        // In a circle of numbers, the distance from one of them is an order of all.
        let zero = numbered.first().map_or(0, |(number, _)| *number);
        let zero = if mutant!("candidates-sorted-plainly") { 0 } else { zero };
        numbered.sort_by_key(|(number, _)| number.wrapping_sub(zero));
        let mut candidates = Vec::new();
        for (_, name) in numbered {
            let node = format!("{dir}/{name}");
            match patiently(|| client.get_data(&node)).await {
                Ok((data, stat)) => candidates.push(Candidate {
                    id: String::from_utf8_lossy(&data).into_owned(),
                    node,
                    token: match mutant!("candidate-shows-its-last-change") {
                        true => stat.mzxid,
                        false => stat.czxid,
                    },
                    session: stat.ephemeral_owner,
                }),
                // It has left meanwhile.
                Err(zk::Error::NoNode) => {}
                Err(error) => return Err(LockError::refused("look into", dir, error)),
            }
        }
        Ok(candidates)
    }
}

/// One who would lead, or does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What it says of itself ([`RecipeOptions::id`](super::RecipeOptions::id)); what is no UTF-8 is replaced.
    pub id: String,
    /// The path of its znode.
    pub node: String,
    /// Its fencing token: see [`Guard::token`].
    pub token: i64,
    /// The id of its session.
    pub session: i64,
}
