//! One server process: started, paused, killed, by its id and never by a name.
//!
//! *Invariants*: dropping it kills it and waits for it; where `setpriv` is there, the kernel kills it
//! too when the thread that started it is gone, whatever ends the harness.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The exit code of a server that says why it cannot go on.
const REFUSES: i32 = 1;
/// Pause between looks at a process that is to end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    is_paused: bool,
}

impl Process {
    /// Starts a command; what it says is appended to `output`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &[String], folder: &Path, output: &Path) -> Result<Self, String> {
        let fault = |error: io::Error| format!("{}: {error}", command.join(" "));
        let said = OpenOptions::new().create(true).append(true).open(output).map_err(fault)?;
        let errors = said.try_clone().map_err(fault)?;
        let mut words: Vec<&str> = Vec::new();
        if has_setpriv() {
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"]);
        }
        words.extend(command.iter().map(String::as_str));
        let child = Command::new(words[0])
            .args(&words[1..])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(errors)
            .spawn()
            .map_err(fault)?;
        Ok(Self { child, is_paused: false })
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let id = i32::try_from(self.child.id()).expect("ids of processes are small");
        let pid = Pid::from_raw(id).expect("ids of processes are not 0");
        kill_process(pid, signal).map_err(|error| format!("process {id}: {error}"))
    }

    /// It stands still until it is resumed.
    ///
    /// # Errors
    /// It is gone.
    pub fn pause(&mut self) -> Result<(), String> {
        self.signal(Signal::STOP)?;
        self.is_paused = true;
        Ok(())
    }

    /// It goes on.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&mut self) -> Result<(), String> {
        self.signal(Signal::CONT)?;
        self.is_paused = false;
        Ok(())
    }

    /// How it ended, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it as a crash does.
    pub fn kill(mut self) {
        self.end();
    }

    /// Ends it as an operator does, with SIGTERM.
    ///
    /// # Errors
    /// It does not end in time, or says by its exit code that something went wrong.
    pub fn stop(mut self, patience: Duration) -> Result<(), String> {
        if self.is_paused {
            self.resume()?;
        }
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + patience;
        loop {
            match self.ended() {
                // Java says 143 after a SIGTERM.
                Some(status) if status.success() || status.code() == Some(143) => return Ok(()),
                Some(status) => return Err(format!("ended with {status} after SIGTERM")),
                None if Instant::now() >= deadline => {
                    return Err(format!("still there {patience:?} after SIGTERM"));
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn end(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a program is to be found.
#[must_use]
pub fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

fn has_setpriv() -> bool {
    has_program("setpriv")
}

/// Whether a server that cannot use its disk ended as it should: it said why, and did not panic.
#[must_use]
pub fn ends_in_order(status: ExitStatus, said: &str) -> bool {
    status.code() == Some(REFUSES) && panic_in(said).is_none()
}

/// Where it says that it panicked.
#[must_use]
pub fn panic_in(said: &str) -> Option<&str> {
    said.lines().find(|line| line.contains("panicked at"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_server_whose_disk_fails_ends_with_a_reason_and_in_no_other_way() {
        let with_code = |code: i32| ExitStatus::from_raw(code << 8);
        let reason = "lockkeeper: the log cannot be written\n";
        assert!(ends_in_order(with_code(1), reason));
        assert!(!ends_in_order(with_code(101), reason));
        assert!(!ends_in_order(with_code(0), ""));
        assert!(!ends_in_order(ExitStatus::from_raw(9), reason));
        assert!(!ends_in_order(with_code(1), "thread 'log' panicked at src/log.rs:1:2:\n"));
    }
}
