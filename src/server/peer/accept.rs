//! Those who connect to this server: other servers, or any program that finds the port.
//!
//! *Owns* the incoming end of every link; the sockets themselves are `peer/ports.rs`'s. *Invariants*: nothing of a
//! connection but its hello is read before that was accepted; connections that say none keep no server
//! out: the oldest of them yields; what is received reaches the driver in
//! the order in which it came; a frame that is damaged or malformed ends the link.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use super::connect::{introduced, prepare};
use super::frame::Secured;
use super::hello::{Answer, Hello, Kind, judge, negotiate};
use super::peers::{Known, Peers};
use super::{admission, frame, image_receive, image_send, lock_query, standings_query};
use crate::peer_auth::{Seal, TAG_BYTES};
use crate::replica::PeerMessage;
use crate::replica::founding::Introduction;
use crate::replica::peer_codec::MESSAGE_BYTES_MAX;
use crate::server::clock::Periodic;
use crate::server::limits::{PEER_CONNECTIONS_PER_KIND, PEER_READ_BYTES_MAX};
use crate::server::mailbox::{LinkEvent, Message};
use crate::server::ports::{Arrival, Arrivals, Files, accept_from};
use crate::server::transport::Stream;
use crate::supervision::{Task, TaskSet};

/// Accepts until it is dropped, or until `closed` is: then the links that were made go on. Where too many
/// have not proved yet to be another server, the oldest of them yields to a new one.
pub(super) async fn accept(
    socket: TcpListener,
    peers: Arc<Peers>,
    (arrivals, files): (Arc<Arrivals>, Files),
    mut closed: oneshot::Receiver<()>,
) {
    let mut connections = TaskSet::default();
    let mut said = Periodic::default();
    loop {
        let accepted = tokio::select! {
            // One that has panicked ends the server.
            Some(_) = connections.join_next() => continue,
            _ = &mut closed => break,
            accepted = accept_from(&socket) => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let is_full = arrivals.unknown() >= files.unknown_peers;
                if is_full || !files.leaves_enough(&stream) {
                    let has_yielded = arrivals.oldest_yields().await;
                    peers.counts().yielded.add(1);
                    if said.is_due(SAID_INTERVAL, Instant::now()) {
                        let (max, count) = (files.unknown_peers, peers.counts().yielded.total());
                        tracing::warn!(
                            count,
                            max,
                            "connections closed that did not prove to be \
                            of another server, since the start: there were too many"
                        );
                    }
                    if !has_yielded {
                        continue;
                    }
                }
                let peers = Arc::clone(&peers);
                let here = (&mut connections, &Handle::current());
                arrivals.spawn(Task::Peer, here, |arrival| async move {
                    serve(&peers, stream, remote, &arrival).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections of other servers");
                if !arrivals.oldest_yields().await {
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

async fn serve(peers: &Arc<Peers>, stream: TcpStream, remote: SocketAddr, arrival: &Arc<Arrival>) {
    prepare(&stream);
    let heard = async {
        let mut stream = peers.security.accept(stream).await?;
        admission::hear(&mut stream).await.map(|heard| (stream, heard))
    };
    let (mut stream, (hello, payload)) = match heard.await {
        Ok(heard) => heard,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            peers.counts().strangers.add(1);
            let words = format!("refused a connection from {}: {error}", remote.ip());
            return peers.complain(UNKNOWN, "stranger", words);
        }
        Err(error) => {
            tracing::debug!(%remote, %error, "a connection that is no server's");
            return;
        }
    };
    let server = hello.server;
    if peers.is_barred(server) {
        return;
    }
    let admitted = admission::admit(peers, &mut stream, remote, (&hello, &payload)).await;
    let Some(mut seals) = admitted else { return };
    if !peers.is_member(server) && !peers.takes_guest(&hello) {
        return refuse(peers, hello, (stream, seals), remote).await;
    }
    let introduction = peers.introduction();
    let verdict = negotiate(peers.spoken(), server, hello.versions).and_then(|version| {
        let own = (peers.own, &introduction);
        judge(own, (server, &hello.introduction), hello.kind).map(|()| version)
    });
    if let (Err(words), Introduction::Founded(_), Introduction::Founded(_)) =
        (&verdict, &introduction, &hello.introduction)
    {
        let words = format!("refused a link from server {server} ({}): {words}", remote.ip());
        peers.complain(server, "refused", words);
    }
    if let Ok(version) = verdict {
        peers.speaks(server, version);
    }
    let is_accepted = verdict.is_ok();
    let answer = Answer { verdict, server: peers.own, introduction, term: peers.term() };
    if admission::give(&answer, &mut stream, &mut seals).await.is_err() {
        return;
    }
    if server != peers.own && matches!(answer.introduction, Introduction::Founding(_)) {
        introduced(peers, server, hello.introduction.clone(), None).await;
    }
    if is_accepted && hello.kind != Kind::Introduction {
        arrival.is_known_as((server, hello.kind as u8), PEER_CONNECTIONS_PER_KIND);
    }
    let (true, Introduction::Founded(identity)) = (is_accepted, hello.introduction) else { return };
    let (kind, peer, mut through) = (hello.kind, identity.raft_id, None);
    if kind == Kind::Messages {
        // It may be where nothing that this server has says: then no other way leads there.
        peers.heard_of(server, hello.listens);
        peers.nudge(server);
        let port = stream.socket().local_addr().map_or(0, |at| at.port());
        through = Some(peers.incoming(server, port));
    }
    let secured = (stream, seals);
    let served = async {
        match kind {
            Kind::Introduction => {}
            Kind::Messages => receive(peers, server, peer, secured).await,
            Kind::Image => image_receive::receive(peers, server, peer, secured).await,
            Kind::Fetch => image_send::give(peers, server, secured).await,
            Kind::Locks => lock_query::serve(peers, secured).await,
            Kind::Standings => standings_query::serve(peers, secured).await,
        }
    };
    until_it_must_end(peers, server, served).await;
    drop(through);
}

/// Serves a connection until it ends, or its server is cut off or no member any more.
async fn until_it_must_end(peers: &Peers, server: u8, served: impl Future<Output = ()>) {
    tokio::select! {
        () = served => {}
        () = peers.barred(server) => {}
        () = peers.dismissed(server) => {}
    }
}

/// Answers a server that is no member: it is told nothing but that, and tries again.
async fn refuse(peers: &Peers, hello: Hello, (mut stream, mut seals): Secured, remote: SocketAddr) {
    let server = hello.server;
    let words = format!("server {server} {}", peers.stranger(server));
    peers.counts().strangers.add(1);
    peers.complain(server, "stranger", format!("refused a link from {}: {words}", remote.ip()));
    let (verdict, introduction) = (Err(words), Introduction::withheld());
    let answer = Answer { verdict, server: peers.own, introduction, term: 0 };
    // It is gone: then it needs no answer.
    let _ = admission::give(&answer, &mut stream, &mut seals).await;
    if matches!(peers.introduction(), Introduction::Founding(_)) {
        introduced(peers, server, hello.introduction, None).await;
    }
}

async fn receive(peers: &Peers, server: u8, peer: u64, (mut stream, mut seals): Secured) {
    let cut = Arc::new(Notify::new());
    let event = |link| LinkEvent::Incoming { link, peer, cut: Arc::clone(&cut) };
    let Some(known) = Known::tell(peers, peer, event).await else { return };
    let ended = tokio::select! {
        ended = messages(peers, &known, &mut stream, seals.receive.as_mut()) => ended,
        () = cut.notified() => Ok(()),
    };
    if let Err(words) = ended {
        peers.complain(server, "frame", format!("link from server {server} cut: {words}"));
    }
}

/// Reads messages until the end of the link.
///
/// # Errors
/// What came is not what a server sends.
async fn messages(
    peers: &Peers,
    known: &Known,
    stream: &mut Stream,
    mut seal: Option<&mut Seal>,
) -> Result<(), String> {
    let bytes_max = MESSAGE_BYTES_MAX + seal.as_ref().map_or(0, |_| TAG_BYTES);
    let mut buffer = BytesMut::new();
    let mut read_bytes = READ_BYTES_MIN;
    loop {
        // A declared length claims one read's worth of memory: the rest is made room for as the
        // bytes arrive.
        let wanted = frame::missing(&buffer).clamp(read_bytes, PEER_READ_BYTES_MAX);
        if buffer.capacity() - buffer.len() < wanted / 2 {
            buffer.reserve(wanted);
        }
        let room = buffer.capacity() - buffer.len();
        // Nothing goes back on this connection, so the system would acknowledge every read by a packet
        // of its own; and it forgets that it was told not to. Where it cannot be told, it may.
        #[cfg(target_os = "linux")]
        let _ = socket2::SockRef::from(stream.socket()).set_tcp_quickack(false);
        match stream.read_buf(&mut buffer).await {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                peers.counts().bytes_received.add(bytes as u64);
                if bytes == room {
                    read_bytes = (read_bytes * 2).min(PEER_READ_BYTES_MAX);
                } else if bytes < read_bytes / 4 {
                    read_bytes = (read_bytes / 2).max(READ_BYTES_MIN);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a link broke");
                return Ok(());
            }
        }
        let mut messages = Vec::new();
        let refused = loop {
            match frame::next(&mut buffer, bytes_max) {
                Ok(None) => break None,
                Ok(Some(payload)) => match frame::opened(payload, seal.as_deref_mut()) {
                    Ok(payload) => match PeerMessage::decode(payload) {
                        Ok(message) => messages.push(message),
                        Err(error) => break Some(format!("a message is malformed: {error}")),
                    },
                    Err(broken) => break Some(broken.to_string()),
                },
                Err(bad) => break Some(bad.to_string()),
            }
        };
        // What came whole counts, whatever came behind it.
        if !messages.is_empty() {
            let event = LinkEvent::Received { link: known.link, peer: known.peer, messages };
            if peers.driver.send(Message::Link(event)).await.is_err() {
                return Ok(());
            }
        }
        if let Some(words) = refused {
            peers.counts().frames_refused.add(1);
            return Err(words);
        }
    }
}

/// In the place of the id of a server that has said none: there is none with this one.
const UNKNOWN: u8 = 0;
/// What an idle link holds.
const READ_BYTES_MIN: usize = 4 << 10;
/// How long to wait when the system refuses another connection (usually: no file left).
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Time between two warnings of connections that were closed for others.
const SAID_INTERVAL: Duration = Duration::from_secs(1);
