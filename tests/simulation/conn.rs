//! One connection, as the checker sees it.
//!
//! *Owns* what a connection was sent, what it still must be sent, and its watches. *Invariants*
//! checked here: replies in the order of requests; every reply is what the model says at the zxid in
//! its header; an event before every reply that could show its change; a one-shot watch fires once;
//! no event that nobody asked for.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use lockkeeper_core::proto::connect::ConnectRequest;
use lockkeeper_core::proto::request::{AddWatchMode, SetWatches, Undecodable, WatcherType};
use lockkeeper_core::proto::response::ReplyHeader;
use lockkeeper_core::proto::{MultiResult, OpCode, Reader, Request, Response, Text};
use lockkeeper_core::replica::ClientRequest;
use lockkeeper_core::tree::Rules;

use super::model::acl::{self, Id};
use super::model::{self, Event, Model};
use super::sessions::Grant;

/// What a rule's violation is.
pub type Violation = String;

/// A decoded frame from the server.
#[derive(Clone, Debug)]
pub struct Frame {
    pub payload: Bytes,
}

/// What was sent that the server must answer, in order.
#[derive(Clone, Debug)]
pub struct Pending {
    pub xid: i32,
    pub op: i32,
    pub request: Result<Request, Undecodable>,
    pub is_write: bool,
    /// A quorum confirms first that the answer is new enough.
    is_confirmed: bool,
    /// Identities of its connection when it was asked.
    ids: Vec<Id>,
    /// The reply must show everything up to this zxid: it was over when this was asked.
    floor: i64,
    /// When the server was given it, by its own clock.
    heard_us: u64,
    /// What the transaction came to, once it was applied: zxid and outcome.
    pub applied: Option<(i64, Result<Response, i32>)>,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Connecting(ConnectRequest),
    Open(i64),
}

/// The watches of one connection.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    data: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    pub phase: Phase,
    /// It has this session, and is to be told.
    pub granted: Option<Grant>,
    /// When the server was told of it, its client had seen more than the server had.
    pub is_ahead: bool,
    /// It cannot have the session that it asked for, and is to be told.
    pub is_refused: bool,
    pub ids: Vec<Id>,
    pub pending: VecDeque<Pending>,
    /// Outcomes of auth packets, which are answered out of order.
    pub auths: VecDeque<i32>,
    pub watches: Watches,
    /// Events that must be sent: zxid, kind, path.
    pub expected: VecDeque<(i64, i32, String)>,
    /// Events that setWatches made up, not yet explained.
    pub made_up: Vec<(i32, String)>,
    pub inbox: VecDeque<Frame>,
    /// The server says that it is over.
    pub closes: bool,
    /// It must be over, and why.
    pub must_close: Option<&'static str>,
    /// Nothing more is looked at.
    pub closing: bool,
    /// Reads wait until a quorum has confirmed that they are new enough.
    confirms_reads: bool,
    /// Rules of its server.
    pub own: Rules,
    pub writes: u64,
    pub last_zxid: i64,
    /// When the server was given the request that it answered last, until that is taken.
    pub answered_us: Option<u64>,
}

impl Watches {
    /// Whether a change is to be told; uses up what is used up by it.
    fn fires(&mut self, kind: i32, path: &str) -> bool {
        let mut fires = self.persistent.contains(path);
        if kind == model::CHILDREN_CHANGED {
            return self.child.remove(path) || fires;
        }
        fires |= self.data.remove(path);
        if kind == model::DELETED {
            fires |= self.child.remove(path);
        }
        fires || self.recursive.iter().any(|root| covers(root, path))
    }

    fn has(&self, path: &str, kind: WatcherType) -> bool {
        let [data, child, persistent, recursive] =
            [&self.data, &self.child, &self.persistent, &self.recursive]
                .map(|set| set.contains(path));
        match kind {
            WatcherType::Data => data,
            WatcherType::Children => child,
            WatcherType::Persistent => persistent,
            WatcherType::PersistentRecursive => recursive,
            WatcherType::Any => data || child || persistent || recursive,
        }
    }

    fn remove(&mut self, path: &str, kind: WatcherType) {
        use WatcherType::{Any, Children, Data, Persistent, PersistentRecursive};
        for (set, own) in [
            (&mut self.data, Data),
            (&mut self.child, Children),
            (&mut self.persistent, Persistent),
            (&mut self.recursive, PersistentRecursive),
        ] {
            if kind == Any || kind == own {
                set.remove(path);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.data.len() + self.child.len() + self.persistent.len() + self.recursive.len()
    }
}

fn covers(root: &str, path: &str) -> bool {
    // The empty path is the root for reads, but no znode's ancestor for watches.
    root == "/"
        || path == root
        || !root.is_empty() && path.strip_prefix(root).is_some_and(|r| r.starts_with('/'))
}

/// What a frame turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Took {
    /// Nothing: it belongs to a later zxid.
    Later,
    Event,
    Reply,
}

impl Conn {
    pub fn new(remote: String, request: ConnectRequest, confirms_reads: bool) -> Self {
        Self {
            phase: Phase::Connecting(request),
            granted: None,
            is_ahead: false,
            is_refused: false,
            ids: vec![("ip".to_owned(), remote)],
            pending: VecDeque::new(),
            auths: VecDeque::new(),
            watches: Watches::default(),
            expected: VecDeque::new(),
            made_up: Vec::new(),
            inbox: VecDeque::new(),
            closes: false,
            must_close: None,
            closing: false,
            confirms_reads,
            own: Rules::DEFAULT,
            writes: 0,
            last_zxid: 0,
            answered_us: None,
        }
    }

    /// The session, if it has one.
    pub fn session(&self) -> Option<i64> {
        match self.phase {
            Phase::Open(session) => Some(session),
            Phase::Connecting(_) => None,
        }
    }

    /// The server must end it, and owes it nothing more.
    pub fn end(&mut self, why: &'static str) {
        self.must_close = Some(why);
        self.pending.clear();
        self.watches = Watches::default();
    }

    /// The server was given a request. True: it must become a transaction.
    /// `floor`: what anybody may have been told of. `heard_us`: by the server's clock.
    /// `logs_reconfig`: a wish for other members becomes a transaction, too.
    pub fn request(
        &mut self,
        request: &ClientRequest,
        logs_reconfig: bool,
        floor: i64,
        heard_us: u64,
    ) -> bool {
        if self.closing || self.must_close.is_some() || self.session().is_none() {
            return false;
        }
        if let Ok(Request::Auth { scheme, auth }) = &request.decoded {
            let is_digest = scheme.as_ref().is_some_and(|scheme| scheme.as_str() == "digest");
            match auth {
                Some(auth) if is_digest && self.own.digest_auth => {
                    let id = ("digest".to_owned(), digest_id(auth).to_owned());
                    if !self.ids.contains(&id) {
                        self.ids.push(id);
                    }
                    self.auths.push_back(0);
                }
                Some(_) | None => {
                    self.auths.push_back(-115);
                    self.closing = true;
                }
            }
            return false;
        }
        let is_write = matches!(
            request.decoded,
            Ok(Request::Create(_)
                | Request::Delete { .. }
                | Request::SetData { .. }
                | Request::SetAcl { .. }
                | Request::Multi(_)
                | Request::CloseSession)
        ) || logs_reconfig
            && matches!(request.decoded, Ok(Request::Reconfig { .. }));
        self.closing =
            matches!(request.decoded, Ok(Request::CloseSession) | Err(Undecodable::UnknownOp));
        self.writes += u64::from(is_write);
        let is_confirmed = match &request.decoded {
            Ok(Request::Sync { .. }) => true,
            Ok(
                Request::Exists { .. }
                | Request::GetData { .. }
                | Request::GetAcl { .. }
                | Request::GetChildren { .. }
                | Request::GetEphemerals { .. }
                | Request::GetAllChildrenNumber { .. }
                | Request::MultiRead(_),
            ) => self.confirms_reads,
            Ok(_) | Err(_) => false,
        };
        self.pending.push_back(Pending {
            xid: request.xid,
            op: request.op,
            request: request.decoded.clone(),
            is_write,
            is_confirmed,
            ids: self.ids.clone(),
            floor: if is_confirmed { floor } else { 0 },
            heard_us,
            applied: None,
        });
        is_write
    }

    /// A change happened: notes what must be sent because of it.
    pub fn witness(&mut self, zxid: i64, event: &Event) {
        if self.must_close.is_some() || !self.watches.fires(event.kind, &event.path) {
            return;
        }
        if acl::allowed(&event.acl, &self.ids, acl::READ, self.own).is_ok() {
            self.expected.push_back((zxid, event.kind, event.path.clone()));
        }
    }

    /// One of its writes was applied.
    pub fn applied(
        &mut self,
        xid: i32,
        zxid: i64,
        outcome: Result<Response, i32>,
    ) -> Result<(), Violation> {
        if let Phase::Connecting(_) = self.phase {
            self.is_refused = true;
            return Ok(());
        }
        if outcome == Err(model::SESSION_MOVED) {
            // There is no reply: its client has another connection.
            if self.must_close.is_none() {
                self.end("its session moved");
            }
            return Ok(());
        }
        let Some(pending) = self.pending.iter_mut().find(|p| p.is_write && p.applied.is_none())
        else {
            return Ok(());
        };
        if pending.xid != xid {
            return Err(format!("{xid} is applied before {pending:?}, which came first"));
        }
        pending.applied = Some((zxid, outcome));
        Ok(())
    }

    /// Explains the first frame of the inbox, if it belongs to the model's zxid.
    pub fn take(&mut self, model: &Model, zxid: i64) -> Result<Took, Violation> {
        let Some(frame) = self.inbox.front() else { return Ok(Took::Later) };
        let mut reader = Reader::new(frame.payload.clone());
        let header = ReplyHeader::decode(&mut reader).map_err(|e| format!("a reply: {e}"))?;
        let took = match header.xid {
            -1 => self.take_event(&header, &mut reader, zxid)?,
            -4 if !self.auths.is_empty() => self.take_auth(&header)?,
            _ => self.take_reply(&header, &mut reader, model, zxid)?,
        };
        if took != Took::Later {
            self.inbox.pop_front();
            if header.zxid > 0 {
                if header.zxid < self.last_zxid {
                    return Err(format!("zxid {:#x} after {:#x}", header.zxid, self.last_zxid));
                }
                self.last_zxid = header.zxid;
            }
        }
        Ok(took)
    }

    fn take_event(
        &mut self,
        header: &ReplyHeader,
        reader: &mut Reader,
        zxid: i64,
    ) -> Result<Took, Violation> {
        let bad = |e| format!("an event: {e}");
        let kind = reader.int("type").map_err(bad)?;
        let state = reader.int("state").map_err(bad)?;
        let path = reader.string("path").map_err(bad)?;
        if (header.err, state) != (0, 3) {
            return Err(format!("an event with error {} and state {state}", header.err));
        }
        if header.zxid == -1 {
            self.made_up.push((kind, path.as_str().to_owned()));
            return Ok(Took::Event);
        }
        if header.zxid > zxid {
            return Ok(Took::Later);
        }
        let got = (header.zxid, kind, path.as_str().to_owned());
        match self.expected.pop_front() {
            Some(expected) if expected == got => Ok(Took::Event),
            expected => Err(format!("event {got:?}, expected {expected:?}")),
        }
    }

    fn take_auth(&mut self, header: &ReplyHeader) -> Result<Took, Violation> {
        let expected = self.auths.pop_front().expect("it is not empty");
        if (header.zxid, header.err) != (0, expected) {
            return Err(format!("auth answered by {header:?}, expected error {expected}"));
        }
        if expected != 0 {
            self.end("auth failed");
        }
        Ok(Took::Reply)
    }

    fn take_reply(
        &mut self,
        header: &ReplyHeader,
        reader: &mut Reader,
        model: &Model,
        zxid: i64,
    ) -> Result<Took, Violation> {
        let Some(pending) = self.pending.front() else {
            return Err(format!("{header:?}, but nothing was asked"));
        };
        if header.zxid > zxid {
            return Ok(Took::Later);
        }
        let is_ping = matches!(pending.request, Ok(Request::Ping));
        let xid = if is_ping { -2 } else { pending.xid };
        if header.xid != xid {
            return Err(format!("reply to xid {}, expected to {pending:?}", header.xid));
        }
        if pending.is_write && pending.applied.is_none() {
            return Err(format!("reply to {pending:?}, which was not applied"));
        }
        let is_unknown = matches!(pending.request, Err(Undecodable::UnknownOp));
        let expected_zxid = if is_unknown { -1 } else { zxid };
        if header.zxid != expected_zxid {
            return Err(format!("{header:?} while the zxid is {zxid:#x}, to {pending:?}"));
        }
        if zxid < pending.floor {
            let floor = pending.floor;
            return Err(format!("{header:?} is older than {floor:#x}, to {pending:?}"));
        }
        if let Some(event) = self.expected.front() {
            return Err(format!("reply {header:?} before the event {event:?}"));
        }
        let pending = self.pending.pop_front().expect("it has a front");
        self.answered_us = Some(pending.heard_us);
        let outcome = self.outcome(&pending, model);
        let got = decode(pending.op, header, reader)?;
        if got != outcome {
            let what = &pending.request;
            return Err(format!("{what:?}\n  got      {got:?}\n  expected {outcome:?}"));
        }
        if is_unknown {
            self.end("unknown opcode");
        }
        if pending.closed_the_session() {
            self.end("its session is closed");
        }
        Ok(Took::Reply)
    }

    /// What the reply to the request at the front must say; a read's watch is left here.
    fn outcome(&mut self, pending: &Pending, model: &Model) -> Result<Response, i32> {
        if let Some((_, outcome)) = &pending.applied {
            return outcome.clone();
        }
        let session = self.session().unwrap_or(0);
        let ids = pending.ids.clone();
        let request = match &pending.request {
            Err(Undecodable::UnknownOp) => return Err(model::UNIMPLEMENTED),
            Err(Undecodable::Malformed(_)) => return Err(model::MARSHALLING),
            Ok(request) => request,
        };
        match request {
            Request::Sync { path } => Ok(Response::Echo(path.clone())),
            Request::Ping => Ok(Response::Empty),
            Request::Reconfig { .. } => Err(model::RECONFIG_DISABLED),
            Request::WhoAmI => {
                let shown = ids.iter().map(|(scheme, id)| {
                    let user = if scheme == "digest" { before_colon(id) } else { id };
                    (Text::from(scheme.as_str()), Text::from(user))
                });
                Ok(Response::Identities(shown.collect()))
            }
            Request::AddWatch { path, mode } => {
                let set = match mode {
                    AddWatchMode::Persistent => &mut self.watches.persistent,
                    AddWatchMode::PersistentRecursive => &mut self.watches.recursive,
                };
                set.insert(path.as_str().to_owned());
                Ok(Response::Number(0))
            }
            Request::CheckWatches { path, kind } => found(self.watches.has(path.as_str(), *kind)),
            Request::RemoveWatches { path, kind } => {
                let found = found(self.watches.has(path.as_str(), *kind));
                self.watches.remove(path.as_str(), *kind);
                found
            }
            Request::SetWatches { watches, .. } => {
                let missed = self.set_watches(model, watches);
                let made_up = std::mem::take(&mut self.made_up);
                assert_eq!(made_up, missed, "events of setWatches");
                Ok(Response::Empty)
            }
            read => {
                let outcome = model.read(&ids, session, read);
                self.leave_watch(read, outcome.as_ref().err().copied());
                outcome
            }
        }
    }

    fn leave_watch(&mut self, read: &Request, error: Option<i32>) {
        match read {
            Request::Exists { path, watch: true }
                if matches!(error, None | Some(model::NO_NODE)) =>
            {
                self.watches.data.insert(path.as_str().to_owned());
            }
            Request::GetData { path, watch: true } if error.is_none() => {
                self.watches.data.insert(path.as_str().to_owned());
            }
            Request::GetChildren { path, watch: true, .. } if error.is_none() => {
                self.watches.child.insert(path.as_str().to_owned());
            }
            _ => {}
        }
    }

    /// Registers, and says which events setWatches must make up.
    fn set_watches(&mut self, model: &Model, asked: &SetWatches) -> Vec<(i32, String)> {
        let since = asked.relative_zxid;
        let mut missed = Vec::new();
        let Watches { data, child, persistent, recursive } = &mut self.watches;
        for path in asked.data.iter().map(Text::as_str) {
            match model.find(path) {
                None => missed.push((model::DELETED, path.to_owned())),
                Some(znode) if znode.mzxid > since => {
                    missed.push((model::DATA_CHANGED, path.to_owned()));
                }
                Some(_) => drop(data.insert(path.to_owned())),
            }
        }
        for path in asked.exist.iter().map(Text::as_str) {
            match model.find(path) {
                Some(_) => missed.push((model::CREATED, path.to_owned())),
                None => drop(data.insert(path.to_owned())),
            }
        }
        for path in asked.child.iter().map(Text::as_str) {
            match model.find(path) {
                None => missed.push((model::DELETED, path.to_owned())),
                Some(znode) if znode.pzxid > since => {
                    missed.push((model::CHILDREN_CHANGED, path.to_owned()));
                }
                Some(_) => drop(child.insert(path.to_owned())),
            }
        }
        persistent.extend(asked.persistent.iter().map(|path| path.as_str().to_owned()));
        recursive.extend(asked.persistent_recursive.iter().map(|path| path.as_str().to_owned()));
        missed
    }

    /// After a batch: what must be true of a connection that goes on.
    pub fn settled(&self) -> Result<(), Violation> {
        if let Some(event) = self.expected.front() {
            return Err(format!("the event {event:?} was not sent"));
        }
        if let Some(why) = self.must_close {
            return Err(format!("it goes on after: {why}"));
        }
        if self.granted.is_some() || self.is_refused {
            return Err(format!("{:?} was decided, but not answered", self.phase));
        }
        if let Some(event) = self.made_up.first() {
            return Err(format!("event {event:?} with zxid -1, but no reply to a setWatches"));
        }
        if !self.auths.is_empty() {
            return Err("an auth packet was not answered at once".to_owned());
        }
        match self.pending.front() {
            Some(pending) if pending.applied.is_some() => {
                Err(format!("{pending:?} was applied, but not answered"))
            }
            Some(pending) if !pending.is_write && !pending.is_confirmed => {
                Err(format!("{pending:?} waits for nothing, but was not answered"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Pending {
    /// Whether it was a wish to close the session, and was granted.
    pub fn closed_the_session(&self) -> bool {
        matches!(self.request, Ok(Request::CloseSession))
            && matches!(self.applied, Some((_, Ok(_))))
    }
}

fn found(there: bool) -> Result<Response, i32> {
    if there { Ok(Response::Empty) } else { Err(-121) }
}

fn before_colon(id: &str) -> &str {
    id.split(':').next().unwrap_or_default()
}

/// What the simulation's passwords prove.
fn digest_id(auth: &[u8]) -> &'static str {
    match auth {
        b"u0:p" => "u0:DIpnEgFj6vM9ScYgMWbYOXVpTe8=",
        b"u1:p" => "u1:FfP80c+zcEPgU6zorph629PDPJ0=",
        b"u2:p" => "u2:AaHy+pRIUVK2OXJejfBQ3E/DOVQ=",
        other => panic!("no client of the simulation says {other:?}"),
    }
}

/// Decodes a reply's body; child lists are sorted, because their order means nothing.
fn decode(
    op: i32,
    header: &ReplyHeader,
    reader: &mut Reader,
) -> Result<Result<Response, i32>, Violation> {
    if header.err != 0 {
        return Ok(Err(header.err));
    }
    let op = OpCode::from_wire(op).ok_or("success of an unknown opcode")?;
    let mut response =
        Response::decode(op, reader).map_err(|e| format!("a reply to {op:?}: {e}"))?;
    match &mut response {
        Response::Names(names) | Response::NamesStat(names, _) => names.sort(),
        Response::Multi(results) => {
            for result in results {
                if let MultiResult::GetChildren { names } = result {
                    names.sort();
                }
            }
        }
        _ => {}
    }
    if reader.remaining() > 0 {
        return Err(format!("a reply to {op:?} has {} bytes too many", reader.remaining()));
    }
    Ok(Ok(response))
}
