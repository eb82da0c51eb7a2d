//! The exclusive lock while connections, servers and clients fail.

use std::time::{Duration, Instant};

use lockkeeper::Ensemble;
use lockkeeper::recipes::{Hold, LockError, LostReason, Wait};
use tokio::time::timeout;

use super::{SESSION, acquire, children, client, client_for, is_empty, lock, queue, server};
use testkit::proxy::{Proxy, Weather};
use testkit::{PATIENCE, wait_until};

/// A session that is over quickly.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_knows_of_the_loss_before_the_server_gives_the_lock_away() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let cut_off = client_for(&proxy.connect_string(), SHORT).await;
    let guard = acquire(&cut_off, "/l").await;
    let mut watch = guard.watch();
    let next = queue(&observer, &observer, "/l").await;
    proxy.set(Weather::BlackHole);
    let cut = Instant::now();
    let told = tokio::spawn(async move {
        let mut told = Vec::new();
        while !matches!(told.last(), Some((Hold::Lost(_), _))) {
            told.push((watch.changed().await, Instant::now()));
        }
        told
    });
    let next = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
    let given_away = Instant::now();
    let told = told.await.unwrap();
    let (last, at) = told.last().expect("it was told");
    assert!(matches!(last, Hold::Lost(LostReason::Silence)), "{last:?}");
    let early = given_away.saturating_duration_since(*at);
    assert!(
        !early.is_zero(),
        "told after {:?}, given away after {:?}",
        *at - cut,
        given_away - cut
    );
    assert!(*at - cut <= SHORT, "told after {:?}", *at - cut);
    assert_eq!(told[0].0, Hold::Jeopardy, "a word of warning comes first");
    assert!(next.token() > guard.token());
    assert!(matches!(guard.release().await, Err(LockError::Lost(LostReason::Silence))));
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_cut_is_jeopardy_and_then_the_lock_is_held_again() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let guard = acquire(&client(&proxy.connect_string()).await, "/l").await;
    let mut watch = guard.watch();
    proxy.set(Weather::Down);
    assert_eq!(timeout(PATIENCE, watch.changed()).await.unwrap(), Hold::Jeopardy);
    proxy.set(Weather::Fair);
    assert_eq!(timeout(PATIENCE, watch.changed()).await.unwrap(), Hold::Held);
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_answer_was_lost_is_found_again_and_not_repeated() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let unlucky = client(&proxy.connect_string()).await;
    drop(acquire(&unlucky, "/l").await);
    is_empty(&observer, "/l").await;
    proxy.set(Weather::Deaf);
    let attempt = queue(&unlucky, &observer, "/l").await;
    proxy.set(Weather::Down);
    let node = children(&observer, "/l").await.remove(0);
    proxy.set(Weather::Fair);
    let guard = timeout(PATIENCE, attempt).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.node(), format!("/l/{node}"));
    assert_eq!(children(&observer, "/l").await, [node]);
    let stat = observer.check_stat(&guard.node()).await.unwrap().unwrap();
    assert_eq!(guard.token(), stat.czxid);
    guard.release().await.unwrap();
    is_empty(&observer, "/l").await;
    server.stop().await.unwrap();
}

/// kazoo#760: the contender that its client has given up becomes the holder.
#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_while_cut_off_leaves_nothing_when_connected_again() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let holder = acquire(&observer, "/l").await;
    let unlucky = client_for(&proxy.connect_string(), Duration::from_secs(20)).await;
    proxy.set(Weather::Deaf);
    let short = Wait::For(Duration::from_millis(200));
    let attempt = tokio::spawn({
        let unlucky = unlucky.clone();
        async move {
            // Without its own cleanup to wait for, this ends while it is cut off.
            timeout(Duration::from_secs(1), lock("/l").acquire(&unlucky, short)).await
        }
    });
    wait_until("it was entered", async || children(&observer, "/l").await.len() == 2).await;
    let given_up = attempt.await.unwrap();
    assert!(!matches!(given_up, Ok(Ok(_))), "{given_up:?}");
    assert_eq!(children(&observer, "/l").await.len(), 2, "nobody could remove it yet");
    proxy.cut();
    wait_until("it was removed", async || children(&observer, "/l").await.len() == 1).await;
    assert_eq!(server.status().sessions_expired, 0, "the session did not have to end for that");
    holder.release().await.unwrap();
    server.stop().await.unwrap();
}

/// etcd 3.4.3: who waited on with a lease that had ended was given the lock.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_and_loses_its_session_never_holds_the_lock() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let observer = client(&server.connect_string()).await;
    let holder = acquire(&observer, "/l").await;
    let unlucky = client_for(&proxy.connect_string(), SHORT).await;
    let waiting = queue(&unlucky, &observer, "/l").await;
    proxy.set(Weather::BlackHole);
    wait_until("its place is gone", async || children(&observer, "/l").await.len() == 1).await;
    holder.release().await.unwrap();
    proxy.set(Weather::Fair);
    proxy.cut();
    let got = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(got.is_err(), "{got:?}");
    is_empty(&observer, "/l").await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_and_its_queue_outlive_the_leader() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let servers = ensemble.connect_string();
    let holder = client_for(&servers, SESSION).await;
    let waiter = client_for(&servers, SESSION).await;
    let guard = acquire(&holder, "/l").await;
    let token = guard.token();
    let waits = queue(&waiter, &waiter, "/l").await;
    let leader = ensemble.leader().expect("there is one");
    ensemble.kill(leader).await.unwrap();
    ensemble.wait_for_leader().await.unwrap();
    // Past the moment at which it would be lost had nothing been heard since the kill.
    let deadline = guard.deadline();
    wait_until("the hold is confirmed again", async || {
        guard.deadline() > deadline && guard.hold() == Hold::Held
    })
    .await;
    assert!(!waits.is_finished());
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
    is_empty(&waiter, "/l").await;
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_the_lock_is_lost_although_a_server_still_runs() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let holder = client_for(&ensemble.connect_string(), SESSION).await;
    let guard = acquire(&holder, "/l").await;
    ensemble.kill(1).await.unwrap();
    ensemble.kill(2).await.unwrap();
    let reason = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(reason, LostReason::Silence);
    drop(guard);
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_takes_its_locks_with_it() {
    let server = server().await;
    let observer = client(&server.connect_string()).await;
    let holder = client(&server.connect_string()).await;
    let guard = acquire(&holder, "/l").await;
    let session = holder.into_session();
    // Somebody else takes the session over and closes it.
    let connector = zookeeper_client::Client::connector().with_session(session);
    drop(connector.connect(&server.connect_string()).await.unwrap());
    let reason = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert!(matches!(reason, LostReason::Session | LostReason::Removed), "{reason:?}");
    let next = acquire(&observer, "/l").await;
    assert!(next.token() > guard.token());
    drop(guard);
    next.release().await.unwrap();
    server.stop().await.unwrap();
}
