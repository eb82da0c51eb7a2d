//! The judge of the examples (tests/testkit/judge.rs) finds what it is for.

use lockkeeper_check::audit::AuditLine;
use testkit::judge::*;

const A: &str = "/l/_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-lock-0000000000";
const B: &str = "/l/_c_1af2b9d632cd4bd08c9c6c2f2f4d4f55-lock-0000000001";
const C: &str = "/l/2af2b9d632cd4bd08c9c6c2f2f4d4f55-lock-0000000002";

fn line(zxid: i64, session: i64, op: &str, path: Option<&str>) -> AuditLine {
    AuditLine {
        index: 0,
        term: 1,
        zxid,
        time_ms: 0,
        session,
        cxid: 0,
        op: op.to_string(),
        path: path.map(str::to_string),
        result: Ok(()),
        digest: String::new(),
    }
}

/// A (session 1), B (2) and C (3) queue; A releases at 20, B is killed and expires at 30, C
/// releases at 40.
fn audit() -> Vec<AuditLine> {
    vec![
        line(10, 1, "create2", Some(A)),
        line(11, 2, "create", Some(B)),
        line(12, 3, "create2", Some(C)),
        line(20, 1, "delete", Some(A)),
        line(30, 2, "expireSession", None),
        line(40, 3, "delete", Some(C)),
    ]
}

fn claim(who: usize, word: Word, node: &str, token: i64, stamp: i64) -> Claim {
    Claim { who, word, node: node.to_string(), token, stamp }
}

fn claims() -> Vec<Claim> {
    vec![
        claim(0, Word::Held, A, 10, 13),
        claim(0, Word::Released, A, 10, 21),
        claim(1, Word::Held, B, 11, 22),
        claim(2, Word::Held, C, 12, 31),
        claim(2, Word::Released, C, 12, 41),
    ]
}

const ONE: Departure = Departure { waiting: 2, promised: 1, events: 1 };

fn lies(audit: &[AuditLine], claims: &[Claim], departures: &[Departure]) -> Vec<Lie> {
    judge(audit, claims, departures, 1).iter().map(|violation| violation.lie).collect()
}

#[test]
fn the_truth_is_believed() {
    assert_eq!(lies(&audit(), &claims(), &[ONE]), []);
}

#[test]
fn two_holders_are_found() {
    let mut claims = claims();
    claims[2].stamp = 19; // B, while A has the lock
    claims.swap(1, 2);
    assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::TwoHolders]);
}

#[test]
fn one_znode_that_two_claim_to_be_theirs_is_found() {
    let mut claims = claims();
    claims.insert(1, claim(1, Word::Held, A, 10, 14));
    assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::TwoHolders]);
}

#[test]
fn a_grant_out_of_order_is_found() {
    let mut claims = claims();
    claims[3].stamp = 22; // C, when it is B's turn
    claims.swap(2, 3);
    claims[3].stamp = 23;
    assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::OutOfOrder, Lie::OutOfOrder]);
}

#[test]
fn an_orphan_is_found_also_one_that_nobody_speaks_of() {
    let mut audit = audit();
    audit.insert(3, line(13, 4, "create2", Some("/l/lock-0000000003")));
    assert_eq!(lies(&audit, &claims(), &[ONE]), [Lie::Orphan]);
}

#[test]
fn two_wake_ups_of_one_release_are_found_and_so_is_none() {
    for events in [0, 2] {
        assert_eq!(lies(&audit(), &claims(), &[ONE, Departure { events, ..ONE }]), [Lie::WakeUps]);
    }
}

#[test]
fn a_token_of_another_transaction_is_found() {
    let mut claims = claims();
    claims[0].token = 9;
    assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::NeverCreated]);
    let mut audit = audit();
    audit[0].result = Err(lockkeeper_check::op::Code::NODE_EXISTS);
    assert!(lies(&audit, &self::claims(), &[ONE]).contains(&Lie::NeverCreated));
}

#[test]
fn a_release_that_did_not_take_place_is_found() {
    let mut early = claims();
    early[1].stamp = 20;
    assert_eq!(lies(&audit(), &early, &[ONE]), [Lie::NotReleased]);
    let mut broken = audit();
    broken[3].session = 2; // somebody else removed it
    assert_eq!(lies(&broken, &claims(), &[ONE]), [Lie::NotReleased]);
}

#[test]
fn holding_what_is_gone_is_found() {
    let mut claims = claims();
    claims[2].stamp = 32; // B's session has expired
    assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::HeldNothing]);
}

#[test]
fn readers_hold_together_but_not_with_a_writer() {
    let names =
        ["/l/_c_a-__READ__0000000000", "/l/_c_b-__READ__0000000001", "/l/_c_c-__WRIT__0000000002"];
    let names = names.map(|name| {
        let (start, rest) = name.split_at("/l/_c_".len());
        format!("{start}{}{rest}", "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f5")
    });
    let create = |at: usize| line(10 + at as i64, at as i64, "create2", Some(&names[at]));
    let delete = |at: usize| line(20 + at as i64, at as i64, "delete", Some(&names[at]));
    let audit: Vec<_> = (0..3).map(create).chain((0..3).map(delete)).collect();
    let held = |at: usize, stamp| claim(at, Word::Held, &names[at], 10 + at as i64, stamp);
    assert_eq!(lies(&audit, &[held(1, 13), held(0, 14)], &[]), []);
    assert_eq!(lies(&audit, &[held(0, 13), held(2, 20)], &[]), [Lie::OutOfOrder]);
    assert_eq!(lies(&audit, &[held(1, 13), held(2, 20)], &[]), [Lie::TwoHolders]);
}

#[test]
fn a_writer_that_goes_on_as_a_reader_is_believed_and_no_writer_beside_it() {
    let protection = "/l/_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-";
    let writer = format!("{protection}__WRIT__0000000000");
    let reader = format!("{protection}__READ__0000000000");
    let next = format!("{protection}__WRIT__0000000001");
    let audit = [
        line(10, 1, "create2", Some(&writer)),
        line(11, 2, "create2", Some(&next)),
        line(20, 1, "multi", Some(&format!("{reader},{writer}"))),
        line(30, 1, "delete", Some(&reader)),
        line(40, 2, "delete", Some(&next)),
    ];
    let mut claims = [
        claim(0, Word::Held, &writer, 10, 12),
        claim(0, Word::Held, &reader, 10, 21),
        claim(0, Word::Released, &reader, 10, 31),
        claim(1, Word::Held, &next, 11, 32),
        claim(1, Word::Released, &next, 11, 41),
    ];
    assert_eq!(lies(&audit, &claims, &[]), []);
    claims[3].stamp = 22;
    claims.swap(2, 3);
    assert_eq!(lies(&audit, &claims, &[]), [Lie::TwoHolders]);
}

#[test]
fn a_semaphore_has_as_many_holders_as_permits() {
    let held = [claim(0, Word::Held, A, 10, 13), claim(1, Word::Held, B, 11, 14)];
    assert!(judge(&audit(), &held, &[], 2).is_empty());
    let third = [held.to_vec(), vec![claim(2, Word::Held, C, 12, 15)]].concat();
    let violations = judge(&audit(), &third, &[], 2);
    assert_eq!(violations.iter().map(|one| one.lie).collect::<Vec<_>>(), [Lie::TwoHolders]);
}

#[test]
fn locks_of_other_names_in_one_directory_do_not_exclude_each_other() {
    let other = "/l/_c_3af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-report-0000000003";
    let mut audit = audit();
    audit.insert(3, line(13, 4, "create2", Some(other)));
    audit.push(line(50, 4, "delete", Some(other)));
    let mut claims = claims();
    claims.insert(1, claim(3, Word::Held, other, 13, 14));
    assert_eq!(lies(&audit, &claims, &[ONE]), []);
}
