//! Several replicas, driven by hand, for tests: disks and links are instant until a test says otherwise.
//!
//! *Owns* the replicas, their clock, what lies between them, and what clients are told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};

use super::*;
use crate::config::ServerSpec;
use crate::proto::connect::{ConnectRequest, ConnectResponse};
use crate::proto::request::{Create, CreateKind, Request};
use crate::proto::response::ReplyHeader;
use crate::proto::{Acl, Reader, frame};
use crate::tree::Options;

/// The replicas and what is between them.
pub(super) struct Cluster {
    pub(super) replicas: BTreeMap<u8, Replica>,
    /// Raft id of each server.
    pub(super) ids: BTreeMap<u8, u64>,
    /// Pairs that cannot hear each other, in this direction.
    pub(super) cut: BTreeSet<(u8, u8)>,
    /// What was sent between them.
    pub(super) lost: Vec<PeerMessage>,
    /// Pairs between which something was lost, and nothing has arrived since.
    broken: BTreeSet<(u8, u8)>,
    pub(super) now_us: u64,
    /// By how much the wall clocks of servers are ahead, in milliseconds.
    pub(super) wall_ahead_ms: BTreeMap<u8, i64>,
    /// Frames received and whether the connection was closed, by server and connection.
    pub(super) seen: BTreeMap<(u8, ConnId), (Vec<Bytes>, bool)>,
    /// What each server's log holds.
    pub(super) logs: BTreeMap<u8, BTreeMap<u64, Entry>>,
    /// Up to where each server's disk remembers that entries are committed, whatever happens.
    pub(super) synced_commits: BTreeMap<u8, u64>,
    /// A server that is not told of commits behind this index.
    pub(super) kept_from: Option<(u8, u64)>,
    /// A server and a connection: once that is answered, what is on its way between the servers is lost.
    pub(super) halts_at: Option<(u8, ConnId)>,
    /// Servers whose disks get nothing done, and what each was to write meanwhile.
    pub(super) held: BTreeMap<u8, Vec<u64>>,
    /// Of the last entries that each server wrote.
    pub(super) urgency: BTreeMap<u8, Urgency>,
    pub(super) setup: Setup,
}

fn servers(ids: &[u8]) -> Vec<ServerSpec> {
    let spec = |id: &u8| {
        let ports = format!("{}:10{id};20{id}", u16::from(*id) + u16::from(*id == 0));
        ServerSpec::parse(*id, &format!("127.0.0.1:{ports}")).unwrap()
    };
    ids.iter().map(spec).collect()
}

fn options() -> Options {
    let super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
    Options { super_digest: Some(super_digest), ..Options::default() }
}

impl Cluster {
    pub(super) fn new(count: u8) -> Self {
        Self::with(count, Setup::default())
    }

    pub(super) fn with(count: u8, setup: Setup) -> Self {
        Self::of(&(1..=count).collect::<Vec<u8>>(), setup)
    }

    /// Servers with these ids.
    pub(super) fn of(ids: &[u8], setup: Setup) -> Self {
        let setup = Setup { ensemble: Some(servers(ids)), reconfig_enabled: true, ..setup };
        let mut cluster = Self {
            replicas: BTreeMap::new(),
            ids: BTreeMap::new(),
            cut: BTreeSet::new(),
            lost: Vec::new(),
            broken: BTreeSet::new(),
            now_us: 0,
            wall_ahead_ms: BTreeMap::new(),
            seen: BTreeMap::new(),
            logs: BTreeMap::new(),
            synced_commits: BTreeMap::new(),
            kept_from: None,
            halts_at: None,
            held: BTreeMap::new(),
            urgency: BTreeMap::new(),
            setup,
        };
        let voters: Vec<u64> = ids.iter().map(|id| peer::raft_id(0, *id)).collect();
        let membership = Membership { voters, learners: Vec::new() };
        for id in ids {
            cluster.start(*id, peer::raft_id(0, *id), membership.clone());
        }
        cluster.until("a leader", |cluster| cluster.leader().is_some());
        cluster.until("all serve", |cluster| cluster.replicas.values().all(Replica::is_serving));
        cluster
    }

    pub(super) fn start(&mut self, server: u8, raft_id: u64, membership: Membership) {
        // Another one for each process.
        let mut seed = [server; 32];
        seed[..8].copy_from_slice(&self.now_us.to_le_bytes());
        let setup = Setup { raft_id, server_id: server, seed, ..self.setup.clone() };
        let restored = Restored { membership, ..Restored::default() };
        let replica = Replica::new(setup, Machine::fresh(options()), restored).unwrap();
        self.replicas.insert(server, replica);
        self.ids.insert(server, raft_id);
        self.logs.insert(server, BTreeMap::new());
        let ids = self.ids.clone();
        for (other, replica) in &mut self.replicas {
            if *other != server {
                replica.step(Input::PeerUp { peer: raft_id });
            } else {
                for (_, peer) in ids.iter().filter(|(id, _)| **id != server) {
                    replica.step(Input::PeerUp { peer: *peer });
                }
            }
        }
    }

    /// Ends a server; the others notice at once.
    pub(super) fn kill(&mut self, server: u8) {
        self.replicas.remove(&server);
        let peer = self.ids.remove(&server).unwrap();
        for replica in self.replicas.values_mut() {
            replica.step(Input::PeerDown { peer });
        }
        self.drive();
    }

    /// Whether so many voters and learners are what the leader counts.
    pub(super) fn counts(&self, voters: usize, learners: usize) -> bool {
        let counted = |id| {
            let membership = self.replicas[&id].consensus.membership();
            (membership.voters.len(), membership.learners.len())
        };
        self.leader().map(counted) == Some((voters, learners))
    }

    pub(super) fn leader(&self) -> Option<u8> {
        let leads =
            |(id, replica): (&u8, &Replica)| replica.leadership.leads().map(|term| (term, *id));
        self.replicas.iter().filter_map(leads).max().map(|(_, id)| id)
    }

    pub(super) fn follower(&self) -> u8 {
        let leader = self.leader();
        *self.replicas.keys().find(|id| Some(**id) != leader).unwrap()
    }

    pub(super) fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if condition(self) {
                return;
            }
            self.advance_ms(TICK_MS);
        }
        panic!("{what}: not within 30 s");
    }

    pub(super) fn advance_ms(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(TICK_MS) {
            self.tick_in(TICK_MS * 1000);
        }
    }

    pub(super) fn tick_in(&mut self, us: u64) {
        self.now_us += us;
        let wall_ms = 1_000_000 + i64::try_from(self.now_us / 1000).unwrap();
        for (server, replica) in &mut self.replicas {
            let wall_ms = wall_ms + self.wall_ahead_ms.get(server).copied().unwrap_or(0);
            replica.step(Input::Tick { now_us: self.now_us, wall_ms });
        }
        self.drive();
    }

    pub(super) fn drive(&mut self) {
        loop {
            let mut messages = Vec::new();
            for (server, replica) in &mut self.replicas {
                let log = self.logs.get_mut(server).unwrap();
                while let Some(ready) = replica.ready().unwrap() {
                    for outgoing in ready.client {
                        let seen = self.seen.entry((*server, outgoing.conn)).or_default();
                        let mut bytes = BytesMut::from(&outgoing.frames[..]);
                        while let Some(payload) = frame::next(&mut bytes, usize::MAX).unwrap() {
                            seen.0.push(payload);
                        }
                        seen.1 |= outgoing.close;
                    }
                    if let Some(append) = ready.append {
                        if append.install.is_some() {
                            log.clear();
                        }
                        if let Some(state) = append.hard_state
                            && append.urgency != Urgency::None
                        {
                            self.synced_commits.insert(*server, state.commit);
                        }
                        if !append.entries.is_empty() {
                            self.urgency.insert(*server, append.urgency);
                        }
                        for entry in append.entries {
                            log.split_off(&entry.index);
                            log.insert(entry.index, entry);
                        }
                        match self.held.get_mut(server) {
                            Some(numbers) => numbers.push(append.number),
                            None => replica.persisted(append.number),
                        }
                    }
                    for fetch in ready.fetch {
                        let range = fetch.from..=fetch.to;
                        let entries = log.range(range).map(|(_, entry)| entry.clone()).collect();
                        replica.step(Input::Fetched { fetch, entries });
                    }
                    let from = replica.setup.raft_id;
                    messages
                        .extend(ready.send.into_iter().map(|(to, message)| (from, to, message)));
                }
            }
            if messages.is_empty() {
                return;
            }
            let is_answered =
                |at: &mut (u8, ConnId)| self.seen.get(at).is_some_and(|seen| !seen.0.is_empty());
            if self.halts_at.take_if(is_answered).is_some() {
                for (from, to, message) in messages {
                    self.broken.insert((peer::server_of(from), peer::server_of(to)));
                    self.lost.push(message);
                }
                return;
            }
            self.deliver(messages);
        }
    }

    /// Brings messages to their receivers, but for those on links that are cut.
    fn deliver(&mut self, messages: Vec<(u64, u64, PeerMessage)>) {
        for (from, to, message) in messages {
            let (source, target) = (peer::server_of(from), peer::server_of(to));
            if self.cut.contains(&(source, target)) {
                self.lost.push(message);
                self.broken.insert((source, target));
                continue;
            }
            if self.broken.remove(&(source, target))
                && let Some(replica) = self.replicas.get_mut(&source)
            {
                // A link that has lost something is another one when it delivers again.
                replica.step(Input::PeerUp { peer: to });
            }
            if self.ids.get(&target) != Some(&to) {
                continue;
            }
            let mut message = message;
            if let (PeerMessage::Raft(raft), Some((server, commit))) =
                (&mut message, self.kept_from)
                && server == target
            {
                raft.commit = raft.commit.min(commit);
            }
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let message = PeerMessage::decode(bytes.into()).unwrap();
            if let Some(replica) = self.replicas.get_mut(&target) {
                replica.step(Input::Peer { from, message });
            }
        }
    }

    /// From now on, nothing that a server writes gets durable.
    pub(super) fn hold_disk(&mut self, server: u8) {
        self.held.insert(server, Vec::new());
    }

    /// What was held back is durable, and all that follows at once.
    pub(super) fn release_disk(&mut self) {
        assert!(!self.held.is_empty(), "a disk that is held");
        for (server, numbers) in std::mem::take(&mut self.held) {
            for number in numbers {
                self.replicas.get_mut(&server).unwrap().persisted(number);
            }
        }
        self.drive();
    }

    /// Cuts a server off from all others, both ways, without anybody being told.
    pub(super) fn isolate(&mut self, server: u8) {
        for other in self.replicas.keys().filter(|id| **id != server) {
            self.cut.insert((server, *other));
            self.cut.insert((*other, server));
        }
    }

    pub(super) fn ask(&mut self, server: u8, conn: ConnId, session: Option<&ConnectResponse>) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 4000,
            session_id: session.map_or(0, |session| session.session_id),
            password: Bytes::copy_from_slice(session.map_or(&[][..], |known| &known.password)),
            read_only: Some(true),
        };
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let input = Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request };
        self.replicas.get_mut(&server).unwrap().step(input);
        self.drive();
    }

    pub(super) fn response(&mut self, server: u8, conn: ConnId) -> Option<ConnectResponse> {
        let frames = &mut self.seen.get_mut(&(server, conn))?.0;
        (!frames.is_empty()).then(|| ConnectResponse::decode(frames.remove(0)).unwrap())
    }

    pub(super) fn connect(
        &mut self,
        server: u8,
        conn: ConnId,
        session: Option<&ConnectResponse>,
    ) -> ConnectResponse {
        self.ask(server, conn, session);
        self.response(server, conn).expect("an answer")
    }

    pub(super) fn connect_super_user(&mut self, server: u8) {
        self.connect(server, 1, None);
        let auth = Request::Auth {
            scheme: Some("digest".into()),
            auth: Some(Bytes::from_static(b"super:test")),
        };
        self.send(server, 1, &[(-4, auth)]);
        assert_eq!(self.replies(server, 1), [(-4, 0)]);
    }

    pub(super) fn send(&mut self, server: u8, conn: ConnId, requests: &[(i32, Request)]) {
        let requests = requests.iter().map(|(xid, request)| {
            let mut payload = Vec::new();
            crate::proto::RequestHeader { xid: *xid, op: request.op() as i32 }.encode(&mut payload);
            request.encode(&mut payload);
            ClientRequest::decode(Bytes::from(payload)).unwrap()
        });
        let requests = requests.collect();
        self.replicas.get_mut(&server).unwrap().step(Input::Requests { conn, requests });
        self.drive();
    }

    /// The headers of everything received since the last look.
    pub(super) fn headers(&mut self, server: u8, conn: ConnId) -> Vec<ReplyHeader> {
        let Some((frames, _)) = self.seen.get_mut(&(server, conn)) else { return Vec::new() };
        let header = |payload| ReplyHeader::decode(&mut Reader::new(payload)).unwrap();
        std::mem::take(frames).into_iter().map(header).collect()
    }

    /// (xid, err) of everything received since the last look.
    pub(super) fn replies(&mut self, server: u8, conn: ConnId) -> Vec<(i32, i32)> {
        let headers = self.headers(server, conn);
        headers.iter().map(|header| (header.xid, header.err)).collect()
    }

    pub(super) fn closed(&self, server: u8, conn: ConnId) -> bool {
        self.seen.get(&(server, conn)).is_some_and(|(_, closed)| *closed)
    }

    pub(super) fn assert_equal(&mut self) {
        self.until("all apply the same", |cluster| {
            let zxids: BTreeSet<i64> =
                cluster.replicas.values().map(|replica| replica.machine().last_zxid()).collect();
            zxids.len() == 1
        });
        let digests: BTreeSet<u128> =
            self.replicas.values().map(|replica| replica.machine().digest()).collect();
        assert_eq!(digests.len(), 1);
    }
}

pub(super) fn create(path: &str, flags: i32) -> Request {
    Request::Create(Create {
        path: path.into(),
        data: Some(Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags,
        ttl_ms: 0,
        kind: CreateKind::Create,
    })
}

pub(super) fn get(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: false }
}

pub(super) fn reconfig(joining: Option<&str>, leaving: Option<&str>) -> Request {
    Request::Reconfig {
        joining: joining.map(Into::into),
        leaving: leaving.map(Into::into),
        members: None,
        version: -1,
    }
}
