//! What each member is right now, as it says itself.
//!
//! *Owns* the table that `lockkeeper member list` prints: the server lines as they are in the log,
//! and behind each, what the word `srvr` says at that server's client port. Most lines do not say which that is,
//! because each file says it for its own server: then it is taken to be the port that the command was told of.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::srvr::{client_address, each, srvr};
use crate::config::{HostPort, Membership, ServerSpec};

/// The members, each with what it is right now.
pub(super) struct Shown(Vec<(ServerSpec, String)>);

/// Asks the members.
///
/// `told`: where the command was told that clients connect.
pub(super) fn shown(members: &Membership, told: &[HostPort]) -> Shown {
    let modes = each(members.servers.iter(), |spec| mode(spec, told));
    let modes = modes.into_iter().map(|mode| mode.unwrap_or_else(|| "cannot be asked".to_string()));
    Shown(members.servers.iter().cloned().zip(modes).collect())
}

impl Shown {
    /// A line for each, and the version.
    pub(super) fn table(&self, version: u64) -> String {
        let line = |spec: &ServerSpec| format!("server.{}={spec}", spec.id);
        let width = self.0.iter().map(|(spec, _)| line(spec).len()).max().unwrap_or(0);
        let mut table = String::new();
        for (spec, mode) in &self.0 {
            let line = line(spec);
            writeln!(table, "{line:width$}  {mode}").expect("writing to a String does not fail");
        }
        writeln!(table, "version={version:x}").expect("writing to a String does not fail");
        table
    }

    /// An object for each.
    pub(super) fn json(&self) -> Value {
        let object = |(spec, mode): &(ServerSpec, String)| {
            let server = spec.to_string();
            json!({ "id": spec.id, "server": server, "is": mode })
        };
        self.0.iter().map(object).collect()
    }
}

fn mode(spec: &ServerSpec, told: &[HostPort]) -> String {
    let Some(address) = &client_address(spec, told) else {
        return "has no client port to ask at".to_string();
    };
    let guess = match &spec.client {
        Some(_) => "",
        None => " (its line says no client port: --server host:port,... names it)",
    };
    match srvr(address) {
        Ok(answer) => answer
            .lines()
            .find_map(|line| line.strip_prefix("Mode: "))
            .unwrap_or(if answer.contains("not currently serving") {
                "runs, does not serve"
            } else {
                "runs"
            })
            .to_string(),
        Err(error) => format!("does not answer at {address}: {error}{guess}"),
    }
}
