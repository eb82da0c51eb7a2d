//! A survivor of an ensemble that lost its majority for ever.

use std::fs;

use crate::backup::client;
use testkit::process::{output, stderr};
use testkit::three::Three;
use testkit::{self, Client, EPHEMERAL};

/// Three servers that serve, with an audit log each.
async fn three() -> Three {
    let mut three = Three::new();
    for id in 1..=3 {
        three.start(id, KEYS).await;
    }
    three.serve(&[1, 2, 3]).await;
    three.all_vote().await;
    three
}

const KEYS: &str = "lockkeeper.auditLog=DIRECTORY/audit-OWN\n";

fn recover(three: &Three, id: u8, more: &[&str]) -> std::process::Output {
    let file = format!("zoo.cfg{id}");
    let own = ["member", "recover", &file];
    output(three.path(), &[&own[..], more].concat())
}

#[tokio::test]
async fn a_survivor_goes_on_with_its_sessions_and_empty_servers_join_it() {
    let mut three = three().await;
    let mut owner = client(three.address(3, testkit::three::CLIENT_PORT)).await;
    owner.create("/kept", b"data", 0).await.unwrap();
    owner.create("/mine", b"", EPHEMERAL).await.unwrap();
    let token = crate::backup::stat(&mut owner, "/mine").await.czxid;
    let again = owner.again();
    for id in 1..=3 {
        three.stop(id);
    }
    for id in [1, 2] {
        fs::remove_dir_all(three.file("data", id)).unwrap();
    }
    let refused = recover(&three, 3, &["--dead", "1"]);
    assert!(
        stderr(&refused).contains("not heard and not declared dead: 2"),
        "{}",
        stderr(&refused)
    );
    let refused = recover(&three, 3, &["--dead", "1,2,7"]);
    assert!(stderr(&refused).contains("no servers of this ensemble: 7"), "{}", stderr(&refused));
    let done = recover(&three, 3, &["--dead", "1,2", "-o", "json"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let line = fs::read_to_string(three.file("audit-", 3)).unwrap();
    let line = line.lines().last().unwrap();
    assert!(
        line.contains(r#""op":"recover""#) && line.contains(r#""declared_dead":[1,2]"#),
        "{line}"
    );
    three.start(3, KEYS).await;
    three.serve(&[3]).await;
    let mut owner = Client::open(three.address(3, testkit::three::CLIENT_PORT), &again).await;
    let owner = owner.as_mut().expect("its session");
    assert_eq!(
        (owner.session.session_id, owner.data("/kept").await),
        (again.session_id, Ok(b"data".to_vec()))
    );
    assert!(owner.exists("/mine").await);
    owner.create("/new", b"", 0).await.unwrap();
    assert!(crate::backup::stat(owner, "/new").await.czxid > token + (4096 << 32));
    three.says(3, "declared alone by an operator").await;
    for id in [1, 2] {
        three.start(id, KEYS).await;
    }
    three.serve(&[1, 2]).await;
    assert!(client(three.address(1, testkit::three::CLIENT_PORT)).await.exists("/new").await);
    // Now it is an ensemble like any other: one may be lost.
    three.all_vote().await;
    three.stop(3);
    three.serve(&[1, 2]).await;
    assert!(client(three.address(2, testkit::three::CLIENT_PORT)).await.exists("/kept").await);
}

#[tokio::test]
async fn a_member_that_was_declared_dead_and_comes_back_is_refused_with_its_data() {
    let mut three = three().await;
    client(three.address(1, testkit::three::CLIENT_PORT))
        .await
        .create("/kept", b"", 0)
        .await
        .unwrap();
    for id in 1..=3 {
        three.stop(id);
    }
    let done = recover(&three, 1, &["--dead", "2,3"]);
    assert!(done.status.success(), "{}", stderr(&done));
    three.start(1, KEYS).await;
    three.serve(&[1]).await;
    three.start(2, KEYS).await;
    three.says(2, "belongs to ensemble").await;
    assert_eq!(three.mode(2).await, "");
    assert!(client(three.address(1, testkit::three::CLIENT_PORT)).await.exists("/kept").await);
}

#[tokio::test]
async fn beside_a_server_with_the_log_that_runs_none_goes_on_alone() {
    let mut three = three().await;
    three.stop(1);
    // Once there is a leader again, the majority serves.
    testkit::wait_until("the majority is said to serve", async || {
        let refused = recover(&three, 1, &["--dead", "2,3"]);
        assert!(!refused.status.success());
        stderr(&refused).contains("serves clients")
    })
    .await;
    three.stop(2);
    testkit::wait_until("server 3 does not serve", async || three.mode(3).await.is_empty()).await;
    let refused = recover(&three, 1, &["--dead", "2,3"]);
    assert!(stderr(&refused).contains("server 3 runs and has the log"), "{}", stderr(&refused));
    // Its own server must not run either.
    let refused = recover(&three, 3, &["--dead", "1,2"]);
    assert!(!refused.status.success());
    three.start(2, KEYS).await;
    three.serve(&[2, 3]).await;
}

#[tokio::test]
async fn of_two_survivors_the_one_with_the_longer_log_goes_on() {
    let mut three = three().await;
    three.stop(1);
    client(three.address(2, testkit::three::CLIENT_PORT))
        .await
        .create("/later", b"", 0)
        .await
        .unwrap();
    for id in [2, 3] {
        three.stop(id);
    }
    let behind = std::thread::scope(|scope| {
        let ahead = scope.spawn(|| recover(&three, 2, &["--dead", "3"]));
        let behind = recover(&three, 1, &["--dead", "3"]);
        let ahead = ahead.join().unwrap();
        assert!(ahead.status.success(), "{}", stderr(&ahead));
        behind
    });
    assert!(stderr(&behind).contains("server 2 goes on"), "{}", stderr(&behind));
    three.start(2, KEYS).await;
    three.serve(&[2]).await;
    assert!(client(three.address(2, testkit::three::CLIENT_PORT)).await.exists("/later").await);
}

#[tokio::test]
async fn beside_a_survivor_that_was_recovered_no_other_goes_on_though_no_client_port_answers() {
    // Where server 1 looks for the client ports of the others, no process listens: as if they took TLS alone.
    const APART: &str = "lockkeeper.auditLog=DIRECTORY/audit-OWN\nclientPort=17495\n";
    let mut three = three().await;
    for id in 1..=3 {
        three.stop(id);
    }
    three.write(APART, 1);
    let done = recover(&three, 2, &["--dead", "1,3"]);
    assert!(done.status.success(), "{}", stderr(&done));
    three.start(2, KEYS).await;
    three.serve(&[2]).await;
    for dead in ["3", "2,3"] {
        let refused = recover(&three, 1, &["--dead", dead]);
        let said = stderr(&refused);
        assert!(said.contains("server 2 has a state of the ensemble"), "{said}");
        assert!(said.contains("--rejoin"), "{said}");
    }
    // Both are recovered, one while the other is away: the one that comes later founds nothing.
    three.stop(2);
    let done = recover(&three, 1, &["--dead", "2,3"]);
    assert!(done.status.success(), "{}", stderr(&done));
    three.start(2, KEYS).await;
    three.serve(&[2]).await;
    three.start(1, APART).await;
    three.says(1, "servers 2 founded the ensemble").await;
    let answer = testkit::say(three.address(1, 17495), b"srvr").await;
    assert!(!answer.contains("Mode: "), "{answer}");
    three.serve(&[2]).await;
}
