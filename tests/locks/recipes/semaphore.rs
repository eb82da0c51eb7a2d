//! The lock of a limited number of holders.

use std::time::Duration;

use lockkeeper::recipes::{Guard, LockError, LostReason, Semaphore, Wait};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Client;

use super::{children, client, client_for, drop_anywhere, enter_as, is_empty, server};
use testkit::proxy::{Proxy, Weather};
use testkit::{PATIENCE, wait_until};

fn semaphore(permits: usize) -> Semaphore {
    Semaphore::new("/sem", permits).expect("a path")
}

/// Begins to acquire a lease, and returns when so many wait, the one that waits for a lease included.
async fn queue(
    client: &Client,
    observer: &Client,
    permits: usize,
    waiting: usize,
) -> JoinHandle<Result<Guard, LockError>> {
    let client = client.clone();
    let task =
        tokio::spawn(async move { semaphore(permits).acquire(&client, Wait::Forever).await });
    wait_until("it queues", async || children(observer, "/sem/locks").await.len() == waiting).await;
    task
}

#[tokio::test]
async fn as_many_hold_it_as_there_are_permits_and_the_others_come_in_order() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(semaphore(3).acquire(&client, Wait::For(PATIENCE)).await.unwrap());
    }
    wait_until("nobody queues", async || children(&client, "/sem/locks").await.is_empty()).await;
    let name = held[0].node();
    assert!(name.starts_with("/sem/leases/_c_") && name.contains("-lease-"), "{name}");
    let refused = semaphore(3).acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    let mut waiting = Vec::new();
    for count in 1..=4 {
        waiting.push(queue(&client, &client, 3, count).await);
    }
    for next in waiting {
        assert!(!next.is_finished());
        assert!(children(&client, "/sem/leases").await.len() <= 4);
        held.remove(0).release().await.unwrap();
        let next = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
        assert!(held.iter().all(|holder| holder.token() < next.token()));
        held.push(next);
    }
    for guard in held {
        guard.release().await.unwrap();
    }
    is_empty(&client, "/sem/leases").await;
    is_empty(&client, "/sem/locks").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn one_release_wakes_one_waiter_and_who_is_next_in_the_queue() {
    const WAITERS: usize = 10;
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let first = semaphore(1).acquire(&client, Wait::No).await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=WAITERS {
        waiting.push(queue(&client, &client, 1, count).await);
    }
    let each_watches = async || server.status().watch_count == WAITERS as u64;
    wait_until("each watches", each_watches).await;
    let before: u64 = server.status().events_fired.iter().sum();
    first.release().await.unwrap();
    let next = timeout(PATIENCE, waiting.remove(0)).await.unwrap().unwrap().unwrap();
    let fired = || server.status().events_fired.iter().sum::<u64>() - before;
    let is_settled = async || fired() >= 2 && server.status().watch_count == WAITERS as u64 - 1;
    wait_until("the next waits for a lease", is_settled).await;
    // The waiter was told of the lease, and the one behind it that it is the first now.
    assert_eq!(fired(), 2);
    for task in &waiting {
        task.abort();
    }
    drop((waiting, next));
    is_empty(&client, "/sem/leases").await;
    is_empty(&client, "/sem/locks").await;
    wait_until("no watch", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_tries_does_not_trouble_those_who_wait() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let held = semaphore(1).acquire(&client, Wait::No).await.unwrap();
    let waits = queue(&client, &client, 1, 1).await;
    wait_until("it watches", async || server.status().watch_count == 1).await;
    let before = server.status().events_fired;
    let refused = semaphore(1).acquire(&client, Wait::For(Duration::ZERO)).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    assert_eq!(server.status().events_fired, before);
    held.release().await.unwrap();
    let next = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_is_dropped_anywhere_leaves_nothing() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let held = semaphore(1).acquire(&client, Wait::No).await.unwrap();
    let left = [("/sem/leases", 1), ("/sem/locks", 0)];
    drop_anywhere(&server, &client, &left, async || {
        semaphore(1).acquire(&client, Wait::Forever).await
    })
    .await;
    let short = Wait::For(Duration::from_millis(50));
    let refused = semaphore(1).acquire(&client, short).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    is_empty(&client, "/sem/locks").await;
    wait_until("no watch", async || server.status().watch_count == 0).await;
    drop(held);
    is_empty(&client, "/sem/leases").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn leases_of_others_and_what_is_none_count() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    semaphore(2).acquire(&client, Wait::No).await.unwrap().release().await.unwrap();
    let theirs = "_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-lease-";
    let foreign = enter_as(&client, "/sem/leases", theirs).await;
    let strange = enter_as(&client, "/sem/leases", "strange").await;
    let refused = semaphore(2).acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    let waits = queue(&client, &client, 2, 1).await;
    client.delete(&foreign, None).await.unwrap();
    let guard = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    client.delete(&strange, None).await.unwrap();
    // As Curator's next would see it: two is the limit, one of them its own.
    let theirs = enter_as(&client, "/sem/leases", theirs).await;
    assert_eq!(children(&client, "/sem/leases").await.len(), 2);
    client.delete(&theirs, None).await.unwrap();
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_somebody_breaks_is_lost() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let guard = semaphore(1).acquire(&client, Wait::No).await.unwrap();
    let waits = queue(&client, &client, 1, 1).await;
    client.delete(&guard.node(), None).await.unwrap();
    assert_eq!(timeout(PATIENCE, guard.lost()).await.unwrap(), LostReason::Removed);
    let next = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert!(next.token() > guard.token());
    drop(guard);
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_knows_before_its_lease_is_given_away() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let cut_off = client_for(&proxy.connect_string(), Duration::from_secs(2)).await;
    let guard = semaphore(1).acquire(&cut_off, Wait::No).await.unwrap();
    let waits = queue(&observer, &observer, 1, 1).await;
    proxy.set(Weather::BlackHole);
    let lost = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost, LostReason::Silence);
    assert!(!waits.is_finished());
    let next = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
    drop(guard);
    server.stop().await.unwrap();
}

#[test]
fn a_semaphore_without_permits_is_refused() {
    assert!(matches!(Semaphore::new("/sem", 0), Err(LockError::Path { .. })));
}
