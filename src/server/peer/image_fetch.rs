//! Asks another server for an image, when this one has no usable copy of the state any more.
//!
//! *Owns* the driver's thread until an image has come. The log of this server is whole: it forgets
//! nothing that it has acknowledged, and stays who it is. *Invariants*: no client is served meanwhile,
//! and there is no link with another server, so that nothing is promised; an image counts when it was
//! received to its end, has the digest of its mark, and is on the disk, read back. *Never* gives up:
//! the others may be started later than this one.
//!
//! Takes the place of the SNAP of a learner that has lost its snapshots.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::connect::reach;
use super::founding::Waiting;
use super::hello::Kind;
use super::image_receive::{Counted, read, words};
use super::images::{Frame, Store, on_thread};
use super::peers::{Ends, Peers};
use crate::config::Config;
use crate::peer_auth::Seals;
use crate::replica::{Machine, Mark};
use crate::server::clock;
use crate::server::disk::{Found, Refused, data_dir};
use crate::server::error::{ServerError, StartError};
use crate::server::limits::{DRIVER_BATCH_MAX, PEER_IMAGE_RETRY, PEER_READ_BYTES_MAX};
use crate::server::mailbox::Message;
use crate::server::transport::WaitingStream;
use crate::storage::{Identity, Mending, WatchedFs};
use crate::supervision::Task;
use crate::tree;

/// Opens the data directory. Without a usable copy of the state in it, and where there are others to
/// wait for, one is fetched, after `unready` was called. `fresh`: a machine that takes the state. `None`: the end was
/// asked for meanwhile.
///
/// # Errors
/// It is refused.
pub(crate) fn open_or_mend(
    (config, files): (&Config, &WatchedFs),
    new: &Identity,
    options: &tree::Options,
    fresh: impl Fn() -> Machine,
    mut waiting: Option<Waiting<'_>>,
    mut unready: impl FnMut(),
) -> Result<Option<Found>, StartError> {
    loop {
        let words = match data_dir::open(config, files, new, waiting.is_some(), fresh()) {
            Ok(found) => return Ok(Some(found)),
            Err(Refused::Start(error)) => return Err(error),
            Err(Refused::Stateless(words)) => words,
        };
        let Some(waiting) = &mut waiting else { return Err(StartError::Data(words)) };
        tracing::error!("{words}");
        unready();
        let mending = data_dir::mend(config, files, new)?;
        let Some(mark) = fetch(waiting, &mending, options.clone())? else { return Ok(None) };
        let set_aside = mending.install(&mark);
        let set_aside = set_aside.map_err(|error| StartError::Data(error.to_string()))?;
        data_dir::tell_of_damaged(&set_aside);
    }
}

/// Waits until an image was received for `mending`; `None` if the end is asked for before.
///
/// # Errors
/// Why the server cannot go on.
fn fetch(
    waiting: &mut Waiting<'_>,
    mending: &Mending,
    options: tree::Options,
) -> Result<Option<Mark>, ServerError> {
    let (runtime, peers) = (waiting.runtime, waiting.peers);
    let start = Instant::now();
    let barred = peers.bar((0..=u8::MAX).collect());
    let store = Store { images: Some(mending.images().clone()), lock: Weak::new(), options };
    let (done, mut fetched) = oneshot::channel();
    let asking = ask_all(Arc::clone(peers), barred.clone(), store, mending.index_min(), done);
    let asking = runtime.block_on(async { Ends::spawn(Task::ImageFetch, asking) });
    let mut batch = Vec::with_capacity(DRIVER_BATCH_MAX);
    let result = loop {
        if !waiting.turn(&mut batch) {
            break Ok(None);
        }
        let now_us = clock::micros_since(start);
        // All links are cut: what they still say is of no use, and new ones will be told anew.
        let sent_away = |message: Message| message.without_driver(now_us).map(drop);
        if let Err(error) = batch.drain(..).try_for_each(sent_away) {
            break Err(error);
        }
        if let Ok(mark) = fetched.try_recv() {
            break Ok(Some(mark));
        }
    };
    drop(asking);
    runtime.block_on(peers.transfers.ended());
    peers.bar(barred);
    result
}

async fn ask_all(
    peers: Arc<Peers>,
    barred: BTreeSet<u8>,
    store: Store,
    index_min: u64,
    done: oneshot::Sender<Mark>,
) {
    loop {
        for server in peers.others().into_iter().filter(|server| !barred.contains(server)) {
            let begun = Instant::now();
            match ask(&peers, server, store.clone(), index_min).await {
                Ok(None) => {}
                Ok(Some(mark)) => {
                    let millis = begun.elapsed().as_millis() as u64;
                    tracing::info!(server, index = mark.index, millis, "image fetched");
                    peers.counts().images_received.add(1);
                    // Fails when the server ends.
                    let _ = done.send(mark);
                    return;
                }
                Err(words) => {
                    peers.counts().images_failed.add(1);
                    let words = format!("no image fetched from server {server}: {words}");
                    peers.complain(server, "fetch", words);
                }
            }
        }
        sleep(PEER_IMAGE_RETRY).await;
    }
}

/// Asks one server. `None`: there is no connection, for a reason that was told.
async fn ask(
    peers: &Arc<Peers>,
    server: u8,
    store: Store,
    index_min: u64,
) -> Result<Option<Mark>, String> {
    let Some((secured, _)) = reach(peers, server, Kind::Fetch).await else { return Ok(None) };
    let shared = Arc::clone(peers);
    let work = move |stream: WaitingStream, mut seals: Seals| {
        take(&shared, &store, index_min, (&stream, &mut seals))
    };
    match on_thread(&peers.transfers, secured, work).await {
        Ok(taken) => taken.map(Some),
        Err(error) => Err(error.to_string()),
    }
}

fn take(
    peers: &Peers,
    store: &Store,
    index_min: u64,
    (mut stream, seals): (&WaitingStream, &mut Seals),
) -> Result<Mark, String> {
    Frame::Want { index_min }.write(&mut stream, seals.send.as_mut()).map_err(words)?;
    let mut input = BufReader::with_capacity(PEER_READ_BYTES_MAX, Counted { stream, peers });
    let mark = match Frame::read(&mut input, seals.receive.as_mut()).map_err(words)? {
        Frame::Given { mark } => mark,
        Frame::Broken(words) => return Err(words),
        Frame::Begin { .. }
        | Frame::Records(_)
        | Frame::End { .. }
        | Frame::Verdict(_)
        | Frame::Want { .. } => return Err("it does not begin like an image".to_string()),
    };
    let taken = match mark.index < index_min {
        true => Err("it is older than what was asked for".to_string()),
        // The state was made to be verified only: the directory is opened again.
        false => read((&mut input, seals.receive.as_mut()), store, &mark).map(drop),
    };
    let verdict = Frame::Verdict(taken.as_ref().err().cloned().unwrap_or_default());
    // It is the sender's log that lacks a line if this does not arrive.
    let _ = verdict.write(&mut stream, seals.send.as_mut());
    taken.map(|()| mark)
}
