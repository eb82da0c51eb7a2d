//! The servers that are compared: how each is started, asked whether it serves, killed, removed.
//!
//! A peer is a child process on a loopback port with a directory of its own, or an ensemble of such;
//! dropping it kills its processes by their ids, waits for them, and removes the directories.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::bench::{Fault, PATIENCE, Session};

use crate::machine;

/// A server that does not serve after this long has failed.
const START_MAX: Duration = Duration::from_secs(120);
/// How long one attempt to read from a starting server may take. ZooKeeper 3.9 never answers a
/// connection it accepted before its tree was loaded, so an attempt must be given up.
const ATTEMPT_MAX: Duration = Duration::from_millis(100);
/// Pause between attempts that were refused at once.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(2);
/// Ports that each server of a peer takes: for clients, for its peers, for elections.
pub const PORTS_PER_SERVER: u16 = 3;
/// Lines of a server's output that are shown when it fails.
const OUTPUT_LINES: usize = 20;

/// What runs as a peer.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Apache ZooKeeper from a directory of jars, with a heap such as `2g`.
    ZooKeeper { jars: PathBuf, heap: String },
    /// A lockkeeper binary.
    Lockkeeper { binary: PathBuf },
    /// The null server of this program, with or without its log.
    Null { log: bool },
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::ZooKeeper { .. } => "zookeeper",
            Kind::Lockkeeper { .. } => "lockkeeper",
            Kind::Null { log: true } => "null",
            Kind::Null { log: false } => "null-no-log",
        }
    }

    /// What exactly is run, for the report.
    pub fn describe(&self) -> String {
        match self {
            Kind::ZooKeeper { jars, heap } => {
                format!("Apache ZooKeeper {}, G1, heap {heap}", zookeeper_version(jars))
            }
            Kind::Lockkeeper { binary } => binary_version(binary),
            Kind::Null { log: true } => "null server, one fdatasync per turn".into(),
            Kind::Null { log: false } => "null server without a log".into(),
        }
    }
}

pub struct Peer {
    pub kind: Kind,
    /// Holds a directory for each member.
    dir: PathBuf,
    members: Vec<Member>,
}

/// One server of a peer.
struct Member {
    addr: SocketAddr,
    dir: PathBuf,
    process: Option<Child>,
}

impl Peer {
    /// Prepares a peer of so many servers on ports of this machine, `port` and the ones after it,
    /// with its files in a new directory below `data`.
    pub fn new(kind: Kind, servers: u16, port: u16, data: &Path) -> Result<Self, String> {
        let dir = data.join(format!("{}-{}-{port}", kind.name(), std::process::id()));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut peer = Peer { kind, dir, members: Vec::new() };
        let mut ensemble = String::new();
        for server in 0..if servers > 1 { servers } else { 0 } {
            let first = port + servers + 2 * server;
            ensemble += &format!("server.{}=127.0.0.1:{first}:{}\n", server + 1, first + 1);
        }
        if servers > 1 {
            ensemble += "initLimit=10\nsyncLimit=5\n";
        }
        for server in 0..servers {
            peer.members.push(Member::new(&peer.dir, server, port + server, &ensemble)?);
        }
        Ok(peer)
    }

    /// Starts the processes and waits until a read of `path` is answered with data by each. Returns
    /// the time from just before the first exec until then.
    pub fn start(&mut self, path: &str) -> Result<Duration, String> {
        let began = Instant::now();
        for at in 0..self.members.len() {
            assert!(self.members[at].process.is_none(), "a peer runs once at a time");
            let command = self.command(&self.members[at])?;
            self.members[at].spawn(command).map_err(|e| self.failure(&e))?;
        }
        let mut took = Duration::ZERO;
        for at in 0..self.members.len() {
            let serves = self.members[at].wait_until_serving(path, began);
            took = took.max(serves.map_err(|e| self.failure(&e))?);
        }
        Ok(took)
    }

    /// Ends the processes with SIGKILL, as a crash would, and waits until they are gone.
    pub fn kill(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.process.take() {
                // Fails only if the process has ended by itself, and then wait() still reaps it.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().flat_map(|member| &member.process).map(Child::id).collect()
    }

    /// Where clients find its servers.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.addr).collect()
    }

    pub fn disk_mib(&self) -> f64 {
        machine::disk_mib(&self.dir)
    }

    /// Adds what the servers last said to an error.
    pub fn failure(&self, what: &str) -> String {
        let mut text = format!("{} {what}", self.kind.name());
        for member in &self.members {
            let output = fs::read_to_string(member.dir.join("output")).unwrap_or_default();
            let lines: Vec<&str> = output.lines().collect();
            let tail = &lines[lines.len().saturating_sub(OUTPUT_LINES)..];
            if !tail.is_empty() {
                text +=
                    &format!("; the output of {} ends in\n  {}", member.addr, tail.join("\n  "));
            }
        }
        text
    }

    fn command(&self, member: &Member) -> Result<Command, String> {
        let config = member.dir.join("zoo.cfg");
        let command = match &self.kind {
            Kind::ZooKeeper { jars, heap } => {
                let jars = jars.canonicalize().map_err(|e| format!("{}: {e}", jars.display()))?;
                let mut command = Command::new("java");
                command
                    .args(["-XX:+UseG1GC", &format!("-Xms{heap}"), &format!("-Xmx{heap}")])
                    .arg("-cp")
                    .arg(jars.join("*"))
                    .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                    .arg(config);
                command
            }
            Kind::Lockkeeper { binary } => {
                let binary =
                    binary.canonicalize().map_err(|e| format!("{}: {e}", binary.display()))?;
                let mut command = Command::new(binary);
                command.arg("server").arg(config);
                command
            }
            Kind::Null { log } => {
                let this = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
                let mut command = Command::new(this);
                command.arg("null").arg("--port").arg(member.addr.port().to_string());
                if *log {
                    command.arg("--log").arg(member.dir.join("data").join("log"));
                } else {
                    command.arg("--no-log");
                }
                command
            }
        };
        Ok(command)
    }
}

impl Member {
    /// Prepares server number `server`, counted from 0, with `ensemble` in its configuration.
    fn new(below: &Path, server: u16, port: u16, ensemble: &str) -> Result<Self, String> {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpListener::bind(addr).map_err(|e| format!("{addr} is not free: {e}"))?;
        let dir = below.join((server + 1).to_string());
        let data = dir.join("data");
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
        if !ensemble.is_empty() {
            write(data.join("myid"), &format!("{}\n", server + 1))?;
        }
        let config = format!(
            "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=srvr,mntr\n{ensemble}",
            data.display(),
            addr.ip(),
        );
        write(dir.join("zoo.cfg"), &config)?;
        Ok(Member { addr, dir, process: None })
    }

    fn spawn(&mut self, mut command: Command) -> Result<(), String> {
        let output = self.dir.join("output");
        let log = File::create(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let errors = log.try_clone().map_err(|e| format!("{}: {e}", output.display()))?;
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(log).stderr(errors);
        self.process = Some(command.spawn().map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Returns the time from `began` until it served.
    fn wait_until_serving(&mut self, path: &str, began: Instant) -> Result<Duration, String> {
        let text = |fault: Fault| fault.to_string();
        loop {
            match Session::open(self.addr, ATTEMPT_MAX).and_then(|mut s| {
                s.read(path)?;
                Ok(s)
            }) {
                Ok(mut session) => {
                    let took = began.elapsed();
                    session.set_patience(PATIENCE).map_err(text)?;
                    session.close().map_err(text)?;
                    return Ok(took);
                }
                Err(reason) if began.elapsed() > START_MAX => {
                    return Err(format!("does not serve: {reason}"));
                }
                Err(_) => {}
            }
            let child = self.process.as_mut().expect("was just started");
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("ended: {status}"));
            }
            std::thread::sleep(ATTEMPT_PAUSE);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            eprintln!("{} is left behind: {e}", self.dir.display());
        }
    }
}

/// The version in the name of the server's jar.
fn zookeeper_version(jars: &Path) -> String {
    let names = fs::read_dir(jars).into_iter().flatten().flatten();
    names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
        })
        .next()
        .unwrap_or_else(|| "of unknown version".into())
}

fn binary_version(binary: &Path) -> String {
    let output = Command::new(binary).arg("--version").stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(_) | Err(_) => binary.display().to_string(),
    }
}
