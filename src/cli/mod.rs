//! The commands of the `lockkeeper` binary.
//!
//! Owns what a user types and reads on a terminal. Uses the library's public parts only.

pub mod config_check;
pub mod config_file;
