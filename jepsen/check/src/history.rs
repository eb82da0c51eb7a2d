//! The history: what clients asked, when, what they were told, when, and what they were notified of.
//!
//! *Owns* operations and notices in the order in which they were recorded. *Invariants*: every
//! operation that was ever invoked is there; one without a reply at the end is `Unknown`, for it may
//! have taken effect or may still do so. *Never* drops one: a checker that misses an operation reports
//! violations that are none.

use crate::op::{Answer, Call, Code, Identity};

/// A place in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Number of the event in the order of recording.
    pub index: u64,
    /// Nanoseconds since the start of the run, by the recorder's monotonic clock.
    pub time_ns: u64,
}

/// One request of a client and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub invoked: Moment,
    /// The logical client. It is done for after an operation with unknown outcome only if the
    /// recorder says so: a pipelining client has several in flight.
    pub process: u64,
    /// The server that was asked, as the run names it.
    pub node: Option<String>,
    /// The session, 0 before there is one.
    pub session: i64,
    /// The request's xid. Among the writes of a session it occurs once, across reconnects too.
    pub xid: Option<i32>,
    /// Identities of the connection, as far as ACLs depend on them.
    pub ids: Vec<Identity>,
    pub call: Call,
    pub outcome: Outcome,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, with the zxid of the reply's header.
    Replied { at: Moment, zxid: i64, result: Result<Answer, Code> },
    /// It certainly had no effect: it never left the client.
    NotSent { at: Moment, reason: String },
    /// Nobody knows. `at` is when the client gave up, if it did.
    Unknown { at: Option<Moment>, reason: String },
}

/// Something that a client was told without having asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub at: Moment,
    pub process: u64,
    pub node: Option<String>,
    pub session: i64,
    pub kind: NoticeKind,
}

/// What it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// A watch fired; the zxid of the notification's header (-1 if it has none).
    Watch { zxid: i64, event: EventKind, path: String },
    /// The connection ended.
    Disconnected,
    /// The session is gone, says a server.
    Expired,
    /// From now on the client believes that it holds a lock: its own znode below the lock's, and the
    /// fencing token that goes with it.
    Holds { lock: String, znode: String, token: i64 },
    /// It believes so no more: it begins to release the lock, or was told that it lost it.
    HoldsNoMore { lock: String },
    /// The run's own store has taken a write of a lock's holder, or refused it as too old.
    Stored(StoreWrite),
}

/// A write to a store that is guarded by a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWrite {
    /// Which store.
    pub store: String,
    /// The holder's fencing token.
    pub token: i64,
    /// The value that the holder had read before; a store begins with 0.
    pub read: i64,
    pub wrote: i64,
    pub accepted: bool,
}

/// What happened to a znode that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
}

/// The name of the one fault that is no server's: a client sleeps.
pub const CLIENT_SLEEP: &str = "client-sleep";

/// The names of what is told like faults and begins none: what came of one, often told only when that is
/// over, and a strike that was not done.
pub const CONSEQUENCES: [&str; 10] = [
    "missed",
    "stopped-by-disk",
    "no-room",
    "packets-held-up",
    "packets-lost",
    "packets-overtaken",
    "log-refused",
    "image-fetched",
    "image-set-aside",
    "state-made-anew",
];

/// Something that the run did to the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Moment,
    /// Such as `kill` or `partition`.
    pub name: String,
    /// Whom it hit, for people.
    pub what: String,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In the order of invocation.
    pub operations: Vec<Operation>,
    pub notices: Vec<Notice>,
    pub faults: Vec<Fault>,
}

/// Takes a history down. Operations are known by the number that `invoke` gives.
#[derive(Debug, Default)]
pub struct Recorder {
    history: History,
    next_index: u64,
}

/// An operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(usize);

/// Why an operation is unknown that was never completed.
pub const IN_FLIGHT: &str = "in flight at the end";

impl EventKind {
    /// All of them, with ZooKeeper's names.
    pub const ALL: [(EventKind, &'static str); 4] = [
        (EventKind::Created, "NodeCreated"),
        (EventKind::Deleted, "NodeDeleted"),
        (EventKind::DataChanged, "NodeDataChanged"),
        (EventKind::ChildrenChanged, "NodeChildrenChanged"),
    ];
}

impl Operation {
    /// An operation that was not answered yet.
    #[must_use]
    pub fn new(process: u64, call: Call) -> Self {
        Self {
            invoked: Moment::default(),
            process,
            node: None,
            session: 0,
            xid: None,
            ids: Vec::new(),
            call,
            outcome: Outcome::Unknown { at: None, reason: IN_FLIGHT.to_owned() },
        }
    }

    /// When it was over for the client, if it was.
    #[must_use]
    pub fn completed(&self) -> Option<Moment> {
        match &self.outcome {
            Outcome::Replied { at, .. } | Outcome::NotSent { at, .. } => Some(*at),
            Outcome::Unknown { at, .. } => *at,
        }
    }

    /// Reply: when it came, its zxid and what it said.
    #[must_use]
    pub fn reply(&self) -> Option<(Moment, i64, &Result<Answer, Code>)> {
        match &self.outcome {
            Outcome::Replied { at, zxid, result } => Some((*at, *zxid, result)),
            Outcome::NotSent { .. } | Outcome::Unknown { .. } => None,
        }
    }

    /// The session that it belongs to; of a connect the one that it was given.
    #[must_use]
    pub fn session_after(&self) -> i64 {
        match self.reply() {
            Some((_, _, Ok(Answer::Session { session, .. }))) => *session,
            _ => self.session,
        }
    }
}

impl Recorder {
    fn next(&mut self, time_ns: u64) -> Moment {
        let index = self.next_index;
        self.next_index += 1;
        Moment { index, time_ns }
    }

    /// An operation begins. `operation.invoked` and its outcome are set here.
    pub fn invoke(&mut self, time_ns: u64, mut operation: Operation) -> OperationId {
        operation.invoked = self.next(time_ns);
        operation.outcome = Outcome::Unknown { at: None, reason: IN_FLIGHT.to_owned() };
        self.history.operations.push(operation);
        OperationId(self.history.operations.len() - 1)
    }

    /// It was answered.
    pub fn replied(
        &mut self,
        time_ns: u64,
        id: OperationId,
        zxid: i64,
        result: Result<Answer, Code>,
    ) {
        let at = self.next(time_ns);
        self.complete(id, Outcome::Replied { at, zxid, result });
    }

    /// It never left the client.
    pub fn not_sent(&mut self, time_ns: u64, id: OperationId, reason: impl Into<String>) {
        let at = self.next(time_ns);
        self.complete(id, Outcome::NotSent { at, reason: reason.into() });
    }

    /// The client gave up on it.
    pub fn gave_up(&mut self, time_ns: u64, id: OperationId, reason: impl Into<String>) {
        let at = Some(self.next(time_ns));
        self.complete(id, Outcome::Unknown { at, reason: reason.into() });
    }

    fn complete(&mut self, id: OperationId, outcome: Outcome) {
        let operation = &mut self.history.operations[id.0];
        assert!(operation.completed().is_none(), "completed twice: {operation:?}");
        operation.outcome = outcome;
    }

    /// A client was told something. `notice.at` is set here.
    pub fn notice(&mut self, time_ns: u64, mut notice: Notice) {
        notice.at = self.next(time_ns);
        self.history.notices.push(notice);
    }

    /// The run did something to the servers.
    pub fn fault(&mut self, time_ns: u64, name: impl Into<String>, what: impl Into<String>) {
        let at = self.next(time_ns);
        self.history.faults.push(Fault { at, name: name.into(), what: what.into() });
    }

    /// Sets what is known of a running operation only once it is on its way.
    pub fn operation_mut(&mut self, id: OperationId) -> &mut Operation {
        &mut self.history.operations[id.0]
    }

    /// The end of the run: what is in flight stays unknown.
    #[must_use]
    pub fn finish(self) -> History {
        self.history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_at_the_end_is_unknown_and_there() {
        let mut recorder = Recorder::default();
        recorder.invoke(1, Operation::new(1, Call::Ping));
        let done = recorder.invoke(2, Operation::new(2, Call::Ping));
        recorder.replied(3, done, 7, Ok(Answer::Done));
        let history = recorder.finish();
        assert_eq!(history.operations.len(), 2);
        let unknown = Outcome::Unknown { at: None, reason: IN_FLIGHT.to_owned() };
        assert_eq!(history.operations[0].outcome, unknown);
        assert_eq!(history.operations[1].completed(), Some(Moment { index: 2, time_ns: 3 }));
    }
}
