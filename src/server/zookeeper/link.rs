//! The link with ZooKeeper's leader: finds it, and carries the bytes of both directions.
//!
//! *Owns* the connection. *Invariant*: it is read only while the replica has room for what comes. *Never* knows what
//! the bytes mean.
//!
//! Only a leader listens on ZooKeeper's quorum port, so the one that answers is it.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::access::Access;
use super::look::{CONNECT_MAX, connect};
use crate::replica::LinkInput;
use crate::server::mailbox::{Message, ZooKeeperEvent};
use crate::supervision::{Task, TaskSet};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// What a server that speaks TLS answers to plain text begins with; no packet of ZooKeeper's does.
const ALERT_RECORD: u8 = 0x15;
const TLS_ALERT: &str = "it speaks TLS: lockkeeper.migration.sslQuorum is to be true";
/// What is said where the other side closes the connection before it has sent a byte.
const UNHEARD: &str = "it has closed the connection before it said anything: if ZooKeeper's servers go by TLS \
     (sslQuorum) or SASL (quorum.auth.enableSasl), lockkeeper.migration.sslQuorum and lockkeeper.migration.jaasFile \
     are to say so";

/// Makes a link and carries its bytes. Why it ended.
pub(super) async fn run(
    addresses: &[String],
    access: &Access,
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
    let prepared = match access.protect(stream, &remote).await {
        Ok(stream) => access.login().map(|login| (stream, login)),
        Err(why) => Err(why),
    };
    let (stream, login) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return format!("{remote}: {why}"),
    };
    let up = LinkInput::Up { remote: remote.clone(), login };
    tell(driver, number, up).await;
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

async fn read(
    mut reader: impl AsyncReadExt + Unpin,
    mut room: watch::Receiver<bool>,
    (driver, number): (&mpsc::Sender<Message>, u64),
) -> io::Result<()> {
    let mut is_first = true;
    loop {
        if room.wait_for(|has_room| *has_room).await.is_err() {
            return Ok(());
        }
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        let read = reader.read_buf(&mut bytes).await;
        if is_first && !matches!(read, Ok(1..)) {
            return Err(io::Error::other(UNHEARD));
        }
        if read? == 0 {
            return Ok(());
        }
        if std::mem::take(&mut is_first) && bytes.first() == Some(&ALERT_RECORD) {
            return Err(io::Error::other(TLS_ALERT));
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

/// Tells the driver what happened on the link with this number.
pub(super) async fn tell(driver: &mpsc::Sender<Message>, number: u64, input: LinkInput) {
    send(driver, ZooKeeperEvent::Link { number, input }).await;
}

/// Tells the driver something of a live migration.
pub(super) async fn send(driver: &mpsc::Sender<Message>, event: ZooKeeperEvent) {
    // Fails when the server is ending.
    let _ = driver.send(Message::ZooKeeper(event)).await;
}
