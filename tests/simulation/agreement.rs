//! What Raft promises, as the checker watches it.
//!
//! *Owns* who led in which term, every entry that anybody ever appended, who votes, and what the
//! disk of each server holds. *Invariants* checked here: one leader in a term; entries with the same
//! index and term are the same everywhere, and so is what is in front of them; what is applied
//! anywhere is on the disks of a majority of those who vote there; nobody votes twice in a term, or
//! forgets a vote that is on the disk, or acknowledges what is not synced, or says anything under an
//! identity that it lost; who never was to vote stands for no election; a server that comes back has
//! what it had synced, as far as that was committed, unless its disk was put back to an older copy: then
//! it takes no part. What a disk held that was emptied or put back since counts: it was there when it
//! was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::replica::peer::server_of;
use lockkeeper_core::replica::txn::{Batch, EntryTime, Txn};
use lockkeeper_core::replica::{self, Append, Entry, EntryKind};
use lockkeeper_core::tree::Rules;
use raft::eraftpb::{Message, MessageType};

use super::conn::Violation;
use super::membership::{self, Membership};

/// An entry, when it was appended first: by the leader of its term.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub server: usize,
    /// By that server's clock.
    pub at_us: u64,
    /// How many transactions that server had applied.
    pub place: usize,
    /// Term of the entry in front of it.
    before: u64,
    entry: Entry,
    /// The time that it carries, and the highest steady time that a leader had told its server before.
    pub time: EntryTime,
    pub told_ms: i64,
    /// The rules that it carries.
    pub rules: Option<Rules>,
    pub txns: Vec<Txn>,
}

impl Proposal {
    /// The term in which it was proposed.
    pub fn term(&self) -> u64 {
        self.entry.term
    }
}

/// Index and term of the entries of a log, and of the one that it begins after.
#[derive(Clone, Debug, Default)]
struct Log {
    appended: BTreeMap<u64, u64>,
    synced: BTreeMap<u64, u64>,
}

/// What a disk holds: term, vote and last entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub term: u64,
    pub vote: u64,
    pub last: u64,
}

/// What there is to agree on.
#[derive(Debug)]
pub struct Agreement {
    /// By server: its raft id; 0 as long as it has none.
    ids: Vec<u64>,
    /// Raft ids of servers that were emptied.
    gone: BTreeSet<u64>,
    /// Who may stand for election, now or later.
    electable: BTreeSet<u64>,
    /// Raft ids by term.
    leaders: BTreeMap<u64, u64>,
    /// By raft id and term.
    votes: BTreeMap<(u64, u64), u64>,
    /// By raft id: the newest term on its disk, and for whom it has voted there.
    written: BTreeMap<u64, (u64, u64)>,
    /// By index and term.
    proposals: BTreeMap<(u64, u64), Proposal>,
    /// By raft id, also of those who are gone.
    logs: BTreeMap<u64, Log>,
    /// By raft id of a server whose disk was put back: what it held before.
    lost: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Terms of all entries up to the last one that was applied anywhere.
    committed: BTreeMap<u64, u64>,
    /// Who takes part from behind an index on.
    memberships: Vec<(u64, Membership)>,
}

impl Agreement {
    pub fn new(servers: usize, initial: &replica::Membership) -> Self {
        Self {
            ids: vec![0; servers],
            gone: BTreeSet::new(),
            electable: initial.voters.iter().copied().collect(),
            leaders: BTreeMap::new(),
            votes: BTreeMap::new(),
            written: BTreeMap::new(),
            proposals: BTreeMap::new(),
            logs: BTreeMap::new(),
            lost: BTreeMap::new(),
            committed: BTreeMap::from([(0, 0)]),
            memberships: vec![(0, initial.into())],
        }
    }

    /// A server acts as the leader of a term.
    pub fn leads(&mut self, server: usize, term: u64) -> Result<(), Violation> {
        let id = self.ids[server];
        let known = *self.leaders.entry(term).or_insert(id);
        if known != id {
            return Err(format!("{known:#x} and {id:#x} both lead in term {term}"));
        }
        Ok(())
    }

    /// Who leads, as far as anybody can know.
    pub fn newest_leader(&self) -> Option<usize> {
        self.leaders.last_key_value().map(|(_, id)| usize::from(server_of(*id)) - 1)
    }

    /// Terms in which somebody led.
    pub fn elections(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// Changes of who votes.
    pub fn changes(&self) -> u64 {
        self.memberships.len() as u64 - 1
    }

    /// A server says something to another one.
    pub fn sent(&mut self, server: usize, message: &Message) -> Result<(), Violation> {
        let (term, id) = (message.term, message.from);
        // A question that was meant for the leader is passed on.
        if id != self.ids[server] && message.get_msg_type() != MessageType::MsgReadIndex {
            let known = self.ids[server];
            return Err(format!("{known:#x} speaks as {id:#x}: {message:?}"));
        }
        if self.lost.contains_key(&id) && is_part(message) {
            return Err(format!("the disk of {id:#x} is an old copy, but it says {message:?}"));
        }
        match message.get_msg_type() {
            MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgSnapshot
            | MessageType::MsgTimeoutNow => self.leads(server, term),
            MessageType::MsgRequestPreVote => self.stands(id),
            MessageType::MsgRequestVote => {
                self.stands(id)?;
                self.votes(id, term, id)
            }
            MessageType::MsgRequestVoteResponse if !message.reject => {
                self.votes(id, term, message.to)
            }
            MessageType::MsgAppendResponse if !message.reject => {
                let log = &self.logs[&id].synced;
                let first = log.first_key_value().map_or(1, |(first, _)| *first);
                // Who leads later may have overwritten it in the same sync. Then it lacked a majority,
                // and an acknowledgement in its own term cannot give it one any more.
                let is_void = log.last_key_value().is_some_and(|(_, last)| *last > term);
                if message.index >= first && !log.contains_key(&message.index) && !is_void {
                    let index = message.index;
                    return Err(format!("entry {index} is acknowledged, but it is not synced"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn stands(&self, id: u64) -> Result<(), Violation> {
        match self.electable.contains(&id) {
            true => Ok(()),
            false => Err(format!("{id:#x} stands for election, but nobody made it a voter")),
        }
    }

    fn votes(&mut self, id: u64, term: u64, candidate: u64) -> Result<(), Violation> {
        let known = *self.votes.entry((id, term)).or_insert(candidate);
        if known != candidate {
            return Err(format!("{id:#x} votes for {known:#x} and {candidate:#x} in term {term}"));
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
        told_ms: i64,
    ) -> Result<(), Violation> {
        let id = self.ids[server];
        if let (Some(next), Some((term, vote))) = (append.hard_state, self.written.get(&id))
            && (next.term < *term || next.term == *term && *vote != 0 && next.vote != *vote)
        {
            return Err(format!("{id:#x} voted for {vote:#x} in term {term}, and writes {next:?}"));
        }
        let log = self.logs.get_mut(&id).expect("it was opened");
        extend(&mut log.appended, append);
        for entry in &append.entries {
            let key = (entry.index, entry.term);
            let before = entry.index - 1;
            let before = log.appended.get(&before).copied().or((before == 0).then_some(0));
            if let Some(known) = self.proposals.get(&key) {
                if known.entry != *entry {
                    let known = &known.entry;
                    return Err(format!("{entry:?} is not {known:?}"));
                }
                if before.is_some_and(|before| before != known.before) {
                    let known = known.before;
                    return Err(format!("in front of {key:?} is {before:?}, not {known}"));
                }
                continue;
            }
            let batch = match entry.kind {
                EntryKind::Normal => {
                    Batch::decode(&entry.data).map_err(|bad| format!("entry {key:?}: {bad}"))?
                }
                EntryKind::ConfChange => {
                    self.electable.extend(membership::made_voters(&entry.data));
                    Batch { time: EntryTime::default(), rules: None, txns: Vec::new() }
                }
            };
            let Batch { time, rules, txns } = batch;
            let entry = entry.clone();
            let before = before.ok_or_else(|| format!("nothing is in front of {key:?}"))?;
            let at_us = now_us;
            let proposal =
                Proposal { server, at_us, place, before, entry, time, told_ms, rules, txns };
            self.proposals.insert(key, proposal);
        }
        Ok(())
    }

    /// How many entries were ever proposed.
    pub fn proposal_count(&self) -> usize {
        self.proposals.len()
    }

    /// An entry as its leader appended it.
    pub fn proposal(&self, index: u64, term: u64) -> Option<&Proposal> {
        self.proposals.get(&(index, term))
    }

    /// The disk of a server holds this now.
    pub fn synced(&mut self, server: usize, appends: &[Append]) {
        let id = self.ids[server];
        let log = self.logs.get_mut(&id).expect("it was opened");
        for append in appends {
            if let Some(now) = append.hard_state {
                self.written.insert(id, (now.term, now.vote));
            }
            extend(&mut log.synced, append);
        }
    }

    /// A server applies an entry that nobody has applied before.
    pub fn applied(&mut self, index: u64, term: u64) -> Result<(), Violation> {
        let mut new = Vec::new();
        let (mut at, mut of) = (index, term);
        let known = loop {
            if let Some(known) = self.committed.get(&at) {
                break *known;
            }
            let proposal = self.proposals.get(&(at, of));
            let proposal = proposal.ok_or_else(|| format!("nobody has proposed {at} of {of}"))?;
            new.push((at, of));
            (at, of) = (at - 1, proposal.before);
        };
        if known != of {
            return Err(format!("{at} of term {of} is in front of what is applied, not {known}"));
        }
        for (at, of) in new.into_iter().rev() {
            self.committed.insert(at, of);
            let entry = &self.proposals[&(at, of)].entry;
            if entry.kind == EntryKind::ConfChange {
                let (_, now) = self.memberships.last().expect("there is a first one");
                let next =
                    now.changed(&entry.data).map_err(|what| format!("entry {at}: {what}"))?;
                // Whoever leads changes sides only when it is decided.
                self.is_held((at, of), self.memberships.len() - 1, true)?;
                self.memberships.push((at, next));
            }
        }
        // The leader may not have applied the last change when it decided this.
        let newest = self.memberships.len() - 1;
        match self.is_held((index, term), newest, false) {
            Err(_) if newest > 0 => self.is_held((index, term), newest - 1, false),
            held => held,
        }
    }

    /// Whether enough of those who voted then have an entry. One that is looked at late may be in an
    /// image by now.
    fn is_held(
        &self,
        (index, term): (u64, u64),
        membership: usize,
        is_late: bool,
    ) -> Result<(), Violation> {
        let is_in = |log: &BTreeMap<u64, u64>| {
            let first = log.first_key_value().map_or(u64::MAX, |(first, _)| *first);
            log.get(&index) == Some(&term) || is_late && index < first && first < u64::MAX
        };
        let holds = |id| {
            self.logs.get(&id).is_some_and(|log| is_in(&log.synced))
                || self.lost.get(&id).is_some_and(is_in)
        };
        let (_, membership) = &self.memberships[membership];
        if membership.is_quorum(holds) {
            return Ok(());
        }
        let holders: Vec<u64> = self.logs.keys().copied().filter(|id| holds(*id)).collect();
        Err(format!(
            "entry {index} of term {term} is applied, but only {holders:x?} hold it of \
             {membership:x?}"
        ))
    }

    /// A server was started: this is the log that its disk gives back.
    pub fn recovered(
        &mut self,
        server: usize,
        id: u64,
        entries: BTreeMap<u64, u64>,
    ) -> Result<(), Violation> {
        if self.gone.contains(&id) {
            return Err(format!("{id:#x} was emptied, and is there again"));
        }
        self.ids[server] = id;
        let log = self.logs.entry(id).or_default();
        let first = entries.first_key_value().map_or(u64::MAX, |(first, _)| *first);
        for (index, term) in log.synced.range(first..) {
            let (now, committed) = (entries.get(index), self.committed.get(index));
            if committed == Some(term) && now != committed {
                return Err(format!("entry {index} of term {term} was synced, now it is {now:?}"));
            }
        }
        *log = Log { appended: entries.clone(), synced: entries };
        Ok(())
    }

    /// The raft id of a server, 0 if it has none.
    pub fn id_of(&self, server: usize) -> u64 {
        self.ids[server]
    }

    /// What is on the disk of a server, and no power cut can take away.
    pub fn held(&self, id: u64) -> Held {
        let (term, vote) = self.written.get(&id).copied().unwrap_or_default();
        let last = self.logs.get(&id).and_then(|log| log.synced.last_key_value());
        Held { term, vote, last: last.map_or(0, |(last, _)| *last) }
    }

    /// Term of an entry on the disk of a server.
    pub fn term_at(&self, id: u64, index: u64) -> Option<u64> {
        self.logs.get(&id)?.synced.get(&index).copied()
    }

    /// A server was started on an older copy of its disk: this is the log that it gives back.
    pub fn rolled_back(
        &mut self,
        id: u64,
        held: Held,
        entries: BTreeMap<u64, u64>,
    ) -> Result<(), Violation> {
        let last = entries.last_key_value().map_or(0, |(last, _)| *last);
        if last != held.last {
            return Err(format!("the copy of {id:#x} was to hold {held:?}, it ends with {last}"));
        }
        let log = Log { appended: entries.clone(), synced: entries };
        let before = self.logs.insert(id, log).unwrap_or_default();
        self.lost.insert(id, before.synced);
        self.written.insert(id, (held.term, held.vote));
        Ok(())
    }

    /// The disk of a server was emptied: it must never be heard of again as who it was.
    pub fn wiped(&mut self, server: usize) {
        let id = std::mem::take(&mut self.ids[server]);
        if id != 0 {
            self.gone.insert(id);
        }
    }
}

/// Whether the sender votes, stands for election or leads. One that has forgotten what it promised may do
/// nothing of that; it may learn, and acknowledge what it has learnt.
fn is_part(message: &Message) -> bool {
    match message.get_msg_type() {
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            !message.reject
        }
        kind => matches!(
            kind,
            MessageType::MsgAppend
                | MessageType::MsgHeartbeat
                | MessageType::MsgSnapshot
                | MessageType::MsgTimeoutNow
                | MessageType::MsgRequestVote
                | MessageType::MsgRequestPreVote
        ),
    }
}

fn extend(log: &mut BTreeMap<u64, u64>, append: &Append) {
    if let Some(mark) = &append.install {
        log.clear();
        log.insert(mark.index, mark.term);
    }
    if let Some(first) = append.entries.first() {
        drop(log.split_off(&first.index));
    }
    log.extend(append.entries.iter().map(|entry| (entry.index, entry.term)));
}
