//! `/commands/<name>`: the questions of the HTTP port, answered in JSON.
//!
//! *Owns* the commands' names, aliases and keys. *Invariants*: data first, then `command` (the
//! primary name) and `error` (null or a text); an unknown command and a server that does not serve
//! are answered with status 200, as there. *Never* speaks HTTP.
//!
//! Reproduces ZooKeeper's `server.admin.Commands`.

use serde_json::{Map, Value, json};

use super::dump::Dump;
use super::environment::environment;
use super::four_letter::NOT_SERVING;
use super::metrics::{Cell, Reading, monitor};
use super::version::full_version;
use super::words::{mean_whole_ms, overall_latency, path, port, rounded, sessions_by_path};
use super::{Counters, Facts, Source, question, trace};
use crate::replica::Status;
use crate::replica::inspect::{ConnectionReport, Mode};

/// A command that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Configuration,
    ConnectionStatReset,
    Connections,
    Dirs,
    Dump,
    Environment,
    GetTraceMask,
    Hash,
    InitialConfiguration,
    IsReadOnly,
    LastSnapshot,
    Leader,
    Monitor,
    ObserverConnectionStatReset,
    Observers,
    Restore,
    Ruok,
    ServerStats,
    SetTraceMask,
    Snapshot,
    StatReset,
    Stats,
    SystemProperties,
    VotingView,
    WatchSummary,
    Watches,
    WatchesByPath,
    Zabstate,
}

impl Command {
    /// Every command, in order of its primary name.
    pub(super) const ALL: [Command; 28] = [
        Command::Configuration,
        Command::ConnectionStatReset,
        Command::Connections,
        Command::Dirs,
        Command::Dump,
        Command::Environment,
        Command::GetTraceMask,
        Command::Hash,
        Command::InitialConfiguration,
        Command::IsReadOnly,
        Command::LastSnapshot,
        Command::Leader,
        Command::Monitor,
        Command::ObserverConnectionStatReset,
        Command::Observers,
        Command::Restore,
        Command::Ruok,
        Command::ServerStats,
        Command::SetTraceMask,
        Command::Snapshot,
        Command::StatReset,
        Command::Stats,
        Command::SystemProperties,
        Command::VotingView,
        Command::WatchSummary,
        Command::Watches,
        Command::WatchesByPath,
        Command::Zabstate,
    ];

    /// The primary name, then the aliases.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Command::Configuration => &["configuration", "conf", "config"],
            Command::ConnectionStatReset => &["connection_stat_reset", "crst"],
            Command::Connections => &["connections", "cons"],
            Command::Dirs => &["dirs"],
            Command::Dump => &["dump"],
            Command::Environment => &["environment", "env", "envi"],
            Command::GetTraceMask => &["get_trace_mask", "gtmk"],
            Command::Hash => &["hash"],
            Command::InitialConfiguration => &["initial_configuration", "icfg"],
            Command::IsReadOnly => &["is_read_only", "isro"],
            Command::LastSnapshot => &["last_snapshot", "lsnp"],
            Command::Leader => &["leader", "lead"],
            Command::Monitor => &["monitor", "mntr"],
            Command::ObserverConnectionStatReset => &["observer_connection_stat_reset", "orst"],
            Command::Observers => &["observers", "obsr"],
            Command::Restore => &["restore", "rest"],
            Command::Ruok => &["ruok"],
            Command::ServerStats => &["server_stats", "srvr"],
            Command::SetTraceMask => &["set_trace_mask", "stmk"],
            Command::Snapshot => &["snapshot", "snap"],
            Command::StatReset => &["stat_reset", "srst"],
            Command::Stats => &["stats", "stat"],
            Command::SystemProperties => &["system_properties", "sysp"],
            Command::VotingView => &["voting_view"],
            Command::WatchSummary => &["watch_summary", "wchs"],
            Command::Watches => &["watches", "wchc"],
            Command::WatchesByPath => &["watches_by_path", "wchp"],
            Command::Zabstate => &["zabstate"],
        }
    }

    /// The name that the answer and the list show.
    pub(super) fn name(self) -> &'static str {
        self.names()[0]
    }

    /// The command with this name or alias.
    pub(super) fn find(name: &str) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.names().contains(&name))
    }

    /// Whether it is sent by POST; all others by GET.
    pub(super) fn is_post(self) -> bool {
        self == Command::Restore
    }

    /// Whether it exists only by name, as in a ZooKeeper whose operator has switched it off.
    pub(super) fn is_disabled(self) -> bool {
        matches!(self, Command::Snapshot | Command::Restore)
    }

    /// Whether it is refused while the server does not serve.
    fn needs_serving(self) -> bool {
        !matches!(
            self,
            Command::Environment
                | Command::GetTraceMask
                | Command::Monitor
                | Command::SetTraceMask
                | Command::SystemProperties
                | Command::Zabstate
        )
    }
}

/// The answer to a command that does not exist.
pub(super) fn unknown(name: &str) -> Value {
    finish(Map::new(), name, Some(format!("Unknown command: {name}")))
}

/// Runs a command. `trace_mask` is the argument of `set_trace_mask`, as it was sent.
pub(super) async fn run(command: Command, trace_mask: Option<&str>, source: &dyn Source) -> Value {
    let status = source.status();
    if command.needs_serving() && !status.serving {
        return finish(Map::new(), command.name(), Some(NOT_SERVING.to_string()));
    }
    let (data, error) = match data(command, trace_mask, &status, source).await {
        Some(Ok(data)) => (data, None),
        Some(Err(error)) => (Value::Null, Some(error)),
        None => (Value::Null, Some(NOT_SERVING.to_string())),
    };
    let data = match data {
        Value::Object(data) => data,
        _ => Map::new(),
    };
    finish(data, command.name(), error)
}

fn finish(mut data: Map<String, Value>, name: &str, error: Option<String>) -> Value {
    data.insert("command".to_string(), json!(name));
    data.insert("error".to_string(), json!(error));
    Value::Object(data)
}

/// The command's own keys, or its error; `None` while the server is stopping.
async fn data(
    command: Command,
    trace_mask: Option<&str>,
    status: &Status,
    source: &dyn Source,
) -> Option<Result<Value, String>> {
    Some(Ok(match command {
        Command::Configuration => configuration(source.facts()),
        Command::ConnectionStatReset => {
            question::reset_connections(source).await?;
            Value::Null
        }
        Command::Connections => {
            let list = question::connections(source).await?;
            json!({ "connections": connections(&list, full), "secure_connections": [] })
        }
        Command::Dirs => {
            let counters = source.counters();
            json!({
                "datadir_size": counters.data_dir_bytes,
                "logdir_size": counters.log_dir_bytes,
            })
        }
        Command::Dump => Value::Object(Dump::collect(source).await?.json()),
        Command::Environment => environment()
            .into_iter()
            .map(|(name, value)| (name.to_string(), json!(value)))
            .collect(),
        Command::GetTraceMask => json!({ "tracemask": trace::mask() }),
        Command::Hash => json!({ "digests": digests(&question::digests(source).await?) }),
        Command::InitialConfiguration => {
            json!({ "initial_configuration": source.facts().initial_configuration })
        }
        Command::IsReadOnly => json!({ "read_only": status.mode == Mode::ReadOnly }),
        Command::LastSnapshot => last_snapshot(&source.counters()),
        Command::Leader => return Some(leader(status)),
        Command::Monitor => monitor_values(&Reading::now(status.clone(), source)),
        Command::Observers => json!({ "synced_observers": 0, "observers": [] }),
        Command::ServerStats => server_stats(status, &source.counters()),
        Command::SetTraceMask => return Some(set_trace_mask(trace_mask)),
        Command::StatReset => {
            question::reset_server(source).await?;
            Value::Null
        }
        Command::Stats => {
            let list = question::connections(source).await?;
            let mut stats = server_stats(status, &source.counters());
            stats["connections"] = connections(&list, brief);
            stats["secure_connections"] = json!([]);
            stats
        }
        Command::SystemProperties => source
            .facts()
            .properties
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect(),
        Command::VotingView => json!({ "current_config": {} }),
        Command::WatchSummary => {
            let watches = question::watches(source).await?;
            json!({
                "num_connections": watches.connections,
                "num_paths": watches.paths,
                "num_total_watches": watches.total,
            })
        }
        Command::Watches => {
            let watches = question::watches(source).await?;
            let by_session: Map<String, Value> = watches
                .by_session
                .into_iter()
                .map(|(session, paths)| (session.to_string(), json!(paths)))
                .collect();
            json!({ "session_id_to_watched_paths": by_session })
        }
        Command::WatchesByPath => {
            let watches = question::watches(source).await?;
            json!({ "path_to_session_ids": sessions_by_path(&watches) })
        }
        Command::Zabstate => zabstate(status, source.facts()),
        // Of no effect without observers.
        Command::ObserverConnectionStatReset | Command::Ruok => Value::Null,
        Command::Restore | Command::Snapshot => {
            let name = command.name();
            return Some(Err(format!("{name} is disabled: this server cannot do it yet")));
        }
    }))
}

fn configuration(facts: &Facts) -> Value {
    json!({
        "client_port": port(facts.client_address),
        "data_dir": path(facts.data_dir.as_deref()),
        "data_log_dir": path(facts.log_dir.as_deref()),
        "tick_time": facts.tick_time_ms,
        "max_client_cnxns": facts.connections_per_ip_max,
        "min_session_timeout": facts.session_timeout_ms_min,
        "max_session_timeout": facts.session_timeout_ms_max,
        "server_id": facts.server_id,
        "client_port_listen_backlog": facts.listen_backlog,
    })
}

fn connections(list: &[ConnectionReport], show: fn(&ConnectionReport) -> Value) -> Value {
    list.iter().map(show).collect()
}

fn brief(connection: &ConnectionReport) -> Value {
    json!({
        "remote_socket_address": connection.remote,
        "interest_ops": 1,
        "outstanding_requests": connection.queued,
        "packets_received": connection.received,
        "packets_sent": connection.sent,
    })
}

fn full(connection: &ConnectionReport) -> Value {
    let mut shown = brief(connection);
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
    shown
}

fn digests(list: &[(i64, u64)]) -> Value {
    list.iter()
        .map(|&(zxid, digest)| {
            json!({
                "zxid": zxid,
                "digest_version": TREE_DIGEST_VERSION,
                "digest": digest.cast_signed(),
            })
        })
        .collect()
}

/// ZooKeeper shows -1 for both where there is no snapshot.
fn last_snapshot(counters: &Counters) -> Value {
    let (zxid, timestamp) =
        counters.last_image.map_or((-1, -1), |image| (image.zxid, image.wall_ms.div_euclid(1000)));
    json!({ "zxid": format!("{zxid:x}"), "timestamp": timestamp })
}

fn leader(status: &Status) -> Result<Value, String> {
    match status.mode {
        Mode::Leader => Ok(json!({ "is_leader": true })),
        Mode::Follower | Mode::Observer => Ok(json!({ "is_leader": false })),
        Mode::Standalone | Mode::Looking | Mode::ReadOnly => {
            Err("server is not initialized".to_string())
        }
    }
}

fn monitor_values(reading: &Reading) -> Value {
    monitor(reading)
        .into_iter()
        .map(|(key, cell)| {
            let value = match cell {
                Cell::Text(text) => json!(text),
                Cell::Whole(value) => json!(value),
                Cell::Real(value) => json!(value),
            };
            (key, value)
        })
        .collect()
}

fn server_stats(status: &Status, counters: &Counters) -> Value {
    let latency = overall_latency(status);
    // ZooKeeper's "none yet" is -1.
    let size = |of: fn(&super::ResponseSizes) -> u64| {
        counters.response_sizes.as_ref().map_or(json!(-1), |sizes| json!(of(sizes)))
    };
    let sizes = json!({
        "last_buffer_size": size(|sizes| sizes.last),
        "min_buffer_size": size(|sizes| sizes.min),
        "max_buffer_size": size(|sizes| sizes.max),
    });
    json!({
        "version": full_version(),
        "read_only": status.mode == Mode::ReadOnly,
        "server_stats": {
            "packets_sent": counters.packets_sent,
            "packets_received": counters.packets_received,
            "fsync_threshold_exceed_count": counters.fsyncs_slow,
            "client_response_stats": sizes,
            "data_dir_size": counters.data_dir_bytes,
            "log_dir_size": counters.log_dir_bytes,
            "last_processed_zxid": status.zxid,
            "server_state": status.mode.name(),
            "outstanding_requests": status.outstanding,
            "avg_latency": rounded(latency.mean_ms()),
            "max_latency": latency.max_us / 1000,
            "min_latency": latency.min_us / 1000,
            "num_alive_client_connections": counters.connections_alive,
            "uptime": counters.uptime_ms,
            "auth_failed_count": status.auth_failed,
            "non_mtlsremote_conn_count": counters.connections_non_mtls_remote,
            "non_mtlslocal_conn_count": counters.connections_non_mtls_local,
            "provider_null": false,
        },
        "client_response": sizes,
        "node_count": status.znode_count,
    })
}

fn set_trace_mask(text: Option<&str>) -> Result<Value, String> {
    let Some(text) = text else {
        return Err("setTraceMask requires long traceMask argument".to_string());
    };
    let Ok(mask) = text.parse() else {
        return Err(format!("setTraceMask requires long traceMask argument, got {text}"));
    };
    trace::set_mask(mask);
    Ok(json!({ "tracemask": mask }))
}

fn zabstate(status: &Status, facts: &Facts) -> Value {
    let voting = match status.mode {
        Mode::Standalone | Mode::ReadOnly => return json!({ "voting": false, "zabstate": "" }),
        Mode::Leader | Mode::Follower => true,
        Mode::Looking | Mode::Observer => false,
    };
    json!({
        "myid": facts.server_id,
        "is_leader": status.mode == Mode::Leader,
        "voting": voting,
        "last_zxid": format!("0x{:x}", status.zxid),
        "zab_epoch": status.zxid >> 32,
        "zab_counter": status.zxid & 0xffff_ffff,
        "zabstate": if status.mode == Mode::Looking { "election" } else { "broadcast" },
    })
}

/// Version of ZooKeeper's own tree digest that `hash` shows.
const TREE_DIGEST_VERSION: u32 = 2;
