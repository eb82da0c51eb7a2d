//! One short run against real servers, and what the judge says when somebody lies about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockkeeper_check::history::{History, Outcome};
use lockkeeper_check::op::Answer;
use lockkeeper_check::trial;
use lockkeeper_check::verdict::{Rule, Verdict};
use lockkeeper_jepsen::cluster::{Backend, Software};
use lockkeeper_jepsen::run::{self, Settings};
use lockkeeper_jepsen::store::{self, Store};

/// The server that cargo has built beside this test.
fn binary() -> PathBuf {
    let this = std::env::current_exe().expect("a test has a path");
    let target = this.ancestors().nth(3).expect("target/PROFILE/deps/TEST").to_owned();
    let built = ["debug", "release"].map(|profile| target.join(profile).join("lockkeeper"));
    let found = built.iter().find(|file| file.is_file());
    found.expect("cargo build makes the server under test").clone()
}

/// Copies the files of a run.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// What the judge says of a copy of the run in which the history is not what happened.
fn judged(run: &Store, copy_to: &Path, lie: impl FnOnce(&mut History)) -> Vec<Rule> {
    copy(run.folder(), copy_to);
    let copied = Store::open(copy_to).unwrap();
    let mut history = copied.history().unwrap();
    lie(&mut history);
    copied.write_history(&history).unwrap();
    let outcome = run::judge(copied).unwrap();
    let results = fs::read_to_string(copy_to.join(store::RESULTS)).unwrap();
    assert!(results.contains(r#""valid": false"#), "{results}");
    assert!(matches!(trial::verdict(&outcome.opinions), Verdict::Invalid(_)));
    outcome.opinions.iter().filter_map(|opinion| opinion.verdict.broken()).collect()
}

/// The answer of the last read that showed a value, to be tampered with.
fn last_read(history: &mut History) -> &mut Outcome {
    let shows = |outcome: &Outcome| {
        matches!(outcome, Outcome::Replied { result: Ok(Answer::Data(..)), .. })
    };
    let outcomes = history.operations.iter_mut().map(|operation| &mut operation.outcome);
    outcomes.filter(|outcome| shows(outcome)).last().expect("the run reads")
}

#[test]
fn servers_that_are_killed_keep_their_promises_and_lies_about_it_are_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        workload: "register".parse().unwrap(),
        faults: "kill".parse().unwrap(),
        software: Software::Lockkeeper { binary: binary() },
        plant: None,
        backend: Backend::Loopback,
        nodes: 3,
        clients: 6,
        length: Duration::from_secs(10),
        interval: Duration::from_secs(2),
        rate: 100,
        timeout: Duration::from_secs(4),
        ops_per_key: 200,
        snapshot_every: None,
        seed: 7,
        out: folder.path().join("runs"),
        keep_data: false,
        skipped: Vec::new(),
    };
    let outcome = run::run(&settings, &AtomicBool::new(false)).unwrap();
    let said: Vec<String> = outcome.opinions.iter().map(ToString::to_string).collect();
    assert_eq!(outcome.verdict, Verdict::Valid, "{}", said.join("\n"));

    let report = fs::read_to_string(outcome.store.folder().join(store::REPORT)).unwrap();
    for panel in ["checks", "latency", "rate", "leaders and terms", "coverage"] {
        assert!(report.contains(&format!("id=\"{panel}\"")), "{panel}");
    }
    assert!(!report.contains("<script") && !report.contains("http"), "it loads nothing");

    let copy_to = |name: &str| folder.path().join(name);
    let another_value = judged(&outcome.store, &copy_to("value"), |history| {
        if let Outcome::Replied { result: Ok(Answer::Data(data, _)), .. } = last_read(history) {
            *data = Some(b"never written".to_vec());
        }
    });
    assert!(another_value.contains(&Rule::Replay), "{another_value:?}");
    let back_in_time = judged(&outcome.store, &copy_to("time"), |history| {
        if let Outcome::Replied { zxid, .. } = last_read(history) {
            *zxid = 1;
        }
    });
    assert!(back_in_time.contains(&Rule::Monotonic), "{back_in_time:?}");
    let never_asked = judged(&outcome.store, &copy_to("asked"), |history| {
        let place = history.operations.iter().rposition(|operation| {
            operation.call.is_write() && operation.reply().is_some_and(|(_, _, said)| said.is_ok())
        });
        history.operations.remove(place.expect("the run writes"));
    });
    assert!(never_asked.contains(&Rule::Asked), "{never_asked:?}");
}
