//! One connection to a leader, from the first byte on.
//!
//! *Owns* [`Learner`]: how far the connection is, what of it is not handed out yet, and what is to be written.
//! *Invariants*: between NEWLEADER and the first ACK nothing is written, and no ping is answered before that ACK: the
//! leader would end the connection. A request is written only once the leader serves this server. Behind an [`Ended`]
//! nothing is handed out or written any more. *Never* keeps more than the bytes that came and what is to be written.

use std::collections::VecDeque;

use bytes::Bytes;

use super::heard::Heard;
use super::inbox::Inbox;
use super::login::Login;
use super::order::{Order, counter_of};
use super::packet::{self, PROTOCOL_VERSION, Packet, kind, name_of, take};
use super::{Ended, Event, Joining};
use crate::proto::{Malformed, Reader, Writer as _};
use crate::tree::Identity;
use crate::zookeeper::txn::kind as kind_of_txn;
use crate::zookeeper::{SnapshotDecoder, Txn};

/// How long a leader may send nothing before it has said its epoch: one tick, unless ZooKeeper's ticks are longer. One
/// that is hung still takes connections.
pub const INTRODUCED_SILENT_MS: u64 = 2_000;
/// How long it may send nothing from then on, until it serves this server: it may have to read a long log.
pub const JOINING_SILENT_MS: u64 = 10_000;
/// How long it may send nothing then: four of its pings, which come every half tick, with ticks of 2 s. ZooKeeper's own
/// servers give a leader up after syncLimit ticks, 10 s, so clients wait less here. Ticks may be up to 6 s long.
pub const FOLLOWING_SILENT_MS: u64 = 4_000;
/// Longest piece of a snapshot that is handed out at once.
pub const SNAPSHOT_PIECE_BYTES_MAX: usize = 256 << 10;
/// Most proposals that wait for their COMMIT. A leader sends an observer each one together with it.
pub const PROPOSALS_MAX: usize = 1000;

/// The opcode of a sync, which has an answer of its own.
const SYNC: i32 = 9;
/// Path that no server of ZooKeeper ever deletes.
const UNDELETABLE: &str = "/zookeeper";
/// The session of what no client asks for.
pub const NO_SESSION: i64 = 0;
/// What stands behind a snapshot.
const SNAPSHOT_SEAL: &[u8] = b"\0\0\0\x0aBenWasHere";

/// One connection to a leader.
///
/// The caller feeds it what the socket read, takes events until there is none, and writes what
/// [`take_output`](Self::take_output) gives, after each call of any other method.
#[derive(Debug)]
pub struct Learner {
    joining: Joining,
    stage: Stage,
    /// The leader's, once it is known.
    epoch: i64,
    order: Order,
    /// Up to which zxid a DIFF announced transactions.
    announced: i64,
    /// What was proposed and is not committed, oldest first.
    proposals: VecDeque<(i64, Bytes)>,
    inbox: Inbox,
    output: Vec<u8>,
    heard: Heard,
    /// Syncs and questions for sessions that have no answer.
    syncs: u64,
    revalidations: u64,
    /// When bytes last came.
    read_us: u64,
    following_silent_ms: u64,
    ended: Option<Ended>,
}

/// What is to come next.
#[derive(Debug)]
enum Stage {
    /// The leader's part of a login.
    Login(Box<Login>),
    /// LEADERINFO.
    Introduced,
    /// DIFF, SNAP or TRUNC.
    Answered,
    /// More of a snapshot.
    Snapshot(Box<SnapshotDecoder>),
    /// What stands behind it.
    Seal,
    /// NEWLEADER.
    CatchingUp,
    /// UPTODATE.
    Acknowledged,
    /// Anything.
    Following,
}

impl Stage {
    /// For messages: this server was ...
    fn name(&self) -> &'static str {
        match self {
            Self::Login(_) => "proving who it is",
            Self::Introduced => "waiting for the leader's epoch",
            Self::Answered => "waiting for what it lacks",
            Self::Snapshot(_) | Self::Seal => "taking a snapshot",
            Self::CatchingUp => "catching up",
            Self::Acknowledged => "waiting to be served",
            Self::Following => "following",
        }
    }
}

impl Learner {
    /// On a connection that was just made.
    #[must_use]
    pub fn new(mut joining: Joining, now_us: u64) -> Self {
        let mut output = Vec::new();
        let login = joining.login.take();
        let login = login.map(|(login, cnonce)| Login::new(login, cnonce, &mut output));
        let mut learner = Self {
            stage: login.map_or(Stage::Introduced, |login| Stage::Login(Box::new(login))),
            epoch: 0,
            order: Order::Behind(joining.from_zxid),
            announced: 0,
            proposals: VecDeque::new(),
            inbox: Inbox::default(),
            output,
            heard: Heard::default(),
            syncs: 0,
            revalidations: 0,
            read_us: now_us,
            following_silent_ms: FOLLOWING_SILENT_MS,
            ended: None,
            joining,
        };
        if matches!(learner.stage, Stage::Introduced) {
            learner.introduce();
        }
        learner
    }

    /// As what it joins, without its login.
    #[must_use]
    pub fn joining(&self) -> &Joining {
        &self.joining
    }

    /// The leader's epoch; 0: it has not said it.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Goes on by another clock: the leader was heard now.
    pub fn go_on(&mut self, now_us: u64) {
        self.read_us = now_us;
    }

    /// How long the leader may send nothing once it serves this server, where [`FOLLOWING_SILENT_MS`] does not fit its
    /// ticks.
    pub fn set_silent_ms(&mut self, following_ms: u64) {
        self.following_silent_ms = following_ms;
    }

    /// Takes what the socket read.
    pub fn feed(&mut self, bytes: &[u8], now_us: u64) {
        if self.ended.is_none() && !bytes.is_empty() {
            self.read_us = now_us;
            self.inbox.feed(bytes);
        }
    }

    /// The next thing that the leader said; `None` until more is fed.
    ///
    /// # Errors
    /// The connection must end. It is the same one from then on.
    pub fn next_event(&mut self) -> Result<Option<Event>, Ended> {
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        self.advance().map_err(|ended| self.end(ended))
    }

    /// What the socket is to write, without what was taken before.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Says what time it is. What the socket has read is to be fed before.
    ///
    /// # Errors
    /// The leader has been silent for too long, or the connection has ended before.
    pub fn tick(&mut self, now_us: u64) -> Result<(), Ended> {
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        let ms = now_us.saturating_sub(self.read_us) / 1000;
        let max = match self.stage {
            Stage::Login(_) | Stage::Introduced => INTRODUCED_SILENT_MS,
            Stage::Following => self.following_silent_ms,
            _ => JOINING_SILENT_MS,
        };
        let stage = self.stage.name();
        if ms > max { Err(self.end(Ended::Silent { ms, stage })) } else { Ok(()) }
    }

    /// Says that the leader has closed the connection, after everything that it sent was fed and taken. What that
    /// means, in words.
    pub fn closed(&mut self) -> Ended {
        let stage = self.stage.name();
        self.ended.unwrap_or_else(|| self.end(Ended::Closed { stage }))
    }

    /// Whether the leader serves this server: only then is anything that is asked sent.
    #[must_use]
    pub fn may_request(&self) -> bool {
        self.ended.is_none() && matches!(self.stage, Stage::Following)
    }

    /// Sends a client's request: `body` is what stands behind its header, `identities` who it is. Its answer is the
    /// transaction with this session and cxid. False: it was not sent ([`may_request`](Self::may_request)).
    pub fn request(
        &mut self,
        session: i64,
        cxid: i32,
        opcode: i32,
        body: &[u8],
        identities: &[Identity],
    ) -> bool {
        if !self.may_request() {
            return false;
        }
        let mut data = Vec::with_capacity(16 + body.len());
        data.put_long(session);
        data.put_int(cxid);
        data.put_int(opcode);
        data.extend_from_slice(body);
        let known: Vec<_> = identities.iter().filter(|id| !id.is_mark()).cloned().collect();
        packet::put(kind::REQUEST, -1, Some(&data), Some(&known), &mut self.output);
        true
    }

    /// Asks for an [`Event::Synced`]. False: it was not sent.
    pub fn sync(&mut self, session: i64, cxid: i32) -> bool {
        let mut path = Vec::new();
        path.put_string("/");
        let is_sent = self.request(session, cxid, SYNC, &path, &[]);
        self.syncs += u64::from(is_sent);
        is_sent
    }

    /// Asks for a transaction that changes nothing: one of [`NO_SESSION`] with this number, which fails. A SYNC is
    /// answered by a leader that was deposed and does not know it; this is committed by none. False: it was not sent.
    pub fn probe(&mut self, number: i32) -> bool {
        let mut delete = Vec::new();
        delete.put_string(UNDELETABLE);
        delete.put_int(-1);
        self.request(NO_SESSION, number, kind_of_txn::DELETE, &delete, &[])
    }

    /// Asks whether a session is open, and makes this server its owner if it is: an [`Event::Revalidated`] says so.
    /// False: it was not sent.
    pub fn revalidate(&mut self, session: i64, timeout_ms: i32) -> bool {
        if !self.may_request() {
            return false;
        }
        let mut data = Vec::new();
        data.put_long(session);
        data.put_int(timeout_ms);
        packet::put(kind::REVALIDATE, -1, Some(&data), None, &mut self.output);
        self.revalidations += 1;
        true
    }

    /// A session was heard from: the answer to the next ping says so, and the leader does not end it.
    pub fn heard(&mut self, session: i64, timeout_ms: i32) {
        self.heard.note(session, timeout_ms);
    }

    fn end(&mut self, ended: Ended) -> Ended {
        self.ended = Some(ended);
        self.inbox = Inbox::default();
        self.proposals = VecDeque::new();
        self.output = Vec::new();
        ended
    }

    fn introduce(&mut self) {
        let mut info = Vec::new();
        info.put_long(i64::from(self.joining.server_id));
        info.put_int(PROTOCOL_VERSION);
        // Of no configuration: a leader refuses those with a later one than its own.
        info.put_long(0);
        let zxid = self.joining.accepted_epoch << 32;
        packet::put(kind::OBSERVER_INFO, zxid, Some(&info), None, &mut self.output);
        self.stage = Stage::Introduced;
    }

    fn advance(&mut self) -> Result<Option<Event>, Ended> {
        loop {
            match &mut self.stage {
                Stage::Login(login) => {
                    if !login.step(&mut self.inbox, &mut self.output)? {
                        return Ok(None);
                    }
                    self.introduce();
                }
                Stage::Snapshot(_) => return self.snapshot_piece(),
                Stage::Seal => return self.seal(),
                _ => {
                    let Some((packet, length)) = Packet::decode(self.inbox.unread())? else {
                        return Ok(None);
                    };
                    self.inbox.skip(length);
                    if let Some(event) = self.take(packet)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// What a packet gives.
    fn take(&mut self, packet: Packet) -> Result<Option<Event>, Ended> {
        match (&self.stage, packet.kind) {
            (Stage::Introduced, kind::LEADER_INFO) => self.led(&packet).map(Some),
            (Stage::Answered, kind::DIFF) => self.diff(packet.zxid),
            (Stage::Answered, kind::SNAP) => {
                self.stage = Stage::Snapshot(Box::default());
                self.order = Order::BehindSnapshot(packet.zxid);
                Ok(Some(Event::SnapshotBegins { zxid: packet.zxid }))
            }
            (Stage::Answered, kind::TRUNC) => Err(Ended::Ahead { zxid: packet.zxid }),
            (Stage::CatchingUp, kind::NEW_LEADER) => self.caught_up(packet).map(Some),
            (Stage::Acknowledged, kind::UP_TO_DATE) => self.up_to_date().map(Some),
            // The ACK is to be the next that the leader hears.
            (Stage::CatchingUp, kind::PING) => Ok(None),
            (Stage::Acknowledged | Stage::Following, kind::PING) => {
                self.heard.answer(packet.zxid, &mut self.output);
                Ok(None)
            }
            (Stage::CatchingUp | Stage::Acknowledged, kind::PROPOSAL) => self.proposed(&packet),
            (Stage::CatchingUp | Stage::Acknowledged, kind::COMMIT | kind::COMMIT_AND_ACTIVATE) => {
                self.committed(&packet).map(Some)
            }
            // An observer that is served is told by INFORM.
            (Stage::Following, kind::PROPOSAL | kind::COMMIT | kind::COMMIT_AND_ACTIVATE) => {
                Ok(None)
            }
            (
                Stage::CatchingUp | Stage::Acknowledged | Stage::Following,
                kind::INFORM | kind::INFORM_AND_ACTIVATE,
            ) => self.informed(&packet).map(Some),
            (Stage::Following, kind::SYNC) => {
                self.syncs = answered(self.syncs, kind::SYNC)?;
                Ok(Some(Event::Synced))
            }
            (Stage::Following, kind::REVALIDATE) => self.revalidated(&packet).map(Some),
            (stage, kind) => Err(Ended::Unexpected { packet: name_of(kind), stage: stage.name() }),
        }
    }

    fn led(&mut self, packet: &Packet) -> Result<Event, Ended> {
        let data = packet.need_data()?;
        if data.len() != 4 || Reader::new(data).int("version")? < PROTOCOL_VERSION {
            return Err(Malformed::new("version", "is none that this version knows").into());
        }
        let epoch = packet.zxid >> 32;
        if epoch < 1 || counter_of(packet.zxid) != 0 {
            return Err(Malformed::new("LEADERINFO", "has a zxid that is no epoch").into());
        }
        let accepted = self.joining.accepted_epoch;
        if epoch < accepted {
            return Err(Ended::OlderEpoch { accepted, leader: epoch });
        }
        self.epoch = epoch;
        // As one whose acknowledgement does not count.
        let uncounted = (-1_i32).to_be_bytes();
        let from = self.joining.from_zxid;
        packet::put(kind::ACK_EPOCH, from, Some(&uncounted), None, &mut self.output);
        self.stage = Stage::Answered;
        Ok(Event::Led { epoch })
    }

    fn diff(&mut self, announced: i64) -> Result<Option<Event>, Ended> {
        if self.joining.from_zxid <= 0 {
            return Err(Ended::NothingToAddTo);
        }
        self.announced = announced;
        self.stage = Stage::CatchingUp;
        Ok(None)
    }

    fn snapshot_piece(&mut self) -> Result<Option<Event>, Ended> {
        let Stage::Snapshot(decoder) = &mut self.stage else { return Ok(None) };
        let unread = self.inbox.unread();
        if unread.is_empty() {
            return Ok(None);
        }
        let piece = &unread[..unread.len().min(SNAPSHOT_PIECE_BYTES_MAX)];
        decoder.feed(piece);
        while decoder.next_item()?.is_some() {}
        // The piece before had no end in it, so what is behind the end is part of this one.
        let behind = if decoder.has_ended() { decoder.rest().len() } else { 0 };
        let piece = Bytes::copy_from_slice(&piece[..piece.len().saturating_sub(behind)]);
        if decoder.has_ended() {
            self.stage = Stage::Seal;
        }
        self.inbox.skip(piece.len());
        Ok(Some(Event::SnapshotBytes(piece)))
    }

    fn seal(&mut self) -> Result<Option<Event>, Ended> {
        let unread = self.inbox.unread();
        let came = &unread[..unread.len().min(SNAPSHOT_SEAL.len())];
        if !SNAPSHOT_SEAL.starts_with(came) {
            return Err(Malformed::new("snapshot", "is followed by another seal").into());
        }
        if came.len() < SNAPSHOT_SEAL.len() {
            return Ok(None);
        }
        self.inbox.skip(SNAPSHOT_SEAL.len());
        self.stage = Stage::CatchingUp;
        Ok(Some(Event::SnapshotEnds))
    }

    fn proposed(&mut self, packet: &Packet) -> Result<Option<Event>, Ended> {
        if self.proposals.len() == PROPOSALS_MAX {
            return Err(Malformed::new("proposals", "are more than can wait for a COMMIT").into());
        }
        self.proposals.push_back((packet.zxid, packet.need_data()?));
        Ok(None)
    }

    fn committed(&mut self, packet: &Packet) -> Result<Event, Ended> {
        let designated = match packet.kind {
            kind::COMMIT_AND_ACTIVATE => Some(Reader::new(packet.need_data()?).long("leader")?),
            _ => None,
        };
        match self.proposals.pop_front() {
            Some((zxid, bytes)) if zxid == packet.zxid => self.hand_out(zxid, bytes, designated),
            other => {
                let expected = other.map(|(zxid, _)| zxid);
                Err(Ended::WrongCommit { expected, got: packet.zxid })
            }
        }
    }

    fn informed(&mut self, packet: &Packet) -> Result<Event, Ended> {
        let mut bytes = packet.need_data()?;
        let designated = match packet.kind {
            kind::INFORM_AND_ACTIVATE => {
                let mut reader = Reader::new(bytes);
                let designated = reader.long("leader")?;
                bytes = reader.rest();
                Some(designated)
            }
            _ => None,
        };
        self.hand_out(packet.zxid, bytes, designated)
    }

    fn hand_out(
        &mut self,
        zxid: i64,
        bytes: Bytes,
        designated: Option<i64>,
    ) -> Result<Event, Ended> {
        let txn = Txn::decode(bytes.clone())?;
        if txn.header.zxid != zxid {
            return Err(Malformed::new("zxid", "is not that of the packet's transaction").into());
        }
        self.order.admit(zxid, self.epoch)?;
        Ok(Event::Committed { txn, bytes, designated })
    }

    fn caught_up(&mut self, packet: Packet) -> Result<Event, Ended> {
        if packet.zxid != self.epoch << 32 {
            return Err(Malformed::new("NEWLEADER", "has a zxid that is not the epoch").into());
        }
        let (announced, got) = (self.announced, self.order.last());
        // The beginning of an epoch is announced where nothing is in it.
        if got < announced && counter_of(announced) != 0 {
            return Err(Ended::Short { announced, got });
        }
        self.acknowledge();
        self.stage = Stage::Acknowledged;
        Ok(Event::CaughtUp { config: packet.data })
    }

    fn up_to_date(&mut self) -> Result<Event, Ended> {
        if let Some((zxid, _)) = self.proposals.front() {
            return Err(Ended::Uncommitted { zxid: *zxid });
        }
        self.acknowledge();
        self.stage = Stage::Following;
        Ok(Event::UpToDate)
    }

    fn acknowledge(&mut self) {
        packet::put(kind::ACK, self.epoch << 32, None, None, &mut self.output);
    }

    fn revalidated(&mut self, packet: &Packet) -> Result<Event, Ended> {
        self.revalidations = answered(self.revalidations, kind::REVALIDATE)?;
        let mut data = &packet.need_data()?[..];
        match (take::<8>(&mut data), take::<1>(&mut data), data.is_empty()) {
            (Some(session), Some([is_valid]), true) => {
                let session = i64::from_be_bytes(session);
                Ok(Event::Revalidated { session, is_valid: is_valid != 0 })
            }
            _ => Err(Malformed::new("REVALIDATE", "is no session and its validity").into()),
        }
    }
}

/// Counts an answer to something that was asked.
fn answered(open: u64, kind: i32) -> Result<u64, Ended> {
    open.checked_sub(1).ok_or(Ended::Unasked { packet: name_of(kind) })
}
