//! ZooKeeper's metrics of what happens to a request on its way, and of servers that follow each other.
//!
//! ZooKeeper has a chain of processors: one prepares, one syncs, one commits, one answers. Here the driver's turn does
//! what the first and the last two do, so several of their names are one measurement. A name that measures nothing
//! here is in [`super::super::absent`].

use super::super::Quantity;
use super::super::metric::Metric;
use super::kinds::{counter, gauge, member, of_member, set, summary, whole};

pub(super) const METRICS: &[Metric] = &[
    counter("prep_processor_request_queued", "Requests of clients that the driver took", |r| {
        whole(r.counters.requests_taken)
    }),
    summary("prep_processor_queue_size", "Messages that the driver found, in each turn", |r| {
        r.plain(Quantity::DriverQueue)
    }),
    summary(
        "prep_processor_queue_time_ms",
        "Milliseconds from the read of a request until the driver takes it",
        |r| r.ms(Quantity::DriverQueueTime),
    ),
    summary(
        "prep_process_time",
        "Milliseconds that the requests of a turn of the driver take",
        |r| r.ms(Quantity::TurnOfRequests),
    ),
    summary(
        "close_session_prep_time",
        "Milliseconds that the driver takes for requests the last of which closes its session",
        |r| r.ms(Quantity::CloseSession),
    ),
    counter("outstanding_changes_queued", "Entries proposed by this server", |r| {
        whole(r.status.proposals)
    }),
    counter(
        "outstanding_changes_removed",
        "Entries proposed by this server that are applied, or were given up",
        |r| whole(r.status.proposals.saturating_sub(r.status.proposals_unapplied)),
    ),
    counter("sync_processor_request_queued", "Appends that the log's thread was given", |r| {
        whole(r.counters.appends_ordered)
    }),
    summary("sync_processor_queue_size", "Appends that the log's thread found, each time", |r| {
        r.plain(Quantity::LogQueue)
    }),
    summary(
        "sync_processor_queue_time_ms",
        "Milliseconds from the order of an append until the log's thread begins it",
        |r| r.ms(Quantity::LogQueueTime),
    ),
    summary(
        "sync_processor_queue_flush_time_ms",
        "Milliseconds of each fsync of the log, as fsynctime",
        |r| r.ms(Quantity::Fsync),
    ),
    summary(
        "sync_processor_queue_and_flush_time_ms",
        "Milliseconds from the order of an append until it is durable",
        |r| r.ms(Quantity::LogQueueAndFlush),
    ),
    summary(
        "sync_process_time",
        "Milliseconds that the log's thread takes for what it found, with or without an fsync",
        |r| r.ms(Quantity::LogWrite),
    ),
    counter("request_commit_queued", "Transactions committed", |r| whole(r.status.txns_applied)),
    summary(
        "commit_process_time",
        "Milliseconds that a turn of the driver takes behind its requests: consensus, applying, answers",
        |r| r.ms(Quantity::TurnOfCommits),
    ),
    summary(
        "write_batch_time_in_commit_processor",
        "The same of turns in which transactions were applied",
        |r| r.ms(Quantity::TurnOfWrites),
    ),
    summary("read_commit_proc_req_queued", "Reads answered in a turn of the driver", |r| {
        r.plain(Quantity::ReadsPerTurn)
    }),
    summary("read_commit_proc_issued", "Reads answered in a turn of the driver", |r| {
        r.plain(Quantity::ReadsPerTurn)
    }),
    summary(
        "write_commit_proc_req_queued",
        "Requests that wait for a transaction at the end of a turn of the driver",
        |r| r.plain(Quantity::Waiting),
    ),
    summary("commit_commit_proc_req_queued", "Transactions applied in a turn of the driver", |r| {
        r.plain(Quantity::CommitsPerTurn)
    }),
    summary("write_commit_proc_issued", "Transactions applied in a turn of the driver", |r| {
        r.plain(Quantity::CommitsPerTurn)
    }),
    summary(
        "read_commitproc_time_ms",
        "Milliseconds from the arrival of a read until its turn in the order of its connection",
        |r| r.ms(Quantity::ReadWait),
    ),
    summary(
        "write_commitproc_time_ms",
        "Milliseconds from the arrival of a write until the turn that applied it",
        |r| r.ms(Quantity::WriteWait),
    ),
    summary(
        "read_final_proc_time_ms",
        "Milliseconds for one read: its part of the turn that answered it",
        |r| r.ms(Quantity::ReadPart),
    ),
    summary(
        "write_final_proc_time_ms",
        "Milliseconds for one transaction: its part of the turn that applied it",
        |r| r.ms(Quantity::WritePart),
    ),
    summary(
        "local_write_committed_time_ms",
        "Milliseconds from the commit of a write until its answer is handed to the connection",
        |r| r.ms(Quantity::OwnCommitted),
    ),
    summary(
        "server_write_committed_time_ms",
        "Milliseconds from the commit of a write of another server's client until it is applied",
        |r| r.ms(Quantity::OthersCommitted),
    ),
    summary(
        "requests_in_session_queue",
        "Requests of a connection that wait, when another one begins to, with that one",
        |r| r.plain(Quantity::RequestsInQueue),
    ),
    summary(
        "pending_session_queue_size",
        "Connections with requests that wait, whenever a write of one is applied",
        |r| r.plain(Quantity::QueuesWaiting),
    ),
    summary(
        "reads_after_write_in_session_queue",
        "Reads answered because the write in front of them was applied",
        |r| r.plain(Quantity::ReadsAfterWrite),
    ),
    summary(
        "reads_issued_from_session_queue",
        "Reads answered because the write in front of them was applied",
        |r| r.plain(Quantity::ReadsAfterWrite),
    ),
    summary(
        "session_queues_drained",
        "Connections in a turn of the driver whose requests waited behind a write that was applied",
        |r| r.plain(Quantity::QueuesDrained),
    ),
    summary(
        "quorum_ack_latency",
        "Milliseconds from a proposal until a majority has it durably (leader only)",
        |r| member(r).and_then(|()| r.ms(Quantity::QuorumAck)),
    ),
    set(
        "ack_latency",
        "Milliseconds from a proposal until that server acknowledged it, by server id (leader only)",
        |r| r.by_server(|m| &m.acks, 1000.0),
    ),
    summary(
        "proposal_ack_creation_latency",
        "Milliseconds from when an entry came until it was durable here",
        |r| r.ms(Quantity::OwnAck),
    ),
    summary(
        "proposal_latency",
        "Milliseconds from the leader's stamp of an entry until it came here, by two clocks (not the leader)",
        |r| member(r).and_then(|()| r.ms(Quantity::Proposal)),
    ),
    summary(
        "commit_propagation_latency",
        "Milliseconds from when an entry came until its commit was known (not the leader)",
        |r| member(r).and_then(|()| r.ms(Quantity::CommitPropagation)),
    ),
    summary(
        "propagation_latency",
        "Milliseconds from the leader's stamp of a transaction until it is applied here, by two clocks",
        |r| r.ms(Quantity::Propagation),
    ),
    set(
        "learner_handler_qp_size",
        "Bytes that wait to be sent to that server, with what is put behind them, by server id",
        |r| r.by_server(|m| &m.peer_queues, 1.0),
    ),
    counter("learner_proposal_received_count", "Entries taken from a leader", |r| {
        of_member(r, |status| status.entries_received)
    }),
    counter(
        "learner_commit_received_count",
        "Entries that became committed while another server led",
        |r| of_member(r, |status| status.commits_received),
    ),
    summary(
        "election_time",
        "Milliseconds from the loss of a leader, or the start, until the next one was known",
        |r| member(r).and_then(|()| r.ms(Quantity::Election)),
    ),
    counter("looking_count", "Times that this server had no leader any more, and its start", |r| {
        member(r).and_then(|()| whole(r.counters.leader_losses))
    }),
    summary(
        "unavailable_time",
        "Milliseconds for which clients were not served, once they are",
        |r| r.ms(Quantity::Unavailable),
    ),
    summary(
        "leader_unavailable_time",
        "Milliseconds without a leader, until this server led and served",
        |r| member(r).and_then(|()| r.ms(Quantity::LeaderUnavailable)),
    ),
    summary(
        "follower_sync_time",
        "Milliseconds from the link with a participant until it kept up with this leader",
        |r| member(r).and_then(|()| r.ms(Quantity::FollowerSync)),
    ),
    summary(
        "observer_sync_time",
        "Milliseconds from the link with an observer until it kept up with this leader",
        |r| member(r).and_then(|()| r.ms(Quantity::ObserverSync)),
    ),
    counter("diff_count", "Times that another server caught up with this leader by the log", |r| {
        member(r).and_then(|()| whole(r.counters.caught_up_by_log))
    }),
    counter("snap_count", "Images that other servers have taken from this one", |r| {
        r.counters.links.and_then(|links| whole(links.images_sent))
    }),
    counter(
        "revalidate_count",
        "Sessions that were given to a connection while this server led",
        |r| whole(r.status.revalidations_led),
    ),
    counter(
        "connection_revalidate_count",
        "Clients that came with a session to this server",
        |r| whole(r.status.sessions_revalidated),
    ),
    summary("startup_snap_load_time", "Milliseconds to read the image at the start", |r| {
        r.ms(Quantity::StartImage)
    }),
    summary(
        "startup_txns_loaded",
        "Entries of the log that were applied at the start, behind the image",
        |r| r.plain(Quantity::StartEntries),
    ),
    summary("startup_txns_load_time", "Milliseconds to read and apply those", |r| {
        r.ms(Quantity::StartEntriesTime)
    }),
    summary("node_created_watch_count", "Watches fired by one change that created a znode", |r| {
        r.plain(Quantity::WatchersOfCreated)
    }),
    summary("node_deleted_watch_count", "Watches fired by one change that deleted a znode", |r| {
        r.plain(Quantity::WatchersOfDeleted)
    }),
    summary("node_changed_watch_count", "Watches fired by one change of data", |r| {
        r.plain(Quantity::WatchersOfChanged)
    }),
    summary("node_children_watch_count", "Watches fired by one change of children", |r| {
        r.plain(Quantity::WatchersOfChildren)
    }),
    set(
        "read_per_namespace",
        "Bytes of an answer to a read of this server's clients, by znode of the root (only in /metrics)",
        |r| r.by_namespace(|known| known.reads),
    ),
    set(
        "write_per_namespace",
        "Bytes of a transaction of a client that was applied, by znode of the root (only in /metrics)",
        |r| r.by_namespace(|known| known.writes),
    ),
    counter(
        "digest_mismatches_count",
        "Times that the records on the disk had another digest than the state",
        |r| whole(r.counters.disk.digest_mismatches),
    ),
    counter(
        "unrecoverable_error_count",
        "Errors that have ended this server, those before its last start included",
        |r| whole(r.counters.fatal_errors),
    ),
    gauge("outstanding_tls_handshake", "Handshakes of TLS with clients that are going on", |r| {
        whole(r.counters.handshakes_open)
    }),
];
