//! Servers whose log's disk hangs while the network lives, as clients and operators see them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockkeeper::{Ensemble, Server};
use testkit::hanging::HangingFs;
use testkit::{Client, fresh, say, set, wait_until};

/// The bound of these tests.
const BOUND: Duration = Duration::from_millis(500);
/// What an election and a busy machine may add to it.
const ROOM: Duration = Duration::from_secs(4);

/// Three servers on disks that hang when they are told to.
async fn three() -> (Ensemble, HangingFs) {
    let files = HangingFs::default();
    let ensemble = Ensemble::builder(3)
        .set("lockkeeper.diskStallMillis", &BOUND.as_millis().to_string())
        .set("admin.enableServer", "true")
        .set("admin.serverPort", "0")
        .file_system(std::sync::Arc::new(files.clone()));
    (ensemble.start().await.unwrap(), files)
}

fn server(ensemble: &Ensemble, id: u8) -> &Server {
    ensemble.server(id).expect("it runs")
}

async fn client(ensemble: &Ensemble, id: u8) -> Client {
    Client::connect(server(ensemble, id).local_addr()).await
}

async fn http(address: SocketAddr, page: &str) -> String {
    let request = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    say(address, request.as_bytes()).await
}

async fn readyz(server: &Server) -> String {
    http(server.admin_addr().expect("it has one"), "/readyz").await
}

/// Waits until a server says that it is not ready, and which call it waits for.
async fn says_what_it_waits_for(server: &Server) {
    wait_until("it says what it waits for", async || {
        let text = readyz(server).await;
        text.starts_with("HTTP/1.1 503") && text.contains("the log's disk hangs: fdatasync of /")
    })
    .await;
    let alive = http(server.admin_addr().expect("it has one"), "/livez").await;
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
}

async fn is_ready_again(server: &Server) {
    wait_until("it is ready again", async || readyz(server).await.starts_with("HTTP/1.1 200"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_hands_over_and_its_sessions_live_on() {
    let (ensemble, files) = three().await;
    let leader = ensemble.leader().expect("there is one");
    let mut client = client(&ensemble, leader).await;
    client.create("/a", b"", 0).await.unwrap();
    files.hang_below(ensemble.data_dir(leader).expect("it has one"), true);
    let begun = Instant::now();
    let xid = client.send(&set("/a", b"1")).await;
    wait_until("another one leads", async || {
        ensemble.leader().is_some_and(|known| known != leader)
    })
    .await;
    let reply = client.receive().await.expect("an answer, not a close");
    assert_eq!((reply.xid, reply.err), (xid, 0));
    let took = begun.elapsed();
    assert!((BOUND / 2..BOUND + ROOM).contains(&took), "{took:?}");
    says_what_it_waits_for(server(&ensemble, leader)).await;
    // It follows, and its client may stay or move on with its session.
    client.set("/a", b"2").await.unwrap();
    let next = ensemble.leader().expect("there is one");
    let moved = Client::open(server(&ensemble, next).local_addr(), &client.again()).await;
    let mut moved = moved.expect("its session lives");
    assert_eq!(moved.session.session_id, client.session.session_id);
    assert_eq!(moved.data("/a").await.unwrap(), b"2");
    files.hang_below(ensemble.data_dir(leader).expect("it has one"), false);
    is_ready_again(server(&ensemble, leader)).await;
    let mut back = Client::connect(server(&ensemble, leader).local_addr()).await;
    back.set("/a", b"3").await.unwrap();
    assert_ne!(ensemble.leader(), Some(leader), "it does not stand at once");
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_disk_hangs_keeps_its_clients_and_says_so() {
    let (ensemble, files) = three().await;
    let leader = ensemble.leader().expect("there is one");
    let follower = leader % 3 + 1;
    let mut client = client(&ensemble, follower).await;
    client.create("/a", b"", 0).await.unwrap();
    files.hang_below(ensemble.data_dir(follower).expect("it has one"), true);
    client.set("/a", b"1").await.unwrap();
    says_what_it_waits_for(server(&ensemble, follower)).await;
    client.set("/a", b"2").await.unwrap();
    assert_eq!(ensemble.leader(), Some(leader));
    // With a second one hanging nothing is committed: clients are sent away, and served again.
    files.hang_below(ensemble.data_dir(leader).expect("it has one"), true);
    client.send(&set("/a", b"3")).await;
    client.closed().await;
    let refused = Client::open(server(&ensemble, follower).local_addr(), &fresh(20_000)).await;
    assert!(refused.is_none(), "it would wait as well");
    for hung in [leader, follower] {
        files.hang_below(ensemble.data_dir(hung).expect("it has one"), false);
    }
    is_ready_again(server(&ensemble, follower)).await;
    is_ready_again(server(&ensemble, leader)).await;
    let mut again = Client::connect(server(&ensemble, follower).local_addr()).await;
    again.set("/a", b"4").await.unwrap();
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_server_whose_disk_hangs_keeps_its_clients_and_answers_operators() {
    let (files, directory) = (HangingFs::default(), tempfile::tempdir().unwrap());
    let server = Server::builder()
        .data_dir(directory.path())
        .set("lockkeeper.diskStallMillis", &BOUND.as_millis().to_string())
        .admin_address("127.0.0.1", 0)
        .file_system(std::sync::Arc::new(files.clone()));
    let server = server.start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"", 0).await.unwrap();
    files.hang(true);
    // One request in flight: the driver may wait for the disk by itself, and must not for long.
    let xid = client.send(&set("/a", b"1")).await;
    says_what_it_waits_for(&server).await;
    let srvr = say(server.local_addr(), b"srvr").await;
    assert!(srvr.contains("Not ready: the log's disk hangs: fdatasync of /"), "{srvr}");
    files.hang(false);
    let reply = client.receive().await.expect("an answer, not a close");
    assert_eq!((reply.xid, reply.err), (xid, 0));
    is_ready_again(&server).await;
    server.stop().await.unwrap();
}
