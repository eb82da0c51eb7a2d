//! A server of an ensemble before it has data: it asks the others what it is to become.
//!
//! *Owns* the driver's thread until the decision. *Invariants*: nobody is served meanwhile, clients are
//! closed at once; what others say arrives as messages, like everything else. What is decided is
//! `replica::founding`'s; making it durable is the caller's.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;

use super::clock;
use super::driver::Message;
use super::error::{ServerError, StartError};
use super::limits::DRIVER_BATCH_MAX;
use super::peer_links::LinkEvent;
use super::peers::Peers;
use super::queue::Queue;
use super::shared::Stop;
use crate::config::ServerSpec;
use crate::replica::founding::{Chance, Decision, Founding, Introduction};

/// A server without data.
#[derive(Debug)]
pub struct Founder {
    founding: Founding,
    start: Instant,
}

impl Founder {
    /// The server `own` of those that its configuration names. `only_joins`: it had data, so there
    /// is an ensemble that it belongs to.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(own: u8, servers: &[ServerSpec], only_joins: bool) -> Result<Self, StartError> {
        let mut random = [0; 28];
        getrandom::fill(&mut random)
            .map_err(|error| StartError::System { what: "random id", error: error.to_string() })?;
        let (nonce, rest) = random.split_first_chunk::<8>().expect("28 bytes");
        let (ensemble, rest) = rest.split_first_chunk::<16>().expect("20 bytes");
        let incarnation = rest.first_chunk::<4>().expect("4 bytes");
        let chance = Chance {
            nonce: u64::from_le_bytes(*nonce),
            ensemble: u128::from_le_bytes(*ensemble),
            incarnation: u32::from_le_bytes(*incarnation).max(1),
        };
        let founding = match only_joins {
            true => Founding::joining(own, servers, chance),
            false => Founding::new(own, servers, chance),
        };
        Ok(Self { founding, start: Instant::now() })
    }

    /// What this server says of itself so far.
    #[must_use]
    pub fn introduction(&self) -> Introduction {
        self.founding.introduction(clock::micros_since(self.start))
    }

    /// Asks until it is clear what to become; `None` if the end is asked for before.
    ///
    /// # Errors
    /// Why the server cannot go on.
    pub fn decide(
        mut self,
        peers: &Arc<Peers>,
        messages: &mut Queue,
        runtime: &Handle,
        stop: &Stop,
    ) -> Result<Option<Decision>, ServerError> {
        let mut batch = Vec::with_capacity(DRIVER_BATCH_MAX);
        tracing::info!("no data yet: asks the other servers which ensemble this one belongs to");
        loop {
            if !messages.turn_blocking(runtime, &mut batch) || stop.is_asked() {
                return Ok(None);
            }
            let now_us = clock::micros_since(self.start);
            for message in batch.drain(..) {
                match message {
                    Message::Open { conn, line, .. } => line.refuse(conn, now_us),
                    Message::Link(LinkEvent::Introduced { server, introduction }) => {
                        self.founding.heard(server, introduction, now_us);
                    }
                    // No link is accepted yet, nobody has a session, and whoever asks is told nothing.
                    Message::Link(_)
                    | Message::Input(_)
                    | Message::ImageDamaged { .. }
                    | Message::ImageWanted { .. }
                    | Message::Inspect { .. }
                    | Message::Wake => {}
                    Message::Failed(error) => return Err(error),
                }
            }
            peers.introduce(self.founding.introduction(now_us));
            match self.founding.decide(now_us) {
                Ok(Some(decision)) => return Ok(Some(decision)),
                Ok(None) => {}
                Err(conflict) => peers.complain(peers.own, "conflict", conflict.to_string()),
            }
        }
    }
}
