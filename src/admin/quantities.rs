//! What a server measures as distributions: the names, and what was measured.
//!
//! *Owns* [`Quantity`] and [`Measured`], plain values. *Invariant*: times are microseconds. *Never* measures: threads
//! do, and hand out a snapshot.

use std::collections::BTreeMap;

use super::distribution::Distribution;

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is measured. Times are microseconds, in the units of `docs/METRICS.md` otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Quantity { $($(#[$doc])* $name,)* }

        impl Quantity {
            /// All of them, in the order of their numbers.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

quantities! {
    /// From the read of a read request's bytes to the write of its answer's.
    Read,
    /// The same of a write.
    Write,
    /// Fsyncs of the log.
    Fsync,
    /// Images written and verified.
    Image,
    /// Checkpoints of the state store.
    Checkpoint,
    /// Entries per append to the log.
    LogBatch,
    /// Appends to the log that wait when another one joins them, with that one.
    LogQueue,
    /// From the hand-over of an append to the log's thread until that begins.
    LogQueueTime,
    /// From the hand-over of an append to the log's thread until it is durable.
    LogQueueAndFlush,
    /// What an append to the log takes, with or without an fsync.
    LogWrite,
    /// Messages that the driver found when it looked.
    DriverQueue,
    /// From the read of a request's bytes until the driver takes it.
    DriverQueueTime,
    /// What the requests of one turn of the driver take.
    TurnOfRequests,
    /// What a request that closes a session takes the driver.
    CloseSession,
    /// What a turn of the driver takes behind the requests: consensus, applying, answers.
    TurnOfCommits,
    /// That of turns in which transactions were applied.
    TurnOfWrites,
    /// Reads answered in one turn.
    ReadsPerTurn,
    /// Transactions applied in one turn.
    CommitsPerTurn,
    /// Requests that wait for a transaction at the end of a turn.
    Waiting,
    /// Part of a turn for one read.
    ReadPart,
    /// Part of a turn for one applied transaction.
    WritePart,
    /// From when a commit was known until the answer was handed to its connection.
    OwnCommitted,
    /// From when a commit was known until it was applied, of other servers' clients.
    OthersCommitted,
    /// Connections in one turn whose requests waited behind a write.
    QueuesDrained,
    /// From the loss of a leader, or the start, until the next one was known.
    Election,
    /// Without serving clients.
    Unavailable,
    /// Without a leader, until this server led and served.
    LeaderUnavailable,
    /// Leader: from the link with a participant until it kept up.
    FollowerSync,
    /// Leader: from the link with an observer until it kept up.
    ObserverSync,
    /// At the start: reading the data.
    StartLoad,
    /// At the start: reading the image.
    StartImage,
    /// At the start: entries of the log that were applied behind the image.
    StartEntries,
    /// At the start: reading and applying them.
    StartEntriesTime,
    /// [`crate::replica::Measure::ReadWait`].
    ReadWait,
    /// [`crate::replica::Measure::WriteWait`].
    WriteWait,
    /// [`crate::replica::Measure::QuorumAck`].
    QuorumAck,
    /// [`crate::replica::Measure::OwnAck`].
    OwnAck,
    /// [`crate::replica::Measure::CommitPropagation`].
    CommitPropagation,
    /// [`crate::replica::Measure::Proposal`].
    Proposal,
    /// [`crate::replica::Measure::Propagation`].
    Propagation,
    /// [`crate::replica::Measure::WatchersOfCreated`].
    WatchersOfCreated,
    /// [`crate::replica::Measure::WatchersOfDeleted`].
    WatchersOfDeleted,
    /// [`crate::replica::Measure::WatchersOfChanged`].
    WatchersOfChanged,
    /// [`crate::replica::Measure::WatchersOfChildren`].
    WatchersOfChildren,
    /// [`crate::replica::Measure::RequestsInQueue`].
    RequestsInQueue,
    /// [`crate::replica::Measure::QueuesWaiting`].
    QueuesWaiting,
    /// [`crate::replica::Measure::ReadsAfterWrite`].
    ReadsAfterWrite,
    /// [`crate::replica::Measure::LockWait`].
    LockWait,
    /// [`crate::replica::Measure::LockHold`].
    LockHold,
}

/// What was measured since the start or the last `srst`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// By number; what is missing was not measured.
    distributions: Vec<Distribution>,
    /// Leader: microseconds until another server acknowledged a proposal, by its server id.
    pub acks: BTreeMap<u8, Tally>,
    /// Bytes that wait to be sent to another server when more are put behind them, by its server id.
    pub peer_queues: BTreeMap<u8, Tally>,
}

impl Measured {
    /// Of distributions in the order of [`Quantity::ALL`].
    pub(crate) fn new(distributions: Vec<Distribution>) -> Self {
        Self { distributions, ..Self::default() }
    }

    /// What was measured of one; without a value if nothing was.
    #[must_use]
    pub fn of(&self, quantity: Quantity) -> Distribution {
        self.distributions.get(quantity as usize).cloned().unwrap_or_default()
    }

    /// Reads and writes together.
    #[must_use]
    pub fn requests(&self) -> Distribution {
        self.of(Quantity::Read).with(&self.of(Quantity::Write))
    }

    /// Sets one, for tests.
    #[cfg(test)]
    pub(crate) fn set(&mut self, quantity: Quantity, values: &[u64]) {
        self.distributions.resize(Quantity::ALL.len(), Distribution::default());
        let all = values.iter().map(|value| Distribution::of(*value));
        self.distributions[quantity as usize] =
            all.fold(Distribution::default(), |all, one| all.with(&one));
    }
}

/// Number, sum and extremes of a quantity without a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many were counted.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The smallest, 0 while `count` is 0.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl Tally {
    /// Counts one.
    pub fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += value;
    }
}
