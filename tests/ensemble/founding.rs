//! How servers that were on their own, empty, or members of something else become one ensemble, and never
//! two: real servers in this process, each with a directory, a file and a loopback address of its own.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper::internals::cli::config_file;
use lockkeeper::internals::proto::Request;
use lockkeeper::internals::replica::inspect::Mode;
use lockkeeper::{Server, StartError};
use testkit::ports::{Network, port};
use testkit::{Client, PATIENCE, fresh, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CLIENT_PORT: u16 = 17181;
const ADMIN_PORT: u16 = 17180;

/// The directories of three servers.
struct World {
    directory: tempfile::TempDir,
    /// The first three bytes of all addresses: no other test, here or elsewhere, has them.
    net: Network,
    /// More keys of everybody's configuration.
    more: &'static str,
    /// The ports for other servers, by server: some servers bind them on all addresses.
    ports: Mutex<BTreeMap<u8, u16>>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, net: Network::new(), more: "", ports: Mutex::default() }
    }

    fn data(&self, id: u8) -> PathBuf {
        self.directory.path().join(format!("data{id}"))
    }

    fn address(&self, id: u8) -> SocketAddr {
        format!("{}:{CLIENT_PORT}", self.net.host(id)).parse().unwrap()
    }

    fn peer_address(&self, id: u8) -> SocketAddr {
        format!("{}:{}", self.net.host(id), self.peer_port(id)).parse().unwrap()
    }

    fn peer_port(&self, id: u8) -> u16 {
        *self.ports.lock().unwrap().entry(id).or_insert_with(port)
    }

    fn line(&self, id: u8, host: &str) -> String {
        let port = self.peer_port(id);
        // The election port is never bound.
        format!("server.{id}={host}:{port}:{};{}", port ^ 1, self.address(id))
    }

    fn lines(&self, ids: &[u8]) -> Vec<String> {
        ids.iter().map(|id| self.line(*id, &self.net.host(*id))).collect()
    }

    /// Starts a server with these server lines; without any it is on its own.
    async fn start_with(&self, id: u8, lines: &[String], rejoins: bool) -> Server {
        self.try_to_start(id, lines, rejoins).await.expect("it starts")
    }

    async fn try_to_start(
        &self,
        id: u8,
        lines: &[String],
        rejoins: bool,
    ) -> Result<Server, StartError> {
        let file = self.directory.path().join(format!("zoo{id}.cfg"));
        let text = format!(
            "dataDir={}\nclientPort={CLIENT_PORT}\nclientPortAddress={host}\ntickTime=2000\n\
             admin.serverAddress={host}\nadmin.serverPort={ADMIN_PORT}\n{}\n{}\n",
            self.data(id).display(),
            self.more,
            lines.join("\n"),
            host = self.net.host(id),
        );
        fs::write(&file, text).unwrap();
        let draft = config_file::draft(&file, None, Some(&id.to_string()));
        let builder = Server::builder().config(draft.resolve().expect("a good file"));
        let builder = if rejoins { builder.rejoin() } else { builder };
        builder.start().await
    }

    async fn start(&self, id: u8, participants: &[u8]) -> Server {
        self.start_with(id, &self.lines(participants), false).await
    }

    async fn start_alone(&self, id: u8) -> Server {
        self.start_with(id, &[], false).await
    }

    /// Leaves a directory in which a server on its own has kept this znode.
    async fn leave_state(&self, id: u8, path: &str) {
        let server = self.start_alone(id).await;
        client(self.address(id)).await.create(path, b"kept", 0).await.unwrap();
        server.stop().await.unwrap();
    }

    /// The words of `/readyz`; empty if the server is ready.
    async fn trouble(&self, id: u8) -> String {
        let address = format!("{}:{ADMIN_PORT}", self.net.host(id)).parse().unwrap();
        let answer = testkit::say(address, b"GET /readyz HTTP/1.0\r\n\r\n").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        if head.contains(" 200 ") { String::new() } else { body.to_owned() }
    }

    /// An operator has this server found without another one: the status and the words of the answer.
    async fn bootstrap(&self, id: u8, without: &str) -> String {
        let address = format!("{}:{ADMIN_PORT}", self.net.host(id)).parse().unwrap();
        let head = "X-Lockkeeper-Change: yes\r\n\r\n";
        let request = format!("POST /bootstrap?without={without} HTTP/1.0\r\n{head}");
        testkit::say(address, request.as_bytes()).await
    }

    /// The same, until nothing speaks against it.
    async fn found_without(&self, id: u8, without: &str) {
        wait_until("the ensemble is founded", async || {
            self.bootstrap(id, without).await.starts_with("HTTP/1.0 200")
        })
        .await;
    }

    async fn says(&self, id: u8, words: &str) {
        let what = format!("server {id} says: {words}");
        wait_until(&what, async || self.trouble(id).await.contains(words)).await;
    }
}

async fn client(address: SocketAddr) -> Client {
    let mut client = None;
    wait_until("a session", async || {
        client = Client::open(address, &fresh(10_000)).await;
        client.is_some()
    })
    .await;
    client.expect("waited for")
}

async fn serves(server: &Server) {
    wait_until("it serves", async || server.status().serving).await;
}

async fn stop(servers: impl IntoIterator<Item = Server>) {
    for server in servers {
        server.stop().await.unwrap();
    }
}

fn leads(server: &&Server) -> bool {
    server.status().mode == Mode::Leader
}

/// All of them serve, one of them leads, all see the znode, and all vote.
async fn are_one_ensemble(world: &World, servers: &[Server], path: &str) {
    let ids: Vec<u8> = (1..).take(servers.len()).collect();
    with_ids_are_one_ensemble(world, &ids, servers, path).await;
}

async fn with_ids_are_one_ensemble(world: &World, ids: &[u8], servers: &[Server], path: &str) {
    testkit::all_vote(servers).await;
    assert_eq!(servers.iter().filter(leads).count(), 1);
    for id in ids {
        let mut client = client(world.address(*id)).await;
        wait_until("the znode", async || client.exists(path).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_new_servers_found_nothing_beside_one_that_serves_by_itself_and_it_brings_its_state() {
    let world = World::new();
    let alone = world.start_alone(1).await;
    let mut holder = client(world.address(1)).await;
    holder.create("/lock", b"", 0).await.unwrap();
    let second = world.start(2, &[1, 2, 3]).await;
    let third = world.start(3, &[1, 2, 3]).await;
    for id in [2, 3] {
        let words =
            "server 1 serves by itself (Mode: standalone): restart it with these server lines";
        world.says(id, words).await;
    }
    // For much longer than it takes to found an ensemble.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!second.status().serving && !third.status().serving);
    assert!(alone.status().serving);
    alone.stop().await.unwrap();
    let first = world.start(1, &[1, 2, 3]).await;
    let servers = [first, second, third];
    are_one_ensemble(&world, &servers, "/lock").await;
    for id in 1..=3 {
        assert_eq!(world.trouble(id).await, "");
    }
    // The session has moved along with the state.
    let again = Client::open(world.address(3), &holder.again()).await.expect("an answer");
    assert_eq!(again.session, holder.session);
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_may_have_the_ids_0_128_and_254() {
    const IDS: [u8; 3] = [0, 128, 254];
    let world = World::new();
    world.leave_state(0, "/kept").await;
    let mut servers = Vec::new();
    for id in IDS {
        servers.push(world.start(id, &IDS).await);
    }
    with_ids_are_one_ensemble(&world, &IDS, &servers, "/kept").await;
    // A lock of each one's client, in the order in which they came; the first is released.
    client(world.address(254)).await.create("/lock", b"", 0).await.unwrap();
    let mut holders = Vec::new();
    for id in IDS {
        let mut holder = client(world.address(id)).await;
        let sequential_ephemeral = 3;
        let node = holder.create("/lock/lock-", b"", sequential_ephemeral).await.unwrap();
        assert_eq!(holder.session.session_id.cast_unsigned() >> 56, u64::from(id));
        holders.push((holder, node));
    }
    let (mut first, node) = holders.remove(0);
    first.call(&Request::CloseSession).await.unwrap();
    let (second, _) = &mut holders[0];
    wait_until("the next one has the lock", async || !second.exists(&node).await).await;
    stop(servers).await;
    // Two that set their data aside found nothing with an empty server 0.
    fs::remove_dir_all(world.data(0)).unwrap();
    let empty = world.start(0, &IDS).await;
    let mut servers = vec![empty];
    for id in [128, 254] {
        servers.push(world.start_with(id, &world.lines(&IDS), true).await);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(servers.iter().all(|server| !server.status().serving));
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_alone_serves_nobody_before_a_majority_has_joined() {
    let world = World::new();
    world.leave_state(1, "/lock").await;
    let first = world.start(1, &[1, 2, 3]).await;
    world.says(1, "server 1 waits for server 2, 3, not heard for more than 3 s").await;
    let third = world.start(3, &[1, 2, 3]).await;
    world.says(3, "`lockkeeper member bootstrap --without 2`").await;
    assert!(!first.status().serving && !third.status().serving);
    let refused = world.bootstrap(3, "1").await;
    assert!(
        refused.contains("409") && refused.contains("server 1 has a state of its own"),
        "{refused}"
    );
    world.found_without(3, "2").await;
    serves(&first).await;
    serves(&third).await;
    // One of three is not enough, also when it was the only one with data.
    third.stop().await.unwrap();
    wait_until("it serves no longer", async || !first.status().serving).await;
    let third = world.start(3, &[1, 2, 3]).await;
    let second = world.start(2, &[1, 2, 3]).await;
    let servers = [first, second, third];
    are_one_ensemble(&world, &servers, "/lock").await;
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_comes_too_late_is_kept_aside_and_its_server_joins_when_told_to() {
    let world = World::new();
    world.leave_state(1, "/old").await;
    let second = world.start(2, &[1, 2, 3]).await;
    let third = world.start(3, &[1, 2, 3]).await;
    world.found_without(2, "1").await;
    serves(&second).await;
    client(world.address(2)).await.create("/new", b"", 0).await.unwrap();
    let first = world.start(1, &[1, 2, 3]).await;
    world.says(1, "without server 1, which has a state of its own (6 znodes)").await;
    world.says(1, "start it with --rejoin, which sets its data aside").await;
    assert!(!first.status().serving);
    assert!(second.status().serving && third.status().serving);
    first.stop().await.unwrap();
    assert!(world.data(1).join("log").exists(), "its data is where it was");
    let first = world.start_with(1, &world.lines(&[1, 2, 3]), true).await;
    assert!(world.data(1).join("set-aside-1/log").exists());
    let servers = [first, second, third];
    are_one_ensemble(&world, &servers, "/new").await;
    assert!(!client(world.address(1)).await.exists("/old").await);
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_were_once_started_without_lines_form_an_ensemble() {
    let world = World::new();
    for id in 1..=3 {
        world.start_alone(id).await.stop().await.unwrap();
    }
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    serves(&servers[0]).await;
    client(world.address(1)).await.create("/first", b"", 0).await.unwrap();
    are_one_ensemble(&world, &servers, "/first").await;
    stop(servers).await;
    // What they are is what they stay.
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    are_one_ensemble(&world, &servers, "/first").await;
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_states_are_both_named_and_neither_is_chosen() {
    let world = World::new();
    world.leave_state(1, "/one").await;
    world.leave_state(2, "/two").await;
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    for id in 1..=3 {
        let words = "server 1 (6 znodes) and server 2 (6 znodes) each have a state of their own";
        world.says(id, words).await;
    }
    assert!(servers.iter().all(|server| !server.status().serving));
    // As it says: one of them is set aside.
    servers.remove(1).stop().await.unwrap();
    servers.insert(1, world.start_with(2, &world.lines(&[1, 2, 3]), true).await);
    are_one_ensemble(&world, &servers, "/one").await;
    assert!(world.data(2).join("set-aside-1").exists());
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_name_other_participants_are_named_on_both_sides() {
    let world = World::new();
    let second = world.start(2, &[1, 2, 3]).await;
    let third = world.start(3, &[2, 3]).await;
    world
        .says(2, "the server lines of server 3 name the participants 2, 3, those of server 2")
        .await;
    world.says(3, "the server lines of server 2 name the participants 1, 2, 3, those of").await;
    assert!(!second.status().serving && !third.status().serving);
    third.stop().await.unwrap();
    let third = world.start(3, &[1, 2, 3]).await;
    let first = world.start(1, &[1, 2, 3]).await;
    serves(&second).await;
    serves(&third).await;
    stop([first, second, third]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_bind_all_their_addresses_are_known_by_those_that_others_have() {
    let world = World::new();
    let lines = |own: u8| {
        let host = |id: u8| if id == own { "0.0.0.0".into() } else { world.net.host(id) };
        (1..=3).map(|id| world.line(id, &host(id))).collect::<Vec<_>>()
    };
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start_with(id, &lines(id), false).await);
    }
    serves(&servers[0]).await;
    client(world.address(1)).await.create("/first", b"", 0).await.unwrap();
    are_one_ensemble(&world, &servers, "/first").await;
    let text = client(world.address(2)).await.data("/zookeeper/config").await.unwrap();
    let text = String::from_utf8(text).unwrap();
    for id in 1..=3 {
        assert!(text.contains(&format!("server.{id}={}:", world.net.host(id))), "{text}");
    }
    // Two of three go on, whichever is gone.
    for gone in 0..3 {
        let id = u8::try_from(gone).unwrap() + 1;
        servers.remove(gone).stop().await.unwrap();
        for server in &servers {
            serves(server).await;
        }
        let there = world.address(if gone == 0 { 2 } else { 1 });
        client(there).await.create(&format!("/without-{id}"), b"", 0).await.unwrap();
        servers.insert(gone, world.start_with(id, &lines(id), false).await);
        are_one_ensemble(&world, &servers, &format!("/without-{id}")).await;
    }
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_came_back_empty_is_named() {
    let world = World::new();
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    testkit::all_vote(&servers).await;
    stop(servers).await;
    for id in [2, 3] {
        fs::remove_dir_all(world.data(id)).unwrap();
    }
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    let words = "the servers 2, 3 have come back without the data that they voted with";
    world.says(1, words).await;
    assert!(servers.iter().all(|server| !server.status().serving));
    stop(servers).await;
}

/// A hello of a server without data, as `peer_hello.rs` describes it.
fn hello(server: u8) -> Vec<u8> {
    let mut payload = vec![0, 1, 0, 2, server, 0, 0];
    payload.extend_from_slice(&[7; 8]);
    payload.push(0);
    payload.extend_from_slice(&[0, 0, 0, 1, b'x']);
    let mut bytes = b"LKPEER01".to_vec();
    bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&payload).to_be_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_member_is_told_nothing_and_joins_once_it_is_added() {
    let world = World::new();
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    testkit::all_vote(&servers).await;
    for claimed in [9, 4] {
        let mut stream = TcpStream::connect(world.peer_address(1)).await.unwrap();
        stream.write_all(&hello(claimed)).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        // Behind the magic number and the head of the frame: no version, from server 1, no ensemble.
        assert_eq!(&answer[16..19], [0, 0, 1], "{answer:?}");
        assert_eq!(answer[19], 0, "it says that it belongs to an ensemble: {answer:?}");
        assert_eq!(&answer[20..29], [0; 9], "{answer:?}");
        let words = String::from_utf8_lossy(&answer);
        assert!(
            words.contains(&format!("server {claimed} is no member of the ensemble")),
            "{words}"
        );
    }
    // A server that does belong to it is told.
    let mut stream = TcpStream::connect(world.peer_address(1)).await.unwrap();
    stream.write_all(&hello(2)).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer[19], 1, "{answer:?}");
    let fourth = world.start(4, &[1, 2, 3, 4]).await;
    world.says(4, "refuses this server: server 4 is no member of the ensemble").await;
    assert!(!fourth.status().serving);
    servers.push(fourth);
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_removed_while_it_was_away_says_so_when_it_comes_back() {
    let world = World { more: "reconfigEnabled=true\nskipACL=yes", ..World::new() };
    let mut servers = Vec::new();
    for id in 1..=3 {
        servers.push(world.start(id, &[1, 2, 3]).await);
    }
    testkit::all_vote(&servers).await;
    servers.pop().unwrap().stop().await.unwrap();
    let leaving = Some(testkit::text("3"));
    let remove = Request::Reconfig { joining: None, leaving, members: None, version: -1 };
    client(world.address(1)).await.call(&remove).await.unwrap();
    let third = world.start(3, &[1, 2, 3]).await;
    world.says(3, "refuses this server: server 3 is no member of the ensemble").await;
    assert!(!third.status().serving);
    servers.push(third);
    stop(servers).await;
}

/// The directory of a server that does not know yet what it is to become is as much its own as any other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_for_the_others_has_its_directory_for_itself() {
    let world = World::new();
    let waits = world.start(1, &[1, 2, 3]).await;
    // At other addresses, so that nothing else stands in its way.
    std::os::unix::fs::symlink(world.data(1), world.data(2)).unwrap();
    let Err(refused) = world.try_to_start(2, &[], false).await else {
        panic!("it runs on a directory that is in use")
    };
    assert!(
        refused.to_string().contains("another lockkeeper server is using this directory"),
        "{refused}"
    );
    waits.stop().await.unwrap();
    world.start_alone(2).await.stop().await.unwrap();
}
