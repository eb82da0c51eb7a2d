//! Asking a holder to give its lock away.

use lockkeeper::recipes::{Guard, LockError, LostReason, Style, Wait, revoke};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{acquire, client, enter_as, lock, server};
use testkit::{PATIENCE, wait_until};

/// Listens until it is asked, and gives the lock away then.
async fn obliging(guard: Guard) -> Result<(), LockError> {
    guard.asked_to_release().await?;
    guard.release().await
}

async fn data(client: &Client, node: &str) -> Vec<u8> {
    client.get_data(node).await.expect("it is there").0
}

#[tokio::test]
async fn a_holder_that_listens_is_told_and_the_next_has_the_lock() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    for style in [Style::Curator, Style::Kazoo, Style::Plain, Style::ZooKeeper] {
        let guard = lock("/l").style(style).acquire(&client, Wait::No).await.unwrap();
        let node = guard.node();
        let listens = tokio::spawn(obliging(guard));
        wait_until("it listens", async || server.status().watch_count == 1).await;
        assert!(revoke(&client, &node).await.unwrap());
        timeout(PATIENCE, listens).await.unwrap().unwrap().unwrap();
        acquire(&client, "/l").await.release().await.unwrap();
        wait_until("no watch is left", async || server.status().watch_count == 0).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn both_words_are_understood_and_no_other() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    for word in ["__REVOKE__", "unlock"] {
        let guard = acquire(&client, "/l").await;
        let node = guard.node();
        let listens = tokio::spawn(obliging(guard));
        wait_until("it listens", async || server.status().watch_count == 1).await;
        let before = server.status().events_fired.iter().sum::<u64>();
        client.set_data(&node, b"please", None).await.unwrap();
        // Told of the change, it has looked, and listens again.
        wait_until("it listens again", async || {
            let status = server.status();
            status.events_fired.iter().sum::<u64>() > before && status.watch_count == 1
        })
        .await;
        assert!(!listens.is_finished());
        client.set_data(&node, word.as_bytes(), None).await.unwrap();
        timeout(PATIENCE, listens).await.unwrap().unwrap().unwrap();
    }
    // The word may have been said before anybody listened.
    let guard = acquire(&client, "/l").await;
    assert!(revoke(&client, &guard.node()).await.unwrap());
    timeout(PATIENCE, obliging(guard)).await.unwrap().unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_listens_is_told_of_a_loss() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let guard = acquire(&client, "/l").await;
    let node = guard.node();
    let listens = tokio::spawn(obliging(guard));
    wait_until("it listens", async || server.status().watch_count == 1).await;
    client.delete(&node, None).await.unwrap();
    let told = timeout(PATIENCE, listens).await.unwrap().unwrap();
    assert!(matches!(told, Err(LockError::Lost(LostReason::Removed))), "{told:?}");
    assert!(!revoke(&client, &node).await.unwrap());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn others_are_asked_in_their_own_words_and_what_is_no_contender_is_left_alone() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    acquire(&client, "/l").await.release().await.unwrap();
    for (prefix, word) in [
        ("_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-lock-", "__REVOKE__"),
        ("x-0000000000000001-", "unlock"),
        ("lock-", "unlock"),
    ] {
        let node = enter_as(&client, "/l", prefix).await;
        assert!(revoke(&client, &node).await.unwrap());
        assert_eq!(data(&client, &node).await, word.as_bytes(), "{prefix}");
    }
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/data", b"precious", &open).await.unwrap();
    let refused = revoke(&client, "/data").await;
    assert!(matches!(refused, Err(LockError::Path { .. })), "{refused:?}");
    assert_eq!(data(&client, "/data").await, b"precious");
    server.stop().await.unwrap();
}
