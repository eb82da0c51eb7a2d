//! Draining, loading, digests.

use std::collections::BTreeMap;

use super::super::changes::{BadRecord, DRAIN_BYTES_MAX};
use super::super::{record, record_digest};
use super::*;
use crate::rng::Rng;

type Disk = BTreeMap<Vec<u8>, Vec<u8>>;

/// Drains everything onto `disk`, a few records at a time; answers the paths, tombstones with `-`.
fn drain(tree: &mut Tree, disk: &mut Disk) -> Vec<String> {
    let mut paths = Vec::new();
    loop {
        let more = tree.drain_changes(3, &mut |path, record| {
            let name = std::str::from_utf8(path).unwrap();
            if let Some(record) = record {
                paths.push(name.to_owned());
                disk.insert(path.to_vec(), record.to_vec());
            } else {
                paths.push(format!("-{name}"));
                disk.remove(path);
            }
        });
        assert_eq!(more, tree.changes_waiting() > 0);
        if !more {
            paths.sort_unstable();
            return paths;
        }
    }
}

fn load(disk: &Disk, options: &Options) -> Result<Tree, BadRecord> {
    let mut tree = Tree::empty(options.clone());
    for (path, value) in disk {
        tree.load_record(path, value)?;
    }
    tree.load_finished()?;
    let sum = disk.iter().map(|(path, value)| record_digest(path, value).unwrap());
    assert_eq!(sum.fold(0, u128::wrapping_add), tree.digest());
    Ok(tree)
}

#[test]
fn a_fresh_tree_waits_to_be_stored() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    assert_eq!(f.tree.changes_waiting(), 4);
    let all = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];
    assert_eq!(drain(&mut f.tree, &mut disk), all);
    assert!(drain(&mut f.tree, &mut disk).is_empty());
}

#[test]
fn a_drain_is_bounded_in_bytes_as_well_as_in_records() {
    let mut f = Fixture::new();
    let bytes = DRAIN_BYTES_MAX / 4;
    let data = "x".repeat(bytes);
    for number in 0..9 {
        let path = format!("/{number}");
        f.given(&[&path]);
        f.set(&path, &data, -1).unwrap();
    }
    let mut handed_out = Vec::new();
    loop {
        let mut drained = 0;
        let more = f.tree.drain_changes(usize::MAX, &mut |_, record| {
            drained += record.map_or(0, <[u8]>::len);
        });
        handed_out.push(drained);
        if !more {
            break;
        }
    }
    assert!(handed_out.iter().all(|drained| *drained < DRAIN_BYTES_MAX + 2 * bytes));
    assert!(handed_out.iter().sum::<usize>() > 9 * bytes && handed_out.len() == 3);
}

#[test]
fn of_long_paths_a_drain_hands_out_few() {
    let mut f = Fixture::new();
    drain(&mut f.tree, &mut Disk::new());
    let name = "x".repeat(DRAIN_BYTES_MAX / 64);
    for number in 0..12 {
        f.given(&[&format!("/{name}{number}")]);
    }
    let mut count = 0;
    assert!(f.tree.drain_changes(usize::MAX, &mut |_, _| count += 1));
    assert!((2..8).contains(&count), "{count}: each path costs a quarter of a drain");
}

#[test]
fn a_change_is_drained_once_with_its_parent() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    f.given(&["/p", "/p/a", "/p/b"]);
    drain(&mut f.tree, &mut disk);
    f.set("/p/a", "1", -1).unwrap();
    f.set("/p/a", "2", -1).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["/p/a"]);
    f.create("/p/c", 0).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["/p", "/p/c"]);
    f.set_acl("/p/b", &[acl(1, "world", "anyone")], -1).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["/p/b"]);
}

#[test]
fn a_znode_that_came_and_went_never_reaches_the_disk() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    drain(&mut f.tree, &mut disk);
    f.create("/a", 0).unwrap();
    f.delete("/a", -1).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["/"]);
}

#[test]
fn a_stored_znode_leaves_a_tombstone() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    f.given(&["/a"]);
    drain(&mut f.tree, &mut disk);
    f.delete("/a", -1).unwrap();
    assert_eq!(f.tree.changes_waiting(), 2);
    assert_eq!(drain(&mut f.tree, &mut disk), ["-/a", "/"]);
}

#[test]
fn a_znode_created_again_is_stored_and_its_tombstone_forgotten() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    f.given(&["/a"]);
    drain(&mut f.tree, &mut disk);
    f.delete("/a", -1).unwrap();
    f.create("/a", 0).unwrap();
    assert_eq!(f.tree.changes_waiting(), 2);
    f.delete("/a", -1).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["-/a", "/"]);
}

#[test]
fn a_loaded_znode_is_stored_and_clean() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    f.given(&["/a"]);
    drain(&mut f.tree, &mut disk);
    f.tree = load(&disk, f.tree.options()).unwrap();
    assert_eq!(f.tree.changes_waiting(), 0);
    f.delete("/a", -1).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["-/a", "/"]);
}

#[test]
fn during_replay_every_deletion_leaves_a_tombstone() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    drain(&mut f.tree, &mut disk);
    f.tree.keep_all_tombstones(true);
    f.create("/a", 0).unwrap();
    f.delete("/a", -1).unwrap();
    f.tree.keep_all_tombstones(false);
    f.create("/b", 0).unwrap();
    f.delete("/b", -1).unwrap();
    assert_eq!(drain(&mut f.tree, &mut disk), ["-/a", "/"]);
}

#[test]
fn everything_can_be_drained_again() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    f.given(&["/a", "/b"]);
    f.delete("/a", -1).unwrap();
    drain(&mut f.tree, &mut disk);
    f.tree.mark_all_changed();
    assert_eq!(f.tree.changes_waiting(), 5);
    f.tree.mark_all_changed();
    let mut again = Disk::new();
    drain(&mut f.tree, &mut again);
    assert_eq!(again, disk);
}

#[test]
fn a_failed_multi_leaves_the_disk_as_it_was() {
    let mut f = Fixture::new();
    let mut disk = Disk::new();
    f.given(&["/a"]);
    drain(&mut f.tree, &mut disk);
    let before = disk.clone();
    let delete = MultiOp::Delete { path: Text::from("/a"), version: -1 };
    let twice = MultiOp::Create(create("/b", 0));
    f.multi(&[delete, twice.clone(), twice]).unwrap_err();
    drain(&mut f.tree, &mut disk);
    assert_eq!(disk, before);
}

#[test]
fn all_that_a_znode_is_survives_drain_and_load() {
    let mut f = Fixture::new();
    f.create("/e", 1).unwrap();
    f.request(&Create { data: None, ..create("/null", 0) }).unwrap();
    f.request(&Create { kind: CreateKind::Container, ..create("/c", 0) }).unwrap();
    f.request(&Create { kind: CreateKind::Ttl, ttl_ms: 5, ..create("/t", 5) }).unwrap();
    f.create("/null/s", 2).unwrap();
    f.delete("/null/s0000000000", -1).unwrap();
    f.set("/e", "data", -1).unwrap();
    f.set_acl("/c", &[acl(1, "ip", "1.2.3.4"), acl(2, "digest", "a:b")], -1).unwrap();
    let mut disk = Disk::new();
    drain(&mut f.tree, &mut disk);
    let loaded = load(&disk, f.tree.options()).unwrap();
    assert_consistent(&loaded);
    assert_eq!(loaded.digest(), f.tree.digest());
    assert_eq!(loaded.legacy_digest(), f.tree.legacy_digest());
    for path in ["/", "/e", "/null", "/c", "/t", "/zookeeper/config"] {
        assert_eq!(loaded.stat_unchecked(path), f.tree.stat_unchecked(path));
    }
    assert_eq!(
        loaded.sessions_with_ephemerals().collect::<Vec<_>>(),
        [(7, vec![Text::from("/e")])]
    );
    assert_eq!(loaded.reapable(i64::MAX, 1, 9), ["/c", "/t"].map(Text::from));
    f.tree = loaded;
    assert_eq!(f.data("/null"), None);
    assert_eq!(f.create("/null/s", 2).unwrap(), "/null/s0000000001");
}

#[test]
fn quotas_go_on_after_a_load() {
    let mut f = Fixture::new();
    f.given(&["/a", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits"]);
    f.given(&["/zookeeper/quota/a/zookeeper_stats"]);
    let mut disk = Disk::new();
    drain(&mut f.tree, &mut disk);
    f.tree = load(&disk, f.tree.options()).unwrap();
    f.create("/a/b", 0).unwrap();
    let usage = "/zookeeper/quota/a/zookeeper_stats";
    assert_eq!(f.data(usage).unwrap(), b"count=2,bytes=0");
    assert_eq!(drain(&mut f.tree, &mut disk), ["/a", "/a/b", usage]);
}

#[test]
fn records_that_make_no_tree_are_refused_by_name() {
    let mut f = Fixture::new();
    f.create("/e", 1).unwrap();
    let mut disk = Disk::new();
    drain(&mut f.tree, &mut disk);
    let options = f.tree.options().clone();
    let value = disk[b"/e".as_slice()].clone();
    let broken = |path: &[u8], value: Option<&[u8]>| {
        let mut disk = disk.clone();
        match value {
            Some(value) => disk.insert(path.to_vec(), value.to_vec()),
            None => disk.remove(path),
        };
        let bad = load(&disk, &options).unwrap_err();
        (bad.path.clone(), bad.to_string())
    };
    for (path, value) in [
        (b"/a/b".as_slice(), Some(value.as_slice())),
        (b"/e/child", Some(&value)),
        (b"/e//", Some(&value)),
        (b"/zookeeper/config", Some(&value)),
        (b"/e", Some(&value[..50])),
        (b"/e", Some(b"")),
        (b"/e", Some(b"\x02")),
        (b"/zookeeper/quota", None),
    ] {
        let (named, message) = broken(path, value);
        assert_eq!(named.as_bytes(), path, "{message}");
    }
    assert!(broken(b"/\xff", Some(&value)).1.contains("UTF-8"));
    assert_eq!(broken(b"/", None).0, "/e", "the first one without a parent");
    let mut tree = load(&disk, &options).unwrap();
    assert!(tree.load_record(b"/e", &value).unwrap_err().reason.contains("does not come behind"));
    assert_eq!(Tree::empty(options).load_finished().unwrap_err().path, "/");
}

#[test]
fn decoding_never_panics_and_keeps_what_it_accepts() {
    let mut random = Rng::new(1, 0);
    let (mut accepted, mut loaded) = (0, 0);
    for round in 0..50_000 {
        let count = random.index(120);
        let mut bytes = random.bytes(count);
        // Mostly past the head, or nothing else would be tried.
        if round % 4 != 0 && bytes.len() >= 66 {
            bytes[0] = 1;
            bytes[1] &= 3;
            if round % 2 == 0 {
                bytes[62..66].copy_from_slice(&[0, 0, 0, 1]);
            }
        }
        let Ok(decoded) = record::decode(&bytes) else {
            continue;
        };
        accepted += 1;
        let mut tree = Tree::fresh(Options::default());
        // Behind those that every tree has: a record in front of them is refused by its path alone.
        if tree.load_record(b"/zz", &bytes).is_ok() {
            loaded += 1;
            assert_consistent(&tree);
            let znode = &tree.slab[tree.find("/zz").unwrap()];
            let mut encoded = Vec::new();
            record::encode(znode, tree.acls.list(znode.meta.acl), &mut encoded);
            assert_eq!(record::decode(&encoded), Ok(decoded));
        }
    }
    assert!(accepted > 1000 && loaded > 1000, "{accepted} {loaded}");
}

#[test]
fn the_digest_depends_on_everything_but_the_seed_and_the_history() {
    let history = |change: &dyn Fn(&mut Fixture)| {
        let mut f = Fixture::new();
        f.given(&["/a", "/b"]);
        change(&mut f);
        f.tree.digest()
    };
    let base = history(&|_| {});
    let different = [
        history(&|f| assert!(f.set("/a", "", -1).is_ok())),
        history(&|f| assert!(f.set("/a", "x", -1).is_ok())),
        history(&|f| assert!(f.set_acl("/a", &[Acl::open()], -1).is_ok())),
        history(&|f| assert!(f.set_acl("/a", &[acl(1, "world", "anyone")], -1).is_ok())),
        history(&|f| assert!(f.create("/c", 0).is_ok())),
        history(&|f| assert!(f.create("/c", 1).is_ok())),
        history(&|f| assert!(f.delete("/b", -1).is_ok())),
    ];
    for (number, digest) in different.iter().enumerate() {
        assert_ne!(*digest, base);
        assert!(!different[..number].contains(digest), "{number}");
    }
    let mut seeded = Fixture::with(Options { hash_seed: 99, ..Options::default() });
    seeded.given(&["/a", "/b"]);
    assert_eq!(seeded.tree.digest(), base);
}

#[test]
fn the_legacy_digest_is_zookeepers() {
    // CRC-32 of an all-zero root with one child below /zookeeper, computed by hand: the sum of
    // crc("" + 60 zero bytes) and crc("/zookeeper" + 60 zero bytes).
    let crc = |path: &[u8]| {
        let mut bytes = path.to_vec();
        bytes.extend([0; 60]);
        u64::from(crc32fast::hash(&bytes))
    };
    let expected = crc(b"") + crc(b"/zookeeper");
    assert_eq!(Fixture::new().tree.legacy_digest(), Some(expected));
    assert_eq!(Tree::fresh(Options::default()).legacy_digest(), None);
}
