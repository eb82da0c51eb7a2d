//! The commands of the binary and the files that they read, as operators use them.

mod bench;
mod config;
mod config_files;
mod dev;
mod drop_in;
mod lock;
mod member;
mod mistakes;
mod server;
mod shell;
