//! Forged messages and old disks: what other servers and the disk may say, and Raft must not be given.

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry as RaftEntry, Message, MessageType};

use crate::config::ServerSpec;
use crate::replica::bounds::{TERM_MAX, TERM_STEP_MAX};
use crate::replica::cluster::{Cluster, create};
use crate::replica::*;
use crate::tree::Options;

/// The term in which server 1 leads.
const TERM: u64 = 5;

/// A server of three.
fn start(id: u8, restored: Restored) -> Result<Replica, String> {
    let spec = |id| ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id};20{id}")).unwrap();
    let setup = Setup {
        raft_id: u64::from(id),
        server_id: id,
        ensemble: Some((1..=3).map(spec).collect()),
        ..Setup::default()
    };
    Replica::new(setup, Machine::fresh(Options::default()), restored)
}

fn members() -> Membership {
    Membership { voters: vec![1, 2, 3], learners: Vec::new() }
}

fn message(kind: MessageType) -> Message {
    let mut message = Message { from: 1, to: 2, term: TERM, ..Message::default() };
    message.set_msg_type(kind);
    message
}

fn append(index: u64, entries: u64) -> Message {
    let mut message = message(MessageType::MsgAppend);
    (message.index, message.log_term) = (index, if index == 0 { 0 } else { TERM });
    let entry = |at| RaftEntry { index: index + at, term: TERM, ..RaftEntry::default() };
    message.set_entries((1..=entries).map(entry).collect::<Vec<_>>().into());
    message
}

fn heartbeat(commit: u64) -> Message {
    Message { commit, ..message(MessageType::MsgHeartbeat) }
}

/// What the server does about messages: what it says, and which links it wants cut.
fn told(replica: &mut Replica, messages: Vec<Message>) -> (Vec<Message>, Vec<u64>) {
    for message in messages {
        let (from, message) = (message.from, PeerMessage::Raft(Box::new(message)));
        replica.step(Input::Peer { from, message });
    }
    let (mut said, mut cut) = (Vec::new(), Vec::new());
    while let Some(ready) = replica.ready().unwrap() {
        if let Some(append) = ready.append {
            replica.persisted(append.number);
        }
        said.extend(ready.send.into_iter().filter_map(|(_, message)| match message {
            PeerMessage::Raft(message) => Some(*message),
            _ => None,
        }));
        cut.extend(ready.cut);
    }
    (said, cut)
}

/// Server 2, which follows server 1 and has three entries of it, the first one committed.
fn follower() -> Replica {
    let mut replica = start(2, Restored { membership: members(), ..Restored::default() }).unwrap();
    replica.consensus.let_vote(true);
    told(&mut replica, vec![append(0, 3), heartbeat(1)]);
    assert_eq!(replica.consensus.log_ends(), (1, 3));
    replica
}

#[test]
fn while_a_server_waits_for_what_others_remember_such_a_heartbeat_leaves_it_the_link() {
    let mut replica = start(2, Restored { membership: members(), ..Restored::default() }).unwrap();
    let (_, cut) = told(&mut replica, vec![heartbeat(9)]);
    assert!(cut.is_empty());
    assert_eq!(replica.consensus.log_ends(), (0, 0), "it is not taken either");
}

#[test]
fn a_heartbeat_that_commits_what_is_not_there_ends_its_link_and_nothing_else() {
    let mut replica = follower();
    for commit in [4, 224, 1 << 62] {
        let (said, cut) = told(&mut replica, vec![heartbeat(commit)]);
        assert_eq!((said.len(), cut), (0, vec![1]), "commit {commit}");
    }
    assert_eq!(replica.consensus.log_ends(), (1, 3), "nothing of it is believed");
    let (said, cut) = told(&mut replica, vec![heartbeat(3)]);
    assert_eq!(said[0].get_msg_type(), MessageType::MsgHeartbeatResponse);
    assert_eq!((replica.consensus.log_ends(), cut), ((3, 3), vec![]));
}

#[test]
fn an_append_behind_the_end_of_the_log_is_a_probe() {
    let mut replica = follower();
    let (said, cut) = told(&mut replica, vec![Message { commit: 30, ..append(20, 2) }]);
    let answer = said.last().unwrap();
    assert_eq!(answer.get_msg_type(), MessageType::MsgAppendResponse);
    assert_eq!((answer.reject, answer.reject_hint, cut), (true, 3, vec![]));
}

#[test]
fn a_term_too_far_above_is_dropped_and_counted_however_often_it_comes() {
    let mut replica = follower();
    let before = replica.figures.counts.peer_messages_dropped;
    told(&mut replica, vec![Message { term: TERM + TERM_STEP_MAX + 1, ..heartbeat(0) }]);
    assert_eq!(replica.consensus.term(), TERM);
    assert_eq!(replica.figures.counts.peer_messages_dropped, before + 1);
    // What could be, is; and no more of it at once.
    let most = replica.consensus.term() + TERM_STEP_MAX;
    for _ in 0..200 {
        let term = (replica.consensus.term() + TERM_STEP_MAX).min(TERM_MAX);
        told(&mut replica, vec![Message { term, ..heartbeat(0) }]);
        told(&mut replica, vec![Message { term: most, ..heartbeat(0) }]);
    }
    // It began without a term.
    assert!(replica.consensus.term() <= most, "{}", replica.consensus.term());
    for kind in [MessageType::MsgRequestVote, MessageType::MsgAppendResponse] {
        told(&mut replica, vec![Message { term: TERM_MAX, ..message(kind) }]);
        assert!(replica.consensus.term() <= most);
    }
}

#[test]
fn messages_that_raft_would_pass_on_or_look_into_are_dropped() {
    let entry = RaftEntry { data: Bytes::from_static(b"question"), ..RaftEntry::default() };
    let read = Message { term: 0, ..message(MessageType::MsgReadIndex) };
    let mut with_term = Message { term: TERM, ..read.clone() };
    with_term.set_entries(vec![entry].into());
    let hand_over = message(MessageType::MsgTransferLeader);
    let mut replica = follower();
    let forged = vec![with_term.clone(), read.clone(), hand_over.clone()];
    assert_eq!(told(&mut replica, forged).0, []);
    // A leader looks for the question.
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let replica = cluster.replicas.get_mut(&leader).unwrap();
    let (to, term) = (replica.consensus.id(), replica.consensus.term());
    let from = to % 3 + 1;
    let to_leader = |message: Message| Message { from, to, ..message };
    told(replica, vec![to_leader(read), Message { term, ..to_leader(hand_over) }]);
    // Nor does it believe that others have more than it has.
    let (_, last) = replica.consensus.log_ends();
    let answer = Message { term, ..to_leader(message(MessageType::MsgAppendResponse)) };
    let request_snapshot = last;
    told(
        replica,
        vec![
            Message { index: last + 1, ..answer.clone() },
            Message { index: last, commit: last + 1, ..answer.clone() },
            Message { request_snapshot, reject: true, ..answer },
        ],
    );
    cluster.connect(leader, 1, None);
    cluster.send(leader, 1, &[(1, create("/still", 0))]);
    assert_eq!(cluster.replies(leader, 1), [(1, 0)]);
}

#[test]
fn votes_for_one_that_has_not_asked_yet_are_dropped() {
    let mut replica = follower();
    replica.consensus.wait_for_disk(true);
    // An entry that is not durable: this server can only have asked whether it would be voted for.
    let mut message = append(3, 1);
    message.log_term = TERM;
    replica.step(Input::Peer { from: 1, message: PeerMessage::Raft(Box::new(message)) });
    replica.step(Input::PeerDown { peer: 1 });
    for tick in 1..=10 {
        replica.step(Input::Tick { now_us: tick * TICK_MS * 1000, wall_ms: 1 });
    }
    let asked = |kind| Message { from: 3, term: TERM + 1, ..self::message(kind) };
    for kind in [MessageType::MsgRequestPreVoteResponse, MessageType::MsgRequestVoteResponse] {
        let message = PeerMessage::Raft(Box::new(asked(kind)));
        replica.step(Input::Peer { from: 3, message });
        replica.step(Input::Tick { now_us: 11 * TICK_MS * 1000, wall_ms: 1 });
    }
    assert!(!replica.consensus.is_leader());
    // When it is on the disk, the vote counts.
    told(&mut replica, Vec::new());
    told(&mut replica, vec![asked(MessageType::MsgRequestVoteResponse)]);
    assert!(replica.consensus.is_leader());
}

fn announcement(change: impl Fn(&mut ConfState, &mut (u64, u64))) -> Input {
    let mut message = message(MessageType::MsgSnapshot);
    let mut at = (50, 4);
    let mut state = ConfState::default();
    state.set_voters(vec![1, 2, 3]);
    change(&mut state, &mut at);
    let metadata = message.mut_snapshot().mut_metadata();
    (metadata.index, metadata.term) = at;
    metadata.set_conf_state(state);
    let mark = Mark { index: at.0, term: at.1, membership: members(), ..Mark::default() };
    let machine = Box::new(Machine::fresh(Options::default()));
    Input::ImageReceived { message: Box::new(message), mark, machine }
}

#[test]
fn images_whose_members_or_end_cannot_be_are_dropped() {
    type Change = fn(&mut ConfState, &mut (u64, u64));
    let wrong: [(&str, Change); 9] = [
        ("named twice", |state, _| state.set_voters(vec![1, 2, 2])),
        ("a voter that learns", |state, _| state.set_learners(vec![3])),
        ("no server votes", |state, _| state.set_voters(Vec::new())),
        ("no raft id", |state, _| state.set_voters(vec![0, 2])),
        ("changing", |state, _| state.set_voters_outgoing(vec![1])),
        ("about to change", |state, _| state.auto_leave = true),
        ("no term", |_, at| at.1 = 0),
        ("a later term than the leader's", |_, at| at.1 = TERM + 1),
        ("no entry", |_, at| at.0 = 0),
    ];
    let mut replica = follower();
    for (what, change) in wrong {
        replica.step(announcement(change));
        let mut installs = false;
        while let Some(ready) = replica.ready().unwrap() {
            installs |= ready.append.is_some_and(|append| append.install.is_some());
        }
        assert!(!installs, "{what}");
    }
    replica.step(announcement(|_, _| {}));
    let ready = replica.ready().unwrap().unwrap();
    assert!(ready.append.unwrap().install.is_some());
}

#[test]
fn no_image_is_accepted_before_the_one_accepted_last_is_durable() {
    let installs = |replica: &mut Replica, index| {
        replica.step(announcement(|_, at| at.0 = index));
        let mut number = None;
        while let Some(ready) = replica.ready().unwrap() {
            number = number.or(ready.append.filter(|append| append.install.is_some()));
        }
        number.map(|append| append.number)
    };
    let mut replica = follower();
    let number = installs(&mut replica, 50).expect("the first is accepted");
    assert_eq!(installs(&mut replica, 60), None, "the disk has yet to take the first");
    replica.persisted(number);
    assert!(installs(&mut replica, 70).is_some());
}

#[test]
fn a_leader_that_is_removed_steps_down() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let replica = cluster.replicas.get_mut(&leader).unwrap();
    let id = replica.consensus.id();
    let (index, term) = (replica.consensus.last_index(), replica.consensus.term());
    // One change: remove (1) the member.
    let change = [0x12, 4, 0x08, 1, 0x10, u8::try_from(id).unwrap()];
    replica.consensus.apply_change(index, &change).unwrap();
    let mut answer = Message { from: id % 3 + 1, to: id, term, index, ..Message::default() };
    answer.set_msg_type(MessageType::MsgAppendResponse);
    told(replica, vec![answer]);
    assert!(!replica.consensus.is_leader());
}

/// Behind a change that is in the log and may be committed, it takes a majority of both sets of voters, until the entry
/// that ends it is in the log, too.
#[test]
fn what_others_remember_is_enough_of_both_sets_of_a_change_that_may_be_committed() {
    // 1, 2 and 3 learn, 4, 5 and 6 vote.
    let mut change = Vec::new();
    for (kind, id) in [(2, 1), (2, 2), (2, 3), (0, 4), (0, 5), (0, 6)] {
        change.extend([0x12, 4, 0x08, kind, 0x10, id]);
    }
    let entry = |index, data: &[u8]| {
        let data = Bytes::copy_from_slice(data);
        Entry { index, term: 1, kind: EntryKind::ConfChange, data }
    };
    let mut tail = vec![entry(1, &change)];
    for (ids, is_enough) in [(&[1, 2][..], false), (&[4, 5], false), (&[1, 2, 4, 5], true)] {
        let disk = Restored {
            membership: members(),
            hard_state: HardState { term: 1, vote: 0, commit: 0 },
            tail: tail.clone(),
            ..Restored::default()
        };
        let replica = start(2, disk).unwrap();
        assert_eq!(
            replica.consensus.is_majority_by_log(|id| ids.contains(&id)),
            is_enough,
            "{ids:?}"
        );
    }
    tail.push(entry(2, &[]));
    let hard_state = HardState { term: 1, vote: 0, commit: 0 };
    let disk = Restored { membership: members(), hard_state, tail, ..Restored::default() };
    let replica = start(2, disk).unwrap();
    assert!(
        replica.consensus.is_majority_by_log(|id| [4, 5].contains(&id)),
        "the first is committed"
    );
}

#[test]
fn a_disk_that_does_not_fit_together_is_refused_by_name() {
    let entry = |index, term| Entry { index, term, kind: EntryKind::Normal, data: Bytes::new() };
    let good = Restored {
        membership: members(),
        hard_state: HardState { term: 5, vote: 1, commit: 1 },
        applied: 1,
        applied_term: 4,
        begun_after: (1, 4),
        tail: vec![entry(2, 4), entry(3, 5)],
        ..Restored::default()
    };
    assert!(start(2, good.clone()).is_ok());
    type Change = fn(&mut Restored);
    let wrong: [(&str, Change); 7] = [
        ("10 are known to be committed", |disk| disk.hard_state.commit = 10),
        ("but the server was in term 3", |disk| disk.hard_state.term = 3),
        ("has come to term 8388608", |disk| disk.hard_state.term = TERM_MAX + 1),
        ("has come to term 3000000000", |disk| disk.tail[1].term = 3_000_000_000),
        ("entry 4 of term 5 follows entry 2", |disk| disk.tail[1].index = 4),
        ("entry 3 of term 3 follows entry 2", |disk| disk.tail[1].term = 3),
        ("is named twice", |disk| disk.membership.voters = vec![1, 2, 2]),
    ];
    for (words, change) in wrong {
        let mut disk = good.clone();
        change(&mut disk);
        let refused = start(2, disk).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}
