//! The rules of sessions in an ensemble: when they end, whichever servers do not hear each other.

use super::touches::CONFIRMED_US_MAX;
use crate::proto::connect::ConnectResponse;
use crate::replica::cluster::{Cluster, create, get, reconfig};
use crate::replica::timing::LEADERLESS_MS_MAX;
use crate::replica::*;

/// How long a server may go on answering though no server hears it.
const UNHEARD_MS_MAX: u64 = CONFIRMED_US_MAX / 1000 + LEADERLESS_MS_MAX;

fn short_sessions() -> Setup {
    Setup { session_timeout_ms_min: 2000, session_timeout_ms_max: 2000, ..Setup::default() }
}

#[test]
fn a_session_that_is_taken_up_again_just_before_its_end_does_not_end() {
    for at_leader in [true, false] {
        let mut cluster = Cluster::with(3, short_sessions());
        let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
        let server = if at_leader { leader } else { follower };
        let session = cluster.connect(leader, 1, None);
        cluster.advance_ms(1900);
        cluster.connect(leader, 3, None);
        // What the leader hears of is on its way into the logs for longer than the session has left.
        cluster.cut = [1, 2, 3].map(|other| (leader, other)).into();
        cluster.ask(server, 2, Some(&session));
        cluster.advance_ms(200);
        assert!(cluster.response(server, 2).is_none());
        cluster.cut.clear();
        // What was lost is sent again when something comes behind it.
        cluster.send(leader, 3, &[(1, create("/a", 0))]);
        assert_eq!(cluster.response(server, 2).unwrap().session_id, session.session_id);
        cluster.advance_ms(1800);
        assert!(!cluster.closed(server, 2), "it was told that it has its session");
    }
}

#[test]
fn a_session_that_another_server_serves_before_the_leaders_disk_has_its_move_does_not_end() {
    let setup = Setup { disk_stall_ms: 60_000, ..short_sessions() };
    let mut cluster = Cluster::with(3, setup);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(leader, 1, None);
    cluster.hold_disk(leader);
    cluster.ask(follower, 2, Some(&session));
    cluster.advance_ms(200);
    assert_eq!(cluster.response(follower, 2).unwrap().session_id, session.session_id);
    for xid in 1..60 {
        cluster.send(follower, 2, &[(xid, get("/"))]);
        assert_eq!(cluster.replies(follower, 2), [(xid, 0)]);
        cluster.advance_ms(100);
    }
    cluster.release_disk();
    cluster.advance_ms(1000);
    assert!(!cluster.closed(follower, 2) && is_open(&cluster, &session), "it was answered");
    // And it ends when nothing more is heard from it.
    cluster.until("its end", |cluster| !is_open(cluster, &session));
}

#[test]
fn a_session_that_comes_back_while_leadership_is_being_handed_over_does_not_end() {
    let mut cluster = Cluster::with(3, short_sessions());
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(leader, 1, None);
    cluster.advance_ms(1900);
    // The third is asked to lead, and does not hear that: nothing goes to the log until it is given up.
    let third = 6 - leader - follower;
    cluster.isolate(third);
    let asked = cluster.ids[&third];
    cluster.replicas.get_mut(&leader).unwrap().consensus.transfer_to(asked);
    cluster.advance_ms(200);
    assert!(!cluster.replicas[&leader].consensus.takes_proposals());
    cluster.ask(follower, 2, Some(&session));
    cluster.advance_ms(500);
    assert_eq!(cluster.leader(), Some(leader));
    assert_eq!(cluster.response(follower, 2).unwrap().session_id, session.session_id);
}

fn is_open(cluster: &Cluster, session: &ConnectResponse) -> bool {
    let leader = cluster.leader().expect("somebody leads");
    cluster.replicas[&leader].machine().sessions().is_open(session.session_id)
}

/// Asks a server for something every tick, until it has sent its client away: the time of its last answer.
fn ask_until_sent_away(cluster: &mut Cluster, server: u8) -> u64 {
    let mut answered_us = cluster.now_us;
    for xid in 1.. {
        cluster.send(server, 1, &[(xid, get("/"))]);
        if cluster.replies(server, 1).is_empty() {
            break;
        }
        answered_us = cluster.now_us;
        cluster.advance_ms(TICK_MS);
    }
    assert!(cluster.closed(server, 1), "it sends its clients away");
    answered_us
}

/// The session ends its timeout after this moment: not earlier, and not much later.
fn ends_after(cluster: &mut Cluster, session: &ConnectResponse, answered_us: u64) {
    cluster.until("its end", |cluster| cluster.leader().is_some() && !is_open(cluster, session));
    let after_ms = (cluster.now_us - answered_us) / 1000;
    assert!((2000..2000 + 2500).contains(&after_ms), "{after_ms} ms after the last answer");
}

/// A client asks for something and is answered: when.
fn answered(cluster: &mut Cluster, server: u8) -> u64 {
    cluster.send(server, 1, &[(1, get("/"))]);
    assert_eq!(cluster.replies(server, 1), [(1, 0)]);
    cluster.now_us
}

#[test]
fn a_session_that_is_answered_in_time_does_not_end_before_the_leader_can_have_heard_of_that() {
    let mut cluster = Cluster::with(3, short_sessions());
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(follower, 1, None);
    cluster.advance_ms(1900);
    cluster.cut.insert((follower, leader));
    let answered_us = answered(&mut cluster, follower);
    cluster.advance_ms(150);
    cluster.cut.clear();
    ends_after(&mut cluster, &session, answered_us);
}

/// An answer of a follower to the leader's ping of now, that names no session.
fn answer(cluster: &mut Cluster, follower: u8, base: u64, number: u64) {
    let leader = cluster.leader().unwrap();
    let stamp = peer::Stamp { process: cluster.replicas[&follower].sessions.process(), number };
    let (from, at_us) = (cluster.ids[&follower], cluster.now_us);
    let leads = cluster.replicas.get_mut(&leader).unwrap();
    let term = leads.leadership.leads().unwrap();
    let message = PeerMessage::Touch { term, at_us, wall_ms: 0, stamp, base, sessions: Vec::new() };
    leads.step(Input::Peer { from, message });
    cluster.advance_ms(TICK_MS);
}

#[test]
fn an_answer_behind_one_that_did_not_arrive_ends_no_session() {
    let mut cluster = Cluster::with(3, short_sessions());
    let follower = cluster.follower();
    let session = cluster.connect(follower, 1, None);
    cluster.isolate(follower);
    cluster.advance_ms(2100);
    assert!(is_open(&cluster, &session));
    // Between the two there is one that may have named the session.
    answer(&mut cluster, follower, 1 << 40, (1 << 40) + 1);
    assert!(is_open(&cluster, &session));
    answer(&mut cluster, follower, 0, (1 << 40) + 2);
    cluster.advance_ms(2 * TICK_MS);
    assert!(!is_open(&cluster, &session), "this one would have named it");
}

#[test]
fn who_was_told_to_a_deposed_leader_is_told_to_the_next_one_too() {
    let mut cluster = Cluster::with(5, short_sessions());
    let (leader, with_it) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(with_it, 1, None);
    let both = [leader, with_it];
    both.iter().for_each(|server| cluster.isolate(*server));
    cluster.cut.retain(|(from, to)| !both.contains(from) || !both.contains(to));
    // The machine that they are on stands still.
    let stand_still = both.map(|server| (server, cluster.replicas.remove(&server).unwrap()));
    cluster.until("another one leads", |cluster| cluster.leader().is_some());
    cluster.replicas.extend(stand_still);
    cluster.advance_ms(TICK_MS);
    let answered_us = answered(&mut cluster, with_it);
    // Up to two ticks until it is asked, and two until it hears that the answer arrived.
    cluster.advance_ms(4 * TICK_MS);
    assert!(cluster.replicas[&leader].leadership.leads().is_some(), "it has yet to find out");
    assert_eq!(cluster.replicas[&with_it].sessions.untold(), 0, "it was told");
    cluster.cut.clear();
    ends_after(&mut cluster, &session, answered_us);
}

#[test]
fn a_server_that_stood_still_for_long_answers_no_client_before_it_is_sure_of_being_heard() {
    for at_leader in [true, false] {
        let mut cluster = Cluster::with(3, Setup::default());
        let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
        let server = if at_leader { leader } else { follower };
        cluster.connect(server, 1, None);
        cluster.isolate(server);
        let stands_still = cluster.replicas.remove(&server).unwrap();
        cluster.advance_ms(3500);
        assert_ne!(cluster.leader(), Some(server));
        cluster.replicas.insert(server, stands_still);
        // Its turn begins with a look at the time, and goes on with what its clients asked for.
        let (now_us, wall_ms) = (cluster.now_us, 1_000_000);
        let goes_on = cluster.replicas.get_mut(&server).unwrap();
        goes_on.step(Input::Tick { now_us, wall_ms });
        cluster.send(server, 1, &[(1, get("/"))]);
        assert_eq!(cluster.replies(server, 1), [], "its session may have been given up");
        assert!(cluster.closed(server, 1));
    }
}

#[test]
fn a_leader_that_stood_still_serves_no_client_before_a_majority_has_answered_it() {
    let mut cluster = Cluster::with(3, Setup::default());
    let leader = cluster.leader().unwrap();
    cluster.connect(leader, 1, None);
    let stands_still = cluster.replicas.remove(&leader).unwrap();
    cluster.isolate(leader);
    cluster.advance_ms(3500);
    assert_ne!(cluster.leader(), None, "another one leads");
    cluster.replicas.insert(leader, stands_still);
    let mut ticks = 0;
    while cluster.replicas[&leader].leadership.leads().is_some() || ticks == 0 {
        cluster.advance_ms(TICK_MS);
        assert!(!cluster.replicas[&leader].is_serving(), "another one leads, as it may know");
        ticks += 1;
    }
    cluster.cut.clear();
    cluster.until("it serves", |cluster| cluster.replicas[&leader].is_serving());
}

#[test]
fn a_leader_that_stood_still_and_leads_on_serves_again_once_a_majority_has_answered_it() {
    let mut cluster = Cluster::with(3, Setup::default());
    let leader = cluster.leader().unwrap();
    cluster.isolate(leader);
    // All machines stand still: the one that they are on does.
    cluster.now_us += 2_300_000;
    cluster.advance_ms(TICK_MS);
    assert_eq!(cluster.leader(), Some(leader), "no server has stood for election yet");
    assert!(!cluster.replicas[&leader].is_serving());
    cluster.cut.clear();
    cluster.until("it serves", |cluster| cluster.replicas[&leader].is_serving());
    assert_eq!(cluster.leader(), Some(leader));
}

#[test]
fn sessions_that_only_one_server_knows_are_not_kept_for_a_leader() {
    let mut cluster = Cluster::with(3, Setup { read_only_mode: true, ..short_sessions() });
    let follower = cluster.follower();
    cluster.isolate(follower);
    cluster.advance_ms(3000);
    for conn in 1..=10 {
        cluster.connect(follower, conn, None);
        cluster.send(follower, conn, &[(1, get("/"))]);
        assert_eq!(cluster.replies(follower, conn), [(1, 0)]);
        cluster.replicas.get_mut(&follower).unwrap().step(Input::Closed { conn });
    }
    assert_eq!(cluster.replicas[&follower].sessions.untold(), 0);
}

#[test]
fn a_session_that_a_cut_off_server_still_answers_has_its_timeout_from_then_on() {
    let mut cluster = Cluster::with(3, short_sessions());
    let follower = cluster.follower();
    let session = cluster.connect(follower, 1, None);
    cluster.isolate(follower);
    let answered_us = ask_until_sent_away(&mut cluster, follower);
    ends_after(&mut cluster, &session, answered_us);
}

#[test]
fn a_session_that_a_deposed_leader_still_answers_has_its_timeout_from_then_on() {
    let mut cluster = Cluster::with(3, short_sessions());
    let leader = cluster.leader().unwrap();
    let session = cluster.connect(leader, 1, None);
    cluster.isolate(leader);
    let answered_us = ask_until_sent_away(&mut cluster, leader);
    assert_ne!(cluster.leader(), Some(leader));
    ends_after(&mut cluster, &session, answered_us);
}

#[test]
fn a_session_at_a_server_that_still_hears_the_deposed_leader_has_its_timeout_from_then_on() {
    let mut cluster = Cluster::with(5, short_sessions());
    let (leader, with_it) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(with_it, 1, None);
    cluster.isolate(leader);
    cluster.isolate(with_it);
    cluster.cut.remove(&(leader, with_it));
    cluster.cut.remove(&(with_it, leader));
    let answered_us = ask_until_sent_away(&mut cluster, with_it);
    ends_after(&mut cluster, &session, answered_us);
}

#[test]
fn a_server_that_hears_a_leader_which_does_not_hear_it_sends_its_clients_away() {
    let mut cluster = Cluster::with(3, short_sessions());
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(follower, 1, None);
    let cut_us = cluster.now_us;
    cluster.cut.insert((follower, leader));
    let answered_us = ask_until_sent_away(&mut cluster, follower);
    assert!(answered_us - cut_us <= UNHEARD_MS_MAX * 1000);
    assert!(!cluster.replicas[&follower].is_serving());
    ends_after(&mut cluster, &session, answered_us);
    cluster.cut.clear();
    cluster.advance_ms(500);
    assert!(cluster.replicas[&follower].is_serving(), "it is heard again");
}

#[test]
fn a_client_that_waits_for_its_session_is_sent_away_before_its_server_is_given_up() {
    let setup =
        Setup { session_timeout_ms_min: 8000, session_timeout_ms_max: 8000, ..Setup::default() };
    let mut cluster = Cluster::with(3, setup);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(leader, 1, None);
    // The leader gets to know that the client asks there, and its answer does not arrive.
    cluster.cut.insert((leader, follower));
    cluster.ask(follower, 2, Some(&session));
    assert!(cluster.closed(leader, 1), "the session has moved");
    cluster.isolate(follower);
    cluster.advance_ms(UNHEARD_MS_MAX + TICK_MS);
    assert!(cluster.closed(follower, 2), "its session gets its time once more, and no further");
    cluster.cut.clear();
    cluster.advance_ms(1000);
    assert!(cluster.response(follower, 2).is_none());
}

/// A client says nothing, while its server cannot be heard for a time, can for another, and so on.
fn silent_for_good(timeout_ms: i32, silent_ms: u64, heard_ms: u64) -> u64 {
    let setup = Setup {
        session_timeout_ms_min: timeout_ms,
        session_timeout_ms_max: timeout_ms,
        ..Setup::default()
    };
    let mut cluster = Cluster::with(3, setup);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(follower, 1, None);
    let connected_us = cluster.now_us;
    // The leader gets the news of the client's last sign of life.
    cluster.advance_ms(2 * TICK_MS);
    while is_open(&cluster, &session) {
        cluster.isolate(follower);
        cluster.advance_ms(silent_ms);
        cluster.cut.clear();
        cluster.advance_ms(heard_ms);
        assert_eq!(cluster.leader(), Some(leader));
        assert!(cluster.now_us < connected_us + 60_000_000, "its client has said nothing");
    }
    (cluster.now_us - connected_us) / 1000
}

#[test]
fn a_server_that_falls_silent_again_and_again_keeps_no_session_alive() {
    assert!(silent_for_good(2000, 600, 400) < 4000);
    // So long that it sends its clients away: they have their timeout from then on, once.
    let lived_ms = silent_for_good(4000, 3000, 1000);
    assert!(lived_ms < 4000 + UNHEARD_MS_MAX + 4000 + 2000, "{lived_ms}");
}

#[test]
fn a_link_that_breaks_again_and_again_keeps_no_session_alive() {
    let mut cluster = Cluster::with(3, short_sessions());
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(follower, 1, None);
    let connected_us = cluster.now_us;
    let peer = cluster.ids[&follower];
    while is_open(&cluster, &session) {
        let leader = cluster.replicas.get_mut(&leader).unwrap();
        leader.step(Input::PeerDown { peer });
        leader.step(Input::PeerUp { peer });
        cluster.advance_ms(500);
        assert!(cluster.now_us < connected_us + 4_000_000, "its client has said nothing");
    }
}

#[test]
fn a_server_that_was_removed_while_it_was_dead_keeps_no_session_alive() {
    let mut cluster = Cluster::with(3, short_sessions());
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(follower, 1, None);
    let id = cluster.ids[&follower];
    cluster.kill(follower);
    cluster.advance_ms(500);
    cluster.connect_super_user(leader);
    let leaving = follower.to_string();
    cluster.send(leader, 1, &[(1, reconfig(None, Some(&leaving)))]);
    assert_eq!(cluster.replies(leader, 1), [(1, 0)]);
    cluster.start(follower, id, Membership::default());
    cluster.advance_ms(2000 + UNHEARD_MS_MAX + 1000);
    assert!(!is_open(&cluster, &session));
}

#[test]
fn what_is_asked_of_a_server_without_a_leader_counts_when_it_hears_the_same_one_again() {
    let mut cluster = Cluster::with(3, short_sessions());
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    let session = cluster.connect(follower, 1, None);
    cluster.advance_ms(1000);
    cluster.isolate(follower);
    cluster.advance_ms(700);
    assert_eq!(cluster.replicas[&follower].consensus.leader(), None);
    cluster.send(follower, 1, &[(1, get("/"))]);
    assert_eq!(cluster.replies(follower, 1), [(1, 0)]);
    cluster.cut.clear();
    cluster.advance_ms(1900);
    assert_eq!(cluster.leader(), Some(leader));
    assert!(cluster.replicas[&leader].machine().sessions().is_open(session.session_id));
    cluster.advance_ms(1000);
    assert!(!cluster.replicas[&leader].machine().sessions().is_open(session.session_id));
}
