//! One machine: its disk, and the server that runs on it.
//!
//! *Owns* what the shell does around a founding and a replica, without sockets and with a disk that is
//! instant. *Invariant*: what was decided is on the disk before it is said.

use std::net::{IpAddr, Ipv4Addr};

use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::proto::request::{Create, CreateKind, Request};
use lockkeeper_core::proto::{Acl, ConnectRequest, RequestHeader};
use lockkeeper_core::replica::founding::{
    Brings, Chance, Decision, Founding, Identified, Introduction, Past, Port, Position, Undecided,
};
use lockkeeper_core::replica::lost_majority::LostMajority;
use lockkeeper_core::replica::new_ensemble::SortedRecords;
use lockkeeper_core::replica::peer::raft_id;
use lockkeeper_core::replica::{
    Append, ClientRequest, Entry, HardState, Input, Machine, Mark, Membership, PeerMessage, Ready,
    Replica, Restore as _, Restored, SendImage, Setup,
};
use lockkeeper_core::tree;

use super::super::rng::Rng;

/// A state that was not made by the log of the machine: the log begins behind it.
#[derive(Clone, Debug)]
pub struct Base {
    pub mark: Mark,
    pub records: SortedRecords,
}

/// What a machine keeps.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub identity: Option<Identified>,
    pub hard_state: HardState,
    pub base: Option<Base>,
    pub entries: Vec<Entry>,
    /// An operator has declared that it goes on alone from this ensemble.
    pub alone_after: Option<u128>,
    /// Data of an ensemble were set aside here.
    pub was_set_aside: bool,
}

/// A server that runs.
pub enum Process {
    /// It belongs to no ensemble yet.
    Undecided(Box<Founding>),
    /// It serves, or would.
    Running(Box<Replica>),
    /// Its server is stopped, and an operator is asked whether it goes on alone.
    Recovering(Box<LostMajority>),
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
    /// Images that it wants to be sent.
    pub images: Vec<SendImage>,
    /// An image that was sent to it, until it is installed.
    pub received: Option<Base>,
    /// Its lines and those of others name its port for clients.
    pub is_port_known: bool,
    /// Its process stands still until then, with its ports open.
    pub hangs_until_us: u64,
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
        let (images, received) = (Vec::new(), None);
        Self {
            id,
            disk,
            process: None,
            lines,
            members,
            alone_since_us: None,
            images,
            received,
            is_port_known: true,
            hangs_until_us: 0,
            conn: 0,
        }
    }

    /// Answer of its ports to another server.
    pub fn port(&self, now_us: u64) -> Port {
        let is_asked = self.is_port_known || !self.lines.is_empty();
        match &self.process {
            Some(_) if is_asked && self.hangs(now_us) => Port::Mute,
            Some(_) if self.is_port_known && self.is_serving() => {
                Port::Serves { mode: "standalone".to_owned(), version: "lockkeeper".to_owned() }
            }
            Some(_) if self.is_port_known => Port::ServesNot,
            // Its port for servers is open, if it has one.
            Some(_) if is_asked => Port::Mute,
            Some(_) | None => Port::Closed,
        }
    }

    pub fn hangs(&self, now_us: u64) -> bool {
        now_us < self.hangs_until_us
    }

    /// Starts the server with the lines that it has. Whether it begins by asking others.
    pub fn start(&mut self, rng: &mut Rng) {
        let specs = lines(&self.lines);
        self.hangs_until_us = 0;
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
                let mut founding = match self.disk.alone_after {
                    Some(before) => Founding::alone(self.id, &specs, chance, before),
                    None => Founding::reading(self.id, &specs, chance),
                };
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
        let rules = tree::Rules { skip_acl: true, ..tree::Rules::DEFAULT };
        let options = tree::Options { rules, hash_seed: rng.next(), ..tree::Options::default() };
        let mut machine = Machine::fresh(options);
        let Disk { identity, hard_state, base, entries, .. } = &self.disk;
        let mut begun_after = (0, 0);
        if let Some(Base { mark, records }) = base {
            load(&mut machine, mark, records);
            begun_after = (mark.index, mark.term);
        }
        let commit = usize::try_from(hard_state.commit - begun_after.0.min(hard_state.commit));
        let commit = commit.expect("a short log").min(entries.len());
        let (committed, tail) = entries.split_at(commit);
        for entry in committed {
            machine.entry(entry).expect("it was applied before");
        }
        let applied = committed.last().map_or(begun_after, |last| (last.index, last.term));
        let membership = match base {
            Some(base) => Some(base.mark.membership.clone()),
            None => identity.as_ref().map(|identity| identity.initial.clone()),
        };
        let restored = Restored {
            hard_state: *hard_state,
            membership: membership.unwrap_or_default(),
            image: base.as_ref().map(|base| base.mark.clone()),
            begun_after,
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
            is_declared_alone: self.disk.alone_after.is_some(),
            ..Setup::default()
        };
        // A server on its own refuses the data of an ensemble, and says so.
        self.process =
            Replica::new(setup, machine, restored).ok().map(|it| Process::Running(Box::new(it)));
    }

    /// It dies.
    pub fn stop(&mut self) {
        self.process = None;
        self.images.clear();
        self.received = None;
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
            (Some(Process::Recovering(lost)), _) => Some(Introduction::Founding(Undecided {
                brings: Brings::Position(lost.position()),
                lines: lines(&self.lines),
                ..Undecided::default()
            })),
            (Some(Process::Running(_)), Some(identity)) if !self.lines.is_empty() => {
                Some(Introduction::Founded(identity.clone()))
            }
            (_, _) => None,
        }
    }

    pub fn founding(&mut self) -> Option<&mut Founding> {
        match &mut self.process {
            Some(Process::Undecided(founding)) => Some(founding),
            Some(Process::Running(_) | Process::Recovering(_)) | None => None,
        }
    }

    /// What the server that is stopped knows of the others, while an operator is asked.
    pub fn recovering(&mut self) -> Option<&mut LostMajority> {
        match &mut self.process {
            Some(Process::Recovering(lost)) => Some(lost),
            Some(Process::Undecided(_) | Process::Running(_)) | None => None,
        }
    }

    /// How far its log goes.
    pub fn position(&self) -> Option<Position> {
        let ensemble = self.disk.identity.as_ref()?.ensemble;
        let base = self.disk.base.as_ref().map(|base| (base.mark.index, base.mark.term));
        let last = self.disk.entries.last().map(|entry| (entry.index, entry.term));
        let (index, term) = last.or(base)?;
        Some(Position { ensemble, term, index })
    }

    /// The state with all that its log has.
    pub fn whole_state(&self, rng: &mut Rng) -> Machine {
        let (mut machine, restored) = self.restore(rng);
        for entry in &restored.tail {
            machine.entry(entry).expect("a leader has proposed it");
        }
        machine
    }

    pub fn replica(&self) -> Option<&Replica> {
        match &self.process {
            Some(Process::Running(replica)) => Some(replica),
            Some(Process::Undecided(_) | Process::Recovering(_)) | None => None,
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
        let base = self.disk.base.as_ref().map_or(0, |base| base.mark.index);
        while let Some(ready) = replica.ready().expect("no broken invariant") {
            let Ready { append, send, fetch, images, members, .. } = ready;
            if let Some(append) = append {
                let number = append.number;
                write(&mut self.disk, append, &mut self.received);
                replica.persisted(number);
            }
            for fetch in fetch {
                let at =
                    |index: u64| usize::try_from(index.saturating_sub(base)).expect("a short log");
                let range = at(fetch.from - 1)..at(fetch.to).min(self.disk.entries.len());
                let entries = self.disk.entries.get(range).unwrap_or_default().to_vec();
                replica.step(Input::Fetched { fetch, entries });
            }
            self.images.extend(images);
            if let Some(members) = members {
                self.members = members.iter().map(|member| member.spec.id).collect();
            }
            out.extend(send);
        }
    }
}

/// Loads the state of an image.
pub fn load(machine: &mut Machine, mark: &Mark, records: &SortedRecords) {
    for (key, value) in records {
        machine.record(key, value).expect("it was made by a machine");
    }
    machine.finish(mark).expect("it is whole");
}

fn write(disk: &mut Disk, append: Append, received: &mut Option<Base>) {
    if let Some(mark) = append.install {
        let base = received.take().filter(|base| base.mark == mark);
        disk.base = Some(base.expect("it was received"));
        disk.entries.clear();
    }
    let base = disk.base.as_ref().map_or(0, |base| base.mark.index);
    if let Some(first) = append.entries.first() {
        let kept = usize::try_from(first.index - 1 - base).expect("a short log");
        disk.entries.truncate(kept);
        disk.entries.extend(append.entries);
    }
    if let Some(hard_state) = append.hard_state {
        disk.hard_state = hard_state;
    }
}

pub fn standalone(id: u8, rng: &mut Rng) -> Identified {
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
