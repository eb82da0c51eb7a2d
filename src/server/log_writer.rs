//! The thread that makes entries durable: one append and one fsync for all that is waiting.
//!
//! *Owns* the way to the log. *Invariants*: what is waiting is appended as one batch, in order, images that
//! are to be installed included; the driver learns of durability by a number and a wake, neither of
//! which can wait; what nobody waits for wakes nobody, and goes along with what is next. Where nobody
//! else could have used the driver's thread meanwhile, that appends by itself: to hand something to
//! another thread and to hear of it again costs as much as a fast disk does. *Never* tries an fsync again:
//! the first error ends the server. *Never* waits for the driver: an answer that its queue has no room
//! for is kept.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::driver::Message;
use super::error::{ServerError, panic_message};
use super::log_disk::LogDisk;
use crate::replica::{Append, Fetch, Input, Mark};
use crate::storage::InstallError;

/// What the thread is asked for.
#[derive(Debug)]
enum Order {
    /// To be made durable; then whoever waits for an image that it installs is told.
    Append(Append, Option<Sender<()>>),
    /// Entries to be read.
    Read(Fetch),
    /// Entries up to this index are covered by images.
    Cut(u64),
    /// The next segment is due.
    Prepare,
    /// Nothing comes behind this.
    End,
}

/// An image that is about to be installed by the log thread: for `Checkpoints::installed`.
#[derive(Debug)]
#[must_use = "the state thread has to know of it"]
pub struct Installing {
    /// Which one.
    pub mark: Mark,
    done: Receiver<()>,
}

impl Installing {
    /// Waits until it is installed. False: the server ends before.
    pub fn wait(&self) -> bool {
        self.done.recv().is_ok()
    }
}

/// The driver's end of the log thread. Dropping it waits until everything is durable.
#[derive(Debug)]
pub struct LogWriter {
    /// Not bounded itself: it never holds more than the requests in flight, which are.
    orders: Sender<Order>,
    progress: Arc<Progress>,
    disk: Arc<Mutex<LogDisk>>,
    thread: Option<JoinHandle<()>>,
    /// The last number that the thread was given, and the last that the driver was told.
    ordered: u64,
    told: u64,
    /// What nobody waits for: it goes along with what is next.
    kept: Option<Append>,
    trust: Trust,
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
pub struct LogCutter(Sender<Order>);

impl LogCutter {
    /// Entries up to `index` are covered by images.
    pub fn cut(&self, index: u64) {
        // Fails when the server is ending: the next one will cut.
        let _ = self.0.send(Order::Cut(index));
    }
}

/// What the thread tells the driver.
#[derive(Debug, Default)]
struct Progress {
    persisted: AtomicU64,
    failure: OnceLock<ServerError>,
}

impl LogWriter {
    /// Starts the thread. `messages` is the driver's queue.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(disk: LogDisk, messages: mpsc::Sender<Message>) -> std::io::Result<Self> {
        // Its receiver sleeps at once; one that spins first costs the others of a small machine.
        let (sender, orders) = channel();
        let progress = Arc::new(Progress::default());
        let disk = Arc::new(Mutex::new(disk));
        let mut writer = Writer {
            disk: Arc::clone(&disk),
            progress: Arc::clone(&progress),
            messages,
            answers: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name(THREAD.to_string()).spawn(move || {
            let run = catch_unwind(AssertUnwindSafe(|| writer.run(&orders)));
            let failure = match run {
                Ok(Ok(())) => return,
                Ok(Err(error)) => ServerError::Log(error.to_string()),
                Err(payload) => {
                    ServerError::Panic { thread: THREAD, message: panic_message(&*payload) }
                }
            };
            // The first failure is the only one: the thread ends here.
            let _ = writer.progress.failure.set(failure);
            writer.wake_driver();
        })?;
        Ok(Self {
            orders: sender,
            progress,
            disk,
            thread: Some(thread),
            ordered: 0,
            told: 0,
            kept: None,
            trust: Trust::default(),
        })
    }

    /// For the state thread.
    #[must_use]
    pub fn cutter(&self) -> LogCutter {
        LogCutter(self.orders.clone())
    }

    /// Takes a batch. Waits for the disk only if `may_wait`, and if that was fast lately. If the batch
    /// installs an image, the state thread must be told.
    ///
    /// # Errors
    /// The log cannot be written, or the thread has ended.
    pub fn append(
        &mut self,
        mut append: Append,
        may_wait: bool,
    ) -> Result<Option<Installing>, ServerError> {
        if let Some(kept) = self.kept.take() {
            append.hard_state = append.hard_state.or(kept.hard_state);
        }
        if append.entries.is_empty() && append.install.is_none() && !append.must_sync {
            self.kept = Some(append);
            return Ok(None);
        }
        let append = match may_wait && append.install.is_none() && self.trust.is_given() {
            true => match self.append_now(append)? {
                Some(append) => append,
                None => return Ok(None),
            },
            false => append,
        };
        self.ordered = append.number;
        let Some(mark) = append.install.clone() else {
            return self.order(Order::Append(append, None)).map(|()| None);
        };
        let (sender, done) = channel();
        self.order(Order::Append(append, Some(sender)))?;
        Ok(Some(Installing { mark, done }))
    }

    /// Makes a batch durable, unless the thread has something to do: then it is given back.
    fn append_now(&mut self, append: Append) -> Result<Option<Append>, ServerError> {
        if self.progress.persisted.load(Ordering::Acquire) < self.ordered {
            return Ok(Some(append));
        }
        // What it may have to read or to cut comes to the same before and after.
        let Ok(mut disk) = self.disk.try_lock() else { return Ok(Some(append)) };
        let number = append.number;
        let took = disk.append(&[append]).map_err(|error| ServerError::Log(error.to_string()))?;
        let wants_segment = disk.log.wants_segment();
        drop(disk);
        self.trust.note(took);
        self.ordered = number;
        self.progress.persisted.store(number, Ordering::Release);
        if wants_segment {
            self.order(Order::Prepare)?;
        }
        Ok(None)
    }

    /// Asks for entries: `Input::Fetched` answers. Never waits.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn read(&mut self, fetch: Fetch) -> Result<(), ServerError> {
        self.order(Order::Read(fetch))
    }

    fn order(&self, order: Order) -> Result<(), ServerError> {
        let unknown = || ServerError::Log("its thread has ended".to_string());
        let sent = self.orders.send(order);
        sent.map_err(|_| self.progress.failure.get().cloned().unwrap_or_else(unknown))
    }

    /// The highest number that has become durable since the last call.
    ///
    /// # Errors
    /// The log cannot be written any more.
    pub fn persisted(&mut self) -> Result<Option<u64>, ServerError> {
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
            let _ = self.orders.send(Order::Append(kept, None));
        }
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            // Its panics were caught and told.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Writer {
    disk: Arc<Mutex<LogDisk>>,
    progress: Arc<Progress>,
    messages: mpsc::Sender<Message>,
    /// What the driver's queue had no room for yet. Bounded by the questions, of which the replica
    /// has one at a time for each server that is behind.
    answers: VecDeque<Input>,
}

/// The orders of one turn.
#[derive(Default)]
struct Turn {
    appends: Vec<Append>,
    installing: Vec<Sender<()>>,
    reads: Vec<Fetch>,
    cut: Option<u64>,
    is_ending: bool,
}

impl Turn {
    fn add(&mut self, order: Order) {
        match order {
            Order::Append(append, installing) => {
                self.appends.push(append);
                self.installing.extend(installing);
            }
            Order::Read(fetch) => self.reads.push(fetch),
            Order::Cut(index) => self.cut = Some(self.cut.map_or(index, |cut| cut.max(index))),
            Order::Prepare => {}
            Order::End => self.is_ending = true,
        }
    }
}

impl Writer {
    fn run(&mut self, orders: &Receiver<Order>) -> Result<(), InstallError> {
        let mut is_ending = false;
        let mut came = None;
        while !is_ending {
            // The other ends are only dropped behind an end.
            let Some(first) = came.take().or_else(|| self.next(orders)) else { break };
            let mut turn = Turn::default();
            first.into_iter().chain(orders.try_iter()).for_each(|order| turn.add(order));
            is_ending = turn.is_ending;
            let shared = Arc::clone(&self.disk);
            let Ok(mut disk) = shared.lock() else { return Ok(()) };
            self.act(&mut disk, turn)?;
            self.give_answers();
            came = orders.try_recv().ok().map(Some);
            if came.is_none() {
                disk.log.prepare();
            }
        }
        // If the driver has panicked half-way through an append, nobody knows where to go on.
        let Ok(mut disk) = self.disk.lock() else { return Ok(()) };
        Ok(disk.log.close()?)
    }

    /// The next order; nothing if an answer has waited long enough for another look at the queue.
    fn next(&self, orders: &Receiver<Order>) -> Option<Option<Order>> {
        if self.answers.is_empty() {
            return orders.recv().ok().map(Some);
        }
        match orders.recv_timeout(ANSWER_RETRY) {
            Ok(order) => Some(Some(order)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Appends first, because somebody waits for them; what is read and cut comes to the same.
    fn act(&mut self, disk: &mut LogDisk, turn: Turn) -> Result<(), InstallError> {
        let base = disk.log.base();
        if let Some(last) = turn.appends.last().map(|append| append.number) {
            disk.append(&turn.appends)?;
            for installing in turn.installing {
                // The state thread may have ended with the server.
                let _ = installing.send(());
            }
            self.progress.persisted.store(last, Ordering::Release);
            self.wake_driver();
        }
        for fetch in turn.reads {
            let entries = disk.read(&fetch);
            self.answers.push_back(Input::Fetched { fetch, entries });
        }
        if let Some(index) = turn.cut {
            disk.cut(index)?;
        }
        let now = disk.log.base();
        if now != base {
            self.answers.push_back(Input::LogCut { before: (now.index, now.term) });
        }
        Ok(())
    }

    /// The number is stored before this is called: if the queue is full, the driver has still to
    /// take a message, and looks at the number after it.
    fn wake_driver(&self) {
        let _ = self.messages.try_send(Message::Wake);
    }

    fn give_answers(&mut self) {
        while let Some(answer) = self.answers.pop_front() {
            match self.messages.try_send(Message::Input(answer)) {
                Ok(()) => {}
                Err(TrySendError::Full(Message::Input(answer))) => {
                    self.answers.push_front(answer);
                    return;
                }
                // The server is ending. (Nothing but an answer was sent, so nothing else comes
                // back.)
                Err(TrySendError::Full(_) | TrySendError::Closed(_)) => self.answers.clear(),
            }
        }
    }
}

/// The driver waits for no disk that lately took longer than this: everybody waits for the driver.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// How many batches that concerns.
const WITHDRAWN_BATCHES: u32 = 1000;
/// Time between two tries to give an answer to a driver whose queue is full.
const ANSWER_RETRY: Duration = Duration::from_millis(1);
const THREAD: &str = "lk-log";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::replica::{Entry, EntryKind, HardState};
    use crate::server::figures::Figures;
    use crate::storage::{Images, Log, LogOptions, OsFs};

    /// After this long a thread that says nothing will say nothing.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn open(dir: &Path) -> (Log, Images) {
        let options = LogOptions { cluster_id: 1, node_id: 1, segment_bytes: 512, ensemble: true };
        if !Log::exists(&OsFs, dir).unwrap() {
            Log::create(&OsFs, dir, &options).unwrap();
        }
        let (mut log, _) = Log::open(Arc::new(OsFs), dir, options).unwrap();
        log.begin().unwrap();
        (log, Images::new(Arc::new(OsFs), dir, 1))
    }

    /// A writer on `dir`, and a driver's queue with room for `room` messages.
    fn start(dir: &Path, room: usize) -> (LogWriter, mpsc::Receiver<Message>) {
        let (sender, messages) = mpsc::channel(room);
        let (log, images) = open(dir);
        let disk = LogDisk::new(log, images, Arc::<Figures>::default(), Duration::from_secs(60));
        (LogWriter::start(disk, sender).unwrap(), messages)
    }

    fn batch(number: u64, first: u64, count: u64) -> Append {
        let data = bytes::Bytes::from(vec![7; 50]);
        let entries = (first..first + count)
            .map(|index| Entry { term: 1, index, kind: EntryKind::Normal, data: data.clone() })
            .collect();
        let hard_state = Some(HardState { term: 1, vote: 1, commit: first - 1 });
        Append { number, install: None, entries, hard_state, must_sync: true }
    }

    fn fetch(from: u64, to: u64, bytes_max: usize) -> Fetch {
        Fetch { from, to, bytes_max, token: from }
    }

    fn durable(writer: &mut LogWriter, number: u64) {
        let start = Instant::now();
        while writer.persisted().unwrap() != Some(number) {
            assert!(start.elapsed() < PATIENCE, "{number} is durable");
            std::thread::yield_now();
        }
    }

    /// The next answer: what only wakes the driver is passed over.
    fn answer(messages: &mut mpsc::Receiver<Message>) -> Input {
        let start = Instant::now();
        loop {
            match messages.try_recv() {
                Ok(Message::Input(input)) => return input,
                Ok(Message::Wake) => {}
                Ok(other) => panic!("{other:?}"),
                Err(_) => assert!(start.elapsed() < PATIENCE, "the thread answers"),
            }
            std::thread::yield_now();
        }
    }

    fn fetched(messages: &mut mpsc::Receiver<Message>) -> (u64, Vec<u64>) {
        match answer(messages) {
            Input::Fetched { fetch, entries } => {
                (fetch.token, entries.iter().map(|entry| entry.index).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_that_the_log_holds_can_be_fetched_and_others_come_back_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 64);
        for i in 0..10 {
            assert!(writer.append(batch(i + 1, i * 4 + 1, 4), false).unwrap().is_none());
            // One by one, so that the log has several segments.
            durable(&mut writer, i + 1);
        }
        writer.read(fetch(3, 6, usize::MAX)).unwrap();
        writer.read(fetch(5, 40, 120)).unwrap();
        writer.read(fetch(38, 99, usize::MAX)).unwrap();
        writer.read(fetch(41, 99, usize::MAX)).unwrap();
        writer.cutter().cut(20);
        assert_eq!(fetched(&mut messages), (3, vec![3, 4, 5, 6]));
        assert_eq!(fetched(&mut messages), (5, vec![5, 6]));
        assert_eq!(fetched(&mut messages), (38, vec![38, 39, 40]));
        assert_eq!(fetched(&mut messages), (41, vec![]));
        let Input::LogCut { before: (index, 1) } = answer(&mut messages) else {
            panic!("the driver is told where the log begins now")
        };
        assert!((1..=20).contains(&index), "{index}");
        writer.read(fetch(index, index + 1, usize::MAX)).unwrap();
        writer.read(fetch(index + 1, index + 1, usize::MAX)).unwrap();
        assert_eq!(fetched(&mut messages), (index, vec![]));
        assert_eq!(fetched(&mut messages), (index + 1, vec![index + 1]));
    }

    #[test]
    fn a_full_queue_keeps_neither_batches_nor_answers_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 1);
        for i in 0..20 {
            assert!(writer.append(batch(i + 1, i + 1, 1), false).unwrap().is_none());
            writer.read(fetch(i + 1, i + 1, usize::MAX)).unwrap();
        }
        // Nobody takes a message, and yet everything becomes durable.
        durable(&mut writer, 20);
        for i in 1..=20 {
            assert_eq!(fetched(&mut messages), (i, vec![i]));
        }
    }

    #[test]
    fn a_batch_that_may_be_waited_for_is_durable_at_once_unless_the_thread_is_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 64);
        assert_eq!(writer.append_now(batch(1, 1, 1)).unwrap(), None);
        assert_eq!(writer.persisted().unwrap(), Some(1));
        assert!(messages.try_recv().is_err(), "nobody had to be woken");
        let disk = Arc::clone(&writer.disk);
        let busy = disk.lock().unwrap();
        assert_eq!(writer.append_now(batch(2, 2, 1)).unwrap(), Some(batch(2, 2, 1)));
        assert!(writer.append(batch(2, 2, 1), true).unwrap().is_none());
        assert_eq!(writer.append_now(batch(3, 3, 1)).unwrap(), Some(batch(3, 3, 1)));
        drop(busy);
        // In order, whoever does it.
        assert!(writer.append(batch(3, 3, 40), true).unwrap().is_none());
        durable(&mut writer, 3);
        drop(writer);
        let (log, _) = open(dir.path());
        assert_eq!(log.last().index, 42);
    }

    #[test]
    fn a_batch_that_nobody_waits_for_counts_at_once_and_goes_along_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 64);
        let commit = |number, commit| Append {
            hard_state: Some(HardState { term: 1, vote: 1, commit }),
            entries: Vec::new(),
            must_sync: false,
            ..batch(number, 1, 0)
        };
        let disk = Arc::clone(&writer.disk);
        let busy = disk.lock().unwrap();
        assert!(writer.append(batch(1, 1, 4), false).unwrap().is_none());
        assert!(writer.append(commit(2, 1), false).unwrap().is_none());
        assert_eq!(writer.persisted().unwrap(), None, "what is before it is not durable");
        drop(busy);
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

    #[test]
    fn an_image_is_installed_in_its_turn_and_then_whoever_waits_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 64);
        let mark = Mark { index: 500, term: 3, ..Mark::default() };
        open_images(dir.path()).receive(&mark).unwrap().finish().unwrap();
        assert!(writer.append(batch(1, 1, 4), false).unwrap().is_none());
        let install = Append { install: Some(mark.clone()), ..batch(2, 501, 2) };
        let installing = writer.append(install, true).unwrap().expect("it installs something");
        assert!(writer.append(batch(3, 503, 2), false).unwrap().is_none());
        assert!(installing.wait());
        assert_eq!(open_images(dir.path()).list().unwrap(), [500]);
        let Input::LogCut { before: (500, 3) } = answer(&mut messages) else {
            panic!("the driver is told where the log begins now")
        };
        drop(writer);
        let (log, _) = open(dir.path());
        assert_eq!((log.base().index, log.last().index), (500, 504));
    }

    #[test]
    fn an_image_that_cannot_be_installed_ends_the_server_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, _messages) = start(dir.path(), 64);
        let mark = Mark { index: 500, term: 3, ..Mark::default() };
        let install = Append { install: Some(mark), ..batch(1, 501, 2) };
        let installing = writer.append(install, true).unwrap().expect("it installs something");
        assert!(!installing.wait());
        let error = loop {
            match writer.persisted() {
                Ok(number) => assert_eq!(number, None),
                Err(error) => break error.to_string(),
            }
            std::thread::yield_now();
        };
        assert!(error.contains("cannot install the image"), "{error}");
    }

    fn open_images(dir: &Path) -> Images {
        Images::new(Arc::new(OsFs), dir, 1)
    }
}
