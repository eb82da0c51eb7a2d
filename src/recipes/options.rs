//! The options that all recipes have in common, with their defaults and limits.
//!
//! *Owns* [`RecipeOptions`]. *Invariant*: the path of a recipe's options can be that of a lock, because every
//! recipe is built through [`RecipeOptions::checked`]. *Never* asks a server anything.

use zookeeper_client::{Acl, Acls};

use super::error::LockError;

/// Where the contenders of a recipe meet, and how ours presents itself. Every recipe's constructor takes
/// one; where a path is enough, the path alone stands for the options with their defaults.
///
/// * The path has no default. It is absolute and not the root, and has no empty or relative part and no control
///   character; the recipe's constructor checks that.
/// * [`id`](Self::id): by default `pid <number of the process>`. In bytes, it has to fit with the path below
///   the servers' `jute.maxbuffer` (1,048,575 bytes unless configured).
/// * [`acl`](Self::acl): by default everybody may do everything. It has at least one entry, or the servers refuse
///   the znode (`InvalidACL`).
/// * [`refuse_strangers`](Self::refuse_strangers): off by default; they are logged then, and listed by
///   [`Guard::strangers`](super::Guard::strangers).
///
/// How long to wait is given with each attempt ([`Wait`](super::Wait)), how long a silent holder keeps the
/// lock with the client (`zookeeper_client::Connector::with_session_timeout`). What only one recipe has is
/// an argument or a method of that recipe: permits, members, a name, or whose naming scheme to use.
///
/// ```
/// use lockkeeper::recipes::{Mutex, RecipeOptions, Semaphore};
///
/// # fn main() -> Result<(), lockkeeper::recipes::LockError> {
/// let plain = Mutex::new("/locks/report")?;
/// let options = RecipeOptions::at("/locks/printers").id("10.0.0.7:8080").refuse_strangers();
/// let printers = Semaphore::new(options, 3)?;
/// assert_eq!((plain.path(), printers.path()), ("/locks/report", "/locks/printers"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecipeOptions {
    pub(super) path: String,
    pub(super) id: String,
    pub(super) acl: Vec<Acl>,
    pub(super) refuses_strangers: bool,
}

impl RecipeOptions {
    /// The defaults, at this path; neither it nor its parents need to exist.
    #[must_use]
    pub fn at(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            id: format!("pid {}", std::process::id()),
            acl: Acls::anyone_all().iter().cloned().collect(),
            refuses_strangers: false,
        }
    }

    /// Who we are, for people who look at the lock: it becomes the data of our znode.
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

    /// Refuses to take the lock ([`LockError::Foreign`]) while contenders share its path that would not wait
    /// for us. Without effect where no other kind of contender looks at the recipe's znodes: leases,
    /// elections in the layout of `LeaderLatch`, names, and barriers.
    #[must_use]
    pub fn refuse_strangers(mut self) -> Self {
        self.refuses_strangers = true;
        self
    }

    /// The options, if the path can be a lock's: every recipe's constructor begins with this.
    ///
    /// # Errors
    /// [`LockError::Path`]
    pub(super) fn checked(self) -> Result<Self, LockError> {
        let path = self.path.as_str();
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
            Some(reason) => Err(LockError::Path { path: self.path, reason }),
            None => Ok(self),
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

impl From<&str> for RecipeOptions {
    fn from(path: &str) -> Self {
        Self::at(path)
    }
}

impl From<&String> for RecipeOptions {
    fn from(path: &String) -> Self {
        Self::at(path)
    }
}

impl From<String> for RecipeOptions {
    fn from(path: String) -> Self {
        Self::at(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_a_lock_is_refused_with_the_reason() {
        for path in ["", "/", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/a\n"] {
            let refused = RecipeOptions::at(path).checked();
            assert!(matches!(refused, Err(LockError::Path { .. })), "{path:?}");
        }
        assert_eq!(RecipeOptions::at("/a/b.c").checked().unwrap().path, "/a/b.c");
    }
}
