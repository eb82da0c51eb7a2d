//! BACKUPS: a whole state, or a part of the tree, in one file.
//!
//! *Owns* the format of the file, its verification, and which records belong to a part of the tree. *Invariants*: any
//! single bit that has changed is noticed; a file counts only once its end was read, and what its records add up to is
//! the digest that stands there; both are written and read from beginning to end, a piece at a time. *Never* opens a
//! file or a socket: it is given what to read from or write to.

mod file;
mod reader;
mod selection;
mod writer;

pub use file::{BackupError, Header, Trailer};
pub use reader::{BackupReader, TakeRecord};
pub use selection::Selection;
pub use writer::BackupWriter;

#[cfg(test)]
mod tests;
