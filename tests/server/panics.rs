//! A panic of any thread or task of a server ends that server, loudly and within a second.
//!
//! A debug build can be told which kind of thread or task is to panic when one runs next. The `match`es
//! below are exhaustive: what is spawned and not panicked here does not compile.

#![cfg(debug_assertions)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper::internals::config::{Config, Draft};
use lockkeeper::internals::proto::Request;
use lockkeeper::internals::supervision::Task;
use lockkeeper::{Builder, Ensemble, Server, ServerError, StartError};
use testkit::ports::port;
use testkit::{Client, PATIENCE, ask, fresh, wait_until};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An end takes no longer than this.
fn a_second() -> Duration {
    testkit::at_this_load(Duration::from_secs(1))
}

/// How a kind of thread or task is brought to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// A server that starts.
    Start,
    /// A server that serves alone, with clients and operators.
    Alone,
    /// A server of an ensemble whose others are not there.
    Lonely,
    /// An ensemble of one whose files follow its members.
    Files,
    /// An ensemble of one that lost every copy of its state.
    Damaged,
    /// Three servers, one of which is behind the log.
    Three,
    /// A server alone that clients connect to through TLS.
    Tls,
    /// It takes a full queue of the driver, a running ZooKeeper, or a key of Kerberos: `peers.rs` and `acceptor.rs`
    /// show the first and the last; or it is of no server.
    Unit,
}

const TOKEN: &str = "sixteen-characters";

fn scene(task: Task) -> Scene {
    match task {
        Task::Server | Task::Recovery | Task::Http | Task::Io | Task::Room => Scene::Start,
        Task::Driver
        | Task::DriverEnd
        | Task::Log
        | Task::State
        | Task::Clients
        | Task::Client
        | Task::Users
        | Task::Admission
        | Task::HttpPort
        | Task::HttpConnection
        | Task::Backup
        | Task::HttpAnswer => Scene::Alone,
        Task::Links | Task::Link | Task::Peers | Task::Peer | Task::Images | Task::Question => {
            Scene::Lonely
        }
        Task::Members | Task::MembersFile => Scene::Files,
        Task::ImageFetch => Scene::Damaged,
        Task::Image | Task::ImageWork => Scene::Three,
        Task::Notice | Task::Gssapi | Task::Survey | Task::ZooKeeper => Scene::Unit,
        Task::Handshake | Task::Certificates => Scene::Tls,
    }
}

fn tasks(of: Scene) -> Vec<Task> {
    Task::ALL.iter().copied().filter(|task| scene(*task) == of).collect()
}

/// That it ended by this task's panic, and says where.
fn assert_panicked(ended: Result<(), ServerError>, expected: Task) {
    let Err(error) = ended else { panic!("{expected}: it ended well") };
    let ServerError::Panic { task, message, location } = &error else { panic!("{error}") };
    assert_eq!((*task, message), (expected.name(), &format!("planted in: {expected}")));
    let location = location.as_deref().expect("it is known");
    assert!(location.starts_with("src/supervision/lib.rs:"), "{location}");
    assert!(error.to_string().contains(location) && error.to_string().lines().count() == 1);
}

/// That the server ends by this task's panic within a second, and its ports close: they are reserved, or another test
/// might have them by then.
async fn assert_ends(server: Server, task: Task, begun: Instant) {
    let ports = [Some(server.local_addr()), server.admin_addr()];
    let ended = timeout(PATIENCE, server.wait()).await;
    let took = begun.elapsed();
    assert_panicked(ended.unwrap_or_else(|_| panic!("{task}: it goes on")), task);
    assert!(took < a_second(), "{task}: it took {took:?}");
    for port in ports.into_iter().flatten() {
        // A thread that is late closes its port when it comes to it.
        while TcpStream::connect(port).await.is_ok() {
            assert!(begun.elapsed() < a_second(), "{task}: {port} is open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_panicked(server.stop().await, task);
}

async fn start(builder: Builder) -> Server {
    builder.start().await.expect("it starts")
}

/// Starts a server on the data of one that has ended by a panic: a thread of that one that is late holds the directory
/// until it comes to its end.
async fn start_after(builder: impl Fn() -> Builder) -> Server {
    let begun = Instant::now();
    loop {
        match builder().start().await {
            Ok(server) => return server,
            Err(StartError::Data(words)) if words.contains("is using this directory") => {
                assert!(begun.elapsed() < PATIENCE, "{words}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn get(address: SocketAddr, path: &str) {
    // The server may end in the middle of it.
    let _ = ask(address, format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await;
}

#[tokio::test]
async fn a_panic_while_a_server_starts_is_why_it_does_not() {
    for task in tasks(Scene::Start) {
        let directory = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let builder = testkit::builder().data_dir(directory.path()).admin_address("127.0.0.1", 0);
        let builder = builder.set("lockkeeper.ioThreads", "1");
        let ended = match builder.panic_in(task).start().await {
            // A thread of its own may be slower than the rest of the start.
            Ok(server) if matches!(task, Task::Http | Task::Io | Task::Room) => server.wait().await,
            Err(StartError::Ended(error)) => Err(error),
            started => panic!("{task}: {started:?}"),
        };
        assert_panicked(ended, task);
        assert!(begun.elapsed() < a_second(), "{task}: it took {:?}", begun.elapsed());
        // Nothing is left of it.
        let again = || testkit::builder().data_dir(directory.path());
        start_after(again).await.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_of_each_thread_and_task_ends_a_server() {
    for task in tasks(Scene::Alone) {
        let directory = tempfile::tempdir().unwrap();
        let builder = testkit::builder().data_dir(directory.path());
        let builder = builder.set("lockkeeper.checkpointMillis", "20");
        let users = directory.path().join("jaas.conf");
        std::fs::write(
            &users,
            "Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_a=b; };",
        )
        .unwrap();
        let builder = builder.set("lockkeeper.jaasFile", &users.display().to_string());
        let token = directory.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let builder = builder.set("lockkeeper.adminTokenFile", &token.display().to_string());
        let builder = builder.set("clientPort", &port().to_string());
        let server = start(builder.admin_address("127.0.0.1", port())).await;
        let (address, admin) = (server.local_addr(), server.admin_addr().expect("there is one"));
        let mut client = Client::connect(address).await;
        client.create("/acknowledged", b"x", 0).await.unwrap();
        let crowd = if task == Task::Admission { crowd(address).await } else { Vec::new() };
        server.panic_in(task);
        let begun = Instant::now();
        match task {
            Task::DriverEnd => {
                assert_panicked(server.stop().await, task);
                assert!(begun.elapsed() < a_second(), "it took {:?}", begun.elapsed());
                continue;
            }
            Task::Client => {
                client.send(&Request::Ping).await;
            }
            Task::Log | Task::State => {
                // The server may end before it answers: one is the last of many.
                for number in 0..100 {
                    client.send(&testkit::set("/acknowledged", &[number; 10])).await;
                }
            }
            Task::Users => drop(server.reload_users().await),
            Task::Clients => drop(TcpStream::connect(address).await),
            Task::Admission => drop(crowd),
            Task::HttpPort | Task::HttpConnection => get(admin, "/livez").await,
            Task::HttpAnswer => get(admin, "/locks").await,
            Task::Backup => {
                let proof = format!("Authorization: Bearer {TOKEN}");
                let asked = format!("GET /snapshot HTTP/1.0\r\n{proof}\r\n\r\n");
                // The server ends in the middle of it.
                let _ = ask(admin, asked.as_bytes()).await;
            }
            _ => {}
        }
        assert_ends(server, task, begun).await;
        let again = || testkit::builder().data_dir(directory.path()).admin_address("127.0.0.1", 0);
        let server = start_after(again).await;
        // No collector has seen the last figures of the one before.
        let admin = server.admin_addr().expect("there is one");
        let metrics = testkit::say(admin, b"GET /metrics HTTP/1.0\r\n\r\n").await;
        assert!(metrics.contains("\nunrecoverable_error_count 1\n"), "{task}: {metrics}");
        assert!(Client::connect(server.local_addr()).await.exists("/acknowledged").await);
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_of_what_serves_tls_ends_a_server() {
    for task in tasks(Scene::Tls) {
        let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/tls/stores");
        let builder = testkit::builder()
            .set("ssl.keyStore.location", &format!("{stores}/rsa.pem"))
            .set("ssl.clientAuth", "none")
            .set("clientPort", &port().to_string())
            .set("client.portUnification", "true");
        let server = start(builder).await;
        let address = server.local_addr();
        server.panic_in(task);
        let begun = Instant::now();
        match task {
            Task::Handshake => {
                // What is no handshake but begins like one is looked at by the same task.
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&[0x16, 3, 1, 0, 1, 0]).await.unwrap();
            }
            _ => drop(server.reload_certificates().await),
        }
        assert_ends(server, task, begun).await;
    }
}

/// Sessions, more than are let go at one moment.
async fn crowd(address: SocketAddr) -> Vec<Client> {
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(Client::open(address, &fresh(20_000)).await.expect("a session"));
    }
    crowd
}

/// A configuration file with these lines, as a server reads it.
fn config(directory: &Path, lines: &str) -> Config {
    let path = directory.join("zoo.cfg");
    let data = directory.join("data");
    let text = format!(
        "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.serverAddress=127.0.0.1\n\
         admin.serverPort={}\nstandaloneEnabled=false\nreconfigEnabled=true\n\
         lockkeeper.checkpointMillis=20\nlockkeeper.imageLogBytes=1048576\n{lines}",
        data.display(),
        port(),
        port()
    );
    std::fs::write(&path, &text).unwrap();
    let mut draft = Draft::from_text(&path.display().to_string(), &text);
    draft.set_server_id("1", "test");
    let mut config = draft.resolve().expect("it is right");
    config.path = Some(path);
    config
}

#[tokio::test]
async fn a_panic_of_what_serves_other_servers_ends_a_server() {
    for task in tasks(Scene::Lonely) {
        let directory = tempfile::tempdir().unwrap();
        let [first, second, third] = testkit::ports::ports();
        let lines: String = (1..)
            .zip([first, second, third])
            .map(|(id, port)| format!("server.{id}=127.0.0.1:{port}:{}\n", port ^ 1))
            .collect();
        let builder = testkit::builder().config(config(directory.path(), &lines)).panic_in(task);
        let begun = Instant::now();
        let server = match builder.start().await {
            Ok(server) => server,
            Err(StartError::Ended(error)) => {
                assert_panicked(Err(error), task);
                assert!(begun.elapsed() < a_second(), "{task}: it took {:?}", begun.elapsed());
                continue;
            }
            Err(error) => panic!("{task}: {error}"),
        };
        let begun = Instant::now();
        match task {
            Task::Peer => drop(TcpStream::connect(("127.0.0.1", first)).await),
            Task::Question => get(server.admin_addr().expect("there is one"), "/locks").await,
            _ => {}
        }
        assert_ends(server, task, begun).await;
    }
}

#[tokio::test]
async fn a_panic_of_what_follows_the_members_ends_a_server() {
    for task in tasks(Scene::Files) {
        let directory = tempfile::tempdir().unwrap();
        let lines = format!("server.1=127.0.0.1:{}:1\n", testkit::ports::port());
        let builder = testkit::builder().config(config(directory.path(), &lines)).panic_in(task);
        let begun = Instant::now();
        let ended = match builder.start().await {
            Ok(server) => server.wait().await,
            Err(StartError::Ended(error)) => Err(error),
            Err(error) => panic!("{task}: {error}"),
        };
        assert_panicked(ended, task);
        assert!(begun.elapsed() < 2 * a_second(), "{task}: it took {:?}", begun.elapsed());
    }
}

/// Indexes of the images in a data directory, oldest first.
fn images(data: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(data.join("image")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let index = |name: String| u64::from_str_radix(name.strip_suffix(".image")?, 16).ok();
    let mut indexes: Vec<u64> = names.filter_map(index).collect();
    indexes.sort_unstable();
    indexes
}

/// Writes until none of these servers has the log up to `applied` any more.
async fn fill_until_cut(client: &mut Client, servers: &[&Path], applied: u64) {
    let mut number = 0;
    while !servers.iter().all(|data| {
        let images = images(data);
        images.len() > 1 && images[0] > applied + 100
    }) {
        for _ in 0..20 {
            client.create(&format!("/fill-{number}"), &[b'x'; 16 << 10], 0).await.unwrap();
            number += 1;
        }
    }
}

#[tokio::test]
async fn a_panic_of_what_fetches_an_image_ends_a_server() {
    for task in tasks(Scene::Damaged) {
        let directory = tempfile::tempdir().unwrap();
        let lines = format!("server.1=127.0.0.1:{}:1\n", testkit::ports::port());
        let config = config(directory.path(), &lines);
        let data = config.data_dir.clone();
        let server = start(testkit::builder().config(config.clone())).await;
        wait_until("it serves", async || server.status().serving).await;
        let mut client = Client::connect(server.local_addr()).await;
        fill_until_cut(&mut client, &[&data], 0).await;
        server.stop().await.unwrap();
        std::fs::remove_dir_all(data.join("state")).unwrap();
        for index in images(&data) {
            std::fs::write(data.join(format!("image/{index:016x}.image")), b"damaged").unwrap();
        }
        let begun = Instant::now();
        let ended = match testkit::builder().config(config).panic_in(task).start().await {
            Ok(server) => server.wait().await,
            Err(StartError::Ended(error)) => Err(error),
            Err(error) => panic!("{task}: {error}"),
        };
        assert_panicked(ended, task);
        assert!(begun.elapsed() < 2 * a_second(), "{task}: it took {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_one_server_of_an_ensemble_leaves_the_others_and_the_process_alone() {
    assert_eq!(tasks(Scene::Three), [Task::Image, Task::ImageWork]);
    let builder = Ensemble::builder(3).set("lockkeeper.imageLogBytes", "1048576");
    let builder = builder.set("lockkeeper.checkpointMillis", "20");
    let mut ensemble = builder.start().await.unwrap();
    let first = ensemble.leader().expect("there is one");
    let mut others = (1..=3).filter(|id| *id != first);
    let (second, lagging) = (others.next().unwrap(), others.next().unwrap());
    let applied = ensemble.server(lagging).unwrap().status().applied;
    ensemble.kill(lagging).await.unwrap();
    let mut writer = Client::connect(ensemble.server(first).unwrap().local_addr()).await;
    let data = [first, second].map(|id| ensemble.data_dir(id).unwrap().to_path_buf());
    fill_until_cut(&mut writer, &[&data[0], &data[1]], applied).await;

    // The next one leads in its place, and has an image to send as well.
    ensemble.server(first).unwrap().panic_in(Task::Image);
    ensemble.server(second).unwrap().panic_in(Task::ImageWork);
    ensemble.restart(lagging).await.unwrap();
    let ended = timeout(PATIENCE, ensemble.server(first).unwrap().wait()).await;
    assert_panicked(ended.expect("it has an image to send"), Task::Image);
    let ended = timeout(PATIENCE, ensemble.server(second).unwrap().wait()).await;
    assert_panicked(ended.expect("it has an image to send"), Task::ImageWork);

    assert!(ensemble.stop(first).await.is_err() && ensemble.stop(second).await.is_err());
    for id in [first, second] {
        // A thread of it may go on for a moment behind a panic, and hold the data.
        let begun = Instant::now();
        while let Err(error) = ensemble.restart(id).await {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    ensemble.wait_until_all_serve().await.unwrap();
    let mut reader = Client::connect(ensemble.server(lagging).unwrap().local_addr()).await;
    assert!(reader.exists("/fill-0").await);
    ensemble.shutdown().await.unwrap();
}

/// The driver waits for the disk (here for the reader of a pipe) and cannot end; what has panicked is
/// told all the same.
#[tokio::test]
async fn a_server_whose_disk_hangs_ends_within_a_second_of_a_panic_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("audit");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let builder = testkit::builder().data_dir(directory.path().join("data")).audit_log(&pipe);
    let builder = builder.set("lockkeeper.checkpointMillis", "20");
    let server = start(builder.admin_address("127.0.0.1", 0)).await;
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"x", 0).await.unwrap();
    for number in 0..1000 {
        client.send(&testkit::set("/a", &[number as u8; 10])).await;
    }
    // It waits in the middle of that: nobody is answered, but for those who ask whether it lives.
    let admin = server.admin_addr().expect("there is one");
    wait_until("the driver waits", async || {
        let session = fresh(4000);
        let asks = Client::open(server.local_addr(), &session);
        timeout(Duration::from_millis(200), asks).await.is_err()
    })
    .await;
    let live = timeout(a_second(), ask(admin, b"GET /livez HTTP/1.0\r\n\r\n")).await;
    let live = live.expect("in time").expect("it listens");
    assert!(live.starts_with("HTTP/1.0 200"), "{live}");
    server.panic_in(Task::HttpConnection);
    let begun = Instant::now();
    get(admin, "/livez").await;
    let ended = timeout(PATIENCE, server.wait()).await;
    assert_panicked(ended.expect("it ends"), Task::HttpConnection);
    assert!(begun.elapsed() < a_second(), "it took {:?}", begun.elapsed());
    drop(reader);
}
