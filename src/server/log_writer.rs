//! The thread that makes entries durable: one append and one fsync for all that is waiting.
//!
//! *Owns* the open log. *Invariants*: what is waiting is appended as one batch, in order; the driver
//! learns of durability by a number and a wake, neither of which can wait. *Never* tries an fsync
//! again: the first error ends the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::mpsc;

use super::clock;
use super::driver::Message;
use super::error::{ServerError, panic_message};
use super::figures::Figures;
use crate::replica::Append;
use crate::storage::{Log, LogError};

/// What the thread is asked for.
#[derive(Debug)]
enum Order {
    /// To be made durable.
    Append(Append),
    /// Entries up to this index are covered by images.
    Cut(u64),
    /// Nothing comes behind this.
    End,
}

/// The driver's end of the log thread. Dropping it waits until everything is durable.
#[derive(Debug)]
pub struct LogWriter {
    /// Not bounded itself: it never holds more than the requests in flight, which are.
    orders: Sender<Order>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
    /// The last number that the driver was told.
    told: u64,
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
    /// Starts the thread. `messages` is the driver's queue, to wake it; an fsync longer than `slow`
    /// is warned of.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        log: Log,
        messages: mpsc::Sender<Message>,
        figures: Arc<Figures>,
        slow: Duration,
    ) -> std::io::Result<Self> {
        let (sender, orders) = unbounded();
        let progress = Arc::new(Progress::default());
        let mut writer = Writer { log, progress: Arc::clone(&progress), messages, figures, slow };
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
        Ok(Self { orders: sender, progress, thread: Some(thread), told: 0 })
    }

    /// For the state thread.
    #[must_use]
    pub fn cutter(&self) -> LogCutter {
        LogCutter(self.orders.clone())
    }

    /// Queues a batch. Never waits.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn append(&mut self, append: Append) -> Result<(), ServerError> {
        let unknown = || ServerError::Log("its thread has ended".to_string());
        let sent = self.orders.send(Order::Append(append));
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
        let number = self.progress.persisted.load(Ordering::Acquire);
        let is_news = number > self.told;
        self.told = number;
        Ok(is_news.then_some(number))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // Fails if the thread has ended already.
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            // Its panics were caught and told.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Writer {
    log: Log,
    progress: Arc<Progress>,
    messages: mpsc::Sender<Message>,
    figures: Arc<Figures>,
    slow: Duration,
}

impl Writer {
    fn run(&mut self, orders: &Receiver<Order>) -> Result<(), LogError> {
        let mut batch = Vec::new();
        let mut is_ending = false;
        while !is_ending {
            // The other ends are only dropped behind an end.
            let Ok(first) = orders.recv() else { break };
            let mut cut = None;
            for order in std::iter::once(first).chain(orders.try_iter()) {
                match order {
                    Order::Append(append) => batch.push(append),
                    Order::Cut(index) => cut = Some(index),
                    Order::End => is_ending = true,
                }
            }
            if let Some(last) = batch.last().map(|append: &Append| append.number) {
                self.append(&batch)?;
                self.progress.persisted.store(last, Ordering::Release);
                self.wake_driver();
                batch.clear();
            }
            if let Some(index) = cut {
                self.log.cut(index)?;
            }
            self.figures.disk().log_dir_bytes = self.log.bytes();
            if orders.is_empty() {
                self.log.prepare();
            }
        }
        self.log.close()
    }

    /// The number is stored before this is called: if the queue is full, the driver has still to
    /// take a message, and looks at the number after it.
    fn wake_driver(&self) {
        let _ = self.messages.try_send(Message::Wake);
    }

    fn append(&mut self, batch: &[Append]) -> Result<(), LogError> {
        let start = Instant::now();
        self.log.append(batch)?;
        let took_us = clock::micros_since(start);
        let entries: usize = batch.iter().map(|append| append.entries.len()).sum();
        let is_synced = entries > 0 || batch.iter().any(|append| append.must_sync);
        let is_slow = is_synced && u128::from(took_us) > self.slow.as_micros();
        let mut disk = self.figures.disk();
        disk.log_batch.record(entries as u64);
        if is_synced {
            disk.fsync.record(took_us);
            disk.fsyncs_slow += u64::from(is_slow);
        }
        drop(disk);
        if is_slow {
            tracing::warn!(ms = took_us / 1000, entries, "slow fsync of the log");
        }
        Ok(())
    }
}

const THREAD: &str = "lk-log";
