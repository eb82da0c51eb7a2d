//! Metrics that are not ZooKeeper's.

use super::super::metric::{Metric, Value};
use super::super::version::{BUILT, ZOOKEEPER};
use super::super::{OtherProtocols, Quantity};
use super::kinds::{
    counter, gauge, histogram, info, of_certificates, of_link, of_locks, of_member, summary, whole,
};

pub(super) const METRICS: &[Metric] = &[
    info("lockkeeper_build_info", "Which version this is", |_| {
        Some(Value::Info(vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("zookeeper", ZOOKEEPER.to_owned()),
            ("built", BUILT.to_owned()),
        ]))
    }),
    counter("process_cpu_seconds_total", "Seconds of CPU that this process has used", |r| {
        r.process.cpu_seconds.map(Value::Real)
    }),
    gauge("process_resident_memory_bytes", "Bytes of memory that this process uses", |r| {
        r.process.resident_bytes.map(Value::from)
    }),
    gauge("process_virtual_memory_bytes", "Bytes of addresses that this process uses", |r| {
        r.process.virtual_bytes.map(Value::from)
    }),
    gauge("process_threads", "Threads of this process", |r| r.process.threads.map(Value::from)),
    gauge("process_start_time_seconds", "When this process began, seconds since the epoch", |r| {
        r.process.started_seconds.map(Value::Real)
    }),
    gauge("process_open_fds", "File descriptors open in this process", |r| {
        r.descriptors.open.map(Value::from)
    }),
    gauge("process_max_fds", "File descriptors this process may open", |r| {
        r.descriptors.max.map(Value::from)
    }),
    histogram("lockkeeper_read_seconds", "Time of reads, as readlatency", |r| {
        r.seconds(Quantity::Read)
    }),
    histogram("lockkeeper_write_seconds", "Time of writes, as updatelatency", |r| {
        r.seconds(Quantity::Write)
    }),
    histogram("lockkeeper_fsync_seconds", "Time of fsyncs of the log, as fsynctime", |r| {
        r.seconds(Quantity::Fsync)
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
    gauge(
        "lockkeeper_ensemble_version",
        "Version of the ensemble: which formats its servers write (docs/UPGRADING.md)",
        |r| whole(u64::from(r.status.ensemble_version)),
    ),
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
    gauge(
        "lockkeeper_disk_free_bytes",
        "Bytes that are free where the data and the log are (only in /metrics)",
        |r| (!r.free_bytes.is_empty()).then(|| Value::Set(r.free_bytes.clone())),
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
    gauge(
        "lockkeeper_backup_age_seconds",
        "How long ago the last backup of this server was complete (`lockkeeper snapshot save`)",
        |r| {
            let backup = r.counters.disk.last_backup?;
            Some(Value::Real((r.wall_ms - backup.wall_ms).max(0) as f64 / 1000.0))
        },
    ),
    gauge("lockkeeper_backup_bytes", "Size of the last backup of this server", |r| {
        r.counters.disk.last_backup.map(|backup| backup.bytes.into())
    }),
    counter("lockkeeper_backup_errors", "Backups of this server that were broken off", |r| {
        whole(r.counters.disk.backup_errors)
    }),
    gauge(
        "lockkeeper_migration_state",
        "How far a live migration from ZooKeeper is, as a label: 1; absent without one",
        |r| r.status.migration.map(|known| Value::Set(vec![(known.state, 1)])),
    ),
    gauge("lockkeeper_migration_zxid", "zxid of ZooKeeper's last transaction here", |r| {
        r.status.migration.map(|known| Value::Whole(known.foreign_zxid))
    }),
    counter(
        "lockkeeper_migration_compared",
        "Transactions of ZooKeeper whose digest was compared with the one here",
        |r| r.status.migration.map(|known| known.compared.into()),
    ),
    gauge(
        "lockkeeper_migration_linked",
        "Whether the link with ZooKeeper's leader is up and has brought everything: 1 or 0 (leader only)",
        |r| of_link(r, |link| link.is_current.into()),
    ),
    gauge(
        "lockkeeper_migration_requests_waiting",
        "Requests of clients that ZooKeeper has and has not decided (leader only)",
        |r| of_link(r, |link| link.requests_waiting),
    ),
    counter(
        "lockkeeper_migration_alarms",
        "Transactions of clients in ZooKeeper behind the cutover, since this server leads (leader only)",
        |r| of_link(r, |link| link.alarms),
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
        |r| r.ms(Quantity::Checkpoint),
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
    gauge(
        "lockkeeper_lock_queue",
        "Contenders that wait for a lock, of the 20 locks for which the most do, by path",
        |r| of_locks(r, |locks| Value::Labelled("lock", locks.queues.clone())),
    ),
    gauge("lockkeeper_lock_longest_wait", "Milliseconds that the oldest waiter has waited", |r| {
        of_locks(r, |locks| locks.longest_wait_ms.into())
    }),
    gauge(
        "lockkeeper_lock_longest_hold",
        "Milliseconds that a lock has been held for longest, of those whose beginning is known",
        |r| of_locks(r, |locks| locks.longest_hold_ms.into()),
    ),
    histogram(
        "lockkeeper_lock_wait_seconds",
        "Time from the creation of a contender's znode until it held its mutex or read-write lock, counted once for \
         each that has held it, when its znode ends, by the server that leads then; from the leaders' stamps, so \
         to the millisecond; who gave up waiting is not in it, and a lock of a layout that is not known is not",
        |r| r.long_seconds(Quantity::LockWait),
    ),
    histogram(
        "lockkeeper_lock_hold_seconds",
        "Time for which a contender held its mutex or read-write lock until its znode ended, by release, removal or \
         the end of the session: of the same contenders as lockkeeper_lock_wait_seconds, counted at the same time; a \
         lock that is still held is not in it",
        |r| r.long_seconds(Quantity::LockHold),
    ),
    counter(
        "lockkeeper_lock_stays_unmeasured",
        "Contenders that ended and are in neither histogram of locks, because it is not known whether or since when \
         they held the lock: they came before the server that leads was started, or the directory has thousands of \
         children",
        |r| whole(r.status.lock_stays_unmeasured),
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
