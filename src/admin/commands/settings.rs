//! Facts of a server: its settings at the start, and where it runs.
//!
//! Reproduces `ConfCommand` and ZooKeeper's `Environment`, without what only a JVM has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::asked::{Asked, By, Shown};
use super::ensemble;
use crate::admin::source::question;
use crate::admin::text::put;
use crate::admin::version::full_version;
use crate::admin::{Counters, Facts};
use crate::replica::inspect::{Mode, Rules};

/// `conf`: in an ensemble, the text has the membership, too.
pub(super) async fn configuration(asked: &Asked<'_>) -> Option<Shown> {
    let facts = asked.source.facts();
    if let By::Request(_) = asked.by {
        return Some(Shown::Data(configuration_json(facts, asked.status.leader_rules)));
    }
    let mut text = conf(facts, &asked.source.counters());
    if asked.status.mode != Mode::Standalone {
        let membership = question::membership(asked.source).await?;
        text.push_str(&ensemble::conf(facts, &membership));
    }
    Some(Shown::Text(text))
}

fn conf(facts: &Facts, counters: &Counters) -> String {
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

fn configuration_json(facts: &Facts, leaders: Option<Rules>) -> Value {
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
        "rules": rules(facts, leaders),
    })
}

/// Settings by which requests are judged: this server's own, and the leader's, by which writes are. The leader's are
/// null where no entry carried any.
fn rules(facts: &Facts, leaders: Option<Rules>) -> Value {
    let own = |key: &str| {
        let value = facts.properties.iter().find(|(name, _)| name == key);
        json!(value.map(|(_, value)| value))
    };
    let leaders: BTreeMap<_, _> = leaders.iter().flat_map(|rules| rules.settings()).collect();
    let keys = Rules::DEFAULT.settings().into_iter().map(|(key, _)| key);
    keys.map(|key| (key.to_owned(), json!({ "own": own(key), "leader": leaders.get(key) })))
        .collect()
}

/// The port, -1 where there is none.
fn port(address: Option<SocketAddr>) -> i32 {
    address.map_or(-1, |address| i32::from(address.port()))
}

/// The path, empty where there is none.
fn path(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| one_line(&path.display().to_string()))
}

/// The text of the configuration file.
pub(super) fn initial_configuration(asked: &Asked<'_>) -> Option<Shown> {
    let text = &asked.source.facts().initial_configuration;
    Some(Shown::Data(json!({ "initial_configuration": text })))
}

/// The settings in force.
pub(super) fn properties(asked: &Asked<'_>) -> Option<Shown> {
    let properties = asked.source.facts().properties.iter();
    Some(Shown::Data(properties.map(|(name, value)| (name.clone(), json!(value))).collect()))
}

/// `envi`, in ZooKeeper's order.
pub(super) fn environment(asked: &Asked<'_>) -> Option<Shown> {
    let system = rustix::system::uname();
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| UNKNOWN.to_string());
    let directory = std::env::current_dir()
        .map_or_else(|_| UNKNOWN.to_string(), |dir| one_line(&dir.to_string_lossy()));
    let known = [
        ("zookeeper.version", full_version()),
        ("host.name", one_line(&system.nodename().to_string_lossy())),
        ("os.name", one_line(&system.sysname().to_string_lossy())),
        ("os.arch", one_line(&system.machine().to_string_lossy())),
        ("os.version", one_line(&system.release().to_string_lossy())),
        ("user.name", one_line(&variable("USER"))),
        ("user.home", one_line(&variable("HOME"))),
        ("user.dir", directory),
    ];
    let text = || {
        let mut out = String::from("Environment:\n");
        known.iter().for_each(|(name, value)| put(&mut out, format_args!("{name}={value}\n")));
        out
    };
    asked.shown(text, || known.iter().map(|(name, value)| (*name, json!(value))).collect())
}

/// ZooKeeper's text for a value that it does not know.
const UNKNOWN: &str = "<NA>";

/// A value must not break the line format.
fn one_line(value: &str) -> String {
    value.replace(['\n', '\r'], " ")
}
