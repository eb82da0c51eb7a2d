//! Sessions that are only there, with watches if so wanted, while something else is measured.
//!
//! *Invariants*, checked: all of them last, and none is told of an event, because what they watch must
//! not be touched. They do not keep themselves alive: the caller that has them calls
//! [`Bystanders::keep_alive`] more often than their timeout, which is 40 s, at most, or has them
//! [`Bystanders::live`].

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::sockets::LOOK;
use lockkeeper::internals::bench::{Answer, Fault, PATIENCE, Session, files, wire};

/// How long those that are open wait for the others before they are heard of.
const OPENING_MAX: Duration = Duration::from_secs(5);

/// Sessions that send at one moment: the packets of as many hosts pass through this one machine, whose
/// kernel queues a thousand for a processor and drops the rest, of all senders.
pub const AT_ONCE: usize = 64;
/// Between two groups that get no answer: long enough for the packets of one to arrive.
const PAUSE: Duration = Duration::from_millis(1);

/// Some sessions.
#[derive(Debug, Default)]
pub struct Bystanders {
    sessions: Vec<Session>,
    /// The one that pings next, of those that live.
    next: usize,
}

impl Bystanders {
    /// Opens so many, at these servers in turn.
    ///
    /// # Errors
    /// One cannot be had, or this machine does not allow so many connections.
    pub fn open(addrs: &[SocketAddr], count: usize) -> Result<Self, Fault> {
        files::allow(count)?;
        let mut all = Bystanders::default();
        let mut heard = Instant::now();
        for addr in addrs.iter().cycle().take(count) {
            all.sessions.push(Session::open(*addr, PATIENCE)?);
            if heard.elapsed() >= OPENING_MAX {
                all.keep_alive()?;
                heard = Instant::now();
            }
        }
        Ok(all)
    }

    /// Has these, too.
    pub fn absorb(&mut self, mut others: Bystanders) {
        self.sessions.append(&mut others.sessions);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Has each ask the same, [`AT_ONCE`] at one time. `judge` sees the answers.
    pub fn ask_each(
        &mut self,
        request: &[u8],
        mut judge: impl FnMut(&Answer) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for group in self.sessions.chunks_mut(AT_ONCE) {
            group.iter_mut().try_for_each(|session| session.ask(request.to_vec()))?;
            for session in group {
                judge(&session.answered()?)?;
            }
        }
        Ok(())
    }

    /// Watches the data of these znodes, each by one of the sessions, in turn.
    ///
    /// # Errors
    /// One cannot be read, or there is no session.
    pub fn watch(&mut self, paths: &[String]) -> Result<(), Fault> {
        let share = paths.len().div_ceil(self.sessions.len().max(1)).max(1);
        if self.sessions.len() < paths.len().div_ceil(share) {
            return Err(Fault::Machine("there is no client to watch".into()));
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
        for group in self.sessions.chunks_mut(AT_ONCE) {
            group.iter_mut().try_for_each(ping)?;
            group.iter_mut().try_for_each(pinged)?;
        }
        Ok(())
    }

    /// Ends all connections without a word: 64,000 a second.
    pub fn vanish(mut self) {
        while !self.sessions.is_empty() {
            self.sessions.truncate(self.sessions.len().saturating_sub(AT_ONCE));
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns after so long, in which each has pinged as a real client would: at a third of its
    /// timeout, one after the other.
    ///
    /// # Errors
    /// One has ended.
    pub fn live(&mut self, length: Duration) -> Result<(), Fault> {
        let began = Instant::now();
        let count = self.sessions.len();
        let interval = self.sessions.first().map_or(LOOK, |session| session.timeout() / 3);
        let mut heard = 0;
        while began.elapsed() < length {
            let turns = began.elapsed().as_secs_f64() / interval.as_secs_f64();
            let due = (turns * count as f64).ceil() as usize;
            for _ in heard..due {
                let session = &mut self.sessions[self.next];
                ping(session)?;
                pinged(session)?;
                self.next = (self.next + 1) % count;
            }
            heard = due;
            std::thread::sleep(LOOK.min(length.saturating_sub(began.elapsed())));
        }
        Ok(())
    }
}

impl From<Vec<Session>> for Bystanders {
    fn from(sessions: Vec<Session>) -> Self {
        Bystanders { sessions, next: 0 }
    }
}

/// Tells the server that the session lives. [`pinged`] is to follow.
fn ping(session: &mut Session) -> Result<(), Fault> {
    session.send(&wire::ping())
}

/// Waits for the answer to that.
fn pinged(session: &mut Session) -> Result<(), Fault> {
    session.answer(wire::PING_XID).map(drop)
}
