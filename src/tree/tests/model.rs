//! A long random history against a naive tree: a map from paths to znodes, copied for every multi.
//!
//! Written from the rules, not from the code. A failure names its seed and step.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::super::acl::digest_identity;
use super::*;
use crate::proto::EventType;

#[derive(Clone, Debug)]
struct Node {
    stat: Stat,
    creates: i32,
    owner: i64,
    data: Option<Vec<u8>>,
    acl: Vec<Acl>,
}

const CONTAINER: i64 = i64::MIN;

fn ttl_of(owner: i64) -> Option<i64> {
    (owner.cast_unsigned() >> 40 == 0xff_0000).then_some(owner & 0xff_ffff_ffff)
}

fn is_session(owner: i64) -> bool {
    owner != 0 && owner != CONTAINER && ttl_of(owner).is_none()
}

#[derive(Clone, Debug)]
struct Model {
    nodes: BTreeMap<String, Node>,
    heard: Vec<(EventType, String)>,
    zxid: i64,
    session: i64,
    ids: Vec<Identity>,
}

fn valid(path: &str) -> bool {
    path == "/"
        || path.starts_with('/')
            && path[1..].split('/').all(|part| !matches!(part, "" | "." | ".."))
            && path.chars().all(|c| (' '..='~').contains(&c))
}

impl Model {
    fn new() -> Self {
        let mut nodes = BTreeMap::new();
        for path in ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"] {
            let mut node = Node {
                stat: Stat::default(),
                creates: 0,
                owner: 0,
                data: Some(Vec::new()),
                acl: vec![Acl::open()],
            };
            if path == "/zookeeper/config" {
                node.stat.aversion = -1;
                node.acl = vec![acl(1, "world", "anyone")];
            }
            nodes.insert(path.to_owned(), node);
        }
        Self { nodes, heard: Vec::new(), zxid: 0, session: 0, ids: Vec::new() }
    }

    fn key(path: &str) -> &str {
        if path.is_empty() { "/" } else { path }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let below = self.nodes.keys().filter_map(|other| other.strip_prefix(&prefix));
        below.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned).collect()
    }

    fn stat(&self, path: &str) -> Stat {
        let node = &self.nodes[path];
        let num_children = i32::try_from(self.children(path).len()).unwrap();
        Stat {
            cversion: 2 * node.creates - num_children,
            num_children,
            data_length: i32::try_from(node.data.as_ref().map_or(0, Vec::len)).unwrap(),
            ephemeral_owner: if is_session(node.owner) { node.owner } else { 0 },
            ..node.stat
        }
    }

    fn may(&self, path: &str, wanted: i32) -> Result<(), ErrorCode> {
        let is = |acl: &Acl| {
            let scheme = acl.scheme.as_str();
            scheme == "world"
                || self.ids.iter().any(|id| {
                    id.scheme == acl.scheme
                        && (id.id == acl.id || scheme == "ip" && id.id.as_str().starts_with("10."))
                })
        };
        let is_super = self.ids.iter().any(|id| id.scheme.as_str() == "super");
        if is_super || self.nodes[path].acl.iter().any(|acl| acl.perms & wanted != 0 && is(acl)) {
            Ok(())
        } else {
            Err(ErrorCode::NoAuth)
        }
    }

    fn fix(&self, list: Option<&[Acl]>) -> Result<Vec<Acl>, ErrorCode> {
        let mut fixed = Vec::new();
        let mut seen: Vec<&Acl> = Vec::new();
        for acl in list.unwrap_or_default() {
            if seen.contains(&acl) {
                continue;
            }
            seen.push(acl);
            match acl.scheme.as_str() {
                "auth" => {
                    let proved: Vec<_> =
                        self.ids.iter().filter(|id| id.scheme.as_str() == "digest").collect();
                    if proved.is_empty() {
                        return Err(ErrorCode::InvalidAcl);
                    }
                    fixed.extend(proved.iter().map(|id| Acl {
                        perms: acl.perms,
                        scheme: id.scheme.clone(),
                        id: id.id.clone(),
                    }));
                }
                "world" if acl.id.as_str() != "anyone" => return Err(ErrorCode::InvalidAcl),
                _ => fixed.push(acl.clone()),
            }
        }
        if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed) }
    }

    fn parent(path: &str) -> Result<&str, ErrorCode> {
        let slash = path.rfind('/').ok_or(ErrorCode::BadArguments)?;
        Ok(Self::key(&path[..slash]))
    }

    fn create(&mut self, request: &Create) -> Result<(String, Stat), ErrorCode> {
        let asked = request.path.as_str();
        if !(0..=6).contains(&request.flags) {
            return Err(ErrorCode::BadArguments);
        }
        let ttl_flags = request.flags >= 5;
        if ttl_flags != (request.kind == CreateKind::Ttl)
            || ttl_flags && !(1..1 << 40).contains(&request.ttl_ms)
        {
            return Err(ErrorCode::BadArguments);
        }
        let parent = Self::parent(asked)?;
        let acl = self.fix(request.acl.as_deref())?;
        if !self.nodes.contains_key(parent) {
            return Err(ErrorCode::NoNode);
        }
        self.may(parent, 4)?;
        let counter = self.nodes[parent].creates;
        let path = match request.flags {
            2 | 3 | 6 => format!("{asked}{counter:010}"),
            _ => asked.to_owned(),
        };
        if !valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if is_session(self.nodes[parent].owner) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let owner = match request.kind {
            CreateKind::Container => CONTAINER,
            CreateKind::Ttl => -1 << 56 | request.ttl_ms,
            _ if matches!(request.flags, 1 | 3) => self.session,
            _ => 0,
        };
        let (zxid, time) = (self.zxid, self.zxid * 1000);
        let stat = Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            ..Stat::default()
        };
        let data = request.data.as_ref().map(|data| data.to_vec());
        self.nodes.insert(path.clone(), Node { stat, creates: 0, owner, data, acl });
        let parent = parent.to_owned();
        let above = self.nodes.get_mut(&parent).unwrap();
        above.creates += 1;
        above.stat.pzxid = zxid;
        self.heard.push((EventType::NodeCreated, path.clone()));
        self.heard.push((EventType::NodeChildrenChanged, parent));
        let stat = self.stat(&path);
        Ok((path, stat))
    }

    fn remove(&mut self, path: &str) {
        self.nodes.remove(path).unwrap();
        let parent = Self::parent(path).unwrap().to_owned();
        self.nodes.get_mut(&parent).unwrap().stat.pzxid = self.zxid;
        self.heard.push((EventType::NodeDeleted, path.to_owned()));
        self.heard.push((EventType::NodeChildrenChanged, parent));
    }

    fn is_special(path: &str) -> bool {
        matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config")
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        if Self::is_special(path) {
            return Err(ErrorCode::BadArguments);
        }
        let parent = Self::parent(path)?;
        if !self.nodes.contains_key(parent) {
            return Err(ErrorCode::NoNode);
        }
        self.may(parent, 8)?;
        let node = self.nodes.get(path).ok_or(ErrorCode::NoNode)?;
        if version != -1 && version != node.stat.version {
            return Err(ErrorCode::BadVersion);
        }
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path);
        Ok(())
    }

    fn delete_container(&mut self, path: &str) -> Result<(), ErrorCode> {
        if Self::is_special(path) {
            return Err(ErrorCode::BadArguments);
        }
        if !self.nodes.contains_key(Self::parent(path)?) {
            return Err(ErrorCode::NoNode);
        }
        let node = self.nodes.get(path).ok_or(ErrorCode::NoNode)?;
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        let expired =
            ttl_of(node.owner).is_some_and(|ttl| self.zxid * 1000 - node.stat.mtime > ttl);
        if node.owner != CONTAINER && !expired {
            return Err(ErrorCode::BadVersion);
        }
        self.remove(path);
        Ok(())
    }

    fn writable(&self, path: &str, wanted: i32) -> Result<(), ErrorCode> {
        if !valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        if !self.nodes.contains_key(path) {
            return Err(ErrorCode::NoNode);
        }
        self.may(path, wanted)
    }

    fn set(&mut self, path: &str, data: Option<&[u8]>, version: i32) -> Result<Stat, ErrorCode> {
        self.writable(path, 2)?;
        let node = self.nodes.get_mut(path).unwrap();
        let is_change = data.unwrap_or_default() != node.data.as_deref().unwrap_or_default();
        if path == "/zookeeper/config" && is_change {
            return Err(ErrorCode::BadArguments);
        }
        if version != -1 && version != node.stat.version {
            return Err(ErrorCode::BadVersion);
        }
        node.stat.version += 1;
        node.stat.mzxid = self.zxid;
        node.stat.mtime = self.zxid * 1000;
        node.data = data.map(<[u8]>::to_vec);
        self.heard.push((EventType::NodeDataChanged, path.to_owned()));
        Ok(self.stat(path))
    }

    fn set_acl(
        &mut self,
        path: &str,
        list: Option<&[Acl]>,
        version: i32,
    ) -> Result<Stat, ErrorCode> {
        if !valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let list = self.fix(list)?;
        self.writable(path, 16)?;
        let node = self.nodes.get_mut(path).unwrap();
        if version != -1 && version != node.stat.aversion {
            return Err(ErrorCode::BadVersion);
        }
        node.stat.aversion += 1;
        node.acl = list;
        Ok(self.stat(path))
    }

    fn check(&self, path: &str, version: i32) -> Result<(), ErrorCode> {
        self.writable(path, 1)?;
        let wrong = version != -1 && version != self.nodes[path].stat.version;
        if wrong { Err(ErrorCode::BadVersion) } else { Ok(()) }
    }

    fn multi(&mut self, ops: &[MultiOp]) -> Result<Vec<MultiResult>, Vec<MultiResult>> {
        let before = (self.nodes.clone(), self.heard.clone());
        let mut results = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            let result = match op {
                MultiOp::Create(request) => {
                    let mut request = request.clone();
                    if request.flags == 4 {
                        request.kind = CreateKind::Container;
                    }
                    self.create(&request).map(|(path, stat)| match request.kind {
                        CreateKind::Create => MultiResult::Create { path: Text::from(path) },
                        _ => MultiResult::Create2 { path: Text::from(path), stat },
                    })
                }
                MultiOp::Delete { path, version } => {
                    self.delete(path.as_str(), *version).map(|()| MultiResult::Delete)
                }
                MultiOp::SetData { path, data, version } => self
                    .set(path.as_str(), data.as_deref(), *version)
                    .map(|stat| MultiResult::SetData { stat }),
                MultiOp::Check { path, version } => {
                    self.check(path.as_str(), *version).map(|()| MultiResult::Check)
                }
            };
            match result {
                Ok(result) => results.push(result),
                Err(code) => {
                    (self.nodes, self.heard) = before;
                    let error = |other: usize| match other.cmp(&number) {
                        std::cmp::Ordering::Less => None,
                        std::cmp::Ordering::Equal => Some(code),
                        std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
                    };
                    return Err((0..ops.len()).map(|o| MultiResult::Error(error(o))).collect());
                }
            }
        }
        Ok(results)
    }

    fn ephemerals(&self, session: i64) -> Vec<String> {
        let own = self.nodes.iter().filter(|(_, node)| node.owner == session);
        own.map(|(path, _)| path.clone()).collect()
    }
}

/// Draws requests that often hit something.
struct Dice {
    random: ChaCha8Rng,
    /// Of the znodes that are there.
    known: Vec<String>,
}

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.random.next_u32() as usize % bound
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
            5 => vec![acl(27, "ip", "10.0.0.0/8"), acl(5, "world", "anyone")],
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
fn step(dice: &mut Dice, model: &mut Model, f: &mut Fixture) -> (String, String) {
    dice.known = model.nodes.keys().cloned().collect();
    model.zxid += 1;
    model.session = [7, 8, -9][dice.below(3)];
    model.ids = dice.ids();
    (f.session, f.ids) = (model.session, model.ids.clone());
    match dice.below(20) {
        0..=8 => {
            let request = dice.create(false);
            let real = f.request(&request).map(|c| (c.path.as_str().to_owned(), c.stat));
            (format!("{:?}", model.create(&request)), format!("{real:?}"))
        }
        9..=11 => {
            let (path, version) = (dice.path(), dice.version());
            let real = f.delete(&path, version);
            (format!("{:?}", model.delete(&path, version)), format!("{real:?}"))
        }
        12 | 13 => {
            let (path, data, version) = (Text::from(dice.path()), dice.data(), dice.version());
            let data = data.as_deref();
            let real = f.write(|tree, ctx, ev| tree.set_data(ctx, &path, data, version, ev));
            (format!("{:?}", model.set(path.as_str(), data, version)), format!("{real:?}"))
        }
        14 | 15 => {
            let (path, list, version) = (Text::from(dice.path()), dice.acl(), dice.version());
            let list = list.as_deref();
            let real = f.write(|tree, ctx, _| tree.set_acl(ctx, &path, list, version));
            (format!("{:?}", model.set_acl(path.as_str(), list, version)), format!("{real:?}"))
        }
        16 => {
            let path = dice.path();
            let text = Text::from(path.as_str());
            let real = f.write(|tree, ctx, events| tree.delete_container(ctx, &text, events));
            (format!("{:?}", model.delete_container(&path)), format!("{real:?}"))
        }
        17 if dice.below(2) == 0 => {
            let removed = model.ephemerals(model.session);
            removed.iter().for_each(|path| model.remove(path));
            let real = f.write(|tree, ctx, events| tree.close_session(ctx, events));
            (format!("{removed:?}"), format!("{real:?}"))
        }
        _ => {
            let ops: Vec<MultiOp> = (0..dice.below(5)).map(|_| dice.op()).collect();
            let real = f.multi(&ops);
            (format!("{:?}", model.multi(&ops)), format!("{real:?}"))
        }
    }
}

fn compare_everything(model: &Model, f: &Fixture) {
    assert_consistent(&f.tree);
    assert_eq!(f.tree.node_count(), model.nodes.len());
    let all_powerful = [Identity { scheme: Text::from("super"), id: Text::default() }];
    for (path, node) in &model.nodes {
        let stat = model.stat(path);
        let (data, real) = f.tree.get_data(&all_powerful, path).unwrap();
        assert_eq!((data, real), (node.data.as_deref(), stat), "{path}");
        assert_eq!(f.tree.get_acl(&all_powerful, path).unwrap(), (node.acl.clone(), stat));
        let children = f.tree.children(&all_powerful, path).unwrap();
        let mut names: Vec<&str> = children.names().collect();
        names.sort_unstable();
        assert_eq!(names, model.children(path));
        let readable = model.may(path, 1).map(|()| stat);
        assert_eq!(f.tree.exists(&model.ids, path), readable);
    }
    for session in [7, 8, -9] {
        let real = f.tree.ephemerals(session, None);
        assert_eq!(format!("{real:?}"), format!("{:?}", model.ephemerals(session)));
    }
}

#[test]
fn a_random_history_agrees_with_the_naive_tree() {
    for seed in 0..6 {
        let mut dice = Dice { random: ChaCha8Rng::seed_from_u64(seed), known: Vec::new() };
        let mut model = Model::new();
        let mut f = Fixture::new();
        let mut disk = BTreeMap::new();
        for number in 0..2000 {
            let (expected, real) = step(&mut dice, &mut model, &mut f);
            assert_eq!(real, expected, "seed {seed}, step {number}");
            let heard: Vec<_> =
                f.events.drain(..).map(|e| (e.kind, e.path.as_str().to_owned())).collect();
            assert_eq!(heard, std::mem::take(&mut model.heard), "seed {seed}, step {number}");
            if number % 100 == 0 {
                compare_everything(&model, &f);
            }
            if dice.below(50) == 0 {
                restart(&mut f, &mut disk);
                compare_everything(&model, &f);
            }
        }
        assert!(model.nodes.len() > 10, "seed {seed} did nothing");
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
