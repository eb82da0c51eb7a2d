//! The examples of the recipes, as their users run them: several processes, one of which is killed while
//! it holds the lock. What they print is checked against the servers' audit logs (`tests/testkit/judge.rs`), and
//! what a departure costs against the servers' count of events.
//!
//! Cargo builds the examples before the tests, if it is not told to run this one only.

mod judge_rules;

use std::path::Path;

use rustix::process::Signal;
use testkit::stage::{Exit, Program, Promise, Stage};

/// The example with this name and these arguments behind the servers and the path.
fn example(name: &str, rest: &[&str]) -> Program {
    let program = testkit::built(&format!("examples/{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    assert!(
        changed(&program) >= changed(&source.with_extension("rs")),
        "{} is old: cargo build --examples",
        program.display()
    );
    let rest = rest.iter().map(ToString::to_string).collect();
    Program { command: vec![program], rest, ..Program::default() }
}

/// Four contenders, the second of which is killed while it has the lock.
async fn is_true(name: &str, promise: &Promise) {
    let mut stage = Stage::new("/locks/demo").await;
    let cast = vec![example(name, &[]); 4];
    stage.play(&cast, &[Exit::Release, Exit::Kill], promise).await;
    stage.close(promise.permits).await;
}

#[tokio::test]
async fn mutex() {
    is_true("mutex", &Promise::FAIR).await;
}

#[tokio::test]
async fn reentrant_mutex() {
    is_true("reentrant_mutex", &Promise::FAIR).await;
}

#[tokio::test]
async fn election() {
    is_true("election", &Promise::FAIR).await;
}

#[tokio::test]
async fn multi_lock() {
    is_true("multi_lock", &Promise { claims: 2, ..Promise::FAIR }).await;
}

/// The controls: what the others are measured by sees a herd where there is one.
#[tokio::test]
async fn simple_lock_has_a_herd() {
    is_true("simple_lock", &Promise::HERD).await;
}

#[tokio::test]
async fn child_watch_lock_has_a_herd() {
    is_true("child_watch_lock", &Promise::HERD).await;
}

/// The verification can fail.
#[tokio::test]
#[should_panic(expected = "WakeUps: with 3 waiting, 3 events and not 1")]
async fn a_herd_is_not_taken_for_one_wake_up() {
    is_true("simple_lock", &Promise::FAIR).await;
}

#[tokio::test]
async fn named_mutex() {
    let mut stage = Stage::new("/locks/all").await;
    let other = stage.start(&example("named_mutex", &["other"]));
    stage.hear(other, "HELD", 1).await;
    let cast = vec![example("named_mutex", &["report"]); 3];
    stage.play(&cast, &[Exit::Release, Exit::Kill], &Promise::FAIR).await;
    stage.enter(other);
    stage.hear(other, "RELEASED", 1).await;
    stage.departure(0, 0).await;
    stage.close(1).await;
}

/// One event for who has a permit then, and one for who is the first to wait for the next.
#[tokio::test]
async fn semaphore() {
    let mut stage = Stage::new("/locks/printers").await;
    let promise = Promise { permits: 2, events: |waiting| waiting.min(2), ..Promise::FAIR };
    let cast = vec![example("semaphore", &["2"]); 5];
    stage.play(&cast, &[Exit::Release, Exit::Kill], &promise).await;
    stage.close(promise.permits).await;
}

#[tokio::test]
async fn read_write_lock() {
    let mut stage = Stage::new("/locks/index").await;
    let writes = example("read_write_lock", &["write"]);
    let reads = example("read_write_lock", &["read"]);
    let first = stage.start(&writes);
    stage.hear(first, "HELD", 1).await;
    let mut waiting = Vec::new();
    for program in [&reads, &reads, &writes] {
        waiting.push(stage.start(program));
        stage.watches(waiting.len() as u64).await;
    }
    let [reader, other, writer] = waiting[..] else { unreachable!("three wait") };
    stage.kill(first);
    stage.hear(reader, "HELD", 1).await;
    stage.hear(other, "HELD", 1).await;
    stage.departure(3, 2).await; // both readers, but not the writer
    for (leaves, events) in [(reader, 0), (other, 1), (writer, 0)] {
        stage.enter(leaves);
        stage.hear(leaves, "RELEASED", 1).await;
        stage.end(leaves).await;
        if leaves == other {
            stage.hear(writer, "HELD", 1).await;
        }
        stage.departure(1, events).await; // the writer waits for the nearest before it
    }
    stage.close(1).await;
}

/// Its end as a writer wakes the reader behind it, its end as a reader nobody: the writer behind waits
/// for the nearest before it.
#[tokio::test]
async fn read_write_lock_downgraded() {
    let mut stage = Stage::new("/locks/index").await;
    let first = stage.start(&example("read_write_lock", &["downgrade"]));
    stage.hear(first, "HELD", 1).await;
    let reader = stage.start(&example("read_write_lock", &["read"]));
    stage.watches(1).await;
    let writer = stage.start(&example("read_write_lock", &["write"]));
    stage.watches(2).await;
    stage.enter(first);
    stage.hear(first, "HELD", 2).await; // to read, with the same token
    stage.hear(reader, "HELD", 1).await;
    stage.departure(2, 1).await;
    for (leaves, events) in [(first, 0), (reader, 1), (writer, 0)] {
        stage.enter(leaves);
        stage.hear(leaves, "RELEASED", 1).await;
        stage.end(leaves).await;
        if leaves == reader {
            stage.hear(writer, "HELD", 1).await;
        }
        stage.departure(1, events).await;
    }
    stage.close(1).await;
}

#[tokio::test]
async fn revocable() {
    let mut stage = Stage::new("/locks/demo").await;
    let program = example("revocable", &[]);
    let holder = stage.start(&program);
    stage.hear(holder, "HELD", 1).await;
    stage.watches(1).await; // for the request
    let next = stage.start(&program);
    stage.watches(2).await;
    let node = stage.said("HELD")[0].line.split(' ').nth(1).expect("a znode").to_string();
    let asks = Program { rest: vec!["revoke".to_string()], ..program };
    // Whether the next watches again before the holder goes would be luck.
    stage.signal(next, Signal::STOP);
    let asks = stage.start_at(&asks, &node);
    stage.hear(asks, "ASKED", 1).await;
    stage.hear(holder, "RELEASED", 1).await;
    stage.signal(next, Signal::CONT);
    stage.hear(next, "HELD", 1).await;
    // The request, which the next is told of, too: it watches the same znode.
    stage.departure(1, 2).await;
    stage.watches(1).await;
    stage.kill(next);
    stage.close(1).await;
}

#[tokio::test]
async fn barrier() {
    let mut stage = Stage::new("/gates/import").await;
    let sets = example("barrier", &["set"]);
    let killed = stage.start(&sets);
    stage.hear(killed, "SET", 1).await;
    let passes: Vec<usize> = (0..3).map(|_| stage.start(&example("barrier", &[]))).collect();
    stage.watches(3).await;
    stage.kill(killed);
    let lifts = stage.start(&sets);
    stage.hear(lifts, "SET", 1).await;
    stage.departure(3, 0).await; // it outlives who has set it
    stage.enter(lifts);
    for who in passes {
        stage.hear(who, "PASSED", 1).await;
        stage.end(who).await;
    }
    stage.departure(3, 3).await;
    let audit = stage.audit().await;
    let is_lift = |line: &&lockkeeper_check::audit::AuditLine| {
        line.op == "delete" && line.path.as_deref() == Some("/gates/import")
    };
    let lifted = audit.iter().find(is_lift).expect("it was lifted").zxid;
    assert!(stage.said("PASSED").iter().all(|heard| heard.stamp > lifted), "nobody is early");
    stage.close(1).await;
}

#[tokio::test]
async fn double_barrier() {
    let mut stage = Stage::new("/meetings/step").await;
    let program = example("double_barrier", &["3"]);
    let early = [stage.start(&program), stage.start(&program)];
    stage.watches(2).await;
    let two_are_there = stage.mark().await;
    let late = stage.start(&program);
    for who in [early[0], early[1], late] {
        stage.hear(who, "ENTERED", 1).await;
    }
    assert!(stage.said("ENTERED").iter().all(|heard| heard.stamp > two_are_there));
    stage.kill(late); // who crashes inside is not waited for
    stage.enter(early[0]);
    let one_has_finished = stage.mark().await;
    stage.enter(early[1]);
    for who in early {
        stage.hear(who, "LEFT", 1).await;
        stage.end(who).await;
    }
    assert!(stage.said("LEFT").iter().all(|heard| heard.stamp > one_has_finished));
    let entered = stage.said("ENTERED").into_iter().map(|heard| heard.stamp).min();
    let is_member = |line: &&lockkeeper_check::audit::AuditLine| {
        let path = line.path.as_deref().unwrap_or_default();
        line.op.starts_with("create") && line.result.is_ok() && path.starts_with("/meetings/step/")
    };
    let audit = stage.audit().await;
    let before = audit.iter().filter(is_member).filter(|line| Some(line.zxid) < entered);
    assert_eq!(before.count(), 4, "three members and the sign that they are all there");
    stage.close(1).await;
}
