//! Reads.

use super::*;

#[test]
fn the_empty_path_is_the_root_for_reads() {
    let f = Fixture::new();
    assert_eq!(f.tree.exists(&[], ""), Ok(f.stat("/")));
    assert!(f.tree.get_data(&[], "").is_ok());
    assert_eq!(f.names(""), ["zookeeper"]);
}

#[test]
fn reads_do_not_check_syntax() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    for path in ["/a/", "//a", "a", "/nope", "/a/../a", "/\u{1}"] {
        assert_eq!(f.tree.exists(&[], path), Err(ErrorCode::NoNode), "{path:?}");
        assert_eq!(f.tree.get_data(&[], path).err(), Some(ErrorCode::NoNode));
        assert_eq!(f.tree.get_acl(&[], path).err(), Some(ErrorCode::NoNode));
        assert_eq!(f.tree.children(&[], path).err(), Some(ErrorCode::NoNode));
        assert_eq!(f.tree.all_children_number(&[], path).err(), Some(ErrorCode::NoNode));
    }
    assert_eq!(f.tree.exists(&[], "/a\0"), Err(ErrorCode::BadArguments));
    assert_eq!(f.tree.get_data(&[], "/a\0").err(), Some(ErrorCode::NoNode));
}

#[test]
fn all_children_number_counts_every_depth() {
    let mut f = Fixture::new();
    f.given(&["/a", "/a/b", "/a/b/c", "/ab"]);
    assert_eq!(f.tree.all_children_number(&[], "/a"), Ok(2));
    assert_eq!(f.tree.all_children_number(&[], "/a/b/c"), Ok(0));
    assert_eq!(f.tree.all_children_number(&[], "/"), Ok(7), "4 and those of /zookeeper");
}

#[test]
fn ephemerals_are_listed_by_plain_prefix() {
    let mut f = Fixture::new();
    for path in ["/ab", "/a", "/b"] {
        f.create(path, 1).unwrap();
    }
    let listed = |prefix| {
        let mut paths = Vec::new();
        f.tree.ephemerals(7, prefix, |path| paths.push(Text::from(path)));
        paths.sort_unstable();
        paths
    };
    for all in [None, Some(""), Some("/"), Some(" "), Some(" / ")] {
        assert_eq!(listed(all), ["/a", "/ab", "/b"].map(Text::from));
    }
    assert_eq!(listed(Some("/a")), ["/a", "/ab"].map(Text::from));
    assert!(listed(Some("/c")).is_empty());
    assert_eq!(f.tree.ephemerals(7, Some("/c"), |_| {}), 3, "that many were looked at");
    assert_eq!(f.tree.ephemerals(8, None, |_| {}), 0);
}

#[test]
fn sessions_with_ephemerals_are_listed_in_order() {
    let mut f = Fixture::new();
    for (session, path) in [(9, "/c"), (-5, "/b"), (9, "/a"), (i64::MAX, "/d")] {
        f.session = session;
        f.create(path, 1).unwrap();
    }
    let listed: Vec<_> = f.tree.sessions_with_ephemerals().collect();
    let expected = [
        (-5, vec![Text::from("/b")]),
        (9, vec![Text::from("/a"), Text::from("/c")]),
        (i64::MAX, vec![Text::from("/d")]),
    ];
    assert_eq!(listed, expected);
}
