//! The rules of a disk that hangs.

use raft::eraftpb::{Message, MessageType};

use crate::proto::Request;
use crate::replica::cluster::{Cluster, create, get};
use crate::replica::*;

/// The bound of these tests, in milliseconds.
const BOUND_MS: u64 = 1000;
/// An election after a transfer, with room.
const ELECTION_MS: u64 = 500;

fn cluster(servers: u8) -> Cluster {
    Cluster::with(servers, Setup { disk_stall_ms: BOUND_MS, ..Setup::default() })
}

#[test]
fn a_leader_whose_disk_hangs_hands_over_within_the_bound_and_its_clients_get_their_answers() {
    let mut cluster = cluster(3);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 7, None);
    cluster.hold_disk(leader);
    cluster.send(leader, 7, &[(1, create("/a", 0))]);
    cluster.advance_ms(BOUND_MS - 2 * TICK_MS);
    assert_eq!(cluster.leader(), Some(leader), "it is given the whole bound");
    assert_eq!(cluster.replies(leader, 7), []);
    cluster.advance_ms(2 * TICK_MS + ELECTION_MS);
    assert_ne!(cluster.leader(), Some(leader));
    assert_eq!(cluster.replies(leader, 7), [(1, 0)]);
    // It follows, and keeps its clients.
    cluster.send(leader, 7, &[(2, create("/b", 0)), (3, get("/b"))]);
    cluster.advance_ms(ELECTION_MS);
    assert_eq!(cluster.replies(leader, 7), [(2, 0), (3, 0)]);
    assert!(!cluster.closed(leader, 7));
    cluster.release_disk();
    cluster.assert_equal();
}

/// A server that has handed over because its disk hung, and whose disk has answered since; and who leads now.
fn after_a_hang() -> (Cluster, u8, u8) {
    let mut cluster = cluster(3);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 7, None);
    cluster.hold_disk(leader);
    cluster.send(leader, 7, &[(1, create("/a", 0))]);
    cluster.advance_ms(BOUND_MS + ELECTION_MS);
    let next = cluster.leader().unwrap();
    assert_ne!(next, leader);
    cluster.release_disk();
    cluster.advance_ms(BOUND_MS);
    (cluster, leader, next)
}

#[test]
fn a_server_that_handed_over_stands_for_no_election_until_its_disk_has_proved_itself() {
    let (mut cluster, leader, next) = after_a_hang();
    // Asked by the leader of now, it does not stand; nor when the link breaks, nor when time passes.
    let (asks, asked) = (cluster.ids[&next], cluster.ids[&leader]);
    cluster.replicas.get_mut(&next).unwrap().consensus.transfer_to(asked);
    cluster.advance_ms(ELECTION_MS);
    assert_eq!(cluster.leader(), Some(next));
    let elections = cluster.replicas[&leader].consensus.elections();
    cluster.replicas.get_mut(&leader).unwrap().step(Input::PeerDown { peer: asks });
    cluster.advance_ms(ELECTION_MS);
    assert_eq!(cluster.replicas[&leader].consensus.elections(), elections);
    assert_eq!(cluster.leader(), Some(next));
    // When that one dies, the third is elected, with the vote of the one that does not stand.
    cluster.kill(next);
    cluster.advance_ms(800);
    let third = 6 - leader - next;
    assert_eq!(cluster.leader(), Some(third));
    cluster.until("it stands again", |cluster| cluster.replicas[&leader].consensus.may_stand());
    assert!(cluster.now_us / 1000 > 10 * BOUND_MS);
    let transfers = cluster.ids[&leader];
    cluster.replicas.get_mut(&third).unwrap().consensus.transfer_to(transfers);
    cluster.advance_ms(ELECTION_MS);
    assert_eq!(cluster.leader(), Some(leader));
}

#[test]
fn where_all_others_have_handed_over_the_leader_hands_over_to_one_of_them_whose_disk_answers() {
    let mut cluster = cluster(3);
    let mut led = Vec::new();
    for conn in 1..7 {
        let leader = cluster.leader().unwrap();
        led.push(leader);
        cluster.connect(leader, conn, None);
        cluster.hold_disk(leader);
        cluster.send(leader, conn, &[(1, create(&format!("/n{conn}"), 0))]);
        cluster.advance_ms(BOUND_MS - 2 * TICK_MS);
        assert_eq!(cluster.leader(), Some(leader), "it is given the whole bound");
        // Each of the others is asked twice at most.
        cluster.advance_ms(2 * TICK_MS + 4 * ELECTION_MS);
        assert_ne!(cluster.leader().unwrap(), leader);
        assert_eq!(cluster.replies(leader, conn), [(1, 0)]);
        cluster.release_disk();
    }
    assert!(cluster.now_us / 1000 < 10 * BOUND_MS * 6);
    let first_three: std::collections::BTreeSet<_> = led[..3].iter().collect();
    assert_eq!(first_three.len(), 3, "one that has not handed over comes first: {led:?}");
    cluster.assert_equal();
}

#[test]
fn one_that_does_not_stand_does_if_no_other_can_lead() {
    let (mut cluster, leader, next) = after_a_hang();
    let third = 6 - leader - next;
    // Only these two have what is written now: the third cannot be elected without it.
    cluster.isolate(third);
    cluster.connect(next, 8, None);
    cluster.send(next, 8, &[(1, create("/b", 0))]);
    assert_eq!(cluster.replies(next, 8), [(1, 0)]);
    cluster.kill(next);
    cluster.cut.clear();
    cluster.until("the first one leads", |cluster| cluster.leader() == Some(leader));
    assert!(cluster.now_us / 1000 < 10 * BOUND_MS);
}

#[test]
fn a_late_request_to_lead_of_an_earlier_term_does_not_count_as_asked() {
    let (mut cluster, leader, next) = after_a_hang();
    let before = cluster.replicas[&next].consensus.term() - 1;
    let third = 6 - leader - next;
    let (from, asked) = (cluster.ids[&third], cluster.ids[&leader]);
    let mut late = Message { from, to: asked, term: before, ..Message::default() };
    late.set_msg_type(MessageType::MsgTimeoutNow);
    let message = PeerMessage::Raft(Box::new(late));
    cluster.replicas.get_mut(&leader).unwrap().step(Input::Peer { from, message });
    // Asked for the first time, it leaves that to others.
    cluster.replicas.get_mut(&next).unwrap().consensus.transfer_to(asked);
    cluster.advance_ms(ELECTION_MS);
    assert_eq!(cluster.leader(), Some(next));
}

#[test]
fn one_that_does_not_stand_counts_a_leader_that_it_knew_for_less_than_a_tick() {
    let (mut cluster, leader, next) = after_a_hang();
    cluster.isolate(leader);
    cluster.until("it may stand", |cluster| cluster.replicas[&leader].consensus.may_stand());
    // One heartbeat comes through, and then the link breaks.
    let (from, term) = (cluster.ids[&next], cluster.replicas[&next].consensus.term());
    let mut heartbeat = Message { from, to: cluster.ids[&leader], term, ..Message::default() };
    heartbeat.set_msg_type(MessageType::MsgHeartbeat);
    let replica = cluster.replicas.get_mut(&leader).unwrap();
    let elections = replica.consensus.elections();
    replica.step(Input::Peer { from, message: PeerMessage::Raft(Box::new(heartbeat)) });
    assert_eq!(replica.consensus.leader(), Some(from));
    replica.step(Input::PeerDown { peer: from });
    cluster.advance_ms(ELECTION_MS);
    assert_eq!(cluster.replicas[&leader].consensus.elections(), elections, "others lead");
    cluster.until("it may stand", |cluster| cluster.replicas[&leader].consensus.may_stand());
}

#[test]
fn where_all_disks_hang_no_leader_is_deposed_and_clients_are_sent_away_and_served_again() {
    let mut cluster = cluster(3);
    let leader = cluster.leader().unwrap();
    let term = cluster.replicas[&leader].consensus.term();
    cluster.connect(leader, 7, None);
    (1..=3).for_each(|server| cluster.hold_disk(server));
    cluster.send(leader, 7, &[(1, create("/a", 0))]);
    cluster.advance_ms(BOUND_MS - TICK_MS);
    assert!(!cluster.closed(leader, 7));
    cluster.advance_ms(6 * TICK_MS);
    assert!(cluster.closed(leader, 7), "its write has waited for the bound");
    cluster.advance_ms(5 * BOUND_MS);
    cluster.ask(leader, 8, None);
    assert!(cluster.closed(leader, 8), "it would wait as well");
    cluster.release_disk();
    cluster.until("it serves again", |cluster| cluster.replicas[&leader].is_serving());
    assert_eq!(
        (cluster.leader(), cluster.replicas[&leader].consensus.term()),
        (Some(leader), term)
    );
    cluster.connect(leader, 9, None);
}

#[test]
fn disks_that_are_all_slow_depose_no_leader() {
    let mut cluster = cluster(3);
    let leader = cluster.leader().unwrap();
    let term = cluster.replicas[&leader].consensus.term();
    cluster.connect(leader, 7, None);
    for turn in 0..20 {
        (1..=3).for_each(|server| cluster.hold_disk(server));
        cluster.send(leader, 7, &[(turn, create(&format!("/n{turn}"), 0))]);
        cluster.advance_ms(BOUND_MS - 2 * TICK_MS);
        cluster.release_disk();
        assert_eq!(cluster.replies(leader, 7), [(turn, 0)]);
    }
    assert_eq!(
        (cluster.leader(), cluster.replicas[&leader].consensus.term()),
        (Some(leader), term)
    );
}

#[test]
fn a_follower_whose_disk_hangs_keeps_its_clients_as_long_as_it_applies() {
    let mut cluster = cluster(3);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    cluster.connect(follower, 7, None);
    cluster.hold_disk(follower);
    for xid in 1..=20 {
        cluster.send(follower, 7, &[(xid, create(&format!("/n{xid}"), 0))]);
        cluster.advance_ms(BOUND_MS / 4);
        assert_eq!(cluster.replies(follower, 7), [(xid, 0)]);
    }
    assert!(cluster.replicas[&follower].status().is_disk_hung);
    assert_eq!(cluster.leader(), Some(leader));
    // Nothing is committed any more without its disk.
    let other = 6 - leader - follower;
    cluster.kill(other);
    cluster.send(follower, 7, &[(21, create("/alone", 0))]);
    cluster.advance_ms(BOUND_MS - 2 * TICK_MS);
    assert!(!cluster.closed(follower, 7));
    cluster.advance_ms(4 * TICK_MS);
    assert!(cluster.closed(follower, 7));
    cluster.release_disk();
    cluster.until("it serves again", |cluster| cluster.replicas[&follower].is_serving());
    assert!(!cluster.replicas[&follower].status().is_disk_hung);
}

#[test]
fn a_follower_whose_checkpoint_waits_for_its_disk_applies_on_when_that_hangs() {
    let mut cluster =
        Cluster::with(3, Setup { disk_stall_ms: BOUND_MS, durable: true, ..Setup::default() });
    let follower = cluster.follower();
    cluster.connect(follower, 7, None);
    cluster.hold_disk(follower);
    cluster.send(follower, 7, &[(1, create("/a", 0))]);
    let drain = |cluster: &mut Cluster| {
        cluster.replicas.get_mut(&follower).unwrap().drain_changes(usize::MAX)
    };
    assert!(matches!(drain(&mut cluster), Drained::Changes(_)));
    assert_eq!(drain(&mut cluster), Drained::NotDurable);
    cluster.send(follower, 7, &[(2, create("/b", 0))]);
    assert_eq!(cluster.replies(follower, 7), [(1, 0)], "the checkpoint comes first");
    cluster.advance_ms(BOUND_MS + TICK_MS);
    assert_eq!(cluster.replies(follower, 7), [(2, 0)]);
    let Drained::Changes(Changes { mark: None, .. }) = drain(&mut cluster) else { panic!() };
    assert_eq!(drain(&mut cluster), Drained::NotDurable);
    cluster.send(follower, 7, &[(3, create("/c", 0))]);
    assert_eq!(cluster.replies(follower, 7), [(3, 0)]);
    assert!(!cluster.closed(follower, 7));
}

#[test]
fn one_that_is_asked_to_lead_and_does_not_is_not_asked_again_before_the_others() {
    let mut cluster = cluster(5);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 7, None);
    let first = cluster.follower();
    cluster.send(leader, 7, &[(1, create("/a", 0))]);
    cluster.hold_disk(leader);
    cluster.send(leader, 7, &[(2, create("/b", 0))]);
    cluster.advance_ms(BOUND_MS - 2 * TICK_MS);
    // Its disk hangs as well, which no other server can know yet.
    cluster.hold_disk(first);
    cluster.advance_ms(2 * TICK_MS + 2 * ELECTION_MS);
    let next = cluster.leader().unwrap();
    assert!(next != leader && next != first, "{next} leads");
    cluster.release_disk();
    cluster.assert_equal();
}

#[test]
fn a_lone_server_keeps_its_clients_however_long_its_disk_hangs() {
    let setup = Setup { disk_stall_ms: BOUND_MS, ..Setup::default() };
    let mut cluster = Cluster::with(1, setup);
    cluster.connect(1, 7, None);
    cluster.hold_disk(1);
    cluster.send(1, 7, &[(1, create("/a", 0))]);
    cluster.advance_ms(60 * BOUND_MS);
    assert!(cluster.replicas[&1].status().is_disk_hung);
    assert!(!cluster.closed(1, 7) && cluster.replicas[&1].is_serving());
    cluster.release_disk();
    assert_eq!(cluster.replies(1, 7), [(1, 0)]);
    cluster.advance_ms(TICK_MS);
    assert!(!cluster.replicas[&1].status().is_disk_hung);
}

#[test]
fn a_process_that_stood_still_does_not_take_that_for_its_disk() {
    let mut cluster = cluster(3);
    let leader = cluster.leader().unwrap();
    let term = cluster.replicas[&leader].consensus.term();
    cluster.connect(leader, 7, None);
    cluster.hold_disk(leader);
    cluster.send(leader, 7, &[(1, create("/a", 0))]);
    cluster.tick_in(20 * BOUND_MS * 1000);
    let leads = &cluster.replicas[&leader];
    assert!(!leads.status().is_disk_hung);
    assert_eq!((cluster.leader(), leads.consensus.term()), (Some(leader), term));
}

#[test]
fn a_leader_that_ends_a_long_session_sends_heartbeats_meanwhile() {
    let mut cluster = Cluster::with(3, Setup { leaving_at_once: 2, ..Setup::default() });
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 7, None);
    let creates: Vec<_> = (0..20).map(|n| (n, create(&format!("/e{n}"), 1))).collect();
    cluster.send(leader, 7, &creates);
    cluster.hold_disk(leader);
    cluster.send(leader, 7, &[(20, Request::CloseSession)]);
    let numbers = cluster.held.remove(&leader).unwrap();
    let mut now_us = cluster.now_us;
    let replica = cluster.replicas.get_mut(&leader).unwrap();
    numbers.into_iter().for_each(|number| replica.persisted(number));
    let (mut beats, mut portions) = (0, 0);
    while let Some(ready) = replica.ready().unwrap() {
        if !replica.is_underway() {
            continue;
        }
        portions += 1;
        let is_beat = |(_, message): &(u64, PeerMessage)| {
            let PeerMessage::Raft(raft) = message else { return false };
            raft.get_msg_type() == MessageType::MsgHeartbeat
        };
        beats += ready.send.iter().filter(|message| is_beat(message)).count();
        now_us += TICK_MS * 1000;
        replica.step(Input::Tick { now_us, wall_ms: 1_000_000 });
    }
    assert_eq!(portions, 20, "two at once are looked at, and then removed");
    // No other server answers it here, so it gives its office up at last.
    assert!(beats >= 2 * 3, "{beats}: one in two ticks, for each of the others");
}
