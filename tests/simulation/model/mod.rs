//! The znodes as ZooKeeper's documents and measurements say they behave: written from
//! PROTOCOL, not from `src/tree`, and as plain as possible. The one model of the tests: the simulation holds
//! whole ensembles against it, and the property test of `src/tree` the tree alone. What stays apart: the
//! tree of `jepsen/check`, which shares nothing with the product, not even the types of its requests; and
//! `tests/server/crash/model.rs`, which is no tree, but what one client was promised.
//!
//! *Owns* what every write does and every read shows. *Never* fast: a multi works on a copy.

#![allow(dead_code, reason = "the simulation and the property test each use a part")]

pub mod acl;
pub mod quota;

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::proto::request::{Create, CreateKind};
use lockkeeper_core::proto::{Acl, MultiOp, MultiResult, ReadOp, Request, Response, Stat, Text};
use lockkeeper_core::tree::Rules;

use acl::{ADMIN, CREATE, DELETE, Entry, Id, READ, WRITE, allowed, fixed_acl, shown};

/// Error code of the wire.
pub type Code = i32;

pub const BAD_ARGUMENTS: Code = -8;
pub const NO_NODE: Code = -101;
pub const NO_AUTH: Code = -102;
pub const BAD_VERSION: Code = -103;
pub const NO_CHILDREN_FOR_EPHEMERALS: Code = -108;
pub const NODE_EXISTS: Code = -110;
pub const NOT_EMPTY: Code = -111;
pub const SESSION_EXPIRED: Code = -112;
pub const SESSION_MOVED: Code = -118;
pub const INVALID_ACL: Code = -114;
pub const UNIMPLEMENTED: Code = -6;
pub const MARSHALLING: Code = -5;
pub const RUNTIME_INCONSISTENCY: Code = -2;
pub const QUOTA_EXCEEDED: Code = -125;
pub const RECONFIG_DISABLED: Code = -123;

/// Who belongs to the ensemble.
const CONFIG: &str = "/zookeeper/config";

pub const CREATED: i32 = 1;
pub const DELETED: i32 = 2;
pub const DATA_CHANGED: i32 = 3;
pub const CHILDREN_CHANGED: i32 = 4;

/// Whose a znode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Nobody,
    Session(i64),
    Container,
    Ttl(i64),
}

#[derive(Clone, Debug)]
pub struct Znode {
    pub data: Option<Vec<u8>>,
    pub acl: Vec<Entry>,
    pub owner: Owner,
    pub children: BTreeSet<String>,
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    /// The steady clock when it was changed last.
    pub steady_ms: i64,
    pub version: i32,
    pub aversion: i32,
    /// How many children were ever created.
    pub creates: i32,
}

/// A change that watchers may hear of, and the list on which they need READ.
#[derive(Clone, Debug)]
pub struct Event {
    pub kind: i32,
    pub path: String,
    pub acl: Vec<Entry>,
}

/// The circumstances of a write.
#[derive(Clone, Copy, Debug)]
pub struct Txn<'a> {
    pub zxid: i64,
    pub time_ms: i64,
    pub steady_ms: i64,
    pub session: i64,
    pub ids: &'a [Id],
    /// Rules of the leader that proposed it.
    pub rules: Rules,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    pub znodes: BTreeMap<String, Znode>,
    /// Rules of the server that answers reads.
    pub own: Rules,
}

pub type Outcome<T> = Result<T, Code>;

impl Znode {
    fn new(data: Option<Vec<u8>>, acl: Vec<Entry>, owner: Owner, txn: &Txn<'_>) -> Self {
        Self {
            data,
            acl,
            owner,
            children: BTreeSet::new(),
            czxid: txn.zxid,
            mzxid: txn.zxid,
            pzxid: txn.zxid,
            ctime: txn.time_ms,
            mtime: txn.time_ms,
            steady_ms: txn.steady_ms,
            version: 0,
            aversion: 0,
            creates: 0,
        }
    }

    pub fn stat(&self) -> Stat {
        let children = self.children.len() as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: match self.owner {
                Owner::Session(session) => session,
                Owner::Nobody | Owner::Container | Owner::Ttl(_) => 0,
            },
            data_length: self.data.as_ref().map_or(0, |data| data.len() as i32),
            num_children: children,
            pzxid: self.pzxid,
        }
    }
}

impl Model {
    /// What a server has that was never written to.
    pub fn new() -> Self {
        let rules = Rules::DEFAULT;
        let mut model = Self { znodes: BTreeMap::new(), own: rules };
        let first = Txn { zxid: 0, time_ms: 0, steady_ms: 0, session: 0, ids: &[], rules };
        let all = vec![(31, "world".to_owned(), "anyone".to_owned())];
        let read = vec![(1, "world".to_owned(), "anyone".to_owned())];
        for (path, acl) in [
            ("/", &all),
            ("/zookeeper", &all),
            ("/zookeeper/quota", &all),
            ("/zookeeper/config", &read),
        ] {
            let znode = Znode::new(Some(Vec::new()), acl.clone(), Owner::Nobody, &first);
            model.znodes.insert(path.to_owned(), znode);
            if let Some((parent, name)) = split(path) {
                let parent = model.znodes.get_mut(parent).expect("made before");
                parent.children.insert(name.to_owned());
            }
        }
        let config = model.znodes.get_mut("/zookeeper/config").expect("just made");
        config.aversion = -1;
        model
    }

    /// Looks up a path as reads do: anything odd is simply not there, and "" is the root.
    pub fn find(&self, path: &str) -> Option<&Znode> {
        self.znodes.get(if path.is_empty() { "/" } else { path })
    }

    fn find_mut(&mut self, path: &str) -> &mut Znode {
        let path = if path.is_empty() { "/" } else { path };
        self.znodes.get_mut(path).expect("it was found before")
    }

    /// One write of a client.
    pub fn write(
        &mut self,
        txn: &Txn<'_>,
        request: &Request,
        events: &mut Vec<Event>,
    ) -> Outcome<Response> {
        match request {
            Request::Create(create) => {
                let (path, stat) = self.create(txn, create, events)?;
                let path = Text::from(path);
                Ok(match create.kind {
                    CreateKind::Create => Response::Path(path),
                    CreateKind::Create2 | CreateKind::Container | CreateKind::Ttl => {
                        Response::PathStat(path, stat)
                    }
                })
            }
            Request::Delete { path, version } => {
                self.delete(txn, path.as_str(), *version, events).map(|()| Response::Empty)
            }
            Request::SetData { path, data, version } => self
                .set_data(txn, path.as_str(), data.as_deref(), *version, events)
                .map(Response::Stat),
            Request::SetAcl { path, acl, version } => {
                self.set_acl(txn, path.as_str(), acl.as_deref(), *version).map(Response::Stat)
            }
            Request::Multi(ops) => Ok(Response::Multi(self.multi(txn, ops, events))),
            other => panic!("not a write: {other:?}"),
        }
    }

    pub fn create(
        &mut self,
        txn: &Txn<'_>,
        create: &Create,
        events: &mut Vec<Event>,
    ) -> Outcome<(String, Stat)> {
        let (ephemeral, sequential, ttl) = match create.flags {
            0 | 4 => (false, false, false),
            1 => (true, false, false),
            2 => (false, true, false),
            3 => (true, true, false),
            5 => (false, false, true),
            6 => (false, true, true),
            _ => return Err(BAD_ARGUMENTS),
        };
        if ttl && !txn.rules.extended_types {
            return Err(UNIMPLEMENTED);
        }
        let ttl_is_valid = (1..=0xff_ffff_ffff).contains(&create.ttl_ms);
        if ttl != (create.kind == CreateKind::Ttl) || ttl && !ttl_is_valid {
            return Err(BAD_ARGUMENTS);
        }
        let asked = create.path.as_str();
        let parent_path = lenient_parent(asked).ok_or(BAD_ARGUMENTS)?;
        let acl = fixed_acl(create.acl.as_deref(), txn.ids, txn.rules)?;
        let parent = self.find(parent_path).ok_or(NO_NODE)?;
        allowed(&parent.acl, txn.ids, CREATE, txn.rules)?;
        let path =
            if sequential { format!("{asked}{:010}", parent.creates) } else { asked.to_owned() };
        if !is_valid_path(&path) {
            return Err(BAD_ARGUMENTS);
        }
        if self.find(&path).is_some() {
            return Err(NODE_EXISTS);
        }
        if matches!(parent.owner, Owner::Session(_)) {
            return Err(NO_CHILDREN_FOR_EPHEMERALS);
        }
        let bytes = length(create.data.as_deref());
        if txn.rules.enforce_quota && self.exceeds(&path, 1, bytes) {
            return Err(QUOTA_EXCEEDED);
        }
        let owner = match create.kind {
            CreateKind::Container => Owner::Container,
            CreateKind::Ttl => Owner::Ttl(create.ttl_ms),
            CreateKind::Create | CreateKind::Create2 if ephemeral => Owner::Session(txn.session),
            CreateKind::Create | CreateKind::Create2 => Owner::Nobody,
        };
        let (parent_path, name) = split(&path).expect("it is valid and not the root");
        let parent = self.find_mut(parent_path);
        parent.creates = parent.creates.wrapping_add(1);
        parent.pzxid = txn.zxid;
        parent.children.insert(name.to_owned());
        let parent_acl = parent.acl.clone();
        let data = create.data.as_ref().map(|data| data.to_vec());
        let bytes = length(data.as_deref());
        let mut znode = Znode::new(data, acl.clone(), owner, txn);
        let stat = znode.stat();
        if let Some(usage) = self.usage_at(&path) {
            znode.data = Some(usage);
        }
        self.znodes.insert(path.clone(), znode);
        self.count(&path, 1, bytes);
        events.push(Event { kind: CREATED, path: path.clone(), acl });
        let parent_path = parent_path.to_owned();
        events.push(Event { kind: CHILDREN_CHANGED, path: parent_path, acl: parent_acl });
        Ok((path, stat))
    }

    pub fn delete(
        &mut self,
        txn: &Txn<'_>,
        path: &str,
        version: i32,
        events: &mut Vec<Event>,
    ) -> Outcome<()> {
        let parent = lenient_parent(path).filter(|_| !is_special(path)).ok_or(BAD_ARGUMENTS)?;
        allowed(&self.find(parent).ok_or(NO_NODE)?.acl, txn.ids, DELETE, txn.rules)?;
        let znode = self.find(path).ok_or(NO_NODE)?;
        next_version(znode.version, version)?;
        if !znode.children.is_empty() {
            return Err(NOT_EMPTY);
        }
        self.remove(txn.zxid, path, events);
        Ok(())
    }

    fn remove(&mut self, zxid: i64, path: &str, events: &mut Vec<Event>) {
        let znode = self.znodes.remove(path).expect("it was found before");
        self.count(path, -1, -length(znode.data.as_deref()));
        events.push(Event { kind: DELETED, path: path.to_owned(), acl: znode.acl });
        let (parent_path, name) = split(path).expect("the root is never removed");
        let parent = self.find_mut(parent_path);
        parent.children.remove(name);
        parent.pzxid = zxid;
        let (path, acl) = (parent_path.to_owned(), parent.acl.clone());
        events.push(Event { kind: CHILDREN_CHANGED, path, acl });
    }

    pub fn set_data(
        &mut self,
        txn: &Txn<'_>,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        events: &mut Vec<Event>,
    ) -> Outcome<Stat> {
        let znode = self.find_valid(path)?;
        allowed(&znode.acl, txn.ids, WRITE, txn.rules)?;
        let is_change = data.unwrap_or_default() != znode.data.as_deref().unwrap_or_default();
        if path == CONFIG && is_change {
            return Err(BAD_ARGUMENTS);
        }
        let grown = length(data) - length(znode.data.as_deref());
        if txn.rules.enforce_quota && self.exceeds(path, 0, grown) {
            return Err(QUOTA_EXCEEDED);
        }
        let next = next_version(znode.version, version)?;
        let znode = self.find_mut(path);
        znode.version = next;
        znode.mzxid = txn.zxid;
        znode.mtime = txn.time_ms;
        znode.steady_ms = txn.steady_ms;
        znode.data = data.map(<[u8]>::to_vec);
        events.push(Event { kind: DATA_CHANGED, path: path.to_owned(), acl: znode.acl.clone() });
        let stat = znode.stat();
        self.count(path, 0, grown);
        Ok(stat)
    }

    pub fn set_acl(
        &mut self,
        txn: &Txn<'_>,
        path: &str,
        acl: Option<&[Acl]>,
        version: i32,
    ) -> Outcome<Stat> {
        if !is_valid_path(path) {
            return Err(BAD_ARGUMENTS);
        }
        let acl = fixed_acl(acl, txn.ids, txn.rules)?;
        let znode = self.find(path).ok_or(NO_NODE)?;
        allowed(&znode.acl, txn.ids, ADMIN, txn.rules)?;
        let next = next_version(znode.aversion, version)?;
        let znode = self.find_mut(path);
        znode.aversion = next;
        znode.acl = acl;
        Ok(znode.stat())
    }

    /// The first leader of an ensemble names its members.
    pub fn found(
        &mut self,
        zxid: i64,
        time_ms: i64,
        lines: &str,
        events: &mut Vec<Event>,
    ) -> Outcome<()> {
        let config = self.find_mut(CONFIG);
        if config.data.as_ref().is_some_and(|text| !text.is_empty()) {
            return Err(NODE_EXISTS);
        }
        config.data = Some(format!("{lines}version={zxid:x}").into_bytes());
        config.version = -1;
        config.mzxid = zxid;
        config.mtime = time_ms;
        let acl = config.acl.clone();
        events.push(Event { kind: DATA_CHANGED, path: CONFIG.to_owned(), acl });
        Ok(())
    }

    fn find_valid(&self, path: &str) -> Outcome<&Znode> {
        if !is_valid_path(path) {
            return Err(BAD_ARGUMENTS);
        }
        self.find(path).ok_or(NO_NODE)
    }

    pub fn multi(
        &mut self,
        txn: &Txn<'_>,
        ops: &[MultiOp],
        events: &mut Vec<Event>,
    ) -> Vec<MultiResult> {
        let mut copy = self.clone();
        let mut seen = Vec::new();
        let mut results = Vec::new();
        for op in ops {
            match copy.one_of_multi(txn, op, &mut seen) {
                Ok(result) => results.push(result),
                Err(code) => {
                    let failed = results.len();
                    return (0..ops.len())
                        .map(|at| match at.cmp(&failed) {
                            std::cmp::Ordering::Less => 0,
                            std::cmp::Ordering::Equal => code,
                            std::cmp::Ordering::Greater => RUNTIME_INCONSISTENCY,
                        })
                        .map(error_result)
                        .collect();
                }
            }
        }
        *self = copy;
        events.extend(seen);
        results
    }

    fn one_of_multi(
        &mut self,
        txn: &Txn<'_>,
        op: &MultiOp,
        events: &mut Vec<Event>,
    ) -> Outcome<MultiResult> {
        Ok(match op {
            MultiOp::Create(create) => {
                // In a multi the flag alone makes a container.
                let plain = matches!(create.kind, CreateKind::Create | CreateKind::Create2);
                let kind = match create.flags {
                    4 if plain => CreateKind::Container,
                    _ => create.kind,
                };
                let (path, stat) = self.create(txn, &Create { kind, ..create.clone() }, events)?;
                let path = Text::from(path);
                match kind {
                    CreateKind::Create => MultiResult::Create { path },
                    CreateKind::Create2 | CreateKind::Container | CreateKind::Ttl => {
                        MultiResult::Create2 { path, stat }
                    }
                }
            }
            MultiOp::Delete { path, version } => {
                self.delete(txn, path.as_str(), *version, events)?;
                MultiResult::Delete
            }
            MultiOp::SetData { path, data, version } => {
                let stat = self.set_data(txn, path.as_str(), data.as_deref(), *version, events)?;
                MultiResult::SetData { stat }
            }
            MultiOp::Check { path, version } => {
                let znode = self.find_valid(path.as_str())?;
                allowed(&znode.acl, txn.ids, READ, txn.rules)?;
                next_version(znode.version, *version)?;
                MultiResult::Check
            }
        })
    }

    /// A session ends: its ephemerals go, in the order of their paths.
    pub fn close_session(&mut self, zxid: i64, session: i64, events: &mut Vec<Event>) {
        for path in self.ephemerals(session) {
            self.remove(zxid, &path, events);
        }
    }

    /// Paths of the ephemerals of a session, sorted.
    pub fn ephemerals(&self, session: i64) -> Vec<String> {
        let owned = self.znodes.iter().filter(|(_, z)| z.owner == Owner::Session(session));
        owned.map(|(path, _)| path.clone()).collect()
    }

    /// The reaper removes what may be removed.
    pub fn reap(
        &mut self,
        zxid: i64,
        steady_ms: i64,
        path: &str,
        events: &mut Vec<Event>,
    ) -> Outcome<()> {
        let parent = lenient_parent(path).filter(|_| !is_special(path)).ok_or(BAD_ARGUMENTS)?;
        self.find(parent).ok_or(NO_NODE)?;
        let znode = self.find(path).ok_or(NO_NODE)?;
        if !znode.children.is_empty() {
            return Err(NOT_EMPTY);
        }
        let is_due = match znode.owner {
            Owner::Container => true,
            Owner::Ttl(ttl_ms) => steady_ms - znode.steady_ms > ttl_ms,
            Owner::Nobody | Owner::Session(_) => false,
        };
        if !is_due {
            return Err(BAD_VERSION);
        }
        self.remove(zxid, path, events);
        Ok(())
    }

    /// A read without side effects. Child lists are sorted.
    pub fn read(&self, ids: &[Id], session: i64, request: &Request) -> Outcome<Response> {
        Ok(match request {
            Request::Exists { path, .. } => {
                Response::Stat(self.readable(ids, path.as_str(), READ)?.stat())
            }
            Request::GetData { path, .. } => {
                let znode = self.readable(ids, path.as_str(), READ)?;
                let data = znode.data.as_ref().map(|data| data.clone().into());
                Response::Data(data, znode.stat())
            }
            Request::GetAcl { path } => {
                let znode = self.readable(ids, path.as_str(), READ | ADMIN)?;
                let masked = allowed(&znode.acl, ids, ADMIN, self.own).is_err();
                let acl = znode.acl.iter().map(|entry| shown(entry, masked)).collect();
                Response::Acl(acl, znode.stat())
            }
            Request::GetChildren { path, stat, .. } => {
                let znode = self.readable(ids, path.as_str(), READ)?;
                let names = znode.children.iter().map(|name| name.as_str().into()).collect();
                match stat {
                    true => Response::NamesStat(names, znode.stat()),
                    false => Response::Names(names),
                }
            }
            Request::GetAllChildrenNumber { path } => {
                self.readable(ids, path.as_str(), READ)?;
                let prefix = match path.as_str() {
                    "" | "/" => "/".to_owned(),
                    path => format!("{path}/"),
                };
                let below = |path: &&String| path.starts_with(&prefix) && path.as_str() != "/";
                Response::Number(self.znodes.keys().filter(below).count() as i32)
            }
            Request::GetEphemerals { prefix } => {
                let prefix = prefix.as_ref().map_or("", Text::as_str);
                let all = prefix.trim().is_empty() || prefix == "/";
                let owned = self.ephemerals(session).into_iter();
                let wanted = owned.filter(|path| all || path.starts_with(prefix));
                Response::Names(wanted.map(Text::from).collect())
            }
            Request::MultiRead(ops) => {
                Response::Multi(ops.iter().map(|op| self.one_of_reads(ids, op)).collect())
            }
            other => panic!("not such a read: {other:?}"),
        })
    }

    fn one_of_reads(&self, ids: &[Id], op: &ReadOp) -> MultiResult {
        let path = match op {
            ReadOp::GetData { path } | ReadOp::GetChildren { path } => path.as_str(),
        };
        match (self.readable(ids, path, READ), op) {
            (Err(code), _) => error_result(code),
            (Ok(znode), ReadOp::GetData { .. }) => MultiResult::GetData {
                data: znode.data.as_ref().map(|data| data.clone().into()),
                stat: znode.stat(),
            },
            (Ok(znode), ReadOp::GetChildren { .. }) => MultiResult::GetChildren {
                names: znode.children.iter().map(|name| name.as_str().into()).collect(),
            },
        }
    }

    fn readable(&self, ids: &[Id], path: &str, wanted: i32) -> Outcome<&Znode> {
        let znode = self.find(path).ok_or(NO_NODE)?;
        allowed(&znode.acl, ids, wanted, self.own)?;
        Ok(znode)
    }
}

/// Bytes of data.
fn length(data: Option<&[u8]>) -> i64 {
    data.map_or(0, |data| data.len() as i64)
}

fn error_result(code: Code) -> MultiResult {
    MultiResult::Error(lockkeeper_core::proto::ErrorCode::from_wire(code))
}

fn next_version(current: i32, expected: i32) -> Outcome<i32> {
    if expected != -1 && expected != current {
        return Err(BAD_VERSION);
    }
    Ok(current + 1)
}

fn is_special(path: &str) -> bool {
    ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"].contains(&path)
}

/// What is before the last slash; `None` without a slash, or with a NUL.
fn lenient_parent(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    path.rfind('/').map(|slash| &path[..slash])
}

/// Parent and name of a valid path that is not the root.
pub fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    if name.is_empty() {
        return None;
    }
    Some((if parent.is_empty() { "/" } else { parent }, name))
}

fn is_valid_path(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let Some(rest) = path.strip_prefix('/') else { return false };
    let bad = |name: &str| matches!(name, "" | "." | "..") || name.chars().any(|c| c < ' ');
    !rest.split('/').any(bad)
}
