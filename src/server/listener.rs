//! The client port: who may connect, and one task for each who does.
//!
//! *Owns* the listening socket, the number of every connection and the count of connections per
//! address. *Invariants*: the port is bound before the data is touched and listens only when the
//! server serves; a connection above a limit is accepted and closed at once, so that the client
//! learns of it; a crowd is accepted at the pace of `pace.rs`; running out of files slows accepting down and
//! nothing else. Reproduces `NIOServerCnxnFactory`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::client_port::Move;
use super::connection;
use super::figures::Figures;
use super::limits::{ACCEPT_INTERVAL, CROWD_TICK, Limits};
use super::pace::Pace;
use super::sched::Scheduling;
use super::shared::{Shared, Stop};
use crate::replica::ConnId;
use crate::supervision::{Task, TaskSet};

/// A bound client port that does not listen yet.
#[derive(Debug)]
pub struct Port {
    socket: Socket,
    /// Where it is bound.
    pub address: SocketAddr,
}

impl Port {
    /// Binds the first of `addresses` that can be bound. Nobody can connect yet.
    ///
    /// # Errors
    /// What the system says to the last of them.
    pub fn bind(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<Self> {
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
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Connections of an earlier server that linger in TIME_WAIT do not keep the port.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket();
        let address = bound.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { socket, address })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// What the system says: another process may have taken the port since.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        self.socket.set_nonblocking(true)?;
        TcpListener::from_std(self.socket.into())
    }
}

/// Accepts until the end is asked for, then ends every connection. `moves`: the socket to accept from, from
/// then on; the connections of the one before stay.
pub async fn accept(
    listener: TcpListener,
    mut moves: mpsc::Receiver<Move>,
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    keep_alive: bool,
) {
    let mut listener = Some(listener);
    let admissions = Arc::new(Admissions::new(&shared.limits, Arc::clone(&shared.figures)));
    let mut connections = TaskSet::default();
    let mut next_conn: ConnId = 0;
    let mut complaint = Complaint::default();
    let mut asked = std::pin::pin!(stop.asked());
    let mut pace = Pace::new(shared.limits.of_ensemble(ACCEPT_INTERVAL), Instant::now());
    let mut held_back = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut asked => break,
            // One that has panicked ends the server.
            Some(_) = connections.join_next() => continue,
            () = until(held_back) => {
                held_back = next(&mut pace, &shared.scheduling);
                continue;
            }
            Some(moved) = moves.recv() => {
                listener = moved.listener;
                // Who asked for it may be gone.
                let _ = moved.done.send(());
                continue;
            }
            accepted = next_of(listener.as_ref()), if held_back.is_none() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                complaint.about(&error);
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        held_back = next(&mut pace, &shared.scheduling);
        let Some(admitted) = Admissions::admit(&admissions, remote.ip()) else { continue };
        let local = stream.local_addr().ok().map(|local| local.ip());
        shared.figures.accepted(remote.ip(), local);
        prepare(&stream, keep_alive);
        next_conn += 1;
        let shared = Arc::clone(&shared);
        connections.spawn(Task::Client, async move {
            connection::serve(stream, remote, next_conn, shared).await;
            drop(admitted);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// Never, while there is no socket.
async fn next_of(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Whether the next one may come; if not, when that is to be seen again.
fn next(pace: &mut Pace, scheduling: &Scheduling) -> Option<Instant> {
    let now = Instant::now();
    if pace.may_come(now) {
        return None;
    }
    scheduling.crowd_comes(now);
    Some(now + CROWD_TICK)
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
    per_ip: Mutex<HashMap<IpAddr, u32>>,
    per_ip_max: u32,
    total_max: u32,
    figures: Arc<Figures>,
}

/// A connection that counts; dropping it ends that.
#[derive(Debug)]
struct Admitted {
    admissions: Arc<Admissions>,
    ip: IpAddr,
}

impl Admissions {
    fn new(limits: &Limits, figures: Arc<Figures>) -> Self {
        Self {
            per_ip: Mutex::default(),
            per_ip_max: limits.connections_per_ip_max,
            total_max: limits.connections_max,
            figures,
        }
    }

    fn admit(this: &Arc<Self>, ip: IpAddr) -> Option<Admitted> {
        let mut per_ip = this.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if this.total_max != 0 && this.figures.alive() >= u64::from(this.total_max) {
            this.figures.rejected_total();
            tracing::debug!(%ip, max = this.total_max, "connection refused: too many in all");
            return None;
        }
        let count = per_ip.get(&ip).copied().unwrap_or(0);
        if this.per_ip_max != 0 && count >= this.per_ip_max {
            this.figures.rejected_per_ip();
            tracing::debug!(%ip, max = this.per_ip_max, "connection refused: too many from there");
            return None;
        }
        per_ip.insert(ip, count + 1);
        Some(Admitted { admissions: Arc::clone(this), ip })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admissions.figures.closed();
        let mut per_ip = self.admissions.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = per_ip.entry(self.ip) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Speaks at most once per [`COMPLAINT_INTERVAL`].
#[derive(Debug, Default)]
struct Complaint(Option<Instant>);

impl Complaint {
    fn about(&mut self, error: &io::Error) {
        if self.0.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            self.0 = Some(Instant::now());
            tracing::warn!(%error, "cannot accept connections");
        }
    }
}

/// How long to wait when the system refuses another connection (usually: no file left).
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// See [`Complaint`].
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);
