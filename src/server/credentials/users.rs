//! The file with the users of SASL while a server runs.
//!
//! *Owns* when it is looked at, and what is said of it. *Invariants*: other users may authenticate within
//! [`LOOK_INTERVAL`], or the log says why not, once for each change; what connections have proved stays. *Never* takes
//! the users away because the file cannot be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::certificates::LOOK_INTERVAL;
use super::sasl::sasl_setup;
use crate::config::{Config, ConfigError};
use crate::replica::Input;
use crate::sasl::SaslUsers;
use crate::server::mailbox::Message;
use crate::supervision::{Task, spawn_blocking};

/// Somebody asks for the file to be read again, and waits for what that comes to.
type Ask = oneshot::Sender<Result<(), ConfigError>>;

/// The way to what follows the file.
#[derive(Clone, Debug)]
pub(in crate::server) struct FollowedUsers {
    is_outdated: Arc<AtomicBool>,
    asks: mpsc::Sender<Ask>,
}

impl FollowedUsers {
    /// With what is to be run as long as the server. `users`: those that its replica has; `None` without SASL.
    pub(in crate::server) fn new(
        config: Config,
        users: Option<SaslUsers>,
        driver: mpsc::Sender<Message>,
    ) -> (Self, impl Future<Output = ()>) {
        let (asks, asked) = mpsc::channel(1);
        let is_outdated = Arc::new(AtomicBool::new(false));
        let config = Arc::new(config);
        let file = Follower { config, users, failed: None, is_outdated: Arc::clone(&is_outdated) };
        (Self { is_outdated, asks }, file.follow(driver, asked))
    }

    /// Whether the file has changed and could not be used.
    pub(in crate::server) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Has the file be read again.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(in crate::server) async fn reload(&self) -> Result<(), ConfigError> {
        let (ask, answered) = oneshot::channel();
        // A server that has ended reads no files.
        match self.asks.send(ask).await {
            Ok(()) => answered.await.unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }
}

struct Follower {
    config: Arc<Config>,
    /// Who may authenticate.
    users: Option<SaslUsers>,
    /// Why that is not what the file says.
    failed: Option<ConfigError>,
    is_outdated: Arc<AtomicBool>,
}

impl Follower {
    async fn follow(mut self, driver: mpsc::Sender<Message>, mut asked: mpsc::Receiver<Ask>) {
        loop {
            let ask = tokio::select! {
                () = sleep(LOOK_INTERVAL) => None,
                Some(ask) = asked.recv() => Some(ask),
            };
            let config = Arc::clone(&self.config);
            // A file system may let one wait.
            let read = spawn_blocking(Task::Users, move || sasl_setup(&config));
            // A panic of it ends the server.
            let Ok(read) = read.await else { return };
            let changed = self.take(read.map(|setup| setup.users), ask.is_some());
            if let Some(users) = changed {
                // Without a driver the server ends.
                let _ = driver.send(Message::Input(Input::SaslUsers { users })).await;
            }
            if let Some(ask) = ask {
                // Who has asked may be gone.
                let _ = ask.send(self.failed.clone().map_or(Ok(()), Err));
            }
        }
    }

    /// Takes what was read, and says what that changes. The users that may authenticate from now on, if others.
    fn take(
        &mut self,
        read: Result<Option<SaslUsers>, ConfigError>,
        is_asked: bool,
    ) -> Option<SaslUsers> {
        let read = match read {
            Ok(None) if self.users.is_some() => Err(self.without_section()),
            read => read,
        };
        let (users, failed) = match read {
            Ok(users) => (users, None),
            Err(error) => (self.users.clone(), Some(error)),
        };
        if let Some(error) = failed.as_ref().filter(|_| is_asked || failed != self.failed) {
            tracing::error!("the new users cannot be used, and those before stay: {error}");
        }
        let is_mended = failed.is_none() && self.failed.is_some();
        let changed = users.clone().filter(|_| users != self.users);
        if changed.is_some() || is_mended || (is_asked && failed.is_none() && users.is_some()) {
            let file = self.config.sasl.jaas_file.as_deref().map(|path| path.display().to_string());
            tracing::info!(file, "clients authenticate as the users of this file");
        }
        self.is_outdated.store(failed.is_some(), Ordering::Relaxed);
        (self.users, self.failed) = (users, failed);
        changed
    }

    fn without_section(&self) -> ConfigError {
        let sasl = &self.config.sasl;
        let file = sasl.jaas_file.as_deref().map(|path| path.display().to_string());
        let reason = format!("there is no section {} any more", sasl.section);
        ConfigError { file: file.unwrap_or_default(), line: 0, key: String::new(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(password: &str) -> SaslUsers {
        let mut users = SaslUsers::default();
        users.add("bob", password).unwrap();
        users
    }

    fn follower(users: Option<SaslUsers>) -> Follower {
        let config = Arc::new(Config::default());
        Follower { config, users, failed: None, is_outdated: Arc::default() }
    }

    fn fault(reason: &str) -> ConfigError {
        let (file, key) = (String::new(), String::new());
        ConfigError { file, line: 1, key, reason: reason.to_owned() }
    }

    #[test]
    fn changed_users_are_handed_on_once() {
        let mut file = follower(Some(users("old")));
        assert_eq!(file.take(Ok(Some(users("old"))), false), None);
        assert_eq!(file.take(Ok(Some(users("new"))), false), Some(users("new")));
        assert_eq!(file.take(Ok(Some(users("new"))), true), None);
    }

    #[test]
    fn a_bad_file_leaves_the_users_and_a_good_one_ends_that() {
        let mut file = follower(Some(users("old")));
        for bad in [Err(fault("half of it")), Ok(None)] {
            assert_eq!(file.take(bad, false), None);
            assert!(file.is_outdated.load(Ordering::Relaxed) && file.failed.is_some());
        }
        assert_eq!(file.take(Ok(Some(users("old"))), false), None);
        assert!(!file.is_outdated.load(Ordering::Relaxed) && file.failed.is_none());
        assert_eq!(file.take(Err(fault("again")), false), None);
        assert_eq!(file.take(Ok(Some(users("new"))), false), Some(users("new")));
    }

    #[test]
    fn a_server_without_users_may_get_some() {
        let mut file = follower(None);
        assert_eq!(file.take(Ok(None), false), None);
        assert!(!file.is_outdated.load(Ordering::Relaxed), "there is nothing to be outdated");
        assert_eq!(file.take(Ok(Some(users("first"))), false), Some(users("first")));
    }
}
