//! Where the mistakes are made: a directory, a server that runs without any, and ensembles without a majority and
//! with one that must not become smaller.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use testkit::authority::Authority;
use testkit::ports::port;

/// One mistake.
pub struct Row {
    /// What was done.
    pub mistake: &'static str,
    /// The command with it; `None`: not on this machine.
    pub make: fn(&Place) -> Option<Command>,
    /// What is said of the cause.
    pub cause: &'static str,
    /// What is said of the cure.
    pub cure: &'static str,
    pub end: End,
}

/// What becomes of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ends with this exit code.
    With(i32),
    /// It runs: the mistake does not keep it from its work.
    GoesOn,
}

/// Longest time that a process may take to say something.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one that goes on is looked at afterwards.
const GOES_ON: Duration = Duration::from_millis(200);
/// A user without rights.
const STRANGER: u32 = 65534;

pub struct Place {
    directory: TempDir,
    /// Of the server that runs.
    pub clients: String,
    pub admin: String,
    /// One of three, whose two others do not run: it has no leader.
    pub leaderless: String,
    /// One of three, two of which run.
    pub two_of_three: String,
    /// Of a server that speaks TLS.
    pub secure: String,
    /// A port that takes connections and says nothing.
    pub silent: SocketAddr,
    _silence: TcpListener,
    servers: Vec<Child>,
    pub authority: Authority,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("our own");
        let silence = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut place = Self {
            directory,
            clients: String::new(),
            admin: String::new(),
            leaderless: String::new(),
            two_of_three: String::new(),
            secure: String::new(),
            silent: silence.local_addr().expect("bound"),
            _silence: silence,
            servers: Vec::new(),
            authority: Authority::new("an authority"),
        };
        let [connect, admin] =
            place.start(&["--in-memory", "--port", "0", "--admin-addr", "127.0.0.1:0"]);
        place.clients = connect;
        place.admin = admin_of(&admin);
        place.data_dir("alone", "1");
        let config =
            place.config("alone.cfg", &["dataDir=alone", "admin.enableServer=false", &three()]);
        let [connect, _] = place.start(&[&config]);
        place.leaderless = connect;
        let lines = three();
        let mut admins = Vec::new();
        for id in ["1", "2"] {
            let directory = format!("of-three-{id}");
            place.data_dir(&directory, id);
            let config = place.config(
                &format!("{directory}.cfg"),
                &[
                    &format!("dataDir={directory}"),
                    "admin.serverAddress=127.0.0.1",
                    "admin.serverPort=0",
                    "reconfigEnabled=true",
                    "skipACL=yes",
                    &lines,
                ],
            );
            let [connect, admin] = place.start(&[&config]);
            place.two_of_three = connect;
            admins.push(admin_of(&admin));
        }
        place.found_without("3", &admins[0]);
        place.file("server.pem", &place.authority.issue("localhost").pem());
        place.file("ca.pem", &place.authority.pem());
        let secure = format!("127.0.0.1:{}", port());
        let config = place.config(
            "secure.cfg",
            &[
                "dataDir=secure",
                "admin.enableServer=false",
                &format!("secureClientPort={}", secure.rsplit(':').next().expect("a port")),
                "ssl.keyStore.location=server.pem",
                "ssl.trustStore.location=ca.pem",
                "ssl.clientAuth=none",
            ],
        );
        place.start(&[&config]);
        place.secure = secure;
        place
    }

    /// An operator has a server that waits found its ensemble without another one.
    fn found_without(&self, missing: &str, admin: &str) {
        let arguments = ["member", "bootstrap", "--without", missing, "--admin", admin];
        let mut said = String::new();
        for _ in 0..SAID_MAX {
            let done = self.lockkeeper(&arguments).output().expect("the binary runs");
            if done.status.success() {
                return;
            }
            said = String::from_utf8_lossy(&done.stderr).into_owned();
            // It has begun to listen only now.
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("no ensemble is founded without server {missing}: {said}");
    }

    /// Starts a server that is there for the others: where it serves clients, and operators.
    fn start(&mut self, arguments: &[&str]) -> [String; 2] {
        let mut command = self.lockkeeper(&["server"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        self.servers.push(child);
        let lines: Vec<String> = lines.map(|line| line.expect("UTF-8")).take(6).collect();
        ["connect", "admin"].map(|name| {
            let line = lines.iter().find_map(|line| line.strip_prefix(name));
            line.expect("the first screen").trim().to_owned()
        })
    }

    /// The binary, in the directory.
    pub fn lockkeeper(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(testkit::binary());
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        for variable in ["RUST_LOG", "LOCKKEEPER_SERVERS", "LOCKKEEPER_ADMIN"] {
            command.env_remove(variable);
        }
        command
    }

    /// A server with this configuration.
    pub fn server(&self, lines: &[&str]) -> Option<Command> {
        let config = self.config("zoo.cfg", lines);
        Some(self.lockkeeper(&["server", &config]))
    }

    /// A command that is a client.
    pub fn client(&self, arguments: &[&str]) -> Option<Command> {
        Some(self.lockkeeper(arguments))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("our directory");
    }

    /// A file with these lines, whose clients are at any port.
    pub fn config(&self, name: &str, lines: &[&str]) -> String {
        self.file(name, &format!("clientPort=0\n{}\n", lines.join("\n")));
        name.to_owned()
    }

    /// A data directory that has nothing but this file `myid`.
    pub fn data_dir(&self, name: &str, myid: &str) {
        // Of an earlier row, if it is there.
        let _ = fs::remove_dir_all(self.path(name));
        fs::create_dir_all(self.path(name)).expect("our directory");
        self.file(&format!("{name}/myid"), myid);
    }

    /// The same command as a user without rights; `None`: only root can do that.
    pub fn as_stranger(&self, mut command: Command) -> Option<Command> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        command.uid(STRANGER).gid(STRANGER);
        let mut probe = Command::new(testkit::binary());
        probe.arg("--version").uid(STRANGER).gid(STRANGER).stdout(Stdio::null());
        // The binary may be where others cannot go.
        probe.status().is_ok_and(|status| status.success()).then_some(command)
    }

    /// What it says, and its exit code; `None` if it goes on.
    pub fn run(&self, mut command: Command, words: &[&str], end: End) -> (String, Option<i32>) {
        let path = self.path("said");
        let out = File::create(&path).expect("our directory");
        command.stdout(out.try_clone().expect("a file")).stderr(out);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return (format!("it cannot be run: {error}"), None),
        };
        let begun = Instant::now();
        let said = || String::from_utf8_lossy(&fs::read(&path).expect("our file")).into_owned();
        let is_said = || words.iter().all(|word| said().contains(word));
        let code = loop {
            if let Some(status) = child.try_wait().expect("our child") {
                break status.code();
            }
            if begun.elapsed() > PATIENCE || (end == End::GoesOn && is_said()) {
                sleep(GOES_ON);
                let code = child.try_wait().expect("our child").and_then(|status| status.code());
                // What has ended already cannot be killed.
                let _ = child.kill();
                child.wait().expect("our child");
                break code;
            }
            sleep(Duration::from_millis(10));
        };
        (said(), code)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // One that has ended is no matter here.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Most words of an operator that are not taken.
const SAID_MAX: u32 = 300;

/// The HTTP port of a server, by the line that it shows.
fn admin_of(page: &str) -> String {
    page.trim_start_matches("http://").trim_end_matches("/commands").to_owned()
}

/// Server lines of three.
pub fn three() -> String {
    let line = |id| format!("server.{id}=127.0.0.1:{}:{}\n", port(), port());
    (1..=3).map(line).collect()
}
