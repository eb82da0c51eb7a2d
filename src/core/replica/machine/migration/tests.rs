//! What each step of a live migration does to the state, and what a restart makes of it.

use bytes::Bytes;

use super::*;
use crate::proto::Acl;
use crate::replica::durable::{Drained, Mark, Membership, Restore};
use crate::replica::machine::txn::{Identities, Origin};
use crate::tree::Options;
use crate::zookeeper::snapshot::{put_end, put_sessions};
use crate::zookeeper::txn::kind;
use crate::zookeeper::{CreateTxn, Lifetime, TxnDigest, TxnHeader};

const EPOCH: i64 = 5;

fn txn(op: TxnOp) -> Txn {
    Txn { origin: Origin::default(), session: 0, cxid: 0, ids: Identities::new(), op }
}

fn step(machine: &mut Machine, step: MigrateOp) -> Applied {
    machine.apply(1, &txn(TxnOp::Migrate(step)))
}

fn follow() -> MigrateOp {
    let (quorum, clients) = (vec!["zk:2888".into()], vec!["zk:2181".into()]);
    MigrateOp::Follow { server_id: 200, quorum, clients }
}

/// A snapshot with one session and the root alone.
fn snapshot() -> Vec<u8> {
    let mut out = Vec::new();
    put_sessions(&[(7, 4000)], &mut out);
    crate::zookeeper::snapshot::put_acls(std::iter::empty::<(i64, &[Acl])>(), &mut out);
    let stat = crate::zookeeper::StatPersisted::default();
    crate::zookeeper::snapshot::put_node("", Some(b""), -1, &stat, &mut out);
    put_end(&mut out);
    out
}

/// A machine that follows from a snapshot.
fn following() -> Machine {
    let mut machine = Machine::fresh(Options::default());
    assert!(step(&mut machine, follow()).result.is_ok());
    step(&mut machine, MigrateOp::SnapshotBegins { is_for_comparison: false });
    for piece in snapshot().chunks(11) {
        step(&mut machine, MigrateOp::SnapshotPart(Bytes::copy_from_slice(piece)));
    }
    assert!(machine.is_loading());
    let ended = step(&mut machine, MigrateOp::SnapshotEnds { zxid: EPOCH << 32 });
    assert!(ended.is_replaced && !machine.may_serve(), "it is not whole");
    step(&mut machine, MigrateOp::Linked { epoch: EPOCH });
    assert_eq!(machine.migration().map(|known| known.phase), Some(Phase::Following));
    machine
}

fn create(counter: i64, path: &str, digest: Option<u64>) -> ForeignTxn {
    let header = TxnHeader {
        client_id: 7,
        cxid: 1,
        zxid: EPOCH << 32 | counter,
        time_ms: 9,
        kind: kind::CREATE,
    };
    let create = CreateTxn {
        path: path.into(),
        data: None,
        acl: vec![Acl::open()],
        lifetime: Lifetime::Persistent,
        parent_cversion: -1,
    };
    let digest = digest.map(|digest| TxnDigest { version: DIGEST_VERSION, digest });
    ForeignTxn { header, body: TxnBody::Create(create), digest }
}

fn apply(machine: &mut Machine, foreign: ForeignTxn) -> Applied {
    machine.apply(1, &txn(TxnOp::Foreign(Box::new(foreign))))
}

/// What ZooKeeper's digest is behind this transaction.
fn digest_behind(foreign: &ForeignTxn) -> u64 {
    let mut other = following();
    apply(&mut other, foreign.clone());
    other.tree.legacy_digest().expect("it is kept")
}

#[test]
fn transactions_of_zookeeper_take_its_zxids_and_those_of_its_own_take_none() {
    let mut machine = following();
    let digest = digest_behind(&create(1, "/a", None));
    let applied = apply(&mut machine, create(1, "/a", Some(digest)));
    assert_eq!((applied.zxid, machine.last_zxid()), (EPOCH << 32 | 1, EPOCH << 32 | 1));
    assert_eq!(applied.result, Ok(Response::Path("/a".into())));
    machine.apply(9, &txn(TxnOp::Client { op: OpCode::Create as i32, body: Bytes::new() }));
    machine.apply(9, &txn(TxnOp::ExpireSession));
    assert_eq!(machine.last_zxid(), EPOCH << 32 | 1);
    let again = apply(&mut machine, create(1, "/a", Some(digest)));
    assert_eq!(again.result, Err(ErrorCode::SessionMoved), "it was applied already");
    assert_eq!(machine.migration().map(|known| known.compared), Some(1));
}

#[test]
fn a_digest_that_differs_stops_it_and_names_the_zxid_and_the_znode() {
    let mut machine = following();
    apply(&mut machine, create(1, "/a", Some(1)));
    let known = machine.migration().expect("there is one");
    assert_eq!((known.phase, machine.may_serve()), (Phase::Stopped, false));
    assert!(known.why.as_str().contains("0x500000001 (create of /a)"), "{}", known.why);
    assert!(step(&mut machine, MigrateOp::CutOver).result.is_err());
}

#[test]
fn the_cutover_goes_on_above_both_epochs_and_the_sessions_stay() {
    let mut machine = following();
    let applied = step(&mut machine, MigrateOp::CutOver);
    assert_eq!(applied.zxid >> 32, EPOCH + EPOCH_JUMP.cast_signed());
    assert!(
        machine.may_serve()
            && machine.decider() == Decider::Ensemble
            && machine.session_count() == 1
    );
    let next = machine.apply(2, &txn(TxnOp::ExpireSession));
    assert_eq!(next.zxid, applied.zxid + 1, "the term is below");
    let late = apply(&mut machine, create(9, "/late", None));
    assert!(late.result.is_err() && machine.tree().stat_unchecked("/late").is_none());
    assert!(step(&mut machine, MigrateOp::Abort).result.is_err(), "there is no way back");
}

#[test]
fn a_server_that_comes_back_from_its_records_follows_on_and_compares() {
    let mut machine = following();
    machine.mark_all_changed();
    let Drained::Changes(changes) =
        machine.drain_changes(1000, Some((3, 1)), Membership::default())
    else {
        panic!("nothing was drained")
    };
    let mut again = Machine::fresh(Options::default());
    for record in changes.records.iter() {
        again.record(record.key, record.value.expect("it is there")).expect("it is a record");
    }
    let mark: Mark = changes.mark.expect("all of it at once");
    again.finish(&mark).expect("it is whole");
    assert_eq!((again.migration(), again.digest()), (machine.migration(), machine.digest()));
    let digest = digest_behind(&create(1, "/a", None));
    apply(&mut again, create(1, "/a", Some(digest)));
    assert_eq!(again.migration().map(|known| known.compared), Some(1));
}

#[test]
fn a_session_that_zookeeper_ends_unheard_is_counted_and_one_that_its_client_closes_is_not() {
    let mut machine = following();
    let of_session = |counter: i64, cxid: i32, kind: i32, body: TxnBody| {
        let mut foreign = create(counter, "/a", None);
        (foreign.header.client_id, foreign.header.cxid, foreign.header.kind) = (8, cxid, kind);
        foreign.body = body;
        foreign
    };
    let begun = TxnBody::CreateSession { timeout_ms: 4000 };
    let closed = TxnBody::CloseSession { paths: None };
    for (counter, cxid) in [(1, 5), (3, 0)] {
        apply(&mut machine, of_session(counter, 0, kind::CREATE_SESSION, begun.clone()));
        apply(&mut machine, of_session(counter + 1, cxid, kind::CLOSE_SESSION, closed.clone()));
    }
    apply(&mut machine, of_session(5, 0, kind::CLOSE_SESSION, closed));
    let known = machine.migration().expect("there is one");
    assert_eq!((known.expired, known.expired_last), (1, 8));
    let mut record = known.record();
    assert_eq!(Migration::of_record(&record).as_ref(), Ok(known));
    record.truncate(record.len() - 24);
    let older = Migration::of_record(&record).expect("one of before they were counted");
    assert_eq!((older.expired, older.compared), (0, known.compared));
}

fn load_for_comparison(machine: &mut Machine, zxid: i64) {
    step(machine, MigrateOp::SnapshotBegins { is_for_comparison: true });
    step(machine, MigrateOp::SnapshotPart(snapshot().into()));
    step(machine, MigrateOp::SnapshotEnds { zxid });
}

/// ZooKeeper writes a snapshot while it works on: what comes behind it may be in it, or not.
#[test]
fn a_snapshot_that_transactions_came_behind_or_of_another_zxid_proves_nothing_and_stops_nothing() {
    let is_unproven = |machine: &Machine| {
        let known = machine.migration().expect("there is one");
        assert_eq!(known.phase, Phase::Following);
        known.is_unproven
    };
    let mut machine = following();
    load_for_comparison(&mut machine, EPOCH << 32);
    apply(&mut machine, create(1, "/a", None));
    step(&mut machine, MigrateOp::Linked { epoch: EPOCH });
    assert!(is_unproven(&machine) && !machine.is_loading());
    load_for_comparison(&mut machine, EPOCH << 32 | 9);
    step(&mut machine, MigrateOp::Linked { epoch: EPOCH });
    assert!(is_unproven(&machine) && !machine.is_loading());
}

#[test]
fn a_snapshot_with_which_an_epoch_began_that_the_copy_has_followed_is_of_the_same_state() {
    let mut machine = following();
    let next = EPOCH + 1;
    load_for_comparison(&mut machine, next << 32);
    step(&mut machine, MigrateOp::Linked { epoch: next });
    let is_unproven = |machine: &Machine| machine.migration().is_some_and(|it| it.is_unproven);
    assert!(is_unproven(&machine), "what the epoch before ended with may not have come");
    load_for_comparison(&mut machine, next << 32);
    step(&mut machine, MigrateOp::Linked { epoch: next });
    assert!(!is_unproven(&machine));
}

#[test]
fn a_session_whose_request_was_not_done_leaves_its_connection_until_it_is_attached_again() {
    let mut machine = following();
    let here = Origin { server: 0x101, conn: 4, sequence: 1 };
    let of_session = |op: TxnOp, sequence: u64| Txn {
        origin: Origin { sequence, ..here },
        session: 7,
        ..txn(op)
    };
    let owner = |machine: &Machine| machine.sessions().find(7).expect("it is open").owner;
    let attach = TxnOp::AttachSession { timeout_ms: 4000, password: [0; 16] };
    let password = machine.sessions().find(7).expect("it is open").password;
    let attach = match attach {
        TxnOp::AttachSession { timeout_ms, .. } => TxnOp::AttachSession { timeout_ms, password },
        other => other,
    };
    let moved = TxnBody::Error { code: ErrorCode::SessionMoved as i32 };
    let sub = crate::zookeeper::SubTxn { kind: kind::ERROR, body: moved.clone() };
    let bodies = [(kind::ERROR, moved), (kind::MULTI, TxnBody::Multi(vec![sub]))];
    for (counter, (kind, body)) in (1..).zip(bodies) {
        machine.apply(1, &of_session(attach.clone(), 1));
        assert_eq!(owner(&machine), (here.server, here.conn));
        let mut foreign = create(counter, "/a", None);
        (foreign.header.kind, foreign.body) = (kind, body);
        let applied = machine.apply(1, &of_session(TxnOp::Foreign(Box::new(foreign)), 2));
        assert_eq!(applied.result, Err(ErrorCode::SessionMoved));
        assert_eq!(owner(&machine), (0, 0));
    }
    machine.apply(1, &of_session(attach, 1));
    let refuse = TxnOp::Refuse { op: 0, code: ErrorCode::SessionMoved as i32 };
    let of_another = Txn { origin: Origin { conn: 5, ..here }, session: 7, ..txn(refuse.clone()) };
    machine.apply(1, &of_another);
    assert_eq!(owner(&machine), (here.server, here.conn), "it has another connection");
    machine.apply(1, &of_session(refuse, 3));
    step(&mut machine, MigrateOp::CutOver);
    let behind = machine.apply(1, &of_session(TxnOp::CloseSession, 4));
    assert_eq!(
        behind.result,
        Err(ErrorCode::SessionMoved),
        "the log refuses it under every leader"
    );
}

#[test]
fn a_snapshot_for_comparison_leaves_an_equal_copy_and_stops_another_one() {
    let compare = |machine: &mut Machine| {
        let zxid = machine.last_zxid();
        load_for_comparison(machine, zxid);
        step(machine, MigrateOp::Linked { epoch: EPOCH })
    };
    let mut machine = following();
    assert!(machine.migration().is_some_and(|known| known.is_unproven));
    let compared = compare(&mut machine);
    assert!(compared.result.is_ok() && !compared.is_replaced);
    assert!(machine.migration().is_some_and(|known| !known.is_unproven));
    apply(&mut machine, create(1, "/a", None));
    assert!(machine.migration().is_some_and(|known| known.is_unproven), "no digest came");
    compare(&mut machine);
    let known = machine.migration().expect("there is one");
    assert!(known.phase == Phase::Stopped && known.why.as_str().contains('/'), "{}", known.why);
}

#[test]
fn what_is_given_up_is_not_served_and_can_be_followed_anew() {
    let mut machine = following();
    assert!(step(&mut machine, MigrateOp::Abort).is_replaced);
    assert!(!machine.may_serve() && machine.session_count() == 0);
    assert!(step(&mut machine, follow()).result.is_ok());
    let mut used = Machine::fresh(Options::default());
    used.apply(1, &txn(TxnOp::OpenSession { timeout_ms: 4000, password: Some([0; 16]) }));
    assert_eq!(step(&mut used, follow()).result, Err(ErrorCode::NotEmpty), "it is in use");
}
