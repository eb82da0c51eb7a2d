//! The four-letter word `srvr`, asked of one server.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use super::client;
use crate::config::{HostPort, ServerSpec};

/// Longest time for an answer, in each direction.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Longest answer that is looked at, bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// Address at which clients reach a server: what stands for all of its addresses is the one that the others use.
pub(super) fn client_address(spec: &ServerSpec, told: &[HostPort]) -> Option<HostPort> {
    let host = &spec.addresses.first()?.host;
    let Some(client) = &spec.client else {
        let same_host = |known: &&HostPort| known.host.eq_ignore_ascii_case(host);
        let known = told.iter().find(same_host).or(told.first())?;
        return HostPort::new(host, known.port).ok();
    };
    let is_any = client.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    HostPort::new(if is_any { host } else { &client.host }, client.port).ok()
}

/// The answer of the server at this address.
///
/// # Errors
/// It cannot be asked.
pub(super) fn srvr(address: &HostPort) -> io::Result<String> {
    let mut stream = client::open(address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"srvr")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
