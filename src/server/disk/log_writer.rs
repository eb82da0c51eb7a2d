//! The driver's end of the log: what is to be made durable goes in, and a number comes back.
//!
//! *Owns* the way to the log's thread (`disk/log_thread.rs`). *Invariants*: batches are appended in the order
//! in which they came, by either thread; what is not waited for wakes no thread, and goes along with what is
//! next; what is of no urgency ends no rest; a received image that a batch installs stays until that is done.
//! Where no other client could have used the driver's thread meanwhile, that waits for the log's thread, which
//! wakes it directly: to hear of it through the queue and
//! the sockets' poll costs more. *Never* has the driver wait for longer than [`WAIT_MAX`], for a disk that
//! was slow lately, or call a disk itself: a call that hangs would stop every task of its thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::log_disk::LogDisk;
use super::log_thread::{self, Order, Progress};
use crate::replica::{Append, Fetch, Mark, Status, Urgency};
use crate::server::error::ServerError;
use crate::server::mailbox::Message;
use crate::storage::Images;

/// An image that is about to be installed by the log thread: for `Checkpoints::installed`.
#[derive(Debug)]
#[must_use = "the state thread has to know of it"]
pub(crate) struct Installing {
    /// Which one.
    pub mark: Mark,
    done: Receiver<()>,
}

impl Installing {
    /// Waits until it is installed. False: the server ends before.
    pub(crate) fn wait(&self) -> bool {
        self.done.recv().is_ok()
    }
}

/// The driver's end of the log thread. Dropping it waits until everything is durable.
#[derive(Debug)]
pub(crate) struct LogWriter {
    /// Not bounded itself: it never holds more than the requests in flight, which are.
    orders: Sender<Order>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
    images: Images,
    /// The last number that the thread was given, and the last that the driver was told.
    ordered: u64,
    told: u64,
    /// What is not waited for: it goes along with what is next.
    kept: Option<Append>,
    trust: Trust,
    /// Of the ensemble, as the thread knows it.
    version: u8,
    /// The state has had transactions at that version.
    is_used: bool,
}

/// Whether the disk is fast enough for the driver to wait for it.
#[derive(Debug, Default)]
struct Trust {
    /// Batches that go to the thread before the driver tries again.
    withdrawn: u32,
}

impl Trust {
    fn is_given(&mut self) -> bool {
        self.withdrawn = self.withdrawn.saturating_sub(1);
        self.withdrawn == 0
    }

    fn note(&mut self, took: Duration) {
        if took > WAIT_MAX {
            self.withdrawn = WITHDRAWN_BATCHES;
        }
    }
}

/// Lets the state thread cut the log.
#[derive(Clone, Debug)]
pub(crate) struct LogCutter(Sender<Order>);

impl LogCutter {
    /// Entries up to `index` are covered by images.
    pub(crate) fn cut(&self, index: u64) {
        // Fails when the server is ending: the next one will cut.
        let _ = self.0.send(Order::Cut(index));
    }
}

impl LogWriter {
    /// Starts the thread. `messages` is the driver's queue.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(disk: LogDisk, messages: mpsc::Sender<Message>) -> std::io::Result<Self> {
        // Its receiver sleeps at once; one that spins first costs the others of a small machine.
        let (sender, orders) = channel();
        let progress = Arc::new(Progress::default());
        let (images, version) = (disk.images().clone(), disk.version());
        let thread = log_thread::start(orders, disk, Arc::clone(&progress), messages)?;
        Ok(Self {
            orders: sender,
            progress,
            thread: Some(thread),
            images,
            ordered: 0,
            told: 0,
            kept: None,
            trust: Trust::default(),
            version,
            is_used: false,
        })
    }

    /// For the state thread.
    #[must_use]
    pub(crate) fn cutter(&self) -> LogCutter {
        LogCutter(self.orders.clone())
    }

    /// Takes a batch. Waits for the disk only if `may_wait`, and if that was fast lately. If the batch
    /// installs an image, the state thread must be told.
    ///
    /// # Errors
    /// The log cannot be written, or the thread has ended.
    pub(crate) fn append(
        &mut self,
        mut append: Append,
        may_wait: bool,
    ) -> Result<Option<Installing>, ServerError> {
        if let Some(kept) = self.kept.take() {
            append.hard_state = append.hard_state.or(kept.hard_state);
        }
        if append.entries.is_empty() && append.install.is_none() && append.urgency == Urgency::None
        {
            self.kept = Some(append);
            return Ok(None);
        }
        // A thread that is behind would be done with something else first.
        let is_idle = self.progress.persisted.load(Ordering::Acquire) >= self.ordered;
        self.ordered = append.number;
        let Some(mark) = append.install.clone() else {
            let waits = may_wait && is_idle && self.trust.is_given();
            if waits {
                self.progress.wait_begins();
            }
            self.order(Order::Append(append, None, Instant::now()))?;
            if waits {
                self.wait();
            }
            return Ok(None);
        };
        self.images.hold_received(mark.index);
        let (sender, done) = channel();
        self.order(Order::Append(append, Some(sender), Instant::now()))?;
        Ok(Some(Installing { mark, done }))
    }

    /// Waits until what was ordered is durable, but no longer than [`WAIT_MAX`].
    fn wait(&mut self) {
        let start = Instant::now();
        while self.progress.persisted.load(Ordering::Acquire) < self.ordered {
            let left = WAIT_MAX.saturating_sub(start.elapsed());
            if left.is_zero() || self.progress.failure.get().is_some() {
                break;
            }
            std::thread::park_timeout(left);
        }
        self.progress.wait_ends();
        self.trust.note(start.elapsed());
    }

    /// Asks for entries: `Input::Fetched` answers. Never waits.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn read(&mut self, fetch: Fetch) -> Result<(), ServerError> {
        self.order(Order::Read(fetch))
    }

    /// The ensemble is at this version: what is written behind this has its formats.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn follow_version(&mut self, status: &Status) -> Result<(), ServerError> {
        let version = status.ensemble_version;
        if version <= self.version {
            self.is_used |= status.zxid > 0;
            return Ok(());
        }
        self.version = version;
        // A new ensemble begins with its version: nothing was upgraded.
        if self.is_used {
            tracing::info!(
                version,
                "the upgrade is finished: files are written for this version of the ensemble, which earlier releases \
                 do not read"
            );
        }
        self.order(Order::Version(version))
    }

    fn order(&self, order: Order) -> Result<(), ServerError> {
        let unknown = || ServerError::Log("its thread has ended".to_string());
        let is_urgent = order.is_urgent();
        let sent = self.orders.send(order);
        if is_urgent {
            self.hurry();
        }
        sent.map_err(|_| self.progress.failure.get().cloned().unwrap_or_else(unknown))
    }

    /// Ends the thread's rest, if it takes one.
    fn hurry(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// The highest number that has become durable since the last call.
    ///
    /// # Errors
    /// The log cannot be written any more.
    pub(crate) fn persisted(&mut self) -> Result<Option<u64>, ServerError> {
        if let Some(failure) = self.progress.failure.get() {
            return Err(failure.clone());
        }
        let mut number = self.progress.persisted.load(Ordering::Acquire);
        if let Some(kept) = &self.kept
            && number == self.ordered
        {
            // What there was to make durable before it is.
            number = kept.number;
        }
        let is_news = number > self.told;
        self.told = number;
        Ok(is_news.then_some(number))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // These fail if the thread has ended already.
        if let Some(kept) = self.kept.take() {
            let _ = self.orders.send(Order::Append(kept, None, Instant::now()));
        }
        let _ = self.orders.send(Order::End);
        self.hurry();
        if let Some(thread) = self.thread.take() {
            // A panic was recorded.
            let _ = thread.join();
        }
    }
}

/// The driver waits for no disk that lately took longer than this: everybody waits for the driver.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// How many batches that concerns.
const WITHDRAWN_BATCHES: u32 = 1000;

#[cfg(test)]
pub(in crate::server) mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::replica::{Entry, EntryKind, HardState};
    use crate::server::metrics::Figures;
    use crate::storage::{Fs, Log, LogOptions, OsFs};
    use testkit::hanging::HangingFs;

    /// After this long a thread that says nothing will say nothing.
    pub(in crate::server) const PATIENCE: Duration = Duration::from_secs(30);

    pub(in crate::server) fn open(dir: &Path) -> (Log, Images) {
        open_on(Arc::new(OsFs), dir)
    }

    fn open_on(files: Arc<dyn Fs>, dir: &Path) -> (Log, Images) {
        let options = LogOptions { cluster_id: 1, node_id: 1, segment_bytes: 512, ensemble: true };
        if !Log::exists(&OsFs, dir).unwrap() {
            Log::create(&OsFs, dir, &options).unwrap();
        }
        let (mut log, _) = Log::open(Arc::clone(&files), dir, options).unwrap();
        log.begin().unwrap();
        (log, Images::new(files, dir, 1))
    }

    /// A writer on `dir`, and a driver's queue with room for `room` messages.
    pub(in crate::server) fn start(
        dir: &Path,
        room: usize,
    ) -> (LogWriter, mpsc::Receiver<Message>) {
        start_on(Arc::new(OsFs), dir, room)
    }

    fn start_on(
        files: Arc<dyn Fs>,
        dir: &Path,
        room: usize,
    ) -> (LogWriter, mpsc::Receiver<Message>) {
        let (sender, messages) = mpsc::channel(room);
        let (log, images) = open_on(files, dir);
        let disk = LogDisk::new(log, images, Arc::<Figures>::default(), Duration::from_secs(60));
        (LogWriter::start(disk, sender).unwrap(), messages)
    }

    pub(in crate::server) fn batch(number: u64, first: u64, count: u64) -> Append {
        let data = bytes::Bytes::from(vec![7; 50]);
        let entries = (first..first + count)
            .map(|index| Entry { term: 1, index, kind: EntryKind::Normal, data: data.clone() })
            .collect();
        let hard_state = Some(HardState { term: 1, vote: 1, commit: first - 1 });
        Append { number, install: None, entries, hard_state, urgency: Urgency::High }
    }

    pub(in crate::server) fn durable(writer: &mut LogWriter, number: u64) {
        let start = Instant::now();
        while writer.persisted().unwrap() != Some(number) {
            assert!(start.elapsed() < PATIENCE, "{number} is durable");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_batch_that_is_waited_for_is_durable_at_once_and_wakes_no_task() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 64);
        // The machine may be busy with other things: once is enough.
        let begun = Instant::now();
        let waited = (1..).take_while(|_| begun.elapsed() < PATIENCE).any(|number| {
            writer.trust = Trust::default();
            while messages.try_recv().is_ok() {}
            assert!(writer.append(batch(number, number, 1), true).unwrap().is_none());
            let is_durable = writer.persisted().unwrap() == Some(number);
            if !is_durable {
                durable(&mut writer, number);
            }
            is_durable && messages.try_recv().is_err()
        });
        assert!(waited);
    }

    #[test]
    fn a_disk_that_hangs_keeps_the_driver_for_no_longer_than_a_slow_one() {
        let dir = tempfile::tempdir().unwrap();
        let files = HangingFs::default();
        let (mut writer, mut messages) = start_on(Arc::new(files.clone()), dir.path(), 64);
        files.hang(true);
        assert!(writer.append(batch(1, 1, 1), true).unwrap().is_none());
        // It has come back, or this test would never end; and does not wait for that disk again.
        assert_eq!(writer.persisted().unwrap(), None);
        assert!(!writer.trust.is_given());
        files.hang(false);
        durable(&mut writer, 1);
        assert!(matches!(messages.blocking_recv(), Some(Message::Wake)), "the driver is told");
    }

    #[test]
    fn an_image_that_is_to_be_installed_stays_while_the_logs_disk_hangs_and_newer_ones_are_received()
     {
        let dir = tempfile::tempdir().unwrap();
        let files = HangingFs::default();
        let (log, _) = open_on(Arc::new(files.clone()), dir.path());
        let images = Images::new(Arc::new(OsFs), dir.path(), 1);
        let disk =
            LogDisk::new(log, images.clone(), Arc::<Figures>::default(), Duration::from_secs(60));
        let (sender, _messages) = mpsc::channel(64);
        let mut writer = LogWriter::start(disk, sender).unwrap();
        let receive = |index| {
            let mark = Mark { index, term: 1, ..Mark::default() };
            images.receive(&mark).unwrap().finish().unwrap();
            mark
        };
        files.hang(true);
        assert!(writer.append(batch(1, 1, 1), false).unwrap().is_none());
        let install = Append { install: Some(receive(500)), ..batch(2, 501, 0) };
        let installing = writer.append(install, false).unwrap().expect("it installs something");
        (501..520).for_each(|index| {
            receive(index);
        });
        files.hang(false);
        assert!(installing.wait());
        durable(&mut writer, 2);
        assert_eq!(images.list().unwrap(), [500]);
    }

    #[test]
    fn a_batch_that_is_not_waited_for_counts_at_once_and_goes_along_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let files = HangingFs::default();
        let (mut writer, mut messages) = start_on(Arc::new(files.clone()), dir.path(), 64);
        let commit = |number, commit| Append {
            hard_state: Some(HardState { term: 1, vote: 1, commit }),
            entries: Vec::new(),
            urgency: Urgency::None,
            ..batch(number, 1, 0)
        };
        files.hang(true);
        assert!(writer.append(batch(1, 1, 4), false).unwrap().is_none());
        assert!(writer.append(commit(2, 1), false).unwrap().is_none());
        assert_eq!(writer.persisted().unwrap(), None, "what is before it is not durable");
        files.hang(false);
        durable(&mut writer, 2);
        assert!(writer.append(commit(3, 4), false).unwrap().is_none());
        assert_eq!(writer.persisted().unwrap(), Some(3));
        let unrelated = Append { hard_state: None, ..batch(4, 5, 1) };
        assert!(writer.append(unrelated, false).unwrap().is_none());
        durable(&mut writer, 4);
        assert!(matches!(messages.try_recv(), Ok(Message::Wake)));
        assert!(writer.append(commit(5, 5), false).unwrap().is_none());
        drop(writer);
        let options = LogOptions { cluster_id: 1, node_id: 1, segment_bytes: 512, ensemble: true };
        let (_, recovery) = Log::open(Arc::new(OsFs), dir.path(), options).unwrap();
        assert_eq!(recovery.hard_state.commit, 5, "a clean stop loses nothing of that");
    }

    #[test]
    fn a_slow_disk_is_not_waited_for_again_soon() {
        let mut trust = Trust::default();
        assert!(trust.is_given());
        trust.note(WAIT_MAX);
        assert!(trust.is_given());
        trust.note(WAIT_MAX + Duration::from_micros(1));
        let first = (1..).find(|_| trust.is_given());
        assert_eq!(first, Some(WITHDRAWN_BATCHES));
    }
}
