//! The server in a process of its own, the way an operator runs it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest time that anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server keeps what, and where it writes what it says.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The data directory.
    pub data: PathBuf,
    /// Everything that must survive whatever happens to the data: audit logs, standard errors.
    pub outside: PathBuf,
}

impl Layout {
    /// The file that all of them write their audit log to.
    pub fn audit(&self) -> PathBuf {
        self.outside.join("audit")
    }

    /// What the `generation`-th server says on its standard error.
    pub fn said(&self, generation: u32) -> String {
        let bytes = std::fs::read(self.said_path(generation)).expect("it was started");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where it says that.
    pub fn said_path(&self, generation: u32) -> PathBuf {
        self.outside.join(format!("said-{generation}"))
    }
}

/// The command that runs a server with small images, often.
pub fn command(layout: &Layout, generation: u32, wrapper: &[String]) -> Command {
    let binary = testkit::binary().display().to_string();
    let line: Vec<String> = wrapper.iter().cloned().chain([binary]).collect();
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).args(["server", "--port", "0", "--admin-addr", "off"]);
    command.arg("--data-dir").arg(&layout.data);
    command.arg("--audit-log").arg(layout.audit());
    for setting in ["lockkeeper.imageLogBytes=1048576", "lockkeeper.checkpointMillis=20"] {
        command.args(["--set", setting]);
    }
    let said = File::create(layout.said_path(generation)).expect("a file for what it says");
    command.env("RUST_LOG", "info,lockkeeper::server=debug,sled=warn").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
    command
}

/// A server process. Ends with it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where clients connect; `None`: it ended before it served.
    pub address: Option<SocketAddr>,
}

impl Process {
    /// Starts a server and waits until it serves or has ended. `wrapper` is a command line to run it
    /// with that must leave it our direct child.
    pub fn start(layout: &Layout, generation: u32, wrapper: &[String]) -> Self {
        let mut command = command(layout, generation, wrapper);
        let mut child = command.spawn().expect("it can be run");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let screen: Vec<String> = lines.take(6).map_while(Result::ok).collect();
        let address = (screen.len() == 6).then(|| {
            let text = screen[2].strip_prefix("connect  ").expect("the third line");
            text.parse().expect("an address")
        });
        Self { child, address }
    }

    /// Where clients connect, of a server that must have started.
    pub fn serving(&self, layout: &Layout, generation: u32) -> SocketAddr {
        self.address.unwrap_or_else(|| panic!("it did not start: {}", layout.said(generation)))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself meanwhile.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our child")
    }

    /// Waits for its end; `None` if it still runs after `patience`.
    pub fn end_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("our child");
    }

    /// Waits for a thread of this name: it gives itself its name, some time after the server serves.
    pub fn thread(&self, name: &str) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(id) = self.find_thread(name) {
                return id;
            }
            assert!(Instant::now() < deadline, "no thread {name}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn find_thread(&self, name: &str) -> Option<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).ok()?;
        tasks.flatten().find_map(|task| {
            let found = std::fs::read_to_string(task.path().join("comm")).ok()?;
            let id = task.file_name().to_str()?.parse().ok()?;
            (found.trim() == name).then_some(id)
        })
    }

    /// Waits until no thread of a stopped process runs any more, not even in the kernel.
    pub fn wait_until_stopped(&self) {
        let deadline = Instant::now() + PATIENCE;
        let is_stopped = |task: &Path| {
            let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            state.is_none_or(|state| "TtXZ".contains(state))
        };
        loop {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).expect("it exists");
            if tasks.flatten().all(|task| is_stopped(&task.path())) {
                return;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
