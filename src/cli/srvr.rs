//! The four-letter word `srvr`, and what servers say there of the last zxid that they know.
//!
//! *Owns* one question to each server; commands that begin a new ensemble ask, because its zxids are to be above all
//! that anybody can still tell of. *Never* waits longer than a second for one.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use super::client;
use crate::config::{Config, HostPort, ServerSpec};

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

/// Asks servers, all at the same time: those that are down take their time. `None`: one could not be asked.
pub(super) fn each<'a, T: Send>(
    servers: impl Iterator<Item = &'a ServerSpec>,
    ask: impl Fn(&ServerSpec) -> T + Sync,
) -> Vec<Option<T>> {
    let ask = &ask;
    std::thread::scope(|scope| {
        let asked: Vec<_> = servers.map(|spec| scope.spawn(move || ask(spec))).collect();
        asked.into_iter().map(|thread| thread.join().ok()).collect()
    })
}

/// A server that answered.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    /// Its id.
    pub(super) server: u8,
    /// The zxid of its last transaction.
    pub(super) zxid: i64,
    /// Whether clients are served.
    pub(super) serves: bool,
}

/// Asks all servers of a configuration, but this one's.
pub(super) fn ask(config: &Config) -> Vec<Answered> {
    let others = config.servers.iter().filter(|spec| Some(spec.id) != config.server_id);
    each(others, |spec| answer(config, spec)).into_iter().flatten().flatten().collect()
}

fn answer(config: &Config, spec: &ServerSpec) -> Option<Answered> {
    let address = client_address(spec, std::slice::from_ref(&config.client_addr))?;
    let text = srvr(&address).ok()?;
    let zxid = zxid_of(&text)?;
    Some(Answered { server: spec.id, zxid, serves: text.contains("Mode: ") })
}

/// The number behind `Zxid: 0x`.
fn zxid_of(text: &str) -> Option<i64> {
    let digits = text.lines().find_map(|line| line.strip_prefix("Zxid: 0x"))?;
    u64::from_str_radix(digits.trim(), 16).ok().map(u64::cast_signed)
}

/// A zxid as a user writes it: `0x10000000a`, or a decimal number.
///
/// # Errors
/// It is none.
pub(super) fn zxid(text: &str) -> Result<i64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let zxid = parsed.ok().filter(|zxid| *zxid >= 0);
    zxid.ok_or_else(|| format!("`{text}` is no zxid: expected a number such as 0x10000000a"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zxid_is_what_srvr_shows_and_what_a_user_writes() {
        assert_eq!(
            zxid_of("Mode: leader\nZxid: 0x10000000a\nNode count: 5\n"),
            Some(0x1_0000_000a)
        );
        assert_eq!(zxid_of("This ZooKeeper instance is not currently serving requests\n"), None);
        assert_eq!((zxid("0x1f"), zxid("31")), (Ok(31), Ok(31)));
        assert!(zxid("-1").is_err() && zxid("x").is_err() && zxid("0x").is_err());
    }
}
