//! ZooKeeper's metrics of a server as a whole.

use super::super::Quantity;
use super::super::metric::{Metric, Value};
use super::super::words::{mean_ms, rounded};
use super::kinds::{counter, gauge, led, of_member, peers, proposal_size, summary, whole};

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "avg_latency",
        "Mean milliseconds from the read of a request to the write of its answer",
        |r| Some(Value::Real(rounded(mean_ms(&r.counters.measured.requests())))),
    ),
    gauge(
        "min_latency",
        "Shortest milliseconds from the read of a request to the write of its answer",
        |r| whole(r.counters.measured.requests().min() / 1000),
    ),
    gauge(
        "max_latency",
        "Longest milliseconds from the read of a request to the write of its answer",
        |r| whole(r.counters.measured.requests().max() / 1000),
    ),
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
        // A server without a leader knows it, too: that a majority is missing shows in this.
        (r.status.participants > 0).then(|| r.status.participants.into())
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
    summary("fsynctime", "Milliseconds of each fsync of the log", |r| r.ms(Quantity::Fsync)),
    summary("snapshottime", "Milliseconds to write and verify each image", |r| {
        r.ms(Quantity::Image)
    }),
    summary(
        "dbinittime",
        "Milliseconds to read the data at the start, by a server that has some",
        |r| r.ms(Quantity::StartLoad),
    ),
    summary(
        "readlatency",
        "Milliseconds from the read of a read request's bytes to the write of its answer's",
        |r| r.ms(Quantity::Read),
    ),
    summary(
        "updatelatency",
        "Milliseconds from the read of a write request's bytes to the write of its answer's",
        |r| r.ms(Quantity::Write),
    ),
    summary("sync_processor_batch_size", "Entries appended to the log with one fsync", |r| {
        r.plain(Quantity::LogBatch)
    }),
    counter("unsuccessful_handshake", "Handshakes of TLS with clients that came to nothing", |r| {
        whole(r.counters.handshakes_failed)
    }),
];
