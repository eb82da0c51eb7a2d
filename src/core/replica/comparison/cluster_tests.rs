//! Servers of whose states one is made another: named within a second, and no other server.

use crate::proto::request::Request;
use crate::replica::cluster::{Cluster, create, get};
use crate::replica::consensus::RefusalKind;
use crate::replica::machine::version;
use crate::replica::messages::PeerMessage;
use crate::replica::{Drained, Input, Setup, peer};
use crate::rng::Rng;

/// Longest time in which a wrong apply is named, in milliseconds.
const NAMED_MS_MAX: u64 = 1000;

fn cluster(count: u8) -> Cluster {
    let mut cluster = Cluster::new(count);
    for server in 1..=count {
        cluster.connect(server, 1, None);
    }
    cluster.send(1, 1, &[(1, create("/a", 0))]);
    cluster.advance_ms(500);
    cluster
}

fn set(path: &str) -> Request {
    Request::SetData { path: path.into(), data: None, version: -1 }
}

/// A transaction comes out otherwise on this server.
fn apply_wrongly(cluster: &mut Cluster, server: u8) {
    let replica = cluster.replicas.get_mut(&server).unwrap();
    replica.state.machine_mut().change_alone("/a");
}

fn refusal(cluster: &Cluster, server: u8) -> Option<RefusalKind> {
    cluster.replicas[&server].refused().map(|refusal| refusal.kind)
}

fn refused(cluster: &Cluster) -> Vec<u8> {
    let ids = cluster.replicas.keys().copied();
    ids.filter(|id| refusal(cluster, *id).is_some()).collect()
}

/// Client of a server that goes on. Its first request is answered, unless its server has gone.
fn write_at(cluster: &mut Cluster, server: u8, xid: i32) {
    cluster.send(server, 1, &[(xid, set("/a"))]);
}

#[test]
fn a_follower_or_a_leader_whose_state_is_another_is_named_and_answers_no_client() {
    for (count, is_leader) in [(3, false), (3, true), (5, false), (5, true)] {
        let mut cluster = cluster(count);
        let leader = cluster.leader().unwrap();
        let victim = if is_leader { leader } else { cluster.follower() };
        let writer = if is_leader { cluster.follower() } else { leader };
        apply_wrongly(&mut cluster, victim);
        let wrong_zxid = cluster.replicas[&victim].machine().last_zxid() + 1;
        write_at(&mut cluster, writer, 2);
        cluster.advance_ms(NAMED_MS_MAX);
        assert_eq!(refused(&cluster), [victim]);
        let words = cluster.replicas[&victim].refused().unwrap().words.clone();
        assert!(words.contains(&format!("first with zxid {wrong_zxid:#x}")), "{words}");
        assert!(words.contains(": setData /a"), "{words}");
        assert!(words.contains("--rejoin"), "{words}");
        assert!(cluster.closed(victim, 1), "its clients are sent away");
        cluster.replies(victim, 1);
        cluster.send(victim, 1, &[(9, get("/a"))]);
        cluster.until("another leads", |cluster| cluster.leader().is_some_and(|id| id != victim));
        cluster.advance_ms(5000);
        assert!(cluster.replies(victim, 1).is_empty(), "it answers no client");
        assert_eq!(refused(&cluster), [victim], "no other server is ended");
        let drained = cluster.replicas.get_mut(&victim).unwrap().drain_changes(1000);
        assert!(matches!(drained, Drained::Nothing), "its disk gets nothing of it");
        let survivor = cluster.leader().unwrap();
        cluster.connect(survivor, 2, None);
        cluster.send(survivor, 2, &[(1, set("/a"))]);
        assert_eq!(cluster.replies(survivor, 2), [(1, 0)]);
    }
}

#[test]
fn a_difference_that_came_and_went_between_two_reports_is_named() {
    let mut cluster = cluster(3);
    let (leader, victim) = (cluster.leader().unwrap(), cluster.follower());
    let at = cluster.replicas[&victim].state.at();
    let replica = cluster.replicas.get_mut(&victim).unwrap();
    let (zxid, digest) = (replica.machine().last_zxid(), replica.machine().digest());
    // It showed something else after an entry, and was right again after the next one.
    replica.comparison.applied((at.0 + 1, at.1), zxid, digest ^ 1);
    replica.comparison.applied((at.0 + 2, at.1), zxid, digest);
    for other in cluster.replicas.keys().copied().filter(|id| *id != victim).collect::<Vec<_>>() {
        let replica = cluster.replicas.get_mut(&other).unwrap();
        replica.comparison.applied((at.0 + 1, at.1), zxid, digest);
        replica.comparison.applied((at.0 + 2, at.1), zxid, digest);
    }
    let window = super::Window { from: at.0, to: at.0 + 2 };
    for id in cluster.replicas.keys().copied().collect::<Vec<_>>() {
        let from = peer::raft_id(0, leader);
        let replica = cluster.replicas.get_mut(&id).unwrap();
        let term = replica.consensus.term();
        if id == leader {
            replica.comparison.asked(window);
        } else {
            let message = PeerMessage::Compare { term, window };
            replica.step(Input::Peer { from, message });
        }
        for report in replica.comparison.due(window.to) {
            let own = replica.consensus.id();
            for other in replica.consensus.voters_of_both().concat() {
                if other != own {
                    replica.output.send(other, PeerMessage::Digests { report });
                }
            }
        }
    }
    cluster.advance_ms(NAMED_MS_MAX);
    assert_eq!(refused(&cluster), [victim]);
}

#[test]
fn of_two_servers_with_two_states_both_stop_and_no_directory_is_marked() {
    let mut cluster = cluster(2);
    apply_wrongly(&mut cluster, 1);
    write_at(&mut cluster, 2, 2);
    cluster.advance_ms(NAMED_MS_MAX);
    assert_eq!(refused(&cluster), [1, 2]);
    for server in [1, 2] {
        assert_eq!(refusal(&cluster, server), Some(RefusalKind::NoMajority));
    }
}

#[test]
fn one_that_cannot_be_heard_is_not_another_state() {
    let mut cluster = cluster(3);
    let silent = cluster.follower();
    cluster.isolate(silent);
    let leader = cluster.leader().unwrap();
    for xid in 2..40 {
        write_at(&mut cluster, leader, xid);
        cluster.advance_ms(50);
    }
    cluster.cut.clear();
    cluster.advance_ms(3000);
    assert!(refused(&cluster).is_empty());
    cluster.assert_equal();
}

#[test]
fn a_server_that_lies_about_its_digest_is_ended_and_no_other() {
    let mut cluster = cluster(3);
    let liar = cluster.follower();
    let replica = cluster.replicas.get_mut(&liar).unwrap();
    let (at, zxid) = (replica.state.at(), replica.machine().last_zxid());
    replica.comparison.begin(at, zxid, 7);
    cluster.advance_ms(NAMED_MS_MAX);
    assert_eq!(refused(&cluster), [liar]);
}

#[test]
fn a_stranger_and_a_release_that_defines_the_digest_otherwise_convict_no_server() {
    let mut cluster = cluster(3);
    let leader = cluster.leader().unwrap();
    let at = cluster.replicas[&leader].state.at();
    let window = super::Window { from: at.0, to: at.0 };
    let value = super::Value { digest: 1, sum: 0 };
    let report = super::DigestReport { definition: super::DEFINITION, window, term: at.1, value };
    let replica = cluster.replicas.get_mut(&leader).unwrap();
    let dropped = replica.figures.counts.peer_messages_dropped;
    replica.comparison.asked(window);
    for stranger in 4..9 {
        let from = peer::raft_id(0, stranger);
        replica.step(Input::Peer { from, message: PeerMessage::Digests { report } });
    }
    assert_eq!(replica.figures.counts.peer_messages_dropped, dropped + 5);
    let report = super::DigestReport { definition: super::DEFINITION + 1, ..report };
    for other in (1..=3).filter(|id| *id != leader) {
        let from = peer::raft_id(0, other);
        replica.step(Input::Peer { from, message: PeerMessage::Digests { report } });
    }
    cluster.advance_ms(2000);
    assert!(refused(&cluster).is_empty());
}

#[test]
fn before_the_second_version_a_difference_is_reported_and_ends_no_server_and_the_upgrade_waits() {
    let mut cluster = cluster(3);
    for replica in cluster.replicas.values_mut() {
        replica.state.machine_mut().back_to_the_first_version();
    }
    let (leader, victim) = (cluster.leader().unwrap(), cluster.follower());
    apply_wrongly(&mut cluster, victim);
    write_at(&mut cluster, leader, 2);
    cluster.advance_ms(NAMED_MS_MAX);
    assert!(refused(&cluster).is_empty());
    let seen_by = |cluster: &Cluster, server: u8| cluster.replicas[&server].status().differing;
    assert_eq!(
        (seen_by(&cluster, leader), seen_by(&cluster, victim)),
        (vec![victim], vec![victim])
    );
    let upgrade = Input::FinishUpgrade { version: version::SECOND };
    cluster.replicas.get_mut(&leader).unwrap().step(upgrade);
    cluster.advance_ms(1000);
    assert_eq!(cluster.replicas[&leader].machine().version(), version::FIRST);
}

/// Cuts, silent servers and restarts of a random world, with a wrong apply or without.
fn world(seed: u64, is_planted: bool) {
    let mut rng = Rng::new(seed, 23);
    let count = if rng.below(2) == 0 { 3 } else { 5 };
    let mut cluster = Cluster::with(count, Setup::default());
    let voters = cluster.ids.values().copied().collect::<Vec<_>>();
    cluster.until("all vote", |cluster| cluster.counts(voters.len(), 0));
    let (mut conn, mut planted) = (10, None);
    cluster.connect(1, 1, None);
    cluster.send(1, 1, &[(1, create("/a", 0))]);
    let plant_at = 10 + rng.below(40);
    for round in 0..60 {
        let server = 1 + rng.below(u64::from(count)) as u8;
        match rng.below(6) {
            0 if cluster.cut.is_empty() => cluster.isolate(server),
            1 => cluster.cut.clear(),
            _ => {
                conn += 1;
                cluster.ask(server, conn, None);
                cluster.send(server, conn, &[(1, set("/a"))]);
            }
        }
        cluster.advance_ms(50 * (1 + rng.below(4)));
        if is_planted && round == plant_at {
            cluster.cut.clear();
            cluster.until("a leader", |cluster| cluster.leader().is_some());
            cluster.advance_ms(2000);
            let victim = 1 + rng.below(u64::from(count)) as u8;
            apply_wrongly(&mut cluster, victim);
            planted = Some(victim);
            let leader = cluster.leader().unwrap();
            cluster.connect(leader, 5, None);
            cluster.advance_ms(NAMED_MS_MAX);
            break;
        }
    }
    cluster.cut.clear();
    cluster.advance_ms(3000);
    assert_eq!(refused(&cluster), planted.into_iter().collect::<Vec<_>>(), "seed {seed}");
}

#[test]
fn in_three_hundred_worlds_exactly_the_one_that_was_planted_is_named() {
    for seed in 1..=300 {
        world(seed, true);
    }
}

#[test]
fn in_worlds_without_a_plant_no_server_is_named() {
    for seed in 1..=100 {
        world(seed, false);
    }
}

#[test]
fn a_received_state_that_is_wrong_is_named_though_nothing_is_written() {
    let mut cluster = cluster(3);
    let victim = cluster.follower();
    apply_wrongly(&mut cluster, victim);
    let replica = cluster.replicas.get_mut(&victim).unwrap();
    replica.record_anew();
    cluster.advance_ms(NAMED_MS_MAX);
    assert_eq!(refused(&cluster), [victim]);
}
