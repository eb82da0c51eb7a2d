//! Duties of the driver in each turn, besides the messages: what it tells others of the replica, and what it watches.
//!
//! *Invariants*: each is a step of `Driver::run`, whose order they keep; none of them waits.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Driver, Turn};
use crate::admin::Quantity;
use crate::config::Membership;
use crate::proto::OpCode;
use crate::replica::{ClientRequest, Drained, RefusalKind, Status};
use crate::server::error::ServerError;
use crate::server::limits::{CHANGES_BATCHES_MAX, CHANGES_RECORDS_MAX, TURN_US_MAX};
use crate::server::metrics::{Cause, Times};
use crate::storage::{Unusable, mark_unusable};

impl Driver {
    /// Opens the audit log anew if an operator has asked for that.
    pub(super) fn reopen_audit_log(&mut self) {
        if self.published.reopens_audit.swap(false, Ordering::AcqRel)
            && let Some(audit) = &mut self.audit
        {
            audit.reopen();
        }
    }

    /// Marks the directory of a server that must not use it any more.
    pub(super) fn mark_refusal(&self) {
        let Some(refusal) = self.replica.refused() else { return };
        let why = match refusal.kind {
            RefusalKind::RolledBack => Unusable::RolledBack,
            RefusalKind::Diverged => Unusable::Diverged,
            RefusalKind::NoMajority => Unusable::Undecided,
            RefusalKind::FarAhead | RefusalKind::MemoryChanged => return,
        };
        self.mark(why, &refusal.words);
    }

    /// Writes to the data directory why it must not be used any more.
    fn mark(&self, why: Unusable, words: &str) {
        let Some(disk) = &self.disk else { return };
        let marked = mark_unusable(&disk.files, &disk.data_dir, why, words);
        if let Err(error) = marked {
            tracing::error!(
                "the data directory cannot be marked as one that must not be used ({why:?}): {error}. Start the \
                 server with --rejoin before the other servers are restarted: after that, none may know"
            );
        }
    }

    /// Marks the directory as soon as the state is known to be another one: the server may be killed before it ends.
    pub(super) fn mark_divergence(&mut self) {
        if let Some(words) = self.replica.divergence()
            && !std::mem::replace(&mut self.state.is_marked, true)
        {
            self.mark(Unusable::Diverged, &words);
        }
    }

    /// # Errors
    /// The replica has refused its own data: they are older than what it once promised, or not what the others have.
    pub(super) fn end_if_refused(&self) -> Result<(), ServerError> {
        let Some(refusal) = self.replica.refused() else { return Ok(()) };
        let words = refusal.words.clone();
        self.published.conditions.set(Cause::Refused, Some(words.clone()));
        Err(match refusal.kind {
            RefusalKind::RolledBack | RefusalKind::FarAhead => ServerError::RolledBack(words),
            RefusalKind::Diverged | RefusalKind::NoMajority | RefusalKind::MemoryChanged => {
                ServerError::Diverged(words)
            }
        })
    }

    /// Measures how long requests have waited. Whether the last of them closes its session.
    pub(super) fn measure_requests(&self, requests: &[ClientRequest], now_us: u64) -> bool {
        let figures = self.connections.figures();
        figures.counts.requests_taken.add(requests.len() as u64);
        if let Some(arrived_us) = requests.first().and_then(|first| first.arrived_us) {
            let waited_us = now_us.saturating_sub(arrived_us);
            figures.measures.record(Quantity::DriverQueueTime, waited_us);
        }
        requests.last().is_some_and(|last| last.op == OpCode::CloseSession as i32)
    }

    /// Measures what the turn took.
    pub(super) fn measure(&mut self, status: &Status, turn: Turn) {
        let figures = self.connections.figures();
        let Turn { messages, began_us, stepped_us } = turn;
        let times = Times { began_us, stepped_us, settled_us: figures.now_us() };
        self.state.measures.note(figures, &mut self.replica, status, (messages, times));
    }

    /// A turn that began then is over: measures it, and says why it was long.
    pub(super) fn note_turn(&mut self, began_us: u64) {
        let figures = self.connections.figures();
        let took_us = figures.now_us().saturating_sub(began_us);
        figures.measures.record(Quantity::Turn, took_us);
        let dearest = self.replica.take_dearest();
        let now = Instant::now();
        if let Some(words) = self.state.long_turns.turned(took_us, dearest, now) {
            tracing::warn!("{words}. No other client was answered meanwhile");
        }
        self.published.conditions.set(Cause::LongTurn, self.state.long_turns.condition(now));
    }

    /// Tells the links what they say of this server.
    pub(super) fn tell_links(&self, status: &Status) {
        if let Some(links) = &self.links {
            links.peers.set_term(status.term);
            links.peers.set_serving(status.serving);
            links.peers.set_ensemble_version(status.ensemble_version);
        }
    }

    /// Gives changed records to the state thread when it has room for them: once there are many or
    /// they have waited, and from then on until a checkpoint is complete: a batch, or several while the turn has time.
    pub(super) fn hand_over_changes(&mut self, status: &Status, turn: Turn) {
        let figures = self.connections.figures();
        let begun_us = figures.now_us();
        let Some(disk) = &mut self.disk else { return };
        let (checkpoints, schedule) = (&disk.checkpoints, &mut disk.schedule);
        let now = Instant::now();
        if std::mem::take(&mut self.state.is_checkpoint_asked) {
            schedule.go_on();
        }
        if !schedule.is_due(status.changes_waiting, disk.changes_wait, now)
            || !checkpoints.has_room()
        {
            return;
        }
        // A driver that only time wakes does more at once, and one that never comes to an end otherwise.
        let is_late = schedule.is_late(now);
        let does_more = turn.messages == 0 || is_late;
        // One that is late has time of its own: beside a driver that has none it would never end.
        let since_us = if is_late { begun_us } else { turn.began_us };
        for _ in 0..if does_more { CHANGES_BATCHES_MAX } else { 1 } {
            let drained = self.replica.drain_changes(CHANGES_RECORDS_MAX);
            let now_us = figures.now_us();
            self.state.long_turns.message("a checkpoint's records", now_us - begun_us);
            match drained {
                Drained::Changes(changes) => {
                    let is_complete = changes.mark.is_some();
                    checkpoints.hand_over(changes);
                    if is_complete {
                        return schedule.complete(now);
                    }
                    schedule.go_on();
                }
                // The log thread wakes this one.
                Drained::NotDurable => return schedule.go_on(),
                Drained::Nothing => return schedule.complete(now),
            }
            if !checkpoints.has_room() || now_us - since_us >= TURN_US_MAX {
                return;
            }
        }
    }

    /// Looks whether the disk answers, and how much of the cores its work in the background may take.
    ///
    /// # Errors
    /// The log's thread has ended.
    pub(super) fn watch_disk(&mut self, status: &Status) -> Result<(), ServerError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        disk.log.follow_version(status)?;
        let now = Instant::now();
        disk.alarm.look(status, &self.published.conditions, now);
        let of_checkpoint = disk.schedule.lateness(status.changes_waiting, now);
        self.sharing.adapt(of_checkpoint.max(disk.checkpoints.image_lateness()), now);
        Ok(())
    }

    /// Tells the ports who is a member, and whether this server serves.
    pub(super) fn tell_members(&mut self, status: &Status) {
        let Some(links) = &self.links else { return };
        let text = self.replica.machine().members_text();
        if self.members.send_if_modified(|known| known.update(text, status.serving)) {
            self.state.removal = removal(text, links.peers.own);
        }
    }

    /// Makes a condition of a removal of this server, once it does not serve. Takes the condition of a founding back:
    /// what other servers refused is of no matter to one that serves.
    pub(super) fn show_founding(&mut self, status: &Status) {
        if !status.serving && self.state.removal.is_some() {
            self.published.conditions.set(Cause::Founding, self.state.removal.clone());
        }
        if status.serving && !self.state.was_serving {
            self.published.conditions.set(Cause::Founding, None);
        }
        self.state.was_serving = status.serving;
    }

    /// Writes what the log tells of the clocks, rules and states of other servers, this server's role, and clients
    /// without a session.
    pub(super) fn write_log_lines(&mut self, status: &Status) {
        let state = &mut self.state;
        state.clock_alarm.look(status);
        let now = Instant::now();
        let members = self.replica.machine().members_text();
        self.role_log.look(status, members, self.connections.figures(), now);
        state.rules_log.look(status, self.replica.machine().tree().options().rules);
        let differs = state.differing_log.look(status, self.role_log.server());
        self.published.conditions.set(Cause::Differs, differs);
        if let Some(lacks) = self.replica.take_refused_change() {
            tracing::warn!("a change of the members is refused (-13): {lacks}");
        }
        state.away_log.turned_away(&std::mem::take(&mut state.turned_away), now);
        state.away_log.look(status, self.sharing.is_storm(now), now);
    }

    /// Makes a condition of what keeps this server from a majority, or the votes from following the members.
    pub(super) fn show_obstacle(&mut self) {
        let obstacle = self.replica.obstacle().map(str::to_owned);
        if obstacle.is_some() || self.state.shows_obstacle {
            self.state.shows_obstacle = obstacle.is_some();
            self.published.conditions.set(Cause::Majority, obstacle);
        }
    }
}

/// Words for a server that the members do not name. `None`: they do, or there are none yet.
fn removal(members: &str, own: u8) -> Option<String> {
    let Membership { servers, version } = Membership::parse(members).ok()?;
    let is_removed = !servers.is_empty() && servers.iter().all(|member| member.id != own);
    is_removed.then(|| {
        format!(
            "this server was removed by reconfig at zxid {version:#x}: to add it again, `lockkeeper member add \
             'server.{own}=...'` on a member; until then it serves no client"
        )
    })
}
