//! A client that does what no client should: floods, sends as much as a frame takes, asks and does not read,
//! comes and goes.
//!
//! It goes on until it is told to end, whatever the server does to it: a connection that is cut off is
//! replaced. *Never* checks an answer: that is for the well-behaved client beside it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper::internals::bench::{PATIENCE, Session, wire};
use serde::{Deserialize, Serialize};

/// Its own znode.
const ZNODE: &str = "/abuse";
/// Data of ordinary size, and as much as a frame takes.
const SIZE: usize = 100;
const LARGE: usize = 1_000_000;
/// Requests that are written at once.
const PIECE: usize = 1_000;
/// Connections that ask and do not read.
const UNREAD_CONNECTIONS: usize = 8;
/// How long a write or a read may take before it looks whether it is to end.
const TURN: Duration = Duration::from_millis(200);
/// Pause after a connection that could not be had.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes of a session timeout that is short, so that what is left behind expires.
const TIMEOUT_MS: i32 = 5_000;

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Abuse {
    /// Sends sets of 100 bytes on one connection as fast as the server reads them.
    Sets,
    /// The same with reads.
    Gets,
    /// Sends sets of a million bytes.
    Large,
    /// Asks for a million bytes again and again on eight connections and reads nothing.
    Unread,
    /// Opens a session on a new connection, and leaves it, again and again.
    Churn,
}

impl Abuse {
    /// As tables say it.
    pub fn title(self) -> &'static str {
        match self {
            Abuse::Sets => "sets without waiting for answers",
            Abuse::Gets => "reads without waiting for answers",
            Abuse::Large => "sets of 1,000,000 bytes",
            Abuse::Unread => "asks for 1,000,000 bytes on 8 connections, reads nothing",
            Abuse::Churn => "opens a session and leaves it",
        }
    }
}

/// What it has come to.
#[derive(Debug, Default)]
pub struct Deeds {
    /// Requests that it has written, or sessions that it has had.
    pub count: AtomicU64,
    /// Connections that the server has ended.
    pub cut_off: AtomicU64,
}

/// Abuses a server until `stop`.
pub fn run(abuse: Abuse, addr: SocketAddr, stop: &AtomicBool, deeds: &Deeds) -> Result<(), String> {
    let size = if abuse == Abuse::Unread { LARGE } else { SIZE };
    let prepared = Session::open(addr, PATIENCE).and_then(|mut session| {
        session.ensure(ZNODE, b"")?;
        session.call(wire::set(ZNODE, &vec![0x5a; size]))?;
        session.close()
    });
    prepared.map_err(|e| format!("the abusive client: {e}"))?;
    let go_on = |body: &(dyn Fn() -> std::io::Result<()> + Sync)| {
        while !stop.load(Ordering::Relaxed) {
            if body().is_err() && !stop.load(Ordering::Relaxed) {
                deeds.cut_off.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
        }
    };
    let data = vec![0x5a; if abuse == Abuse::Large { LARGE } else { SIZE }];
    let (request, at_once) = match abuse {
        Abuse::Sets => (wire::set(ZNODE, &data), PIECE),
        Abuse::Large => (wire::set(ZNODE, &data), 1),
        Abuse::Gets | Abuse::Unread => (wire::get(ZNODE), PIECE),
        Abuse::Churn => {
            go_on(&|| come_and_go(addr, deeds));
            return Ok(());
        }
    };
    let reads = abuse != Abuse::Unread;
    let body = || pour(addr, &request, at_once, reads, stop, deeds);
    thread::scope(|scope| {
        for _ in 0..if reads { 1 } else { UNREAD_CONNECTIONS } {
            scope.spawn(|| go_on(&body));
        }
    });
    Ok(())
}

/// A session on a new connection. Every second one is closed, the others are left.
fn come_and_go(addr: SocketAddr, deeds: &Deeds) -> std::io::Result<()> {
    let mut stream = greet(addr)?;
    if deeds.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
        stream.write_all(&wire::bare(wire::CLOSE))?;
        let mut end = Vec::new();
        stream.read_to_end(&mut end)?;
    }
    Ok(())
}

/// A connection with a session.
fn greet(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&wire::connect(TIMEOUT_MS))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut granted = vec![0; u32::from_be_bytes(length).min(1024) as usize];
    stream.read_exact(&mut granted)?;
    Ok(stream)
}

/// Writes the same request again and again, until the end or until it is cut off.
fn pour(
    addr: SocketAddr,
    request: &[u8],
    at_once: usize,
    reads: bool,
    stop: &AtomicBool,
    deeds: &Deeds,
) -> std::io::Result<()> {
    let stream = greet(addr)?;
    stream.set_write_timeout(Some(TURN))?;
    stream.set_read_timeout(Some(TURN))?;
    thread::scope(|scope| {
        let reader = reads.then(|| scope.spawn(|| drain(&stream, stop)));
        let wrote = fill(&stream, request, at_once, stop, deeds);
        // A reader that waits hears of the end.
        let _ = stream.shutdown(Shutdown::Both);
        let read = reader.map(|reader| reader.join().expect("a reader does not panic"));
        wrote.and(read.unwrap_or(Ok(())))
    })
}

fn fill(
    mut stream: &TcpStream,
    request: &[u8],
    at_once: usize,
    stop: &AtomicBool,
    deeds: &Deeds,
) -> std::io::Result<()> {
    let (mut piece, mut xid) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        piece.clear();
        for _ in 0..at_once {
            let start = piece.len();
            piece.extend_from_slice(request);
            xid = (xid + 1) & i32::MAX;
            wire::patch_xid(&mut piece[start..], xid);
        }
        let mut sent = 0;
        while sent < piece.len() && !stop.load(Ordering::Relaxed) {
            match stream.write(&piece[sent..]) {
                Ok(0) => return Err(std::io::ErrorKind::BrokenPipe.into()),
                Ok(count) => sent += count,
                // The server does not read on.
                Err(e) if is_timeout(&e) => {}
                Err(e) => return Err(e),
            }
        }
        deeds.count.fetch_add((sent / request.len()) as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads and forgets.
fn drain(mut stream: &TcpStream, stop: &AtomicBool) -> std::io::Result<()> {
    let mut scratch = vec![0; 256 * 1024];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut scratch) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
