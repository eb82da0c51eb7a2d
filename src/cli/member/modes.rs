//! What each member is right now, as it says itself.
//!
//! *Owns* the table that `lockkeeper member list` prints: the server lines as they are in the log,
//! and behind each, what the word `srvr` says at that server's client port.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use crate::cli::client;
use crate::config::{HostPort, Membership, ServerSpec};

/// How long a member may take to answer, in each direction.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Longest answer that is looked at, bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// The members, a line for each, and the version.
pub(super) fn table(members: &Membership) -> String {
    let lines: Vec<String> =
        members.servers.iter().map(|spec| format!("server.{}={spec}", spec.id)).collect();
    let width = lines.iter().map(String::len).max().unwrap_or(0);
    let mut table = String::new();
    for (line, mode) in lines.iter().zip(modes(&members.servers)) {
        writeln!(table, "{line:width$}  {mode}").expect("writing to a String does not fail");
    }
    writeln!(table, "version={:x}", members.version).expect("writing to a String does not fail");
    table
}

/// All are asked at the same time: those that are down take their time.
fn modes(servers: &[ServerSpec]) -> Vec<String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            servers.iter().map(|spec| scope.spawn(|| mode(&client_address(spec)))).collect();
        let answer = |thread: std::thread::ScopedJoinHandle<'_, String>| {
            thread.join().unwrap_or_else(|_| "cannot be asked".to_string())
        };
        asked.into_iter().map(answer).collect()
    })
}

/// Where clients reach a server: what stands for all of its addresses is the one that the others use.
fn client_address(spec: &ServerSpec) -> Option<HostPort> {
    let client = spec.client.as_ref()?;
    let is_any = client.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let host = if is_any { &spec.addresses.first()?.host } else { &client.host };
    HostPort::new(host, client.port).ok()
}

fn mode(address: &Option<HostPort>) -> String {
    let Some(address) = address else { return "has no client port to ask at".to_string() };
    match srvr(address) {
        Ok(answer) => answer
            .lines()
            .find_map(|line| line.strip_prefix("Mode: "))
            .unwrap_or(if answer.contains("not currently serving") {
                "runs, serves nobody"
            } else {
                "runs"
            })
            .to_string(),
        Err(error) => format!("does not answer at {address}: {error}"),
    }
}

fn srvr(address: &HostPort) -> io::Result<String> {
    let mut stream = client::open(address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"srvr")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
