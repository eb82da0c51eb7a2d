//! create, in all its kinds.

use super::*;

#[test]
fn events_of_create_are_node_before_parent() {
    let mut f = Fixture::new();
    f.create("/a", 0).unwrap();
    assert_eq!(f.heard(), ["NodeCreated /a", "NodeChildrenChanged /"]);
    f.create("/a/b", 0).unwrap();
    assert_eq!(f.heard(), ["NodeCreated /a/b", "NodeChildrenChanged /a"]);
}

#[test]
fn sequence_counter_counts_all_creates_and_survives_deletes() {
    let mut f = Fixture::new();
    f.given(&["/q"]);
    assert_eq!(f.create("/q/s-", 2).unwrap(), "/q/s-0000000000");
    f.create("/q/plain", 0).unwrap();
    f.delete("/q/s-0000000000", -1).unwrap();
    assert_eq!(f.create("/q/s-", 3).unwrap(), "/q/s-0000000002");
    f.delete("/q/plain", -1).unwrap();
    f.delete("/q/s-0000000002", -1).unwrap();
    f.delete("/q", -1).unwrap();
    f.given(&["/q"]);
    assert_eq!(f.create("/q/s-", 2).unwrap(), "/q/s-0000000000");
}

#[test]
fn refused_creates_do_not_advance_the_sequence() {
    let mut f = Fixture::new();
    f.given(&["/q"]);
    f.set_acl("/q", &[acl(31 & !4, "world", "anyone")], -1).unwrap();
    assert_eq!(f.create("/q/s", 2), Err(ErrorCode::NoAuth));
    f.set_acl("/q", &[Acl::open()], -1).unwrap();
    let mut request = create("/q/s", 2);
    request.acl = None;
    assert_eq!(f.request(&request), Err(ErrorCode::InvalidAcl));
    assert_eq!(f.create("/q/s", 2).unwrap(), "/q/s0000000000");
}

#[test]
fn a_sequential_name_may_consist_of_the_number_alone() {
    let mut f = Fixture::new();
    f.given(&["/q"]);
    assert_eq!(f.create("/q/", 2).unwrap(), "/q/0000000000");
    assert_eq!(f.create("/", 2).unwrap(), "/0000000001");
}

#[test]
fn dot_is_refused_unless_a_number_follows() {
    let mut f = Fixture::new();
    f.given(&["/q"]);
    assert_eq!(f.create("/q/.", 0), Err(ErrorCode::BadArguments));
    assert_eq!(f.create("/q/.", 2).unwrap(), "/q/.0000000000");
}

#[test]
fn a_sequential_name_made_by_hand_is_in_the_way() {
    let mut f = Fixture::new();
    f.given(&["/q", "/q/s0000000001"]);
    assert_eq!(f.create("/q/s", 2), Err(ErrorCode::NodeExists));
    assert_eq!(f.create("/q/s", 2), Err(ErrorCode::NodeExists), "the counter stays");
    f.create("/q/other", 0).unwrap();
    assert_eq!(f.create("/q/s", 2).unwrap(), "/q/s0000000002");
}

#[test]
fn odd_paths_are_bad_arguments_only_once_the_parent_is_there() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    for path in ["/a/", "//a", "/a/..", "/\u{1}", "/\u{1f600}", "a", "", "/a\0", "/a/\u{fffd}"] {
        assert_eq!(f.create(path, 0), Err(ErrorCode::BadArguments), "{path:?}");
    }
    for path in ["/nope//x", "/nope/x", "/a/../b", "a/b", "/a//b"] {
        assert_eq!(f.create(path, 0), Err(ErrorCode::NoNode), "{path:?}");
    }
}

#[test]
fn creating_what_exists_is_node_exists() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    assert_eq!(f.create("/", 0), Err(ErrorCode::NodeExists));
    assert_eq!(f.create("/a", 0), Err(ErrorCode::NodeExists));
    assert_eq!(f.create("/zookeeper", 1), Err(ErrorCode::NodeExists));
    assert!(f.events.is_empty());
}

#[test]
fn ephemerals_have_no_children_but_containers_and_ttl_znodes_may() {
    let mut f = Fixture::new();
    f.create("/e", 1).unwrap();
    assert_eq!(f.create("/e/c", 0), Err(ErrorCode::NoChildrenForEphemerals));
    let mut container = create("/c", 4);
    container.kind = CreateKind::Container;
    f.request(&container).unwrap();
    f.create("/c/c", 0).unwrap();
    let mut ttl = create("/t", 5);
    (ttl.kind, ttl.ttl_ms) = (CreateKind::Ttl, 1);
    f.request(&ttl).unwrap();
    f.create("/t/c", 0).unwrap();
}

#[test]
fn ephemeral_owner_is_shown_for_ephemerals_only() {
    let mut f = Fixture::new();
    f.create("/e", 1).unwrap();
    let mut container = create("/c", 0);
    container.kind = CreateKind::Container;
    f.request(&container).unwrap();
    let mut ttl = create("/t", 6);
    (ttl.kind, ttl.ttl_ms) = (CreateKind::Ttl, 1);
    assert_eq!(f.request(&ttl).unwrap().path.as_str(), "/t0000000002");
    assert_eq!(f.stat("/e").ephemeral_owner, 7);
    assert_eq!(f.stat("/c").ephemeral_owner, 0);
    assert_eq!(f.stat("/t0000000002").ephemeral_owner, 0);
    assert_eq!(f.tree.ephemeral_count(), 1);
}

#[test]
fn create_ttl_without_extended_types_is_unimplemented() {
    let mut f = Fixture::with(Options::default());
    let mut ttl = create("/t", 5);
    (ttl.kind, ttl.ttl_ms) = (CreateKind::Ttl, 0);
    assert_eq!(f.request(&ttl), Err(ErrorCode::Unimplemented), "before the TTL is looked at");
    assert_eq!(f.create("/t", 5), Err(ErrorCode::Unimplemented));
}

#[test]
fn create_ttl_wants_a_ttl_of_40_bits_and_ttl_flags() {
    let mut f = Fixture::new();
    for (flags, ttl_ms) in [(5, 0), (5, 1 << 40), (0, -1), (0, 5), (4, -1)] {
        let mut ttl = create("/t", flags);
        (ttl.kind, ttl.ttl_ms) = (CreateKind::Ttl, ttl_ms);
        assert_eq!(f.request(&ttl), Err(ErrorCode::BadArguments), "{flags} {ttl_ms}");
    }
}

#[test]
fn checks_of_create_come_in_the_order_of_zookeeper() {
    let mut f = Fixture::new();
    f.given(&["/closed", "/closed/c"]);
    f.create("/closed/e", 1).unwrap();
    f.set_acl("/closed", &[acl(1, "world", "anyone")], -1).unwrap();
    let mut attempt = |path: &str, flags: i32, acl: Option<Vec<Acl>>| {
        let request = Create { acl, ..create(path, flags) };
        f.request(&request).unwrap_err()
    };
    let open = || Some(vec![Acl::open()]);
    assert_eq!(attempt("noslash", 9, None), ErrorCode::BadArguments);
    assert_eq!(attempt("noslash", 0, None), ErrorCode::BadArguments);
    assert_eq!(attempt("/nope/x", 0, None), ErrorCode::InvalidAcl);
    assert_eq!(attempt("/nope/x", 0, open()), ErrorCode::NoNode);
    assert_eq!(attempt("/closed/.", 0, open()), ErrorCode::NoAuth);
    assert_eq!(attempt("/closed/c", 0, open()), ErrorCode::NoAuth);
    assert_eq!(attempt("/closed/c/..", 0, open()), ErrorCode::BadArguments);
    assert_eq!(attempt("/closed/e/x/", 0, open()), ErrorCode::NoNode);
    assert_eq!(attempt("/closed/e/", 0, open()), ErrorCode::BadArguments);
    assert_eq!(attempt("/closed/e/x", 0, open()), ErrorCode::NoChildrenForEphemerals);
}

#[test]
fn null_data_is_kept_apart_from_empty_data() {
    let mut f = Fixture::new();
    let mut request = create("/null", 0);
    request.data = None;
    let created = f.request(&request).unwrap();
    f.create("/empty", 0).unwrap();
    assert_eq!(created.stat.data_length, 0);
    assert_eq!((f.data("/null"), f.data("/empty")), (None, Some(Vec::new())));
}

#[test]
fn others_may_create_below_zookeeper() {
    let mut f = Fixture::new();
    f.create("/zookeeper/mine", 0).unwrap();
    f.delete("/zookeeper/mine", -1).unwrap();
}

#[test]
fn an_ephemeral_needs_a_session() {
    let mut f = Fixture::new();
    for session in [0, i64::MIN, -1 << 56] {
        f.session = session;
        assert_eq!(f.create("/e", 1), Err(ErrorCode::SessionExpired));
    }
}
