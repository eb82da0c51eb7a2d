//! `lockkeeper cli` as its users see it: processes of the real binary against a server in this one.

mod commands;
mod files;
mod once;
mod session;
mod terminal;

use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use lockkeeper::Server;
use testkit::wait_until;

/// A server whose sessions may be short.
async fn server() -> Server {
    let builder = Server::builder()
        .in_memory()
        .set("extendedTypesEnabled", "true")
        .tick_time(Duration::from_millis(100))
        .session_timeouts(Duration::from_millis(400), Duration::from_secs(60));
    builder.start().await.expect("a server")
}

/// A process of the shell.
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: Heard,
    errors: Heard,
}

/// What has become of one.
#[derive(Debug)]
struct End {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl End {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("UTF-8")
    }
}

impl Shell {
    /// With these arguments behind the servers.
    fn start(servers: &str, arguments: &[&str]) -> Self {
        let mut command = command(servers);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let input = child.stdin.take();
        let output = Heard::listen(child.stdout.take().expect("piped"));
        let errors = Heard::listen(child.stderr.take().expect("piped"));
        Self { child, input, output, errors }
    }

    /// Sends a line.
    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was not closed");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Waits until it has printed this.
    async fn prints(&self, text: &str) {
        self.output.wait_for(text).await;
    }

    /// Waits for its end, after the end of its input.
    async fn end(mut self) -> End {
        drop(self.input.take());
        wait_until("it ends", async || self.child.try_wait().expect("our child").is_some()).await;
        let code = self.child.wait().expect("it has ended").code();
        let stderr = String::from_utf8(self.errors.all()).expect("UTF-8");
        End { code, stdout: self.output.all(), stderr }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has said so far.
struct Heard {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Heard {
    fn listen(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal whose other side has gone gives an error instead of an end.
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                heard.lock().expect("no panic").extend_from_slice(&buffer[..length]);
            }
        });
        Self { bytes, thread: Some(thread) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no panic")).into_owned()
    }

    /// What was said so far is not waited for any more.
    fn forget(&self) {
        self.bytes.lock().expect("no panic").clear();
    }

    async fn wait_for(&self, text: &str) {
        wait_until(text, async || self.so_far().contains(text)).await;
    }

    /// Everything, up to the end.
    fn all(&mut self) -> Vec<u8> {
        let thread = self.thread.take().expect("asked once");
        thread.join().expect("no panic");
        std::mem::take(&mut self.bytes.lock().expect("no panic"))
    }
}

fn command(servers: &str) -> Command {
    let mut command = Command::new(testkit::binary());
    command.args(["cli", "--server", servers]).env_remove("LOCKKEEPER_SERVERS");
    command
}

/// One command.
async fn once(servers: &str, arguments: &[&str]) -> End {
    Shell::start(servers, arguments).end().await
}

/// One command that succeeds, and what it prints.
async fn answer(servers: &str, arguments: &[&str]) -> String {
    let end = once(servers, arguments).await;
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    end.text().to_string()
}

/// One command that fails: its exit code, and what it says of it.
async fn failure(servers: &str, arguments: &[&str]) -> (i32, String) {
    let end = once(servers, arguments).await;
    assert_eq!(end.text(), "", "{arguments:?}: a failure is no answer");
    (end.code.expect("no signal"), end.stderr)
}

/// These lines through a pipe.
async fn piped(servers: &str, lines: &[&str]) -> End {
    let mut shell = Shell::start(servers, &[]);
    for line in lines {
        shell.say(line);
    }
    shell.end().await
}
