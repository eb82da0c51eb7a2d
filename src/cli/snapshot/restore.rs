//! `lockkeeper snapshot restore`: a new ensemble that begins with a backup.
//!
//! *Owns* the command's flags and words. *Invariants*: the data directory has no data before; the zxids of the new
//! ensemble are above all that the backup, the servers that answer and `--above-zxid` tell of. *Never* starts a
//! server.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::file::{json as header_json, load};
use super::graft;
use crate::cli::data_flags::DataFlags;
use crate::cli::flags::{OutputFlag, ServersFlags};
use crate::cli::graft::OnConflict;
use crate::cli::output::{Failure, Said};
use crate::cli::srvr;
use crate::config::Config;
use crate::server::offline::{self, term_of_new_ensemble, term_of_zxid};

/// Flags of `lockkeeper snapshot restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreFlags {
    /// The backup; - for standard input
    file: PathBuf,
    #[command(flatten)]
    data: DataFlags,
    /// Keep the sessions and their ephemerals: their clients can take them up again
    #[arg(long)]
    keep_sessions: bool,
    /// A zxid that the ensemble has had after the backup: those of the new one will be higher
    #[arg(long, value_name = "ZXID", value_parser = srvr::zxid)]
    above_zxid: Option<i64>,
    /// Bring the znode at this path and those below into an ensemble that runs, at --server
    #[arg(long, value_name = "PATH")]
    #[arg(conflicts_with_all = ["config", "data_dir", "myid", "keep_sessions", "above_zxid"])]
    subtree: Option<String>,
    /// What becomes of znodes that are there and differ
    #[arg(long, value_name = "WHAT", default_value = "fail", requires = "subtree")]
    on_conflict: OnConflict,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Puts the state into the directory.
pub(super) fn run(flags: &RestoreFlags) -> Result<Said, Failure> {
    if let Some(subtree) = &flags.subtree {
        let access = flags.servers.access().map_err(Failure::usage)?;
        let (_, _, machine) = load(&flags.file, &Config::without_file())?;
        return graft::run(&machine, subtree, flags.on_conflict, &access);
    }
    let config = flags.data.config().map_err(Failure::usage)?;
    let (header, trailer, mut machine) = load(&flags.file, &config)?;
    let answered = srvr::ask(&config);
    let highest = answered.iter().map(|server| term_of_zxid(server.zxid));
    let highest = highest.chain(flags.above_zxid.map(term_of_zxid));
    let own = header.term.max(term_of_zxid(header.zxid));
    let highest = highest.fold(own, u64::max);
    let term = term_of_new_ensemble(highest).map_err(Failure::refused)?;
    let begun = machine.begin_ensemble(term, flags.keep_sessions);
    let zxid = machine.last_zxid();
    let znodes = machine.tree().node_count();
    let origin = format!(
        "restored from {} (zxid {:#x} of ensemble {:032x}, made by server {})",
        flags.file.display(),
        header.zxid,
        header.ensemble,
        header.server_id
    );
    offline::begin(&config, machine, term, &origin)
        .map_err(|error| Failure::refused(error.to_string()))?;
    let mut text = format!(
        "{}: {znodes} znodes; the zxids of the new ensemble are above {:#x}\n",
        config.data_dir.display(),
        term << 32,
    );
    if begun.sessions_closed > 0 {
        text += &format!(
            "{} sessions were closed, {} ephemerals removed (--keep-sessions keeps them)\n",
            begun.sessions_closed, begun.ephemerals_removed
        );
    }
    if begun.sessions_kept > 0 {
        text += &format!(
            "{} sessions are kept, with {} ephemerals\n",
            begun.sessions_kept, begun.ephemerals_kept
        );
    }
    text += &format!("start it: {}\n", flags.data.start_command());
    if config.is_ensemble() {
        text += "the other servers join with empty data directories: what they had belongs to another ensemble\n";
    }
    for server in answered.iter().filter(|server| server.serves) {
        text += &format!(
            "server {} still serves (zxid {:#x}): stop it first, and empty its data directory\n",
            server.server, server.zxid
        );
    }
    let mut json = header_json(&header, &trailer);
    json["data_dir"] = config.data_dir.to_string_lossy().into();
    json["above_zxid"] = format!("{:#x}", term << 32).into();
    json["zxid_now"] = format!("{zxid:#x}").into();
    json["sessions_closed"] = begun.sessions_closed.into();
    json["sessions_kept"] = begun.sessions_kept.into();
    json["ephemerals_removed"] = begun.ephemerals_removed.into();
    json["still_serving"] =
        answered.iter().filter(|server| server.serves).map(|server| json!(server.server)).collect();
    Ok(Said { text, json })
}
