//! Sessions that are only there, with watches if so wanted, while something else is measured.
//!
//! *Invariants*, checked: all of them last, and none is told of an event, because what they watch must
//! not be touched. They do not keep themselves alive: whoever has them calls
//! [`Bystanders::keep_alive`] more often than their timeout, which is 40 s, at most.

use std::net::SocketAddr;

use super::session::{PATIENCE, Session};
use super::{Fault, files, wire};

/// Some sessions.
#[derive(Debug, Default)]
pub struct Bystanders {
    sessions: Vec<Session>,
}

impl Bystanders {
    /// Opens so many, at these servers in turn.
    ///
    /// # Errors
    /// One cannot be had, or this machine does not allow so many connections.
    pub fn open(addrs: &[SocketAddr], count: usize) -> Result<Self, Fault> {
        files::allow(count)?;
        let open = |addr: &SocketAddr| Session::open(*addr, PATIENCE);
        let sessions = addrs.iter().cycle().take(count).map(open).collect::<Result<_, _>>()?;
        Ok(Bystanders { sessions })
    }

    /// Watches the data of these znodes, each by one of the sessions, in turn.
    ///
    /// # Errors
    /// One cannot be read, or there is no session.
    pub fn watch(&mut self, paths: &[String]) -> Result<(), Fault> {
        let share = paths.len().div_ceil(self.sessions.len().max(1)).max(1);
        if self.sessions.len() < paths.len().div_ceil(share) {
            return Err(Fault::Machine("nobody is there to watch".into()));
        }
        for (session, paths) in self.sessions.iter_mut().zip(paths.chunks(share)) {
            let requests = paths.iter().map(|path| (path.clone(), wire::get_and_watch(path)));
            session.call_all(requests, |path, answer| match answer.err {
                0 => Ok(()),
                err => Err(Fault::refused(format!("watch {path}"), err)),
            })?;
        }
        Ok(())
    }

    /// Tells the servers that all of them live, and hears that they do.
    ///
    /// # Errors
    /// One has ended.
    pub fn keep_alive(&mut self) -> Result<(), Fault> {
        self.sessions.iter_mut().try_for_each(Session::ping)?;
        self.sessions.iter_mut().try_for_each(Session::pinged)
    }
}
