//! A server of an ensemble before it is a member: it asks the others what it is to become.
//!
//! *Owns* the driver's thread until the decision, and the questions to the client ports of servers that
//! say nothing. *Invariants*: no client is served meanwhile, connections are closed at once; what others
//! say arrives as messages, like everything else; what keeps this server from becoming a member is a
//! readiness condition. What is decided is `replica::founding`'s; making it durable is the caller's.

use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::peers::{Ends, Peers};
use crate::config::{Config, HostPort, ServerSpec};
use crate::replica::founding::{Chance, Decision, Founding, Identified, Introduction};
use crate::server::clock;
use crate::server::error::{ServerError, StartError};
use crate::server::limits::{DRIVER_BATCH_MAX, SRVR_ANSWER_BYTES_MAX, SRVR_MAX};
use crate::server::mailbox::{LinkEvent, Message, Queue};
use crate::server::metrics::{Cause, Conditions};
use crate::server::stop::Stop;
use crate::supervision::Task;

/// A server that belongs to no ensemble yet.
#[derive(Debug)]
pub(crate) struct Founder {
    founding: Founding,
    lines: Vec<ServerSpec>,
    /// The port for clients of a server whose line says none.
    client_port: u16,
    start: Instant,
}

/// What a server was before it is started with the lines of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has no data.
    New,
    /// It had data of an ensemble, which were set aside, or its operator does not say that it is new:
    /// there is an ensemble that it belongs to.
    Lost,
    /// It was a server on its own, and has yet to read what it has.
    Standalone,
    /// The same, but an operator has declared that it goes on alone from this ensemble.
    Alone(u128),
}

/// What the driver's thread works with before there is a driver.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    /// The server's runtime.
    pub runtime: &'a Handle,
    /// The other servers.
    pub peers: &'a Arc<Peers>,
    /// The driver's queue.
    pub messages: &'a mut Queue,
    /// Says when to end.
    pub stop: &'a Stop,
}

impl Waiting<'_> {
    /// Waits for messages or for time to pass. False: the end is asked for.
    pub(super) fn turn(&mut self, batch: &mut Vec<Message>) -> bool {
        self.runtime.block_on(self.messages.turn(batch)) && !self.stop.is_asked()
    }
}

impl Founder {
    /// The server `own` of those that its configuration names.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(crate) fn new(own: u8, config: &Config, life: Life) -> Result<Self, StartError> {
        let mut random = [0; 28];
        getrandom::fill(&mut random).map_err(StartError::system("random id"))?;
        let (nonce, rest) = random.split_first_chunk::<8>().expect("28 bytes");
        let (ensemble, rest) = rest.split_first_chunk::<16>().expect("20 bytes");
        let incarnation = rest.first_chunk::<4>().expect("4 bytes");
        let chance = Chance {
            nonce: u64::from_le_bytes(*nonce),
            ensemble: u128::from_le_bytes(*ensemble),
            incarnation: u32::from_le_bytes(*incarnation).max(1),
        };
        let lines = config.servers.clone();
        let founding = match life {
            Life::New => Founding::new(own, &lines, chance),
            Life::Lost => Founding::joining(own, &lines, chance),
            Life::Standalone => Founding::reading(own, &lines, chance),
            Life::Alone(before) => Founding::alone(own, &lines, chance, before),
        };
        let client_port = config.client_addr.port;
        Ok(Self { founding, lines, client_port, start: Instant::now() })
    }

    /// What this server says of itself so far.
    #[must_use]
    pub(crate) fn introduction(&self) -> Introduction {
        self.founding.introduction(clock::micros_since(self.start))
    }

    /// It has read its disk: see [`Founding::has_read`].
    pub(crate) fn has_read(&mut self, state: Option<(Identified, u64)>) {
        self.founding.has_read(state);
    }

    /// Asks until it is clear what to become; `None` if the end is asked for before. `conditions`: where it is shown
    /// what is in the way.
    ///
    /// # Errors
    /// Why the server cannot go on.
    pub(crate) fn decide(
        mut self,
        waiting: &mut Waiting<'_>,
        conditions: &Conditions,
    ) -> Result<Option<Decision>, ServerError> {
        let mut batch = Vec::with_capacity(DRIVER_BATCH_MAX);
        tracing::info!("asks the other servers which ensemble this one belongs to");
        // Questions that are under way; each ends by itself soon.
        let mut questions: Vec<Ends> = Vec::new();
        let decided = loop {
            if !waiting.turn(&mut batch) {
                break Ok(None);
            }
            let now_us = clock::micros_since(self.start);
            if let Err(error) = self.take(&mut batch, now_us) {
                break Err(error);
            }
            waiting.peers.introduce(self.founding.introduction(now_us));
            questions.retain(|question| !question.is_finished());
            for server in self.founding.addresses_to_ask(now_us) {
                let addresses = client_addresses(&self.lines, self.client_port, server);
                let driver = waiting.peers.driver.clone();
                let question = async move {
                    let mode = first_mode(&addresses).await;
                    // Fails when the server ends.
                    let _ = driver.send(Message::Link(LinkEvent::Asked { server, mode })).await;
                };
                let spawned =
                    waiting.runtime.block_on(async { Ends::spawn(Task::Question, question) });
                questions.push(spawned);
            }
            let obstacle = match self.founding.decide(now_us) {
                Ok(Some(decision)) => break Ok(Some(decision)),
                Ok(None) => self.founding.obstacle(now_us),
                Err(conflict) => Some(conflict.to_string()),
            };
            conditions.set(Cause::Founding, obstacle);
        };
        if let Ok(Some(_)) = decided {
            conditions.set(Cause::Founding, None);
        }
        decided
    }

    fn take(&mut self, batch: &mut Vec<Message>, now_us: u64) -> Result<(), ServerError> {
        for message in batch.drain(..) {
            match message.without_driver(now_us)? {
                Some(LinkEvent::Introduced { server, introduction }) => {
                    self.founding.heard(server, introduction, now_us);
                }
                Some(LinkEvent::Refused { server, words }) => {
                    self.founding.refused(server, words, now_us);
                }
                Some(LinkEvent::Asked { server, mode }) => {
                    self.founding.answered(server, mode, now_us);
                }
                // No link is accepted yet.
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// Where a server's clients connect, as its line says it, or else at the port of this server's.
pub(super) fn client_addresses(
    lines: &[ServerSpec],
    client_port: u16,
    server: u8,
) -> Vec<HostPort> {
    let Some(line) = lines.iter().find(|line| line.id == server) else {
        return Vec::new();
    };
    let port = line.client.as_ref().map_or(client_port, |client| client.port);
    let is_wildcard =
        |host: &str| host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    match &line.client {
        Some(HostPort { host, .. }) if !is_wildcard(host) => {
            vec![HostPort { host: host.clone(), port }]
        }
        Some(_) | None => {
            let hosts = line.addresses.iter().map(|address| address.host.clone());
            hosts.map(|host| HostPort { host, port }).collect()
        }
    }
}

/// The mode of the first of these that serves clients.
pub(super) async fn first_mode(addresses: &[HostPort]) -> Option<String> {
    for HostPort { host, port } in addresses {
        // One that does not answer serves no client that could reach it from here.
        if let Ok(Ok(Some(mode))) = timeout(SRVR_MAX, mode(host, *port)).await {
            return Some(mode);
        }
    }
    None
}

/// What the four-letter word `srvr` says of the mode of the server at an address; `None` if it does not
/// serve.
async fn mode(host: &str, port: u16) -> std::io::Result<Option<String>> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = Vec::new();
    (&mut stream).take(SRVR_ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
    let is_shown = |character: &char| !character.is_control();
    Ok(mode.map(|mode| mode.chars().filter(is_shown).take(MODE_CHARS_MAX).collect()))
}

/// Longest mode that is shown of what another server says.
const MODE_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_a_server_that_says_its_mode_serves() {
        for (answer, expected) in [
            ("Zookeeper version: 3.9.4\nMode: standalone\nNode count: 5\n", Some("standalone")),
            ("This ZooKeeper instance is not currently serving requests\n", None),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", None),
            ("", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let answering = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut word = [0; 4];
                stream.read_exact(&mut word).await.unwrap();
                assert_eq!(&word, b"srvr");
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let addresses = [HostPort { host: "127.0.0.1".into(), port }];
            let (mode, ()) = tokio::join!(first_mode(&addresses), answering);
            assert_eq!(mode.as_deref(), expected, "{answer}");
            drop(listener);
            assert_eq!(first_mode(&addresses).await, None, "no server listens");
        }
    }
}
