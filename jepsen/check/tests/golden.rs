//! Golden histories: of each check good ones, and at least one bad one that no other check but the
//! witness finds. They lie in `golden/` as a run writes them; `GOLDEN=write` writes them anew.

mod common;
mod stories;

use std::path::PathBuf;

use common::STARTED_AT_MS;
use lockkeeper_check::audit::{AuditLine, AuditLog, read_audit};
use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::history::History;
use lockkeeper_check::json::{read_history, write_history};
use lockkeeper_check::trial::{Evidence, Known, judge, verdict};
use lockkeeper_check::verdict::Verdict;
use lockkeeper_check::{coverage, session_timing, witness};
use stories::{Story, stories};

fn audit_text(lines: &[AuditLine]) -> String {
    let line = |line: &AuditLine| {
        let path = serde_json::json!(line.path);
        let result = line.result.err().map_or("ok".to_owned(), |code| code.to_string());
        format!(
            "{{\"index\":{},\"term\":{},\"zxid\":{},\"time_ms\":{},\"session\":\"{:#x}\",\"cxid\":{},\
             \"op\":\"{}\",\"path\":{path},\"result\":\"{result}\",\"digest\":\"{}\"}}\n",
            line.index,
            line.term,
            line.zxid,
            line.time_ms,
            line.session,
            line.cxid,
            line.op,
            line.digest
        )
    };
    lines.iter().map(line).collect()
}

/// The text of a golden file, which is what the story makes.
fn golden(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("GOLDEN").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(found, text, "{name} is not what the story makes: GOLDEN=write?");
    found
}

fn told(story: &Story) -> (History, Vec<AuditLog>) {
    let name = story.name;
    let text = golden(&format!("{name}.history.jsonl"), &write_history(&story.history));
    let history = read_history(name, &text).unwrap();
    let log = |(at, lines): (usize, &Vec<AuditLine>)| {
        let node = format!("n{}", at + 1);
        let text = golden(&format!("{name}.audit-{node}.jsonl"), &audit_text(lines));
        read_audit(name, &node, &text).unwrap()
    };
    (history, story.audit.iter().enumerate().map(log).collect())
}

#[test]
fn each_golden_history_is_judged_as_its_story_says() {
    let mut wrong = Vec::new();
    for story in stories() {
        let (history, audit) = told(&story);
        let evidence = Evidence {
            history: &history,
            audit: &audit,
            witness: witness::Settings { extended_types: true, ..Default::default() },
            timing: session_timing::Settings {
                started_at_ms: Some(STARTED_AT_MS),
                clock_error_ms: 5,
                late_ms: 1000,
                is_alone: false,
            },
            known: &Known::default(),
            departed: &[],
            planned: &[],
            required: story.about,
        };
        let opinions = judge(&evidence);
        for opinion in &opinions {
            let expected = story.found.iter().find(|(check, _)| *check == opinion.check);
            let is_as_told = opinion.verdict.broken() == expected.map(|(_, rule)| *rule);
            // What rests on an account that is wrong may be unknown.
            let is_unknown = matches!(opinion.verdict, Verdict::Unknown(_));
            if !is_as_told || is_unknown && story.found.is_empty() {
                wrong.push(format!("{}: {opinion}", story.name));
            }
        }
        for check in story.found.iter().map(|(check, _)| check).chain(story.about) {
            let is_there = opinions.iter().any(|opinion| opinion.check == *check);
            assert!(is_there, "{}: there is no check {check}", story.name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_check_finds_something_alone_and_passes_something() {
    let stories = stories();
    for check in judge(&Evidence {
        history: &History::default(),
        audit: &[],
        witness: witness::Settings::default(),
        timing: session_timing::Settings::default(),
        known: &Known::default(),
        departed: &[],
        planned: &[],
        required: &[],
    })
    .iter()
    .map(|opinion| opinion.check)
    .filter(|check| *check != "coverage")
    {
        let is_passed = |story: &Story| story.found.is_empty() && story.about.contains(&check);
        assert!(stories.iter().any(is_passed), "no good history is about {check}");
        let is_alone = |story: &Story| {
            story.found.iter().any(|(found, _)| *found == check)
                && story.found.iter().all(|(found, _)| [check, "witness"].contains(found))
        };
        assert!(stories.iter().any(is_alone), "no bad history is found by {check} alone");
    }
}

#[test]
fn honest_histories_break_no_rule() {
    for seed in 0..200 {
        let (history, lines) = common::honest(seed, 400);
        let logs =
            ["n1", "n2", "n3"].map(|node| AuditLog { node: node.to_owned(), lines: lines.clone() });
        let opinions = judge(&Evidence {
            history: &history,
            audit: &logs,
            witness: witness::Settings::default(),
            timing: session_timing::Settings::default(),
            known: &Known::default(),
            departed: &[],
            planned: &[],
            required: &["witness", "agreement", "ephemerals", "monotonic", "fifo", "convergence"],
        });
        for opinion in opinions {
            let is_fine = matches!(opinion.verdict, Verdict::Valid | Verdict::Moot(_));
            assert!(is_fine, "seed {seed}: {opinion}");
        }
    }
}

#[test]
fn what_was_planned_and_never_happened_makes_a_run_unknown() {
    let (history, _) = common::honest(1, 100);
    let verdict_of = |event: Event, at_least: u64| {
        coverage::check(&history, None, &[Planned { event, at_least }])
    };
    assert_eq!(verdict_of(Event::Answered, 10), Verdict::Valid);
    assert!(matches!(verdict_of(Event::Answered, 1000), Verdict::Unknown(_)));
    assert!(matches!(verdict_of(Event::Fault("kill".to_owned()), 1), Verdict::Unknown(_)));
    let evidence = Evidence {
        history: &history,
        audit: &[],
        witness: witness::Settings::default(),
        timing: session_timing::Settings::default(),
        known: &Known::default(),
        departed: &[],
        planned: &[Planned { event: Event::Fault("kill".to_owned()), at_least: 1 }],
        required: &["locks"],
    };
    let opinions = judge(&evidence);
    let unknown: Vec<&str> = opinions
        .iter()
        .filter(|opinion| matches!(opinion.verdict, Verdict::Unknown(_)))
        .map(|opinion| opinion.check)
        .collect();
    assert!(unknown.contains(&"coverage") && unknown.contains(&"locks"), "{unknown:?}");
    assert!(matches!(verdict(&opinions), Verdict::Unknown(_)));
}
