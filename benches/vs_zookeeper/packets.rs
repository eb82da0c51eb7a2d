//! Packets that this machine has dropped.

use std::fs;

use lockkeeper::internals::bench::Fault;

/// Packets that came to this machine and were dropped since it started, because the queue of a
/// processor was full (`net.core.netdev_max_backlog`). On the loopback device, too: the sender of one waits
/// for its repetition, 200 ms or longer.
///
/// # Errors
/// /proc does not say.
pub fn dropped_packets() -> Result<u64, Fault> {
    let path = "/proc/net/softnet_stat";
    let text = fs::read_to_string(path).map_err(|e| Fault::Machine(format!("{path}: {e}")))?;
    dropped_in(&text).ok_or_else(|| Fault::Machine(format!("{path}: no dropped packets in it")))
}

/// A line for each processor, of hexadecimal columns: packets, and those that were dropped.
#[must_use]
pub fn dropped_in(softnet: &str) -> Option<u64> {
    let dropped = |line: &str| {
        let column = line.split_ascii_whitespace().nth(1)?;
        u64::from_str_radix(column, 16).ok()
    };
    softnet.lines().map(dropped).sum()
}
