//! What each member is right now, as it says itself.
//!
//! *Owns* the table that `lockkeeper member list` prints: the server lines as they are in the log,
//! and behind each, what the word `srvr` says at that server's client port. Most lines do not say which that is,
//! because each file says it for its own server: then it is taken to be the port that the command was told of.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::client;
use crate::config::{HostPort, Membership, ServerSpec};

/// How long a member may take to answer, in each direction.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Longest answer that is looked at, bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// The members, each with what it is right now.
pub(super) struct Shown(Vec<(ServerSpec, String)>);

/// Asks the members.
///
/// `told`: where the command was told that clients connect.
pub(super) fn shown(members: &Membership, told: &[HostPort]) -> Shown {
    let modes = modes(&members.servers, told);
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

/// All are asked at the same time: those that are down take their time.
fn modes(servers: &[ServerSpec], told: &[HostPort]) -> Vec<String> {
    std::thread::scope(|scope| {
        let ask = |spec| scope.spawn(move || mode(spec, told));
        let asked: Vec<_> = servers.iter().map(ask).collect();
        let answer = |thread: std::thread::ScopedJoinHandle<'_, String>| {
            thread.join().unwrap_or_else(|_| "cannot be asked".to_string())
        };
        asked.into_iter().map(answer).collect()
    })
}

/// Where clients reach a server: what stands for all of its addresses is the one that the others use.
pub(in crate::cli) fn client_address(spec: &ServerSpec, told: &[HostPort]) -> Option<HostPort> {
    let host = &spec.addresses.first()?.host;
    let Some(client) = &spec.client else {
        let same_host = |known: &&HostPort| known.host.eq_ignore_ascii_case(host);
        let known = told.iter().find(same_host).or(told.first())?;
        return HostPort::new(host, known.port).ok();
    };
    let is_any = client.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    HostPort::new(if is_any { host } else { &client.host }, client.port).ok()
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

pub(in crate::cli) fn srvr(address: &HostPort) -> io::Result<String> {
    let mut stream = client::open(address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"srvr")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
