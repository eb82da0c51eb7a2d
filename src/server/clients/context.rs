//! The parts of a server that the tasks of its clients use.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::admission::Admission;
use super::in_flight::Throttle;
use super::received::Received;
use crate::admin::Source;
use crate::server::limits::Limits;
use crate::server::mailbox::Message;
use crate::server::metrics::Figures;
use crate::server::transport::Handshakes;

/// Shared by all tasks of clients.
pub(in crate::server) struct ServerContext {
    /// The way to the driver.
    pub driver: mpsc::Sender<Message>,
    /// The bounds of this server.
    pub limits: Limits,
    /// Requests in flight.
    pub throttle: Arc<Throttle>,
    /// Bytes that have arrived and are not handed on.
    pub received: Arc<Received>,
    /// The gates that clients pass that come, act or leave with many others.
    pub admission: Admission,
    /// TLS handshakes.
    pub handshakes: Arc<Handshakes>,
    /// Counters.
    pub figures: Arc<Figures>,
    /// The server as operators see it: answers four-letter words.
    pub source: Arc<dyn Source>,
}
