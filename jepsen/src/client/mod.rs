//! A client: one session at a time, over one connection after another, everything in the journal.
//!
//! *Owns* the session, what is in flight, the watches that it brings along, and what it believes to
//! hold. *Invariants*: requests carry xids that rise over all its connections; it pings like any
//! client of ZooKeeper, gives a connection up after two thirds of the session's timeout without a
//! word, and stops believing in a lock when its timeout has passed since it sent what was last
//! answered. *Never* retries a request by itself.

pub mod link;
pub mod reader;
mod watches;
pub mod wire;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_check::history::{
    CLIENT_SLEEP, EventKind, Notice, NoticeKind, Operation, OperationId, StoreWrite,
};
use lockkeeper_check::op::{Answer, Call, Code};

use crate::journal::Journal;
use crate::random::Random;
use link::Link;
use watches::Watches;

/// A server as clients know it.
#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    pub address: SocketAddr,
}

/// What a client is given.
#[derive(Clone, Debug)]
pub struct Terms {
    pub journal: Arc<Journal>,
    pub servers: Arc<[Server]>,
    /// Session timeout that it asks for.
    pub timeout: Duration,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub xid: i32,
    pub zxid: i64,
    pub result: Result<Answer, Code>,
}

/// The connection is gone, and with it what became of all that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected;

/// How a client got a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connected {
    /// With the session that it had.
    Again,
    /// With a new one; if it had one before, that is gone.
    New,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub path: String,
}

/// A request under way.
#[derive(Debug)]
struct Open {
    xid: i32,
    id: OperationId,
    call: Call,
    sent: Instant,
}

/// A lock that the client takes itself for the holder of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub lock: String,
    pub token: i64,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    terms: Terms,
    process: u64,
    random: Random,
    /// Which server it is connected to or tries next.
    server: usize,
    link: Option<Link>,
    session: i64,
    password: Vec<u8>,
    timeout: Duration,
    last_zxid: i64,
    next_xid: i32,
    open: VecDeque<Open>,
    pings: VecDeque<Open>,
    replies: VecDeque<Reply>,
    events: VecDeque<Event>,
    watches: Watches,
    held: Option<Held>,
    last_sent: Instant,
    last_heard: Instant,
    /// When it sent what was answered last: a server has heard of the session then or later.
    alive_since: Instant,
}

/// Pause between attempts to connect, at most.
const ATTEMPT_PAUSE_MAX: Duration = Duration::from_millis(50);
/// A call that is not answered for this long, though the connection lives, is given up with it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

impl Client {
    /// A client without a connection.
    #[must_use]
    pub fn new(terms: Terms, process: u64, seed: u64) -> Self {
        let now = Instant::now();
        let servers = terms.servers.len();
        let random = Random::new(seed, process);
        let server = usize::try_from(process).expect("a small number") % servers;
        let timeout = terms.timeout;
        Self {
            terms,
            process,
            random,
            server,
            link: None,
            session: 0,
            password: vec![0; wire::PASSWORD_BYTES],
            timeout,
            last_zxid: 0,
            next_xid: 1,
            open: VecDeque::new(),
            pings: VecDeque::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            watches: Watches::default(),
            held: None,
            last_sent: now,
            last_heard: now,
            alive_since: now,
        }
    }

    #[must_use]
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Its own chance.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// The session, 0 if there is none.
    #[must_use]
    pub fn session(&self) -> i64 {
        self.session
    }

    /// The session's timeout, as granted.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn node(&self) -> Option<String> {
        Some(self.terms.servers[self.server].name.clone())
    }

    fn notice(&self, kind: NoticeKind) {
        let (process, session, node) = (self.process, self.session, self.node());
        let at = Default::default();
        self.terms.journal.notice(Notice { at, process, node, session, kind });
    }

    // --- connections

    /// Gets a connection, trying one server after another. `None` if there is none by `until`.
    pub fn connect(&mut self, until: Instant) -> Option<Connected> {
        while Instant::now() < until {
            self.doubt();
            let asked = self.session;
            match self.attempt(until) {
                Some(true) if asked == 0 => return Some(Connected::New),
                Some(true) if self.bring_watches().is_ok() => return Some(Connected::Again),
                // The session is gone: the next attempt asks for a new one.
                Some(false) => continue,
                Some(true) | None => {}
            }
            self.server = (self.server + 1) % self.terms.servers.len();
            let pause = self.random.between(Duration::ZERO, ATTEMPT_PAUSE_MAX);
            std::thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
        }
        None
    }

    /// One attempt: whether the session stands, if a server said so.
    fn attempt(&mut self, until: Instant) -> Option<bool> {
        let mut link = Link::open(self.terms.servers[self.server].address).ok()?;
        let asked_ms = i32::try_from(self.terms.timeout.as_millis()).expect("a few seconds");
        let call = Call::Connect {
            session: self.session,
            timeout_ms: asked_ms,
            last_zxid: self.last_zxid,
        };
        let mut operation = Operation::new(self.process, call);
        operation.node = self.node();
        operation.session = self.session;
        let sent = Instant::now();
        let id = self.terms.journal.invoke(operation);
        let frame = wire::connect(self.session, &self.password, asked_ms, self.last_zxid);
        let patience = until.min(sent + self.timeout.mul_f64(2.0 / 3.0));
        let patience = patience.min(self.belief_end().unwrap_or(patience));
        let granted = link
            .send(&frame)
            .and_then(|()| link.receive(patience))
            .map_err(|error| error.to_string())
            .and_then(|frame| frame.ok_or_else(|| "no answer in time".to_owned()))
            .and_then(|frame| {
                let granted = wire::granted(&frame);
                granted.map_err(|what| self.odd(&format!("reply to a connect: {what}")))
            });
        let granted = match granted {
            Ok(granted) => granted,
            Err(reason) => {
                self.terms.journal.gave_up(id, &reason);
                return None;
            }
        };
        let (session, timeout_ms) = (granted.session, granted.timeout_ms);
        self.terms.journal.replied(id, 0, Ok(Answer::Session { session, timeout_ms }));
        if session == 0 {
            self.expired();
            return Some(false);
        }
        self.session = session;
        self.password = granted.password;
        self.timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or_default());
        self.link = Some(link);
        (self.last_sent, self.last_heard, self.alive_since) = (sent, Instant::now(), sent);
        Some(true)
    }

    /// Tells the new server which watches the client had.
    fn bring_watches(&mut self) -> Result<(), Disconnected> {
        let Some(watches) = self.watches.to_bring(self.last_zxid) else { return Ok(()) };
        let call = Call::SetWatches(watches);
        self.submit(wire::SET_WATCHES_XID, call)?;
        self.reply_to(wire::SET_WATCHES_XID).map(drop)
    }

    /// The session is gone, says a server.
    fn expired(&mut self) {
        if self.session != 0 {
            self.notice(NoticeKind::Expired);
        }
        self.forget_session();
    }

    fn forget_session(&mut self) {
        self.let_go();
        self.session = 0;
        self.password = vec![0; wire::PASSWORD_BYTES];
        self.last_zxid = 0;
        self.watches = Watches::default();
        self.events.clear();
        self.link = None;
        self.settle("the session is over");
    }

    /// Nobody will answer what is in flight.
    fn settle(&mut self, reason: &str) {
        for open in self.open.drain(..).chain(self.pings.drain(..)) {
            self.terms.journal.gave_up(open.id, reason);
        }
        self.replies.clear();
    }

    /// Leaves the connection, keeps the session: what is in flight stays unknown.
    pub fn disconnect(&mut self, reason: &str) {
        if self.link.take().is_none() {
            return;
        }
        self.settle(reason);
        self.notice(NoticeKind::Disconnected);
    }

    /// Leaves the connection and goes to another server with the same session.
    pub fn move_on(&mut self) {
        self.disconnect("the client goes to another server");
        self.server = (self.server + 1) % self.terms.servers.len();
    }

    /// Leaves the session without a word, as a client that dies.
    pub fn abandon_session(&mut self) {
        self.disconnect("the client dies");
        self.forget_session();
    }

    fn lost(&mut self, reason: &str) -> Disconnected {
        self.disconnect(reason);
        self.server = (self.server + 1) % self.terms.servers.len();
        Disconnected
    }

    fn odd(&self, what: &str) -> String {
        let server = &self.terms.servers[self.server].name;
        self.terms.journal.oddity(format!("{server} to process {}: {what}", self.process));
        what.to_owned()
    }

    // --- requests

    /// Sends a request and waits for its answer. Answers to earlier ones are kept for `next_reply`.
    ///
    /// # Errors
    /// The connection is gone before the answer.
    pub fn call(&mut self, call: Call) -> Result<Reply, Disconnected> {
        let xid = self.send(call)?;
        self.reply_to(xid)
    }

    /// Sends a request; its xid.
    ///
    /// # Errors
    /// There is no connection, or it is gone now; then the request may have arrived.
    pub fn send(&mut self, call: Call) -> Result<i32, Disconnected> {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.submit(xid, call)?;
        Ok(xid)
    }

    fn submit(&mut self, xid: i32, call: Call) -> Result<(), Disconnected> {
        let Some(link) = &mut self.link else { return Err(Disconnected) };
        let mut operation = Operation::new(self.process, call.clone());
        operation.node = Some(self.terms.servers[self.server].name.clone());
        operation.session = self.session;
        operation.xid = Some(xid);
        let frame = wire::request(xid, &call);
        let sent = Instant::now();
        let id = self.terms.journal.invoke(operation);
        let open = Open { xid, id, call, sent };
        match open.call {
            Call::Ping => self.pings.push_back(open),
            _ => self.open.push_back(open),
        }
        self.last_sent = sent;
        match link.send(&frame) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    fn reply_to(&mut self, xid: i32) -> Result<Reply, Disconnected> {
        let until = Instant::now() + ANSWER_MAX;
        loop {
            if let Some(at) = self.replies.iter().position(|reply| reply.xid == xid) {
                return Ok(self.replies.remove(at).expect("it was found there"));
            }
            if Instant::now() >= until {
                return Err(self.lost("no answer"));
            }
            self.pump(until)?;
        }
    }

    /// The next answer to a request that was sent, in the order in which they come; `None` if none
    /// comes by `until`.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn next_reply(&mut self, until: Instant) -> Result<Option<Reply>, Disconnected> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Ok(Some(reply));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            self.pump(until)?;
        }
    }

    /// Lets time pass, with an ear on the connection.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn idle(&mut self, until: Instant) -> Result<(), Disconnected> {
        while Instant::now() < until {
            self.pump(until)?;
        }
        Ok(())
    }

    /// Stands still as a whole, as a process that the machine does not let run: nothing is sent,
    /// nothing is heard, and nothing is thought of in this time.
    pub fn sleep(&mut self, time: Duration) {
        let what = format!("process {} for {:.2} s", self.process, time.as_secs_f64());
        self.terms.journal.fault(CLIENT_SLEEP, &what);
        std::thread::sleep(time);
    }

    /// Waits for a notification about a path. Whether it came by `until`.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn wait_for(&mut self, path: &str, until: Instant) -> Result<bool, Disconnected> {
        loop {
            if let Some(at) = self.events.iter().position(|event| event.path == path) {
                self.events.remove(at);
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            self.pump(until)?;
        }
    }

    /// Forgets the notifications about what lies below a path that nobody asked for yet.
    pub fn forget_events(&mut self, below: &str) {
        self.events.retain(|event| !event.path.starts_with(below));
    }

    /// Takes what comes until `until` or until something came, and pings when it is time.
    fn pump(&mut self, until: Instant) -> Result<(), Disconnected> {
        let ping_at = self.last_sent + self.timeout / 3;
        let given_up_at = self.last_heard + self.timeout.mul_f64(2.0 / 3.0);
        let now = Instant::now();
        if now >= given_up_at {
            return Err(self.lost("nothing was heard for two thirds of the timeout"));
        }
        if now >= ping_at {
            self.submit(wire::PING_XID, Call::Ping)?;
        }
        let Some(link) = &mut self.link else { return Err(Disconnected) };
        let wake = until.min(given_up_at).min(ping_at.max(now + Duration::from_millis(1)));
        match link.receive(wake) {
            Ok(None) => Ok(()),
            Ok(Some(frame)) => {
                self.last_heard = Instant::now();
                match self.take(&frame) {
                    Ok(()) => Ok(()),
                    Err(what) => {
                        let what = self.odd(&what.0);
                        Err(self.lost(&what))
                    }
                }
            }
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Takes one frame.
    fn take(&mut self, frame: &[u8]) -> Result<(), reader::Garbled> {
        let (header, rest) = wire::header(frame)?;
        if header.xid == wire::NOTIFICATION_XID {
            if let Some((kind, path)) = wire::notification(rest)? {
                self.watches.fired(kind, &path);
                let (event, path) = (kind, path);
                self.notice(NoticeKind::Watch { zxid: header.zxid, event, path: path.clone() });
                self.events.push_back(Event { kind, path });
            }
            return Ok(());
        }
        let is_ping = header.xid == wire::PING_XID;
        let waiting = if is_ping { &mut self.pings } else { &mut self.open };
        let place = waiting.iter().position(|open| open.xid == header.xid);
        let nobody = || reader::Garbled(format!("an answer with the xid {}", header.xid));
        let open = place.and_then(|at| waiting.remove(at)).ok_or_else(nobody)?;
        let result = match header.error {
            0 => match wire::answer(&open.call, rest) {
                Ok(answer) => Ok(answer),
                Err(what) => {
                    self.terms.journal.gave_up(open.id, "the answer is garbled");
                    return Err(what);
                }
            },
            error => Err(Code(error)),
        };
        self.terms.journal.replied(open.id, header.zxid, result.clone());
        self.last_zxid = self.last_zxid.max(header.zxid);
        self.alive_since = self.alive_since.max(open.sent);
        self.watches.asked(&open.call, &result);
        if !is_ping {
            self.replies.push_back(Reply { xid: open.xid, zxid: header.zxid, result });
        }
        Ok(())
    }

    /// Ends the session, if there is a connection to say so.
    ///
    /// # Errors
    /// The connection is gone before the answer.
    pub fn close(&mut self) -> Result<(), Disconnected> {
        self.let_go();
        let reply = self.call(Call::Close)?;
        if reply.result.is_ok() {
            self.forget_session();
        }
        Ok(())
    }

    // --- locks, as far as a client believes in them

    /// From now on it takes itself for the holder of a lock.
    pub fn hold(&mut self, lock: &str, znode: &str, token: i64) {
        self.let_go();
        self.held = Some(Held { lock: lock.to_owned(), token });
        let (lock, znode) = (lock.to_owned(), znode.to_owned());
        self.notice(NoticeKind::Holds { lock, znode, token });
    }

    /// What it takes itself for the holder of, if anything.
    pub fn held(&mut self) -> Option<&Held> {
        self.doubt();
        self.held.as_ref()
    }

    /// It does so no more.
    pub fn let_go(&mut self) {
        if let Some(Held { lock, .. }) = self.held.take() {
            self.notice(NoticeKind::HoldsNoMore { lock });
        }
    }

    /// A write to a store of the run.
    pub fn stored(&self, write: StoreWrite) {
        self.notice(NoticeKind::Stored(write));
    }

    /// A careful client believes only as long as nobody can have been told that its session is gone.
    fn belief_end(&self) -> Option<Instant> {
        self.held.as_ref().map(|_| self.alive_since + self.timeout)
    }

    fn doubt(&mut self) {
        if self.belief_end().is_some_and(|end| Instant::now() >= end) {
            self.let_go();
        }
    }
}
