//! The servers that are compared: how each is started, asked whether it serves, killed, removed.
//!
//! A peer is a child process on a loopback port with a directory of its own; dropping it kills that
//! process by its id, waits for it, and removes the directory.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::proc;
use crate::session::{self, Session};

/// A server that does not serve after this long has failed.
const START_MAX: Duration = Duration::from_secs(120);
/// How long one attempt to read from a starting server may take. ZooKeeper 3.9 never answers a
/// connection it accepted before its tree was loaded, so an attempt must be given up.
const ATTEMPT_MAX: Duration = Duration::from_millis(100);
/// Pause between attempts that were refused at once.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(2);
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
    pub addr: SocketAddr,
    dir: PathBuf,
    process: Option<Child>,
}

impl Peer {
    /// Prepares a peer on a port of this machine, with its files in a new directory below `data`.
    pub fn new(kind: Kind, port: u16, data: &Path) -> Result<Self, String> {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpListener::bind(addr).map_err(|e| format!("{addr} is not free: {e}"))?;
        let dir = data.join(format!("{}-{}-{port}", kind.name(), std::process::id()));
        fs::create_dir_all(dir.join("data")).map_err(|e| format!("{}: {e}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        let peer = Peer { kind, addr, dir, process: None };
        let config = format!(
            "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n",
            peer.data_dir().display(),
            addr.ip(),
        );
        let path = peer.dir.join("zoo.cfg");
        fs::write(&path, config).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(peer)
    }

    /// Starts the process and waits until a read of `path` is answered with data. Returns the time
    /// from just before exec until then.
    pub fn start(&mut self, path: &str) -> Result<Duration, String> {
        assert!(self.process.is_none(), "a peer runs once at a time");
        let output = self.dir.join("output");
        let log = File::create(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let errors = log.try_clone().map_err(|e| format!("{}: {e}", output.display()))?;
        let mut command = self.command()?;
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(log).stderr(errors);
        let began = Instant::now();
        let child = command.spawn().map_err(|e| format!("{}: {e}", self.kind.name()))?;
        self.process = Some(child);
        loop {
            match Session::open(self.addr, ATTEMPT_MAX).and_then(|mut s| {
                s.read(path)?;
                Ok(s)
            }) {
                Ok(mut session) => {
                    let took = began.elapsed();
                    session.set_patience(session::PATIENCE)?;
                    session.close()?;
                    return Ok(took);
                }
                Err(reason) if began.elapsed() > START_MAX => {
                    return Err(self.failure(&format!("does not serve: {reason}")));
                }
                Err(_) => {}
            }
            let child = self.process.as_mut().expect("was just started");
            if let Ok(Some(status)) = child.try_wait() {
                return Err(self.failure(&format!("ended: {status}")));
            }
            std::thread::sleep(ATTEMPT_PAUSE);
        }
    }

    /// Ends the process with SIGKILL, as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            // Fails only if the process has ended by itself, and then wait() still reaps it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn pids(&self) -> Vec<u32> {
        self.process.iter().map(Child::id).collect()
    }

    pub fn disk_mib(&self) -> f64 {
        proc::disk_mib(&self.dir)
    }

    /// Adds what the server last said to an error.
    pub fn failure(&self, what: &str) -> String {
        let output = fs::read_to_string(self.dir.join("output")).unwrap_or_default();
        let lines: Vec<&str> = output.lines().collect();
        let tail = lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n  ");
        if lines.is_empty() {
            return format!("{} {what}", self.kind.name());
        }
        format!("{} {what}; its output ends in\n  {tail}", self.kind.name())
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn command(&self) -> Result<Command, String> {
        let config = self.dir.join("zoo.cfg");
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
                command.arg("null").arg("--port").arg(self.addr.port().to_string());
                if *log {
                    command.arg("--log").arg(self.data_dir().join("log"));
                } else {
                    command.arg("--no-log");
                }
                command
            }
        };
        Ok(command)
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
