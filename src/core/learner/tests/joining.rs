//! How a learner is brought up to date.

use super::*;

#[test]
fn it_introduces_itself_as_an_observer_of_no_configuration() {
    let mut learner = Learner::new(joining(BASE + 7), 0);
    let mut info = Vec::new();
    info.put_long(201);
    info.put_int(0x1_0000);
    info.put_long(0);
    assert_eq!(sent(&mut learner), [Sent::bare(kind::OBSERVER_INFO, BASE, Some(&info))]);
}

#[test]
fn it_answers_the_epoch_with_its_last_zxid_and_asks_not_to_be_counted() {
    let mut learner = Learner::new(joining(BASE + 7), 0);
    let _ = learner.take_output();
    assert_eq!(fed(&mut learner, &Said::led().0, usize::MAX), (vec![LED], None));
    let uncounted = [0xff; 4];
    assert_eq!(sent(&mut learner), [Sent::bare(kind::ACK_EPOCH, BASE + 7, Some(&uncounted))]);
}

#[test]
fn a_snapshot_is_handed_out_as_its_body_without_the_seal() {
    let said = Said::led().snapshot(BASE + 9).inform(BASE + 10).new_leader().up_to_date();
    let expected = vec![
        LED,
        Event::SnapshotBegins { zxid: BASE + 9 },
        Event::SnapshotBytes(body().into()),
        Event::SnapshotEnds,
        committed(BASE + 10),
        caught_up(),
        Event::UpToDate,
    ];
    assert_eq!(heard_of(0, &said), (expected, None));
}

#[test]
fn pieces_of_a_snapshot_have_a_bound() {
    let mut body = Vec::new();
    put_sessions(&[], &mut body);
    put_acls(std::iter::empty(), &mut body);
    let stat = StatPersisted::default();
    put_node("/", Some(&[1; 1 << 20]), OPEN_ACL_KEY, &stat, &mut body);
    put_end(&mut body);
    let said = Said::led().packet(kind::SNAP, BASE, None).raw(&body);
    let mut learner = Learner::new(joining(0), 0);
    learner.feed(&said.0, 0);
    let mut whole = Vec::new();
    while let Some(event) = learner.next_event().unwrap() {
        if let Event::SnapshotBytes(bytes) = event {
            assert!(bytes.len() <= super::super::SNAPSHOT_PIECE_BYTES_MAX);
            whole.extend_from_slice(&bytes);
        }
    }
    assert_eq!(whole, body);
}

#[test]
fn what_comes_behind_a_snapshot_may_repeat_what_is_in_it() {
    let said = Said::led().snapshot(BASE + 9).propose(BASE + 8).commit(BASE + 8);
    let said = said.inform(BASE + 9).inform(BASE + 10);
    let (events, ended) = heard_of(0, &said);
    assert_eq!(events[4..], [8, 9, 10].map(|counter| committed(BASE + counter)));
    assert_eq!(ended, None);
    let ended = end_of(0, &said.inform(BASE + 10));
    assert_eq!(ended, Ended::Gap { expected: BASE + 11, got: BASE + 10 });
}

#[test]
fn what_comes_behind_a_snapshot_leaves_nothing_out() {
    let said = Said::led().snapshot(BASE + 9).inform(BASE + 11);
    assert_eq!(end_of(0, &said), Ended::Gap { expected: BASE + 10, got: BASE + 11 });
}

#[test]
fn a_snapshot_of_a_fresh_epoch_has_the_zxid_of_no_transaction() {
    for (zxid, first) in [(BASE, BASE + 1), (BASE - (1 << 32) + 77, BASE + 1)] {
        let (events, ended) = heard_of(0, &Said::led().snapshot(zxid).inform(first));
        assert_eq!((events.last(), ended), (Some(&committed(first)), None));
    }
}

#[test]
fn a_difference_is_proposals_that_are_committed_in_their_order() {
    let said = Said::led().diff(BASE + 9).propose(BASE + 8).propose(BASE + 9);
    let said = said.commit(BASE + 8).commit(BASE + 9).new_leader().up_to_date();
    let expected =
        vec![LED, committed(BASE + 8), committed(BASE + 9), caught_up(), Event::UpToDate];
    assert_eq!(heard_of(BASE + 7, &said), (expected, None));
}

#[test]
fn a_difference_may_span_epochs_and_be_announced_by_the_older_one() {
    let old = BASE - (1 << 32) + 0x14a0;
    let said = Said::led().diff(old).propose(old).commit(old);
    let said = said.propose(BASE + 1).commit(BASE + 1).new_leader();
    let expected = vec![LED, committed(old), committed(BASE + 1), caught_up()];
    assert_eq!(heard_of(old - 1, &said), (expected, None));
}

#[test]
fn a_server_that_has_everything_gets_nothing() {
    let said = Said::led().diff(BASE + 7).new_leader().up_to_date();
    assert_eq!(heard_of(BASE + 7, &said), (vec![LED, caught_up(), Event::UpToDate], None));
}

#[test]
fn a_server_that_has_more_is_not_cut_off_but_told() {
    let said = Said::led().packet(kind::TRUNC, BASE + 3, None).new_leader();
    let ended = end_of(BASE + 7, &said);
    assert_eq!(ended, Ended::Ahead { zxid: BASE + 3 });
    assert!(ended.to_string().ends_with("cut off behind 0x500000003"), "{ended}");
}

#[test]
fn a_server_that_has_nothing_needs_a_snapshot() {
    assert_eq!(end_of(0, &Said::led().diff(BASE + 1)), Ended::NothingToAddTo);
}

#[test]
fn what_was_announced_must_come() {
    let said = Said::led().diff(BASE + 9).propose(BASE + 8).commit(BASE + 8).new_leader();
    let expected = Ended::Short { announced: BASE + 9, got: BASE + 8 };
    assert_eq!(end_of(BASE + 7, &said), expected);
}

#[test]
fn a_leader_of_an_older_epoch_is_not_followed() {
    let joining = Joining { accepted_epoch: EPOCH + 1, ..joining(BASE + 7) };
    let mut learner = Learner::new(joining, 0);
    let (_, ended) = fed(&mut learner, &Said::led().0, usize::MAX);
    assert_eq!(ended, Some(Ended::OlderEpoch { accepted: EPOCH + 1, leader: EPOCH }));
}

#[test]
fn nothing_is_sent_between_new_leader_and_the_acknowledgement() {
    let mut learner = Learner::new(joining(BASE + 7), 0);
    learner.heard(70, 4000);
    fed(&mut learner, &Said::led().diff(BASE + 7).ping(BASE + 7).0, usize::MAX);
    let _ = learner.take_output();
    fed(&mut learner, &Said::default().ping(BASE + 7).0, usize::MAX);
    assert_eq!(sent(&mut learner), [], "the leader waits for the ACK");
    fed(&mut learner, &Said::default().ping(BASE + 7).new_leader().0, usize::MAX);
    let ack = Sent::bare(kind::ACK, BASE, None);
    assert_eq!(sent(&mut learner), std::slice::from_ref(&ack));
    let said = Said::default().ping(BASE + 8).inform(BASE + 8).up_to_date();
    fed(&mut learner, &said.0, usize::MAX);
    let mut heard = Vec::new();
    heard.put_long(70);
    heard.put_int(4000);
    let ping = Sent::bare(kind::PING, BASE + 8, Some(&heard));
    assert_eq!(sent(&mut learner), [ping, ack], "what was heard meanwhile is not forgotten");
}

#[test]
fn nothing_is_asked_before_the_leader_serves() {
    let mut learner = Learner::new(joining(BASE + 7), 0);
    let steps = [Said::led(), Said::default().diff(BASE + 7), Said::default().new_leader()];
    for said in steps {
        fed(&mut learner, &said.0, usize::MAX);
        let _ = learner.take_output();
        assert!(!learner.may_request());
        assert!(!learner.request(1, 1, 1, b"", &[]));
        assert!(!learner.sync(1, 1) && !learner.revalidate(1, 1));
        assert_eq!(sent(&mut learner), []);
    }
    fed(&mut learner, &Said::default().up_to_date().0, usize::MAX);
    assert!(learner.may_request());
}

#[test]
fn the_same_bytes_in_any_portions_are_the_same_events() {
    let said = Said::led().snapshot(BASE + 9).propose(BASE + 9).commit(BASE + 9).ping(BASE + 9);
    let said = said.new_leader().inform(BASE + 10).up_to_date().inform(BASE + 11);
    let whole = heard_of(0, &said);
    assert_eq!(whole.0.len(), 9);
    for portion in [1, 2, 3, 5, 7, 11, 13, 64, 100] {
        assert_eq!(fed(&mut Learner::new(joining(0), 0), &said.0, portion), whole, "{portion}");
    }
    for cut in 1..said.0.len() {
        let mut learner = Learner::new(joining(0), 0);
        let (mut events, _) = fed(&mut learner, &said.0[..cut], usize::MAX);
        let (more, ended) = fed(&mut learner, &said.0[cut..], usize::MAX);
        let mut more = more.into_iter().peekable();
        if let Some(Event::SnapshotBytes(bytes)) = events.last_mut()
            && let Some(Event::SnapshotBytes(rest)) = more.peek()
        {
            *bytes = [&bytes[..], &rest[..]].concat().into();
            more.next();
        }
        events.extend(more);
        assert_eq!((events, ended), whole, "cut at {cut}");
    }
}
