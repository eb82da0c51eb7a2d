//! One server: its name, its files, and its process while it runs.
//!
//! *Owns* the directory of a server. *Invariant*: what a server wrote into its audit log before it was
//! killed is kept, start for start. *Never* knows the other servers.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::damage::Wound;
use super::disk::Disk;
use super::process::{self, Process};
use super::tracer::Tracer;
use super::{Blueprint, PORTS_PER_NODE, clock};
use crate::nemesis::Kind;

/// Lines of a server's output that are shown when it ends by itself.
const OUTPUT_LINES: usize = 5;

/// One server.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub address: SocketAddr,
    pub(super) folder: PathBuf,
    /// Of peers and of elections.
    pub(super) peer_ports: [u16; 2],
    /// Behind the process, which ends first.
    pub(super) process: Option<Process>,
    /// Has it slowed down or failed at what it does to its disk.
    pub(super) tracer: Option<Tracer>,
    /// A disk of its own, if it has one.
    pub(super) disk: Option<Disk>,
    /// The disk has no power.
    pub(super) is_dark: bool,
    /// The disk has no room.
    pub(super) is_full: bool,
    /// The disk fails, so that the server may end by itself, in good order.
    pub(super) may_end: bool,
    /// What was damaged of its data while it is down.
    pub(super) wound: Option<Wound>,
    /// How often it was started.
    pub(super) starts: usize,
}

impl Node {
    /// The server at a place; nothing runs yet.
    pub(super) fn new(
        at: usize,
        host: Ipv4Addr,
        ports: [u16; PORTS_PER_NODE],
        blueprint: &Blueprint,
    ) -> Result<Self, String> {
        let name = format!("n{}", at + 1);
        let folder = blueprint.folder.join(&name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let has_disk = blueprint.faults.kinds.iter().any(|kind| kind.needs_disks());
        let disk = if has_disk { Some(Disk::new(&folder, "disk")?) } else { None };
        let [client, peer, election] = ports;
        let node = Self {
            name,
            address: SocketAddr::from((host, client)),
            folder,
            peer_ports: [peer, election],
            process: None,
            tracer: None,
            disk,
            is_dark: false,
            is_full: false,
            may_end: false,
            wound: None,
            starts: 0,
        };
        if blueprint.faults.has(Kind::Clock) {
            clock::set(&node.clock_file(), 0)?;
        }
        Ok(node)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.folder.as_path(), Disk::path).join("data")
    }

    pub(super) fn clock_file(&self) -> PathBuf {
        self.folder.join("clock")
    }

    /// As `zoo.cfg` names it.
    pub(super) fn line(&self, id: usize, role: &str) -> String {
        let (host, [peer, election]) = (self.address.ip(), self.peer_ports);
        format!("server.{id}={host}:{peer}:{election}:{role};{}\n", self.address)
    }

    pub(super) fn start(&mut self, command: &[String]) -> Result<(), String> {
        assert!(self.process.is_none(), "a server runs once at a time");
        self.put_audit_aside()?;
        self.starts += 1;
        let output = self.folder.join("server.log");
        self.process = Some(Process::start(command, &self.folder, &output)?);
        Ok(())
    }

    pub(super) fn remove_data(&self) -> Result<(), String> {
        let data = self.data();
        match fs::remove_dir_all(&data) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("{}: {error}", data.display())),
        }
    }

    pub(super) fn audit_file(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    fn old_audit_file(&self, start: usize) -> PathBuf {
        self.folder.join(format!("audit.{start}.jsonl"))
    }

    /// A server that was killed in a line must not write on behind it.
    fn put_audit_aside(&self) -> Result<(), String> {
        let file = self.audit_file();
        if self.starts == 0 || !file.exists() {
            return Ok(());
        }
        let aside = self.old_audit_file(self.starts);
        fs::rename(&file, aside).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Its audit logs, start after start, without lines that a kill has cut short.
    pub(super) fn account(&self) -> Result<String, String> {
        let mut all = String::new();
        let old = (1..self.starts).map(|start| self.old_audit_file(start));
        for file in old.chain([self.audit_file()]).filter(|file| file.exists()) {
            let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            all.push_str(&String::from_utf8_lossy(&bytes[..whole]));
        }
        Ok(all)
    }

    pub(super) fn output(&self) -> String {
        let bytes = fs::read(self.folder.join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(OUTPUT_LINES)..].join(" | ")
    }

    pub(super) fn panic_line(&self) -> Option<String> {
        process::panic_in(&self.output()).map(str::to_owned)
    }
}
