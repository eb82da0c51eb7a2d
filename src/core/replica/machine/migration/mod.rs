//! LIVE MIGRATION, the replicated half: what all servers agree on while they follow an ensemble of Apache ZooKeeper.
//!
//! *Owns* the phase of a migration, what is known of the other ensemble, and what each step of it does to the state.
//! *Invariants*: while an ensemble follows, only transactions of ZooKeeper take a zxid, and they take ZooKeeper's; the
//! members of this ensemble are kept beside `/zookeeper/config`, which is ZooKeeper's then; clients are served only
//! from a state that ZooKeeper's digest agrees with (where it keeps one), and by a leader that is linked; the cutover
//! is one entry, after which every zxid is above all that ZooKeeper can have given. *Never* knows of a socket, or of
//! who leads.
//!
//! Takes the place of `ObserverZooKeeperServer` and `LearnerZooKeeperServer`.

mod answer;
mod shown_members;

use super::foreign::ForeignResult;
use super::foreign_load::{ForeignLoad, Loading};
use super::members;
use super::migration_record::{Decider, Migration, Phase};
use super::migration_step::MigrateOp;
use super::sessions::{Session, Sessions};
use super::state::{Applied, Machine, SessionChange, steady_without_one};
use super::txn::{Txn, TxnOp};
use crate::proto::request::Request;
use crate::proto::{ErrorCode, OpCode, Response, Text};
use crate::replica::bounds::TERM_MAX;
use crate::tree::{Context, Rules, Tree};
use crate::zookeeper::{Txn as ForeignTxn, TxnBody};

use answer::{describe, is_failure, op_of, response};

pub use answer::is_moved;
pub(in crate::replica) use shown_members::changes_members;

/// Version of ZooKeeper's digest that is computed here.
const DIGEST_VERSION: i32 = 2;
/// How far the epoch of the cutover is above ZooKeeper's: so many elections may ZooKeeper still hold.
pub const EPOCH_JUMP: u64 = 4096;
/// The byte of a session's id that says where it was opened.
const SERVER_SHIFT: u32 = 56;
/// The rest of it.
const NUMBER_MASK: i64 = (1 << SERVER_SHIFT) - 1;
/// Where ZooKeeper's servers have the milliseconds at which they began in it.
const CLOCK_SHIFT: u32 = 16;

impl Machine {
    /// The migration that this ensemble is in, if it is in one.
    #[must_use]
    pub fn migration(&self) -> Option<&Migration> {
        self.migration.as_deref()
    }

    /// Who decides what clients ask for.
    #[must_use]
    pub fn decider(&self) -> Decider {
        match self.migration().is_some_and(Migration::follows) {
            true => Decider::ZooKeeper,
            false => Decider::Ensemble,
        }
    }

    /// Whether clients may be served.
    #[must_use]
    pub fn may_serve(&self) -> bool {
        self.migration().is_none_or(Migration::serves)
    }

    /// Whether a state is half replaced: the disk is given nothing meanwhile.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Znodes, and bytes of ZooKeeper's snapshot, that have come of a state that takes the place of this one.
    #[must_use]
    pub fn loaded(&self) -> Option<(u64, u64)> {
        self.loading.as_ref().map(|loading| loading.come())
    }

    /// The text of this ensemble's members: while it follows, `/zookeeper/config` has those of the other one.
    #[must_use]
    pub fn members_text(&self) -> &str {
        match self.migration() {
            Some(migration) if migration.follows() => migration.own_members.as_str(),
            Some(_) | None => self.tree.config_text(),
        }
    }

    pub(super) fn migration_record(&self) -> Option<Vec<u8>> {
        self.migration().map(Migration::record)
    }

    pub(super) fn load_migration(&mut self, record: &[u8]) -> Result<(), String> {
        let migration = Migration::of_record(record);
        let migration = migration.map_err(|bad| format!("the record of a migration {bad}"))?;
        self.migration = Some(Box::new(migration));
        Ok(())
    }

    /// The state begins a new life, in which there is nothing to follow.
    pub(super) fn forget_migration(&mut self) {
        self.migration = None;
        self.loading = None;
    }

    /// After records were loaded: ZooKeeper's digest is computed, which the records do not have.
    pub(super) fn resume_migration(&mut self) {
        if self.decider() == Decider::ZooKeeper {
            self.tree.keep_legacy_digest();
        }
    }

    /// Applies a transaction of ZooKeeper that its leader has announced as committed.
    pub(super) fn follow(&mut self, txn: &Txn, foreign: &ForeignTxn) -> Applied {
        let (op, zxid) = (op_of(foreign.header.kind), foreign.header.zxid);
        let mut applied = Applied::new(self.last_zxid, op, Err(ErrorCode::SessionMoved));
        let follows = self.follows_from(zxid);
        let Some(migration) = self.migration.as_mut().filter(|_| follows) else { return applied };
        migration.foreign_zxid = zxid;
        let (is_whole, server_id) = (migration.is_whole, migration.server_id);
        if let TxnBody::CreateSession { .. } = foreign.body
            && of_server(foreign.header.client_id) == server_id
        {
            let next = number_of(foreign.header.client_id) + 1;
            migration.next_session = migration.next_session.max(next);
        }
        let done = self.apply_foreign(foreign);
        if let (Some(SessionChange::Closed(id)), 0) = (&done.session_change, foreign.header.cxid)
            && let Some(migration) = &mut self.migration
        {
            // A client that closes its session numbers that request.
            migration.expired += 1;
            migration.expired_last = *id;
        }
        applied.zxid = zxid;
        applied.events = done.events;
        applied.session_change = done.session_change;
        if let Some(SessionChange::Opened(id, session)) = applied.session_change
            && txn.origin.server != 0
        {
            // Its client is connected here.
            let owned = Session { owner: (txn.origin.server, txn.origin.conn), ..session };
            let owned = self.sessions.attach(id, owned).unwrap_or(owned);
            applied.session_change = Some(SessionChange::Opened(id, owned));
        }
        if is_whole {
            self.compare(foreign, &done.results);
        }
        applied.result = response(foreign, done.results);
        if is_moved(foreign) && txn.origin.server != 0 {
            // It was not done, and its connection is closed.
            self.sessions.leave(foreign.header.client_id, (txn.origin.server, txn.origin.conn));
        }
        applied
    }

    /// Whether a transaction of ZooKeeper with this zxid is the next one. If it is not, a leader has proposed it that
    /// was none any more when it was committed.
    pub(super) fn follows_from(&self, zxid: i64) -> bool {
        let Some(migration) = self.migration() else { return false };
        let is_replacing = self.loading.as_ref().is_some_and(|loading| !loading.is_for_comparison);
        let follows = migration.follows() && migration.wants_link() && migration.has_copy();
        follows && !is_replacing && zxid > migration.foreign_zxid
    }

    /// Compares the state with what ZooKeeper says of its own behind the same transaction.
    fn compare(&mut self, foreign: &ForeignTxn, results: &[Result<ForeignResult, ErrorCode>]) {
        let zxid = foreign.header.zxid;
        let stop = if !is_failure(foreign) && results.iter().any(Result::is_err) {
            Some("ZooKeeper has done what cannot be done here".to_owned())
        } else {
            let theirs = foreign.digest.filter(|digest| digest.version == DIGEST_VERSION);
            let Some((theirs, ours)) = theirs.zip(self.tree.legacy_digest()) else {
                if let Some(migration) = &mut self.migration {
                    migration.is_unproven |= !is_failure(foreign);
                }
                return;
            };
            if let Some(migration) = &mut self.migration {
                migration.compared += 1;
                migration.compared_zxid = zxid;
                migration.is_unproven = false;
            }
            (theirs.digest != ours && !mutant!("digest-not-compared")).then(|| {
                format!(
                    "ZooKeeper's digest is {:#018x}, that of the copy {ours:#018x}",
                    theirs.digest
                )
            })
        };
        let Some(reason) = stop else { return };
        let what = describe(foreign);
        self.stop(format!("behind zxid {zxid:#x} ({what}) the copy differs: {reason}"));
    }

    fn stop(&mut self, why: String) {
        if let Some(migration) = &mut self.migration {
            migration.phase = Phase::Stopped;
            migration.why = Text::from(why);
        }
        self.loading = None;
    }

    /// What this ensemble's own transactions do while it follows: none takes a zxid.
    pub(super) fn apply_beside(&mut self, txn: &Txn) -> Applied {
        let mut applied = Applied::new(self.last_zxid, OpCode::Check, Err(ErrorCode::SessionMoved));
        match &txn.op {
            TxnOp::AttachSession { timeout_ms, password } => {
                self.attach_session(txn, (*timeout_ms, *password), &mut applied);
            }
            TxnOp::Client { op, body } if *op == OpCode::Sync as i32 => {
                applied.op = OpCode::Sync;
                applied.result = match Request::decode(*op, body.clone()) {
                    Ok(Request::Sync { path }) => Ok(Response::Echo(path)),
                    Ok(_) | Err(_) => Err(ErrorCode::Marshalling),
                };
            }
            TxnOp::Refuse { op, code } => self.refuse(txn, (*op, *code), &mut applied),
            TxnOp::Upgrade { version, .. } => {
                applied.result = Ok(Response::Empty);
                self.raise_version(*version);
            }
            // They were proposed when this ensemble still decided, or by a leader that did not know: ZooKeeper does.
            TxnOp::Client { .. }
            | TxnOp::OpenSession { .. }
            | TxnOp::CloseSession
            | TxnOp::ExpireSession
            | TxnOp::Reap { .. }
            | TxnOp::Found { .. }
            | TxnOp::Foreign(_)
            | TxnOp::Migrate(_) => {}
        }
        applied
    }

    /// Carries out a step of a migration.
    pub(super) fn migrate(&mut self, term: u64, op: &MigrateOp) -> Applied {
        let mut applied = Applied::new(self.last_zxid, OpCode::Check, Ok(Response::Empty));
        self.clock_dirty = true;
        match (op, &mut self.migration) {
            (MigrateOp::Follow { server_id, quorum, clients }, _) => {
                applied.result = self.begin_to_follow(*server_id, quorum, clients);
                applied.is_replaced = applied.result.is_ok();
            }
            (_, None) => applied.result = Err(ErrorCode::NoNode),
            (MigrateOp::SnapshotBegins { is_for_comparison }, Some(migration)) => {
                if !migration.wants_link() || !migration.follows() {
                    return applied;
                }
                if !is_for_comparison {
                    migration.phase = Phase::Joining;
                    migration.is_whole = false;
                }
                let options = self.tree.options().clone();
                self.loading = Some(Box::new(Loading::new(options, *is_for_comparison)));
            }
            (MigrateOp::SnapshotPart(bytes), Some(_)) => {
                if let Some(Err(why)) = self.loading.as_mut().map(|loading| loading.feed(bytes)) {
                    self.refuse_snapshot(&why);
                }
            }
            (MigrateOp::SnapshotEnds { zxid }, Some(_)) => {
                applied.is_replaced = self.end_snapshot(*zxid);
            }
            (MigrateOp::Linked { epoch }, Some(_)) => self.linked(*epoch),
            (MigrateOp::Interrupted, Some(migration)) => {
                if migration.phase == Phase::Following {
                    migration.phase = Phase::Interrupted;
                }
            }
            (MigrateOp::Sessions { below }, Some(migration)) => {
                migration.next_session = migration.next_session.max(*below);
            }
            (MigrateOp::Stop { why }, Some(migration)) => {
                if migration.follows() {
                    self.stop(why.to_string());
                }
            }
            (MigrateOp::CutOver, Some(_)) => self.cut_over(term, &mut applied),
            (MigrateOp::Done, Some(migration)) => match migration.phase {
                Phase::CutOver => migration.phase = Phase::Done,
                _ => applied.result = Err(ErrorCode::BadArguments),
            },
            (MigrateOp::Abort, Some(migration)) => {
                if migration.follows() {
                    migration.phase = Phase::Aborted;
                    self.forget_copy();
                    applied.is_replaced = true;
                } else {
                    applied.result = Err(ErrorCode::BadArguments);
                }
            }
        }
        applied
    }

    /// An operator has this ensemble follow another one: one that was never written to, or that follows already.
    fn begin_to_follow(
        &mut self,
        server_id: u8,
        quorum: &[Text],
        clients: &[Text],
    ) -> Result<Response, ErrorCode> {
        let known = self.migration();
        if !known.map_or_else(|| self.is_unused(), Migration::follows) {
            return Err(ErrorCode::NotEmpty);
        }
        let same_server = known.filter(|known| known.server_id == server_id);
        let migration = Migration {
            server_id,
            quorum: quorum.to_vec(),
            clients: clients.to_vec(),
            own_members: Text::copy_from(self.members_text()),
            next_session: same_server.map_or(0, |known| known.next_session),
            ..Migration::default()
        };
        self.migration = Some(Box::new(migration));
        self.forget_copy();
        Ok(Response::Empty)
    }

    /// All of a snapshot has come. Whether it takes the place of the state.
    fn end_snapshot(&mut self, zxid: i64) -> bool {
        let Some(mut loading) = self.loading.take() else { return false };
        if loading.is_for_comparison {
            // If it is of another zxid, it says nothing.
            let copied = self.last_zxid;
            if self.migration().is_some_and(|known| known.is_at(copied, zxid)) {
                loading.ended_at = Some(copied);
                self.loading = Some(loading);
            }
            return false;
        }
        if let Err(why) = self.take_copy(loading.load, zxid) {
            self.refuse_snapshot(&why);
        }
        true
    }

    /// The leader has a link, and all that ZooKeeper had committed when it was made is applied.
    fn linked(&mut self, epoch: i64) {
        // What came behind a snapshot may be in it: one that nothing came behind is compared, and no other.
        let loaded = self.loading.take_if(|loading| loading.is_for_comparison);
        if let Some(loaded) = loaded.filter(|it| it.ended_at == Some(self.last_zxid)) {
            self.compare_copy(loaded.load);
        }
        let is_loading = self.is_loading();
        let Some(migration) = &mut self.migration else { return };
        migration.epoch = migration.epoch.max(epoch);
        let may_follow =
            matches!(migration.phase, Phase::Joining | Phase::Interrupted | Phase::Following);
        if !may_follow || is_loading || !migration.has_copy() {
            return;
        }
        let lacks_acl = (!migration.is_whole).then(|| self.tree.find_without_acl());
        if let Some(path) = lacks_acl.flatten() {
            return self.stop(format!(
                "znode {path:?} of ZooKeeper's snapshot has no access control list"
            ));
        }
        migration.phase = Phase::Following;
        migration.is_whole = true;
        migration.foreign_zxid = migration.foreign_zxid.max(self.last_zxid);
        let seen = self.sessions.iter().map(|(id, _)| id);
        let ours = seen.filter(|id| of_server(*id) == migration.server_id);
        let above = ours.map(|id| number_of(id) + 1).max().unwrap_or(0);
        // As ZooKeeper's servers begin, so that no id of an earlier attempt comes again.
        let clock = self.last_time_ms << CLOCK_SHIFT & NUMBER_MASK;
        let begun = if migration.next_session == 0 { clock } else { 0 };
        migration.next_session = migration.next_session.max(above).max(begun);
    }

    fn refuse_snapshot(&mut self, why: &str) {
        self.stop(format!("ZooKeeper's snapshot cannot be loaded: {why}"));
    }

    /// Whether there is nothing but what the ensemble itself has written.
    pub(in crate::replica) fn is_unused(&self) -> bool {
        self.sessions.len() == 0 && self.tree.has_only_special()
    }

    /// There is no copy any more.
    fn forget_copy(&mut self) {
        self.loading = None;
        if let Some(migration) = &mut self.migration {
            migration.is_whole = false;
            migration.foreign_zxid = 0;
        }
        self.replace(Tree::fresh(self.tree.options().clone()), Sessions::default());
    }

    /// A snapshot has come.
    fn take_copy(&mut self, load: ForeignLoad, zxid: i64) -> Result<(), String> {
        let largest = load.largest as u64;
        let (tree, sessions) = load.complete()?;
        self.replace(tree, sessions);
        self.last_zxid = zxid;
        // By the steady clock, its znodes are as old as their stamps say.
        self.steady_ms = self.steady_ms.max(steady_without_one(self.last_time_ms));
        if let Some(migration) = &mut self.migration {
            migration.foreign_zxid = 0;
            migration.largest = largest;
            migration.is_whole = false;
            migration.is_unproven = true;
        }
        Ok(())
    }

    /// A leader has refused a request. As moved it closes its connection, and what comes behind it there is refused,
    /// too; with another code it is answered as any error.
    pub(super) fn refuse(&mut self, txn: &Txn, (op, code): (i32, i32), applied: &mut Applied) {
        let code = ErrorCode::from_wire(code).unwrap_or(ErrorCode::SystemError);
        if code == ErrorCode::SessionMoved {
            self.sessions.leave(txn.session, (txn.origin.server, txn.origin.conn));
        }
        applied.op = OpCode::from_wire(op).unwrap_or(OpCode::Check);
        applied.result = Err(code);
    }

    /// Compares the copy with a snapshot of the same state.
    fn compare_copy(&mut self, load: ForeignLoad) {
        let zxid = self.last_zxid;
        let theirs = match load.complete() {
            Ok((theirs, _)) => theirs,
            Err(why) => return self.refuse_snapshot(&why),
        };
        if let Some(difference) = self.tree.first_difference(&theirs) {
            return self.stop(format!(
                "at zxid {zxid:#x} the copy differs from ZooKeeper's snapshot: {difference}"
            ));
        }
        if let Some(migration) = &mut self.migration {
            migration.is_unproven = false;
            migration.compared += 1;
            migration.compared_zxid = zxid;
        }
    }

    /// Takes the znodes and sessions of another state.
    fn replace(&mut self, tree: Tree, sessions: Sessions) {
        (self.tree, self.sessions) = (tree, sessions);
        self.forget_digests();
        self.mark_all_changed();
        self.keep_all_tombstones(true);
    }

    /// From here on this ensemble decides: its zxids are above all that ZooKeeper can have given, and
    /// `/zookeeper/config` names its members.
    fn cut_over(&mut self, term: u64, applied: &mut Applied) {
        let Some(migration) = &mut self.migration else { return };
        let epoch = cutover_epoch(migration.epoch, term);
        let (Phase::Following, true, Some(epoch)) = (migration.phase, migration.is_whole, epoch)
        else {
            applied.result = Err(ErrorCode::BadArguments);
            return;
        };
        let members = members::parse(migration.own_members.as_str());
        migration.phase = Phase::CutOver;
        migration.other_members = Text::copy_from(self.tree.config_text());
        let zxid = (i64::try_from(epoch << 32).unwrap_or(i64::MAX)).max(self.last_zxid + 1);
        let zxid = if mutant!("cutover-keeps-epoch") { self.last_zxid + 1 } else { zxid };
        self.last_zxid = zxid;
        self.txns_applied += 1;
        applied.zxid = zxid;
        applied.op = OpCode::Reconfig;
        let (time_ms, steady_ms) = (self.last_time_ms, self.steady_ms);
        let rules = Rules::DEFAULT;
        let context = Context { zxid, time_ms, steady_ms, session: 0, ids: &[], rules };
        let text = if members.is_empty() { String::new() } else { members::text(&members, zxid) };
        // ZooKeeper's tree has that znode since 3.5, and for older ones it was added.
        let set = self.tree.set_config(&context, None, &text, &mut applied.events);
        applied.result = set.map(Response::Stat);
        self.tree.recount_usage();
        self.remember_digest(zxid);
    }
}

/// The epoch of the cutover: above that of ZooKeeper and the term of this ensemble. `None`: there is no room for it.
#[must_use]
pub fn cutover_epoch(foreign: i64, term: u64) -> Option<u64> {
    let highest = u64::try_from(foreign).ok()?.max(term);
    let epoch = highest.checked_add(EPOCH_JUMP)?;
    (epoch < TERM_MAX).then_some(epoch)
}

/// The id of a session that this ensemble opens at ZooKeeper as this server: the server's byte and a number.
#[must_use]
pub fn followed_session(server_id: u8, number: i64) -> i64 {
    i64::from(server_id) << SERVER_SHIFT | number & NUMBER_MASK
}

/// The number in such an id.
fn number_of(session: i64) -> i64 {
    session & NUMBER_MASK
}

/// The server that a session was opened at, as its id says.
fn of_server(session: i64) -> u8 {
    session.to_be_bytes()[0]
}

#[cfg(test)]
mod tests;
