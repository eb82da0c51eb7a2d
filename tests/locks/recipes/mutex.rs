//! The exclusive lock while all is well.

use std::time::Duration;

use lockkeeper::recipes::{
    Dialect, Hold, LockError, LostReason, Mutex, RecipeOptions, Style, Wait,
};
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};

use super::{acquire, children, client, drop_anywhere, enter_as, is_empty, lock, queue, server};
use testkit::{PATIENCE, wait_until};

#[tokio::test]
async fn grants_come_in_the_order_of_arrival_with_growing_tokens() {
    let server = server().await;
    let servers = server.connect_string();
    let observer = client(&servers).await;
    let first = acquire(&observer, "/deep/down/lock").await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        // Through the client of the holder, too: it is not reentrant.
        waiting.push(queue(&observer, &observer, "/deep/down/lock").await);
    }
    let mut token = first.token();
    let mut holder = first;
    for next in waiting {
        assert!(!next.is_finished());
        holder.release().await.unwrap();
        holder = next.await.unwrap().unwrap();
        assert!(holder.token() > token);
        assert_eq!(holder.hold(), Hold::Held);
        token = holder.token();
    }
    holder.release().await.unwrap();
    is_empty(&observer, "/deep/down/lock").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn one_release_wakes_one_waiter_and_nobody_else() {
    const WAITERS: u64 = 20;
    let server = server().await;
    let servers = server.connect_string();
    let observer = client(&servers).await;
    let mut holder = acquire(&observer, "/herd").await;
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        waiting.push(queue(&observer, &observer, "/herd").await);
    }
    for (released, next) in waiting.into_iter().enumerate() {
        let watches = WAITERS - released as u64;
        wait_until("each watches", async || server.status().watch_count == watches).await;
        assert_eq!(server.status().events_fired, [0, released as u64, 0, 0]);
        holder.release().await.unwrap();
        holder = next.await.unwrap().unwrap();
    }
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    drop(holder);
    is_empty(&observer, "/herd").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_tries_or_times_out_leaves_neither_znode_nor_watch() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let holder = acquire(&client, "/l").await;
    for wait in [Wait::No, Wait::For(Duration::ZERO), Wait::For(Duration::from_millis(50))] {
        let refused = lock("/l").acquire(&client, wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{wait:?}: {refused:?}");
        assert_eq!(children(&client, "/l").await.len(), 1, "{wait:?}");
        wait_until("no watch", async || server.status().watch_count == 0).await;
    }
    holder.release().await.unwrap();
    let guard = lock("/l").acquire(&client, Wait::No).await.expect("it is free");
    drop(guard);
    is_empty(&client, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_is_dropped_anywhere_leaves_nothing() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let holder = acquire(&client, "/l").await;
    let mutex = lock("/l");
    drop_anywhere(&server, &client, &[("/l", 1)], async || {
        mutex.acquire(&client, Wait::Forever).await
    })
    .await;
    holder.release().await.unwrap();
    is_empty(&client, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_somebody_breaks_is_lost_and_cannot_write() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/data", b"0", &open).await.unwrap();
    let guard = acquire(&client, "/l").await;
    let txn = guard.txn().unwrap().set("/data", b"1", None).unwrap();
    txn.commit().await.unwrap();
    // Begun while it is held, committed when it is not.
    let txn = guard.txn().unwrap().set("/data", b"2", None).unwrap();
    client.delete(&guard.node(), None).await.unwrap();
    let refused = txn.commit().await;
    assert!(matches!(refused, Err(LockError::Lost(LostReason::Removed))), "{refused:?}");
    assert_eq!(client.get_data("/data").await.unwrap().0, b"1");

    let stopped = timeout(PATIENCE, guard.with(std::future::pending::<()>())).await.unwrap();
    assert!(matches!(stopped, Err(LockError::Lost(LostReason::Removed))), "{stopped:?}");
    assert_eq!(guard.hold(), Hold::Lost(LostReason::Removed));
    assert!(matches!(guard.txn().map(|_| ()), Err(LockError::Lost(_))));
    assert!(matches!(guard.release().await, Err(LockError::Lost(_))));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_guarded_write_that_another_condition_refuses_is_no_loss() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let guard = acquire(&client, "/l").await;
    let txn = guard.txn().unwrap().set("/missing", b"", None).unwrap();
    let refused = txn.commit().await;
    assert!(matches!(refused, Err(LockError::Server { .. })), "{refused:?}");
    assert_eq!(guard.hold(), Hold::Held);
    let open: Vec<_> = Acls::anyone_all().iter().cloned().collect();
    let txn = guard.txn().unwrap().create("/made", b"", CreateMode::Persistent, &open).unwrap();
    txn.commit().await.unwrap();
    let txn = guard.txn().unwrap().check("/made", 0).unwrap().delete("/made", None).unwrap();
    assert_eq!(txn.commit().await.unwrap().len(), 2);
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn each_style_names_its_contender_as_others_do_and_waits_for_all_of_them() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    for (style, shape) in [
        (Style::Curator, "_c_8-4-4-4-12-lock-10"),
        (Style::Kazoo, "32__lock__10"),
        (Style::Plain, "lock-10"),
        (Style::ZooKeeper, "x-16-10"),
    ] {
        let options = RecipeOptions::at("/styles").id("who");
        let mutex = Mutex::new(options).expect("a path").style(style);
        let guard = mutex.acquire(&client, Wait::No).await.unwrap();
        let name = guard.node().strip_prefix("/styles/").unwrap().to_string();
        assert_eq!(shape_of(&name), shape, "{name}");
        let data = client.get_data(&guard.node()).await.unwrap().0;
        assert!(data.starts_with(b"who"));
        for other in [Style::Curator, Style::Kazoo, Style::Plain, Style::ZooKeeper] {
            let refused = lock("/styles").style(other).acquire(&client, Wait::No).await;
            assert!(matches!(refused, Err(LockError::Held { .. })), "{style:?} {other:?}");
        }
        guard.release().await.unwrap();
    }
    server.stop().await.unwrap();
}

/// A name with each run of at least four hexadecimal digits replaced by its length.
fn shape_of(name: &str) -> String {
    let (mut shape, mut run) = (String::new(), String::new());
    for c in name.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        shape += &if run.len() < 4 { run.clone() } else { run.len().to_string() };
        run.clear();
        shape.push(c);
    }
    shape.trim_end().to_string()
}

#[tokio::test]
async fn foreign_contenders_are_waited_for_and_those_that_would_not_wait_are_named() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let other = super::client(&server.connect_string()).await;
    acquire(&client, "/mixed").await.release().await.unwrap();
    let kazoo = "0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__";
    let foreign = enter_as(&other, "/mixed", kazoo).await;
    let waits = queue(&client, &other, "/mixed").await;
    assert!(!waits.is_finished());
    let behind = enter_as(&other, "/mixed", kazoo).await;
    other.delete(&foreign, None).await.unwrap();
    let guard = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.strangers(), [Dialect::Kazoo]);
    guard.release().await.unwrap();
    other.delete(&behind, None).await.unwrap();
    server.stop().await.unwrap();
}

/// Who has left may come again.
#[tokio::test]
async fn a_holder_that_would_not_wait_is_named_when_it_has_gone() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let other = super::client(&server.connect_string()).await;
    acquire(&client, "/mixed").await.release().await.unwrap();
    for (prefix, stranger) in [
        ("0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__", Some(Dialect::Kazoo)),
        ("_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-__WRIT__", Some(Dialect::CuratorWrite)),
        ("lock-", Some(Dialect::Plain)),
        ("_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-lock-", None),
        ("0af2b9d632cd4bd08c9c6c2f2f4d4f55-lock-", None),
        ("x-0100001234567890-", None),
    ] {
        let foreign = enter_as(&other, "/mixed", prefix).await;
        let waits = queue(&client, &other, "/mixed").await;
        // It has looked who is there when it watches the one before it.
        wait_until("it waits", async || server.status().watch_count == 1).await;
        other.delete(&foreign, None).await.unwrap();
        let guard = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
        assert_eq!(guard.strangers(), Vec::from_iter(stranger), "{prefix}");
        guard.release().await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_refuses_strangers_is_not_taken_among_them() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let holder = acquire(&client, "/l").await;
    let strict = Mutex::new(RecipeOptions::at("/l").refuse_strangers()).expect("a path");
    let waits = {
        let (strict, client) = (strict.clone(), client.clone());
        tokio::spawn(async move { strict.acquire(&client, Wait::Forever).await })
    };
    wait_until("it queues", async || children(&client, "/l").await.len() == 2).await;
    let stranger = enter_as(&client, "/l", "0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__").await;
    holder.release().await.unwrap();
    let refused = waits.await.unwrap();
    assert!(matches!(refused, Err(LockError::Foreign { .. })), "{refused:?}");
    let left = children(&client, "/l").await;
    assert_eq!(left, [stranger.strip_prefix("/l/").unwrap()]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_may_not_write_is_told_so() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let closed = CreateMode::Persistent.with_acls(Acls::anyone_read());
    client.create("/closed", b"", &closed).await.unwrap();
    let refused = lock("/closed").acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::NoPermission { .. })), "{refused:?}");
    let refused = lock("/closed/below").acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::NoPermission { .. })), "{refused:?}");
    server.stop().await.unwrap();
}
