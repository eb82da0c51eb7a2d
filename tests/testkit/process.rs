//! The binary, as an operator runs it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// The command, with these arguments, as if it were run in that directory.
pub fn lockkeeper(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(super::binary());
    command.args(arguments).current_dir(directory).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it says and ends with.
pub fn output(directory: &Path, arguments: &[&str]) -> Output {
    lockkeeper(directory, arguments).output().expect("the binary runs")
}

/// What it said on standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A server in a process of its own.
pub struct Running {
    pub child: Child,
    /// What it showed when it had started.
    pub screen: Vec<String>,
    /// Where clients connect.
    pub address: SocketAddr,
}

impl Running {
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::of(lockkeeper(directory, &[&["server"], arguments].concat()))
    }

    pub fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let screen: Vec<String> =
            lines.by_ref().take(6).map(|line| line.expect("a line of text")).collect();
        let mut said = String::new();
        // That of some goes to a file.
        if let Some(mut stderr) = child.stderr.take_if(|_| screen.len() < 6) {
            stderr.read_to_string(&mut said).expect("UTF-8");
        }
        assert_eq!(screen.len(), 6, "the first screen: {screen:?} {said}");
        let address = screen[2].strip_prefix("connect  ").expect("the third line");
        Self { child, address: address.parse().expect("an address"), screen }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// The exit code, and how long it took to come to it.
    pub fn exit(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return (status.code(), start.elapsed());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
