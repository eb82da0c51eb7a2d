//! What a fresh tree looks like, and what changes in stats.

use super::*;

#[test]
fn fresh_tree_has_the_initial_stats_of_zookeeper() {
    let f = Fixture::new();
    assert_eq!(f.stat("/"), Stat { cversion: -1, num_children: 1, ..Stat::default() });
    assert_eq!(f.stat("/zookeeper"), Stat { cversion: -2, num_children: 2, ..Stat::default() });
    assert_eq!(f.stat("/zookeeper/quota"), Stat::default());
    assert_eq!(f.stat("/zookeeper/config"), Stat { aversion: -1, ..Stat::default() });
    for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
        assert_eq!(f.data(path), Some(Vec::new()));
    }
    assert_eq!(f.names("/zookeeper"), ["config", "quota"]);
    assert_eq!((f.tree.node_count(), f.tree.data_size(), f.tree.ephemeral_count()), (4, 44, 0));
    let (config, _) = f.tree.get_acl(&[], "/zookeeper/config").unwrap();
    assert_eq!(config, [acl(1, "world", "anyone")]);
}

#[test]
fn create_sets_the_stat_of_the_znode_and_counts_in_the_parent() {
    let mut f = Fixture::new();
    let mut request = create("/a", 0);
    request.data = Some(Bytes::from_static(b"xyz"));
    let created = f.request(&request).unwrap();
    let expected = Stat {
        czxid: 1,
        mzxid: 1,
        pzxid: 1,
        ctime: 1000,
        mtime: 1000,
        data_length: 3,
        ..Stat::default()
    };
    assert_eq!((created.path.as_str(), created.stat), ("/a", expected));
    assert_eq!(f.stat("/a"), expected);
    assert_eq!(f.stat("/"), Stat { cversion: 0, num_children: 2, pzxid: 1, ..Stat::default() });
}

#[test]
fn create_and_delete_of_a_child_count_twice_in_cversion_and_pzxid_only() {
    let mut f = Fixture::new();
    f.given(&["/p"]);
    let before = f.stat("/p");
    f.create("/p/c", 0).unwrap();
    assert_eq!(f.stat("/p"), Stat { cversion: 1, num_children: 1, pzxid: 2, ..before });
    f.delete("/p/c", -1).unwrap();
    assert_eq!(f.stat("/p"), Stat { cversion: 2, num_children: 0, pzxid: 3, ..before });
}

#[test]
fn set_data_with_identical_bytes_counts() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    let before = f.stat("/a");
    let stat = f.set("/a", "", -1).unwrap();
    assert_eq!(stat, Stat { version: 1, mzxid: 2, mtime: 2000, ..before });
    assert_eq!(f.stat("/a"), stat);
}

#[test]
fn set_acl_raises_only_aversion() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    let before = f.stat("/a");
    let stat = f.set_acl("/a", &[Acl::open()], 0).unwrap();
    assert_eq!(stat, Stat { aversion: 1, ..before });
    assert!(f.heard().is_empty());
}

#[test]
fn grandchildren_change_nothing_in_a_znode() {
    let mut f = Fixture::new();
    f.given(&["/p", "/p/c"]);
    let before = f.stat("/p");
    f.create("/p/c/g", 0).unwrap();
    f.set("/p/c", "x", -1).unwrap();
    assert_eq!(f.stat("/p"), before);
}

#[test]
fn cversion_wraps_at_32_bits() {
    let mut f = Fixture::new();
    f.given(&["/p"]);
    let id = f.tree.find("/p").unwrap();
    f.tree.slab[id].meta.creates = i32::MAX;
    assert_eq!(f.stat("/p").cversion, -2);
    assert_eq!(f.create("/p/s", 2).unwrap(), "/p/s2147483647");
    assert_eq!(f.create("/p/s", 2).unwrap(), "/p/s-2147483648");
    assert_eq!(f.create("/p/s", 2).unwrap(), "/p/s-2147483647");
    f.tree.slab[id].meta.creates = -1;
    assert_eq!(f.create("/p/s", 2).unwrap(), "/p/s-000000001");
    assert_eq!(f.create("/p/s", 2).unwrap(), "/p/s0000000000");
}

#[test]
fn a_znode_takes_112_bytes_besides_name_and_data() {
    assert_eq!(std::mem::size_of::<super::super::znode::Znode>(), 112);
}

#[test]
fn children_lists_shrink_and_stay_right() {
    let mut f = Fixture::new();
    f.given(&["/p"]);
    for number in 0..200 {
        f.create(&format!("/p/{number}"), 0).unwrap();
    }
    for number in (0..200).filter(|number| number % 20 != 3) {
        f.delete(&format!("/p/{number}"), -1).unwrap();
        assert_consistent(&f.tree);
    }
    assert_eq!(f.names("/p").len(), 10);
}

#[test]
fn a_znode_in_the_place_of_one_that_was_amended_is_hashed_anew() {
    let mut f = Fixture::new();
    f.create("/a", 0).unwrap();
    let id = f.tree.find("/a").unwrap();
    let mut meta = f.tree.slab[id].meta;
    f.tree.amend(id, "/a", meta, crate::tree::edit::NewData::Replace(Some(b"data")));
    f.tree.unlink(id, "/a");
    meta.acl = f.tree.acls.acquire(&[Acl::open()], meta.acl);
    let other = f.tree.link(ZnodeId::ROOT, "/b", meta, None);
    assert_eq!(other, id);
    f.tree.amend(other, "/b", meta, crate::tree::edit::NewData::Keep);
    assert_eq!(digests_from_scratch(&f.tree), (f.tree.digest(), f.tree.legacy_digest().unwrap()));
}
