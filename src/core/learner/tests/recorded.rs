//! What an Apache ZooKeeper 3.9.4 has said, byte for byte, to an observer on its quorum port.
//!
//! `snap.bin`: joined with nothing; then requests of its own session and of a client elsewhere. `fuzzy.bin`: joined
//! with nothing while three clients wrote. `diff.bin`, `equal.bin`, `trunc.bin`: joined three transactions behind the
//! end of `snap.bin`, at it, and five beyond it.

use super::*;
use crate::zookeeper::{Item, SnapshotDecoder, TxnDigest};

const FIRST: i64 = 1 << 32;
const SNAP: &[u8] = include_bytes!("snap.bin");
const FUZZY: &[u8] = include_bytes!("fuzzy.bin");
const DIFF: &[u8] = include_bytes!("diff.bin");
const EQUAL: &[u8] = include_bytes!("equal.bin");
const TRUNC: &[u8] = include_bytes!("trunc.bin");

/// One line for each event.
fn told(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Led { epoch } => format!("led {epoch}"),
        Event::SnapshotBegins { zxid } => format!("snapshot {zxid:x}"),
        Event::SnapshotBytes(bytes) => snapshot(bytes),
        Event::SnapshotEnds => "end".to_owned(),
        Event::Committed { txn: Txn { header, digest, .. }, .. } => {
            let digest = if digest.is_some() { " digest" } else { "" };
            format!(
                "{:x} {:x}:{} {}{digest}",
                header.zxid, header.client_id, header.cxid, header.kind
            )
        }
        Event::CaughtUp { config } => {
            let config = String::from_utf8(config.as_ref().unwrap().to_vec()).unwrap();
            format!("caught up {}", config.lines().last().unwrap())
        }
        Event::UpToDate => "up to date".to_owned(),
        Event::Revalidated { session, is_valid } => format!("{session:x} {is_valid}"),
        Event::Synced => "synced".to_owned(),
    };
    events.iter().map(line).collect()
}

/// Its sessions and paths.
fn snapshot(bytes: &[u8]) -> String {
    let mut decoder = SnapshotDecoder::default();
    decoder.feed(bytes);
    let mut line = String::new();
    while let Some(item) = decoder.next_item().unwrap() {
        match item {
            Item::Session { id, .. } => line.push_str(&format!("{id:x} ")),
            Item::Node(node) => line.push_str(&format!("{} ", node.path)),
            Item::End => line.push('.'),
        }
    }
    assert!(decoder.has_ended() && decoder.rest().is_empty());
    line
}

fn replayed(from_zxid: i64, bytes: &[u8], portion: usize) -> (Vec<String>, Option<Ended>) {
    let joining = Joining { server_id: 201, from_zxid, accepted_epoch: 1, login: None };
    let mut learner = Learner::new(joining, 0);
    let (mut events, mut asked) = (Vec::new(), false);
    for portion in bytes.chunks(portion) {
        learner.feed(portion, 0);
        loop {
            if learner.may_request() && !asked {
                asked = true;
                learner.sync(1, 2);
                learner.revalidate(1, 2);
                learner.revalidate(1, 2);
            }
            match (learner.next_event(), events.last_mut()) {
                (Ok(None), _) => break,
                (Ok(Some(Event::SnapshotBytes(more))), Some(Event::SnapshotBytes(bytes))) => {
                    *bytes = [&bytes[..], &more[..]].concat().into();
                }
                (Ok(Some(event)), _) => events.push(event),
                (Err(ended), _) => return (told(&events), Some(ended)),
            }
        }
    }
    (told(&events), None)
}

#[test]
fn a_server_that_joins_with_nothing() {
    let expected = [
        "led 1",
        "snapshot 100000006",
        "?",
        "end",
        "caught up version=100000000",
        "up to date",
        "100000007 c900000000001234:0 -10 digest",
        "100000008 c900000000001234:1 1 digest",
        "synced",
        "1000113da0f0001 true",
        "4d false",
        "100000009 1000113da0f0000:5 -1",
        "10000000a 1000113da0f0000:6 14 digest",
        "10000000b 1000113da0f0000:7 14 digest",
        "10000000c 1000113da0f0000:8 1 digest",
        "10000000d 1000113da0f0000:9 21 digest",
        "10000000e 1000113da0f0000:10 2 digest",
        "10000000f 1000113da0f0000:11 -11 digest",
    ];
    for portion in [1, 7, 64, usize::MAX] {
        let (mut events, ended) = replayed(0, SNAP, portion);
        let snapshot = std::mem::replace(&mut events[2], "?".to_owned());
        assert!(snapshot.ends_with(" /zookeeper/quota ."), "{snapshot}");
        assert_eq!((&events[..], ended), (&expected.map(str::to_owned)[..], None));
    }
}

#[test]
fn a_server_that_joins_while_others_write() {
    let (events, ended) = replayed(0, FUZZY, 100);
    assert_eq!((&events[1][..], ended), ("snapshot 10000073d", None));
    assert!(events[4].starts_with("10000073d "), "in the snapshot already: {}", events[4]);
    assert!(events.len() > 20);
}

#[test]
fn a_server_that_is_behind_at_the_end_or_ahead() {
    let joined = ["caught up version=100000000", "up to date"];
    let missed = [
        "10000000d 1000113da0f0000:9 21 digest",
        "10000000e 1000113da0f0000:10 2 digest",
        "10000000f 1000113da0f0000:11 -11 digest",
    ];
    let expected = [&["led 1"][..], &missed, &joined].concat();
    let (events, ended) = replayed(FIRST + 0xc, DIFF, 9);
    assert_eq!((events, ended), (expected.iter().map(|line| (*line).to_owned()).collect(), None));

    let expected = [&["led 1"][..], &joined].concat();
    let (events, ended) = replayed(FIRST + 0xf, EQUAL, 9);
    assert_eq!((events, ended), (expected.iter().map(|line| (*line).to_owned()).collect(), None));

    let (events, ended) = replayed(FIRST + 0x14, TRUNC, 9);
    assert_eq!(
        (events, ended),
        (vec!["led 1".to_owned()], Some(Ended::Ahead { zxid: FIRST + 0xf }))
    );
}

#[test]
fn digests_are_those_of_version_2() {
    let mut learner = Learner::new(joining(FIRST + 0xc), 0);
    let mut digests = Vec::new();
    for event in fed(&mut learner, DIFF, usize::MAX).0 {
        if let Event::Committed { txn, .. } = event {
            digests.push(txn.digest.unwrap());
        }
    }
    assert_eq!(digests[2], TxnDigest { version: 2, digest: 0x2_9fee_b831 });
}
