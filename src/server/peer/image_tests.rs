//! What becomes of an image on the way when anything goes wrong with it.

use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::image_receive::read;
use super::image_send::{Failure, write};
use super::images::{Frame, Store, Transfers};
use crate::replica::peer::RaftMessage;
use crate::replica::{
    Changes, Drained, Input, Machine, Mark, PeerMessage, Record, Replica, Restored, Setup,
};
use crate::storage::{ImageError, Images, OsFs};
use crate::tree;

/// The records of a server that was started and never written to, and what they are.
fn state() -> Changes {
    let setup = Setup { durable: true, ..Setup::default() };
    let machine = Machine::fresh(tree::Options::default());
    let mut replica = Replica::new(setup, machine, Restored::default()).unwrap();
    replica.step(Input::Tick { now_us: 1, wall_ms: 1_000_000 });
    let mut changes = loop {
        while let Some(ready) = replica.ready().unwrap() {
            if let Some(append) = ready.append {
                replica.persisted(append.number);
            }
        }
        if let Drained::Changes(changes) = replica.drain_changes(usize::MAX) {
            break changes;
        }
    };
    let records = std::mem::take(&mut changes.records);
    let mut sorted: Vec<Record<'_>> = records.iter().collect();
    sorted.sort_by_key(|record| record.key);
    changes.records = sorted.into_iter().collect();
    changes
}

fn images(directory: &Path) -> Images {
    Images::new(Arc::new(OsFs), directory, 1)
}

fn store(directory: &Path) -> Store {
    let options = tree::Options::default();
    Store { images: Some(images(directory)), lock: Weak::new(), options }
}

/// Writes an image of `state` for others; returns its mark.
fn written(images: &Images, state: &Changes) -> Mark {
    let mark = state.mark.clone().expect("it is complete");
    let mut writer = images.create(&mark).unwrap();
    for record in state.records.iter() {
        writer.record(record.key, record.value.expect("it is there")).unwrap();
    }
    writer.finish().unwrap();
    mark
}

/// A message that announces the image of `mark`, as a leader makes it.
fn announcement(mark: &Mark) -> Box<RaftMessage> {
    let mut message = RaftMessage { from: 1, to: 2, term: 1, ..RaftMessage::default() };
    // MsgSnapshot.
    message.set_msg_type(crate::replica::peer::ANNOUNCES);
    let metadata = message.mut_snapshot().mut_metadata();
    (metadata.index, metadata.term) = (mark.index, mark.term);
    metadata.mut_conf_state().voters = vec![1];
    Box::new(message)
}

/// What is sent for the image at `mark.index`, and how that went.
fn sent(images: &Images, mark: &Mark) -> (Vec<u8>, Result<u64, Failure>) {
    let first = Frame::Begin { mark: mark.clone(), message: announcement(mark) };
    let mut out = Vec::new();
    let result = write(images.open(mark.index).unwrap(), first, (&mut out, None));
    (out, result)
}

/// Receives it: into `directory`.
fn received(bytes: &[u8], directory: &Path) -> Result<Mark, String> {
    let mut input = bytes;
    let frame = Frame::read(&mut input, None).map_err(|error| error.to_string())?;
    let Frame::Begin { mark, message } = frame else { return Err(format!("{frame:?}")) };
    assert_eq!(PeerMessage::Raft(message), PeerMessage::Raft(announcement(&mark)));
    let machine = read((&mut input, None), &store(directory), &mark)?;
    assert_eq!(machine.digest(), mark.digest);
    Ok(mark)
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn an_image_arrives_as_it_was_sent() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = state();
    let mark = written(&images(here.path()), &state);
    let (bytes, result) = sent(&images(here.path()), &mark);
    assert_eq!(result.unwrap(), mark.records);
    assert_eq!(received(&bytes, there.path()), Ok(mark.clone()));
    assert_eq!(images(there.path()).received().unwrap(), [mark.index]);
}

#[test]
fn one_that_ends_early_or_has_a_changed_byte_leaves_nothing_behind() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mark = written(&images(here.path()), &state());
    let (bytes, _) = sent(&images(here.path()), &mark);
    for at in 0..bytes.len() {
        received(&bytes[..at], there.path()).unwrap_err();
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        received(&changed, there.path()).unwrap_err();
        assert_eq!(files(there.path()), 0, "byte {at}");
    }
}

#[test]
fn one_whose_state_is_not_that_of_its_mark_is_refused() {
    let there = tempfile::tempdir().unwrap();
    let state = state();
    let mark = state.mark.clone().unwrap();
    for wrong in [
        Mark { digest: mark.digest ^ 1, ..mark.clone() },
        Mark { zxid: mark.zxid + 1, ..mark.clone() },
        Mark { records: mark.records + 1, ..mark.clone() },
        Mark { records: mark.records - 1, ..mark.clone() },
    ] {
        // The file itself knows nothing of a digest.
        let mut bytes = Vec::new();
        let message = announcement(&wrong);
        Frame::Begin { mark: wrong.clone(), message }.write(&mut bytes, None).unwrap();
        let mut records = Vec::new();
        for record in state.records.iter() {
            super::images::append_record(&mut records, record.key, record.value.unwrap());
        }
        Frame::Records(Bytes::from(records)).write(&mut bytes, None).unwrap();
        Frame::End { records: mark.records }.write(&mut bytes, None).unwrap();
        let refused = received(&bytes, there.path()).unwrap_err();
        assert!(!refused.is_empty());
        assert_eq!(files(there.path()), 0, "{wrong:?}: {refused}");
    }
}

#[test]
fn a_damaged_image_is_noticed_while_it_is_sent_and_never_finished() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let images = images(here.path());
    let mark = written(&images, &state());
    let path = images.path(mark.index);
    let intact = std::fs::read(&path).unwrap();
    for at in (intact.len() / 2..intact.len()).step_by(7) {
        let mut damaged = intact.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let (bytes, result) = sent(&images, &mark);
        assert!(matches!(result, Err(Failure::Image(ImageError::Damaged { .. }))), "{result:?}");
        let refused = received(&bytes, there.path()).unwrap_err();
        assert_eq!(refused, "the image of the sender is damaged");
        assert_eq!(files(there.path()), 0);
    }
}

#[test]
fn a_newer_image_ends_an_unfinished_one_and_an_older_leader_ends_none() {
    let (transfers, _orders) = Transfers::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    };
    let (first, mut others_first) = connect();
    let (second, _others_second) = connect();
    let begun = transfers.begin(7, &first).unwrap().expect("there is none yet");
    assert!(transfers.begin(6, &second).unwrap().is_none(), "of an earlier term");
    let newer = transfers.begin(7, &second).unwrap().expect("it is newer");
    assert_eq!(others_first.read(&mut [0]).unwrap(), 0, "its connection has ended");
    drop(begun);
    assert!(transfers.begin(6, &first).unwrap().is_none(), "the newer one goes on");
    drop(newer);
    assert!(transfers.begin(6, &first).unwrap().is_some());
}
