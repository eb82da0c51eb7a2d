//! The machine: what all servers agree on. Znodes, sessions, and the last zxid.
//!
//! *Owns* the replicated state and the one function that changes it, `Machine::apply`.
//! *Invariants*: the same entries in the same order give the same state, the same results and the
//! same digests on every server and at every replay; every transaction takes one zxid, also one
//! that fails (but where another ensemble decides: see `machine/migration/`); zxids only rise, but where a
//! whole state of another ensemble takes the place of this one. *Never* looks at a clock, at a connection, or
//! at who is the leader. Its records are in `machine/state/records.rs`.
//!
//! Reproduces `ZKDatabase` and the deciding half of `PrepRequestProcessor`: requests are decided
//! here, when they are applied, not before they are proposed.

mod memory;
pub mod new_ensemble;
mod records;

use std::collections::VecDeque;

use bytes::Bytes;

use super::foreign_load::Loading;
use super::members;
use super::migration_record::{Decider, Migration};
use super::rule_flags::named_rules;
use super::sessions::{Session, Sessions};
use super::txn::{Batch, EntryTime, Txn, TxnOp};
use super::version::{self, LegacyRules, UnknownVersion};
use super::write::write;
use crate::proto::connect::Password;
use crate::proto::request::Request;
use crate::proto::{ErrorCode, OpCode, Response, Stat, Text};
use crate::replica::audit_line::AuditLine;
use crate::replica::bounds::{STEADY_MS_MAX, TERM_MAX};
use crate::replica::durable::Entry;
use crate::tree::{Context, Event, Options, Rules, Tree};
use crate::zookeeper::password::password as computed_password;

/// How far the stamps of entries may be ahead of the wall clock of a leader that a majority agrees with, in
/// milliseconds. A clock that was put back by less catches up with them; further ahead, they were wrong.
pub const STAMP_LEAD_MS_MAX: i64 = 60_000;
/// How many of ZooKeeper's own digests the `hash` word remembers.
const DIGESTS_KEPT_MAX: usize = 1024;
/// It keeps one for zxids divisible by this.
const DIGEST_ZXID_STEP: i64 = 128;

/// The replicated state of one server.
#[derive(Debug)]
pub struct Machine {
    pub(super) tree: Tree,
    pub(super) sessions: Sessions,
    pub(super) last_zxid: i64,
    pub(super) last_time_ms: i64,
    pub(super) steady_ms: i64,
    version: u8,
    /// The last version that is understood.
    known_version: u8,
    /// Rules that the last entry carried.
    stamped_rules: Option<Rules>,
    /// Rules of entries that carry none.
    legacy: LegacyRules,
    digests: VecDeque<(i64, u64)>,
    records_loaded: u64,
    full_pass: bool,
    pub(super) clock_dirty: bool,
    pub(super) txns_applied: u64,
    replayed: Replayed,
    /// A replay keeps audit lines of the transactions after this zxid.
    audits_replay: Option<i64>,
    /// What it is in the middle of, if it moves from ZooKeeper.
    pub(super) migration: Option<Box<Migration>>,
    /// A state of ZooKeeper that is coming. The disk is given nothing meanwhile.
    pub(super) loading: Option<Box<Loading>>,
}

/// What a replay has seen of the log besides transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::replica) struct Replayed {
    /// Index and term of the first entry of each term.
    pub(in crate::replica) runs: Vec<(u64, u64)>,
    /// Changes of membership, as they are in their entries.
    pub(in crate::replica) conf_changes: Vec<Bytes>,
    /// The servers of all texts of the members, each as the last of them names it.
    pub(in crate::replica) members: members::Members,
    /// What the audit log says of the transactions, if somebody asked.
    audit: Vec<AuditLine>,
}

/// What became of one transaction.
#[derive(Debug)]
pub(in crate::replica) struct Applied {
    pub(in crate::replica) zxid: i64,
    pub(in crate::replica) op: OpCode,
    pub(in crate::replica) result: Result<Response, ErrorCode>,
    /// In the order in which watchers are to see them.
    pub(in crate::replica) events: Vec<Event>,
    pub(in crate::replica) session_change: Option<SessionChange>,
    /// Znodes and sessions are those of another state now: what clients have seen and watch is void.
    pub(in crate::replica) is_replaced: bool,
}

/// What a transaction did to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) enum SessionChange {
    Opened(i64, Session),
    Attached(i64, Session),
    Closed(i64),
}

canonical! {
    // Znodes and sessions by their digests; what was changed since the last checkpoint is left out, because nothing is
    // ever drained, and so is what only operators see.
    Machine: last_zxid, last_time_ms, version, known_version, replayed, migration;
    without stamped_rules, legacy, steady_ms, digests, records_loaded, full_pass, clock_dirty, txns_applied,
    audits_replay;
    |out, tree, sessions, loading| out.value(&(tree.digest(), sessions.digest(), loading.is_some()))
}

impl Applied {
    /// A transaction that has changed nothing yet.
    pub(super) fn new(zxid: i64, op: OpCode, result: Result<Response, ErrorCode>) -> Self {
        Self { zxid, op, result, events: Vec::new(), session_change: None, is_replaced: false }
    }
}

impl Machine {
    /// The state of a server that was never written to.
    #[must_use]
    pub fn fresh(options: Options) -> Self {
        Self::around(Tree::fresh(options))
    }

    pub(super) fn around(tree: Tree) -> Self {
        let legacy = LegacyRules::new(tree.options().rules);
        Self {
            legacy,
            tree,
            sessions: Sessions::default(),
            last_zxid: 0,
            last_time_ms: 0,
            steady_ms: 0,
            version: version::FIRST,
            known_version: version::NEWEST,
            stamped_rules: None,
            digests: VecDeque::new(),
            records_loaded: 0,
            full_pass: false,
            clock_dirty: true,
            txns_applied: 0,
            replayed: Replayed::default(),
            audits_replay: None,
            migration: None,
            loading: None,
        }
    }

    /// The same, of a program that knows versions of ensembles up to this one.
    #[must_use]
    pub fn knowing(self, known_version: u8) -> Self {
        Self { known_version, ..self }
    }

    /// The version of the ensemble: see `machine/version.rs`.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The last version that is understood.
    #[must_use]
    pub fn known_version(&self) -> u8 {
        self.known_version
    }

    /// The version in whose format a leader writes entries. A state without a transaction gets the version of its
    /// first entry: a new ensemble begins with what its first leader knows.
    pub(in crate::replica) fn written_version(&self) -> u8 {
        if self.is_new() { self.known_version } else { self.version }
    }

    /// Whether there was no transaction yet.
    fn is_new(&self) -> bool {
        self.last_zxid == 0 && self.txns_applied == 0
    }

    /// The znodes, for reading.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(in crate::replica) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// zxid of the last transaction, 0 before the first.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// The stamp of the last transaction, ms since the epoch.
    pub(in crate::replica) fn last_time_ms(&self) -> i64 {
        self.last_time_ms
    }

    /// The steady clock at the last transaction, ms.
    pub fn steady_ms(&self) -> i64 {
        self.steady_ms
    }

    /// Number of open sessions.
    #[must_use]
    pub fn session_count(&self) -> u64 {
        self.sessions.len() as u64
    }

    /// Transactions applied by this process.
    #[must_use]
    pub fn txns_applied(&self) -> u64 {
        self.txns_applied
    }

    /// The digests that the `hash` word shows, oldest first.
    pub(in crate::replica) fn digests(&self) -> Vec<(i64, u64)> {
        self.digests.iter().copied().collect()
    }

    /// The zxid of the next transaction in an entry of `term`. The counter 0 is left to the one that
    /// names the first members: the version of theirs is then ZooKeeper's, 0x100000000.
    pub(super) fn next_zxid(&self, term: u64, op: &TxnOp) -> i64 {
        let least_counter = i64::from(!matches!(op, TxnOp::Found { opens_term: true, .. }));
        let first_of_term =
            i64::try_from(term << 32).expect("terms stay below 2^23") | least_counter;
        if mutant!("zxid-forgets-term") {
            return self.last_zxid + 1;
        }
        first_of_term.max(self.last_zxid + 1)
    }

    /// Rules that the next transactions are decided by.
    fn begin_rules(&mut self, rules: Option<Rules>) {
        if rules.is_some() && self.is_new() {
            self.raise_version(version::SECOND);
        }
        self.stamped_rules = rules;
    }

    /// Rules of the entry that is applied: those that it carries, or [`LegacyRules`] where it has none.
    fn rules(&mut self) -> Rules {
        let file = self.tree.options().rules;
        let rules = self.stamped_rules.unwrap_or_else(|| self.legacy.at(self.version));
        let of = |is_local: bool| if is_local { file } else { rules };
        Rules {
            extended_types: of(mutant!("local-extended-types")).extended_types,
            enforce_quota: of(mutant!("local-quotas")).enforce_quota,
            skip_acl: of(mutant!("local-skip-acl")).skip_acl,
            digest_auth: of(mutant!("local-digest-scheme")).digest_auth,
        }
    }

    /// Rules of the leader, as the last entry carried them. `None`: no entry was applied yet, or it was one of the
    /// first version.
    #[must_use]
    pub fn stamped_rules(&self) -> Option<Rules> {
        self.stamped_rules
    }

    /// Moves both clocks: the one that ctime and mtime come from, and the steady one, by which the reaper
    /// goes. Called once per entry.
    pub(in crate::replica) fn begin_entry(&mut self, time: &EntryTime) {
        let lead_ms = self.last_time_ms.saturating_sub(time.wall_ms);
        let goes_back = lead_ms > STAMP_LEAD_MS_MAX && time.is_agreed;
        if goes_back && !mutant!("time-never-goes-back") {
            self.last_time_ms = time.wall_ms;
        } else {
            self.last_time_ms = self.last_time_ms.max(time.wall_ms);
        }
        let steady_ms = time.steady_ms.unwrap_or_else(|| steady_without_one(self.last_time_ms));
        self.steady_ms = self.steady_ms.max(steady_ms);
    }

    /// Decides one transaction and carries it out.
    pub(in crate::replica) fn apply(&mut self, term: u64, txn: &Txn) -> Applied {
        match &txn.op {
            TxnOp::Foreign(foreign) => return self.follow(txn, foreign),
            TxnOp::Migrate(step) => return self.migrate(term, step),
            _ if self.decider() == Decider::ZooKeeper => return self.apply_beside(txn),
            _ => {}
        }
        let zxid = self.next_zxid(term, &txn.op);
        self.last_zxid = zxid;
        self.clock_dirty = true;
        self.txns_applied += 1;
        let mut applied = Applied::new(zxid, OpCode::CloseSession, Ok(Response::Empty));
        self.carry_out(txn, &mut applied);
        if mutant!("failure-takes-no-zxid") && applied.result.is_err() {
            self.last_zxid -= 1;
        }
        self.remember_digest(zxid);
        applied
    }

    /// The same, of a transaction that has its zxid.
    fn carry_out(&mut self, txn: &Txn, applied: &mut Applied) {
        let rules = self.rules();
        let context = Context {
            zxid: applied.zxid,
            time_ms: self.last_time_ms,
            steady_ms: self.steady_ms,
            session: txn.session,
            ids: &txn.ids,
            rules,
        };
        match &txn.op {
            TxnOp::Client { op, body } => {
                applied.op = OpCode::from_wire(*op).unwrap_or(OpCode::Check);
                let request = Request::decode(*op, body.clone());
                applied.result = match self.check_owner(txn) {
                    Ok(()) => write(&mut self.tree, &context, request, &mut applied.events),
                    Err(code) => Err(code),
                };
            }
            TxnOp::OpenSession { timeout_ms, password } => {
                applied.op = OpCode::CreateSession;
                let id = session_id(txn.session, applied.zxid);
                // Which of the two it is, the entry says: the configuration of this server does not matter.
                let password = password.unwrap_or_else(|| computed_password(id));
                let session = session_of(txn, *timeout_ms, password);
                let is_open = self.sessions.open(id, session);
                applied.session_change = is_open.then_some(SessionChange::Opened(id, session));
                applied.result =
                    applied.session_change.map(|_| Response::Empty).ok_or(ErrorCode::SystemError);
            }
            TxnOp::AttachSession { timeout_ms, password } => {
                self.attach_session(txn, (*timeout_ms, *password), applied);
            }
            TxnOp::CloseSession if self.check_owner(txn) == Err(ErrorCode::SessionMoved) => {
                applied.result = Err(ErrorCode::SessionMoved);
            }
            TxnOp::CloseSession | TxnOp::ExpireSession => {
                if self.sessions.close(txn.session) {
                    if !mutant!("expiry-leaves-ephemerals") || txn.op == TxnOp::CloseSession {
                        self.tree.close_session(&context, &mut applied.events);
                    }
                    applied.session_change = Some(SessionChange::Closed(txn.session));
                } else {
                    applied.result = Err(ErrorCode::SessionExpired);
                }
            }
            TxnOp::Reap { path } => {
                applied.op = OpCode::DeleteContainer;
                let reaped = self.tree.delete_container(&context, path, &mut applied.events);
                applied.result = reaped.map(|()| Response::Empty);
            }
            TxnOp::Found { members, .. } => {
                applied.op = OpCode::Reconfig;
                let found = self.found(&context, members, &mut applied.events);
                applied.result = found.map(Response::Stat);
            }
            TxnOp::Upgrade { version, .. } => {
                applied.op = OpCode::Check;
                self.raise_version(*version);
            }
            TxnOp::Refuse { op, code } => self.refuse(txn, (*op, *code), applied),
            // ZooKeeper's: see `apply`.
            TxnOp::Foreign(_) | TxnOp::Migrate(_) => {}
        }
    }

    /// Gives a session the connection that a transaction comes from.
    pub(super) fn attach_session(
        &mut self,
        txn: &Txn,
        (timeout_ms, password): (i32, Password),
        applied: &mut Applied,
    ) {
        applied.op = OpCode::CreateSession;
        let session = session_of(txn, timeout_ms, password);
        let attached = self.sessions.attach(txn.session, session);
        let change = attached.map(|session| SessionChange::Attached(txn.session, session));
        applied.result = change.map(|_| Response::Empty).ok_or(ErrorCode::SessionExpired);
        applied.session_change = change;
    }

    pub(super) fn raise_version(&mut self, version: u8) {
        self.version = self.version.max(version);
    }

    /// The `hash` word begins anew: its digests were those of another state.
    pub(super) fn forget_digests(&mut self) {
        self.digests.clear();
    }

    /// Whether a transaction comes from the connection that has the session.
    pub(super) fn check_owner(&self, txn: &Txn) -> Result<(), ErrorCode> {
        match self.sessions.find(txn.session) {
            None => Err(ErrorCode::SessionExpired),
            Some(_) if mutant!("moved-session-writes") => Ok(()),
            Some(session) if session.owner != (txn.origin.server, txn.origin.conn) => {
                Err(ErrorCode::SessionMoved)
            }
            Some(_) => Ok(()),
        }
    }

    /// Names the first members, unless there are some.
    fn found(
        &mut self,
        context: &Context<'_>,
        lines: &Text,
        events: &mut Vec<Event>,
    ) -> Result<Stat, ErrorCode> {
        if !self.tree.config_text().is_empty() {
            return Err(ErrorCode::NodeExists);
        }
        let text = members::text(&members::parse(lines.as_str()), context.zxid);
        self.tree.set_config(context, None, &text, events)
    }

    pub(super) fn remember_digest(&mut self, zxid: i64) {
        if zxid % DIGEST_ZXID_STEP != 0 {
            return;
        }
        if let Some(digest) = self.tree.legacy_digest() {
            if self.digests.len() == DIGESTS_KEPT_MAX {
                self.digests.pop_front();
            }
            self.digests.push_back((zxid, digest));
        }
    }
}

/// The steady clock of data of earlier versions, which have none: their znodes were as old as their stamps
/// say, and go on from there.
pub(super) fn steady_without_one(time_ms: i64) -> i64 {
    time_ms.clamp(0, STEADY_MS_MAX)
}

/// Id of the session that a transaction opens: the server's byte, then the zxid. Unlike ZooKeeper's,
/// which come from a clock, these can never be used twice.
fn session_id(server: i64, zxid: i64) -> i64 {
    const SERVER_SHIFT: u32 = 56;
    (server >> SERVER_SHIFT) << SERVER_SHIFT | (zxid & ((1 << SERVER_SHIFT) - 1))
}

fn session_of(txn: &Txn, timeout_ms: i32, password: Password) -> Session {
    Session { timeout_ms, password, owner: (txn.origin.server, txn.origin.conn) }
}

/// Moves the clocks to those of a normal entry, and gives its transactions: to be applied in order. An
/// entry without one leaves the clocks as they are: there is one state for each zxid.
///
/// # Errors
/// When the entry cannot be understood. Nothing was changed then.
pub(in crate::replica) fn open_entry(
    machine: &mut Machine,
    entry: &Entry,
) -> Result<Vec<Txn>, String> {
    let at = || format!("log entry {} of term {}", entry.index, entry.term);
    if entry.term > TERM_MAX {
        return Err(format!("{}: the term does not fit into the ids of sessions", at()));
    }
    let batch = Batch::decode(&entry.data).map_err(|bad| format!("{}: {bad}", at()))?;
    if batch.rules.is_some() && machine.known_version < version::SECOND {
        return Err(format!("{}: an entry of version {} of the ensemble", at(), version::SECOND));
    }
    for txn in &batch.txns {
        if let TxnOp::Upgrade { version, release } = &txn.op
            && *version > machine.known_version
        {
            let (version, release) = (*version, release.as_str().to_owned());
            let unknown = UnknownVersion { version, known: machine.known_version, release };
            return Err(format!("{}: {unknown}", at()));
        }
        if let (TxnOp::Upgrade { .. }, Some(rules)) = (&txn.op, named_rules(txn.cxid)) {
            machine.legacy.named(rules).map_err(|words| format!("{}: {words}", at()))?;
        }
    }
    if !batch.txns.is_empty() {
        machine.begin_entry(&batch.time);
        machine.begin_rules(batch.rules);
    }
    Ok(batch.txns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Acl;
    use crate::proto::request::{Create, CreateKind};
    use crate::replica::Entry;
    use crate::replica::EntryKind;
    use crate::replica::machine::txn::{Identities, Origin, members_mark};
    use crate::tree::Rules;

    #[test]
    fn an_entry_without_a_transaction_changes_nothing_that_is_replicated() {
        let mut machine = Machine::fresh(Options::default());
        let before = machine.digest();
        let time = EntryTime { wall_ms: 1_700_000_000_000, ..EntryTime::default() };
        let data = members_mark(&time, Rules::DEFAULT, version::FIRST).into();
        let entry = Entry { term: 3, index: 7, kind: EntryKind::Normal, data };
        assert_eq!(open_entry(&mut machine, &entry).unwrap(), []);
        assert_eq!((machine.digest(), machine.last_time_ms()), (before, 0));
    }

    #[test]
    fn a_session_without_a_password_gets_the_one_that_zookeeper_computes_of_its_id() {
        let mut machine = Machine::fresh(Options::default());
        let open = |password| {
            let op = TxnOp::OpenSession { timeout_ms: 4000, password };
            let origin = Origin::default();
            Txn { origin, session: 7 << 56, cxid: 0, ids: Identities::new(), op }
        };
        let given = machine.apply(3, &open(Some([9; 16]))).session_change;
        let computed = machine.apply(3, &open(None)).session_change;
        let Some(SessionChange::Opened(_, session)) = given else { panic!("{given:?}") };
        assert_eq!(session.password, [9; 16]);
        let Some(SessionChange::Opened(id, session)) = computed else { panic!("{computed:?}") };
        assert_eq!(id, 7 << 56 | 3 << 32 | 2);
        assert_eq!(session.password, computed_password(id));
        assert_eq!(machine.foreign_sessions().filter(|(.., is_known)| *is_known).count(), 1);
    }

    /// The stamp and the steady clock behind entries of these times: wall clock, whether a majority agrees
    /// with it, steady clock.
    fn after(times: &[(i64, bool, Option<i64>)]) -> (i64, i64) {
        let mut machine = Machine::fresh(Options::default());
        for (wall_ms, is_agreed, steady_ms) in times.iter().copied() {
            machine.begin_entry(&EntryTime { wall_ms, is_agreed, steady_ms });
        }
        (machine.last_time_ms, machine.steady_ms)
    }

    #[test]
    fn stamps_wait_for_a_clock_that_is_a_minute_behind_and_go_back_to_one_that_is_further() {
        let ahead = (100_000, true, Some(1));
        assert_eq!(after(&[ahead, (40_000, true, Some(2))]), (100_000, 2));
        assert_eq!(after(&[ahead, (39_999, true, Some(2))]), (39_999, 2));
    }

    #[test]
    fn stamps_do_not_go_back_to_a_clock_with_which_no_majority_agrees() {
        assert_eq!(after(&[(100_000, true, Some(5)), (7, false, Some(6))]), (100_000, 6));
        assert_eq!(after(&[(i64::MAX, true, Some(5)), (i64::MIN, true, Some(6))]), (i64::MIN, 6));
    }

    #[test]
    fn the_steady_clock_never_goes_back_and_goes_on_from_the_stamps_of_earlier_versions() {
        assert_eq!(after(&[(1000, false, Some(9)), (2000, false, Some(8))]), (2000, 9));
        assert_eq!(after(&[(1000, false, None), (900, false, None)]), (1000, 1000));
        assert_eq!(after(&[(1000, false, None), (2000, false, Some(1500))]), (2000, 1500));
    }

    #[test]
    fn data_of_earlier_versions_keeps_its_digest_and_the_age_of_its_znodes() {
        let rules = Rules { extended_types: true, ..Rules::DEFAULT };
        let mut machine = Machine::fresh(Options { rules, ..Options::default() });
        let old = |wall_ms| EntryTime { wall_ms, ..EntryTime::default() };
        machine.begin_entry(&old(5000));
        let mut body = Vec::new();
        let create = Create {
            kind: CreateKind::Ttl,
            path: "/t".into(),
            data: None,
            acl: Some(vec![Acl::open()]),
            flags: 5,
            ttl_ms: 2000,
        };
        Request::Create(create).encode(&mut body);
        let op = TxnOp::Client { op: OpCode::CreateTtl as i32, body: body.into() };
        let origin = Origin::default();
        let session = TxnOp::OpenSession { timeout_ms: 4000, password: Some([0; 16]) };
        let txn = |session, op| Txn { origin, session, cxid: 0, ids: Identities::new(), op };
        let opened = machine.apply(1, &txn(1 << 56, session));
        let Some(SessionChange::Opened(id, _)) = opened.session_change else {
            panic!("{opened:?}")
        };
        assert!(machine.apply(1, &txn(id, op)).result.is_ok());
        assert_eq!(machine.clock_record().len(), 16, "as an earlier version has written it");
        machine.begin_entry(&EntryTime {
            wall_ms: 1,
            is_agreed: false,
            steady_ms: Some(machine.steady_ms + 1),
        });
        assert_eq!(machine.clock_record().len(), 24);
        let due = |machine: &Machine| machine.tree.reapable(machine.steady_ms, 0, 9).len();
        assert_eq!(due(&machine), 0);
        machine.begin_entry(&EntryTime { steady_ms: Some(7001), ..EntryTime::default() });
        assert_eq!(due(&machine), 1);
    }
}
