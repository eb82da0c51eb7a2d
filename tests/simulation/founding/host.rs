//! One machine: its disk, and the server that runs on it.
//!
//! *Owns* what the shell does around a founding and a replica, without sockets and with a disk that is
//! instant. *Invariant*: what was decided is on the disk before it is said.

use std::net::{IpAddr, Ipv4Addr};

use lockkeeper::internals::config::{Role, ServerSpec};
use lockkeeper::internals::proto::request::{Create, CreateKind, Request};
use lockkeeper::internals::proto::{Acl, ConnectRequest, RequestHeader};
use lockkeeper::internals::replica::founding::{
    Chance, Decision, Founding, Identified, Introduction, Past,
};
use lockkeeper::internals::replica::peer::raft_id;
use lockkeeper::internals::replica::{
    Append, ClientRequest, Entry, HardState, Input, Machine, Membership, PeerMessage, Ready,
    Replica, Restore as _, Restored, Setup,
};
use lockkeeper::internals::tree;

use super::super::rng::Rng;

/// What a machine keeps.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub identity: Option<Identified>,
    pub hard_state: HardState,
    pub entries: Vec<Entry>,
    /// Data of an ensemble were set aside here.
    pub was_set_aside: bool,
}

/// A server that runs.
pub enum Process {
    /// It belongs to no ensemble yet.
    Undecided(Box<Founding>),
    /// It serves, or would.
    Running(Box<Replica>),
}

/// A machine.
pub struct Host {
    pub id: u8,
    pub disk: Disk,
    pub process: Option<Process>,
    /// The participants that its lines name; none if it is to be on its own.
    pub lines: Vec<u8>,
    /// The servers that it follows.
    pub members: Vec<u8>,
    /// Since when it has served without lines.
    pub alone_since_us: Option<u64>,
    conn: u64,
}

/// The server lines of these participants.
pub fn lines(ids: &[u8]) -> Vec<ServerSpec> {
    let spec = |id: &u8| {
        ServerSpec::parse(*id, &format!("10.1.0.{id}:1:2;2181")).expect("it is well-formed")
    };
    ids.iter().map(spec).collect()
}

/// The znode that a server on its own keeps.
pub fn kept_by(id: u8) -> String {
    format!("/kept-by-{id}")
}

impl Host {
    pub fn new(id: u8) -> Self {
        let (lines, members) = (Vec::new(), Vec::new());
        let disk = Disk::default();
        Self { id, disk, process: None, lines, members, alone_since_us: None, conn: 0 }
    }

    /// Starts the server with the lines that it has. Whether it begins by asking others.
    pub fn start(&mut self, rng: &mut Rng) {
        let specs = lines(&self.lines);
        self.members.clone_from(&self.lines);
        if specs.is_empty() {
            let identity = standalone(self.id, rng);
            self.disk.identity.get_or_insert(identity);
            return self.run(rng);
        }
        let chance = Chance {
            nonce: rng.next() | 1,
            ensemble: u128::from(rng.next()) | 1,
            incarnation: (rng.next() as u32).max(1),
        };
        let founding = match &self.disk.identity {
            None if self.disk.was_set_aside => Founding::joining(self.id, &specs, chance),
            None => Founding::new(self.id, &specs, chance),
            Some(identity) if is_standalone(identity) => {
                let (machine, restored) = self.restore(rng);
                let past = Past::of(identity.raft_id, &machine, &restored);
                let mut founding = Founding::reading(self.id, &specs, chance);
                match past {
                    Past::Member => return self.run(rng),
                    Past::Served { znodes } => {
                        founding.has_read(Some((identity.clone(), znodes)));
                    }
                    Past::Unused => founding.has_read(None),
                }
                founding
            }
            Some(_) => return self.run(rng),
        };
        self.process = Some(Process::Undecided(Box::new(founding)));
    }

    /// What was decided is made durable, and it begins to take part.
    pub fn decided(&mut self, decision: Decision, rng: &mut Rng) {
        if !decision.keeps_data {
            self.disk = Disk { was_set_aside: self.disk.was_set_aside, ..Disk::default() };
        }
        self.disk.identity = Some(decision.identity);
        self.run(rng);
    }

    fn restore(&self, rng: &mut Rng) -> (Machine, Restored) {
        let options =
            tree::Options { skip_acl: true, hash_seed: rng.next(), ..tree::Options::default() };
        let mut machine = Machine::fresh(options);
        let Disk { identity, hard_state, entries, .. } = &self.disk;
        let commit = usize::try_from(hard_state.commit).expect("a short log").min(entries.len());
        let (committed, tail) = entries.split_at(commit);
        for entry in committed {
            machine.entry(entry).expect("it was applied before");
        }
        let applied = committed.last().map_or((0, 0), |last| (last.index, last.term));
        let membership = identity.as_ref().map(|identity| identity.initial.clone());
        let restored = Restored {
            hard_state: *hard_state,
            membership: membership.unwrap_or_default(),
            image: None,
            begun_after: (0, 0),
            applied: applied.0,
            applied_term: applied.1,
            tail: tail.to_vec(),
        };
        (machine, restored)
    }

    fn run(&mut self, rng: &mut Rng) {
        let (machine, restored) = self.restore(rng);
        let identity = self.disk.identity.as_ref().expect("it has decided");
        let specs = match &identity.members {
            members if members.is_empty() => lines(&self.lines),
            members => members.clone(),
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&rng.next().to_le_bytes());
        let setup = Setup {
            raft_id: identity.raft_id,
            server_id: self.id,
            seed,
            ensemble: (!self.lines.is_empty()).then_some(specs),
            ..Setup::default()
        };
        // A server on its own refuses the data of an ensemble, and says so.
        self.process =
            Replica::new(setup, machine, restored).ok().map(|it| Process::Running(Box::new(it)));
    }

    /// It dies.
    pub fn stop(&mut self) {
        self.process = None;
        self.alone_since_us = None;
    }

    /// What `--rejoin` does.
    pub fn set_aside(&mut self) {
        let is_of_ensemble = |identity: &Identified| !is_standalone(identity);
        let was_set_aside =
            self.disk.was_set_aside || self.disk.identity.as_ref().is_some_and(is_of_ensemble);
        self.disk = Disk { was_set_aside, ..Disk::default() };
    }

    /// What it says of itself to another server.
    pub fn introduction(&self, now_us: u64) -> Option<Introduction> {
        match (&self.process, &self.disk.identity) {
            (Some(Process::Undecided(founding)), _) => Some(founding.introduction(now_us)),
            (Some(Process::Running(_)), Some(identity)) if !self.lines.is_empty() => {
                Some(Introduction::Founded(identity.clone()))
            }
            (_, _) => None,
        }
    }

    pub fn founding(&mut self) -> Option<&mut Founding> {
        match &mut self.process {
            Some(Process::Undecided(founding)) => Some(founding),
            Some(Process::Running(_)) | None => None,
        }
    }

    pub fn replica(&self) -> Option<&Replica> {
        match &self.process {
            Some(Process::Running(replica)) => Some(replica),
            Some(Process::Undecided(_)) | None => None,
        }
    }

    pub fn is_serving(&self) -> bool {
        self.replica().is_some_and(Replica::is_serving)
    }

    pub fn has(&self, path: &str) -> bool {
        self.replica()
            .is_some_and(|replica| replica.machine().tree().stat_unchecked(path).is_some())
    }

    /// The ensemble that it is in, with lines or without.
    pub fn ensemble(&self) -> Option<u128> {
        Some(self.disk.identity.as_ref()?.ensemble)
    }

    pub fn step(&mut self, input: Input) {
        if let Some(Process::Running(replica)) = &mut self.process {
            replica.step(input);
        }
    }

    /// A new client creates a znode.
    pub fn create(&mut self, path: &str) {
        self.conn += 1;
        let conn = self.conn;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 40_000,
            session_id: 0,
            password: bytes::Bytes::new(),
            read_only: None,
        };
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.step(Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request });
        let mut out = Vec::new();
        self.turn(&mut out);
        let request = Request::Create(Create {
            path: path.into(),
            data: Some(bytes::Bytes::new()),
            acl: Some(vec![Acl::open()]),
            flags: 0,
            ttl_ms: 0,
            kind: CreateKind::Create,
        });
        let mut payload = Vec::new();
        RequestHeader { xid: 1, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        let request = ClientRequest::decode(payload.into()).expect("it has a header");
        self.step(Input::Requests { conn, requests: vec![request] });
        self.turn(&mut out);
    }

    /// Does what the replica wants: what it has for others goes to `out`.
    pub fn turn(&mut self, out: &mut Vec<(u64, PeerMessage)>) {
        let Some(Process::Running(replica)) = &mut self.process else { return };
        while let Some(ready) = replica.ready().expect("no broken invariant") {
            let Ready { append, send, fetch, images, members, .. } = ready;
            if let Some(append) = append {
                let number = append.number;
                write(&mut self.disk, append);
                replica.persisted(number);
            }
            for fetch in fetch {
                let range = usize::try_from(fetch.from - 1).unwrap_or(usize::MAX)
                    ..usize::try_from(fetch.to).unwrap_or(usize::MAX).min(self.disk.entries.len());
                let entries = self.disk.entries.get(range).unwrap_or_default().to_vec();
                replica.step(Input::Fetched { fetch, entries });
            }
            for image in images {
                replica.step(Input::ImageSent { to: image.to, ok: false });
            }
            if let Some(members) = members {
                self.members = members.iter().map(|member| member.spec.id).collect();
            }
            out.extend(send);
        }
    }
}

fn write(disk: &mut Disk, append: Append) {
    assert!(append.install.is_none(), "there are no images here");
    if let Some(first) = append.entries.first() {
        let kept = usize::try_from(first.index - 1).expect("a short log");
        disk.entries.truncate(kept);
        disk.entries.extend(append.entries);
    }
    if let Some(hard_state) = append.hard_state {
        disk.hard_state = hard_state;
    }
}

fn standalone(id: u8, rng: &mut Rng) -> Identified {
    let raft_id = raft_id(0, id);
    Identified {
        ensemble: u128::from(rng.next()) << 64 | 1,
        raft_id,
        founders: Vec::new(),
        initial: Membership { voters: vec![raft_id], learners: Vec::new() },
        members: Vec::new(),
    }
}

/// Whether this is a server on its own, as far as its identity says.
pub fn is_standalone(identity: &Identified) -> bool {
    identity.founders.is_empty() && identity.initial.voters == [identity.raft_id]
}

/// The participants among these lines.
pub fn participants(specs: &[ServerSpec]) -> Vec<u8> {
    specs.iter().filter(|spec| spec.role == Role::Participant).map(|spec| spec.id).collect()
}
