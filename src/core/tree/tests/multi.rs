//! multi.

use super::*;

fn delete(path: &str) -> MultiOp {
    MultiOp::Delete { path: Text::from(path), version: -1 }
}

fn set(path: &str, data: &'static str) -> MultiOp {
    MultiOp::SetData {
        path: Text::from(path),
        data: Some(Bytes::from_static(data.as_bytes())),
        version: -1,
    }
}

fn check(path: &str, version: i32) -> MultiOp {
    MultiOp::Check { path: Text::from(path), version }
}

fn with(kind: CreateKind, path: &str, flags: i32) -> MultiOp {
    MultiOp::Create(Create { kind, ttl_ms: 5, ..super::create(path, flags) })
}

fn plain(path: &str) -> MultiOp {
    with(CreateKind::Create, path, 0)
}

#[test]
fn creates_with_a_stat_are_answered_alike_and_share_one_zxid() {
    let mut f = Fixture::new();
    let results = f
        .multi(&[
            plain("/a"),
            with(CreateKind::Create2, "/b", 0),
            with(CreateKind::Container, "/c", 4),
            with(CreateKind::Ttl, "/d", 5),
            set("/a", "x"),
            check("/a", 1),
            delete("/b"),
        ])
        .unwrap();
    let [
        MultiResult::Create { path },
        MultiResult::Create2 { stat: b, .. },
        MultiResult::Create2 { stat: c, .. },
        MultiResult::Create2 { stat: d, .. },
        MultiResult::SetData { stat: a },
        MultiResult::Check,
        MultiResult::Delete,
    ] = results.as_slice()
    else {
        panic!("{results:?}");
    };
    assert_eq!(path.as_str(), "/a");
    assert_eq!([a.czxid, a.mzxid, b.czxid, c.czxid, d.czxid], [1; 5]);
    assert_eq!(f.stat("/").pzxid, 1);
    assert_eq!(
        f.heard(),
        [
            "NodeCreated /a",
            "NodeChildrenChanged /",
            "NodeCreated /b",
            "NodeChildrenChanged /",
            "NodeCreated /c",
            "NodeChildrenChanged /",
            "NodeCreated /d",
            "NodeChildrenChanged /",
            "NodeDataChanged /a",
            "NodeDeleted /b",
            "NodeChildrenChanged /"
        ]
    );
}

#[test]
fn a_failure_takes_everything_back_and_says_which_op_it_was() {
    let mut f = Fixture::new();
    f.given(&["/old", "/q"]);
    f.create("/q/e", 1).unwrap();
    f.set("/old", "before", -1).unwrap();
    f.events.clear();
    let (digest, stat) = (f.tree.digest(), f.stat("/q"));
    let results = f
        .multi(&[
            with(CreateKind::Create2, "/q/s", 2),
            plain("/new"),
            plain("/new/child"),
            set("/old", "after"),
            set("/old", "after that"),
            delete("/old"),
            delete("/q/e"),
            check("/nope", 0),
            plain("/never"),
        ])
        .unwrap_err();
    let mut expected = vec![MultiResult::Error(None); 7];
    expected.push(MultiResult::Error(Some(ErrorCode::NoNode)));
    expected.push(MultiResult::Error(Some(ErrorCode::RuntimeInconsistency)));
    assert_eq!(results, expected);
    assert!(f.heard().is_empty());
    assert_eq!(f.tree.digest(), digest);
    assert_consistent(&f.tree);
    assert_eq!(f.data("/old"), Some(b"before".to_vec()));
    assert_eq!(f.stat("/q"), stat);
    assert_eq!(
        f.tree.sessions_with_ephemerals().collect::<Vec<_>>(),
        [(7, vec![Text::from("/q/e")])]
    );
    assert_eq!(f.create("/q/s", 2).unwrap(), "/q/s0000000001", "as if nothing had been");
}

#[test]
fn events_heard_before_a_failed_multi_stay() {
    let mut f = Fixture::new();
    f.create("/a", 0).unwrap();
    f.multi(&[plain("/b"), plain("/b")]).unwrap_err();
    assert_eq!(f.heard(), ["NodeCreated /a", "NodeChildrenChanged /"]);
}

#[test]
fn an_empty_multi_succeeds() {
    let mut f = Fixture::new();
    assert_eq!(f.multi(&[]), Ok(Vec::new()));
}

#[test]
fn ops_see_the_ones_before_them() {
    let mut f = Fixture::new();
    let results = f
        .multi(&[
            plain("/a"),
            with(CreateKind::Create, "/a/s", 2),
            with(CreateKind::Create, "/a/s", 2),
            set("/a", "x"),
            check("/a", 1),
            delete("/a/s0000000000"),
            delete("/a/s0000000001"),
            delete("/a"),
            plain("/a"),
            check("/a", 0),
        ])
        .unwrap();
    assert_eq!(results.len(), 10);
    assert_eq!(f.stat("/a").version, 0);
    assert_consistent(&f.tree);
}

#[test]
fn the_container_flag_makes_a_container_inside_a_multi() {
    let mut f = Fixture::new();
    let results = f.multi(&[with(CreateKind::Create, "/c", 4)]).unwrap();
    assert!(matches!(results[0], MultiResult::Create2 { .. }));
    f.create("/c/x", 0).unwrap();
    f.delete("/c/x", -1).unwrap();
    assert_eq!(f.tree.reapable(0, 0, 9), [Text::from("/c")]);
}

#[test]
fn check_looks_at_syntax_then_znode_then_permission_then_version() {
    let mut f = Fixture::new();
    f.given(&["/a", "/hidden"]);
    f.set_acl("/hidden", &[acl(30, "world", "anyone")], -1).unwrap();
    let mut code = |path, version| match f.multi(&[check(path, version)]).unwrap_err()[0] {
        MultiResult::Error(Some(code)) => code,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(code("/a/", 9), ErrorCode::BadArguments);
    assert_eq!(code("/b", 9), ErrorCode::NoNode);
    assert_eq!(code("/hidden", 9), ErrorCode::NoAuth);
    assert_eq!(code("/a", 9), ErrorCode::BadVersion);
}

#[test]
fn a_failed_multi_forgets_no_list() {
    let mut f = Fixture::new();
    let own = Create { acl: Some(vec![acl(63, "world", "anyone")]), ..super::create("/a", 0) };
    f.request(&own).unwrap();
    let lists = f.tree.acls.len();
    f.multi(&[delete("/a"), plain("/b"), plain("/b")]).unwrap_err();
    assert_eq!(f.tree.get_acl(&[], "/a").unwrap().0, [acl(63, "world", "anyone")]);
    assert_eq!(f.tree.acls.len(), lists);
}
