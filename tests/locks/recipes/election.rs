//! The election of one among several.

use std::time::Duration;

use lockkeeper::recipes::{Election, Guard, LockError, LostReason, RecipeOptions, Wait, revoke};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Client;

use super::{children, client, drop_anywhere, enter_as, is_empty, server};
use testkit::{PATIENCE, wait_until};

fn election(id: &str) -> Election {
    Election::new(RecipeOptions::at("/office/leader").id(id)).expect("a path")
}

/// Begins to stand as a candidate, and returns when so many stand.
async fn stand(client: &Client, id: &str, standing: usize) -> JoinHandle<Result<Guard, LockError>> {
    let (stands, id) = (client.clone(), id.to_string());
    let task = tokio::spawn(async move { election(&id).campaign(&stands, Wait::Forever).await });
    wait_until("it stands", async || children(client, "/office/leader").await.len() == standing)
        .await;
    task
}

#[tokio::test]
async fn the_first_candidate_leads_until_it_resigns_and_only_the_next_is_told() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let first = election("one").campaign(&client, Wait::No).await.unwrap();
    let name = first.node();
    assert!(name.starts_with("/office/leader/_c_") && name.contains("-latch-"), "{name}");
    let second = stand(&client, "two", 2).await;
    let third = stand(&client, "three", 3).await;
    wait_until("each watches", async || server.status().watch_count == 2).await;
    let before: u64 = server.status().events_fired.iter().sum();
    let token = first.token();
    first.release().await.unwrap();
    let second = timeout(PATIENCE, second).await.unwrap().unwrap().unwrap();
    assert!(second.token() > token);
    assert_eq!(server.status().events_fired.iter().sum::<u64>() - before, 1);
    assert!(!third.is_finished());
    third.abort();
    drop((third, second));
    is_empty(&client, "/office/leader").await;
    wait_until("no watch is left", async || server.status().watch_count == 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn candidates_are_listed_in_their_order_with_who_they_are() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    assert_eq!(election("onlooker").candidates(&client).await.unwrap(), []);
    let first = election("one").campaign(&client, Wait::No).await.unwrap();
    let second = stand(&client, "two", 2).await;
    // As Curator's latch would stand, and what is no candidate.
    let theirs = "_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-latch-";
    let theirs = enter_as(&client, "/office/leader", theirs).await;
    enter_as(&client, "/office/leader", "lock-").await;
    let listed = election("onlooker").candidates(&client).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|candidate| candidate.id.as_str()).collect();
    assert_eq!(ids, ["one", "two", ""]);
    assert_eq!(listed[0].node, first.node());
    assert_eq!(listed[0].token, first.token());
    assert_eq!(listed[0].session, first.session());
    assert_eq!(listed[2].node, theirs);
    second.abort();
    first.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn a_candidate_whose_znode_was_written_to_shows_the_same_token() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let leads = election("one").campaign(&client, Wait::No).await.unwrap();
    assert!(revoke(&client, &leads.node()).await.unwrap());
    let listed = election("onlooker").candidates(&client).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].node, listed[0].token), (&leads.node(), leads.token()));
    leads.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_does_not_get_the_office_in_time_or_gives_up_leaves_nothing() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let leads = election("one").campaign(&client, Wait::No).await.unwrap();
    for wait in [Wait::No, Wait::For(Duration::from_millis(50))] {
        let refused = election("two").campaign(&client, wait).await;
        assert!(matches!(refused, Err(LockError::Held { .. })), "{wait:?}: {refused:?}");
        assert_eq!(children(&client, "/office/leader").await.len(), 1, "{wait:?}");
    }
    drop_anywhere(&server, &client, &[("/office/leader", 1)], async || {
        election("two").campaign(&client, Wait::Forever).await
    })
    .await;
    client.delete(&leads.node(), None).await.unwrap();
    assert_eq!(timeout(PATIENCE, leads.lost()).await.unwrap(), LostReason::Removed);
    let leads = election("one").campaign(&client, Wait::No).await.unwrap();
    leads.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_selector_and_a_mutex_on_one_path_exclude_each_other() {
    let server = server().await;
    let client = client(&server.connect_string()).await;
    let selector = Election::selector(RecipeOptions::at("/l").id("one")).unwrap();
    let leads = selector.campaign(&client, Wait::No).await.unwrap();
    let refused = super::lock("/l").acquire(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    let listed = selector.candidates(&client).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id.as_str(), listed[0].token), ("one", leads.token()));
    leads.release().await.unwrap();
    let held = super::lock("/l").acquire(&client, Wait::No).await.unwrap();
    let refused = selector.campaign(&client, Wait::No).await;
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    held.release().await.unwrap();
    server.stop().await.unwrap();
}
