//! What clients ask for.
//!
//! *Owns* the requests that random clients draw: few names, so that they meet; now and then one that
//! makes no sense.

use bytes::Bytes;
use lockkeeper_core::proto::request::{AddWatchMode, Create, CreateKind, WatcherType};
use lockkeeper_core::proto::{Acl, MultiOp, ReadOp, Request, Text};

use super::config::{Config, Kind};
use super::model::quota::{LIMITS, QUOTA, USAGE};
use super::rng::Rng;

/// Gives a quota to one of the znodes that clients use, or takes part of it away.
pub fn quota(rng: &mut Rng) -> Request {
    let dir = format!("{QUOTA}/n{}", rng.below(3));
    let (limits, usage) = (format!("{dir}{LIMITS}"), format!("{dir}{USAGE}"));
    let create = |path: String, data: &'static [u8]| {
        let data = Some(Bytes::from_static(data));
        let (kind, path, acl) = (CreateKind::Create, Text::from(path), Some(vec![Acl::open()]));
        Request::Create(Create { kind, path, data, acl, flags: 0, ttl_ms: 0 })
    };
    match rng.below(8) {
        0 | 1 => create(dir, b""),
        2 => create(limits, b"count=-1,bytes=-1"),
        3 => create(limits, b"count=-1,bytes=-1=;byteHardLimit=40;countHardLimit=4"),
        4..=6 => create(usage, b"count=0,bytes=0"),
        _ => {
            let path = Text::from(if rng.chance(500) { limits } else { usage });
            Request::Delete { path, version: -1 }
        }
    }
}

/// What a client draws its requests from.
#[derive(Debug)]
pub struct Draw<'a> {
    pub rng: &'a mut Rng,
    pub config: &'a Config,
    /// Paths that replies named.
    pub recent: &'a [String],
}

impl Draw<'_> {
    /// A request of some kind.
    pub fn request(&mut self, kind: Kind) -> Request {
        match kind {
            Kind::Create
            | Kind::CreateEphemeral
            | Kind::CreateSequential
            | Kind::CreateContainer
            | Kind::CreateTtl => Request::Create(self.create(kind)),
            Kind::Delete => Request::Delete { path: self.path(), version: self.version() },
            Kind::Set => {
                let (path, data) = (self.path(), self.data());
                Request::SetData { path, data, version: self.version() }
            }
            Kind::SetAcl => {
                let (path, acl) = (self.path(), self.acl());
                // Or nobody may ever make the znode of a lock.
                let acl = if path.as_str() == "/" { Some(vec![Acl::open()]) } else { acl };
                Request::SetAcl { path, acl, version: self.version() }
            }
            Kind::Multi => {
                let count = self.rng.below(5);
                Request::Multi((0..count).map(|_| self.one_of_multi()).collect())
            }
            Kind::Get => Request::GetData { path: self.path(), watch: self.rng.chance(400) },
            Kind::Exists => Request::Exists { path: self.path(), watch: self.rng.chance(400) },
            Kind::Children => Request::GetChildren {
                path: self.parent(),
                watch: self.rng.chance(400),
                stat: self.rng.chance(500),
            },
            Kind::GetAcl => Request::GetAcl { path: self.path() },
            Kind::OtherRead => self.other_read(),
            Kind::MultiRead => {
                let count = self.rng.below(4);
                Request::MultiRead((0..count).map(|_| self.one_of_reads()).collect())
            }
            Kind::Sync => Request::Sync { path: Some(self.path()) },
            Kind::Ping => Request::Ping,
            Kind::AddWatch => {
                let modes = [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive];
                Request::AddWatch { path: self.parent(), mode: *self.rng.pick(&modes) }
            }
            Kind::RemoveWatch => {
                Request::RemoveWatches { path: self.path(), kind: self.watcher_type() }
            }
            Kind::CheckWatch => {
                Request::CheckWatches { path: self.path(), kind: self.watcher_type() }
            }
            Kind::Auth => self.auth(),
            Kind::Odd => self.odd(),
        }
    }

    fn create(&mut self, kind: Kind) -> Create {
        let (kind, flags, ttl_ms) = match kind {
            Kind::CreateEphemeral => (self.plain(), 1, 0),
            Kind::CreateSequential => (self.plain(), 2 + self.rng.below(2) as i32, 0),
            Kind::CreateContainer => (CreateKind::Container, 4, 0),
            Kind::CreateTtl => {
                (CreateKind::Ttl, 5 + self.rng.below(2) as i32, self.rng.range(50, 900) as i64)
            }
            _ => (self.plain(), 0, 0),
        };
        let path = match flags {
            2 | 3 | 6 if self.rng.chance(300) => Text::from(format!("{}/", self.parent())),
            _ => self.path(),
        };
        Create { kind, path, data: self.data(), acl: self.acl(), flags, ttl_ms }
    }

    fn plain(&mut self) -> CreateKind {
        *self.rng.pick(&[CreateKind::Create, CreateKind::Create2])
    }

    fn path(&mut self) -> Text {
        if !self.recent.is_empty() && self.rng.chance(200) {
            return Text::from(self.rng.pick(self.recent).clone());
        }
        if self.rng.chance(20) {
            let odd =
                ["", "/", "a", "//", "/n0/", "/n0//x", "/n0/..", "/n\u{1}", "/zookeeper/config"];
            return Text::from(*self.rng.pick(&odd));
        }
        let mut path = format!("/n{}", self.rng.below(5));
        if self.rng.chance(650) {
            path += &format!("/m{}", self.rng.below(4));
            if self.rng.chance(250) {
                path += &format!("/k{}", self.rng.below(3));
            }
        }
        Text::from(path)
    }

    /// A path that is likely to have children.
    fn parent(&mut self) -> Text {
        match self.rng.below(6) {
            0 => Text::from_static("/"),
            1 => self.path(),
            _ => Text::from(format!("/n{}", self.rng.below(5))),
        }
    }

    fn version(&mut self) -> i32 {
        match self.rng.below(10) {
            0 => -2,
            1..=3 => self.rng.below(4) as i32,
            _ => -1,
        }
    }

    fn data(&mut self) -> Option<Bytes> {
        if self.rng.chance(50) {
            return None;
        }
        let len = self.rng.below(self.config.data_bytes_max);
        let byte = self.rng.next() as u8;
        Some((0..len).map(|at| byte.wrapping_add(at as u8)).collect())
    }

    fn acl(&mut self) -> Option<Vec<Acl>> {
        let entry = |perms, scheme: &str, id: &str| Acl {
            perms,
            scheme: Text::from(scheme),
            id: Text::from(id),
        };
        match self.rng.below(40) {
            0 => None,
            1 => Some(Vec::new()),
            2 => Some(vec![entry(31, "auth", "")]),
            3 => Some(vec![entry(31, "digest", "u0:DIpnEgFj6vM9ScYgMWbYOXVpTe8=")]),
            4 => Some(vec![
                entry(31, "digest", "u1:FfP80c+zcEPgU6zorph629PDPJ0="),
                entry(1, "world", "anyone"),
            ]),
            5 => Some(vec![entry(27, "world", "anyone"), entry(4, "auth", "")]),
            6 => Some(vec![entry(31, "ip", "10.0.0.1")]),
            7 => Some(vec![entry(1, "world", "anyone"), entry(31, "ip", "10.0.0.0/24")]),
            8 => Some(vec![entry(31, "world", "bob")]),
            9 => Some(vec![entry(31, "bogus", "x")]),
            10 => Some(vec![Acl::open(), Acl::open()]),
            _ => Some(vec![Acl::open()]),
        }
    }

    fn one_of_multi(&mut self) -> MultiOp {
        let (path, version) = (self.path(), self.version());
        match self.rng.below(8) {
            0 => MultiOp::Delete { path, version },
            1 | 2 => MultiOp::SetData { path, data: self.data(), version },
            3 => MultiOp::Check { path, version },
            4 => MultiOp::Create(self.create(Kind::CreateSequential)),
            5 => MultiOp::Create(self.create(Kind::CreateEphemeral)),
            6 => MultiOp::Create(self.create(Kind::CreateContainer)),
            _ => MultiOp::Create(self.create(Kind::Create)),
        }
    }

    fn one_of_reads(&mut self) -> ReadOp {
        match self.rng.below(2) {
            0 => ReadOp::GetData { path: self.path() },
            _ => ReadOp::GetChildren { path: self.parent() },
        }
    }

    fn other_read(&mut self) -> Request {
        match self.rng.below(4) {
            0 => Request::GetAllChildrenNumber { path: self.parent() },
            1 => Request::GetEphemerals { prefix: None },
            2 => Request::GetEphemerals { prefix: Some(Text::from_static("/n1")) },
            _ => Request::WhoAmI,
        }
    }

    fn watcher_type(&mut self) -> WatcherType {
        *self.rng.pick(&[
            WatcherType::Any,
            WatcherType::Children,
            WatcherType::Data,
            WatcherType::Persistent,
            WatcherType::PersistentRecursive,
        ])
    }

    fn auth(&mut self) -> Request {
        let who: &'static [u8] = self.rng.pick::<&[u8]>(&[b"u0:p", b"u1:p", b"u2:p"]);
        let scheme = Some(Text::from_static("digest"));
        Request::Auth { scheme, auth: Some(Bytes::from_static(who)) }
    }

    fn odd(&mut self) -> Request {
        match self.rng.below(24) {
            0 => Request::Auth { scheme: Some(Text::from_static("bogus")), auth: None },
            1..=3 => Request::Reconfig {
                joining: None,
                leaving: None,
                members: Some(Text::from_static("server.1=a:1:2")),
                version: -1,
            },
            4..=6 => Request::Create(Create { flags: 9, ..self.create(Kind::Create) }),
            7..=9 => Request::Create(Create { ttl_ms: 0, ..self.create(Kind::CreateTtl) }),
            10..=12 => Request::Sync { path: None },
            13..=17 => Request::Multi(vec![
                MultiOp::Create(self.create(Kind::Create)),
                MultiOp::Check { path: Text::from_static("/none"), version: -1 },
            ]),
            _ => Request::Create(Create { flags: 4, ..self.create(Kind::Create) }),
        }
    }
}
