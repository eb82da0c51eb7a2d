//! What the driver is sent.
//!
//! *Owns* [`Message`], which every thread and task of a server may send. *Never* holds anything that only the
//! driver may touch: a sender needs to know nothing of the loop.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::line::Line;
use super::link_event::LinkEvent;
use super::wanted_image::WantedImage;
use super::zookeeper_event::ZooKeeperEvent;
use crate::replica::{ConnId, Input, Inspect, MigrateOrder, Report};
use crate::server::error::ServerError;

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
    /// An operator wants something of a live migration.
    Migrate {
        /// What.
        order: MigrateOrder,
        /// For a cutover: ZooKeeper's AdminServers, `host:port`.
        admins: Vec<String>,
        /// Where the answer goes.
        answer: oneshot::Sender<Report>,
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
            Self::Input(_)
            | Self::ImageDamaged { .. }
            | Self::ImageWanted { .. }
            | Self::Backup(_)
            | Self::ZooKeeper(_)
            | Self::Migrate { .. }
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
