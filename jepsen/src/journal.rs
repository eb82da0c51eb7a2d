//! The journal: everything that clients and faults do in a run, in one order, with one clock.
//!
//! *Owns* the recorder and the clock. *Invariants*: the time of an event is taken while the journal is
//! held, so that times rise with indices; a request is in the journal before its first byte leaves, a
//! reply after its last byte came.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lockkeeper_check::history::{History, Notice, Operation, OperationId, Recorder};
use lockkeeper_check::op::{Answer, Code};

/// What servers sent that no client could make sense of; more are counted, not kept.
const ODDITIES_MAX: usize = 100;

/// The journal of a run.
#[derive(Debug)]
pub struct Journal {
    began: Instant,
    began_at_ms: i64,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    recorder: Recorder,
    oddities: Vec<String>,
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}

impl Journal {
    /// An empty one; its clock begins to run.
    #[must_use]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_at_ms =
            i64::try_from(since_epoch.as_millis()).expect("the year is below 292 million");
        Self { began: Instant::now(), began_at_ms, pages: Mutex::default() }
    }

    /// The wall clock when this clock was 0, milliseconds since the epoch.
    #[must_use]
    pub fn began_at_ms(&self) -> i64 {
        self.began_at_ms
    }

    /// The clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("584 years in nanoseconds")
    }

    fn open(&self) -> (MutexGuard<'_, Pages>, u64) {
        // A client that panicked leaves whole events behind, and the run says that it panicked.
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now_ns();
        (pages, now)
    }

    /// A request is about to be sent.
    pub fn invoke(&self, operation: Operation) -> OperationId {
        let (mut pages, now) = self.open();
        pages.recorder.invoke(now, operation)
    }

    /// It was answered.
    pub fn replied(&self, id: OperationId, zxid: i64, result: Result<Answer, Code>) {
        let (mut pages, now) = self.open();
        pages.recorder.replied(now, id, zxid, result);
    }

    /// Nobody will know what became of it.
    pub fn gave_up(&self, id: OperationId, reason: &str) {
        let (mut pages, now) = self.open();
        pages.recorder.gave_up(now, id, reason);
    }

    /// A client was told something, or has changed its mind.
    pub fn notice(&self, notice: Notice) {
        let (mut pages, now) = self.open();
        pages.recorder.notice(now, notice);
    }

    /// The run does something to the servers.
    pub fn fault(&self, name: &str, what: &str) {
        let (mut pages, now) = self.open();
        pages.recorder.fault(now, name, what);
    }

    /// A server sent what is no answer to anything.
    pub fn oddity(&self, what: String) {
        let (mut pages, now) = self.open();
        if pages.oddities.len() < ODDITIES_MAX {
            pages.oddities.push(format!("{} ms: {what}", now / 1_000_000));
        }
    }

    /// The end: the history, and what nobody could make sense of. The journal is empty then.
    pub fn finish(&self) -> (History, Vec<String>) {
        let (mut pages, _) = self.open();
        let pages = std::mem::take(&mut *pages);
        (pages.recorder.finish(), pages.oddities)
    }
}
