//! Figures of a server and of its connections.
//!
//! *Invariants*: the texts are exactly ZooKeeper's lines, in its order; lines end in `\n`; ids in hexadecimal as
//! Java writes a long.
//!
//! Reproduces `StatCommand`, `ConsCommand`, `DirsCommand`, `DigestCommand`, `ServerCnxn.dumpConnectionInfo` and their
//! like in `server.admin.Commands`.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::asked::{Asked, By, Shown};
use crate::admin::Counters;
use crate::admin::ensemble::STALLED_DEAD;
use crate::admin::metrics::{self, Cell, Reading};
use crate::admin::source::question;
use crate::admin::text::put;
use crate::admin::version::full_version;
use crate::replica::Status;
use crate::replica::inspect::{ConnectionReport, Latency, Mode};

/// An answer without keys of its own.
pub(super) fn nothing(_: &Asked<'_>) -> Option<Shown> {
    Some(Shown::Data(Value::Null))
}

/// `ruok`. The text is empty where it would be of use to end this server's process: as of one whose one thread does
/// not come round to it.
pub(super) fn ruok(asked: &Asked<'_>) -> Option<Shown> {
    let source = asked.source;
    let is_stalled = || source.stalled().is_some_and(|stalled| stalled >= STALLED_DEAD);
    let text = || if is_stalled() || source.failure().is_some() { "" } else { "imok" };
    asked.shown(|| text().to_string(), || Value::Null)
}

/// `isro`.
pub(super) fn is_read_only(asked: &Asked<'_>) -> Option<Shown> {
    let is_read_only = asked.status.mode == Mode::ReadOnly;
    let text = match (is_read_only, asked.status.serving) {
        (true, _) => "ro",
        (_, true) => "rw",
        (_, false) => "null",
    };
    asked.shown(|| text.to_string(), || json!({ "read_only": is_read_only }))
}

/// `crst`.
pub(super) async fn reset_connections(asked: &Asked<'_>) -> Option<Shown> {
    question::reset_connections(asked.source).await?;
    asked.shown(|| "Connection stats reset.\n".to_string(), || Value::Null)
}

/// `srst`.
pub(super) async fn reset_server(asked: &Asked<'_>) -> Option<Shown> {
    question::reset_server(asked.source).await?;
    asked.shown(|| "Server stats reset.\n".to_string(), || Value::Null)
}

/// `dirs`.
pub(super) fn dirs(asked: &Asked<'_>) -> Option<Shown> {
    let disk = asked.source.counters().disk;
    let (data, log) = (disk.data_dir_bytes, disk.log_dir_bytes);
    asked.shown(
        || format!("datadir_size: {data}\nlogdir_size: {log}\n"),
        || json!({ "datadir_size": data, "logdir_size": log }),
    )
}

/// `hash`. ZooKeeper keeps digests as signed longs.
pub(super) async fn digests(asked: &Asked<'_>) -> Option<Shown> {
    let digests = question::digests(asked.source).await?;
    let digests = digests.into_iter().map(|(zxid, digest)| (zxid, digest.cast_signed()));
    if let By::Word(..) = asked.by {
        let lines = digests.map(|(zxid, digest)| format!("{zxid:x}: {digest}\n"));
        return Some(Shown::Text(lines.collect()));
    }
    let digests = digests.map(|(zxid, digest)| {
        json!({ "zxid": zxid, "digest_version": TREE_DIGEST_VERSION, "digest": digest })
    });
    Some(Shown::Data(json!({ "digests": digests.collect::<Value>() })))
}

/// Version of ZooKeeper's own tree digest that `hash` shows.
const TREE_DIGEST_VERSION: u32 = 2;

/// The newest image. ZooKeeper shows -1 for both where there is no snapshot.
pub(super) fn last_snapshot(asked: &Asked<'_>) -> Option<Shown> {
    let image = asked.source.counters().disk.last_image;
    let (zxid, timestamp) =
        image.map_or((-1, -1), |image| (image.zxid, image.wall_ms.div_euclid(1000)));
    Some(Shown::Data(json!({ "zxid": format!("{zxid:x}"), "timestamp": timestamp })))
}

/// `mntr`.
pub(super) fn monitor(asked: &Asked<'_>) -> Option<Shown> {
    let reading = Reading::now(asked.status.clone(), asked.source.counters());
    let data = || {
        let rows = metrics::monitor(&reading).into_iter().map(|(key, cell)| {
            let value = match cell {
                Cell::Text(text) => json!(text),
                Cell::Whole(value) => json!(value),
                Cell::Real(value) => json!(value),
            };
            (key, value)
        });
        rows.collect()
    };
    asked.shown(|| metrics::mntr(&reading), data)
}

/// `srvr`.
pub(super) fn server_stats(asked: &Asked<'_>) -> Option<Shown> {
    let (status, source) = (&asked.status, asked.source);
    let counters = source.counters();
    let text = || {
        let mut out = version_lines(status) + &server_lines(status, &counters);
        for condition in source.conditions() {
            put(&mut out, format_args!("Not ready: {condition}\n"));
        }
        out
    };
    asked.shown(text, || server_json(status, &counters))
}

/// `stat`: `srvr` with the connections in between, that of the asker last.
pub(super) async fn stats(asked: &Asked<'_>) -> Option<Shown> {
    let connections = question::connections(asked.source).await?;
    let (status, counters) = (&asked.status, asked.source.counters());
    Some(match asked.by {
        By::Word(_, asker) => {
            let mut out = version_lines(status) + "Clients:\n";
            for connection in &connections {
                put(&mut out, format_args!("{})\n", connection_brief(connection)));
            }
            Shown::Text(out + &asker_line(asker) + "\n" + &server_lines(status, &counters))
        }
        By::Request(_) => {
            let mut stats = server_json(status, &counters);
            stats["connections"] = connections.iter().map(brief_json).collect();
            stats["secure_connections"] = json!([]);
            Shown::Data(stats)
        }
    })
}

/// `cons`.
pub(super) async fn connections(asked: &Asked<'_>) -> Option<Shown> {
    let connections = question::connections(asked.source).await?;
    Some(match asked.by {
        By::Word(_, asker) => {
            let mut out = String::new();
            for connection in &connections {
                let (brief, detail) = (connection_brief(connection), connection_detail(connection));
                put(&mut out, format_args!("{brief}{detail})\n"));
            }
            Shown::Text(out + &asker_line(asker) + "\n")
        }
        By::Request(_) => {
            let connections: Value = connections.iter().map(full_json).collect();
            Shown::Data(json!({ "connections": connections, "secure_connections": [] }))
        }
    })
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
        let [last, min, max] = proposal_sizes(status);
        put(&mut out, format_args!("Proposal sizes last/min/max: {last}/{min}/{max}\n"));
    }
    out
}

fn proposal_sizes(status: &Status) -> [i64; 3] {
    none_is_negative(status.proposal_sizes.map(|sizes| [sizes.last, sizes.min, sizes.max]))
}

/// ZooKeeper's "none yet" is -1.
fn none_is_negative(sizes: Option<[u64; 3]>) -> [i64; 3] {
    sizes.map_or([-1; 3], |sizes| sizes.map(|size| size as i64))
}

fn sizes_json([last, min, max]: [i64; 3]) -> Value {
    json!({ "last_buffer_size": last, "min_buffer_size": min, "max_buffer_size": max })
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

/// Parts of a connection that only one with a session has.
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
fn mean_whole_ms(latency: &Latency) -> u64 {
    latency.sum_us.checked_div(latency.count).unwrap_or(0) / 1000
}

fn brief_json(connection: &ConnectionReport) -> Value {
    json!({
        "remote_socket_address": connection.remote,
        "interest_ops": 1,
        "outstanding_requests": connection.queued,
        "packets_received": connection.received,
        "packets_sent": connection.sent,
    })
}

fn full_json(connection: &ConnectionReport) -> Value {
    let mut shown = brief_json(connection);
    shown["session_id"] = json!(connection.session.unwrap_or(0));
    shown["last_operation"] = json!(connection.last_op);
    shown["established"] = json!(connection.established_ms);
    shown["session_timeout"] = json!(connection.timeout_ms);
    shown["last_cxid"] = json!(connection.last_cxid);
    shown["last_zxid"] = json!(connection.last_zxid);
    shown["last_response_time"] = json!(connection.last_response_ms);
    shown["last_latency"] = json!(connection.last_latency_ms);
    shown["min_latency"] = json!(connection.latency.min_us / 1000);
    shown["avg_latency"] = json!(mean_whole_ms(&connection.latency));
    shown["max_latency"] = json!(connection.latency.max_us / 1000);
    // Not in ZooKeeper: what the connection has cost.
    shown["work_us"] = json!(connection.work_us);
    shown
}

fn server_json(status: &Status, counters: &Counters) -> Value {
    let latency = counters.measured.requests();
    let sizes = counters.response_sizes.map(|sizes| [sizes.last, sizes.min, sizes.max]);
    let sizes = sizes_json(none_is_negative(sizes));
    let mut shown = json!({
        "version": full_version(),
        "read_only": status.mode == Mode::ReadOnly,
        "server_stats": {
            "packets_sent": counters.packets_sent,
            "packets_received": counters.packets_received,
            "fsync_threshold_exceed_count": counters.fsyncs_slow,
            "client_response_stats": sizes,
            "data_dir_size": counters.disk.data_dir_bytes,
            "log_dir_size": counters.disk.log_dir_bytes,
            "last_processed_zxid": status.zxid,
            "server_state": status.mode.name(),
            "outstanding_requests": status.outstanding,
            "avg_latency": latency.mean_ms(),
            "max_latency": latency.max() / 1000,
            "min_latency": latency.min() / 1000,
            "num_alive_client_connections": counters.connections_alive,
            "uptime": counters.uptime_ms,
            "auth_failed_count": status.auth_failed,
            "non_mtlsremote_conn_count": counters.connections_non_mtls_remote,
            "non_mtlslocal_conn_count": counters.connections_non_mtls_local,
            "provider_null": false,
        },
        "client_response": sizes,
    });
    if status.mode == Mode::Leader {
        shown["proposal_stats"] = sizes_json(proposal_sizes(status));
    }
    shown["node_count"] = json!(status.znode_count);
    shown
}
