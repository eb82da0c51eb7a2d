//! The low-priority thread that writes the tree's copy and images, behind everything else.
//!
//! *Owns* the checkpointer. *Invariants*: the driver never waits for it: it asks for room before it
//! hands anything over. A copy at fault never ends the server: it is asked for again from the start
//! (`Input::RecordsLost`). *Never* writes to the log: it only says up to where that may be cut.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::mpsc;

use super::log_writer::{Installing, LogCutter};
use crate::admin::{LastImage, Quantity};
use crate::replica::{Changes, Input};
use crate::server::clock::{self, Periodic};
use crate::server::cpu_policy::{self, BackgroundBudget};
use crate::server::error::ServerError;
use crate::server::limits::CHANGES_QUEUE_MAX;
use crate::server::mailbox::{Message, WantedImage};
use crate::server::metrics::Figures;
use crate::storage::{
    Checkpointer, ImageTally, Images, LogLostEnd, LogSinceImage, Outcome, WorkBudget,
};
use crate::supervision;

/// What the thread is given, in this order.
#[derive(Debug)]
enum Task {
    /// Changed records.
    Changes(Changes),
    /// An image that the log thread is to install before anything else is done.
    Installed(Installing),
    /// The image at this index turned out damaged.
    Damaged(u64),
    /// Another server needs an image of this index or a later one.
    Wanted(u64),
    /// A backup needs an image.
    Backup(WantedImage),
}

/// The driver's end of the state thread. Dropping it waits until the thread has ended.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Changes are handed over while there are few; installed images are rare.
    tasks: Option<Sender<Task>>,
    /// The thread asks it.
    budget: BackgroundBudget,
    since_image: Arc<LogSinceImage>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts the thread. `messages` is the driver's queue, to ask for all records again.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        checkpointer: Checkpointer,
        data_dir: PathBuf,
        cutter: LogCutter,
        messages: mpsc::Sender<Message>,
        figures: Arc<Figures>,
        budget: BackgroundBudget,
    ) -> std::io::Result<Self> {
        let (sender, tasks) = unbounded();
        let since_image = Arc::clone(checkpointer.since_image());
        let mut writer = Writer {
            images: checkpointer.image_files().clone(),
            checkpointer,
            budget: budget.clone(),
            data_dir,
            cutter,
            messages,
            figures,
            told: None,
            backups: Vec::new(),
            failed: 0,
            measured: Periodic::default(),
            warned: Periodic::default(),
        };
        let thread = supervision::thread(supervision::Task::State, move || {
            cpu_policy::lower_priority();
            if let Err(lost_end) = writer.run(&tasks) {
                let failure = ServerError::Log(lost_end.to_string());
                // Fails if the server is ending anyway.
                let _ = writer.messages.blocking_send(Message::Failed(failure));
            }
        })?;
        Ok(Self { tasks: Some(sender), budget, since_image, thread: Some(thread) })
    }

    /// Whether [`Checkpoints::hand_over`] may be called.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.len() < CHANGES_QUEUE_MAX)
    }

    /// How late the next image is: from 1.0 on it is late.
    #[must_use]
    pub(crate) fn image_lateness(&self) -> f64 {
        self.since_image.lateness()
    }

    /// Queues changed records. Only when there is room: the driver is the only one who does.
    pub(crate) fn hand_over(&self, changes: Changes) {
        self.give(Task::Changes(changes));
    }

    /// An image of another server was given to the log thread: what is handed over from now on is
    /// of that state. The state thread waits until it is installed before it goes on.
    pub(crate) fn installed(&self, installing: Installing) {
        self.give(Task::Installed(installing));
    }

    /// The image at this index turned out damaged when it was read for another server.
    pub(crate) fn damaged(&self, index: u64) {
        self.give(Task::Damaged(index));
    }

    /// Another server needs an image of this index or a later one.
    pub(crate) fn wanted(&self, index: u64) {
        self.give(Task::Wanted(index));
    }

    /// A backup needs an image.
    pub(crate) fn backup(&self, wanted: WantedImage) {
        self.give(Task::Backup(wanted));
    }

    fn give(&self, task: Task) {
        let sender = self.tasks.as_ref().expect("taken only when dropped");
        if sender.send(task).is_err() {
            // The thread ends with the server only.
            tracing::debug!("changed records were lost: the state thread has ended");
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.tasks = None;
        // Somebody waits for it now.
        self.budget.end();
        if let Some(thread) = self.thread.take() {
            // A panic was recorded.
            let _ = thread.join();
        }
    }
}

struct Writer {
    checkpointer: Checkpointer,
    images: Images,
    budget: BackgroundBudget,
    data_dir: PathBuf,
    cutter: LogCutter,
    messages: mpsc::Sender<Message>,
    figures: Arc<Figures>,
    /// Index of the newest image that the replica was told of.
    told: Option<u64>,
    /// Who waits for an image.
    backups: Vec<WantedImage>,
    /// How many images had failed when those that wait were looked at last.
    failed: u64,
    measured: Periodic,
    /// When it was last said that an image is overdue.
    warned: Periodic,
}

impl Writer {
    fn run(&mut self, tasks: &Receiver<Task>) -> Result<(), LogLostEnd> {
        self.checkpointer.ask(self.budget.deferrable());
        self.tell_of_image();
        let found = self.checkpointer.begin()?;
        self.act_on(found);
        self.measure_directory();
        for task in tasks {
            supervision::panic_point();
            match task {
                Task::Changes(changes) => self.apply(changes)?,
                // Before that, the images that it replaces are all that a start could begin from.
                Task::Installed(installing) if installing.wait() => {
                    self.checkpointer.installed(&installing.mark);
                    self.tell_of_image();
                }
                // The log failed, and with it the server.
                Task::Installed(_) => return Ok(()),
                Task::Damaged(index) => {
                    self.write(self.budget.awaited().clone(), |it| it.damaged(index))
                }
                Task::Wanted(index) => {
                    self.write(self.budget.awaited().clone(), |it| it.wanted(index))
                }
                Task::Backup(wanted) => self.backups.push(wanted),
            }
            self.serve_backups();
            self.figures.disk().log_since_image_bytes = self.checkpointer.since_image().bytes();
            self.warn_if_overdue();
        }
        Ok(())
    }

    /// Does what may write an image out of turn; `budget`: by how much who waits for it hurries.
    fn write(&mut self, budget: WorkBudget, work: impl FnOnce(&mut Checkpointer) -> Outcome) {
        let images = self.checkpointer.images();
        let start = Instant::now();
        self.checkpointer.ask(&budget);
        let outcome = work(&mut self.checkpointer);
        self.checkpointer.ask(self.budget.deferrable());
        self.record(images, clock::micros_since(start));
        self.act_on(outcome);
    }

    /// Gives the newest image to the backups that it is new enough for, and sees to it that there will be one for the
    /// others.
    fn serve_backups(&mut self) {
        self.backups.retain(|wanted| !wanted.answer.is_closed());
        self.refuse_backups();
        if let Some(zxid) = self.backups.iter().map(|wanted| wanted.zxid).max() {
            self.write(self.budget.deferrable().clone(), |checkpointer| {
                checkpointer.wanted_at(zxid)
            });
        }
        let newest = self.checkpointer.newest().cloned();
        let has = |wanted: &WantedImage| newest.as_ref().is_some_and(|it| wanted.zxid <= it.zxid);
        let (served, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.backups).into_iter().partition(has);
        self.backups = waiting;
        self.refuse_backups();
        let Some(mark) = newest else { return };
        for WantedImage { answer, .. } in served {
            // No server waits for a backup: clients go before it.
            let image = self.images.asking(self.budget.deferrable()).open_beside_log(mark.index);
            // It fails if the backup has given up.
            let _ = answer.send(image.map_err(|error| error.to_string()));
        }
    }

    /// Tells those that wait if an image failed: one that is tried again at once would fail again, and take what room
    /// the log's disk has left.
    fn refuse_backups(&mut self) {
        let failed = self.checkpointer.images().failed;
        if std::mem::replace(&mut self.failed, failed) == failed {
            return;
        }
        for WantedImage { answer, .. } in self.backups.drain(..) {
            let words = "no image could be written: this server's log says why";
            // It fails if the backup has given up.
            let _ = answer.send(Err(words.to_owned()));
        }
    }

    fn apply(&mut self, changes: Changes) -> Result<(), LogLostEnd> {
        let is_complete = changes.mark.is_some();
        let images = self.checkpointer.images();
        let start = Instant::now();
        let outcome = self.checkpointer.apply(changes)?;
        let took_us = clock::micros_since(start);
        if is_complete {
            self.record(images, took_us);
            self.measure_directory();
        }
        self.act_on(outcome);
        Ok(())
    }

    /// Says which image can be sent to other servers now.
    fn tell_of_image(&mut self) {
        let Some(mark) = self.checkpointer.newest() else { return };
        if self.told == Some(mark.index) {
            return;
        }
        self.told = Some(mark.index);
        // Fails if the server is ending.
        let _ =
            self.messages.blocking_send(Message::Input(Input::ImageWritten { mark: mark.clone() }));
    }

    /// Counts what completing a checkpoint was: one, or an image besides, which takes most of the
    /// time then.
    fn record(&self, before: ImageTally, took_us: u64) {
        let now = self.checkpointer.images();
        self.figures.counts.image_errors.add(now.failed - before.failed);
        self.figures.counts.digest_mismatches.add(now.mismatched - before.mismatched);
        if now.written == before.written {
            return self.figures.measures.record(Quantity::Checkpoint, took_us);
        }
        self.figures.measures.record(Quantity::Image, took_us);
        self.figures.disk().last_image =
            now.last.map(|(index, zxid)| LastImage { index, zxid, wall_ms: clock::wall_ms() });
    }

    /// Says, now and then, that this thread falls behind: nothing else would until the disk is full.
    fn warn_if_overdue(&mut self) {
        if !self.checkpointer.is_image_overdue()
            || !self.warned.is_due(WARN_INTERVAL, Instant::now())
        {
            return;
        }
        let bytes = self.checkpointer.since_image().bytes();
        tracing::warn!(
            bytes,
            "so much log was written since the newest image, and none is written: checkpoints do \
             not complete, or images fail; the log is not cut, and the next start takes longer"
        );
    }

    fn act_on(&mut self, outcome: Outcome) {
        // Before the log is cut: a server that needs what is gone then is sent this image.
        self.tell_of_image();
        match outcome {
            Outcome::Continue => {}
            Outcome::CutLog(index) => self.cutter.cut(index),
            Outcome::RecordsLost => {
                // Fails if the server is ending: the next one will find out for itself.
                let _ = self.messages.blocking_send(Message::Input(Input::RecordsLost));
            }
        }
    }

    /// Publishes how much is on the disk, now and then.
    fn measure_directory(&mut self) {
        if !self.measured.is_due(MEASURE_INTERVAL, Instant::now()) {
            return;
        }
        let bytes = ["image", "state"].map(|part| bytes_in(&self.data_dir.join(part)));
        self.figures.disk().data_dir_bytes = bytes.iter().sum();
    }
}

/// Bytes of the files in `directory` and in the directories right below it. What cannot be read
/// counts as nothing: files come and go while this looks.
fn bytes_in(directory: &Path) -> u64 {
    let mut bytes = 0;
    let mut directories = vec![(directory.to_path_buf(), DEPTH_MAX)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() && depth > 1 => {
                    directories.push((entry.path(), depth - 1));
                }
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Directories below each other that are looked into: sled has one level.
const DEPTH_MAX: u32 = 2;
const WARN_INTERVAL: Duration = Duration::from_secs(60);
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::replica::{Append, Mark, Record, Urgency};
    use crate::server::cpu_policy::CpuPolicy;
    use crate::server::disk::log_disk::LogDisk;
    use crate::server::disk::log_writer::LogWriter;
    use crate::storage::{Images, Ingredients, Log, LogOptions, MemoryState, OsFs, Runs, Source};

    /// A state of one record.
    fn mark(index: u64) -> Mark {
        Mark { index, term: 1, records: 1, ..Mark::default() }
    }

    fn full_pass(index: u64) -> Changes {
        let record = Record { key: b"/key", value: Some(b"value") };
        let records = [record].into_iter().collect();
        Changes { begins_full_pass: true, records, mark: Some(mark(index)) }
    }

    fn install(index: u64) -> Append {
        Append {
            number: 1,
            install: Some(mark(index)),
            entries: Vec::new(),
            hard_state: None,
            urgency: Urgency::High,
        }
    }

    /// Both threads on `dir`; an image is written of every checkpoint.
    fn start(dir: &Path) -> (LogWriter, Checkpoints, mpsc::Receiver<Message>, Images) {
        let (sender, messages) = mpsc::channel(64);
        let options = LogOptions { cluster_id: 1, node_id: 1, segment_bytes: 512, ensemble: true };
        Log::create(&OsFs, dir, &options).unwrap();
        let (mut log, _) = Log::open(Arc::new(OsFs), dir, options).unwrap();
        log.begin().unwrap();
        let images = Images::new(Arc::new(OsFs), dir, 1);
        let checkpointer = Checkpointer::new(Ingredients {
            state: Runs::new(Box::new(MemoryState::default())),
            record_digest: |_, _| Ok(0),
            images: images.clone(),
            source: Source::Log,
            image: None,
            ensemble: true,
            log_last: 0,
            image_bytes: 0,
            written: Arc::new(AtomicU64::new(1 << 30)),
            written_at_image: 0,
            image_every_bytes: 1,
        });
        let disk = LogDisk::new(log, images.clone(), Arc::default(), Duration::from_secs(60));
        let log = LogWriter::start(disk, sender.clone()).unwrap();
        let (cutter, figures) = (log.cutter(), Arc::default());
        let budget = BackgroundBudget::new(CpuPolicy::Plain);
        let checkpoints =
            Checkpoints::start(checkpointer, dir.into(), cutter, sender, figures, budget);
        (log, checkpoints.unwrap(), messages, images)
    }

    /// Indexes of the images that the driver was told of.
    fn told(mut messages: mpsc::Receiver<Message>) -> Vec<u64> {
        let mut told = Vec::new();
        while let Some(message) = messages.blocking_recv() {
            if let Message::Input(Input::ImageWritten { mark }) = message {
                told.push(mark.index);
            }
        }
        told
    }

    #[test]
    fn the_driver_is_told_of_every_image_and_an_installed_one_replaces_the_older() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, checkpoints, messages, images) = start(dir.path());
        checkpoints.hand_over(full_pass(30));
        let mut received = images.receive(&mark(500)).unwrap();
        received.record(b"/key", b"value").unwrap();
        received.finish().unwrap();
        checkpoints.installed(log.append(install(500), false).unwrap().unwrap());
        drop(checkpoints);
        drop(log);
        assert_eq!(images.list().unwrap(), [500]);
        assert_eq!(told(messages), [30, 500]);
    }

    #[test]
    fn images_stay_when_the_one_that_replaces_them_cannot_be_installed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, checkpoints, messages, images) = start(dir.path());
        checkpoints.hand_over(full_pass(30));
        // It was never received.
        checkpoints.installed(log.append(install(500), false).unwrap().unwrap());
        checkpoints.hand_over(full_pass(501));
        drop(checkpoints);
        drop(log);
        assert_eq!(images.list().unwrap(), [30]);
        assert_eq!(told(messages), [30]);
    }
}
