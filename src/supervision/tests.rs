//! A panic of each kind of thread and task is told, once, in time.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Longer than anything takes that is to happen.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq, Eq)]
enum Word {
    Ask(Task),
    Late(Task),
}

struct Told(Sender<Word>);

impl End for Told {
    fn ask(&self, failure: &Failure) {
        self.0.send(Word::Ask(failure.task)).ok();
    }

    fn is_late(&self, failure: &Failure) {
        self.0.send(Word::Late(failure.task)).ok();
    }
}

fn supervisor() -> (Arc<Supervisor>, Receiver<Word>) {
    let (sender, told) = channel();
    (Supervisor::new(Told(sender)), told)
}

/// Runs a task as the first of a server, until it ends or panics.
fn run(supervisor: &Arc<Supervisor>, task: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // A panic is told to the supervisor.
    let _ = supervisor.thread(Task::Server, move || runtime.block_on(task)).unwrap().join();
}

/// Calls this when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_panic_is_told_while_what_it_unwinds_still_waits_and_then_that_it_is_late() {
    let (supervisor, told) = supervisor();
    let (go, waits) = channel::<()>();
    let thread = supervisor.thread(Task::Driver, move || {
        let _disk = OnDrop(|| waits.recv().unwrap_or_default());
        panic!("a\n{}", "b");
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Ask(Task::Driver)));
    let Failure { task, message, location } = supervisor.failure().unwrap().clone();
    assert_eq!((task, message.as_str()), (Task::Driver, "a b"));
    assert!(location.unwrap().starts_with("src/supervision/tests.rs:"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Late(Task::Driver)));
    drop(go);
    assert!(thread.unwrap().join().is_err());
}

#[test]
fn a_panic_of_what_a_task_spawns_is_its_servers_whatever_becomes_of_the_handle() {
    type Spawn = fn();
    let spawns: [(Task, Spawn); 4] = [
        (Task::Client, || drop(spawn(Task::Client, async { panic!("x") }))),
        (Task::ImageWork, || drop(spawn_blocking(Task::ImageWork, || panic!("x")))),
        (Task::Log, || drop(thread(Task::Log, || panic!("x")))),
        (Task::Peer, || {
            spawn(Task::Peers, async {
                let mut set = TaskSet::default();
                set.spawn(Task::Peer, async { panic!("x") });
                assert!(set.join_next().await.unwrap().unwrap_err().is_panic());
            });
        }),
    ];
    for (task, begin) in spawns {
        let (supervisor, told) = supervisor();
        run(&supervisor, async move {
            begin();
            while current().unwrap().failure().is_none() {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Ask(task)));
    }
}

#[test]
fn a_destructor_that_panics_in_a_task_that_is_cancelled_is_told() {
    let (supervisor, told) = supervisor();
    run(&supervisor, async {
        let task = spawn(Task::Link, async {
            let _held = OnDrop(|| panic!("x"));
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        task.abort();
        let _ = task.await;
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Ask(Task::Link)));
}

#[test]
fn what_is_contained_ends_nothing_and_only_the_first_panic_counts() {
    let (supervisor, told) = supervisor();
    run(&supervisor, async {
        assert_eq!(contain(|| panic!("sled")), Err::<(), _>("sled".to_owned()));
        assert_eq!(contain(|| 7), Ok(7));
    });
    assert_eq!(supervisor.failure(), None);
    run(&supervisor, async { panic!("first") });
    run(&supervisor, async { panic!("second") });
    assert_eq!(supervisor.failure().unwrap().message, "first");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Ask(Task::Server)));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Late(Task::Server)));
    assert!(told.try_recv().is_err());
}

#[test]
fn a_future_that_is_caught_leaves_what_it_borrowed() {
    let (supervisor, told) = supervisor();
    let (kept, was_kept) = channel();
    run(&supervisor, async move {
        let mut driver = vec![1];
        let turn = async {
            driver.push(2);
            panic!("x")
        };
        assert_eq!(caught::<()>(turn).await, None);
        kept.send(driver).unwrap();
    });
    assert_eq!(was_kept.recv_timeout(PATIENCE), Ok(vec![1, 2]));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Word::Ask(Task::Server)));
}
