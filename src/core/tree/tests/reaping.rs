//! Containers and times to live.

use super::*;

fn reap(f: &mut Fixture, path: &str) -> Result<(), ErrorCode> {
    f.write(|tree, ctx, events| tree.delete_container(ctx, &Text::from(path), events))
}

fn container(path: &str) -> Create {
    Create { kind: CreateKind::Container, ..create(path, 4) }
}

fn ttl(path: &str, ttl_ms: i64) -> Create {
    Create { kind: CreateKind::Ttl, ttl_ms, ..create(path, 5) }
}

#[test]
fn a_container_goes_after_its_last_child_and_not_before_the_first() {
    let mut f = Fixture::new();
    f.request(&container("/c")).unwrap();
    let far = 1_000_000_000;
    assert!(f.tree.reapable(far, 0, 10).is_empty(), "never used, and kept for ever");
    assert!(f.tree.reapable(1000 + 300_000, 300_000, 10).is_empty());
    assert_eq!(f.tree.reapable(1001 + 300_000, 300_000, 10), ["/c"].map(Text::from));
    f.create("/c/x", 0).unwrap();
    assert!(f.tree.reapable(far, 300_000, 10).is_empty());
    assert_eq!(reap(&mut f, "/c"), Err(ErrorCode::NotEmpty));
    f.delete("/c/x", -1).unwrap();
    assert_eq!(f.tree.reapable(0, 0, 10), ["/c"].map(Text::from));
    f.events.clear();
    reap(&mut f, "/c").unwrap();
    assert_eq!(f.heard(), ["NodeDeleted /c", "NodeChildrenChanged /"]);
    assert!(f.tree.reapable(far, 300_000, 10).is_empty());
    assert_eq!(reap(&mut f, "/c"), Err(ErrorCode::NoNode));
}

#[test]
fn a_stamp_that_is_years_ahead_keeps_no_znode_and_reaps_none() {
    let mut f = Fixture::new();
    f.request(&ttl("/before", 2500)).unwrap();
    f.wall_ahead_ms = 10 * 365 * 86_400_000;
    f.request(&ttl("/meanwhile", 2500)).unwrap();
    assert_eq!(reap(&mut f, "/before"), Err(ErrorCode::BadVersion), "at 3000 ms");
    f.wall_ahead_ms = 0;
    reap(&mut f, "/before").unwrap();
    assert_eq!(f.tree.reapable(4501, 0, 10), ["/meanwhile"].map(Text::from));
    reap(&mut f, "/meanwhile").unwrap();
}

#[test]
fn a_ttl_znode_stays_while_it_has_children() {
    let mut f = Fixture::new();
    f.request(&ttl("/t", 500)).unwrap();
    f.create("/t/x", 0).unwrap();
    assert!(f.tree.reapable(1_000_000, 0, 10).is_empty());
    f.delete("/t/x", -1).unwrap();
    assert_eq!(f.tree.reapable(1501, 0, 10), ["/t"].map(Text::from));
}

#[test]
fn set_data_renews_the_ttl_also_between_finding_and_deleting() {
    let mut f = Fixture::new();
    f.request(&ttl("/t", 1500)).unwrap();
    assert!(f.tree.reapable(2500, 0, 10).is_empty());
    assert_eq!(f.tree.reapable(2501, 0, 10), ["/t"].map(Text::from));
    f.set("/t", "x", -1).unwrap();
    assert!(f.tree.reapable(3500, 0, 10).is_empty());
    assert_eq!(reap(&mut f, "/t"), Err(ErrorCode::BadVersion), "at 3000 ms");
    f.zxid += 1;
    reap(&mut f, "/t").unwrap();
}

#[test]
fn the_reaper_deletes_nothing_else() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    f.create("/e", 1).unwrap();
    assert_eq!(reap(&mut f, "/a"), Err(ErrorCode::BadVersion));
    assert_eq!(reap(&mut f, "/e"), Err(ErrorCode::BadVersion));
    assert_eq!(reap(&mut f, "/zookeeper"), Err(ErrorCode::BadArguments));
    assert_eq!(reap(&mut f, "/x"), Err(ErrorCode::NoNode));
}

#[test]
fn the_reaper_needs_no_permission() {
    let mut f = Fixture::new();
    f.given(&["/p"]);
    f.request(&ttl("/p/t", 1)).unwrap();
    f.set_acl("/p", &[acl(1, "world", "anyone")], -1).unwrap();
    assert_eq!(f.delete("/p/t", -1), Err(ErrorCode::NoAuth));
    reap(&mut f, "/p/t").unwrap();
}

#[test]
fn no_more_are_found_than_asked_for() {
    let mut f = Fixture::new();
    for number in 0..5 {
        f.request(&ttl(&format!("/t{number}"), 1)).unwrap();
    }
    assert_eq!(f.tree.reapable(1_000_000, 0, 3).len(), 3);
    assert_eq!(f.tree.reapable(1_000_000, 0, 5).len(), 5);
    assert!(f.tree.reapable(1_000_000, 0, 0).is_empty());
}
