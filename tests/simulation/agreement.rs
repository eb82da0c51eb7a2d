//! What Raft promises, as the checker watches it.
//!
//! *Owns* who led in which term, every entry that anybody ever appended, and what the disk of each
//! server holds. *Invariants* checked here: one leader in a term; entries with the same index and
//! term are the same everywhere; what is applied anywhere is on the disks of a majority at that
//! instant; nobody votes twice in a term, or acknowledges what is not synced; a server that comes
//! back has what it had synced, as far as that was committed.

use std::collections::BTreeMap;

use lockkeeper::replica::txn::{Batch, Txn};
use lockkeeper::replica::{Append, Entry, EntryKind};
use raft::eraftpb::{Message, MessageType};

use super::conn::Violation;

/// An entry, when it was appended first: by the leader of its term.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub server: usize,
    /// By that server's clock.
    pub at_us: u64,
    /// How many transactions that server had applied.
    pub place: usize,
    entry: Entry,
    pub txns: Vec<Txn>,
}

/// What there is to agree on.
#[derive(Debug)]
pub struct Agreement {
    leaders: BTreeMap<u64, usize>,
    /// By server and term.
    votes: BTreeMap<(usize, u64), u64>,
    /// By index and term.
    proposals: BTreeMap<(u64, u64), Proposal>,
    /// By server: index and term of the entries that are synced.
    synced: Vec<BTreeMap<u64, u64>>,
    /// Term of every entry that was applied anywhere.
    committed: BTreeMap<u64, u64>,
}

impl Agreement {
    pub fn new(servers: usize) -> Self {
        Self {
            leaders: BTreeMap::new(),
            votes: BTreeMap::new(),
            proposals: BTreeMap::new(),
            synced: vec![BTreeMap::new(); servers],
            committed: BTreeMap::new(),
        }
    }

    /// A server acts as the leader of a term.
    pub fn leads(&mut self, server: usize, term: u64) -> Result<(), Violation> {
        let known = *self.leaders.entry(term).or_insert(server);
        if known != server {
            let (known, server) = (known + 1, server + 1);
            return Err(format!("servers {known} and {server} both lead in term {term}"));
        }
        Ok(())
    }

    /// Who leads, as far as anybody can know.
    pub fn newest_leader(&self) -> Option<usize> {
        self.leaders.last_key_value().map(|(_, server)| *server)
    }

    /// Terms in which somebody led.
    pub fn elections(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// A server says something to another one.
    pub fn sent(&mut self, server: usize, message: &Message) -> Result<(), Violation> {
        let term = message.term;
        match message.get_msg_type() {
            MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgSnapshot
            | MessageType::MsgTimeoutNow => self.leads(server, term),
            MessageType::MsgRequestVote => self.votes(server, term, message.from),
            MessageType::MsgRequestVoteResponse if !message.reject => {
                self.votes(server, term, message.to)
            }
            MessageType::MsgAppendResponse if !message.reject => {
                let log = &self.synced[server];
                let first = log.first_key_value().map_or(1, |(first, _)| *first);
                if message.index >= first && !log.contains_key(&message.index) {
                    let index = message.index;
                    return Err(format!("entry {index} is acknowledged, but it is not synced"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn votes(&mut self, server: usize, term: u64, candidate: u64) -> Result<(), Violation> {
        let known = *self.votes.entry((server, term)).or_insert(candidate);
        if known != candidate {
            let name = server + 1;
            return Err(format!("server {name} votes for {known} and {candidate} in term {term}"));
        }
        Ok(())
    }

    /// A replica wants this to be durable.
    pub fn appended(
        &mut self,
        server: usize,
        append: &Append,
        now_us: u64,
        place: usize,
    ) -> Result<(), Violation> {
        for entry in &append.entries {
            let key = (entry.index, entry.term);
            if let Some(known) = self.proposals.get(&key) {
                if known.entry != *entry {
                    let known = &known.entry;
                    return Err(format!("{entry:?} is not {known:?}"));
                }
                continue;
            }
            let txns = match entry.kind {
                EntryKind::Normal => {
                    Batch::decode(&entry.data).map_err(|bad| format!("entry {key:?}: {bad}"))?.txns
                }
                EntryKind::ConfChange => Vec::new(),
            };
            let entry = entry.clone();
            self.proposals.insert(key, Proposal { server, at_us: now_us, place, entry, txns });
        }
        Ok(())
    }

    /// An entry as its leader appended it.
    pub fn proposal(&self, index: u64, term: u64) -> Option<&Proposal> {
        self.proposals.get(&(index, term))
    }

    /// The disk of a server holds this now.
    pub fn synced(&mut self, server: usize, appends: &[Append]) {
        let log = &mut self.synced[server];
        for append in appends {
            if let Some(mark) = &append.install {
                log.clear();
                log.insert(mark.index, mark.term);
            }
            if let Some(first) = append.entries.first() {
                drop(log.split_off(&first.index));
            }
            log.extend(append.entries.iter().map(|entry| (entry.index, entry.term)));
        }
    }

    /// A server applies an entry that nobody has applied before.
    pub fn applied(&mut self, index: u64, term: u64) -> Result<(), Violation> {
        self.committed.insert(index, term);
        let holds = |log: &&BTreeMap<u64, u64>| log.get(&index) == Some(&term);
        let holders = self.synced.iter().filter(holds).count();
        if holders <= self.synced.len() / 2 {
            return Err(format!(
                "entry {index} of term {term} is applied, but only {holders} disks hold it"
            ));
        }
        Ok(())
    }

    /// A server was started: this is the log that its disk gives back.
    pub fn recovered(
        &mut self,
        server: usize,
        entries: BTreeMap<u64, u64>,
    ) -> Result<(), Violation> {
        let first = entries.first_key_value().map_or(u64::MAX, |(first, _)| *first);
        for (index, term) in self.synced[server].range(first..) {
            let (now, committed) = (entries.get(index), self.committed.get(index));
            if committed == Some(term) && now != committed {
                return Err(format!("entry {index} of term {term} was synced, now it is {now:?}"));
            }
        }
        self.synced[server] = entries;
        Ok(())
    }
}
