//! Receives an image of another server.
//!
//! *Owns* the file until it is complete, and the state that is made from its records. *Invariants*:
//! what is given to the driver was received to its end, has the number of records and the digest that
//! its mark says, and is on the disk, read back; whatever fails before leaves neither file nor state
//! behind, and the sender is told why. *Never* installs anything: that is decided by the replica.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use super::frame::Secured;
use super::images::{Frame, Store, next_record, on_thread};
use super::peers::Peers;
use crate::peer_auth::{Seal, Seals};
use crate::replica::peer::{Announcement, RaftMessage};
use crate::replica::{Input, Machine, Mark, Restore as _};
use crate::server::limits::PEER_READ_BYTES_MAX;
use crate::server::mailbox::Message;
use crate::server::transport::WaitingStream;
use crate::storage::ImageWriter;

/// What came.
#[derive(Debug)]
struct Received {
    message: Box<RaftMessage>,
    mark: Mark,
    machine: Box<Machine>,
}

/// Receives the image that `server` sends on `stream`.
pub(super) async fn receive(peers: &Arc<Peers>, server: u8, peer: u64, secured: Secured) {
    // The sender tries again.
    let Some(store) = peers.transfers.store() else { return };
    let begun = Instant::now();
    let shared = Arc::clone(peers);
    let work = move |stream: WaitingStream, mut seals: Seals| {
        let lock = store.lock.upgrade();
        if store.images.is_some() && lock.is_none() {
            return Err("it is stopping".to_string());
        }
        take(&shared, peer, &store, (&stream, &mut seals))
    };
    match on_thread(&peers.transfers, secured, work).await {
        Ok(Ok((index, records))) => {
            let millis = begun.elapsed().as_millis() as u64;
            tracing::info!(server, index, records, millis, "image received");
            peers.counts().images_received.add(1);
        }
        Ok(Err(words)) => {
            peers.counts().images_failed.add(1);
            let words = format!("no image received from server {server}: {words}");
            peers.complain(server, "image", words);
        }
        Err(error) => {
            peers.counts().images_failed.add(1);
            tracing::error!(%error, "defect: an image was not received");
        }
    }
}

/// Receives, hands over to the driver and answers: index and number of records, or why not.
fn take(
    peers: &Peers,
    peer: u64,
    store: &Store,
    (stream, seals): (&WaitingStream, &mut Seals),
) -> Result<(u64, u64), String> {
    let counted = Counted { stream, peers };
    let mut input = BufReader::with_capacity(PEER_READ_BYTES_MAX, counted);
    let taken = begin(peers, peer, stream, (&mut input, seals.receive.as_mut()));
    let taken = taken.and_then(|(mark, message, _begun)| {
        let machine = read((&mut input, seals.receive.as_mut()), store, &mark)?;
        let at = (mark.index, mark.records);
        let received = Received { message, mark, machine };
        hand_over(peers, received).map(|()| at)
    });
    let words = taken.as_ref().err().cloned().unwrap_or_default();
    let mut out = stream;
    // If it never arrives, the sender takes it for a failure, and the next message shows the truth.
    let _ = Frame::Verdict(words).write(&mut out, seals.send.as_mut());
    taken
}

type Beginning<'a> = (Mark, Box<RaftMessage>, super::images::Begun<'a>);

fn begin<'a>(
    peers: &'a Peers,
    peer: u64,
    stream: &WaitingStream,
    (input, seal): (&mut impl Read, Option<&mut Seal>),
) -> Result<Beginning<'a>, String> {
    let Frame::Begin { mark, message } = Frame::read(input, seal).map_err(words)? else {
        return Err("it does not begin like an image".to_string());
    };
    let announced = Announcement::of(&message).ok_or("it is not announced")?;
    if announced.from != peer {
        return Err("it is announced in the name of another server".to_string());
    }
    if announced.at != (mark.index, mark.term) {
        return Err("it is not the image that is announced".to_string());
    }
    let begun = peers.transfers.begin(announced.term, stream.socket()).map_err(words)?;
    match begun {
        Some(begun) => Ok((mark, message, begun)),
        None => Err("a leader of a later term sends one".to_string()),
    }
}

/// Reads the records: onto the disk, and into a new state.
pub(in crate::server) fn read(
    (input, mut seal): (&mut impl Read, Option<&mut Seal>),
    store: &Store,
    mark: &Mark,
) -> Result<Box<Machine>, String> {
    let mut machine = Box::new(Machine::fresh(store.options.clone()));
    let mut file = match &store.images {
        Some(images) => Some(images.receive(mark).map_err(|error| error.to_string())?),
        None => None,
    };
    let mut count = 0_u64;
    loop {
        match Frame::read(input, seal.as_deref_mut()).map_err(words)? {
            Frame::Records(records) => {
                let mut rest = &records[..];
                while !rest.is_empty() {
                    let (key, value) = next_record(&mut rest).ok_or("a record is cut off")?;
                    count += 1;
                    if count > mark.records {
                        return Err(format!("it has more than {} records", mark.records));
                    }
                    machine.record(key, value)?;
                    if let Some(file) = &mut file {
                        file.record(key, value).map_err(|error| error.to_string())?;
                    }
                }
            }
            Frame::End { records } if records == count => break,
            Frame::End { records } => {
                return Err(format!("{count} records came of {records}"));
            }
            Frame::Broken(words) => return Err(words),
            Frame::Begin { .. } | Frame::Verdict(_) | Frame::Want { .. } | Frame::Given { .. } => {
                return Err("it sent something that is no record".to_string());
            }
        }
    }
    machine.finish(mark)?;
    file.map_or(Ok(0), ImageWriter::finish).map_err(|error| error.to_string())?;
    Ok(machine)
}

fn hand_over(peers: &Peers, received: Received) -> Result<(), String> {
    let Received { message, mark, machine } = received;
    let input = Input::ImageReceived { message, mark, machine };
    peers.driver.blocking_send(Message::Input(input)).map_err(|_| "it is stopping".to_string())
}

/// Why nothing comes any more.
pub(in crate::server) fn words(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing came in time".to_string(),
        io::ErrorKind::UnexpectedEof => "the connection ended before the image did".to_string(),
        _ => error.to_string(),
    }
}

/// Counts what comes and what leaves.
pub(in crate::server) struct Counted<'a> {
    /// The connection.
    pub(super) stream: &'a WaitingStream,
    /// Where it is counted.
    pub peers: &'a Peers,
}

impl Read for Counted<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        let read = stream.read(bytes)?;
        self.peers.counts().bytes_received.add(read as u64);
        Ok(read)
    }
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        let written = stream.write(bytes)?;
        self.peers.counts().bytes_sent.add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
