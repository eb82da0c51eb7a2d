//! A server of an ensemble before it is a member: it asks the others what it is to become.
//!
//! *Owns* the driver's thread until the decision, the questions to the ports of servers that say nothing, and the
//! answer to an operator who has said a word. *Invariants*: no client is served meanwhile, connections are closed at
//! once; what others say arrives as messages, like everything else; what keeps this server from becoming a member is a
//! readiness condition. What is decided is `replica::founding`'s; making it durable is the caller's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::peers::{Ends, Peers};
use crate::config::{Config, HostPort, ServerSpec};
use crate::replica::founding::{
    Chance, Decision, Founding, Identified, Introduction, Port, WORD_COUNTS_US,
};
use crate::server::clock;
use crate::server::error::{ServerError, StartError};
use crate::server::limits::{DRIVER_BATCH_MAX, SRVR_ANSWER_BYTES_MAX, SRVR_MAX};
use crate::server::mailbox::{Bootstrapped, LinkEvent, Message, Queue};
use crate::server::metrics::{Cause, Conditions};
use crate::server::stop::Stop;
use crate::supervision::{Task, TaskSet};

/// A server that belongs to no ensemble yet.
#[derive(Debug)]
pub(crate) struct Founder {
    founding: Founding,
    lines: Vec<ServerSpec>,
    /// The port for clients of a server whose line says none.
    client_port: u16,
    start: Instant,
    /// An operator who has said a word, and until when it counts.
    told: Option<(oneshot::Sender<Bootstrapped>, u64)>,
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

/// An operator who has said a word, and waits for what has become of it.
#[derive(Debug)]
pub(crate) struct Told(Option<oneshot::Sender<Bootstrapped>>);

impl Told {
    /// Says that it is done, durably; or that what was decided was not decided by that word.
    pub(crate) fn tell(self, ensemble: u128, without: &[u8]) {
        let Some(answer) = self.0 else { return };
        let words = || {
            format!(
                "this server has joined the ensemble {ensemble:032x}, which was not founded by this word"
            )
        };
        // Who asked may be gone.
        let _ = answer.send(if without.is_empty() { Err(words()) } else { Ok(ensemble) });
    }
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
        Ok(Self { founding, lines, client_port, start: Instant::now(), told: None })
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
    ) -> Result<Option<(Decision, Told)>, ServerError> {
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
            for server in self.founding.to_ask(now_us) {
                let ports = Ports::of(&self.lines, self.client_port, server);
                let driver = waiting.peers.driver.clone();
                let question = async move {
                    let port = ports.ask().await;
                    // Fails when the server ends.
                    let event = LinkEvent::Asked { server, port, asked_us: now_us };
                    let _ = driver.send(Message::Link(event)).await;
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
            self.tell_late(now_us, obstacle.as_deref());
            conditions.set(Cause::Founding, obstacle);
        };
        if let Ok(Some(_)) = decided {
            conditions.set(Cause::Founding, None);
        }
        let told = self.told.take().map(|(answer, _)| answer);
        decided.map(|decided| decided.map(|decision| (decision, Told(told))))
    }

    /// The word of an operator counts no more, and nothing came of it.
    fn tell_late(&mut self, now_us: u64, obstacle: Option<&str>) {
        let Some((answer, _)) = self.told.take_if(|(_, until_us)| *until_us <= now_us) else {
            return;
        };
        let why = obstacle.unwrap_or("the other servers have not consented in time");
        // Who asked may be gone.
        let _ = answer.send(Err(format!(
            "nothing was founded within a minute, as far as is known here: {why}"
        )));
    }

    /// Takes an operator's word, or says at once why not.
    fn bootstrap(&mut self, without: &[u8], answer: oneshot::Sender<Bootstrapped>, now_us: u64) {
        let until_us = now_us.saturating_add(WORD_COUNTS_US);
        match self.founding.bootstrap(without, now_us, until_us) {
            Ok(word) => {
                tracing::warn!(?word.without, "an operator has this ensemble be founded without servers");
                if let Some((before, _)) = self.told.replace((answer, until_us)) {
                    // Who asked may be gone.
                    let _ = before.send(Err("another word was said after this one".to_owned()));
                }
            }
            Err(reasons) => {
                // Who asked may be gone.
                let _ = answer.send(Err(reasons.join("\n")));
            }
        }
    }

    fn take(&mut self, batch: &mut Vec<Message>, now_us: u64) -> Result<(), ServerError> {
        for message in batch.drain(..) {
            if let Message::Bootstrap { without, answer } = message {
                self.bootstrap(&without, answer, now_us);
                continue;
            }
            match message.without_driver(now_us)? {
                Some(LinkEvent::Introduced { server, introduction, asked }) => {
                    let asked_us = asked.map(|asked| {
                        let since = asked.saturating_duration_since(self.start);
                        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
                    });
                    self.founding.heard(server, introduction, asked_us, now_us);
                }
                Some(LinkEvent::Refused { server, words }) => {
                    self.founding.refused(server, words, now_us);
                }
                Some(LinkEvent::Asked { server, port, asked_us }) => {
                    self.founding.answered(server, port, asked_us);
                }
                // No link is accepted yet.
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// Where a server may be asked whether it runs.
#[derive(Debug)]
pub(super) struct Ports {
    /// Where its clients connect, as its line says it, or else at the port of this server's.
    clients: Vec<HostPort>,
    /// Where other servers do.
    servers: Vec<HostPort>,
    /// The port for clients of this server, where that of the other is only guessed after it.
    own_port: Option<u16>,
}

impl Ports {
    /// Those of a server of these lines.
    pub(super) fn of(lines: &[ServerSpec], client_port: u16, server: u8) -> Self {
        let Some(line) = lines.iter().find(|line| line.id == server) else {
            return Self { clients: Vec::new(), servers: Vec::new(), own_port: None };
        };
        let port = line.client.as_ref().map_or(client_port, |client| client.port);
        let is_wildcard =
            |host: &str| host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        let at = |host: &str, port| HostPort { host: host.to_owned(), port };
        let clients = match &line.client {
            Some(HostPort { host, .. }) if !is_wildcard(host) => vec![at(host, port)],
            Some(_) | None => {
                line.addresses.iter().map(|address| at(&address.host, port)).collect()
            }
        };
        let servers =
            line.addresses.iter().map(|address| at(&address.host, address.peer_port)).collect();
        let own_port = line.client.is_none().then_some(client_port);
        Self { clients, servers, own_port }
    }

    /// Asks at all of them at once: what says most counts.
    pub(super) async fn ask(self) -> Port {
        let mut asked = TaskSet::default();
        for at in self.clients {
            asked.spawn(Task::Question, async move { srvr(&at, self.own_port).await });
        }
        for HostPort { host, port } in self.servers {
            asked.spawn(Task::Question, async move {
                match timeout(SRVR_MAX, TcpStream::connect((host.as_str(), port))).await {
                    Ok(Ok(_)) => Port::Mute,
                    Ok(Err(_)) | Err(_) => Port::Closed,
                }
            });
        }
        let mut known = Port::Closed;
        while let Some(ended) = asked.join_next().await {
            // One that has panicked ends the server.
            let Ok(port) = ended else { continue };
            let says_more = match (&port, &known) {
                (Port::Serves { .. }, _) | (Port::ServesNot, Port::Mute) => true,
                (_, known) => *known == Port::Closed,
            };
            if says_more {
                known = port;
            }
        }
        known
    }
}

/// What the four-letter word `srvr` says of the server at an address.
/// `own_port`: where this server listens for clients, if the address is only guessed after that.
async fn srvr(HostPort { host, port }: &HostPort, own_port: Option<u16>) -> Port {
    let connect = TcpStream::connect((host.as_str(), *port));
    let Ok(Ok(mut stream)) = timeout(SRVR_MAX, connect).await else { return Port::Closed };
    let ip = |address: std::io::Result<SocketAddr>| address.map(|address| address.ip()).ok();
    if own_port == Some(*port) && ip(stream.local_addr()) == ip(stream.peer_addr()) {
        // On this machine: it is this server itself.
        return Port::Closed;
    }
    let mut answer = Vec::new();
    let asks = async {
        stream.write_all(b"srvr").await?;
        (&mut stream).take(SRVR_ANSWER_BYTES_MAX).read_to_end(&mut answer).await
    };
    // What came before it broke off counts.
    let _ = timeout(SRVR_MAX, asks).await;
    let answer = String::from_utf8_lossy(&answer);
    let value = |name: &str| {
        let value = answer.lines().find_map(|line| line.strip_prefix(name))?;
        let is_shown = |character: &char| !character.is_control();
        Some(value.chars().filter(is_shown).take(SHOWN_CHARS_MAX).collect::<String>())
    };
    match value("Mode: ") {
        Some(mode) => {
            Port::Serves { mode, version: value("Zookeeper version: ").unwrap_or_default() }
        }
        None if answer.contains("not currently serving") => Port::ServesNot,
        None => Port::Mute,
    }
}

/// Longest mode or version that is shown of what another server says.
const SHOWN_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_serves_if_it_says_its_mode_and_not_only_if_it_says_so() {
        let serves = |mode: &str, version: &str| Port::Serves {
            mode: mode.to_owned(),
            version: version.to_owned(),
        };
        for (answer, expected) in [
            (
                "Zookeeper version: 3.9.4\nMode: standalone\nNode count: 5\n",
                serves("standalone", "3.9.4"),
            ),
            ("This ZooKeeper instance is not currently serving requests\n", Port::ServesNot),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", Port::Mute),
            ("", Port::Mute),
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
            let here = HostPort { host: "127.0.0.1".into(), port };
            let ports = |clients: &[HostPort], servers: &[HostPort]| Ports {
                clients: clients.to_vec(),
                servers: servers.to_vec(),
                own_port: None,
            };
            let here = [here];
            let (known, ()) = tokio::join!(ports(&here, &[]).ask(), answering);
            assert_eq!(known, expected, "{answer}");
            // A process that stands still takes connections, too.
            assert_eq!(ports(&[], &here).ask().await, Port::Mute);
            let own = Ports { own_port: Some(port), ..ports(&here, &[]) };
            assert_eq!(own.ask().await, Port::Closed, "it would ask itself");
            drop(listener);
            assert_eq!(ports(&here, &here).ask().await, Port::Closed, "no server listens");
        }
    }
}
