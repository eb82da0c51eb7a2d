//! The session of a shell that stays: kept alive, moved to a new connection, and its end.

use std::time::Duration;

use super::{Shell, answer, server};
use testkit::proxy::{Proxy, Weather};
use testkit::{Client, wait_until};

#[tokio::test]
async fn ephemeral_znodes_end_with_the_shell() {
    let server = server().await;
    let at = server.connect_string();
    answer(&at, &["create", "-e", "/once"]).await;
    let mut shell = Shell::start(&at, &[]);
    shell.say("create -e /held");
    shell.prints("Created /held").await;
    assert_eq!(answer(&at, &["ls", "/"]).await, "[held, zookeeper]\n");
    shell.say("close");
    shell.say("version");
    shell.prints("version").await;
    assert_eq!(answer(&at, &["ls", "/"]).await, "[zookeeper]\n");
    assert_eq!(shell.end().await.code, Some(0));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_silent_shell_keeps_its_session() {
    let server = server().await;
    let at = server.connect_string();
    let timeout = Duration::from_millis(400);
    let mut shell = Shell::start(&at, &["--session-timeout", "400ms"]);
    shell.say("create -e /held");
    shell.prints("Created /held").await;
    // Several times as long as a session lives that sends nothing.
    tokio::time::sleep(4 * timeout).await;
    assert_eq!(answer(&at, &["ls", "/"]).await, "[held, zookeeper]\n");
    let end = shell.end().await;
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_cut_connection_costs_neither_session_nor_identity_nor_watches() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"x", 0).await.expect("created");
    let mut shell = Shell::start(&proxy.connect_string(), &[]);
    for line in
        ["addauth digest bob:pw", "create -e /held", "get -w /a", "stat -w /b", "addWatch /c"]
    {
        shell.say(line);
    }
    shell.say("version");
    shell.prints("version").await;

    proxy.set(Weather::Down);
    shell.errors.wait_for("looking for another connection").await;
    client.set("/a", b"y").await.expect("set");
    client.create("/b", b"", 0).await.expect("created");
    proxy.set(Weather::Fair);
    shell.errors.wait_for("connected again").await;
    shell.prints("type:NodeDataChanged path:/a ").await;
    shell.prints("type:NodeCreated path:/b ").await;
    client.create("/c", b"", 0).await.expect("created");
    shell.prints("type:NodeCreated path:/c ").await;
    shell.say("whoami");
    shell.prints("digest: bob").await;
    assert!(client.exists("/held").await);
    assert_eq!(shell.end().await.code, Some(1), "there was no /b at first");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let mut shell = Shell::start(&proxy.connect_string(), &["--session-timeout", "3000ms"]);
    shell.say("ls /");
    shell.prints("[zookeeper]").await;
    proxy.set(Weather::BlackHole);
    shell.errors.wait_for("no answer for ").await;
    proxy.cut();
    shell.errors.wait_for("connected again").await;
    shell.say("create /after");
    shell.prints("Created /after").await;
    assert_eq!(shell.end().await.code, Some(0));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn an_expired_session_is_told_and_no_other_begins_by_itself() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let mut client = Client::connect(server.local_addr()).await;
    let mut shell = Shell::start(&proxy.connect_string(), &["--session-timeout", "400ms"]);
    shell.say("create -e /held");
    shell.prints("Created /held").await;
    proxy.set(Weather::Down);
    wait_until("the session has expired", async || !client.exists("/held").await).await;
    proxy.set(Weather::Fair);
    shell.errors.wait_for("the session has expired").await;
    shell.say("ls /");
    shell.errors.wait_for("Not connected").await;
    shell.say("connect");
    shell.say("ls /");
    shell.prints("[zookeeper]").await;
    assert_eq!(shell.end().await.code, Some(69));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn whoever_waits_for_a_watch_learns_of_the_end_of_the_session() {
    let server = server().await;
    let proxy = Proxy::start(server.local_addr()).await;
    let shell =
        Shell::start(&proxy.connect_string(), &["--session-timeout", "400ms", "ls", "-w", "/"]);
    shell.prints("[zookeeper]").await;
    let mut client = Client::connect(server.local_addr()).await;
    proxy.set(Weather::Down);
    shell.errors.wait_for("looking for another connection").await;
    wait_until("its session has expired", async || {
        // One session is left: ours.
        client.ping().await;
        server.status().sessions == 1
    })
    .await;
    proxy.set(Weather::Fair);
    let end = shell.end().await;
    assert_eq!(end.code, Some(69), "{end:?}");
    server.stop().await.expect("it stops");
}
