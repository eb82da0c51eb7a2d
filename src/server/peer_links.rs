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

use super::peer_frame;
use super::peer_images::Store;
use super::peer_wire::{Overfull, Wire};
use super::peers::Peers;
use crate::replica::founding::{Identified, Introduction};
use crate::replica::{Input, Member, PeerMessage, Replica, SendImage};

/// What happens on links. The number of a link is higher than those of all links before it.
#[derive(Debug)]
pub enum LinkEvent {
    /// A link to a server was made: messages may be given to the wire.
    Outgoing {
        /// Its number.
        link: u64,
        /// The other server's raft id.
        peer: u64,
        /// The way there.
        wire: Arc<Wire>,
    },
    /// A server has made a link to this one.
    Incoming {
        /// Its number.
        link: u64,
        /// The other server's raft id.
        peer: u64,
        /// Ends it.
        cut: Arc<Notify>,
    },
    /// Messages came.
    Received {
        /// The link's number.
        link: u64,
        /// The sender's raft id.
        peer: u64,
        /// In the order in which they were sent.
        messages: Vec<PeerMessage>,
    },
    /// A link is gone.
    Down {
        /// Its number.
        link: u64,
        /// The other server's raft id.
        peer: u64,
    },
    /// A server has said who it is.
    Introduced {
        /// Its server id.
        server: u8,
        /// What it says of itself.
        introduction: Introduction,
    },
}

/// The links of one server.
#[derive(Debug)]
pub struct Links {
    peers: Arc<Peers>,
    outgoing: BTreeMap<u64, Outgoing>,
    incoming: BTreeMap<u64, (u64, Arc<Notify>)>,
}

#[derive(Debug)]
struct Outgoing {
    link: u64,
    wire: Arc<Wire>,
    /// Frames of the current batch.
    staged: Vec<u8>,
}

impl Links {
    /// None yet.
    #[must_use]
    pub fn new(peers: Arc<Peers>) -> Self {
        Self { peers, outgoing: BTreeMap::new(), incoming: BTreeMap::new() }
    }

    /// Tells the replica what it must know of an event.
    pub fn take(&mut self, event: LinkEvent, replica: &mut Replica) {
        match event {
            LinkEvent::Outgoing { link, peer, wire } => {
                match self.outgoing.get(&peer) {
                    Some(known) if known.link > link => return wire.close(),
                    Some(known) => {
                        known.wire.close();
                        replica.step(Input::PeerDown { peer });
                    }
                    None => {}
                }
                self.outgoing.insert(peer, Outgoing { link, wire, staged: Vec::new() });
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
            LinkEvent::Introduced { .. } => {}
        }
    }

    /// Sends what a `Ready` holds for other servers: one write for each of them.
    pub fn send(&mut self, messages: Vec<(u64, PeerMessage)>, replica: &mut Replica) {
        let mut cut = BTreeSet::new();
        for (to, message) in messages {
            match self.outgoing.get_mut(&to) {
                Some(known) => {
                    peer_frame::append(&mut known.staged, |out| message.encode(out));
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
            self.peers.count().sent(known.staged.len());
            if let Err(Overfull) = known.wire.push(&mut known.staged) {
                self.peers.count().overfull();
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

    /// Begins to send an image: the driver is told what becomes of it.
    pub fn send_image(&self, order: SendImage) {
        self.peers.transfers.send(order);
    }

    /// From now on images can be sent and received.
    pub fn open(&self, store: Store) {
        self.peers.transfers.open(store);
    }

    /// Says who this server is. That must be durable.
    pub fn introduce(&self, identity: Identified) {
        self.peers.introduce(Introduction::Founded(identity));
    }

    /// Connects to these servers from now on, and to no others.
    pub fn follow(&self, members: Vec<Member>) {
        self.peers.follow(members.into_iter().map(|member| member.spec).collect());
    }
}
