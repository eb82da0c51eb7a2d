//! Orders of operators, at a server on its own.

use crate::replica::machine::{ADDRESSES_MAX, Identities, MigrateOp, Origin, Txn, TxnOp};
use crate::replica::{Input, Machine, MigrateOrder, Replica, Report, Restored, Setup};
use crate::tree::Options;

/// A server that leads.
fn leading() -> Replica {
    leading_from(Machine::fresh(Options::default()))
}

fn leading_from(machine: Machine) -> Replica {
    let mut replica = Replica::new(Setup::default(), machine, Restored::default()).unwrap();
    replica.step(Input::Tick { now_us: 1000, wall_ms: 1 });
    assert_eq!(settle(&mut replica), []);
    assert_eq!(replica.is_serving(), replica.machine().may_serve());
    replica
}

/// Lets it do what it wants; what operators are told.
fn settle(replica: &mut Replica) -> Vec<(u64, Report)> {
    let mut told = Vec::new();
    while let Some(ready) = replica.ready().expect("no broken invariant") {
        if let Some(append) = ready.append {
            replica.persisted(append.number);
        }
        told.extend(ready.inspected);
    }
    told
}

fn order(replica: &mut Replica, order: MigrateOrder) -> Result<String, String> {
    replica.step(Input::Migrate { token: 7, order });
    match &settle(replica)[..] {
        [(7, Report::Migrated(done))] => done.clone(),
        told => panic!("{told:?}"),
    }
}

fn follow(addresses: usize) -> MigrateOrder {
    let quorum = (0..addresses).map(|number| format!("zk{number}:2888")).collect();
    MigrateOrder::Follow { server_id: 200, quorum, clients: Vec::new() }
}

#[test]
fn more_addresses_than_an_entry_may_have_are_refused_and_not_written() {
    let mut replica = leading();
    let refused = order(&mut replica, follow(ADDRESSES_MAX + 1)).unwrap_err();
    assert!(refused.contains("256 addresses"), "{refused}");
    assert!(replica.machine().migration().is_none() && replica.is_serving());
    assert_eq!(order(&mut replica, follow(ADDRESSES_MAX)), Ok(String::new()));
    assert!(replica.machine().migration().is_some() && !replica.is_serving());
}

#[test]
fn an_order_to_follow_that_is_repeated_changes_nothing_and_another_one_needs_an_abort_first() {
    let mut replica = leading();
    order(&mut replica, follow(1)).unwrap();
    let before = replica.machine().digest();
    assert_eq!(order(&mut replica, follow(1)), Ok(String::new()));
    assert_eq!(replica.machine().digest(), before, "no entry");
    order(&mut replica, follow(2)).expect("nothing has come: an address is put right");
    let mut machine = Machine::fresh(Options::default());
    let (origin, ids) = (Origin::default(), Identities::new());
    let quorum = vec!["zk0:2888".into()];
    for step in [
        MigrateOp::Follow { server_id: 200, quorum, clients: Vec::new() },
        MigrateOp::SnapshotBegins { is_for_comparison: false },
    ] {
        let (ids, op) = (ids.clone(), TxnOp::Migrate(step));
        machine.apply(1, &Txn { origin, session: 0, cxid: 0, ids, op });
    }
    let mut replica = leading_from(machine);
    assert_eq!(order(&mut replica, follow(1)), Ok(String::new()));
    let refused = order(&mut replica, follow(2)).unwrap_err();
    assert!(refused.contains("migrate abort") && replica.machine().is_loading(), "{refused}");
}

#[test]
fn an_order_that_makes_no_sense_now_is_refused_with_the_reason() {
    let mut replica = leading();
    for asked in [MigrateOrder::CutOver, MigrateOrder::Abort, MigrateOrder::Done] {
        let refused = order(&mut replica, asked).unwrap_err();
        assert_eq!(refused, "this ensemble follows no other one");
    }
    order(&mut replica, follow(1)).unwrap();
    let refused = order(&mut replica, MigrateOrder::CutOver).unwrap_err();
    assert!(refused.starts_with("this ensemble does not follow now, it is joining"), "{refused}");
    assert!(order(&mut replica, MigrateOrder::Done).is_err());
    assert_eq!(order(&mut replica, MigrateOrder::Abort), Ok(String::new()));
    assert!(!replica.is_serving(), "there is no state to serve");
}

#[test]
fn an_ensemble_that_clients_would_not_find_all_of_follows_no_other_one() {
    let of_line = |line: &str| {
        let mut machine = Machine::fresh(Options::default());
        let op = TxnOp::Found { members: line.into(), opens_term: true };
        let (origin, ids) = (Origin::default(), Identities::new());
        machine.apply(1, &Txn { origin, session: 0, cxid: 0, ids, op });
        leading_from(machine)
    };
    let mut replica = of_line("server.1=own:1:2");
    let before = replica.machine().digest();
    let refused = order(&mut replica, follow(1)).unwrap_err();
    assert!(
        refused.contains("member add 'server.1=own:1:2:participant;<client port>'"),
        "{refused}"
    );
    assert_eq!(replica.machine().digest(), before);
    assert!(replica.machine().migration().is_none() && replica.is_serving());
    assert_eq!(order(&mut of_line("server.1=own:1:2;2181"), follow(1)), Ok(String::new()));
    assert_eq!(order(&mut leading(), follow(1)), Ok(String::new()), "one on its own names none");
}
