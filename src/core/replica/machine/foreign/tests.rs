//! Tests of what ZooKeeper has decided, applied here.

use bytes::Bytes;

use super::*;
use crate::proto::Acl;
use crate::replica::machine::sessions::Session;
use crate::rng::Rng;
use crate::zookeeper::{CreateTxn, Node, StatPersisted, SubTxn};

fn options() -> Options {
    Options { legacy_digest: true, ..Options::default() }
}

fn create(path: &str, lifetime: Lifetime, parent_cversion: i32) -> TxnBody {
    TxnBody::Create(CreateTxn {
        path: path.into(),
        data: Some(Bytes::copy_from_slice(path.as_bytes())),
        acl: vec![Acl { perms: path.len() as i32 % 32, ..Acl::open() }],
        lifetime,
        parent_cversion,
    })
}

fn txn(zxid: i64, client_id: i64, kind: i32, body: TxnBody) -> Txn {
    let header = TxnHeader { client_id, cxid: 1, zxid, time_ms: 1000 + zxid, kind };
    Txn { header, body, digest: None }
}

/// A history as a server would write it: each transaction is one that it can have decided.
fn history(seed: u64, length: i64) -> Vec<Txn> {
    let mut rng = Rng::new(seed, 0);
    let mut machine = Machine::fresh(options());
    let mut txns = Vec::new();
    let mut open = Vec::new();
    for zxid in 1..=length {
        let session = 1 + rng.below(3) as i64;
        let path = match rng.below(2) {
            0 => format!("/{}", rng.below(3)),
            _ => format!("/{}/{}", rng.below(3), rng.below(3)),
        };
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        let shown = machine.tree.shown(&path);
        let parent_creates = machine.tree.shown(if parent.is_empty() { "/" } else { &parent });
        let is_parent = parent.is_empty()
            || machine.tree.shown(&parent).is_some_and(|znode| znode.stat.ephemeral_owner == 0);
        let (kind, body) = match (rng.below(6), shown) {
            (0, _) if !open.contains(&session) => {
                open.push(session);
                (kind::CREATE_SESSION, TxnBody::CreateSession { timeout_ms: 4000 })
            }
            (0, _) => {
                open.retain(|id| *id != session);
                let owned = machine.tree.sessions_with_ephemerals();
                let paths = owned.filter(|(id, _)| *id == session).flat_map(|(_, paths)| paths);
                (kind::CLOSE_SESSION, TxnBody::CloseSession { paths: Some(paths.collect()) })
            }
            (1..=3, None) if is_parent => {
                let is_ephemeral = open.contains(&session) && rng.below(2) == 0;
                let lifetime =
                    if is_ephemeral { Lifetime::Ephemeral } else { Lifetime::Persistent };
                let creates = parent_creates.expect("it is there").next_child;
                (kind::CREATE, create(&path, lifetime, creates + 1))
            }
            (1 | 2, Some(znode)) if znode.stat.num_children == 0 => {
                (kind::DELETE, TxnBody::Delete { path: path.as_str().into() })
            }
            (_, Some(znode)) => {
                let (path, data) = (path.as_str().into(), Some(Bytes::from(zxid.to_string())));
                let version = znode.stat.version + 1;
                (kind::SET_DATA, TxnBody::SetData { path, data, version })
            }
            _ => (kind::ERROR, TxnBody::Error { code: -101 }),
        };
        let txn = txn(zxid, session, kind, body);
        let applied = machine.apply_foreign(&txn);
        assert!(kind == kind::ERROR || applied.results.iter().all(Result::is_ok), "{txn:?}");
        txns.push(txn);
    }
    txns
}

fn applied(machine: &mut Machine, txns: &[Txn]) {
    txns.iter().for_each(|txn| drop(machine.apply_foreign(txn)));
}

/// The state as a snapshot holds it, at another zxid than its own.
fn reloaded(machine: &Machine, zxid: i64) -> Machine {
    let mut load = ForeignLoad::new(options());
    for (id, timeout_ms, _) in machine.foreign_sessions() {
        load.session(id, timeout_ms);
    }
    let taken = machine.tree().for_each_persisted(|path, data, acl, stat: &StatPersisted| {
        load.node(&Node {
            path: path.into(),
            data: data.map(Bytes::copy_from_slice),
            acl: Some(acl.to_vec().into()),
            stat: *stat,
        })
    });
    taken.unwrap();
    load.finish(zxid).unwrap()
}

#[test]
fn a_snapshot_that_has_later_changes_already_comes_to_the_same_tree() {
    for seed in 0..300 {
        let txns = history(seed, 60);
        let mut whole = Machine::fresh(options());
        let mut states = Vec::new();
        for txn in &txns {
            whole.apply_foreign(txn);
            states.push(reloaded(&whole, whole.last_zxid));
        }
        for begun in [0, 7, 20, 40] {
            // Written from `begun` on, finished much later.
            let later = &states[(begun + 19).min(states.len() - 1)];
            let mut fuzzy = reloaded(later, txns[begun].header.zxid);
            applied(&mut fuzzy, &txns[begun + 1..]);
            assert_eq!(
                fuzzy.tree.legacy_digest(),
                whole.tree.legacy_digest(),
                "seed {seed}, {begun}"
            );
            assert_eq!(fuzzy.tree.digest(), whole.tree.digest(), "seed {seed}, {begun}: lists");
            assert_eq!(fuzzy.sessions.digest(), whole.sessions.digest(), "seed {seed}, {begun}");
            assert_eq!(fuzzy.last_zxid, whole.last_zxid);
            assert_eq!(whole.tree.legacy_digest(), Some(whole.tree.compute_legacy_digest()));
        }
    }
}

#[test]
fn numbers_are_those_of_the_transactions() {
    let mut machine = Machine::fresh(options());
    let created =
        machine.apply_foreign(&txn(5, 7, kind::CREATE, create("/a", Lifetime::Persistent, 9)));
    let Ok(ForeignResult::Created { path, stat }) = &created.results[0] else { panic!() };
    assert_eq!((path.as_str(), stat.czxid, stat.ctime), ("/a", 5, 1005));
    assert_eq!(machine.tree.shown("/").unwrap().next_child, 9);
    let body = TxnBody::SetData { path: "/a".into(), data: None, version: 77 };
    let changed = machine.apply_foreign(&txn(6, 7, kind::SET_DATA, body));
    assert_eq!(changed.events.len(), 1);
    let Ok(ForeignResult::Changed { stat }) = &changed.results[0] else { panic!() };
    assert_eq!((stat.version, stat.mzxid, stat.mtime), (77, 6, 1006));
}

#[test]
fn a_multi_with_an_error_does_nothing_but_take_its_zxid() {
    let mut machine = Machine::fresh(options());
    let digest = machine.tree.digest();
    let subs = vec![
        SubTxn { kind: kind::CREATE, body: create("/a", Lifetime::Persistent, 1) },
        SubTxn { kind: kind::ERROR, body: TxnBody::Error { code: -110 } },
    ];
    let applied = machine.apply_foreign(&txn(3, 7, kind::MULTI, TxnBody::Multi(subs)));
    assert_eq!(applied.results, [Ok(ForeignResult::Done), Err(ErrorCode::NodeExists)]);
    assert_eq!((machine.tree.digest(), machine.last_zxid, applied.events.len()), (digest, 3, 0));
}

#[test]
fn ephemerals_without_a_session_go_and_are_named() {
    let mut machine = Machine::fresh(options());
    machine.sessions.open_foreign(7, 4000);
    for (zxid, session, path) in [(1, 7, "/mine"), (2, 8, "/lost"), (3, 8, "/gone")] {
        machine.apply_foreign(&txn(
            zxid,
            session,
            kind::CREATE,
            create(path, Lifetime::Ephemeral, -1),
        ));
    }
    let removed = machine.remove_foreign_orphans();
    let removed: Vec<_> = removed.iter().map(|(id, path)| (*id, path.as_str())).collect();
    assert_eq!(removed, [(8, "/gone"), (8, "/lost")]);
    assert!(machine.tree.shown("/mine").is_some());
}

#[test]
fn a_znode_whose_list_is_nowhere_is_named() {
    let mut load = ForeignLoad::new(options());
    let node = |path: &str, acl| Node {
        path: path.into(),
        data: None,
        acl,
        stat: StatPersisted::default(),
    };
    let open = || Some(vec![Acl::open()].into());
    load.node(&node("/", open())).unwrap();
    load.node(&node("/new", None)).unwrap();
    assert!(load.node(&node("/no/parent", open())).is_err());
    let mut machine = load.finish(1).unwrap();
    assert!(machine.settle_foreign().unwrap_err().contains("/new"));
    machine.apply_foreign(&txn(2, 7, kind::CREATE, create("/new", Lifetime::Persistent, -1)));
    assert_eq!(machine.settle_foreign(), Ok(()));
}

#[test]
fn sessions_with_another_password_are_left_out_with_their_ephemerals() {
    let mut machine = Machine::fresh(options());
    machine.sessions.open_foreign(7, 4000);
    machine.sessions.open(8, Session { timeout_ms: 4000, password: [1; 16], owner: (1, 2) });
    for (zxid, session, path) in [(1, 7, "/theirs"), (2, 8, "/ours")] {
        let body = create(path, Lifetime::Ephemeral, -1);
        machine.apply_foreign(&txn(zxid, session, kind::CREATE, body));
    }
    assert_eq!(machine.leave_out_sessions(), [(8, vec!["/ours".into()])]);
    let left: Vec<_> = machine.foreign_sessions().collect();
    assert_eq!((left, machine.last_zxid), (vec![(7, 4000, true)], 3));
}
