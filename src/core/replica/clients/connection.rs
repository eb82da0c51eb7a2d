//! One client connection as the replica sees it: identities, order, output.
//!
//! *Owns* the queue that keeps a connection's replies in the order of its requests, and the bytes
//! to be sent. *Invariants*: a reply is queued only when everything in front of it was answered;
//! what waits behind a write of the same session is answered after it. Reproduces `ServerCnxn` and
//! the per-session order of `CommitProcessor`.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::turn::{BEFORE_WRITE_MAX, Load, Work, is_dear, likely_work};
use crate::proto::Writer as _;
use crate::proto::connect::ConnectResponse;
use crate::proto::request::Request;
use crate::proto::response::{ReplyHeader, encode_event, encode_reply};
use crate::proto::{ErrorCode, EventType, MultiResult, OpCode, Response, Text, frame};
use crate::replica::inspect::{ConnectionReport, Latency};
use crate::replica::machine::{Identities, TxnOp};
use crate::replica::ready::{Answered, Outgoing};
use crate::replica::request::ConnId;
use crate::sasl::Negotiation;
use crate::tree::Tree;
use crate::tree::acl::Identity;

/// Identities that one connection may prove, and their bytes: every transaction carries them into
/// the log.
pub(in crate::replica) const IDENTITIES_MAX: usize = 64;
/// See [`IDENTITIES_MAX`].
pub(in crate::replica) const IDENTITIES_BYTES_MAX: usize = 16 << 10;
/// Bytes of one reply. What is longer is answered with an error.
pub(in crate::replica) const REPLY_BYTES_MAX: usize = 1 << 30;
/// Room that is made for a reply before it is written: most are shorter.
const REPLY_BYTES_USUAL: usize = 128;

/// Bytes of answers and events that a connection may be given at once; beyond, answers wait until
/// these are written.
pub(crate) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum Phase {
    /// A session is being opened for it. `read_only` as in its request.
    Opening { timeout_ms: i32, read_only: Option<bool> },
    /// It has a session.
    Open,
    /// Nothing more is taken from it.
    Closing,
}

/// How far a connection is with a mechanism that runs outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outside {
    /// Its client may say something.
    #[default]
    Listens,
    /// What it has said, in this request, is being judged.
    Judges {
        /// The request.
        xid: i32,
    },
    /// It has succeeded or failed.
    Over,
}

/// A request of a client, as it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) struct Asked {
    pub(in crate::replica) xid: i32,
    pub(in crate::replica) at_us: u64,
    /// How many identities its connection had: it counts for these, whatever is proved before it is answered.
    pub(in crate::replica) identities: usize,
}

/// Something that a connection waits for.
#[derive(Debug)]
pub(in crate::replica) enum Pending {
    /// A transaction: answered when it is applied.
    Write { sequence: u64, asked: Asked, op: OpCode },
    /// A sync, or a read that must not be older than itself: answered when its read index is
    /// confirmed and applied.
    Confirmed { context: u64, asked: Asked, answer: Answer },
    /// A transaction that was applied while answers in front of it were held back, and its zxid.
    Applied { asked: Asked, op: OpCode, zxid: i64, result: Result<Response, ErrorCode> },
    /// Anything that can be answered as soon as it is at the front.
    Answer { asked: Asked, answer: Answer },
    /// A transaction that sets out when it is at the front: much is to be read before it.
    Held { asked: Asked, op: OpCode, txn: TxnOp },
}

impl Pending {
    /// Whether it is a read that waits for the end of the turn.
    pub(super) fn is_dear(&self, tree: &Tree) -> bool {
        match self {
            Self::Answer { answer: Answer::Read(request), .. }
            | Self::Confirmed { answer: Answer::Read(request), .. } => is_dear(request, tree),
            _ => false,
        }
    }

    /// Work of a read that waits, as far as it counts for the writes behind it.
    pub(super) fn likely_work(&self) -> Work {
        match self {
            Self::Answer { answer: Answer::Read(request), .. }
            | Self::Confirmed { answer: Answer::Read(request), .. } => likely_work(request),
            _ => 0,
        }
    }
}

/// What is answered without a transaction.
#[derive(Debug)]
pub(in crate::replica) enum Answer {
    /// A read, or a change of this connection's watches.
    Read(Request),
    /// An error that was clear at once.
    Failure(ErrorCode),
    /// Results of a multi that failed at once.
    Results(Vec<MultiResult>),
    /// An error that was clear at once, answered with zxid 0.
    EagerFailure(ErrorCode),
    /// An opcode that is none: -6, and the end.
    UnknownOp,
}

/// One connection.
#[derive(Debug)]
pub(in crate::replica) struct Connection {
    /// Others are only added, behind these.
    pub(in crate::replica) ids: Identities,
    /// How far its client is with SASL.
    pub(super) sasl: Negotiation,
    /// The same with a mechanism that runs outside.
    pub(super) outside: Outside,
    pub(in crate::replica) phase: Phase,
    pub(in crate::replica) session: Option<i64>,
    pub(in crate::replica) queue: VecDeque<Pending>,
    /// No request behind the last one queued will be looked at.
    pub(in crate::replica) closing: bool,
    /// Its session is known here only, and may only read.
    pub(in crate::replica) is_read_only: bool,
    /// When something came from its client last.
    pub(in crate::replica) heard_us: u64,
    next_sequence: u64,
    out: Outgoing,
    has_output: bool,
    /// Bytes of `out` that were counted (see [`Connection::uncounted_bytes`]).
    counted_bytes: usize,
    /// Answers wait until what was taken for sending is written.
    held_back: bool,
    /// What is in front of an answer that waits for Raft's voters to follow a change of members, and until
    /// when that is waited for; `out` is what comes from that answer on.
    behind_members: Option<(Outgoing, u64)>,
    /// Work of the reads that wait.
    waiting_work: Work,
    /// Transactions that are held.
    held: usize,
    /// Its next answer waits for its turn.
    pub(super) is_postponed: bool,
    pub(super) load: Load,
    /// Address of its client.
    pub(super) address: IpAddr,
    report: ConnectionReport,
}

canonical! {
    // Without what is counted for operators, and when something was heard, but of a client that waits for a session.
    Connection: ids, sasl, outside, phase, session, queue, closing, is_read_only, next_sequence, out, has_output,
    counted_bytes, held_back, behind_members, waiting_work, held, is_postponed; without report, load, address;
    |to, heard_us| to.value(&matches!(phase, Phase::Opening { .. }).then_some(heard_us))
}

impl Connection {
    pub(in crate::replica) fn new(
        conn: ConnId,
        (ip, port): (IpAddr, u16),
        proven: Vec<Identity>,
        (now_us, wall_ms): (u64, i64),
    ) -> Self {
        let remote = match ip {
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        };
        Self {
            ids: [Identity::ip(&ip.to_string())].into_iter().chain(proven).collect(),
            sasl: Negotiation::default(),
            outside: Outside::default(),
            phase: Phase::Closing,
            session: None,
            queue: VecDeque::new(),
            closing: false,
            is_read_only: false,
            heard_us: now_us,
            next_sequence: 0,
            out: Outgoing { conn, ..Outgoing::default() },
            has_output: false,
            counted_bytes: 0,
            held_back: false,
            behind_members: None,
            waiting_work: 0,
            held: 0,
            is_postponed: false,
            load: Load::default(),
            address: ip,
            report: ConnectionReport {
                conn,
                remote,
                last_op: "NA",
                last_cxid: -1,
                established_ms: wall_ms,
                ..ConnectionReport::default()
            },
        }
    }

    /// Adds what waits behind all that was asked before.
    pub(super) fn push(&mut self, pending: Pending) {
        self.waiting_work += pending.likely_work();
        self.held += usize::from(matches!(pending, Pending::Held { .. }));
        self.queue.push_back(pending);
    }

    /// Takes what is at the front.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        let front = self.queue.pop_front()?;
        self.waiting_work -= front.likely_work();
        self.held -= usize::from(matches!(front, Pending::Held { .. }));
        Some(front)
    }

    /// Whether a write must not set out yet: it would be applied, and all in front of it answered at once.
    pub(super) fn holds_writes(&self) -> bool {
        self.held > 0
            || self.waiting_work > BEFORE_WRITE_MAX && !mutant!("write-sets-out-behind-reads")
    }

    /// Numbers the transactions that are held at the front, up to the next reads that are dear together.
    pub(super) fn set_out(&mut self) -> Vec<(u64, Asked, TxnOp)> {
        let (mut unsent, mut before) = (Vec::new(), 0);
        for pending in &mut self.queue {
            before += pending.likely_work();
            if before > BEFORE_WRITE_MAX {
                break;
            }
            let Pending::Held { asked, op, .. } = *pending else { continue };
            self.next_sequence += 1;
            self.held -= 1;
            let write = Pending::Write { sequence: self.next_sequence, asked, op };
            if let Pending::Held { txn, .. } = std::mem::replace(pending, write) {
                unsent.push((self.next_sequence, asked, txn));
            }
        }
        unsent
    }

    /// A number for the next transaction.
    pub(in crate::replica) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// A request arrived.
    pub(in crate::replica) fn note_request(&mut self, xid: i32, op: Option<OpCode>, now_us: u64) {
        self.heard_us = now_us;
        self.report.received += 1;
        self.report.last_op = op.map_or("NA", OpCode::four_letters);
        if xid >= 0 {
            self.report.last_cxid = xid;
        }
    }

    /// Appends the answer to the handshake.
    pub(in crate::replica) fn send_connect_response(&mut self, response: &ConnectResponse) {
        frame::append(&mut self.out.frames, |out| response.encode(out));
        self.report.timeout_ms = response.timeout_ms;
        self.report.sent += 1;
        self.report.received += 1;
        self.report.last_op = "SESS";
    }

    /// Adds identities that were proved; those that it has already change nothing. False: there
    /// would be too many of them, and none was added.
    pub(in crate::replica) fn prove(&mut self, proven: Identities) -> bool {
        let mut ids = self.ids.clone();
        for identity in proven {
            if !ids.contains(&identity) {
                ids.push(identity);
            }
        }
        let bytes: usize =
            ids.iter().map(|id| id.scheme.as_bytes().len() + id.id.as_bytes().len()).sum();
        if ids.len() > IDENTITIES_MAX || bytes > IDENTITIES_BYTES_MAX {
            return false;
        }
        self.ids = ids;
        true
    }

    /// The first so many of its identities: those of a request that was asked when there were no others.
    pub(in crate::replica) fn identities(&self, count: usize) -> &[Identity] {
        let all = self.ids.len();
        &self.ids
            [..if mutant!("request-counts-for-later-identities") { all } else { count.min(all) }]
    }

    /// Appends a reply whose body is a value.
    pub(in crate::replica) fn send(
        &mut self,
        xid: i32,
        zxid: i64,
        result: &Result<Response, ErrorCode>,
    ) {
        self.append_reply(xid, zxid, |out| encode_reply(xid, zxid, result, out));
    }

    /// Appends a successful reply whose body `body` writes: for what would be copied otherwise.
    pub(in crate::replica) fn send_with(
        &mut self,
        xid: i32,
        zxid: i64,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        self.append_reply(xid, zxid, |out| {
            ReplyHeader { xid, zxid, err: 0 }.encode(out);
            body(out);
        });
    }

    /// Appends the refusal of a SASL token: an error that has a body, as in ZooKeeper, which is a null token.
    pub(super) fn refuse_token(&mut self, xid: i32, code: ErrorCode) {
        self.append_reply(xid, 0, |out| {
            ReplyHeader { xid, zxid: 0, err: code.wire() }.encode(out);
            out.put_buffer(None);
        });
    }

    fn append_reply(&mut self, xid: i32, zxid: i64, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.frames.reserve(REPLY_BYTES_USUAL);
        let start = self.out.frames.len();
        let fits = frame::append_within(&mut self.out.frames, REPLY_BYTES_MAX, write);
        if !fits {
            self.out.frames.truncate(start);
            let too_long = Err(ErrorCode::Marshalling);
            frame::append(&mut self.out.frames, |out| encode_reply(xid, zxid, &too_long, out));
        }
        self.out.replies += 1;
    }

    /// Appends an event; says how many bytes it took.
    pub(in crate::replica) fn send_event(
        &mut self,
        kind: EventType,
        path: &Text,
        zxid: i64,
    ) -> u64 {
        let before = self.out.frames.len();
        frame::append(&mut self.out.frames, |out| encode_event(kind, path.as_str(), zxid, out));
        self.report.sent += 1;
        (self.out.frames.len() - before) as u64
    }

    /// Books a reply that was sent.
    pub(in crate::replica) fn note_reply(&mut self, zxid: i64, answered: Answered, now_us: u64) {
        let latency_us = now_us.saturating_sub(answered.arrived_us);
        self.out.answered.push(answered);
        self.report.sent += 1;
        self.report.last_zxid = zxid;
        self.report.last_response_ms = now_us / 1000;
        self.report.last_latency_ms = latency_us / 1000;
        self.report.latency.record(latency_us);
    }

    /// Nothing more is sent before the voters have followed a change of members, at most until
    /// `until_us`; what was queued for sending still goes.
    pub(in crate::replica) fn hold_for_members(&mut self, until_us: u64) {
        if self.behind_members.is_none() {
            let conn = self.out.conn;
            let in_front =
                std::mem::replace(&mut self.out, Outgoing { conn, ..Outgoing::default() });
            self.counted_bytes = 0;
            self.behind_members = Some((in_front, until_us));
        }
    }

    /// Until when the voters are waited for, if they are.
    pub(in crate::replica) fn waits_for_members_until(&self) -> Option<u64> {
        self.behind_members.as_ref().map(|(_, until_us)| *until_us)
    }

    /// The voters have followed: what was held is sent.
    pub(in crate::replica) fn members_settled(&mut self) {
        if let Some((mut in_front, _)) = self.behind_members.take() {
            in_front.frames.append(&mut self.out.frames);
            in_front.replies += self.out.replies;
            in_front.answered.append(&mut self.out.answered);
            self.out = in_front;
            self.counted_bytes = self.out.frames.len();
        }
    }

    /// Nothing more is taken or answered; what was queued for sending still goes, but for what is held
    /// back until the voters have followed a change of members.
    pub(in crate::replica) fn hang_up(&mut self) {
        if let Some((in_front, _)) = self.behind_members.take() {
            self.out = in_front;
        }
        self.phase = Phase::Closing;
        self.out.close = true;
        self.queue.clear();
        (self.waiting_work, self.held) = (0, 0);
    }

    /// Marks that there is output; true if there was none before.
    pub(in crate::replica) fn touch_output(&mut self) -> bool {
        !std::mem::replace(&mut self.has_output, true)
    }

    /// Bytes of output that wait to be taken.
    pub(in crate::replica) fn output_len(&self) -> usize {
        self.out.frames.len()
    }

    /// Bytes of output that came since the last call.
    pub(in crate::replica) fn uncounted_bytes(&mut self) -> usize {
        let bytes = self.out.frames.len();
        bytes.saturating_sub(std::mem::replace(&mut self.counted_bytes, bytes))
    }

    /// Whether answers have to wait. One short request may ask for a megabyte, and a client that
    /// takes nothing may send many of them.
    pub(in crate::replica) fn is_full(&self) -> bool {
        self.held_back || self.out.frames.len() >= OUTPUT_BYTES_MAX
    }

    /// What was taken for sending is written.
    pub(in crate::replica) fn has_room(&mut self) {
        self.held_back = false;
    }

    /// The transaction with this number was applied as `zxid`, but it is not its turn to be
    /// answered. False: it is not waited for.
    pub(in crate::replica) fn keep_result(
        &mut self,
        sequence: u64,
        zxid: i64,
        kept: &Result<Response, ErrorCode>,
    ) -> bool {
        for pending in &mut self.queue {
            if let Pending::Write { sequence: waiting, asked, op } = pending
                && *waiting == sequence
            {
                let (asked, op, result) = (*asked, *op, kept.clone());
                *pending = Pending::Applied { asked, op, zxid, result };
                return true;
            }
        }
        false
    }

    /// Takes the output.
    /// Drops what is queued; a connection that ends still does.
    pub(super) fn drop_output(&mut self) {
        self.behind_members = None;
        self.out.frames.clear();
        self.out.answered.clear();
        self.out.replies = 0;
    }

    pub(in crate::replica) fn take_output(&mut self) -> Outgoing {
        self.has_output = false;
        if let Some((in_front, _)) = &mut self.behind_members {
            let conn = in_front.conn;
            return std::mem::replace(in_front, Outgoing { conn, ..Outgoing::default() });
        }
        self.counted_bytes = 0;
        self.held_back = self.is_full();
        self.out.more = self.held_back;
        let conn = self.out.conn;
        std::mem::replace(&mut self.out, Outgoing { conn, ..Outgoing::default() })
    }

    /// Where its client is, `ip:port`.
    pub(in crate::replica) fn remote(&self) -> &str {
        &self.report.remote
    }

    /// What `cons` shows.
    pub(in crate::replica) fn report(&self) -> ConnectionReport {
        ConnectionReport {
            queued: self.queue.len() as u64,
            work_us: self.load.total / 1000,
            session: self.session,
            ..self.report.clone()
        }
    }

    pub(in crate::replica) fn reset_report(&mut self) {
        self.report.received = 0;
        self.report.sent = 0;
        self.report.latency = Latency::default();
        self.report.last_op = "NA";
        self.report.last_latency_ms = 0;
    }
}
