//! The model's rules, one test each, as ZooKeeper's documents and measurements have them.

use lockkeeper_check::op::{Acl, Answer, Call, Code, Create, CreateOp, Identity, Mode, Stat};
use lockkeeper_check::tree::{Caller, Tree};

mod common;
use common::{children, create, create_as, delete, exists, get, set};

/// A tree with its next zxid.
struct World {
    tree: Tree,
    zxid: i64,
}

impl World {
    fn new() -> Self {
        Self { tree: Tree::new(true), zxid: 0 }
    }

    fn as_who(&mut self, session: i64, ids: &[Identity], call: &Call) -> Result<Answer, Code> {
        let who = Caller { session, ids };
        if call.is_read() {
            return self.tree.read(who, call);
        }
        self.zxid += 1;
        self.tree.apply(self.zxid, who, call)
    }

    fn run(&mut self, call: &Call) -> Result<Answer, Code> {
        self.as_who(1, &[], call)
    }

    fn stat(&mut self, path: &str) -> Stat {
        match self.run(&exists(path)) {
            Ok(Answer::Stat(stat)) => stat,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn made(&mut self, call: &Call) -> String {
        match self.run(call) {
            Ok(Answer::Path(path) | Answer::PathStat(path, _)) => path,
            other => panic!("{call:?}: {other:?}"),
        }
    }
}

fn made(paths: &[&str]) -> World {
    let mut world = World::new();
    for path in paths {
        world.made(&create(path, Mode::Persistent));
    }
    world
}

#[test]
fn a_fresh_tree_has_the_counts_of_a_fresh_server() {
    let mut world = World::new();
    let counts = |stat: Stat| (stat.cversion, stat.num_children);
    assert_eq!(counts(world.stat("/")), (-1, 1));
    assert_eq!(counts(world.stat("/zookeeper")), (-2, 2));
    assert_eq!(counts(world.stat("/zookeeper/quota")), (0, 0));
    assert_eq!(world.stat("/zookeeper/config").aversion, -1);
    let all = Call::AllChildrenNumber { path: "/".to_owned() };
    assert_eq!(world.run(&all), Ok(Answer::Number(3)));
}

#[test]
fn a_child_that_comes_and_goes_changes_cversion_by_two_and_pzxid_twice() {
    let mut world = made(&["/a"]);
    let before = world.stat("/a");
    world.made(&create("/a/x", Mode::Persistent));
    assert_eq!(world.stat("/a").pzxid, 2);
    world.run(&delete("/a/x")).unwrap();
    let due = Stat { cversion: before.cversion + 2, pzxid: 3, ..before };
    assert_eq!(world.stat("/a"), due);
}

#[test]
fn setting_the_same_data_raises_version_and_mzxid_alone() {
    let mut world = made(&["/a"]);
    let before = world.stat("/a");
    world.run(&set("/a", "x", 0)).unwrap();
    assert_eq!(world.stat("/a"), Stat { version: 1, mzxid: 2, ..before });
}

#[test]
fn setting_the_acl_raises_aversion_alone() {
    let mut world = made(&["/a"]);
    let before = world.stat("/a");
    let call = Call::SetAcl { path: "/a".to_owned(), acl: Acl::open(), version: -1 };
    world.run(&call).unwrap();
    assert_eq!(world.stat("/a"), Stat { aversion: 1, ..before });
}

#[test]
fn sequence_numbers_count_every_create_and_survive_deletes_and_refusals() {
    let mut world = made(&["/q", "/q/plain"]);
    world.run(&create("/q/plain", Mode::Persistent)).unwrap_err();
    assert_eq!(world.made(&create("/q/n-", Mode::EphemeralSequential)), "/q/n-0000000001");
    world.run(&delete("/q/n-0000000001")).unwrap();
    assert_eq!(world.made(&create("/q/", Mode::PersistentSequential)), "/q/0000000002");
    assert_eq!(world.made(&create("/q/.", Mode::PersistentSequential)), "/q/.0000000003");
}

#[test]
fn sequence_numbers_begin_again_with_a_new_parent() {
    let mut world = made(&["/q", "/q/a"]);
    for path in ["/q/a", "/q"] {
        world.run(&delete(path)).unwrap();
    }
    world.made(&create("/q", Mode::Persistent));
    assert_eq!(world.made(&create("/q/n", Mode::PersistentSequential)), "/q/n0000000000");
}

#[test]
fn refusals_come_in_the_order_of_the_checks() {
    let mut world = made(&["/a", "/a/x"]);
    world.made(&create("/e", Mode::Ephemeral));
    for (call, code) in [
        (create("/", Mode::Persistent), Code::NODE_EXISTS),
        (create("/nope//x", Mode::Persistent), Code::NO_NODE),
        (create("/a/", Mode::Persistent), Code::BAD_ARGUMENTS),
        (create("/a/..", Mode::Persistent), Code::BAD_ARGUMENTS),
        (create("a", Mode::Persistent), Code::BAD_ARGUMENTS),
        (create("/e/x", Mode::Persistent), Code::NO_CHILDREN_FOR_EPHEMERALS),
        (create_as(CreateOp::Create, "/t", Mode::PersistentWithTtl), Code::BAD_ARGUMENTS),
        (delete("/"), Code::BAD_ARGUMENTS),
        (delete("/zookeeper/config"), Code::BAD_ARGUMENTS),
        (delete("/nope/x"), Code::NO_NODE),
        (delete("/a"), Code::NOT_EMPTY),
        (Call::Delete { path: "/a".to_owned(), version: 5 }, Code::BAD_VERSION),
        (set("/a", "x", -2), Code::BAD_VERSION),
        (set("/a/", "x", -1), Code::BAD_ARGUMENTS),
        (get("/a/"), Code::NO_NODE),
    ] {
        assert_eq!(world.run(&call), Err(code), "{call:?}");
    }
    assert!(world.run(&get("")).is_ok(), "the empty path is the root to reads");
}

#[test]
fn znodes_with_a_time_to_live_need_the_extended_types() {
    let call = create_as(CreateOp::Ttl, "/t", Mode::PersistentWithTtl);
    let who = Caller { session: 1, ids: &[] };
    assert_eq!(Tree::new(false).apply(1, who, &call), Err(Code::UNIMPLEMENTED));
    let mut world = World::new();
    assert_eq!(world.made(&call), "/t");
    assert_eq!(world.stat("/t").ephemeral_owner, 0);
}

#[test]
fn containers_and_only_empty_ones_are_reaped() {
    let mut world = World::new();
    world.made(&create_as(CreateOp::Container, "/c", Mode::Container));
    world.made(&create("/c/x", Mode::Persistent));
    assert_eq!(world.tree.reap(9, "/c"), Err(Code::NOT_EMPTY));
    world.run(&delete("/c/x")).unwrap();
    assert_eq!(world.tree.reap(9, "/c"), Ok(()));
    assert_eq!(world.stat("/").pzxid, 9);
}

#[test]
fn a_session_takes_its_ephemerals_with_it_and_no_others() {
    let mut world = made(&["/p"]);
    world.made(&create("/p/mine", Mode::Ephemeral));
    world.as_who(2, &[], &create("/p/other", Mode::Ephemeral)).unwrap();
    assert_eq!(world.stat("/p/other").ephemeral_owner, 2);
    let gone = world.tree.close_session(7, 1);
    assert_eq!(gone.into_iter().collect::<Vec<_>>(), ["/p/mine"]);
    let stat = world.stat("/p");
    assert_eq!((stat.pzxid, stat.num_children, stat.cversion), (7, 1, 3));
}

#[test]
fn a_multi_sees_its_own_effects_and_fails_as_a_whole() {
    let mut world = made(&["/p"]);
    let check = |path: &str, version| Call::Check { path: path.to_owned(), version };
    let fine = Call::Multi(vec![
        create_as(CreateOp::Create, "/p/a", Mode::Persistent),
        set("/p", "y", 0),
        check("/p", 1),
        delete("/p/a"),
    ]);
    let Ok(Answer::Parts(parts)) = world.run(&fine) else { panic!("a multi answers parts") };
    assert_eq!(parts[0], Ok(Answer::Path("/p/a".to_owned())));
    assert_eq!((parts[2].clone(), parts[3].clone()), (Ok(Answer::Done), Ok(Answer::Done)));
    let before = (world.stat("/p"), world.tree.ephemerals_of(1));
    let failing = Call::Multi(vec![
        create("/p/e-", Mode::EphemeralSequential),
        delete("/p/e-0000000001"),
        create("/p/f", Mode::Ephemeral),
        set("/p", "z", 0),
        delete("/p"),
    ]);
    let due = [Code::OK, Code::OK, Code::OK, Code::BAD_VERSION, Code::RUNTIME_INCONSISTENCY];
    assert_eq!(world.run(&failing), Ok(Answer::Parts(due.map(Err).to_vec())));
    assert_eq!((world.stat("/p"), world.tree.ephemerals_of(1)), before);
    assert_eq!(world.made(&create("/p/n", Mode::PersistentSequential)), "/p/n0000000001");
    assert_eq!(world.run(&Call::Multi(vec![])), Ok(Answer::Parts(vec![])));
}

#[test]
fn no_data_and_empty_data_are_two_things() {
    let mut world = made(&["/a"]);
    for data in [None, Some(vec![])] {
        let path = "/a".to_owned();
        let call = Call::SetData { path, data: data.clone(), version: -1 };
        world.run(&call).unwrap();
        let Ok(Answer::Data(said, stat)) = world.run(&get("/a")) else { panic!("it is there") };
        assert_eq!((said, stat.data_length), (data, 0));
    }
}

#[test]
fn permissions_to_create_and_delete_are_the_parents() {
    let mut world = World::new();
    let user = [("digest".to_owned(), "u:secret".to_owned())];
    let entry =
        |perms, scheme: &str, id: &str| Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() };
    let acl = vec![entry(31, "auth", ""), entry(Acl::READ, "ip", "10.0.0.0/8")];
    let guarded = Call::Create(Create {
        op: CreateOp::Create,
        path: "/g".to_owned(),
        data: None,
        acl,
        mode: Mode::Persistent,
        ttl_ms: 0,
    });
    assert_eq!(world.run(&guarded), Err(Code::INVALID_ACL), "auth stands for nobody");
    world.as_who(1, &user, &guarded).unwrap();
    assert_eq!(world.run(&create("/g/x", Mode::Persistent)), Err(Code::NO_AUTH));
    world.as_who(1, &user, &create("/g/x", Mode::Persistent)).unwrap();
    assert_eq!(world.run(&delete("/g/x")), Err(Code::NO_AUTH));
    assert_eq!(world.run(&exists("/g")), Err(Code::NO_AUTH));
    let near = [("ip".to_owned(), "10.1.2.3".to_owned())];
    let seen = world.as_who(1, &near, &Call::GetAcl { path: "/g".to_owned() });
    let Ok(Answer::Acl(list, _)) = seen else { panic!("READ is enough: {seen:?}") };
    assert_eq!(list[0].id, "u:x", "the digest is masked");
}

#[test]
fn a_child_list_has_names_and_a_session_its_own_ephemerals() {
    let mut world = made(&["/p", "/p/b", "/p/a"]);
    let Ok(Answer::Children(names, Some(stat))) = world.run(&children("/p")) else {
        panic!("it is there")
    };
    assert_eq!((names, stat.num_children), (vec!["a".to_owned(), "b".to_owned()], 2));
    world.made(&create("/p/e", Mode::Ephemeral));
    let mine = |prefix: &str| Call::Ephemerals { prefix: prefix.to_owned() };
    assert_eq!(world.run(&mine("/")), Ok(Answer::Paths(vec!["/p/e".to_owned()])));
    assert_eq!(world.run(&mine("/p/x")), Ok(Answer::Paths(vec![])));
    assert_eq!(world.as_who(2, &[], &mine("")), Ok(Answer::Paths(vec![])));
}
