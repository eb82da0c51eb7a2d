//! One server of the ensemble that follows: a replica, and a disk that is instant.
//!
//! *Owns* its log and its connection to ZooKeeper's leader. *Invariant*: what is acknowledged is in the log, which a
//! restart reads from its beginning.

use lockkeeper_core::config::ServerSpec;
use lockkeeper_core::replica::{
    Append, Entry, HardState, Input, Machine, Membership, Outgoing, PeerMessage, Ready, Replica,
    Report, Restore as _, Restored, Setup, ZooKeeperWork,
};
use lockkeeper_core::tree;

use super::super::rng::Rng;
use super::super::zookeeper::LinkId;

/// Servers, whose ids and raft ids are the same numbers.
pub const SERVERS: u8 = 3;

/// The line of a server, as `/zookeeper/config` has it.
pub fn line(id: u8) -> String {
    format!("10.1.0.{id}:1:2:participant;0.0.0.0:2181")
}

/// What a turn leaves to be done.
#[derive(Default)]
pub struct Todo {
    pub peers: Vec<(u64, PeerMessage)>,
    pub client: Vec<Outgoing>,
    pub reports: Vec<(u64, Report)>,
    pub zookeeper: Vec<ZooKeeperWork>,
}

pub struct Host {
    pub id: u8,
    pub replica: Option<Replica>,
    hard_state: HardState,
    entries: Vec<Entry>,
    /// Its connection, and whether it was told of it.
    pub link: Option<LinkId>,
    pub restarts_at_us: u64,
}

impl Host {
    pub fn new(id: u8) -> Self {
        let (hard_state, entries) = (HardState::default(), Vec::new());
        Self { id, replica: None, hard_state, entries, link: None, restarts_at_us: 0 }
    }

    /// Starts the server with what its log has.
    pub fn start(&mut self, rng: &mut Rng) {
        let mut machine = self.machine(rng);
        let commit = usize::try_from(self.hard_state.commit).expect("a short log");
        let (committed, tail) = self.entries.split_at(commit.min(self.entries.len()));
        for entry in committed {
            machine.entry(entry).expect("it was applied before");
        }
        let applied = committed.last().map_or((0, 0), |last| (last.index, last.term));
        let voters = (1..=u64::from(SERVERS)).collect();
        let restored = Restored {
            hard_state: self.hard_state,
            membership: Membership { voters, learners: Vec::new() },
            image: None,
            begun_after: (0, 0),
            applied: applied.0,
            applied_term: applied.1,
            tail: tail.to_vec(),
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&rng.next().to_le_bytes());
        let spec = |id: u8| ServerSpec::parse(id, &line(id)).expect("it is well-formed");
        let setup = Setup {
            raft_id: u64::from(self.id),
            server_id: self.id,
            seed,
            ensemble: Some((1..=SERVERS).map(spec).collect()),
            ..Setup::default()
        };
        let replica = Replica::new(setup, machine, restored).expect("it fits together");
        self.replica = Some(replica);
    }

    fn machine(&self, rng: &mut Rng) -> Machine {
        Machine::fresh(tree::Options { hash_seed: rng.next(), ..tree::Options::default() })
    }

    pub fn step(&mut self, input: Input) {
        if let Some(replica) = &mut self.replica {
            replica.step(input);
        }
    }

    /// Does what the replica wants.
    pub fn turn(&mut self) -> Result<Todo, String> {
        let mut todo = Todo::default();
        let Some(replica) = &mut self.replica else { return Ok(todo) };
        while let Some(ready) = replica.ready()? {
            let Ready { append, send, fetch, client, inspected, zookeeper, .. } = ready;
            if let Some(append) = append {
                let number = append.number;
                write((&mut self.hard_state, &mut self.entries), append);
                replica.persisted(number);
            }
            for fetch in fetch {
                let at = |index: u64| usize::try_from(index).expect("a short log");
                let range = at(fetch.from - 1)..at(fetch.to).min(self.entries.len());
                let entries = self.entries.get(range).unwrap_or_default().to_vec();
                replica.step(Input::Fetched { fetch, entries });
            }
            todo.peers.extend(send);
            todo.client.extend(client);
            todo.reports.extend(inspected);
            if !zookeeper.is_empty() {
                todo.zookeeper.push(zookeeper);
            }
        }
        if let Some(refusal) = replica.refused() {
            return Err(format!("server {} refuses: {}", self.id, refusal.words));
        }
        Ok(todo)
    }
}

fn write((hard_state, entries): (&mut HardState, &mut Vec<Entry>), append: Append) {
    if let Some(first) = append.entries.first() {
        entries.truncate(usize::try_from(first.index - 1).expect("a short log"));
        entries.extend(append.entries);
    }
    if let Some(new) = append.hard_state {
        *hard_state = new;
    }
}
