//! A live migration, as the server that leads carries it out.
//!
//! *Owns* nothing: joins the link with ZooKeeper (`migration/`), the log, the sessions and the clients. *Invariants*:
//! while this ensemble follows, the log gets what ZooKeeper has committed, with whom it answers; requests of clients
//! are `migration_requests.rs`'s, and when a cutover is proposed is `cutover.rs`'s. *Never* decides a transaction
//! while another ensemble does.
//!
//! Takes the place of `Observer` and `LearnerSessionTracker`.

use crate::config::ServerSpec;
use crate::learner::{Ended, Event, Joining, NO_SESSION};
use crate::proto::Text;
use crate::replica::Replica;
use crate::replica::inspect::{MIGRATION_UNKNOWN, Report};
use crate::replica::machine::{
    ADDRESSES_MAX, Applied, MigrateOp, Migration, Phase, TxnOp, cutover_epoch, is_moved, members,
};
use crate::replica::migration::{LinkInput, MigrateOrder, PROPOSED_AT_ONCE, Stage};
use crate::zookeeper::txn::kind;
use crate::zookeeper::{Txn as ForeignTxn, TxnBody, TxnHeader};

/// So often in a row a leader of ZooKeeper may have less than the copy.
const AHEADS_MAX: u64 = 10;

/// Course of an operator's order.
enum Course {
    /// A step for the log.
    Step(MigrateOp),
    CutOver,
    /// Nothing: it is so already.
    AsItIs,
}

impl Replica {
    /// Whether this server has the link, or is to have it.
    pub(super) fn leads_migration(&self) -> Option<&Migration> {
        let leads = self.leadership.leads() == Some(self.consensus.term());
        self.state.machine().migration().filter(|_| leads)
    }

    /// An operator wants something of a migration.
    pub(in crate::replica) fn order_migration(&mut self, token: u64, order: MigrateOrder) {
        match self.check_order(&order) {
            Err(words) => self.output.inspected(token, Report::Migrated(Err(words))),
            Ok(Course::AsItIs) => {
                self.output.inspected(token, Report::Migrated(Ok(String::new())));
            }
            Ok(Course::CutOver) => self.following.cutover.begin(token, self.clocks.now_us()),
            Ok(Course::Step(step)) => {
                // Nothing of this link may come behind the step: it would become part of what begins with it.
                self.lose_link("an operator has decided so".to_owned());
                self.following.push_ordered(token, &step);
            }
        }
    }

    /// Its course, if it makes sense now.
    fn check_order(&mut self, order: &MigrateOrder) -> Result<Course, String> {
        if self.leadership.leads() != Some(self.consensus.term()) {
            return Err(match self.known_leader() {
                Some(leader) => format!("server {leader} leads: ask that one"),
                None => "there is no leader now, so nothing can be decided".to_owned(),
            });
        }
        let term = self.consensus.term();
        let stage = self.following.cutover.stage();
        let machine = self.state.machine();
        match (order, machine.migration()) {
            (MigrateOrder::Follow { server_id, quorum, clients }, _) => {
                self.check_follow(*server_id, quorum, clients)
            }
            (_, None) => Err("this ensemble follows no other one".to_owned()),
            (MigrateOrder::Abort, Some(migration)) if !migration.follows() => {
                Err("this ensemble has taken over: there is no way back but `lockkeeper export`"
                    .to_owned())
            }
            (MigrateOrder::Abort, Some(_)) if stage == Stage::Proposed => {
                Err("the cutover is being written: ask again".to_owned())
            }
            (MigrateOrder::Abort, Some(_)) => Ok(Course::Step(MigrateOp::Abort)),
            (MigrateOrder::Done, Some(migration)) if migration.follows() => {
                Err("this ensemble has not taken over yet".to_owned())
            }
            (MigrateOrder::Done, Some(migration)) if migration.phase == Phase::Done => {
                Err("the migration is over already".to_owned())
            }
            (MigrateOrder::Done, Some(_)) => Ok(Course::Step(MigrateOp::Done)),
            (MigrateOrder::CutOver, Some(migration)) => {
                let is_current = self.following.remote().is_some_and(|(_, is_current)| is_current);
                match migration.phase {
                    Phase::Following if stage != Stage::None => {
                        Err("a cutover is on its way already".to_owned())
                    }
                    Phase::Following if cutover_epoch(migration.epoch, term).is_none() => {
                        Err(format!(
                            "ZooKeeper's epoch {} leaves no room for terms above it",
                            migration.epoch
                        ))
                    }
                    Phase::Following if !is_current => Err(format!(
                        "there is no link with ZooKeeper's leader: {}",
                        self.following.why()
                    )),
                    Phase::Following => {
                        match self.following.is_skewed().or_else(|| self.sessions_elsewhere()) {
                            Some(why) => Err(why),
                            None => Ok(Course::CutOver),
                        }
                    }
                    Phase::CutOver | Phase::Done => {
                        Err("this ensemble has taken over already".to_owned())
                    }
                    Phase::Stopped => Err(migration.why.as_str().to_owned()),
                    phase @ (Phase::Joining | Phase::Interrupted | Phase::Aborted) => Err(format!(
                        "this ensemble does not follow now, it is {}: {}",
                        phase.name(),
                        self.following.why()
                    )),
                }
            }
        }
    }

    /// The course of an order to follow an ensemble. One that is given again changes nothing: a copy that is there, or
    /// being made, is not thrown away by a command that was repeated.
    fn check_follow(
        &self,
        server_id: u8,
        quorum: &[String],
        clients: &[String],
    ) -> Result<Course, String> {
        if quorum.len() > ADDRESSES_MAX || clients.len() > ADDRESSES_MAX {
            return Err(format!("more than {ADDRESSES_MAX} addresses are named"));
        }
        let texts = |all: &[String]| all.iter().map(|one| Text::copy_from(one)).collect::<Vec<_>>();
        let (quorum, clients) = (texts(quorum), texts(clients));
        let machine = self.state.machine();
        match machine.migration() {
            Some(known) if !known.follows() => {
                return Err("this ensemble has taken over already: it follows no other".to_owned());
            }
            Some(known) if known.wants_link() => {
                let is_same = (known.server_id, &known.quorum, &known.clients)
                    == (server_id, &quorum, &clients);
                if is_same {
                    return Ok(Course::AsItIs);
                }
                // Before anything has come, an address may be put right.
                if known.has_copy() || machine.is_loading() {
                    return Err(
                        "this ensemble follows another one already, or as another server: `lockkeeper migrate abort` \
                         first"
                            .to_owned(),
                    );
                }
            }
            None if !machine.is_unused() => {
                return Err(
                    "this ensemble has znodes or sessions of its own: only one that was never written to can follow"
                        .to_owned(),
                );
            }
            Some(_) | None => {}
        }
        match self.server_without_clients() {
            Some(why) => Err(why),
            None => Ok(Course::Step(MigrateOp::Follow { server_id, quorum, clients })),
        }
    }

    /// A server of this ensemble that clients would lose: those that read `/zookeeper/config` know no other addresses
    /// from then on, and that they come here is what following is for. One on its own names none, and they keep theirs.
    fn server_without_clients(&self) -> Option<String> {
        let members = members::parse(self.state.machine().members_text());
        let is_unnamed = |spec: &&ServerSpec| spec.client.is_none() && spec.secure_client.is_none();
        let spec = members.values().find(is_unnamed)?;
        let id = spec.id;
        Some(format!(
            "the line of server {id} names no address for clients, and those that read /zookeeper/config would not \
             find it. As nothing was written here, stop all servers of this ensemble, write \
             server.{id}={spec};<client port> into every zoo.cfg, and start them with empty data directories; or, with \
             reconfigEnabled=true and as who may: lockkeeper member add 'server.{id}={spec};<client port>'"
        ))
    }

    /// Something happened to the link.
    pub(in crate::replica) fn zookeeper(&mut self, input: LinkInput) {
        let now_us = self.clocks.now_us();
        match input {
            LinkInput::Up { remote, mut learner } => {
                let Some(joining) = self.joining() else { return self.end_migration() };
                let is_as_asked = *learner.joining() == joining;
                learner.go_on(now_us);
                self.following.linked(remote, learner);
                if !is_as_asked {
                    self.lose_link("the migration has gone on since it was asked for".to_owned());
                }
            }
            LinkInput::Bytes(bytes) => {
                if let Some(learner) = self.following.learner() {
                    learner.feed(&bytes, now_us);
                    self.take_link_events();
                }
            }
            LinkInput::Down { why } => self.lose_link(why),
        }
    }

    /// As what this server joins ZooKeeper's ensemble now, if it is to have the link.
    fn joining(&self) -> Option<Joining> {
        let migration = self.leads_migration()?;
        let is_compared = self.following.cutover.stage() == Stage::Comparing;
        let from_zxid = match (migration.follows(), migration.is_whole) {
            (true, _) if is_compared => 0,
            (true, false) => 0,
            (true, true) => migration.foreign_zxid,
            (false, _) => migration.foreign_zxid.max(self.following.watched_zxid()),
        };
        let (server_id, accepted_epoch) = (migration.server_id, migration.epoch);
        Some(Joining { server_id, from_zxid, accepted_epoch, login: None })
    }

    fn lose_link(&mut self, why: String) {
        if self.following.remote().is_some() && self.following.why() != why {
            self.following.tell(format!("the link with ZooKeeper's leader ended: {why}"));
        }
        let given_up = format!("the link with ZooKeeper's leader was lost: {why}");
        self.drop_link(why);
        // Behind that: what was held waits for the next link.
        self.give_up_cutover(&given_up);
    }

    /// There is no link any more. What it had may be done or not, so nothing is done that comes behind it.
    pub(super) fn drop_link(&mut self, why: String) {
        let lost = self.following.lose(why, self.clocks.now_us());
        for (session, origin) in lost {
            if !mutant!("lost-requests-unanswered") {
                self.refuse_lost(session, origin);
            }
        }
    }

    fn take_link_events(&mut self) {
        loop {
            let Some(learner) = self.following.learner() else { return };
            match learner.next_event() {
                Ok(Some(event)) => self.link_event(event),
                Ok(None) => return,
                Err(ended) => {
                    let is_ahead = matches!(ended, Ended::Ahead { .. });
                    if is_ahead && self.following.was_ahead() == AHEADS_MAX {
                        let why =
                            format!("ZooKeeper has lost transactions that the copy has: {ended}");
                        self.following.push(&MigrateOp::Stop { why: Text::from(why) });
                    }
                    return self.lose_link(ended.to_string());
                }
            }
        }
    }

    fn link_event(&mut self, event: Event) {
        let Some(migration) = self.leads_migration() else { return self.end_migration() };
        let follows = migration.follows() && self.following.cutover.stage() != Stage::Proposed;
        match event {
            Event::SnapshotBegins { zxid } if follows => {
                let is_for_comparison = self.following.cutover.stage() == Stage::Comparing;
                let copied = self.state.machine().last_zxid();
                if is_for_comparison && !migration.is_at(copied, zxid) {
                    // What lies between the two would never come over this link.
                    return self.lose_link(format!(
                        "ZooKeeper has gone on from zxid {copied:#x} to {zxid:#x} before it was compared: ask again"
                    ));
                }
                self.following.snapshot_begins(zxid, self.clocks.now_us());
                self.following.push(&MigrateOp::SnapshotBegins { is_for_comparison });
            }
            Event::SnapshotBytes(bytes) if follows => {
                self.following.push(&MigrateOp::SnapshotPart(bytes));
            }
            Event::SnapshotEnds if follows => {
                let zxid = self.following.snapshot_ends();
                self.following.push(&MigrateOp::SnapshotEnds { zxid });
            }
            Event::SnapshotBegins { .. } | Event::SnapshotBytes(_) | Event::SnapshotEnds => {}
            Event::Committed { txn, .. } if follows => self.committed(txn),
            Event::Committed { txn, .. } => self.watch_zookeeper(&txn),
            Event::Led { .. } | Event::CaughtUp { .. } => {}
            Event::UpToDate => {
                self.following.current();
                let epoch = self.following.epoch();
                if follows {
                    self.following.push(&MigrateOp::Linked { epoch });
                }
                if let Some((remote, _)) = self.following.remote() {
                    let words = format!("linked with ZooKeeper's leader {remote} of epoch {epoch}");
                    self.following.tell(words);
                }
                if self.following.cutover.stage() == Stage::Comparing {
                    self.following.cutover.advance(Stage::Draining);
                }
                self.release_held();
            }
            Event::Revalidated { session, is_valid } => self.revalidated(session, is_valid),
            Event::Synced => self.zookeeper_synced(),
        }
    }

    /// ZooKeeper has committed a transaction.
    fn committed(&mut self, foreign: ForeignTxn) {
        let header = foreign.header;
        self.following.stamped(header.time_ms, self.clocks.wall_ms());
        let answered = self.following.waiting.answer(&header);
        for origin in answered.lost {
            self.refuse_lost(header.client_id, origin);
        }
        if answered.origin.is_none() && !is_own_doing(&foreign) {
            self.following.cutover.intruded(|| intrusion(&foreign));
        }
        match (header.kind, answered.origin) {
            (kind::CREATE_SESSION, Some(origin)) => {
                self.following.set_owner(header.client_id, (origin.server, origin.conn));
            }
            (kind::CLOSE_SESSION, _) => self.following.forget_owner(header.client_id),
            (_, Some(origin)) if is_moved(&foreign) => self.leave(header.client_id, origin),
            _ => {}
        }
        let origin = answered.origin.unwrap_or_default();
        let op = TxnOp::Foreign(Box::new(foreign));
        self.following.push_txn(origin, header.client_id, header.cxid, &[], &op);
        for proven in self.following.waiting.proven(&header) {
            self.proven(proven);
        }
        if !self.following.waiting.is_probing() {
            self.probe();
        }
    }

    /// ZooKeeper did something after the cutover.
    fn watch_zookeeper(&mut self, foreign: &ForeignTxn) {
        self.following.watched(foreign.header.zxid);
        let migration = self.state.machine().migration();
        // What a deposed leader of this ensemble still asks for is refused, and it opens sessions that no client has.
        let is_late = match &foreign.body {
            TxnBody::CreateSession { .. } => {
                let server = foreign.header.client_id.to_be_bytes()[0];
                migration.is_some_and(|known| known.server_id == server)
            }
            _ => is_moved(foreign),
        };
        if is_late || is_own_doing(foreign) {
            return;
        }
        self.following.alarm(intrusion(foreign));
    }

    /// Proposes what came from ZooKeeper, and steps of the migration, as much as goes at once. False: not all of it.
    pub(in crate::replica) fn propose_followed(&mut self) -> bool {
        let mut proposed = 0;
        while proposed < PROPOSED_AT_ONCE {
            let Some(mut batch) = self.following.next_batch() else {
                return self.following.is_proposed();
            };
            let bytes = batch.len();
            proposed += bytes;
            self.stamp(&mut batch);
            if let Err(batch) = self.consensus.propose(batch) {
                self.following.give_back(batch);
                return false;
            }
            self.figures.proposed(bytes as u64);
            self.following.proposed(self.consensus.last_index(), bytes);
        }
        self.following.is_proposed()
    }

    /// Time has passed.
    pub(in crate::replica) fn mind_migration(&mut self) {
        let (now_us, applied) = (self.clocks.now_us(), self.state.at().0);
        let Some(migration) = self.leads_migration() else { return };
        let (phase, wants_link) = (migration.phase, migration.wants_link());
        if let Some(Err(ended)) = self.following.learner().map(|learner| learner.tick(now_us)) {
            self.lose_link(ended.to_string());
        }
        if phase == Phase::Joining
            && self.following.copies.tells(now_us)
            && let Some(copy) = self.copy_report()
        {
            self.following.tell(format!("the {}", copy.words()));
        }
        if !wants_link {
            if self.following.remote().is_some() {
                self.lose_link("this ensemble does not follow any more".to_owned());
            }
            return;
        }
        if self.following.wants_link(applied, now_us)
            && let Some(joining) = self.joining()
        {
            let quorum = self.zookeeper_addresses();
            self.following.ask(&quorum, joining);
        }
        if phase == Phase::Following
            && self.following.cutover.stage() != Stage::Comparing
            && self.following.is_away(now_us)
            && self.following.is_settled(applied)
        {
            self.following.push(&MigrateOp::Interrupted);
        }
        if self.following.cutover.is_overdue(now_us) {
            let waiting = self.following.waiting.len();
            self.give_up_cutover(&format!(
                "it took too long: {waiting} requests were still with ZooKeeper"
            ));
        }
    }

    /// A step of the migration was applied.
    pub(in crate::replica) fn migrated(&mut self, step: &MigrateOp, applied: &Applied) {
        let leads = self.leadership.leads().is_some();
        if applied.is_replaced {
            self.stop_serving();
            if leads {
                self.sessions.track_anew(self.state.machine().sessions());
                self.clocks.begin_to_lead(self.state.machine().steady_ms());
            }
        }
        match step {
            MigrateOp::Sessions { below } if leads => {
                self.following.have_ids(*below);
                self.open_held_sessions();
            }
            MigrateOp::CutOver => self.cut_over(applied),
            MigrateOp::Follow { .. } | MigrateOp::Abort | MigrateOp::Done if leads => {
                if let Some(token) = self.following.take_ordered() {
                    let done = applied.result.as_ref().map(|_| String::new());
                    let done = done.map_err(|code| format!("nothing was changed: {}", code.name()));
                    self.output.inspected(token, Report::Migrated(done));
                }
                self.ensemble.members_changed(false);
            }
            MigrateOp::Linked { .. } if leads => self.open_held_sessions(),
            _ => {}
        }
        self.mind_stop();
    }

    /// Sends clients away where they may be served no longer.
    pub(in crate::replica) fn mind_stop(&mut self) {
        if self.state.machine().may_serve() {
            return;
        }
        self.following.forget_held();
        if self.is_serving() {
            self.stop_serving();
        }
        if let Some(migration) = self.state.machine().migration()
            && migration.phase == Phase::Stopped
            && self.following.remote().is_some()
        {
            let why = migration.why.to_string();
            self.following.alarm(why.clone());
            self.lose_link(why);
        }
    }

    /// This server leads no longer.
    pub(in crate::replica) fn end_migration(&mut self) {
        let mut asked: Vec<u64> = self.following.cutover.end().into_iter().collect();
        asked.extend(std::iter::from_fn(|| self.following.take_ordered()));
        for token in asked {
            let words = format!("another server leads: {MIGRATION_UNKNOWN}");
            self.output.inspected(token, Report::Migrated(Err(words)));
        }
        self.following.end();
    }
}

/// What is done without a client: ZooKeeper ends sessions and removes containers, or fails to; this ensemble probes.
fn is_own_doing(foreign: &ForeignTxn) -> bool {
    let TxnHeader { kind, client_id, .. } = foreign.header;
    let needs_none = matches!(kind, kind::DELETE_CONTAINER | kind::ERROR);
    kind == kind::CLOSE_SESSION || client_id == NO_SESSION && needs_none
}

/// Who did what.
fn intrusion(foreign: &ForeignTxn) -> String {
    let header = &foreign.header;
    let what = match &foreign.body {
        TxnBody::Create(create) => format!("created {}", create.path),
        TxnBody::Delete { path } => format!("deleted {path}"),
        TxnBody::SetData { path, .. } => format!("set the data of {path}"),
        TxnBody::SetAcl { path, .. } => format!("set the access control list of {path}"),
        TxnBody::CreateSession { .. } => "began".to_owned(),
        TxnBody::Multi(subs) => format!("asked for {} operations at once", subs.len()),
        TxnBody::Error { .. } => "asked for what failed".to_owned(),
        TxnBody::Check { .. } | TxnBody::CloseSession { .. } => format!("kind {}", header.kind),
    };
    format!("session {:#x} {what} at zxid {:#x}", header.client_id, header.zxid)
}
