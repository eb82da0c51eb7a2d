//! Sends images to servers that lack entries which the log does not hold any more.
//!
//! *Owns* one task for each image on its way. *Invariants*: every order is answered once, by
//! `Input::ImageSent`, unless a newer one for the same server replaces it; a failure is answered
//! after a pause, so that trying again never becomes a loop; an image that turns out damaged while it
//! is read is reported, and never finished.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::connect::greet;
use super::frame::{Secured, invalid};
use super::hello::Kind;
use super::image_receive::Counted;
use super::images::{Frame, append_record, on_thread};
use super::peers::{Ends, Peers};
use crate::peer_auth::{Seal, Seals};
use crate::replica::founding::Introduction;
use crate::replica::peer::server_of;
use crate::replica::{Input, SendImage};
use crate::server::limits::{PEER_IMAGE_INSTALL_MAX, PEER_IMAGE_RETRY};
use crate::server::mailbox::Message;
use crate::server::transport::WaitingStream;
use crate::storage::{ImageError, ImageReader};
use crate::supervision::Task;

/// Sends what is ordered, until it is dropped.
pub(crate) async fn send_images(peers: Arc<Peers>, mut orders: mpsc::UnboundedReceiver<SendImage>) {
    let mut tasks: BTreeMap<u64, Ends> = BTreeMap::new();
    while let Some(order) = orders.recv().await {
        tasks.retain(|_, task| !task.is_finished());
        let to = order.to;
        // The one before it, if there is one, ends here.
        tasks.remove(&to);
        tasks.insert(to, Ends::spawn(Task::Image, carry_out(Arc::clone(&peers), order)));
    }
}

async fn carry_out(peers: Arc<Peers>, order: SendImage) {
    let (to, index) = (order.to, order.index);
    let server = server_of(to);
    let begun = Instant::now();
    let sent = tokio::select! {
        sent = send(&peers, server, order) => sent,
        () = peers.barred(server) => Err(Failure::Unreachable),
    };
    let ok = match sent {
        Ok(records) => {
            let millis = begun.elapsed().as_millis() as u64;
            tracing::info!(server, index, records, millis, "image sent");
            peers.counts().images_sent.add(1);
            true
        }
        Err(failure) => {
            peers.counts().images_failed.add(1);
            if let Failure::Image(
                error @ (ImageError::Damaged { .. } | ImageError::Future { .. }),
            ) = &failure
            {
                tracing::error!(%error, "an image is damaged: it is written anew");
                // Fails when the server ends.
                let _ = peers.driver.send(Message::ImageDamaged { index }).await;
            } else if !matches!(failure, Failure::Unreachable) {
                let words = format!("image {index} not sent to server {server}: {failure}");
                peers.complain(server, "image", words);
            }
            sleep(PEER_IMAGE_RETRY).await;
            false
        }
    };
    // Fails when the server ends.
    let _ = peers.driver.send(Message::Input(Input::ImageSent { to, ok })).await;
}

/// Why an image was not sent.
#[derive(Debug)]
pub(in crate::server) enum Failure {
    /// There is no connection: that was told.
    Unreachable,
    /// Another server has that id now, or none.
    Gone,
    /// There is none.
    NoImage,
    /// There is none that is new enough: one is to be written.
    Older,
    /// It cannot be read.
    Image(ImageError),
    /// The connection broke, or nothing moved on it.
    Link(io::Error),
    /// The receiver does not take it.
    Refused(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => write!(f, "no connection"),
            Self::Gone => write!(f, "it is not the server that it was"),
            Self::NoImage => write!(f, "this server has no images"),
            Self::Older => write!(f, "the newest image is too old: another one is being written"),
            Self::Image(error) => write!(f, "{error}"),
            Self::Link(error) => write!(f, "{error}"),
            Self::Refused(words) => write!(f, "refused: {words}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Link(error)
    }
}

async fn send(peers: &Arc<Peers>, server: u8, order: SendImage) -> Result<u64, Failure> {
    let introduction = peers.introduction();
    let images =
        peers.transfers.store().and_then(|store| Some((store.images?, store.lock.upgrade()?)));
    let (images, lock) = images.ok_or(Failure::Gone)?;
    let addresses = peers.addresses(server).ok_or(Failure::Gone)?;
    let greeted = greet(peers, server, &addresses, Kind::Image, introduction).await;
    let (secured, other) = greeted.ok_or(Failure::Unreachable)?;
    match other {
        Introduction::Founded(identity) if identity.raft_id == order.to => {}
        Introduction::Founded(_) | Introduction::Founding(_) => return Err(Failure::Gone),
    }
    let counted = Arc::clone(peers);
    let work = move |stream: WaitingStream, mut seals: Seals| {
        let _lock = lock;
        let reader = images.open(order.index).map_err(Failure::Image)?;
        let mut out = Counted { stream: &stream, peers: &counted };
        let first = Frame::Begin { mark: reader.mark().clone(), message: order.message };
        let records = write(reader, first, (&mut out, seals.send.as_mut()))?;
        hear_verdict(&stream, seals.receive.as_mut()).map(|()| records)
    };
    on_thread(&peers.transfers, secured, work).await?
}

/// Gives the newest image to a server that asks for one on `stream`.
pub(super) async fn give(peers: &Arc<Peers>, server: u8, secured: Secured) {
    let begun = Instant::now();
    let failure = match give_newest(peers, secured).await {
        Ok((index, records)) => {
            let millis = begun.elapsed().as_millis() as u64;
            tracing::info!(server, index, records, millis, "image given");
            return peers.counts().images_sent.add(1);
        }
        Err((index, Failure::Image(error @ ImageError::Damaged { .. }))) => {
            tracing::error!(%error, "an image is damaged: it is written anew");
            // Fails when the server ends.
            let _ = peers.driver.send(Message::ImageDamaged { index }).await;
            error.to_string()
        }
        Err((index, Failure::Older)) => {
            // Fails when the server ends.
            let _ = peers.driver.send(Message::ImageWanted { index }).await;
            Failure::Older.to_string()
        }
        Err((_, failure)) => failure.to_string(),
    };
    peers.counts().images_failed.add(1);
    peers.complain(server, "image", format!("no image given to server {server}: {failure}"));
}

/// Returns index and number of records; a failure comes with the index that it is about.
async fn give_newest(peers: &Arc<Peers>, secured: Secured) -> Result<(u64, u64), (u64, Failure)> {
    let images =
        peers.transfers.store().and_then(|store| Some((store.images?, store.lock.upgrade()?)));
    let counted = Arc::clone(peers);
    let work = move |stream: WaitingStream, mut seals: Seals| {
        let Seals { send, receive } = &mut seals;
        let mut refuse = |index, failure: Failure| {
            // It notices the missing image as well.
            let _ = Frame::Broken(failure.to_string()).write(&mut &stream, send.as_mut());
            (index, failure)
        };
        let index_min =
            match Frame::read(&mut &stream, receive.as_mut()).map_err(|error| (0, error.into()))? {
                Frame::Want { index_min } => index_min,
                Frame::Begin { .. }
                | Frame::Records(_)
                | Frame::End { .. }
                | Frame::Broken(_)
                | Frame::Verdict(_)
                | Frame::Given { .. } => return Err((0, something_else())),
            };
        let Some((images, _lock)) = images else { return Err(refuse(0, Failure::NoImage)) };
        let newest = images.list().map_err(|error| refuse(0, Failure::Image(error.into())))?;
        let Some(index) = newest.first().copied().filter(|index| *index >= index_min) else {
            return Err(refuse(index_min, Failure::Older));
        };
        let reader = images.open(index).map_err(|error| refuse(index, Failure::Image(error)))?;
        let mut out = Counted { stream: &stream, peers: &counted };
        let first = Frame::Given { mark: reader.mark().clone() };
        let records =
            write(reader, first, (&mut out, send.as_mut())).map_err(|failure| (index, failure))?;
        hear_verdict(&stream, receive.as_mut()).map_err(|failure| (index, failure))?;
        Ok((index, records))
    };
    match on_thread(&peers.transfers, secured, work).await {
        Ok(given) => given,
        Err(error) => Err((0, error.into())),
    }
}

/// Waits for what the receiver says in the end: it reads back what it wrote.
fn hear_verdict(mut stream: &WaitingStream, seal: Option<&mut Seal>) -> Result<(), Failure> {
    stream.socket().set_read_timeout(Some(PEER_IMAGE_INSTALL_MAX))?;
    match Frame::read(&mut stream, seal)? {
        Frame::Verdict(words) if words.is_empty() => Ok(()),
        Frame::Verdict(words) => Err(Failure::Refused(words)),
        Frame::Begin { .. }
        | Frame::Records(_)
        | Frame::End { .. }
        | Frame::Broken(_)
        | Frame::Want { .. }
        | Frame::Given { .. } => Err(something_else()),
    }
}

fn something_else() -> Failure {
    invalid("it sent something else").into()
}

/// Writes a whole image behind a first frame; returns the number of its records.
pub(in crate::server) fn write(
    mut reader: ImageReader,
    first: Frame,
    (out, mut seal): (&mut impl Write, Option<&mut Seal>),
) -> Result<u64, Failure> {
    first.write(out, seal.as_deref_mut())?;
    let mut sent = 0;
    loop {
        let mut bytes = Vec::new();
        match reader.next_records() {
            Ok(Some(records)) => {
                for (key, value) in records {
                    append_record(&mut bytes, key, value);
                    sent += 1;
                }
            }
            Ok(None) => break,
            Err(error) => {
                // The receiver notices the missing end as well.
                let broken = Frame::Broken("the image of the sender is damaged".to_string());
                let _ = broken.write(out, seal);
                return Err(Failure::Image(error));
            }
        }
        Frame::Records(Bytes::from(bytes)).write(out, seal.as_deref_mut())?;
    }
    Frame::End { records: sent }.write(out, seal)?;
    Ok(sent)
}
