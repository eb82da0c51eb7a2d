//! What the command under the lock reads.
//!
//! *Owns* its standard input. A file or a pipe is handed over as it is. The command is not in the foreground of the
//! terminal, where a read would stop it for good: what is typed comes to it through a pipe. *Invariants*: nothing is
//! read of a terminal while this process is in its background, where that would stop the process that holds the
//! session; the end of the input is told to the command.

use std::fs::File;
use std::io::{self, IsTerminal as _, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Looks at whether something was typed.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 4096;

/// The command's standard input.
///
/// # Errors
/// The operating system's.
pub(super) fn standard_input() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return stdin.as_fd().try_clone_to_owned();
    }
    // A job in the background of a shell has no input.
    if !is_in_foreground() {
        return Ok(File::open("/dev/null")?.into());
    }
    let terminal = File::from(stdin.as_fd().try_clone_to_owned()?);
    let (reader, writer) = io::pipe()?;
    thread::spawn(move || relay(terminal, writer));
    Ok(reader.into())
}

fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Until the input ends, or the command does not want it.
fn relay(mut terminal: File, mut command: PipeWriter) {
    let mut typed = [0; CHUNK_BYTES];
    loop {
        if !is_ready(&terminal) {
            continue;
        }
        // Not by way of `Stdin`: what that has read ahead, a look would miss.
        let length = match terminal.read(&mut typed) {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        if command.write_all(&typed[..length]).is_err() {
            return;
        }
    }
}

/// Whether a read would return at once, after a short wait.
fn is_ready(terminal: &File) -> bool {
    let mut ends = [PollFd::new(terminal, PollFlags::IN)];
    let look = Timespec::try_from(LOOK).ok();
    let is_typed = poll(&mut ends, look.as_ref()).is_ok_and(|ready| ready > 0);
    if is_typed && !is_in_foreground() {
        thread::sleep(LOOK);
        return false;
    }
    is_typed
}
