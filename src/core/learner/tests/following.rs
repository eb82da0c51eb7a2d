//! What a learner does once it is served.

use super::super::{
    FOLLOWING_SILENT_MS, HEARD_PER_PACKET_MAX, INTRODUCED_SILENT_MS, JOINING_SILENT_MS, NO_SESSION,
};
use super::*;
use crate::tree::Identity;

#[test]
fn transactions_come_by_inform_alone() {
    let mut learner = following();
    let said = Said::default().inform(BASE + 8).propose(BASE + 9).commit(BASE + 9);
    let said = said.commit(BASE + 70).inform(BASE + 9);
    let expected = vec![committed(BASE + 8), committed(BASE + 9)];
    assert_eq!(fed(&mut learner, &said.0, usize::MAX), (expected, None));
}

#[test]
fn a_missing_transaction_ends_the_connection() {
    let mut learner = following();
    let said = Said::default().inform(BASE + 8).inform(BASE + 10).inform(BASE + 9);
    let ended = Ended::Gap { expected: BASE + 9, got: BASE + 10 };
    assert_eq!(fed(&mut learner, &said.0, 3), (vec![committed(BASE + 8)], Some(ended)));
    assert_eq!(learner.next_event(), Err(ended), "it stays so");
    assert_eq!(learner.tick(0), Err(ended));
    assert!(!learner.request(1, 1, 1, b"", &[]) && learner.take_output().is_empty());
    assert!(ended.to_string().contains("0x50000000a where 0x500000009"), "{ended}");
}

#[test]
fn a_reconfiguration_names_who_is_to_lead() {
    let mut learner = following();
    let mut data = Vec::new();
    data.put_long(2);
    data.extend_from_slice(&txn_bytes(BASE + 8));
    let said = Said::default().packet(kind::INFORM_AND_ACTIVATE, BASE + 8, Some(&data));
    let expected = Event::Committed {
        txn: txn(BASE + 8),
        bytes: txn_bytes(BASE + 8).into(),
        designated: Some(2),
    };
    assert_eq!(fed(&mut learner, &said.0, usize::MAX), (vec![expected.clone()], None));

    let said = Said::led().diff(BASE + 8).propose(BASE + 8);
    let said = said.packet(kind::COMMIT_AND_ACTIVATE, BASE + 8, Some(&2_i64.to_be_bytes()));
    assert_eq!(heard_of(BASE + 7, &said), (vec![LED, expected], None));
}

#[test]
fn a_ping_is_answered_with_its_zxid_and_each_session_that_was_heard_once() {
    let mut learner = following();
    for (session, timeout_ms) in [(9, 4000), (7, 6000), (9, 5000), (-3, 8000)] {
        learner.heard(session, timeout_ms);
    }
    fed(&mut learner, &Said::default().ping(BASE + 7).ping(BASE + 8).0, usize::MAX);
    let mut heard = Vec::new();
    for (session, timeout_ms) in [(-3, 8000), (7, 6000), (9, 5000)] {
        heard.put_long(session);
        heard.put_int(timeout_ms);
    }
    let answers = [
        Sent::bare(kind::PING, BASE + 7, Some(&heard)),
        Sent::bare(kind::PING, BASE + 8, Some(b"")),
    ];
    assert_eq!(sent(&mut learner), answers);
}

#[test]
fn more_sessions_than_a_leader_reads_at_once_are_named_in_several_packets() {
    let mut learner = following();
    let count = HEARD_PER_PACKET_MAX + 1;
    (0..count).for_each(|session| learner.heard(session.try_into().unwrap(), 4000));
    fed(&mut learner, &Said::default().ping(BASE + 7).0, usize::MAX);
    let lengths: Vec<usize> =
        sent(&mut learner).iter().map(|ping| ping.data.as_ref().unwrap().len()).collect();
    assert_eq!(lengths, [12 * HEARD_PER_PACKET_MAX, 12]);
}

#[test]
fn a_request_carries_what_the_client_said_and_who_it_is() {
    let mut learner = following();
    let ids = [Identity::ip("10.0.0.1"), Identity::offers_sasl(), Identity::sasl("bob")];
    assert!(learner.request(0x77, 3, 5, b"body", &ids));
    let data = b"\0\0\0\0\0\0\0\x77\0\0\0\x03\0\0\0\x05body";
    let identities = [("ip", "10.0.0.1"), ("sasl", "bob")];
    let identities = identities.map(|(scheme, id)| (Text::from(scheme), Text::from(id)));
    let expected =
        Sent { identities: Some(identities.to_vec()), ..Sent::bare(kind::REQUEST, -1, Some(data)) };
    assert_eq!(sent(&mut learner), [expected], "marks are no identities");
}

#[test]
fn syncs_and_sessions_are_answered_if_they_were_asked_for() {
    let mut learner = following();
    assert!(learner.sync(0x77, 3) && learner.sync(0x77, 4) && learner.revalidate(0x88, 6000));
    let asked = sent(&mut learner);
    assert_eq!(asked[0].data.as_ref().unwrap()[12..16], [0, 0, 0, 9]);
    let session = [0, 0, 0, 0, 0, 0, 0, 0x88, 0, 0, 0x17, 0x70];
    assert_eq!(asked[2], Sent::bare(kind::REVALIDATE, -1, Some(&session)));
    let said = Said::default().packet(kind::SYNC, 0, None).inform(BASE + 8);
    let said = said.packet(kind::REVALIDATE, -1, Some(b"\0\0\0\0\0\0\0\x88\x01"));
    let said = said.packet(kind::SYNC, 0, None).packet(kind::SYNC, 0, None);
    let valid = Event::Revalidated { session: 0x88, is_valid: true };
    let expected = vec![Event::Synced, committed(BASE + 8), valid, Event::Synced];
    let unasked = Ended::Unasked { packet: "SYNC" };
    assert_eq!(fed(&mut learner, &said.0, 5), (expected, Some(unasked)));

    let answer = Said::default().packet(kind::REVALIDATE, -1, Some(&[0; 9]));
    let (_, ended) = fed(&mut following(), &answer.0, usize::MAX);
    assert_eq!(ended, Some(Ended::Unasked { packet: "REVALIDATE" }));
}

#[test]
fn a_probe_is_a_request_of_no_session_that_no_server_of_zookeeper_does() {
    let mut learner = following();
    assert!(learner.probe(0x0001_0002));
    let data = b"\0\0\0\0\0\0\0\0\0\x01\0\x02\0\0\0\x02\0\0\0\x0a/zookeeper\xff\xff\xff\xff";
    let expected =
        Sent { identities: Some(Vec::new()), ..Sent::bare(kind::REQUEST, -1, Some(data)) };
    assert_eq!((sent(&mut learner), NO_SESSION), (vec![expected], 0));
    assert!(!Learner::new(joining(0), 0).probe(1));
}

#[test]
fn a_leader_that_falls_silent_is_left() {
    const MS: u64 = 1000;
    let mut learner = Learner::new(joining(BASE + 7), 50 * MS);
    let led_ms = 50 + INTRODUCED_SILENT_MS;
    assert_eq!(learner.tick(led_ms * MS), Ok(()));
    assert!(Learner::new(joining(BASE + 7), 0).tick((INTRODUCED_SILENT_MS + 1) * MS).is_err());
    learner.feed(&Said::led().0, led_ms * MS);
    assert_eq!((learner.epoch(), learner.next_event()), (0, Ok(Some(LED))));
    assert_eq!(learner.epoch(), EPOCH);
    learner.feed(b"", 100_000_000 * MS);
    learner.go_on((led_ms + 1) * MS);
    let next = (led_ms + 2 + JOINING_SILENT_MS) * MS;
    let stage = "waiting for what it lacks";
    let ended = Ended::Silent { ms: JOINING_SILENT_MS + 1, stage };
    assert_eq!(learner.tick(next - MS), Ok(()), "bytes came, and a joining learner waits longer");
    assert_eq!((learner.tick(next), learner.next_event()), (Err(ended), Err(ended)));

    let mut learner = following();
    assert_eq!(learner.tick(FOLLOWING_SILENT_MS * MS), Ok(()));
    assert!(learner.tick((FOLLOWING_SILENT_MS + 1) * MS).is_err());
    let mut learner = following();
    learner.set_silent_ms(20_000);
    assert_eq!(learner.tick(20_000 * MS), Ok(()));
    assert_eq!(learner.tick(20_001 * MS), Err(Ended::Silent { ms: 20_001, stage: "following" }));
}

#[test]
fn a_connection_that_was_closed_says_while_what() {
    let ended = Learner::new(joining(0), 0).closed();
    assert!(ended.to_string().ends_with("while this server was waiting for the leader's epoch"));
    let mut learner = following();
    let ended = learner.closed();
    assert_eq!(ended, Ended::Closed { stage: "following" });
    assert_eq!((learner.next_event(), learner.closed()), (Err(ended), ended));
}
