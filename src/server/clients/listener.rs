//! The client port: who may connect, and one task for each who does.
//!
//! *Owns* the listening socket, the number of every connection and the count of connections per address.
//! *Invariants*: the port is bound before the data is touched and listens only when the server serves; where there is
//! no room for another connection, the oldest of those that have asked for no session yields; if there is none, the
//! new one is accepted and closed at once, so that the client learns of it; both are counted, and said at most once a
//! second; a reconnect storm is accepted at once and served at the rate of `clients/admission`; no connection takes a
//! file that the server needs (`files.rs`). Reproduces `NIOServerCnxnFactory`.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};

use super::client_port::Move;
use super::connection;
use super::context::ServerContext;
use super::held_back::{Admitted, HeldBack};
use super::listening::Listeners;
use super::place::{Counted, PerIp, Place};
use crate::replica::ConnId;
use crate::server::io_threads::{Assignment, IoThreads};
use crate::server::limits::Limits;
use crate::server::metrics::Figures;
use crate::server::ports::{Arrivals, Files};
use crate::server::stop::Stop;
use crate::supervision::{Task, TaskSet};

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
    server: Arc<ServerContext>,
    stop: Arc<Stop>,
    (options, threads): (Options, IoThreads),
) {
    let mut admissions =
        Admissions::new(&server.limits, options.files, Arc::clone(&server.figures));
    let mut asked = std::pin::pin!(stop.asked());
    let mut held_back = HeldBack::new(server.admission.accepting());
    let mut served = Served { server, threads, connections: TaskSet::default(), last: 0 };
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
        served.server.figures.accepted();
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
    server: Arc<ServerContext>,
    threads: IoThreads,
    connections: TaskSet<()>,
    /// The number of the last one.
    last: ConnId,
}

impl Served {
    fn begin(&mut self, admitted: Admitted, admissions: &mut Admissions) {
        let Admitted { stream, remote, speaks, counted } = admitted;
        self.last += 1;
        let (server, conn) = (Arc::clone(&self.server), self.last);
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
                    connection::serve((stream, speaks), remote, conn, server, place).await;
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
            self.figures.counts.connections_rejected_per_ip.add(1);
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
            self.figures.counts.connections_cut_yielded.add(1);
            self.refusals.yielded += 1;
        }
        has_yielded
    }

    fn refuse(&mut self) {
        self.figures.counts.connections_rejected_total.add(1);
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
