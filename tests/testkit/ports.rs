//! Ports and networks that a test has alone.
//!
//! *Owns* the one way in which tests come by the port of a server that is yet to start. *Invariant*: what is reserved
//! is given to nobody else until its owner drops it: a socket is bound to it and does not listen, so the kernel hands
//! it out neither to a connection nor to a bind to any port, while a server, which sets `SO_REUSEADDR` as the socket
//! does, can bind it, end, and bind it again. *Never* lets go of a port and hopes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

use socket2::{Domain, Socket, Type};

/// A port, at every IPv4 address of this machine. Until a server listens there, connections are refused.
#[derive(Debug)]
pub struct Reserved {
    port: u16,
    _socket: Socket,
}

impl Reserved {
    /// One that nobody has.
    ///
    /// # Panics
    ///
    /// When the system has none.
    #[must_use]
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        // Bound without the option, so that it is nobody's; with it from now on, for the server to come.
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()).expect("a port");
        socket.set_reuse_address(true).expect("SO_REUSEADDR");
        let address = socket.local_addr().expect("bound").as_socket().expect("of IPv4");
        Self { port: address.port(), _socket: socket }
    }

    /// Its number.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Default for Reserved {
    fn default() -> Self {
        Self::new()
    }
}

/// Ports that this process keeps to its end: for what names ports in text and owns nothing.
static KEPT: Mutex<Vec<Reserved>> = Mutex::new(Vec::new());

/// A port for the rest of this process.
///
/// # Panics
///
/// When the system has none.
#[must_use]
pub fn port() -> u16 {
    let reserved = Reserved::new();
    let port = reserved.port();
    KEPT.lock().expect("nothing panics while it holds it").push(reserved);
    port
}

/// As many of them.
#[must_use]
pub fn ports<const N: usize>() -> [u16; N] {
    std::array::from_fn(|_| port())
}

/// Where nothing listens, for the rest of this process.
#[must_use]
pub fn closed() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port()))
}

/// A network `127.a.b` of which a test has all addresses and ports, for the rest of this process: a server may outlive
/// its test.
#[derive(Debug)]
pub struct Network {
    prefix: String,
}

/// Listeners that claim the networks of this process.
static CLAIMS: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// Port of the last address of a network, by which it is claimed.
const CLAIM_PORT: u16 = 11_711;

impl Network {
    /// One that no other test of this machine has.
    ///
    /// # Panics
    ///
    /// When all of them are taken.
    #[must_use]
    pub fn new() -> Self {
        let first = std::process::id() as usize;
        for at in 0..NETWORKS {
            let number = (first + at) % NETWORKS;
            let prefix = format!("127.{}.{}", 64 + number / 250, 1 + number % 250);
            if let Ok(claim) = TcpListener::bind(format!("{prefix}.254:{CLAIM_PORT}")) {
                CLAIMS.lock().expect("nothing panics while it holds it").push(claim);
                return Self { prefix };
            }
        }
        panic!("{NETWORKS} networks are taken");
    }

    /// The address that ends with this number.
    #[must_use]
    pub fn host(&self, number: u8) -> String {
        format!("{}.{number}", self.prefix)
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

/// How many there are to choose from.
const NETWORKS: usize = 120 * 250;
