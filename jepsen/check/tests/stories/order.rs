//! Stories of zxids and of the order of requests, reads and numbers.

use lockkeeper_check::history::Outcome;
use lockkeeper_check::op::{Answer, Call, Code, Mode};
use lockkeeper_check::verdict::Rule;

use super::Story;
use crate::common::{Service, children, create, delete, exists, get, honest, set};

pub fn stories() -> Vec<Story> {
    vec![
        everything(),
        wrong_version(),
        lost_update_without_zxids(),
        servers_that_differ(),
        numbers(),
        number_given_twice(),
        pipeline(),
        left_out(),
        answered_out_of_order(),
        read_of_what_was_sent_behind_it(),
        back_in_time(),
        sync_then_read(),
        old_read_behind_sync(),
    ]
}

fn sync(path: &str) -> Call {
    Call::Sync { path: path.to_owned() }
}

/// Clients that do everything, some outcomes unknown, on three servers that agree.
fn everything() -> Story {
    let (history, lines) = honest(7, 400);
    let audit = vec![lines.clone(), lines.clone(), lines];
    Story { name: "everything", about: &[], found: &[], history, audit }.about(&[
        "agreement",
        "witness",
        "sequence",
        "ephemerals",
        "monotonic",
        "fifo",
    ])
}

fn wrong_version() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(2, children("/")).unwrap();
    let mut story = Story::of("wrong_cversion", service).found(&[("witness", Rule::Replay)]);
    let Ok(Answer::Children(_, Some(stat))) = story.result_mut(1) else { unreachable!() };
    stat.cversion = 9;
    story
}

/// A service that gives no zxids: only an order of the answers themselves can be looked for.
fn lost_update_without_zxids() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(1, set("/a", "1", 0)).unwrap();
    service.run(2, set("/a", "2", 0)).unwrap_err();
    service.run(2, set("/a", "2", -1)).unwrap();
    service.run(3, exists("/a")).unwrap();
    let mut story = Story::of("lost_update_without_zxids", service)
        .unaudited()
        .found(&[("search", Rule::Linearizable)]);
    *story.result_mut(2) = story.result_mut(1).clone();
    for operation in &mut story.history.operations {
        let Outcome::Replied { zxid, .. } = &mut operation.outcome else { unreachable!() };
        *zxid = -1;
    }
    story
}

fn servers_that_differ() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(1, set("/a", "1", -1)).unwrap();
    let mut story =
        Story::of("servers_that_differ", service).found(&[("agreement", Rule::Agreement)]);
    let mut other = story.audit[0].clone();
    other[0].digest = "other".to_owned();
    story.audit.push(other);
    story
}

fn queue_of_two() -> Service {
    let mut service = Service::default();
    service.run(1, create("/q", Mode::Persistent)).unwrap();
    service.run(1, create("/q/x-", Mode::PersistentSequential)).unwrap();
    service.run(2, delete("/q/x-0000000000")).unwrap();
    service.run(2, create("/q/x-", Mode::PersistentSequential)).unwrap();
    service
}

/// A number is not given again when its znode is gone.
fn numbers() -> Story {
    Story::of("numbers", queue_of_two()).about(&["sequence", "search"])
}

fn number_given_twice() -> Story {
    let mut story = Story::of("number_given_twice", queue_of_two())
        .found(&[("witness", Rule::Replay), ("sequence", Rule::Sequence)]);
    let Ok(Answer::PathStat(path, _)) = story.result_mut(3) else { unreachable!() };
    "/q/x-0000000000".clone_into(path);
    let given = path.clone();
    story.audit[0][3].path = Some(given);
    story
}

/// Two requests in flight at once, answered in order; then two whose answers are lost with the
/// connection, of which the first was carried out.
fn pipeline() -> Story {
    let mut service = Service::default();
    let first = service.invoke(1, 1, create("/a", Mode::Persistent));
    let second = service.invoke(1, 1, set("/a", "1", 0));
    let answers = [service.take_effect(first), service.take_effect(second)];
    for (id, answer) in [first, second].into_iter().zip(answers) {
        service.answer(id, answer);
    }
    let third = service.invoke(1, 1, set("/a", "2", 1));
    let fourth = service.invoke(1, 1, set("/a", "3", 2));
    let _ = service.take_effect(third);
    service.lose(third);
    service.lose(fourth);
    Story::of("pipeline", service).about(&["fifo", "search"])
}

fn left_out() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    let first = service.invoke(1, 1, set("/a", "1", -1));
    let second = service.invoke(1, 1, set("/a", "2", -1));
    let _ = service.take_effect(second);
    service.lose(first);
    service.lose(second);
    Story::of("left_out", service).found(&[("fifo", Rule::Fifo)])
}

fn answered_out_of_order() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    let first = service.invoke(1, 1, get("/a"));
    let second = service.invoke(1, 1, exists("/a"));
    let answers = [service.take_effect(first), service.take_effect(second)];
    let [one, two] = answers;
    service.answer(second, two);
    service.answer(first, one);
    Story::of("answered_out_of_order", service).found(&[("fifo", Rule::Fifo)])
}

/// A read waits for something and shows what its client wrote later.
fn read_of_what_was_sent_behind_it() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    let read = service.invoke(1, 1, exists("/b"));
    let write = service.invoke(1, 1, create("/b", Mode::Persistent));
    let written = service.take_effect(write);
    let shown = service.take_effect(read);
    service.answer(read, shown);
    service.answer(write, written);
    Story::of("read_of_what_was_sent_behind_it", service).found(&[("fifo", Rule::Fifo)])
}

/// A session that moves to a server which is behind sees what it had seen undone.
fn back_in_time() -> Story {
    let mut service = Service::default();
    let before = service.zxid;
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(2, exists("/a")).unwrap();
    let read = service.invoke(2, 2, exists("/a"));
    service.answer(read, (before, Err(Code::NO_NODE)));
    Story::of("back_in_time", service).found(&[("monotonic", Rule::Monotonic)])
}

fn sync_then_read() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    service.run(2, sync("/")).unwrap();
    service.run(2, children("/")).unwrap();
    Story::of("sync_then_read", service).about(&["sync", "witness", "monotonic"])
}

/// The leader that answered the `sync` was one no more.
fn old_read_behind_sync() -> Story {
    let mut service = Service::default();
    let old = service.invoke(9, 9, children("/"));
    let (before, answer) = service.take_effect(old);
    service.answer(old, (before, answer.clone()));
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    let synced = service.invoke(2, 2, sync("/"));
    service.answer(synced, (before, Ok(Answer::Done)));
    let read = service.invoke(2, 2, children("/"));
    service.answer(read, (before, answer));
    Story::of("old_read_behind_sync", service).found(&[("sync", Rule::Sync)])
}
