//! Several locks at once.

use std::time::{Duration, Instant};

use lockkeeper::recipes::{Hold, LockError, LostReason, MultiLock, Wait};
use tokio::time::{sleep, timeout};

use super::{acquire, children, client, drop_anywhere, is_empty, lock, server};
use testkit::{PATIENCE, wait_until};

fn all_of(paths: &[&str]) -> MultiLock {
    MultiLock::new(paths.iter().map(|path| lock(path))).expect("different paths")
}

#[tokio::test]
async fn all_are_held_in_the_order_of_their_paths_and_given_away_together() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let held = all_of(&["/c", "/a", "/b"]).acquire(&client, Wait::No).await.unwrap();
    assert_eq!(held.hold(), Hold::Held);
    let nodes: Vec<_> = held.guards().iter().map(|guard| guard.node()[..3].to_string()).collect();
    assert_eq!(nodes, ["/a/", "/b/", "/c/"]);
    assert!(held.guards().is_sorted_by_key(|guard| guard.token()));
    assert!(held.guards().iter().all(|guard| held.deadline() <= guard.deadline()));
    for path in ["/a", "/b", "/c"] {
        let refused = lock(path).acquire(&client, Wait::No).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    }
    held.release().await.unwrap();
    for path in ["/a", "/b", "/c"] {
        assert!(children(&client, path).await.is_empty(), "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_does_not_get_one_gives_back_the_others() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let last = acquire(&client, "/c").await;
    let locks = all_of(&["/a", "/b", "/c"]);
    for wait in [Wait::No, Wait::For(Duration::from_millis(200))] {
        let refused = locks.acquire(&client, wait).await;
        assert!(matches!(&refused, Err(LockError::Held { path }) if path == "/c"), "{refused:?}");
        assert!(children(&client, "/a").await.is_empty());
        assert!(children(&client, "/b").await.is_empty());
        assert_eq!(children(&client, "/c").await.len(), 1);
    }
    drop_anywhere(&server, &client, &[("/a", 0), ("/b", 0), ("/c", 1)], async || {
        locks.acquire(&client, Wait::Forever).await
    })
    .await;
    last.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn the_time_to_wait_is_that_for_all_of_them_together() {
    const WAIT: Duration = Duration::from_secs(2);
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let (first, last) = (acquire(&client, "/a").await, acquire(&client, "/b").await);
    let begun = Instant::now();
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { all_of(&["/a", "/b"]).acquire(&client, Wait::For(WAIT)).await })
    };
    sleep(WAIT * 3 / 4).await;
    first.release().await.unwrap();
    let refused = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(matches!(&refused, Err(LockError::Held { path }) if path == "/b"), "{refused:?}");
    // For each of them anew it would have been seven quarters of it.
    assert!(begun.elapsed() < WAIT * 3 / 2, "{:?}", begun.elapsed());
    last.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn two_who_name_the_same_locks_in_different_orders_do_not_wait_for_each_other() {
    let server = server().await;
    let (one, other) =
        (client(&server.connect_string()).await, client(&server.connect_string()).await);
    let rounds = async |client, paths: &[&str]| {
        for _ in 0..20 {
            let held = all_of(paths).acquire(client, Wait::Forever).await.unwrap();
            held.release().await.unwrap();
        }
    };
    let both = async { tokio::join!(rounds(&one, &["/a", "/b"]), rounds(&other, &["/b", "/a"])) };
    timeout(PATIENCE, both).await.expect("no deadlock");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_loss_of_one_is_the_loss_of_all() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let held = all_of(&["/a", "/b"]).acquire(&client, Wait::No).await.unwrap();
    client.delete(&held.guards()[1].node(), None).await.unwrap();
    let stopped = timeout(PATIENCE, held.with(std::future::pending::<()>())).await.unwrap();
    assert!(matches!(stopped, Err(LockError::Lost(LostReason::Removed))), "{stopped:?}");
    assert_eq!(held.hold(), Hold::Lost(LostReason::Removed));
    let refused = held.release().await;
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Removed))), "{refused:?}");
    is_empty(&client, "/a").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_waits_for_one_stops_when_another_is_lost() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let last = acquire(&client, "/b").await;
    let waits = {
        let client = client.clone();
        tokio::spawn(async move { all_of(&["/a", "/b"]).acquire(&client, Wait::Forever).await })
    };
    wait_until("it queues", async || children(&client, "/b").await.len() == 2).await;
    let node = children(&client, "/a").await.remove(0);
    client.delete(&format!("/a/{node}"), None).await.unwrap();
    let stopped = timeout(PATIENCE, waits).await.unwrap().unwrap();
    assert!(matches!(stopped, Err(LockError::Lost(LostReason::Removed))), "{stopped:?}");
    wait_until("it has left", async || children(&client, "/b").await.len() == 1).await;
    last.release().await.unwrap();
    server.stop().await.unwrap();
}

#[test]
fn no_lock_at_all_or_one_path_twice_is_refused() {
    assert!(matches!(MultiLock::new([]), Err(LockError::Path { .. })));
    let twice = MultiLock::new([lock("/a"), lock("/b"), lock("/a")]);
    assert!(matches!(&twice, Err(LockError::Path { path, .. }) if path == "/a"), "{twice:?}");
}
