//! DISK THREADS: the threads that write the log, checkpoints and images, and what the driver knows of them.
//!
//! *Owns* the log's thread, the checkpoint thread, the pace of checkpoints, the alarm for calls that hang, and how a
//! configuration names a data directory. *Invariants*: the driver never waits for a disk call, except as `log_writer`
//! says; the threads end before the directory is free. *Never* decides what is written: the replica does.

mod alarm;
mod checkpoint_schedule;
mod checkpoint_thread;
pub(in crate::server) mod data_dir;
mod log_disk;
mod log_thread;
mod log_writer;

pub(in crate::server) use alarm::DiskAlarm;
pub(in crate::server) use checkpoint_schedule::CheckpointSchedule;
pub(in crate::server) use checkpoint_thread::Checkpoints;
pub(in crate::server) use data_dir::{Found, Refused};
pub(in crate::server) use log_disk::LogDisk;
pub(in crate::server) use log_writer::LogWriter;
