//! IMAGES: whole states, each in one file, verified before it counts.
//!
//! *Owns* writing, reading and naming of images, and the installation of one that another server has sent.
//! *Invariants*: an image has its name only when all of it is durable; one that does not give its digest is
//! refused. *Never* decides when one is made: the checkpointer does.

mod images;
mod install;
#[cfg(test)]
mod install_tests;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use images::Copy;
pub use images::{ImageError, Images};
pub use install::InstallError;
pub use install::append;
pub use reader::ImageReader;
pub use reader::Records;
pub use writer::ImageWriter;
