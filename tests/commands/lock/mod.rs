//! `lockkeeper lock` as its users see it: processes of the real binary against a server in this one.

mod failover;
mod loss;
mod usage;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use lockkeeper::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::{PATIENCE, account, wait_until};
use tokio::task::spawn_blocking;
use zookeeper_client::Client;

/// A server, a client that watches what happens there, and a place for files.
struct Site {
    server: Server,
    observer: Client,
    directory: TempDir,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let builder = testkit::builder()
            .tick_time(Duration::from_millis(100))
            .session_timeouts(Duration::from_millis(400), Duration::from_secs(60))
            .audit_log(directory.path().join("audit.log"));
        let server = builder.start().await.expect("a server");
        let connector = Client::connector().with_session_timeout(Duration::from_secs(20));
        let observer = connector.connect(&server.connect_string()).await.expect("a session");
        Self { server, observer, directory }
    }

    /// `lockkeeper lock` on this server.
    fn lock(&self, arguments: &[&str]) -> Lock {
        Lock::start(&self.server.connect_string(), arguments)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn contenders(&self, path: &str) -> usize {
        match self.observer.list_children(path).await {
            Ok(names) => names.len(),
            Err(zookeeper_client::Error::NoNode) => 0,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    async fn wait_for_contenders(&self, path: &str, count: usize) {
        let what = format!("{count} contenders");
        wait_until(&what, async || self.contenders(path).await == count).await;
    }

    /// When the server gave this session up, by its own account.
    async fn session_end(&self, session: i64) -> SystemTime {
        account::ending(&self.file("audit.log"), session).await.at
    }

    async fn stop(self) {
        let Self { server, observer, directory } = self;
        drop(observer);
        server.stop().await.expect("it stops");
        drop(directory);
    }
}

/// `lockkeeper lock` in a process of its own.
struct Lock {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

/// What has become of one.
#[derive(Debug)]
struct End {
    code: Option<i32>,
    /// What was not read before.
    stdout: String,
    stderr: String,
}

impl Lock {
    fn start(servers: &str, arguments: &[&str]) -> Self {
        Self::start_with(servers, arguments, Stdio::null())
    }

    fn start_with(servers: &str, arguments: &[&str], stdin: Stdio) -> Self {
        let mut command = Command::new(testkit::binary());
        command.args(["lock", "--server", servers]).args(arguments);
        command.env_remove("RUST_LOG").env("SHELL", "/bin/sh");
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines: Some(lines) }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// The next line that it, or its command, prints.
    async fn line(&mut self) -> String {
        let mut lines = self.lines.take().expect("given back");
        let read = spawn_blocking(move || {
            let mut line = String::new();
            lines.read_line(&mut line).expect("UTF-8");
            (line, lines)
        });
        let read = tokio::time::timeout(PATIENCE, read).await.expect("it prints a line");
        let (line, lines) = read.expect("no panic");
        self.lines = Some(lines);
        line.trim_end().to_string()
    }

    /// Waits for its end.
    async fn end(mut self) -> End {
        wait_until("it ends", async || self.child.try_wait().expect("our child").is_some()).await;
        let code = self.child.wait().expect("it has ended").code();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let mut lines = self.lines.take().expect("given back");
        let mut errors = self.child.stderr.take().expect("piped");
        let read = spawn_blocking(move || {
            lines.read_to_string(&mut stdout).expect("UTF-8");
            errors.read_to_string(&mut stderr).expect("UTF-8");
            (stdout, stderr)
        });
        let read = tokio::time::timeout(PATIENCE, read).await.expect("nobody else has the pipes");
        let (stdout, stderr) = read.expect("no panic");
        End { code, stdout, stderr }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The numbers of the processes that this one has started.
fn children_of(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let list = list.expect("it runs");
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// How many threads the process has.
fn threads_of(pid: Pid) -> usize {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    std::fs::read_dir(tasks).expect("it runs").count()
}

/// Whether the process still does anything.
fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // Its state comes after its name, which is in parentheses.
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// Waits until all of these processes are dead, and tells when that was.
async fn death_of(pids: &[Pid]) -> SystemTime {
    wait_until("the command is dead", async || !pids.iter().any(|pid| is_alive(*pid))).await;
    SystemTime::now()
}
