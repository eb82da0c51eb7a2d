//! ZooKeeper's client protocol as seen on the wire: every rule a test of its own, against a server
//! reached through a socket, with frames built by hand.
//!
//! The tables below say which test holds which of the reference's sixty edge cases, which row of
//! its list of malformed input, and which upstream defect is deliberately not copied. See
//! `fixture.rs` for how to run the same tests against Apache ZooKeeper, and `twins.rs` for what is
//! asked of both at once.

mod acl;
mod bytes;
mod fixture;
mod frames;
mod framing;
mod fuzz_short;
mod golden;
mod handshake;
mod hostile;
mod multi;
mod operators;
mod options;
mod ordering;
mod raw;
mod sasl;
mod sessions;
mod set_watches;
mod tree_rules;
mod twins;
mod watches;

/// Edge case, and the tests that hold it. No test: it needs an ensemble, see [`ENSEMBLE`].
const EDGE_CASES: [(u8, &[&str]); 60] = [
    (1, &["the_read_only_byte_is_answered_only_to_those_who_sent_it"]),
    (2, &["the_session_timeout_is_clamped"]),
    (3, &["a_client_from_the_future_is_closed_without_a_byte"]),
    (4, &["wrong_password_unknown_and_expired_sessions_get_identical_answers"]),
    (5, &["reattaching_closes_the_old_connection_and_keeps_id_and_password"]),
    (6, &["requests_pipelined_behind_the_connect_request_are_answered_in_order"]),
    (
        7,
        &[
            "a_bad_frame_length_closes_the_connection",
            "the_longest_frame_is_accepted_stored_and_read_back",
        ],
    ),
    (8, &["an_unknown_opcode_is_answered_with_unimplemented_and_a_close"]),
    (9, &["a_read_with_an_empty_body_is_malformed_and_the_connection_survives"]),
    (10, &["bytes_behind_a_valid_request_are_ignored"]),
    (11, &["a_ping_is_answered_with_its_own_xid_whatever_it_was"]),
    (12, &["auth_that_no_scheme_accepts_is_refused_and_closed", "digest_auth_always_succeeds"]),
    (13, &["ruok_is_answered_before_the_handshake_only"]),
    (14, &["a_word_that_is_not_whitelisted_is_named_in_the_answer"]),
    (15, &["close_session_is_answered_then_closed_and_takes_the_ephemerals"]),
    (16, &["a_lost_connection_keeps_its_ephemerals_until_the_timeout"]),
    (17, &["an_expired_session_is_closed_without_a_packet"]),
    (18, &[]),
    (19, &["a_thousand_pipelined_requests_are_answered_in_order"]),
    (20, &["the_event_of_a_write_arrives_before_its_reply"]),
    (21, &["the_zxid_of_replies_never_decreases_also_across_reconnects"]),
    (22, &["a_failed_write_consumes_a_zxid"]),
    (23, &["a_fresh_server_has_the_four_special_znodes"]),
    (24, &["create_and_delete_of_a_child_count_twice_in_cversion_and_pzxid"]),
    (25, &["set_data_with_the_same_bytes_still_counts"]),
    (26, &["set_acl_raises_only_the_acl_version"]),
    (27, &["sequence_numbers_count_every_create_and_survive_deletes"]),
    (28, &["a_refused_sequential_create_does_not_advance_the_counter"]),
    (29, &["a_sequential_path_may_end_in_a_slash"]),
    (30, &["a_dot_is_no_name_but_may_begin_a_sequential_one"]),
    (31, &["invalid_paths_are_refused_once_the_parent_is_found"]),
    (32, &["the_special_znodes_are_neither_created_nor_deleted"]),
    (33, &["only_ephemerals_may_not_have_children"]),
    (34, &["only_ephemerals_show_an_owner"]),
    (35, &["another_session_may_set_and_delete_an_ephemeral"]),
    (36, &["delete_checks_the_version_before_the_children"]),
    (37, &["only_minus_one_matches_any_version"]),
    (38, &["null_data_stays_null_and_empty_data_stays_empty"]),
    (
        39,
        &[
            "ttl_znodes_need_the_extended_types",
            "a_ttl_is_positive_and_below_two_to_the_forty",
            "create_ttl_without_a_ttl_mode_harms_nobody",
        ],
    ),
    (40, &["a_container_goes_with_its_last_child_and_not_before_its_first"]),
    (41, &["a_ttl_znode_goes_when_childless_and_unchanged_for_its_ttl"]),
    (42, &["a_multi_succeeds_at_one_zxid_and_types_its_creates"]),
    (43, &["a_failed_multi_answers_each_operation_and_changes_nothing"]),
    (44, &["an_empty_multi_succeeds_with_an_empty_list"]),
    (45, &["a_multi_holds_writes_only", "a_multi_read_holds_reads_only"]),
    (46, &["a_multi_sees_its_own_earlier_operations"]),
    (47, &["an_invalid_acl_is_refused", "a_null_acl_is_refused"]),
    (48, &["create_and_delete_ask_the_parent", "each_operation_needs_its_permission"]),
    (49, &["an_acl_hides_digests_from_those_who_may_not_change_it"]),
    (50, &["the_digest_of_a_password_is_zookeepers"]),
    (51, &["only_exists_leaves_a_watch_on_a_missing_znode"]),
    (52, &["a_deleted_znode_is_told_once_to_a_connection_that_watches_it_thrice"]),
    (53, &["a_child_watch_sees_children_come_and_go_and_nothing_else"]),
    (
        54,
        &[
            "a_persistent_watch_survives_its_events_and_the_znode",
            "a_one_shot_watch_beside_a_persistent_one_adds_no_event",
        ],
    ),
    (
        55,
        &[
            "a_recursive_watch_sees_every_depth_and_no_child_events",
            "a_recursive_watch_may_be_set_where_nothing_is_yet",
            "a_recursive_watch_on_the_root_sees_everything",
        ],
    ),
    (56, &["watches_are_checked_and_removed_by_their_type"]),
    (
        57,
        &[
            "a_data_watch_is_told_of_what_it_missed",
            "an_exist_watch_is_told_that_the_znode_is_there",
            "a_child_watch_is_told_of_what_it_missed",
            "watches_that_missed_nothing_are_registered",
        ],
    ),
    (58, &["an_event_that_the_watcher_may_not_read_is_not_delivered"]),
    (59, &[]),
    (60, &["srvr_tells_mode_zxid_and_nodes", "mntr_is_lines_of_key_tab_value"]),
];

/// Edge cases, or parts of them, that only an ensemble or a read-only server shows.
const ENSEMBLE: [(u8, &str); 4] = [
    (18, "a session that moved to another server: the old connection's write closes it"),
    (21, "reply zxids across reconnects to other servers"),
    (59, "a server in read-only mode"),
    (60, "Mode leader and follower, zk_synced_followers, the version of /zookeeper/config"),
];

/// Rows of the list of malformed input, and the tests that hold them.
const MALFORMED: [(&str, &[&str]); 14] = [
    ("length below 0 or above jute.maxbuffer", &["a_bad_frame_length_closes_the_connection"]),
    (
        "length 0 or shorter than the header",
        &["a_frame_shorter_than_its_header_closes_the_connection"],
    ),
    (
        "connect request with trailing bytes",
        &["the_protocol_version_and_trailing_bytes_are_ignored"],
    ),
    ("unknown opcode", &["an_unknown_opcode_is_answered_with_unimplemented_and_a_close"]),
    (
        "undecodable body",
        &[
            "an_undecodable_body_is_malformed_and_the_connection_survives",
            "an_undecodable_write_takes_no_zxid",
            "absurd_lengths_and_counts_are_malformed_and_cost_nothing",
        ],
    ),
    ("create mode that does not exist", &["a_create_mode_that_does_not_exist_is_a_bad_argument"]),
    ("setWatches with a null vector", &["set_watches_with_a_null_vector_is_malformed"]),
    (
        "addWatch mode and watcher type that do not exist",
        &["watch_modes_and_types_that_do_not_exist_are_malformed"],
    ),
    ("auth body undecodable", &["an_undecodable_auth_packet_closes_without_a_reply"]),
    ("auth refused", &["auth_that_no_scheme_accepts_is_refused_and_closed"]),
    (
        "sasl",
        &[
            "a_null_sasl_token_closes_the_connection",
            "a_sasl_token_without_users_is_answered_with_a_null_token",
            "tokens_that_make_no_sense_are_refused_and_harm_nobody",
        ],
    ),
    (
        "createSession and deleteContainer from a client",
        &["operations_of_the_server_itself_are_not_for_clients"],
    ),
    ("createTTL with flags 0", &["create_ttl_without_a_ttl_mode_harms_nobody"]),
    ("request on a session that is gone", &["an_expired_session_is_closed_without_a_packet"]),
];

/// Upstream defects that are not copied. Those without a test need an ensemble, or are harmless.
const NOT_COPIED: [(&str, &[&str]); 10] = [
    ("createTTL poison transaction", &["create_ttl_without_a_ttl_mode_harms_nobody"]),
    ("deleteContainer without ACLs", &["operations_of_the_server_itself_are_not_for_clients"]),
    ("createSession from a client", &["operations_of_the_server_itself_are_not_for_clients"]),
    ("wrong password disconnects the owner", &["a_wrong_password_does_not_disturb_the_owner"]),
    ("ReplyHeader instead of ConnectResponse in read-only mode (ensemble)", &[]),
    ("a quota's null stats end the server", &["quota_znodes_that_make_no_sense_harm_nobody"]),
    ("multi overshoots quotas", &["a_multi_cannot_overshoot_a_quota"]),
    (
        "addWatch without ACL check (delivery is filtered)",
        &["an_event_that_the_watcher_may_not_read_is_not_delivered"],
    ),
    ("reconfig checks the ACL last (ensemble)", &[]),
    ("sync answered by the leader alone (ensemble)", &[]),
];

/// The sources of all tests here.
const SOURCES: [&str; 14] = [
    include_str!("acl.rs"),
    include_str!("framing.rs"),
    include_str!("handshake.rs"),
    include_str!("hostile.rs"),
    include_str!("multi.rs"),
    include_str!("operators.rs"),
    include_str!("options.rs"),
    include_str!("ordering.rs"),
    include_str!("sasl.rs"),
    include_str!("sessions.rs"),
    include_str!("set_watches.rs"),
    include_str!("tree_rules.rs"),
    include_str!("twins.rs"),
    include_str!("watches.rs"),
];

#[test]
fn every_edge_case_names_tests_that_exist() {
    for (index, (number, tests)) in EDGE_CASES.iter().enumerate() {
        assert_eq!(usize::from(*number), index + 1, "the table is in order and complete");
        let is_for_an_ensemble = ENSEMBLE.iter().any(|(other, _)| other == number);
        assert!(!tests.is_empty() || is_for_an_ensemble, "edge case {number} has no test");
    }
    let edge_cases = EDGE_CASES.iter().flat_map(|(_, tests)| tests.iter());
    let others = MALFORMED.iter().chain(&NOT_COPIED).flat_map(|(_, tests)| tests.iter());
    for name in edge_cases.chain(others) {
        let declaration = format!("#[test]\nfn {name}() {{");
        let found = SOURCES.iter().filter(|source| source.contains(&declaration)).count();
        assert_eq!(found, 1, "{name}");
    }
}
