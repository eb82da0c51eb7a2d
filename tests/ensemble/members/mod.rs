//! Members of a real ensemble come, go, move, lose their data and are written to files: up to five
//! servers in this process, each with a directory, files and a loopback address of its own.

mod addresses;
mod files;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::internals::cli::config_file;
use lockkeeper::internals::replica::inspect::{Mode, PeerStatus};
use lockkeeper::internals::server::{Builder, ServerError};
use lockkeeper::{Server, StartError};
use testkit::ports::Network;
use testkit::{Client, PATIENCE};

/// A directory with the files of servers: at first of 1 to 4, of which the first three know each other.
struct World {
    directory: tempfile::TempDir,
    /// The first three bytes of all addresses: no other test, here or elsewhere, has them.
    net: Network,
    /// More keys of everybody's configuration.
    more: String,
}

/// `super:secret`, as `DigestAuthenticationProvider.superDigest` takes it.
const SUPER: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

impl World {
    fn new(more: &str) -> Self {
        let net = Network::new();
        let directory = tempfile::tempdir().unwrap();
        let world = Self { directory, net, more: more.to_owned() };
        for id in 1..=4 {
            let members = (1..=3).chain((id == 4).then_some(4));
            let lines: Vec<String> = members.map(|member| world.line(member)).collect();
            world.write_file(id, &lines);
        }
        world
    }

    /// Gives a server a configuration file with these server lines, whatever it had.
    fn write_file(&self, id: u8, lines: &[String]) {
        let text = format!(
            "dataDir={}\nclientPort=17181\nclientPortAddress={}\nadmin.enableServer=false\n\
             tickTime=2000\n{}\n{}\n",
            self.data(id).display(),
            self.host(id),
            self.more,
            lines.join("\n"),
        );
        fs::write(self.file(id), text).unwrap();
    }

    fn lines(&self, ids: &[u8]) -> Vec<String> {
        ids.iter().map(|id| self.line(*id)).collect()
    }

    fn host(&self, id: u8) -> String {
        self.net.host(id)
    }

    fn address(&self, id: u8) -> SocketAddr {
        format!("{}:17181", self.host(id)).parse().unwrap()
    }

    fn line(&self, id: u8) -> String {
        self.line_at(id, 17288, 17181)
    }

    fn line_at(&self, id: u8, peer_port: u16, client_port: u16) -> String {
        let (host, election_port) = (self.host(id), peer_port + 100);
        format!("server.{id}={host}:{peer_port}:{election_port}:participant;{host}:{client_port}")
    }

    fn at(&self, id: u8, port: u16) -> SocketAddr {
        format!("{}:{port}", self.host(id)).parse().unwrap()
    }

    fn data(&self, id: u8) -> PathBuf {
        self.directory.path().join(format!("data{id}"))
    }

    fn file(&self, id: u8) -> PathBuf {
        self.directory.path().join(format!("zoo{id}.cfg"))
    }

    fn builder(&self, id: u8) -> Builder {
        let draft = config_file::draft(&self.file(id), None, Some(&id.to_string()));
        Server::builder().config(draft.resolve().expect("a good file"))
    }

    /// Starts a server. Its port may be taken for a moment: a process that another test has just forked holds copies
    /// of all sockets until it executes its program.
    async fn start(&self, id: u8) -> Server {
        let begun = Instant::now();
        loop {
            match self.builder(id).start().await {
                Ok(server) => return server,
                Err(StartError::Address { error, .. })
                    if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("it does not start: {error}"),
            }
        }
    }

    /// Three servers of which any one may be stopped: an ensemble begins with a majority, and has the third vote later.
    async fn start_three(&self) -> Vec<Server> {
        let mut servers = Vec::new();
        for id in 1..=3 {
            servers.push(self.start(id).await);
        }
        testkit::all_vote(&servers).await;
        servers
    }

    async fn member(&self, arguments: &[&str]) -> Output {
        let servers: Vec<String> = [17181, 17182, 17183]
            .into_iter()
            .flat_map(|port| (1..=3).map(move |id| (id, port)))
            .map(|(id, port)| self.at(id, port).to_string())
            .collect();
        let server = servers.join(",");
        let mut command = std::process::Command::new(testkit::binary());
        command.arg("member").args(arguments).args(["--server", &server]);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }
}

/// Code with which `lockkeeper member` ends where no server answers, or none has a leader.
const NO_SERVER: i32 = 69;

impl World {
    /// Has the ensemble say these lines.
    async fn reconfig(&self, lines: &[String]) {
        let mut arguments = vec!["add"];
        arguments.extend(lines.iter().map(String::as_str));
        arguments.extend(["--auth", "digest:super:secret"]);
        until("a server that takes it", async || {
            let done = self.member(&arguments).await;
            // An election takes its time.
            (done.status.code() != Some(NO_SERVER)).then(|| {
                assert_eq!(done.status.code(), Some(0), "{}", said(&done));
            })
        })
        .await;
    }

    /// All of them serve clients at these ports, and agree.
    async fn all_serve(&self, servers: &[Server], client_ports: [u16; 3]) {
        static WRITES: AtomicU32 = AtomicU32::new(0);
        for (server, port) in servers.iter().zip(client_ports) {
            until("it listens there", async || (server.local_addr().port() == port).then_some(()))
                .await;
            serves(server).await;
        }
        let path = format!("/n{}", WRITES.fetch_add(1, Ordering::Relaxed));
        let addresses = (1..=3).zip(client_ports).map(|(id, port)| self.at(id, port));
        let addresses: Vec<SocketAddr> = addresses.take(servers.len()).collect();
        for (number, address) in addresses.iter().enumerate() {
            until("it takes writes", async || {
                let path = format!("{path}-{number}");
                client(*address).await.make_sure_of(&path).await.ok()
            })
            .await;
        }
        for address in &addresses {
            assert_eq!(data(*address, &format!("{path}-0")).await, b"");
        }
    }

    async fn is_closed(&self, id: u8, port: u16) {
        until("the port is closed", async || {
            tokio::net::TcpStream::connect(self.at(id, port)).await.is_err().then_some(())
        })
        .await;
    }
}

fn reconfigurable() -> String {
    format!("reconfigEnabled=true\nDigestAuthenticationProvider.superDigest={SUPER}")
}

fn leader(servers: &[Server]) -> u8 {
    let at = servers.iter().position(|server| server.status().mode == Mode::Leader);
    1 + u8::try_from(at.expect("a leader")).unwrap()
}

/// Looks again and again until there is an answer.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not in {PATIENCE:?}");
}

async fn serves(server: &Server) {
    until("it serves", async || {
        let status = server.status();
        (status.serving && status.mode != Mode::Looking).then_some(())
    })
    .await;
}

async fn client(address: SocketAddr) -> Client {
    until("a session", async || {
        let stream = tokio::net::TcpStream::connect(address).await.ok()?;
        Client::open_on(stream, &testkit::fresh(10_000)).await
    })
    .await
}

async fn data(address: SocketAddr, path: &str) -> Vec<u8> {
    until("the znode", async || client(address).await.data(path).await.ok()).await
}

/// What the leader knows of another server.
fn peer(servers: &[Server], id: u8) -> Option<PeerStatus> {
    let leads = |server: &&Server| server.status().mode == Mode::Leader;
    let status = servers.iter().find(leads)?.status();
    status.peers.into_iter().find(|peer| peer.server == id)
}

fn votes(servers: &[Server], id: u8) -> Option<()> {
    peer(servers, id).filter(|peer| peer.is_connected && peer.votes).map(|_| ())
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| name(entry).unwrap()).collect();
    names.sort();
    names
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy_all(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// With which words a server ends because it must not take part. None: a server was elected after `term`, perhaps
/// because the machine is busy, and has brought this one up to date before the one that remembers was asked.
async fn refusal(server: Server, others: &[Server], term: u64) -> Option<String> {
    let is_up_to_date = until("it ends, or another one leads", async || {
        if tokio::time::timeout(Duration::from_millis(1), server.wait()).await.is_ok() {
            return Some(false);
        }
        let was_elected = others.iter().any(|other| other.status().term > term);
        (was_elected && server.status().serving).then_some(true)
    })
    .await;
    if is_up_to_date {
        server.stop().await.unwrap();
        return None;
    }
    match server.wait().await.expect_err("it must not take part") {
        ServerError::RolledBack(words) => Some(words),
        other => panic!("{other}"),
    }
}

async fn stop(servers: impl IntoIterator<Item = Server>) {
    for server in servers {
        server.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_by_command_and_their_files_follow() {
    let world = World::new(&format!(
        "reconfigEnabled=true\nDigestAuthenticationProvider.superDigest={SUPER}"
    ));
    let mut servers = world.start_three().await;
    client(world.address(1)).await.create("/kept", b"old", 0).await.unwrap();
    let added = world.member(&["add", &world.line(4)]).await;
    assert_eq!(added.status.code(), Some(77), "{}", said(&added));
    let added = world.member(&["add", &world.line(4), "--auth", "digest:super:secret"]).await;
    assert_eq!(added.status.code(), Some(0), "{}", said(&added));

    servers.push(world.start(4).await);
    assert_eq!(data(world.address(4), "/kept").await, b"old");
    until("it votes", async || votes(&servers, 4)).await;
    let listed = said(&world.member(&["list"]).await);
    assert!(listed.contains(&format!("{}  follower", world.line(4))), "{listed}");
    let version = listed.lines().find_map(|line| line.strip_prefix("version=")).unwrap();

    // Every server has a file with the four lines beside its own, which names it.
    for id in 1..=4 {
        let dynamic = format!("{}.dynamic.{version}", world.file(id).display());
        let lines = until("the file", async || fs::read_to_string(&dynamic).ok()).await;
        assert_eq!(lines.lines().count(), 4, "{lines}");
        until("it is named", async || {
            let text = fs::read_to_string(world.file(id)).ok()?;
            text.contains(&format!("dynamicConfigFile={dynamic}\n")).then_some(())
        })
        .await;
    }
    let removed = world.member(&["remove", "4", "--auth", "digest:super:secret"]).await;
    assert_eq!(removed.status.code(), Some(0), "{}", said(&removed));
    servers.pop().unwrap().stop().await.unwrap();

    // What was written is what they start from.
    stop(servers).await;
    let servers = world.start_three().await;
    assert_eq!(data(world.address(3), "/kept").await, b"old");
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_data_is_put_away_fetches_everything_and_votes_again() {
    let world = World::new("");
    let mut servers = world.start_three().await;
    client(world.address(2)).await.create("/kept", b"old", 0).await.unwrap();
    servers.remove(2).stop().await.unwrap();
    until("it is missed", async || (!peer(&servers, 3)?.is_connected).then_some(())).await;
    client(world.address(2)).await.set("/kept", b"new").await.unwrap();

    let again = world.builder(3).rejoin().start().await.expect("it starts");
    assert!(again.recovered().is_new);
    assert_eq!(data(world.address(3), "/kept").await, b"new");
    assert!(names(&world.data(3)).contains(&"set-aside-1".to_string()));
    servers.push(again);
    // With its vote, there is a majority without server 1.
    until("it votes", async || votes(&servers, 3)).await;
    servers.remove(0).stop().await.unwrap();
    until("the other two go on", async || {
        client(world.address(3)).await.set("/kept", b"newest").await.ok()
    })
    .await;
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_an_old_copy_of_its_data_refuses_whatever_is_restarted_until_it_rejoins() {
    for _ in 0..3 {
        if an_old_copy_is_refused().await.is_some() {
            return;
        }
    }
    panic!("another server was elected each time");
}

/// None if another server was elected meanwhile: see [`refusal`].
async fn an_old_copy_is_refused() -> Option<()> {
    let world = World::new("");
    let mut servers = world.start_three().await;
    client(world.address(1)).await.create("/kept", b"old", 0).await.unwrap();
    let id = leader(&servers) % 3 + 1;
    until("it votes", async || votes(&servers, id)).await;
    let (at, data_dir, copy) =
        (usize::from(id) - 1, world.data(id), world.directory.path().join("copy"));
    servers.remove(at).stop().await.unwrap();
    copy_all(&data_dir, &copy);
    servers.insert(at, world.start(id).await);
    serves(&servers[at]).await;
    client(world.address(id)).await.set("/kept", b"new").await.unwrap();
    let knows = async || (peer(&servers, id)?.behind == Some(0)).then_some(());
    until("the leader knows that it has it", knows).await;
    let term = servers[at].status().term;
    servers.remove(at).stop().await.unwrap();
    fs::remove_dir_all(&data_dir).unwrap();
    fs::rename(&copy, &data_dir).unwrap();

    // It refuses also when its disk does not take the mark.
    let (mark, in_the_way) = (data_dir.join("rolled-back"), data_dir.join("rolled-back.tmp"));
    fs::create_dir(&in_the_way).unwrap();
    let first = refusal(world.start(id).await, &servers, term).await?;
    assert!(first.contains(" remembers ") && first.contains("--rejoin"), "{first}");
    assert!(!mark.exists());
    fs::remove_dir(&in_the_way).unwrap();
    let words = refusal(world.start(id).await, &servers, term).await?;
    assert_eq!(fs::read_to_string(&mark).unwrap(), words);

    // Those who remember are gone.
    stop(servers).await;
    let ids = [1, 2, 3].into_iter().filter(|other| *other != id);
    let mut servers = Vec::new();
    for other in ids {
        servers.push(world.start(other).await);
    }
    let error = world.builder(id).start().await.expect_err("it is marked").to_string();
    assert!(error.starts_with(&words), "{error}");
    for server in &servers {
        serves(server).await;
    }
    let again = world.builder(id).rejoin().start().await.expect("its data is set aside");
    assert_eq!(data(world.address(id), "/kept").await, b"new");
    assert!(names(&data_dir.join("set-aside-1")).contains(&"rolled-back".to_string()));
    servers.push(again);
    stop(servers).await;
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_its_own_becomes_three_and_does_not_take_their_data_for_its_own() {
    let world = World::new("");
    let alone = || Server::builder().data_dir(world.data(1)).address(&world.host(1), 17181);
    let server = alone().start().await.unwrap();
    client(world.address(1)).await.create("/kept", b"old", 0).await.unwrap();
    server.stop().await.unwrap();

    let servers = world.start_three().await;
    assert_eq!(data(world.address(3), "/kept").await, b"old");
    until("another one votes", async || {
        let peers = servers[0].status().peers;
        peers.iter().any(|peer| peer.votes).then_some(())
    })
    .await;
    stop(servers).await;
    let error = alone().start().await.expect_err("it is not its own any more").to_string();
    assert!(error.contains("these servers vote: 1, "), "{error}");
}

#[tokio::test]
async fn only_a_server_of_an_ensemble_rejoins() {
    let directory = tempfile::tempdir().unwrap();
    let alone = Server::builder().data_dir(directory.path().join("data")).rejoin();
    let error = alone.start().await.expect_err("there is nobody").to_string();
    assert!(error.contains("--rejoin: there are no other servers"), "{error}");
    assert!(!directory.path().join("data").exists());
}
