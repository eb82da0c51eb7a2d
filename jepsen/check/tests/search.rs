//! The search: it agrees with brute force on thousands of small histories, honest or not.

mod common;

use common::{Rng, Service, create, delete, exists, get, honest, set};
use lockkeeper_check::op::{Call, Code, Mode};
use lockkeeper_check::register::{Ask, Register, Said, State};
use lockkeeper_check::search::{Found, Interval, Model, check, search};
use lockkeeper_check::verdict::{Rule, Verdict};

type Operation = Interval<Ask, Said>;

/// Tries every order that keeps real time, with and without each unknown operation.
fn brute(state: &State, left: &[&Operation]) -> bool {
    if left.iter().all(|operation| operation.returned.is_none()) {
        return true;
    }
    (0..left.len()).any(|at| {
        let next = left[at];
        let must_wait = left
            .iter()
            .any(|other| other.returned.as_ref().is_some_and(|(end, _)| *end < next.invoked));
        if must_wait {
            return false;
        }
        let rest: Vec<&Operation> = left
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != at)
            .map(|(_, left)| *left)
            .collect();
        let mut states = Vec::new();
        let said = next.returned.as_ref().map(|(_, said)| said);
        Register.step(state, &next.ask, said, &mut states);
        states.iter().any(|state| brute(state, &rest))
    })
}

fn random_ask(rng: &mut Rng) -> Ask {
    let data = Some(vec![b'0' + rng.below(2) as u8]);
    let version = if rng.one_in(2) { -1 } else { rng.below(3) as i32 };
    match rng.below(7) {
        0 | 1 => Ask::Create(data),
        2 | 3 => Ask::Set(data, version),
        4 => Ask::Delete(version),
        _ => Ask::Read,
    }
}

/// What an honest register says, found by trying all that it might.
fn honest_answer(state: &State, ask: &Ask) -> (Said, State) {
    let mut answers = vec![Said::Done(None)];
    for code in [Code::NO_NODE, Code::NODE_EXISTS, Code::BAD_VERSION] {
        answers.push(Said::Error(code));
    }
    for said in answers {
        let mut next = Vec::new();
        Register.step(state, ask, Some(&said), &mut next);
        if let Some(after) = next.pop() {
            let said = match (&said, ask, &after) {
                (Said::Done(_), Ask::Read, Some((version, data))) => {
                    Said::Value(*version, data.clone())
                }
                (Said::Done(_), Ask::Set(..), Some((version, data))) => {
                    Said::There(*version, data.as_ref().unwrap().len() as i32)
                }
                _ => said,
            };
            return (said, after);
        }
    }
    unreachable!("one of them is due")
}

/// A small history: intervals overlap at random, some outcomes are unknown, some answers are wrong.
fn small(rng: &mut Rng) -> Vec<Operation> {
    let mut state: State = None;
    let mut operations: Vec<Operation> = Vec::new();
    for at in 1..=3 + rng.below(6) {
        let ask = random_ask(rng);
        let (said, after) = honest_answer(&state, &ask);
        let invoked = (at * 10).saturating_sub(rng.below(40));
        let end = at * 10 + rng.below(40);
        let is_unknown = rng.one_in(5);
        if !is_unknown || rng.one_in(2) {
            state = after;
        }
        let returned = (!is_unknown).then_some((end, said));
        operations.push(Interval { invoked, returned, ask });
    }
    if rng.one_in(2) {
        let at = rng.below(operations.len() as u64) as usize;
        let invoked = operations[at].invoked;
        if let Some((end, said)) = &mut operations[at].returned {
            match rng.below(3) {
                0 => *said = Said::Error(Code::NO_NODE),
                1 => *said = Said::Done(None),
                _ => *end = invoked,
            }
        }
    }
    operations
}

#[test]
fn the_search_agrees_with_brute_force() {
    let (mut orders, mut none) = (0, 0);
    for seed in 0..20_000 {
        let operations = small(&mut Rng(seed));
        let found = search(&Register, &operations);
        let all: Vec<&Operation> = operations.iter().collect();
        let is_order = brute(&None, &all);
        let same = matches!(found, Found::Order) == is_order && !matches!(found, Found::GaveUp(_));
        assert!(same, "seed {seed}: {found:?}, brute force {is_order}: {operations:#?}");
        if is_order { orders += 1 } else { none += 1 }
    }
    assert!(orders > 1_500 && none > 1_500, "{orders} with an order, {none} without");
}

/// The register as other people's search takes it.
#[derive(Clone)]
struct Theirs;

impl porcupine_rs::Model for Theirs {
    type State = State;
    type Op = (Ask, Option<Said>);
    type Metadata = ();

    fn init() -> State {
        None
    }

    /// An unknown operation that has no effect may be put anywhere.
    fn step(state: &State, (ask, said): &Self::Op) -> (bool, State) {
        let mut next = Vec::new();
        Register.step(state, ask, said.as_ref(), &mut next);
        match next.pop() {
            Some(after) => (true, after),
            None => (said.is_none(), state.clone()),
        }
    }
}

#[test]
fn the_search_agrees_with_porcupine() {
    let (mut orders, mut none) = (0, 0);
    for seed in 100_000..103_000 {
        let operations = small(&mut Rng(seed));
        let theirs: Vec<porcupine_rs::Operation<Theirs>> = operations
            .iter()
            .map(|operation| porcupine_rs::Operation {
                client_id: None,
                // What ends and begins at one time is concurrent.
                call_time: operation.invoked as i64 * 2,
                return_time: match &operation.returned {
                    Some((end, _)) => *end as i64 * 2 + 1,
                    None => i64::MAX,
                },
                op: (operation.ask.clone(), operation.returned.clone().map(|(_, said)| said)),
                metadata: None,
            })
            .collect();
        let is_order = porcupine_rs::check_operations(&theirs);
        let found = search(&Register, &operations);
        assert_eq!(found == Found::Order, is_order, "seed {seed}: {found:?}: {operations:#?}");
        if is_order { orders += 1 } else { none += 1 }
    }
    assert!(orders > 200 && none > 200, "{orders} with an order, {none} without");
}

#[test]
fn the_operation_that_is_named_is_the_first_that_has_no_order() {
    for seed in 0..5_000 {
        let mut operations = small(&mut Rng(seed));
        let Found::NoOrder(at) = search(&Register, &operations) else { continue };
        let (end, _) = operations[at].returned.clone().unwrap();
        // Without the answers from there on, there is an order.
        for operation in &mut operations {
            let is_later = operation.returned.as_ref().is_some_and(|(other, _)| *other >= end);
            if is_later {
                operation.returned = None;
            }
        }
        assert_eq!(search(&Register, &operations), Found::Order, "seed {seed}");
    }
}

#[test]
fn honest_histories_have_an_order() {
    let mut searched = 0;
    for seed in 0..300 {
        let (history, _) = honest(seed, 60);
        match check(&history, false) {
            Verdict::Valid => searched += 1,
            Verdict::Unknown(_) | Verdict::Moot(_) => {}
            Verdict::Invalid(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(searched > 0);
}

/// Creates `/r`, loses the answer of `lost`, and reads behind a sync.
fn with_lost(lost: &Call, happened: bool, read: Call) -> Verdict {
    let mut service = Service::default();
    service.run(1, create("/r", Mode::Persistent)).unwrap();
    let id = service.invoke(2, 2, lost.clone());
    service.lose(id);
    if happened {
        let _ = service.take_effect(id);
    }
    service.run(3, Call::Sync { path: "/r".to_owned() }).unwrap();
    let _ = service.run(3, read);
    check(&service.finish().0, false)
}

#[test]
fn an_unknown_write_may_have_happened_or_not() {
    for happened in [false, true] {
        assert_eq!(with_lost(&set("/r", "y", 0), happened, get("/r")), Verdict::Valid);
        assert_eq!(with_lost(&delete("/r"), happened, exists("/r")), Verdict::Valid);
    }
}

#[test]
fn an_old_read_behind_a_sync_has_no_order() {
    let stale = |is_synced: bool| {
        let mut service = Service::default();
        service.run(1, create("/r", Mode::Persistent)).unwrap();
        let read = {
            let id = service.invoke(9, 9, get("/r"));
            let answer = service.take_effect(id);
            service.answer(id, answer.clone());
            answer
        };
        service.run(1, set("/r", "y", -1)).unwrap();
        if is_synced {
            service.run(3, Call::Sync { path: "/r".to_owned() }).unwrap();
        }
        let id = service.invoke(3, 3, get("/r"));
        service.answer(id, read);
        check(&service.finish().0, false)
    };
    assert_eq!(stale(true).broken(), Some(Rule::Linearizable));
    assert_eq!(stale(false), Verdict::Valid, "a plain read may be old");
}

#[test]
fn two_sets_that_expect_one_version_do_not_both_succeed() {
    let mut service = Service::default();
    service.run(1, create("/r", Mode::Persistent)).unwrap();
    let first = service.run(1, set("/r", "1", 0));
    let id = service.invoke(2, 2, set("/r", "2", 0));
    let zxid = service.zxid + 1;
    service.answer(id, (zxid, first));
    assert_eq!(check(&service.finish().0, false).broken(), Some(Rule::Linearizable));
}

#[test]
fn too_many_possibilities_are_unknown() {
    let operations: Vec<Operation> = (0..40)
        .map(|at| Interval { invoked: at, returned: None, ask: Ask::Set(Some(vec![at as u8]), -1) })
        .chain([
            Interval { invoked: 0, returned: Some((1, Said::Done(None))), ask: Ask::Create(None) },
            Interval {
                invoked: 50,
                returned: Some((60, Said::Value(9, Some(vec![99])))),
                ask: Ask::Read,
            },
        ])
        .collect();
    assert!(matches!(search(&Register, &operations), Found::GaveUp(_)));
}
