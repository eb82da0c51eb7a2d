//! The commands of operators: what four-letter words and `/commands/<name>` answer.
//!
//! *Owns* the table of commands, and the keys and texts of their answers. *Invariants*: a word and a command of the
//! HTTP port that show the same facts are one row and one function; in JSON, data come first, then `command` (the
//! primary name) and `error` (null or a text); an unknown command and a server that does not serve are answered with
//! status 200, as there.
//!
//! Reproduces ZooKeeper's `server.admin.Commands` and `server.command`.

mod asked;
mod dump;
mod ensemble;
mod figures;
mod settings;
mod snapshot;
mod table;
mod trace;
mod watches;

use hyper::StatusCode;
use serde_json::Value;

use self::asked::finish;
pub(super) use self::asked::{By, Shown};
pub(super) use self::table::Command;
#[cfg(test)]
pub(super) use self::{table::words, trace::TURN, trace::restore_default};
use super::http::{Answer, Asks, Question, Route, json_page, page, percent_decoded, refusal};

/// ZooKeeper's answer while it cannot serve; clients match the text.
pub(super) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

/// The list of commands, below the path that the configuration says.
pub(super) const LIST: Route = Route::reads("", Asks::Commands, |asked| {
    Box::pin(async { list(&asked.options.commands_path) })
});
/// One of them, whether it exists or not.
pub(super) const COMMAND: Route =
    Route::reads("", Asks::Commands, |asked| Box::pin(command(asked))).by("GET, HEAD, POST");

fn list(commands_path: &str) -> Answer {
    let mut text = String::new();
    for name in Command::enabled().map(Command::name) {
        text.push_str(&format!("<a href=\"{commands_path}/{name}\">{name}</a>\n<br/>\n"));
    }
    page(StatusCode::OK, "text/html; charset=utf-8", text)
}

async fn command(question: &Question<'_>) -> Answer {
    let path = question.head.uri.path().strip_prefix(question.options.commands_path.as_str());
    let name = percent_decoded(path.and_then(|rest| rest.strip_prefix('/')).unwrap_or_default());
    let Some(command) = Command::named(&name) else {
        let error = format!("Unknown command: {name}");
        return json_page(StatusCode::OK, &finish(Value::Null, &name, Some(&error)));
    };
    if let Some(refusal) = refusal(&question.head.method, command.methods) {
        return refusal;
    }
    let (data, error) = match command.answer(By::Request(question), question.source).await {
        Some(Shown::Page(answer)) => return *answer,
        Some(Shown::Data(data)) => (data, None),
        Some(Shown::Error(error) | Shown::Text(error)) => (Value::Null, Some(error)),
        None => (Value::Null, Some(NOT_SERVING.to_owned())),
    };
    let is_disabled = command.is_disabled;
    let status = if is_disabled { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    json_page(status, &finish(data, command.name(), error.as_deref()))
}

/// The JSON of a command, with its query, for tests.
#[cfg(test)]
async fn get(target: &str, fake: &super::fake::Fake) -> Value {
    use http_body_util::BodyExt as _;

    let request = hyper::Request::get(format!("/commands/{target}")).body(()).unwrap();
    let (head, ()) = request.into_parts();
    let asker =
        super::http::Asker { remote: std::net::Ipv4Addr::LOCALHOST.into(), is_proven: false };
    let options = super::Options::default();
    let question = Question { head: &head, asker, source: fake, options: &options };
    let body = command(&question).await.into_body().collect().await.unwrap();
    serde_json::from_slice(&body.to_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admin::Source as _;
    use crate::admin::fake::{Fake, SESSION};
    use crate::admin::metrics::{Reading, mntr};

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
                    "rules",
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
            let answer = get(name, &fake).await;
            let mut expected = expected.to_vec();
            expected.extend(["command", "error"]);
            assert_eq!(keys(&answer), expected, "{name}");
            assert_eq!(answer["command"], Command::named(name).unwrap().name(), "{name}");
            assert_eq!(answer["error"], Value::Null, "{name}");
        }
    }

    #[tokio::test]
    async fn server_stats_have_zookeepers_keys() {
        let answer = get("server_stats", &Fake::standalone()).await;
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
        assert_eq!(get("stats", &fake).await["connections"][0], brief);
        let full = get("connections", &fake).await["connections"][0].clone();
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
                "max_latency",
                "work_us"
            ]
        );
        assert_eq!(full["session_id"], SESSION);
        assert_eq!(full["established"], 1_795_228_624_662_i64);
        assert_eq!(full["max_latency"], 16);
    }

    #[tokio::test]
    async fn sessions_are_keyed_by_decimal_ids() {
        let fake = Fake::standalone();
        let dump = get("dump", &fake).await;
        assert_eq!(
            dump["expiry_time_to_session_ids"],
            json!({
                "1795228637000": [SESSION + 1],
                "1795228641000": [SESSION, SESSION + 2],
            })
        );
        assert_eq!(dump["session_id_to_ephemeral_paths"]["72057701231034369"], json!(["/pl1"]));
        let watches = get("watches", &fake).await;
        assert_eq!(
            watches["session_id_to_watched_paths"]["72057701231034368"],
            json!(["/a", "/b"])
        );
        let by_path = get("watches_by_path", &fake).await;
        assert_eq!(by_path["path_to_session_ids"]["/b"], json!([SESSION]));
    }

    #[tokio::test]
    async fn monitor_has_the_keys_of_mntr_and_numbers_for_numbers() {
        let fake = Fake::standalone();
        let answer = get("mntr", &fake).await;
        let text = mntr(&Reading::now(fake.status(), fake.counters()));
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
        let answer = get("last_snapshot", &fake).await;
        assert_eq!(answer["zxid"], "100000040");
        assert_eq!(answer["timestamp"], 1_795_228_630);
        fake.counters.disk.last_image = None;
        let answer = get("last_snapshot", &fake).await;
        assert_eq!(answer["zxid"], "ffffffffffffffff");
        assert_eq!(answer["timestamp"], -1);
    }

    #[tokio::test]
    async fn a_standalone_server_has_no_leader() {
        let fake = Fake::standalone();
        assert_eq!(get("leader", &fake).await["error"], "server is not initialized");
    }

    #[tokio::test]
    async fn a_leader_shows_itself_and_its_proposals() {
        let fake = Fake::leader();
        assert_eq!(get("leader", &fake).await["is_leader"], true);
        assert_eq!(get("zabstate", &fake).await["voting"], true);
        assert_eq!(get("observers", &fake).await["synced_observers"], 1);
        let answer = get("server_stats", &fake).await;
        assert_eq!(keys(&answer)[3..6], ["client_response", "proposal_stats", "node_count"]);
        assert_eq!(answer["proposal_stats"]["max_buffer_size"], 1024);
    }

    #[tokio::test]
    async fn digests_carry_zookeepers_version_and_sign() {
        let answer = get("hash", &Fake::standalone()).await;
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
            get("srvr", &looking).await,
            json!({ "command": "server_stats", "error": NOT_SERVING })
        );
        assert_eq!(get("watches", &stopping).await["error"], NOT_SERVING);
        for name in ["env", "sysp", "gtmk", "mntr", "zabstate"] {
            assert_eq!(get(name, &looking).await["error"], Value::Null, "{name}");
        }
    }

    #[tokio::test]
    async fn the_trace_mask_must_be_a_number() {
        let _turn = TURN.lock().await;
        let fake = Fake::standalone();
        let missing = get("set_trace_mask", &fake).await;
        assert_eq!(missing["error"], "setTraceMask requires long traceMask argument");
        let wrong = get("stmk?traceMask=0x10", &fake).await;
        assert_eq!(wrong["error"], "setTraceMask requires long traceMask argument, got 0x10");
        let set = get("stmk?traceMask=100", &fake).await;
        assert_eq!(set, json!({ "tracemask": 100, "command": "set_trace_mask", "error": null }));
        assert_eq!(get("gtmk", &fake).await["tracemask"], 100);
        restore_default();
    }
}
