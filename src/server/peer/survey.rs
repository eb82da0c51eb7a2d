//! Asks the other servers of an ensemble that lost its majority, while an operator decides whether this one goes on
//! alone.
//!
//! *Owns* the peer port and the questions meanwhile, in a thread of its own: the operator may take any time.
//! *Invariants*:
//! this server's own process does not run, for the port is held; a server without data that starts meanwhile hears of
//! this one's and founds nothing; no client is served. *Never* decides: see `replica::lost_majority`.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{interval, sleep};

use super::connect::connect_all;
use super::founding::Ports;
use super::images::Transfers;
use super::peers::Peers;
use super::ports;
use super::security::Security;
use crate::config::{Config, ServerSpec};
use crate::replica::founding::{Brings, Introduction, Undecided};
use crate::replica::lost_majority::LostMajority;
use crate::server::clock;
use crate::server::error::StartError;
use crate::server::limits::DRIVER_QUEUE_MAX;
use crate::server::mailbox::{LinkEvent, Message};
use crate::server::metrics::{Figures, Published};
use crate::server::ports::{Announced, Files};
use crate::supervision::{End, Failure, Supervisor, Task, TaskSet};
use crate::tls::Reloadable;

/// Time between two questions to the ports of the others.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a question to a port is waited for at the end.
const END_PAUSE: Duration = Duration::from_millis(10);

/// See the module. The port is free again when it is dropped.
#[derive(Debug)]
pub(in crate::server) struct Survey {
    lost: Arc<Mutex<LostMajority>>,
    start: Instant,
    /// Knows whether the thread has panicked.
    supervisor: Arc<Supervisor>,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Survey {
    /// Begins it, as the server `own` of this configuration.
    ///
    /// # Errors
    /// The peer port cannot be had: this server runs. Or the keys for it cannot be read.
    pub(in crate::server) fn begin(
        (config, own): (&Config, &ServerSpec),
        certificates: Option<Arc<Reloadable>>,
        lost: LostMajority,
    ) -> Result<Self, StartError> {
        let start = Instant::now();
        let introduction = Introduction::Founding(Undecided {
            brings: Brings::Position(lost.position()),
            lines: config.servers.clone(),
            ..Undecided::default()
        });
        let asked: Vec<u8> = lost.others().iter().copied().collect();
        let lost = Arc::new(Mutex::new(lost));
        let (messages, queue) = mpsc::channel(DRIVER_QUEUE_MAX);
        let (transfers, images) = Transfers::new();
        let figures: Arc<Figures> = Arc::default();
        let servers = config.servers.clone();
        let peers = Peers::new(own.id, servers, introduction, messages, transfers, figures)
            .secured_by(Security::open(config, certificates)?);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StartError::system("runtime"))?;
        let files = Files::of(config)?;
        let ports = runtime.block_on(ports::listen(config, own, false, files))?;
        let (end, ended) = oneshot::channel();
        let (heard, config) = (Arc::clone(&lost), config.clone());
        let supervisor = Supervisor::new(Seen);
        let thread = supervisor.thread(Task::Survey, move || {
            let _images = images;
            runtime.block_on(async {
                let peers = Arc::new(peers);
                let mut tasks = TaskSet::default();
                tasks.spawn(Task::Links, connect_all(Arc::clone(&peers)));
                let members = watch::Sender::<Announced>::default();
                let file = watch::Sender::new(config.servers.clone());
                let published: Arc<Published> = Arc::default();
                let follow = ports.follow(
                    Arc::clone(&peers),
                    members.subscribe(),
                    file.subscribe(),
                    published,
                );
                tasks.spawn(Task::Members, follow);
                let listens = listen(queue, (&config, &asked), &heard, start);
                tokio::select! {
                    () = listens => {}
                    _ = ended => {}
                }
                tasks.shutdown().await;
                sleep(END_PAUSE).await;
            });
        });
        let thread = thread.map_err(StartError::system("thread"))?;
        Ok(Self { lost, start, supervisor, end: Some(end), thread: Some(thread) })
    }

    /// What is known now, and what time it is on the clock of that, in microseconds.
    ///
    /// # Errors
    /// The others are not asked any more: what would look like their silence is a defect of this program.
    pub(in crate::server) fn known(&self) -> Result<(LostMajority, u64), StartError> {
        if let Some(failure) = self.supervisor.failure() {
            return Err(StartError::Ended(failure.into()));
        }
        let known = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((known, clock::micros_since(self.start)))
    }
}

/// A panic is looked for before anything is believed: nothing else is to be done about it.
struct Seen;

impl End for Seen {
    fn ask(&self, _: &Failure) {}

    fn is_late(&self, _: &Failure) {}
}

impl Drop for Survey {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was shown when it came.
            let _ = thread.join();
        }
    }
}

async fn listen(
    mut queue: mpsc::Receiver<Message>,
    (config, asked): (&Config, &[u8]),
    heard: &Mutex<LostMajority>,
    start: Instant,
) {
    let known = || heard.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ask = interval(ASK_INTERVAL);
    let (answers, mut answered) = mpsc::channel(asked.len().max(1));
    loop {
        tokio::select! {
            Some(message) = queue.recv() => match message {
                Message::Link(LinkEvent::Introduced { server, introduction, .. }) => {
                    known().heard(server, introduction, clock::micros_since(start));
                }
                Message::Link(LinkEvent::Refused { server, words }) => {
                    known().refused(server, words, clock::micros_since(start));
                }
                Message::Open { conn, line, .. } => line.refuse(conn, clock::micros_since(start)),
                _ => {}
            },
            Some((server, port)) = answered.recv() => known().answered(server, port),
            _ = ask.tick() => {
                for server in asked.iter().copied() {
                    let ports = Ports::of(&config.servers, config.client_addr.port, server);
                    let answers = answers.clone();
                    // Each ends by itself soon.
                    let question = async move {
                        let Some(port) = ports.ask().await else { return };
                        // It fails when the survey ends.
                        let _ = answers.send((server, port)).await;
                    };
                    drop(crate::supervision::spawn(Task::Question, question));
                }
            }
        }
    }
}
