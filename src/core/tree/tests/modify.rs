//! delete, setData and the end of a session.

use super::*;

#[test]
fn special_znodes_cannot_be_deleted() {
    let mut f = Fixture::new();
    for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "", "a", "/a\0"] {
        assert_eq!(f.delete(path, -1), Err(ErrorCode::BadArguments), "{path:?}");
    }
}

#[test]
fn delete_of_what_is_not_there_is_no_node() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    for path in ["/b", "/b/c", "/a/b", "//a", "/a/", "a/b", "/a/../a"] {
        assert_eq!(f.delete(path, -1), Err(ErrorCode::NoNode), "{path:?}");
    }
}

#[test]
fn delete_looks_at_the_version_before_the_children() {
    let mut f = Fixture::new();
    f.given(&["/a", "/a/b"]);
    assert_eq!(f.delete("/a", 5), Err(ErrorCode::BadVersion));
    assert_eq!(f.delete("/a", -2), Err(ErrorCode::BadVersion), "only -1 means any");
    assert_eq!(f.delete("/a", 0), Err(ErrorCode::NotEmpty));
    assert!(f.events.is_empty());
    f.delete("/a/b", 0).unwrap();
    f.delete("/a", -1).unwrap();
    assert_eq!(
        f.heard(),
        ["NodeDeleted /a/b", "NodeChildrenChanged /a", "NodeDeleted /a", "NodeChildrenChanged /"]
    );
}

#[test]
fn another_session_may_set_and_delete_an_ephemeral() {
    let mut f = Fixture::new();
    f.create("/e", 1).unwrap();
    f.session = 8;
    f.set("/e", "x", 0).unwrap();
    f.delete("/e", 1).unwrap();
    assert_eq!(f.tree.ephemeral_count(), 0);
}

#[test]
fn set_data_checks_syntax_then_znode_then_version() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    assert_eq!(f.set("/a/", "x", 9), Err(ErrorCode::BadArguments));
    assert_eq!(f.set("", "x", 9), Err(ErrorCode::BadArguments));
    assert_eq!(f.set("/b", "x", 9), Err(ErrorCode::NoNode));
    assert_eq!(f.set("/a", "x", 9), Err(ErrorCode::BadVersion));
    assert_eq!(f.set("/a", "x", -2), Err(ErrorCode::BadVersion));
    f.set("/a", "x", 0).unwrap();
    f.set("/a", "y", 1).unwrap();
    assert_eq!(f.heard(), ["NodeDataChanged /a", "NodeDataChanged /a"]);
}

#[test]
fn the_root_can_be_written() {
    let mut f = Fixture::new();
    f.set("/", "x", 0).unwrap();
    assert_eq!(f.set_acl("/", &[Acl::open()], 0).unwrap().aversion, 1);
    assert_eq!(f.data("/"), Some(b"x".to_vec()));
    assert_eq!(f.heard(), ["NodeDataChanged /"]);
}

#[test]
fn the_members_of_the_ensemble_are_not_written_as_data() {
    let mut f = Fixture::new();
    assert_eq!(f.set("/zookeeper/config", "x", -1), Err(ErrorCode::NoAuth));
    f.ids.push(Identity { scheme: Text::from("super"), id: Text::default() });
    assert_eq!(f.set("/zookeeper/config", "x", -1), Err(ErrorCode::BadArguments));
}

#[test]
fn the_members_of_the_ensemble_may_be_written_back_unchanged() {
    let mut f = Fixture::new();
    assert_eq!(f.set("/zookeeper/config", "", 0), Err(ErrorCode::NoAuth));
    f.ids.push(Identity { scheme: Text::from("super"), id: Text::default() });
    assert_eq!(f.set("/zookeeper/config", "", 0).unwrap().version, 1);
    assert_eq!(f.heard(), ["NodeDataChanged /zookeeper/config"]);
}

#[test]
fn null_data_can_be_set() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    let null = |tree: &mut Tree, ctx: &Context<'_>, events: &mut Vec<Event>| {
        tree.set_data(ctx, &Text::from("/a"), None, -1, events)
    };
    assert_eq!(f.write(null).unwrap().data_length, 0);
    assert_eq!(f.data("/a"), None);
}

#[test]
fn closing_a_session_removes_its_ephemerals_in_path_order() {
    let mut f = Fixture::new();
    f.given(&["/p"]);
    for path in ["/z", "/p/b", "/p/a"] {
        f.create(path, 1).unwrap();
    }
    f.session = 8;
    f.create("/p/other", 1).unwrap();
    f.create("/p/stays", 0).unwrap();
    f.events.clear();
    f.session = 7;
    f.write(Tree::close_session);
    assert_eq!(
        f.heard(),
        [
            "NodeDeleted /p/a",
            "NodeChildrenChanged /p",
            "NodeDeleted /p/b",
            "NodeChildrenChanged /p",
            "NodeDeleted /z",
            "NodeChildrenChanged /"
        ]
    );
    assert_eq!((f.stat("/p").pzxid, f.stat("/").pzxid), (f.zxid, f.zxid));
    assert_eq!(f.names("/p"), ["other", "stays"]);
    assert_consistent(&f.tree);
    f.events.clear();
    f.write(Tree::close_session);
    assert_eq!(f.heard(), [""; 0]);
}
