//! DISK: what a server must not forget, and how it gets it back.
//!
//! *Owns* the data directory. The log is the truth; everything else is there to make a start
//! quicker and the log shorter:
//!
//! ```text
//! dataDir/identity     whose data this is            identity.rs
//! dataDir/lock         held by the running server
//! dataDir/rolled-back  why it must not be used any more  rolled_back.rs
//! dataDir/image/       whole states, verified        image.rs, install.rs
//! dataDir/state/       sled, disposable              runs.rs, state.rs, sled.rs
//! dataLogDir/log/      every entry since the images  log.rs
//! .../set-aside-N/     what --rejoin put away        set_aside.rs
//! .../unused-N/        of a server that never served set_aside.rs
//! ```
//!
//! *Invariants*: a server never starts with less than it acknowledged: whatever is missing or
//! damaged is either proved redundant or refused by name, and a directory that is refused is not
//! changed. *Never* imports the wire protocol or the server, and knows only the value types of the
//! replica. Takes the place of ZooKeeper's `FileTxnSnapLog`.

mod blocks;
pub mod checkpoint;
#[cfg(test)]
mod checkpoint_store_tests;
#[cfg(test)]
mod checkpoint_tests;
mod collected;
mod courtesy;
pub mod fs;
#[doc(hidden)]
pub mod hanging;
pub mod identity;
pub mod image;
pub mod image_reader;
#[cfg(test)]
mod image_tests;
pub mod image_writer;
mod install;
#[cfg(test)]
mod install_tests;
pub mod log;
mod log_error;
#[cfg(test)]
mod log_tests;
pub mod manifest;
mod mark;
mod mend;
mod merge;
mod open;
mod open_error;
#[cfg(test)]
mod open_tests;
mod record;
mod recovery;
mod replay;
mod rolled_back;
pub mod run;
pub mod runs;
#[cfg(test)]
mod runs_tests;
mod segment;
mod set_aside;
pub mod sled;
mod spans;
pub mod state;
mod stream;
#[cfg(test)]
mod testing;
mod watched;

pub use checkpoint::{Checkpointer, ImageTally, Ingredients, LogLostEnd, Outcome, Source};
pub use courtesy::Leisure;
pub use fs::{DiskFile, FileLock, Fs, FsError, OsFs, Reserved};
#[doc(hidden)]
pub use hanging::HangingFs;
pub use identity::{Identity, IdentityError};
pub use image::{ImageError, Images};
pub use image_reader::{ImageReader, Records};
pub use image_writer::ImageWriter;
pub use install::{InstallError, append};
pub use log::{Log, LogOptions, LogRecovery};
pub use log_error::LogError;
pub use mark::{decode as decode_mark, encode as encode_mark};
pub use mend::Mending;
pub use open::{Lock, Opened, Options, Place, Report, is_initialized, open, peek};
pub use open_error::OpenError;
pub use record::ENTRY_BYTES_MAX;
pub use rolled_back::mark_rolled_back;
pub use runs::Runs;
pub use segment::Position;
pub use set_aside::{begin_anew, set_aside, was_set_aside};
pub use sled::SledState;
pub use state::{MemoryState, StateError, StateStore, Take};
pub use watched::{DiskCall, DiskCalls, WatchedFs};
