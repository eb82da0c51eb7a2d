//! The rules of an ensemble.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use raft::eraftpb::MessageType;

use super::membership_tests::with_super_user;
use crate::proto::ErrorCode;
use crate::proto::request::Request;
use crate::replica::cluster::{Cluster, create, get, reconfig};
use crate::replica::*;

fn sync() -> Request {
    Request::Sync { path: Some("/".into()) }
}

#[test]
fn every_server_takes_writes_and_all_agree() {
    let mut cluster = Cluster::new(3);
    for server in 1..=3 {
        cluster.connect(server, 1, None);
        cluster.send(server, 1, &[(1, create(&format!("/of{server}"), 1)), (2, get("/"))]);
        assert_eq!(cluster.replies(server, 1), [(1, 0), (2, 0)]);
    }
    for server in 1..=3 {
        cluster.send(server, 1, &[(3, sync()), (4, get("/of1")), (5, get("/of3"))]);
        assert_eq!(cluster.replies(server, 1), [(3, 0), (4, 0), (5, 0)]);
    }
    cluster.assert_equal();
    assert_eq!(cluster.replicas[&1].status().ephemerals_count, 3);
}

#[test]
fn what_waits_behind_a_sync_keeps_its_place_and_its_zxid() {
    let mut cluster = Cluster::new(3);
    for server in 1..=3 {
        cluster.connect(server, 1, None);
        let path = format!("/of{server}");
        let asked = [
            (1, sync()),
            (2, get(&path)),
            (3, create(&path, 0)),
            (4, get(&path)),
            (5, create(&path, 0)),
            (6, create("/", 0)),
        ];
        cluster.send(server, 1, &asked);
        let headers = cluster.headers(server, 1);
        let answers: Vec<(i32, i32)> = headers.iter().map(|one| (one.xid, one.err)).collect();
        // The read in front of the create does not see what that made.
        let (missing, exists) = (ErrorCode::NoNode.wire(), ErrorCode::NodeExists.wire());
        assert_eq!(answers, [(1, 0), (2, missing), (3, 0), (4, 0), (5, exists), (6, exists)]);
        let zxids: Vec<i64> = headers[1..].iter().map(|header| header.zxid).collect();
        let first = zxids[0];
        assert_eq!(zxids, [first, first + 1, first + 1, first + 2, first + 3], "of {server}");
    }
}

#[test]
fn the_members_are_written_by_the_first_leader() {
    let cluster = Cluster::new(3);
    let text = cluster.replicas[&2].machine().tree().config_text().to_owned();
    assert!(text.starts_with("server.1=127.0.0.1:1:101:participant;0.0.0.0:201\n"), "{text}");
    assert!(text.ends_with("\nversion=100000000"), "{text}");
    let mode = |id| cluster.replicas[&id].status().mode;
    let leaders = (1..=3).filter(|id| mode(*id) == inspect::Mode::Leader).count();
    let followers = (1..=3).filter(|id| mode(*id) == inspect::Mode::Follower).count();
    assert_eq!((leaders, followers), (1, 2));
}

#[test]
fn a_killed_leader_is_replaced_at_once_and_its_sessions_move() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let session = cluster.connect(leader, 1, None);
    cluster.send(leader, 1, &[(1, create("/e", 1))]);
    cluster.kill(leader);
    cluster.advance_ms(TICK_MS);
    let next = cluster.leader().expect("a new leader without waiting for an election timeout");
    for server in cluster.replicas.keys().copied().collect::<Vec<_>>() {
        let again = cluster.connect(server, 9, Some(&session));
        assert_eq!(again.session_id, session.session_id);
        cluster.send(server, 9, &[(2, get("/e")), (3, create(&format!("/n{server}"), 0))]);
        assert_eq!(cluster.replies(server, 9), [(2, 0), (3, 0)], "{next}");
    }
    cluster.assert_equal();
}

#[test]
fn servers_with_the_ids_0_128_and_254_keep_their_clients_ephemeral_znodes_and_lead() {
    let ids = [0, 128, 254];
    let mut cluster = Cluster::of(&ids, Setup::default());
    let first = cluster.leader().unwrap();
    assert_eq!(cluster.replicas[&first].status().term, 1, "session ids carry the term");
    let mut sessions = BTreeMap::new();
    for id in ids {
        let session = cluster.connect(id, 1, None);
        assert_eq!(session.session_id.cast_unsigned() >> 56, u64::from(id));
        cluster.send(id, 1, &[(1, create(&format!("/of{id}"), 1)), (2, create("/p", 0))]);
        assert_eq!(cluster.replies(id, 1)[0], (1, 0));
        sessions.insert(id, session);
    }
    let count = |cluster: &Cluster, id: u8| cluster.replicas[&id].status().ephemerals_count;
    assert!(ids.iter().all(|id| count(&cluster, *id) == 3));
    // Each of them leads once; the sessions move to it, and the znodes of the one that is closed go.
    let last = *ids.iter().find(|id| **id != first).unwrap();
    cluster.kill(first);
    cluster.until("another leads", |cluster| cluster.leader().is_some());
    let again = cluster.connect(last, 9, Some(&sessions[&first]));
    assert_eq!(again.session_id, sessions[&first].session_id);
    cluster.send(last, 9, &[(3, Request::CloseSession)]);
    cluster.until("its znode is gone", |cluster| count(cluster, last) == 2);
    cluster.assert_equal();
}

#[test]
fn a_write_through_the_connection_that_a_session_left_has_no_effect_and_no_reply() {
    let mut cluster = Cluster::new(3);
    let session = cluster.connect(1, 1, None);
    cluster.connect(2, 1, Some(&session));
    assert!(cluster.closed(1, 1));
    cluster.send(1, 1, &[(1, create("/late", 0))]);
    assert_eq!(cluster.replies(1, 1), []);
    cluster.send(2, 1, &[(1, get("/late"))]);
    assert_eq!(cluster.replies(2, 1), [(1, ErrorCode::NoNode as i32)]);
}

#[test]
fn a_follower_keeps_its_clients_sessions_alive_and_silence_ends_them() {
    let mut cluster = Cluster::new(3);
    let follower = cluster.follower();
    cluster.connect(follower, 1, None);
    cluster.connect(follower, 2, None);
    for _ in 0..30 {
        cluster.advance_ms(200);
        cluster.send(follower, 1, &[(-2, Request::Ping)]);
    }
    assert!(!cluster.closed(follower, 1) && cluster.closed(follower, 2));
}

/// A follower that hears nothing stands for election, and for that time knows no leader. Seed 23 of three
/// servers, with a deliberate bug that changed its course, lost two writes there and did the next one.
#[test]
fn a_write_lost_while_no_leader_was_known_takes_those_behind_it_along() {
    let mut cluster = Cluster::new(3);
    let (follower, leader) = (cluster.follower(), cluster.leader().unwrap());
    let other = (1..=3).find(|id| ![follower, leader].contains(id)).unwrap();
    cluster.connect(follower, 7, None);
    let (term, peer) = (cluster.replicas[&leader].leadership.leads(), cluster.ids[&leader]);
    for from in [leader, other] {
        cluster.cut.insert((from, follower));
    }
    cluster.cut.insert((follower, leader));
    cluster.send(follower, 7, &[(1, create("/a", 0))]);
    cluster.until("it stands", |cluster| cluster.replicas[&follower].consensus.leader().is_none());
    let replica = cluster.replicas.get_mut(&follower).unwrap();
    replica.step(Input::PeerDown { peer });
    replica.step(Input::PeerUp { peer });
    cluster.cut.clear();
    cluster.send(follower, 7, &[(2, create("/b", 0))]);
    cluster.until("it follows", |cluster| cluster.replicas[&follower].consensus.leader().is_some());
    cluster.advance_ms(TICK_MS);
    assert_eq!(
        cluster.replicas[&leader].leadership.leads(),
        term,
        "the same leader in the same term"
    );
    assert!(cluster.closed(follower, 7));
    assert!(cluster.replicas[&leader].machine().tree().stat_unchecked("/b").is_none());
}

#[test]
fn a_deposed_leader_answers_no_sync_and_sends_its_clients_away() {
    let mut cluster = Cluster::new(3);
    let old = cluster.leader().unwrap();
    cluster.connect(old, 1, None);
    cluster.isolate(old);
    cluster.send(old, 1, &[(1, get("/")), (2, sync()), (3, create("/minority", 0))]);
    assert_eq!(cluster.replies(old, 1), [(1, 0)]);
    cluster.until("the others elect", |cluster| cluster.leader() != Some(old));
    assert!(cluster.replies(old, 1).is_empty());
    cluster.until("its clients are sent away", |cluster| cluster.closed(old, 1));
    let other = cluster.leader().unwrap();
    cluster.connect(other, 1, None);
    cluster.send(other, 1, &[(1, create("/majority", 0))]);
    assert_eq!(cluster.replies(other, 1), [(1, 0)]);
    cluster.cut.clear();
    cluster.until("it serves again", |cluster| cluster.replicas[&old].is_serving());
    cluster.assert_equal();
    assert!(cluster.replicas[&old].machine().tree().stat_unchecked("/minority").is_none());
}

/// A leader that stood still answered the second of two equal questions by an echo of the first,
/// though others had elected another one meanwhile; and with it a sync of its own.
#[test]
fn a_read_index_that_is_asked_for_again_is_another_question() {
    let mut cluster = Cluster::new(3);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    cluster.connect(follower, 7, None);
    cluster.cut.insert((follower, leader));
    cluster.send(follower, 7, &[(1, sync())]);
    cluster.advance_ms(3 * TICK_MS);
    let asked: Vec<Bytes> = cluster.lost.iter().filter_map(question).collect();
    assert!(asked.len() > 1, "{asked:?}");
    assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), asked.len(), "{asked:?}");
}

fn question(message: &PeerMessage) -> Option<Bytes> {
    match message {
        PeerMessage::Raft(raft) if raft.get_msg_type() == MessageType::MsgReadIndex => {
            Some(raft.entries[0].data.clone())
        }
        _other => None,
    }
}

#[test]
fn leadership_is_handed_over_without_losing_a_connection() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let follower = cluster.follower();
    for server in [leader, follower] {
        cluster.connect(server, 1, None);
    }
    cluster.replicas.get_mut(&leader).unwrap().step(Input::Resign);
    for server in [leader, follower] {
        cluster.send(server, 1, &[(1, create(&format!("/during{server}"), 0))]);
    }
    cluster.advance_ms(TICK_MS);
    assert_ne!(cluster.leader(), Some(leader));
    for server in [leader, follower] {
        assert!(!cluster.closed(server, 1));
        assert_eq!(cluster.replies(server, 1), [(1, 0)]);
    }
}

#[test]
fn a_server_without_data_learns_under_a_new_identity_before_it_votes() {
    let mut cluster = Cluster::new(3);
    let lost = cluster.follower();
    cluster.kill(lost);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 1, None);
    for number in 0..50 {
        cluster.send(leader, 1, &[(number, create(&format!("/n{number}"), 0))]);
    }
    let new_id = peer::raft_id(7, lost);
    let initial = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
    cluster.start(lost, new_id, initial);
    assert!(!cluster.replicas[&lost].consensus.votes());
    cluster.until("it votes", |cluster| cluster.replicas[&lost].consensus.votes());
    let membership = cluster.replicas[&leader].consensus.membership();
    assert_eq!(membership.voters.len(), 3);
    assert!(membership.voters.contains(&new_id) && !membership.voters.contains(&lost.into()));
    cluster.assert_equal();
}

#[test]
fn a_server_that_came_back_counts_when_everybody_knows_that_it_votes() {
    let mut cluster = Cluster::new(3);
    let lost = cluster.follower();
    let leader = cluster.leader().unwrap();
    let other = (1..=3).find(|id| ![leader, lost].contains(id)).unwrap();
    cluster.kill(lost);
    cluster.kept_from = Some((other, cluster.replicas[&other].state.at().0));
    let initial = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
    cluster.start(lost, peer::raft_id(7, lost), initial);
    cluster.until("it votes", |cluster| cluster.replicas[&lost].consensus.votes());
    cluster.advance_ms(1000);
    let counted = |cluster: &Cluster| {
        let peers = cluster.replicas[&leader].status().peers;
        peers.iter().filter(|peer| peer.votes && peer.is_synced).count()
    };
    assert_eq!(counted(&cluster), 1, "the other one would ask who is gone for his vote");
    cluster.kept_from = None;
    cluster.until("all know", |cluster| counted(cluster) == 2);
    // The next one may be emptied.
    cluster.kill(leader);
    cluster.until("two others agree", |cluster| cluster.leader().is_some());
}

#[test]
fn a_server_that_comes_back_to_an_idle_ensemble_counts_without_another_write() {
    let mut cluster = Cluster::new(3);
    cluster.advance_ms(1000);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let counted = |cluster: &Cluster| {
        let peers = cluster.replicas[&leader].status().peers;
        peers.iter().filter(|peer| peer.votes && peer.is_synced).count()
    };
    assert_eq!(counted(&cluster), 2);
    let last = cluster.replicas[&leader].state.at();
    let raft_id = u64::from(follower);
    cluster.replicas.get_mut(&leader).unwrap().consensus.unreachable(raft_id);
    cluster.advance_ms(1000);
    assert_eq!(cluster.replicas[&leader].state.at(), last, "nothing was written");
    assert_eq!(counted(&cluster), 2);
}

#[test]
fn who_votes_is_remembered_durably() {
    let mut cluster = with_super_user(3);
    let leaves = (2..=3).find(|id| Some(*id) != cluster.leader()).unwrap();
    cluster.send(1, 1, &[(1, reconfig(None, Some(&leaves.to_string())))]);
    cluster.until("two vote", |cluster| cluster.counts(2, 1));
    cluster.advance_ms(1000);
    for (server, log) in &cluster.logs {
        let change = log.values().rfind(|entry| entry.kind == EntryKind::ConfChange).unwrap();
        assert!(cluster.synced_commits[server] >= change.index, "server {server}");
    }
}

#[test]
fn a_follower_shows_what_is_committed_before_its_own_disk_has_it_and_acknowledges_nothing() {
    let mut cluster = Cluster::new(3);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    cluster.connect(follower, 1, None);
    cluster.hold_disk(follower);
    cluster.send(follower, 1, &[(1, create("/by-two-others", 0))]);
    assert_eq!(cluster.replies(follower, 1), [(1, 0)]);
    let other = 6 - leader - follower;
    cluster.kill(other);
    cluster.send(follower, 1, &[(2, create("/by-one-of-two", 0))]);
    assert_eq!(cluster.replies(follower, 1), []);
    cluster.release_disk();
    assert_eq!(cluster.replies(follower, 1), [(2, 0)]);
}

#[test]
fn a_checkpoint_holds_nothing_that_the_log_of_its_server_may_lack() {
    let mut cluster = Cluster::with(3, Setup { durable: true, ..Setup::default() });
    let follower = cluster.follower();
    cluster.connect(follower, 1, None);
    cluster.hold_disk(follower);
    cluster.send(follower, 1, &[(1, create("/applied", 0))]);
    let replica = cluster.replicas.get_mut(&follower).unwrap();
    let shown = replica.state.at();
    let Drained::Changes(changes) = replica.drain_changes(usize::MAX) else { panic!("changes") };
    assert_eq!(changes.mark, None);
    assert_eq!(replica.drain_changes(usize::MAX), Drained::NotDurable);
    cluster.send(follower, 1, &[(2, create("/later", 0))]);
    let replica = cluster.replicas.get_mut(&follower).unwrap();
    assert_eq!(replica.state.at(), shown, "or there would always be something that is not durable");
    assert_eq!(replica.drain_changes(usize::MAX), Drained::NotDurable);
    cluster.release_disk();
    let replica = cluster.replicas.get_mut(&follower).unwrap();
    let Drained::Changes(changes) = replica.drain_changes(usize::MAX) else { panic!("changes") };
    assert_eq!(changes.mark.map(|mark| mark.index), Some(replica.state.at().0));
    assert!(replica.state.at() > shown);
    cluster.hold_disk(follower);
    cluster.send(follower, 1, &[(3, create("/after", 0))]);
    assert_eq!(cluster.replies(follower, 1), [(1, 0), (2, 0), (3, 0)], "nothing waits any more");
}

#[test]
fn one_follower_of_two_takes_its_time_until_a_commit_has_to_wait_for_it() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 1, None);
    let write = |cluster: &mut Cluster, xid| {
        cluster.advance_ms(TICK_MS);
        cluster.send(leader, 1, &[(xid, create(&format!("/n{xid}"), 0))]);
        assert_eq!(cluster.replies(leader, 1), [(xid, 0)]);
        let of = |urgency| {
            let followers = cluster.urgency.iter().filter(|(id, _)| **id != leader);
            followers.filter(|(_, is)| **is == urgency).map(|(id, _)| *id).collect::<Vec<u8>>()
        };
        assert_eq!(cluster.urgency[&leader], Urgency::High);
        (of(Urgency::High), of(Urgency::Low))
    };
    let (high, low) = write(&mut cluster, 1);
    assert_eq!((high.len(), low.len()), (1, 1));
    assert_eq!(write(&mut cluster, 2), (high.clone(), low.clone()), "always the same");
    cluster.isolate(high[0]);
    write(&mut cluster, 3);
    assert_eq!(
        write(&mut cluster, 4),
        ([high, low].concat(), vec![]),
        "by the last that each wrote"
    );
}

#[test]
fn who_is_heard_from_while_proposals_wait_does_not_expire() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let session = cluster.connect(leader, 1, None).session_id;
    cluster.connect(leader, 2, None);
    let before_its_end = |cluster: &Cluster| {
        cluster.replicas[&leader].sessions.remaining_ms(session) > Some(TICK_MS)
    };
    while before_its_end(&cluster) {
        cluster.advance_ms(TICK_MS);
        cluster.send(leader, 2, &[(1, get("/"))]);
    }
    // So much is uncommitted when that time comes that nothing is proposed, and then the client is heard from.
    let Request::Create(mut large) = create("/large", 0) else { unreachable!("it is one") };
    large.data = Some(vec![0; 64 << 20].into());
    cluster.cut = (1..=3).filter(|id| *id != leader).map(|id| (id, leader)).collect();
    cluster.tick_in(TICK_MS * 1000 - 1000);
    cluster.send(leader, 2, &[(2, Request::Create(large))]);
    cluster.tick_in(1000);
    cluster.send(leader, 1, &[(3, get("/"))]);
    cluster.cut.clear();
    cluster
        .until("more is proposed", |cluster| cluster.replicas[&leader].consensus.takes_proposals());
    cluster.send(leader, 1, &[(4, create("/lives", 0))]);
    assert!(!cluster.closed(leader, 1));
    assert_eq!(cluster.replies(leader, 1), [(3, 0), (4, 0)]);
}

#[test]
fn a_minority_offers_reading_only_when_it_is_told_to() {
    let mut cluster = Cluster::with(3, Setup { read_only_mode: true, ..Setup::default() });
    let alone = cluster.follower();
    let session = cluster.connect(alone, 1, None);
    cluster.isolate(alone);
    cluster.until("its clients are sent away", |cluster| cluster.closed(alone, 1));
    cluster.advance_ms(1100);
    let same = cluster.connect(alone, 2, Some(&session));
    assert_eq!((same.session_id, same.read_only), (session.session_id, Some(true)));
    let local = cluster.connect(alone, 3, None);
    assert_eq!(local.read_only, Some(true));
    cluster.send(alone, 3, &[(1, get("/")), (2, create("/x", 0)), (3, sync())]);
    let refused = ErrorCode::NotReadOnly as i32;
    assert_eq!(cluster.replies(alone, 3), [(1, 0), (2, refused), (3, refused)]);
    cluster.send(alone, 2, &[(1, get("/")), (2, create("/x", 0))]);
    assert_eq!(cluster.replies(alone, 2), [(1, 0), (2, refused)]);
    cluster.cut.clear();
    cluster.until("it serves", |cluster| cluster.replicas[&alone].is_serving());
    assert!(cluster.closed(alone, 2) && cluster.closed(alone, 3));
    let again = cluster.connect(alone, 4, Some(&session));
    assert_eq!((again.session_id, again.read_only), (session.session_id, Some(false)));
}

#[test]
fn without_a_leader_no_session_is_said_to_be_gone() {
    let mut cluster = Cluster::with(3, Setup { read_only_mode: true, ..Setup::default() });
    let (alone, leader) = (cluster.follower(), cluster.leader().unwrap());
    let known = cluster.connect(alone, 1, None);
    cluster.isolate(alone);
    let newer = cluster.connect(leader, 1, None);
    cluster.advance_ms(2500);
    cluster.ask(alone, 2, Some(&newer));
    assert!(cluster.closed(alone, 2) && cluster.response(alone, 2).is_none());
    let stranger = crate::proto::connect::ConnectResponse { password: [1; 16], ..known };
    cluster.ask(alone, 3, Some(&stranger));
    assert_eq!(cluster.response(alone, 3).map(|answer| answer.session_id), Some(0));
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_dropped() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    let from = u64::from(cluster.follower());
    let replica = cluster.replicas.get_mut(&leader).unwrap();
    let mut message = Message { from, to: leader.into(), index: 1 << 40, ..Message::default() };
    message.term = replica.status().term;
    message.set_msg_type(raft::eraftpb::MessageType::MsgAppendResponse);
    replica.step(Input::Peer { from, message: PeerMessage::Raft(Box::new(message)) });
    assert_eq!(replica.figures.counts.peer_messages_dropped, 1);
    cluster.connect(leader, 1, None);
    cluster.send(leader, 1, &[(1, create("/a", 0))]);
    assert_eq!(cluster.replies(leader, 1), [(1, 0)]);
}

#[test]
fn an_observer_that_is_cut_off_serves_no_client() {
    let mut cluster = with_super_user(3);
    let initial = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
    cluster.start(4, peer::raft_id(9, 4), initial);
    let joining = "server.4=127.0.0.1:4:104:observer;204";
    cluster.send(1, 1, &[(1, reconfig(Some(joining), None))]);
    cluster.until("it serves", |cluster| cluster.replicas[&4].is_serving());
    assert_eq!(cluster.replicas[&4].status().mode, inspect::Mode::Observer);
    cluster.connect(4, 1, None);
    cluster.send(4, 1, &[(1, create("/o", 0))]);
    assert_eq!(cluster.replies(4, 1), [(1, 0)]);
    cluster.isolate(4);
    cluster.until("its clients are sent away", |cluster| cluster.closed(4, 1));
}

/// Now and then `raft` forgets whom it has heard from, until the next heartbeat is answered.
#[test]
fn a_leader_that_hears_everybody_counts_everybody_at_any_time() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.leader().unwrap();
    for _ in 0..40 {
        cluster.advance_ms(TICK_MS);
        let peers = cluster.replicas[&leader].consensus.peers();
        assert!(peers.iter().all(|peer| peer.is_active), "{peers:?}");
    }
    let gone = cluster.follower();
    let others: Vec<u8> = (1..=3).filter(|id| *id != gone).collect();
    for other in others {
        cluster.cut.insert((gone, other));
    }
    cluster.advance_ms(TICK_MS * 20);
    let peer = cluster.ids[&gone];
    let peers = cluster.replicas[&leader].consensus.peers();
    assert!(peers.iter().any(|known| known.id == peer && !known.is_active), "{peers:?}");
}
