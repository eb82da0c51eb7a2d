//! A client of the servers.
//!
//! *Owns* a session, and a thread that reads answers and events. A command that asks one thing and ends has the session
//! of one connection, which is closed at the end. One that stays has a session that lasts: it is kept alive by pings,
//! and moves to another server when its connection ends, with the identities and watches that there were.
//! *Invariants*: nothing waits for ever; one request at a time is on its way; events are told before the answer that
//! shows their change; an answer that was lost ([`ClientError::Lost`]) is told apart from a refusal, because only then
//! is the outcome unknown. *Never* asks again by itself: the caller knows whether that is harmless. *Never* prints.
//! Reproduces the state machine of `ClientCnxn`.

mod connection;
mod diagnosis;
mod line;
mod watches;

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::client_configuration::ClientConfiguration;
use super::credential::Credential;
use super::flags::Access;
use crate::config::HostPort;
use crate::proto::connect::Password;
use crate::proto::request::{WatcherType, XID_AUTH, XID_EVENT, XID_PING, XID_SET_WATCHES};
use crate::proto::response::{ReplyHeader, decode_event};
use crate::proto::{ConnectRequest, ConnectResponse, EventType, Reader, Request, Response, Text};
use connection::{Connection, NOT_ASKED, is_close, is_silence, reason, request_frame};
use line::Line;
use watches::Watches;

pub(super) use connection::{ClientError, WANTS_LOGIN, code_name};
#[cfg(feature = "recipes")]
pub(super) use diagnosis::of_server as diagnosed;
pub(super) use diagnosis::{Port, of_error as why};
#[cfg(feature = "bench")]
pub(super) use line::resolve;
pub(super) use line::{CONNECT_MAX, open};
pub(super) use watches::Removed;

/// How long servers are asked again that answer but do not serve: an election is shorter.
const LEADERLESS_MAX: Duration = Duration::from_secs(3);
/// Pause between two rounds of that.
pub(super) const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// The timeout of a session that does not last, in case it is not closed.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest handshake of a session that lasts.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Pings, or other requests, in the time of a session's timeout.
const PINGS_PER_TIMEOUT: u32 = 3;
/// Looks at the clock between two pings.
const LOOKS_PER_PING: u32 = 4;

/// Wanted properties of a session.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// Servers to ask, credentials, and longest wait.
    pub access: Access,
    /// The session's timeout; the server may grant another.
    pub timeout: Duration,
    /// Whether a server without a majority will do.
    pub read_only: bool,
    /// Whether the session is kept alive, and moves to another server.
    pub lasts: bool,
}

impl Wish {
    /// Request for a session, or for this one again by a client that has seen everything up to `zxid`.
    fn request(
        &self,
        timeout: Duration,
        id: i64,
        password: &Password,
        zxid: i64,
    ) -> ConnectRequest {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: zxid,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: id,
            password: Bytes::copy_from_slice(password),
            read_only: Some(self.read_only),
        }
    }

    /// Longest handshake.
    fn handshake_max(&self) -> Duration {
        let answer_max = self.access.answer_max;
        if self.lasts { HANDSHAKE_MAX.min(answer_max) } else { answer_max }
    }
}

/// News of a session besides answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A watch has fired.
    Event { kind: EventType, path: Text, zxid: i64 },
    /// The connection ended; another is looked for.
    Disconnected { server: HostPort, reason: String },
    /// There is another connection, for the same session.
    Reconnected { server: HostPort },
    /// The session is over: its ephemeral znodes and watches are gone.
    Expired,
}

/// Present state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connected,
    ConnectedReadOnly,
    Connecting,
    Closed,
}

/// A session.
pub(super) struct Client {
    shared: Arc<Shared>,
    /// The xid of the last request, held while one is on its way.
    last_xid: Mutex<i32>,
}

impl Client {
    /// A session that does not last, on the first server that gives one.
    ///
    /// # Errors
    /// None gives one, or an identity is not accepted.
    pub(super) fn connect(access: &Access) -> Result<Self, ClientError> {
        let (access, timeout) = (access.clone(), SESSION_TIMEOUT);
        Self::open(Wish { access, timeout, read_only: false, lasts: false }, |_| {})
    }

    /// A session on the first server that gives one; `tell` is called by a thread of the session.
    ///
    /// # Errors
    /// None gives one, or an identity is not accepted.
    pub(super) fn open(
        wish: Wish,
        tell: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, ClientError> {
        let (mut connection, writer, answer) = first_that_serves(&wish)?;
        if let Some(login) = &wish.access.configuration.login {
            connection.log_in(login)?;
        }
        let credentials = wish.access.credentials.clone();
        let state = Mutex::new(State::new(connection.server.clone(), writer, &answer));
        let shared = Arc::new(Shared { state, changed: Condvar::new(), wish });
        let client = Self { shared: Arc::clone(&shared), last_xid: Mutex::new(0) };
        std::thread::spawn(move || shared.run(connection, &tell));
        for credential in &credentials {
            client.authenticate(credential)?;
        }
        Ok(client)
    }

    /// Asks, and waits for the answer. Waits for a connection, too, if there is none.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    pub(super) fn call(&self, request: &Request) -> Result<Response, ClientError> {
        let mut xid = self.last_xid.lock().expect(NO_PANIC);
        *xid = xid.checked_add(1).unwrap_or(1);
        self.shared.ask(*xid, request)
    }

    /// Takes on an identity, for all connections to come as well.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    pub(super) fn authenticate(&self, credential: &Credential) -> Result<(), ClientError> {
        let _one_at_a_time = self.last_xid.lock().expect(NO_PANIC);
        self.shared.ask(XID_AUTH, &credential.request())?;
        self.shared.state().credentials.push(credential.clone());
        Ok(())
    }

    /// Removes watches, and says which there were. With `locally` also without a server.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    pub(super) fn remove_watches(
        &self,
        path: &Text,
        kind: WatcherType,
        locally: bool,
    ) -> Result<Vec<Removed>, ClientError> {
        let is_connected = matches!(self.phase(), Phase::Connected | Phase::ConnectedReadOnly);
        if is_connected || !locally {
            self.call(&Request::RemoveWatches { path: path.clone(), kind })?;
        }
        Ok(self.shared.state().watches.remove(path, kind))
    }

    pub(super) fn phase(&self) -> Phase {
        match &self.shared.state().link {
            LinkState::Up(link) if link.read_only => Phase::ConnectedReadOnly,
            LinkState::Up(_) => Phase::Connected,
            LinkState::Down => Phase::Connecting,
            LinkState::Over(_) => Phase::Closed,
        }
    }

    /// Its number.
    pub(super) fn id(&self) -> i64 {
        self.shared.state().id
    }

    /// Ends the session. That this fails is for the session's timeout.
    pub(super) fn close(self) {
        if matches!(self.phase(), Phase::Connected | Phase::ConnectedReadOnly) {
            let _answer = self.call(&Request::CloseSession);
        }
    }
}

/// Nothing keeps the thread alive.
impl Drop for Client {
    fn drop(&mut self) {
        self.shared.end(unreachable(CLOSED));
    }
}

struct Shared {
    state: Mutex<State>,
    /// The link is up or over, or an answer is there.
    changed: Condvar,
    wish: Wish,
}

struct State {
    link: LinkState,
    pending: Option<Pending>,
    watches: Watches,
    credentials: Vec<Credential>,
    /// Answers to identities that were taken along, which no caller waits for.
    unasked_auths: usize,
    id: i64,
    password: Password,
    timeout: Duration,
    zxid: i64,
    /// Time at which something was last sent.
    sent: Instant,
}

enum LinkState {
    Up(Link),
    Down,
    /// For ever, and why.
    Over(ClientError),
}

struct Link {
    writer: Line,
    server: HostPort,
    read_only: bool,
}

struct Pending {
    xid: i32,
    request: Request,
    answer: Option<Result<Response, ClientError>>,
}

impl State {
    fn new(server: HostPort, writer: Line, answer: &ConnectResponse) -> Self {
        Self {
            link: LinkState::Up(Link { writer, server, read_only: answer.read_only == Some(true) }),
            pending: None,
            watches: Watches::default(),
            credentials: Vec::new(),
            unasked_auths: 0,
            id: answer.session_id,
            password: answer.password,
            timeout: granted(answer),
            zxid: 0,
            sent: Instant::now(),
        }
    }

    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.sent = Instant::now();
        match &mut self.link {
            LinkState::Up(link) => link.writer.send(frames),
            LinkState::Down | LinkState::Over(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The pending request, if any, has no answer and will not have one.
    fn give_up(&mut self, why: ClientError) {
        if let Some(pending) = &mut self.pending {
            pending.answer.get_or_insert(Err(why));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }

    fn ask(&self, xid: i32, request: &Request) -> Result<Response, ClientError> {
        let answer_max = self.wish.access.answer_max;
        let until = Instant::now() + answer_max;
        let mut state = self.state();
        let server = loop {
            match &state.link {
                LinkState::Up(link) => break link.server.clone(),
                LinkState::Over(why) => return Err(why.clone()),
                LinkState::Down => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(unreachable("there is no connection"));
            }
            state = self.changed.wait_timeout(state, left).expect(NO_PANIC).0;
        };
        let lost = |reason| ClientError::Lost { server: server.clone(), reason };
        state.pending = Some(Pending { xid, request: request.clone(), answer: None });
        if let Err(error) = state.send(&request_frame(xid, request)) {
            // The reader finds out as well, and connects again.
            state.give_up(lost(reason(&error, answer_max)));
        }
        // To send much on a slow line takes its own time.
        let until = Instant::now() + answer_max;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.give_up(lost(format!("no answer for {} s", answer_max.as_secs())));
            }
            let answered = state.pending.take_if(|pending| pending.answer.is_some());
            if let Some(answer) = answered.and_then(|pending| pending.answer) {
                return answer;
            }
            state = self.changed.wait_timeout(state, left).expect(NO_PANIC).0;
        }
    }

    /// Ends the session on this side.
    fn end(&self, why: ClientError) {
        let mut state = self.state();
        if let LinkState::Up(link) = &state.link {
            // It may have ended already.
            let _ = link.writer.socket().shutdown(Shutdown::Both);
        }
        state.give_up(why.clone());
        if !matches!(state.link, LinkState::Over(_)) {
            state.link = LinkState::Over(why);
        }
        self.changed.notify_all();
    }

    /// The session's thread.
    fn run(&self, mut connection: Connection, tell: &impl Fn(Notice)) {
        loop {
            let error = self.serve(&mut connection, tell);
            if !self.wish.lasts {
                return self.end(connection.lost(&error));
            }
            let ended = is_close(&error).then(|| "the connection ended".to_string());
            let reason = ended.unwrap_or_else(|| error.to_string());
            let Some(server) = self.down(&reason) else { return };
            tell(Notice::Disconnected { server: server.clone(), reason });
            match self.connect_again(&server) {
                Again::Connected(again) => {
                    connection = again;
                    tell(Notice::Reconnected { server: connection.server.clone() });
                }
                Again::Expired => {
                    self.end(unreachable("the session has expired"));
                    return tell(Notice::Expired);
                }
                Again::Closed => return,
            }
        }
    }

    /// Reads until the connection ends, and says why it did.
    fn serve(&self, connection: &mut Connection, tell: &impl Fn(Notice)) -> io::Error {
        let timeout = self.state().timeout;
        let ping_interval = timeout / PINGS_PER_TIMEOUT;
        let mut heard = Instant::now();
        if let Err(error) = connection.wait_for(ping_interval / LOOKS_PER_PING) {
            return error;
        }
        loop {
            match connection.frame() {
                Ok(payload) => {
                    heard = Instant::now();
                    if let Err(error) = self.take(payload, &connection.server, tell) {
                        return error;
                    }
                }
                Err(error) if is_silence(&error) => {}
                Err(error) => return error,
            }
            if !self.wish.lasts {
                continue;
            }
            if heard.elapsed() > timeout - ping_interval {
                let silent_ms = heard.elapsed().as_millis();
                return io::Error::other(format!("no answer for {silent_ms} ms"));
            }
            let mut state = self.state();
            if state.sent.elapsed() >= ping_interval {
                // A failure is for the next read to find.
                let _ = state.send(&request_frame(XID_PING, &Request::Ping));
            }
        }
    }

    /// An answer or an event.
    fn take(&self, payload: Bytes, server: &HostPort, tell: &impl Fn(Notice)) -> io::Result<()> {
        let mut reader = Reader::new(payload);
        let header = ReplyHeader::decode(&mut reader).map_err(io::Error::other)?;
        if header.xid == XID_EVENT {
            let (kind, path) = decode_event(&mut reader).map_err(io::Error::other)?;
            self.state().watches.fired(kind, &path);
            tell(Notice::Event { kind, path, zxid: header.zxid });
            return Ok(());
        }
        let mut state = self.state();
        state.zxid = state.zxid.max(header.zxid);
        if header.xid == XID_AUTH && state.unasked_auths > 0 {
            state.unasked_auths -= 1;
            return match header.err {
                0 => Ok(()),
                _ => Err(io::Error::other("an identity is not accepted any more")),
            };
        }
        let State { pending, watches, link, .. } = &mut *state;
        match pending {
            Some(pending) if pending.xid == header.xid && pending.answer.is_none() => {
                watches.answered(&pending.request, header.err);
                pending.answer = Some(match header.err {
                    0 => Ok(Response::decode(pending.request.op(), &mut reader)
                        .map_err(io::Error::other)?),
                    code => Err(ClientError::Refused { server: server.clone(), code }),
                });
                if matches!(pending.request, Request::CloseSession) {
                    // The server closes the connection now, which is no loss.
                    *link = LinkState::Over(unreachable(CLOSED));
                }
                self.changed.notify_all();
            }
            // To a ping, to watches that were set again, or too late for the caller.
            Some(_) | None if self.wish.lasts => {}
            Some(_) | None => return Err(io::Error::other(NOT_ASKED)),
        }
        Ok(())
    }

    /// The connection has ended: says whose it was, unless the session is over as well.
    fn down(&self, reason: &str) -> Option<HostPort> {
        let mut state = self.state();
        let LinkState::Up(link) = &state.link else { return None };
        let server = link.server.clone();
        state.give_up(ClientError::Lost { server: server.clone(), reason: reason.to_string() });
        state.link = LinkState::Down;
        self.changed.notify_all();
        Some(server)
    }

    /// Connects again, first to the servers behind the one that was lost.
    fn connect_again(&self, lost: &HostPort) -> Again {
        let Access { servers, configuration, .. } = &self.wish.access;
        let count = servers.len();
        let next = servers.iter().position(|server| server == lost).map_or(0, |at| at + 1);
        loop {
            for server in servers.iter().cycle().skip(next % count).take(count) {
                let request = {
                    let state = self.state();
                    if matches!(state.link, LinkState::Over(_)) {
                        return Again::Closed;
                    }
                    let State { timeout, id, password, zxid, .. } = &*state;
                    self.wish.request(*timeout, *id, password, *zxid)
                };
                let timeout = Duration::from_millis(request.timeout_ms.unsigned_abs().into());
                let answer_max = (timeout / PINGS_PER_TIMEOUT).clamp(CONNECT_MAX, HANDSHAKE_MAX);
                let ClientConfiguration { tls, login } = configuration;
                match Connection::open(server, tls.as_ref(), &request, answer_max) {
                    Ok(Some((.., answer))) if answer.timeout_ms <= 0 => return Again::Expired,
                    Ok(Some((mut connection, writer, answer))) => {
                        if let Some(login) = login
                            && connection.log_in(login).is_err()
                        {
                            // Its users may be others than those of the next one.
                            continue;
                        }
                        if let Ok(again) = self.up(connection, writer, &answer) {
                            return again;
                        }
                    }
                    // The next one, then.
                    Ok(None) | Err(_) => {}
                }
            }
            let state = self.state();
            // The caller that closes the session does not wait for this thread.
            drop(self.changed.wait_timeout(state, ROUND_PAUSE).expect(NO_PANIC));
        }
    }

    /// Takes identities and watches along to a new connection, before anything is asked there.
    fn up(
        &self,
        mut connection: Connection,
        writer: Line,
        answer: &ConnectResponse,
    ) -> io::Result<Again> {
        let mut state = self.state();
        if matches!(state.link, LinkState::Over(_)) {
            return Ok(Again::Closed);
        }
        let mut out = Vec::new();
        for credential in &state.credentials {
            out.extend(request_frame(XID_AUTH, &credential.request()));
        }
        for request in state.watches.again(state.zxid) {
            out.extend(request_frame(XID_SET_WATCHES, &request));
        }
        connection.send(&out)?;
        let server = connection.server.clone();
        let read_only = answer.read_only == Some(true);
        state.link = LinkState::Up(Link { writer, server, read_only });
        state.unasked_auths = state.credentials.len();
        state.timeout = granted(answer);
        state.sent = Instant::now();
        self.changed.notify_all();
        Ok(Again::Connected(connection))
    }
}

/// Result of connecting again.
enum Again {
    Connected(Connection),
    Expired,
    Closed,
}

/// A session on the first server that gives one. Servers that answer without a leader are asked again for a moment, and
/// all of them are for as long as the user is patient.
fn first_that_serves(wish: &Wish) -> Result<(Connection, Line, ConnectResponse), ClientError> {
    let Access { servers, configuration, patience, .. } = &wish.access;
    let tls = configuration.tls.as_ref();
    let request = wish.request(wish.timeout, 0, &[0; 16], 0);
    let begun = Instant::now();
    loop {
        let mut reasons = Vec::new();
        let mut answers = false;
        for server in servers {
            match Connection::open(server, tls, &request, wish.handshake_max()) {
                Ok(Some(opened)) if opened.2.timeout_ms > 0 => return Ok(opened),
                Ok(_) => {
                    answers = true;
                    reasons.push(None);
                }
                Err(error) => reasons.push(Some(why(&error, Port::Client, tls.is_some()))),
            }
        }
        let time = if answers { (*patience).max(LEADERLESS_MAX) } else { *patience };
        if begun.elapsed() >= time {
            let named = |(server, reason): (&HostPort, Option<String>)| {
                let reason = reason.unwrap_or_else(|| diagnosis::of_server(server, tls));
                format!("{server}: {reason}")
            };
            return Err(ClientError::Unreachable(servers.iter().zip(reasons).map(named).collect()));
        }
        std::thread::sleep(ROUND_PAUSE);
    }
}

fn granted(answer: &ConnectResponse) -> Duration {
    Duration::from_millis(answer.timeout_ms.unsigned_abs().into())
}

fn unreachable(why: &str) -> ClientError {
    ClientError::Unreachable(vec![why.to_string()])
}

const CLOSED: &str = "the session is closed";
const NO_PANIC: &str = "no thread panics while it holds this";
