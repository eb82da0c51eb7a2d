//! `lockkeeper member finish-upgrade`: all servers run the new release, and the way back to the one before is given up.
//!
//! *Owns* the command's flags and its words. The judgement is the leader's (`POST /upgrade`); the exit codes are
//! those of `lockkeeper member`: 0 it is finished, 1 a server is not ready, 75 not now, 69 no server answers.
//! *Invariant*: what is no clear yes of a server is no success.

use clap::Args;

use crate::cli::admin::posted;
use crate::cli::flags::{AdminFlags, OutputFlag};
use crate::cli::output::{Failure, Said};

/// Flags of `lockkeeper member finish-upgrade`.
#[derive(Debug, Args)]
pub(crate) struct FinishUpgradeFlags {
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Asks the leader, among the servers that are named.
pub(super) fn run(flags: &FinishUpgradeFlags) -> Result<Said, Failure> {
    let access = flags.admin.access().map_err(Failure::usage)?;
    let json = posted(&access, "/upgrade", "", "not all servers are ready:")?;
    let release = json["release"].as_str().unwrap_or("unknown");
    let text = match json["version"] == json["before"] {
        true => format!(
            "nothing to finish: the ensemble is at version {}, the last one of lockkeeper {release}\n",
            json["version"]
        ),
        false => format!(
            "the upgrade is finished: the ensemble is at version {}, and its servers cannot go back behind \
             lockkeeper {release}\n",
            json["version"]
        ),
    };
    Ok(Said { text, json })
}
