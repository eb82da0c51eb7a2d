//! Faults at exact system calls, by `strace --inject`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// The calls by which a server changes what is on its disk, and about how many of each kind one
/// thread does while it is under load here.
pub const CALLS: [(&str, u64); 8] = [
    ("fdatasync", 800),
    ("pwrite64", 1000),
    ("write", 800),
    ("rename", 8),
    ("fsync", 24),
    ("unlink", 8),
    ("fallocate", 8),
    ("sync_file_range", 30),
];

/// Calls of a server that starts.
pub const CALLS_AT_START: [(&str, u64); 9] = [
    ("openat", 60),
    ("pread64", 30),
    ("pwrite64", 4),
    ("fdatasync", 3),
    ("fsync", 3),
    ("rename", 2),
    ("write", 4),
    ("unlink", 2),
    ("flock", 1),
];

/// Whether processes can be traced here; otherwise why not.
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

/// The command line before the server's that makes `call` do `what` at its `n`-th time in a thread.
pub fn wrapper(call: &str, what: &str, n: u64) -> Vec<String> {
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:{what}:when={n}");
    let line = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    line.map(str::to_string).to_vec()
}

/// A strace that has attached itself to a process. It ends with that process.
#[derive(Debug)]
pub struct Tracer(Child);

impl Tracer {
    /// Makes `call` do `what` at its `n`-th time from now on in the thread `id`, or in any thread of
    /// the process.
    pub fn attach(id: u32, all: bool, call: &str, what: &str, n: u64) -> Result<Self, String> {
        let mut command = Command::new("strace");
        if all {
            command.arg("-f");
        }
        command.args(["-o", "/dev/null", "-e", &format!("trace={call}")]);
        command.args(["-e", &format!("inject={call}:{what}:when={n}"), "-p", &id.to_string()]);
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
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Whatever it traced goes on, or has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
