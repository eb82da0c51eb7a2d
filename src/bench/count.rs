//! The servers' own count of the watch events they have sent.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How long a server may take over the word `mntr`.
const MNTR_MAX: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// The events' kinds, each with a line of its own in either server's answer.
const KINDS: [&str; 4] = ["created", "deleted", "changed", "children"];

/// Events that all these servers together have sent since they started; `None` if one of them does
/// not say (Apache ZooKeeper allows `mntr` by `4lw.commands.whitelist`).
pub(super) fn events_sent(addrs: &[SocketAddr]) -> Option<u64> {
    addrs.iter().map(|addr| sent_by(&mntr(*addr)?)).sum()
}

fn mntr(addr: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&addr, MNTR_MAX).ok()?;
    stream.set_read_timeout(Some(MNTR_MAX)).ok()?;
    stream.write_all(b"mntr").ok()?;
    // A server that has closed its side already has answered.
    let _ = stream.shutdown(Shutdown::Write);
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Of one server's answer, Lockkeeper's counters or ZooKeeper's sums over the znodes that changed.
fn sent_by(text: &str) -> Option<u64> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    KINDS
        .iter()
        .map(|kind| {
            value(&format!("zk_{kind}_lockkeeper_events_fired"))
                .or_else(|| value(&format!("zk_sum_node_{kind}_watch_count")))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_counts_are_read() {
        let ours = "zk_version\t3.9.5\nzk_created_lockkeeper_events_fired\t1\n\
                    zk_deleted_lockkeeper_events_fired\t20\nzk_changed_lockkeeper_events_fired\t0\n\
                    zk_children_lockkeeper_events_fired\t300\n";
        assert_eq!(sent_by(ours), Some(321));
        let theirs = "zk_sum_node_created_watch_count\t1\nzk_sum_node_deleted_watch_count\t20\n\
                      zk_sum_node_changed_watch_count\t0\nzk_sum_node_children_watch_count\t300\n";
        assert_eq!(sent_by(theirs), Some(321));
    }

    #[test]
    fn a_refusal_is_no_count() {
        assert_eq!(sent_by("mntr is not executed because it is not in the whitelist.\n"), None);
    }
}
