//! The witness check: honest histories pass, and each single lie is found, under its rule.

mod common;

use common::{Rng, Service, children, create, delete, exists, get, honest, set};
use lockkeeper_check::history::{History, Outcome};
use lockkeeper_check::json::{read_history, write_history};
use lockkeeper_check::op::{Answer, Call, Code, Mode, Stat};
use lockkeeper_check::verdict::{Rule, Verdict};
use lockkeeper_check::witness::{Settings, check};

fn plain(history: &History) -> Verdict {
    check(history, None, Settings::default())
}

#[test]
fn honest_histories_are_valid_by_the_servers_account() {
    for seed in 0..300 {
        let (history, audit) = honest(seed, 400);
        let verdict = check(&history, Some(&audit), Settings::default());
        assert_eq!(verdict, Verdict::Valid, "seed {seed}: {verdict}");
    }
}

#[test]
fn honest_histories_are_never_invalid_without_the_servers_account() {
    let mut unknown = 0;
    for seed in 0..300 {
        match plain(&honest(seed, 200).0) {
            Verdict::Valid => {}
            Verdict::Unknown(_) => unknown += 1,
            Verdict::Moot(reason) => panic!("seed {seed}: {reason}"),
            Verdict::Invalid(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(unknown > 0, "no history had an unknown outcome that was seen");
}

#[test]
fn a_history_read_from_its_lines_gets_the_same_verdict() {
    for seed in 0..20 {
        let (history, audit) = honest(seed, 400);
        let again = read_history("h", &write_history(&history)).unwrap();
        assert_eq!(history, again);
        assert_eq!(check(&again, Some(&audit), Settings::default()), Verdict::Valid);
    }
}

/// Changes one field of one reply, if there is one to change.
fn lie(result: &mut Result<Answer, Code>, rng: &mut Rng) -> bool {
    let answer = match result {
        Ok(answer) => answer,
        Err(code) => {
            *code = if *code == Code::NO_NODE { Code::NODE_EXISTS } else { Code::NO_NODE };
            return true;
        }
    };
    match answer {
        Answer::PathStat(_, stat) | Answer::Stat(stat) | Answer::Data(_, stat) => {
            lie_of(stat, rng);
            true
        }
        Answer::Path(path) => {
            path.push('0');
            true
        }
        Answer::Children(names, _) => {
            names.push(names.last().cloned().unwrap_or_else(|| "ghost".to_owned()));
            true
        }
        _ => false,
    }
}

fn lie_of(stat: &mut Stat, rng: &mut Rng) {
    match rng.below(9) {
        0 => stat.czxid += 1,
        1 => stat.mzxid += 1,
        2 => stat.pzxid -= 1,
        3 => stat.version += 1,
        4 => stat.cversion -= 1,
        5 => stat.aversion += 1,
        6 => stat.ephemeral_owner ^= 1,
        7 => stat.data_length += 1,
        _ => stat.num_children += 1,
    }
}

#[test]
fn one_wrong_field_of_one_reply_is_found() {
    let mut lies = 0;
    for seed in 0..400 {
        let (mut history, audit) = honest(seed, 200);
        let mut rng = Rng(seed ^ 0xbad);
        let replied = |at: &usize| history.operations[*at].reply().is_some();
        let places: Vec<usize> = (0..history.operations.len()).filter(replied).collect();
        let operation = &mut history.operations[*rng.pick(&places)];
        let Outcome::Replied { result, .. } = &mut operation.outcome else { unreachable!() };
        if !lie(result, &mut rng) {
            continue;
        }
        lies += 1;
        let verdict = check(&history, Some(&audit), Settings::default());
        assert_eq!(verdict.broken(), Some(Rule::Replay), "seed {seed}: {verdict}");
    }
    assert!(lies > 200, "{lies}");
}

#[test]
fn a_stat_tells_the_same_time_of_a_transaction_for_ever() {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(2, exists("/a")).unwrap();
    let (mut history, _) = service.finish();
    assert_eq!(plain(&history), Verdict::Valid);
    let Outcome::Replied { result: Ok(Answer::Stat(stat)), .. } =
        &mut history.operations[1].outcome
    else {
        unreachable!()
    };
    stat.mtime += 1;
    assert_eq!(plain(&history).broken(), Some(Rule::Replay));
}

#[test]
fn an_acknowledged_write_that_no_server_has_is_found() {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(1, create("/b", Mode::Persistent)).unwrap();
    let (history, mut audit) = service.finish();
    audit.pop();
    let verdict = check(&history, Some(&audit), Settings::default());
    assert_eq!(verdict.broken(), Some(Rule::Acknowledged));
}

#[test]
fn a_request_that_took_effect_twice_is_found() {
    let mut service = Service::default();
    let id = service.invoke(1, 1, set("/", "x", -1));
    let answer = service.take_effect(id);
    let _ = service.take_effect(id);
    service.answer(id, answer);
    let (history, audit) = service.finish();
    let verdict = check(&history, Some(&audit), Settings::default());
    assert_eq!(verdict.broken(), Some(Rule::Asked));
}

#[test]
fn two_writes_with_one_zxid_are_found() {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.zxid -= 1;
    service.run(2, create("/b", Mode::Persistent)).unwrap();
    let (history, _) = service.finish();
    assert_eq!(plain(&history).broken(), Some(Rule::OneZxidEach));
}

#[test]
fn a_write_that_stands_before_one_that_had_returned_is_found() {
    let mut service = Service::default();
    service.zxid += 10;
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.zxid -= 10;
    service.run(2, create("/b/c", Mode::Persistent)).unwrap_err();
    let (history, _) = service.finish();
    assert_eq!(plain(&history).broken(), Some(Rule::RealTime));
}

#[test]
fn a_read_of_what_was_not_yet_written_is_found() {
    let mut service = Service::default();
    service.zxid += 5;
    service.run(1, exists("/a")).unwrap_err();
    service.zxid -= 5;
    service.run(2, set("/", "x", -1)).unwrap();
    let (history, _) = service.finish();
    assert_eq!(plain(&history).broken(), Some(Rule::RealTime));
}

#[test]
fn an_old_read_is_allowed_unless_reads_are_linearizable() {
    let mut service = Service::default();
    let id = service.invoke(9, 9, set("/", "x", -1));
    let answer = service.take_effect(id);
    let old = (service.zxid - 1, Err(Code::NO_NODE));
    service.answer(id, answer);
    let read = service.invoke(8, 8, get("/zz"));
    service.answer(read, old);
    let (history, _) = service.finish();
    assert_eq!(plain(&history), Verdict::Valid);
    let strict = Settings { linearizable_reads: true, ..Settings::default() };
    assert_eq!(check(&history, None, strict).broken(), Some(Rule::RealTime));
}

#[test]
fn an_unknown_write_is_the_reason_only_where_it_may_be() {
    let unclear = |path: &str| {
        let mut service = Service::default();
        service.run(1, create("/a", Mode::Persistent)).unwrap();
        service.run(1, create("/b", Mode::Persistent)).unwrap();
        let lost = service.invoke(2, 2, delete("/a"));
        service.lose(lost);
        let read = service.invoke(3, 3, get(path));
        let zxid = service.zxid;
        service.answer(read, (zxid, Err(Code::NO_NODE)));
        service.finish().0
    };
    assert!(matches!(plain(&unclear("/a")), Verdict::Unknown(_)));
    assert_eq!(plain(&unclear("/b")).broken(), Some(Rule::Replay));
}

#[test]
fn the_servers_account_settles_an_unknown_write() {
    for happened in [false, true] {
        let mut service = Service::default();
        service.run(1, create("/a", Mode::Persistent)).unwrap();
        let lost = service.invoke(2, 2, delete("/a"));
        service.lose(lost);
        if happened {
            let _ = service.take_effect(lost);
        }
        let read = service.invoke(3, 3, exists("/a"));
        let zxid = service.zxid;
        service.answer(read, (zxid, Err(Code::NO_NODE)));
        let (history, audit) = service.finish();
        let verdict = check(&history, Some(&audit), Settings::default());
        assert_eq!(verdict == Verdict::Valid, happened, "{verdict}");
    }
}

#[test]
fn a_multi_of_a_session_that_moved_had_no_effect() {
    for code in [Code::SESSION_MOVED, Code::NO_NODE] {
        let mut service = Service::default();
        service.run(1, create("/a", Mode::Persistent)).unwrap();
        let lost = service.invoke(2, 2, Call::Multi(vec![set("/a", "y", 7)]));
        let _ = service.take_effect(lost);
        service.lose(lost);
        let (history, mut audit) = service.finish();
        audit.last_mut().unwrap().result = Err(code);
        let verdict = check(&history, Some(&audit), Settings::default());
        assert_eq!(verdict == Verdict::Valid, code == Code::SESSION_MOVED, "{verdict}");
    }
}

#[test]
fn the_end_of_a_session_takes_its_ephemerals_with_it() {
    let mut service = Service::default();
    service.run(1, create("/e-", Mode::EphemeralSequential)).unwrap();
    service.expire(1);
    service.run(2, children("/")).unwrap();
    let (mut history, audit) = service.finish();
    assert_eq!(check(&history, Some(&audit), Settings::default()), Verdict::Valid);
    let Outcome::Replied { result: Ok(Answer::Children(names, _)), .. } =
        &mut history.operations[1].outcome
    else {
        unreachable!()
    };
    names.push("e-0000000000".to_owned());
    let verdict = check(&history, Some(&audit), Settings::default());
    assert_eq!(verdict.broken(), Some(Rule::Replay));
}

#[test]
fn a_history_without_answers_is_unknown() {
    let mut service = Service::default();
    service.invoke(1, 1, get("/a"));
    assert!(matches!(plain(&service.finish().0), Verdict::Unknown(_)));
}

#[test]
fn a_violation_shows_its_neighbourhood() {
    let mut service = Service::default();
    for _ in 0..30 {
        service.run(1, set("/", "x", -1)).unwrap();
    }
    let (mut history, _) = service.finish();
    let Outcome::Replied { result: Ok(Answer::Stat(stat)), .. } =
        &mut history.operations[15].outcome
    else {
        unreachable!()
    };
    stat.version = 99;
    let Verdict::Invalid(violation) = plain(&history) else { panic!("a wrong version is found") };
    assert_eq!(violation.around.len(), 21);
    assert!(violation.around[10].starts_with("> #30 process 1 session 0x1 xid 16 setData"));
}
