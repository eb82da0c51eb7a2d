//! A client: one session at a time, one request at a time, each to its own znode; and now and then several at once, of
//! which each may only be done behind those before it.
//!
//! *Owns* what it was acknowledged, and what may have happened besides. *Invariant*: it says something often enough to
//! keep its session, until it closes that.

use std::collections::VecDeque;

use bytes::Bytes;
use lockkeeper_core::proto::request::{Create, CreateKind, Request};
use lockkeeper_core::proto::{Acl, ConnectRequest, ConnectResponse, Reader, RequestHeader, Stat};
use lockkeeper_core::replica::{ClientRequest, Input};

use super::super::conn::Violation;

/// The xid of events.
const XID_EVENT: i32 = -1;

/// What it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Create,
    /// Its second znode, which is set behind the first one.
    Mirror,
    Set,
    /// The second znode, to what the first one was to have.
    SetMirror,
    Sync,
    /// The first znode: not what is only set behind it.
    Get,
    Ping,
    /// `/zookeeper/config`, with a watch.
    Members,
    Close,
}

/// A client.
pub struct Client {
    pub number: usize,
    /// How many sessions it had before.
    lives: u64,
    /// The server that it is connected to, and the connection.
    pub place: Option<(u8, u64)>,
    pub session: i64,
    password: Vec<u8>,
    is_open: bool,
    xid: i32,
    /// Not answered, oldest first.
    pub asked: VecDeque<(i32, Asked)>,
    /// The highest zxid that it has seen.
    pub zxid: i64,
    /// What ZooKeeper had committed when it asked.
    pub committed: i64,
    /// Sets that were acknowledged, and those that may have been done.
    pub acknowledged: i32,
    pub unknown: i32,
    pub has_created: bool,
    pub has_mirror: bool,
    /// `/zookeeper/config` as it was shown last, until its watch fires.
    pub members: Option<String>,
    /// zxids of what was acknowledged.
    pub zxids: Vec<i64>,
    pub answers: u64,
    pub heard_us: u64,
}

impl Client {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            lives: 0,
            place: None,
            session: 0,
            password: vec![0; 16],
            is_open: false,
            xid: 0,
            asked: VecDeque::new(),
            zxid: 0,
            committed: 0,
            acknowledged: 0,
            unknown: 0,
            has_created: false,
            has_mirror: false,
            members: None,
            zxids: Vec::new(),
            answers: 0,
            heard_us: 0,
        }
    }

    pub fn path(&self) -> String {
        format!("/client-{}-{}", self.number, self.lives)
    }

    /// Never has a later number than the one at [`Client::path`].
    pub fn mirror(&self) -> String {
        format!("{}-mirror", self.path())
    }

    /// Whether it may ask for something.
    pub fn is_idle(&self) -> bool {
        self.is_open && self.asked.is_empty()
    }

    /// Connects to that server.
    pub fn connect(&mut self, server: u8, conn: u64) -> Input {
        self.place = Some((server, conn));
        self.is_open = false;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.zxid,
            timeout_ms: 30_000,
            session_id: self.session,
            password: self.password.clone().into(),
            read_only: None,
        };
        let remote = [127, 0, 0, 1].into();
        Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request }
    }

    /// Its connection is gone.
    pub fn closed(&mut self) {
        self.place = None;
        self.is_open = false;
        self.members = None;
        for (_, asked) in std::mem::take(&mut self.asked) {
            match asked {
                Asked::Set => self.unknown += 1,
                // Done or not, it wants another one.
                Asked::Close => self.begin_anew(),
                Asked::Create
                | Asked::Mirror
                | Asked::SetMirror
                | Asked::Sync
                | Asked::Get
                | Asked::Ping
                | Asked::Members => {}
            }
        }
    }

    /// Its next connection is to have another session.
    fn begin_anew(&mut self) {
        self.lives += 1;
        (self.session, self.password) = (0, vec![0; 16]);
        (self.acknowledged, self.unknown) = (0, 0);
        (self.has_created, self.has_mirror) = (false, false);
    }

    /// Asks for something.
    pub fn ask(&mut self, asked: Asked) -> Option<Input> {
        let (_, conn) = self.place?;
        self.xid += 1;
        let path = self.path().into();
        let request = match asked {
            Asked::Create | Asked::Mirror => Request::Create(Create {
                path: if asked == Asked::Create { path } else { self.mirror().into() },
                data: Some(Bytes::new()),
                acl: Some(vec![Acl::open()]),
                flags: 1,
                ttl_ms: 0,
                kind: CreateKind::Create2,
            }),
            Asked::Set => set(self.path(), self.xid),
            Asked::SetMirror => set(self.mirror(), self.xid - 1),
            Asked::Get => Request::GetData { path, watch: false },
            Asked::Sync => Request::Sync { path: Some(path) },
            Asked::Ping => Request::Ping,
            Asked::Members => Request::GetData { path: "/zookeeper/config".into(), watch: true },
            Asked::Close => Request::CloseSession,
        };
        self.asked.push_back((self.xid, asked));
        Some(Input::Requests { conn, requests: vec![encoded(self.xid, &request)] })
    }

    /// What it may ask for without waiting for what it asked for last.
    pub fn next(&self) -> Option<Asked> {
        match self.asked.back()?.1 {
            Asked::Set if self.has_mirror => Some(Asked::SetMirror),
            Asked::Sync if self.has_created => Some(Asked::Get),
            Asked::Get => Some(Asked::Set),
            _ => None,
        }
    }

    /// A frame arrives.
    pub fn receive(&mut self, frame: Bytes, now_us: u64) -> Result<(), Violation> {
        self.heard_us = now_us;
        if !self.is_open {
            let answer = ConnectResponse::decode(frame).map_err(|bad| bad.to_string())?;
            if answer.session_id == 0 {
                return Err(format!("client {} lost its session {:#x}", self.number, self.session));
            }
            if self.session != 0 && answer.session_id != self.session {
                return Err(format!("client {} got another session", self.number));
            }
            self.session = answer.session_id;
            self.password = answer.password.to_vec();
            self.is_open = true;
            return Ok(());
        }
        let mut reader = Reader::new(frame);
        let wrong = |_| "a reply that is too short".to_owned();
        let (xid, zxid, code) = (
            reader.int("xid").map_err(wrong)?,
            reader.long("zxid").map_err(wrong)?,
            reader.int("err").map_err(wrong)?,
        );
        if xid == XID_EVENT {
            return match self.members.take() {
                Some(_) => Ok(()),
                None => Err(format!("client {}: an event without a watch", self.number)),
            };
        }
        let Some((asked_xid, asked)) = self.asked.pop_front() else {
            return Err(format!("client {}: a reply to nothing", self.number));
        };
        if asked != Asked::Ping && xid != asked_xid {
            return Err(format!("client {}: xid {xid} for {asked_xid}", self.number));
        }
        if zxid > 0 {
            if zxid < self.zxid {
                return Err(format!(
                    "client {}: zxid {zxid:#x} after {:#x}",
                    self.number, self.zxid
                ));
            }
            self.zxid = zxid;
        }
        self.answers += 1;
        match (asked, code) {
            (Asked::Mirror, 0 | -110) => self.has_mirror = true,
            (Asked::SetMirror, 0) => self.zxids.push(zxid),
            (Asked::Create, 0 | -110) => {
                self.has_created = true;
                if code == 0 {
                    self.zxids.push(zxid);
                }
            }
            (Asked::Set, 0) => {
                self.acknowledged += 1;
                self.zxids.push(zxid);
                let stat = Stat::decode(&mut reader).map_err(|bad| bad.to_string())?;
                if stat.mzxid != zxid || stat.ephemeral_owner != self.session {
                    return Err(format!("client {}: {stat:?} at {zxid:#x}", self.number));
                }
            }
            (Asked::Sync, 0) if zxid < self.committed => {
                let (number, committed) = (self.number, self.committed);
                return Err(format!(
                    "client {number}: {committed:#x} was committed before a sync to {zxid:#x}"
                ));
            }
            (Asked::Sync | Asked::Ping, 0) => {}
            (Asked::Get, 0) => {
                let data = reader.buffer("data").map_err(|bad| bad.to_string())?;
                let data = String::from_utf8_lossy(&data.unwrap_or_default()).into_owned();
                if data.parse().is_ok_and(|set: i32| set > asked_xid) {
                    return Err(format!("client {}: {asked_xid} reads {data}", self.number));
                }
            }
            (Asked::Members, 0) => {
                let data = reader.buffer("data").map_err(|bad| bad.to_string())?;
                let data = data.unwrap_or_default();
                let stat = Stat::decode(&mut reader).map_err(|bad| bad.to_string())?;
                if usize::try_from(stat.data_length) != Ok(data.len()) {
                    return Err(format!("client {}: {stat:?} of {data:?}", self.number));
                }
                self.members = Some(String::from_utf8_lossy(&data).into_owned());
            }
            (Asked::Close, 0) => self.begin_anew(),
            (asked, code) => {
                return Err(format!("client {}: {asked:?} is answered {code}", self.number));
            }
        }
        Ok(())
    }
}

/// Data that are ordered as the numbers are.
fn set(path: String, number: i32) -> Request {
    let data = Some(Bytes::from(format!("{number:010}")));
    Request::SetData { path: path.into(), data, version: -1 }
}

fn encoded(xid: i32, request: &Request) -> ClientRequest {
    let mut payload = Vec::new();
    RequestHeader { xid, op: request.op() as i32 }.encode(&mut payload);
    request.encode(&mut payload);
    ClientRequest::decode(payload.into()).expect("it has a header")
}
