//! The sockets of a live migration: the link with ZooKeeper's leader, and looks at ZooKeeper's ports.
//!
//! *Owns* the task of the link and those of the looks, and who ordered a cutover. *Invariants*: there is one link at a
//! time, and what an earlier one still says is not taken for what the present one says; the link is read only while the
//! replica has room for what comes; a port counts as closed when it takes no connection; a cutover reaches the replica
//! only behind a look that found every port closed. *Never* knows what the bytes mean.
//!
//! Only a leader listens on ZooKeeper's quorum port, so the one that answers is it.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::message::Message;
use crate::replica::{Input, LinkInput, MigrateOrder, Replica, Report, ZooKeeperWork};
use crate::supervision::{Task, TaskSet};

/// How long one address may take to be connected to.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The same while requests of clients are held: a port behind a firewall that drops is silent.
const CONNECT_HELD_MAX: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Port of ZooKeeper's AdminServer unless it is configured.
const ADMIN_PORT: u16 = 8080;
/// How long it may take to answer.
const ADMIN_MAX: Duration = Duration::from_millis(1000);
/// Longest answer of it that is read, bytes.
const ADMIN_BYTES_MAX: u64 = 16 << 20;
/// Time between two looks whether ZooKeeper is stopped.
const STOPPED_INTERVAL: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct ZooKeeper {
    driver: mpsc::Sender<Message>,
    tasks: TaskSet<()>,
    link: Option<Link>,
    /// Number of the present link.
    number: u64,
    room: watch::Sender<bool>,
    /// AdminServers that the operator has named for the cutover.
    admins: Vec<String>,
    orders: HashMap<u64, oneshot::Sender<Report>>,
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Link {
    task: AbortHandle,
    bytes: mpsc::UnboundedSender<Vec<u8>>,
}

/// What a task of this file tells the driver.
#[derive(Debug)]
pub(super) enum ZooKeeperEvent {
    /// Of the link with this number.
    Link {
        /// The number.
        number: u64,
        /// What.
        input: LinkInput,
    },
    /// The look before a cutover has ended.
    Looked {
        /// The order that it is for.
        token: u64,
        /// Whether all ports are closed.
        closed: Result<(), String>,
    },
    /// The look while requests are held has ended.
    LookedAgain {
        /// Whether all ports are closed.
        closed: Result<(), String>,
    },
    /// A majority of ZooKeeper's servers is stopped.
    Stopped,
}

impl ZooKeeper {
    /// Without a link.
    pub(super) fn new(driver: mpsc::Sender<Message>) -> Self {
        Self {
            driver,
            tasks: TaskSet::default(),
            link: None,
            number: 0,
            room: watch::Sender::new(true),
            admins: Vec::new(),
            orders: HashMap::new(),
            looked: None,
        }
    }

    /// Does what the replica wants.
    pub(super) fn act(&mut self, work: ZooKeeperWork, replica: &Replica) {
        for words in &work.news {
            tracing::info!("migration: {words}");
        }
        for words in &work.alarms {
            tracing::error!("migration: {words}");
        }
        if work.close {
            self.close();
        }
        if let Some(addresses) = work.connect {
            self.close();
            self.number += 1;
            let (bytes, to_send) = mpsc::unbounded_channel();
            let (driver, number, room) = (self.driver.clone(), self.number, self.room.subscribe());
            let task = self.tasks.spawn(Task::ZooKeeper, async move {
                let ending = run(&addresses, to_send, room, (&driver, number)).await;
                tell(&driver, number, LinkInput::Down { why: ending }).await;
            });
            self.link = Some(Link { task, bytes });
        }
        if !work.bytes.is_empty()
            && let Some(link) = &self.link
        {
            // A task that has ended has said so.
            let _ = link.bytes.send(work.bytes);
        }
        if work.look {
            let (ports, admins) = (replica.zookeeper_clients(), self.admins.clone());
            let driver = self.driver.clone();
            self.tasks.spawn(Task::ZooKeeper, async move {
                let closed = look(&ports, &admins, CONNECT_HELD_MAX).await;
                send(&driver, ZooKeeperEvent::LookedAgain { closed }).await;
            });
        }
    }

    fn close(&mut self) {
        if let Some(link) = self.link.take() {
            link.task.abort();
        }
        self.number += 1;
    }

    /// Takes what a task says. `Some`: it is for the replica.
    pub(super) fn take(&mut self, event: ZooKeeperEvent) -> Option<Input> {
        while self.tasks.try_join_next().is_some() {}
        match event {
            ZooKeeperEvent::Link { number, input } if number == self.number => {
                if matches!(input, LinkInput::Down { .. }) {
                    self.link = None;
                }
                Some(Input::ZooKeeper(input))
            }
            ZooKeeperEvent::Link { .. } => None,
            ZooKeeperEvent::Looked { token, closed: Ok(()) } => {
                Some(Input::Migrate { token, order: MigrateOrder::CutOver })
            }
            ZooKeeperEvent::Looked { token, closed: Err(why) } => {
                let words = format!("nothing was changed: {why}");
                self.answered(token, Report::Migrated(Err(words)));
                None
            }
            ZooKeeperEvent::LookedAgain { closed } => Some(Input::ZooKeeperClosed { closed }),
            ZooKeeperEvent::Stopped => Some(Input::Migrate { token: 0, order: MigrateOrder::Done }),
        }
    }

    /// An operator wants something. `Some`: it is for the replica, with this number.
    pub(super) fn order(
        &mut self,
        order: MigrateOrder,
        admins: Vec<String>,
        (token, answer): (u64, oneshot::Sender<Report>),
        replica: &Replica,
    ) -> Option<Input> {
        self.orders.insert(token, answer);
        if order != MigrateOrder::CutOver {
            return Some(Input::Migrate { token, order });
        }
        let ports = replica.zookeeper_clients();
        self.admins = admins;
        let (driver, admins) = (self.driver.clone(), self.admins.clone());
        self.tasks.spawn(Task::ZooKeeper, async move {
            let closed = look(&ports, &admins, CONNECT_MAX).await;
            send(&driver, ZooKeeperEvent::Looked { token, closed }).await;
        });
        None
    }

    /// The replica has answered. `Some`: it was not asked by [`ZooKeeper::order`].
    pub(super) fn answered(&mut self, token: u64, report: Report) -> Option<Report> {
        let Some(answer) = self.orders.remove(&token) else { return Some(report) };
        // Who asked may have given up.
        let _ = answer.send(report);
        None
    }

    /// The end of a turn of the driver.
    pub(super) fn turned(&mut self, replica: &Replica) {
        let has_room = replica.takes_from_zookeeper();
        self.room.send_if_modified(|known| std::mem::replace(known, has_room) != has_room);
        let is_due = self.looked.is_none_or(|at| at.elapsed() >= STOPPED_INTERVAL);
        if replica.watches_zookeeper() && is_due {
            self.looked = Some(Instant::now());
            let (voters, driver) = (replica.zookeeper_voters(), self.driver.clone());
            self.tasks.spawn(Task::ZooKeeper, async move {
                let mut stopped = 0;
                for ports in &voters {
                    let mut is_open = false;
                    // One that does not answer may be behind a firewall.
                    for port in ports {
                        is_open |= !is_refused(port).await;
                    }
                    stopped += usize::from(!is_open);
                }
                if stopped > voters.len() / 2 {
                    send(&driver, ZooKeeperEvent::Stopped).await;
                }
            });
        }
    }
}

async fn tell(driver: &mpsc::Sender<Message>, number: u64, input: LinkInput) {
    send(driver, ZooKeeperEvent::Link { number, input }).await;
}

async fn send(driver: &mpsc::Sender<Message>, event: ZooKeeperEvent) {
    // Fails when the server is ending.
    let _ = driver.send(Message::ZooKeeper(event)).await;
}

/// Makes a link and carries its bytes. Why it ended.
async fn run(
    addresses: &[String],
    to_send: mpsc::UnboundedReceiver<Vec<u8>>,
    room: watch::Receiver<bool>,
    (driver, number): (&mpsc::Sender<Message>, u64),
) -> String {
    let (remote, stream) = match first_that_listens(addresses).await {
        Ok(found) => found,
        Err(why) => return why,
    };
    if let Err(error) = stream.set_nodelay(true) {
        return format!("{remote}: {error}");
    }
    tell(driver, number, LinkInput::Up { remote: remote.clone() }).await;
    let (reader, writer) = stream.into_split();
    let ended = tokio::select! {
        ended = read(reader, room, (driver, number)) => ended,
        ended = write(writer, to_send) => ended,
    };
    match ended {
        Ok(()) => format!("{remote} has closed it"),
        Err(error) => format!("{remote}: {error}"),
    }
}

async fn read(
    mut reader: impl AsyncReadExt + Unpin,
    mut room: watch::Receiver<bool>,
    (driver, number): (&mpsc::Sender<Message>, u64),
) -> io::Result<()> {
    loop {
        if room.wait_for(|has_room| *has_room).await.is_err() {
            return Ok(());
        }
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        if reader.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        tell(driver, number, LinkInput::Bytes(Bytes::from(bytes))).await;
    }
}

async fn write(
    mut writer: impl AsyncWriteExt + Unpin,
    mut to_send: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(bytes) = to_send.recv().await {
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

/// Connects to all of them at once: the first one that takes a connection.
async fn first_that_listens(addresses: &[String]) -> Result<(String, TcpStream), String> {
    let mut attempts = TaskSet::default();
    for address in addresses {
        let address = address.clone();
        attempts.spawn(Task::ZooKeeper, async move {
            let connected = connect(&address, CONNECT_MAX).await;
            (address, connected)
        });
    }
    let mut reasons = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok((address, Ok(stream))) => return Ok((address, stream)),
            Ok((address, Err(why))) => reasons.push(format!("{address}: {why}")),
            Err(_) => {}
        }
    }
    reasons.sort();
    Err(format!("no leader of ZooKeeper listens: {}", reasons.join("; ")))
}

async fn connect(address: &str, longest: Duration) -> Result<TcpStream, String> {
    match timeout(longest, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// Whether a machine says that nothing listens there.
async fn is_refused(address: &str) -> bool {
    let connected = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
    matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether no client reaches ZooKeeper: its ports for clients take no connection, and where an AdminServer answers, it
/// knows of no connection.
///
/// # Errors
/// Which is open, or who is connected.
async fn look(ports: &[String], admins: &[String], longest: Duration) -> Result<(), String> {
    if ports.is_empty() {
        return Err("it is not known where clients reach ZooKeeper".to_owned());
    }
    let mut looks = TaskSet::default();
    for port in ports {
        let port = port.clone();
        looks.spawn(Task::ZooKeeper, async move {
            match connect(&port, longest).await {
                Ok(_) => Err(format!(
                    "ZooKeeper takes clients at {port}: close it to everybody (a firewall, or \
                     clientPortAddress=127.0.0.1)"
                )),
                Err(_) => Ok(()),
            }
        });
    }
    let mut asked: Vec<(String, bool)> = admins.iter().map(|admin| (admin.clone(), true)).collect();
    if admins.is_empty() {
        let hosts = ports.iter().filter_map(|port| Some(port.rsplit_once(':')?.0.to_owned()));
        let mut hosts: Vec<String> = hosts.collect();
        hosts.dedup();
        asked.extend(hosts.into_iter().map(|host| (format!("{host}:{ADMIN_PORT}"), false)));
    }
    for (admin, must_answer) in asked {
        looks.spawn(Task::ZooKeeper, async move {
            match timeout(ADMIN_MAX.min(longest * 5), connections(&admin)).await {
                Ok(Ok(0)) => Ok(()),
                Ok(Ok(count)) => {
                    Err(format!("{count} clients are connected to ZooKeeper, as {admin} says"))
                }
                _ if !must_answer => Ok(()),
                Ok(Err(error)) => Err(format!("the AdminServer at {admin}: {error}")),
                Err(_) => Err(format!("the AdminServer at {admin} does not answer")),
            }
        });
    }
    let mut open = Vec::new();
    while let Some(looked) = looks.join_next().await {
        match looked {
            Ok(Ok(())) => {}
            Ok(Err(why)) => open.push(why),
            // It has panicked, and the server ends.
            Err(_) => open.push("the look was broken off".to_owned()),
        }
    }
    open.sort();
    if open.is_empty() { Ok(()) } else { Err(open.join("; ")) }
}

/// How many clients an AdminServer of ZooKeeper says are connected.
async fn connections(admin: &str) -> Result<usize, String> {
    let words = |error: io::Error| error.to_string();
    let mut stream = TcpStream::connect(admin).await.map_err(words)?;
    let host = admin.rsplit_once(':').map_or(admin, |(host, _)| host);
    let question =
        format!("GET /commands/connections HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await.map_err(words)?;
    let mut answer = Vec::new();
    stream.take(ADMIN_BYTES_MAX).read_to_end(&mut answer).await.map_err(words)?;
    count_connections(&answer).ok_or_else(|| "its answer is not that of ZooKeeper".to_owned())
}

/// The connections in an answer of `/commands/connections`.
fn count_connections(answer: &[u8]) -> Option<usize> {
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let json: Value = serde_json::from_slice(answer.get(body + 4..)?).ok()?;
    let list = |key: &str| json.get(key).and_then(Value::as_array).map(Vec::len);
    Some(list("connections")? + list("secure_connections").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_admin_server_says_how_many_clients_are_connected() {
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{body}").into_bytes();
        let two = answer(
            r#"{"connections":[{"session_id":1}],"secure_connections":[{}],"command":"connections"}"#,
        );
        assert_eq!(count_connections(&two), Some(2));
        let none = answer(r#"{"connections":[],"secure_connections":[]}"#);
        assert_eq!(count_connections(&none), Some(0));
        assert_eq!(count_connections(&answer("<html>")), None);
        assert_eq!(count_connections(b"nothing"), None);
    }

    #[tokio::test]
    async fn a_port_that_takes_connections_is_open_and_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap().to_string();
        let refused = look(std::slice::from_ref(&open), &[], CONNECT_MAX).await.unwrap_err();
        assert!(refused.contains(&open), "{refused}");
        drop(listener);
        assert_eq!(look(&[open], &[], CONNECT_MAX).await, Ok(()));
        assert!(look(&[], &[], CONNECT_MAX).await.is_err(), "nothing is known");
    }

    #[tokio::test]
    async fn an_admin_server_that_was_named_has_to_answer() {
        let gone =
            TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let gone = std::slice::from_ref(&gone);
        let refused = look(gone, gone, CONNECT_MAX).await.unwrap_err();
        assert!(refused.contains("AdminServer"), "{refused}");
    }
}
