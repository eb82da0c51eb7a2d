//! The cutover: from ZooKeeper's decisions to this ensemble's own.
//!
//! *Owns* nothing: joins the cutover's steps with the link, the log and the sessions. *Invariants*: it is proposed only
//! when nothing is on its way, no other link of this ensemble can write for an open session, every open session is
//! connected here, and ZooKeeper's ports were looked at again; whatever ends it before that leaves everything as it
//! was. *Never* leaves out a step.

use crate::replica::Replica;
use crate::replica::inspect::Report;
use crate::replica::machine::{Applied, MigrateOp, NO_CONNECTION, Phase};
use crate::replica::migration::{Stage, Unproven};

/// Sessions that are named where there are too many of them.
const NAMED_MAX: usize = 3;

impl Replica {
    /// Takes a cutover as far as it can go now.
    pub(in crate::replica) fn advance_cutover(&mut self) {
        let applied = self.state.at().0;
        match self.following.cutover.stage() {
            Stage::Draining
                if !self.following.waiting.is_empty() || !self.following.is_settled(applied) => {}
            Stage::Draining if self.is_unproven() => {
                if self.following.cutover.compares() {
                    return self.give_up_cutover(
                        "ZooKeeper has done something since its state was compared: ask again",
                    );
                }
                self.following.cutover.advance(Stage::Comparing);
                self.drop_link("ZooKeeper's state is compared".to_owned());
            }
            Stage::Draining => {
                // Not those of ZooKeeper's own clients: to ask for one keeps it alive.
                let known = self.state.machine().sessions().iter();
                let owned = known.filter(|(_, session)| session.owner.0 != 0);
                let sessions: Vec<(i64, i32)> =
                    owned.map(|(id, session)| (id, session.timeout_ms)).collect();
                if let Some(learner) = self.following.requesting() {
                    // A leader that was deposed and does not know it may still have a link. Once a session belongs to
                    // this one, ZooKeeper refuses what comes over the other.
                    let fences = !mutant!("cutover-without-fence");
                    let fenced = if fences { sessions } else { Vec::new() };
                    for (id, timeout_ms) in &fenced {
                        learner.revalidate(*id, *timeout_ms);
                    }
                    fenced.iter().for_each(|(id, _)| self.following.waiting.fence(*id));
                    let attempt = self.following.cutover.attempt();
                    self.prove(Unproven::CutOver(attempt));
                    self.following.cutover.advance(Stage::Syncing);
                }
            }
            Stage::Applying
                if !self.following.is_settled(applied) || !self.following.waiting.is_empty() => {}
            Stage::Applying => match self.cutover_obstacle() {
                Some(why) => self.give_up_cutover(&why),
                None => {
                    self.following.cutover.advance(Stage::Looking);
                    self.following.look();
                }
            },
            Stage::None | Stage::Comparing | Stage::Syncing | Stage::Looking | Stage::Proposed => {}
        }
    }

    /// Whether no digest of ZooKeeper has covered all of the copy.
    fn is_unproven(&self) -> bool {
        self.state.machine().migration().is_some_and(|migration| migration.is_unproven)
    }

    /// What stands against a cutover, now that everything has come.
    fn cutover_obstacle(&self) -> Option<String> {
        let machine = self.state.machine();
        let migration = machine.migration()?;
        if migration.is_unproven {
            return Some("the copy is not proved to be that of ZooKeeper: ask again".to_owned());
        }
        if migration.phase != Phase::Following || !migration.is_whole {
            return Some(format!("this ensemble is {}: {}", migration.phase.name(), migration.why));
        }
        if let Some(intruder) = self.following.cutover.intruder() {
            return Some(format!("a client of ZooKeeper has written meanwhile: {intruder}"));
        }
        // Not those that have become silent meanwhile: to make sure whose they are has kept them open.
        let sessions = machine.sessions().iter();
        let unowned = sessions.filter(|(_, session)| session.owner == NO_CONNECTION);
        elsewhere(unowned.map(|(id, session)| (id, session.timeout_ms)))
    }

    /// Open sessions, with their timeouts, whose clients are at ZooKeeper, or gone: none has attached them here, or
    /// this ensemble has heard nothing of them for so long that they would be over if ZooKeeper had not either. That a
    /// client has gone back to ZooKeeper is no transaction.
    pub(super) fn unconnected_sessions(&self) -> impl Iterator<Item = (i64, i32)> {
        let sessions = self.state.machine().sessions().iter();
        let elsewhere = sessions
            .filter(|(id, session)| session.owner == NO_CONNECTION || self.sessions.is_silent(*id));
        elsewhere.map(|(id, session)| (id, session.timeout_ms))
    }

    /// The same, in words.
    pub(super) fn sessions_elsewhere(&self) -> Option<String> {
        elsewhere(self.unconnected_sessions())
    }

    /// The shell has looked again whether ZooKeeper's ports for clients are closed.
    pub(in crate::replica) fn zookeeper_closed(
        &mut self,
        attempt: u64,
        closed: Result<(), String>,
    ) {
        if !self.following.cutover.is_at(Stage::Looking, attempt) {
            return;
        }
        match closed.err().or_else(|| self.cutover_obstacle()) {
            Some(why) => self.give_up_cutover(&why),
            None => {
                self.following.cutover.advance(Stage::Proposed);
                self.following.push(&MigrateOp::CutOver);
            }
        }
    }

    /// Goes on as before.
    pub(super) fn give_up_cutover(&mut self, why: &str) {
        if self.following.cutover.stage() == Stage::Proposed {
            return;
        }
        if let Some(token) = self.following.cutover.end() {
            let words = format!("nothing was changed: {why}");
            self.output.inspected(token, Report::Migrated(Err(words)));
            self.release_held();
        }
    }

    /// The entry of the cutover was applied.
    pub(super) fn cut_over(&mut self, applied: &Applied) {
        self.ensemble.members_changed(false);
        let token = self.following.cutover.end();
        // Also at a leader that has applied nothing of its own term yet: what clients ask for from now on goes behind.
        self.release_held();
        if self.leadership.leads().is_none() {
            return;
        }
        let done = match &applied.result {
            Ok(_) => Ok(format!("{:#x}", applied.zxid)),
            Err(code) => Err(format!("nothing was changed: {}", code.name())),
        };
        if done.is_ok() {
            self.sessions.track_anew(self.state.machine().sessions());
            self.clocks.begin_to_lead(self.state.machine().steady_ms());
            self.following
                .tell(format!("this ensemble has taken over at zxid {:#x}", applied.zxid));
        }
        if let Some(token) = token {
            self.output.inspected(token, Report::Migrated(done));
        }
    }
}

/// That these sessions are elsewhere; `None`, where there are none.
fn elsewhere(sessions: impl Iterator<Item = (i64, i32)>) -> Option<String> {
    let mut longest_ms = 0;
    let name = |(id, timeout_ms): (i64, i32)| {
        longest_ms = longest_ms.max(timeout_ms);
        format!("{id:#x}")
    };
    let sessions: Vec<String> = sessions.map(name).collect();
    if sessions.is_empty() || mutant!("cutover-without-all-sessions") {
        return None;
    }
    let named = sessions.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = if sessions.len() > NAMED_MAX { ", ..." } else { "" };
    Some(format!(
        "{} open sessions are not connected here ({named}{more}): move their clients; or, where those are gone, wait \
         {} s, in which ZooKeeper ends such sessions",
        sessions.len(),
        longest_ms.max(0).unsigned_abs().div_ceil(1000)
    ))
}
