//! The leader's link with ZooKeeper's leader.
//!
//! *Owns* the learner (see `learner/`), when a link is asked for, the ids that sessions are opened with, transactions
//! that wait for the link, and what came from it and waits for the log. *Invariants*: a link begins where the log ends:
//! only when all that came over the one before is applied; ids of sessions are given once. *Never* holds more bytes of
//! ZooKeeper than [`UNLOGGED_BYTES_MAX`] for long: the shell reads no more until there is room.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::copies::Copies;
use super::cutover::Cutover;
use super::waiting::Waiting;
use crate::learner::{Joining, Learner};
use crate::proto::Text;
use crate::replica::machine::{BatchBuilder, MigrateOp, Origin, Txn, TxnOp};
use crate::replica::request::ConnId;
use crate::tree::acl::Identity;

/// Bytes from ZooKeeper that are not applied yet: beyond that the shell reads no more.
const UNLOGGED_BYTES_MAX: usize = 1 << 20;
/// Bytes in entries that are not applied: beyond that no more are proposed. The shell may have read some megabytes
/// before it is told to stop.
const UNAPPLIED_BYTES_MAX: usize = 2 << 20;
/// Bytes that are proposed before the driver looks at the time: they go to the log, and to each other server.
pub(in crate::replica) const PROPOSED_AT_ONCE: usize = 256 << 10;
/// By how much the clock here may differ from ZooKeeper's, milliseconds: znodes with a time to live would end at
/// once, or stay.
pub(in crate::replica) const SKEW_MS_MAX: u64 = 60_000;
/// How long after a link broke the next one is asked for, in microseconds; so much longer with each that failed.
const AGAIN_US: u64 = 100_000;
/// After so many it gets no longer.
const FAILURES_COUNTED_MAX: u64 = 10;
/// How long the link may be away before clients are sent away, in microseconds: as without a leader.
const AWAY_US_MAX: u64 = 1_000_000;
/// So many alarms are all told; of further ones the 2nd, 4th, 8th and so on: a client may write for hours.
const ALARMS_TOLD_MAX: u64 = 20;
/// How many ids of sessions are asked for at once.
pub(in crate::replica) const SESSIONS_AT_ONCE: i64 = 1 << 16;

/// What happened to the link.
#[derive(Debug)]
pub enum LinkInput {
    /// It was made.
    Up {
        /// With whom, `host:port`.
        remote: String,
        /// Learner to which its epoch was said there: of all in time, the one with the highest.
        learner: Box<Learner>,
    },
    /// It brought these bytes.
    Bytes(Bytes),
    /// It broke, or could not be made.
    Down {
        /// Why.
        why: String,
    },
}

/// What an operator wants of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrateOrder {
    /// Follow an ensemble of ZooKeeper.
    Follow {
        /// As this server of it.
        server_id: u8,
        /// Where its leader may be, `host:port`.
        quorum: Vec<String>,
        /// Where clients may reach it, `host:port`, besides what its configuration says.
        clients: Vec<String>,
    },
    /// Decide from here on. The shell has looked that no client reaches ZooKeeper.
    CutOver,
    /// ZooKeeper is stopped.
    Done,
    /// Give up.
    Abort,
}

/// What the shell is to do about the link.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ZooKeeperWork {
    /// To be made, with one of these, as this: `Input::ZooKeeper` says what came of it. What is proved there, the shell
    /// adds: see [`Joining::login`].
    pub connect: Option<(Vec<String>, Joining)>,
    /// To be closed.
    pub close: bool,
    /// To be sent on it.
    pub bytes: Vec<u8>,
    /// Whether ZooKeeper's ports for clients are closed is to be looked at, for this attempt of a cutover:
    /// `Input::ZooKeeperClosed` with the same number.
    pub look: Option<u64>,
    /// What ZooKeeper did after the cutover, although no client should reach it.
    pub alarms: Vec<String>,
    /// What operators are to read in the log.
    pub news: Vec<String>,
}

impl ZooKeeperWork {
    /// Whether there is nothing to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The link.
#[derive(Debug, Default)]
enum Link {
    #[default]
    None,
    /// The shell makes it.
    Asked,
    Up(Up),
}

#[derive(Debug)]
struct Up {
    learner: Box<Learner>,
    remote: String,
    /// The zxid of a snapshot that is coming.
    snapshot: Option<i64>,
    /// Everything came that was there when it was made.
    is_current: bool,
    /// By how much the clock here was ahead of the last transaction that came since, milliseconds.
    ahead_ms: Option<i64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Following {
    link: Link,
    /// When the next link may be asked for.
    again_us: u64,
    /// Links that failed since the last one that became current, and those of them at which the leader had less.
    failures: u64,
    aheads: u64,
    /// Since when there is no link that is current.
    away_since_us: Option<u64>,
    /// Why the last one ended.
    why: String,
    pub(in crate::replica) waiting: Waiting,
    pub(in crate::replica) cutover: Cutover,
    /// Who is to be told that a step is in the state, in the order of the steps.
    ordered: VecDeque<u64>,
    /// Transactions of clients that no link takes now.
    held: VecDeque<Txn>,
    /// Sessions that wait for an id.
    opening: VecDeque<Txn>,
    /// Ids that may be given: the next one, and the first that may not.
    ids: (i64, i64),
    are_ids_asked: bool,
    /// Which connection has a session, where the log does not say it yet.
    owners: BTreeMap<i64, (u64, ConnId)>,
    batch: BatchBuilder,
    /// For the log.
    batches: VecDeque<Vec<u8>>,
    batch_bytes: usize,
    /// Index of the last entry of a link.
    proposed: u64,
    /// Bytes in entries that are not applied.
    unapplied: VecDeque<(u64, usize)>,
    unapplied_bytes: usize,
    /// zxid of the last transaction that was seen after the cutover.
    watched_zxid: i64,
    alarms: u64,
    pub(in crate::replica) copies: Copies,
    work: ZooKeeperWork,
}

canonical! {
    // All that matters is bound to a link, which no dump compares: only whether there is one.
    Following: ids;
    without again_us, failures, aheads, away_since_us, why, ordered, opening, are_ids_asked, owners, batch, batches,
    batch_bytes, proposed, unapplied, unapplied_bytes, watched_zxid, alarms, copies, work;
    |out, link, waiting, cutover, held| {
        out.value(&(matches!(link, Link::Up(_)), waiting.len(), held.len(), cutover.stage()));
    }
}

impl Following {
    /// What the shell is to do.
    pub(in crate::replica) fn take_work(&mut self) -> ZooKeeperWork {
        if let Link::Up(up) = &mut self.link {
            let bytes = up.learner.take_output();
            if self.work.bytes.is_empty() {
                self.work.bytes = bytes;
            } else {
                self.work.bytes.extend_from_slice(&bytes);
            }
        }
        std::mem::take(&mut self.work)
    }

    /// Says something to operators.
    pub(in crate::replica) fn tell(&mut self, words: String) {
        self.work.news.push(words);
    }

    /// Something that must not be.
    pub(in crate::replica) fn alarm(&mut self, words: String) {
        self.alarms += 1;
        if self.alarms <= ALARMS_TOLD_MAX || self.alarms.is_power_of_two() {
            self.work.alarms.push(format!("{words} (alarm {})", self.alarms));
        }
    }

    pub(in crate::replica) fn alarms(&self) -> u64 {
        self.alarms
    }

    /// Has the shell look whether ZooKeeper's ports for clients are closed.
    pub(in crate::replica) fn look(&mut self) {
        self.work.look = Some(self.cutover.attempt());
    }

    /// Whether a link is to be asked for now.
    pub(in crate::replica) fn wants_link(&self, applied: u64, now_us: u64) -> bool {
        matches!(self.link, Link::None) && self.is_settled(applied) && now_us >= self.again_us
    }

    /// It is asked for.
    pub(in crate::replica) fn ask(&mut self, quorum: &[Text], joining: Joining) {
        self.link = Link::Asked;
        let quorum = quorum.iter().map(|text| text.as_str().to_owned()).collect();
        self.work.connect = Some((quorum, joining));
    }

    /// It was made.
    pub(in crate::replica) fn linked(&mut self, remote: String, learner: Box<Learner>) {
        if !matches!(self.link, Link::Asked) {
            self.work.close = true;
            return;
        }
        let (snapshot, is_current, ahead_ms) = (None, false, None);
        self.link = Link::Up(Up { learner, remote, snapshot, is_current, ahead_ms });
    }

    /// With whom the link is, and whether it is current.
    pub(in crate::replica) fn remote(&self) -> Option<(&str, bool)> {
        match &self.link {
            Link::Up(up) => Some((&up.remote, up.is_current)),
            Link::None | Link::Asked => None,
        }
    }

    /// The leader has less than the copy. How often in a row: a leader tells of what it is about to apply, so once
    /// means nothing.
    pub(in crate::replica) fn was_ahead(&mut self) -> u64 {
        self.aheads += 1;
        self.aheads
    }

    /// Why there was no link the last time.
    pub(in crate::replica) fn why(&self) -> &str {
        &self.why
    }

    pub(in crate::replica) fn learner(&mut self) -> Option<&mut Learner> {
        match &mut self.link {
            Link::Up(up) => Some(&mut up.learner),
            Link::None | Link::Asked => None,
        }
    }

    /// The learner, if it takes requests.
    pub(in crate::replica) fn requesting(&mut self) -> Option<&mut Learner> {
        match &mut self.link {
            Link::Up(up) if up.is_current => Some(&mut up.learner),
            Link::Up(_) | Link::None | Link::Asked => None,
        }
    }

    pub(in crate::replica) fn epoch(&self) -> i64 {
        if let Link::Up(up) = &self.link { up.learner.epoch() } else { 0 }
    }

    /// A snapshot of this zxid comes.
    pub(in crate::replica) fn snapshot_begins(&mut self, zxid: i64, now_us: u64) {
        if let Link::Up(up) = &mut self.link {
            up.snapshot = Some(zxid);
            self.copies.begin(now_us);
        }
    }

    /// Cause for which a copy waits now.
    pub(in crate::replica) fn waits_for(&self) -> &'static str {
        match &self.link {
            Link::None | Link::Asked => "ZooKeeper's leader, which is looked for",
            Link::Up(_) if !self.has_room() => "this ensemble's log",
            Link::Up(up) if up.snapshot.is_some() => "the rest of ZooKeeper's snapshot",
            Link::Up(_) => "ZooKeeper's leader",
        }
    }

    /// It has come.
    pub(in crate::replica) fn snapshot_ends(&mut self) -> i64 {
        match &mut self.link {
            Link::Up(up) => up.snapshot.take().unwrap_or(0),
            Link::None | Link::Asked => 0,
        }
    }

    /// Everything came that was there when the link was made.
    pub(in crate::replica) fn current(&mut self) {
        if let Link::Up(up) = &mut self.link {
            up.is_current = true;
            self.away_since_us = None;
            (self.failures, self.aheads) = (0, 0);
        }
    }

    /// A transaction of ZooKeeper came that was stamped with this time.
    pub(in crate::replica) fn stamped(&mut self, time_ms: i64, wall_ms: i64) {
        if let Link::Up(up) = &mut self.link
            && up.is_current
        {
            up.ahead_ms = Some(wall_ms.saturating_sub(time_ms));
        }
    }

    /// That the clock here differs too much from ZooKeeper's; `None`, where it is not known to.
    pub(in crate::replica) fn is_skewed(&self) -> Option<String> {
        let Link::Up(up) = &self.link else { return None };
        let ahead_ms = up.ahead_ms.filter(|ahead_ms| ahead_ms.unsigned_abs() > SKEW_MS_MAX)?;
        let which = if ahead_ms > 0 { "ahead of" } else { "behind" };
        Some(format!(
            "the clock of this server is {} s {which} ZooKeeper's transactions: znodes with a time to live would end \
             early or late. Set the clocks of both right",
            ahead_ms.unsigned_abs() / 1000
        ))
    }

    /// The link broke, or is given up. What became of the requests that are returned, each with its session, is not
    /// known any more.
    #[must_use]
    pub(in crate::replica) fn lose(&mut self, why: String, now_us: u64) -> Vec<(i64, Origin)> {
        if matches!(self.link, Link::Up(_)) {
            self.work.close = true;
            self.work.bytes.clear();
        }
        self.link = Link::None;
        self.work.connect = None;
        self.why = why;
        self.failures += 1;
        self.again_us = now_us + AGAIN_US * self.failures.min(FAILURES_COUNTED_MAX);
        self.away_since_us = self.away_since_us.or(Some(now_us));
        let (lost, again) = self.waiting.lose();
        for txn in again.into_iter().rev() {
            self.held.push_front(txn);
        }
        lost
    }

    /// This server leads no longer: the link is another one's now, and nothing of it goes into the log any more.
    pub(in crate::replica) fn end(&mut self) {
        let close = !matches!(self.link, Link::None);
        let work = std::mem::take(&mut self.work);
        let (alarms, news) = (work.alarms, work.news);
        let cutover = std::mem::take(&mut self.cutover);
        *self = Self { cutover, ..Self::default() };
        self.work = ZooKeeperWork { close, alarms, news, ..ZooKeeperWork::default() };
    }

    /// Whether the link has been away for too long. From the first call on, where there never was one.
    pub(in crate::replica) fn is_away(&mut self, now_us: u64) -> bool {
        if self.requesting().is_some() {
            return false;
        }
        let since_us = *self.away_since_us.get_or_insert(now_us);
        now_us.saturating_sub(since_us) >= AWAY_US_MAX
    }

    /// Keeps a transaction until a link takes it.
    pub(in crate::replica) fn hold(&mut self, txn: Txn) {
        self.held.push_back(txn);
    }

    /// Whether some are kept.
    pub(in crate::replica) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Those that were kept, oldest first.
    pub(in crate::replica) fn take_held(&mut self) -> VecDeque<Txn> {
        std::mem::take(&mut self.held)
    }

    /// All clients were sent away.
    pub(in crate::replica) fn forget_held(&mut self) {
        self.held.clear();
        self.opening.clear();
    }

    /// Keeps a session until there is an id for it.
    pub(in crate::replica) fn hold_opening(&mut self, txn: Txn) {
        self.opening.push_back(txn);
    }

    /// Whether sessions wait for one.
    pub(in crate::replica) fn has_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// The next session that there is an id for, with it.
    pub(in crate::replica) fn next_opening(&mut self) -> Option<(i64, Txn)> {
        if self.opening.is_empty() || self.ids.0 >= self.ids.1 {
            return None;
        }
        let txn = self.opening.pop_front()?;
        let id = self.ids.0;
        self.ids.0 += 1;
        Some((id, txn))
    }

    /// Asks for ids of sessions above this one, if there are none left.
    pub(in crate::replica) fn want_ids(&mut self, next: i64) {
        if self.ids.0 >= self.ids.1 && !self.are_ids_asked {
            self.are_ids_asked = true;
            self.push(&MigrateOp::Sessions { below: next.saturating_add(SESSIONS_AT_ONCE) });
        }
    }

    /// The ids below this one are this leader's, if it has asked for them.
    pub(in crate::replica) fn have_ids(&mut self, below: i64) {
        if std::mem::take(&mut self.are_ids_asked) {
            let begin = below.saturating_sub(SESSIONS_AT_ONCE);
            let begin = if mutant!("session-numbers-repeat") { 1 } else { begin };
            self.ids = (begin, below);
        }
    }

    /// Whose a session is, if that is not in the log yet.
    pub(in crate::replica) fn owner(&self, session: i64) -> Option<(u64, ConnId)> {
        self.owners.get(&session).copied()
    }

    pub(in crate::replica) fn set_owner(&mut self, session: i64, owner: (u64, ConnId)) {
        self.owners.insert(session, owner);
    }

    pub(in crate::replica) fn forget_owner(&mut self, session: i64) {
        self.owners.remove(&session);
    }

    /// A step for the log.
    pub(in crate::replica) fn push(&mut self, step: &MigrateOp) {
        self.batch.weigh(step.znodes());
        self.push_txn(Origin::default(), 0, 0, &[], &TxnOp::Migrate(step.clone()));
    }

    /// A step for the log, that an operator has ordered.
    pub(in crate::replica) fn push_ordered(&mut self, token: u64, step: &MigrateOp) {
        self.ordered.push_back(token);
        self.push(step);
    }

    /// Who has ordered the oldest step that is not applied.
    pub(in crate::replica) fn take_ordered(&mut self) -> Option<u64> {
        self.ordered.pop_front()
    }

    /// Something for the log.
    pub(in crate::replica) fn push_txn(
        &mut self,
        origin: Origin,
        session: i64,
        cxid: i32,
        ids: &[Identity],
        op: &TxnOp,
    ) {
        self.batch.push(origin, session, cxid, ids, op);
        if self.batch.is_full() {
            self.close_batch();
        }
    }

    fn close_batch(&mut self) {
        if !self.batch.is_empty() {
            let batch = self.batch.take();
            self.batch_bytes += batch.len();
            self.batches.push_back(batch);
        }
    }

    /// The next batch for the log, if it takes one.
    pub(in crate::replica) fn next_batch(&mut self) -> Option<Vec<u8>> {
        if self.unapplied_bytes >= UNAPPLIED_BYTES_MAX {
            return None;
        }
        self.close_batch();
        let batch = self.batches.pop_front()?;
        self.batch_bytes -= batch.len();
        Some(batch)
    }

    /// The consensus would not take it yet.
    pub(in crate::replica) fn give_back(&mut self, batch: Vec<u8>) {
        self.batch_bytes += batch.len();
        self.batches.push_front(batch);
    }

    /// It is in the log, at this index.
    pub(in crate::replica) fn proposed(&mut self, index: u64, bytes: usize) {
        self.proposed = index;
        self.unapplied.push_back((index, bytes));
        self.unapplied_bytes += bytes;
    }

    /// Entries up to this one are applied.
    pub(in crate::replica) fn applied(&mut self, index: u64) {
        while let Some((at, bytes)) = self.unapplied.front().copied().filter(|(at, _)| *at <= index)
        {
            debug_assert!(at <= index, "they are in order");
            self.unapplied.pop_front();
            self.unapplied_bytes -= bytes;
        }
    }

    /// Whether everything that came is in the log.
    pub(in crate::replica) fn is_proposed(&self) -> bool {
        self.batch.is_empty() && self.batches.is_empty()
    }

    /// Whether everything that came is applied.
    pub(in crate::replica) fn is_settled(&self, applied: u64) -> bool {
        self.is_proposed() && applied >= self.proposed
    }

    /// Whether the shell may read more from the link.
    pub(in crate::replica) fn has_room(&self) -> bool {
        self.batch_bytes + self.unapplied_bytes < UNLOGGED_BYTES_MAX
    }

    /// The last transaction that was looked at after the cutover.
    pub(in crate::replica) fn watched_zxid(&self) -> i64 {
        self.watched_zxid
    }

    pub(in crate::replica) fn watched(&mut self, zxid: i64) {
        self.watched_zxid = self.watched_zxid.max(zxid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_more_than_a_minute_from_that_of_zookeeper_stands_against_a_cutover() {
        const NOW_MS: i64 = 1_700_000_000_000;
        let joining = Joining { server_id: 200, from_zxid: 0, accepted_epoch: 0, login: None };
        let learner = Box::new(Learner::new(joining, 0));
        let mut following = Following {
            link: Link::Up(Up {
                learner,
                remote: "zk:2888".to_owned(),
                snapshot: None,
                is_current: false,
                ahead_ms: None,
            }),
            ..Following::default()
        };
        following.stamped(NOW_MS - 7_200_000, NOW_MS);
        assert_eq!(following.is_skewed(), None, "it was written before the link was made");
        following.current();
        assert_eq!(following.is_skewed(), None, "nothing came yet");
        for (time_ms, words) in [
            (NOW_MS - 7_200_000, Some("7200 s ahead of")),
            (NOW_MS + 61_000, Some("61 s behind")),
            (NOW_MS - 60_000, None),
        ] {
            following.stamped(time_ms, NOW_MS);
            let told = following.is_skewed();
            assert_eq!(told.is_some(), words.is_some(), "{told:?}");
            assert!(words.is_none_or(|words| told.unwrap().contains(words)));
        }
    }
}
