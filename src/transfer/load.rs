//! The state that one data directory of ZooKeeper holds: the newest whole snapshot, then the logs behind it.
//!
//! *Owns* the order of reading, and what is told about it. *Invariants*: transactions are applied in order and without
//! a gap; ZooKeeper's digest is compared wherever it is told and the snapshot is not fuzzy any more; an older snapshot
//! is taken only if the logs reach from it; a stamp that is ahead of the clock here does not move the clocks of the
//! state. *Never* changes a file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::directory::Member;
use super::{compressed, epoch};
use crate::proto::Malformed;
use crate::replica::{ForeignLoad, Machine};
use crate::tree::{Options, Owner};
use crate::zookeeper::log_file::LogEnd;
use crate::zookeeper::{Item, LogDecoder, SnapshotFileDecoder, Trailer, Txn};

const READ_BYTES: usize = 256 << 10;
/// The digest that this program computes, too.
const DIGEST_VERSION: i32 = 2;

/// What is to be read.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// How the tree is configured. ZooKeeper's digest is always kept.
    pub(crate) options: Options,
    /// The last transaction that is wanted; all, if none is named.
    pub(crate) up_to: Option<i64>,
    /// Whether a tree with another digest than ZooKeeper's is taken.
    pub(crate) any_digest: bool,
    /// The wall clock of this machine. ZooKeeper has stopped: later stamps are those of a leader whose clock was wrong,
    /// and by them znodes with a time to live would be over before their time.
    pub(crate) now_ms: i64,
}

/// How often ZooKeeper's digest was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Comparisons.
    pub(crate) compared: u64,
    /// The zxid of the last one.
    pub(crate) last: Option<i64>,
    /// The first zxid at which it differed.
    pub(crate) differs_at: Option<i64>,
}

/// A state, and how it came together.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The state as ZooKeeper had it, its members included.
    pub(crate) machine: Machine,
    /// The snapshot it began with.
    pub(crate) snapshot: Option<PathBuf>,
    /// Newer snapshots that are damaged, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// Files of the log that were read.
    pub(crate) logs: u64,
    /// Transactions that were applied behind the snapshot.
    pub(crate) txns: u64,
    /// What was dropped at the end of a log, because a write was cut off there.
    pub(crate) torn: Option<String>,
    /// See the type.
    pub(crate) digests: Digests,
    /// ZooKeeper's digest of the state.
    pub(crate) digest: u64,
}

/// Reads a directory.
///
/// # Errors
/// In one line: which file is damaged, or what is missing.
pub(crate) fn load(member: &Member, want: &Want) -> Result<Loaded, String> {
    let options = Options { legacy_digest: true, ..want.options.clone() };
    let mut skipped: Vec<String> = Vec::new();
    let usable = |zxid: i64| want.up_to.is_none_or(|up_to| zxid <= up_to);
    for (zxid, path) in member.snapshots.iter().filter(|(zxid, _)| usable(*zxid)) {
        match read_snapshot(path, *zxid, &options, want.now_ms) {
            Ok((_, Trailer { digest: Some((finished, ..)), .. })) if !usable(finished) => {
                let path = path.display();
                skipped.push(format!(
                    "{path}: it was finished at zxid {finished:#x}, behind what is wanted"
                ));
            }
            Ok((machine, trailer)) => {
                let begun = Begun { machine, trailer, path: Some(path.clone()) };
                match replay(member, want, begun)? {
                    Replayed::Whole(loaded) => {
                        return settle(member, want, Loaded { skipped, ..*loaded });
                    }
                    Replayed::Short(reason) => skipped.push(reason),
                }
            }
            Err(reason) => skipped.push(reason),
        }
    }
    let machine = ForeignLoad::fresh(options);
    let begun = Begun { machine, trailer: Trailer::default(), path: None };
    match replay(member, want, begun) {
        Ok(Replayed::Whole(loaded)) if loaded.txns > 0 || skipped.is_empty() => {
            settle(member, want, Loaded { skipped, ..*loaded })
        }
        Err(reason) if skipped.is_empty() => Err(reason),
        _ => Err(format!(
            "{}; no other snapshot is usable, and no log begins at the first transaction",
            skipped[0]
        )),
    }
}

/// What came of a snapshot and the logs behind it.
enum Replayed {
    /// A state.
    Whole(Box<Loaded>),
    /// The logs end before the zxid at which the snapshot was finished: it may have a part of what is not in them.
    Short(String),
}

/// A state that is older than a snapshot that is there has lost something.
fn settle(member: &Member, want: &Want, loaded: Loaded) -> Result<Loaded, String> {
    let last = loaded.machine.last_zxid();
    let newest = member.snapshots.first().filter(|(zxid, _)| *zxid > last && want.up_to.is_none());
    if let (Some((zxid, _)), Some(reason)) = (newest, loaded.skipped.first()) {
        return Err(format!(
            "{reason}; from an older snapshot the logs reach {last:#x} only, and not {zxid:#x}: logs are missing; if \
             they \
             are elsewhere, name the dataLogDir, too: DIR,LOGDIR"
        ));
    }
    if let Some(zxid) = loaded.digests.differs_at.filter(|_| !want.any_digest) {
        return Err(format!(
            "{}: the tree differs from ZooKeeper's at zxid {zxid:#x} (its digest is another one): the files do not \
             belong \
             together, or ZooKeeper itself had gone wrong; --any-digest takes it as it is",
            member.dir.display()
        ));
    }
    Ok(loaded)
}

struct Begun {
    machine: Machine,
    trailer: Trailer,
    path: Option<PathBuf>,
}

fn read_snapshot(
    path: &Path,
    zxid: i64,
    options: &Options,
    now_ms: i64,
) -> Result<(Machine, Trailer), String> {
    let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let mut from = compressed::open(path).map_err(|error| named(&error))?;
    let mut decoder = SnapshotFileDecoder::default();
    let mut load = ForeignLoad::new(options.clone());
    let mut newest_ms = 0;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = from.read(&mut buffer).map_err(|error| named(&error))?;
        if read == 0 {
            break;
        }
        decoder.feed(&buffer[..read]).map_err(|bad| named(&bad))?;
        while let Some(item) = decoder.next_item().map_err(|bad| named(&bad))? {
            match item {
                Item::Session { id, timeout_ms } => load.session(id, timeout_ms),
                Item::Node(node) => {
                    let stamps = [node.stat.ctime, node.stat.mtime].into_iter();
                    newest_ms =
                        stamps.filter(|time_ms| *time_ms <= now_ms).fold(newest_ms, i64::max);
                    load.node(&node).map_err(|bad| named(&bad))?;
                }
                Item::End => {}
            }
        }
    }
    let trailer = decoder.finish().map_err(|bad| named(&bad))?;
    let mut machine = load.finish(zxid).map_err(|bad| named(&bad))?;
    machine.see_foreign_time(newest_ms);
    Ok((machine, trailer))
}

fn replay(member: &Member, want: &Want, begun: Begun) -> Result<Replayed, String> {
    let Begun { machine, trailer, path } = begun;
    let begun_at = machine.last_zxid();
    // Up to there, the snapshot may have changes that its zxid is in front of. It says 0 if ZooKeeper has computed
    // none.
    let told = trailer.digest.filter(|(zxid, ..)| *zxid > 0);
    let fuzzy_until = if begun_at == 0 { Some(0) } else { told.map(|(zxid, ..)| zxid) };
    let mut replay = Replay {
        machine,
        want,
        digests: Digests::default(),
        fuzzy_until,
        told: told.filter(|(_, version, _)| *version == DIGEST_VERSION),
        last_told: None,
        txns: 0,
    };
    replay.compare_snapshot();
    // The last file that begins at or before what is wanted next, and all behind it.
    let first = member.logs.partition_point(|(zxid, _)| *zxid <= begun_at + 1).saturating_sub(1);
    let (mut logs, mut torn) = (0, None);
    let mut ended = false;
    for (_, path) in &member.logs[first..] {
        if ended {
            break;
        }
        let end =
            for_each_txn(path, &mut |txn| replay.take(txn, path).inspect(|go_on| ended = !go_on))?;
        logs += 1;
        torn = match end {
            LogEnd::TornAt(byte) => Some(format!("{} at byte {byte}", path.display())),
            LogEnd::Whole | LogEnd::Empty => torn,
        };
    }
    replay.compare_last();
    let Replay { machine, digests, txns, fuzzy_until, .. } = replay;
    if let Some(zxid) =
        fuzzy_until.filter(|zxid| *zxid > machine.last_zxid() && want.up_to.is_none())
    {
        let shown = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let last = machine.last_zxid();
        return Ok(Replayed::Short(format!(
            "{shown}: it was finished at zxid {zxid:#x}, and the logs end at {last:#x}"
        )));
    }
    let digest = machine.tree().legacy_digest().expect("it is kept");
    let skipped = Vec::new();
    let loaded = Loaded { machine, snapshot: path, skipped, logs, txns, torn, digests, digest };
    Ok(Replayed::Whole(Box::new(loaded)))
}

struct Replay<'a> {
    machine: Machine,
    want: &'a Want,
    digests: Digests,
    fuzzy_until: Option<i64>,
    /// The digest in the snapshot, until it was compared: zxid, version, digest.
    told: Option<(i64, i32, u64)>,
    /// The last digest that a transaction told and that was not compared.
    last_told: Option<(i64, u64)>,
    txns: u64,
}

impl Replay<'_> {
    /// Applies a transaction, if it is behind the state; false when no more are wanted.
    fn take(&mut self, txn: &Txn, path: &Path) -> Result<bool, String> {
        let (last, zxid) = (self.machine.last_zxid(), txn.header.zxid);
        if self.want.up_to.is_some_and(|up_to| zxid > up_to) {
            return Ok(false);
        }
        if zxid <= last {
            return Ok(true);
        }
        let is_first_of_epoch = epoch(zxid) > epoch(last) && zxid & 0xffff_ffff == 1;
        // Epochs of which no directory has anything would not be missed.
        let follows = is_first_of_epoch && (last != 0 || epoch(zxid) <= 1);
        if zxid != last + 1 && !follows {
            return Err(format!(
                "{}: transaction {zxid:#x} comes behind {last:#x}: those between are missing (a log is gone, or in \
                 another \
                 dataLogDir)",
                path.display()
            ));
        }
        if txn.header.time_ms <= self.want.now_ms {
            self.machine.see_foreign_time(txn.header.time_ms);
        }
        self.machine.apply_foreign(txn);
        self.txns += 1;
        self.compare_snapshot();
        self.last_told = None;
        if let Some(told) = txn.digest.filter(|told| told.version == DIGEST_VERSION) {
            let is_fuzzy = match self.fuzzy_until {
                Some(until) => zxid < until,
                // The snapshot does not say. By the last transaction it is over.
                None => true,
            };
            if is_fuzzy {
                self.last_told = Some((zxid, told.digest));
            } else {
                self.compare(zxid, told.digest);
            }
        }
        Ok(true)
    }

    /// Compares the digest that the snapshot tells, at its zxid.
    fn compare_snapshot(&mut self) {
        if let Some((zxid, _, digest)) = self.told
            && zxid <= self.machine.last_zxid()
        {
            self.told = None;
            if zxid == self.machine.last_zxid() {
                self.compare(zxid, digest);
            }
        }
    }

    fn compare_last(&mut self) {
        if let Some((zxid, digest)) = self.last_told.take()
            && self.fuzzy_until.is_none()
        {
            self.compare(zxid, digest);
        }
    }

    fn compare(&mut self, zxid: i64, digest: u64) {
        self.digests.compared += 1;
        self.digests.last = Some(zxid);
        if self.machine.tree().legacy_digest() != Some(digest) {
            self.digests.differs_at.get_or_insert(zxid);
        }
    }
}

/// Hands out the transactions of a file, until it ends or `take` says false.
pub(super) fn for_each_txn(
    path: &Path,
    take: &mut dyn FnMut(&Txn) -> Result<bool, String>,
) -> Result<LogEnd, String> {
    let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let mut file = File::open(path).map_err(|error| named(&error))?;
    let mut decoder = LogDecoder::default();
    let damaged = |bad: Malformed, decoder: &LogDecoder| match decoder.position() {
        0 => named(&bad),
        at => named(&format!("damaged at byte {at}: {bad}")),
    };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer).map_err(|error| named(&error))?;
        if read == 0 {
            return decoder.finish().map_err(|bad| damaged(bad, &decoder));
        }
        decoder.feed(&buffer[..read]);
        while let Some(txn) = decoder.next_txn().map_err(|bad| damaged(bad, &decoder))? {
            if !take(&txn)? {
                return Ok(LogEnd::Whole);
            }
        }
    }
}

/// What a state consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Znodes, the root counted once.
    pub(crate) znodes: u64,
    /// Of these, ephemerals.
    pub(crate) ephemerals: u64,
    /// Containers.
    pub(crate) containers: u64,
    /// Znodes with a time to live.
    pub(crate) ttls: u64,
    /// Znodes with a list that does not give everybody everything.
    pub(crate) with_acl: u64,
    /// Limits of quotas.
    pub(crate) quotas: u64,
    /// Bytes of data.
    pub(crate) bytes: u64,
}

impl Counts {
    /// Counts a state.
    pub(crate) fn of(machine: &Machine) -> Self {
        let mut counts = Self::default();
        let counted: Result<(), std::convert::Infallible> =
            machine.tree().for_each_persisted(|path, data, acl, stat| {
                counts.znodes += 1;
                counts.bytes += data.map_or(0, <[u8]>::len) as u64;
                counts.with_acl += u64::from(*acl != [crate::proto::Acl::open()]);
                let is_quota =
                    path.starts_with("/zookeeper/quota/") && path.ends_with("/zookeeper_limits");
                counts.quotas += u64::from(is_quota);
                match Owner::from_encoded(stat.ephemeral_owner) {
                    Owner::Persistent => {}
                    Owner::Container => counts.containers += 1,
                    Owner::Ttl(_) => counts.ttls += 1,
                    Owner::Session(_) => counts.ephemerals += 1,
                }
                Ok(())
            });
        let Ok(()) = counted;
        counts
    }
}
