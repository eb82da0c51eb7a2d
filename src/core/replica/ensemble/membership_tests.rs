//! The rules of a change of members: who may ask for it, when it is decided, and who votes then.

use crate::proto::ErrorCode;
use crate::proto::request::Request;
use crate::replica::cluster::{Cluster, create, get, reconfig};
use crate::replica::*;

/// Servers, and a client of server 1 that may change who they are.
pub(super) fn with_super_user(count: u8) -> Cluster {
    let mut cluster = Cluster::new(count);
    cluster.connect_super_user(1);
    cluster
}

#[test]
fn members_change_one_after_another_and_raft_follows() {
    let mut cluster = with_super_user(3);
    let observer = "server.4=127.0.0.1:4:104:observer;204";
    cluster.send(1, 1, &[(1, reconfig(Some(observer), None))]);
    cluster.send(1, 1, &[(2, reconfig(None, Some("4")))]);
    assert_eq!(cluster.replies(1, 1), [(1, 0), (2, 0)]);
    let leader = cluster.leader().unwrap();
    let leaves = (1..=3).rev().find(|id| *id != leader && *id != 1).unwrap();
    cluster.send(1, 1, &[(3, reconfig(None, Some(&leaves.to_string())))]);
    assert_eq!(cluster.replies(1, 1), [(3, 0)]);
    cluster.until("raft follows", |cluster| {
        cluster.replicas[&leader].consensus.membership().voters.len() == 2
    });
    cluster.send(1, 1, &[(4, reconfig(None, Some("1")))]);
    assert_eq!(cluster.replies(1, 1), [(4, ErrorCode::BadArguments as i32)], "two are needed");
}

#[test]
fn members_that_make_no_sense_are_refused_before_it_is_asked_who_may_change_them() {
    let mut cluster = Cluster::new(3);
    cluster.connect(2, 1, None);
    cluster.send(2, 1, &[(1, reconfig(Some("nonsense"), None)), (2, reconfig(None, Some("3")))]);
    let errors = [ErrorCode::BadArguments as i32, ErrorCode::NoAuth as i32];
    assert_eq!(cluster.replies(2, 1), [(1, errors[0]), (2, errors[1])]);
}

#[test]
fn an_address_that_no_other_server_can_dial_is_refused_of_a_server_that_votes() {
    let mut cluster = with_super_user(3);
    for joining in ["server.4=0.0.0.0:4:104;204", "server.3=[::]:3:103;203"] {
        cluster.send(1, 1, &[(1, reconfig(Some(joining), None))]);
        assert_eq!(cluster.replies(1, 1), [(1, ErrorCode::BadArguments as i32)], "{joining}");
    }
    // For clients it is what their machine makes of it.
    cluster.send(1, 1, &[(2, reconfig(Some("server.3=127.0.0.1:3:103;0.0.0.0:203"), None))]);
    assert_eq!(cluster.replies(1, 1), [(2, 0)]);
    // No majority depends on an observer.
    cluster.send(1, 1, &[(3, reconfig(Some("server.100=0.0.0.0:4:104:observer;204"), None))]);
    assert_eq!(cluster.replies(1, 1), [(3, 0)]);
}

#[test]
fn several_addresses_are_refused_where_the_leader_takes_one_alone() {
    for (multi_address, answer) in [(false, ErrorCode::BadArguments as i32), (true, 0)] {
        let mut cluster = Cluster::with(3, Setup { multi_address, ..Setup::default() });
        cluster.connect_super_user(1);
        let joining = "server.4=127.0.0.1:4:104|127.0.0.2:4:104;204";
        cluster.send(1, 1, &[(1, reconfig(Some(joining), None))]);
        assert_eq!(cluster.replies(1, 1), [(1, answer)], "{multi_address}");
    }
}

/// Each vote taken away by a change of its own would leave 1, 3, 4 and 5, of which two run.
#[test]
fn two_votes_go_at_once_where_one_alone_would_end_the_majority() {
    let mut cluster = with_super_user(5);
    for gone in [3, 5] {
        cluster.kill(gone);
    }
    cluster.until("a leader", |cluster| cluster.leader().is_some());
    cluster.send(1, 1, &[(1, reconfig(None, Some("2,5"))), (2, create("/goes-on", 0))]);
    cluster.advance_ms(1000);
    assert_eq!(cluster.replies(1, 1), [(1, 0), (2, 0)]);
    assert!(cluster.counts(3, 1));
}

#[test]
fn a_server_that_lost_its_data_votes_again_although_a_newcomer_never_catches_up() {
    let mut cluster = with_super_user(3);
    for number in 0..100 {
        cluster.send(1, 1, &[(number, create(&format!("/n{number}"), 0))]);
    }
    let initial = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
    cluster.start(4, peer::raft_id(9, 4), initial.clone());
    cluster.hold_disk(4);
    cluster.send(1, 1, &[(200, reconfig(Some("server.4=127.0.0.1:4:104;204"), None))]);
    let leader = cluster.leader().unwrap();
    let gone = (2..=3).find(|id| *id != leader).unwrap();
    cluster.kill(gone);
    cluster.start(gone, peer::raft_id(9, gone), initial);
    cluster.until("it votes", |cluster| cluster.replicas[&gone].consensus.votes());
    assert!(!cluster.replicas[&4].consensus.votes());
}

#[test]
fn members_that_are_never_heard_from_cannot_be_the_majority() {
    let mut cluster = with_super_user(3);
    let joining = "server.4=127.0.0.1:4:104;204,server.5=127.0.0.1:5:105;205,\
                   server.6=127.0.0.1:6:106;206,server.7=127.0.0.1:7:107;207";
    cluster.send(1, 1, &[(1, reconfig(Some(joining), None))]);
    assert_eq!(cluster.replies(1, 1), [(1, ErrorCode::NewConfigNoQuorum as i32)]);
}

#[test]
fn a_server_leaves_and_comes_back_however_fast_that_is_asked_for() {
    let mut cluster = with_super_user(3);
    let leader = cluster.leader().unwrap();
    let gone = (1..=3).rev().find(|id| *id != leader && *id != 1).unwrap();
    let back = format!("server.{gone}=127.0.0.1:{gone}:10{gone};20{gone}");
    for (xid, request) in
        [(1, reconfig(None, Some(&gone.to_string()))), (2, reconfig(Some(&back), None))]
    {
        cluster.send(1, 1, &[(xid, request)]);
        assert_eq!(cluster.replies(1, 1), [(xid, 0)]);
    }
    cluster.until("raft follows", |cluster| {
        let membership = cluster.replicas[&leader].consensus.membership();
        membership.voters.len() == 3 && cluster.replicas[&gone].is_serving()
    });
    cluster.assert_equal();
}

#[test]
fn a_removed_server_serves_its_clients_as_long_as_it_is_there() {
    for leads in [false, true] {
        let mut cluster = Cluster::new(3);
        let leader = cluster.leader().unwrap();
        let leaves = if leads { leader } else { cluster.follower() };
        cluster.connect_super_user(leaves);
        let leave = reconfig(None, Some(&leaves.to_string()));
        let back = format!("server.{leaves}=127.0.0.1:{leaves}:10{leaves};20{leaves}");
        for round in 0..2 {
            let requests = [leave.clone(), get("/zookeeper/config"), reconfig(Some(&back), None)];
            for (xid, request) in (10 * round..).zip(requests) {
                cluster.send(leaves, 1, &[(xid, request)]);
                cluster.advance_ms(2000);
                assert_eq!(cluster.replies(leaves, 1), [(xid, 0)], "leads: {leads}");
            }
            cluster.until("it votes again", |cluster| cluster.counts(3, 0));
        }
        cluster.send(leaves, 1, &[(30, leave)]);
        cluster.until("it learns only", |cluster| cluster.counts(2, 1));
        cluster.assert_equal();
        cluster.kill(leaves);
        cluster.until("it is forgotten", |cluster| cluster.counts(2, 0));
    }
}

#[test]
fn a_request_for_other_members_waits_for_a_new_leader_to_know_the_last_one() {
    let mut cluster = with_super_user(3);
    let leader = cluster.leader().unwrap();
    let leave = reconfig(None, Some(&leader.to_string()));
    cluster.send(1, 1, &[(1, leave)]);
    let back = format!("server.{leader}=127.0.0.1:{leader}:10{leader};20{leader}");
    cluster.send(1, 1, &[(2, reconfig(Some(&back), None))]);
    cluster.advance_ms(2000);
    assert_eq!(cluster.replies(1, 1), [(1, 0), (2, 0)]);
}

#[test]
fn members_asked_for_before_the_last_change_is_applied_are_refused() {
    let mut cluster = with_super_user(5);
    let requests: Vec<(i32, Request)> =
        (2..=5).map(|id| (id, reconfig(None, Some(&id.to_string())))).collect();
    cluster.send(1, 1, &requests);
    let busy = ErrorCode::ReconfigInProgress as i32;
    assert_eq!(cluster.replies(1, 1), [(2, 0), (3, busy), (4, busy), (5, busy)]);
}

#[test]
fn members_asked_for_once_the_last_change_was_answered_wait_for_the_leader_to_apply_that() {
    let mut cluster = Cluster::new(3);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    cluster.connect_super_user(follower);
    // The others commit and apply what the leader must not apply before its own disk has it.
    cluster.hold_disk(leader);
    let observer = "server.4=127.0.0.1:4:104:observer;204";
    cluster.send(follower, 1, &[(1, reconfig(Some(observer), None))]);
    assert_eq!(cluster.replies(follower, 1), [(1, 0)]);
    cluster.send(follower, 1, &[(2, reconfig(None, Some("4")))]);
    assert_eq!(cluster.replies(follower, 1), []);
    cluster.release_disk();
    assert_eq!(cluster.replies(follower, 1), [(2, 0)]);
}

/// Two of five are down and removed: once that is answered, any two of the other three go on, whichever
/// stops at this very moment, and whatever it had still to send.
#[test]
fn after_the_answer_to_a_removal_any_majority_of_those_that_stay_elects_a_leader() {
    for asked in 3..=5 {
        for stops in 3..=5 {
            let mut cluster = Cluster::new(5);
            cluster.kill(1);
            cluster.kill(2);
            let all_serve = |cluster: &Cluster| cluster.replicas.values().all(Replica::is_serving);
            cluster.until("a leader", |cluster| cluster.leader().is_some() && all_serve(cluster));
            cluster.connect_super_user(asked);
            cluster.halts_at = Some((asked, 1));
            cluster.send(asked, 1, &[(1, reconfig(None, Some("1,2")))]);
            cluster.until("an answer", |cluster| cluster.halts_at.is_none());
            assert_eq!(cluster.replies(asked, 1), [(1, 0)]);
            cluster.kill(stops);
            let went = format!("{asked} is asked, {stops} stops");
            cluster.until(&went, |cluster| cluster.leader().is_some());
            let left = *cluster.replicas.keys().next().unwrap();
            cluster.until(&went, |cluster| cluster.replicas[&left].is_serving());
            cluster.connect(left, 2, None);
            cluster.send(left, 2, &[(1, create("/goes-on", 0))]);
            assert_eq!(cluster.replies(left, 2), [(1, 0)], "{went}");
        }
    }
}

/// The others commit and apply what the leader, whose disk hangs, does not carry out.
#[test]
fn an_answer_to_a_removal_is_waited_for_no_longer_than_its_bound() {
    let mut cluster = Cluster::new(5);
    let (leader, asked) = (cluster.leader().unwrap(), cluster.follower());
    let gone = (1..=5).rev().find(|id| ![leader, asked].contains(id)).unwrap();
    cluster.connect_super_user(asked);
    cluster.hold_disk(leader);
    cluster.send(asked, 1, &[(1, reconfig(None, Some(&gone.to_string()))), (2, get("/"))]);
    let begun_us = cluster.now_us;
    while !cluster.closed(asked, 1) {
        cluster.send(asked, 1, &[(-2, Request::Ping)]);
        cluster.advance_ms(TICK_MS);
        assert!(cluster.now_us < begun_us + 30_000_000);
    }
    assert_eq!((cluster.now_us - begun_us) / 1000, steps::membership::REMOVAL_MS_MAX);
    assert_eq!(cluster.replies(asked, 1), [], "nothing behind it either");
    cluster.release_disk();
    cluster.until("it is carried out all the same", |cluster| cluster.counts(4, 1));
}

/// An observer that is down has no vote, however it lost that.
#[test]
fn a_participant_that_is_down_becomes_an_observer() {
    let mut cluster = Cluster::new(3);
    let (leader, gone) = (cluster.leader().unwrap(), cluster.follower());
    cluster.connect_super_user(leader);
    cluster.kill(gone);
    let observer = format!("server.{gone}=127.0.0.1:{gone}:10{gone}:observer;20{gone}");
    cluster.send(leader, 1, &[(1, reconfig(Some(&observer), None))]);
    cluster.until("an answer", |cluster| cluster.counts(2, 1));
    assert_eq!(cluster.replies(leader, 1), [(1, 0)]);
}

#[test]
fn a_leader_that_is_removed_hands_over_first() {
    let mut cluster = with_super_user(3);
    let old = cluster.leader().unwrap();
    cluster.send(1, 1, &[(1, reconfig(None, Some(&old.to_string())))]);
    cluster.until("two others vote", |cluster| {
        cluster.leader().is_some_and(|leader| {
            let voters = cluster.replicas[&leader].consensus.membership().voters;
            leader != old && voters.len() == 2 && !voters.contains(&old.into())
        })
    });
    let membership = cluster.replicas[&cluster.leader().unwrap()].consensus.membership();
    assert_eq!(membership.learners, [u64::from(old)]);
    cluster.until("an answer", |cluster| !cluster.seen[&(1, 1)].0.is_empty());
    assert_eq!(cluster.replies(1, 1), [(1, 0)]);
}

#[test]
fn a_new_participant_votes_once_it_has_caught_up() {
    let mut cluster = with_super_user(3);
    for number in 0..20 {
        cluster.send(1, 1, &[(number, create(&format!("/n{number}"), 0))]);
    }
    cluster.replies(1, 1);
    let initial = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
    cluster.start(4, peer::raft_id(9, 4), initial);
    let joining = "server.4=127.0.0.1:4:104;204";
    cluster.send(1, 1, &[(50, reconfig(Some(joining), None))]);
    assert_eq!(cluster.replies(1, 1), [(50, 0)]);
    cluster.until("it votes", |cluster| cluster.replicas[&4].consensus.votes());
    cluster.until("it serves", |cluster| cluster.replicas[&4].is_serving());
    cluster.assert_equal();
}

/// The old majority counts until the change is over, and an operator stops a server that leaves once the others vote.
#[test]
fn a_vote_is_shown_once_the_change_that_gives_it_is_over() {
    let mut cluster = with_super_user(3);
    let leader = cluster.leader().unwrap();
    let others: Vec<u8> = (1..=3).filter(|id| *id != leader).collect();
    let initial = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
    cluster.start(4, peer::raft_id(9, 4), initial);
    let joins = |role| reconfig(Some(&format!("server.4=127.0.0.1:4:104{role};204")), None);
    cluster.send(1, 1, &[(1, joins(":observer"))]);
    cluster.until("it serves", |cluster| cluster.replicas[&4].is_serving());
    let shown = |cluster: &Cluster| {
        let peers = cluster.replicas[&leader].status().peers;
        peers.iter().find(|peer| peer.server == 4).unwrap().votes
    };
    // The old majority carries the first half of the change, the new one the second.
    for held in [others[1], 4] {
        cluster.hold_disk(held);
    }
    let joining = "server.4=127.0.0.1:4:104;204";
    cluster.send(1, 1, &[(2, reconfig(Some(joining), Some(&others[0].to_string())))]);
    cluster.until("both sets count", |cluster| cluster.replicas[&leader].consensus.is_joint());
    cluster.advance_ms(1000);
    assert!(cluster.replicas[&leader].consensus.is_joint() && !shown(&cluster));
    cluster.release_disk();
    cluster.until("the vote is shown", shown);
    assert!(!cluster.replicas[&leader].consensus.is_joint());
}
