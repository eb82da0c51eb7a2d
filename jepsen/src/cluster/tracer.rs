//! Faults at system calls, by `strace --inject` attached to a process that runs.
//!
//! *Invariant*: what was traced goes on when this is dropped. Needs nothing else of this crate:
//! tests/server/crash has it, too.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// An asked strace has let go within this time.
const LET_GO_MAX: Duration = Duration::from_secs(2);

/// Whether processes can be traced here.
///
/// # Errors
/// Why not.
pub fn available() -> Result<(), String> {
    let probe =
        Command::new("strace").args(["-D", "-f", "-qq", "-o", "/dev/null", "true"]).output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => return Err(format!("strace: {error}")),
    }
    let mut sleeper = Command::new("sleep").arg("30").spawn().map_err(|e| format!("sleep: {e}"))?;
    let attached = Tracer::attach(sleeper.id(), true, "fsync", "signal=KILL", 1).map(drop);
    // It only waits for this.
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    attached
}

/// A strace that has attached itself to a process. It ends with that process.
#[derive(Debug)]
pub struct Tracer(Child);

impl Tracer {
    /// Makes `calls` do `what` at those times, counted from now on, that `when` names, in the thread
    /// `id`, or in any thread of the process.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn attach(
        id: u32,
        all: bool,
        calls: &str,
        what: &str,
        when: impl Display,
    ) -> Result<Self, String> {
        let mut command = Command::new("strace");
        if all {
            command.arg("-f");
        }
        command.args(["-o", "/dev/null", "-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:{what}:when={when}"), "-p", &id.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("strace: {error}"))?;
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).map_err(|error| format!("strace: {error}"))?;
        let tracer = Self(child);
        if !line.contains("attached") {
            return Err(line.trim().to_string());
        }
        // It says more as threads come and go, and must not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(tracer)
    }

    /// Has it let go: a call that is under way is brought to its end. `None` if it does not.
    pub fn let_go(&mut self) -> Option<()> {
        if self.0.try_wait().ok()?.is_some() {
            return Some(());
        }
        let id = Pid::from_raw(i32::try_from(self.0.id()).ok()?)?;
        kill_process(id, Signal::TERM).ok()?;
        let deadline = Instant::now() + LET_GO_MAX;
        while Instant::now() < deadline {
            if self.0.try_wait().ok()?.is_some() {
                return Some(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if self.let_go().is_none() {
            // Whatever it traced goes on, or has ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
