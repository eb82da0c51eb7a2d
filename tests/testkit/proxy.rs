//! A network that can fail: a TCP proxy in front of a server.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// They arrive.
    Fair,
    /// Nothing arrives any more, in either direction, and nobody is told; new connections are taken
    /// and lead nowhere.
    BlackHole,
    /// They arrive, but what servers send does so late, by [`LATE`].
    Slow,
    /// What clients send arrives, what servers send is lost.
    Deaf,
    /// All connections are cut, and new ones at once.
    Down,
}

/// How late the answers are in [`Weather::Slow`].
pub const LATE: Duration = Duration::from_millis(500);

/// A proxy in front of one server, or of each server of an ensemble.
pub struct Proxy {
    addresses: Vec<String>,
    weather: Arc<watch::Sender<Sky>>,
}

impl Proxy {
    pub async fn start(server: SocketAddr) -> Self {
        Self::before(&[server]).await
    }

    /// They have the same weather.
    pub async fn before(servers: &[SocketAddr]) -> Self {
        let sky = Sky { now: Weather::Fair, storms: 0, is_used: false, forecast: None };
        let weather = Arc::new(watch::Sender::new(sky));
        let mut addresses = Vec::new();
        for server in servers.iter().copied() {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            addresses.push(listener.local_addr().expect("bound").to_string());
            let line = Line { weather: weather.subscribe(), sky: Arc::downgrade(&weather) };
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(line.clone().connect(client, server));
                }
            });
        }
        Self { addresses, weather }
    }

    pub fn connect_string(&self) -> String {
        self.addresses.join(",")
    }

    pub fn set(&self, weather: Weather) {
        self.weather.send_modify(|sky| sky.turn(weather));
    }

    /// The weather changes when so many more pieces have come, in either direction: before the last of
    /// them arrives. While there is one request at a time, each request is a piece, and each answer.
    pub fn forecast(&self, pieces: u32, weather: Weather) {
        self.weather.send_modify(|sky| sky.forecast = Some((pieces, weather)));
    }

    /// Waits for this weather.
    pub async fn is_now(&self, weather: Weather) {
        let mut sky = self.weather.subscribe();
        let _ = sky.wait_for(|sky| sky.now == weather).await;
    }

    /// Waits for the first piece that comes, in either direction.
    pub async fn is_used(&self) {
        let mut sky = self.weather.subscribe();
        let _ = sky.wait_for(|sky| sky.is_used).await;
    }

    /// Cuts all connections; new ones are fine.
    pub fn cut(&self) {
        self.set(Weather::Down);
        self.set(Weather::Fair);
    }
}

#[derive(Clone, Copy)]
struct Sky {
    now: Weather,
    /// How often all connections were cut: none of them outlives a change of this.
    storms: u64,
    /// A piece has come.
    is_used: bool,
    forecast: Option<(u32, Weather)>,
}

impl Sky {
    fn turn(&mut self, weather: Weather) {
        self.now = weather;
        self.storms += u64::from(weather == Weather::Down);
        self.forecast = None;
    }

    /// Tells whether anything changes with this piece: it is the first, or the weather turns.
    fn count(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_used, true);
        let Some((left, weather)) = &mut self.forecast else { return is_first };
        *left = left.saturating_sub(1);
        let (changes, weather) = (*left == 0, *weather);
        if changes {
            self.turn(weather);
        }
        changes || is_first
    }
}

#[derive(Clone)]
struct Line {
    weather: watch::Receiver<Sky>,
    /// Weak: the proxy's end is the end of its connections.
    sky: Weak<watch::Sender<Sky>>,
}

impl Line {
    async fn connect(mut self, client: TcpStream, server: SocketAddr) {
        let began = *self.weather.borrow_and_update();
        if began.now == Weather::Down {
            return;
        }
        if began.now == Weather::BlackHole {
            // Such a connection stays dead, as one does whose packets are dropped somewhere.
            let _ = self.weather.wait_for(|sky| sky.storms != began.storms).await;
            drop(client);
            return;
        }
        let Ok(server) = TcpStream::connect(server).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let mut cut = self.weather.clone();
        tokio::select! {
            () = self.clone().carry(from_client, to_server, true) => {}
            () = self.carry(from_server, to_client, false) => {}
            _ = cut.wait_for(|sky| sky.storms != began.storms) => {}
        }
    }

    async fn carry(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_upwards: bool) {
        let mut buffer = BytesMut::new();
        loop {
            match from.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let Some(sky) = self.sky.upgrade() else { return };
            sky.send_if_modified(Sky::count);
            let now = self.weather.borrow_and_update().now;
            let passes = match now {
                Weather::Fair => true,
                Weather::Slow => {
                    if !is_upwards {
                        tokio::time::sleep(LATE).await;
                    }
                    true
                }
                Weather::Deaf => is_upwards,
                Weather::BlackHole | Weather::Down => false,
            };
            // What was held back once is lost for good, and so is the connection.
            if !passes {
                std::future::pending::<()>().await;
            }
            if to.write_all_buf(&mut buffer).await.is_err() {
                return;
            }
        }
    }
}
