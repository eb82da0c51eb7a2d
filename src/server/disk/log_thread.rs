//! The thread that makes entries durable: one append and one fsync for all that is waiting.
//!
//! *Owns* the log while the server runs.
//! *Invariants*: what is waiting is appended as one batch, in order, images that are to be installed
//! included; the driver learns of durability by a number and a wake, neither of which can wait; what is of
//! no urgency waits [`REST`] at most, and only if something was appended that lately. *Never*
//! tries an fsync again: the first error ends the server. *Never* waits for the driver: an answer that
//! its queue has no room for is kept.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::log_disk::LogDisk;
use crate::replica::{Append, Fetch, Input, Urgency};
use crate::server::error::ServerError;
use crate::server::mailbox::Message;
use crate::storage::InstallError;
use crate::supervision::{self, Task};

/// What the thread is asked for.
#[derive(Debug)]
pub(in crate::server) enum Order {
    /// To be made durable; then those who wait for an image that it installs are told. When it was ordered.
    Append(Append, Option<Sender<()>>, Instant),
    /// Entries to be read.
    Read(Fetch),
    /// Entries up to this index are covered by images.
    Cut(u64),
    /// The ensemble is at this version: what is written behind this has its formats.
    Version(u8),
    /// Nothing comes behind this.
    End,
}

impl Order {
    /// Whether it ends a rest.
    pub(in crate::server) fn is_urgent(&self) -> bool {
        match self {
            Self::Append(append, installing, _) => {
                append.urgency == Urgency::High || installing.is_some()
            }
            Self::Read(_) | Self::Cut(_) | Self::Version(_) => false,
            Self::End => true,
        }
    }
}

/// What the thread tells the driver.
#[derive(Debug, Default)]
pub(in crate::server) struct Progress {
    /// The last number that is durable.
    pub(in crate::server) persisted: AtomicU64,
    /// Why there will be no other.
    pub(in crate::server) failure: OnceLock<ServerError>,
    /// The driver's thread, while that waits for the next number, and is to be woken directly.
    waiting: Mutex<Option<Thread>>,
}

impl Progress {
    /// The calling thread is going to wait for what it orders next.
    pub(in crate::server) fn wait_begins(&self) {
        *self.waiting() = Some(std::thread::current());
    }

    /// It does no longer: it looks at the number after this, and is woken by a message from now on.
    pub(in crate::server) fn wait_ends(&self) {
        *self.waiting() = None;
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Thread>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. It ends behind [`Order::End`], or with a failure.
///
/// # Errors
/// The system gives no thread.
pub(in crate::server) fn start(
    orders: Receiver<Order>,
    disk: LogDisk,
    progress: Arc<Progress>,
    messages: mpsc::Sender<Message>,
) -> std::io::Result<JoinHandle<()>> {
    let mut writer =
        Writer { disk, progress, messages, answers: VecDeque::new(), cut: Cut::default() };
    supervision::thread(Task::Log, move || {
        if let Err(error) = writer.run(&orders) {
            // The first failure is the only one: the thread ends here.
            let _ = writer.progress.failure.set(ServerError::Log(error.to_string()));
            writer.wake_driver();
        }
    })
}

/// The thread's side.
struct Writer {
    disk: LogDisk,
    progress: Arc<Progress>,
    messages: mpsc::Sender<Message>,
    /// What the driver's queue had no room for yet. Bounded by the questions, of which the replica
    /// has one at a time for each server that is behind, and by the segments that were cut off.
    answers: VecDeque<Input>,
    cut: Cut,
}

/// How the log is cut: a segment at a time, behind what is appended. To remove one takes a disk
/// milliseconds in which nothing is made durable, so there is time for others before the next.
#[derive(Debug, Default)]
struct Cut {
    /// Up to where, if there is something left to remove.
    to: Option<u64>,
    /// Not before this.
    next: Option<Instant>,
}

impl Cut {
    /// Time until the next segment is to be removed; none if there is nothing to remove.
    fn due_in(&self, now: Instant) -> Option<Duration> {
        self.to?;
        Some(self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now)))
    }

    /// A segment was removed, and perhaps there are more.
    fn removed(&mut self, has_more: bool, began: Instant, ended: Instant) {
        self.to = self.to.filter(|_| has_more);
        self.next = Some(ended + CUT_PAUSE_TIMES * ended.duration_since(began));
    }
}

/// The orders of one turn.
#[derive(Default)]
struct Turn {
    appends: Vec<Append>,
    /// When they were ordered.
    ordered: Vec<Instant>,
    installing: Vec<Sender<()>>,
    reads: Vec<Fetch>,
    cut: Option<u64>,
    version: Option<u8>,
    is_ending: bool,
    is_urgent: bool,
}

impl Turn {
    fn add(&mut self, order: Order) {
        self.is_urgent |= order.is_urgent();
        match order {
            Order::Append(append, installing, ordered) => {
                self.appends.push(append);
                self.ordered.push(ordered);
                self.installing.extend(installing);
            }
            Order::Read(fetch) => self.reads.push(fetch),
            Order::Cut(index) => self.cut = self.cut.max(Some(index)),
            Order::Version(version) => self.version = self.version.max(Some(version)),
            Order::End => self.is_ending = true,
        }
    }
}

impl Writer {
    fn run(&mut self, orders: &Receiver<Order>) -> Result<(), InstallError> {
        let mut is_ending = false;
        let mut came = None;
        let mut rests_until = None;
        while !is_ending {
            // The other ends are only dropped behind an end.
            let Some(first) = came.take().or_else(|| self.next(orders)) else { break };
            let mut turn = Turn::default();
            first.into_iter().chain(orders.try_iter()).for_each(|order| turn.add(order));
            rest(&mut turn, orders, rests_until);
            supervision::panic_point();
            is_ending = turn.is_ending;
            if !turn.appends.is_empty() {
                rests_until = Instant::now().checked_add(REST);
            }
            self.act(turn)?;
            self.give_answers();
            came = orders.try_recv().ok().map(Some);
            if came.is_none() {
                self.disk.log.prepare();
            }
        }
        Ok(self.disk.log.close()?)
    }

    /// The next order; nothing if there is something else to do: the log is to be cut, or an answer has
    /// waited long enough for another look at the queue.
    fn next(&self, orders: &Receiver<Order>) -> Option<Option<Order>> {
        let answers = (!self.answers.is_empty()).then_some(ANSWER_RETRY);
        let patience = self.cut.due_in(Instant::now()).into_iter().chain(answers).min();
        let Some(patience) = patience else { return orders.recv().ok().map(Some) };
        match orders.recv_timeout(patience) {
            Ok(order) => Some(Some(order)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Appends first, because somebody waits for them; what is read and cut comes to the same.
    fn act(&mut self, turn: Turn) -> Result<(), InstallError> {
        let base = self.disk.log.base();
        if let Some(version) = turn.version {
            self.disk.follow_version(version)?;
        }
        if let Some(last) = turn.appends.last().map(|append| append.number) {
            self.disk.append(&turn.appends, &turn.ordered)?;
            for installing in turn.installing {
                // The state thread may have ended with the server.
                let _ = installing.send(());
            }
            self.progress.persisted.store(last, Ordering::Release);
            self.wake_driver();
        }
        for fetch in turn.reads {
            let entries = self.disk.read(&fetch);
            self.answers.push_back(Input::Fetched { fetch, entries });
        }
        self.cut.to = self.cut.to.max(turn.cut);
        let began = Instant::now();
        if let (Some(index), Some(Duration::ZERO)) = (self.cut.to, self.cut.due_in(began)) {
            let has_more = self.disk.cut(index)?;
            self.cut.removed(has_more, began, Instant::now());
        }
        let now = self.disk.log.base();
        if now != base {
            self.answers.push_back(Input::LogCut { before: (now.index, now.term) });
        }
        Ok(())
    }

    /// The number is stored before this is called: if the queue is full, the driver has still to
    /// take a message, and looks at the number after it.
    fn wake_driver(&self) {
        match self.progress.waiting().take() {
            Some(driver) => driver.unpark(),
            None => drop(self.messages.try_send(Message::Wake)),
        }
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

/// Lets more come as long as nothing is urgent. A sender of what is not urgent does not wake this thread: that
/// is what a rest is for, as much as fewer syncs are.
fn rest(turn: &mut Turn, orders: &Receiver<Order>, until: Option<Instant>) {
    let Some(until) = until else { return };
    while !turn.is_urgent && !turn.appends.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
        orders.try_iter().for_each(|order| turn.add(order));
    }
}

/// Between two appends that are not waited for: half a dozen of a loaded leader's, and a small part of what
/// it takes to notice that a server does not answer.
const REST: Duration = Duration::from_millis(2);
/// Time between two tries to give an answer to a driver whose queue is full.
const ANSWER_RETRY: Duration = Duration::from_millis(1);
/// How many times as long as the removal of a segment took, the next one waits.
const CUT_PAUSE_TIMES: u32 = 8;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::replica::Mark;
    use crate::server::disk::log_writer::tests::{PATIENCE, batch, durable, open, start};
    use crate::storage::{Images, OsFs};

    fn fetch(from: u64, to: u64, bytes_max: usize) -> Fetch {
        Fetch { from, to, bytes_max, token: from }
    }

    fn open_images(dir: &Path) -> Images {
        Images::new(Arc::new(OsFs), dir, 1)
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

    /// What the driver is told of a log that was cut.
    fn log_begins(messages: &mut mpsc::Receiver<Message>) -> u64 {
        match answer(messages) {
            Input::LogCut { before: (index, 1) } => index,
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
        // A segment at a time, all of the same length here.
        let length = log_begins(&mut messages);
        let index = (2..=20 / length).fold(length, |_, _| log_begins(&mut messages));
        assert!((length + 1..=20).contains(&index), "{index}, segments of {length}");
        writer.read(fetch(index, index + 1, usize::MAX)).unwrap();
        writer.read(fetch(index + 1, index + 1, usize::MAX)).unwrap();
        assert_eq!(fetched(&mut messages), (index, vec![]));
        assert_eq!(fetched(&mut messages), (index + 1, vec![index + 1]));
    }

    #[test]
    fn what_is_of_no_urgency_waits_for_what_is_and_goes_along_with_it() {
        let low = |number| Append { urgency: Urgency::Low, ..batch(number, number, 1) };
        let (sender, orders) = std::sync::mpsc::channel();
        let resting = std::thread::spawn(move || {
            let mut turn = Turn::default();
            turn.add(Order::Append(low(1), None, Instant::now()));
            rest(&mut turn, &orders, Instant::now().checked_add(Duration::from_secs(3600)));
            turn.appends.iter().map(|append| append.number).collect::<Vec<u64>>()
        });
        for number in 2..10 {
            sender.send(Order::Append(low(number), None, Instant::now())).unwrap();
            resting.thread().unpark();
        }
        sender.send(Order::Append(batch(10, 10, 1), None, Instant::now())).unwrap();
        resting.thread().unpark();
        assert_eq!(resting.join().unwrap(), (1..=10).collect::<Vec<u64>>());
    }

    #[test]
    fn who_appended_nothing_lately_does_not_rest() {
        let (_sender, orders) = std::sync::mpsc::channel();
        for until in [None, Some(Instant::now())] {
            let mut turn = Turn::default();
            turn.add(Order::Append(
                Append { urgency: Urgency::Low, ..batch(1, 1, 1) },
                None,
                Instant::now(),
            ));
            rest(&mut turn, &orders, until);
            assert_eq!(turn.appends.len(), 1);
        }
    }

    #[test]
    fn segments_are_removed_with_time_for_others_in_between() {
        let (began, took) = (Instant::now(), Duration::from_millis(12));
        let ended = began + took;
        let mut cut = Cut::default();
        assert_eq!(cut.due_in(began), None);
        cut.to = Some(9);
        assert_eq!(cut.due_in(began), Some(Duration::ZERO));
        cut.removed(true, began, ended);
        assert_eq!(cut.due_in(ended), Some(CUT_PAUSE_TIMES * took));
        assert_eq!(cut.due_in(ended + CUT_PAUSE_TIMES * took), Some(Duration::ZERO));
        cut.removed(false, began, ended);
        assert_eq!(cut.due_in(ended), None);
    }

    #[test]
    fn a_full_queue_keeps_neither_batches_nor_answers_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, mut messages) = start(dir.path(), 1);
        for i in 0..20 {
            assert!(writer.append(batch(i + 1, i + 1, 1), false).unwrap().is_none());
            writer.read(fetch(i + 1, i + 1, usize::MAX)).unwrap();
        }
        // No message is taken, and yet everything becomes durable.
        durable(&mut writer, 20);
        for i in 1..=20 {
            assert_eq!(fetched(&mut messages), (i, vec![i]));
        }
    }

    #[test]
    fn an_image_is_installed_in_its_turn_and_then_those_who_wait_are_told() {
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
    fn an_image_that_cannot_be_installed_ends_the_server_and_is_not_waited_for() {
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
}
