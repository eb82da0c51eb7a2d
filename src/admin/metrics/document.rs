//! The document of metrics, `docs/METRICS.md`, with the names of ZooKeeper's metrics that measure nothing here.
//!
//! *Owns* its text, and why those names measure nothing. *Invariant*: a name is here or in the table of metrics,
//! never in both. So a dashboard's empty panel is explained.

use super::metric::{METRICS, Metric};

/// The text of `docs/METRICS.md`.
pub(super) fn document() -> String {
    let mut out = String::from(DOCUMENT_HEAD);
    for Metric { name, kind, help, .. } in METRICS {
        out += &format!("| `{name}` | {} | {help} |\n", kind.name());
    }
    out += ABSENT_HEAD;
    for (names, why) in ABSENT {
        let names: Vec<String> = names.split(' ').map(|name| format!("`{name}`")).collect();
        out += &format!("| {} | {why} |\n", names.join(", "));
    }
    out
}

const ABSENT_HEAD: &str = "
## Names of ZooKeeper's that are not here

Dashboards and alert rules that ask for these show nothing, and never fire.

| name | why |
|---|---|
";

const DOCUMENT_HEAD: &str = "\
# Metrics

The same figures, three ways: `GET /metrics` (Prometheus text format), the four-letter word `mntr`
(names begin with `zk_`), and `GET /commands/monitor` (JSON). Names are those of ZooKeeper 3.9, so
that its dashboards and alert rules keep working; names that begin with `lockkeeper_` are ours.
A figure is measured or absent, never a constant. Times are milliseconds unless the name says
otherwise. `srst` sets counters and summaries to zero, `commit_count`, `unrecoverable_error_count` and what
the start has taken excepted.

In `/metrics` a summary is `<name>_count`, `<name>_sum` and `<name>{quantile=\"0.5\"}`
(0.95, 0.99 and 0.999 besides; NaN before the first value, so that `changes` sees that one);
in `mntr` it is `zk_avg_`, `zk_min_`, `zk_max_`, `zk_cnt_`, `zk_sum_`, and once there is a value `zk_p50_`,
`zk_p95_`, `zk_p99_` and `zk_p999_<name>`. Quantiles are at most an eighth off, and of everything
since the start or `srst`: for those of a span of time, take a histogram, which is in `/metrics` alone and in
seconds. A metric by reason or type has the label `key` in
`/metrics` and is `zk_<key>_<name>` in `mntr`. `mntr` also shows `zk_version`, `zk_server_state` and,
in an ensemble, `zk_peer_state`.

Figures of locks (`lockkeeper_lock...`) are in `/metrics` alone, and there those of the leader or of a
server that runs alone: it looks at all locks and asks the other servers what they know, as it does for
the page of locks, so collect them every few seconds at most. A label for a lock's path has
`lockkeeper_lock_queue` alone, for the 20 longest queues; `/locks` tells the rest.

This page is generated from the table in `src/admin/metrics/table.rs`; a test keeps it current.

| name | kind | meaning |
|---|---|---|
";

/// Names, separated by blanks, and why they are not measured.
pub(super) const ABSENT: &[(&str, &str)] = &[
    (
        "response_packet_cache_hits response_packet_cache_misses response_packet_get_children_cache_hits \
         response_packet_get_children_cache_misses",
        "There is no cache of answers: an answer is written from the tree",
    ),
    (
        "dead_watchers_queued dead_watchers_cleared dead_watchers_cleaner_latency add_dead_watcher_stall_time",
        "Watches of a connection are gone when it is: none are left to be cleared",
    ),
    (
        "connection_drop_probability connection_token_deficit",
        "No connection is dropped by chance: a reconnect storm is let in at `lockkeeper.admissionRate`",
    ),
    (
        "concurrent_request_processing_in_commit_processor time_waiting_empty_pool_in_commit_processor_read_ms",
        "No pool of threads answers reads: one thread does, in the order of their arrival",
    ),
    (
        "om_proposal_process_time_ms om_commit_process_time_ms proposal_process_time learner_handler_qp_time_ms \
         learner_request_processor_queue_size skip_learner_request_to_next_processor_count \
         requests_not_forwarded_to_commit_processor inflight_snap_count inflight_diff_count",
        "Parts of ZooKeeper's replication that Raft does not have",
    ),
    (
        "quit_leading_due_to_disloyal_voter",
        "A leader without a majority steps down: see `leader_unavailable_time` and `lockkeeper_leader_changes`",
    ),
    (
        "ensemble_auth_success ensemble_auth_fail ensemble_auth_skip",
        "The authentication scheme `ensemble` is not offered",
    ),
    (
        "tls_handshake_exceeded",
        "No handshake is refused for the number of others: it waits. See `unsuccessful_handshake`",
    ),
    (
        "stale_requests stale_requests_dropped stale_replies throttled_ops request_throttle_wait_count \
         request_throttle_queue_time_ms netty_queued_buffer_capacity socket_closing_time \
         cnxn_closed_without_zk_server_running",
        "Requests are not thrown away for their age: a client that has too many in flight is read more slowly",
    ),
    (
        "restore_time restore_error_count restore_rate_limited_count snapshot_rate_limited_count insecure_admin_count",
        "ZooKeeper's command `restore` is not offered, and refusals of `snapshot` are not counted",
    ),
    (
        "quota_count_limit_per_namespace quota_count_usage_per_namespace quota_bytes_limit_per_namespace \
         quota_bytes_usage_per_namespace quota_exceeded_error_per_namespace",
        "Quotas are counted in `/zookeeper/quota`, and not as metrics",
    ),
    (
        "jvm_pause_time_ms jvm_classes_loaded jvm_threads_current jvm_threads_deadlocked jvm_threads_state \
         jvm_gc_collection_seconds jvm_memory_pool_bytes_used jvm_memory_bytes_used jvm_memory_bytes_max",
        "There is no Java virtual machine: see `process_resident_memory_bytes` and `process_cpu_seconds_total`",
    ),
];
