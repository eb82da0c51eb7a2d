//! `lockkeeper member can-stop`: whether a server may be stopped now, for rolling restarts.
//!
//! *Owns* the command's flags and its waiting. The judgement is the server's (`GET /pre_stop`); the exit codes are
//! those of `lockkeeper member`: 0 it may, 1 stopping it interrupts the service whenever it is done, 75 not now, 69
//! no server answers. *Invariant*: what is no clear yes of a server is no success.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::cli::admin;
use crate::cli::duration::duration;
use crate::cli::exit::{EXIT_NOT_NOW, EXIT_UNAVAILABLE};
use crate::cli::flags::{AdminAccess, AdminFlags, OutputFlag};
use crate::cli::output::{Failure, Said};

/// Time between two looks of `--wait`.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Flags of `lockkeeper member can-stop`.
#[derive(Debug, Args)]
pub(crate) struct CanStopFlags {
    /// The N of server.N; without it, the server that --admin names
    #[arg(value_name = "N")]
    id: Option<u8>,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
    /// A member that is down and is meant to be: it counts as lost, and is not waited for. May be given
    /// several times
    #[arg(long, value_name = "N")]
    ignore: Vec<u8>,
    /// Ask again for so long while the answer is \"not now\", or no server answers
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    wait: Duration,
}

/// Asks until the answer is clear, or the time is over.
pub(super) fn run(flags: &CanStopFlags) -> Result<Said, Failure> {
    let access = flags.access()?;
    let begun = Instant::now();
    loop {
        let failure = match flags.ask(&access) {
            Ok(said) => return Ok(said),
            Err(failure) => failure,
        };
        let may_change = matches!(failure.exit, EXIT_NOT_NOW | EXIT_UNAVAILABLE);
        if !may_change || begun.elapsed() + LOOK_INTERVAL > flags.wait {
            return Err(failure);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

impl CanStopFlags {
    fn access(&self) -> Result<AdminAccess, Failure> {
        let access = self.admin.access().map_err(Failure::usage)?;
        if self.id.is_none() && access.servers.len() > 1 {
            let which =
                "--admin: which of these servers is to be stopped? Give its N, or one address";
            return Err(Failure::usage(which));
        }
        Ok(access)
    }

    fn target(&self) -> String {
        let mut parameters = Vec::new();
        parameters.extend(self.id.map(|id| format!("server={id}")));
        if !self.ignore.is_empty() {
            let ids: Vec<String> = self.ignore.iter().map(ToString::to_string).collect();
            parameters.push(format!("ignore={}", ids.join(",")));
        }
        match parameters.is_empty() {
            true => "/pre_stop".to_string(),
            false => format!("/pre_stop?{}", parameters.join("&")),
        }
    }

    fn ask(&self, access: &AdminAccess) -> Result<Said, Failure> {
        let (status, text) =
            admin::fetch(access, &self.target()).map_err(|error| admin::failed(&error))?;
        let (first, reasons) = text.split_once('\n').unwrap_or((&text, ""));
        let reasons = reasons.trim_end().replace('\n', "\n  ");
        match (status, first) {
            (200, "ok") => Ok(Said {
                json: json!({ "can_stop": true, "then": reasons }),
                text: format!("{reasons}\n"),
            }),
            (503, "not now") => Err(Failure::new(EXIT_NOT_NOW, format!("not now:\n  {reasons}"))),
            (503, "interrupts the service") => Err(Failure::refused(reasons)),
            (404, "no such server") => {
                let id = self.id.map_or(String::new(), |id| format!("server {id} "));
                Err(Failure::refused(format!("{id}is no member of this ensemble")))
            }
            (404, _) => Err(Failure::refused(
                "the server does not know /pre_stop: it is no lockkeeper server, or an older one",
            )),
            // One that is too busy for the question, or is ending.
            (503, _) => Err(Failure::new(EXIT_NOT_NOW, text.trim_end().to_string())),
            (_, _) => Err(Failure::refused(text.trim_end().to_string())),
        }
    }
}
