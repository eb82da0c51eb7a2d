//! A leader that says anything.

use super::super::PROPOSALS_MAX;
use super::*;
use crate::proto::Malformed;
use crate::rng::Rng;

fn is_malformed(from_zxid: i64, said: &Said) -> bool {
    matches!(heard_of(from_zxid, said).1, Some(Ended::Malformed(_)))
}

#[test]
fn packets_out_of_place_end_the_connection() {
    let diff = || Said::led().diff(BASE + 7);
    for (said, packet, stage) in [
        (Said::default().diff(BASE + 7), "DIFF", "waiting for the leader's epoch"),
        (
            Said::led().packet(kind::LEADER_INFO, BASE, None),
            "LEADERINFO",
            "waiting for what it lacks",
        ),
        (Said::led().inform(BASE + 8), "INFORM", "waiting for what it lacks"),
        (Said::led().ping(BASE), "PING", "waiting for what it lacks"),
        (diff().diff(BASE + 7), "DIFF", "catching up"),
        (diff().snapshot(BASE + 7), "SNAP", "catching up"),
        (diff().packet(kind::TRUNC, BASE, None), "TRUNC", "catching up"),
        (diff().up_to_date(), "UPTODATE", "catching up"),
        (diff().packet(kind::SYNC, 0, None), "SYNC", "catching up"),
        (diff().new_leader().new_leader(), "NEWLEADER", "waiting to be served"),
        (diff().new_leader().up_to_date().up_to_date(), "UPTODATE", "following"),
        (diff().new_leader().up_to_date().new_leader(), "NEWLEADER", "following"),
    ] {
        assert_eq!(end_of(BASE + 7, &said), Ended::Unexpected { packet, stage });
    }
}

#[test]
fn a_commit_is_of_the_oldest_proposal() {
    let said = Said::led().diff(BASE + 9).propose(BASE + 8).propose(BASE + 9);
    let expected = Ended::WrongCommit { expected: Some(BASE + 8), got: BASE + 9 };
    assert_eq!(end_of(BASE + 7, &said.clone().commit(BASE + 9)), expected);
    let said = said.commit(BASE + 8).new_leader();
    assert!(matches!(end_of(BASE + 7, &said), Ended::Short { .. }));
    let nothing = Said::led().diff(BASE + 7).commit(BASE + 8);
    let expected = Ended::WrongCommit { expected: None, got: BASE + 8 };
    assert_eq!(end_of(BASE + 7, &nothing), expected);
}

#[test]
fn nothing_stays_uncommitted() {
    let said = Said::led().diff(BASE + 7).propose(BASE + 8).new_leader().up_to_date();
    assert_eq!(end_of(BASE + 7, &said), Ended::Uncommitted { zxid: BASE + 8 });
}

#[test]
fn proposals_that_wait_have_a_bound() {
    let mut said = Said::led().diff(BASE + 7);
    for _ in 0..PROPOSALS_MAX {
        said = said.propose(BASE + 8);
    }
    assert_eq!(heard_of(BASE + 7, &said).1, None);
    assert!(is_malformed(BASE + 7, &said.propose(BASE + 8)));
}

#[test]
fn what_a_packet_carries_is_checked() {
    let diff = || Said::led().diff(BASE + 7);
    let leader = |zxid, data| Said::default().packet(kind::LEADER_INFO, zxid, data);
    let trailing = [&txn_bytes(BASE + 8)[..], &[0]].concat();
    for said in [
        leader(BASE, None),
        leader(BASE, Some(&[0, 0, 0, 1])),
        leader(BASE, Some(&[0, 1, 0, 0, 0])),
        leader(BASE + 1, Some(&[0, 1, 0, 0])),
        leader(0, Some(&[0, 1, 0, 0])),
        leader(i64::MIN, Some(&[0, 1, 0, 0])),
        diff().packet(kind::INFORM, BASE + 8, None),
        diff().packet(kind::INFORM, BASE + 8, Some(b"")),
        diff().packet(kind::INFORM, BASE + 8, Some(&trailing)),
        diff().packet(kind::INFORM, BASE + 9, Some(&txn_bytes(BASE + 8))),
        diff().packet(kind::INFORM_AND_ACTIVATE, BASE + 8, Some(b"1234567")),
        diff().packet(kind::PROPOSAL, BASE + 8, None),
        diff().propose(BASE + 8).packet(kind::COMMIT_AND_ACTIVATE, BASE + 8, None),
        diff().packet(kind::NEW_LEADER, BASE + (1 << 32), None),
        diff().inform(BASE + (1 << 32) + 1),
    ] {
        assert!(is_malformed(BASE + 7, &said), "{:?}", heard_of(BASE + 7, &said));
    }
    for answer in [&b"\0\0\0\0\0\0\0\x88"[..], b"\0\0\0\0\0\0\0\x88\x01\x01", b""] {
        let mut learner = following();
        learner.revalidate(0x88, 6000);
        let said = Said::default().packet(kind::REVALIDATE, -1, Some(answer));
        let (_, ended) = fed(&mut learner, &said.0, usize::MAX);
        assert!(matches!(ended, Some(Ended::Malformed(_))), "{answer:?}");
    }
}

#[test]
fn a_snapshot_is_checked_to_be_one_and_to_be_complete() {
    let snap = Said::led().packet(kind::SNAP, BASE, None);
    let sealed = snap.clone().raw(&body()).raw(b"\0\0\0\x0aBenWasTher");
    let malformed = Malformed::new("snapshot", "is followed by another seal");
    assert_eq!(end_of(0, &sealed), Ended::Malformed(malformed));
    assert!(is_malformed(0, &snap.clone().raw(&body()).raw(b"\x01")), "before the rest is there");
    assert!(is_malformed(0, &snap.raw(&(-2_i32).to_be_bytes())));
}

/// A conversation with everything in it.
fn conversation() -> Vec<u8> {
    let said = Said::led().snapshot(BASE + 9).propose(BASE + 9).commit(BASE + 9).ping(BASE + 9);
    let said = said.new_leader().inform(BASE + 10).up_to_date().inform(BASE + 11);
    said.ping(BASE + 11).inform(BASE + 12).packet(kind::SYNC, 0, None).0
}

#[test]
fn no_bytes_make_it_panic() {
    let mut noise = Rng::new(0x1EA2_4E12, 0);
    for _ in 0..20_000 {
        let count = noise.index(300);
        let mut bytes = noise.bytes(count);
        if noise.chance(700) {
            bytes = conversation();
            for _ in 0..=noise.index(4) {
                let at = noise.index(bytes.len());
                match noise.index(4) {
                    0 => bytes[at] ^= 1 << noise.index(8),
                    1 => bytes[at] = noise.of(&[0, 0xff, 0x7f, 0x80, 1]),
                    2 => drop(bytes.drain(at..(at + noise.index(20)).min(bytes.len()))),
                    _ => bytes.extend_from_within(at..),
                }
            }
        }
        let mut learner = Learner::new(joining(noise.of(&[0, BASE + 9, i64::MAX, i64::MIN])), 0);
        let portion = 1 + noise.index(200);
        let (events, _) = fed(&mut learner, &bytes, portion);
        let zxids: Vec<i64> = events
            .iter()
            .filter_map(|event| match event {
                Event::Committed { txn, .. } => Some(txn.header.zxid),
                _ => None,
            })
            .collect();
        assert!(zxids.is_sorted_by(|one, next| one < next), "{zxids:x?}");
        let _ = learner.tick(noise.next());
    }
}

#[test]
fn every_flipped_bit_gives_events_or_an_end() {
    let whole = conversation();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fed(&mut Learner::new(joining(0), 0), &bytes, 50);
    }
}
