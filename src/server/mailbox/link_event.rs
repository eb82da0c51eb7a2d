//! What the tasks of links with other servers tell the driver.

use std::sync::Arc;

use tokio::sync::Notify;

use super::wire::Wire;
use crate::peer_auth::Seal;
use crate::replica::PeerMessage;
use crate::replica::founding::Introduction;

/// Event on a link. The number of a link is higher than those of all links before it.
#[derive(Debug)]
pub(in crate::server) enum LinkEvent {
    /// A link to a server was made: messages may be given to the wire.
    Outgoing {
        /// Its number.
        link: u64,
        /// The other server's raft id.
        peer: u64,
        /// The way there.
        wire: Arc<Wire>,
        /// What messages are sealed with.
        seal: Option<Seal>,
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
    /// A server that was connected to has said in which term it is.
    Term {
        /// Its raft id.
        peer: u64,
        /// The term; 0 if it does not say.
        term: u64,
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
    /// A server does not take this one for a member of its ensemble.
    Refused {
        /// Its server id.
        server: u8,
        /// Why, in words.
        words: String,
    },
    /// The client port of a server that says nothing to other servers was asked whether it serves.
    Asked {
        /// Its server id.
        server: u8,
        /// Its mode, if it does.
        mode: Option<String>,
    },
}
