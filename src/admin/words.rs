//! The texts of the four-letter words that show figures, connections and watches.
//!
//! *Invariants*: exactly ZooKeeper's lines, in its order; lines end in `\n`; ids in hexadecimal as
//! Java writes a long. Values in, text out: nothing here asks the server.
//!
//! Reproduces `StatCommand`, `ConsCommand`, `ConfCommand`, `DirsCommand`, `WatchCommand`,
//! `DigestCommand` and `ServerCnxn.dumpConnectionInfo`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use super::version::full_version;
use super::{Counters, Facts};
use crate::replica::Status;
use crate::replica::inspect::{ConnectionReport, Latency, Mode, WatchReport};

/// Whether anybody is served: everybody, or in read-only mode those who ask for it.
pub(super) fn is_running(status: &Status) -> bool {
    status.serving || status.mode == Mode::ReadOnly
}

/// `isro`.
pub(super) fn isro(status: &Status) -> &'static str {
    match (status.mode, status.serving) {
        (Mode::ReadOnly, _) => "ro",
        (_, true) => "rw",
        (_, false) => "null",
    }
}

/// `srvr`.
pub(super) fn srvr(status: &Status, counters: &Counters, conditions: &[String]) -> String {
    let mut out = format!("{}{}", version_lines(status), server_lines(status, counters));
    for condition in conditions {
        put(&mut out, format_args!("Not ready: {condition}\n"));
    }
    out
}

/// `stat`: `srvr` with the connections in between, that of `asker` last.
pub(super) fn stat(
    status: &Status,
    counters: &Counters,
    connections: &[ConnectionReport],
    asker: SocketAddr,
) -> String {
    let mut out = version_lines(status);
    out.push_str("Clients:\n");
    for connection in connections {
        put(&mut out, format_args!("{})\n", connection_brief(connection)));
    }
    out.push_str(&asker_line(asker));
    out.push('\n');
    out.push_str(&server_lines(status, counters));
    out
}

fn version_lines(status: &Status) -> String {
    let mut out = format!("Zookeeper version: {}\n", full_version());
    if status.mode == Mode::ReadOnly {
        out.push_str("READ-ONLY mode; serving only read-only clients\n");
    }
    out
}

fn server_lines(status: &Status, counters: &Counters) -> String {
    let latency = counters.measured.requests();
    let mut out = format!(
        "Latency min/avg/max: {}/{:?}/{}\n\
         Received: {}\n\
         Sent: {}\n\
         Connections: {}\n\
         Outstanding: {}\n\
         Zxid: 0x{:x}\n\
         Mode: {}\n\
         Node count: {}\n",
        latency.min() / 1000,
        latency.mean_ms(),
        latency.max() / 1000,
        counters.packets_received,
        counters.packets_sent,
        counters.connections_alive,
        status.outstanding,
        status.zxid,
        status.mode.name(),
        status.znode_count,
    );
    if status.mode == Mode::Leader {
        // ZooKeeper's "none yet" is -1.
        let sizes = status.proposal_sizes;
        let [last, min, max] = sizes
            .map_or([-1; 3], |sizes| [sizes.last, sizes.min, sizes.max].map(|size| size as i64));
        put(&mut out, format_args!("Proposal sizes last/min/max: {last}/{min}/{max}\n"));
    }
    out
}

/// `cons`.
pub(super) fn cons(connections: &[ConnectionReport], asker: SocketAddr) -> String {
    let mut out = String::new();
    for connection in connections {
        out.push_str(&connection_brief(connection));
        out.push_str(&connection_detail(connection));
        out.push_str(")\n");
    }
    out.push_str(&asker_line(asker));
    out.push('\n');
    out
}

/// The connection that asks: it has sent one word, of which the replica does not know, and is not read from
/// any more.
fn asker_line(asker: SocketAddr) -> String {
    format!(" /{asker}[0](queued=0,recved=1,sent=0)\n")
}

/// Up to the figures that every connection has. `[1]`: it is being read from.
fn connection_brief(connection: &ConnectionReport) -> String {
    format!(
        " /{}[1](queued={},recved={},sent={}",
        connection.remote, connection.queued, connection.received, connection.sent
    )
}

/// What only a connection with a session has.
fn connection_detail(connection: &ConnectionReport) -> String {
    let Some(session) = connection.session else {
        return String::new();
    };
    let last_cxid = match connection.last_cxid {
        cxid @ 0.. => format!("lcxid=0x{cxid:x},"),
        _ => String::new(),
    };
    format!(
        ",sid=0x{session:x},lop={},est={},to={},{last_cxid}lzxid=0x{:x},lresp={},llat={},\
         minlat={},avglat={},maxlat={}",
        connection.last_op,
        connection.established_ms,
        connection.timeout_ms,
        connection.last_zxid,
        connection.last_response_ms,
        connection.last_latency_ms,
        connection.latency.min_us / 1000,
        mean_whole_ms(&connection.latency),
        connection.latency.max_us / 1000,
    )
}

/// The mean as `cons` shows it: whole milliseconds.
pub(super) fn mean_whole_ms(latency: &Latency) -> u64 {
    latency.sum_us.checked_div(latency.count).unwrap_or(0) / 1000
}

/// `conf`.
pub(super) fn conf(facts: &Facts, counters: &Counters) -> String {
    format!(
        "clientPort={}\n\
         secureClientPort={}\n\
         dataDir={}\n\
         dataDirSize={}\n\
         dataLogDir={}\n\
         dataLogSize={}\n\
         tickTime={}\n\
         maxClientCnxns={}\n\
         minSessionTimeout={}\n\
         maxSessionTimeout={}\n\
         clientPortListenBacklog={}\n\
         serverId={}\n",
        port(facts.client_address.get()),
        port(facts.secure_client_address),
        path(facts.data_dir.as_deref()),
        counters.disk.data_dir_bytes,
        path(facts.log_dir.as_deref()),
        counters.disk.log_dir_bytes,
        facts.tick_time_ms,
        facts.connections_per_ip_max,
        facts.session_timeout_ms_min,
        facts.session_timeout_ms_max,
        facts.listen_backlog,
        facts.server_id,
    )
}

/// The port, -1 where there is none.
pub(super) fn port(address: Option<std::net::SocketAddr>) -> i32 {
    address.map_or(-1, |address| i32::from(address.port()))
}

/// The path, empty where there is none.
pub(super) fn path(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| path.display().to_string().replace(['\n', '\r'], " "))
}

/// `dirs`.
pub(super) fn dirs(counters: &Counters) -> String {
    format!(
        "datadir_size: {}\nlogdir_size: {}\n",
        counters.disk.data_dir_bytes, counters.disk.log_dir_bytes
    )
}

/// `hash`. ZooKeeper keeps digests as signed longs.
pub(super) fn hash(digests: &[(i64, u64)]) -> String {
    let mut out = String::new();
    for &(zxid, digest) in digests {
        put(&mut out, format_args!("{zxid:x}: {}\n", digest.cast_signed()));
    }
    out
}

/// `wchs`.
pub(super) fn wchs(watches: &WatchReport) -> String {
    format!(
        "{} connections watching {} paths\nTotal watches:{}\n",
        watches.connections, watches.paths, watches.total
    )
}

/// `wchc`: paths by session.
pub(super) fn wchc(watches: &WatchReport) -> String {
    let mut out = String::new();
    for (session, paths) in &watches.by_session {
        put(&mut out, format_args!("0x{session:x}\n"));
        for path in paths {
            put(&mut out, format_args!("\t{path}\n"));
        }
    }
    out.push('\n');
    out
}

/// `wchp`: sessions by path.
pub(super) fn wchp(watches: &WatchReport) -> String {
    let mut out = String::new();
    for (path, sessions) in sessions_by_path(watches) {
        put(&mut out, format_args!("{path}\n"));
        for session in sessions {
            put(&mut out, format_args!("\t0x{session:x}\n"));
        }
    }
    out.push('\n');
    out
}

/// The watches the other way round, in order of path.
pub(super) fn sessions_by_path(watches: &WatchReport) -> BTreeMap<&str, Vec<i64>> {
    let mut by_path: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (session, paths) in &watches.by_session {
        for path in paths {
            by_path.entry(path).or_default().push(*session);
        }
    }
    by_path
}

/// Appends formatted text.
pub(super) fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("writing to a String cannot fail");
}
