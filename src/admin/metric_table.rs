//! The table of metrics.
//!
//! *Owns* every metric's name, kind, meaning and where its value comes from: once. *Invariants*:
//! ZooKeeper's names mean what they mean there; a name that is not ZooKeeper's begins with
//! `lockkeeper_`; a row whose figure is not measured yields nothing.

use super::ensemble::takes_part;
use super::lock_figures::LockFigures;
use super::metrics::{Kind, Metric, Reading, Value};
use super::words::{overall_latency, rounded};
use super::{Certificates, OtherProtocols, Tally};
use crate::replica::Status;
use crate::replica::inspect::{Mode, PeerStatus, ProposalSizes};

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Counter, help, read }
}

const fn summary(
    name: &'static str,
    help: &'static str,
    read: fn(&Reading) -> Option<Value>,
) -> Metric {
    Metric { name, kind: Kind::Summary, help, read }
}

/// A number that only a leader has.
fn led(reading: &Reading, value: fn(&Status) -> u64) -> Option<Value> {
    (reading.status.mode == Mode::Leader).then(|| value(&reading.status).into())
}

/// The number of other servers that are so, on a leader.
fn peers(reading: &Reading, are: fn(&PeerStatus) -> bool) -> Option<Value> {
    let count = reading.status.peers.iter().filter(|peer| are(peer)).count();
    (reading.status.mode == Mode::Leader).then(|| (count as u64).into())
}

/// A number that a server without an ensemble does not have.
fn of_member(reading: &Reading, value: fn(&Status) -> u64) -> Option<Value> {
    (reading.status.mode != Mode::Standalone).then(|| value(&reading.status).into())
}

/// The size of a proposal, once a leader has made one.
fn proposal_size(reading: &Reading, which: fn(&ProposalSizes) -> u64) -> Option<Value> {
    let sizes = reading.status.proposal_sizes.as_ref();
    sizes.filter(|_| reading.status.mode == Mode::Leader).map(|sizes| which(sizes).into())
}

/// One number of each listener that speaks TLS; `None` without one.
fn of_certificates(r: &Reading, number: fn(&Certificates) -> u64) -> Option<Value> {
    let known = r.counters.certificates.iter().map(|known| (known.listener, number(known)));
    let known: Vec<_> = known.collect();
    (!known.is_empty()).then_some(Value::Set(known))
}

/// A figure of locks, on the server that has them.
fn of_locks(reading: &Reading, value: fn(&LockFigures) -> Value) -> Option<Value> {
    reading.locks.as_ref().map(value)
}

/// A whole number that is always measured.
fn whole(value: u64) -> Option<Value> {
    Some(value.into())
}

/// Every metric, ZooKeeper's first.
pub const METRICS: &[Metric] = &[
    gauge("avg_latency", "Mean milliseconds from a request's arrival to its answer", |r| {
        Some(Value::Real(rounded(overall_latency(&r.status).mean_ms())))
    }),
    gauge("min_latency", "Shortest milliseconds from a request's arrival to its answer", |r| {
        whole(overall_latency(&r.status).min_us / 1000)
    }),
    gauge("max_latency", "Longest milliseconds from a request's arrival to its answer", |r| {
        whole(overall_latency(&r.status).max_us / 1000)
    }),
    gauge("packets_received", "Frames received from clients", |r| {
        whole(r.counters.packets_received)
    }),
    gauge("packets_sent", "Frames sent to clients, events included", |r| {
        whole(r.counters.packets_sent)
    }),
    gauge("num_alive_connections", "Client connections open", |r| {
        whole(r.counters.connections_alive)
    }),
    gauge("outstanding_requests", "Requests received and not answered yet", |r| {
        whole(r.status.outstanding)
    }),
    gauge("uptime", "Milliseconds since the start", |r| whole(r.counters.uptime_ms)),
    gauge("znode_count", "Znodes, counted as ZooKeeper does (the root twice)", |r| {
        whole(r.status.znode_count)
    }),
    gauge("watch_count", "Watches registered on this server", |r| whole(r.status.watch_count)),
    gauge("ephemerals_count", "Ephemeral znodes", |r| whole(r.status.ephemerals_count)),
    gauge("approximate_data_size", "Bytes of all paths and data", |r| {
        whole(r.status.approximate_data_size)
    }),
    gauge("global_sessions", "Open sessions of the whole ensemble", |r| whole(r.status.sessions)),
    gauge("local_sessions", "Sessions of read-only mode, which only this server knows", |r| {
        of_member(r, |status| status.local_sessions)
    }),
    gauge("open_file_descriptor_count", "File descriptors open in this process", |r| {
        r.descriptors.open.map(Value::from)
    }),
    gauge("max_file_descriptor_count", "File descriptors this process may open", |r| {
        r.descriptors.max.map(Value::from)
    }),
    gauge("last_client_response_size", "Bytes of the last reply", |r| {
        r.counters.response_sizes.map(|sizes| sizes.last.into())
    }),
    gauge("max_client_response_size", "Bytes of the largest reply", |r| {
        r.counters.response_sizes.map(|sizes| sizes.max.into())
    }),
    gauge("min_client_response_size", "Bytes of the smallest reply", |r| {
        r.counters.response_sizes.map(|sizes| sizes.min.into())
    }),
    gauge("auth_failed_count", "Auth packets that were refused", |r| whole(r.status.auth_failed)),
    gauge(
        "non_mtls_remote_conn_count",
        "Connections accepted without a client certificate from other hosts",
        |r| whole(r.counters.connections_non_mtls_remote),
    ),
    gauge(
        "non_mtls_local_conn_count",
        "Connections accepted without a client certificate from the server's own address",
        |r| whole(r.counters.connections_non_mtls_local),
    ),
    gauge("quorum_size", "Participants of the ensemble", |r| {
        takes_part(r.status.mode).then(|| {
            let own = u64::from(r.status.mode != Mode::Observer);
            let others = r.status.peers.iter().filter(|peer| !peer.is_observer).count();
            (own + others as u64).into()
        })
    }),
    gauge("learners", "Other servers that are connected (leader only)", |r| {
        peers(r, |peer| peer.is_connected)
    }),
    gauge("synced_followers", "Other participants that keep up (leader only)", |r| {
        peers(r, |peer| peer.votes && peer.is_synced)
    }),
    gauge(
        "synced_non_voting_followers",
        "Participants that keep up and have no vote yet (leader only)",
        |r| peers(r, |peer| !peer.votes && !peer.is_observer && peer.is_synced),
    ),
    gauge("synced_observers", "Observers that keep up (leader only)", |r| {
        peers(r, |peer| peer.is_observer && peer.is_synced)
    }),
    gauge(
        "pending_syncs",
        "Requests `sync` and linearizable reads that wait for a majority (leader only)",
        |r| led(r, |status| status.pending_syncs),
    ),
    gauge("leader_uptime", "Milliseconds since this server became the leader (leader only)", |r| {
        r.status.leading_ms.map(Value::from)
    }),
    gauge("last_proposal_size", "Bytes of the last proposed entry (leader only)", |r| {
        proposal_size(r, |sizes| sizes.last)
    }),
    gauge("max_proposal_size", "Bytes of the largest proposed entry (leader only)", |r| {
        proposal_size(r, |sizes| sizes.max)
    }),
    gauge("min_proposal_size", "Bytes of the smallest proposed entry (leader only)", |r| {
        proposal_size(r, |sizes| sizes.min)
    }),
    counter("commit_count", "Transactions applied", |r| whole(r.status.txns_applied)),
    counter("proposal_count", "Entries proposed by this server", |r| whole(r.status.proposals)),
    counter("connection_request_count", "Handshakes received", |r| {
        whole(r.counters.connect_requests)
    }),
    counter("connection_rejected", "Connections refused for their number", |r| {
        whole(r.counters.connections_rejected_per_ip + r.counters.connections_rejected_total)
    }),
    counter("connection_drop_count", "Client connections that ended, for any reason", |r| {
        whole(r.counters.connections_closed)
    }),
    counter("stale_sessions_expired", "Sessions expired by this server", |r| {
        whole(r.status.sessions_expired)
    }),
    counter("sessionless_connections_expired", "Connections closed without a handshake", |r| {
        whole(r.counters.connections_cut_sessionless)
    }),
    counter("bytes_received_count", "Bytes received from clients", |r| {
        whole(r.counters.bytes_received)
    }),
    counter("response_bytes", "Bytes sent to clients, without those of events", |r| {
        whole(r.counters.bytes_sent.saturating_sub(r.status.watch_bytes))
    }),
    counter("watch_bytes", "Bytes of events sent to clients", |r| whole(r.status.watch_bytes)),
    counter("large_requests_rejected", "Requests refused for their size", |r| {
        whole(r.counters.large_requests_refused)
    }),
    counter("snapshot_error_count", "Images that could not be written or verified", |r| {
        whole(r.counters.disk.image_errors)
    }),
    summary("fsynctime", "Milliseconds of each fsync of the log", |r| {
        Some(r.counters.disk.fsync.into())
    }),
    summary("snapshottime", "Milliseconds to write and verify each image", |r| {
        Some(r.counters.disk.image.into())
    }),
    summary("dbinittime", "Milliseconds from the start to serving", |r| {
        let ms = r.recovery_ms?;
        Some(Tally { count: 1, sum: ms, min: ms, max: ms }.into())
    }),
    summary("readlatency", "Milliseconds from a read's arrival to its answer", |r| {
        Some(r.status.read_latency.into())
    }),
    summary("updatelatency", "Milliseconds from a write's arrival to its answer", |r| {
        Some(r.status.write_latency.into())
    }),
    summary("sync_processor_batch_size", "Entries appended to the log with one fsync", |r| {
        Some(r.counters.disk.log_batch.into())
    }),
    gauge("lockkeeper_serving", "1 while requests are answered, else 0", |r| {
        whole(u64::from(r.status.serving))
    }),
    gauge("lockkeeper_zxid", "Last applied zxid", |r| Some(Value::Whole(r.status.zxid))),
    gauge("lockkeeper_raft_term", "Raft term", |r| whole(r.status.term)),
    gauge("lockkeeper_leader", "Server id of the leader; absent while there is none", |r| {
        r.status.leader.map(|leader| u64::from(leader).into())
    }),
    gauge("lockkeeper_peers_connected", "Other servers to which there is a link", |r| {
        of_member(r, |status| status.peers.iter().filter(|peer| peer.is_connected).count() as u64)
    }),
    counter("lockkeeper_elections", "Elections that this server stood in or voted in", |r| {
        of_member(r, |status| status.election_count)
    }),
    counter("lockkeeper_leader_changes", "Times this server learned of another leader", |r| {
        of_member(r, |status| status.leader_changes)
    }),
    counter(
        "lockkeeper_peer_messages_dropped",
        "Messages of other servers that were dropped: their content is impossible, or their term is too far above",
        |r| of_member(r, |status| status.peer_messages_dropped),
    ),
    counter("lockkeeper_requests_forwarded", "Requests handed on to the leader", |r| {
        of_member(r, |status| status.forwarded)
    }),
    gauge("lockkeeper_applied_index", "Last log index applied", |r| whole(r.status.applied)),
    gauge("lockkeeper_persisted_index", "Last log index on this server's disk", |r| {
        whole(r.status.persisted)
    }),
    gauge(
        "lockkeeper_disk_waits_ms",
        "Milliseconds for which the log's disk has completed none of the pending work",
        |r| whole(r.status.disk_waits_ms),
    ),
    counter(
        "lockkeeper_disk_handovers",
        "Times this server handed its leadership over because its disk hung",
        |r| of_member(r, |status| status.disk_handovers),
    ),
    gauge(
        "lockkeeper_clock_skew_ms",
        "Milliseconds by which the clock of another server is ahead of this one's: the greatest, negative if \
         it is behind (leader only)",
        |r| {
            let skews = r.status.peers.iter().filter_map(|peer| peer.clock_skew_ms);
            skews.max_by_key(|skew| skew.unsigned_abs()).map(Value::Whole)
        },
    ),
    gauge(
        "lockkeeper_stamps_ahead_ms",
        "Milliseconds by which ctime and mtime of the last write are ahead of this server's clock (leader \
         only)",
        |r| whole(r.status.stamps_ahead_ms),
    ),
    counter(
        "lockkeeper_time_returns",
        "Times ctime and mtime went back, because a leader's clock had been more than a minute ahead",
        |r| whole(r.status.time_returns),
    ),
    gauge("lockkeeper_changes_waiting", "Changed records not yet handed to the state store", |r| {
        whole(r.status.changes_waiting)
    }),
    gauge("lockkeeper_sessions_connected", "Connections with a session", |r| {
        whole(r.status.connections)
    }),
    gauge("lockkeeper_log_bytes", "Bytes of the log on disk", |r| {
        whole(r.counters.disk.log_dir_bytes)
    }),
    gauge(
        "lockkeeper_log_since_image_bytes",
        "Bytes of log written since the newest image: while it grows without end, no checkpoint \
         completes",
        |r| whole(r.counters.disk.log_since_image_bytes),
    ),
    gauge("lockkeeper_image_bytes", "Bytes of images and the state store on disk", |r| {
        whole(r.counters.disk.data_dir_bytes)
    }),
    gauge("lockkeeper_last_image_index", "Log index of the newest verified image", |r| {
        r.counters.disk.last_image.map(|image| image.index.into())
    }),
    gauge("lockkeeper_last_image_zxid", "Zxid of the newest verified image", |r| {
        r.counters.disk.last_image.map(|image| Value::Whole(image.zxid))
    }),
    gauge(
        "lockkeeper_last_image_timestamp_seconds",
        "When the newest verified image was finished, seconds since the epoch",
        |r| r.counters.disk.last_image.map(|image| Value::Real(image.wall_ms as f64 / 1000.0)),
    ),
    counter("lockkeeper_connections_accepted", "Client connections accepted", |r| {
        whole(r.counters.connections_accepted)
    }),
    counter("lockkeeper_connections_rejected", "Connections refused, by limit", |r| {
        Some(Value::Set(vec![
            ("per_ip", r.counters.connections_rejected_per_ip),
            ("total", r.counters.connections_rejected_total),
        ]))
    }),
    counter("lockkeeper_connections_cut", "Connections ended by the server, by reason", |r| {
        Some(Value::Set(vec![
            ("slow", r.counters.connections_cut_slow),
            ("malformed", r.counters.connections_cut_malformed),
            ("sessionless", r.counters.connections_cut_sessionless),
            ("yielded", r.counters.connections_cut_yielded),
            ("debtors", r.counters.connections_cut_debtors),
            ("unfinished", r.counters.connections_cut_unfinished),
        ]))
    }),
    counter("unsuccessful_handshake", "Handshakes of TLS with clients that came to nothing", |r| {
        whole(r.counters.handshakes_failed)
    }),
    gauge(
        "lockkeeper_certificate_expiry_seconds",
        "When the first certificate that is shown is not valid any more, seconds since 1970, by whom it is for",
        |r| of_certificates(r, |known| known.expires_s.cast_unsigned()),
    ),
    gauge(
        "lockkeeper_certificate_outdated",
        "Whether the files of keys and certificates have changed and could not be used: 1 or 0, by whom they are for",
        |r| of_certificates(r, |known| u64::from(known.is_outdated)),
    ),
    gauge(
        "lockkeeper_sasl_users_outdated",
        "Whether the file with the users of SASL has changed and could not be used: 1 or 0",
        |r| r.counters.sasl_users_outdated.map(|is_outdated| u64::from(is_outdated).into()),
    ),
    counter(
        "lockkeeper_other_protocols",
        "Connections that spoke TLS, HTTP or the PROXY protocol to the client port",
        |r| {
            let OtherProtocols { tls, http, proxy } = r.counters.other_protocols;
            Some(Value::Set(vec![("tls", tls), ("http", http), ("proxy", proxy)]))
        },
    ),
    gauge("lockkeeper_outgoing_bytes", "Bytes that wait for clients to take them", |r| {
        whole(r.counters.outgoing_bytes)
    }),
    gauge("lockkeeper_incoming_bytes", "Bytes of requests that have not arrived whole", |r| {
        whole(r.counters.incoming_bytes)
    }),
    counter(
        "lockkeeper_link_bytes",
        "Bytes between this server and others, images included",
        |r| {
            r.counters
                .links
                .map(|l| Value::Set(vec![("sent", l.bytes_sent), ("received", l.bytes_received)]))
        },
    ),
    counter("lockkeeper_links_made", "Links made to other servers", |r| {
        r.counters.links.and_then(|links| whole(links.made))
    }),
    counter(
        "lockkeeper_links_failed",
        "Attempts at links to other servers that came to none",
        |r| r.counters.links.and_then(|links| whole(links.failed)),
    ),
    counter("lockkeeper_links_cut", "Links with other servers ended by this one, by reason", |r| {
        let links = r.counters.links?;
        Some(Value::Set(vec![
            ("frame", links.frames_refused),
            ("overfull", links.overfull),
            ("stranger", links.strangers),
            ("yielded", links.yielded),
        ]))
    }),
    counter("lockkeeper_images_moved", "Images sent to and received from other servers", |r| {
        let links = r.counters.links?;
        Some(Value::Set(vec![
            ("sent", links.images_sent),
            ("received", links.images_received),
            ("failed", links.images_failed),
        ]))
    }),
    counter("lockkeeper_handshakes_refused", "Handshakes refused by the replica", |r| {
        whole(r.status.connections_refused)
    }),
    counter("lockkeeper_events_fired", "Watch events fired, by type", |r| {
        let [created, deleted, changed, children] = r.status.events_fired;
        Some(Value::Set(vec![
            ("created", created),
            ("deleted", deleted),
            ("changed", changed),
            ("children", children),
        ]))
    }),
    counter("lockkeeper_bytes_sent", "Bytes sent to clients, events included", |r| {
        whole(r.counters.bytes_sent)
    }),
    counter("lockkeeper_fsyncs_slow", "Fsyncs of the log above the warning threshold", |r| {
        whole(r.counters.disk.fsyncs_slow)
    }),
    summary(
        "lockkeeper_checkpoint_time",
        "Milliseconds of each checkpoint of the state store",
        |r| Some(r.counters.disk.checkpoint.into()),
    ),
    gauge("lockkeeper_locks", "Locks with a contender, by kind", |r| {
        of_locks(r, |locks| Value::Set(locks.kinds.clone()))
    }),
    gauge("lockkeeper_lock_holders", "Contenders that hold a lock", |r| {
        of_locks(r, |locks| locks.holders.into())
    }),
    gauge("lockkeeper_lock_waiters", "Contenders that wait for a lock", |r| {
        of_locks(r, |locks| locks.waiters.into())
    }),
    gauge("lockkeeper_lock_longest_wait", "Milliseconds that the oldest waiter has waited", |r| {
        of_locks(r, |locks| locks.longest_wait_ms.into())
    }),
    gauge(
        "lockkeeper_lock_longest_hold",
        "Milliseconds that a lock has been held for longest, of those whose beginning is known",
        |r| of_locks(r, |locks| locks.longest_hold_ms.into()),
    ),
    gauge("lockkeeper_lock_findings", "What is wrong with locks, by kind of finding", |r| {
        of_locks(r, |locks| Value::Set(locks.findings.clone()))
    }),
    gauge(
        "lockkeeper_lock_counter_max_ratio",
        "Part of its numbers that the directory of contenders with the most has used up, 0 to 1",
        |r| of_locks(r, |locks| Value::Real(locks.counter_ratio_max)),
    ),
    gauge("lockkeeper_locks_cut", "1 if there are more locks than were looked at, else 0", |r| {
        of_locks(r, |locks| u64::from(locks.is_cut).into())
    }),
];
