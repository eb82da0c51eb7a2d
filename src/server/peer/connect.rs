//! The way to one other server: connects, introduces itself, and sends.
//!
//! *Owns* the outgoing connection to one member. *Invariants*: a name is resolved at every attempt and
//! one that cannot be is as good as a server that is off; nothing is sent before the hello was
//! accepted; the pause between attempts grows from `PEER_RETRY_MIN` to `PEER_RETRY_MAX`, and ends at
//! once when the other server calls; a link is replaced only where the members say another address of its server,
//! and not where they spell the one that it leads to otherwise.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout};

use super::admission;
use super::flapping::Flapping;
use super::frame::{Secured, invalid};
use super::hello::{Hello, Kind, judge, negotiate};
use super::peers::{Ends, Known, Peers};
use crate::config::PeerAddress;
use crate::replica::founding::{Identified, Introduction};
use crate::server::limits::{
    INTRODUCTION_INTERVAL, LINK_SETTLES, PEER_CONNECT_MAX, PEER_MOVE_RETRY_MAX, PEER_RETRY_MIN,
    PEER_SILENCE_MAX,
};
use crate::server::mailbox::{LinkEvent, Message, Wire};
use crate::server::transport::{Reader, Stream};
use crate::supervision::Task;

/// Keeps connecting to all other members, as they come and go.
pub(in crate::server) async fn connect_all(peers: Arc<Peers>) {
    let mut members = peers.members.subscribe();
    let mut tasks: BTreeMap<u8, (Vec<PeerAddress>, Ends)> = BTreeMap::new();
    loop {
        let wanted = members.borrow_and_update().clone();
        tasks.retain(|id, _| wanted.iter().any(|spec| spec.id == *id));
        for spec in wanted {
            match tasks.get_mut(&spec.id) {
                _ if spec.id == peers.own => {}
                // Its link stays until there is one to the new address.
                Some((addresses, _)) if *addresses != spec.addresses => {
                    *addresses = spec.addresses;
                    peers.nudge(spec.id);
                }
                Some(_) => {}
                None => {
                    let task = keep_connected(Arc::clone(&peers), spec.id);
                    tasks.insert(spec.id, (spec.addresses, Ends::spawn(Task::Link, task)));
                }
            }
        }
        if members.changed().await.is_err() {
            return;
        }
    }
}

/// Connects to a server whenever there is no connection.
pub(super) async fn keep_connected(peers: Arc<Peers>, server: u8) {
    let mut flapping = Flapping::default();
    loop {
        if peers.is_barred(server) {
            peers.nudged(server).await;
            continue;
        }
        let attempt = tokio::select! {
            attempt = attempt(&peers, server, &flapping) => attempt,
            () = peers.barred(server) => continue,
        };
        let (pause, is_nudged) = match attempt {
            Attempt::Introduced => (INTRODUCTION_INTERVAL, true),
            Attempt::Served(lasted) => flapping.ended(lasted),
            Attempt::Failed => {
                peers.counts().failed.add(1);
                (flapping.failed(), true)
            }
        };
        let mut introductions = peers.introductions();
        tokio::select! {
            () = sleep(pause) => {}
            () = peers.nudged(server), if is_nudged => {}
            // Only what this server decides changes what another answers.
            changed = introductions.wait_for(|known| matches!(known, Introduction::Founded(_))),
                if matches!(attempt, Attempt::Introduced) => drop(changed),
        }
    }
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Both know now who the other is.
    Introduced,
    /// There was a link, and it has ended, after this time.
    Served(Duration),
    /// There was none, for a reason that was told.
    Failed,
}

async fn attempt(peers: &Peers, server: u8, flapping: &Flapping) -> Attempt {
    let introduction = peers.introduction();
    let kind = match introduction {
        Introduction::Founding(_) => Kind::Introduction,
        Introduction::Founded(_) => Kind::Messages,
    };
    for line in peers.lines(server) {
        let Some((stream, other)) = greet(peers, server, &line, kind, introduction.clone()).await
        else {
            continue;
        };
        let (Kind::Messages, Introduction::Founded(identity)) = (kind, other) else {
            return Attempt::Introduced;
        };
        let begun = Instant::now();
        let mut link = Some((line, identity, stream));
        while let Some(known) = link {
            link = serve(peers, server, known, flapping).await;
        }
        return Attempt::Served(begun.elapsed());
    }
    Attempt::Failed
}

/// A connection to a server: where, and who it is.
type Made = (Vec<PeerAddress>, Identified, Secured);

/// Waits until the members of the ensemble say another address of a server than the one that its link leads to, and it
/// answers there. Until then, the link to the old address is the only way to let it know. `line` is what it was reached
/// at, and `at` the address that this stood for: a line that stands for it as well takes the place of `line`.
async fn moved(
    peers: &Peers,
    server: u8,
    mut line: Vec<PeerAddress>,
    at: Option<SocketAddr>,
) -> Made {
    let mut pause = PEER_RETRY_MIN;
    loop {
        peers.moved(server, &line).await;
        if let (Some(wanted), introduction @ Introduction::Founded(_)) =
            (peers.line(server), peers.introduction())
        {
            match leads_to(&wanted, at).await {
                Ok(true) => {
                    peers.reached(server, wanted.clone());
                    (line, pause) = (wanted, PEER_RETRY_MIN);
                    continue;
                }
                Ok(false) => {
                    let greeted = greet(peers, server, &wanted, Kind::Messages, introduction);
                    if let Some((stream, Introduction::Founded(identity))) = greeted.await {
                        return (wanted, identity, stream);
                    }
                }
                // Unknown is not another one.
                Err(error) => unreached(peers, server, &name_of(server, &wanted), &error),
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PEER_MOVE_RETRY_MAX);
    }
}

/// Whether a line stands for the address at the other end of a link.
///
/// # Errors
/// A name does not resolve, or not in time: it may stand for that address.
async fn leads_to(line: &[PeerAddress], at: Option<SocketAddr>) -> io::Result<bool> {
    let key = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    let mut unknown = None;
    for PeerAddress { host, peer_port, .. } in line {
        match in_time(lookup_host((host.as_str(), *peer_port))).await {
            Ok(mut resolved) => {
                if resolved.any(|address| at.map(key) == Some(key(address))) {
                    return Ok(true);
                }
            }
            Err(error) => unknown = Some(error),
        }
    }
    unknown.map_or(Ok(false), Err)
}

/// As [`greet`], wherever the server may be reached.
pub(super) async fn reach(
    peers: &Peers,
    server: u8,
    kind: Kind,
) -> Option<(Secured, Introduction)> {
    greet(peers, server, &peers.addresses(server)?, kind, peers.introduction()).await
}

/// Connects to a server and says hello: what it says of itself, if it accepts.
pub(super) async fn greet(
    peers: &Peers,
    server: u8,
    addresses: &[PeerAddress],
    kind: Kind,
    introduction: Introduction,
) -> Option<(Secured, Introduction)> {
    let name = name_of(server, addresses);
    let asked = Instant::now().into_std();
    let mut stream = dial(peers, server, addresses, &name).await?;
    let mut hello = Hello::new(peers.own, kind, introduction, peers.term())
        .speaking(peers.spoken())
        .listening(peers.listens());
    let said = admission::say(peers, &mut stream, server, &mut hello).await;
    let (answer, seals) = match said {
        Ok(answered) => answered,
        Err(error) => {
            peers.complain(server, "hello", format!("no answer from {name}: {error}"));
            return None;
        }
    };
    if answer.server != server {
        let words = format!("{name} is server {}: a server line is wrong", answer.server);
        peers.complain(server, "identity", words);
        return None;
    }
    let is_withheld = answer.introduction == Introduction::withheld();
    if let (Err(words), true) = (&answer.verdict, is_withheld) {
        let words = format!("{name} refuses this server: {words}");
        peers.complain(server, "refusal", words.clone());
        let event = LinkEvent::Refused { server, words };
        // Fails when the server ends.
        let _ = peers.driver.send(Message::Link(event)).await;
        return None;
    }
    if let Introduction::Founding(_) = hello.introduction {
        let introduction = answer.introduction.clone();
        introduced(peers, server, introduction, Some(asked)).await;
    }
    let verdict =
        answer.verdict.and_then(|version| negotiate(peers.spoken(), server, (version, version)));
    let own = (peers.own, &hello.introduction);
    let verdict = verdict.and_then(|version| {
        judge(own, (server, &answer.introduction), kind).map(|()| peers.speaks(server, version))
    });
    if let Err(words) = verdict {
        let is_waiting = matches!(answer.introduction, Introduction::Founding(_));
        // A server without data is one that will have some in a moment.
        if !is_waiting {
            peers.complain(server, "refusal", format!("no link to {name}: {words}"));
        }
        return None;
    }
    if let (Kind::Messages, Introduction::Founded(identity)) = (kind, &answer.introduction) {
        let event = LinkEvent::Term { peer: identity.raft_id, term: answer.term };
        // Fails when the server ends.
        let _ = peers.driver.send(Message::Link(event)).await;
    }
    Some(((stream, seals), answer.introduction))
}

/// Tells the driver what another server says of itself. `asked`: when this server had asked it.
pub(super) async fn introduced(
    peers: &Peers,
    server: u8,
    introduction: Introduction,
    asked: Option<std::time::Instant>,
) {
    let event = LinkEvent::Introduced { server, introduction, asked };
    // Fails when the server ends.
    let _ = peers.driver.send(Message::Link(event)).await;
}

/// Sends on a connection until its end. If the server has moved meanwhile, the next connection.
async fn serve(
    peers: &Peers,
    server: u8,
    (line, identity, (stream, seals)): Made,
    flapping: &Flapping,
) -> Option<Made> {
    let at = stream.peer_addr().ok();
    let address = at.map(|at| at.to_string()).unwrap_or_default();
    let (mut reader, writer) = stream.into_split();
    let wire = Arc::new(Wire::new(writer));
    let peer = identity.raft_id;
    let event =
        |link| LinkEvent::Outgoing { link, peer, wire: Arc::clone(&wire), seal: seals.send };
    let known = Known::tell(peers, peer, event).await?;
    peers.reached(server, line.clone());
    peers.counts().made.add(1);
    let mut is_logged = flapping.is_worth_a_line();
    if is_logged {
        tracing::info!(server, %address, "link made");
    }
    let (ended, next) = {
        let ends = async {
            tokio::select! {
                ended = wire.run() => (ended, None),
                ended = closed(&mut reader) => (ended, None),
                next = moved(peers, server, line, at) => (Ok(()), Some(next)),
            }
        };
        tokio::pin!(ends);
        match timeout(LINK_SETTLES, &mut ends).await {
            Ok(ended) => ended,
            Err(_it_lasts) => {
                peers.content(server);
                if !is_logged {
                    let before = flapping.short();
                    tracing::info!(server, %address, before, "link made, behind others that ended soon");
                    is_logged = true;
                }
                ends.await
            }
        }
    };
    wire.close();
    drop(known);
    let reason = match (ended, &next) {
        (_, Some(_)) => "the server has moved".to_string(),
        (Ok(()), None) => "closed".to_string(),
        (Err(error), None) => error.to_string(),
    };
    if is_logged {
        tracing::info!(server, %address, reason, "link ended");
    }
    next
}

/// Waits for the end: nothing comes on a connection that is there to send.
async fn closed(reader: &mut Reader) -> io::Result<()> {
    match reader.read(&mut [0]).await? {
        0 => Ok(()),
        _ => Err(invalid("it sent something unexpected")),
    }
}

/// Connects to a server, through TLS if links are. `None`: that came to nothing, and was told.
async fn dial(peers: &Peers, server: u8, addresses: &[PeerAddress], name: &str) -> Option<Stream> {
    let (stream, host) = match connect(addresses).await {
        Ok(made) => made,
        Err(error) => {
            unreached(peers, server, name, &error);
            return None;
        }
    };
    let stream = match peers.security.connect(stream, host).await {
        Ok(stream) => stream,
        Err(error) => {
            peers.complain(server, "tls", format!("no link through TLS to {name}: {error}"));
            return None;
        }
    };
    if let Some(tls) = peers.security.tls()
        && let Err(words) = tls.judge(&stream, &peers.hosts(server), false).await
    {
        peers.complain(server, "tls", format!("no link through TLS to {name}: {words}"));
        return None;
    }
    Some(stream)
}

/// Complains that a server is not reached.
fn unreached(peers: &Peers, server: u8, name: &str, error: &io::Error) {
    let advice = match error.to_string().contains("failed to lookup address") {
        true => ": the name does not resolve: mend it in the server lines, or in the resolver",
        false => "",
    };
    peers.complain(server, "connect", format!("no connection to {name}: {error}{advice}"));
}

/// Connects to the first address that takes the connection: with the host that it is of.
async fn connect(addresses: &[PeerAddress]) -> io::Result<(TcpStream, &str)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for PeerAddress { host, peer_port, .. } in addresses {
        if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
            // To dial it would reach this server.
            let words = format!("{host} stands for all addresses of a machine");
            last = io::Error::new(io::ErrorKind::AddrNotAvailable, words);
            continue;
        }
        let resolved = match in_time(lookup_host((host.as_str(), *peer_port))).await {
            Ok(resolved) => resolved,
            Err(error) => {
                last = error;
                continue;
            }
        };
        for address in resolved {
            match in_time(TcpStream::connect(address)).await {
                Ok(stream) => {
                    prepare(&stream);
                    return Ok((stream, host));
                }
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PEER_CONNECT_MAX, step).await?
}

/// Makes a connection fast, and a dead one noticed. It works without, only worse.
pub(super) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let second = Duration::from_secs(1);
    let keepalive =
        TcpKeepalive::new().with_time(second).with_interval(second).with_retries(KEEPALIVE_RETRIES);
    let results = [
        stream.set_nodelay(true),
        socket.set_tcp_keepalive(&keepalive),
        socket.set_tcp_user_timeout(Some(PEER_SILENCE_MAX)),
    ];
    for error in results.into_iter().filter_map(Result::err) {
        tracing::debug!(%error, "an option of a connection between servers");
    }
}

/// `server 2 (host:2888)`, with all its addresses.
pub(super) fn name_of(server: u8, addresses: &[PeerAddress]) -> String {
    let all: Vec<String> =
        addresses.iter().map(|a| format!("{}:{}", a.host, a.peer_port)).collect();
    format!("server {server} ({})", all.join(", "))
}

/// Unanswered probes, one second apart, after which a silent connection is dead.
const KEEPALIVE_RETRIES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_leads_where_its_names_do_and_one_that_does_not_resolve_may_lead_anywhere() {
        let at = Some("127.0.0.1:2888".parse().unwrap());
        let line = |hosts: &[&str], peer_port| -> Vec<PeerAddress> {
            let address =
                |host: &&str| PeerAddress { host: (*host).into(), peer_port, election_port: 1 };
            hosts.iter().map(address).collect()
        };
        for (hosts, port, leads) in [
            (&["127.0.0.1"][..], 2888, Some(true)),
            (&["localhost"], 2888, Some(true)),
            (&["0x7f000001"], 2888, Some(true)),
            (&["::ffff:127.0.0.1"], 2888, Some(true)),
            (&["name.of.no.host.invalid", "localhost"], 2888, Some(true)),
            (&["127.0.0.1"], 2889, Some(false)),
            (&["127.0.0.2", "127.0.0.3"], 2888, Some(false)),
            (&["name.of.no.host.invalid"], 2888, None),
            (&["127.0.0.2", "name.of.no.host.invalid"], 2888, None),
        ] {
            let line = line(hosts, port);
            assert_eq!(leads_to(&line, at).await.ok(), leads, "{line:?}");
            assert_ne!(leads_to(&line, None).await.ok(), Some(true), "{line:?}");
        }
    }
}
