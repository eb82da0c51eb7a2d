//! `/commands/<name>`: the questions of the HTTP port, answered in JSON.
//!
//! *Owns* the keys and texts of their answers. *Invariants*: data first, then `command` (the
//! primary name) and `error` (null or a text); an unknown command and a server that does not serve
//! are answered with status 200, as there. *Never* speaks HTTP.
//!
//! Reproduces ZooKeeper's `server.admin.Commands`.

use serde_json::{Map, Value, json};

use super::command::Command;
use super::dump::Dump;
use super::environment::environment;
use super::four_letter::NOT_SERVING;
use super::metrics::{Cell, Reading, monitor};
use super::version::full_version;
use super::words::{is_running, mean_whole_ms, path, port, sessions_by_path};
use super::{Counters, Facts, Source, ensemble, question, trace};
use crate::replica::Status;
use crate::replica::inspect::{ConnectionReport, Mode, ProposalSizes, WatchReport};

/// The answer to a command that does not exist.
pub(super) fn unknown(name: &str) -> Value {
    finish(Map::new(), name, Some(format!("Unknown command: {name}")))
}

/// Runs a command. `trace_mask` is the argument of `set_trace_mask`, as it was sent.
pub(super) async fn run(command: Command, trace_mask: Option<&str>, source: &dyn Source) -> Value {
    let status = source.status();
    if command.needs_serving() && !is_running(&status) {
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

pub(super) fn finish(mut data: Map<String, Value>, name: &str, error: Option<String>) -> Value {
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
    let facts = source.facts();
    Some(Ok(match command {
        Command::Configuration => configuration(facts),
        Command::ConnectionStatReset => {
            question::reset_connections(source).await?;
            Value::Null
        }
        Command::Connections => {
            let list = question::connections(source).await?;
            json!({ "connections": connections(&list, full), "secure_connections": [] })
        }
        Command::Dirs => dirs(&source.counters()),
        Command::Dump => Value::Object(Dump::collect(source).await?.json()),
        Command::Environment => {
            environment().into_iter().map(|(name, value)| (name, json!(value))).collect()
        }
        Command::GetTraceMask => json!({ "tracemask": trace::mask() }),
        Command::Hash => json!({ "digests": digests(&question::digests(source).await?) }),
        Command::InitialConfiguration => {
            json!({ "initial_configuration": facts.initial_configuration })
        }
        Command::IsReadOnly => json!({ "read_only": status.mode == Mode::ReadOnly }),
        Command::LastSnapshot => last_snapshot(&source.counters()),
        Command::Leader => {
            return Some(ensemble::leader(status, &question::membership(source).await?));
        }
        Command::Monitor => monitor_values(&Reading::now(status.clone(), source.counters())),
        Command::Observers => ensemble::observers(status),
        // Of no effect without observers.
        Command::ObserverConnectionStatReset => Value::Null,
        Command::Restore => return Some(Err(RESTORE.to_owned())),
        // What it answers besides is no JSON (`zookeeper_snapshot.rs`).
        Command::Snapshot => Value::Null,
        Command::Ruok => Value::Null,
        Command::ServerStats => server_stats(status, &source.counters()),
        Command::SetTraceMask => return Some(set_trace_mask(trace_mask)),
        Command::StatReset => {
            question::reset_server(source).await?;
            Value::Null
        }
        Command::Stats => {
            let mut stats = server_stats(status, &source.counters());
            stats["connections"] = connections(&question::connections(source).await?, brief);
            stats["secure_connections"] = json!([]);
            stats
        }
        Command::SystemProperties => {
            facts.properties.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
        }
        Command::VotingView => ensemble::voting_view(&question::membership(source).await?),
        Command::WatchSummary => watch_summary(&question::watches(source).await?),
        Command::Watches => watches_by_session(&question::watches(source).await?),
        Command::WatchesByPath => {
            json!({ "path_to_session_ids": sessions_by_path(&question::watches(source).await?) })
        }
        Command::Zabstate => {
            ensemble::zabstate(status, facts, &question::membership(source).await?)
        }
    }))
}

/// The error of `restore`, which exists only by name.
const RESTORE: &str = "restore is disabled: it would replace the tree of one server under its clients; \
                       `lockkeeper snapshot restore` begins a new ensemble with a backup";

fn dirs(counters: &Counters) -> Value {
    json!({ "datadir_size": counters.disk.data_dir_bytes, "logdir_size": counters.disk.log_dir_bytes })
}

fn watch_summary(watches: &WatchReport) -> Value {
    json!({
        "num_connections": watches.connections,
        "num_paths": watches.paths,
        "num_total_watches": watches.total,
    })
}

fn watches_by_session(watches: &WatchReport) -> Value {
    let by_session: Map<String, Value> = watches
        .by_session
        .iter()
        .map(|(session, paths)| (session.to_string(), json!(paths)))
        .collect();
    json!({ "session_id_to_watched_paths": by_session })
}

fn configuration(facts: &Facts) -> Value {
    json!({
        "client_port": port(facts.client_address.get()),
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
    let (zxid, timestamp) = counters
        .disk
        .last_image
        .map_or((-1, -1), |image| (image.zxid, image.wall_ms.div_euclid(1000)));
    json!({ "zxid": format!("{zxid:x}"), "timestamp": timestamp })
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
    let latency = counters.measured.requests();
    // ZooKeeper's "none yet" is -1.
    let size = |of: fn(&super::ResponseSizes) -> u64| {
        counters.response_sizes.as_ref().map_or(json!(-1), |sizes| json!(of(sizes)))
    };
    let sizes = json!({
        "last_buffer_size": size(|sizes| sizes.last),
        "min_buffer_size": size(|sizes| sizes.min),
        "max_buffer_size": size(|sizes| sizes.max),
    });
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
        let size = |of: fn(&ProposalSizes) -> u64| {
            status.proposal_sizes.as_ref().map_or(json!(-1), |sizes| json!(of(sizes)))
        };
        shown["proposal_stats"] = json!({
            "last_buffer_size": size(|sizes| sizes.last),
            "min_buffer_size": size(|sizes| sizes.min),
            "max_buffer_size": size(|sizes| sizes.max),
        });
    }
    shown["node_count"] = json!(status.znode_count);
    shown
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

/// Version of ZooKeeper's own tree digest that `hash` shows.
const TREE_DIGEST_VERSION: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, SESSION};
    use super::*;

    async fn ask(name: &str, fake: &Fake) -> Value {
        let command = Command::find(name).unwrap_or_else(|| panic!("{name} is known"));
        run(command, None, fake).await
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[tokio::test]
    async fn data_comes_before_command_and_error() {
        let fake = Fake::standalone();
        for (name, expected) in [
            ("ruok", &[][..]),
            ("crst", &[]),
            ("srst", &[]),
            ("orst", &[]),
            (
                "conf",
                &[
                    "client_port",
                    "data_dir",
                    "data_log_dir",
                    "tick_time",
                    "max_client_cnxns",
                    "min_session_timeout",
                    "max_session_timeout",
                    "server_id",
                    "client_port_listen_backlog",
                ],
            ),
            ("cons", &["connections", "secure_connections"]),
            ("dirs", &["datadir_size", "logdir_size"]),
            ("dump", &["expiry_time_to_session_ids", "session_id_to_ephemeral_paths"]),
            ("hash", &["digests"]),
            ("icfg", &["initial_configuration"]),
            ("isro", &["read_only"]),
            ("lsnp", &["zxid", "timestamp"]),
            ("obsr", &["synced_observers", "observers"]),
            ("srvr", &["version", "read_only", "server_stats", "client_response", "node_count"]),
            (
                "stat",
                &[
                    "version",
                    "read_only",
                    "server_stats",
                    "client_response",
                    "node_count",
                    "connections",
                    "secure_connections",
                ],
            ),
            ("sysp", &["clientPort"]),
            ("voting_view", &["current_config"]),
            ("wchc", &["session_id_to_watched_paths"]),
            ("wchp", &["path_to_session_ids"]),
            ("wchs", &["num_connections", "num_paths", "num_total_watches"]),
            ("zabstate", &["voting", "zabstate"]),
        ] {
            let answer = ask(name, &fake).await;
            let mut expected = expected.to_vec();
            expected.extend(["command", "error"]);
            assert_eq!(keys(&answer), expected, "{name}");
            assert_eq!(answer["command"], Command::find(name).unwrap().name(), "{name}");
            assert_eq!(answer["error"], Value::Null, "{name}");
        }
    }

    #[tokio::test]
    async fn server_stats_have_zookeepers_keys() {
        let answer = ask("server_stats", &Fake::standalone()).await;
        assert_eq!(
            answer["server_stats"],
            json!({
                "packets_sent": 87, "packets_received": 86, "fsync_threshold_exceed_count": 1,
                "client_response_stats":
                    { "last_buffer_size": 16, "min_buffer_size": 16, "max_buffer_size": 600 },
                "data_dir_size": 1234, "log_dir_size": 67_108_880,
                "last_processed_zxid": 0x1_0000_0046_i64, "server_state": "standalone",
                "outstanding_requests": 2, "avg_latency": 1.6, "max_latency": 2, "min_latency": 1,
                "num_alive_client_connections": 2, "uptime": 1_644_167, "auth_failed_count": 6,
                "non_mtlsremote_conn_count": 1, "non_mtlslocal_conn_count": 8,
                "provider_null": false,
            })
        );
        assert_eq!(answer["client_response"], answer["server_stats"]["client_response_stats"]);
        assert_eq!(answer["node_count"], 5);
    }

    #[tokio::test]
    async fn connections_show_all_or_the_brief_figures() {
        let fake = Fake::standalone();
        let brief = json!({
            "remote_socket_address": "127.0.0.1:41684", "interest_ops": 1,
            "outstanding_requests": 0, "packets_received": 86, "packets_sent": 87,
        });
        assert_eq!(ask("stats", &fake).await["connections"][0], brief);
        let full = ask("connections", &fake).await["connections"][0].clone();
        assert_eq!(
            keys(&full)[5..],
            [
                "session_id",
                "last_operation",
                "established",
                "session_timeout",
                "last_cxid",
                "last_zxid",
                "last_response_time",
                "last_latency",
                "min_latency",
                "avg_latency",
                "max_latency"
            ]
        );
        assert_eq!(full["session_id"], SESSION);
        assert_eq!(full["established"], 1_795_228_624_662_i64);
        assert_eq!(full["max_latency"], 16);
    }

    #[tokio::test]
    async fn sessions_are_keyed_by_decimal_ids() {
        let fake = Fake::standalone();
        let dump = ask("dump", &fake).await;
        assert_eq!(
            dump["expiry_time_to_session_ids"],
            json!({
                "1795228637000": [SESSION + 1],
                "1795228641000": [SESSION, SESSION + 2],
            })
        );
        assert_eq!(dump["session_id_to_ephemeral_paths"]["72057701231034369"], json!(["/pl1"]));
        let watches = ask("watches", &fake).await;
        assert_eq!(
            watches["session_id_to_watched_paths"]["72057701231034368"],
            json!(["/a", "/b"])
        );
        let by_path = ask("watches_by_path", &fake).await;
        assert_eq!(by_path["path_to_session_ids"]["/b"], json!([SESSION]));
    }

    #[tokio::test]
    async fn monitor_has_the_keys_of_mntr_and_numbers_for_numbers() {
        let fake = Fake::standalone();
        let answer = ask("mntr", &fake).await;
        let text = super::super::metrics::mntr(&Reading::now(fake.status(), fake.counters()));
        let mut expected: Vec<_> = text
            .lines()
            .map(|line| line.trim_start_matches("zk_").split_once('\t').unwrap().0)
            .collect();
        expected.extend(["command", "error"]);
        assert_eq!(keys(&answer), expected);
        assert_eq!(answer["znode_count"], 5);
        assert_eq!(answer["avg_fsynctime"], 1.5);
        assert_eq!(answer["server_state"], "standalone");
    }

    #[tokio::test]
    async fn a_server_without_an_image_shows_no_snapshot() {
        let mut fake = Fake::standalone();
        let answer = ask("last_snapshot", &fake).await;
        assert_eq!(answer["zxid"], "100000040");
        assert_eq!(answer["timestamp"], 1_795_228_630);
        fake.counters.disk.last_image = None;
        let answer = ask("last_snapshot", &fake).await;
        assert_eq!(answer["zxid"], "ffffffffffffffff");
        assert_eq!(answer["timestamp"], -1);
    }

    #[tokio::test]
    async fn a_standalone_server_has_no_leader() {
        let fake = Fake::standalone();
        assert_eq!(ask("leader", &fake).await["error"], "server is not initialized");
    }

    #[tokio::test]
    async fn a_leader_shows_itself_and_its_proposals() {
        let fake = Fake::leader();
        assert_eq!(ask("leader", &fake).await["is_leader"], true);
        assert_eq!(ask("zabstate", &fake).await["voting"], true);
        assert_eq!(ask("observers", &fake).await["synced_observers"], 1);
        let answer = ask("server_stats", &fake).await;
        assert_eq!(keys(&answer)[3..6], ["client_response", "proposal_stats", "node_count"]);
        assert_eq!(answer["proposal_stats"]["max_buffer_size"], 1024);
    }

    #[tokio::test]
    async fn digests_carry_zookeepers_version_and_sign() {
        let answer = ask("hash", &Fake::standalone()).await;
        assert_eq!(
            answer["digests"][1],
            json!({ "zxid": 0x1_0000_0100_i64, "digest_version": 2, "digest": -1 })
        );
    }

    #[tokio::test]
    async fn commands_that_need_a_serving_server_say_so() {
        let looking = Fake::looking();
        let mut stopping = Fake::standalone();
        stopping.stopping = true;
        assert_eq!(
            ask("srvr", &looking).await,
            json!({ "command": "server_stats", "error": NOT_SERVING })
        );
        assert_eq!(ask("watches", &stopping).await["error"], NOT_SERVING);
        for name in ["env", "sysp", "gtmk", "mntr", "zabstate"] {
            assert_eq!(ask(name, &looking).await["error"], Value::Null, "{name}");
        }
    }

    #[tokio::test]
    async fn the_trace_mask_must_be_a_number() {
        let _turn = trace::TURN.lock().await;
        let fake = Fake::standalone();
        let missing = run(Command::SetTraceMask, None, &fake).await;
        assert_eq!(missing["error"], "setTraceMask requires long traceMask argument");
        let wrong = run(Command::SetTraceMask, Some("0x10"), &fake).await;
        assert_eq!(wrong["error"], "setTraceMask requires long traceMask argument, got 0x10");
        let set = run(Command::SetTraceMask, Some("100"), &fake).await;
        assert_eq!(set, json!({ "tracemask": 100, "command": "set_trace_mask", "error": null }));
        assert_eq!(ask("gtmk", &fake).await["tracemask"], 100);
        trace::set_mask(306);
    }
}
