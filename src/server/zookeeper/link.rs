//! The link with ZooKeeper's leader: finds it, and carries the bytes of both directions.
//!
//! *Owns* the connection. *Invariant*: it is read only while the replica has room for what comes. *Never* knows what
//! the bytes mean: the learner does.
//!
//! Only a leader listens on ZooKeeper's quorum port. But one that is hung still takes connections, and one that was
//! deposed still speaks: all addresses are dialled, and of those that say an epoch in time the highest counts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use super::access::Access;
use super::look::{CONNECT_MAX, connect};
use crate::learner::{INTRODUCED_SILENT_MS, Joining, Learner};
use crate::replica::LinkInput;
use crate::server::mailbox::{Message, ZooKeeperEvent};
use crate::server::transport::Stream;
use crate::supervision::{Task, TaskSet};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// How long a server may take to say its epoch, once it has taken a connection.
const INTRODUCING_MAX: Duration = Duration::from_millis(INTRODUCED_SILENT_MS);
/// How long others, which may say a higher epoch, are waited for behind the first one that has said its own.
const OTHERS_MAX: Duration = Duration::from_millis(500);
/// What a server that speaks TLS answers to plain text begins with; no packet of ZooKeeper's does.
const ALERT_RECORD: u8 = 0x15;
const TLS_ALERT: &str = "it speaks TLS: lockkeeper.migration.sslQuorum is to be true";
/// What is said where the other side closes the connection before it has sent a byte.
const UNHEARD: &str = "it has closed the connection before it said anything: if ZooKeeper's servers go by TLS \
     (sslQuorum) or SASL (quorum.auth.enableSasl), lockkeeper.migration.sslQuorum and lockkeeper.migration.jaasFile \
     are to say so";

/// A connection on which a leader has said its epoch.
struct Introduced {
    remote: String,
    stream: Stream,
    learner: Box<Learner>,
}

/// Makes a link and carries its bytes. Why it ended.
pub(super) async fn run(
    (addresses, joining): &(Vec<String>, Joining),
    access: &Arc<Access>,
    to_send: mpsc::UnboundedReceiver<Vec<u8>>,
    room: Arc<Semaphore>,
    (driver, number): (&mpsc::Sender<Message>, u64),
) -> String {
    let Introduced { remote, stream, learner } = match latest(addresses, joining, access).await {
        Ok(found) => found,
        Err(why) => return why,
    };
    tell(driver, number, LinkInput::Up { remote: remote.clone(), learner }).await;
    let (reader, writer) = split(stream);
    let ended = tokio::select! {
        ended = read(reader, room, (driver, number)) => ended,
        ended = write(writer, to_send) => ended,
    };
    match ended {
        Ok(()) => format!("{remote} has closed it"),
        Err(error) => format!("{remote}: {error}"),
    }
}

/// Reads as often as there is room, [`READ_BYTES`] at most each time.
async fn read(
    mut reader: impl AsyncReadExt + Unpin,
    room: Arc<Semaphore>,
    (driver, number): (&mpsc::Sender<Message>, u64),
) -> io::Result<()> {
    loop {
        let Ok(permit) = room.acquire().await else { return Ok(()) };
        permit.forget();
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
        writer.flush().await?;
    }
    Ok(())
}

/// Dials all of them at once: of those that say an epoch in time, the one with the highest.
async fn latest(
    addresses: &[String],
    joining: &Joining,
    access: &Arc<Access>,
) -> Result<Introduced, String> {
    let mut attempts = TaskSet::default();
    for address in addresses {
        let (address, joining, access) = (address.clone(), joining.clone(), Arc::clone(access));
        attempts.spawn(Task::ZooKeeper, async move {
            let introduced = dial(address.clone(), joining, &access).await;
            introduced.map_err(|why| format!("{address}: {why}"))
        });
    }
    let (mut best, mut reasons) = (None::<Introduced>, Vec::new());
    let mut until = None;
    loop {
        let attempt = match until {
            None => attempts.join_next().await,
            Some(until) => timeout_at(until, attempts.join_next()).await.unwrap_or(None),
        };
        match attempt {
            Some(Ok(Ok(found))) => {
                until = until.or_else(|| Some(Instant::now() + OTHERS_MAX));
                if best.as_ref().is_none_or(|best| best.learner.epoch() < found.learner.epoch()) {
                    best = Some(found);
                }
            }
            Some(Ok(Err(why))) => reasons.push(why),
            Some(Err(_)) => {}
            None => break,
        }
    }
    reasons.sort();
    best.ok_or_else(|| format!("no leader of ZooKeeper is found: {}", reasons.join("; ")))
}

/// Connects to a server, and lets it say its epoch.
async fn dial(remote: String, joining: Joining, access: &Access) -> Result<Introduced, String> {
    let stream = connect(&remote, CONNECT_MAX).await?;
    let introduced = timeout(INTRODUCING_MAX, introduce(stream, &remote, joining, access)).await;
    let (stream, learner) = introduced.unwrap_or_else(|_| {
        let ms = INTRODUCING_MAX.as_millis();
        Err(format!("it has taken the connection, and not said an epoch within {ms} ms"))
    })?;
    Ok(Introduced { remote, stream, learner })
}

async fn introduce(
    stream: TcpStream,
    remote: &str,
    joining: Joining,
    access: &Access,
) -> Result<(Stream, Box<Learner>), String> {
    let words = |error: io::Error| error.to_string();
    stream.set_nodelay(true).map_err(words)?;
    let mut stream = access.protect(stream, remote).await?;
    let joining = Joining { login: access.login()?, ..joining };
    let mut learner = Box::new(Learner::new(joining, 0));
    let mut is_first = true;
    // Its epoch is the first event.
    while learner.next_event().map_err(|ended| ended.to_string())?.is_none() {
        stream.write_all(&learner.take_output()).await.map_err(words)?;
        stream.flush().await.map_err(words)?;
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        let read = stream.read_buf(&mut bytes).await;
        if is_first && !matches!(read, Ok(1..)) {
            return Err(UNHEARD.to_owned());
        }
        if std::mem::take(&mut is_first) && bytes.first() == Some(&ALERT_RECORD) {
            return Err(TLS_ALERT.to_owned());
        }
        if read.map_err(words)? == 0 {
            return Err(learner.closed().to_string());
        }
        learner.feed(&bytes, 0);
    }
    Ok((stream, learner))
}

/// Tells the driver what happened on the link with this number.
pub(super) async fn tell(driver: &mpsc::Sender<Message>, number: u64, input: LinkInput) {
    send(driver, ZooKeeperEvent::Link { number, input }).await;
}

/// Tells the driver something of a live migration.
pub(super) async fn send(driver: &mpsc::Sender<Message>, event: ZooKeeperEvent) {
    // Fails when the server is ending.
    let _ = driver.send(Message::ZooKeeper(event)).await;
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::learner::packet::{self, kind};

    /// A server that takes connections, and says this epoch.
    async fn listen(epoch: Option<i64>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            if let Some(epoch) = epoch {
                let (mut said, version) = (Vec::new(), packet::PROTOCOL_VERSION.to_be_bytes());
                packet::put(kind::LEADER_INFO, epoch << 32, Some(&version), None, &mut said);
                stream.write_all(&said).await.unwrap();
            }
            while stream.read_u8().await.is_ok() {}
        });
        address
    }

    async fn found(addresses: &[String]) -> Result<(String, i64), String> {
        let joining = Joining { server_id: 200, from_zxid: 0, accepted_epoch: 4, login: None };
        let found = latest(addresses, &joining, &Arc::default()).await?;
        Ok((found.remote, found.learner.epoch()))
    }

    #[tokio::test]
    async fn of_leaders_that_say_an_epoch_the_latest_counts_and_the_others_are_not_waited_for() {
        let (hung, deposed, leader) =
            (listen(None).await, listen(Some(6)).await, listen(Some(7)).await);
        assert_eq!(found(&[hung, deposed, leader.clone()]).await, Ok((leader, 7)));
        let why = found(&[listen(None).await, listen(Some(3)).await]).await.unwrap_err();
        assert!(why.contains("not said an epoch within 2000 ms"), "{why}");
        assert!(why.contains("leads in epoch 3, and epoch 4 was followed before"), "{why}");
    }
}
