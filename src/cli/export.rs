//! `lockkeeper export`: the state of a server that does not run, or a backup, as data that ZooKeeper starts from.
//!
//! *Owns* the command's flags and its report. *Invariants*: our own data is never changed; ZooKeeper's directory was
//! empty before, and has all of it afterwards or nothing. *Never* starts a server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::data_flags::DataFlags;
use super::flags::OutputFlag;
use super::output::{Failure, Said, shown};
use super::snapshot;
use crate::server::offline;
use crate::transfer::{self, Counts, Exported};

/// How many sessions a report shows.
const LINES_MAX: usize = 20;

/// Flags of `lockkeeper export`.
#[derive(Debug, Args)]
pub(crate) struct ExportFlags {
    /// A new or empty directory: the dataDir of a server of ZooKeeper 3.9
    #[arg(long, value_name = "DIR")]
    zookeeper: PathBuf,
    /// Take the state in a backup (`lockkeeper snapshot save`), in place of that of a directory; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    from_backup: Option<PathBuf>,
    #[command(flatten)]
    data: DataFlags,
    /// Read and report only
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// Runs the command.
pub(super) fn run(flags: &ExportFlags) -> ExitCode {
    let done = carry_out(flags);
    let said = done.map(|report| Said { text: report.text(flags), json: report.json(flags) });
    shown(said, flags.output.output, false)
}

/// What was done.
struct Report {
    exported: Exported,
    counts: Counts,
    uncertain: u64,
}

fn carry_out(flags: &ExportFlags) -> Result<Report, Failure> {
    let config = flags.data.config().map_err(Failure::usage)?;
    let (machine, uncertain) = match &flags.from_backup {
        Some(file) => {
            let (.., machine) = snapshot::load(file, &config)?;
            (machine, 0)
        }
        None => {
            let state = offline::load(&config, &config.data_dir, &config.data_log_dir)
                .map_err(|error| Failure::refused(error.to_string()))?;
            (state.machine, state.uncertain)
        }
    };
    let counts = Counts::of(&machine);
    let dir = &flags.zookeeper;
    let exported = transfer::export(machine, dir, config.server_id, flags.dry_run);
    Ok(Report { exported: exported.map_err(Failure::refused)?, counts, uncertain })
}

impl Report {
    fn text(&self, flags: &ExportFlags) -> String {
        let Self { exported, counts, uncertain } = self;
        let left: usize = exported.left_out.iter().map(|(_, paths)| paths.len()).sum();
        let mut lines = Vec::new();
        lines.push(match flags.dry_run {
            true => format!("dry run: {} was not written", exported.file.display()),
            false => format!("{}: {} bytes", exported.file.display(), exported.bytes),
        });
        lines.push(format!("{} znodes at zxid {:#x}", counts.znodes - left as u64, exported.zxid));
        if *uncertain > 0 {
            lines.push(format!(
                "the last {uncertain} entries of the log may not have been committed: they are part of it"
            ));
        }
        lines.push(format!(
            "{} sessions can be taken up again; {} are left out, with {left} ephemerals: ZooKeeper would compute \
             other passwords \
             for them",
            exported.sessions_kept,
            exported.left_out.len()
        ));
        for (session, paths) in exported.left_out.iter().take(LINES_MAX) {
            lines.push(format!("left out: session {session:#x}: {}", paths.join(" ")));
        }
        if exported.left_out.len() > LINES_MAX {
            lines.push(format!("... and {} sessions more", exported.left_out.len() - LINES_MAX));
        }
        if counts.containers + counts.ttls > 0 {
            lines.push(
                "there are containers or znodes with a time to live: ZooKeeper needs \
                 -Dzookeeper.extendedTypesEnabled=true"
                    .to_owned(),
            );
        }
        lines.push(
            "every server of the ZooKeeper ensemble may begin with a copy of this directory and its own \
             myid".to_owned(),
        );
        lines.join("\n") + "\n"
    }

    fn json(&self, flags: &ExportFlags) -> Value {
        let Self { exported, counts, uncertain } = self;
        let left_out: Vec<Value> = exported
            .left_out
            .iter()
            .map(|(session, paths)| json!({ "session": format!("{session:#x}"), "ephemerals": paths }))
            .collect();
        json!({
            "done": if flags.dry_run { "dry-run" } else { "exported" },
            "file": exported.file.to_string_lossy(),
            "bytes": exported.bytes,
            "zxid": format!("{:#x}", exported.zxid),
            "digest": exported.digest.to_string(),
            "znodes_before": counts.znodes,
            "containers": counts.containers,
            "ttl_znodes": counts.ttls,
            "uncertain_entries": uncertain,
            "sessions_kept": exported.sessions_kept,
            "sessions_left_out": left_out,
        })
    }
}
