//! What is agreed on before a lock is asked for.
//!
//! *Owns* [`Terms`], which all locks have, and [`Wait`]. *Invariant*: the path of a [`Terms`] can be
//! that of a lock. *Never* asks a server anything.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use zookeeper_client::{Acl, Acls};

use super::error::LockError;

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

impl Wait {
    /// Whether others may be waited for at all.
    pub(super) fn may_wait(self) -> bool {
        match self {
            Self::No | Self::For(Duration::ZERO) => false,
            Self::For(_) | Self::Forever => true,
        }
    }

    /// What is left of it for who has waited since then.
    pub(super) fn after(self, begun: Instant) -> Self {
        match self {
            Self::No | Self::Forever => self,
            Self::For(time) => Self::For(time.saturating_sub(begun.elapsed())),
        }
    }

    /// Ends `attempt` when the time to wait is over, as one for a lock that others hold. Who does not
    /// wait for others waits for an answer of the servers, but for the session timeout at most.
    ///
    /// # Errors
    /// Those of the attempt, `held()`, or [`LockError::Unreachable`].
    pub(super) async fn bound<T>(
        self,
        session: Duration,
        held: impl FnOnce() -> LockError,
        attempt: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        match self {
            Self::Forever => attempt.await,
            Self::No | Self::For(Duration::ZERO) => {
                timeout(session, attempt).await.unwrap_or(Err(LockError::Unreachable))
            }
            Self::For(time) => timeout(time, attempt).await.unwrap_or_else(|_| Err(held())),
        }
    }
}

/// Where the contenders meet, and how ours presents itself.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) path: String,
    pub(super) id: String,
    pub(super) acl: Vec<Acl>,
    pub(super) refuses_strangers: bool,
}

impl Terms {
    /// Open to everybody; the process's number for an identity.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub(super) fn new(path: &str) -> Result<Self, LockError> {
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
                id: format!("pid {}", std::process::id()),
                acl: Acls::anyone_all().iter().cloned().collect(),
                refuses_strangers: false,
            }),
        }
    }

    /// The same for a znode below the path.
    pub(super) fn below(&self, name: &str) -> Self {
        Self { path: format!("{}/{name}", self.path), ..self.clone() }
    }

    /// What is said when the time to wait is over.
    pub(super) fn held(&self) -> LockError {
        LockError::Held { path: self.path.clone() }
    }
}

/// The builders that every lock has; it keeps its [`Terms`] in `self.terms`.
macro_rules! common_terms {
    () => {
        /// Who we are, for people who look at the lock: it becomes the znode's data.
        #[must_use]
        pub fn id(mut self, id: impl Into<String>) -> Self {
            self.terms.id = id.into();
            self
        }

        /// The access control list of our znode and of parents that are missing.
        #[must_use]
        pub fn acl(mut self, acl: impl Into<Vec<zookeeper_client::Acl>>) -> Self {
            self.terms.acl = acl.into();
            self
        }

        /// The path.
        #[must_use]
        pub fn path(&self) -> &str {
            &self.terms.path
        }
    };
}
pub(super) use common_terms;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_a_lock_is_refused_with_the_reason() {
        for path in ["", "/", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/a\n"] {
            assert!(matches!(Terms::new(path), Err(LockError::Path { .. })), "{path:?}");
        }
        assert_eq!(Terms::new("/a/b.c").unwrap().path, "/a/b.c");
    }
}
