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
use crate::server::mailbox::{Bootstrapped, LinkEvent, Message, Queue, tell};
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

/// An operator who has said a word, and is told its outcome once that is durable.
pub(crate) type Told = Option<oneshot::Sender<Bootstrapped>>;

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
        loop {
            if !waiting.turn(&mut batch) {
                return Ok(None);
            }
            let now_us = clock::micros_since(self.start);
            self.take(&mut batch, now_us)?;
            waiting.peers.introduce(self.founding.introduction(now_us));
            questions.retain(|question| !question.is_finished());
            for server in self.founding.to_ask(now_us) {
                let ports = Ports::of(&self.lines, self.client_port, server);
                let driver = waiting.peers.driver.clone();
                let question = async move {
                    let Some(port) = ports.ask().await else { return };
                    let event = LinkEvent::Asked { server, port, asked_us: now_us };
                    // Fails when the server ends.
                    let _ = driver.send(Message::Link(event)).await;
                };
                let spawned =
                    waiting.runtime.block_on(async { Ends::spawn(Task::Question, question) });
                questions.push(spawned);
            }
            let obstacle = match self.founding.decide(now_us) {
                Ok(Some(decision)) => {
                    conditions.set(Cause::Founding, None);
                    return Ok(Some((decision, self.told.map(|(answer, _)| answer))));
                }
                Ok(None) => self.founding.obstacle(now_us),
                Err(conflict) => Some(conflict.to_string()),
            };
            self.tell_late(now_us, obstacle.as_deref());
            conditions.set(Cause::Founding, obstacle);
        }
    }

    /// The word of an operator counts no more, and nothing came of it.
    fn tell_late(&mut self, now_us: u64, obstacle: Option<&str>) {
        let Some((answer, _)) = self.told.take_if(|(_, until_us)| *until_us <= now_us) else {
            return;
        };
        let why = obstacle.unwrap_or("the other servers have not consented in time");
        tell(
            answer,
            Err(format!("nothing was founded within a minute, as far as is known here: {why}")),
        );
    }

    /// Takes an operator's word, or says at once why not.
    fn bootstrap(&mut self, without: &[u8], answer: oneshot::Sender<Bootstrapped>, now_us: u64) {
        let until_us = now_us.saturating_add(WORD_COUNTS_US);
        match self.founding.bootstrap(without, now_us, until_us) {
            Ok(word) => {
                tracing::warn!(?word.without, "an operator has this ensemble be founded without servers");
                if let Some((before, _)) = self.told.replace((answer, until_us)) {
                    tell(
                        before,
                        Err("it is not known here any more: a word was said after this one"
                            .to_owned()),
                    );
                }
            }
            Err(reasons) => tell(answer, Err(reasons.join("\n"))),
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

/// Addresses at which a server may be asked whether it runs.
#[derive(Debug)]
pub(super) struct Ports {
    /// Those of its clients, as its line says them, or else with the port of this server's.
    clients: Vec<HostPort>,
    /// Those of other servers.
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

    /// Asks at all of them at once: what says most counts. `None`: this server cannot ask, so nothing is known.
    pub(super) async fn ask(self) -> Option<Port> {
        let mut asked = TaskSet::default();
        for at in self.clients {
            asked.spawn(Task::Question, async move { srvr(&at, self.own_port).await });
        }
        for HostPort { host, port } in self.servers {
            asked.spawn(Task::Question, async move {
                connect(&host, port)
                    .await
                    .map(|connected| connected.map_or(Port::Closed, |_| Port::Mute))
            });
        }
        let (mut known, mut can_ask) = (Port::Closed, true);
        while let Some(ended) = asked.join_next().await {
            let Ok(Some(port)) = ended else {
                can_ask = false;
                continue;
            };
            let says_more = match (&port, &known) {
                (Port::Serves { .. }, _) | (Port::ServesNot, Port::Mute) => true,
                (_, known) => *known == Port::Closed,
            };
            if says_more {
                known = port;
            }
        }
        (can_ask || known != Port::Closed).then_some(known)
    }
}

/// Answer of the server at an address to the four-letter word `srvr`.
/// `own_port`: where this server listens for clients, if the address is only guessed after that.
async fn srvr(HostPort { host, port }: &HostPort, own_port: Option<u16>) -> Option<Port> {
    let Some(mut stream) = connect(host, *port).await? else { return Some(Port::Closed) };
    let ip = |address: std::io::Result<SocketAddr>| address.map(|address| address.ip()).ok();
    if own_port == Some(*port) && ip(stream.local_addr()) == ip(stream.peer_addr()) {
        // On this machine: it is this server itself.
        return Some(Port::Closed);
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
    Some(match value("Mode: ") {
        Some(mode) => {
            Port::Serves { mode, version: value("Zookeeper version: ").unwrap_or_default() }
        }
        None if answer.contains("not currently serving") => Port::ServesNot,
        None => Port::Mute,
    })
}

/// A connection, in time; `Some(None)` if none was made, `None` if it is this machine that can make none now.
async fn connect(host: &str, port: u16) -> Option<Option<TcpStream>> {
    match timeout(SRVR_MAX, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => Some(Some(stream)),
        Ok(Err(error)) if is_own_fault(&error) => None,
        Ok(Err(_)) | Err(_) => Some(None),
    }
}

/// Whether an attempt to connect failed for lack of files, ports or memory here.
fn is_own_fault(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    const OWN: [Errno; 5] =
        [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| OWN.contains(&Errno::from_raw_os_error(code)))
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
            assert_eq!(known, Some(expected), "{answer}");
            // A process that stands still takes connections, too.
            assert_eq!(ports(&[], &here).ask().await, Some(Port::Mute));
            let own = Ports { own_port: Some(port), ..ports(&here, &[]) };
            assert_eq!(own.ask().await, Some(Port::Closed), "it would ask itself");
            drop(listener);
            assert_eq!(ports(&here, &here).ask().await, Some(Port::Closed), "no server listens");
            let full = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
            assert!(is_own_fault(&full), "it says nothing of another machine");
        }
    }
}
