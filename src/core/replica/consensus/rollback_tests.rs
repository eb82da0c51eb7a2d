//! A server whose data directory was put back to an older copy, and what tells it from a healthy one.

use raft::eraftpb::{Message, MessageType};

use super::promises::ASKING_US;
use crate::config::ServerSpec;
use crate::replica::bounds::TERM_STEP_MAX;
use crate::replica::cluster::{Cluster, create};
use crate::replica::messages::Promise;
use crate::replica::*;
use crate::tree::Options;

/// Server 2 of so many, whose disk says that it was in term 5 and has voted for server 1.
fn server(voters: u8) -> Replica {
    let spec = |id| ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id};20{id}")).unwrap();
    let setup = Setup {
        raft_id: 2,
        server_id: 2,
        ensemble: Some((1..=voters).map(spec).collect()),
        ..Setup::default()
    };
    let membership = Membership { voters: (1..=u64::from(voters)).collect(), learners: Vec::new() };
    let hard_state = HardState { term: 5, vote: 1, commit: 0 };
    let restored = Restored { membership, hard_state, ..Restored::default() };
    let mut replica = Replica::new(setup, Machine::fresh(Options::default()), restored).unwrap();
    replica.step(Input::Tick { now_us: 1, wall_ms: 1 });
    replica
}

fn said(replica: &mut Replica) -> Vec<(u64, PeerMessage)> {
    let mut said = Vec::new();
    while let Some(ready) = replica.ready().unwrap() {
        if let Some(append) = ready.append {
            replica.persisted(append.number);
        }
        said.extend(ready.send);
    }
    said
}

fn question(replica: &mut Replica) -> u64 {
    replica.step(Input::PeerUp { peer: 1 });
    let said = said(replica);
    let [(1, PeerMessage::Ask { question }), ..] = said[..] else { panic!("{said:?}") };
    question
}

/// Whether it votes for server 3 in this term.
fn votes(replica: &mut Replica, term: u64) -> bool {
    let mut message = Message { from: 3, to: 2, term, ..Message::default() };
    message.set_msg_type(MessageType::MsgRequestVote);
    replica.step(Input::Peer { from: 3, message: PeerMessage::Raft(Box::new(message)) });
    said(replica).iter().any(|(_, message)| match message {
        PeerMessage::Raft(message) => {
            message.get_msg_type() == MessageType::MsgRequestVoteResponse && !message.reject
        }
        _ => false,
    })
}

fn recall(replica: &mut Replica, from: u64, question: u64, promise: Option<Promise>) {
    let message = PeerMessage::Recall { question, promise };
    replica.step(Input::Peer { from, message });
}

#[test]
fn a_server_votes_when_all_voters_have_said_what_they_remember_and_nothing_is_an_answer() {
    let mut replica = server(3);
    let question = question(&mut replica);
    assert!(!votes(&mut replica, 6));
    recall(&mut replica, 1, question, None);
    assert!(!votes(&mut replica, 6), "one of two has answered");
    recall(&mut replica, 3, question ^ 1, None);
    assert!(!votes(&mut replica, 6), "that was not an answer");
    recall(&mut replica, 3, question, None);
    assert!(votes(&mut replica, 6));
}

#[test]
fn after_a_second_a_majority_is_enough_and_less_never_is() {
    let mut replica = server(5);
    let question = question(&mut replica);
    recall(&mut replica, 1, question, None);
    replica.step(Input::Tick { now_us: 3 * ASKING_US, wall_ms: 1 });
    assert!(!votes(&mut replica, 6), "two of five, itself counted");
    recall(&mut replica, 4, question, None);
    assert!(votes(&mut replica, 6));
    let mut early = server(5);
    let asked = self::question(&mut early);
    for from in [1, 4, 5] {
        recall(&mut early, from, asked, None);
    }
    assert!(!votes(&mut early, 6), "server 3 may still answer");
    early.step(Input::Tick { now_us: ASKING_US + 1, wall_ms: 1 });
    assert!(votes(&mut early, 6));
}

#[test]
fn while_it_asks_it_does_not_stand_and_says_nothing_of_candidates() {
    let mut replica = server(3);
    for tick in 1..=100 {
        replica.step(Input::Tick { now_us: tick * TICK_MS * 1000, wall_ms: 1 });
        for (_, message) in said(&mut replica) {
            assert!(matches!(message, PeerMessage::Ask { .. }), "{message:?}");
        }
    }
}

#[test]
fn what_it_lacks_of_a_promise_makes_it_refuse_by_name_and_fall_silent() {
    let promise = |term, index, vote| Promise { term, index, log_term: 0, vote };
    for (promise, words) in [
        (promise(6, 0, 0), "server 1 remembers a promise of term 6"),
        (promise(5, 7, 1), "server 1 remembers entry 7, acknowledged in term 5"),
        (promise(5, 0, 3), "server 1 remembers a vote for server 3 in term 5"),
    ] {
        let mut replica = server(3);
        let question = question(&mut replica);
        recall(&mut replica, 1, question ^ 1, Some(promise));
        assert_eq!(replica.refused(), None, "it was not asked: {promise:?}");
        recall(&mut replica, 1, question, Some(promise));
        let refused = replica.refused().expect("it is rolled back").clone();
        assert_eq!(refused.kind, RefusalKind::RolledBack);
        assert!(refused.words.contains(words) && refused.words.contains("--rejoin"), "{refused:?}");
        recall(&mut replica, 3, question, None);
        assert!(!votes(&mut replica, 9));
        replica.step(Input::Tick { now_us: 9_000_000, wall_ms: 1 });
        assert_eq!(said(&mut replica), []);
    }
    for kept in [promise(5, 0, 1), promise(5, 0, 0), promise(4, 99, 3)] {
        let mut replica = server(3);
        let question = question(&mut replica);
        recall(&mut replica, 1, question, Some(kept));
        recall(&mut replica, 3, question, None);
        assert_eq!(replica.refused(), None, "{kept:?}");
        assert!(votes(&mut replica, 6));
    }
}

#[test]
fn a_follower_and_a_leader_that_come_back_with_an_old_disk_are_told() {
    for of_leader in [false, true] {
        let mut cluster = Cluster::new(3);
        let leader = cluster.leader().unwrap();
        cluster.connect(leader, 1, None);
        cluster.send(leader, 1, &[(1, create("/a", 0))]);
        cluster.advance_ms(200);
        let server = if of_leader { leader } else { leader % 3 + 1 };
        cluster.kill(server);
        let membership = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
        // The oldest copy of all: an empty one that kept its name.
        cluster.start(server, u64::from(server), membership);
        cluster.advance_ms(300);
        let refused = cluster.replicas[&server].refused().cloned();
        let refused = refused.unwrap_or_else(|| panic!("server {server} of leader {leader}"));
        assert!(refused.words.contains("older copy"), "{refused:?}");
        // The others go on.
        let next = (1..=3).find(|id| *id != server).unwrap();
        cluster.until("two serve", |cluster| cluster.replicas[&next].is_serving());
        cluster.connect(next, 2, None);
        cluster.send(next, 2, &[(1, create("/b", 0))]);
        cluster.until("it is answered", |cluster| cluster.seen.contains_key(&(next, 2)));
    }
}

#[test]
fn who_is_far_ahead_of_a_majority_of_the_others_refuses_and_of_one_does_not() {
    let mut replica = server(5);
    let told = |replica: &mut Replica, peer, term| replica.step(Input::Introduced { peer, term });
    // Its term is one that the others cannot follow.
    let mut message = Message { from: 1, to: 2, term: 5 + TERM_STEP_MAX, ..Message::default() };
    message.set_msg_type(MessageType::MsgHeartbeat);
    replica.step(Input::Peer { from: 1, message: PeerMessage::Raft(Box::new(message)) });
    for peer in [1, 3] {
        told(&mut replica, peer, 4);
    }
    told(&mut replica, 4, 5);
    told(&mut replica, 4, 0);
    assert_eq!(replica.refused(), None, "two of four, and one that is near enough");
    told(&mut replica, 5, 4);
    let Refusal { words, kind } = replica.refused().expect("three of four").clone();
    assert!(words.contains("65541") && words.contains("--rejoin"), "{words}");
    assert_eq!(kind, RefusalKind::FarAhead, "the others may be wrong");
}
