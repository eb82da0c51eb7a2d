//! What the driver is sent.
//!
//! *Owns* [`Message`], which every thread and task of a server may send, and the events in it. *Never* holds anything
//! that only the driver may touch: a sender needs to know nothing of the loop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Notify, mpsc, oneshot};

use super::line::Line;
use super::wire::Wire;
use crate::admin::{ZooKeeperPort, ZooKeeperWords};
use crate::peer_auth::Seal;
use crate::replica::founding::{Introduction, Port};
use crate::replica::{ConnId, Input, Inspect, LinkInput, MigrateOrder, PeerMessage, Report};
use crate::server::error::ServerError;
use crate::storage::ImageReader;

/// One message.
#[derive(Debug)]
pub(in crate::server) enum Message {
    /// A connection begins: where its answers go, and its first frame.
    Open {
        /// Its number.
        conn: ConnId,
        /// Where its answers go.
        line: Arc<Line>,
        /// Its first frame.
        input: Input,
    },
    /// For the replica.
    Input(Input),
    /// Something happened on a link with another server.
    Link(LinkEvent),
    /// An image of this server turned out damaged.
    ImageDamaged {
        /// Its index.
        index: u64,
    },
    /// Another server needs an image of this index or a later one.
    ImageWanted {
        /// The index.
        index: u64,
    },
    /// A backup needs an image.
    Backup(WantedImage),
    /// Of a live migration: something came from ZooKeeper.
    ZooKeeper(ZooKeeperEvent),
    /// Ports of ZooKeeper's machines are to be looked at.
    ZooKeeperPorts { ports: Vec<String>, answer: oneshot::Sender<Vec<ZooKeeperPort>> },
    /// An operator wants something of a live migration.
    Migrate {
        /// What.
        order: MigrateOrder,
        /// Words of the operator about ZooKeeper's machines.
        words: ZooKeeperWords,
        /// Where the answer goes.
        answer: oneshot::Sender<Report>,
    },
    /// An operator says that the ensemble is to be founded without these servers.
    Bootstrap {
        /// Their server ids.
        without: Vec<u8>,
        /// Where it is told what has become of it.
        answer: oneshot::Sender<Bootstrapped>,
    },
    /// An operator's question.
    Inspect {
        /// The question.
        what: Inspect,
        /// Where the answer goes.
        answer: oneshot::Sender<Report>,
    },
    /// A thread has found that the server cannot go on.
    Failed(ServerError),
    /// Nothing but a reason to look: something is durable, or the end is asked for.
    Wake,
}

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
        /// What it says.
        introduction: Introduction,
        /// When this server had asked it; `None`: it has said so by itself.
        asked: Option<Instant>,
    },
    /// A server does not take this one for a member of its ensemble.
    Refused {
        /// Its server id.
        server: u8,
        /// Why, in words.
        words: String,
    },
    /// The ports of a server that says nothing to other servers were asked.
    Asked {
        /// Its server id.
        server: u8,
        /// What they answered.
        port: Port,
        /// When they were asked, by the clock of the founding, in microseconds.
        asked_us: u64,
    },
}

/// Where clients do not reach ZooKeeper, as a look has found: it is looked at again before a cutover.
#[derive(Debug, Default)]
pub(in crate::server) struct Looked {
    /// Each port with its machine.
    pub ports: BTreeSet<(String, u16)>,
    /// AdminServers that have answered.
    pub admins: Vec<String>,
    /// See [`ZooKeeperWords::silent`].
    pub silent: Vec<String>,
}

/// What the tasks of a live migration tell.
#[derive(Debug)]
pub(in crate::server) enum ZooKeeperEvent {
    /// Of the link with this number.
    Link {
        /// The number.
        number: u64,
        /// What.
        input: LinkInput,
    },
    /// The look before an order has ended.
    Looked {
        /// The order.
        order: MigrateOrder,
        /// Its number.
        token: u64,
        /// Ports to be looked at again, or what stands against it.
        found: Result<Looked, String>,
    },
    /// The look while requests are held has ended.
    LookedAgain {
        /// The attempt that it is for.
        attempt: u64,
        /// Whether all ports are closed.
        closed: Result<(), String>,
    },
}

/// Reason for which a server takes no word about the founding of an ensemble.
pub(in crate::server) const PAST_FOUNDING: &str =
    "this server is past that: it belongs to an ensemble, or is on its own";

/// Outcome of an operator's word: the ensemble that was founded by it, or why there is none, one reason in each line.
pub(in crate::server) type Bootstrapped = Result<u128, String>;

/// Tells an operator the outcome of a word. Who asked may be gone.
pub(in crate::server) fn tell(answer: oneshot::Sender<Bootstrapped>, outcome: Bootstrapped) {
    let _ = answer.send(outcome);
}

/// An image of the state at this zxid or a later one, for a backup.
#[derive(Debug)]
pub(in crate::server) struct WantedImage {
    /// The zxid.
    pub(in crate::server) zxid: i64,
    /// Where the image goes, open for reading, or why there is none. The backup may have given up meanwhile.
    pub(in crate::server) answer: oneshot::Sender<Result<ImageReader, String>>,
}

impl Message {
    /// Does what a server without a driver does with it: sends a client away, and returns an event of a link. No client
    /// has a session yet, and no question is answered.
    ///
    /// # Errors
    /// What a thread has failed with.
    pub(in crate::server) fn without_driver(
        self,
        now_us: u64,
    ) -> Result<Option<LinkEvent>, ServerError> {
        match self {
            Self::Open { conn, line, .. } => line.refuse(conn, now_us),
            Self::Link(event) => return Ok(Some(event)),
            Self::Failed(error) => return Err(error),
            Self::Bootstrap { answer, .. } => {
                tell(answer, Err(PAST_FOUNDING.to_owned()));
            }
            Self::Input(_)
            | Self::ImageDamaged { .. }
            | Self::ImageWanted { .. }
            | Self::Backup(_)
            | Self::ZooKeeper(_)
            | Self::Migrate { .. }
            | Self::ZooKeeperPorts { .. }
            | Self::Inspect { .. }
            | Self::Wake => {}
        }
        Ok(None)
    }
}

/// Asks the replica; `None` if the server is stopping.
pub(in crate::server) async fn inspect(
    driver: &mpsc::Sender<Message>,
    what: Inspect,
) -> Option<Report> {
    let (answer, answered) = oneshot::channel();
    driver.send(Message::Inspect { what, answer }).await.ok()?;
    answered.await.ok()
}
