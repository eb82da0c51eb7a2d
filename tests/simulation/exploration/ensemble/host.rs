//! A machine: what is on its disk, and the replica that runs on it, as the product has it.
//!
//! *Owns* what the driver, the log thread and recovery do in the real server. *Invariants*: an append is durable at
//! once, unless a step holds the disk back; a process that ends loses what was not durable. *Never* draws a number:
//! the seed of a process is made of its server and its life.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::proto::Text;
use lockkeeper_core::replica::durable::Restore as _;
use lockkeeper_core::replica::{
    Append, ConnId, Entry, EntryKind, HardState, Machine, Membership, Replica, Restored, Setup,
};
use lockkeeper_core::tree;

/// What a machine keeps.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub entries: BTreeMap<u64, Entry>,
    pub hard_state: HardState,
    /// What is not durable yet, in its order; empty unless the disk is held back.
    pub waits: Vec<Append>,
    /// Nothing becomes durable.
    pub is_held: bool,
}

impl Disk {
    /// What waits is durable: the number of the last of it.
    pub fn sync(&mut self) -> Option<u64> {
        let mut number = None;
        for append in self.waits.drain(..) {
            for entry in append.entries {
                self.entries.split_off(&entry.index);
                self.entries.insert(entry.index, entry);
            }
            self.hard_state = append.hard_state.unwrap_or(self.hard_state);
            number = Some(append.number);
        }
        number
    }
}

/// A connection of a client, as its server's side shows it.
#[derive(Clone, Debug, Default)]
pub struct Conn {
    /// Frames that the client has not looked at, and when they were sent.
    pub frames: Vec<(u64, Bytes)>,
    pub is_closed: bool,
}

pub struct Host {
    pub id: u8,
    pub disk: Disk,
    pub replica: Option<Replica>,
    /// Its process is there and does nothing: what arrives waits for it.
    pub stands_still: bool,
    pub conns: BTreeMap<ConnId, Conn>,
    /// Processes so far.
    pub lives: u8,
}

fn line(id: u8) -> ServerSpec {
    ServerSpec::parse(id, &format!("10.1.0.{id}:1:2;3")).expect("well-formed")
}

/// The line of a server, as an operator gives it.
pub fn line_of(id: u8) -> Text {
    Text::from(format!("server.{id}=10.1.0.{id}:1:2;3"))
}

impl Host {
    pub fn new(id: u8) -> Self {
        Self {
            id,
            disk: Disk::default(),
            replica: None,
            stands_still: false,
            conns: BTreeMap::new(),
            lives: 0,
        }
    }

    /// Begins another life from what is on the disk. `voters`: who votes in front of the first entry; `lines`: the
    /// servers that its configuration names.
    pub fn start(&mut self, voters: &[u8], lines: &[u8], timeout_ms: i32) {
        self.lives += 1;
        let setup = Setup {
            raft_id: self.id.into(),
            server_id: self.id,
            seed: [self.id | self.lives << 4; 32],
            session_timeout_ms_min: timeout_ms,
            session_timeout_ms_max: timeout_ms,
            // There are no containers.
            container_check_interval_ms: 1 << 40,
            audit: true,
            reconfig_enabled: true,
            compares: false,
            ensemble: Some(lines.iter().map(|id| line(*id)).collect()),
            ..Setup::default()
        };
        let super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
        let mut machine =
            Machine::fresh(tree::Options { super_digest, ..tree::Options::default() });
        let (commit, entries) = (self.disk.hard_state.commit, &self.disk.entries);
        for entry in entries.range(..=commit).map(|(_, entry)| entry) {
            machine.entry(entry).expect("it was applied before");
        }
        let voters = voters.iter().map(|id| u64::from(*id)).collect();
        let restored = Restored {
            hard_state: self.disk.hard_state,
            membership: Membership { voters, learners: Vec::new() },
            applied: commit,
            applied_term: entries.get(&commit).map_or(0, |entry| entry.term),
            tail: entries.range(commit + 1..).map(|(_, entry)| entry.clone()).collect(),
            ..Restored::default()
        };
        let replica = Replica::new(setup, machine, restored).expect("it fits together");
        self.replica = Some(replica);
    }

    /// The process ends.
    pub fn kill(&mut self) {
        self.replica = None;
        self.stands_still = false;
        self.conns.clear();
        self.disk.waits.clear();
        self.disk.is_held = false;
    }

    pub fn is_serving(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::is_serving)
    }

    /// The index of the last change of members on its disk, and whether it knows that to be committed.
    pub fn last_change(&self) -> Option<(u64, bool)> {
        let mut entries = self.disk.entries.values().rev();
        let change = entries.find(|entry| entry.kind == EntryKind::ConfChange)?;
        Some((change.index, change.index <= self.disk.hard_state.commit))
    }
}
