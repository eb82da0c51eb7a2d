//! A long random history against the naive tree of the tests: a map from paths to znodes, copied for every
//! multi, written from the rules and not from the code. A failure names its seed and step.

use std::collections::BTreeMap;

use super::super::acl::digest_identity;
use super::*;
use crate::rng::Rng;
use crate::testing_model::{self as model, Model};

/// Rules of [`Fixture::new`].
const RULES: Rules = Rules { extended_types: true, ..Rules::DEFAULT };

/// The model, and who writes to it.
struct Naive {
    model: Model,
    zxid: i64,
    session: i64,
    ids: Vec<Identity>,
    events: Vec<model::Event>,
}

impl Naive {
    fn new() -> Self {
        let (ids, events) = (Vec::new(), Vec::new());
        Self { model: Model::new(), zxid: 0, session: 0, ids, events }
    }

    /// The identities as the model has them.
    fn ids(&self) -> Vec<model::acl::Id> {
        let text = |text: &Text| text.as_str().to_owned();
        self.ids.iter().map(|id| (text(&id.scheme), text(&id.id))).collect()
    }

    /// Does a write at the same time as [`Fixture::write`], and answers in the tree's words.
    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut Model, &model::Txn<'_>, &mut Vec<model::Event>) -> Result<T, i32>,
    ) -> Result<T, ErrorCode> {
        let (time_ms, ids) = (self.zxid * 1000, self.ids());
        let (zxid, session, steady_ms) = (self.zxid, self.session, time_ms);
        let rules = RULES;
        let txn = model::Txn { zxid, time_ms, steady_ms, session, ids: &ids, rules };
        let outcome = write(&mut self.model, &txn, &mut self.events);
        outcome.map_err(|code| ErrorCode::from_wire(code).expect("an error's code"))
    }
}

/// Draws requests that often hit something.
struct Dice {
    random: Rng,
    /// Of the znodes that are there.
    known: Vec<String>,
}

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.random.index(bound)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn path(&mut self) -> String {
        const ODD: [&str; 16] = [
            "/",
            "",
            "a",
            "/a/",
            "//a",
            "/a//b",
            "/a/..",
            "/.",
            "/zookeeper",
            "/zookeeper/config",
            "/zookeeper/quota",
            "/zookeeper/x",
            "/a/\u{1}",
            "/nope/x",
            "//",
            "/a0000000001",
        ];
        if self.below(10) == 0 {
            return self.one(&ODD).to_owned();
        }
        if self.below(2) == 0 {
            let number = self.below(self.known.len());
            return self.known[number].clone();
        }
        (0..=self.below(3)).map(|_| self.one(&["/a", "/b", "/c"])).collect()
    }

    /// More often than not of a znode that could be created.
    fn new_path(&mut self) -> String {
        let path = self.path();
        if self.below(2) == 0 { path + self.one(&["/a", "/b", "/c", "/d"]) } else { path }
    }

    fn version(&mut self) -> i32 {
        [-1, -1, -1, -1, -1, -1, 0, 0, 1, 2, -2][self.below(11)]
    }

    fn data(&mut self) -> Option<Bytes> {
        let length = self.below(20);
        (length > 0).then(|| Bytes::from(vec![b'x'; length - 1]))
    }

    fn acl(&mut self) -> Option<Vec<Acl>> {
        let alice = digest_identity(b"alice:p");
        Some(match self.below(40) {
            0 => return None,
            1 => Vec::new(),
            2 => vec![acl(31, "world", "bob")],
            3 => vec![acl(31, "auth", ""), acl(31, "auth", ""), acl(1, "world", "anyone")],
            4 => vec![acl(31, "digest", alice.id.as_str())],
            5 => vec![acl(27, "ip", "10.1.2.0/24"), acl(5, "world", "anyone")],
            6 => vec![acl(27, "world", "anyone")],
            7 => vec![acl(23, "world", "anyone")],
            8 => vec![acl(28, "world", "anyone")],
            _ => vec![Acl::open()],
        })
    }

    fn create(&mut self, inside_multi: bool) -> Create {
        const KINDS: [CreateKind; 4] =
            [CreateKind::Create, CreateKind::Create2, CreateKind::Container, CreateKind::Ttl];
        let kind = KINDS[self.below(4)];
        let usual = if kind == CreateKind::Ttl { 5 + self.below(2) } else { self.below(4) };
        let flags = if !inside_multi && self.below(12) == 0 { self.below(9) } else { usual };
        Create {
            kind,
            path: Text::from(self.new_path()),
            data: self.data(),
            acl: self.acl(),
            flags: i32::try_from(flags).unwrap(),
            ttl_ms: [5000, 1, 0][self.below(3)],
        }
    }

    fn op(&mut self) -> MultiOp {
        match self.below(8) {
            0..=3 => MultiOp::Create(self.create(true)),
            4 => MultiOp::Delete { path: Text::from(self.path()), version: self.version() },
            5 | 6 => MultiOp::SetData {
                path: Text::from(self.path()),
                data: self.data(),
                version: self.version(),
            },
            _ => MultiOp::Check { path: Text::from(self.path()), version: self.version() },
        }
    }

    fn ids(&mut self) -> Vec<Identity> {
        match self.below(5) {
            0 => vec![],
            1 => vec![Identity::ip("10.1.2.3"), digest_identity(b"alice:p")],
            2 => vec![Identity::ip("11.1.2.3"), digest_identity(b"bob:p"), digest_identity(b"x:y")],
            3 => vec![Identity { scheme: Text::from("super"), id: Text::default() }],
            _ => vec![Identity::ip("10.1.2.3")],
        }
    }
}

/// One write to both; answers what each answered.
fn step(dice: &mut Dice, naive: &mut Naive, f: &mut Fixture) -> (String, String) {
    dice.known = naive.model.znodes.keys().cloned().collect();
    naive.zxid += 1;
    naive.session = [7, 8, -9][dice.below(3)];
    naive.ids = dice.ids();
    (f.session, f.ids) = (naive.session, naive.ids.clone());
    match dice.below(20) {
        0..=8 => {
            let request = dice.create(false);
            let real = f.request(&request).map(|c| (c.path.as_str().to_owned(), c.stat));
            let expected = naive.write(|model, txn, events| model.create(txn, &request, events));
            (format!("{expected:?}"), format!("{real:?}"))
        }
        9..=11 => {
            let (path, version) = (dice.path(), dice.version());
            let real = f.delete(&path, version);
            let expected =
                naive.write(|model, txn, events| model.delete(txn, &path, version, events));
            (format!("{expected:?}"), format!("{real:?}"))
        }
        12 | 13 => {
            let (path, data, version) = (Text::from(dice.path()), dice.data(), dice.version());
            let data = data.as_deref();
            let real = f.write(|tree, ctx, ev| tree.set_data(ctx, &path, data, version, ev));
            let expected = naive.write(|model, txn, events| {
                model.set_data(txn, path.as_str(), data, version, events)
            });
            (format!("{expected:?}"), format!("{real:?}"))
        }
        14 | 15 => {
            let (path, list, version) = (Text::from(dice.path()), dice.acl(), dice.version());
            let list = list.as_deref();
            let real = f.write(|tree, ctx, _| tree.set_acl(ctx, &path, list, version));
            let expected =
                naive.write(|model, txn, _| model.set_acl(txn, path.as_str(), list, version));
            (format!("{expected:?}"), format!("{real:?}"))
        }
        16 => {
            let path = dice.path();
            let text = Text::from(path.as_str());
            let real = f.write(|tree, ctx, events| tree.delete_container(ctx, &text, events));
            let expected = naive
                .write(|model, txn, events| model.reap(txn.zxid, txn.steady_ms, &path, events));
            (format!("{expected:?}"), format!("{real:?}"))
        }
        17 if dice.below(2) == 0 => {
            naive.model.close_session(naive.zxid, naive.session, &mut naive.events);
            f.close_in_portions(1 + dice.below(3));
            (String::new(), String::new())
        }
        _ => {
            let ops: Vec<MultiOp> = (0..dice.below(5)).map(|_| dice.op()).collect();
            let real = f.multi(&ops).unwrap_or_else(|refused| refused);
            let expected = naive.write(|model, txn, events| Ok(model.multi(txn, &ops, events)));
            (format!("{expected:?}"), format!("{:?}", Ok::<_, ErrorCode>(real)))
        }
    }
}

fn compare_everything(naive: &Naive, f: &Fixture) {
    assert_consistent(&f.tree);
    let Naive { model, ids, .. } = naive;
    assert_eq!(f.tree.node_count(), model.znodes.len());
    let all_powerful = [Identity { scheme: Text::from("super"), id: Text::default() }];
    for (path, znode) in &model.znodes {
        let stat = znode.stat();
        let (data, real) = f.tree.get_data(&all_powerful, path).unwrap();
        assert_eq!((data, real), (znode.data.as_deref(), stat), "{path}");
        let list = znode.acl.iter().map(|entry| model::acl::shown(entry, false)).collect();
        assert_eq!(f.tree.get_acl(&all_powerful, path).unwrap(), (list, stat));
        let children = f.tree.children(&all_powerful, path).unwrap();
        let mut names: Vec<&str> = children.names().collect();
        names.sort_unstable();
        assert_eq!(names, Vec::from_iter(&znode.children));
        let may = model::acl::allowed(&znode.acl, &naive.ids(), model::acl::READ, RULES);
        let readable = may.map(|()| stat).map_err(|_| ErrorCode::NoAuth);
        assert_eq!(f.tree.exists(ids, path), readable);
    }
    for session in [7, 8, -9] {
        let mut real = Vec::new();
        f.tree.ephemerals(session, None, |path| real.push(Text::from(path)));
        real.sort_unstable();
        assert_eq!(format!("{real:?}"), format!("{:?}", model.ephemerals(session)));
    }
}

#[test]
fn a_random_history_agrees_with_the_naive_tree() {
    for seed in 0..6 {
        let mut dice = Dice { random: Rng::new(seed, 0), known: Vec::new() };
        let mut naive = Naive::new();
        let mut f = Fixture::new();
        let mut disk = BTreeMap::new();
        for number in 0..2000 {
            let (expected, real) = step(&mut dice, &mut naive, &mut f);
            assert_eq!(real, expected, "seed {seed}, step {number}");
            let heard: Vec<_> =
                f.events.drain(..).map(|e| (e.kind as i32, e.path.as_str().to_owned())).collect();
            let told: Vec<_> = naive.events.drain(..).map(|e| (e.kind, e.path)).collect();
            assert_eq!(heard, told, "seed {seed}, step {number}");
            if number % 100 == 0 {
                compare_everything(&naive, &f);
            }
            if dice.below(50) == 0 {
                restart(&mut f, &mut disk);
                compare_everything(&naive, &f);
            }
        }
        assert!(naive.model.znodes.len() > 10, "seed {seed} did nothing");
    }
}

/// Stores what changed, and goes on with the tree loaded from what is stored.
fn restart(f: &mut Fixture, disk: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    f.tree.drain_changes(usize::MAX, &mut |path, record| match record {
        Some(record) => {
            disk.insert(path.to_vec(), record.to_vec());
        }
        None => {
            disk.remove(path);
        }
    });
    let mut loaded = Tree::empty(f.tree.options().clone());
    for (path, record) in &*disk {
        loaded.load_record(path, record).unwrap();
    }
    loaded.load_finished().unwrap();
    assert_eq!(loaded.digest(), f.tree.digest());
    assert_eq!(loaded.legacy_digest(), f.tree.legacy_digest());
    f.tree = loaded;
}
