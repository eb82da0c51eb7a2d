//! The shell's figures: sockets, fsyncs, images.
//!
//! Owns the plain structs; the code that measures keeps atomics and hands out snapshots.

use super::quantities::Measured;

/// A snapshot of the shell's figures. Counts are since the start or the last `srst`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Wall clock at the snapshot, milliseconds since the epoch.
    pub wall_ms: i64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,

    /// Frames received from clients, handshakes and four-letter words included.
    pub packets_received: u64,
    /// Frames sent to clients, events included.
    pub packets_sent: u64,
    /// Bytes received from clients.
    pub bytes_received: u64,
    /// Bytes sent to clients.
    pub bytes_sent: u64,
    /// Sizes of replies in bytes; `None` while there was none.
    pub response_sizes: Option<ResponseSizes>,

    /// Client connections open now.
    pub connections_alive: u64,
    /// Client connections accepted.
    pub connections_accepted: u64,
    /// Client connections that ended, for whatever reason.
    pub connections_closed: u64,
    /// Handshakes (connect requests) received.
    pub connect_requests: u64,
    /// Connections refused: too many from their address.
    pub connections_rejected_per_ip: u64,
    /// Connections refused: too many in all.
    pub connections_rejected_total: u64,
    /// Connections cut: the client did not read its replies.
    pub connections_cut_slow: u64,
    /// Connections cut: a frame was malformed.
    pub connections_cut_malformed: u64,
    /// Connections closed: no handshake in time.
    pub connections_cut_sessionless: u64,
    /// Connections closed: they had asked for no session, and another one needed the place.
    pub connections_cut_yielded: u64,
    /// Connections cut: too much waited for all clients, and most of it for theirs.
    pub connections_cut_debtors: u64,
    /// Connections cut: the unfinished requests of all clients were too long, and theirs the longest.
    pub connections_cut_unfinished: u64,
    /// Connections that spoke another protocol to the client port; each was closed.
    pub other_protocols: OtherProtocols,
    /// Bytes that wait for clients to take them, now.
    pub outgoing_bytes: u64,
    /// Bytes of requests that have not arrived whole, now.
    pub incoming_bytes: u64,
    /// Connections accepted without a client certificate from another address than the server's.
    pub connections_non_mtls_remote: u64,
    /// Connections accepted without a client certificate from the server's own address.
    pub connections_non_mtls_local: u64,
    /// Handshakes of TLS with clients that came to nothing.
    pub handshakes_failed: u64,
    /// The certificates of each listener that speaks TLS.
    pub certificates: Vec<Certificates>,
    /// Whether the file with the users of SASL has changed and could not be used; `None` without one.
    pub sasl_users_outdated: Option<bool>,
    /// Requests refused for their size.
    pub large_requests_refused: u64,

    /// What the threads of the log and of the tree's copy count.
    pub disk: DiskCounters,
    /// What is measured as distributions.
    pub measured: Measured,
    /// Requests that the driver was handed.
    pub requests_taken: u64,
    /// Appends that the log's thread was handed.
    pub appends_ordered: u64,
    /// Times that this server had no leader.
    pub leader_losses: u64,
    /// Times that another server caught up with this leader without an image.
    pub caught_up_by_log: u64,
    /// Errors that have ended servers of this data, or end this one now.
    pub fatal_errors: u64,
    /// Handshakes of TLS with clients that are going on.
    pub handshakes_open: u64,

    /// Traffic with other servers; `None` without an ensemble.
    pub links: Option<LinkCounters>,
}

/// What the threads of the log and of the tree's copy count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Fsyncs of the log that took longer than the warning threshold.
    pub fsyncs_slow: u64,
    /// Images that could not be written or verified.
    pub image_errors: u64,
    /// Times that the records of the state store had another digest than the state.
    pub digest_mismatches: u64,
    /// Bytes of images and of the tree's copy on disk.
    pub data_dir_bytes: u64,
    /// Bytes of the log on disk.
    pub log_dir_bytes: u64,
    /// Bytes of log written since the newest image (without one: all there is), as of
    /// the last records that were handed to the tree's copy.
    pub log_since_image_bytes: u64,
    /// The newest verified image; `None` while there is none.
    pub last_image: Option<LastImage>,
    /// The last backup of this server that a client has taken; `None` while there is none.
    pub last_backup: Option<LastBackup>,
    /// Backups that were broken off.
    pub backup_errors: u64,
}

/// A backup that a client has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBackup {
    /// zxid of the last transaction in it.
    pub zxid: i64,
    /// Its size.
    pub bytes: u64,
    /// When it was complete, milliseconds since the epoch.
    pub wall_ms: i64,
}

/// What went between this server and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Bytes sent, images included.
    pub bytes_sent: u64,
    /// Bytes received, images included.
    pub bytes_received: u64,
    /// Links made to other servers.
    pub made: u64,
    /// Attempts at links to other servers that came to none.
    pub failed: u64,
    /// Links ended because of what came: a frame was damaged or malformed.
    pub frames_refused: u64,
    /// Links ended because a server did not take what it was sent.
    pub overfull: u64,
    /// Links refused to servers that are no members.
    pub strangers: u64,
    /// Connections closed that had not proved to be of a server, because there were too many.
    pub yielded: u64,
    /// Images that others have taken.
    pub images_sent: u64,
    /// Images received and verified.
    pub images_received: u64,
    /// Images that could not be sent or received.
    pub images_failed: u64,
}

/// Connections to the client port, by the protocol that they spoke instead of ZooKeeper's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherProtocols {
    /// TLS.
    pub tls: u64,
    /// HTTP.
    pub http: u64,
    /// The PROXY protocol of load balancers.
    pub proxy: u64,
}

/// Sizes of replies in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ResponseSizes {
    pub last: u64,
    pub min: u64,
    pub max: u64,
}

/// A verified image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastImage {
    /// Log index that it contains.
    pub index: u64,
    /// Zxid that it contains.
    pub zxid: i64,
    /// When it was finished, milliseconds since the epoch.
    pub wall_ms: i64,
}

/// What is to be known of the certificates of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// Whom the listener is for.
    pub listener: &'static str,
    /// When the first of them is not valid any more, seconds since 1970.
    pub expires_s: i64,
    /// Whether the files have changed since, and could not be used.
    pub is_outdated: bool,
}
