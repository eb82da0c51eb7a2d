//! A machine: its disk, and the server that runs on it, before and after it belongs to an ensemble.
//!
//! *Owns* what the shell does around a founding (`server/peer/founding.rs`). Raft is left out: of a member it is only
//! known which ensemble it is a member of.

use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::replica::Membership;
use lockkeeper_core::replica::founding::{Chance, Decision, Founding, Identified, Introduction};
use lockkeeper_core::replica::peer::raft_id;

use super::lone;

/// What a directory holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    Empty,
    /// That of a server on its own that no client ever wrote to.
    Unused,
    /// That of a server on its own, with znodes.
    State,
    /// That of a member of [`FIRST`].
    Member,
}

/// The ensemble that members belong to at first.
pub const FIRST: u128 = 0xf1;

/// What a machine keeps.
#[derive(Clone, Debug, Hash)]
pub struct Disk {
    pub identity: Option<Identified>,
    /// Znodes of a server on its own that no operator has set aside.
    pub has_state: bool,
    /// Data of an ensemble were set aside here.
    pub was_set_aside: bool,
    /// Another server has joined the ensemble that this one brought its state to, and its log says so.
    pub is_joined: bool,
}

/// A server.
#[derive(Clone, Debug, Hash)]
pub enum Process {
    Down,
    /// It serves without server lines.
    Alone,
    Undecided(Box<Founding>),
    Member,
}

#[derive(Clone, Debug, Hash)]
pub struct Host {
    pub id: u8,
    /// The servers that its lines name.
    pub lines: Vec<u8>,
    pub disk: Disk,
    pub process: Process,
    /// It was started before.
    pub was_started: bool,
    pub alone_since_us: Option<u64>,
    /// It has to read its disk first: whether that has a state.
    pub reads: Option<lone::Found>,
    lives: u8,
}

fn specs(ids: &[u8]) -> Vec<ServerSpec> {
    let spec = |id: &u8| ServerSpec::parse(*id, &format!("h{id}:1:2;3")).expect("well-formed");
    ids.iter().map(spec).collect()
}

impl Host {
    pub fn new(id: u8, all: &[u8], lines: Vec<u8>, directory: Directory) -> Self {
        let alone = |own| Identified {
            ensemble: 0xa0 + u128::from(id),
            raft_id: own,
            founders: Vec::new(),
            initial: Membership { voters: vec![own], learners: Vec::new() },
            members: Vec::new(),
        };
        let own = raft_id(0, id);
        let identity = match directory {
            Directory::Empty => None,
            Directory::Unused | Directory::State => Some(alone(own)),
            Directory::Member => {
                let voters = all.iter().map(|id| raft_id(0, *id)).collect();
                let initial = Membership { voters, learners: Vec::new() };
                let (ensemble, members) = (FIRST, specs(all));
                let founders = vec![(all[0], 0xf0)];
                Some(Identified { ensemble, raft_id: own, founders, initial, members })
            }
        };
        let has_state = directory == Directory::State;
        Self {
            id,
            lines,
            disk: Disk { identity, has_state, was_set_aside: false, is_joined: false },
            process: Process::Down,
            was_started: false,
            alone_since_us: None,
            reads: None,
            lives: 0,
        }
    }

    pub fn ensemble(&self) -> Option<u128> {
        self.disk.identity.as_ref().map(|identity| identity.ensemble)
    }

    pub fn is_member(&self) -> bool {
        matches!(self.process, Process::Member)
    }

    pub fn is_standalone(&self) -> bool {
        let standalone = |identity: &Identified| {
            identity.founders.is_empty() && identity.initial.voters == [identity.raft_id]
        };
        self.disk.identity.as_ref().is_some_and(standalone)
    }

    pub fn founding(&self) -> Option<&Founding> {
        match &self.process {
            Process::Undecided(founding) => Some(founding),
            Process::Down | Process::Alone | Process::Member => None,
        }
    }

    pub fn founding_mut(&mut self) -> Option<&mut Founding> {
        match &mut self.process {
            Process::Undecided(founding) => Some(founding),
            Process::Down | Process::Alone | Process::Member => None,
        }
    }

    /// It is started with its lines.
    pub fn start(&mut self) {
        self.lives += 1;
        self.was_started = true;
        let (own, lives) = (u64::from(self.id), u64::from(self.lives));
        let chance = Chance {
            nonce: own << 8 | lives,
            ensemble: u128::from(own << 8 | lives),
            incarnation: (own << 8 | lives) as u32,
        };
        let lines = specs(&self.lines);
        let founding = match &self.disk.identity {
            None if self.disk.was_set_aside => Founding::joining(self.id, &lines, chance),
            None => Founding::new(self.id, &lines, chance),
            Some(identity) if self.is_standalone() && !self.disk.is_joined => {
                self.reads = Some(lone::read(identity, self.disk.has_state));
                Founding::reading(self.id, &lines, chance)
            }
            Some(_) => return self.belong(),
        };
        self.process = Process::Undecided(Box::new(founding));
    }

    fn belong(&mut self) {
        (self.reads, self.process) = (None, Process::Member);
    }

    /// It is started without lines, and a client writes to it at once.
    pub fn start_alone(&mut self, now_us: u64) {
        if self.disk.identity.is_none() {
            let alone = Self::new(self.id, &[], Vec::new(), Directory::State);
            self.disk.identity = alone.disk.identity;
        }
        self.disk.has_state = true;
        self.was_started = true;
        self.process = Process::Alone;
        self.alone_since_us = Some(now_us);
    }

    pub fn stop(&mut self) {
        (self.process, self.reads) = (Process::Down, None);
        self.alone_since_us = None;
    }

    /// What `--rejoin` does.
    pub fn set_aside(&mut self) {
        let is_of_ensemble = self.disk.identity.is_some() && !self.is_standalone();
        let was_set_aside = self.disk.was_set_aside || is_of_ensemble;
        self.disk = Disk { identity: None, has_state: false, was_set_aside, is_joined: false };
    }

    /// It has read its disk.
    pub fn read(&mut self) {
        let found = self.reads.take().expect("only then");
        if let lone::Found::Member = found {
            return self.belong();
        }
        let identity = self.disk.identity.clone().expect("it was on its own");
        let founding = self.founding_mut().expect("it reads");
        founding.has_read(match found {
            lone::Found::Served { znodes } => Some((identity, znodes)),
            lone::Found::Member | lone::Found::Unused => None,
        });
    }

    /// What it says of itself.
    pub fn says(&self, now_us: u64) -> Introduction {
        match &self.process {
            Process::Undecided(founding) => founding.introduction(now_us),
            Process::Down | Process::Alone | Process::Member => {
                let identity = self.disk.identity.clone();
                Introduction::Founded(identity.expect("a member has one"))
            }
        }
    }

    /// What was decided is made durable, and it takes part.
    pub fn decided(&mut self, decision: Decision) {
        if !decision.keeps_data {
            self.disk.has_state = false;
        }
        self.disk.identity = Some(decision.identity);
        self.belong();
    }

    /// What is alike of two hosts that go on alike.
    pub fn aged(&self, now_us: u64, counts_for_us: u64, may_be_told: bool) -> Self {
        let mut aged = self.clone();
        if let Process::Undecided(founding) = &mut aged.process {
            **founding = founding.aged(now_us, may_be_told);
        }
        aged.alone_since_us = self.alone_since_us.map(|at_us| (now_us - at_us).min(counts_for_us));
        aged
    }
}
