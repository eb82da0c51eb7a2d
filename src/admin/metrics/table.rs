//! The table of metrics.
//!
//! *Owns* every metric's name, kind, meaning and where its value comes from: once. *Invariants*:
//! ZooKeeper's names mean what they mean there; a name that is not ZooKeeper's begins with
//! `lockkeeper_`; a row whose figure is not measured yields nothing. *Never* holds a value: other files make types of
//! the rows.
//!
//! A row is a kind, a name, a help text of one sentence without a full stop, perhaps a condition (`if member`), and one
//! of these sources:
//!
//! * `count x` makes the counter `x` and shows it; `counts { "key" x, ... }` makes one for each label `key`;
//! * `link x` and `links { "key" x, ... }` do the same for traffic with other servers;
//! * `measured X as unit` makes the quantity `X` and shows its distribution by a method of `Reading`;
//! * `replica X as unit` does so for what the replica measures as `Measure::X`;
//! * `|r| value` shows another figure of a `Reading`.
//!
//! ZooKeeper has a chain of processors for requests: one prepares, one syncs, one commits, one answers. Here the
//! driver's turn does what the first and the last two do, so several of their names are one measurement. A name that
//! measures nothing here is in `document.rs`.

macro_rules! table {
    ($into:ident) => { $into! {

// ZooKeeper's metrics of a server as a whole.

Gauge "avg_latency" "Mean milliseconds from the read of a request to the write of its answer"
    |r| r.counters.measured.requests().mean_ms();
Gauge "min_latency" "Shortest milliseconds from the read of a request to the write of its answer"
    |r| r.counters.measured.requests().min() / 1000;
Gauge "max_latency" "Longest milliseconds from the read of a request to the write of its answer"
    |r| r.counters.measured.requests().max() / 1000;
// Handshakes and four-letter words included.
Gauge "packets_received" "Frames received from clients" count packets_received;
Gauge "packets_sent" "Frames sent to clients, events included" count packets_sent;
Gauge "num_alive_connections" "Client connections open" |r| r.counters.connections_alive;
Gauge "outstanding_requests" "Requests received and not answered yet" |r| r.status.outstanding;
Gauge "uptime" "Milliseconds since the start" |r| r.counters.uptime_ms;
Gauge "znode_count" "Znodes, counted as ZooKeeper does (the root twice)" |r| r.status.znode_count;
Gauge "watch_count" "Watches registered on this server" |r| r.status.watch_count;
Gauge "ephemerals_count" "Ephemeral znodes" |r| r.status.ephemerals_count;
Gauge "approximate_data_size" "Bytes of all paths and data" |r| r.status.approximate_data_size;
Gauge "global_sessions" "Open sessions of the whole ensemble" |r| r.status.sessions;
Gauge "local_sessions" "Sessions of read-only mode, which only this server knows" if member
    |r| r.status.local_sessions;
Gauge "open_file_descriptor_count" "File descriptors open in this process" |r| r.descriptors.open;
Gauge "max_file_descriptor_count" "File descriptors this process may open" |r| r.descriptors.max;
Gauge "last_client_response_size" "Bytes of the last reply" |r| r.counters.response_sizes.map(|sizes| sizes.last);
Gauge "max_client_response_size" "Bytes of the largest reply" |r| r.counters.response_sizes.map(|sizes| sizes.max);
Gauge "min_client_response_size" "Bytes of the smallest reply" |r| r.counters.response_sizes.map(|sizes| sizes.min);
Gauge "auth_failed_count" "Auth packets that were refused" |r| r.status.auth_failed;
Gauge "non_mtls_remote_conn_count" "Connections accepted without a client certificate from other hosts"
    count connections_non_mtls_remote;
Gauge "non_mtls_local_conn_count" "Connections accepted without a client certificate from the server's own address"
    count connections_non_mtls_local;
// A server without a leader knows it, too: that a majority is missing shows in this.
Gauge "quorum_size" "Participants of the ensemble" |r| Some(r.status.participants).filter(|count| *count > 0);
Gauge "learners" "Other servers that are connected (leader only)" if leads |r| r.peers(|peer| peer.is_connected);
Gauge "synced_followers" "Other participants that keep up (leader only)" if leads
    |r| r.peers(|peer| peer.votes && peer.is_synced);
Gauge "synced_non_voting_followers" "Participants that keep up and have no vote yet (leader only)" if leads
    |r| r.peers(|peer| !peer.votes && !peer.is_observer && peer.is_synced);
Gauge "synced_observers" "Observers that keep up (leader only)" if leads
    |r| r.peers(|peer| peer.is_observer && peer.is_synced);
Gauge "pending_syncs" "Requests `sync` and linearizable reads that wait for a majority (leader only)" if leads
    |r| r.status.pending_syncs;
Gauge "leader_uptime" "Milliseconds since this server became the leader (leader only)" |r| r.status.leading_ms;
// Absent until a leader has made one.
Gauge "last_proposal_size" "Bytes of the last proposed entry (leader only)" if leads
    |r| r.status.proposal_sizes.map(|sizes| sizes.last);
Gauge "max_proposal_size" "Bytes of the largest proposed entry (leader only)" if leads
    |r| r.status.proposal_sizes.map(|sizes| sizes.max);
Gauge "min_proposal_size" "Bytes of the smallest proposed entry (leader only)" if leads
    |r| r.status.proposal_sizes.map(|sizes| sizes.min);
Counter "commit_count" "Transactions applied" |r| r.status.txns_applied;
Counter "proposal_count" "Entries proposed by this server" |r| r.status.proposals;
Counter "connection_request_count" "Handshakes received" count connect_requests;
Counter "connection_rejected" "Connections refused for their number"
    |r| r.counters.connections_rejected_per_ip + r.counters.connections_rejected_total;
Counter "connection_drop_count" "Client connections that ended, for any reason" count connections_closed;
Counter "stale_sessions_expired" "Sessions expired by this server" |r| r.status.sessions_expired;
Counter "sessionless_connections_expired" "Connections closed without a handshake"
    |r| r.counters.connections_cut_sessionless;
Counter "bytes_received_count" "Bytes received from clients" count bytes_received;
Counter "response_bytes" "Bytes sent to clients, without those of events"
    |r| r.counters.bytes_sent.saturating_sub(r.status.watch_bytes);
Counter "watch_bytes" "Bytes of events sent to clients" |r| r.status.watch_bytes;
Counter "large_requests_rejected" "Requests refused for their size" count large_requests_refused;
Counter "snapshot_error_count" "Images that could not be written or verified" count image_errors;
Summary "fsynctime" "Milliseconds of each fsync of the log" measured Fsync as ms;
Summary "snapshottime" "Milliseconds to write and verify each image" measured Image as ms;
Summary "dbinittime" "Milliseconds to read the data at the start, by a server that has some"
    measured StartLoad as ms;
Summary "readlatency" "Milliseconds from the read of a read request's bytes to the write of its answer's"
    measured Read as ms;
Summary "updatelatency" "Milliseconds from the read of a write request's bytes to the write of its answer's"
    measured Write as ms;
Summary "sync_processor_batch_size" "Entries appended to the log with one fsync" measured LogBatch as plain;
Counter "unsuccessful_handshake" "Handshakes of TLS with clients that came to nothing"
    |r| r.counters.handshakes_failed;

// ZooKeeper's metrics of what happens to a request on its way, and of servers that follow each other.

Counter "prep_processor_request_queued" "Requests of clients that the driver took" count requests_taken;
Summary "prep_processor_queue_size" "Messages that the driver found, in each turn" measured DriverQueue as plain;
Summary "prep_processor_queue_time_ms" "Milliseconds from the read of a request until the driver takes it"
    measured DriverQueueTime as ms;
Summary "prep_process_time" "Milliseconds that the requests of a turn of the driver take"
    measured TurnOfRequests as ms;
Summary "close_session_prep_time"
    "Milliseconds that the driver takes for requests the last of which closes its session"
    measured CloseSession as ms;
Counter "outstanding_changes_queued" "Entries proposed by this server" |r| r.status.proposals;
Counter "outstanding_changes_removed" "Entries proposed by this server that are applied, or were given up"
    |r| r.status.proposals.saturating_sub(r.status.proposals_unapplied);
Counter "sync_processor_request_queued" "Appends that the log's thread was given" count appends_ordered;
Summary "sync_processor_queue_size" "Appends that the log's thread found, each time" measured LogQueue as plain;
Summary "sync_processor_queue_time_ms" "Milliseconds from the order of an append until the log's thread begins it"
    measured LogQueueTime as ms;
Summary "sync_processor_queue_flush_time_ms" "Milliseconds of each fsync of the log, as fsynctime"
    |r| r.ms(Quantity::Fsync);
Summary "sync_processor_queue_and_flush_time_ms" "Milliseconds from the order of an append until it is durable"
    measured LogQueueAndFlush as ms;
Summary "sync_process_time" "Milliseconds that the log's thread takes for what it found, with or without an fsync"
    measured LogWrite as ms;
Counter "request_commit_queued" "Transactions committed" |r| r.status.txns_applied;
Summary "commit_process_time"
    "Milliseconds that a turn of the driver takes behind its requests: consensus, applying, answers"
    measured TurnOfCommits as ms;
Summary "write_batch_time_in_commit_processor" "The same of turns in which transactions were applied"
    measured TurnOfWrites as ms;
Summary "read_commit_proc_req_queued" "Reads answered in a turn of the driver" measured ReadsPerTurn as plain;
Summary "read_commit_proc_issued" "Reads answered in a turn of the driver" |r| r.plain(Quantity::ReadsPerTurn);
Summary "write_commit_proc_req_queued" "Requests that wait for a transaction at the end of a turn of the driver"
    measured Waiting as plain;
Summary "commit_commit_proc_req_queued" "Transactions applied in a turn of the driver"
    measured CommitsPerTurn as plain;
Summary "write_commit_proc_issued" "Transactions applied in a turn of the driver"
    |r| r.plain(Quantity::CommitsPerTurn);
Summary "read_commitproc_time_ms"
    "Milliseconds from the arrival of a read until its turn in the order of its connection"
    replica ReadWait as ms;
Summary "write_commitproc_time_ms" "Milliseconds from the arrival of a write until the turn that applied it"
    replica WriteWait as ms;
Summary "read_final_proc_time_ms" "Milliseconds for one read: its part of the turn that answered it"
    measured ReadPart as ms;
Summary "write_final_proc_time_ms" "Milliseconds for one transaction: its part of the turn that applied it"
    measured WritePart as ms;
Summary "local_write_committed_time_ms"
    "Milliseconds from the commit of a write until its answer is handed to the connection"
    measured OwnCommitted as ms;
Summary "server_write_committed_time_ms"
    "Milliseconds from the commit of a write of another server's client until it is applied"
    measured OthersCommitted as ms;
Summary "requests_in_session_queue" "Requests of a connection that wait, when another one begins to, with that one"
    replica RequestsInQueue as plain;
Summary "pending_session_queue_size" "Connections with requests that wait, whenever a write of one is applied"
    replica QueuesWaiting as plain;
Summary "reads_after_write_in_session_queue" "Reads answered because the write in front of them was applied"
    replica ReadsAfterWrite as plain;
Summary "reads_issued_from_session_queue" "Reads answered because the write in front of them was applied"
    |r| r.plain(Quantity::ReadsAfterWrite);
Summary "session_queues_drained"
    "Connections in a turn of the driver whose requests waited behind a write that was applied"
    measured QueuesDrained as plain;
Summary "quorum_ack_latency" "Milliseconds from a proposal until a majority has it durably (leader only)" if member
    replica QuorumAck as ms;
Summary "ack_latency"
    "Milliseconds from a proposal until that server acknowledged it, by server id (leader only)"
    |r| by_server(&r.counters.measured.acks, 1000.0);
Summary "proposal_ack_creation_latency" "Milliseconds from when an entry came until it was durable here"
    replica OwnAck as ms;
Summary "proposal_latency"
    "Milliseconds from the leader's stamp of an entry until it came here, by two clocks (not the leader)" if member
    replica Proposal as ms;
Summary "commit_propagation_latency"
    "Milliseconds from when an entry came until its commit was known (not the leader)" if member
    replica CommitPropagation as ms;
Summary "propagation_latency"
    "Milliseconds from the leader's stamp of a transaction until it is applied here, by two clocks"
    replica Propagation as ms;
Summary "learner_handler_qp_size"
    "Bytes that wait to be sent to that server, with what is put behind them, by server id"
    |r| by_server(&r.counters.measured.peer_queues, 1.0);
Counter "learner_proposal_received_count" "Entries taken from a leader" if member |r| r.status.entries_received;
Counter "learner_commit_received_count" "Entries that became committed while another server led" if member
    |r| r.status.commits_received;
Summary "election_time" "Milliseconds from the loss of a leader, or the start, until the next one was known" if member
    measured Election as ms;
Counter "looking_count" "Times that this server had no leader any more, and its start" if member
    count leader_losses;
Summary "unavailable_time" "Milliseconds for which clients were not served, once they are"
    measured Unavailable as ms;
Summary "leader_unavailable_time" "Milliseconds without a leader, until this server led and served" if member
    measured LeaderUnavailable as ms;
Summary "follower_sync_time" "Milliseconds from the link with a participant until it kept up with this leader"
    if member measured FollowerSync as ms;
Summary "observer_sync_time" "Milliseconds from the link with an observer until it kept up with this leader"
    if member measured ObserverSync as ms;
Counter "diff_count" "Times that another server caught up with this leader by the log" if member
    count caught_up_by_log;
Counter "snap_count" "Images that other servers have taken from this one"
    |r| r.counters.links.map(|links| links.images_sent);
Counter "revalidate_count" "Sessions that were given to a connection while this server led"
    |r| r.status.revalidations_led;
Counter "connection_revalidate_count" "Clients that came with a session to this server"
    |r| r.status.sessions_revalidated;
Summary "startup_snap_load_time" "Milliseconds to read the image at the start" measured StartImage as ms;
Summary "startup_txns_loaded" "Entries of the log that were applied at the start, behind the image"
    measured StartEntries as plain;
Summary "startup_txns_load_time" "Milliseconds to read and apply those" measured StartEntriesTime as ms;
Summary "node_created_watch_count" "Watches fired by one change that created a znode"
    replica WatchersOfCreated as plain;
Summary "node_deleted_watch_count" "Watches fired by one change that deleted a znode"
    replica WatchersOfDeleted as plain;
Summary "node_changed_watch_count" "Watches fired by one change of data" replica WatchersOfChanged as plain;
Summary "node_children_watch_count" "Watches fired by one change of children" replica WatchersOfChildren as plain;
Summary "read_per_namespace"
    "Bytes of an answer to a read of this server's clients, by znode of the root (only in /metrics)"
    |r| r.by_namespace(|known| known.reads);
Summary "write_per_namespace"
    "Bytes of a transaction of a client that was applied, by znode of the root (only in /metrics)"
    |r| r.by_namespace(|known| known.writes);
Counter "digest_mismatches_count" "Times that the records on the disk had another digest than the state"
    count digest_mismatches;
Counter "unrecoverable_error_count" "Errors that have ended this server, those before its last start included"
    |r| r.counters.fatal_errors;
Gauge "outstanding_tls_handshake" "Handshakes of TLS with clients that are going on" |r| r.counters.handshakes_open;

// Metrics that are not ZooKeeper's.

Gauge "lockkeeper_build_info" "Which version this is" |_r| Value::Info(vec![
    ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ("zookeeper", ZOOKEEPER.to_owned()),
    ("built", BUILT.to_owned()),
]);
Counter "process_cpu_seconds_total" "Seconds of CPU that this process has used" |r| r.process.cpu_seconds;
Gauge "process_resident_memory_bytes" "Bytes of memory that this process uses" |r| r.process.resident_bytes;
Gauge "process_virtual_memory_bytes" "Bytes of addresses that this process uses" |r| r.process.virtual_bytes;
Gauge "process_threads" "Threads of this process" |r| r.process.threads;
Gauge "process_start_time_seconds" "When this process began, seconds since the epoch" |r| r.process.started_seconds;
Gauge "process_open_fds" "File descriptors open in this process" |r| r.descriptors.open;
Gauge "process_max_fds" "File descriptors this process may open" |r| r.descriptors.max;
Histogram "lockkeeper_read_seconds" "Time of reads, as readlatency" |r| r.seconds(Quantity::Read);
Histogram "lockkeeper_write_seconds" "Time of writes, as updatelatency" |r| r.seconds(Quantity::Write);
Histogram "lockkeeper_fsync_seconds" "Time of fsyncs of the log, as fsynctime" |r| r.seconds(Quantity::Fsync);
Gauge "lockkeeper_serving" "1 while requests are answered, else 0" |r| r.status.serving;
Gauge "lockkeeper_zxid" "Last applied zxid" |r| r.status.zxid;
Gauge "lockkeeper_raft_term" "Raft term" |r| r.status.term;
Gauge "lockkeeper_leader" "Server id of the leader; absent while there is none" |r| r.status.leader;
Gauge "lockkeeper_peers_connected" "Other servers to which there is a link" if member
    |r| r.peers(|peer| peer.is_connected);
Counter "lockkeeper_elections" "Elections that this server stood in or voted in" if member
    |r| r.status.election_count;
Counter "lockkeeper_leader_changes" "Times this server learned of another leader" if member
    |r| r.status.leader_changes;
Counter "lockkeeper_peer_messages_dropped"
    "Messages of other servers that were dropped: their content is impossible, or their term is too far above"
    if member |r| r.status.peer_messages_dropped;
Counter "lockkeeper_requests_forwarded" "Requests handed on to the leader" if member |r| r.status.forwarded;
Gauge "lockkeeper_ensemble_version"
    "Version of the ensemble: which formats its servers write (docs/UPGRADING.md)" |r| r.status.ensemble_version;
Counter "lockkeeper_states_compared"
    "Comparisons with the other servers in which this server's state was that of a majority" if member
    |r| r.status.comparisons_agreed;
Gauge "lockkeeper_states_differing" "Servers whose state is not that of a majority, as this server knows" if member
    |r| r.status.differing.len() as u64;
Counter "lockkeeper_scrub_passes" "Times that the digest of all znodes was computed again from memory"
    |r| r.status.scrubs;
Gauge "lockkeeper_applied_index" "Last log index applied" |r| r.status.applied;
Gauge "lockkeeper_persisted_index" "Last log index on this server's disk" |r| r.status.persisted;
Summary "lockkeeper_turn_time"
    "Milliseconds of each turn of the driver, in which others wait; a long one is named in the log and by /readyz"
    measured Turn as ms;
Counter "lockkeeper_work_ms" "Estimated work of requests and transactions, in milliseconds of one core"
    |r| r.status.work_ms;
Counter "lockkeeper_answers_postponed" "Answers that waited because a turn had no room for their reads"
    |r| r.status.answers_postponed;
Gauge "lockkeeper_disk_waits_ms"
    "Milliseconds for which the log's disk has completed none of the pending work" |r| r.status.disk_waits_ms;
Counter "lockkeeper_disk_handovers" "Times this server handed its leadership over because its disk hung" if member
    |r| r.status.disk_handovers;
Gauge "lockkeeper_clock_skew_ms"
    "Milliseconds by which the clock of another server is ahead of this one's: the greatest, negative if \
     it is behind (leader only)"
    |r| {
        let skews = r.status.peers.iter().filter_map(|peer| peer.clock_skew_ms);
        skews.max_by_key(|skew| skew.unsigned_abs())
    };
Gauge "lockkeeper_stamps_ahead_ms"
    "Milliseconds by which ctime and mtime of the last write are ahead of this server's clock (leader only)"
    |r| r.status.stamps_ahead_ms;
Counter "lockkeeper_time_returns"
    "Times ctime and mtime went back, because a leader's clock had been more than a minute ahead"
    |r| r.status.time_returns;
Gauge "lockkeeper_changes_waiting" "Changed records not yet handed to the state store" |r| r.status.changes_waiting;
Gauge "lockkeeper_sessions_connected" "Connections with a session" |r| r.status.connections;
Gauge "lockkeeper_log_bytes" "Bytes of the log on disk" |r| r.counters.disk.log_dir_bytes;
Gauge "lockkeeper_log_since_image_bytes"
    "Bytes of log written since the newest image: while it grows without end, no checkpoint completes"
    |r| r.counters.disk.log_since_image_bytes;
Gauge "lockkeeper_disk_free_bytes" "Bytes that are free where the data and the log are (only in /metrics)"
    |r| (!r.free_bytes.is_empty()).then(|| Value::Set(r.free_bytes.clone()));
Gauge "lockkeeper_image_bytes" "Bytes of images and the state store on disk" |r| r.counters.disk.data_dir_bytes;
Gauge "lockkeeper_last_image_index" "Log index of the newest verified image"
    |r| r.counters.disk.last_image.map(|image| image.index);
Gauge "lockkeeper_last_image_zxid" "Zxid of the newest verified image"
    |r| r.counters.disk.last_image.map(|image| image.zxid);
Gauge "lockkeeper_last_image_timestamp_seconds"
    "When the newest verified image was finished, seconds since the epoch"
    |r| r.counters.disk.last_image.map(|image| image.wall_ms as f64 / 1000.0);
Gauge "lockkeeper_backup_age_seconds"
    "How long ago the last backup of this server was complete (`lockkeeper snapshot save`)"
    |r| r.counters.disk.last_backup.map(|backup| (r.wall_ms - backup.wall_ms).max(0) as f64 / 1000.0);
Gauge "lockkeeper_backup_bytes" "Size of the last backup of this server"
    |r| r.counters.disk.last_backup.map(|backup| backup.bytes);
Counter "lockkeeper_backup_errors" "Backups of this server that were broken off" count backup_errors;
Gauge "lockkeeper_migration_state" "How far a live migration from ZooKeeper is, as a label: 1; absent without one"
    |r| r.status.migration.map(|known| Value::Set(vec![(known.state, 1)]));
Gauge "lockkeeper_migration_zxid" "zxid of ZooKeeper's last transaction here"
    |r| r.status.migration.map(|known| known.foreign_zxid);
Counter "lockkeeper_migration_compared"
    "Transactions of ZooKeeper whose digest was compared with the one here"
    |r| r.status.migration.map(|known| known.compared);
Gauge "lockkeeper_migration_linked"
    "Whether the link with ZooKeeper's leader is up and has brought everything: 1 or 0 (leader only)"
    |r| r.status.migration?.of_leader.map(|link| link.is_current);
Gauge "lockkeeper_migration_requests_waiting"
    "Requests of clients that ZooKeeper has and has not decided (leader only)"
    |r| r.status.migration?.of_leader.map(|link| link.requests_waiting);
Counter "lockkeeper_migration_alarms"
    "Transactions of clients in ZooKeeper behind the cutover, since this server leads (leader only)"
    |r| r.status.migration?.of_leader.map(|link| link.alarms);
Counter "lockkeeper_connections_accepted" "Client connections accepted" count connections_accepted;
Counter "lockkeeper_connections_rejected" "Connections refused, by limit" counts {
    /// Connections refused: too many from their address.
    "per_ip" connections_rejected_per_ip,
    /// Connections refused: too many in all.
    "total" connections_rejected_total,
};
Counter "lockkeeper_connections_cut" "Connections ended by the server, by reason" counts {
    /// Connections cut: the client did not read its replies.
    "slow" connections_cut_slow,
    /// Connections cut: a frame was malformed.
    "malformed" connections_cut_malformed,
    /// Connections closed: no handshake in time.
    "sessionless" connections_cut_sessionless,
    /// Connections closed: they had asked for no session, and another one needed the place.
    "yielded" connections_cut_yielded,
    /// Connections cut: too much waited for all clients, and most of it for theirs.
    "debtors" connections_cut_debtors,
    /// Connections cut: the unfinished requests of all clients were too long, and theirs the longest.
    "unfinished" connections_cut_unfinished,
};
Gauge "lockkeeper_certificate_expiry_seconds"
    "When the first certificate that is shown is not valid any more, seconds since 1970, by whom it is for"
    |r| r.certificates(|known| known.expires_s.cast_unsigned());
Gauge "lockkeeper_certificate_outdated"
    "Whether the files of keys and certificates have changed and could not be used: 1 or 0, by whom they are for"
    |r| r.certificates(|known| u64::from(known.is_outdated));
Gauge "lockkeeper_sasl_users_outdated"
    "Whether the file with the users of SASL has changed and could not be used: 1 or 0"
    |r| r.counters.sasl_users_outdated;
Counter "lockkeeper_other_protocols"
    "Connections that spoke TLS, HTTP or the PROXY protocol to the client port" counts {
    /// Connections that spoke TLS to the client port; each was closed, as those below.
    "tls" other_protocols_tls,
    /// Connections that spoke HTTP.
    "http" other_protocols_http,
    /// Connections that spoke the PROXY protocol of load balancers.
    "proxy" other_protocols_proxy,
};
Gauge "lockkeeper_outgoing_bytes" "Bytes that wait for clients to take them" |r| r.counters.outgoing_bytes;
Gauge "lockkeeper_incoming_bytes" "Bytes of requests that have not arrived whole" |r| r.counters.incoming_bytes;
Counter "lockkeeper_link_bytes" "Bytes between this server and others, images included" links {
    /// Bytes sent, images included.
    "sent" bytes_sent,
    /// Bytes received, images included.
    "received" bytes_received,
};
Counter "lockkeeper_links_made" "Links made to other servers" link made;
Counter "lockkeeper_links_failed" "Attempts at links to other servers that came to none" link failed;
Counter "lockkeeper_links_cut" "Links with other servers ended by this one, by reason" links {
    /// Links ended because of what came: a frame was damaged or malformed.
    "frame" frames_refused,
    /// Links ended because a server did not take what it was sent.
    "overfull" overfull,
    /// Links refused to servers that are no members.
    "stranger" strangers,
    /// Connections closed that had not proved to be of a server, because there were too many.
    "yielded" yielded,
};
Counter "lockkeeper_images_moved" "Images sent to and received from other servers" links {
    /// Images that others have taken.
    "sent" images_sent,
    /// Images received and verified.
    "received" images_received,
    /// Images that could not be sent or received.
    "failed" images_failed,
};
Counter "lockkeeper_handshakes_refused" "Handshakes refused by the replica" |r| r.status.connections_refused;
Counter "lockkeeper_events_fired" "Watch events fired, by type" |r| {
    let [created, deleted, changed, children] = r.status.events_fired;
    Value::Set(vec![
        ("created", created),
        ("deleted", deleted),
        ("changed", changed),
        ("children", children),
    ])
};
Counter "lockkeeper_bytes_sent" "Bytes sent to clients, events included" count bytes_sent;
Counter "lockkeeper_fsyncs_slow" "Fsyncs of the log above the warning threshold" count fsyncs_slow;
Summary "lockkeeper_checkpoint_time" "Milliseconds of each checkpoint of the state store" measured Checkpoint as ms;
Gauge "lockkeeper_locks" "Locks with a contender, by kind" |r| r.locks(|locks| Value::Set(locks.kinds.clone()));
Gauge "lockkeeper_lock_holders" "Contenders that hold a lock" |r| r.locks(|locks| locks.holders);
Gauge "lockkeeper_lock_waiters" "Contenders that wait for a lock" |r| r.locks(|locks| locks.waiters);
Gauge "lockkeeper_lock_queue" "Contenders that wait for a lock, of the 20 locks for which the most do, by path"
    |r| r.locks(|locks| Value::Labelled("lock", locks.queues.clone()));
Gauge "lockkeeper_lock_longest_wait" "Milliseconds that the oldest waiter has waited"
    |r| r.locks(|locks| locks.longest_wait_ms);
Gauge "lockkeeper_lock_longest_hold"
    "Milliseconds that a lock has been held for longest, of those whose beginning is known"
    |r| r.locks(|locks| locks.longest_hold_ms);
Histogram "lockkeeper_lock_wait_seconds"
    "Time from the creation of a contender's znode until it held its mutex or read-write lock, counted once for \
     each that has held it, when its znode ends, by the server that leads then; from the leaders' stamps, so \
     to the millisecond; who gave up waiting is not in it, and a lock of a layout that is not known is not"
    replica LockWait as long_seconds;
Histogram "lockkeeper_lock_hold_seconds"
    "Time for which a contender held its mutex or read-write lock until its znode ended, by release, removal or \
     the end of the session: of the same contenders as lockkeeper_lock_wait_seconds, counted at the same time; a \
     lock that is still held is not in it"
    replica LockHold as long_seconds;
Counter "lockkeeper_lock_stays_unmeasured"
    "Contenders that ended and are in neither histogram of locks, because it is not known whether or since when \
     they held the lock: they came before the server that leads was started, or the directory has thousands of \
     children"
    |r| r.status.lock_stays_unmeasured;
Gauge "lockkeeper_lock_findings" "What is wrong with locks, by kind of finding"
    |r| r.locks(|locks| Value::Set(locks.findings.clone()));
Gauge "lockkeeper_lock_counter_max_ratio"
    "Part of its numbers that the directory of contenders with the most has used up, 0 to 1"
    |r| r.locks(|locks| locks.counter_ratio_max);
Gauge "lockkeeper_locks_cut" "1 if there are more locks than were looked at, else 0"
    |r| r.locks(|locks| locks.is_cut);

    } };
}

pub(super) use table;
