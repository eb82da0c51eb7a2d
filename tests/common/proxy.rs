//! A network that can fail: a TCP proxy in front of a server.

use std::net::SocketAddr;

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
    /// What clients send arrives, what servers send is lost.
    Deaf,
    /// All connections are cut, and new ones at once.
    Down,
}

/// A proxy in front of one server.
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Sky>,
}

impl Proxy {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let weather = watch::Sender::new(Sky { now: Weather::Fair, storms: 0 });
        let line = Line { weather: weather.subscribe() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(line.clone().connect(client, server));
            }
        });
        Self { address, weather }
    }

    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    pub fn set(&self, weather: Weather) {
        self.weather.send_modify(|sky| {
            sky.now = weather;
            sky.storms += u64::from(weather == Weather::Down);
        });
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
}

#[derive(Clone)]
struct Line {
    weather: watch::Receiver<Sky>,
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
            let passes = match self.weather.borrow_and_update().now {
                Weather::Fair => true,
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
