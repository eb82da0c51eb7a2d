//! What is known of other software passes by name, and of Lockkeeper nothing does; what clients know
//! without the servers' clocks; and servers that leave before the end.

mod common;

use common::{STARTED_AT_MS, Service, create, set};
use lockkeeper_check::audit::{AuditLine, AuditLog};
use lockkeeper_check::history::{History, NoticeKind};
use lockkeeper_check::op::{Call, Mode};
use lockkeeper_check::trial::{Evidence, Known, judge};
use lockkeeper_check::verdict::{Rule, Verdict};
use lockkeeper_check::{session_timing, witness};

const TIMING: session_timing::Settings = session_timing::Settings {
    started_at_ms: Some(STARTED_AT_MS),
    clock_error_ms: 5,
    late_ms: 1000,
    is_alone: false,
};
/// The same without a clock of a server.
const CLOCKLESS: session_timing::Settings =
    session_timing::Settings { started_at_ms: None, ..TIMING };

/// What a check says of one server's run.
fn word(
    check: &str,
    told: &(History, Vec<AuditLine>),
    known: &Known,
    timing: session_timing::Settings,
) -> Verdict {
    let audit = [AuditLog { node: "n1".to_owned(), lines: told.1.clone() }];
    let opinions = judge(&Evidence {
        history: &told.0,
        audit: &audit,
        witness: witness::Settings::default(),
        timing,
        known,
        departed: &[],
        planned: &[],
        required: &[],
    });
    opinions.into_iter().find(|one| one.check == check).expect("it is run").verdict
}

fn deaf(from_ms: i64, until_ms: i64) -> Known {
    Known { deaf_ms: vec![(from_ms, until_ms)], ..Known::default() }
}

fn is_allowed(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Moot(why) if why.starts_with("allowed, for it is known of it"))
}

/// A client that is answered by a follower all the while, and is ended 100 ms after its last answer.
fn ended_while_heard() -> (History, Vec<AuditLine>) {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    for _ in 0..4 {
        service.wait_ms(1000);
        service.run(1, Call::Ping).unwrap();
    }
    service.wait_ms(100);
    service.expire(1);
    service.finish()
}

#[test]
fn a_session_that_a_deaf_leader_ended_passes_by_name_for_a_control_alone() {
    let told = ended_while_heard();
    let timing = |known: &Known| word("session-timing", &told, known, TIMING);
    assert_eq!(timing(&Known::default()).broken(), Some(Rule::SessionKept));
    assert!(is_allowed(&timing(&deaf(3000, 4500))), "{}", timing(&deaf(3000, 4500)));
    // Who could hear when it ended the session has no excuse.
    assert_eq!(timing(&deaf(1000, 3000)).broken(), Some(Rule::SessionKept));
}

#[test]
fn a_second_end_of_a_session_passes_by_name_for_a_control_alone() {
    let mut service = Service::default();
    service.run(1, create("/e", Mode::Ephemeral)).unwrap();
    service.expire(1);
    service.run(1, Call::Close).unwrap();
    let told = service.finish();
    let ends = |known: &Known| word("ephemerals", &told, known, TIMING);
    let control = Known { ends_twice: true, ..Known::default() };
    assert_eq!(ends(&Known::default()).broken(), Some(Rule::SessionOnce));
    assert!(is_allowed(&ends(&control)), "{}", ends(&control));
}

#[test]
fn a_session_that_does_something_after_its_end_passes_for_nobody() {
    let mut service = Service::default();
    service.run(1, set("/", "1", -1)).unwrap();
    service.expire(1);
    service.run(1, Call::Close).unwrap();
    service.run(1, set("/", "2", -1)).unwrap();
    let control = Known { ends_twice: true, ..Known::default() };
    let verdict = word("ephemerals", &service.finish(), &control, TIMING);
    assert_eq!(verdict.broken(), Some(Rule::SessionOnce));
}

#[test]
fn a_client_that_is_told_too_early_needs_no_clock_of_a_server() {
    let story = |quiet_ms: u64| {
        let mut service = Service::default();
        service.connect(1, "n1", 1, 0);
        service.run(1, Call::Ping).unwrap();
        service.wait_ms(quiet_ms);
        service.expire(1);
        service.tell(1, NoticeKind::Expired);
        service.finish()
    };
    let timing =
        |quiet_ms: u64, known: &Known| word("session-timing", &story(quiet_ms), known, CLOCKLESS);
    assert_eq!(timing(3000, &Known::default()).broken(), Some(Rule::SessionKept));
    assert_eq!(timing(4500, &Known::default()), Verdict::Valid);
    assert!(is_allowed(&timing(3000, &deaf(2000, 3500))));
    // A session that its client ended may be called gone at once.
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    let end = service.invoke(1, 1, Call::Close);
    let _ = service.take_effect(end);
    service.lose(end);
    service.tell(1, NoticeKind::Expired);
    let verdict = word("session-timing", &service.finish(), &Known::default(), CLOCKLESS);
    assert_eq!(verdict, Verdict::Valid);
}

#[test]
fn a_session_that_ends_late_needs_no_clock_of_a_server() {
    // Another client writes once a second until the end.
    let story = |quiet_s: u64| {
        let mut service = Service::default();
        service.connect(1, "n1", 1, 0);
        service.connect(2, "n1", 2, 0);
        for _ in 0..quiet_s {
            service.wait_ms(1000);
            service.run(2, set("/", "1", -1)).unwrap();
        }
        service.expire(1);
        service.run(2, set("/", "2", -1)).unwrap();
        let mut told = service.finish();
        // Their clocks say nothing.
        told.1.iter_mut().for_each(|line| line.time_ms = STARTED_AT_MS - 600_000);
        told
    };
    let timing =
        |quiet_s: u64| word("session-timing", &story(quiet_s), &Known::default(), CLOCKLESS);
    assert_eq!(timing(4), Verdict::Valid);
    assert_eq!(timing(9).broken(), Some(Rule::SessionEnded));
    assert_eq!(timing(2).broken(), Some(Rule::SessionKept));
}

#[test]
fn without_a_clock_and_without_news_of_sessions_nothing_was_looked_at() {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.wait_ms(9000);
    service.expire(1);
    let verdict = word("session-timing", &service.finish(), &Known::default(), CLOCKLESS);
    assert!(matches!(verdict, Verdict::Moot(_)), "{verdict}");
}

#[test]
fn a_server_that_left_need_not_have_what_came_behind() {
    let mut service = Service::default();
    service.run(1, set("/", "1", -1)).unwrap();
    service.run(1, set("/", "2", -1)).unwrap();
    let (history, lines) = service.finish();
    let log =
        |node: &str, end: usize| AuditLog { node: node.to_owned(), lines: lines[..end].to_vec() };
    let audit = [log("n1", 2), log("n2", 2), log("n3", 1)];
    let convergence = |departed: &[String]| {
        let opinions = judge(&Evidence {
            history: &history,
            audit: &audit,
            witness: witness::Settings::default(),
            timing: CLOCKLESS,
            known: &Known::default(),
            departed,
            planned: &[],
            required: &[],
        });
        opinions.into_iter().find(|one| one.check == "convergence").expect("it is run").verdict
    };
    assert_eq!(convergence(&[]).broken(), Some(Rule::Converged));
    assert_eq!(convergence(&["n3".to_owned()]), Verdict::Valid);
}
