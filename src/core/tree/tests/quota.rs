//! Quotas.

use super::super::quota::RECOUNTED_ZNODES_MAX;
use super::*;
use crate::rng::Rng;

const USAGE: &str = "/zookeeper/quota/a/zookeeper_stats";

fn enforcing() -> Fixture {
    let rules = Rules { enforce_quota: true, ..Rules::DEFAULT };
    Fixture::with(Options { rules, legacy_digest: true, ..Options::default() })
}

/// Does what the clients' setquota does.
fn give_quota(f: &mut Fixture, path: &str, limits: &str) {
    let node = format!("/zookeeper/quota{path}");
    f.create(&node, 0).unwrap();
    let limits_node = Create {
        data: Some(Bytes::copy_from_slice(limits.as_bytes())),
        ..create(&format!("{node}/zookeeper_limits"), 0)
    };
    f.request(&limits_node).unwrap();
    let usage = Create {
        data: Some(Bytes::from_static(b"count=0,bytes=0")),
        ..create(&format!("{node}/zookeeper_stats"), 0)
    };
    f.request(&usage).unwrap();
    f.events.clear();
}

fn usage(f: &Fixture) -> String {
    String::from_utf8(f.data(USAGE).unwrap()).unwrap()
}

#[test]
fn creating_the_usage_znode_counts_what_is_there() {
    let mut f = Fixture::new();
    f.given(&["/a", "/a/b", "/a/b/c", "/ab"]);
    f.set("/a/b", "12345", -1).unwrap();
    give_quota(&mut f, "/a", "count=10,bytes=-1");
    assert_eq!(usage(&f), "count=3,bytes=5");
}

#[test]
fn usage_follows_every_write_in_place() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    give_quota(&mut f, "/a", "count=10,bytes=10");
    let stat = f.stat(USAGE);
    f.create("/a/b", 0).unwrap();
    f.set("/a/b", "123", -1).unwrap();
    f.set("/a/b", "12", -1).unwrap();
    assert_eq!(usage(&f), "count=2,bytes=2");
    assert_eq!(Stat { data_length: 0, ..f.stat(USAGE) }, Stat { data_length: 0, ..stat });
    assert!(!f.heard().iter().any(|event| event.contains("zookeeper")));
    f.delete("/a/b", -1).unwrap();
    assert_eq!(usage(&f), "count=1,bytes=0");
    assert_consistent(&f.tree);
}

#[test]
fn only_the_deepest_quota_counts() {
    let mut f = Fixture::new();
    f.given(&["/a", "/a/b"]);
    give_quota(&mut f, "/a", "count=10");
    give_quota(&mut f, "/a/b", "count=10");
    f.create("/a/b/c", 0).unwrap();
    f.create("/a/x", 0).unwrap();
    assert_eq!(usage(&f), "count=3,bytes=0");
    assert_eq!(f.data("/zookeeper/quota/a/b/zookeeper_stats").unwrap(), b"count=2,bytes=0");
}

#[test]
fn hard_limits_are_enforced_when_configured() {
    let limits = "count=1,bytes=1=;byteHardLimit=5;countHardLimit=3";
    let mut f = enforcing();
    f.given(&["/a"]);
    give_quota(&mut f, "/a", limits);
    f.create("/a/1", 0).unwrap();
    f.set("/a/1", "12345", -1).unwrap();
    assert_eq!(f.set("/a/1", "123456", -1), Err(ErrorCode::QuotaExceeded));
    assert_eq!(f.set("/a/1", "123456", 99), Err(ErrorCode::QuotaExceeded), "before the version");
    f.set("/a/1", "54321", -1).unwrap();
    let too_big = Create { data: Some(Bytes::from_static(b"1")), ..create("/a/2", 0) };
    assert_eq!(f.request(&too_big), Err(ErrorCode::QuotaExceeded));
    f.create("/a/2", 0).unwrap();
    assert_eq!(f.create("/a/3", 0), Err(ErrorCode::QuotaExceeded));
    f.delete("/a/2", -1).unwrap();
    f.create("/a/3", 0).unwrap();

    let mut lenient = Fixture::new();
    lenient.given(&["/a"]);
    give_quota(&mut lenient, "/a", limits);
    for number in 0..5 {
        lenient.create(&format!("/a/{number}"), 0).unwrap();
    }
}

#[test]
fn soft_limits_are_not_enforced() {
    let mut f = enforcing();
    f.given(&["/a"]);
    give_quota(&mut f, "/a", "count=1,bytes=1");
    f.create("/a/1", 0).unwrap();
    f.set("/a/1", "12345", -1).unwrap();
}

#[test]
fn a_multi_cannot_overshoot() {
    let mut f = enforcing();
    f.given(&["/a"]);
    give_quota(&mut f, "/a", "count=-1,bytes=-1=;countHardLimit=2");
    let ops = [MultiOp::Create(create("/a/1", 0)), MultiOp::Create(create("/a/2", 0))];
    let results = f.multi(&ops).unwrap_err();
    assert_eq!(results[1], MultiResult::Error(Some(ErrorCode::QuotaExceeded)));
    assert_eq!(usage(&f), "count=1,bytes=0", "taken back with the rest");
    f.multi(&ops[..1]).unwrap();
}

#[test]
fn deleting_the_limits_ends_the_quota() {
    let mut f = enforcing();
    f.given(&["/a"]);
    give_quota(&mut f, "/a", "count=-1,bytes=-1=;countHardLimit=1");
    assert_eq!(f.create("/a/1", 0), Err(ErrorCode::QuotaExceeded));
    f.delete("/zookeeper/quota/a/zookeeper_limits", -1).unwrap();
    f.create("/a/1", 0).unwrap();
    assert_eq!(usage(&f), "count=1,bytes=0", "what was counted is gone");
}

/// Creates `/a` with this many children at once, and a quota without usage.
fn given_a_wide_tree(children: usize) -> Fixture {
    let mut f = Fixture::new();
    f.given(&["/a", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits"]);
    for number in 0..children {
        f.create(&format!("/a/{number}"), 0).unwrap();
    }
    f
}

fn count_again(times: usize) -> Vec<MultiOp> {
    let again = [
        MultiOp::Delete { path: Text::from_static(USAGE), version: -1 },
        MultiOp::Create(create(USAGE, 0)),
    ];
    std::iter::repeat_n(again, times).flatten().collect()
}

#[test]
fn a_multi_counts_a_large_tree_once() {
    let mut f = given_a_wide_tree(RECOUNTED_ZNODES_MAX as usize);
    f.create(USAGE, 0).unwrap();
    f.multi(&count_again(1)).unwrap();
    let before = f.tree.digest();
    let results = f.multi(&count_again(2)).unwrap_err();
    assert_eq!(results[2], MultiResult::Error(None));
    assert_eq!(results[3], MultiResult::Error(Some(ErrorCode::QuotaExceeded)));
    assert_eq!(f.tree.digest(), before);
    assert_eq!(usage(&f), format!("count={},bytes=0", RECOUNTED_ZNODES_MAX + 1));
    assert_consistent(&f.tree);
}

#[test]
fn a_multi_counts_small_trees_until_their_sum_is_large() {
    const TREE: usize = 100;
    let mut f = given_a_wide_tree(TREE - 1);
    f.create(USAGE, 0).unwrap();
    let first_and_allowance = 1 + RECOUNTED_ZNODES_MAX as usize / TREE;
    f.multi(&count_again(first_and_allowance)).unwrap();
    f.multi(&count_again(first_and_allowance)).unwrap();
    f.multi(&count_again(first_and_allowance + 1)).unwrap_err();
}

#[test]
fn a_failed_multi_leaves_the_next_its_count() {
    let mut f = given_a_wide_tree(RECOUNTED_ZNODES_MAX as usize);
    f.create(USAGE, 0).unwrap();
    f.multi(&count_again(2)).unwrap_err();
    f.multi(&count_again(1)).unwrap();
    for op in count_again(2) {
        f.multi(&[op]).unwrap();
    }
    for _ in 0..2 {
        f.delete(USAGE, -1).unwrap();
        f.create(USAGE, 0).unwrap();
    }
}

#[test]
fn a_usage_znode_below_what_it_counts_is_counted() {
    let mut f = Fixture::new();
    f.given(&["/zookeeper/quota/zookeeper"]);
    let stats = "/zookeeper/quota/zookeeper/zookeeper_stats";
    f.create(stats, 0).unwrap();
    assert_eq!(f.data(stats).unwrap(), b"count=5,bytes=0");
}

#[test]
fn nonsense_in_limits_or_usage_harms_no_write() {
    let mut f = enforcing();
    f.given(&["/a"]);
    give_quota(&mut f, "/a", "countHardLimit=x");
    f.create("/a/1", 0).unwrap();
    f.set(USAGE, "nonsense", -1).unwrap();
    f.create("/a/2", 0).unwrap();
    assert_eq!(usage(&f), "nonsense");
    f.set("/zookeeper/quota/a/zookeeper_limits", "countHardLimit=1", -1).unwrap();
    f.create("/a/3", 0).unwrap();
    f.set(USAGE, "count=9223372036854775807", -1).unwrap();
    assert_eq!(f.create("/a/4", 0), Err(ErrorCode::QuotaExceeded));
    f.delete(USAGE, -1).unwrap();
    f.create("/a/4", 0).unwrap();
    assert_consistent(&f.tree);
}

#[test]
fn a_usage_znode_for_nothing_counts_nothing() {
    let mut f = Fixture::new();
    give_quota(&mut f, "/a", "count=1");
    assert_eq!(usage(&f), "count=0,bytes=0");
    f.create("/a", 0).unwrap();
    assert_eq!(usage(&f), "count=1,bytes=0");
}

#[test]
fn usage_stays_equal_to_a_fresh_count_whatever_happens() {
    let mut random = Rng::new(1, 0);
    let mut f = enforcing();
    f.given(&["/a", "/b"]);
    give_quota(&mut f, "/a", "count=-1,bytes=-1=;byteHardLimit=60;countHardLimit=8");
    let (mut failed, mut done) = (0, 0);
    for _ in 0..3000 {
        let mut below = |bound: u64| random.below(bound);
        let ops: Vec<MultiOp> = (0..=below(4))
            .map(|_| {
                let path = format!("/{}/{}", ["a", "a", "b"][below(3) as usize], below(10));
                let data = Some(Bytes::from(vec![b'x'; below(20) as usize]));
                match below(3) {
                    0 => MultiOp::Create(Create { data, ..create(&path, 0) }),
                    1 => MultiOp::Delete { path: Text::from(path), version: -1 },
                    _ => MultiOp::SetData { path: Text::from(path), data, version: -1 },
                }
            })
            .collect();
        let before = f.tree.digest();
        if f.multi(&ops).is_ok() {
            done += 1;
        } else {
            failed += 1;
            assert_eq!(f.tree.digest(), before);
        }
        assert_consistent(&f.tree);
        let children = f.names("/a");
        let bytes: i32 = children.iter().map(|c| f.stat(&format!("/a/{c}")).data_length).sum();
        assert_eq!(usage(&f), format!("count={},bytes={bytes}", children.len() + 1));
        assert!(children.len() < 8 && bytes <= 60);
    }
    assert!(done > 500 && failed > 500, "{done} {failed}");
}
