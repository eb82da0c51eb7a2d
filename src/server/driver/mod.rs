//! The task that owns the replica: drains a batch of messages, then does what the replica wants.
//!
//! *Owns* the loop, the clocks given to the replica and the way of every answer to its connection.
//! *Invariants*: every batch begins with a tick, and before a tick what the other servers have said is heard, at least
//! every 50 ms; a turn ends after 10 ms, between two messages or two steps of the replica; what is to be sent to
//! other servers and to the log goes there before anything else; audit lines are in their file, and the figures are
//! published, before an answer is handed out. *Never* waits for anything but messages and time (and, for 2 ms at most,
//! for the log's thread, where no other client could have to wait as well: see `log_writer`): a full state queue leaves
//! changes in the replica, a slow client is cut off, the log's queue has no bound of its own (it cannot
//! hold more than the requests in flight, which are bounded).

mod audit;
mod clock_alarm;
mod connections;
mod duties;
mod long_turns;
#[cfg(test)]
mod tests;

pub(in crate::server) use audit::Audit;
pub(in crate::server) use connections::Connections;

use std::collections::HashMap;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;

use clock_alarm::ClockAlarm;
use long_turns::LongTurns;

use crate::admin::Quantity;
use crate::replica::peer::server_of;
use crate::replica::txn_version::NEWEST;
use crate::replica::{
    Input, OUTPUT_BYTES_PER_TURN_MAX, Ready, Replica, Report, Status, TurnedAway,
};
use crate::server::clock;
use crate::server::cpu_policy::CoreSharing;
use crate::server::disk::{CheckpointSchedule, Checkpoints, DiskAlarm, LogWriter};
use crate::server::error::ServerError;
use crate::server::gssapi::Gssapi;
use crate::server::limits::{DRIVER_BATCH_MAX, HEAR_US_MAX, TURN_US_MAX};
use crate::server::log_lines::{AwayLog, DifferingLog, RoleLog, RulesLog};
use crate::server::mailbox::{LinkEvent, Message, PAST_FOUNDING, Queue, tell};
use crate::server::metrics::{Cause, Published, TurnMeasures};
use crate::server::peer::Links;
use crate::server::ports::Announced;
use crate::server::stop::Stop;
use crate::server::zookeeper::ZooKeeper;
use crate::storage::{Lock, WatchedFs};
use crate::supervision::{Task, spawn_blocking};

/// The loop's state.
#[derive(Debug)]
pub(super) struct Driver {
    /// What one turn leaves to the next.
    pub state: State,
    /// The replica.
    pub replica: Replica,
    /// Where messages come from.
    pub messages: Queue,
    /// The disk's threads; `None` in memory.
    pub disk: Option<Disk>,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// Where the figures go.
    pub published: Arc<Published>,
    /// Asks for the end.
    pub stop: Arc<Stop>,
    /// The connections' queues.
    pub connections: Connections,
    /// How this server shares the cores.
    pub sharing: Arc<CoreSharing>,
    /// Told of the members.
    pub members: watch::Sender<Announced>,
    /// Links with other servers; `None` without an ensemble.
    pub links: Option<Links>,
    /// What judges tokens of Kerberos. Behind the queue: what it sends is refused when it is dropped.
    pub gssapi: Gssapi,
    /// The sockets of a live migration. Behind the queue, too.
    pub zookeeper: ZooKeeper,
    /// What the log tells of this server's role.
    pub role_log: RoleLog,
}

/// What one turn of the driver leaves to the next, besides what has an owner.
#[derive(Debug, Default)]
pub(super) struct State {
    inspections: Inspections,
    measures: TurnMeasures,
    clock_alarm: ClockAlarm,
    away_log: AwayLog,
    rules_log: RulesLog,
    differing_log: DifferingLog,
    /// Clients that got no session in this turn.
    turned_away: Vec<TurnedAway>,
    /// Whether a checkpoint is to be completed as soon as that can be, because somebody waits for one.
    is_checkpoint_asked: bool,
    was_serving: bool,
    /// Words about this server's removal, if the members do not name it.
    removal: Option<String>,
    /// The directory is marked: the state is not that of the majority.
    is_marked: bool,
    shows_obstacle: bool,
    /// The replica has more to do than there was time for.
    is_unsettled: bool,
    /// When what other servers had said was heard last.
    heard_us: u64,
    long_turns: LongTurns,
}

/// What came for a turn, and when, by the clock of the replica.
#[derive(Clone, Copy, Debug)]
struct Turn {
    messages: usize,
    began_us: u64,
    /// When all messages were given to the replica.
    stepped_us: u64,
}

/// The disk's threads. Fields are dropped in order: what is in the log is made durable first, and
/// the directory is free when no thread writes to it any more.
#[derive(Debug)]
pub(super) struct Disk {
    /// The log.
    pub log: LogWriter,
    /// The tree's copy.
    pub checkpoints: Checkpoints,
    /// Says when a checkpoint is due.
    pub schedule: CheckpointSchedule,
    /// How long changed records wait for more of them.
    pub changes_wait: Duration,
    /// Says when a call takes too long.
    pub alarm: DiskAlarm,
    /// Where it is written that the data must not be used any more.
    pub files: WatchedFs,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Keeps other servers out.
    #[expect(dead_code, reason = "held, not read")]
    pub lock: Arc<Lock>,
}

impl Driver {
    /// Runs until the end is asked for. `serves` is told when a client would be answered.
    ///
    /// # Errors
    /// Why the server cannot go on.
    pub(super) async fn run(&mut self, serves: oneshot::Sender<Status>) -> Result<(), ServerError> {
        let mut serves = Some(serves);
        let mut batch = Vec::with_capacity(DRIVER_BATCH_MAX);
        while self.wait(&mut batch).await && !self.stop.is_asked() {
            self.reopen_audit_log();
            let turn = self.step(&mut batch).await?;
            self.mark_divergence();
            self.end_if_refused()?;
            self.zookeeper.turned(&self.replica);
            let status = self.replica.status();
            self.measure(&status, turn);
            self.tell_links(&status);
            self.hand_over_changes(&status, turn);
            self.note_turn(turn.began_us);
            self.watch_disk(&status)?;
            tell_start(&status, &mut serves);
            self.tell_members(&status);
            self.show_founding(&status);
            self.write_log_lines(&status);
            self.show_obstacle();
            self.published.publish(status);
        }
        Ok(())
    }

    /// The end: what the next start must know is written to the disk, and its threads are ended. Takes as
    /// long as the disk does.
    pub(super) fn end(mut self) {
        // Who waits for a report hears at once of the end.
        drop(std::mem::take(&mut self.state));
        self.mark_refusal();
    }

    /// Waits for messages or for time to pass, but not while there are answers that only wait for the
    /// connections to write others: they write those first, whatever there is to do already. False:
    /// there is no sender any more.
    async fn wait(&mut self, batch: &mut Vec<Message>) -> bool {
        let owes_work = !batch.is_empty() || self.replica.owes_answers() || self.state.is_unsettled;
        if owes_work || self.made_bytes() >= OUTPUT_BYTES_PER_TURN_MAX {
            self.let_write().await;
        }
        tokio::select! {
            biased;
            goes_on = self.messages.turn(batch), if batch.len() < DRIVER_BATCH_MAX => goes_on,
            () = ready(()), if owes_work => true,
        }
    }

    /// Bytes of answers and events since the connections could last write.
    fn made_bytes(&self) -> usize {
        self.connections.pushed_bytes + self.replica.output_bytes()
    }

    /// Gives the connections time to write what they were pushed.
    async fn let_write(&mut self) {
        yield_now().await;
        self.connections.let_write().await;
        self.connections.pushed_bytes = 0;
    }

    /// Begins a turn. What other servers have said meanwhile counts before the time that has passed: however late this
    /// turn is, silence is only what was not said. When it began, and how many messages of theirs there were.
    async fn begin(&mut self, batch: &mut Vec<Message>) -> Result<(u64, usize), ServerError> {
        let mut heard = 0;
        let now_us = self.connections.figures().now_us();
        if self.links.is_some() && now_us.saturating_sub(self.state.heard_us) >= HEAR_US_MAX {
            self.state.heard_us = now_us;
            // Their sockets are read by tasks of this thread.
            yield_now().await;
            self.messages.take_all(batch);
            let is_said = |message: &mut Message| matches!(message, Message::Link(_));
            let said: Vec<Message> = batch.extract_if(.., is_said).collect();
            heard = said.len();
            for message in said {
                self.take(message, now_us)?;
            }
        }
        self.tick();
        Ok((now_us, heard))
    }

    /// Whether a turn that began then is over.
    fn is_over(&self, began_us: u64) -> bool {
        self.connections.figures().now_us().saturating_sub(began_us) >= TURN_US_MAX
    }

    fn tick(&mut self) {
        let now_us = self.connections.figures().now_us();
        self.replica.step(Input::Tick { now_us, wall_ms: clock::wall_ms() });
    }

    /// Gives the replica what has come, as much as there is time for, and does what it wants.
    async fn step(&mut self, batch: &mut Vec<Message>) -> Result<Turn, ServerError> {
        let (began_us, heard) = self.begin(batch).await?;
        let before = heard + batch.len();
        batch.reverse();
        while let Some(message) = batch.pop() {
            self.take(message, began_us)?;
            if self.made_bytes() >= OUTPUT_BYTES_PER_TURN_MAX || self.is_over(began_us) {
                break;
            }
        }
        batch.reverse();
        let messages = before - batch.len();
        let stepped_us = self.connections.figures().now_us();
        self.settle(began_us)?;
        Ok(Turn { messages, began_us, stepped_us })
    }

    fn take(&mut self, message: Message, now_us: u64) -> Result<(), ServerError> {
        let Some(name) = dear(&message) else { return self.give(message, now_us) };
        let began_us = self.connections.figures().now_us();
        self.give(message, now_us)?;
        let took_us = self.connections.figures().now_us().saturating_sub(began_us);
        self.state.long_turns.message(name, took_us);
        Ok(())
    }

    fn give(&mut self, message: Message, now_us: u64) -> Result<(), ServerError> {
        match message {
            Message::Open { conn, line, input } => {
                self.connections.open(conn, line);
                self.replica.step(input);
            }
            Message::Input(input) => {
                match &input {
                    Input::Closed { conn } => {
                        self.connections.close(*conn);
                        self.gssapi.closed(*conn);
                    }
                    Input::Requests { requests, .. } if self.measure_requests(requests, now_us) => {
                        let began_us = self.connections.figures().now_us();
                        self.replica.step(input);
                        let figures = self.connections.figures();
                        let took_us = figures.now_us().saturating_sub(began_us);
                        figures.measures.record(Quantity::CloseSession, took_us);
                        return Ok(());
                    }
                    _ => {}
                }
                self.replica.step(input);
            }
            Message::Link(event) => {
                if let LinkEvent::Refused { words, .. } = &event
                    && !self.replica.is_serving()
                    && self.state.removal.is_none()
                {
                    self.published.conditions.set(Cause::Founding, Some(words.clone()));
                }
                if let Some(links) = &mut self.links {
                    links.take(event, &mut self.replica);
                }
            }
            Message::ImageDamaged { index } => {
                if let Some(disk) = &self.disk {
                    disk.checkpoints.damaged(index);
                }
            }
            Message::ImageWanted { index } => {
                if let Some(disk) = &self.disk {
                    disk.checkpoints.wanted(index);
                }
            }
            Message::Backup(wanted) => {
                if let Some(disk) = &self.disk {
                    disk.checkpoints.backup(wanted);
                }
                // The image is one of a checkpoint, and one is due now.
                self.state.is_checkpoint_asked = true;
            }
            Message::Inspect { what, answer } => {
                let token = self.state.inspections.add(answer);
                self.replica.step(Input::Inspect { token, what });
            }
            Message::ZooKeeper(event) => {
                if let Some(input) = self.zookeeper.take(event) {
                    self.replica.step(input);
                }
            }
            Message::Bootstrap { answer, .. } => tell(answer, Err(PAST_FOUNDING.to_owned())),
            Message::Migrate { order, words, answer } => {
                let asked = (self.state.inspections.number(), answer);
                if let Some(input) = self.zookeeper.order(order, words, asked, &self.replica) {
                    self.replica.step(input);
                }
            }
            Message::ZooKeeperPorts { ports, answer } => {
                self.zookeeper.look_at_ports(ports, answer)
            }
            Message::Failed(error) => return Err(error),
            Message::Wake => {}
        }
        Ok(())
    }

    /// Does what the replica wants, until it wants nothing or the turn is over.
    fn settle(&mut self, now_us: u64) -> Result<(), ServerError> {
        loop {
            if let Some(disk) = &mut self.disk
                && let Some(number) = disk.log.persisted()?
            {
                self.replica.persisted(number);
            }
            let ready = self.replica.ready().map_err(defect)?;
            self.state.is_unsettled = ready.is_some();
            let Some(ready) = ready else { return Ok(()) };
            self.act(ready, now_us)?;
            if self.is_over(now_us) {
                return Ok(());
            }
        }
    }

    fn act(&mut self, ready: Ready, now_us: u64) -> Result<(), ServerError> {
        if let Some(links) = &mut self.links {
            // The others have the longer way to their disks.
            links.send(ready.send, &mut self.replica);
            for peer in ready.cut {
                links.cut(peer, &mut self.replica);
            }
        }
        if let Some(append) = ready.append {
            match &mut self.disk {
                Some(disk) => {
                    self.connections.figures().counts.appends_ordered.add(1);
                    // Other servers would have to be told that this one is there.
                    let is_only_one =
                        self.links.is_none() && self.replica.requests_in_flight() <= 1;
                    if let Some(installing) = disk.log.append(append, is_only_one)? {
                        disk.checkpoints.installed(installing);
                    }
                }
                None => self.replica.persisted(append.number),
            }
        }
        for fetch in ready.fetch {
            match &mut self.disk {
                Some(disk) => disk.log.read(fetch)?,
                None => self.replica.step(Input::Fetched { fetch, entries: Vec::new() }),
            }
        }
        if !ready.zookeeper.is_empty() {
            self.zookeeper.act(ready.zookeeper);
        }
        if let Some(links) = &mut self.links
            && let Some(members) = ready.members
        {
            links.peers.follow(members.into_iter().map(|member| member.spec).collect());
        }
        if let Some(replaced) = ready.replaced {
            // To end millions of znodes takes seconds.
            drop(spawn_blocking(Task::Driver, move || drop(replaced)));
        }
        self.state.turned_away.extend(ready.turned_away);
        for image in ready.images {
            self.role_log.image_sent(server_of(image.to));
            match &self.links {
                Some(links) => links.peers.transfers.send(image),
                None => self.replica.step(Input::ImageSent { to: image.to, ok: false }),
            }
        }
        for (conn, token) in ready.tokens {
            if let Some(judged) = self.gssapi.judge(conn, token) {
                self.replica.step(judged);
            }
        }
        if let Some(audit) = &mut self.audit
            && !ready.audit.is_empty()
        {
            audit.write(&ready.audit, &ready.audit_clients).map_err(|error| {
                ServerError::Audit { path: audit.path().to_path_buf(), reason: error.to_string() }
            })?;
        }
        if !ready.client.is_empty() || !ready.inspected.is_empty() {
            self.published.publish(self.replica.status());
        }
        for outgoing in ready.client {
            self.connections.push(outgoing, now_us);
        }
        self.connections.hand_over();
        for (token, report) in ready.inspected {
            if let Some(report) = self.zookeeper.answered(token, report) {
                self.state.inspections.answer(token, report);
            }
        }
        Ok(())
    }
}

/// A name for a message that may cost much in one piece.
fn dear(message: &Message) -> Option<&'static str> {
    match message {
        Message::Inspect { .. } => Some("a question of an operator"),
        Message::Link(_) => Some("a message of another server"),
        Message::ZooKeeper(_) | Message::Migrate { .. } => Some("a step of the migration"),
        _ => None,
    }
}

/// Tells the caller that starts this server that it serves, once.
fn tell_start(status: &Status, serves: &mut Option<oneshot::Sender<Status>>) {
    if !status.serving {
        return;
    }
    let Some(serves) = serves.take() else { return };
    let digest = format!("{:032x}", status.digest);
    tracing::debug!(zxid = status.zxid, %digest, "serves");
    // A state without a transaction gets the version of the first one.
    if status.ensemble_version < NEWEST && status.zxid > 0 {
        tracing::info!(
            version = status.ensemble_version,
            newest = NEWEST,
            "the files can be read by the release before, too, until `lockkeeper member finish-upgrade`"
        );
    }
    // Not everybody waits for that.
    let _ = serves.send(status.clone());
}

fn defect(message: String) -> ServerError {
    ServerError::Panic { task: Task::Driver.name(), message, location: None }
}

/// Who waits for which answer.
#[derive(Debug, Default)]
struct Inspections {
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Report>>,
}

impl Inspections {
    fn add(&mut self, answer: oneshot::Sender<Report>) -> u64 {
        let number = self.number();
        self.waiting.insert(number, answer);
        number
    }

    /// A number that no other question has.
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn answer(&mut self, token: u64, report: Report) {
        if let Some(answer) = self.waiting.remove(&token) {
            // The caller that asked may have given up.
            let _ = answer.send(report);
        }
    }
}
