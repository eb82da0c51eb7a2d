//! What the servers of a configuration say of the last zxid that they know.
//!
//! *Owns* one question to each, the word `srvr`, for commands that begin a new ensemble: its zxids are to be above all
//! that anybody can still tell of. *Never* waits longer than a second for one.

use crate::config::{Config, ServerSpec};

use super::srvr::{client_address, srvr};

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
    let own = config.server_id;
    let others: Vec<&ServerSpec> =
        config.servers.iter().filter(|spec| Some(spec.id) != own).collect();
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            others.iter().map(|spec| scope.spawn(|| answer(config, spec))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
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
