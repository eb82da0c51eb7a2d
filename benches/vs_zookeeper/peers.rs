//! The servers that are compared: how each is started, asked whether it serves, killed, removed.
//!
//! A peer is a child process on a loopback port with a directory of its own, or an ensemble of such;
//! dropping it kills its processes by their ids, waits for them, and removes the directories.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::internals::bench::{Fault, PATIENCE, Session};

use crate::figures::DiskUse;
use crate::kinds::{Kind, Place};
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

pub struct Peer {
    pub kind: Kind,
    /// Holds a directory for each member.
    dir: PathBuf,
    members: Vec<Member>,
}

/// One server of a peer.
struct Member {
    place: Place,
    process: Option<Child>,
}

impl Peer {
    /// Prepares a peer of as many servers as the kind has if `servers` are asked for, on ports of this
    /// machine, `port` and the ones after it, with its files in a new directory below `data`.
    pub fn new(kind: Kind, servers: u16, port: u16, data: &Path) -> Result<Self, String> {
        let dir = data.join(format!("{}-{}-{port}", kind.name(), std::process::id()));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut peer = Peer { kind, dir, members: Vec::new() };
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let servers = peer.kind.servers(servers);
        for server in 0..servers {
            let dir = peer.dir.join((server + 1).to_string());
            fs::create_dir_all(dir.join("data")).map_err(|e| format!("{}: {e}", dir.display()))?;
            let first = port + servers + 2 * server;
            let addr = local(port + server);
            TcpListener::bind(addr).map_err(|e| format!("{addr} is not free: {e}"))?;
            let place = Place { addr, peers: [local(first), local(first + 1)], dir };
            peer.members.push(Member { place, process: None });
        }
        Ok(peer)
    }

    /// Starts the processes and waits until a read of `path` is answered with data by each. Returns
    /// the time from just before the first exec until then.
    pub fn start(&mut self, path: &str) -> Result<Duration, String> {
        let began = Instant::now();
        let places: Vec<Place> = self.members.iter().map(|m| m.place.clone()).collect();
        for at in 0..self.members.len() {
            assert!(self.members[at].process.is_none(), "a peer runs once at a time");
            let command = self.kind.command(&places, at)?;
            self.members[at].spawn(command).map_err(|e| self.failure(&e))?;
        }
        let mut took = Duration::ZERO;
        for at in 0..self.members.len() {
            let serves = self.members[at].wait_until_serving(&self.kind, path, began);
            took = took.max(serves.map_err(|e| self.failure(&e))?);
        }
        Ok(took)
    }

    /// Ends the processes with SIGKILL, as a crash would, and waits until they are gone.
    pub fn kill(&mut self) {
        for member in &mut self.members {
            member.kill();
        }
    }

    /// The same of one of them.
    pub fn kill_one(&mut self, at: usize) {
        self.members[at].kill();
    }

    /// Starts that one again and waits until it serves.
    pub fn start_one(&mut self, at: usize) -> Result<Duration, String> {
        let began = Instant::now();
        let places: Vec<Place> = self.members.iter().map(|m| m.place.clone()).collect();
        let command = self.kind.command(&places, at)?;
        let member = &mut self.members[at];
        member.spawn(command)?;
        member.wait_until_serving(&self.kind, "/", began)
    }

    /// Which of them leads an ensemble.
    pub fn leader(&self) -> Result<usize, String> {
        let leads = |member: &Member| mode(member.place.addr).is_ok_and(|mode| mode == "leader");
        self.members.iter().position(leads).ok_or_else(|| "no server leads".to_owned())
    }

    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().flat_map(|member| &member.process).map(Child::id).collect()
    }

    /// Where clients find its servers.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.place.addr).collect()
    }

    pub fn disk_mib(&self) -> f64 {
        machine::disk_use(&self.dir, |_| true).mib
    }

    /// What its logs take; every kind names these so.
    pub fn logs(&self) -> DiskUse {
        machine::disk_use(&self.dir, |name| name.ends_with(".log") || name.starts_with("log."))
    }

    /// The same of images, which ZooKeeper calls snapshots.
    pub fn images(&self) -> DiskUse {
        let is = |name: &str| name.ends_with(".image") || name.starts_with("snapshot.");
        machine::disk_use(&self.dir, is)
    }

    /// Adds what the servers last said to an error.
    pub fn failure(&self, what: &str) -> String {
        let mut text = format!("{} {what}", self.kind.name());
        for member in &self.members {
            let output = fs::read_to_string(member.place.dir.join("output")).unwrap_or_default();
            let lines: Vec<&str> = output.lines().collect();
            let tail = &lines[lines.len().saturating_sub(OUTPUT_LINES)..];
            if !tail.is_empty() {
                text += &format!(
                    "; the output of {} ends in\n  {}",
                    member.place.addr,
                    tail.join("\n  ")
                );
            }
        }
        text
    }
}

/// What a server says that it is: `leader`, `follower`, `standalone`.
fn mode(addr: SocketAddr) -> Result<String, String> {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"srvr")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    let text = ask().map_err(|e| format!("{addr}: {e}"))?;
    let mode = text.lines().find_map(|line| line.strip_prefix("Mode: "));
    mode.map(str::to_owned).ok_or_else(|| format!("{addr} does not say what it is: {text}"))
}

impl Member {
    fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            // Fails only if the process has ended by itself, and then wait() still reaps it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn spawn(&mut self, mut command: Command) -> Result<(), String> {
        let output = self.place.dir.join("output");
        let log = File::create(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let errors = log.try_clone().map_err(|e| format!("{}: {e}", output.display()))?;
        command.current_dir(&self.place.dir).stdin(Stdio::null()).stdout(log).stderr(errors);
        self.process = Some(command.spawn().map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Returns the time from `began` until it served.
    fn wait_until_serving(
        &mut self,
        kind: &Kind,
        path: &str,
        began: Instant,
    ) -> Result<Duration, String> {
        loop {
            match kind.ask(self.place.addr, path, ATTEMPT_MAX) {
                Ok(session) => {
                    let took = began.elapsed();
                    let close = |mut session: Session| {
                        session.set_patience(PATIENCE)?;
                        session.close()
                    };
                    session.map_or(Ok(()), close).map_err(|fault: Fault| fault.to_string())?;
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
