//! The values that cross between a replica and its disk.
//!
//! *Owns* what a log entry, a hard state, a batch to append and a checkpoint are, free of `raft`'s
//! own types, so that the disk never sees those. *Never* reads or writes anything itself.

use bytes::Bytes;

use super::records::Records;

/// What a log entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Transactions (or nothing: the entry a new leader begins its term with).
    Normal,
    /// A change of membership.
    ConfChange,
}

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Term of the leader that appended it first.
    pub term: u64,
    /// Position, from 1.
    pub index: u64,
    /// What `data` is.
    pub kind: EntryKind,
    /// Payload; empty for the first entry of a term.
    pub data: Bytes,
}

/// What Raft must not forget besides the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term seen.
    pub term: u64,
    /// Replica voted for in that term, 0 for none.
    pub vote: u64,
    /// Highest index known to be committed.
    pub commit: u64,
}

/// Who takes part, as of some index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// Raft ids that vote.
    pub voters: Vec<u64>,
    /// Raft ids that only follow.
    pub learners: Vec<u64>,
}

/// One batch for the log: everything in it becomes durable by one fsync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// To be given to [`super::Replica::persisted`] once the batch is durable.
    pub number: u64,
    /// Before anything else of this batch: the received image of this mark becomes the newest, and the
    /// log begins anew behind it.
    pub install: Option<Mark>,
    /// Entries in index order. The first may overwrite an uncommitted suffix of the log.
    pub entries: Vec<Entry>,
    /// The new hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// Who waits for it.
    pub urgency: Urgency,
}

/// Who waits until a batch is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// None. It only moves `commit`.
    None,
    /// The leader, but others have as much and make up the majority: it may wait for more.
    Low,
    /// Somebody, now.
    High,
}

/// Which state a complete set of records is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The last entry whose effect is included.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// zxid of the last transaction included.
    pub zxid: i64,
    /// Digest of the state; restoring the records must reproduce it.
    pub digest: u128,
    /// Number of records.
    pub records: u64,
    /// Who took part at that index.
    pub membership: Membership,
}

/// Records that changed. Several of these make up a checkpoint, and only the one that carries a
/// mark completes it: before that, the records may stem from different moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whether this begins a pass over the whole state: whatever was stored before is void.
    pub begins_full_pass: bool,
    /// The records, later ones win.
    pub records: Records,
    /// With a mark, the records so far and those of earlier checkpoints are exactly that state.
    pub mark: Option<Mark>,
}

/// What `Replica::drain_changes` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All changes are handed out, the last of them with a mark; or there can be no mark now.
    Nothing,
    /// All are handed out, but some of the state is not durable in the log here yet: there will be a mark
    /// once it is.
    NotDurable,
    /// These.
    Changes(Changes),
}

/// What a record, its key and its value, adds to the digest of a state; or what is wrong with it.
pub type RecordDigest = fn(&[u8], &[u8]) -> Result<u128, String>;

/// Takes back a state: records, then entries. Implemented by the machine, called by the disk.
pub trait Restore {
    /// Forgets everything restored so far: another source is tried.
    fn restart(&mut self);
    /// One record; keys come in ascending order.
    ///
    /// # Errors
    /// Says what is wrong with it.
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String>;
    /// All records of `mark` were given: verifies number and digest.
    ///
    /// # Errors
    /// Says which of them disagrees.
    fn finish(&mut self, mark: &Mark) -> Result<(), String>;
    /// How to tell from its records which state it is that would be taken back: what they add up to,
    /// modulo 2^128, is the digest of its mark.
    fn record_digest(&self) -> RecordDigest;
    /// A committed entry after the mark (after nothing, if there was no mark), in index order.
    ///
    /// # Errors
    /// Says why it cannot be applied.
    fn entry(&mut self, entry: &Entry) -> Result<(), String>;

    /// Whether an entry that could not be applied has shown how those before it are to be decided: then everything is
    /// restored once more.
    fn wants_again(&self) -> bool {
        false
    }
}
