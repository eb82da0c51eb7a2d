//! The rules of clocks that are wrong.

use crate::proto::Acl;
use crate::proto::request::{Create, CreateKind, Request};
use crate::replica::cluster::{Cluster, create};
use crate::replica::*;

const YEARS_MS: i64 = 10 * 365 * 86_400_000;
const DAY_MS: i64 = 86_400_000;

/// The stamp of what a client of this server writes now, as it is behind the wall clock of right servers.
fn written(cluster: &mut Cluster, server: u8, xid: i32) -> i64 {
    cluster.send(server, 7, &[(xid, create(&format!("/{xid}"), 0))]);
    cluster.advance_ms(TICK_MS);
    assert_eq!(cluster.replies(server, 7), [(xid, 0)]);
    let stamp_ms = cluster.replicas[&server].machine().last_time_ms();
    stamp_ms - 1_000_000 - i64::try_from(cluster.now_us / 1000).unwrap()
}

fn is_now(ahead_ms: i64) -> bool {
    (-1000..=0).contains(&ahead_ms)
}

fn set_clocks(cluster: &mut Cluster, servers: &[u8], ahead_ms: i64) {
    for server in servers {
        cluster.wall_ahead_ms.insert(*server, ahead_ms);
    }
    // Until the next ping is answered.
    cluster.advance_ms(4 * TICK_MS);
}

#[test]
fn stamps_come_back_when_a_leader_whose_clock_was_years_ahead_is_set_right() {
    for servers in [1, 3] {
        let mut cluster = Cluster::new(servers);
        let leader = cluster.leader().unwrap();
        cluster.connect(leader, 7, None);
        assert!(is_now(written(&mut cluster, leader, 1)));
        set_clocks(&mut cluster, &[leader], YEARS_MS);
        assert!(is_now(written(&mut cluster, leader, 2) - YEARS_MS));
        set_clocks(&mut cluster, &[leader], 0);
        assert!(is_now(written(&mut cluster, leader, 3)));
        assert_eq!(cluster.replicas[&leader].status().time_returns, 1);
        cluster.assert_equal();
    }
}

#[test]
fn stamps_come_back_when_a_leader_whose_clock_is_years_ahead_is_replaced() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 7, None);
    set_clocks(&mut cluster, &[leader], YEARS_MS);
    written(&mut cluster, leader, 1);
    let next = (1..=3).find(|id| *id != leader).unwrap();
    cluster.connect(next, 7, None);
    cluster.kill(leader);
    // It is given before there is a leader: not even the first write of one has the wrong stamp.
    cluster.send(next, 7, &[(2, create("/2", 0))]);
    cluster.until("another leader", |cluster| cluster.leader().is_some());
    cluster.until("the answer", |cluster| {
        cluster.seen.get(&(next, 7)).is_some_and(|(frames, _)| !frames.is_empty())
    });
    assert_eq!(cluster.replies(next, 7), [(2, 0)]);
    let stamp_ms = cluster.replicas[&next].machine().last_time_ms();
    let wall_ms = 1_000_000 + i64::try_from(cluster.now_us / 1000).unwrap();
    assert!(is_now(stamp_ms - wall_ms), "{} ms ahead", stamp_ms - wall_ms);
}

#[test]
fn stamps_stay_where_they_are_while_no_majority_agrees_with_the_leaders_clock() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let others: Vec<u8> = (1..=3).filter(|id| *id != leader).collect();
    cluster.connect(leader, 7, None);
    written(&mut cluster, leader, 1);
    set_clocks(&mut cluster, &[leader], -DAY_MS);
    let first_ms = cluster.replicas[&leader].machine().last_time_ms();
    written(&mut cluster, leader, 2);
    assert_eq!(cluster.replicas[&leader].machine().last_time_ms(), first_ms);
    let status = cluster.replicas[&leader].status();
    assert!(status.time_stands_still && status.time_returns == 0, "{status:?}");
    assert!(status.stamps_ahead_ms > DAY_MS.unsigned_abs() / 2);
    assert!(status.peers.iter().all(|peer| peer.clock_skew_ms.is_some_and(|ms| ms > DAY_MS / 2)));
    // With one of the others it is a majority.
    set_clocks(&mut cluster, &others[..1], -DAY_MS);
    assert!(is_now(written(&mut cluster, leader, 3) + DAY_MS));
    assert!(!cluster.replicas[&leader].status().time_stands_still);
}

fn container(path: &str) -> Request {
    Request::Create(Create {
        path: path.into(),
        data: None,
        acl: Some(vec![Acl::open()]),
        flags: 4,
        ttl_ms: 0,
        kind: CreateKind::Container,
    })
}

#[test]
fn an_idle_ensemble_that_changes_leaders_still_removes_what_was_never_used() {
    let setup = Setup {
        container_never_used_ms: 6000,
        container_check_interval_ms: 100,
        ..Setup::default()
    };
    let mut cluster = Cluster::with(3, setup);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 7, None);
    cluster.send(leader, 7, &[(1, container("/c"))]);
    let is_there = |cluster: &Cluster| {
        let tree = cluster.replicas[&leader].machine().tree();
        tree.data_unchecked("/c").is_some() || tree.node_count() > 4
    };
    assert!(is_there(&cluster));
    let made_us = cluster.now_us;
    while is_there(&cluster) {
        assert!(cluster.now_us < made_us + 12_000_000, "it is never removed");
        let leads = cluster.leader().unwrap();
        cluster.replicas.get_mut(&leads).unwrap().consensus.resign(|_| true);
        cluster.until("another leader", |cluster| {
            cluster.leader().is_some_and(|leader| leader != leads)
        });
        cluster.advance_ms(1000);
    }
    assert!(cluster.now_us >= made_us + 6_000_000, "it is removed too early");
}
