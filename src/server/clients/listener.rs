//! The client port: who may connect, and one task for each who does.
//!
//! *Owns* the listening socket, the number of every connection and the count of connections per address.
//! *Invariants*: the port is bound before the data is touched and listens only when the server serves; where there is
//! no room for another connection, the oldest of those that have asked for no session yields; if there is none, the
//! new one is accepted and closed at once, so that the client learns of it; both are counted, and said at most once a
//! second; a reconnect storm is accepted at once and served at the rate of `clients/admission`; no connection takes a
//! file that the server needs (`files.rs`). Reproduces `NIOServerCnxnFactory`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};

use super::arrivals::{Arrival, Arrivals};
use super::client_port::Move;
use super::connection;
use super::held_back::{Admitted, HeldBack};
use super::ports::Listeners;
use crate::replica::ConnId;
use crate::server::figures::Figures;
use crate::server::files::Files;
use crate::server::io_threads::{Assignment, IoThreads};
use crate::server::limits::Limits;
use crate::server::shared::{Shared, Stop};
use crate::supervision::{Task, TaskSet};

/// A bound client port that does not listen yet.
#[derive(Debug)]
pub(crate) struct Port {
    socket: Socket,
    /// Where it is bound.
    pub address: SocketAddr,
}

impl Port {
    /// Binds the first of `addresses` that can be bound; no client can connect yet. An unspecified address
    /// stands for all of the machine, those of IPv6 as well where the system has it, as with ZooKeeper.
    ///
    /// # Errors
    /// What the system says to the last of them.
    pub(crate) fn bind(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match Self::bind_one(address) {
                Ok(port) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn bind_one(address: SocketAddr) -> io::Result<Self> {
        let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        let bound = match address.ip().is_unspecified() {
            true => socket_at(all),
            false => socket_at(address),
        };
        let is_missing = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            address.is_ipv4()
                && (errno == Some(Errno::AFNOSUPPORT) || errno == Some(Errno::ADDRNOTAVAIL))
        };
        let socket = match bound {
            // The system has no IPv6.
            Err(error) if is_missing(&error) => socket_at(address)?,
            bound => bound?,
        };
        let bound = socket.local_addr()?.as_socket();
        let port = bound.ok_or(io::ErrorKind::AddrNotAvailable)?.port();
        Ok(Self { socket, address: SocketAddr::new(address.ip(), port) })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// What the system says: another process may have taken the port since.
    pub(crate) fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        self.socket.set_nonblocking(true)?;
        TcpListener::from_std(self.socket.into())
    }
}

/// A socket that is bound there: at an unspecified IPv6 address, at those of IPv4 as well.
fn socket_at(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier server that linger in TIME_WAIT do not keep the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Waits for a connection. The address of a client of IPv4 is one of IPv4, whatever the socket is bound to:
/// access lists, limits and logs know it by that.
///
/// # Errors
/// What the system says.
pub(crate) async fn accept_from(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, remote) = listener.accept().await?;
    Ok((stream, SocketAddr::new(remote.ip().to_canonical(), remote.port())))
}

/// How connections are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether the system probes silent clients.
    pub keep_alive: bool,
    /// How many there may be.
    pub files: Files,
}

/// Accepts until the end is asked for, then ends every connection. `moves`: the socket to accept from in the place of
/// the main one, from then on; the connections of the one before stay. `threads` end behind them.
pub(crate) async fn accept(
    mut listeners: Listeners,
    mut moves: mpsc::Receiver<Move>,
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    (options, threads): (Options, IoThreads),
) {
    let mut admissions =
        Admissions::new(&shared.limits, options.files, Arc::clone(&shared.figures));
    let mut asked = std::pin::pin!(stop.asked());
    let mut held_back = HeldBack::new(shared.admission.accepting());
    let mut served = Served { shared, threads, connections: TaskSet::default(), last: 0 };
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut asked => break,
            // One that has panicked ends the server.
            Some(_) = served.connections.join_next() => continue,
            () = until(held_back.due()) => {
                for admitted in held_back.admitted(Instant::now()) {
                    served.begin(admitted, &mut admissions);
                }
                continue;
            }
            Some(moved) = moves.recv() => {
                listeners.move_main(moved.listener);
                // Who asked for it may be gone.
                let _ = moved.done.send(());
                continue;
            }
            () = until(admissions.refusals.due()) => {
                admissions.refusals.say(&admissions.places);
                continue;
            }
            accepted = listeners.next(), if admissions.may_accept(&held_back) => accepted,
        };
        let (stream, remote, speaks) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !admissions.has_no_file(&listeners, error).await {
                    sleep(ACCEPT_RETRY).await;
                }
                continue;
            }
        };
        let Some(counted) = admissions.admit(&stream, remote.ip()).await else { continue };
        served.shared.figures.accepted();
        prepare(&stream, options.keep_alive);
        let admitted = Admitted { stream, remote, speaks, counted };
        if let Some(admitted) = held_back.take_turn(admitted, Instant::now()) {
            served.begin(admitted, &mut admissions);
        }
    }
    drop(listeners);
    drop(held_back);
    served.connections.shutdown().await;
    drop(served.threads);
}

/// Connections that are served.
struct Served {
    shared: Arc<Shared>,
    threads: IoThreads,
    connections: TaskSet<()>,
    /// The number of the last one.
    last: ConnId,
}

impl Served {
    fn begin(&mut self, admitted: Admitted, admissions: &mut Admissions) {
        let Admitted { stream, remote, speaks, counted } = admitted;
        self.last += 1;
        let (shared, conn) = (Arc::clone(&self.shared), self.last);
        let thread = self.threads.assign();
        let runtime =
            thread.as_ref().map_or_else(Handle::current, |thread| thread.runtime().clone());
        let stream = match Accepted::on_way_to(stream, thread.as_ref()) {
            Ok(stream) => stream,
            Err(error) => return admissions.refusals.fails(error),
        };
        let there = (&mut self.connections, &runtime);
        admissions.arrivals.spawn(Task::Client, there, move |arrival| async move {
            let place = Place { thread, arrival, counted };
            match stream.arrive() {
                Ok(stream) => {
                    connection::serve((stream, speaks), remote, conn, shared, place).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was accepted and cannot be served")
                }
            }
        });
    }
}

/// An accepted socket on its way to the thread that owns it.
enum Accepted {
    /// It stays.
    Here(TcpStream),
    /// It belongs to no event loop meanwhile.
    Elsewhere(std::net::TcpStream),
}

impl Accepted {
    fn on_way_to(stream: TcpStream, thread: Option<&Assignment>) -> io::Result<Self> {
        match thread {
            Some(thread) if !thread.accepts() => stream.into_std().map(Self::Elsewhere),
            Some(_) | None => Ok(Self::Here(stream)),
        }
    }

    /// In the runtime of that thread.
    fn arrive(self) -> io::Result<TcpStream> {
        match self {
            Self::Here(stream) => Ok(stream),
            Self::Elsewhere(stream) => TcpStream::from_std(stream),
        }
    }
}

/// Never, if there is no such moment.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

fn prepare(stream: &TcpStream, keep_alive: bool) {
    // Neither is worth refusing a client for: the connection works without, only worse.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    if keep_alive && let Err(error) = SockRef::from(stream).set_keepalive(true) {
        tracing::debug!(%error, "SO_KEEPALIVE");
    }
}

/// How many connections there are, and from where.
#[derive(Debug)]
struct Admissions {
    arrivals: Arc<Arrivals>,
    per_ip: Arc<PerIp>,
    per_ip_max: u32,
    places: Places,
    files: Files,
    refusals: Refusals,
    /// Given up for a moment to accept and close a connection when the process has no other file.
    spare: Option<File>,
    figures: Arc<Figures>,
}

/// How many connections there may be, and because of what.
#[derive(Clone, Copy, Debug)]
struct Places {
    max: u64,
    why: &'static str,
}

/// Connections by address.
#[derive(Debug, Default)]
struct PerIp(Mutex<HashMap<IpAddr, u32>>);

/// A connection's place: its socket must be closed when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// The thread that owns the socket; `None`: the driver's.
    pub thread: Option<Assignment>,
    /// By which it yields as long as it asks for no session.
    pub arrival: Arc<Arrival>,
    /// It counts until then.
    #[expect(dead_code, reason = "held, not read")]
    counted: Counted,
}

/// A connection that counts; dropping it ends that.
#[derive(Debug)]
pub(super) struct Counted {
    per_ip: Arc<PerIp>,
    ip: IpAddr,
    figures: Arc<Figures>,
}

impl Admissions {
    fn new(limits: &Limits, files: Files, figures: Arc<Figures>) -> Self {
        let configured = Places { max: limits.connections_max.into(), why: "maxCnxns" };
        let places = match configured.max {
            1.. if configured.max <= files.clients => configured,
            _ => Places { max: files.clients, why: "the limit of open files" },
        };
        Self {
            arrivals: Arc::default(),
            per_ip: Arc::default(),
            per_ip_max: limits.connections_per_ip_max,
            places,
            files,
            refusals: Refusals::default(),
            spare: spare(),
            figures,
        }
    }

    /// Whether one more connection is accepted now. With connections that wait, only while there is room for it: those
    /// that have asked for no session yet were not asked to, and do not yield.
    fn may_accept(&self, held_back: &HeldBack) -> bool {
        let waiting = held_back.len() as u64;
        waiting == 0 || self.arrivals.open() + waiting < self.places.max
    }

    /// Has a new connection count. One that has asked for no session makes room for it if there is
    /// none. `None`: it is refused.
    async fn admit(&mut self, stream: &TcpStream, ip: IpAddr) -> Option<Counted> {
        if self.per_ip_max != 0 && self.per_ip.of(ip) >= self.per_ip_max {
            self.figures.rejected_per_ip();
            self.refusals.per_ip += 1;
            return None;
        }
        let is_full = self.arrivals.open() >= self.places.max || !self.files.leaves_enough(stream);
        if is_full && !self.oldest_yields().await {
            self.refuse();
            return None;
        }
        self.per_ip.add(ip);
        Some(Counted { per_ip: Arc::clone(&self.per_ip), ip, figures: Arc::clone(&self.figures) })
    }

    async fn oldest_yields(&mut self) -> bool {
        let has_yielded = self.arrivals.oldest_yields().await;
        if has_yielded {
            self.figures.cut_yielded();
            self.refusals.yielded += 1;
        }
        has_yielded
    }

    fn refuse(&mut self) {
        self.figures.rejected_total();
        self.refusals.total += 1;
    }

    /// Nothing could be accepted. If that is because a program around this server has all files open, a
    /// connection that asks for nothing gives one back, or the new one is closed at once by means of the
    /// spare one: it must not wait for nothing. False: nothing helps.
    async fn has_no_file(&mut self, listeners: &Listeners, error: io::Error) -> bool {
        let is_for_files =
            matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE));
        if !is_for_files {
            self.refusals.fails(error);
            return false;
        }
        if self.oldest_yields().await {
            return true;
        }
        self.spare = None;
        let accepted = timeout(Duration::ZERO, listeners.next()).await;
        let is_accepted = matches!(accepted, Ok(Ok(_)));
        drop(accepted);
        self.spare = spare();
        if is_accepted {
            self.refuse();
        } else {
            self.refusals.fails(error);
        }
        is_accepted
    }
}

/// A file that is open to be closed.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl PerIp {
    fn of(&self, ip: IpAddr) -> u32 {
        self.lock().get(&ip).copied().unwrap_or(0)
    }

    fn add(&self, ip: IpAddr) {
        *self.lock().entry(ip).or_default() += 1;
    }

    fn take_off(&self, ip: IpAddr) {
        if let Entry::Occupied(mut count) = self.lock().entry(ip) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.figures.closed();
        self.per_ip.take_off(self.ip);
    }
}

/// What there was no room for since it was said last, which is at most once per [`SAID_INTERVAL`].
#[derive(Debug, Default)]
struct Refusals {
    yielded: u64,
    total: u64,
    per_ip: u64,
    failed: Option<io::Error>,
    said: Option<Instant>,
}

impl Refusals {
    fn fails(&mut self, error: io::Error) {
        self.failed = Some(error);
    }

    /// When there is something to say.
    fn due(&self) -> Option<Instant> {
        let is_new = self.yielded + self.total + self.per_ip > 0 || self.failed.is_some();
        is_new.then(|| self.said.map_or_else(Instant::now, |said| said + SAID_INTERVAL))
    }

    fn say(&mut self, places: &Places) {
        let Places { max, why } = *places;
        if self.yielded > 0 {
            let count = self.yielded;
            tracing::warn!(count, max, why, "connections closed that had asked for no session");
        }
        if self.total > 0 {
            let count = self.total;
            tracing::warn!(count, max, why, "connections refused: there are too many in all");
        }
        if self.per_ip > 0 {
            let count = self.per_ip;
            tracing::warn!(count, "connections refused: maxClientCnxns of one address are open");
        }
        if let Some(error) = &self.failed {
            tracing::warn!(%error, "cannot accept connections");
        }
        *self = Self { said: Some(Instant::now()), ..Self::default() };
    }
}

/// How long to wait when the system refuses another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// See [`Refusals`].
const SAID_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Connects to the port of `bound` at `ip`; what the server sees as the client's address.
    async fn seen_from(listener: &TcpListener, bound: SocketAddr, ip: IpAddr) -> IpAddr {
        let client = TcpStream::connect(SocketAddr::new(ip, bound.port()));
        let (client, accepted) = tokio::join!(client, accept_from(listener));
        client.expect("it is listened at");
        accepted.expect("it has connected").1.ip()
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_ipv6_as_well_and_an_ipv4_client_stays_one() {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let has_ipv6 = socket_at(SocketAddr::new(loopback[1], 0)).is_ok();
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            if any.is_ipv6() && !has_ipv6 {
                continue;
            }
            let port = Port::bind([SocketAddr::new(any, 0)]).expect("a free port");
            let bound = port.address;
            assert_eq!(bound.ip(), any, "it is shown as it was asked for");
            let listener = port.listen(8).unwrap();
            for ip in &loopback[..if has_ipv6 { 2 } else { 1 }] {
                assert_eq!(seen_from(&listener, bound, *ip).await, *ip);
            }
        }
    }

    #[tokio::test]
    async fn one_address_is_that_alone() {
        let port = Port::bind([SocketAddr::from(([127, 0, 0, 1], 0))]).expect("a free port");
        let bound = port.address;
        let listener = port.listen(8).unwrap();
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(seen_from(&listener, bound, local).await, local);
        let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), bound.port());
        assert!(TcpStream::connect(other).await.is_err());
    }
}
