//! The model: what a tree of znodes makes of each transaction and shows to each read.
//!
//! *Owns* the znodes at one place of the order, and decides every result, Stat, child list and
//! sequence number. Reproduces `DataTree` and `PrepRequestProcessor`. *Invariants*: a call that fails
//! changes nothing; all changes of one transaction bear its zxid. *Never* uses anything of the server
//! under test. The time of a transaction is not the model's to decide: it is taken from the account of
//! the servers, or from the first Stat that shows it, and must be the same ever after.

use std::collections::{BTreeMap, BTreeSet};

use crate::acl;
use crate::history::EventKind;
use crate::op::{Acl, Answer, Call, Code, Create, CreateOp, Data, Identity, Stat};
use crate::path;

/// Longest time to live, milliseconds: 40 bits.
const TTL_MS_MAX: i64 = 0xff_ffff_ffff;

/// Whose a znode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Nobody,
    Session(i64),
    Container,
    Ttl,
}

/// A znode.
#[derive(Clone, Debug)]
pub struct Znode {
    pub data: Data,
    pub acl: Vec<Acl>,
    pub owner: Owner,
    pub children: BTreeSet<String>,
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    pub version: i32,
    pub aversion: i32,
    /// How many children were ever created: the next sequence number.
    pub creates: i32,
}

/// A change of a znode, as those who watch it see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `Created`, `Deleted` or `DataChanged`.
    pub kind: EventKind,
    pub path: String,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub session: i64,
    /// Identities of the connection.
    pub ids: &'a [Identity],
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Tree {
    znodes: BTreeMap<String, Znode>,
    /// Ephemeral znodes by session.
    ephemerals: BTreeMap<i64, BTreeSet<String>>,
    /// Milliseconds since the epoch by zxid, as far as they are known.
    times: BTreeMap<i64, i64>,
    extended_types: bool,
    /// What the transactions changed since it was last asked for.
    changes: Vec<Change>,
    /// What the znodes were before the multi that is under way.
    undo: Option<Vec<(String, Option<Znode>)>>,
}

impl Tree {
    /// What a server has that was never written to. `extended_types` is ZooKeeper's
    /// `extendedTypesEnabled`.
    #[must_use]
    pub fn new(extended_types: bool) -> Self {
        let mut tree = Self {
            znodes: BTreeMap::new(),
            ephemerals: BTreeMap::new(),
            times: BTreeMap::from([(0, 0)]),
            extended_types,
            changes: Vec::new(),
            undo: None,
        };
        for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            let znode = Znode {
                data: Some(Vec::new()),
                acl: Acl::open(),
                owner: Owner::Nobody,
                children: BTreeSet::new(),
                czxid: 0,
                mzxid: 0,
                pzxid: 0,
                version: 0,
                aversion: 0,
                creates: 0,
            };
            tree.znodes.insert(path.to_owned(), znode);
            if let Some((parent, name)) = path::split(path) {
                tree.at(parent).children.insert(name.to_owned());
            }
        }
        let config = tree.at("/zookeeper/config");
        config.aversion = -1;
        config.acl[0].perms = Acl::READ;
        tree
    }

    /// What was changed since this was last asked, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    fn changed(&mut self, kind: EventKind, path: &str) {
        self.changes.push(Change { kind, path: path.to_owned() });
    }

    /// Looks a path up as reads do: anything odd is simply not there, and "" is the root.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Znode> {
        self.znodes.get(if path.is_empty() { "/" } else { path })
    }

    /// Paths of all znodes of a session.
    #[must_use]
    pub fn ephemerals_of(&self, session: i64) -> BTreeSet<String> {
        self.ephemerals.get(&session).cloned().unwrap_or_default()
    }

    /// The time of a transaction: what was first heard of it holds.
    pub fn learn_time(&mut self, zxid: i64, time_ms: i64) {
        self.times.entry(zxid).or_insert(time_ms);
    }

    /// Learns the times that a Stat shows.
    pub fn learn_times(&mut self, stat: &Stat) {
        self.learn_time(stat.czxid, stat.ctime);
        self.learn_time(stat.mzxid, stat.mtime);
    }

    /// The Stat of a znode.
    #[must_use]
    pub fn stat(&self, znode: &Znode) -> Stat {
        let children = i32::try_from(znode.children.len()).expect("a tree in memory is smaller");
        let time = |zxid: i64| self.times.get(&zxid).copied().unwrap_or_default();
        Stat {
            czxid: znode.czxid,
            mzxid: znode.mzxid,
            ctime: time(znode.czxid),
            mtime: time(znode.mzxid),
            version: znode.version,
            cversion: znode.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: znode.aversion,
            ephemeral_owner: match znode.owner {
                Owner::Session(session) => session,
                Owner::Nobody | Owner::Container | Owner::Ttl => 0,
            },
            data_length: znode
                .data
                .as_ref()
                .map_or(0, |data| i32::try_from(data.len()).expect("frames are smaller")),
            num_children: children,
            pzxid: znode.pzxid,
        }
    }

    /// Carries out a transaction of a client. What the client is told.
    ///
    /// # Errors
    /// The code that is due; nothing has changed.
    ///
    /// # Panics
    /// If the call is none that changes znodes.
    pub fn apply(&mut self, zxid: i64, who: Caller<'_>, call: &Call) -> Result<Answer, Code> {
        match call {
            Call::Create(create) => self.create(zxid, who, create),
            Call::Delete { path, version } => self.delete(zxid, who, path, *version),
            Call::SetData { path, data, version } => self.set_data(zxid, who, path, data, *version),
            Call::SetAcl { path, acl, version } => self.set_acl(who, path, acl, *version),
            Call::Check { path, version } => self.check(who, path, *version),
            Call::Multi(parts) => Ok(self.multi(zxid, who, parts)),
            other => panic!("it changes no znodes: {other:?}"),
        }
    }

    /// Removes all ephemeral znodes of a session. Their paths.
    pub fn close_session(&mut self, zxid: i64, session: i64) -> BTreeSet<String> {
        let paths = self.ephemerals.remove(&session).unwrap_or_default();
        for path in &paths {
            self.remove(zxid, path);
        }
        paths
    }

    /// Removes a container or a znode whose time has come, as only the server itself does.
    ///
    /// # Errors
    /// Why it must not: `NoNode`, `NotEmpty`, or `BadVersion` for an ephemeral znode.
    pub fn reap(&mut self, zxid: i64, path: &str) -> Result<(), Code> {
        let znode = self.find(path).ok_or(Code::NO_NODE)?;
        if matches!(znode.owner, Owner::Session(_)) {
            return Err(Code::BAD_VERSION);
        }
        if !znode.children.is_empty() {
            return Err(Code::NOT_EMPTY);
        }
        self.remove(zxid, path);
        Ok(())
    }

    /// What a read shows.
    ///
    /// # Errors
    /// The code that is due.
    ///
    /// # Panics
    /// If the call is no read.
    pub fn read(&self, who: Caller<'_>, call: &Call) -> Result<Answer, Code> {
        let readable = |path: &str, perms: i32| {
            let znode = self.find(path).ok_or(Code::NO_NODE)?;
            if !acl::is_allowed(&znode.acl, who.ids, perms) {
                return Err(Code::NO_AUTH);
            }
            Ok(znode)
        };
        match call {
            Call::Exists { path, .. } if path.contains('\0') => Err(Code::BAD_ARGUMENTS),
            Call::Exists { path, .. } => Ok(Answer::Stat(self.stat(readable(path, Acl::READ)?))),
            Call::GetData { path, .. } => {
                let znode = readable(path, Acl::READ)?;
                Ok(Answer::Data(znode.data.clone(), self.stat(znode)))
            }
            Call::GetAcl { path } => {
                let znode = readable(path, Acl::READ | Acl::ADMIN)?;
                let all = acl::is_allowed(&znode.acl, who.ids, Acl::ADMIN);
                let shown = |entry: &Acl| if all { entry.clone() } else { masked(entry) };
                Ok(Answer::Acl(znode.acl.iter().map(shown).collect(), self.stat(znode)))
            }
            Call::GetChildren { path, stat, .. } => {
                let znode = readable(path, Acl::READ)?;
                Ok(Answer::Children(
                    znode.children.iter().cloned().collect(),
                    stat.then(|| self.stat(znode)),
                ))
            }
            Call::AllChildrenNumber { path } => {
                readable(path, Acl::READ)?;
                Ok(Answer::Number(self.descendants(path)))
            }
            Call::Ephemerals { prefix } => {
                let all = prefix.trim().is_empty() || prefix == "/";
                let paths = self.ephemerals_of(who.session).into_iter();
                Ok(Answer::Paths(paths.filter(|path| all || path.starts_with(prefix)).collect()))
            }
            Call::MultiRead(parts) => {
                Ok(Answer::Parts(parts.iter().map(|part| self.read(who, part)).collect()))
            }
            other => panic!("no read: {other:?}"),
        }
    }

    fn descendants(&self, path: &str) -> i32 {
        let below =
            if path == "/" || path.is_empty() { "/".to_owned() } else { format!("{path}/") };
        let others =
            self.znodes.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
        i32::try_from(others.filter(|(path, _)| **path != "/").count()).expect("it is in memory")
    }

    fn create(&mut self, zxid: i64, who: Caller<'_>, create: &Create) -> Result<Answer, Code> {
        let Create { op, path: asked, data, acl, mode, ttl_ms } = create;
        if mode.has_ttl() && !self.extended_types {
            return Err(Code::UNIMPLEMENTED);
        }
        let ttl_is_valid = (1..=TTL_MS_MAX).contains(ttl_ms);
        if mode.has_ttl() != (*op == CreateOp::Ttl) || mode.has_ttl() && !ttl_is_valid {
            return Err(Code::BAD_ARGUMENTS);
        }
        let parent = path::lenient_parent(asked).ok_or(Code::BAD_ARGUMENTS)?;
        let acl = acl::stored(acl, who.ids)?;
        let parent = self.find(parent).ok_or(Code::NO_NODE)?;
        if !acl::is_allowed(&parent.acl, who.ids, Acl::CREATE) {
            return Err(Code::NO_AUTH);
        }
        let path = match mode.is_sequential() {
            true => format!("{asked}{:010}", parent.creates),
            false => asked.clone(),
        };
        if !path::is_valid(&path) {
            return Err(Code::BAD_ARGUMENTS);
        }
        if self.find(&path).is_some() {
            return Err(Code::NODE_EXISTS);
        }
        if matches!(parent.owner, Owner::Session(_)) {
            return Err(Code::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let owner = match op {
            CreateOp::Container => Owner::Container,
            CreateOp::Ttl => Owner::Ttl,
            CreateOp::Create | CreateOp::Create2 if mode.is_ephemeral() => {
                Owner::Session(who.session)
            }
            CreateOp::Create | CreateOp::Create2 => Owner::Nobody,
        };
        let stat = self.insert(zxid, &path, data.clone(), acl, owner);
        Ok(match op {
            CreateOp::Create => Answer::Path(path),
            CreateOp::Create2 | CreateOp::Container | CreateOp::Ttl => Answer::PathStat(path, stat),
        })
    }

    fn insert(&mut self, zxid: i64, path: &str, data: Data, acl: Vec<Acl>, owner: Owner) -> Stat {
        let (parent_path, name) = path::split(path).expect("it is valid and not the root");
        self.remember(parent_path);
        self.remember(path);
        let parent = self.at(parent_path);
        parent.creates = parent.creates.wrapping_add(1);
        parent.pzxid = zxid;
        parent.children.insert(name.to_owned());
        if let Owner::Session(session) = owner {
            self.ephemerals.entry(session).or_default().insert(path.to_owned());
        }
        let znode = Znode {
            data,
            acl,
            owner,
            children: BTreeSet::new(),
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            version: 0,
            aversion: 0,
            creates: 0,
        };
        let stat = self.stat(&znode);
        self.znodes.insert(path.to_owned(), znode);
        self.changed(EventKind::Created, path);
        stat
    }

    fn delete(
        &mut self,
        zxid: i64,
        who: Caller<'_>,
        path: &str,
        version: i32,
    ) -> Result<Answer, Code> {
        let special = path::is_special(path);
        let parent = path::lenient_parent(path).filter(|_| !special).ok_or(Code::BAD_ARGUMENTS)?;
        let parent = self.find(parent).ok_or(Code::NO_NODE)?;
        if !acl::is_allowed(&parent.acl, who.ids, Acl::DELETE) {
            return Err(Code::NO_AUTH);
        }
        let znode = self.find(path).ok_or(Code::NO_NODE)?;
        next_version(znode.version, version)?;
        if !znode.children.is_empty() {
            return Err(Code::NOT_EMPTY);
        }
        self.remove(zxid, path);
        Ok(Answer::Done)
    }

    fn remove(&mut self, zxid: i64, path: &str) {
        let (parent_path, name) = path::split(path).expect("the root is never removed");
        self.remember(parent_path);
        self.remember(path);
        let znode = self.znodes.remove(path).expect("it was found before");
        if let Owner::Session(session) = znode.owner
            && let Some(paths) = self.ephemerals.get_mut(&session)
        {
            paths.remove(path);
        }
        let parent = self.at(parent_path);
        parent.children.remove(name);
        parent.pzxid = zxid;
        self.changed(EventKind::Deleted, path);
    }

    fn set_data(
        &mut self,
        zxid: i64,
        who: Caller<'_>,
        path: &str,
        data: &Data,
        version: i32,
    ) -> Result<Answer, Code> {
        let znode = self.permitted(path, who, Acl::WRITE)?;
        let next = next_version(znode.version, version)?;
        self.remember(path);
        let znode = self.at(path);
        znode.version = next;
        znode.mzxid = zxid;
        znode.data.clone_from(data);
        self.changed(EventKind::DataChanged, path);
        Ok(Answer::Stat(self.stat(&self.znodes[path])))
    }

    fn set_acl(
        &mut self,
        who: Caller<'_>,
        path: &str,
        acl: &[Acl],
        version: i32,
    ) -> Result<Answer, Code> {
        if !path::is_valid(path) {
            return Err(Code::BAD_ARGUMENTS);
        }
        let acl = acl::stored(acl, who.ids)?;
        let znode = self.permitted(path, who, Acl::ADMIN)?;
        let next = next_version(znode.aversion, version)?;
        self.remember(path);
        let znode = self.at(path);
        znode.aversion = next;
        znode.acl = acl;
        Ok(Answer::Stat(self.stat(&self.znodes[path])))
    }

    fn check(&self, who: Caller<'_>, path: &str, version: i32) -> Result<Answer, Code> {
        let znode = self.permitted(path, who, Acl::READ)?;
        next_version(znode.version, version)?;
        Ok(Answer::Done)
    }

    /// The znode of a valid path, if the caller may do that to it.
    fn permitted(&self, path: &str, who: Caller<'_>, perms: i32) -> Result<&Znode, Code> {
        if !path::is_valid(path) {
            return Err(Code::BAD_ARGUMENTS);
        }
        let znode = self.znodes.get(path).ok_or(Code::NO_NODE)?;
        if !acl::is_allowed(&znode.acl, who.ids, perms) {
            return Err(Code::NO_AUTH);
        }
        Ok(znode)
    }

    /// All or nothing. After a failure the parts before it are told 0, those after it
    /// `RuntimeInconsistency`.
    fn multi(&mut self, zxid: i64, who: Caller<'_>, parts: &[Call]) -> Answer {
        self.undo = Some(Vec::new());
        let unchanged = self.changes.len();
        let mut results = Vec::with_capacity(parts.len());
        for part in parts {
            let result = self.apply(zxid, who, part);
            let failed = result.is_err();
            results.push(result);
            if failed {
                break;
            }
        }
        let undo = self.undo.take().expect("set above; a multi has no multi as a part");
        if let Some(Err(_)) = results.last() {
            self.undo(undo);
            self.changes.truncate(unchanged);
            let failed = results.len() - 1;
            results[..failed].fill(Err(Code::OK));
            results.resize(parts.len(), Err(Code::RUNTIME_INCONSISTENCY));
        }
        Answer::Parts(results)
    }

    fn undo(&mut self, undo: Vec<(String, Option<Znode>)>) {
        for (path, before) in undo.into_iter().rev() {
            if let Some(Owner::Session(session)) = self.znodes.get(&path).map(|now| now.owner) {
                self.ephemerals.entry(session).or_default().remove(&path);
            }
            let Some(znode) = before else {
                self.znodes.remove(&path);
                continue;
            };
            if let Owner::Session(session) = znode.owner {
                self.ephemerals.entry(session).or_default().insert(path.clone());
            }
            self.znodes.insert(path, znode);
        }
    }

    /// Keeps what a znode is, if a multi may have to take it back.
    fn remember(&mut self, path: &str) {
        if let Some(undo) = &mut self.undo {
            undo.push((path.to_owned(), self.znodes.get(path).cloned()));
        }
    }

    fn at(&mut self, path: &str) -> &mut Znode {
        self.znodes.get_mut(path).expect("it was found before")
    }
}

/// The version after a change, if the expected one fits. 3.10 skips -1, which means "any".
fn next_version(current: i32, expected: i32) -> Result<i32, Code> {
    if expected != -1 && expected != current {
        return Err(Code::BAD_VERSION);
    }
    match current.wrapping_add(1) {
        -1 => Ok(0),
        next => Ok(next),
    }
}

/// What somebody without ADMIN sees of an entry.
fn masked(entry: &Acl) -> Acl {
    match (entry.scheme.as_str(), entry.id.split_once(':')) {
        ("digest", Some((user, _))) => Acl { id: format!("{user}:x"), ..entry.clone() },
        _ => entry.clone(),
    }
}
