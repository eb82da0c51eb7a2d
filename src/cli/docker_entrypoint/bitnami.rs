//! The variables of the image `bitnami/zookeeper`, with which its Helm chart configures it.
//!
//! *Owns* the zoo.cfg and the users of SASL that they stand for. *Invariants*: what they ask for and is not offered
//! (SASL between servers) is refused by name; a container that lets everybody in must be told to, as with that image.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::files::{NewFile, Plan};
use super::variables::Variables;

/// Variables that only this image has: one of them says that it is meant.
const ONLY_HERE: [&str; 6] = [
    "ALLOW_ANONYMOUS_LOGIN",
    "ZOO_ENABLE_AUTH",
    "ZOO_PORT_NUMBER",
    "ZOO_SERVER_ID",
    "BITNAMI_APP_NAME",
    "ZOO_ENABLE_PROMETHEUS_METRICS",
];

/// Names of variables, what each is without one (nothing: no line is written), and the keys that they are.
const KEYS: [(&str, &str, &str); 13] = [
    ("ZOO_PORT_NUMBER", "2181", "clientPort"),
    ("ZOO_DATA_LOG_DIR", "", "dataLogDir"),
    ("ZOO_TICK_TIME", "2000", "tickTime"),
    ("ZOO_INIT_LIMIT", "10", "initLimit"),
    ("ZOO_SYNC_LIMIT", "5", "syncLimit"),
    ("ZOO_PRE_ALLOC_SIZE", "65536", "preAllocSize"),
    ("ZOO_SNAPCOUNT", "100000", "snapCount"),
    ("ZOO_MAX_CLIENT_CNXNS", "60", "maxClientCnxns"),
    ("ZOO_MAX_SESSION_TIMEOUT", "40000", "maxSessionTimeout"),
    ("ZOO_AUTOPURGE_INTERVAL", "0", "autopurge.purgeInterval"),
    ("ZOO_AUTOPURGE_RETAIN_COUNT", "3", "autopurge.snapRetainCount"),
    ("ZOO_4LW_COMMANDS_WHITELIST", "srvr, mntr", "4lw.commands.whitelist"),
    ("ZOO_ADMIN_SERVER_PORT_NUMBER", "8080", "admin.serverPort"),
];

/// A secret of all servers, made by `lockkeeper peer-secret`, that takes the place of SASL between servers.
const PEER_SECRET: &str = "LOCKKEEPER_PEER_SECRET_FILE";

/// Whether the variables are this image's.
pub(super) fn is_meant(variables: &Variables) -> bool {
    ONLY_HERE.iter().any(|name| variables.get(name).is_some())
}

/// What is to be there.
///
/// # Errors
/// What is wrong with the variables, or asks for what is not offered.
pub(super) fn plan(variables: &Variables) -> Result<Plan, String> {
    let directory = |name: &str, default: &str| PathBuf::from(variables.or(name, default));
    let data = directory("ZOO_DATA_DIR", "/bitnami/zookeeper/data");
    let config_dir = directory("ZOO_CONF_DIR", "/opt/bitnami/zookeeper/conf");
    let has_users = variables.is_yes("ZOO_ENABLE_AUTH", false);
    if !has_users && !variables.is_yes("ALLOW_ANONYMOUS_LOGIN", false) {
        return Err(
            "anybody could do everything: set ALLOW_ANONYMOUS_LOGIN=yes if that is meant, or \
                    ZOO_ENABLE_AUTH=yes with ZOO_SERVER_USERS and ZOO_SERVER_PASSWORDS"
                .to_string(),
        );
    }
    let mut lines = vec![format!("dataDir={}", data.display())];
    for (name, default, key) in KEYS {
        let value = variables.or(name, default);
        if !value.is_empty() {
            lines.push(format!("{key}={value}"));
        }
    }
    let flag = |name, default| if variables.is_yes(name, default) { "true" } else { "false" };
    lines.push(format!("admin.enableServer={}", flag("ZOO_ENABLE_ADMIN_SERVER", true)));
    lines.push("admin.serverAddress=0.0.0.0".to_string());
    lines.push(format!("quorumListenOnAllIPs={}", flag("ZOO_LISTEN_ALLIPS_ENABLED", false)));
    if variables.is_yes("ZOO_ENABLE_PROMETHEUS_METRICS", false) {
        let port = variables.or("ZOO_PROMETHEUS_METRICS_PORT_NUMBER", "7000");
        lines.push(
            "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
                .to_string(),
        );
        lines.push(format!("metricsProvider.httpPort={port}"));
    }
    lines.extend(servers(variables)?);
    peer_secret(variables, &mut lines)?;
    tls(variables, &mut lines)?;
    let myid = format!("{}\n", variables.or("ZOO_SERVER_ID", "1"));
    let mut files = vec![NewFile::new(data.join("myid"), myid)];
    if has_users {
        let path = config_dir.join("zoo_jaas.conf");
        lines.push(format!("lockkeeper.jaasFile={}", path.display()));
        lines.push(
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
                .to_string(),
        );
        files.push(NewFile::private(path, users(variables)?));
    }
    let text = lines.join("\n") + "\n";
    files.insert(0, NewFile::private(config_dir.join("zoo.cfg"), text));
    let mut directories = vec![data, config_dir.clone()];
    directories.extend(variables.get("ZOO_DATA_LOG_DIR").map(PathBuf::from));
    Ok(Plan { directories, files, config_dir })
}

/// `host:peerPort:electionPort::ID` each, or without the last in the order of their ids.
fn servers(variables: &Variables) -> Result<Vec<String>, String> {
    let text = variables.or("ZOO_SERVERS", "");
    let port = variables.or("ZOO_PORT_NUMBER", "2181");
    let entries: Vec<&str> =
        text.split([' ', ',', ';', '\n', '\t']).filter(|entry| !entry.is_empty()).collect();
    if entries.len() < 2 {
        return Ok(Vec::new());
    }
    let line = |(place, entry): (usize, &&str)| {
        let (address, id) = match entry.rsplit_once("::") {
            Some((address, id)) => (address, id.to_string()),
            None if text.contains("::") => {
                return Err(format!("ZOO_SERVERS: `{entry}` has no ::ID, but others have"));
            }
            None => (*entry, (place + 1).to_string()),
        };
        match id.parse::<u8>() {
            Ok(_) if !address.is_empty() => Ok(format!("server.{id}={address};{port}")),
            Ok(_) | Err(_) => Err(format!("ZOO_SERVERS: `{entry}` is not host:port:port::ID")),
        }
    };
    entries.iter().enumerate().map(line).collect()
}

/// SASL between servers is not offered; a secret that they share is.
fn peer_secret(variables: &Variables, lines: &mut Vec<String>) -> Result<(), String> {
    if let Some(path) = variables.get(PEER_SECRET) {
        lines.push(format!("lockkeeper.peerSecretFile={path}"));
    } else if variables.is_yes("ZOO_ENABLE_QUORUM_AUTH", false) {
        return Err(format!(
            "ZOO_ENABLE_QUORUM_AUTH: SASL between servers is not offered. A secret that all servers share takes its \
             place: make one with `lockkeeper peer-secret`, mount it, and name the file in {PEER_SECRET}"
        ));
    }
    Ok(())
}

fn tls(variables: &Variables, lines: &mut Vec<String>) -> Result<(), String> {
    if variables.is_yes("ZOO_TLS_CLIENT_ENABLE", false) {
        lines.push(format!("secureClientPort={}", variables.or("ZOO_TLS_PORT_NUMBER", "3181")));
        lines.push(format!("ssl.clientAuth={}", variables.or("ZOO_TLS_CLIENT_AUTH", "need")));
        stores(variables, "ZOO_TLS_CLIENT", "ssl", lines)?;
    }
    if variables.is_yes("ZOO_TLS_QUORUM_ENABLE", false) {
        lines.push("sslQuorum=true".to_string());
        lines.push(format!(
            "ssl.quorum.clientAuth={}",
            variables.or("ZOO_TLS_QUORUM_CLIENT_AUTH", "need")
        ));
        stores(variables, "ZOO_TLS_QUORUM", "ssl.quorum", lines)?;
    }
    Ok(())
}

fn stores(
    variables: &Variables,
    prefix: &str,
    keys: &str,
    lines: &mut Vec<String>,
) -> Result<(), String> {
    for (store, key) in [("KEYSTORE", "keyStore"), ("TRUSTSTORE", "trustStore")] {
        if let Some(path) = variables.get(&format!("{prefix}_{store}_FILE")) {
            lines.push(format!("{keys}.{key}.location={path}"));
        }
        let password = format!("{prefix}_{store}_PASSWORD");
        match variables.get(&format!("{password}_FILE")) {
            Some(path) => lines.push(format!("{keys}.{key}.passwordPath={path}")),
            None => {
                if let Some(secret) = variables.get(&password) {
                    // A properties file takes a backslash for the beginning of something else.
                    let secret = secret.replace('\\', "\\\\");
                    lines.push(format!("{keys}.{key}.password={secret}"));
                }
            }
        }
    }
    Ok(())
}

/// The users of clients, in the syntax of Java's login configurations.
fn users(variables: &Variables) -> Result<String, String> {
    let names = variables.or("ZOO_SERVER_USERS", "");
    let passwords = variables.secret("ZOO_SERVER_PASSWORDS")?.unwrap_or_default();
    let list = |text: &str| text.split([',', ';', ' ']).map(str::to_string).collect::<Vec<_>>();
    let (names, passwords) = (list(names), list(&passwords));
    if names.iter().chain(&passwords).any(String::is_empty) || names.len() != passwords.len() {
        return Err("ZOO_ENABLE_AUTH: ZOO_SERVER_USERS and ZOO_SERVER_PASSWORDS must have one word for each user"
            .to_string());
    }
    let is_plain = |text: &String| !text.chars().any(|c| c == '"' || c == '\\' || c.is_control());
    if !names.iter().chain(&passwords).all(is_plain) {
        return Err("ZOO_SERVER_USERS, ZOO_SERVER_PASSWORDS: quotes and backslashes are not taken"
            .to_string());
    }
    let mut text =
        "Server {\n    org.apache.zookeeper.server.auth.DigestLoginModule required".to_string();
    for (name, password) in names.iter().zip(&passwords) {
        write!(text, "\n    user_{name}=\"{password}\"")
            .expect("writing to a String does not fail");
    }
    Ok(text + ";\n};\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Draft;
    use crate::sasl;

    fn planned(variables: &str) -> Plan {
        plan(&Variables::of(variables)).unwrap()
    }

    #[track_caller]
    fn refused(variables: &str, expected: &str) {
        let reason = plan(&Variables::of(variables)).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }

    fn text<'a>(plan: &'a Plan, name: &str) -> &'a str {
        let file = plan.files.iter().find(|file| file.path.ends_with(name));
        &file.unwrap_or_else(|| panic!("{name}")).text
    }

    /// As the chart sets them for three servers with metrics.
    const CHART: &str = "\
        ALLOW_ANONYMOUS_LOGIN=yes\nZOO_DATA_LOG_DIR=\nZOO_PORT_NUMBER=2181\nZOO_TICK_TIME=2000\nZOO_INIT_LIMIT=10\n\
        ZOO_SYNC_LIMIT=5\nZOO_PRE_ALLOC_SIZE=65536\nZOO_SNAPCOUNT=100000\nZOO_MAX_CLIENT_CNXNS=60\n\
        ZOO_4LW_COMMANDS_WHITELIST=srvr, mntr, ruok\nZOO_LISTEN_ALLIPS_ENABLED=no\nZOO_AUTOPURGE_INTERVAL=1\n\
        ZOO_AUTOPURGE_RETAIN_COUNT=10\nZOO_MAX_SESSION_TIMEOUT=40000\nZOO_SERVER_ID=2\nZOO_HEAP_SIZE=1024\n\
        ZOO_LOG_LEVEL=ERROR\nZOO_ENABLE_AUTH=no\nZOO_ENABLE_PROMETHEUS_METRICS=yes\n\
        ZOO_PROMETHEUS_METRICS_PORT_NUMBER=9141\nZOO_ADMIN_SERVER_PORT_NUMBER=8080\n\
        ZOO_SERVERS=zk-0.zk-headless.ns.svc.cluster.local:2888:3888::1 \
        zk-1.zk-headless.ns.svc.cluster.local:2888:3888::2 zk-2.zk-headless.ns.svc.cluster.local:2888:3888::3 ";

    #[test]
    fn what_the_chart_sets_makes_an_ensemble_of_three() {
        assert!(is_meant(&Variables::of(CHART)) && !is_meant(&Variables::of("ZOO_MY_ID=1")));
        let plan = planned(CHART);
        let mut draft = Draft::from_text("zoo.cfg", text(&plan, "zoo.cfg"));
        draft.set_myid("myid", text(&plan, "myid"));
        let config = draft.resolve().unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!((config.servers.len(), config.server_id), (3, Some(2)));
        assert_eq!(config.mistakes, Vec::new());
        assert!(config.four_letter_words.allows("ruok", false));
        let zoo_cfg = text(&plan, "zoo.cfg");
        for line in [
            "dataDir=/bitnami/zookeeper/data",
            "server.2=zk-1.zk-headless.ns.svc.cluster.local:2888:3888;2181",
            "metricsProvider.httpPort=9141",
            "admin.serverAddress=0.0.0.0",
            "autopurge.snapRetainCount=10",
        ] {
            assert!(zoo_cfg.lines().any(|found| found == line), "{line} in {zoo_cfg}");
        }
    }

    #[test]
    fn servers_are_listed_in_both_ways_and_one_alone_is_none() {
        let lines = |text: &str| servers(&Variables::of(&format!("ZOO_SERVERS={text}")));
        let numbered =
            Ok(vec!["server.7=a:1:2;2181".to_string(), "server.9=b:1:2;2181".to_string()]);
        for text in ["a:1:2::7,b:1:2::9", "a:1:2::7 b:1:2::9", "a:1:2::7;b:1:2::9"] {
            assert_eq!(lines(text), numbered, "{text}");
        }
        let counted =
            Ok(vec!["server.1=a:1:2;2181".to_string(), "server.2=b:1:2;2181".to_string()]);
        assert_eq!(lines("a:1:2, b:1:2"), counted);
        assert_eq!(lines("a:1:2::1"), Ok(Vec::new()));
        assert!(lines("a:1:2::1,b:1:2").unwrap_err().contains("`b:1:2` has no ::ID"));
        assert!(lines("a:1:2::x,b:1:2::2").is_err());
    }

    #[test]
    fn users_become_a_login_configuration_that_the_server_reads() {
        let variables =
            "ZOO_ENABLE_AUTH=yes\nZOO_SERVER_USERS=bob,carl\nZOO_SERVER_PASSWORDS=p=1;,q";
        refused(variables, "one word for each user");
        let plan =
            planned("ZOO_ENABLE_AUTH=yes\nZOO_SERVER_USERS=bob,carl\nZOO_SERVER_PASSWORDS=p=1,q");
        let jaas = text(&plan, "zoo_jaas.conf");
        assert!(jaas.contains("user_bob=\"p=1\"\n    user_carl=\"q\";"), "{jaas}");
        let login = sasl::jaas::login(jaas, "Server").unwrap();
        assert!(matches!(login, Some(sasl::jaas::Login::Users(_))));
        assert!(
            plan.files
                .iter()
                .filter(|file| !file.path.ends_with("myid"))
                .all(|file| file.is_private)
        );
        refused(&variables.replace("p=1;,q", "a\",q"), "quotes and backslashes");
    }

    #[test]
    fn keys_of_tls_are_those_of_zookeeper() {
        let plan = planned(
            "ALLOW_ANONYMOUS_LOGIN=yes\nZOO_TLS_CLIENT_ENABLE=true\nZOO_TLS_CLIENT_KEYSTORE_FILE=/k.jks\n\
             ZOO_TLS_CLIENT_KEYSTORE_PASSWORD=a\\b\nZOO_TLS_CLIENT_TRUSTSTORE_FILE=/t.jks\n\
             ZOO_TLS_CLIENT_TRUSTSTORE_PASSWORD_FILE=/t.pw\nZOO_TLS_QUORUM_ENABLE=true\n\
             ZOO_TLS_QUORUM_KEYSTORE_FILE=/q.jks\nZOO_TLS_QUORUM_CLIENT_AUTH=want",
        );
        let zoo_cfg = text(&plan, "zoo.cfg");
        for line in [
            "secureClientPort=3181",
            "ssl.clientAuth=need",
            "ssl.keyStore.location=/k.jks",
            "ssl.keyStore.password=a\\\\b",
            "ssl.trustStore.passwordPath=/t.pw",
            "sslQuorum=true",
            "ssl.quorum.clientAuth=want",
            "ssl.quorum.keyStore.location=/q.jks",
        ] {
            assert!(zoo_cfg.lines().any(|found| found == line), "{line} in {zoo_cfg}");
        }
    }

    #[test]
    fn what_would_be_unsafe_or_is_not_offered_is_refused_by_name() {
        refused("ZOO_SERVER_ID=1", "ALLOW_ANONYMOUS_LOGIN=yes");
        let quorum = "ALLOW_ANONYMOUS_LOGIN=yes\nZOO_ENABLE_QUORUM_AUTH=yes";
        refused(quorum, "LOCKKEEPER_PEER_SECRET_FILE");
        let plan = planned(&format!("{quorum}\nLOCKKEEPER_PEER_SECRET_FILE=/s"));
        assert!(text(&plan, "zoo.cfg").contains("lockkeeper.peerSecretFile=/s\n"));
    }
}
