//! The locks that are there to show what a herd is, and that they are locks nevertheless.

use std::time::Duration;

use lockkeeper::Server;
use lockkeeper::recipes::{
    ChildWatchLock, Guard, Hold, LockError, LostReason, RecipeOptions, SimpleLock, Wait,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{acquire, children, client, clients, drop_anywhere, enter_as, is_empty, server};
use testkit::proxy::{Proxy, Weather};
use testkit::{PATIENCE, wait_until};

/// How many wait in the tests of the herd.
const HERD: usize = 12;

fn simple() -> SimpleLock {
    SimpleLock::new("/l").expect("a path")
}

fn naive() -> ChildWatchLock {
    ChildWatchLock::new("/l").expect("a path")
}

fn events(server: &Server) -> u64 {
    server.status().events_fired.iter().sum()
}

type Waiting = JoinHandle<Result<Guard, LockError>>;

/// Releases `held`, with all others waiting, and has one after another of them release it when it has
/// it: each time all who wait are woken, by the server's count.
async fn stampede(server: &Server, mut held: Guard, mut waiting: Vec<Waiting>) {
    while let Some(all) = (waiting.len() > HERD / 2).then_some(waiting.len() as u64) {
        wait_until("all wait", async || server.status().watch_count == all).await;
        assert!(waiting.iter().all(|task| !task.is_finished()), "one at a time");
        let (token, before) = (held.token(), events(server));
        held.release().await.unwrap();
        wait_until("one has it", async || waiting.iter().any(Waiting::is_finished)).await;
        let next = waiting.iter().position(Waiting::is_finished).expect("one has it");
        held = waiting.remove(next).await.unwrap().unwrap();
        assert!(held.token() > token);
        wait_until("the others wait", async || server.status().watch_count == all - 1).await;
        assert_eq!(events(server) - before, all);
    }
    for task in waiting {
        task.abort();
    }
    held.release().await.unwrap();
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
}

#[tokio::test]
async fn a_release_of_the_simple_lock_wakes_all_who_wait() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let held = simple().acquire(&client, Wait::No).await.unwrap();
    assert_eq!(held.node(), "/l/lock");
    let wait = async |client| simple().acquire(&client, Wait::Forever).await;
    let waiting = clients(&server, HERD).await.into_iter().map(|client| tokio::spawn(wait(client)));
    stampede(&server, held, waiting.collect()).await;
    is_empty(&client, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_release_of_the_naive_lock_wakes_all_who_wait_and_so_does_an_arrival() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let held = naive().acquire(&client, Wait::No).await.unwrap();
    let mut waiting = Vec::new();
    for client in clients(&server, HERD).await {
        let (before, woken) = (events(&server), waiting.len() as u64);
        let wait = async move { naive().acquire(&client, Wait::Forever).await };
        waiting.push(tokio::spawn(wait));
        wait_until("all were woken", async || events(&server) - before == woken).await;
        wait_until("all wait", async || server.status().watch_count == woken + 1).await;
    }
    stampede(&server, held, waiting).await;
    is_empty(&client, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_naive_lock_and_a_mutex_on_one_path_exclude_each_other() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let guard = naive().acquire(&client, Wait::No).await.unwrap();
    let refused = super::lock("/l").acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    guard.release().await.unwrap();
    let guard = acquire(&client, "/l").await;
    let refused = naive().acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_gives_up_leaves_nothing_and_the_lock_alone() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let holder = simple().acquire(&client, Wait::No).await.unwrap();
    let short = Wait::For(Duration::from_millis(50));
    for wait in [Wait::No, short] {
        let refused = simple().acquire(&client, wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
        let refused = naive().acquire(&client, Wait::No).await;
        assert!(refused.is_ok(), "the simple lock's znode is no contender: {refused:?}");
    }
    drop_anywhere(&server, &client, &[("/l", 1)], async || {
        simple().acquire(&client, Wait::Forever).await
    })
    .await;
    assert_eq!(holder.hold(), Hold::Held);
    holder.release().await.unwrap();
    let holder = acquire(&client, "/l").await;
    drop_anywhere(&server, &client, &[("/l", 1)], async || {
        naive().acquire(&client, Wait::Forever).await
    })
    .await;
    holder.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_lost_the_simple_lock_does_not_give_away_that_of_the_next() {
    let server = server().await;
    let (one, other) =
        (client(&server.connect_string()).await, client(&server.connect_string()).await);
    let broken = simple().acquire(&one, Wait::No).await.unwrap();
    other.delete("/l/lock", None).await.unwrap();
    let next = simple().acquire(&other, Wait::No).await.unwrap();
    let refused = broken.release().await;
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Removed))), "{refused:?}");
    assert_eq!(children(&other, "/l").await, ["lock"]);
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simple_lock_whose_creation_was_not_answered_is_found_to_be_ours() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let unlucky = client(&proxy.connect_string()).await;
    simple().acquire(&unlucky, Wait::No).await.unwrap().release().await.unwrap();
    proxy.set(Weather::Deaf);
    let attempt = {
        let unlucky = unlucky.clone();
        tokio::spawn(async move { simple().acquire(&unlucky, Wait::Forever).await })
    };
    wait_until("it is created", async || children(&observer, "/l").await.len() == 1).await;
    proxy.set(Weather::Down);
    proxy.set(Weather::Fair);
    let guard = timeout(PATIENCE, attempt).await.unwrap().unwrap().unwrap();
    let stat = observer.check_stat("/l/lock").await.unwrap().unwrap();
    assert_eq!((guard.token(), guard.session()), (stat.czxid, stat.ephemeral_owner));
    let refused = simple().acquire(&unlucky, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    guard.release().await.unwrap();
    is_empty(&observer, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_options_of_one_recipe_are_those_of_all_also_the_refusal_of_strangers() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let holder = acquire(&client, "/l").await;
    let strict = ChildWatchLock::new(RecipeOptions::at("/l").refuse_strangers()).expect("a path");
    let waits = {
        let client = client.clone();
        tokio::spawn(async move { strict.acquire(&client, Wait::Forever).await })
    };
    wait_until("it queues", async || children(&client, "/l").await.len() == 2).await;
    enter_as(&client, "/l", "0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__").await;
    holder.release().await.unwrap();
    let refused = waits.await.unwrap();
    assert!(matches!(refused, Err(LockError::Foreign { .. })), "{refused:?}");
    server.stop().await.unwrap();
}
