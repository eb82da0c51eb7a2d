//! What public dashboards and alert rules for ZooKeeper ask for is there, on three servers that have done something.
//!
//! `names.txt` lists the names that they ask for. Each is in a scrape of one of the servers, or is among the names that
//! `docs/METRICS.md` gives a reason for.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::Ensemble;
use testkit::{Client, wait_until};

const NAMES: &str = include_str!("names.txt");
const METRICS: &str = include_str!("../../../docs/METRICS.md");
/// Panels of Grafana 10465 that show something, of 99; the others ask for what a JVM has, or for a part of ZooKeeper
/// that has no counterpart.
const PANELS_MIN: usize = 82;

/// The names with a sample; a summary's own name is there if it has a quantile.
async fn scrape(ensemble: &Ensemble) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, server) in ensemble.servers() {
        let admin = server.admin_addr().expect("it has one");
        let answer = testkit::say(admin, b"GET /metrics HTTP/1.0\r\n\r\n").await;
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        names.extend(samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned));
    }
    names
}

/// Reads, writes, watches, sessions that come back, another leader, and a server that is behind.
async fn live(ensemble: &mut Ensemble) {
    let first = ensemble.leader().expect("there is one");
    let follower = ensemble.servers().map(|(id, _)| id).find(|id| *id != first).unwrap();
    for server in [first, follower] {
        let address = ensemble.server(server).expect("it runs").local_addr();
        let mut client = Client::connect(address).await;
        let top = format!("/of-{server}");
        client.create(&top, b"1", 0).await.unwrap();
        client.watch_all(&top).await;
        client.set(&top, b"2").await.unwrap();
        client.create(&format!("{top}/child"), b"", 1).await.unwrap();
        assert!(client.exists(&top).await);
        // A read behind a write waits for it.
        let (write, read) = (testkit::set(&top, b"3"), testkit::get(&top));
        client.send(&write).await;
        client.send(&read).await;
        client.receive().await.expect("the write is answered");
        client.receive().await.expect("the read is answered");
        let again = client.again();
        drop(client);
        Client::open(address, &again).await.expect("the session is still there");
    }
    ensemble.kill(first).await.unwrap();
    wait_until("another one leads", async || ensemble.leader().is_some_and(|id| id != first)).await;
    let second = ensemble.leader().expect("there is one");
    let address = ensemble.server(second).expect("it runs").local_addr();
    let mut client = Client::served(address).await;
    client.create("/behind", b"", 0).await.unwrap();
    ensemble.restart(first).await.unwrap();
    ensemble.wait_until_all_serve().await.unwrap();
    client.set("/behind", b"1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_name_is_measured_or_has_a_reason_why_not() {
    let directory = tempfile::tempdir().unwrap();
    let builder = Ensemble::builder(3).data_dir(directory.path());
    let builder = builder.set("admin.enableServer", "true").set("admin.serverPort", "0");
    let mut ensemble = builder.start().await.unwrap();
    live(&mut ensemble).await;
    let (_, reasons) = METRICS.split_once("## Names of ZooKeeper's that are not here").unwrap();
    let has_reason = |name: &str| {
        let base = ["_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        reasons.contains(&format!("`{}`", base.unwrap_or(name)))
    };
    let mut lacking: BTreeMap<&str, (bool, Vec<&str>)> = BTreeMap::new();
    wait_until("every name is there", async || {
        let there = scrape(&ensemble).await;
        let asked = NAMES.lines().filter(|line| !line.starts_with('#'));
        let asked = asked.map(|line| line.rsplit_once(": ").expect("where, and the names"));
        let found = asked.map(|(panel, names)| {
            let is_there = |name: &&str| there.contains(*name);
            let (has, lacks): (Vec<&str>, Vec<&str>) = names.split(' ').partition(is_there);
            (panel, (has.is_empty(), lacks))
        });
        lacking = found.filter(|(_, (_, lacks))| !lacks.is_empty()).collect();
        lacking.values().flat_map(|(_, lacks)| lacks).all(|name| has_reason(name))
    })
    .await;
    let is_panel = |line: &str| line.starts_with("grafana-10465: ");
    let panels = NAMES.lines().filter(|line| is_panel(line)).count();
    let empty =
        lacking.iter().filter(|(panel, (is_empty, _))| is_panel(panel) && *is_empty).count();
    assert_eq!(panels, 99);
    assert!(panels - empty >= PANELS_MIN, "{} of {panels} panels: {lacking:?}", panels - empty);
    ensemble.shutdown().await.unwrap();
}
