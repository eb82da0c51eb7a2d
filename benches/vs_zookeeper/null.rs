//! The null server with a log: what this machine allows a ZooKeeper server at most.
//!
//! One thread, one epoll loop, a hash map of paths, the wire protocol of seven requests and nothing
//! else: no watches, no ACLs, no session expiry, no recovery. In one turn of the loop it reads what
//! every ready socket has, applies it, appends all writes to the log, makes them durable with one
//! fdatasync, and only then answers. The distance of a real server from it is what that server's
//! own work costs. Never use it for anything else.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use lockkeeper::internals::bench::frames::{Frames, Source};
use lockkeeper::internals::bench::wire;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::null_tree::Tree;

const LISTENER: Token = Token(usize::MAX);
/// Answers waiting for one client at most; a client that does not read them is cut off.
const UNSENT_MAX: usize = 64 * 1024 * 1024;
/// How the log grows ahead of its end, as ZooKeeper's does by default: sparsely, 64 MiB at a time.
const LOG_STEP: u64 = 64 * 1024 * 1024;

/// Serves until the process is ended.
pub fn serve(port: u16, log: &Path) -> Result<(), String> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let log = Log::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
    let listener = TcpListener::bind(addr).map_err(|e| format!("{addr}: {e}"))?;
    Server::new(listener, log).and_then(Server::run).map_err(|e| format!("null server: {e}"))
}

/// An append-only file whose length is kept ahead of its content.
struct Log {
    file: File,
    end: u64,
    length: u64,
}

impl Log {
    fn create(path: &Path) -> io::Result<Self> {
        Ok(Log { file: File::create(path)?, end: 0, length: 0 })
    }

    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let end = self.end + records.len() as u64;
        while self.length < end {
            self.length += LOG_STEP;
            self.file.set_len(self.length)?;
        }
        self.file.write_all(records)?;
        self.end = end;
        self.file.sync_data()
    }
}

struct Client {
    stream: TcpStream,
    frames: Frames,
    unsent: Vec<u8>,
    sent: usize,
    session: i64,
    /// Nothing more is read; dropped once everything is sent.
    leaving: bool,
    /// Is in the list of clients to answer at the end of this turn.
    listed: bool,
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    log: Log,
    records: Vec<u8>,
    tree: Tree,
    clients: Vec<Option<Client>>,
    vacant: Vec<usize>,
    to_answer: Vec<usize>,
    last_session: i64,
}

impl Server {
    fn new(mut listener: TcpListener, log: Log) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Server {
            poll,
            listener,
            log,
            records: Vec::new(),
            tree: Tree::new(),
            clients: Vec::new(),
            vacant: Vec::new(),
            to_answer: Vec::new(),
            last_session: 0x10_0000,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            self.tree.look_at_clock();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(number) => self.receive(number),
                }
            }
            if !self.records.is_empty() {
                self.log.append(&self.records)?;
            }
            self.records.clear();
            self.answer();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            stream.set_nodelay(true)?;
            let number = self.vacant.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(number), interest)?;
            self.clients[number] = Some(Client {
                stream,
                frames: Frames::default(),
                unsent: Vec::new(),
                sent: 0,
                session: 0,
                leaving: false,
                listed: false,
            });
        }
    }

    /// Reads what a client has sent and applies it.
    fn receive(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else { return };
        if !client.listed {
            client.listed = true;
            self.to_answer.push(number);
        }
        if client.leaving {
            return;
        }
        let gone = !matches!(client.frames.fill(&mut client.stream), Ok(Source::Open));
        loop {
            match client.frames.next_frame() {
                Ok(Some(frame)) if client.session == 0 => {
                    self.last_session += 1;
                    client.session = self.last_session;
                    if !greet(frame, client.session, &mut client.unsent) {
                        client.leaving = true;
                        break;
                    }
                }
                Ok(Some(frame)) => {
                    let reply = self.tree.request(frame, &mut client.unsent);
                    if reply.wrote {
                        wire::buffer(&mut self.records, frame);
                    }
                    if reply.last {
                        client.leaving = true;
                        break;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    client.leaving = true;
                    break;
                }
            }
        }
        if gone {
            client.leaving = true;
            client.unsent.clear();
            client.sent = 0;
        }
    }

    /// Sends what this turn's clients are owed and lets go of those that leave.
    fn answer(&mut self) {
        for number in self.to_answer.drain(..) {
            let Some(client) = &mut self.clients[number] else { continue };
            client.listed = false;
            let alive = client.send().is_ok() && client.unsent.len() - client.sent < UNSENT_MAX;
            if !alive || (client.leaving && client.unsent.is_empty()) {
                // Dropping the stream closes it, which also takes it out of the epoll set.
                self.clients[number] = None;
                self.vacant.push(number);
            }
        }
    }
}

impl Client {
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Answers a connect request as if every session were new; false if it is not one.
fn greet(request: &[u8], session: i64, out: &mut Vec<u8>) -> bool {
    let Some(timeout_ms) = wire::int_at(request, 12) else { return false };
    wire::frame(out, |f| {
        wire::int(f, 0);
        wire::int(f, timeout_ms.max(1));
        wire::long(f, session);
        wire::buffer(f, &[0; 16]);
        f.push(0);
    });
    true
}
