//! Few open files: connections of strangers take neither what the disk, the operators and the other
//! servers need, nor the place of clients with a session.

use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::{Client, ask, say, wait_until};
use tokio::net::TcpStream;

/// What every process of a server may have open here.
const FILES: u32 = 160;
/// Connections that never say anything.
const IDLE: usize = 480;

/// A server in a process that may have few files open.
struct Few {
    child: Child,
    client: SocketAddr,
    admin: SocketAddr,
}

fn command(directory: &Path, files: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" server \"$@\"")]);
    command.arg(testkit::binary()).args(arguments);
    // The smallest segments that there are: the log begins another one every few writes.
    for setting in ["lockkeeper.imageLogBytes=1048576", "lockkeeper.checkpointMillis=20"] {
        command.args(["--set", setting]);
    }
    command.current_dir(directory).env("RUST_LOG", "warn").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Few {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let arguments = [arguments, &["--admin-addr", "127.0.0.1:0"]].concat();
        let mut child = command(directory, FILES, &arguments).spawn().expect("there is a shell");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let screen: Vec<String> = lines.take(6).map(|line| line.expect("text")).collect();
        assert_eq!(screen.len(), 6, "the first screen: {screen:?}");
        let address = |line: &str, before: &str| {
            let text = line.strip_prefix(before).expect("a line of the first screen");
            text.trim_end_matches("/commands").parse().expect("an address")
        };
        let client = address(&screen[2], "connect  ");
        let admin = address(&screen[3], "admin    http://");
        Self { child, client, admin }
    }

    async fn is_alive(&self) -> bool {
        let request = b"GET /livez HTTP/1.0\r\n\r\n";
        ask(self.admin, request).await.is_ok_and(|answer| answer.contains("200 OK"))
    }

    /// What one of the figures of `mntr` is.
    async fn figure(&self, name: &str) -> u64 {
        let text = say(self.client, b"mntr").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    /// What it has said so far that is worth a warning; ends it.
    fn end(&mut self) -> String {
        self.child.kill().expect("it runs");
        self.child.wait().expect("our child");
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
        said
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections that never say anything.
async fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(TcpStream::connect(address).await.expect("it listens"));
    }
    connections
}

/// Writes through some segments of the log.
async fn fill(client: &mut Client, path: &str) {
    for number in 0..6 {
        client.create(&format!("{path}-{number}"), &vec![7; 1_000_000], 0).await.expect("written");
    }
}

#[tokio::test]
async fn idle_connections_take_no_file_that_the_server_needs() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Few::start(directory.path(), &["--port", "0"]);
    let mut before = Client::connect(server.client).await;
    let _idle = idle(server.client, IDLE).await;
    assert!(say(server.client, b"srvr").await.contains("Mode: standalone"));
    assert!(server.is_alive().await);
    fill(&mut before, "/before").await;
    let mut later = Client::connect(server.client).await;
    fill(&mut later, "/later").await;
    let yielded = server.figure("zk_yielded_lockkeeper_connections_cut").await;
    assert!(yielded > 300, "{yielded}");
    let files = server.figure("zk_open_file_descriptor_count").await;
    assert!(files < u64::from(FILES), "{files}");
    assert!(server.child.try_wait().unwrap().is_none(), "it lives");
    let said = server.end();
    assert!(said.contains("connections closed that had asked for no session"), "{said}");
}

#[tokio::test]
async fn idle_connections_keep_no_other_server_out() {
    let directory = tempfile::tempdir().unwrap();
    let ports = testkit::ports::ports::<6>();
    let peer_address = |id: usize| SocketAddr::from(([127, 0, 0, 1], ports[id]));
    let lines: String = (0..3)
        .map(|id| format!("server.{}={}:{}\n", id + 1, peer_address(id), ports[id + 3]))
        .collect();
    let start = |id: usize| {
        let own = directory.path().join(id.to_string());
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("myid"), (id + 1).to_string()).unwrap();
        let text = format!(
            "tickTime=500\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=true\n\
             dataDir={}\nclientPort=0\nclientPortAddress=127.0.0.1\n{lines}",
            own.display()
        );
        std::fs::write(own.join("zoo.cfg"), text).unwrap();
        Few::start(&own, &["zoo.cfg"])
    };
    let mut servers: Vec<Few> = (0..3).map(start).collect();
    let mut idle_ones = Vec::new();
    for (id, server) in servers.iter().enumerate() {
        idle_ones.push((idle(server.client, 200).await, idle(peer_address(id), 200).await));
    }
    wait_until("the first one serves", async || {
        say(servers[0].client, b"srvr").await.contains("Mode: ")
    })
    .await;
    let mut client = Client::connect(servers[0].client).await;
    fill(&mut client, "/before").await;
    // All links with this one are made anew, past those that say nothing.
    servers[2].end();
    servers[2] = start(2);
    idle_ones.push((idle(servers[2].client, 200).await, idle(peer_address(2), 200).await));
    fill(&mut client, "/later").await;
    wait_until("the third follows again", async || {
        say(servers[2].client, b"srvr").await.contains("Mode: follower")
    })
    .await;
    let mut there = Client::connect(servers[2].client).await;
    assert!(there.exists("/before-0").await, "it has what the others have");
    fill(&mut there, "/there").await;
    for server in &servers {
        assert!(server.is_alive().await);
    }
    assert!(servers[0].figure("zk_yielded_lockkeeper_links_cut").await > 100);
}

#[test]
fn a_server_that_could_serve_few_clients_does_not_start_and_says_how_many_files_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let output = command(directory.path(), 50, &["--port", "0"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("open files: 50 are allowed at once, "), "{said}");
    assert!(!directory.path().join("lockkeeper-data/log").exists(), "nothing was created");
}
