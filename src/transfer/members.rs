//! Which of several servers of an ensemble of ZooKeeper is taken.
//!
//! *Owns* the choice and its reasons: the highest epoch, then the highest last transaction, as ZooKeeper elects.
//! *Invariants*: servers whose logs have different transactions under one zxid are of different ensembles, and none of
//! them is taken; one whose log lacks a transaction that another has in front of one that both have is not taken,
//! unless what the others have shows that it was never committed.
//! *Never* reads a snapshot.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::directory::Member;
use super::epoch;
use super::load::for_each_txn;

/// How many of the last transactions of each server are compared with those of the others.
const COMPARED: usize = 200_000;

/// What was found out about the servers.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Which of them is taken.
    pub(crate) winner: usize,
    /// The last zxid of each: of its log, or of its newest snapshot.
    pub(crate) last: Vec<i64>,
    /// The last zxid of the log of each; 0 without one.
    pub(crate) last_logged: Vec<i64>,
    /// Why, in one line.
    pub(crate) why: String,
    /// The last transaction that a majority of them has. Those behind it may not have been committed.
    pub(crate) majority_has: i64,
    /// How many of the winner's transactions are behind that.
    pub(crate) tail: u64,
    /// The highest epoch that any of them tells of.
    pub(crate) highest_epoch: i64,
    /// What the operator should know of the others: two of which nothing shows that they are of one ensemble, and
    /// transactions that are left out.
    pub(crate) doubts: Vec<String>,
}

/// What the log of one server holds.
#[derive(Default)]
struct Seen {
    last: i64,
    last_logged: i64,
    /// The last transactions, by zxid: a hash of each.
    recent: BTreeMap<i64, u64>,
}

/// Compares the servers.
///
/// # Errors
/// A log is damaged, or they are no servers of one ensemble.
pub(crate) fn choose(members: &[Member]) -> Result<Chosen, String> {
    let seen = members.iter().map(look).collect::<Result<Vec<_>, _>>()?;
    refuse_strangers(members)?;
    let mut doubts = Vec::new();
    for (at, one) in seen.iter().enumerate() {
        for (other_at, other) in seen.iter().enumerate().skip(at + 1) {
            let names = (members[at].dir.display(), members[other_at].dir.display());
            let common: Vec<_> = one
                .recent
                .iter()
                .filter_map(|(zxid, hash)| Some((zxid, hash, other.recent.get(zxid)?)))
                .collect();
            if let Some((zxid, ..)) = common.iter().find(|(_, hash, other)| hash != other) {
                return Err(format!(
                    "{} and {}: they have different transactions {zxid:#x}: they are of different ensembles",
                    names.0, names.1
                ));
            }
            if common.is_empty() && one.last != 0 && other.last != 0 {
                doubts.push(format!(
                    "{} and {} have no transaction in common: nothing shows that they are of one ensemble",
                    names.0, names.1
                ));
            }
        }
    }
    let last: Vec<i64> = seen.iter().map(|seen| seen.last).collect();
    let rank = |at: usize| (members[at].current_epoch.unwrap_or(0), last[at]);
    // The first of equals.
    let winner =
        (0..members.len()).rev().max_by_key(|at| rank(*at)).ok_or("no directory is named")?;
    for (at, other) in seen.iter().enumerate().filter(|(at, _)| *at != winner) {
        let dirs = [&members[winner], &members[at]].map(|member| member.dir.display());
        let left_out = |first: i64, count: usize, why: &str| {
            format!(
                "{} has {count} transactions from {first:#x} on that {} lacks: {why}; they are left out",
                dirs[1], dirs[0]
            )
        };
        match lacks(&members[winner], &seen[winner], other) {
            Lacks::Nothing => {}
            Lacks::Between { first, .. } if !is_uncommitted(&seen, other, first) => {
                return Err(format!(
                    "{}: its log lacks transaction {first:#x}, which {} has between others that both have: a part of a \
                     log is lost or damaged; or the server that has it led and was deposed, which the directories of \
                     more servers would show",
                    dirs[0], dirs[1]
                ));
            }
            Lacks::Between { first, count } => doubts.push(left_out(
                first,
                count,
                "that server led, was deposed, and took the state of its successor",
            )),
            Lacks::Tail { first, count } => {
                doubts.push(left_out(first, count, "a later epoch began without them"));
            }
        }
    }
    let mut sorted = last.clone();
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    let majority_has = sorted[sorted.len() / 2].min(last[winner]);
    let tail = seen[winner].recent.range(majority_has + 1..).count() as u64;
    let epochs = members.iter().flat_map(|member| [member.current_epoch, member.accepted_epoch]);
    let highest_epoch = epochs.flatten().chain(last.iter().map(|zxid| epoch(*zxid))).max();
    Ok(Chosen {
        winner,
        why: why(members, &last, winner),
        majority_has,
        tail,
        highest_epoch: highest_epoch.unwrap_or(0),
        doubts,
        last,
        last_logged: seen.iter().map(|seen| seen.last_logged).collect(),
    })
}

/// Refuses a server without a log, or with one that ends in front of its newest snapshot: the log is elsewhere, and
/// with it what came behind that snapshot. `other` is a directory that may have it.
///
/// # Errors
/// In one line: what is missing.
pub(crate) fn refuse_without_logs(
    members: &[Member],
    chosen: &Chosen,
    other: Option<&Path>,
) -> Result<(), String> {
    for (member, logged) in members.iter().zip(&chosen.last_logged) {
        let newest = member.snapshots.first().map_or(0, |(zxid, _)| *zxid);
        // A server that stops has the transaction that its newest snapshot ends with in its log, too.
        if !member.logs.is_empty() && newest <= *logged {
            continue;
        }
        let (dir, log_dir) = (member.dir.display(), member.log_dir.display());
        let there = if member.logs.is_empty() {
            format!("there is no log in {log_dir}")
        } else {
            format!("the logs in {log_dir} end at {logged:#x}")
        };
        let other = other.map_or_else(|| "LOGDIR".to_owned(), |path| path.display().to_string());
        return Err(format!(
            "{dir}: the newest snapshot is of zxid {newest:#x}, and {there}: transactions behind it may be missing; \
             name the dataLogDir, too: {dir},{other}; if there are no other logs, --without-logs takes it as it is"
        ));
    }
    Ok(())
}

fn why(members: &[Member], last: &[i64], winner: usize) -> String {
    let told = |at: usize| match members[at].current_epoch {
        Some(epoch) => format!("epoch {epoch}, last zxid {:#x}", last[at]),
        None => format!("last zxid {:#x}", last[at]),
    };
    if members.len() == 1 {
        return told(0);
    }
    let others: Vec<String> = (0..members.len())
        .filter(|at| *at != winner)
        .map(|at| format!("{}: {}", members[at].dir.display(), told(at)))
        .collect();
    format!("{}, the highest; {}", told(winner), others.join("; "))
}

/// Servers that ran on their own are not of one ensemble, and a server has one directory.
fn refuse_strangers(members: &[Member]) -> Result<(), String> {
    if members.len() == 1 {
        return Ok(());
    }
    for (at, member) in members.iter().enumerate() {
        let dir = member.dir.display();
        if member.current_epoch.is_none() {
            return Err(format!(
                "{dir}: this server ran on its own (it has no currentEpoch): it is of no ensemble with the others"
            ));
        }
        let same =
            members[..at].iter().find(|other| other.myid.is_some() && other.myid == member.myid);
        if let (Some(other), Some(myid)) = (same, &member.myid) {
            return Err(format!(
                "{} and {dir}: both are of server {myid}: they are of different ensembles, or one is a copy",
                other.dir.display()
            ));
        }
    }
    Ok(())
}

/// What one server lacks of another one's transactions, below its own last one.
enum Lacks {
    Nothing,
    /// Both have a later one.
    Between {
        first: i64,
        count: usize,
    },
    /// Those that the other one has behind all that both have. They were never committed if a later epoch began
    /// without them, as the other server would have learned when it joined that.
    Tail {
        first: i64,
        count: usize,
    },
}

fn lacks(member: &Member, seen: &Seen, other: &Seen) -> Lacks {
    let first = seen.recent.first_key_value().map_or(0, |(zxid, _)| *zxid);
    // A snapshot has what is in front of it: a server that took one from its leader has no log of that.
    let snapshot = member.snapshots.first().map(|(zxid, _)| *zxid);
    let behind = match snapshot {
        Some(snapshot) if seen.recent.len() < COMPARED => snapshot,
        Some(snapshot) => snapshot.max(first),
        None => first,
    };
    let all: Vec<i64> = other.recent.range(behind + 1..).map(|(zxid, _)| *zxid).collect();
    let lacked: Vec<i64> = all
        .iter()
        .copied()
        .filter(|zxid| *zxid < seen.last && !seen.recent.contains_key(zxid))
        .collect();
    let last_common = all.iter().rfind(|zxid| seen.recent.contains_key(zxid));
    let count = lacked.len();
    match (lacked.first(), last_common) {
        (None, _) => Lacks::Nothing,
        (Some(first), Some(common)) if first < common => Lacks::Between { first: *first, count },
        (Some(first), _) => Lacks::Tail { first: *first, count },
    }
}

/// Whether a transaction in the log of `holder`, which has later ones that others have, too, was never committed: that
/// server led, was deposed, and took the state of its successor as a snapshot, which leaves its log as it was. Fewer
/// servers have it than go on without it; or as many, and behind it that one's log has a gap, which such a snapshot
/// fills.
fn is_uncommitted(seen: &[Seen], holder: &Seen, zxid: i64) -> bool {
    let mut next = zxid;
    let has_gap = holder.recent.range(zxid + 1..).any(|(&behind, _)| {
        let before = std::mem::replace(&mut next, behind);
        let begins_epoch = epoch(behind) > epoch(before) && behind & 0xffff_ffff == 1;
        behind != before + 1 && !begins_epoch
    });
    let has = seen.iter().filter(|one| one.recent.contains_key(&zxid)).count();
    let goes_over = |one: &&Seen| {
        let first = one.recent.first_key_value().map_or(i64::MAX, |(first, _)| *first);
        first < zxid && zxid < one.last_logged && !one.recent.contains_key(&zxid)
    };
    match has.cmp(&seen.iter().filter(goes_over).count()) {
        Ordering::Less => true,
        Ordering::Equal => has_gap,
        Ordering::Greater => false,
    }
}

fn look(member: &Member) -> Result<Seen, String> {
    let mut seen = Seen::default();
    for (_, path) in &member.logs {
        // Each file may end in the middle of an entry: a server that starts again begins a new one.
        for_each_txn(path, &mut |txn| {
            let mut bytes = Vec::new();
            txn.encode(&mut bytes);
            seen.recent.insert(txn.header.zxid, XxHash3_64::oneshot(&bytes));
            if seen.recent.len() > COMPARED {
                seen.recent.pop_first();
            }
            Ok(true)
        })?;
    }
    seen.last_logged = seen.recent.last_key_value().map_or(0, |(zxid, _)| *zxid);
    let last_snapshot = member.snapshots.first().map_or(0, |(zxid, _)| *zxid);
    seen.last = seen.last_logged.max(last_snapshot);
    Ok(seen)
}
