//! `lockkeeper import`: a new ensemble that begins with the data of one of Apache ZooKeeper.
//!
//! *Owns* the command's flags, its report and its exit codes. *Invariants*: ZooKeeper's directories are never changed;
//! the data directory has no data before, and has all of it afterwards or none; the zxids of the new ensemble are
//! above all that ZooKeeper's servers tell of. *Never* starts a server.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::data_flags::DataFlags;
use super::duration::now_ms;
use super::flags::OutputFlag;
use super::output::{Failure, Said, shown};
use super::srvr;
use crate::server::offline::{self, Begun, term_of_new_ensemble};
use crate::transfer::{self, Chosen, Counts, Loaded, Member, Source, Want};

/// How many lines of one kind a report shows.
const LINES_MAX: usize = 20;

/// Flags of `lockkeeper import`.
#[derive(Debug, Args)]
pub(crate) struct ImportFlags {
    /// A dataDir of ZooKeeper, or dataDir,dataLogDir; of an ensemble best those of all its servers
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<Source>,
    /// The configuration file of the new server, as for `lockkeeper server`; without one: ./lockkeeper-data
    #[arg(long, value_name = "ZOO.CFG")]
    config: Option<PathBuf>,
    /// The new server's directory of all data (dataDir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Which server of the new ensemble this is, if the file myid does not say it
    #[arg(long, value_name = "N")]
    myid: Option<String>,
    /// What becomes of transactions that no majority of the directories has: they may not have been committed
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    tail: Tail,
    /// Take directories whose logs do not reach their newest snapshot: there are no others
    #[arg(long)]
    without_logs: bool,
    /// Take a tree whose digest differs from the one that ZooKeeper has written down
    #[arg(long)]
    any_digest: bool,
    /// Read and report only
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// What becomes of the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tail {
    /// Keep it, as ZooKeeper does if that server leads
    Keep,
    /// Leave it out
    Drop,
}

/// Runs the command.
pub(super) fn run(flags: &ImportFlags) -> ExitCode {
    let done = carry_out(flags);
    let said = done.map(|report| Said { text: report.text(flags), json: report.json(flags) });
    shown(said, flags.output.output, false)
}

/// What was done.
struct Report {
    members: Vec<Member>,
    chosen: Chosen,
    counts: Counts,
    sessions: u64,
    orphans: Vec<(i64, String)>,
    term: u64,
    still_serving: Vec<u8>,
    snapshot: String,
    loaded: Loadedly,
    data_dir: PathBuf,
    start: String,
    took_ms: u128,
}

/// What is told of the reading, without the state.
struct Loadedly {
    skipped: Vec<String>,
    logs: u64,
    txns: u64,
    torn: Option<String>,
    digest: u64,
    compared: u64,
    differs_at: Option<i64>,
    last_zxid: i64,
}

fn carry_out(flags: &ImportFlags) -> Result<Report, Failure> {
    let begun = Instant::now();
    let data = DataFlags::of(flags.config.clone(), flags.data_dir.clone(), flags.myid.clone());
    let config = data.config().map_err(Failure::usage)?;
    let members = flags.dirs.iter().map(Member::at).collect::<Result<Vec<_>, _>>();
    let members = members.map_err(Failure::refused)?;
    let chosen = transfer::choose(&members).map_err(Failure::refused)?;
    if !flags.without_logs {
        // The file may be that of ZooKeeper, and name what the user has not.
        let other = Some(config.data_log_dir.as_path())
            .filter(|dir| members.iter().all(|member| member.log_dir != *dir))
            .filter(|dir| Member::has_logs_in(dir));
        transfer::refuse_without_logs(&members, &chosen, other).map_err(Failure::refused)?;
    }
    let up_to = match flags.tail {
        Tail::Keep => None,
        Tail::Drop => Some(chosen.majority_has),
    };
    let fresh = offline::fresh(&config).map_err(|error| Failure::refused(error.to_string()))?;
    let options = fresh.tree().options().clone();
    let want = Want { options, up_to, any_digest: flags.any_digest, now_ms: now_ms() };
    let loaded = transfer::load(&members[chosen.winner], &want).map_err(Failure::refused)?;
    let Loaded { mut machine, snapshot, skipped, logs, txns, torn, digests, digest } = loaded;
    let last_zxid = machine.last_zxid();
    let orphans = machine.remove_foreign_orphans();
    let orphans = orphans.into_iter().map(|(id, path)| (id, path.as_str().to_owned())).collect();
    machine.settle_foreign().map_err(Failure::refused)?;
    let counts = Counts::of(&machine);
    let highest = u64::try_from(chosen.highest_epoch).unwrap_or(0);
    let answered = srvr::ask(&config);
    let highest =
        answered.iter().map(|server| offline::term_of_zxid(server.zxid)).fold(highest, u64::max);
    let term = term_of_new_ensemble(highest).map_err(Failure::refused)?;
    let Begun { sessions_kept, .. } = machine.begin_ensemble(term, true);
    let winner = &members[chosen.winner];
    if !flags.dry_run {
        let origin = format!(
            "imported from {} of Apache ZooKeeper (last zxid {last_zxid:#x})",
            winner.dir.display()
        );
        offline::begin(&config, machine, term, &origin)
            .map_err(|error| Failure::refused(error.to_string()))?;
    }
    let loaded = Loadedly {
        skipped,
        logs,
        txns,
        torn,
        digest,
        compared: digests.compared,
        differs_at: digests.differs_at,
        last_zxid,
    };
    Ok(Report {
        chosen,
        counts,
        sessions: sessions_kept,
        orphans,
        term,
        still_serving: answered
            .iter()
            .filter(|server| server.serves)
            .map(|server| server.server)
            .collect(),
        snapshot: snapshot.map_or_else(|| "none".to_owned(), |path| path.display().to_string()),
        loaded,
        data_dir: config.data_dir.clone(),
        start: data.start_command(),
        took_ms: begun.elapsed().as_millis(),
        members,
    })
}

impl Report {
    fn text(&self, flags: &ImportFlags) -> String {
        let Self { chosen, counts, loaded, .. } = self;
        let winner = self.members[chosen.winner].dir.display();
        let mut lines = Vec::new();
        if self.members.len() > 1 {
            lines.push(format!("{winner} is taken: {}", chosen.why));
        }
        lines.push(format!(
            "{winner}: snapshot {}, {} transactions behind it out of {} logs, up to zxid {:#x}",
            self.snapshot, loaded.txns, loaded.logs, loaded.last_zxid
        ));
        lines.extend(loaded.skipped.iter().map(|reason| format!("not used: {reason}")));
        lines.extend(chosen.doubts.iter().cloned());
        if let Some(torn) = &loaded.torn {
            lines.push(format!(
                "{torn}: the last transaction there is not whole, and is left out: a crash leaves one so before \
                 ZooKeeper has acknowledged it"
            ));
        }
        lines.push(self.tail_line(flags.tail));
        lines.push(match loaded.differs_at {
            Some(zxid) => format!(
                "the tree DIFFERS from ZooKeeper's digest at zxid {zxid:#x}; it is taken as it is"
            ),
            None if loaded.compared == 0 => format!(
                "ZooKeeper has written no digest to compare with; its digest would be {}",
                loaded.digest
            ),
            None => format!(
                "the tree has ZooKeeper's digest ({}, compared {} times)",
                loaded.digest, loaded.compared
            ),
        });
        lines.push(format!(
            "{} znodes ({} ephemeral, {} containers, {} with a time to live, {} with an access control list, {} \
             quotas), {} \
             bytes of data",
            counts.znodes,
            counts.ephemerals,
            counts.containers,
            counts.ttls,
            counts.with_acl,
            counts.quotas,
            counts.bytes
        ));
        lines.push(format!("{} sessions, which their clients can take up again", self.sessions));
        for (session, path) in self.orphans.iter().take(LINES_MAX) {
            lines.push(format!(
                "removed: ephemeral {path} of session {session:#x}, which is not open"
            ));
        }
        if self.orphans.len() > LINES_MAX {
            lines.push(format!("... and {} ephemerals more", self.orphans.len() - LINES_MAX));
        }
        for server in &self.still_serving {
            lines.push(format!(
                "server {server} still serves clients: stop it before you start the new ensemble"
            ));
        }
        if flags.dry_run {
            lines.push(format!("dry run: nothing was written ({} ms)", self.took_ms));
        } else {
            lines.push(format!(
                "{}: written in {} ms; the zxids of the new ensemble are above {:#x}",
                self.data_dir.display(),
                self.took_ms,
                self.term << 32
            ));
            lines.push(format!("start it: {}", self.start));
        }
        lines.retain(|line| !line.is_empty());
        lines.join("\n") + "\n"
    }

    fn tail_line(&self, tail: Tail) -> String {
        let Chosen { tail: count, majority_has, .. } = &self.chosen;
        match (count, tail) {
            (0, _) => String::new(),
            (_, Tail::Keep) => format!(
                "the last {count} transactions (behind zxid {majority_has:#x}) are in no majority of these \
                 directories, and may \
                 not have been committed: they are kept (--tail drop leaves them out)"
            ),
            (_, Tail::Drop) => format!(
                "the last {count} transactions (behind zxid {majority_has:#x}) are in no majority of these \
                 directories: they \
                 are left out"
            ),
        }
    }

    fn json(&self, flags: &ImportFlags) -> Value {
        let Self { chosen, counts, loaded, .. } = self;
        let members: Vec<Value> = self
            .members
            .iter()
            .zip(&chosen.last)
            .map(|(member, last)| {
                json!({
                    "dir": member.dir.to_string_lossy(),
                    "epoch": member.current_epoch,
                    "last_zxid": format!("{last:#x}"),
                })
            })
            .collect();
        let orphans: Vec<Value> = self
            .orphans
            .iter()
            .map(|(session, path)| json!({ "session": format!("{session:#x}"), "path": path }))
            .collect();
        json!({
            "done": if flags.dry_run { "dry-run" } else { "imported" },
            "taken": self.members[chosen.winner].dir.to_string_lossy(),
            "why": chosen.why,
            "members": members,
            "doubts": chosen.doubts,
            "snapshot": self.snapshot,
            "not_used": loaded.skipped,
            "logs": loaded.logs,
            "transactions": loaded.txns,
            "torn": loaded.torn,
            "last_zxid": format!("{:#x}", loaded.last_zxid),
            "majority_has": format!("{:#x}", chosen.majority_has),
            "tail": chosen.tail,
            "tail_dropped": flags.tail == Tail::Drop,
            "digest": loaded.digest.to_string(),
            "digests_compared": loaded.compared,
            "digest_differs_at": loaded.differs_at.map(|zxid| format!("{zxid:#x}")),
            "znodes": counts.znodes,
            "ephemerals": counts.ephemerals,
            "containers": counts.containers,
            "ttl_znodes": counts.ttls,
            "znodes_with_acl": counts.with_acl,
            "quotas": counts.quotas,
            "data_bytes": counts.bytes,
            "sessions": self.sessions,
            "ephemerals_removed": orphans,
            "still_serving": self.still_serving,
            "above_zxid": format!("{:#x}", self.term << 32),
            "data_dir": self.data_dir.to_string_lossy(),
            "took_ms": u64::try_from(self.took_ms).unwrap_or(u64::MAX),
        })
    }
}
