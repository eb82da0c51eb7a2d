//! The state that a new ensemble begins with when it does not begin empty: of a backup, of a survivor of a lost
//! majority, of another system.
//!
//! *Owns* what of a state stays behind with the ensemble that it was of: the members, and sessions that are not kept;
//! and which term is high enough. *Invariants*: what is removed takes zxids of the new term; no zxid, token or session
//! id of the new ensemble can have been one of the old one, as long as that made fewer than [`TERM_JUMP`] terms
//! more than anybody knows of. *Never* reads or writes a file.

use crate::replica::bounds::TERM_MAX;
use crate::replica::durable::{Drained, Mark, Membership};
use crate::replica::machine::state::Machine;
use crate::replica::machine::txn::{Identities, Origin, Txn, TxnOp};
use crate::replica::records::Record;
use crate::tree::{Context, Rules, Tree};

/// How many terms a new ensemble begins above the highest that is known of those before it: so many elections an
/// ensemble may have held of which no server that is left has heard.
pub const TERM_JUMP: u64 = 4096;
/// Records handed out at once.
const RECORDS_AT_ONCE: usize = 4096;

/// What became of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Sessions that were closed.
    pub sessions_closed: u64,
    /// Ephemerals that went with them.
    pub ephemerals_removed: u64,
    /// Sessions that their clients can take up again.
    pub sessions_kept: u64,
    /// Ephemerals of these.
    pub ephemerals_kept: u64,
}

/// A record: its key and its value.
type Owned = (Box<[u8]>, Box<[u8]>);

/// All records of a state, in ascending order of their keys.
pub type SortedRecords = Vec<Owned>;

/// The term that a new ensemble begins with, if `highest` is the highest one that is known of those before.
///
/// # Errors
/// There is none: says which would be needed.
pub fn term_of_new_ensemble(highest: u64) -> Result<u64, String> {
    let jump = if mutant!("restore-goes-back") { 0 } else { TERM_JUMP };
    let term = highest.saturating_add(jump);
    // One more for each election that is to come.
    if term >= TERM_MAX {
        return Err(format!(
            "the highest term (zxid shifted by 32 bits) that is known is {highest} ({highest:#x}); a new ensemble \
             begins \
             {TERM_JUMP} above it, which reaches the limit of {TERM_MAX} (2^23 - 1)"
        ));
    }
    Ok(term)
}

/// The term of a zxid: its upper 32 bits.
#[must_use]
pub fn term_of_zxid(zxid: i64) -> u64 {
    zxid.max(0).cast_unsigned() >> 32
}

impl Machine {
    /// Makes this the state with which a new ensemble begins in `term`: it has no members, and no sessions unless
    /// `keeps_sessions`.
    pub fn begin_ensemble(&mut self, term: u64, keeps_sessions: bool) -> Begun {
        let mut begun = Begun::default();
        // What it followed, if it did, goes on without it.
        self.forget_migration();
        let ephemerals_before = self.tree.ephemeral_count() as u64;
        // Clients that have seen later states of the old ensemble are not told that this one is behind them.
        self.change(0, term, |_, _| ());
        if !keeps_sessions {
            let sessions: Vec<i64> = self.sessions.iter().map(|(id, _)| id).collect();
            for session in sessions {
                let (origin, ids) = (Origin::default(), Identities::new());
                let txn = Txn { origin, session, cxid: 0, ids, op: TxnOp::ExpireSession };
                self.apply(term, &txn);
                begun.sessions_closed += 1;
            }
        }
        // A part of a state may have those of sessions that it does not have.
        let owners = self.tree.sessions_with_ephemerals().map(|(owner, _)| owner);
        let orphans: Vec<i64> = owners.filter(|owner| !self.sessions.is_open(*owner)).collect();
        for session in orphans {
            self.remove_ephemerals(session, term);
        }
        begun.sessions_kept = self.session_count();
        begun.ephemerals_kept = self.tree.ephemeral_count() as u64;
        begun.ephemerals_removed = ephemerals_before - begun.ephemerals_kept;
        if !self.tree.config_text().is_empty() {
            self.forget_members(term);
        }
        begun
    }

    fn remove_ephemerals(&mut self, session: i64, term: u64) {
        self.change(session, term, |tree, context| tree.close_session(context, &mut Vec::new()));
    }

    fn forget_members(&mut self, term: u64) {
        self.change(0, term, |tree, context| {
            tree.set_config(context, None, "", &mut Vec::new())
                .expect("a state that was loaded has the znode of the members");
        });
    }

    /// A change that no entry of a log has made, with a zxid of its own.
    fn change(&mut self, session: i64, term: u64, change: impl FnOnce(&mut Tree, &Context<'_>)) {
        let zxid = self.next_zxid(term, &TxnOp::ExpireSession);
        let (time_ms, steady_ms) = (self.last_time_ms, self.steady_ms);
        let rules = Rules::DEFAULT;
        let context = Context { zxid, time_ms, steady_ms, session, ids: &[], rules };
        change(&mut self.tree, &context);
        self.last_zxid = zxid;
        self.clock_dirty = true;
        self.remember_digest(zxid);
    }

    /// All of it, as images hold it, at this index and term of a log whose members are these.
    pub fn into_records(mut self, at: (u64, u64), membership: Membership) -> (Mark, SortedRecords) {
        self.mark_all_changed();
        let mut all = SortedRecords::new();
        loop {
            let drained = self.drain_changes(RECORDS_AT_ONCE, Some(at), membership.clone());
            let Drained::Changes(changes) = drained else {
                unreachable!("the last one has the mark")
            };
            all.extend(changes.records.iter().filter_map(owned));
            if let Some(mark) = changes.mark {
                all.sort_unstable();
                return (mark, all);
            }
        }
    }
}

/// A record that stays.
fn owned(record: Record<'_>) -> Option<Owned> {
    Some((record.key.into(), record.value?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::request::{Create, CreateKind, Request};
    use crate::proto::{Acl, OpCode};
    use crate::replica::durable::Restore;
    use crate::replica::machine::state::SessionChange;
    use crate::tree::Options;

    fn txn(session: i64, op: TxnOp) -> Txn {
        Txn { origin: Origin::default(), session, cxid: 0, ids: Identities::new(), op }
    }

    /// With members, a session, its ephemeral and a persistent znode.
    fn machine() -> (Machine, i64) {
        let mut machine = Machine::fresh(Options::default());
        let members = "server.1=h:1:2:participant;3".into();
        machine.apply(5, &txn(0, TxnOp::Found { members, opens_term: true }));
        let open = TxnOp::OpenSession { timeout_ms: 4000, password: Some([7; 16]) };
        let opened = machine.apply(5, &txn(1 << 56, open));
        let Some(SessionChange::Opened(id, _)) = opened.session_change else {
            panic!("{opened:?}")
        };
        for (path, flags) in [("/kept", 0), ("/ephemeral", 1)] {
            let mut body = Vec::new();
            let acl = Some(vec![Acl::open()]);
            let (path, kind) = (path.into(), CreateKind::Create);
            Request::Create(Create { kind, path, data: None, acl, flags, ttl_ms: 0 })
                .encode(&mut body);
            let op = TxnOp::Client { op: OpCode::Create as i32, body: body.into() };
            assert!(machine.apply(5, &txn(id, op)).result.is_ok());
        }
        (machine, id)
    }

    #[test]
    fn a_new_ensemble_begins_without_members_and_sessions_and_with_zxids_of_its_term() {
        let (mut machine, _) = machine();
        let begun = machine.begin_ensemble(5000, false);
        let expected = Begun { sessions_closed: 1, ephemerals_removed: 1, ..Begun::default() };
        assert_eq!(begun, expected);
        assert_eq!((machine.session_count(), machine.tree().config_text()), (0, ""));
        assert_eq!(machine.last_zxid(), (5000 << 32) + 3);
        assert!(machine.tree().data_unchecked("/ephemeral").is_none());
    }

    #[test]
    fn sessions_stay_with_their_ephemerals_where_they_are_kept() {
        let (mut machine, id) = machine();
        let begun = machine.begin_ensemble(5000, true);
        let expected = Begun { sessions_kept: 1, ephemerals_kept: 1, ..Begun::default() };
        assert_eq!(begun, expected);
        assert!(machine.last_zxid() > 5000 << 32);
        assert!(machine.sessions().is_open(id));
        assert_eq!(machine.tree().sessions_with_ephemerals().count(), 1);
    }

    #[test]
    fn the_records_of_a_state_give_it_back() {
        let (mut machine, _) = machine();
        machine.begin_ensemble(5000, true);
        let digest = machine.digest();
        let membership = Membership { voters: vec![1], learners: Vec::new() };
        let (mark, records) = machine.into_records((1, 5000), membership);
        assert_eq!((mark.digest, mark.records), (digest, records.len() as u64));
        let mut again = Machine::fresh(Options::default());
        for (key, value) in &records {
            again.record(key, value).unwrap();
        }
        again.finish(&mark).unwrap();
        assert_eq!(again.digest(), digest);
    }

    #[test]
    fn a_jump_that_would_leave_no_terms_is_refused_by_its_number() {
        assert_eq!(term_of_new_ensemble(5), Ok(5 + TERM_JUMP));
        let refused = term_of_new_ensemble(TERM_MAX - TERM_JUMP).unwrap_err();
        assert!(refused.contains("8384511") && refused.contains("2^23"), "{refused}");
    }
}
