//! A server and a peer whose end of every link closes at once: what the server says of it in its log, how
//! often, and how often it tries.

use std::fs::{File, read_to_string};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use testkit::ports::port;
use testkit::process::{Running, lockkeeper};
use testkit::{PATIENCE, say, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// How often the other end closes before it is looked what was said of it.
const ENDS: u64 = 8;
/// The pauses between them, each twice the one before and a second at most.
const PAUSES: Duration = Duration::from_millis(40 + 80 + 160 + 320 + 640 + 1000 + 1000);
/// The longest of them.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A server of two, in a process of its own.
struct Half {
    directory: tempfile::TempDir,
    server: Running,
}

impl Half {
    /// Server `id`, whose file says that the servers are at these ports.
    fn start(id: u8, ports: [u16; 2]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        // The election port is never bound.
        let lines = ports.map(|port| format!("127.0.0.1:{port}:{}", port ^ 1));
        let text = format!(
            "dataDir={}\nclientPort=0\nclientPortAddress=127.0.0.1\nadmin.serverAddress=127.0.0.1\n\
             admin.serverPort=0\nserver.1={}\nserver.2={}\n",
            home.join("data").display(),
            lines[0],
            lines[1]
        );
        std::fs::write(home.join("zoo.cfg"), text).unwrap();
        let mut command = lockkeeper(home, &["server", "zoo.cfg", "--myid", &id.to_string()]);
        command.stderr(File::create(Self::log_of(home)).unwrap());
        Self { server: Running::of(command), directory }
    }

    fn log_of(home: &Path) -> std::path::PathBuf {
        home.join("log")
    }

    /// Those lines of its log in which all of these words are.
    fn said(&self, words: &[&str]) -> Vec<String> {
        let log = read_to_string(Self::log_of(self.directory.path())).unwrap();
        let lines = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        lines.map(str::to_string).collect()
    }

    async fn metric(&self, name: &str) -> u64 {
        let page = self.server.screen[3].strip_prefix("admin    http://").expect("the fourth line");
        let address: SocketAddr = page.split('/').next().unwrap().parse().expect("an address");
        let answer = say(address, b"GET /metrics HTTP/1.0\r\n\r\n").await;
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name}: {answer}")).parse().expect("a number")
    }

    async fn waits_for(&self, metric: &str) {
        let what = format!("{metric} is {ENDS}");
        wait_until(&what, async || self.metric(metric).await >= ENDS).await;
    }
}

/// When connections came.
type Times = Arc<Mutex<Vec<Instant>>>;

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// How long it took from the first until there were as many as are waited for.
fn span(times: &Times) -> Duration {
    let times = times.lock().unwrap();
    times[usize::try_from(ENDS).unwrap() - 1] - times[0]
}

#[tokio::test]
async fn a_peer_that_takes_connections_and_closes_them_is_logged_once_for_each_reason() {
    let (listener, peer_port) = listen().await;
    let times = Times::default();
    let seen = Arc::clone(&times);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let came = Instant::now();
            // A connection without a hello only asks whether the port is open.
            if matches!(timeout(PATIENCE, connection.peek(&mut [0])).await, Ok(Ok(1))) {
                seen.lock().unwrap().push(came);
            }
        }
    });
    let half = Half::start(1, [port(), peer_port]);
    half.waits_for("lockkeeper_links_failed").await;
    let said = half.said(&["WARN", "server 2"]);
    // Which it is depends on whether the hello had come: an end, a reset or a broken pipe.
    assert!((1..=3).contains(&said.len()), "{said:#?}");
    let mut reasons: Vec<&str> =
        said.iter().map(|line| line.split_once("WARN").unwrap().1).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), said.len(), "{said:#?}");
    // One pause is cut short: that in which the server has found out with whom it may speak at all.
    assert!(span(&times) >= PAUSES - PAUSE_MAX, "{:?}", span(&times));
}

/// Takes what one server says first and what the other one answers across, and notes when it was a link.
async fn shake_hands(one: &mut TcpStream, other: &mut TcpStream, made: &Times) -> io::Result<()> {
    let hello = receive(one).await?;
    other.write_all(&hello).await?;
    let answer = receive(other).await?;
    let (is_for_messages, is_refused) = (hello[KIND_AT] == MESSAGES, answer[HEAD..][..2] == [0, 0]);
    if is_for_messages && !is_refused {
        made.lock().unwrap().push(Instant::now());
    }
    one.write_all(&answer).await
}

/// A hello or an answer: magic, length and checksum, and the payload.
async fn receive(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    from.read_exact(&mut bytes).await?;
    let length = u32::from_be_bytes(*bytes[8..].first_chunk().unwrap());
    bytes.resize(HEAD + length as usize, 0);
    from.read_exact(&mut bytes[HEAD..]).await?;
    Ok(bytes)
}

const HEAD: usize = 16;
/// Behind two versions and the server's id.
const KIND_AT: usize = HEAD + 5;
const MESSAGES: u8 = 1;

#[tokio::test]
async fn a_link_that_ends_as_soon_as_it_is_made_is_logged_once_and_made_ever_more_rarely() {
    let (listener, way) = listen().await;
    let ports = [port(), port()];
    let made = Times::default();
    let seen = Arc::clone(&made);
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            let Ok(mut called) = TcpStream::connect(("127.0.0.1", ports[1])).await else {
                continue;
            };
            // Whatever comes of it, both ends are closed.
            let _ = timeout(PATIENCE, shake_hands(&mut caller, &mut called, &seen)).await;
        }
    });
    let _other = Half::start(2, ports);
    let half = Half::start(1, [ports[0], way]);
    half.waits_for("lockkeeper_links_made").await;
    for words in ["link made", "link ended"] {
        let said = half.said(&[words, "server=2"]);
        assert_eq!(said.len(), 1, "{said:#?}");
    }
    assert!(span(&made) >= PAUSES, "{:?}", span(&made));
}
