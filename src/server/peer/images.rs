//! Images between servers: which of them travel, and what they look like on the way.
//!
//! *Owns* the threads that send and receive images, and the frames on their connections. *Invariants*:
//! such a thread does nothing but one image on one connection of its own, whose end ends it; no one
//! waits for one that makes no progress; at most one image is sent to each server, and one is received
//! in all: a newer one ends it. *Never* believes an image: see `peer/image_receive.rs`.
//!
//! Takes the place of the SNAP and TRUNC parts of `LearnerHandler` and `Learner`.
//!
//! ```text
//! frames of the sender (peer_frame.rs), then one of the receiver:
//! 1 | length u32, mark | raft message       which image it is, and who asked for it
//! 2 | per record: length of key u32, length of value u32, key, value
//! 3 | records in all u64                    the end: the image is complete and intact
//! 4 | words                                 it is not: the receiver forgets it
//! 5 | words                                 from the receiver: taken if there are no words
//! 6 | index u64                             from a receiver that asks for any image from there on
//! 7 | mark                                  to that one, instead of 1: which image it is
//! ```

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::sync::{mpsc, watch};

use super::frame::{self, Secured, invalid};
use crate::peer_auth::{Seal, Seals, TAG_BYTES};
use crate::proto::{Malformed, Reader, Writer as _};
use crate::replica::peer::{Announcement, RaftMessage};
use crate::replica::{Mark, PeerMessage, SendImage};
use crate::server::limits::{PEER_IMAGE_FRAME_BYTES_MAX, PEER_IMAGE_STALL_MAX};
use crate::server::transport::WaitingStream;
use crate::storage::{Images, Lock, decode_mark, encode_mark};
use crate::supervision::{self, Task};
use crate::tree;

/// Where the images of this server are, and how their records become a state.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// The images on the disk; `None` in memory.
    pub images: Option<Images>,
    /// A task that works with them holds it: the directory is not free before.
    pub lock: Weak<Lock>,
    /// What a received state is made with.
    pub options: tree::Options,
}

/// The transfers of one server.
#[derive(Debug)]
pub(crate) struct Transfers {
    store: OnceLock<Store>,
    orders: mpsc::UnboundedSender<SendImage>,
    receiving: Mutex<Receiving>,
    running: watch::Sender<usize>,
}

/// The image that is being received.
#[derive(Debug, Default)]
struct Receiving {
    number: u64,
    /// Whose it is, and what ends it.
    current: Option<(u64, TcpStream)>,
}

impl Transfers {
    /// None yet. Images that are to be sent come out of the other value.
    #[must_use]
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<SendImage>) {
        let (orders, taken) = mpsc::unbounded_channel();
        let transfers = Self {
            store: OnceLock::new(),
            orders,
            receiving: Mutex::default(),
            running: watch::Sender::new(0),
        };
        (transfers, taken)
    }

    /// From now on images can be sent and received.
    pub(crate) fn open(&self, store: Store) {
        // Once in the life of a server.
        let _ = self.store.set(store);
    }

    /// Where images are; `None` before that is known.
    pub(crate) fn store(&self) -> Option<Store> {
        self.store.get().cloned()
    }

    /// Begins to send an image: what becomes of it is told by `Input::ImageSent`.
    pub(crate) fn send(&self, order: SendImage) {
        // Fails when the server ends.
        let _ = self.orders.send(order);
    }

    /// One that a leader of this term sends begins to be received. `None`: one of a later term is.
    pub(crate) fn begin(&self, term: u64, stream: &TcpStream) -> io::Result<Option<Begun<'_>>> {
        let cut = stream.try_clone()?;
        let mut receiving = self.receiving();
        if let Some((known, old)) = &receiving.current {
            if *known > term {
                return Ok(None);
            }
            end(old);
        }
        receiving.number += 1;
        receiving.current = Some((term, cut));
        Ok(Some(Begun { transfers: self, number: receiving.number }))
    }

    /// Waits until no thread sends or receives. Their tasks must have ended.
    pub(crate) async fn ended(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }

    fn receiving(&self) -> std::sync::MutexGuard<'_, Receiving> {
        // No code that holds the lock can panic half-way through a change.
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image is being received as long as this lives.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    transfers: &'a Transfers,
    number: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut receiving = self.transfers.receiving();
        if receiving.number == self.number {
            receiving.current = None;
        }
    }
}

/// Lets a thread work on a connection. When this is given up, the connection is ended, and with it
/// the work.
///
/// # Errors
/// The system refuses. That the work has panicked is one as well, and the end of the server.
pub(super) async fn on_thread<T: Send + 'static>(
    transfers: &Transfers,
    (stream, seals): Secured,
    work: impl FnOnce(WaitingStream, Seals) -> T + Send + 'static,
) -> io::Result<T> {
    let stream = stream.into_waiting()?;
    let socket = stream.socket();
    socket.set_read_timeout(Some(PEER_IMAGE_STALL_MAX))?;
    socket.set_write_timeout(Some(PEER_IMAGE_STALL_MAX))?;
    // The other side may be busy with its disk.
    SockRef::from(socket).set_tcp_user_timeout(Some(PEER_IMAGE_STALL_MAX))?;
    let mut cut = Cut(Some(socket.try_clone()?));
    let running = Working::begin(transfers.running.clone());
    let working = supervision::spawn_blocking(Task::ImageWork, move || {
        let _running = running;
        work(stream, seals)
    });
    let done = working.await.map_err(io::Error::other);
    // What was sent last is to arrive.
    cut.0 = None;
    done
}

/// Counts a thread.
struct Working(watch::Sender<usize>);

impl Working {
    fn begin(running: watch::Sender<usize>) -> Self {
        running.send_modify(|running| *running += 1);
        Self(running)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

/// Ends a connection when it is dropped.
struct Cut(Option<TcpStream>);

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            end(stream);
        }
    }
}

fn end(stream: &TcpStream) {
    // By a reset once it is closed: a sender that waits for room would not notice anything less.
    // It may have ended.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}

/// What is sent for an image.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// The first one.
    Begin {
        /// What the image holds.
        mark: Mark,
        /// What announces it.
        message: Box<RaftMessage>,
    },
    /// Some records, as [`next_record`] takes them apart.
    Records(Bytes),
    /// The last one.
    End {
        /// How many records there were.
        records: u64,
    },
    /// The last one, if the image turned out damaged.
    Broken(String),
    /// What the receiver says in the end.
    Verdict(String),
    /// What a receiver says that asks for an image.
    Want {
        /// The lowest index that is of use to it.
        index_min: u64,
    },
    /// The first one of an image that was asked for.
    Given {
        /// What the image holds.
        mark: Mark,
    },
}

const BEGIN: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;
const BROKEN: u8 = 4;
const VERDICT: u8 = 5;
const WANT: u8 = 6;
const GIVEN: u8 = 7;

impl Frame {
    /// Writes it.
    ///
    /// # Errors
    /// The connection is broken, or takes nothing.
    pub(super) fn write(self, out: &mut impl Write, seal: Option<&mut Seal>) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::append_sealed(&mut bytes, seal, |out| match self {
            Self::Begin { mark, message } => {
                out.push(BEGIN);
                put_mark(&mark, out);
                PeerMessage::Raft(message).encode(out);
            }
            Self::Records(records) => {
                out.push(RECORDS);
                out.extend_from_slice(&records);
            }
            Self::End { records } => {
                out.push(END);
                out.extend_from_slice(&records.to_be_bytes());
            }
            Self::Broken(words) => {
                out.push(BROKEN);
                out.put_string(&words);
            }
            Self::Verdict(words) => {
                out.push(VERDICT);
                out.put_string(&words);
            }
            Self::Want { index_min } => {
                out.push(WANT);
                out.extend_from_slice(&index_min.to_be_bytes());
            }
            Self::Given { mark } => {
                out.push(GIVEN);
                put_mark(&mark, out);
            }
        });
        out.write_all(&bytes)
    }

    /// Reads one. Memory is taken as the bytes arrive.
    ///
    /// # Errors
    /// The connection is broken or brings nothing, or what it brings is damaged or no such frame.
    pub(super) fn read(from: &mut impl Read, seal: Option<&mut Seal>) -> io::Result<Self> {
        let mut header = [0; frame::HEADER_BYTES];
        from.read_exact(&mut header)?;
        let mut buffer = BytesMut::from(&header[..]);
        let missing = frame::missing(&buffer);
        if missing > PEER_IMAGE_FRAME_BYTES_MAX + TAG_BYTES {
            return Err(invalid(frame::BadFrame::TooLong(missing)));
        }
        let mut payload = Vec::new();
        from.take(missing as u64).read_to_end(&mut payload)?;
        if payload.len() < missing {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.extend_from_slice(&payload);
        let payload = frame::next(&mut buffer, PEER_IMAGE_FRAME_BYTES_MAX + TAG_BYTES)
            .map_err(invalid)?
            .expect("all of it was read");
        let payload = frame::opened(payload, seal).map_err(invalid)?;
        Self::decode(payload).map_err(|error| invalid(format!("a frame is malformed: {error}")))
    }

    fn decode(payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let frame = match reader.byte("kind")? {
            BEGIN => {
                let mark = take_mark(&mut reader)?;
                return match PeerMessage::decode(reader.rest())? {
                    PeerMessage::Raft(message) if Announcement::of(&message).is_some() => {
                        Ok(Self::Begin { mark, message })
                    }
                    PeerMessage::Ask { .. }
                    | PeerMessage::Recall { .. }
                    | PeerMessage::Voters { .. }
                    | PeerMessage::Raft(_)
                    | PeerMessage::Forward { .. }
                    | PeerMessage::Return { .. }
                    | PeerMessage::Ping { .. }
                    | PeerMessage::Compare { .. }
                    | PeerMessage::Digests { .. }
                    | PeerMessage::Touch { .. } => {
                        Err(Malformed::new("message", "does not announce an image"))
                    }
                };
            }
            RECORDS => return Ok(Self::Records(reader.rest())),
            END => Self::End { records: reader.long("records")?.cast_unsigned() },
            BROKEN => Self::Broken(reader.string("words")?.as_str().to_string()),
            VERDICT => Self::Verdict(reader.string("words")?.as_str().to_string()),
            WANT => Self::Want { index_min: reader.long("index")?.cast_unsigned() },
            GIVEN => Self::Given { mark: take_mark(&mut reader)? },
            _ => return Err(Malformed::new("kind", "is not known")),
        };
        if reader.remaining() > 0 {
            return Err(Malformed::new("frame", "has trailing bytes"));
        }
        Ok(frame)
    }
}

fn put_mark(mark: &Mark, out: &mut Vec<u8>) {
    let mut encoded = Vec::new();
    encode_mark(mark, &mut encoded);
    out.put_buffer(Some(&encoded));
}

fn take_mark(reader: &mut Reader) -> Result<Mark, Malformed> {
    let encoded = reader.buffer("mark")?.unwrap_or_default();
    let mut rest = &encoded[..];
    decode_mark(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or_else(|| Malformed::new("mark", "cannot be decoded"))
}

/// Appends a record to those of a frame.
pub(super) fn append_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    for part in [key, value] {
        let length = u32::try_from(part.len()).expect("an image's records are shorter");
        records.extend_from_slice(&length.to_be_bytes());
    }
    records.extend_from_slice(key);
    records.extend_from_slice(value);
}

/// Takes a record off the front: key and value. `None`: there is no whole one.
pub(super) fn next_record<'a>(records: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (lengths, rest) = records.split_first_chunk::<8>()?;
    let (key, value) = lengths.split_first_chunk::<4>().expect("4 of 8 bytes");
    let key_len = u32::from_be_bytes(*key) as usize;
    let value_len = u32::from_be_bytes(value.try_into().expect("the other 4")) as usize;
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    *records = rest;
    Some((key, value))
}
