//! DISK: what a server must not forget, and how it gets it back.
//!
//! *Owns* the data directory. The log is the truth. Images make a start quicker and the log shorter, and
//! are written from a copy of the state on sled:
//!
//! ```text
//! dataDir/identity     whose data this is            dir/
//! dataDir/lock         held by the running server
//! dataDir/rolled-back, dataDir/diverged  why it must not be used any more  dir/unusable.rs
//! dataDir/image/       whole states, verified        image/
//! dataDir/state/       sled, disposable              copy/
//! dataLogDir/log/      every entry since the images  log/
//! .../set-aside-N/     what --rejoin put away        dir/quarantine.rs
//! dataDir/diverged-N/  the same, of a state that was not the majority's
//! dataDir/last-backup  when that was               dir/last_backup.rs
//! dataDir/origin       where a state came from       dir/seed.rs
//! dataDir/recovery-unfinished  of data that is being replaced  dir/replacement.rs
//! dataDir/unfinished   of a state that is being put  dir/seed.rs
//! .../unused-N/        of a server that never served dir/quarantine.rs
//! ```
//!
//! *Invariants*: a server never starts with less than it acknowledged: whatever is missing or
//! damaged is either proved redundant or refused by name, and a directory that is refused is not
//! changed. *Never* imports the wire protocol or the server, and knows only the value types of the
//! replica. Takes the place of ZooKeeper's `FileTxnSnapLog`.

#![deny(unreachable_pub)]
#![deny(missing_docs)]
#![allow(rustdoc::private_intra_doc_links, reason = "its readers are those who change it")]

#[macro_use]
extern crate lockkeeper_core;

/// Target of this crate's log lines, by which operators filter them (`RUST_LOG`, docs/OPERATIONS.md).
const TARGET: &str = "lockkeeper::storage";

mod checkpoint;
mod copy;
mod dir;
mod disk_throttle;
mod formats;
pub mod fs;
mod image;
mod log;
mod mark;
mod stream;
#[cfg(test)]
mod testing;
mod throttle;
mod watched;

pub use checkpoint::{
    Checkpointer, ImageTally, Ingredients, LogLostEnd, LogSinceImage, Outcome, Source,
};
pub use copy::{MemoryState, Runs, SledState, StateError, StateStore, Take};
pub use dir::FormatSwitch;
pub use dir::{
    BackupMade, Mending, ReadState, Seed, begin_anew, finish_replacement, hold, is_initialized,
    origin, read, replace, seed,
};
pub use dir::{
    ErrorCount, Identity, Lock, OpenError, Opened, Options, Place, Report, Unusable, mark_unusable,
    open, peek, set_aside, was_set_aside,
};
pub use disk_throttle::DiskBudget;
pub use formats::Formats;
pub use fs::{DiskFile, FileLock, Fs, FsError, OsFs, Reserved};
pub use image::{ImageError, Images, Records, append};
pub use image::{ImageReader, ImageWriter, InstallError};
pub use log::{Log, LogOptions, LogRecovery, Position};
pub use log::{LogError, SEGMENT_BYTES};
pub use mark::{decode as decode_mark, encode as encode_mark};
pub use stream::Writing;
pub use throttle::WorkBudget;
pub use watched::{DiskCall, DiskCalls, WatchedFs};

#[cfg(test)]
#[path = "../../tests/simulation/rng.rs"]
#[allow(unreachable_pub)]
mod rng;
