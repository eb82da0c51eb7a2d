//! Many sessions that lose their connections at one moment: some come back, the others expire.
//!
//! Each has an ephemeral znode. *Invariants*, checked: a client that comes back is the session it was, no client
//! that is back loses its znode, and no other client keeps it. *Never* leaves a session or a znode behind
//! if it ends well.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::wire::Granted;
use lockkeeper::internals::bench::{Access, Answer, Fault, PATIENCE, Session, files, wire};

use crate::bystanders::{AT_ONCE, Bystanders};
use crate::crowd::reconnect;

/// How much longer than their timeout those that do not come back may last.
const EXPIRY_MAX: Duration = Duration::from_secs(60);
/// Time between two counts of the znodes that are left.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);

/// What is to happen.
#[derive(Clone, Debug)]
pub struct Storm {
    /// The servers; sessions go to them in turn, and come back to the next one each.
    pub addrs: Vec<SocketAddr>,
    /// The znode for the ephemeral ones.
    pub room: String,
    /// Sessions that come back, all at once.
    pub returning: usize,
    /// Sessions that do not.
    pub expiring: usize,
    /// The session timeout to ask for.
    pub timeout: Duration,
}

/// What has happened. Seconds count from the beginning.
#[derive(Clone, Debug)]
pub struct Passed {
    /// All had a session and a znode.
    pub opened: f64,
    /// All that were let back in knew it; the connections were lost at [`Passed::opened`].
    pub returned: f64,
    /// The znodes of all others were gone.
    pub expired: f64,
    /// All sessions were closed.
    pub closed: f64,
    /// Sessions that were not let back in; they count as expired.
    pub refused: usize,
}

impl Storm {
    /// Lets it happen.
    ///
    /// # Errors
    /// A server cannot be reached, refuses, or errs, or this machine does not allow so many
    /// connections.
    pub fn run(&self) -> Result<Passed, Fault> {
        files::allow(self.returning + self.expiring)?;
        let mut counter = Session::open(self.addrs[0], PATIENCE)?;
        counter.ensure_all(&self.room)?;
        let began = Instant::now();
        let (crowd, granted) = self.gather()?;
        let opened = began.elapsed();
        crowd.vanish();
        let mut crowd = self.come_back(&granted[..self.returning])?;
        let back = crowd.count();
        let returned = began.elapsed();
        let heard = Instant::now();
        crowd.live(self.timeout)?;
        while counter.children(&self.room)? as usize > back {
            if heard.elapsed() > self.timeout + EXPIRY_MAX {
                return Err(Fault::wrong("an ephemeral znode outlasts its session"));
            }
            crowd.live(COUNT_INTERVAL)?;
        }
        let expired = began.elapsed();
        // A client that ended although it was back is not there to answer.
        crowd.keep_alive()?;
        if counter.children(&self.room)? as usize != back {
            return Err(Fault::wrong("a session that is alive has lost its ephemeral znode"));
        }
        crowd.ask_each(&wire::bare(wire::CLOSE), accepted)?;
        let closed = began.elapsed();
        counter.call(wire::delete(&self.room))?;
        counter.close()?;
        let [opened, returned, expired, closed] =
            [opened, returned, expired, closed].map(|since| since.as_secs_f64());
        let refused = self.returning - back;
        Ok(Passed { opened, returned, expired, closed, refused })
    }

    /// Opens all sessions and makes their znodes, and keeps those alive that are open already.
    fn gather(&self) -> Result<(Bystanders, Vec<Granted>), Fault> {
        let timeout_ms = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let (request, access) = (wire::connect(timeout_ms), Access::default());
        let create = wire::create_ephemeral_sequential(&format!("{}/session-", self.room));
        let count = self.returning + self.expiring;
        let (mut all, mut granted) = (Bystanders::default(), Vec::with_capacity(count));
        let mut heard = Instant::now();
        while granted.len() < count {
            let group = granted.len()..count.min(granted.len() + AT_ONCE);
            let greet = |number| Session::greet(self.addr(number), PATIENCE, &request, &access);
            let mut sessions = group.map(greet).collect::<Result<Vec<_>, _>>()?;
            for session in &mut sessions {
                let refused = || Fault::Unreachable("session refused".into());
                granted.push(session.granted()?.ok_or_else(refused)?);
            }
            let mut group = Bystanders::from(sessions);
            group.ask_each(&create, accepted)?;
            all.absorb(group);
            if heard.elapsed() >= self.timeout / 3 {
                all.keep_alive()?;
                heard = Instant::now();
            }
        }
        // So that their timeouts begin at about one moment.
        all.keep_alive()?;
        Ok((all, granted))
    }

    /// New connections for these sessions, all under way at one time; returns those that were let in.
    fn come_back(&self, granted: &[Granted]) -> Result<Bystanders, Fault> {
        let access = Access::default();
        let greet = |(number, granted)| {
            Session::greet(self.addr(number + 1), PATIENCE, &reconnect(granted), &access)
        };
        let sessions = granted.iter().enumerate().map(greet).collect::<Result<Vec<_>, Fault>>()?;
        let mut back = Vec::with_capacity(sessions.len());
        for (mut session, before) in sessions.into_iter().zip(granted) {
            match session.granted()? {
                Some(granted) if granted.session == before.session => back.push(session),
                Some(_) => return Err(Fault::wrong("another session than the one that came back")),
                None => {}
            }
        }
        Ok(back.into())
    }

    fn addr(&self, number: usize) -> SocketAddr {
        self.addrs[number % self.addrs.len()]
    }
}

fn accepted(answer: &Answer) -> Result<(), Fault> {
    match answer.err {
        0 => Ok(()),
        err => Err(Fault::refused("a session of a storm", err)),
    }
}
