//! Names, kinds and texts of metrics.

use std::collections::{BTreeMap, BTreeSet};

use regex_lite::Regex;

use super::super::Source;
use super::super::fake::Fake;
use super::super::version::full_version;
use super::document::{ABSENT, document};
use super::metric::{Kind, METRICS, Value};
use super::process::{Descriptors, Process};
use super::*;
use crate::locks::FindingKind;
use crate::locks::view::Kind as LockKind;
use crate::replica::inspect::{Mode, NamespaceReport, Volume};

fn reading(fake: &Fake) -> Reading {
    let descriptors = Descriptors { open: Some(12), max: Some(1024) };
    Reading { descriptors, ..Reading::now(fake.status(), fake.counters()) }
}

/// With a lock of each kind and a finding of each.
fn reading_with_locks(fake: &Fake) -> Reading {
    let locks = LockFigures {
        kinds: LockKind::ALL.map(|kind| (kind.name(), 1)).to_vec(),
        holders: 6,
        waiters: 2,
        longest_wait_ms: 1500,
        longest_hold_ms: 3000,
        findings: FindingKind::ALL.map(|kind| (kind.name(), 1)).to_vec(),
        counter_ratio_max: 0.25,
        queues: vec![("/a \"b\"".to_owned(), 2)],
        is_cut: true,
    };
    let volume = Volume { count: 2, sum: 150, min: 50, max: 100 };
    let app = NamespaceReport { name: "app".to_owned(), reads: volume, writes: volume };
    let namespaces = Some(vec![app]);
    let free_bytes = vec![("data", 1 << 30), ("log", 1 << 31)];
    Reading { locks: Some(locks), namespaces, free_bytes, ..reading(fake) }
}

fn pairs(text: &str) -> BTreeMap<&str, &str> {
    text.lines().map(|line| line.split_once('\t').expect("key, tab, value")).collect()
}

#[test]
fn names_are_zookeepers_or_begin_with_ours_and_exist_once() {
    let known: BTreeSet<&str> = ZOOKEEPERS.split_whitespace().collect();
    let mut seen = BTreeSet::new();
    for metric in METRICS {
        assert!(seen.insert(metric.name), "{} twice", metric.name);
        assert!(
            known.contains(metric.name)
                || metric.name.starts_with("lockkeeper_")
                || metric.name.starts_with("process_"),
            "{} is not ZooKeeper's",
            metric.name
        );
        assert!(!metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '|']));
    }
}

#[test]
fn each_of_zookeepers_names_is_measured_or_has_a_reason_why_not() {
    let measured: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let absent = ABSENT.iter().flat_map(|(names, _)| names.split_whitespace());
    let mut reasons = BTreeSet::new();
    for name in absent {
        assert!(reasons.insert(name), "{name} has two reasons");
        assert!(!measured.contains(name), "{name} is measured");
    }
    let unexplained: Vec<&str> = ZOOKEEPERS
        .split_whitespace()
        .filter(|name| !measured.contains(name) && !reasons.contains(name))
        .collect();
    assert_eq!(unexplained, Vec::<&str>::new());
}

#[test]
fn values_are_of_their_metrics_kind() {
    let reading = reading_with_locks(&Fake::leader());
    for metric in METRICS {
        let value = metric.value(&reading).expect("the fake leader measures everything");
        let is_summary = matches!(value, Value::Summary(_) | Value::Summaries(_));
        assert_eq!(is_summary, metric.kind == Kind::Summary, "{metric:?}");
        let is_histogram = matches!(value, Value::Histogram { .. });
        assert_eq!(is_histogram, metric.kind == Kind::Histogram, "{metric:?}");
    }
}

#[test]
fn a_metric_that_is_not_measured_is_absent() {
    let mut fake = Fake::standalone();
    fake.counters.response_sizes = None;
    fake.counters.disk.last_image = None;
    let mut reading = reading(&fake);
    reading.descriptors = Descriptors::default();
    for text in [mntr(&reading), prometheus(&reading)] {
        for name in ["client_response_size", "last_image", "file_descriptor"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
}

#[test]
fn no_value_is_a_constant() {
    // Whatever is measured differs between a server at rest and one with figures.
    let at_rest = Reading::default();
    let busy = reading_with_locks(&Fake::leader());
    let unchanged: Vec<_> = METRICS
        .iter()
        .filter(|metric| metric.value(&at_rest) == metric.value(&busy))
        .map(|metric| metric.name)
        .collect();
    // The first is 0 in the fake server too, the other is which version this is.
    assert_eq!(unchanged, ["snapshot_error_count", "lockkeeper_build_info"]);
}

#[test]
fn mntr_has_a_key_and_a_value_on_every_line() {
    let text = mntr(&reading(&Fake::standalone()));
    let line = Regex::new(r"^zk_[a-z0-9_]+\t[^\t]+$").unwrap();
    for each in text.lines() {
        assert!(line.is_match(each), "{each}");
    }
    assert_eq!(pairs(&text).len(), text.lines().count(), "a key twice");
    assert!(text.ends_with('\n'));
    assert!(text.starts_with(&format!(
        "zk_version\t{}\nzk_server_state\tstandalone\nzk_avg_latency\t1.6\n",
        full_version()
    )));
}

#[test]
fn mntr_writes_whole_numbers_plain_and_means_with_a_point() {
    let text = mntr(&reading(&Fake::standalone()));
    let pairs = pairs(&text);
    for (key, value) in [
        ("zk_min_latency", "1"),
        ("zk_max_latency", "2"),
        ("zk_znode_count", "5"),
        ("zk_uptime", "1644167"),
        ("zk_global_sessions", "3"),
        ("zk_connection_rejected", "4"),
        ("zk_response_bytes", "4900"),
        ("zk_open_file_descriptor_count", "12"),
        ("zk_avg_fsynctime", "1.5"),
        ("zk_min_fsynctime", "1"),
        ("zk_max_fsynctime", "2"),
        ("zk_cnt_fsynctime", "4"),
        ("zk_sum_fsynctime", "6"),
        ("zk_avg_sync_processor_batch_size", "17.75"),
        ("zk_avg_lockkeeper_checkpoint_time", "5.0"),
        ("zk_p50_readlatency", "1"),
        ("zk_p999_readlatency", "2"),
        ("zk_cnt_2_ack_latency", "2"),
        ("zk_sum_2_ack_latency", "3"),
        ("zk_sum_dbinittime", "42"),
        ("zk_children_lockkeeper_events_fired", "4"),
    ] {
        assert_eq!(pairs.get(key), Some(&value), "{key}");
    }
    assert!(!pairs.contains_key("zk_peer_state"));
}

#[test]
fn what_only_a_leader_knows_is_shown_by_leaders_only() {
    let mut fake = Fake::leader();
    let text = mntr(&reading(&fake));
    for (key, value) in [
        ("zk_server_state", "leader"),
        ("zk_learners", "3"),
        ("zk_synced_followers", "1"),
        ("zk_synced_non_voting_followers", "1"),
        ("zk_synced_observers", "1"),
        ("zk_pending_syncs", "6"),
        ("zk_leader_uptime", "9000"),
        ("zk_last_proposal_size", "48"),
        ("zk_quorum_size", "3"),
        ("zk_lockkeeper_elections", "3"),
        ("zk_lockkeeper_requests_forwarded", "12"),
    ] {
        assert_eq!(pairs(&text).get(key), Some(&value), "{key}");
    }
    fake.status.mode = Mode::Follower;
    fake.status.leading_ms = None;
    let text = mntr(&reading(&fake));
    for key in ["learners", "synced_", "pending_syncs", "leader_uptime", "proposal_size"] {
        assert!(!text.contains(&format!("zk_{key}")), "{key} in {text}");
    }
    assert_eq!(pairs(&text)["zk_lockkeeper_leader"], "1");
    let standalone = mntr(&reading(&Fake::standalone()));
    for key in ["leader", "quorum_size", "local_sessions", "peers", "elections", "forwarded"] {
        assert!(!standalone.contains(key), "{key} in {standalone}");
    }
}

#[test]
fn members_of_an_ensemble_show_their_peer_state() {
    for (mode, state) in [
        (Mode::Leader, "leading - broadcast"),
        (Mode::Follower, "following - broadcast"),
        (Mode::Observer, "observing - broadcast"),
    ] {
        let mut fake = Fake::standalone();
        fake.status.mode = mode;
        assert_eq!(pairs(&mntr(&reading(&fake)))["zk_peer_state"], state);
    }
}

/// A label and its value, which has escapes.
const LABEL: &str = r#"[a-z]+="([^"\\]|\\.)*""#;

/// The grammar of the text format 0.0.4, as far as it is used: every sample follows its
/// family's HELP and TYPE, no family twice, no sample twice.
fn check_prometheus(text: &str) -> BTreeMap<String, f64> {
    let sample = Regex::new(&format!(
        "^([a-z_][a-z0-9_]*)(\\{{{LABEL}(,{LABEL})*\\}})? (-?[0-9.]+(e-?[0-9]+)?|NaN)$"
    ))
    .unwrap();
    let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
    let mut family = ("", "");
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("help has a text").0;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split_once(' ').expect("type has a kind");
            assert_eq!(family.0, help);
            assert!(families.insert(family.0), "{} twice", family.0);
            assert!(["gauge", "counter", "summary", "histogram"].contains(&family.1));
        } else {
            let found = sample.captures(line).unwrap_or_else(|| panic!("{line}"));
            let name = found.get(1).unwrap().as_str();
            let suffix = name.strip_prefix(family.0).expect("samples follow their family");
            let suffixes: &[&str] = match family.1 {
                "summary" => &["_count", "_sum", ""],
                "histogram" => &["_count", "_sum", "_bucket"],
                _ => &[""],
            };
            let has_quantile = line.contains("quantile=\"");
            assert_eq!(has_quantile, family.1 == "summary" && suffix.is_empty(), "{line}");
            assert!(suffixes.contains(&suffix), "{line}");
            let key = line.rsplit_once(' ').unwrap().0.to_string();
            let value = found[6].parse().unwrap();
            assert!(samples.insert(key, value).is_none(), "{line} twice");
        }
    }
    samples
}

#[test]
fn prometheus_text_is_valid_and_agrees_with_mntr() {
    let reading = reading_with_locks(&Fake::standalone());
    let samples = check_prometheus(&prometheus(&reading));
    for (name, value) in [
        ("znode_count", 5.0),
        ("avg_latency", 1.6),
        ("fsynctime_count", 4.0),
        ("fsynctime_sum", 6.0),
        ("readlatency_sum", 3.9),
        ("fsynctime{quantile=\"0.999\"}", 2.0),
        ("lockkeeper_fsync_seconds_count", 4.0),
        ("lockkeeper_fsync_seconds_bucket{le=\"0.001024\"}", 2.0),
        ("lockkeeper_fsync_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("read_per_namespace_sum{key=\"app\"}", 150.0),
        ("lockkeeper_lock_queue{lock=\"/a \\\"b\\\"\"}", 2.0),
        ("lockkeeper_zxid", 4_294_967_366.0),
        ("lockkeeper_connections_cut{key=\"malformed\"}", 2.0),
        ("lockkeeper_last_image_timestamp_seconds", 1_795_228_630.0),
        ("lockkeeper_locks{key=\"read-write\"}", 1.0),
        ("lockkeeper_lock_findings{key=\"mixed-dialects\"}", 1.0),
        ("lockkeeper_lock_counter_max_ratio", 0.25),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    let text = mntr(&reading);
    for (key, value) in pairs(&text) {
        if let Some(sample) = samples.get(key.trim_start_matches("zk_")) {
            assert_eq!(value.parse(), Ok(*sample), "{key}");
        }
    }
}

/// `changes` counts from a value to another one, and from NaN to the first one; not from no sample to one.
#[test]
fn a_summary_has_its_quantiles_before_its_first_value() {
    let mut fake = Fake::leader();
    fake.counters.measured = Measured::default();
    let reading = reading(&fake);
    let samples = check_prometheus(&prometheus(&reading));
    for part in ["0.5", "0.95", "0.99", "0.999"] {
        assert!(samples[&format!("leader_unavailable_time{{quantile=\"{part}\"}}")].is_nan());
    }
    assert_eq!(samples["leader_unavailable_time_count"], 0.0);
    let text = mntr(&reading);
    assert!(!text.contains("NaN") && !text.contains("zk_p50_"), "{text}");
}

/// The alert that no server leads asks for it, when none does.
#[test]
fn a_server_without_a_leader_knows_how_many_are_to_vote() {
    let mut fake = Fake::leader();
    fake.status.mode = Mode::Looking;
    fake.status.leading_ms = None;
    let samples = check_prometheus(&prometheus(&reading(&fake)));
    assert_eq!(samples["quorum_size"], 3.0);
    assert!(!samples.contains_key("leader_uptime"));
}

#[test]
fn prometheus_text_is_valid_at_the_extremes() {
    let mut fake = Fake::standalone();
    fake.counters.counts.packets_sent = u64::MAX;
    fake.counters.measured.set(Quantity::Fsync, &[u64::MAX]);
    fake.status.zxid = -1;
    let samples = check_prometheus(&prometheus(&reading(&fake)));
    assert_eq!(samples["packets_sent"], i64::MAX as f64);
    assert_eq!(samples["lockkeeper_zxid"], -1.0);
}

#[test]
fn the_documents_table_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/METRICS.md");
    if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        written,
        document(),
        "docs/METRICS.md: run the tests once with LOCKKEEPER_WRITE_DOCS=1"
    );
}

/// Every line of `mntr` and `/metrics`, of a leader that measures everything.
#[test]
fn the_texts_are_those_of_the_golden_file() {
    let process = Process {
        cpu_seconds: Some(1.5),
        resident_bytes: Some(1 << 20),
        virtual_bytes: Some(1 << 30),
        threads: Some(9),
        started_seconds: Some(1_795_226_992.5),
    };
    let reading = reading_with_locks(&Fake::leader());
    let reading = Reading { process, wall_ms: 1_795_228_636_500, ..reading };
    let texts = mntr(&reading) + &prometheus(&reading);
    // They differ from build to build.
    let is_of_build = |line: &&str| line.contains("zk_version") || line.contains("built=");
    let text: String = texts.split_inclusive('\n').filter(|line| !is_of_build(line)).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/dashboards/metrics.txt");
    if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == text, "{path}: run the tests once with LOCKKEEPER_WRITE_DOCS=1");
}

/// Names of ZooKeeper 3.9's metrics, without those of its sets' members.
const ZOOKEEPERS: &str = "\
    avg_latency min_latency max_latency packets_received packets_sent num_alive_connections \
    outstanding_requests uptime znode_count watch_count ephemerals_count approximate_data_size \
    global_sessions local_sessions open_file_descriptor_count max_file_descriptor_count \
    connection_drop_probability last_client_response_size max_client_response_size \
    min_client_response_size outstanding_tls_handshake auth_failed_count \
    non_mtls_remote_conn_count non_mtls_local_conn_count quorum_size learners synced_followers \
    synced_non_voting_followers synced_observers pending_syncs leader_uptime last_proposal_size \
    max_proposal_size min_proposal_size quota_count_limit_per_namespace \
    quota_count_usage_per_namespace quota_bytes_limit_per_namespace \
    quota_bytes_usage_per_namespace commit_count proposal_count diff_count snap_count \
    looking_count connection_request_count connection_rejected connection_drop_count \
    connection_revalidate_count \
    revalidate_count stale_sessions_expired sessionless_connections_expired bytes_received_count \
    response_bytes watch_bytes unrecoverable_error_count digest_mismatches_count stale_requests \
    stale_requests_dropped stale_replies throttled_ops large_requests_rejected \
    request_throttle_wait_count learner_proposal_received_count learner_commit_received_count \
    response_packet_cache_hits response_packet_cache_misses \
    response_packet_get_children_cache_hits response_packet_get_children_cache_misses \
    ensemble_auth_success ensemble_auth_fail ensemble_auth_skip outstanding_changes_queued \
    outstanding_changes_removed prep_processor_request_queued sync_processor_request_queued \
    request_commit_queued tls_handshake_exceeded unsuccessful_handshake insecure_admin_count \
    quota_exceeded_error_per_namespace snapshot_error_count restore_error_count fsynctime \
    snapshottime dbinittime restore_time election_time unavailable_time leader_unavailable_time \
    follower_sync_time observer_sync_time startup_snap_load_time startup_txns_loaded \
    startup_txns_load_time node_created_watch_count node_deleted_watch_count \
    node_changed_watch_count node_children_watch_count sync_processor_batch_size \
    sync_processor_queue_size prep_processor_queue_size read_commit_proc_req_queued \
    write_commit_proc_req_queued commit_commit_proc_req_queued inflight_snap_count \
    inflight_diff_count connection_token_deficit readlatency updatelatency propagation_latency \
    proposal_latency commit_propagation_latency quorum_ack_latency \
    sync_processor_queue_flush_time_ms close_session_prep_time jvm_pause_time_ms \
    request_throttle_queue_time_ms read_per_namespace write_per_namespace ack_latency \
    commit_process_time read_commitproc_time_ms write_commitproc_time_ms read_final_proc_time_ms \
    write_final_proc_time_ms local_write_committed_time_ms server_write_committed_time_ms \
    write_batch_time_in_commit_processor read_commit_proc_issued write_commit_proc_issued \
    requests_in_session_queue pending_session_queue_size reads_after_write_in_session_queue \
    reads_issued_from_session_queue session_queues_drained prep_process_time \
    prep_processor_queue_time_ms sync_process_time sync_processor_queue_time_ms \
    sync_processor_queue_and_flush_time_ms proposal_ack_creation_latency learner_handler_qp_size \
    concurrent_request_processing_in_commit_processor \
    time_waiting_empty_pool_in_commit_processor_read_ms quit_leading_due_to_disloyal_voter \
    dead_watchers_queued dead_watchers_cleared dead_watchers_cleaner_latency add_dead_watcher_stall_time \
    om_proposal_process_time_ms om_commit_process_time_ms";
