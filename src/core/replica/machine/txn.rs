//! What a log entry holds: a batch of requests, stamped by the leader.
//!
//! *Owns* the entry's encoding. *Invariants*: decoding is total (bytes that are no batch give an
//! error, never a panic), and a batch decodes to what was encoded. Success or failure of a request
//! is not in the entry: every replica decides it when it applies the entry.
//!
//! The format carries a version; a replica that meets one it does not know must stop, because
//! skipping an entry would make it differ from the others.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use super::migration_step::MigrateOp;
use super::rule_flags::{FLAG_AGREED, flags_of, rules_of};
use super::version;
use crate::proto::connect::{PASSWORD_BYTES, Password};
use crate::proto::{Malformed, Reader, Text, Writer};
use crate::replica::bounds::STEADY_MS_MAX;
use crate::replica::request::ConnId;
use crate::tree::Rules;
use crate::tree::acl::Identity;
use crate::zookeeper;

/// Format of the entries of an ensemble of the first version: without rules.
const TXN_FORMAT_FIRST: u8 = 2;
/// The last one that this program reads, with the leader's rules: the format of the second version.
const TXN_FORMAT_NEWEST: u8 = 3;
/// The oldest one, without a steady clock: it is read, and not written any more.
const TXN_FORMAT_WALL_ONLY: u8 = 1;

/// A batch is closed when it holds this many bytes; one transaction may exceed it.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Znodes that the transactions of one batch change: beyond, it is proposed. An entry is applied in one piece.
pub const BATCH_ZNODES_MAX: usize = 1000;

/// The leader's clocks when it proposes an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryTime {
    /// Its wall clock, milliseconds since the epoch.
    pub wall_ms: i64,
    /// Whether the wall clocks of a majority agree with that. It may say no where nothing depends on it:
    /// where the stamps of earlier entries are not ahead.
    pub is_agreed: bool,
    /// The steady clock of the ensemble, in milliseconds: the time in which it had a leader. `None` in
    /// entries of earlier versions.
    pub steady_ms: Option<i64>,
}

/// Who an authenticated connection is.
pub type Identities = SmallVec<[Identity; 2]>;

/// Where a transaction came from, so that its outcome finds the way back. xids repeat; these do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The process that the client is connected to: a random number, and the server's id in the
    /// lowest byte. 0 for the leader's own. An entry from an earlier life of a server is not taken for
    /// one of this life.
    pub server: u64,
    /// The connection of that process.
    pub conn: ConnId,
    /// Number of the request on that connection.
    pub sequence: u64,
}

/// One stamped request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Where the outcome goes.
    pub origin: Origin,
    /// The session that asks (or that is opened or closed).
    pub session: i64,
    /// The client's xid.
    pub cxid: i32,
    /// Who asks.
    pub ids: Identities,
    /// What is asked.
    pub op: TxnOp,
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// A client's write, body as sent.
    Client {
        /// Opcode.
        op: i32,
        /// Body.
        body: Bytes,
    },
    /// Opens `Txn::session`.
    OpenSession {
        /// Negotiated timeout.
        timeout_ms: i32,
        /// Its password; `None`: the one that ZooKeeper computes of the id, which is not known before.
        password: Option<Password>,
    },
    /// Gives `Txn::session` another connection, on this or another server.
    AttachSession {
        /// Timeout negotiated on that connection.
        timeout_ms: i32,
        /// What the client takes for its password.
        password: Password,
    },
    /// Closes `Txn::session`: its client asked for it.
    CloseSession,
    /// Closes `Txn::session`: it was not heard from in time.
    ExpireSession,
    /// Removes a container or TTL znode, if it still may be removed.
    Reap {
        /// The znode.
        path: Text,
    },
    /// Names the members of an ensemble that has none yet: the servers that its first leader was
    /// configured with.
    Found {
        /// Their lines.
        members: Text,
        /// Whether it takes the zxid with which its term begins, counter 0, as ZooKeeper's first
        /// configuration does. In the logs of earlier versions it takes the next one.
        opens_term: bool,
    },
    /// The ensemble is at this version from here on, unless it is at a later one.
    Upgrade {
        /// See `machine/version.rs`.
        version: u8,
        /// The release of the leader: which one knows the version, for people.
        release: Text,
    },
    /// A client's request that the leader refuses.
    Refuse {
        /// Opcode.
        op: i32,
        /// Why.
        code: i32,
    },
    /// A transaction that ZooKeeper has committed, where this ensemble follows one of it.
    Foreign(Box<zookeeper::Txn>),
    /// A step of a live migration.
    Migrate(MigrateOp),
}

impl TxnOp {
    /// Whether a client asks for it. Everything else a leader decides by itself.
    pub(in crate::replica) fn is_of_client(&self) -> bool {
        match self {
            Self::Client { .. }
            | Self::OpenSession { .. }
            | Self::AttachSession { .. }
            | Self::CloseSession => true,
            Self::ExpireSession
            | Self::Reap { .. }
            | Self::Found { .. }
            | Self::Upgrade { .. }
            | Self::Refuse { .. }
            | Self::Foreign(_)
            | Self::Migrate(_) => false,
        }
    }
}

const KIND_CLIENT: u8 = 1;
const KIND_OPEN: u8 = 2;
const KIND_CLOSE: u8 = 3;
const KIND_EXPIRE: u8 = 4;
const KIND_REAP: u8 = 5;
const KIND_ATTACH: u8 = 6;
const KIND_FOUND: u8 = 7;
const KIND_REFUSE: u8 = 8;
const KIND_FOUND_AT_ZERO: u8 = 9;
const KIND_UPGRADE: u8 = 10;
const KIND_FOREIGN: u8 = 11;
const KIND_MIGRATE: u8 = 12;

/// Why an entry cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadEntry {
    /// Written by a newer version.
    Version(u8),
    /// Not a batch.
    Malformed(Malformed),
}

impl fmt::Display for BadEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(
                f,
                "the entry has format {version}, this version knows up to {TXN_FORMAT_NEWEST}: \
                 start the newer version that wrote it"
            ),
            Self::Malformed(malformed) => write!(f, "the entry is malformed ({malformed})"),
        }
    }
}

impl From<Malformed> for BadEntry {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Collects transactions into the payload of one entry.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    count: u32,
    /// Znodes that they change at least.
    znodes: usize,
    ids: Identities,
}

/// Format, wall clock, flags, steady clock; and the number of transactions.
const HEADER_BYTES: usize = TIME_BYTES + 4;
const TIME_BYTES: usize = 1 + 8 + 1 + 8;
/// Room that a batch begins with.
const BATCH_BYTES_USUAL: usize = 1 << 10;
/// In the place of a count of identities: the same as in the transaction before.
const IDS_AS_BEFORE: i32 = -1;

impl BatchBuilder {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it should be proposed before more is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES_MAX || self.znodes >= BATCH_ZNODES_MAX
    }

    /// Says that the next transaction changes so many znodes more than one.
    pub fn weigh(&mut self, znodes: usize) {
        self.znodes += znodes;
    }

    /// Adds one.
    pub fn push(&mut self, origin: Origin, session: i64, cxid: i32, ids: &[Identity], op: &TxnOp) {
        if self.bytes.is_empty() {
            self.bytes.reserve(BATCH_BYTES_USUAL);
            self.bytes.resize(HEADER_BYTES, 0);
        }
        let out = &mut self.bytes;
        out.push(match op {
            TxnOp::Client { .. } => KIND_CLIENT,
            TxnOp::OpenSession { .. } => KIND_OPEN,
            TxnOp::AttachSession { .. } => KIND_ATTACH,
            TxnOp::CloseSession => KIND_CLOSE,
            TxnOp::ExpireSession => KIND_EXPIRE,
            TxnOp::Reap { .. } => KIND_REAP,
            TxnOp::Found { opens_term: false, .. } => KIND_FOUND,
            TxnOp::Found { opens_term: true, .. } => KIND_FOUND_AT_ZERO,
            TxnOp::Upgrade { .. } => KIND_UPGRADE,
            TxnOp::Refuse { .. } => KIND_REFUSE,
            TxnOp::Foreign(_) => KIND_FOREIGN,
            TxnOp::Migrate(_) => KIND_MIGRATE,
        });
        for part in [origin.server, origin.conn, origin.sequence] {
            out.extend_from_slice(&part.to_be_bytes());
        }
        out.put_long(session);
        out.put_int(cxid);
        if self.count > 0 && self.ids[..] == *ids {
            out.put_int(IDS_AS_BEFORE);
        } else {
            out.put_int(crate::proto::jute::wire_len(ids.len()));
            for id in ids {
                out.put_string(id.scheme.as_str());
                out.put_string(id.id.as_str());
            }
            self.ids = ids.iter().cloned().collect();
        }
        match op {
            TxnOp::Client { op, body } => {
                out.put_int(*op);
                out.put_buffer(Some(body));
            }
            TxnOp::OpenSession { timeout_ms, password } => {
                out.put_int(*timeout_ms);
                out.put_buffer(password.as_ref().map(|password| &password[..]));
            }
            TxnOp::AttachSession { timeout_ms, password } => {
                out.put_int(*timeout_ms);
                out.put_buffer(Some(password));
            }
            TxnOp::CloseSession | TxnOp::ExpireSession => {}
            TxnOp::Reap { path } => out.put_string(path.as_str()),
            TxnOp::Found { members, .. } => out.put_string(members.as_str()),
            TxnOp::Upgrade { version, release } => {
                out.push(*version);
                out.put_string(release.as_str());
            }
            TxnOp::Refuse { op, code } => {
                out.put_int(*op);
                out.put_int(*code);
            }
            TxnOp::Foreign(txn) => {
                let mut bytes = Vec::new();
                txn.encode(&mut bytes);
                out.put_buffer(Some(&bytes));
            }
            TxnOp::Migrate(step) => step.encode(out),
        }
        self.count += 1;
        self.znodes += 1;
    }

    /// Hands out what was collected, without a time, and starts anew.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes[0] = TXN_FORMAT_FIRST;
        bytes[TIME_BYTES..HEADER_BYTES].copy_from_slice(&self.count.to_be_bytes());
        (self.count, self.znodes) = (0, 0);
        bytes
    }
}

/// The payload of an entry without a transaction: the leader's word that it has applied every change of
/// the voters in front of it. A server that has the entry was told of the commit of these with it.
#[must_use]
pub fn members_mark(time: &EntryTime, rules: Rules, version: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    stamp(&mut bytes, time, rules, version);
    bytes
}

/// Whether a payload is [`members_mark`]: unlike the empty entry with which a term begins, which says
/// nothing of what is committed.
#[must_use]
pub fn is_members_mark(payload: &[u8]) -> bool {
    payload.len() == HEADER_BYTES && payload[TIME_BYTES..] == [0; 4]
}

/// Gives a batch that [`is_current`] the time and the rules of the leader that proposes it, and the format of the
/// version of its ensemble. The first version's has no place for rules.
pub fn stamp(batch: &mut [u8], time: &EntryTime, rules: Rules, version: u8) {
    let (format, rules) = match version {
        ..version::SECOND => (TXN_FORMAT_FIRST, 0),
        _ => (TXN_FORMAT_NEWEST, flags_of(rules)),
    };
    batch[0] = format;
    batch[1..9].copy_from_slice(&time.wall_ms.to_be_bytes());
    batch[9] = if time.is_agreed { rules | FLAG_AGREED } else { rules };
    batch[10..TIME_BYTES].copy_from_slice(&time.steady_ms.unwrap_or(0).to_be_bytes());
}

/// The wall clock that a batch of this version's format was stamped with, milliseconds since the epoch.
#[must_use]
pub fn stamped_ms(batch: &[u8]) -> Option<i64> {
    let bytes = batch.get(1..9).filter(|_| is_current(batch))?;
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

/// Whether a batch is of the format that [`stamp`] knows.
#[must_use]
pub fn is_current(batch: &[u8]) -> bool {
    batch.first().is_some_and(|format| (TXN_FORMAT_FIRST..=TXN_FORMAT_NEWEST).contains(format))
}

/// A decoded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// When it was proposed.
    pub time: EntryTime,
    /// The rules of the leader that proposed it; `None` in entries of the first version.
    pub rules: Option<Rules>,
    /// In the order in which they take effect.
    pub txns: Vec<Txn>,
}

impl Batch {
    /// Decodes the payload of an entry; the empty payload is the empty batch.
    ///
    /// # Errors
    /// When the payload is none, or from a newer version.
    pub fn decode(data: &Bytes) -> Result<Self, BadEntry> {
        let Some(&version) = data.first() else {
            return Ok(Self { time: EntryTime::default(), rules: None, txns: Vec::new() });
        };
        let mut reader = Reader::new(data.slice(1..));
        let (time, rules) = match version {
            TXN_FORMAT_WALL_ONLY => {
                (EntryTime { wall_ms: reader.long("wall_ms")?, ..EntryTime::default() }, None)
            }
            TXN_FORMAT_FIRST | TXN_FORMAT_NEWEST => decode_header(&mut reader, version)?,
            _ => return Err(BadEntry::Version(version)),
        };
        // Shorter than any transaction: kind, origin, session, cxid, identities.
        let count = reader.count("count", 1 + 24 + 8 + 4 + 4)?;
        let count = count.ok_or(Malformed::new("count", "is negative"))?;
        let mut txns: Vec<Txn> = Vec::with_capacity(count);
        for _ in 0..count {
            let txn = Txn::decode(&mut reader, txns.last())?;
            txns.push(txn);
        }
        if reader.remaining() > 0 {
            return Err(Malformed::new("batch", "has trailing bytes").into());
        }
        Ok(Self { time, rules, txns })
    }
}

/// Decodes the rest of a header of one of the formats that are written.
fn decode_header(reader: &mut Reader, format: u8) -> Result<(EntryTime, Option<Rules>), Malformed> {
    let wall_ms = reader.long("wall_ms")?;
    let flags = reader.byte("flags")?;
    let (is_agreed, others) = (flags & FLAG_AGREED != 0, flags & !FLAG_AGREED);
    let rules = match format {
        TXN_FORMAT_FIRST if others == 0 => None,
        TXN_FORMAT_FIRST => return Err(Malformed::new("is_agreed", "is neither 0 nor 1")),
        _ => Some(rules_of(others).ok_or(Malformed::new("flags", "are unknown"))?),
    };
    let steady_ms = reader.long("steady_ms")?;
    if !(0..=STEADY_MS_MAX).contains(&steady_ms) {
        return Err(Malformed::new("steady_ms", "is out of range"));
    }
    Ok((EntryTime { wall_ms, is_agreed, steady_ms: Some(steady_ms) }, rules))
}

impl Txn {
    fn decode(reader: &mut Reader, before: Option<&Self>) -> Result<Self, Malformed> {
        let kind = reader.byte("kind")?;
        let origin = Origin {
            server: reader.long("server")?.cast_unsigned(),
            conn: reader.long("conn")?.cast_unsigned(),
            sequence: reader.long("sequence")?.cast_unsigned(),
        };
        let session = reader.long("session")?;
        let cxid = reader.int("cxid")?;
        let ids = match (reader.count("ids", 8)?, before) {
            (None, Some(before)) => before.ids.clone(),
            (None, None) => return Err(Malformed::new("ids", "as before, but there is none")),
            (Some(count), _) => (0..count)
                .map(|_| {
                    Ok(Identity { scheme: reader.string("scheme")?, id: reader.string("id")? })
                })
                .collect::<Result<_, Malformed>>()?,
        };
        let op = match kind {
            KIND_CLIENT => TxnOp::Client {
                op: reader.int("op")?,
                body: reader.buffer("body")?.ok_or(Malformed::new("body", "is null"))?,
            },
            KIND_OPEN | KIND_ATTACH => {
                let timeout_ms = reader.int("timeout")?;
                let password = reader.buffer("password")?.map(|password| {
                    <[u8; PASSWORD_BYTES]>::try_from(&password[..])
                        .map_err(|_| Malformed::new("password", "is not 16 bytes long"))
                });
                match (kind, password.transpose()?) {
                    (KIND_OPEN, password) => TxnOp::OpenSession { timeout_ms, password },
                    (_, Some(password)) => TxnOp::AttachSession { timeout_ms, password },
                    (_, None) => return Err(Malformed::new("password", "is missing")),
                }
            }
            KIND_CLOSE => TxnOp::CloseSession,
            KIND_EXPIRE => TxnOp::ExpireSession,
            KIND_REAP => TxnOp::Reap { path: reader.string("path")? },
            KIND_FOUND | KIND_FOUND_AT_ZERO => TxnOp::Found {
                members: reader.string("members")?,
                opens_term: kind == KIND_FOUND_AT_ZERO,
            },
            KIND_UPGRADE => TxnOp::Upgrade {
                version: reader.byte("version")?,
                release: reader.string("release")?,
            },
            KIND_REFUSE => TxnOp::Refuse { op: reader.int("op")?, code: reader.int("code")? },
            KIND_FOREIGN => {
                let bytes = reader.buffer("transaction")?.unwrap_or_default();
                TxnOp::Foreign(Box::new(zookeeper::Txn::decode(bytes)?))
            }
            KIND_MIGRATE => TxnOp::Migrate(MigrateOp::decode(reader)?),
            _ => return Err(Malformed::new("kind", "is unknown")),
        };
        Ok(Self { origin, session, cxid, ids, op })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(opens_term: bool) -> TxnOp {
        TxnOp::Found { members: "server.1=h:1:2:participant".into(), opens_term }
    }

    fn sample() -> (Vec<Txn>, Vec<u8>) {
        let ids: Identities =
            [Identity { scheme: "ip".into(), id: "127.0.0.1".into() }].into_iter().collect();
        let txn = |sequence, op| Txn {
            origin: Origin { server: 1, conn: 7, sequence },
            session: -5,
            cxid: 3,
            ids: ids.clone(),
            op,
        };
        let txns = vec![
            txn(1, TxnOp::Client { op: 2, body: Bytes::from_static(b"abc") }),
            txn(2, TxnOp::OpenSession { timeout_ms: 4000, password: Some([9; 16]) }),
            txn(2, TxnOp::OpenSession { timeout_ms: 4000, password: None }),
            txn(3, TxnOp::CloseSession),
            txn(4, TxnOp::ExpireSession),
            txn(5, TxnOp::Reap { path: "/c".into() }),
            txn(6, TxnOp::AttachSession { timeout_ms: 4000, password: [9; 16] }),
            txn(7, found(false)),
            txn(8, TxnOp::Refuse { op: 16, code: -13 }),
            txn(9, found(true)),
            txn(10, TxnOp::Upgrade { version: 2, release: "0.2.0".into() }),
        ];
        let mut builder = BatchBuilder::default();
        for txn in &txns {
            builder.push(txn.origin, txn.session, txn.cxid, &txn.ids, &txn.op);
        }
        let mut bytes = builder.take();
        stamp(&mut bytes, &TIME, Rules::DEFAULT, version::FIRST);
        (txns, bytes)
    }

    const TIME: EntryTime = EntryTime { wall_ms: 1234, is_agreed: true, steady_ms: Some(567) };

    #[test]
    fn a_batch_decodes_to_what_was_encoded() {
        let (txns, bytes) = sample();
        assert_eq!(Batch::decode(&Bytes::from(bytes)), Ok(Batch { time: TIME, rules: None, txns }));
    }

    #[test]
    fn from_the_second_version_on_a_batch_carries_each_rule_of_its_leader() {
        let (txns, mut bytes) = sample();
        for flags in (0..32).step_by(2) {
            let rules = rules_of(flags).unwrap();
            stamp(&mut bytes, &TIME, rules, version::SECOND);
            let batch = Batch { time: TIME, rules: Some(rules), txns: txns.clone() };
            assert_eq!(Batch::decode(&Bytes::copy_from_slice(&bytes)), Ok(batch));
        }
        bytes[9] |= 32;
        assert!(Batch::decode(&Bytes::from(bytes)).is_err(), "a rule that no release knows");
    }

    #[test]
    fn a_batch_cut_anywhere_or_extended_is_refused() {
        let (_, bytes) = sample();
        for length in 1..bytes.len() {
            assert!(Batch::decode(&Bytes::copy_from_slice(&bytes[..length])).is_err(), "{length}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Batch::decode(&Bytes::from(longer)).is_err());
    }

    #[test]
    fn an_entry_of_the_format_before_has_a_wall_clock_and_no_steady_one() {
        let (txns, bytes) = sample();
        let old = [&[1][..], &bytes[1..9], &bytes[TIME_BYTES..]].concat();
        let time = EntryTime { wall_ms: 1234, is_agreed: false, steady_ms: None };
        assert!(!is_current(&old) && is_current(&bytes));
        assert_eq!(Batch::decode(&Bytes::from(old)), Ok(Batch { time, rules: None, txns }));
    }

    #[test]
    fn a_time_that_no_leader_writes_is_refused() {
        let (_, bytes) = sample();
        for (at, byte) in [(9, 2), (10, 0xff), (10, 0x7f)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert!(Batch::decode(&Bytes::from(wrong)).is_err(), "byte {at} is {byte}");
        }
    }

    #[test]
    fn a_future_format_is_refused_by_its_number() {
        let (_, mut bytes) = sample();
        bytes[0] = 9;
        assert_eq!(Batch::decode(&Bytes::from(bytes)), Err(BadEntry::Version(9)));
    }
}
