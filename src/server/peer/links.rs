//! The driver's table of links with other servers.
//!
//! *Owns* which link counts. *Invariants*: a message is sent only on a link that the replica has been
//! told of, so that between two cuts nothing is left out; what arrives on a link that a newer one
//! of the same server has replaced is dropped; the replacement is told as a cut and a new link. A
//! message for a server that there is no link to is dropped, and if somebody waits for what becomes
//! of it, that is told as a cut as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

use super::frame;
use super::peers::Peers;
use crate::peer_auth::Seal;
use crate::replica::peer::server_of;
use crate::replica::{Input, PeerMessage, Replica};
use crate::server::mailbox::{LinkEvent, Overfull, Wire};

/// The links of one server.
#[derive(Debug)]
pub(crate) struct Links {
    /// The other servers.
    pub peers: Arc<Peers>,
    outgoing: BTreeMap<u64, Outgoing>,
    incoming: BTreeMap<u64, (u64, Arc<Notify>)>,
}

#[derive(Debug)]
struct Outgoing {
    link: u64,
    wire: Arc<Wire>,
    seal: Option<Seal>,
    /// Frames of the current batch.
    staged: Vec<u8>,
}

impl Links {
    /// None yet.
    #[must_use]
    pub(crate) fn new(peers: Arc<Peers>) -> Self {
        Self { peers, outgoing: BTreeMap::new(), incoming: BTreeMap::new() }
    }

    /// Tells the replica what it must know of an event.
    pub(crate) fn take(&mut self, event: LinkEvent, replica: &mut Replica) {
        match event {
            LinkEvent::Outgoing { link, peer, wire, seal } => {
                match self.outgoing.get(&peer) {
                    Some(known) if known.link > link => return wire.close(),
                    Some(known) => {
                        known.wire.close();
                        replica.step(Input::PeerDown { peer });
                    }
                    None => {}
                }
                self.outgoing.insert(peer, Outgoing { link, wire, seal, staged: Vec::new() });
                replica.step(Input::PeerUp { peer });
            }
            LinkEvent::Incoming { link, peer, cut } => {
                match self.incoming.get(&peer) {
                    Some((known, _)) if *known > link => return cut.notify_one(),
                    Some((_, old)) => {
                        old.notify_one();
                        replica.step(Input::PeerDown { peer });
                    }
                    None => {}
                }
                self.incoming.insert(peer, (link, cut));
                replica.step(Input::PeerUp { peer });
            }
            LinkEvent::Term { peer, term } => replica.step(Input::Introduced { peer, term }),
            LinkEvent::Received { link, peer, messages } => {
                if self.incoming.get(&peer).is_some_and(|(known, _)| *known == link) {
                    for message in messages {
                        replica.step(Input::Peer { from: peer, message });
                    }
                }
            }
            LinkEvent::Down { link, peer } => {
                let is_outgoing = self.outgoing.get(&peer).is_some_and(|known| known.link == link);
                if is_outgoing {
                    self.outgoing.remove(&peer);
                }
                let is_incoming = self.incoming.get(&peer).is_some_and(|known| known.0 == link);
                if is_incoming {
                    self.incoming.remove(&peer);
                }
                if is_outgoing || is_incoming {
                    replica.step(Input::PeerDown { peer });
                }
            }
            // Of use to a server without data only.
            LinkEvent::Introduced { .. } | LinkEvent::Refused { .. } | LinkEvent::Asked { .. } => {}
        }
    }

    /// Sends what a `Ready` holds for other servers: one write for each of them.
    pub(crate) fn send(&mut self, messages: Vec<(u64, PeerMessage)>, replica: &mut Replica) {
        let mut cut = BTreeSet::new();
        for (to, message) in messages {
            let is_known = !message.is_later() || self.peers.knows_later(server_of(to));
            if !is_known {
                continue;
            }
            match self.outgoing.get_mut(&to) {
                Some(known) => {
                    let seal = known.seal.as_mut();
                    frame::append_sealed(&mut known.staged, seal, |out| message.encode(out));
                }
                // Raft sends its own again.
                None if matches!(message, PeerMessage::Forward { .. }) => {
                    cut.insert(to);
                }
                None => {}
            }
        }
        for (peer, known) in &mut self.outgoing {
            if known.staged.is_empty() {
                continue;
            }
            self.peers.counts().bytes_sent.add(known.staged.len() as u64);
            let waiting = known.wire.waiting_bytes() + known.staged.len();
            self.peers.measures().queued(server_of(*peer), waiting);
            if let Err(Overfull) = known.wire.push(&mut known.staged) {
                self.peers.counts().overfull.add(1);
                tracing::warn!(
                    raft_id = peer,
                    "link cut: the server does not take what it is sent"
                );
                cut.insert(*peer);
            }
        }
        for peer in cut {
            self.outgoing.remove(&peer);
            replica.step(Input::PeerDown { peer });
        }
    }

    /// Ends the link from a server that has sent what cannot be true. It makes another one.
    pub(crate) fn cut(&mut self, peer: u64, replica: &mut Replica) {
        let Some((_, link)) = self.incoming.remove(&peer) else { return };
        link.notify_one();
        self.peers.counts().frames_refused.add(1);
        let server = server_of(peer);
        let words = format!(
            "link from server {server} cut: it takes entries for committed here that are not in the \
             log. Either that was not server {server}, or the data of this server is older than what it \
             has acknowledged"
        );
        self.peers.complain(server, "commit", words);
        replica.step(Input::PeerDown { peer });
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::ServerSpec;
    use crate::replica::founding::{Introduction, Undecided};
    use crate::replica::peer::{RaftMessage, RaftMessageType};
    use crate::replica::{Machine, Membership, Restored, Setup};
    use crate::server::metrics::Figures;
    use crate::server::peer::images::Transfers;
    use crate::server::transport::Writer;
    use crate::tree::Options;

    /// Server 1 of three, which follows no server.
    fn server() -> (Links, Replica) {
        let spec = |id| ServerSpec::parse(id, &format!("127.0.0.1:{id}:10{id};20{id}")).unwrap();
        let specs: Vec<ServerSpec> = (1..=3).map(spec).collect();
        let setup =
            Setup { raft_id: 1, server_id: 1, ensemble: Some(specs.clone()), ..Setup::default() };
        let membership = Membership { voters: vec![1, 2, 3], learners: Vec::new() };
        let restored = Restored { membership, ..Restored::default() };
        let replica = Replica::new(setup, Machine::fresh(Options::default()), restored).unwrap();
        let introduction = Introduction::Founding(Undecided::default());
        let (driver, figures) = (mpsc::channel(1).0, Arc::new(Figures::default()));
        let transfers = Transfers::new().0;
        let peers = Peers::new(1, specs, introduction, driver, transfers, figures);
        (Links::new(Arc::new(peers)), replica)
    }

    /// The others say that they remember nothing of it: from then on it votes, and cuts links.
    fn is_remembered_by_none(replica: &mut Replica) {
        for peer in [2, 3] {
            replica.step(Input::PeerUp { peer });
        }
        let mut questions = Vec::new();
        while let Some(ready) = replica.ready().unwrap() {
            questions.extend(ready.send);
        }
        for (from, message) in questions {
            let PeerMessage::Ask { question } = message else { panic!("{message:?}") };
            let message = PeerMessage::Recall { question, promise: None };
            replica.step(Input::Peer { from, message });
        }
    }

    /// The way to another server, and what arrives there.
    async fn wire() -> (Arc<Wire>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_, writer) = stream.unwrap().into_split();
        (Arc::new(Wire::new(Writer::Plain(writer))), accepted.unwrap().0)
    }

    /// Server 2 says over a link that it leads in a term.
    fn leads(link: u64, term: u64) -> LinkEvent {
        let mut message = RaftMessage { from: 2, to: 1, term, ..RaftMessage::default() };
        message.set_msg_type(RaftMessageType::MsgHeartbeat);
        let messages = vec![PeerMessage::Raft(Box::new(message))];
        LinkEvent::Received { link, peer: 2, messages }
    }

    fn touch() -> PeerMessage {
        PeerMessage::Ping { term: 1, at_us: 7, steady_ms: 0, heard: None }
    }

    fn forward() -> PeerMessage {
        PeerMessage::Forward { term: 1, batch: bytes::Bytes::from_static(b"batch") }
    }

    /// Bytes that came, after what was sent is on its way.
    fn arrived(stream: &TcpStream) -> usize {
        let mut buffer = vec![0; 1 << 10];
        stream.try_read(&mut buffer).unwrap_or(0)
    }

    /// Whether a wire is closed: its task ends by itself then.
    async fn is_closed(wire: &Wire) -> bool {
        tokio::select! {
            biased;
            ended = wire.run() => ended.is_ok(),
            () = tokio::task::yield_now() => false,
        }
    }

    async fn is_cut(cut: &Notify) -> bool {
        tokio::select! {
            biased;
            () = cut.notified() => true,
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test]
    async fn a_newer_link_replaces_an_older_one_in_whatever_order_they_are_told() {
        for order in [[4, 5], [5, 4]] {
            let (mut links, mut replica) = server();
            let (older, _, newer, there) = {
                let (older, a) = wire().await;
                let (newer, b) = wire().await;
                (older, a, newer, b)
            };
            for link in order {
                let wire = if link == 4 { Arc::clone(&older) } else { Arc::clone(&newer) };
                links.take(LinkEvent::Outgoing { link, peer: 2, wire, seal: None }, &mut replica);
            }
            assert!(is_closed(&older).await, "{order:?}");
            assert!(!is_closed(&newer).await, "{order:?}");
            // The older one ends last of all: that is no reason to take the newer one for gone.
            links.take(LinkEvent::Down { link: 4, peer: 2 }, &mut replica);
            links.send(vec![(2, touch())], &mut replica);
            there.readable().await.unwrap();
            assert!(arrived(&there) > 0, "{order:?}");
        }
    }

    #[tokio::test]
    async fn what_a_replaced_link_still_brings_is_dropped() {
        let (mut links, mut replica) = server();
        let incoming =
            |link, cut: &Arc<Notify>| LinkEvent::Incoming { link, peer: 2, cut: Arc::clone(cut) };
        let (older, newer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        links.take(incoming(4, &older), &mut replica);
        links.take(leads(4, 1), &mut replica);
        assert_eq!(replica.status().term, 1, "the replica has got it");
        links.take(incoming(5, &newer), &mut replica);
        assert!(is_cut(&older).await);
        links.take(leads(4, 2), &mut replica);
        assert_eq!(replica.status().term, 1, "it never got that");
        // The end of the older one does not end the newer one.
        links.take(LinkEvent::Down { link: 4, peer: 2 }, &mut replica);
        links.take(leads(5, 3), &mut replica);
        assert_eq!(replica.status().term, 3);
        assert!(!is_cut(&newer).await);
        // One that was told too late is ended, and brings nothing.
        let late = Arc::new(Notify::new());
        links.take(incoming(3, &late), &mut replica);
        links.take(leads(3, 4), &mut replica);
        assert!(is_cut(&late).await);
        assert_eq!(replica.status().term, 3);
        links.take(LinkEvent::Down { link: 5, peer: 2 }, &mut replica);
        links.take(leads(5, 5), &mut replica);
        assert_eq!(replica.status().term, 3);
    }

    #[tokio::test]
    async fn a_link_that_brings_what_cannot_be_true_is_cut_and_another_one_is_heard() {
        let (mut links, mut replica) = server();
        is_remembered_by_none(&mut replica);
        let cut = Arc::new(Notify::new());
        let incoming =
            |link, cut: &Arc<Notify>| LinkEvent::Incoming { link, peer: 2, cut: Arc::clone(cut) };
        links.take(incoming(1, &cut), &mut replica);
        links.take(leads(1, 1), &mut replica);
        let mut message =
            RaftMessage { from: 2, to: 1, term: 1, commit: 9, ..RaftMessage::default() };
        message.set_msg_type(RaftMessageType::MsgHeartbeat);
        let messages = vec![PeerMessage::Raft(Box::new(message))];
        links.take(LinkEvent::Received { link: 1, peer: 2, messages }, &mut replica);
        let mut wanted = Vec::new();
        while let Some(ready) = replica.ready().unwrap() {
            wanted.extend(ready.cut);
        }
        assert_eq!(wanted, [2]);
        links.cut(2, &mut replica);
        assert!(is_cut(&cut).await);
        links.take(leads(1, 2), &mut replica);
        assert_eq!(replica.status().term, 1, "what comes behind it is dropped");
        links.take(incoming(2, &Arc::new(Notify::new())), &mut replica);
        links.take(leads(2, 3), &mut replica);
        assert_eq!(replica.status().term, 3);
    }

    #[tokio::test]
    async fn nothing_is_sent_before_a_link_is_known_or_after_its_end() {
        let (mut links, mut replica) = server();
        links.send(vec![(2, touch()), (2, forward())], &mut replica);
        let (to_other, there) = wire().await;
        let event =
            LinkEvent::Outgoing { link: 1, peer: 2, wire: Arc::clone(&to_other), seal: None };
        links.take(event, &mut replica);
        links.send(vec![(3, touch())], &mut replica);
        assert_eq!(arrived(&there), 0);
        links.take(LinkEvent::Down { link: 1, peer: 2 }, &mut replica);
        links.send(vec![(2, touch())], &mut replica);
        tokio::task::yield_now().await;
        assert_eq!(arrived(&there), 0);
    }
}
