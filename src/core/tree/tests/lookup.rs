//! From a path to its znode and back, also where every hash is the same: a lookup is exact because
//! of what it compares.

use std::collections::BTreeSet;

use super::*;
use crate::rng::Rng;

/// A fresh tree whose table knows no two paths apart by their hashes.
fn colliding() -> Fixture {
    let mut f = Fixture::new();
    let mut records = Vec::new();
    f.tree.drain_changes(usize::MAX, &mut |path, record| {
        records.push((path.to_vec(), record.expect("nothing was deleted").to_vec()));
    });
    records.sort_unstable();
    let mut tree = Tree::empty(f.tree.options().clone());
    tree.table = PathTable::colliding();
    for (path, record) in &records {
        tree.load_record(path, record).unwrap();
    }
    tree.load_finished().unwrap();
    f.tree = tree;
    f
}

/// Paths that are ends, beginnings or middles of each other, and equal names below many parents.
const RELATED: [&str; 20] = [
    "/a",
    "/b",
    "/aa",
    "/a/a",
    "/a/b",
    "/b/a",
    "/b/b",
    "/aa/a",
    "/a/aa",
    "/a/a/a",
    "/a/b/a",
    "/b/a/b",
    "/a/a/a/a",
    "/ab",
    "/ab/a",
    "/ab/ab",
    "/b/a/b/a",
    "/\u{e9}",
    "/\u{e9}/\u{e9}",
    "/a/\u{e9}",
];

/// Text that looks like the path of a znode that is there, and names none.
fn near(path: &str) -> Vec<String> {
    vec![
        format!("{path}/"),
        format!("/{path}"),
        format!("//{path}"),
        format!("x{path}"),
        format!("/x{path}"),
        format!("{path}x"),
        format!("{path}//"),
        format!("{path}/."),
        format!("/.{path}"),
        path[1..].to_owned(),
        path.replacen('/', "//", 2),
        path.replace('/', ""),
        path.replace('/', "\0"),
    ]
}

#[test]
fn related_paths_are_told_apart_even_if_all_hashes_are_equal() {
    for mut f in [Fixture::new(), colliding()] {
        f.given(&RELATED);
        assert_consistent(&f.tree);
        let known: BTreeSet<&str> = RELATED.into_iter().chain(["/zookeeper/quota"]).collect();
        let ids: BTreeSet<ZnodeId> =
            RELATED.iter().map(|path| f.tree.find(path).expect(path)).collect();
        assert_eq!(ids.len(), RELATED.len());
        for path in &known {
            for odd in near(path).iter().filter(|odd| !known.contains(odd.as_str())) {
                assert_eq!(f.tree.find(odd), None, "{odd:?}");
                assert_eq!(f.tree.exists(&[], &odd.replace('\0', "|")), Err(ErrorCode::NoNode));
                assert!(f.delete(odd, -1).is_err(), "{odd:?}");
                assert!(f.set(odd, "x", -1).is_err(), "{odd:?}");
            }
        }
        for odd in ["//", "///", "a", "x/a", "//a", "/a/", " ", "\0", "/\0", "/a\0", "./a"] {
            assert_eq!(f.tree.find(odd), None, "{odd:?}");
            assert!(f.delete(odd, -1).is_err(), "{odd:?}");
        }
        assert_eq!(f.tree.find(""), Some(ZnodeId::ROOT));
        assert_eq!(f.tree.find("/"), Some(ZnodeId::ROOT));
        assert_eq!(f.create("/", 0), Err(ErrorCode::NodeExists));
        for path in RELATED {
            assert_eq!(f.create(path, 0), Err(ErrorCode::NodeExists), "{path}");
        }
        // Those that are left keep their znodes while others with their names go.
        for path in RELATED.iter().rev() {
            let is_leaf = f.names(path).is_empty();
            assert_eq!(f.delete(path, -1).is_ok(), is_leaf, "{path}");
            assert_consistent(&f.tree);
        }
    }
}

#[test]
fn a_random_forest_is_found_by_its_paths_and_by_nothing_else() {
    for mut f in [Fixture::new(), colliding()] {
        let mut random = Rng::new(3, 0);
        let mut paths = vec![String::new()];
        let mut known: BTreeSet<String> = BTreeSet::new();
        for _ in 0..400 {
            let parent = paths[random.index(paths.len())].clone();
            // Few names, so that most are there more than once.
            let path = format!("{parent}/{}", ["a", "aa", "ab", "b", "ba"][random.index(5)]);
            let created = f.create(&path, 0);
            assert_eq!(created.is_ok(), known.insert(path.clone()), "{path}");
            paths.push(path);
        }
        for _ in 0..200 {
            let path = paths[1 + random.index(paths.len() - 1)].clone();
            if known.contains(&path) && f.names(&path).is_empty() {
                f.delete(&path, -1).unwrap();
                known.remove(&path);
            }
        }
        assert_consistent(&f.tree);
        for path in paths.iter().skip(1) {
            assert_eq!(f.tree.find(path).is_some(), known.contains(path), "{path}");
            for odd in near(path).iter().filter(|odd| !known.contains(odd.as_str())) {
                assert_eq!(f.tree.find(odd), None, "{odd:?}");
            }
        }
    }
}

#[test]
fn edits_are_taken_back_below_parents_of_equal_names() {
    for mut f in [Fixture::new(), colliding()] {
        f.given(&["/a", "/a/a", "/b", "/b/a"]);
        let before = digests_from_scratch(&f.tree);
        let delete = |path: &str| MultiOp::Delete { path: Text::from(path), version: -1 };
        let set = |path: &str| MultiOp::SetData {
            path: Text::from(path),
            data: Some(Bytes::from_static(b"other")),
            version: -1,
        };
        let ops = [
            set("/b/a"),
            delete("/a/a"),
            delete("/a"),
            MultiOp::Create(create("/b/a/a", 1)),
            set("/b/a/a"),
            delete("/b/a/a"),
            delete("/b/a"),
            delete("/b"),
            MultiOp::Create(create("/a", 0)),
            MultiOp::Create(create("/a/b", 0)),
            delete("/nope"),
        ];
        assert!(f.multi(&ops).is_err());
        assert_eq!(digests_from_scratch(&f.tree), before);
        assert_consistent(&f.tree);
    }
}

#[test]
fn paths_of_many_and_of_long_components_are_put_together() {
    let mut f = Fixture::new();
    let mut path = String::new();
    for depth in 0..500 {
        path.push('/');
        path.push_str(&"n".repeat(if depth % 100 == 99 { 3000 } else { 1 + depth % 3 }));
        f.given(&[&path]);
    }
    let id = f.tree.find(&path).unwrap();
    assert_eq!(ancestry::path(&f.tree.slab, id), path);
    assert_eq!(ancestry::path(&f.tree.slab, ZnodeId::ROOT), "/");
    assert_eq!(f.tree.find(&path[1..]), None);
    let size = f.tree.data_size();
    f.delete(&path, -1).unwrap();
    assert_eq!(f.tree.data_size(), size - path.len() as u64);
    assert_consistent(&f.tree);
}

#[test]
fn records_are_loaded_in_the_order_of_their_paths_alone() {
    let mut f = Fixture::new();
    // The order of bytes: `!` and `-` come before the slash, `0` behind it.
    f.given(&["/a", "/a!", "/a!/x", "/a/b", "/a/b-", "/a/b/c", "/a/b0", "/a0", "/a0/b", "/b"]);
    let mut records = Vec::new();
    while f.tree.drain_changes(usize::MAX, &mut |path, record| {
        records.push((path.to_vec(), record.expect("nothing was deleted").to_vec()));
    }) {}
    records.sort_unstable();
    let load = |records: &[(Vec<u8>, Vec<u8>)]| {
        let mut tree = Tree::empty(f.tree.options().clone());
        for (path, record) in records {
            tree.load_record(path, record)?;
        }
        Ok::<_, super::super::changes::BadRecord>(tree)
    };
    assert_eq!(load(&records).unwrap().digest(), f.tree.digest());
    for first in 0..records.len() {
        for second in first + 1..records.len() {
            let mut swapped = records.clone();
            swapped.swap(first, second);
            assert!(load(&swapped).is_err(), "{first} and {second}");
            let mut twice = records[..=second].to_vec();
            twice.push(records[first].clone());
            let refused = load(&twice).unwrap_err();
            assert_eq!(refused.reason, "does not come behind the one before it");
        }
    }
}
