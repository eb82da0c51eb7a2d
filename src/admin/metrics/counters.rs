//! The shell's figures: sockets, fsyncs, images, and what is measured as distributions.
//!
//! *Owns* plain structs, and the types that the table makes: a field for each counter, a [`Quantity`] for each
//! distribution. *Invariant*: times are microseconds. *Never* measures: threads do, in a [`Counts`] of their own that
//! they add to, and hand out a snapshot.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::distribution::Distribution;
use super::table::table;
use crate::replica::Measure;

macro_rules! counts {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<T> { $($(#[$doc])* pub $field: T,)* }

        impl<T> $name<T> {
            /// Makes another value of each counter.
            pub(crate) fn map<U>(&self, make: impl Fn(&T) -> U) -> $name<U> {
                $name { $($field: make(&self.$field),)* }
            }
        }
    };
}

macro_rules! types {
    ($(
        $kind:ident $name:literal $help:literal
        $(if $needed:ident)?
        $(count $count:ident)?
        $(counts { $($(#[$part_doc:meta])* $key:literal $part:ident,)+ })?
        $(link $link:ident)?
        $(links { $($(#[$link_doc:meta])* $link_key:literal $link_part:ident,)+ })?
        $(measured $quantity:ident as $unit:ident)?
        $(replica $measure:ident as $measure_unit:ident)?
        $(|$r:ident| $value:expr)?;
    )*) => {
        counts! {
            /// Counts since the start or the last `srst`: numbers, or counters of them.
            Counts { $($(#[doc = $help] $count)? $($($(#[$part_doc])* $part)+)?)* }
        }

        counts! {
            /// Traffic between this server and the others: numbers, or counters of them.
            LinkCounts { $($(#[doc = $help] $link)? $($($(#[$link_doc])* $link_part)+)?)* }
        }

        /// A measured quantity. Times are microseconds, in the units of `docs/METRICS.md` otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Quantity { $($(#[doc = $help] $quantity,)? $(#[doc = $help] $measure,)?)* }

        impl Quantity {
            /// All of them, in the order of their numbers.
            pub(crate) const ALL: &[Self] = &[$($(Self::$quantity,)? $(Self::$measure,)?)*];

            /// That of what the replica measures; `None` of what is kept by server.
            pub(crate) fn of(measure: Measure) -> Option<Self> {
                match measure {
                    Measure::Ack { .. } => None,
                    $($(Measure::$measure => Some(Self::$measure),)?)*
                }
            }
        }
    };
}

table!(types);

/// Numbers of the traffic between this server and the others.
pub type LinkCounters = LinkCounts<u64>;

/// A snapshot of the shell's figures. Its counts are read as its own fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Wall clock at the snapshot, milliseconds since the epoch.
    pub wall_ms: i64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Counts since the start or the last `srst`.
    pub counts: Counts<u64>,
    /// Traffic with other servers; `None` without an ensemble.
    pub links: Option<LinkCounters>,
    /// Measured distributions.
    pub measured: Measured,

    /// Sizes of replies in bytes; `None` while there was none.
    pub response_sizes: Option<ResponseSizes>,
    /// Client connections open now.
    pub connections_alive: u64,
    /// Bytes that wait for clients to take them, now.
    pub outgoing_bytes: u64,
    /// Bytes of requests that have not arrived whole, now.
    pub incoming_bytes: u64,
    /// Handshakes of TLS with clients that came to nothing.
    pub handshakes_failed: u64,
    /// Handshakes of TLS with clients that are going on.
    pub handshakes_open: u64,
    /// The certificates of each listener that speaks TLS.
    pub certificates: Vec<Certificates>,
    /// Whether the file with the users of SASL has changed and could not be used; `None` without one.
    pub sasl_users_outdated: Option<bool>,
    /// Contents of the disks.
    pub disk: DiskFigures,
    /// Errors that have ended servers of this data, or end this one now.
    pub fatal_errors: u64,
}

impl Deref for Counters {
    type Target = Counts<u64>;

    fn deref(&self) -> &Counts<u64> {
        &self.counts
    }
}

/// Contents of the disks, as the threads of the log and of the tree's copy have written them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Bytes of images and of the tree's copy on disk.
    pub data_dir_bytes: u64,
    /// Bytes of the log on disk.
    pub log_dir_bytes: u64,
    /// Bytes of log written since the newest image (without one: all there is), as of
    /// the last records that were handed to the tree's copy.
    pub log_since_image_bytes: u64,
    /// The newest verified image; `None` while there is none.
    pub last_image: Option<LastImage>,
    /// The last backup of this server that a client has taken; `None` while there is none.
    pub last_backup: Option<LastBackup>,
}

/// A backup that a client has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBackup {
    /// zxid of the last transaction in it.
    pub zxid: i64,
    /// Its size.
    pub bytes: u64,
    /// Time of its completion, milliseconds since the epoch.
    pub wall_ms: i64,
}

/// Sizes of replies in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ResponseSizes {
    pub last: u64,
    pub min: u64,
    pub max: u64,
}

/// A verified image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastImage {
    /// Log index that it contains.
    pub index: u64,
    /// Zxid that it contains.
    pub zxid: i64,
    /// Time of its end, milliseconds since the epoch.
    pub wall_ms: i64,
}

/// State of the certificates of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// Listener that they belong to.
    pub listener: &'static str,
    /// End of validity of the first of them to end, seconds since 1970.
    pub expires_s: i64,
    /// Whether the files have changed since, and could not be used.
    pub is_outdated: bool,
}

/// Distributions since the start or the last `srst`.
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

    /// Measured values of one quantity; without a value if nothing was measured.
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
    /// Number of counted values.
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
