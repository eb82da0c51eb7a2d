//! The task that owns the replica: drains a batch of messages, then does what the replica wants.
//!
//! *Owns* the loop, the clocks given to the replica and the way of every answer to its connection.
//! *Invariants*: every batch begins with a tick; what is to be sent to other servers and to the log
//! goes there before anything else; audit lines are in their file, and the figures are published,
//! before an answer is handed out. *Never* waits for anything but messages and time: a full state queue
//! leaves changes in the replica, a slow client is cut off, the log's queue has no bound of its own
//! (it cannot hold more than the requests in flight, which are bounded).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;

use super::audit::Audit;
use super::checkpoints::Checkpoints;
use super::clock;
use super::connection::Line;
use super::error::ServerError;
use super::figures::Figures;
use super::limits::{
    CHANGES_RECORDS_MAX, CHANGES_WAITING_MAX, DIRECT_BYTES_MAX, DRIVER_BATCH_MAX,
    OUTPUT_BYTES_PER_TURN_MAX,
};
use super::log_writer::LogWriter;
use super::outbox::Pushed;
use super::peer_links::{LinkEvent, Links};
use super::queue::Queue;
use super::shared::{Published, Stop};
use crate::replica::{ConnId, Input, Inspect, Outgoing, Ready, Replica, Report, Status};
use crate::storage::Lock;

/// What the driver is sent.
#[derive(Debug)]
pub enum Message {
    /// A connection begins: where its answers go, and its first frame.
    Open {
        /// Its number.
        conn: ConnId,
        /// Where its answers go.
        line: Arc<Line>,
        /// Its first frame.
        input: Input,
    },
    /// For the replica.
    Input(Input),
    /// Something happened on a link with another server.
    Link(LinkEvent),
    /// An image of this server turned out damaged.
    ImageDamaged {
        /// Its index.
        index: u64,
    },
    /// Another server needs an image of this index or a later one.
    ImageWanted {
        /// The index.
        index: u64,
    },
    /// An operator's question.
    Inspect {
        /// The question.
        what: Inspect,
        /// Where the answer goes.
        answer: oneshot::Sender<Report>,
    },
    /// A thread has found that the server cannot go on.
    Failed(ServerError),
    /// Nothing but a reason to look: something is durable, or the end is asked for.
    Wake,
}

/// The loop's state.
#[derive(Debug)]
pub struct Driver {
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
    /// Told of the text of the members.
    pub members: watch::Sender<String>,
    /// Links with other servers; `None` without an ensemble.
    pub links: Option<Links>,
}

/// The disk's threads. Fields are dropped in order: what is in the log is made durable first, and
/// the directory is free when nobody writes to it any more.
#[derive(Debug)]
pub struct Disk {
    /// The log.
    pub log: LogWriter,
    /// The tree's copy.
    pub checkpoints: Checkpoints,
    /// How long changed records wait for more of them.
    pub changes_wait: Duration,
    /// Keeps other servers out.
    #[expect(dead_code, reason = "held, not read")]
    pub lock: Arc<Lock>,
}

impl Driver {
    /// Runs until the end is asked for. `serves` is told when a client would be answered.
    ///
    /// # Errors
    /// Why the server cannot go on.
    pub async fn run(&mut self, serves: oneshot::Sender<Status>) -> Result<(), ServerError> {
        let start = Instant::now();
        let mut batch = Vec::with_capacity(DRIVER_BATCH_MAX);
        let mut inspections = Inspections::default();
        let mut pace = Pace { completed: start, is_open: false };
        let mut serves = Some(serves);
        while self.messages.turn(&mut batch).await {
            if self.stop.is_asked() {
                break;
            }
            let now_us = clock::micros_since(start);
            self.replica.step(Input::Tick { now_us, wall_ms: clock::wall_ms() });
            for message in batch.drain(..) {
                self.take(message, &mut inspections)?;
                if self.replica.output_bytes() >= OUTPUT_BYTES_PER_TURN_MAX {
                    self.settle(now_us, &mut inspections)?;
                    yield_now().await;
                }
            }
            self.settle(now_us, &mut inspections)?;
            let status = self.replica.status();
            self.hand_over_changes(status.changes_waiting, &mut pace);
            if status.serving
                && let Some(serves) = serves.take()
            {
                let digest = format_args!("{:032x}", status.digest);
                tracing::debug!(zxid = status.zxid, %digest, "serves");
                // Not everybody waits for that.
                let _ = serves.send(status.clone());
            }
            self.published.publish(status);
        }
        Ok(())
    }

    fn take(&mut self, message: Message, inspections: &mut Inspections) -> Result<(), ServerError> {
        match message {
            Message::Open { conn, line, input } => {
                self.connections.open(conn, line);
                self.replica.step(input);
            }
            Message::Input(input) => {
                if let Input::Closed { conn } = input {
                    self.connections.close(conn);
                }
                self.replica.step(input);
            }
            Message::Link(event) => {
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
            Message::Inspect { what, answer } => {
                let token = inspections.add(answer);
                self.replica.step(Input::Inspect { token, what });
            }
            Message::Failed(error) => return Err(error),
            Message::Wake => {}
        }
        Ok(())
    }

    /// Does what the replica wants, until it wants nothing.
    fn settle(&mut self, now_us: u64, inspections: &mut Inspections) -> Result<(), ServerError> {
        if let Some(disk) = &mut self.disk
            && let Some(number) = disk.log.persisted()?
        {
            self.replica.persisted(number);
        }
        while let Some(ready) = self.replica.ready().map_err(defect)? {
            self.act(ready, now_us, inspections)?;
        }
        Ok(())
    }

    fn act(
        &mut self,
        ready: Ready,
        now_us: u64,
        inspections: &mut Inspections,
    ) -> Result<(), ServerError> {
        if let Some(links) = &mut self.links {
            // The others have the longer way to their disks.
            links.send(ready.send, &mut self.replica);
        }
        if let Some(append) = ready.append {
            match &mut self.disk {
                Some(disk) => {
                    if let Some(installing) = disk.log.append(append)? {
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
        if let Some(links) = &mut self.links
            && let Some(members) = ready.members
        {
            links.follow(members);
            let text = self.replica.machine().tree().config_text();
            self.members.send_if_modified(|known| {
                let is_new = known != text;
                text.clone_into(known);
                is_new
            });
        }
        for image in ready.images {
            match &self.links {
                Some(links) => links.send_image(image),
                None => self.replica.step(Input::ImageSent { to: image.to, ok: false }),
            }
        }
        if let Some(audit) = &mut self.audit
            && !ready.audit.is_empty()
        {
            audit.write(&ready.audit).map_err(|error| ServerError::Audit {
                path: audit.path().to_path_buf(),
                reason: error.to_string(),
            })?;
        }
        if !ready.client.is_empty() || !ready.inspected.is_empty() {
            self.published.publish(self.replica.status());
        }
        for outgoing in ready.client {
            self.connections.push(outgoing, now_us);
        }
        for (token, report) in ready.inspected {
            inspections.answer(token, report);
        }
        Ok(())
    }

    /// Gives changed records to the state thread when it has room for them: once there are many or
    /// they have waited, and from then on until a checkpoint is complete.
    fn hand_over_changes(&mut self, waiting: u64, pace: &mut Pace) {
        let Some(disk) = &self.disk else { return };
        let checkpoints = &disk.checkpoints;
        let is_due =
            waiting >= CHANGES_WAITING_MAX || pace.completed.elapsed() >= disk.changes_wait;
        if !(is_due || pace.is_open) || !checkpoints.has_room() {
            return;
        }
        match self.replica.drain_changes(CHANGES_RECORDS_MAX) {
            Some(changes) => {
                pace.is_open = changes.mark.is_none();
                checkpoints.hand_over(changes);
            }
            None => pace.is_open = false,
        }
        if !pace.is_open {
            pace.completed = Instant::now();
        }
    }
}

/// When changed records are handed over.
struct Pace {
    /// When the last checkpoint was complete.
    completed: Instant,
    /// Whether one has been begun and lacks its mark.
    is_open: bool,
}

fn defect(message: String) -> ServerError {
    ServerError::Panic { thread: "lk-server", message }
}

/// The way to every connection, by number.
#[derive(Debug)]
pub struct Connections {
    lines: HashMap<ConnId, Arc<Line>>,
    figures: Arc<Figures>,
}

impl Connections {
    /// None yet.
    #[must_use]
    pub fn new(figures: Arc<Figures>) -> Self {
        Self { lines: HashMap::new(), figures }
    }

    fn open(&mut self, conn: ConnId, line: Arc<Line>) {
        self.lines.insert(conn, line);
    }

    fn close(&mut self, conn: ConnId) {
        self.lines.remove(&conn);
    }

    /// The driver writes what is short by itself: waking a task costs more than a write.
    fn push(&mut self, outgoing: Outgoing, now_us: u64) {
        let conn = outgoing.conn;
        // Absent: it was closed in this very batch.
        let Some(line) = self.lines.get(&conn) else { return };
        let is_last = outgoing.close;
        let write = |bytes: &[u8]| {
            if bytes.len() > DIRECT_BYTES_MAX {
                return 0;
            }
            // A socket that is full or broken is the task's to deal with.
            let written = line.writer.try_write(bytes).unwrap_or(0);
            self.figures.sent(written);
            if written == bytes.len() {
                self.figures.frames_sent(bytes);
            }
            written
        };
        match line.outbox.push(outgoing, now_us, write) {
            Pushed::Written => {}
            Pushed::Queued if !is_last => {}
            Pushed::Queued => self.close(conn),
            Pushed::CutOff => {
                self.figures.cut_slow();
                tracing::warn!(conn, "cut off: the client does not take what it is sent");
                self.close(conn);
            }
        }
    }
}

/// Who waits for which answer.
#[derive(Debug, Default)]
struct Inspections {
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Report>>,
}

impl Inspections {
    fn add(&mut self, answer: oneshot::Sender<Report>) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, answer);
        self.next
    }

    fn answer(&mut self, token: u64, report: Report) {
        if let Some(answer) = self.waiting.remove(&token) {
            // Whoever asked may have given up.
            let _ = answer.send(report);
        }
    }
}
