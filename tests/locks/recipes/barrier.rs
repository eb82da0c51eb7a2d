//! Waiting for a word, and for each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::recipes::{
    Barrier, DoubleBarrier, Inside, LockError, LostReason, RecipeOptions, Wait,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use zookeeper_client::Client;

use super::queues::act;
use super::{children, client, clients, drop_anywhere, server};
use testkit::{PATIENCE, wait_until};

fn barrier() -> Barrier {
    Barrier::new("/gates/b").expect("a path")
}

fn meeting(members: usize) -> DoubleBarrier {
    DoubleBarrier::new("/meetings/b", members).expect("a path")
}

/// Who is inside or at the door, and `ready` if that is open.
async fn present(client: &Client) -> Vec<String> {
    children(client, "/meetings/b").await
}

/// A meeting of these, which has begun.
async fn all_in(clients: &[Client]) -> Vec<Inside> {
    let tasks: Vec<_> = clients.iter().map(|client| enter(client, clients.len())).collect();
    let mut inside = Vec::new();
    for task in tasks {
        inside.push(timeout(PATIENCE, task).await.expect("in time").unwrap().expect("inside"));
    }
    inside
}

fn enter(client: &Client, members: usize) -> JoinHandle<Result<Inside, LockError>> {
    let client = client.clone();
    tokio::spawn(async move { meeting(members).enter(&client, Wait::Forever).await })
}

#[tokio::test]
async fn all_wait_until_the_barrier_is_lifted() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    barrier().pass(&client, Wait::No).await.expect("nothing is there");
    barrier().set(&client).await.unwrap();
    let another = Barrier::new(RecipeOptions::at("/gates/b").id("another")).expect("a path");
    another.set(&client).await.expect("it is there");
    for wait in [Wait::No, Wait::For(Duration::from_millis(50))] {
        let refused = barrier().pass(&client, wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    }
    drop_anywhere(&server, &client, &[("/gates", 1)], async || {
        barrier().pass(&client, Wait::Forever).await
    })
    .await;
    let mut waiting = JoinSet::new();
    for client in clients(&server, 5).await {
        waiting.spawn(async move { barrier().pass(&client, Wait::For(PATIENCE)).await });
    }
    wait_until("all wait", async || server.status().watch_count == 5).await;
    assert!(waiting.try_join_next().is_none());
    barrier().lift(&client).await.unwrap();
    barrier().lift(&client).await.expect("it is gone");
    while let Some(passed) = waiting.join_next().await {
        passed.unwrap().unwrap();
    }
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn a_barrier_whose_data_change_is_not_lifted() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    barrier().set(&client).await.unwrap();
    let waits = super::client(&server.connect_string()).await;
    let waiting = {
        let waits = waits.clone();
        tokio::spawn(async move { barrier().pass(&waits, Wait::For(PATIENCE)).await })
    };
    for data in [b"one", b"two"] {
        wait_until("it waits", async || server.status().watch_count == 1).await;
        client.set_data("/gates/b", data, None).await.unwrap();
        act(&waits).await;
        assert!(!waiting.is_finished(), "it is not lifted");
    }
    barrier().lift(&client).await.unwrap();
    waiting.await.unwrap().unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_barrier_stays_when_who_has_set_it_is_gone() {
    let server = server().await;
    let gone = client(&server.connect_string()).await;
    barrier().set(&gone).await.unwrap();
    drop(gone);
    wait_until("its session is over", async || server.status().sessions == 0).await;
    let client = client(&server.connect_string()).await;
    let refused = barrier().pass(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn nobody_begins_before_all_are_there_and_nobody_goes_before_all_have_finished() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let early: Vec<_> = clients(&server, 2).await.iter().map(|client| enter(client, 3)).collect();
    wait_until("they wait", async || server.status().watch_count == 2).await;
    assert!(early.iter().all(|task| !task.is_finished()));
    let last = meeting(3).enter(&client, Wait::No).await.expect("all are there");
    let mut inside = vec![last];
    for task in early {
        inside.push(timeout(PATIENCE, task).await.unwrap().unwrap().unwrap());
    }
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    let mut leaving = Vec::new();
    for member in inside.drain(1..) {
        leaving.push(tokio::spawn(member.leave(Wait::Forever)));
    }
    wait_until("they wait", async || server.status().watch_count == 2).await;
    assert!(leaving.iter().all(|task| !task.is_finished()));
    inside.remove(0).leave(Wait::For(PATIENCE)).await.unwrap();
    for task in leaving {
        timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
    }
    assert!(present(&client).await.is_empty(), "the sign is gone, too");
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_members_meet_again_and_again() {
    const MEMBERS: usize = 4;
    const ROUNDS: usize = 30;
    static ARRIVED: AtomicUsize = AtomicUsize::new(0);
    static FINISHED: AtomicUsize = AtomicUsize::new(0);
    let server = server().await;
    let mut members = JoinSet::new();
    for _ in 0..MEMBERS {
        let client = client(&server.connect_string()).await;
        members.spawn(async move {
            for round in 1..=ROUNDS {
                ARRIVED.fetch_add(1, Ordering::SeqCst);
                let inside = meeting(MEMBERS).enter(&client, Wait::Forever).await.unwrap();
                assert_eq!(ARRIVED.load(Ordering::SeqCst), round * MEMBERS, "all are there");
                FINISHED.fetch_add(1, Ordering::SeqCst);
                inside.leave(Wait::Forever).await.unwrap();
                assert!(FINISHED.load(Ordering::SeqCst) >= round * MEMBERS, "all have finished");
            }
        });
    }
    let all = async {
        while let Some(member) = members.join_next().await {
            member.unwrap();
        }
    };
    timeout(PATIENCE, all).await.expect("no deadlock");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_meeting_whose_members_have_crashed_does_not_open_the_door_of_the_next() {
    let server = server().await;
    let observer = client(&server.connect_string()).await;
    // Without a word to anybody.
    drop(all_in(&clients(&server, 2).await).await);
    wait_until("they are gone", async || present(&observer).await == ["ready"]).await;
    let refused = meeting(2).enter(&observer, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    assert!(present(&observer).await.is_empty());
    drop(all_in(&clients(&server, 2).await).await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn when_the_last_crashes_the_others_go_and_close_the_door() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let mut inside = all_in(&clients(&server, 3).await).await;
    let mut leaving = Vec::new();
    // Whichever goes last: the one that does not leave at all.
    let crashes = inside.remove(1);
    for member in inside {
        leaving.push(tokio::spawn(member.leave(Wait::Forever)));
    }
    wait_until("they wait", async || server.status().watch_count == 2).await;
    drop(crashes);
    for task in leaving {
        timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
    }
    assert!(present(&client).await.is_empty());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_does_not_wait_for_the_others_leaves_nothing() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    for wait in [Wait::No, Wait::For(Duration::from_millis(50))] {
        let refused = meeting(2).enter(&client, wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
        assert!(present(&client).await.is_empty());
    }
    drop_anywhere(&server, &client, &[("/meetings/b", 0)], async || {
        meeting(2).enter(&client, Wait::Forever).await
    })
    .await;
    let mut inside = all_in(&clients(&server, 2).await).await;
    let refused = inside.remove(0).leave(Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    wait_until("one is left", async || present(&client).await.len() == 2).await;
    inside.remove(0).leave(Wait::No).await.expect("the last one waits for nobody");
    assert!(present(&client).await.is_empty());
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_was_removed_at_the_door_is_told() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let removed = enter(&client, 2);
    wait_until("it waits", async || server.status().watch_count == 1).await;
    let own = present(&client).await.remove(0);
    client.delete(&format!("/meetings/b/{own}"), None).await.unwrap();
    // It looks when somebody opens the door, who counts without it.
    assert!(!removed.is_finished());
    let inside = all_in(&clients(&server, 2).await).await;
    let told = timeout(PATIENCE, removed).await.unwrap().unwrap();
    assert!(matches!(told, Err(LockError::Lost(LostReason::Removed))), "{told:?}");
    drop(inside);
    server.stop().await.unwrap();
}

#[test]
fn a_meeting_of_nobody_is_refused() {
    let refused = DoubleBarrier::new("/b", 0);
    assert!(matches!(refused, Err(LockError::Path { .. })), "{refused:?}");
}
