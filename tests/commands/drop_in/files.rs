//! The zoo.cfg files of public projects: their keys and forms of values, with places of this machine.
//!
//! `tests/commands/drop_in/on_zookeeper` starts Apache ZooKeeper on the same files. What is refused here and not there
//! stands in docs/COMPATIBILITY.md, with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use testkit::ports::Reserved;
use testkit::process::lockkeeper;

/// What becomes of a file here.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// A server starts on it, and warns of these keys one by one: they are probably mistakes.
    Starts(&'static [&'static str]),
    /// It is refused by name, where ZooKeeper starts: the words say why.
    Refused(&'static str),
    /// It is refused, and by ZooKeeper as well.
    RefusedByBoth(&'static str),
}

use Fate::{Refused, RefusedByBoth, Starts};

const FILES: [(&str, Fate); 57] = [
    ("addresses", Starts(&[])),
    ("ambari", Starts(&[])),
    ("ansible", Starts(&[])),
    ("ansible-leader", Starts(&[])),
    ("bigtop", Starts(&[])),
    ("bitnami", Starts(&[])),
    ("bitnami-three", Starts(&[])),
    ("bitnami-tls", Starts(&["client.secure"])),
    ("blackduck", Starts(&[])),
    ("bookkeeper", Starts(&[])),
    ("clickhouse", Starts(&[])),
    ("clickhouse-operator", Refused("group.1: refused: hierarchical quorums are not offered")),
    ("cloudera", Starts(&[])),
    ("compose-script", Starts(&["snapRetainCount", "purgeInterval", "leaderPort", "electionPort"])),
    ("confluent", Starts(&[])),
    ("confluent-ansible", Refused("secureClientPort: needs ssl.trustStore.location")),
    ("confluent-groups", Starts(&[])),
    ("confluent-sasl", Refused("quorum.auth.enableSasl: refused: SASL between servers")),
    ("confluent-three", Starts(&[])),
    ("container-script", Starts(&["maxClientCnxnsPerHost"])),
    ("distributedlog", Starts(&[])),
    ("dolphinscheduler", Starts(&["dataDir"])),
    ("druid", Starts(&[])),
    ("exhibitor", Starts(&[])),
    ("flink", RefusedByBoth("dataDir: missing")),
    ("hadoop", Starts(&[])),
    ("hadoop-ha", Starts(&[])),
    ("hbase", Starts(&[])),
    ("helm", Starts(&[])),
    ("kafka", Starts(&[])),
    ("kafka-three", Starts(&[])),
    ("kerberos-image", Starts(&[])),
    ("kubeblocks", Starts(&[])),
    ("kubernetes", Starts(&["autopurge.purgeInteval"])),
    ("magpie", Starts(&[])),
    ("nifi", RefusedByBoth("server.1: expected host:peerPort:electionPort")),
    ("nifi-three", Starts(&[])),
    ("nomad", Starts(&[])),
    ("observers", Starts(&[])),
    ("official-image", Starts(&[])),
    ("official-image-three", Starts(&[])),
    ("openwhisk", Starts(&[])),
    ("pravega", Starts(&[])),
    ("pulsar", Starts(&[])),
    ("pulsar-chart", Starts(&[])),
    ("puppet", Starts(&[])),
    ("sasl-required", Refused("sessionRequireClientSASLAuth: needs lockkeeper.jaasFile")),
    ("solr", RefusedByBoth("dataDir: missing")),
    ("solr-three", Refused("clientPort: missing")),
    ("stackable", Starts(&[])),
    ("storm", Starts(&[])),
    ("strimzi", Starts(&["timeTick"])),
    ("uno", Starts(&[])),
    ("vespa", Starts(&[])),
    ("zookeeper-sample", Starts(&[])),
    ("zookeeper-three", Starts(&[])),
    ("zuul", Starts(&[])),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/drop_in/files")
}

#[test]
fn every_file_has_a_fate_and_every_refusal_is_in_the_compatibility_page() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".cfg").map(str::to_string))
        .collect();
    names.sort_unstable();
    assert_eq!(names, FILES.map(|(name, _)| name));
    let page = include_str!("../../../docs/COMPATIBILITY.md");
    for (name, fate) in FILES {
        let row =
            page.lines().find(|line| line.starts_with("| ") && line.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} is in no row of the table"));
        let expected = match fate {
            Starts(_) => "| starts |",
            Refused(_) => "| refused |",
            RefusedByBoth(_) => "| refused by both |",
        };
        assert!(row.contains(expected), "{row}");
    }
}

/// Places of this machine for the names between at signs.
struct Places {
    of: BTreeMap<String, String>,
    /// Kept until the server starts, so that no two files are given the same.
    _ports: Vec<Reserved>,
}

impl Places {
    fn below(directory: &Path) -> Self {
        let mut of = BTreeMap::new();
        let path = |name: &str| directory.join(name).display().to_string();
        of.insert("DATA".to_string(), path("data"));
        of.insert("LOG".to_string(), path("log"));
        let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/tls/stores");
        of.insert("STORES".to_string(), stores.to_owned());
        of.insert("DYN".to_string(), path("zoo.cfg.dynamic.100000000"));
        let peers = (1..=4).flat_map(|id| [format!("P{id}"), format!("E{id}")]);
        let own = ["CLIENT", "ADMIN", "METRICS", "SECURE"].map(str::to_string);
        let mut ports = Vec::new();
        for name in peers.chain(own) {
            let port = Reserved::new();
            of.insert(name, port.port().to_string());
            ports.push(port);
        }
        Self { of, _ports: ports }
    }

    fn fill(&self, text: &str) -> String {
        let fill = |text: String, (name, place): (&String, &String)| {
            text.replace(&format!("@{name}@"), place)
        };
        self.of.iter().fold(text.to_string(), fill)
    }
}

/// Starts a server on a file until it has shown its first screen or has ended: what it has said, and whether
/// it has started.
fn start_on(name: &str) -> (String, bool) {
    let directory = tempfile::tempdir().unwrap();
    let places = Places::below(directory.path());
    let text = fs::read_to_string(folder().join(format!("{name}.cfg"))).unwrap();
    let text = places.fill(&text);
    fs::create_dir(directory.path().join("data")).unwrap();
    if let Some(myid) = text.lines().find_map(|line| line.strip_prefix("# myid: ")) {
        fs::write(directory.path().join("data/myid"), myid).unwrap();
    }
    if let Ok(dynamic) = fs::read_to_string(folder().join(format!("{name}.dynamic"))) {
        fs::write(&places.of["DYN"], places.fill(&dynamic)).unwrap();
    }
    fs::write(directory.path().join("zoo.cfg"), text).unwrap();
    let mut server = lockkeeper(directory.path(), &["server", "zoo.cfg"]).spawn().unwrap();
    let screen = BufReader::new(server.stdout.take().unwrap()).lines().take(6).count();
    let _ = server.kill();
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    server.wait().unwrap();
    (said, screen == 6)
}

/// Keys that a line of the log, at the level of a warning, calls a mistake.
fn mistakes(said: &str) -> Vec<String> {
    let line = |line: &str| {
        let (_, rest) = line.split_once("zoo.cfg:")?;
        let mut parts = rest.split(": ");
        let is_mistake = line.contains("WARN")
            && (line.contains("has such a key") || line.contains("given again in line"));
        is_mistake.then(|| parts.nth(1).map(str::to_string)).flatten()
    };
    said.lines().filter_map(line).collect()
}

fn check(name: &str, fate: Fate) -> Result<(), String> {
    let (said, has_started) = start_on(name);
    let (expected, words, named) = match fate {
        Starts(mistakes) => (true, "", mistakes),
        Refused(words) | RefusedByBoth(words) => (false, words, &[][..]),
    };
    let is_right = has_started == expected && said.contains(words);
    if !is_right || (has_started && mistakes(&said) != named) {
        return Err(format!("{name}: started: {has_started}, expected {fate:?}\n{said}"));
    }
    Ok(())
}

#[test]
fn a_server_starts_on_the_files_of_public_projects_or_refuses_them_by_name() {
    let next = Mutex::new(FILES.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((name, fate)) = next.lock().unwrap().next() else { return };
                    if let Err(what) = check(name, *fate) {
                        wrong.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
