//! What confirms a hold, and for how long.

use std::time::Duration;

use lockkeeper::recipes::{BootTime, Hold, LostReason};
use lockkeeper::{Ensemble, Server};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, CreateMode};

use super::{SESSION, acquire, client, server};
use testkit::PATIENCE;
use testkit::proxy::{LATE, Proxy, Weather};

/// How long a hold lasts from the moment when the question was sent that confirmed it.
fn longest(session: Duration) -> Duration {
    session - session / 10
}

#[tokio::test]
pub(super) async fn a_hold_lasts_from_when_the_question_was_sent_not_from_the_answer() {
    let server = server().await;
    let network = Proxy::start(server.local_addr()).await;
    let client = client(&network.connect_string()).await;
    let guard = acquire(&client, "/l").await;
    network.set(Weather::Slow);
    let (since, longest) = (BootTime::now(), longest(client.session_timeout()));
    // Until an answer has come to a question of after that.
    while guard.deadline() <= since.after(longest) {
        sleep(Duration::from_millis(5)).await;
    }
    // What was sent so long before the deadline was on its way for as long as an answer is late.
    assert!(BootTime::now().after(longest) >= guard.deadline().after(LATE));
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn a_server_that_is_cut_off_from_the_others_confirms_no_hold() {
    let builder = Ensemble::builder(3).set("tickTime", "200").set("minSessionTimeout", "400");
    let mut ensemble = builder.start().await.unwrap();
    let leader = ensemble.leader().expect("it serves");
    let follower = (1..=3).find(|id| *id != leader).expect("there are three");
    let address = ensemble.server(follower).expect("it runs").local_addr().to_string();
    let client = client(&address).await;
    let guard = acquire(&client, "/l").await;
    ensemble.partition(&[follower]);
    let cut_off = BootTime::now();
    let mut watch = guard.watch();
    // The server answers its clients for a while before it knows.
    let changed = timeout(PATIENCE, watch.changed()).await.expect("it is told");
    assert_eq!(changed, Hold::Jeopardy);
    assert!(guard.deadline() <= cut_off.after(longest(client.session_timeout())));
    ensemble.shutdown().await.unwrap();
}

#[tokio::test]
pub(super) async fn a_znode_of_the_same_name_that_another_made_confirms_no_hold() {
    let server: Server = server().await;
    let client = client(&server.connect_string()).await;
    let other = super::client(&server.connect_string()).await;
    let guard = acquire(&client, "/l").await;
    let mut writer = other.new_multi_writer();
    writer.add_delete(&guard.node(), None).unwrap();
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    writer.add_create(&guard.node(), b"", &ephemeral).unwrap();
    writer.commit().await.unwrap();
    let reason = timeout(SESSION, guard.lost()).await.expect("it is noticed");
    assert_eq!(reason, LostReason::Removed);
    server.stop().await.unwrap();
}
