//! `lockkeeper member bootstrap`: an ensemble is founded although participants are missing.
//!
//! *Owns* the command's flags and its words. The judgement is that of the servers that wait (`POST /bootstrap`); the
//! exit codes are those of `lockkeeper member`: 0 it is founded, 1 it is not, 75 not now, 69 no server answers.
//! *Invariant*: what is no clear yes of a server is no success.

use std::time::Duration;

use clap::Args;

use crate::cli::admin::posted;
use crate::cli::flags::{AdminFlags, OutputFlag};
use crate::cli::output::{Failure, Said};

/// Time for the answer: longer than the word counts.
const FOUNDED_MAX: Duration = Duration::from_secs(70);

/// Flags of `lockkeeper member bootstrap`.
#[derive(Debug, Args)]
pub(crate) struct BootstrapFlags {
    /// The participants that were never there, or are lost for ever with their data: 1 or 1,4
    #[arg(long, required = true, value_name = "N,...", value_delimiter = ',')]
    without: Vec<u8>,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Says it to the first server that answers.
pub(super) fn run(flags: &BootstrapFlags) -> Result<Said, Failure> {
    let access = flags.admin.access().map_err(Failure::usage)?.waiting_for(FOUNDED_MAX);
    let without: Vec<String> = flags.without.iter().map(u8::to_string).collect();
    let left_out = without.join(",");
    let json = posted(
        &access,
        "/bootstrap",
        &format!("?without={left_out}"),
        "the server does not take this word, or knows nothing of what has become of it:",
    )?;
    let text = format!(
        "the ensemble {} is founded, and this server belongs to it. A server that is left out stays a participant \
         by the server lines: started with an empty directory, it joins; `lockkeeper member remove` takes it off \
         the list\n",
        json["ensemble"].as_str().unwrap_or("unknown"),
    );
    Ok(Said { text, json })
}
