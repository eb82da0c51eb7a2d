//! Turns: what one of them has room for, and in which order connections are answered.

use super::*;
use crate::proto::MultiOp;
use crate::proto::request::Create;

/// Ephemerals of the busy session: a read that looks at all of them is worth a good part of a turn.
const EPHEMERALS: i32 = 3_000;
const BUSY: ConnId = 1;
const OTHER: ConnId = 2;

fn ephemerals(xid: i32) -> (i32, Request) {
    (xid, Request::GetEphemerals { prefix: Some("/none".into()) })
}

/// A server with the two connections, the first of which owns many ephemerals.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.connect(BUSY, 0, &[]);
    rig.connect(OTHER, 0, &[]);
    let creates: Vec<_> =
        (0..EPHEMERALS).map(|number| (number, create(&format!("/e{number}"), 1))).collect();
    rig.send(BUSY, &creates);
    assert_eq!(rig.all_replies(BUSY).len(), creates.len());
    // The load of that is gone.
    rig.advance_ms(2_000);
    rig
}

#[test]
fn reads_without_end_take_many_turns_and_another_connection_waits_for_none_of_them() {
    let mut rig = rig();
    let dear: Vec<_> = (0..64).map(ephemerals).collect();
    rig.step(BUSY, &dear);
    rig.send(OTHER, &[(1, get("/", false))]);
    assert_eq!(rig.replies(OTHER), [(1, 0)], "in the same turn");
    let mut answered = rig.replies(BUSY);
    for turn in 1.. {
        assert!((1..16).contains(&answered.len()) || turn > 1, "{} in one turn", answered.len());
        if !rig.replica.owes_answers() {
            break;
        }
        rig.step(OTHER, &[(turn, get("/", false))]);
        rig.advance_ms(1);
        assert_eq!(rig.replies(OTHER), [(turn, 0)]);
        answered.extend(rig.replies(BUSY));
    }
    assert_eq!(answered, (0..64).map(|xid| (xid, 0)).collect::<Vec<_>>());
}

#[test]
fn of_two_busy_connections_each_gets_its_portion_in_turn() {
    let mut rig = rig();
    rig.connect(3, 0, &[]);
    for conn in [BUSY, 3] {
        let creates: Vec<_> =
            (0..EPHEMERALS).map(|n| (n, create(&format!("/{conn}-{n}"), 1))).collect();
        rig.send(conn, &creates);
        rig.all_replies(conn);
    }
    for conn in [BUSY, 3] {
        rig.step(conn, &(0..200).map(ephemerals).collect::<Vec<_>>());
    }
    rig.drive();
    for _ in 0..10 {
        rig.advance_ms(1);
    }
    let counts = [BUSY, 3].map(|conn| rig.replies(conn).len());
    assert!(counts[0].abs_diff(counts[1]) <= 3 && counts[0] > 10, "{counts:?}");
}

#[test]
fn a_write_behind_many_dear_reads_sets_out_after_them_and_the_order_holds() {
    let mut rig = rig();
    let mut requests: Vec<_> = (0..64).map(ephemerals).collect();
    requests.extend([(64, create("/w", 0)), (65, get("/w", false)), ephemerals(66)]);
    requests.push((67, Request::CloseSession));
    let entries = rig.log.len();
    rig.send(BUSY, &requests);
    assert_eq!(rig.log.len(), entries, "applied, it would have all reads answered at once");
    assert_eq!(rig.all_replies(BUSY), (0..68).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert!(rig.closed(BUSY));
    assert_eq!(rig.replica.status().outstanding, 0);
    assert_eq!(rig.replica.status().ephemerals_count, 0);
}

#[test]
fn a_connection_that_ends_with_a_held_write_leaves_nothing_behind() {
    let mut rig = rig();
    let mut requests: Vec<_> = (0..64).map(ephemerals).collect();
    requests.push((64, create("/w", 0)));
    rig.send(BUSY, &requests);
    rig.replica.step(Input::Closed { conn: BUSY });
    for _ in 0..100 {
        rig.advance_ms(1);
    }
    rig.send(OTHER, &[(1, get("/w", false))]);
    assert_eq!(rig.replies(OTHER), [(1, ErrorCode::NoNode as i32)], "it never set out");
    assert_eq!(rig.replica.status().outstanding, 0);
    assert!(!rig.replica.owes_answers());
}

#[test]
fn what_a_connection_costs_is_counted_and_the_dearest_request_named() {
    let mut rig = rig();
    rig.replica.take_dearest();
    rig.send(BUSY, &[(1, get("/", false)), ephemerals(2), (3, get("/", false))]);
    let dearest = rig.replica.take_dearest().expect("there were requests");
    assert_eq!(dearest.op, Some(OpCode::GetEphemerals));
    assert_eq!(dearest.work_ns / 1000, 300);
    assert_eq!(rig.replica.take_dearest(), None, "it was taken");
}

#[test]
fn a_request_that_comes_just_when_a_held_write_sets_out_does_not_overtake_it() {
    let mut rig = rig();
    let data = Some(Bytes::from(vec![7; 700 << 10]));
    let big = Request::SetData { path: "/big".into(), data, version: -1 };
    rig.send(OTHER, &[(1, create("/big", 0)), (2, big)]);
    let mut requests: Vec<_> = (0..8).map(ephemerals).collect();
    requests.extend((8..11).map(|xid| (xid, get("/big", false))));
    requests.push((11, create("/held", 0)));
    rig.send(BUSY, &requests);
    while rig.more.pop() != Some(BUSY) {
        rig.advance_ms(1);
    }
    // Room is for the last read, behind which the write sets out; in the same turn comes another one.
    rig.replica.step(Input::Room { conn: BUSY });
    rig.send(BUSY, &[(12, create("/held/late", 0))]);
    assert_eq!(rig.all_replies(BUSY), (0..13).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert_eq!(rig.replica.status().outstanding, 0);
}

#[test]
fn writes_behind_one_dear_read_set_out_together() {
    let mut rig = rig();
    let mut requests = vec![ephemerals(0)];
    requests.extend((1..100).map(|xid| (xid, create(&format!("/w{xid}"), 0))));
    let entries = rig.log.len();
    rig.send(BUSY, &requests);
    assert_eq!(rig.all_replies(BUSY), (0..100).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert_eq!(rig.log.len() - entries, 1, "in one entry");
}

/// A request of ZooKeeper's carries the identities of when it was read.
#[test]
fn a_request_that_waits_counts_for_the_identities_of_when_it_was_asked() {
    let secret = |path: &str| {
        let acl = Acl { perms: 31, scheme: "auth".into(), id: "".into() };
        match create(path, 0) {
            Request::Create(create) => Request::Create(Create { acl: Some(vec![acl]), ..create }),
            other => other,
        }
    };
    let auth = Request::Auth { scheme: Some("digest".into()), auth: Some("u:p".into()) };
    // Behind reads that take many turns, and behind a write that is on its way.
    for dear in [64, 0] {
        let mut rig = rig();
        rig.send(OTHER, &[(-4, auth.clone()), (1, secret("/secret"))]);
        assert_eq!(rig.all_replies(OTHER), [(-4, 0), (1, 0)]);
        rig.unfinished = Some(Vec::new());
        let mut requests: Vec<_> = (0..dear).map(ephemerals).collect();
        requests.extend([(100, create("/first", 0)), (101, secret("/own"))]);
        requests.extend([(102, get("/secret", false)), (-4, auth.clone())]);
        requests.extend([(103, get("/secret", false)), (104, secret("/own"))]);
        rig.send(BUSY, &requests);
        rig.finish_appends();
        let refused = [(101, ErrorCode::InvalidAcl as i32), (102, ErrorCode::NoAuth as i32)];
        let mut replies = rig.all_replies(BUSY);
        replies.retain(|(xid, _)| *xid >= 100);
        let expected = [(100, 0), refused[0], refused[1], (103, 0), (104, 0)];
        assert_eq!(replies, expected, "behind {dear} dear reads");
    }
}

#[test]
fn a_znode_with_too_many_components_is_not_created_and_nothing_is_logged() {
    let mut rig = Rig::new();
    rig.connect(BUSY, 0, &[]);
    let path = |components: usize| "/a".repeat(components);
    let parents: Vec<_> = (1..=clients::COMPONENTS_MAX)
        .map(|components| (components as i32, create(&path(components), 0)))
        .collect();
    rig.send(BUSY, &parents);
    assert!(rig.all_replies(BUSY).iter().all(|(_, error)| *error == 0));
    let entries = rig.log.len();
    let deeper = create(&path(clients::COMPONENTS_MAX + 1), 0);
    let Request::Create(inner) = deeper.clone() else { panic!("{deeper:?}") };
    let multi = Request::Multi(vec![MultiOp::Create(inner)]);
    rig.send(BUSY, &[(1, deeper), (2, multi)]);
    let refused = ErrorCode::BadArguments as i32;
    let replies = std::mem::take(&mut rig.seen.get_mut(&BUSY).unwrap().0);
    assert_eq!(&replies[0][12..16], refused.to_be_bytes());
    // The results say it of a multi, which clients read whatever the header says.
    let results =
        [&(-1_i32).to_be_bytes()[..], &[0], &refused.to_be_bytes(), &refused.to_be_bytes()];
    assert_eq!(replies[1][12..29], [&[0; 4][..], &results.concat()].concat());
    assert_eq!(rig.log.len(), entries);
}

#[test]
fn what_is_committed_at_once_is_applied_in_portions() {
    let mut rig = Rig::new();
    rig.connect(BUSY, 0, &[]);
    rig.unfinished = Some(Vec::new());
    let count = 20_000;
    let creates: Vec<_> =
        (0..count).map(|number| (number, create(&format!("/{number}"), 0))).collect();
    rig.send(BUSY, &creates);
    for number in rig.unfinished.take().unwrap() {
        rig.replica.persisted(number);
    }
    let mut portions = Vec::new();
    let mut before = rig.replica.status().znode_count;
    while rig.replica.ready().unwrap().is_some() {
        let after = rig.replica.status().znode_count;
        portions.push(after - before);
        before = after;
    }
    assert_eq!(portions.iter().sum::<u64>(), count as u64);
    assert!(portions.iter().all(|portion| *portion <= 4_000), "{portions:?}");
}

#[test]
fn no_client_sees_or_hears_of_a_session_that_has_ended_in_part() {
    const LEFT: i32 = 25;
    let mut rig = Rig::with(Setup { leaving_at_once: 10, durable: true, ..Setup::default() });
    rig.connect(BUSY, 0, &[]);
    rig.connect(OTHER, 0, &[]);
    let creates: Vec<_> = (0..LEFT).map(|n| (n, create(&format!("/e{n}"), 1))).collect();
    rig.send(BUSY, &creates);
    rig.send(OTHER, &[(1, get("/e9", true)), (2, get("/e24", true))]);
    rig.replies(OTHER);
    while rig.replica.drain_changes(100) != Drained::Nothing {}
    let digest = rig.replica.status().digest;
    rig.step(BUSY, &[(LEFT, Request::CloseSession)]);
    let mut portions = 0;
    while let Some(ready) = rig.replica.ready().unwrap() {
        if let Some(append) = ready.append {
            rig.replica.persisted(append.number);
        }
        if !rig.replica.is_underway() {
            let others = ready.client.into_iter().filter(|outgoing| outgoing.conn == OTHER);
            rig.seen.entry(OTHER).or_default().0.extend(others.flat_map(frames));
            continue;
        }
        portions += 1;
        assert!(portions == 1 || ready.client.is_empty(), "an event of a part");
        rig.step(OTHER, &[(10 + portions, get("/e24", false))]);
        rig.replica.step(Input::Inspect { token: 1, what: Inspect::Digests });
        assert_eq!(rig.replica.drain_changes(100), Drained::Nothing);
        assert_eq!(rig.replica.status().digest, digest);
    }
    assert_eq!(portions, 6, "three to look at them, and three to remove them");
    let no_node = ErrorCode::NoNode as i32;
    let answers = (1..=portions).map(|n| (10 + n, no_node));
    let expected: Vec<_> = [(-1, 0), (-1, 0)].into_iter().chain(answers).collect();
    assert_eq!(rig.replies(OTHER), expected, "the events first");
    assert_ne!(rig.replica.drain_changes(100), Drained::Nothing);
}

fn frames(outgoing: Outgoing) -> Vec<Bytes> {
    let mut bytes = BytesMut::from(&outgoing.frames[..]);
    std::iter::from_fn(|| frame::next(&mut bytes, usize::MAX).unwrap()).collect()
}
