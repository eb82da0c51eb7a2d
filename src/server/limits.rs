//! Every bound of the network side, in one place.
//!
//! *Owns* the named constants and [`Limits`], the part of them that a configuration may move.
//! docs/LIMITS.md says what happens at each. *Never* enforces anything: the owner of the queue does.

use std::time::Duration;

use crate::config::Config;
use crate::proto::frame::FRAME_BYTES_MAX_DEFAULT;

/// Messages that may wait for the driver; connections then wait before they read on.
pub const DRIVER_QUEUE_MAX: usize = 4096;

/// Messages that the driver takes at once, between two ticks.
pub const DRIVER_BATCH_MAX: usize = 1024;
/// A turn of the driver ends after this long, in microseconds, between two messages or two steps of the replica: others
/// wait no longer for it, but for a single request or transaction that takes longer.
pub const TURN_US_MAX: u64 = 10_000;
/// Longest time before a busy driver hears what other servers have said, in microseconds.
pub const HEAR_US_MAX: u64 = 50_000;

/// Bytes of one answer up to which the driver writes it by itself.
pub const DIRECT_BYTES_MAX: usize = 16 << 10;

/// Requests that a connection hands to the driver in one message: what another client waits for beside one that
/// floods the server, 20 us of reads.
pub const REQUESTS_PER_MESSAGE_MAX: usize = 64;

/// Payload bytes after which a message is handed over even if more requests have arrived.
pub const REQUEST_BYTES_PER_MESSAGE_MAX: usize = 64 << 10;

/// Unanswered requests of one connection beyond which nothing more is read from it. A message
/// that was begun is finished, so up to [`REQUESTS_PER_MESSAGE_MAX`] more may be in flight.
pub const CONNECTION_REQUESTS_MAX: u32 = 1000;

/// Payload bytes of unanswered requests of one connection beyond which nothing more is read from it; with what one
/// message holds, up to [`REQUEST_BYTES_PER_MESSAGE_MAX`] and a request more may be in flight. The writes of all
/// clients wait for the disk in one order: what one client has in flight is how long it makes the others wait.
pub const CONNECTION_BYTES_MAX: u64 = 1 << 20;

/// How long the first answers of a connection are taken to be, bytes; later ones are expected to be
/// as long as those before them. No more requests are in flight than have answers that fill
/// [`OUTGOING_BYTES_SOFT_MAX`]: a request of 30 bytes may ask for a megabyte.
pub const ANSWER_BYTES_UNKNOWN: usize = 256 << 10;

/// Payload bytes of unanswered requests, of all connections, beyond which those that have some in
/// flight are not read from.
pub const OUTSTANDING_BYTES_MAX: u64 = 256 << 20;

/// A client that was heard from within this time is at work, and does not wait behind a reconnect storm.
pub const QUIET_MIN: Duration = Duration::from_millis(100);

/// The same, in times between two requests as is usual of those at work, if that is more: 10,000 clients
/// that have the server do all it can have an answer each 0.1 s.
pub const QUIET_USUAL_TIMES: u32 = 4;

/// But one that was silent for so long is not at work. Clients that only live are heard from
/// less often: a third of the least session timeout is 1.3 s, unless configured.
pub const QUIET_MAX: Duration = Duration::from_secs(1);

/// Bytes read from a socket at once.
pub const READ_BYTES_MAX: usize = 64 << 10;

/// Buffers given to one vectored write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Bytes that the session of TLS of a connection holds, encrypted and not written yet: four of the longest records.
pub const TLS_BUFFER_MAX: usize = 64 << 10;

/// Longest subject of a client's certificate, bytes as text: it is an identity, which every transaction carries into
/// the log.
pub const SUBJECT_BYTES_MAX: usize = 4 << 10;

/// Handshakes with a key of RSA that are computed at once, in threads beside those of the sockets: each takes about a
/// millisecond. The others wait, within their deadline.
pub const SLOW_HANDSHAKES_MAX: usize = 2;

/// Outgoing bytes queued for a connection beyond which nothing more is read from it.
pub const OUTGOING_BYTES_SOFT_MAX: usize = 1 << 20;

/// Outgoing bytes queued for a connection beyond which it is cut off, if the oldest of them have
/// been waiting for [`OUTGOING_STALL_MAX`].
pub const OUTGOING_BYTES_MAX: usize = 64 << 20;

/// How long a client may leave queued bytes untouched before [`OUTGOING_BYTES_MAX`] counts.
pub const OUTGOING_STALL_MAX: Duration = Duration::from_secs(2);

/// When the bytes that wait for all clients are more than `lockkeeper.outgoingBytesMax`, those that owe the
/// most are cut off until seven eighths of it are left: all connections are looked through once per eighth.
pub const DEBTS_KEPT_OF: u64 = 7;
/// See [`DEBTS_KEPT_OF`].
pub const DEBTS_KEPT_DIVISOR: u64 = 8;

/// Longest first frame: a ConnectRequest has 49 bytes, and what asks for no session yet holds no more.
pub const FIRST_FRAME_BYTES_MAX: usize = 1024;

/// Bytes that a connection may have received and not handed on without counting for
/// `lockkeeper.incomingBytesMax`: how many connections there are has a bound of its own.
pub const SHARE_FREE_BYTES: usize = 4 << 10;

/// How long the last bytes before a close may take to leave.
pub const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// How long, and how many bytes, a closed connection is still read from (and ignored), so that
/// the peer sees the last answer and not a reset.
pub const LINGER_MAX: Duration = Duration::from_millis(250);
/// See [`LINGER_MAX`].
pub const LINGER_BYTES_MAX: usize = 1 << 20;

/// How long the answer to a four-letter word may take.
pub const INSPECT_MAX: Duration = Duration::from_secs(5);

/// Batches of changed records that may wait for the state thread; more stay in the replica.
pub const CHANGES_QUEUE_MAX: usize = 8;

/// Records of one such batch: the driver makes it in a fraction of a millisecond, between two turns.
pub const CHANGES_RECORDS_MAX: usize = 1024;

/// Such batches that the driver makes at once while nothing else is asked of it, or if the last
/// checkpoint was complete longer ago than [`CHECKPOINT_LATE`].
pub const CHANGES_BATCHES_MAX: usize = 4;

/// A checkpoint that takes longer than this gains on the changes too slowly, or not at all.
pub const CHECKPOINT_LATE: Duration = Duration::from_secs(30);

/// So many changed records begin a checkpoint at once. Fewer of them wait for more, as long as
/// `lockkeeper.checkpointMillis` says: what is created and deleted in that time never reaches the
/// state store, and what changes often reaches it once. Only the net change is paid for, and nothing
/// waits for a checkpoint but the next image, and so the next cut of the log.
pub const CHANGES_WAITING_MAX: u64 = 64 << 10;

/// With so many, checkpoints take longer than it takes to change what they write: they are late.
pub const CHANGES_WAITING_LATE: u64 = 8 * CHANGES_WAITING_MAX;

/// How long `stop` waits for the connections to end by themselves.
pub const STOP_CONNECTIONS_MAX: Duration = Duration::from_millis(500);

/// Open files below which a server warns that it will run out of them.
pub const OPEN_FILES_MIN: u64 = 4096;

/// Client connections that a server can have at least, or it does not start: fewer are of no use.
pub const CLIENT_CONNECTIONS_MIN: u64 = 16;

/// Files that listen for clients, operators and scrapers, what has their sockets polled in two threads, and
/// what is read of the time that threads and processors had.
pub const LISTEN_FILES: u64 = 16;

/// Tasks that a thread of sockets runs before it looks again at which of its sockets are ready. Each may be a
/// connection with a thousand requests in its pipeline: by tokio's own number, 61, a client with one request waited
/// for tens of milliseconds beside another one that floods the server.
pub const EVENT_INTERVAL: u32 = 4;

/// What an I/O thread has its sockets polled with, and what is read of the time that it had.
pub const IO_THREAD_FILES: u64 = 5;

/// Files of the log at once: the segment that is written to and the next one, each opened twice (also
/// past the cache), an older one that is read, a directory that is listed or synced.
pub const LOG_FILES: u64 = 8;

/// Files of the rest of the data directory at once: its lock, sled's own (its database twice while that
/// is made anew, a snapshot, a blob, its directory), an image that is written and one that is read back,
/// each opened twice, and a directory.
pub const STORE_FILES: u64 = 14;

/// Everything else: the audit log, the dynamic file and its directory, what is read in /proc, names that
/// are looked up, a connection that was accepted and waits for the place of another one, a spare.
pub const OTHER_FILES: u64 = 14;

/// An image that is received: its connection, what ends that, the file, and the file that is read back.
pub const IMAGE_RECEIVED_FILES: u64 = 6;

/// Files for each other server: [`PEER_CONNECTIONS_PER_KIND`] connections of it of each of four kinds,
/// and one to it of three; and the file of an image that it is sent, opened twice, and what ends that.
pub const PEER_FILES: u64 = 14;

/// Connections of another server of one kind (messages, questions, images). There is one: two are there
/// while a new one takes the place of one whose end was not noticed. The oldest yields to a third.
pub const PEER_CONNECTIONS_PER_KIND: usize = 2;

/// Of the open files that are allowed, one in so many may be a connection of each HTTP port, and as many
/// again one to the port for other servers that has not proved to be of a server.
pub const SHARE_OF_STRANGERS: u64 = 16;

/// See [`SHARE_OF_STRANGERS`]: and not fewer than this.
pub const HTTP_CONNECTIONS_MIN: usize = 8;

/// See [`SHARE_OF_STRANGERS`]: and not fewer than this, because several servers may come at once.
pub const PEER_CONNECTIONS_UNKNOWN_MIN: usize = 8;

/// See [`SHARE_OF_STRANGERS`]: and not more than this. The oldest yields to a new one.
pub const PEER_CONNECTIONS_UNKNOWN_MAX: usize = 128;

/// Files that are taken to be open where the system does not say.
pub const FILES_IN_USE_UNKNOWN: u64 = 32;

/// Open files that the kernel has room for from the start, if so many are allowed: half a megabyte.
pub const OPEN_FILES_ROOM: u64 = 65_536;

/// Bytes of one batch of messages to another server up to which the driver writes it by itself.
pub const PEER_DIRECT_BYTES_MAX: usize = 64 << 10;

/// Bytes that may wait to be sent to another server; with more of them the link is cut. The log's
/// own flow control stays far below.
pub const PEER_QUEUE_BYTES_MAX: usize = 256 << 20;

/// Bytes read from another server at once.
pub const PEER_READ_BYTES_MAX: usize = 256 << 10;

/// Longest time for a connection to a port of a server that says nothing to other servers, and for its answer to
/// `srvr`: a machine that is off takes all of it.
pub const SRVR_MAX: Duration = Duration::from_secs(1);

/// Bytes that are read of that answer: ZooKeeper's has some 200.
pub const SRVR_ANSWER_BYTES_MAX: u64 = 4096;

/// How long a connection to another server may take to be made.
pub const PEER_CONNECT_MAX: Duration = Duration::from_secs(2);

/// How long another server may leave bytes unacknowledged before the link is broken.
pub const PEER_SILENCE_MAX: Duration = Duration::from_secs(3);

/// How long to wait before a server that could not be reached is tried again, at first.
pub const PEER_RETRY_MIN: Duration = Duration::from_millis(20);

/// The same, in the end.
pub const PEER_RETRY_MAX: Duration = Duration::from_secs(1);

/// A link that ends earlier counts as one that was not to be had.
pub const LINK_SETTLES: Duration = Duration::from_secs(1);

/// Longest time between two attempts to reach a server at its new address while the link to the old one
/// stands: it may never come there, if its machine was given another name in the files alone.
pub const PEER_MOVE_RETRY_MAX: Duration = Duration::from_secs(10);

/// Time between two introductions of a server that has no data yet.
pub const INTRODUCTION_INTERVAL: Duration = Duration::from_millis(100);

/// How long an image that is sent or received may make no progress.
pub const PEER_IMAGE_STALL_MAX: Duration = Duration::from_secs(20);

/// How long the receiver of an image may take to read back what it wrote.
pub const PEER_IMAGE_INSTALL_MAX: Duration = Duration::from_secs(600);

/// How long to wait before an image that could not be sent is sent again.
pub const PEER_IMAGE_RETRY: Duration = Duration::from_millis(500);

/// Longest frame of an image: a chunk of records, or one record as large as any can be.
pub const PEER_IMAGE_FRAME_BYTES_MAX: usize = 384 << 20;

/// How long `stop` waits for another server to take over the leadership.
pub const RESIGN_MAX: Duration = Duration::from_millis(500);

/// The bounds that a server was configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `jute.maxbuffer`: longest frame accepted, bytes.
    pub frame_bytes_max: usize,
    /// `maxClientCnxns`: connections from one address; 0 is no limit.
    pub connections_per_ip_max: u32,
    /// `maxCnxns`: connections in all; 0 is no limit.
    pub connections_max: u32,
    /// `nio.sessionlessCnxnTimeout`: how long a connection may take to ask for a session.
    pub sessionless_timeout: Duration,
    /// `globalOutstandingLimit`: unanswered requests beyond which connections that have some in
    /// flight are not read from.
    pub outstanding_max: u64,
    /// [`OUTGOING_BYTES_SOFT_MAX`], unless a test moves it.
    pub outgoing_bytes_soft_max: usize,
    /// [`OUTGOING_BYTES_MAX`], unless a test moves it.
    pub outgoing_bytes_max: usize,
    /// [`OUTGOING_STALL_MAX`], unless a test moves it.
    pub outgoing_stall_max: Duration,
    /// `lockkeeper.incomingBytesMax`: bytes that may have been received of all clients' unfinished requests.
    pub incoming_total_bytes_max: u64,
    /// `lockkeeper.outgoingBytesMax`: bytes that may wait for all clients together.
    pub outgoing_total_bytes_max: u64,
}

impl Limits {
    /// What `config` asks for.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self {
            frame_bytes_max: usize::try_from(config.jute_max_buffer)
                .unwrap_or(FRAME_BYTES_MAX_DEFAULT),
            connections_per_ip_max: config.max_client_cnxns,
            connections_max: config.max_cnxns,
            sessionless_timeout: Duration::from_millis(config.sessionless_timeout_ms.into()),
            outstanding_max: config.global_outstanding_limit.into(),
            outgoing_bytes_soft_max: OUTGOING_BYTES_SOFT_MAX,
            outgoing_bytes_max: OUTGOING_BYTES_MAX,
            outgoing_stall_max: OUTGOING_STALL_MAX,
            incoming_total_bytes_max: config.incoming_bytes_max,
            outgoing_total_bytes_max: config.outgoing_bytes_max,
        }
    }
}
