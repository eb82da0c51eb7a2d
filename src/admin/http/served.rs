//! An HTTP port that is served, for tests, and what one asks it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Options;
use crate::admin::fake::Fake;
use crate::admin::{Source, serve};

/// Serves a fake server's figures.
pub(in crate::admin) struct Served {
    pub address: SocketAddr,
    pub fake: Arc<Fake>,
    pub stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn with(fake: Fake, options: Options) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Arc::new(fake);
        let (stop, stopped) = oneshot::channel();
        let source: Arc<dyn Source> = fake.clone();
        let task = tokio::spawn(serve(listener, source, options, async move {
            stopped.await.ok();
        }));
        Served { address, fake, stop: Some(stop), task }
    }

    pub(crate) async fn new() -> Served {
        Served::with(Fake::standalone(), Options::default()).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes, closes the sending side, and returns all that comes back.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        all(&mut stream).await
    }

    pub(crate) async fn ask(&self, method: &str, target: &str) -> Reply {
        let text = self
            .raw(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
            .await;
        Reply::parse(&text)
    }

    pub(crate) async fn get(&self, target: &str) -> Reply {
        self.ask("GET", target).await
    }
}

/// A reset counts as an end: it is how a server cuts who still sends.
pub(in crate::admin) async fn all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes));
    let _: std::io::Result<usize> = ended.await.expect("the server closes");
    String::from_utf8(bytes).unwrap()
}

/// An answer as it came; its head in small letters.
#[derive(Debug)]
pub(in crate::admin) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub(crate) fn parse(text: &str) -> Reply {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_string() }
    }

    pub(crate) fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        serde_json::from_str(&self.body).unwrap()
    }
}
