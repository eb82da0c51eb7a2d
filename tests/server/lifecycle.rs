//! How a server starts, stops and comes back, as a program that embeds it sees it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use lockkeeper::StartError;
use lockkeeper::internals::proto::Request;
use testkit::{Client, EPHEMERAL, PATIENCE, fresh, say, wait_until};
use tokio::time::timeout;

#[tokio::test]
async fn a_stop_takes_less_than_a_second_and_keeps_sessions_and_data() {
    let directory = tempfile::tempdir().unwrap();
    let server = testkit::builder().data_dir(directory.path()).start().await.unwrap();
    assert!(server.recovered().is_new);
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = Client::connect(server.local_addr()).await;
        client.create(&format!("/{number}"), b"x", EPHEMERAL).await.unwrap();
        clients.push(client);
    }
    let zxid = server.status().zxid;
    let start = Instant::now();
    server.stop().await.unwrap();
    let took = start.elapsed();
    assert!(took < testkit::at_this_load(Duration::from_secs(1)), "it took {took:?}");
    for client in &mut clients {
        client.closed().await;
    }

    let server = testkit::builder().data_dir(directory.path()).start().await.unwrap();
    let found = server.recovered();
    assert_eq!((found.is_new, found.sessions, found.zxid), (false, 20, zxid));
    for client in &clients {
        let mut again =
            Client::open(server.local_addr(), &client.again()).await.expect("an answer");
        assert_eq!(again.session, client.session, "same session, password and timeout");
        assert!(again.exists("/0").await, "the ephemerals wait for their sessions");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused_and_the_first_one_unharmed() {
    let directory = tempfile::tempdir().unwrap();
    let server = testkit::builder().data_dir(directory.path()).start().await.unwrap();
    let second = testkit::builder().data_dir(directory.path()).start().await;
    let reason = second.expect_err("the directory is in use").to_string();
    assert!(reason.contains(&directory.path().display().to_string()), "{reason}");
    assert!(reason.contains("another lockkeeper server"), "{reason}");
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"", 0).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_named_and_nothing_is_created() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let started = testkit::builder().data_dir(&directory).address("127.0.0.1", port).start().await;
    let reason = started.expect_err("the port is taken").to_string();
    assert!(reason.contains(&format!("127.0.0.1:{port}")), "{reason}");
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_wrong_setting_is_named_and_nothing_is_created() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let builder = testkit::builder().data_dir(&directory).tick_time(Duration::ZERO).set("no", "x");
    let Err(StartError::Config(errors)) = builder.start().await else { panic!("it is wrong") };
    assert_eq!(errors[0].key, "tickTime");
    assert!(!directory.exists());
}

#[tokio::test]
async fn an_http_port_that_is_taken_is_no_reason_not_to_serve() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let server = testkit::builder().admin_address("127.0.0.1", port).start().await.unwrap();
    assert_eq!(server.admin_addr(), None);
    assert!(server.status().serving);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_http_port_is_served_and_goes_with_the_server() {
    let port = testkit::ports::port();
    let server = testkit::builder().admin_address("127.0.0.1", port).start().await.unwrap();
    let address = server.admin_addr().expect("the port is reserved");
    let answer =
        say(address, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn operators_see_the_settings_in_force_but_not_the_super_users_digest() {
    let digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let server = testkit::builder()
        .admin_address("127.0.0.1", 0)
        .tick_time(Duration::from_millis(123))
        .set("DigestAuthenticationProvider.superDigest", digest)
        .start()
        .await
        .unwrap();
    let address = server.admin_addr().expect("any free port");
    for command in ["system_properties", "initial_configuration"] {
        let request = format!("GET /commands/{command} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let request = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let answer = say(address, request.as_bytes()).await;
        assert!(answer.contains("tickTime") && answer.contains("123"), "{answer}");
        assert!(!answer.contains(digest), "{answer}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn images_are_written_counted_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let builder = testkit::builder().data_dir(directory.path());
    let server = builder.set("lockkeeper.imageLogBytes", "1048576").start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"", 0).await.unwrap();
    let data = vec![7; 100_000];
    wait_until("an image", async || {
        client.set("/a", &data).await.unwrap();
        server.counters().disk.last_image.is_some()
    })
    .await;
    let counters = server.counters();
    assert!(counters.disk.last_image.is_some() && counters.disk.data_dir_bytes > 0);
    assert!(counters.disk.last_image.expect("waited for").zxid <= server.status().zxid);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn dropping_a_server_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = testkit::builder().data_dir(directory.path()).start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    drop(server);
    client.closed().await;
    wait_until("the directory is free", async || {
        testkit::builder().data_dir(directory.path()).start().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_leaves_nothing_running() {
    let directory = tempfile::tempdir().unwrap();
    for delay_us in [0, 100, 1000, 10_000] {
        let start = testkit::builder().data_dir(directory.path()).start();
        // Given up in the middle, wherever that is.
        let _ = timeout(Duration::from_micros(delay_us), start).await;
        wait_until("the directory is free", async || {
            match testkit::builder().data_dir(directory.path()).start().await {
                Ok(server) => server.stop().await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }
}

#[tokio::test]
async fn waiting_ends_when_the_server_is_stopped() {
    let server = testkit::builder().start().await.unwrap();
    assert!(timeout(Duration::from_millis(20), server.wait()).await.is_err(), "it runs");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_come_back_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let clients_max = raise_open_files().saturating_sub(500) / 2;
    let count = usize::try_from(clients_max).unwrap().min(1000);
    let server = testkit::builder().data_dir(directory.path()).start().await.unwrap();
    let address = server.local_addr();
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(tokio::spawn(Client::connect(address)));
    }
    let mut sessions = Vec::new();
    for client in clients {
        let client = client.await.unwrap();
        sessions.push((client.again(), client.session.session_id));
    }
    server.stop().await.unwrap();

    let builder = testkit::builder().data_dir(directory.path());
    let server = builder.address("127.0.0.1", address.port()).start().await.unwrap();
    let mut returning = Vec::new();
    for (again, id) in sessions {
        returning.push(tokio::spawn(async move {
            let client = Client::open(address, &again).await.expect("an answer");
            assert_eq!(client.session.session_id, id);
            client
        }));
    }
    for client in returning {
        timeout(PATIENCE, client).await.expect("in time").unwrap();
    }
    assert_eq!(server.recovered().sessions, count as u64);
    server.stop().await.unwrap();
}

/// A client whose session outlasts everything.
async fn patient(address: std::net::SocketAddr) -> Client {
    Client::open(address, &testkit::fresh(600_000)).await.expect("a session")
}

/// ZOOKEEPER-1049: a flood of ends held back the heartbeats of others.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_end_in_a_crowd_end_no_other() {
    let clients_max = raise_open_files().saturating_sub(500) / 2;
    let count = usize::try_from(clients_max).unwrap().min(1000);
    // On a slow machine a client is not heard while a thousand others are.
    let server = testkit::builder().tick_time(Duration::from_secs(30)).start().await.unwrap();
    let address = server.local_addr();
    let mut crowd = Vec::new();
    for number in 0..count {
        crowd.push(tokio::spawn(async move {
            let mut client = patient(address).await;
            client.create(&format!("/{number}"), b"x", EPHEMERAL).await.unwrap();
            client
        }));
    }
    let mut keepers = Vec::new();
    for _ in 0..10 {
        keepers.push(patient(address).await);
    }
    let mut ends = Vec::new();
    for client in crowd {
        let mut client = client.await.unwrap();
        client.ping().await;
        ends.push(tokio::spawn(async move { client.call(&Request::CloseSession).await.map(drop) }));
    }
    let end = tokio::spawn(async move {
        for end in ends {
            assert_eq!(end.await.unwrap(), Ok(()));
        }
    });
    while !end.is_finished() {
        for keeper in &mut keepers {
            keeper.ping().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    end.await.unwrap();
    for keeper in &mut keepers {
        assert!(!keeper.exists("/0").await, "it went with its session");
    }
    assert_eq!(server.status().sessions_expired, 0);
    server.stop().await.unwrap();
}

/// RaftKeeper #332: a session taken for expired when its log was read again lost what it had written.
#[tokio::test]
async fn what_a_session_wrote_outlives_it_however_late_the_server_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let tick = Duration::from_millis(50);
    let builder = || testkit::builder().data_dir(directory.path()).tick_time(tick);
    let server = builder().start().await.unwrap();
    let mut gone = Client::open(server.local_addr(), &fresh(100)).await.expect("a session");
    gone.create("/kept", b"x", 0).await.unwrap();
    gone.create("/mine", b"x", EPHEMERAL).await.unwrap();
    drop(server);
    tokio::time::sleep(tick * 5).await;
    let server = builder().start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    assert_ne!(client.session.session_id, gone.session.session_id);
    assert!(client.exists("/kept").await);
    wait_until("its ephemeral goes with it", async || !client.exists("/mine").await).await;
    server.stop().await.unwrap();
}

/// Client and server of the test are one process: every connection takes two files.
fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("to the hard one");
    limit.maximum.unwrap_or(u64::MAX)
}

#[tokio::test]
async fn four_letter_words_are_answered_before_a_handshake_and_close_after_it() {
    let server = testkit::builder().start().await.unwrap();
    assert_eq!(say(server.local_addr(), b"ruok").await, "imok");
    assert_eq!(say(server.local_addr(), b"ruok\n").await, "imok");
    assert!(say(server.local_addr(), b"srvr").await.contains("\nMode: standalone\n"));
    let mut client = Client::connect(server.local_addr()).await;
    client.send_bytes(b"ruok").await;
    client.closed().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_word_that_is_not_allowed_says_so() {
    let server = testkit::builder().four_letter_words("ruok").start().await.unwrap();
    let refused = "mntr is not executed because it is not in the whitelist.\n";
    assert_eq!(say(server.local_addr(), b"mntr").await, refused);
    assert_eq!(say(server.local_addr(), b"ruok").await, "imok");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_write_is_in_the_audit_log_when_it_is_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.jsonl");
    let server = testkit::builder().audit_log(&audit).start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    for number in 0..50 {
        let path = format!("/{number}");
        client.create(&path, b"", 0).await.unwrap();
        let text = std::fs::read_to_string(&audit).unwrap();
        let last = text.lines().last().expect("a line");
        assert!(last.contains(&format!("\"path\":\"{path}\"")), "{last}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_audit_log_that_cannot_be_written_keeps_a_server_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("no").join("audit.jsonl");
    let data = directory.path().join("data");
    let started = testkit::builder().data_dir(&data).audit_log(&audit).start().await;
    let reason = started.expect_err("there is no such directory").to_string();
    assert!(reason.contains(&audit.display().to_string()), "{reason}");
    assert!(!data.exists());
}

#[tokio::test]
async fn an_audit_log_that_becomes_full_ends_the_server_with_its_name() {
    let server = testkit::builder().audit_log("/dev/full").start().await.unwrap();
    let client = Client::open(server.local_addr(), &fresh(4000)).await;
    assert!(client.is_none(), "a session that is in no audit log is not answered");
    let reason = timeout(PATIENCE, server.wait()).await.expect("it ends").unwrap_err().to_string();
    assert!(reason.contains("/dev/full"), "{reason}");
    assert!(server.stop().await.is_err(), "whoever stops it learns of it too");
}
