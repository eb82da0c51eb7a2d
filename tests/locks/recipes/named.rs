//! Several locks in one directory.

use std::time::Duration;

use lockkeeper::recipes::{LockError, NamedMutex, Wait};
use tokio::time::timeout;

use super::{children, client, drop_anywhere, enter_as, is_empty, server};
use testkit::{PATIENCE, wait_until};

fn named(name: &str) -> NamedMutex {
    NamedMutex::new("/dir", name).expect("a path and a name")
}

#[tokio::test]
async fn each_name_is_a_lock_of_its_own() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let mut held = Vec::new();
    for name in ["b", "a-b", "a", "ab", "\u{fc}ber", "b-1"] {
        held.push(named(name).acquire(&client, Wait::No).await.expect(name));
        let refused = named(name).acquire(&client, Wait::No).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{name}: {refused:?}");
    }
    assert!(held[0].node().contains("-b-"), "{}", held[0].node());
    for guard in held {
        assert!(guard.strangers().is_empty());
        guard.release().await.unwrap();
    }
    is_empty(&client, "/dir").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_release_wakes_the_next_of_that_name_and_nobody_else() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let (a, b) = (named("a"), named("b"));
    let first_a = a.acquire(&client, Wait::No).await.unwrap();
    let first_b = b.acquire(&client, Wait::No).await.unwrap();
    let mut waiting = Vec::new();
    for mutex in [&a, &b, &a, &b] {
        let (mutex, waits) = (mutex.clone(), client.clone());
        let before = children(&client, "/dir").await.len();
        let task = async move { mutex.acquire(&waits, Wait::Forever).await };
        waiting.push(tokio::spawn(task));
        wait_until("it queues", async || children(&client, "/dir").await.len() > before).await;
    }
    wait_until("each watches", async || server.status().watch_count == 4).await;
    let token = first_a.token();
    first_a.release().await.unwrap();
    let next = timeout(PATIENCE, waiting.remove(0)).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(server.status().events_fired.iter().sum::<u64>(), 1);
    assert!(waiting.iter().all(|task| !task.is_finished()));
    for task in &waiting {
        task.abort();
    }
    drop((waiting, next, first_b));
    is_empty(&client, "/dir").await;
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn plain_contenders_of_the_name_are_waited_for() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    named("a").acquire(&client, Wait::No).await.unwrap().release().await.unwrap();
    let plain = enter_as(&client, "/dir", "a-").await;
    let refused = named("a").acquire(&client, Wait::For(Duration::from_millis(50))).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    drop_anywhere(&server, &client, &[("/dir", 1)], async || {
        named("a").acquire(&client, Wait::Forever).await
    })
    .await;
    client.delete(&plain, None).await.unwrap();
    named("a").acquire(&client, Wait::No).await.unwrap().release().await.unwrap();
    server.stop().await.unwrap();
}

#[test]
fn a_name_that_cannot_be_told_from_others_is_refused() {
    for name in ["", "a/b", "a\n", "a-", "/"] {
        let refused = NamedMutex::new("/dir", name);
        assert!(matches!(refused, Err(LockError::Path { .. })), "{name:?}");
    }
}
