//! A session that lasts: it is kept alive, and moves to another server when its connection ends.
//!
//! *Owns* the session, and a thread that reads answers and events, pings, and connects again with
//! the identities and watches that there were. *Invariants*: one request at a time is on its way;
//! events are told before the answer that shows their change; a request whose connection ended is
//! [`ClientError::Lost`], never sent again. *Never* prints.
//! Reproduces the state machine of `ClientCnxn`.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::connection::{self, Connection, is_silence, request_frame};
use super::line::Line;
use super::watches::{Removed, Watches};
use super::{CONNECT_MAX, ClientError, ROUND_PAUSE, first_that_serves, new_session};
use crate::cli::client_configuration::ClientConfiguration;
use crate::cli::credential::Credential;
use crate::cli::flags::Access;
use crate::config::HostPort;
use crate::proto::connect::Password;
use crate::proto::request::{WatcherType, XID_AUTH, XID_EVENT, XID_PING, XID_SET_WATCHES};
use crate::proto::response::{ReplyHeader, decode_event};
use crate::proto::{ConnectRequest, ConnectResponse, EventType, Reader, Request, Response, Text};

/// How long a handshake may take at most.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Pings, or other requests, in the time of a session's timeout.
const PINGS_PER_TIMEOUT: u32 = 3;
/// Looks at the clock between two pings.
const LOOKS_PER_PING: u32 = 4;

/// What a session is to be.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Wish {
    /// Whom to ask, as who, and how long to wait.
    pub access: Access,
    /// The session's timeout; the server may grant another.
    pub timeout: Duration,
    /// Whether a server without a majority will do.
    pub read_only: bool,
}

/// What a session has to tell besides answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Notice {
    /// A watch has fired.
    Event { kind: EventType, path: Text, zxid: i64 },
    /// The connection ended; another is looked for.
    Disconnected { server: HostPort, reason: String },
    /// There is another connection, for the same session.
    Reconnected { server: HostPort },
    /// The session is over: its ephemeral znodes and watches are gone.
    Expired,
}

/// What a session is right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Phase {
    Connected,
    ConnectedReadOnly,
    Connecting,
    Closed,
}

/// A session.
pub(in crate::cli) struct Session {
    shared: Arc<Shared>,
    /// The xid of the last request, held while one is on its way.
    last_xid: Mutex<i32>,
}

impl Session {
    /// A session on the first server that gives one; `tell` is called by a thread of the session.
    ///
    /// # Errors
    /// None gives one, or an identity is not accepted.
    pub(in crate::cli) fn open(
        wish: Wish,
        tell: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, ClientError> {
        let timeout_ms = i32::try_from(wish.timeout.as_millis()).unwrap_or(i32::MAX);
        let request = ConnectRequest { read_only: Some(wish.read_only), ..new_session(timeout_ms) };
        let Access { servers, credentials, configuration, patience, answer_max, root: _ } =
            wish.access;
        let tls = configuration.tls.as_ref();
        let handshake_max = HANDSHAKE_MAX.min(answer_max);
        let opened = first_that_serves(&servers, tls, patience, |server| {
            let opened = Connection::open(server, tls, &request, handshake_max)?;
            Ok(match opened {
                Some((connection, answer)) if answer.timeout_ms > 0 => {
                    Some((connection.line()?, connection, answer, server.clone()))
                }
                Some(_) | None => None,
            })
        });
        let (writer, mut connection, answer, server) = opened?;
        if let Some(login) = &configuration.login {
            connection.log_in(login).map_err(|error| error.of(&server, handshake_max))?;
        }
        let link = Link { writer, server, read_only: answer.read_only == Some(true) };
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(link, &answer)),
            changed: Condvar::new(),
            servers,
            configuration,
            read_only: wish.read_only,
            answer_max,
        });
        let session = Self { shared: Arc::clone(&shared), last_xid: Mutex::new(0) };
        std::thread::spawn(move || shared.run(connection, &tell));
        for credential in &credentials {
            session.authenticate(credential)?;
        }
        Ok(session)
    }

    /// Asks, and waits for the answer. Waits for a connection, too, if there is none.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    pub(in crate::cli) fn call(&self, request: &Request) -> Result<Response, ClientError> {
        let mut xid = self.last_xid.lock().expect(NO_PANIC);
        *xid = xid.checked_add(1).unwrap_or(1);
        self.shared.ask(*xid, request)
    }

    /// Takes on an identity, for all connections to come as well.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    pub(in crate::cli) fn authenticate(&self, credential: &Credential) -> Result<(), ClientError> {
        let _one_at_a_time = self.last_xid.lock().expect(NO_PANIC);
        self.shared.ask(XID_AUTH, &credential.request())?;
        self.shared.state().credentials.push(credential.clone());
        Ok(())
    }

    /// Removes watches, and says which there were. With `locally` also without a server.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    pub(in crate::cli) fn remove_watches(
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

    pub(in crate::cli) fn phase(&self) -> Phase {
        match &self.shared.state().link {
            LinkState::Up(link) if link.read_only => Phase::ConnectedReadOnly,
            LinkState::Up(_) => Phase::Connected,
            LinkState::Down => Phase::Connecting,
            LinkState::Over(_) => Phase::Closed,
        }
    }

    /// Its number.
    pub(in crate::cli) fn id(&self) -> i64 {
        self.shared.state().id
    }

    /// Ends the session. That this fails is for the session's timeout.
    pub(in crate::cli) fn close(self) {
        if matches!(self.phase(), Phase::Connected | Phase::ConnectedReadOnly) {
            let _answer = self.call(&Request::CloseSession);
        }
    }
}

/// Nothing keeps the thread alive.
impl Drop for Session {
    fn drop(&mut self) {
        self.shared.end(CLOSED);
    }
}

struct Shared {
    state: Mutex<State>,
    /// The link is up or over, or an answer is there.
    changed: Condvar,
    servers: Vec<HostPort>,
    configuration: ClientConfiguration,
    read_only: bool,
    /// How long an answer may take, a new connection for the request included.
    answer_max: Duration,
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
    /// When something was last sent.
    sent: Instant,
}

enum LinkState {
    Up(Link),
    Down,
    /// For ever, and why.
    Over(&'static str),
}

struct Link {
    writer: Line,
    server: HostPort,
    read_only: bool,
}

struct Pending {
    xid: i32,
    request: Request,
    /// The code of a refusal, or why there is no answer.
    answer: Option<Result<Result<Response, i32>, String>>,
    server: HostPort,
}

impl State {
    fn new(link: Link, answer: &ConnectResponse) -> Self {
        Self {
            link: LinkState::Up(link),
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
    fn give_up(&mut self, reason: &str) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.answer.is_none()) {
            pending.answer = Some(Err(reason.to_string()));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }

    fn ask(&self, xid: i32, request: &Request) -> Result<Response, ClientError> {
        let until = Instant::now() + self.answer_max;
        let mut state = self.state();
        let server = loop {
            match &state.link {
                LinkState::Up(link) => break link.server.clone(),
                LinkState::Over(why) => return Err(unreachable(why)),
                LinkState::Down => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(unreachable("there is no connection"));
            }
            state = self.changed.wait_timeout(state, left).expect(NO_PANIC).0;
        };
        let request = request.clone();
        let frame = request_frame(xid, &request);
        state.pending = Some(Pending { xid, request, answer: None, server });
        if let Err(error) = state.send(&frame) {
            // The reader finds out as well, and connects again.
            state.give_up(&connection::reason(&error, self.answer_max));
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.give_up(&format!("no answer for {} s", self.answer_max.as_secs()));
            }
            if state.pending.as_ref().is_some_and(|pending| pending.answer.is_some()) {
                let pending = state.pending.take().expect("it was just there");
                let server = pending.server;
                return match pending.answer.expect("it was just there") {
                    Ok(answer) => answer.map_err(|code| ClientError::Refused { server, code }),
                    Err(reason) => Err(ClientError::Lost { server, reason }),
                };
            }
            state = self.changed.wait_timeout(state, left).expect(NO_PANIC).0;
        }
    }

    /// Ends the session on this side.
    fn end(&self, why: &'static str) {
        let mut state = self.state();
        if let LinkState::Up(link) = &state.link {
            // It may have ended already.
            let _ = link.writer.socket().shutdown(Shutdown::Both);
        }
        if !matches!(state.link, LinkState::Over(_)) {
            state.link = LinkState::Over(why);
        }
        state.give_up(why);
        self.changed.notify_all();
    }

    /// The session's thread.
    fn run(&self, mut connection: Connection, tell: &impl Fn(Notice)) {
        loop {
            let reason = self.serve(&mut connection, tell);
            let Some(server) = self.down(&reason) else { return };
            tell(Notice::Disconnected { server: server.clone(), reason });
            match self.connect_again(&server) {
                Again::Connected(again, server) => {
                    connection = again;
                    tell(Notice::Reconnected { server });
                }
                Again::Expired => {
                    self.end("the session has expired");
                    return tell(Notice::Expired);
                }
                Again::Closed => return,
            }
        }
    }

    /// Reads until the connection ends, and says why it did.
    fn serve(&self, connection: &mut Connection, tell: &impl Fn(Notice)) -> String {
        let timeout = self.state().timeout;
        let ping_interval = timeout / PINGS_PER_TIMEOUT;
        let mut heard = Instant::now();
        if let Err(error) = connection.wait_for(ping_interval / LOOKS_PER_PING) {
            return error.to_string();
        }
        loop {
            match connection.frame() {
                Ok(payload) => {
                    heard = Instant::now();
                    if let Err(error) = self.take(payload, tell) {
                        return error.to_string();
                    }
                }
                Err(error) if is_silence(&error) => {}
                Err(error) if connection::is_close(&error) => {
                    return "the connection ended".to_string();
                }
                Err(error) => return error.to_string(),
            }
            if heard.elapsed() > timeout - ping_interval {
                return format!("no answer for {} ms", heard.elapsed().as_millis());
            }
            let mut state = self.state();
            if state.sent.elapsed() >= ping_interval {
                // A failure is for the next read to find.
                let _ = state.send(&request_frame(XID_PING, &Request::Ping));
            }
        }
    }

    /// An answer or an event.
    fn take(&self, payload: Bytes, tell: &impl Fn(Notice)) -> io::Result<()> {
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
                pending.answer = Some(Ok(match header.err {
                    0 => Ok(Response::decode(pending.request.op(), &mut reader)
                        .map_err(io::Error::other)?),
                    code => Err(code),
                }));
                if matches!(pending.request, Request::CloseSession) {
                    // The server closes the connection now, which is no loss.
                    *link = LinkState::Over(CLOSED);
                }
                self.changed.notify_all();
            }
            // To a ping, to watches that were set again, or too late for the caller.
            Some(_) | None => {}
        }
        Ok(())
    }

    /// The connection has ended: says whose it was, unless the session is over as well.
    fn down(&self, reason: &str) -> Option<HostPort> {
        let mut state = self.state();
        state.give_up(reason);
        let server = match std::mem::replace(&mut state.link, LinkState::Down) {
            LinkState::Up(link) => Some(link.server),
            LinkState::Down => None,
            over @ LinkState::Over(_) => {
                state.link = over;
                None
            }
        };
        self.changed.notify_all();
        server
    }

    /// Connects again, first to the servers behind the one that was lost.
    fn connect_again(&self, lost: &HostPort) -> Again {
        let count = self.servers.len();
        let next = self.servers.iter().position(|server| server == lost).map_or(0, |at| at + 1);
        loop {
            for server in self.servers.iter().cycle().skip(next % count).take(count) {
                let request = {
                    let state = self.state();
                    if matches!(state.link, LinkState::Over(_)) {
                        return Again::Closed;
                    }
                    self.request(&state)
                };
                let timeout = Duration::from_millis(request.timeout_ms.unsigned_abs().into());
                let answer_max = (timeout / PINGS_PER_TIMEOUT).clamp(CONNECT_MAX, HANDSHAKE_MAX);
                let ClientConfiguration { tls, login } = &self.configuration;
                match Connection::open(server, tls.as_ref(), &request, answer_max) {
                    Ok(Some((_, answer))) if answer.timeout_ms <= 0 => return Again::Expired,
                    Ok(Some((mut connection, answer))) => {
                        if let Some(login) = login
                            && connection.log_in(login).is_err()
                        {
                            // Its users may be others than those of the next one.
                            continue;
                        }
                        match self.up(connection, &answer, server) {
                            Ok(again) => return again,
                            Err(_ended) => {}
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

    fn request(&self, state: &State) -> ConnectRequest {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: state.zxid,
            timeout_ms: i32::try_from(state.timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: state.id,
            password: Bytes::copy_from_slice(&state.password),
            read_only: Some(self.read_only),
        }
    }

    /// Takes identities and watches along to a new connection, before anything is asked there.
    fn up(
        &self,
        mut connection: Connection,
        answer: &ConnectResponse,
        server: &HostPort,
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
        let writer = connection.line()?;
        let read_only = answer.read_only == Some(true);
        state.link = LinkState::Up(Link { writer, server: server.clone(), read_only });
        state.unasked_auths = state.credentials.len();
        state.timeout = granted(answer);
        state.sent = Instant::now();
        self.changed.notify_all();
        Ok(Again::Connected(connection, server.clone()))
    }
}

/// What came of connecting again.
enum Again {
    Connected(Connection, HostPort),
    Expired,
    Closed,
}

fn granted(answer: &ConnectResponse) -> Duration {
    Duration::from_millis(answer.timeout_ms.unsigned_abs().into())
}

fn unreachable(why: &str) -> ClientError {
    ClientError::Unreachable(vec![why.to_string()])
}

const CLOSED: &str = "the session is closed";
const NO_PANIC: &str = "no thread panics while it holds this";
