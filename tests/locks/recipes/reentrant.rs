//! The lock that its owner can take again.

use std::time::Duration;

use lockkeeper::recipes::{Hold, LockError, LostReason, ReentrantMutex, Wait};
use tokio::time::timeout;

use super::{acquire, children, client, drop_anywhere, is_empty, lock, server};
use testkit::{PATIENCE, wait_until};

fn reentrant() -> ReentrantMutex {
    ReentrantMutex::new(lock("/l"))
}

#[tokio::test]
async fn only_the_end_of_the_last_guard_gives_the_lock_away() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let owner = reentrant().owner(&client);
    let outer = owner.acquire(Wait::No).await.unwrap();
    // A clone is the same owner, wherever it runs.
    let same = owner.clone();
    let inner = tokio::spawn(async move { same.acquire(Wait::No).await }).await.unwrap().unwrap();
    assert_eq!((inner.token(), inner.node()), (outer.token(), outer.node()));
    assert_eq!(children(&client, "/l").await.len(), 1);
    assert!(!outer.release().await.unwrap());
    assert_eq!(inner.hold(), Hold::Held);
    assert_eq!(children(&client, "/l").await.len(), 1);
    assert!(inner.release().await.unwrap());
    assert!(children(&client, "/l").await.is_empty());
    let again = owner.acquire(Wait::No).await.unwrap();
    drop(again);
    is_empty(&client, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn two_owners_exclude_each_other_on_one_client_and_everybody_else() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let (one, other) = (reentrant().owner(&client), reentrant().owner(&client));
    let held = one.acquire(Wait::No).await.unwrap();
    for wait in [Wait::No, Wait::For(Duration::from_millis(50))] {
        let refused = other.acquire(wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{wait:?}: {refused:?}");
        let refused = lock("/l").acquire(&client, wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{wait:?}: {refused:?}");
    }
    drop_anywhere(&server, &client, &[("/l", 1)], async || other.acquire(Wait::Forever).await)
        .await;
    held.release().await.unwrap();
    other.acquire(Wait::No).await.unwrap().release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn while_one_task_of_an_owner_waits_the_others_wait_for_it_as_long_as_they_may() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let holder = acquire(&client, "/l").await;
    let owner = reentrant().owner(&client);
    let first = {
        let owner = owner.clone();
        tokio::spawn(async move { owner.acquire(Wait::Forever).await })
    };
    wait_until("it queues", async || children(&client, "/l").await.len() == 2).await;
    for wait in [Wait::No, Wait::For(Duration::from_millis(50))] {
        let refused = owner.acquire(wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{wait:?}: {refused:?}");
    }
    // One contender for all of them.
    assert_eq!(children(&client, "/l").await.len(), 2);
    let second = {
        let owner = owner.clone();
        tokio::spawn(async move { owner.acquire(Wait::Forever).await })
    };
    holder.release().await.unwrap();
    let first = timeout(PATIENCE, first).await.unwrap().unwrap().unwrap();
    let second = timeout(PATIENCE, second).await.unwrap().unwrap().unwrap();
    assert_eq!(first.token(), second.token());
    drop((first, second));
    is_empty(&client, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_loss_is_one_for_all_guards_and_over_when_they_are_dropped() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let owner = reentrant().owner(&client);
    let (outer, inner) =
        (owner.acquire(Wait::No).await.unwrap(), owner.acquire(Wait::No).await.unwrap());
    client.delete(&outer.node(), None).await.unwrap();
    for guard in [&outer, &inner] {
        assert_eq!(timeout(PATIENCE, guard.lost()).await.unwrap(), LostReason::Removed);
    }
    let refused = owner.acquire(Wait::No).await;
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Removed))), "{refused:?}");
    assert!(!outer.release().await.unwrap());
    let refused = inner.release().await;
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Removed))), "{refused:?}");
    owner.acquire(Wait::No).await.unwrap().release().await.unwrap();
    server.stop().await.unwrap();
}
