//! CHECKPOINTS: what changed becomes a copy of the state, images, and cuts of the log.
//!
//! *Owns* the order of these. *Invariant*: the log is cut only up to what two verified images hold. *Never* runs
//! in a thread of its own: the server's checkpoint thread calls it.

mod checkpointer;
mod log_since_image;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

pub use checkpointer::{Checkpointer, Ingredients, Outcome, Source};
pub(crate) use checkpointer::{IMAGE_EVERY_BYTES, LOG_LOST_END_ENSEMBLE};
pub use checkpointer::{ImageTally, LogLostEnd};
pub use log_since_image::LogSinceImage;
