//! The lock of many readers or one writer.

use std::time::Duration;

use lockkeeper::recipes::{
    Dialect, Guard, Hold, LockError, LostReason, ReadWriteLock, SharedStyle, Style, Wait,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Client;

use super::{
    acquire, children, client, client_for, drop_anywhere, enter_as, is_empty, lock, server,
};
use testkit::proxy::{Proxy, Weather};
use testkit::{PATIENCE, wait_until};

const STYLES: [SharedStyle; 2] = [SharedStyle::Curator, SharedStyle::Kazoo];

fn shared(path: &str) -> ReadWriteLock {
    ReadWriteLock::new(path).expect("a path")
}

/// Begins to acquire it, and returns when there are that many contenders.
async fn queue(
    client: &Client,
    lock: &ReadWriteLock,
    writes: bool,
    contenders: usize,
) -> JoinHandle<Result<Guard, LockError>> {
    let task = {
        let (client, lock) = (client.clone(), lock.clone());
        tokio::spawn(async move {
            if writes {
                lock.write(&client, Wait::Forever).await.map(Guard::from)
            } else {
                lock.read(&client, Wait::Forever).await
            }
        })
    };
    wait_until("it queues", async || children(client, lock.path()).await.len() == contenders).await;
    task
}

#[tokio::test]
async fn readers_hold_it_together_and_writers_alone() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    for style in STYLES {
        let lock = shared("/rw").style(style);
        let one = lock.read(&client, Wait::No).await.unwrap();
        let other = lock.read(&client, Wait::No).await.unwrap();
        assert!(other.token() > one.token());
        let refused = lock.write(&client, Wait::No).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{style:?}");
        one.release().await.unwrap();
        let refused = lock.write(&client, Wait::No).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{style:?}");
        other.release().await.unwrap();
        let writer = lock.write(&client, Wait::No).await.unwrap();
        assert!(writer.strangers().is_empty());
        for refused in [
            lock.read(&client, Wait::No).await.map(drop),
            lock.write(&client, Wait::No).await.map(drop),
        ] {
            assert!(matches!(refused, Err(LockError::Held { .. })), "{style:?}");
        }
        writer.release().await.unwrap();
        is_empty(&client, "/rw").await;
    }
    wait_until("no watch", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn nobody_overtakes_and_a_release_wakes_only_those_whose_turn_it_is() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let lock = shared("/rw");
    let first = lock.write(&client, Wait::No).await.unwrap();
    let mut readers = Vec::new();
    for contenders in 2..5 {
        // The server counts one watch of a session on one znode, however many of it wait there.
        let reader = super::client(&server.connect_string()).await;
        readers.push(queue(&reader, &lock, false, contenders).await);
    }
    let writer = queue(&client, &lock, true, 5).await;
    let late = queue(&client, &lock, false, 6).await;
    wait_until("each watches", async || server.status().watch_count == 5).await;
    let mut token = first.token();
    first.release().await.unwrap();
    let mut held = Vec::new();
    for reader in readers {
        let guard = timeout(PATIENCE, reader).await.unwrap().unwrap().unwrap();
        assert!(guard.token() > token);
        token = guard.token();
        held.push(guard);
    }
    // The three readers heard of it; the writer and the reader behind it did not.
    assert_eq!(server.status().events_fired, [0, 3, 0, 0]);
    assert!(!writer.is_finished() && !late.is_finished());
    for guard in held {
        guard.release().await.unwrap();
    }
    let writer = timeout(PATIENCE, writer).await.unwrap().unwrap().unwrap();
    assert_eq!(server.status().events_fired, [0, 4, 0, 0]);
    assert!(writer.token() > token && !late.is_finished());
    token = writer.token();
    writer.release().await.unwrap();
    let late = timeout(PATIENCE, late).await.unwrap().unwrap().unwrap();
    assert!(late.token() > token);
    late.release().await.unwrap();
    is_empty(&client, "/rw").await;
    wait_until("no watch", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_is_dropped_anywhere_leaves_nothing() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let lock = shared("/rw");
    let writer = lock.write(&client, Wait::No).await.unwrap();
    drop_anywhere(&server, &client, &[("/rw", 1)], async || {
        lock.read(&client, Wait::Forever).await
    })
    .await;
    let reader = writer.downgrade().await.unwrap();
    drop_anywhere(&server, &client, &[("/rw", 1)], async || {
        lock.write(&client, Wait::Forever).await
    })
    .await;
    let short = Wait::For(Duration::from_millis(50));
    let refused = lock.write(&client, short).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    assert_eq!(children(&client, "/rw").await.len(), 1);
    drop(reader);
    is_empty(&client, "/rw").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_writer_becomes_a_reader_before_another_can_write_and_keeps_its_token() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    for style in STYLES {
        let lock = shared("/rw").style(style);
        let writer = lock.write(&client, Wait::No).await.unwrap();
        let (token, node) = (writer.token(), writer.node());
        let next = queue(&client, &lock, true, 2).await;
        let mut watch = writer.watch();
        let reader = writer.downgrade().await.unwrap();
        let number = |node: &str| node[node.len() - 10..].to_string();
        assert_eq!(number(&reader.node()), number(&node), "Curator's layout has the same number");
        assert_eq!((reader.token(), reader.hold()), (token, Hold::Held));
        assert!(client.check_stat(&node).await.unwrap().is_none());
        // The keeper looks after the new znode.
        let deadline = reader.deadline();
        wait_until("it is confirmed", async || reader.deadline() > deadline).await;
        assert!(timeout(Duration::from_millis(20), watch.changed()).await.is_err());
        assert!(!next.is_finished());
        reader.release().await.unwrap();
        let next = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
        is_empty(&client, "/rw").await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn readers_behind_a_writer_have_their_turn_when_it_becomes_one() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let lock = shared("/rw");
    let writer = lock.write(&client, Wait::No).await.unwrap();
    let waits = queue(&client, &lock, false, 2).await;
    let reader = writer.downgrade().await.unwrap();
    let other = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    let txn = reader.txn().unwrap().delete("/missing", None).unwrap();
    let refused = txn.commit().await;
    assert!(matches!(refused, Err(LockError::Server { .. })), "the check has passed: {refused:?}");
    reader.release().await.unwrap();
    other.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_writer_whose_lock_was_broken_becomes_no_reader() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let lock = shared("/rw");
    let writer = lock.write(&client, Wait::No).await.unwrap();
    client.delete(&writer.node(), None).await.unwrap();
    let refused = writer.downgrade().await;
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Removed))), "{refused:?}");
    is_empty(&client, "/rw").await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_whose_answer_was_lost_is_found_again() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let unlucky = client(&proxy.connect_string()).await;
    let writer = shared("/rw").write(&unlucky, Wait::No).await.unwrap();
    let token = writer.token();
    proxy.set(Weather::Deaf);
    let exchange = tokio::spawn(writer.downgrade());
    wait_until("the server has done it", async || {
        children(&observer, "/rw").await.iter().any(|name| name.contains("__READ__"))
    })
    .await;
    proxy.set(Weather::Down);
    proxy.set(Weather::Fair);
    let reader = timeout(PATIENCE, exchange).await.unwrap().unwrap().unwrap();
    assert_eq!(children(&observer, "/rw").await.len(), 1);
    assert_eq!(reader.token(), token);
    reader.release().await.unwrap();
    is_empty(&observer, "/rw").await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn an_exchange_that_is_not_answered_ends_with_the_hold() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let cut_off = client_for(&proxy.connect_string(), Duration::from_secs(2)).await;
    let writer = shared("/rw").write(&cut_off, Wait::No).await.unwrap();
    proxy.set(Weather::BlackHole);
    let refused = timeout(PATIENCE, writer.downgrade()).await.expect("it ends");
    // Not as late as the end of the session, when others may write.
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Silence))), "{refused:?}");
    is_empty(&observer, "/rw").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn exclusive_locks_of_this_library_take_part_and_are_no_strangers() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let readers = shared("/rw");
    for style in [Style::Curator, Style::Kazoo] {
        let mutex = lock("/rw").style(style);
        let alone = mutex.acquire(&client, Wait::No).await.unwrap();
        let refused = readers.read(&client, Wait::No).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{style:?}");
        alone.release().await.unwrap();
        let reader = readers.read(&client, Wait::No).await.unwrap();
        let refused = mutex.acquire(&client, Wait::No).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{style:?}");
        let waits = tokio::spawn({
            let (mutex, client) = (mutex.clone(), client.clone());
            async move { mutex.acquire(&client, Wait::Forever).await }
        });
        wait_until("it queues", async || children(&client, "/rw").await.len() == 2).await;
        let behind = queue(&client, &readers, false, 3).await;
        reader.release().await.unwrap();
        let alone = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
        assert_eq!(alone.strangers(), [], "{style:?}");
        alone.release().await.unwrap();
        let reader = timeout(PATIENCE, behind).await.unwrap().unwrap().unwrap();
        assert_eq!(reader.strangers(), [], "{style:?}");
        reader.release().await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn locks_of_others_that_would_not_wait_are_named() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    drop(acquire(&client, "/rw").await);
    is_empty(&client, "/rw").await;
    let theirs = "_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-";
    let reader = shared("/rw").read(&client, Wait::No).await.unwrap();
    let foreign = enter_as(&client, "/rw", &format!("{theirs}__READ__")).await;
    let other = shared("/rw").read(&client, Wait::No).await.unwrap();
    assert_eq!(other.strangers(), [], "readers need not wait for each other");
    client.delete(&foreign, None).await.unwrap();
    other.release().await.unwrap();
    let waits = queue(&client, &shared("/rw"), true, 2).await;
    let foreign = enter_as(&client, "/rw", &format!("{theirs}lock-")).await;
    reader.release().await.unwrap();
    let writer = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(writer.strangers(), [Dialect::Curator], "Curator's mutex knows no read-write locks");
    client.delete(&foreign, None).await.unwrap();
    writer.release().await.unwrap();
    server.stop().await.unwrap();
}
