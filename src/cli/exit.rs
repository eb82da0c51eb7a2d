//! What a command ends with, the same number for the same reason in all of them. docs/CLI.md has the table.
//!
//! *Owns* these numbers; most are those of `sysexits.h`. Of its own, `lockkeeper lock` has those that flock(1) has,
//! because there a number may also be that of the command that it runs (`lock/flags.rs`).

/// Refused, for a reason that repeating does not change.
pub(super) const EXIT_REFUSED: i32 = 1;
/// The command line, or a file that it names, is wrong.
pub(super) const EXIT_USAGE: i32 = 2;
/// No server answers, or the connection ended before the answer (`EX_UNAVAILABLE`).
pub(super) const EXIT_UNAVAILABLE: i32 = 69;
/// This machine lacks something: a process, a socket, memory (`EX_OSERR`).
#[cfg(feature = "bench")]
pub(super) const EXIT_OS: i32 = 71;
/// Not now: the same command may succeed later (`EX_TEMPFAIL`).
pub(super) const EXIT_NOT_NOW: i32 = 75;
/// Permission is missing (`EX_NOPERM`).
pub(super) const EXIT_NO_PERMISSION: i32 = 77;
/// Interrupted, as a shell says it of SIGINT.
#[cfg(feature = "bench")]
pub(super) const EXIT_INTERRUPTED: i32 = 130;
