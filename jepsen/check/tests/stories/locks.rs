//! Stories of locks, of the stores that they guard, and of queues.

use lockkeeper_check::history::{NoticeKind, StoreWrite};
use lockkeeper_check::liveness::HEAL;
use lockkeeper_check::op::{Answer, Call, Mode};
use lockkeeper_check::verdict::Rule;

use super::Story;
use crate::common::{Service, children, create, delete};

pub fn stories() -> Vec<Story> {
    vec![
        handed_over(),
        waiter_of_an_ended_session(),
        granted_before_it_was(),
        passed_over(),
        released_too_late(),
        paused_holder(),
        told_and_still_holding(),
        shared_lock(),
        shared_lock_with_a_writer_too_early(),
        readers_who_outstay_their_session(),
        got_once_the_faults_are_over(),
        waited_for_when_the_run_ends(),
        never_told_that_it_is_the_lowest(),
        nobody_lets_go(),
        stays_without_its_session(),
        fenced_store(),
        old_token_accepted(),
        store_lost_an_update(),
        queue(),
        queue_lost_an_element(),
        queue_gave_an_element_twice(),
    ]
}

const FIRST: &str = "/l/n-0000000000";
const SECOND: &str = "/l/n-0000000001";

/// A client asks for the lock; the token that it will have.
fn ask(service: &mut Service, process: u64) -> i64 {
    let made = service.run(process, create("/l/n-", Mode::EphemeralSequential));
    let Ok(Answer::PathStat(_, stat)) = made else { unreachable!() };
    stat.czxid
}

fn hold(service: &mut Service, process: u64, znode: &str, token: i64) {
    let (lock, znode) = ("/l".to_owned(), znode.to_owned());
    service.tell(process, NoticeKind::Holds { lock, znode, token });
}

fn let_go(service: &mut Service, process: u64) {
    service.tell(process, NoticeKind::HoldsNoMore { lock: "/l".to_owned() });
}

/// Two clients ask, the first holds.
fn two() -> (Service, i64) {
    let mut service = Service::default();
    service.run(1, create("/l", Mode::Persistent)).unwrap();
    let first = ask(&mut service, 1);
    let second = ask(&mut service, 2);
    service.run(1, children("/l")).unwrap();
    hold(&mut service, 1, FIRST, first);
    (service, second)
}

fn handed_over() -> Story {
    let (mut service, token) = two();
    let_go(&mut service, 1);
    service.run(1, delete(FIRST)).unwrap();
    service.run(2, children("/l")).unwrap();
    hold(&mut service, 2, SECOND, token);
    let_go(&mut service, 2);
    Story::of("lock_handed_over", service).about(&["locks", "belief", "ephemerals"])
}

/// A waiter whose session has ended takes the lock when the holder leaves.
fn waiter_of_an_ended_session() -> Story {
    let (mut service, token) = two();
    service.expire(2);
    let_go(&mut service, 1);
    service.run(1, delete(FIRST)).unwrap();
    hold(&mut service, 2, SECOND, token);
    Story::of("lock_of_an_ended_session", service).found(&[("locks", Rule::LockHolder)])
}

fn granted_before_it_was() -> Story {
    let (mut service, token) = two();
    let_go(&mut service, 1);
    hold(&mut service, 2, SECOND, token);
    service.run(1, delete(FIRST)).unwrap();
    Story::of("lock_held_too_early", service).found(&[("locks", Rule::LockHolder)])
}

/// Who asks later gets the lower number: it was not counted on when the lock's znode was made anew.
fn passed_over() -> Story {
    let (mut service, _) = two();
    service.run(3, create("/l/m-0000000000", Mode::Ephemeral)).unwrap();
    let_go(&mut service, 1);
    service.run(1, delete(FIRST)).unwrap();
    service.run(3, create("/l/m-0000000000", Mode::Ephemeral)).unwrap_err();
    service.run(2, children("/l")).unwrap();
    service.run(4, create("/l/a-0000000000", Mode::Ephemeral)).unwrap();
    Story::of("lock_passed_over", service).found(&[("locks", Rule::LockHolder)])
}

/// It deletes its znode first and stops believing afterwards.
fn released_too_late() -> Story {
    let (mut service, token) = two();
    service.run(1, delete(FIRST)).unwrap();
    service.run(2, children("/l")).unwrap();
    hold(&mut service, 2, SECOND, token);
    let_go(&mut service, 1);
    Story::of("lock_released_too_late", service).found(&[("belief", Rule::LockBelief)])
}

/// Nobody can help it: the first holder is paused and hears of nothing.
fn paused_holder() -> Story {
    let (mut service, token) = two();
    service.expire(1);
    service.run(2, children("/l")).unwrap();
    hold(&mut service, 2, SECOND, token);
    service.tell(1, NoticeKind::Expired);
    let_go(&mut service, 1);
    Story::of("lock_of_a_paused_client", service).about(&["locks", "belief"])
}

fn told_and_still_holding() -> Story {
    let (mut service, token) = two();
    service.expire(1);
    service.tell(1, NoticeKind::Expired);
    service.run(2, children("/l")).unwrap();
    hold(&mut service, 2, SECOND, token);
    let_go(&mut service, 1);
    Story::of("lock_held_against_better_knowledge", service).found(&[("belief", Rule::LockBelief)])
}

/// Two readers hold a lock at once, then a writer. What they hold and the writer's token.
fn two_readers_and_a_writer(service: &mut Service) -> i64 {
    service.run(1, create("/l", Mode::Persistent)).unwrap();
    let mut tokens = Vec::new();
    for (process, asked) in [(1, "/l/read-1-"), (2, "/l/read-2-"), (3, "/l/write-3-")] {
        let made = service.run(process, create(asked, Mode::EphemeralSequential));
        let Ok(Answer::PathStat(_, stat)) = made else { unreachable!() };
        tokens.push(stat.czxid);
    }
    for (process, znode) in [(1, READERS[0]), (2, READERS[1])] {
        service.run(process, children("/l")).unwrap();
        hold(service, process, znode, tokens[usize::try_from(process).unwrap() - 1]);
    }
    tokens[2]
}

const READERS: [&str; 2] = ["/l/read-1-0000000000", "/l/read-2-0000000001"];
const WRITER: &str = "/l/write-3-0000000002";

fn shared_lock() -> Story {
    let mut service = Service::default();
    let token = two_readers_and_a_writer(&mut service);
    for (process, znode) in [(1, READERS[0]), (2, READERS[1])] {
        let_go(&mut service, process);
        service.run(process, delete(znode)).unwrap();
    }
    service.run(3, children("/l")).unwrap();
    hold(&mut service, 3, WRITER, token);
    let_go(&mut service, 3);
    Story::of("lock_shared_by_readers", service).about(&["locks", "belief"])
}

/// The writer goes by the first reader alone.
fn shared_lock_with_a_writer_too_early() -> Story {
    let mut service = Service::default();
    let token = two_readers_and_a_writer(&mut service);
    let_go(&mut service, 1);
    service.run(1, delete(READERS[0])).unwrap();
    service.run(3, children("/l")).unwrap();
    let_go(&mut service, 2);
    hold(&mut service, 3, WRITER, token);
    service.run(2, delete(READERS[1])).unwrap();
    let story = Story::of("lock_written_among_readers", service);
    story.found(&[("locks", Rule::LockHolder)])
}

/// A reader goes on reading while the writer writes, though it was told.
fn readers_who_outstay_their_session() -> Story {
    let mut service = Service::default();
    let token = two_readers_and_a_writer(&mut service);
    let_go(&mut service, 1);
    service.run(1, delete(READERS[0])).unwrap();
    service.expire(2);
    service.tell(2, NoticeKind::Expired);
    service.run(3, children("/l")).unwrap();
    hold(&mut service, 3, WRITER, token);
    let_go(&mut service, 2);
    let story = Story::of("lock_read_against_better_knowledge", service);
    story.found(&[("belief", Rule::LockBelief)])
}

/// Two clients with sessions of 4 s, the first holds, and the faults are over. The second's token.
fn two_in_calm() -> (Service, i64) {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.connect(2, "n1", 2, 0);
    service.run(1, create("/l", Mode::Persistent)).unwrap();
    let first = ask(&mut service, 1);
    let second = ask(&mut service, 2);
    service.run(1, children("/l")).unwrap();
    hold(&mut service, 1, FIRST, first);
    let now = service.tick();
    service.recorder.fault(now, HEAL, "start n1");
    (service, second)
}

/// Time passes, in which some clients are heard of.
fn pass(service: &mut Service, seconds: u64, processes: &[u64]) {
    for _ in 0..seconds {
        service.wait_ms(1000);
        for process in processes {
            service.run(*process, Call::Ping).unwrap();
        }
    }
}

/// Two turns that are both shorter than the limit, and longer together.
fn got_once_the_faults_are_over() -> Story {
    let (mut service, token) = two_in_calm();
    pass(&mut service, 10, &[1, 2]);
    let_go(&mut service, 1);
    service.run(1, delete(FIRST)).unwrap();
    pass(&mut service, 10, &[1, 2]);
    service.run(2, children("/l")).unwrap();
    hold(&mut service, 2, SECOND, token);
    let_go(&mut service, 2);
    Story::of("lock_got_in_calm", service).about(&["liveness", "locks"])
}

/// The run ends before anybody can say that it was in vain.
fn waited_for_when_the_run_ends() -> Story {
    let (mut service, _) = two_in_calm();
    pass(&mut service, 10, &[1, 2]);
    Story::of("lock_waited_for_at_the_end", service).about(&["liveness"])
}

/// The second is never woken.
fn never_told_that_it_is_the_lowest() -> Story {
    let (mut service, _) = two_in_calm();
    pass(&mut service, 2, &[1, 2]);
    let_go(&mut service, 1);
    service.run(1, delete(FIRST)).unwrap();
    pass(&mut service, 16, &[1, 2]);
    Story::of("lock_of_nobody", service).found(&[("liveness", Rule::LockLiveness)])
}

/// The first keeps its session and never comes to an end.
fn nobody_lets_go() -> Story {
    let (mut service, _) = two_in_calm();
    pass(&mut service, 16, &[1, 2]);
    Story::of("lock_never_let_go", service).found(&[("liveness", Rule::LockLiveness)])
}

/// A client is told that its session is gone, and its znode stands in everybody's way.
fn stays_without_its_session() -> Story {
    let (mut service, _) = two_in_calm();
    pass(&mut service, 5, &[2]);
    service.tell(1, NoticeKind::Expired);
    let_go(&mut service, 1);
    pass(&mut service, 1, &[2]);
    Story::of("lock_of_who_is_gone", service).found(&[("liveness", Rule::LockOrphan)])
}

fn store(
    service: &mut Service,
    process: u64,
    token: i64,
    (read, wrote): (i64, i64),
    accepted: bool,
) {
    let store = "s".to_owned();
    service.tell(process, NoticeKind::Stored(StoreWrite { store, token, read, wrote, accepted }));
}

fn fenced_store() -> Story {
    let mut service = Service::default();
    service.run(1, create("/l", Mode::Persistent)).unwrap();
    store(&mut service, 1, 5, (0, 1), true);
    store(&mut service, 2, 7, (1, 2), true);
    store(&mut service, 1, 5, (1, 3), false);
    store(&mut service, 2, 7, (2, 4), true);
    Story::of("fenced_store", service).about(&["fencing"])
}

fn old_token_accepted() -> Story {
    let mut service = Service::default();
    service.run(1, create("/l", Mode::Persistent)).unwrap();
    store(&mut service, 2, 7, (0, 2), true);
    store(&mut service, 1, 5, (2, 3), true);
    Story::of("old_token_accepted", service).found(&[("fencing", Rule::Fencing)])
}

fn store_lost_an_update() -> Story {
    let mut service = Service::default();
    service.run(1, create("/l", Mode::Persistent)).unwrap();
    store(&mut service, 1, 5, (0, 1), true);
    store(&mut service, 2, 7, (0, 2), true);
    Story::of("store_lost_an_update", service).found(&[("fencing", Rule::LostUpdate)])
}

fn element(at: u32) -> String {
    format!("/q/e-{at:010}")
}

/// Three are put in, one is taken, and the answer to another taking is lost.
fn three() -> Service {
    let mut service = Service::default();
    service.run(1, create("/q", Mode::Persistent)).unwrap();
    for _ in 0..3 {
        service.run(1, create("/q/e-", Mode::PersistentSequential)).unwrap();
    }
    service.run(2, delete(&element(0))).unwrap();
    let lost = service.invoke(3, 3, delete(&element(1)));
    let _ = service.take_effect(lost);
    service.lose(lost);
    service
}

fn queue() -> Story {
    let mut service = three();
    service.run(1, children("/q")).unwrap();
    Story::of("queue", service).about(&["queue", "sequence"])
}

fn queue_lost_an_element() -> Story {
    let mut service = three();
    service.run(1, children("/q")).unwrap();
    let mut story = Story::of("queue_lost_an_element", service)
        .found(&[("witness", Rule::Replay), ("queue", Rule::Queue)]);
    let at = story.history.operations.len() - 1;
    let Ok(Answer::Children(names, _)) = story.result_mut(at) else { unreachable!() };
    names.clear();
    story
}

fn queue_gave_an_element_twice() -> Story {
    let mut service = three();
    service.run(2, Call::Delete { path: element(0), version: -1 }).unwrap_err();
    service.run(1, children("/q")).unwrap();
    let mut story = Story::of("queue_gave_an_element_twice", service)
        .found(&[("witness", Rule::Replay), ("queue", Rule::Queue)]);
    let at = story.history.operations.len() - 2;
    *story.result_mut(at) = Ok(Answer::Done);
    let line = story.audit[0].last_mut().unwrap();
    line.result = Ok(());
    story
}
