//! A learner's connection, as LearnerHandler has it.
//!
//! *Owns* the packets that a learner sends, decoded, and how far it is. *Never* decides anything.

use bytes::Bytes;

use lockkeeper_core::learner::packet::{self, kind};
use lockkeeper_core::proto::{Reader, Text};
use lockkeeper_core::tree::Identity;

use super::snapshot::Snapshot;

/// Names a connection; never given twice.
pub type LinkId = u64;

/// What a learner sent.
#[derive(Debug)]
pub struct Received {
    pub kind: i32,
    pub zxid: i64,
    pub data: Bytes,
    pub ids: Vec<Identity>,
}

/// What is to come from the learner.
#[derive(Debug)]
pub enum Stage {
    /// OBSERVERINFO.
    New,
    /// ACKEPOCH.
    Led,
    /// Nothing: a snapshot is written.
    Snapshot(Snapshot),
    /// The first ACK.
    Synced,
    /// Anything.
    Served,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    pub stage: Stage,
    pub server_id: i64,
    /// What came and is not read.
    pub input: Vec<u8>,
    /// What the socket is to write.
    pub output: Vec<u8>,
    /// What waits until the snapshot is written.
    pub queue: Vec<u8>,
    /// Whether transactions are sent to it.
    pub is_forwarded: bool,
    /// When a packet last came.
    pub heard_ms: i64,
    /// The learner keeps none of the rules: why the connection was closed.
    pub broken: Option<String>,
}

impl Link {
    pub fn new(now_ms: i64) -> Self {
        Self {
            stage: Stage::New,
            server_id: 0,
            input: Vec::new(),
            output: Vec::new(),
            queue: Vec::new(),
            is_forwarded: false,
            heard_ms: now_ms,
            broken: None,
        }
    }

    /// Queues a packet: behind a snapshot, if one is being written.
    pub fn send(&mut self, kind: i32, zxid: i64, data: Option<&[u8]>) {
        let out = match self.stage {
            Stage::Snapshot(_) => &mut self.queue,
            _ => &mut self.output,
        };
        packet::put(kind, zxid, data, None, out);
    }

    /// Whether what is queued goes out: from then on it is pinged.
    pub fn is_sending(&self) -> bool {
        matches!(self.stage, Stage::Synced | Stage::Served)
    }

    /// The next packet; `None`: it is not complete.
    pub fn receive(&mut self) -> Option<Received> {
        let mut reader = Reader::new(Bytes::copy_from_slice(&self.input));
        let mut read = || {
            let kind = reader.int("kind").ok()?;
            let zxid = reader.long("zxid").ok()?;
            let data = reader.buffer("data").ok()?.unwrap_or_default();
            let count = reader.int("authinfo").ok()?;
            let mut text = || reader.string("authinfo").ok();
            let mut ids = Vec::new();
            for _ in 0..count.max(0) {
                let (scheme, id): (Text, Text) = (text()?, text()?);
                ids.push(Identity { scheme, id });
            }
            Some((Received { kind, zxid, data, ids }, reader.remaining()))
        };
        let (received, left) = read()?;
        self.input.drain(..self.input.len() - left);
        Some(received)
    }

    /// What kinds of packets a learner may send here.
    pub fn expects(&self, kind: i32) -> bool {
        match self.stage {
            Stage::New => kind == kind::OBSERVER_INFO,
            Stage::Led => kind == kind::ACK_EPOCH,
            Stage::Snapshot(_) => false,
            Stage::Synced => kind == kind::ACK,
            Stage::Served => true,
        }
    }
}
