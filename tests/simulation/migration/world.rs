//! The world of a migration: three servers, a model of ZooKeeper's leader, and clients.
//!
//! *Owns* the time, the queues between servers, and the course of a seed. *Invariant*: the same seed gives the same
//! course.

mod faults;
mod links;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Buf as _, Bytes};
use lockkeeper_core::proto::Acl;
use lockkeeper_core::proto::request::{Create, CreateKind, Request};
use lockkeeper_core::replica::{
    Input, MigrateOrder, Outgoing, PeerMessage, Phase, Replica, Report,
};

use super::super::conn::Violation;
use super::super::rng::Rng;
use super::super::zookeeper::{BEGINS_MS, Leader, Lie, Ticks};
use super::client::{Asked, Client};
use super::host::{Host, SERVERS, Todo};
use links::Deposed;

const CLIENTS: usize = 6;
/// As this server of ZooKeeper they join.
pub(super) const SERVER_ID: u8 = 200;
/// Steps of each part of a seed, at most.
const FOUNDING_STEPS: u64 = 4000;
const WILD_STEPS: u64 = 1500;
const CUTOVER_STEPS: u64 = 400;
const CUTOVERS_MAX: u64 = 60;
const DEPOSED_STEPS: u64 = 500;
const QUIET_STEPS: u64 = 2500;
const QUIET_CUTOVERS_MAX: u64 = 20;
/// A session of ZooKeeper whose client is gone ends after this time.
const ORPHAN_MS: i32 = 4000;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Cutovers that were done.
    pub taken_over: u64,
    /// Those of them that were done while another server still believed to lead.
    pub beside_deposed: u64,
    /// Cutovers that were refused before.
    pub refused: u64,
    /// Copies that differed, and were given up.
    pub stopped: u64,
    /// Leaders of ZooKeeper, and servers of ours, that died.
    pub leaders_replaced: u64,
    /// Leaders of ZooKeeper that hung, and went on when there was another one.
    pub leaders_hung: u64,
    pub servers_killed: u64,
    /// Links that broke.
    pub links_lost: u64,
    /// Requests of clients that were answered.
    pub answers: u64,
    /// Connections that ended with a request that was not answered.
    pub unanswered: u64,
}

impl Seen {
    /// Adds what another run has seen.
    pub fn add(&mut self, run: &Self) {
        let Self {
            taken_over,
            beside_deposed,
            refused,
            stopped,
            leaders_replaced,
            leaders_hung,
            servers_killed,
            links_lost,
            answers,
            unanswered,
        } = run;
        self.taken_over += taken_over;
        self.beside_deposed += beside_deposed;
        self.refused += refused;
        self.stopped += stopped;
        self.leaders_replaced += leaders_replaced;
        self.leaders_hung += leaders_hung;
        self.servers_killed += servers_killed;
        self.links_lost += links_lost;
        self.answers += answers;
        self.unanswered += unanswered;
    }
}

/// See the module.
pub struct World {
    pub(super) hosts: Vec<Host>,
    pub(super) clients: Vec<Client>,
    pub(super) leader: Leader,
    deposed: Option<Deposed>,
    /// Sessions of ZooKeeper whose clients are not here.
    pub(super) elsewhere: BTreeSet<i64>,
    pub(super) is_cut_over: bool,
    pub(super) theirs_at_cutover: i64,
    pub(super) has_lied: bool,
    pub seen: Seen,
    rng: Rng,
    now_us: u64,
    steps: u64,
    queues: BTreeMap<(u8, u8), VecDeque<PeerMessage>>,
    cuts: BTreeMap<(u8, u8), u64>,
    conns: u64,
    tokens: u64,
    cxid: i32,
    made: u64,
    is_wild: bool,
    /// Clients of this server say nothing now.
    hushed: Option<u8>,
    /// Clients reach ZooKeeper.
    is_open: bool,
    /// Cutovers that were ordered and not refused.
    pub(super) cutovers: BTreeSet<u64>,
    /// Looks at ZooKeeper's ports: of which server, for which attempt, and when they end.
    looks: Vec<(u8, u64, u64)>,
    /// Until then ZooKeeper commits nothing, and pings.
    slow_until_us: u64,
    prints: bool,
}

impl World {
    pub fn new(seed: u64, prints: bool) -> Self {
        let ticks = Ticks { tick_ms: 500, init_limit: 10, sync_limit: 5 };
        Self {
            hosts: (1..=SERVERS).map(Host::new).collect(),
            clients: (0..CLIENTS).map(Client::new).collect(),
            leader: Leader::new(ticks, 1000),
            deposed: None,
            elsewhere: BTreeSet::new(),
            is_cut_over: false,
            theirs_at_cutover: 0,
            has_lied: false,
            seen: Seen::default(),
            rng: Rng::new(seed, 21),
            now_us: 1_000_000,
            steps: 0,
            queues: BTreeMap::new(),
            cuts: BTreeMap::new(),
            conns: 0,
            tokens: 0,
            cxid: 0,
            made: 0,
            is_wild: false,
            hushed: None,
            is_open: false,
            cutovers: BTreeSet::new(),
            looks: Vec::new(),
            slow_until_us: 0,
            prints,
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The whole course.
    pub fn play(&mut self) -> Result<(), Violation> {
        for id in 1..=SERVERS {
            self.start(id);
        }
        self.until(FOUNDING_STEPS, "the ensemble serves", |world| world.leading().is_some())?;
        for _ in 0..self.rng.below(20) {
            self.write_elsewhere();
        }
        let quorum = vec!["zk:2888".to_owned()];
        let clients = vec!["zk:2181".to_owned()];
        while self.hosts.iter().all(|host| {
            host.replica.as_ref().is_none_or(|replica| replica.machine().migration().is_none())
        }) {
            let (quorum, clients) = (quorum.clone(), clients.clone());
            self.order(MigrateOrder::Follow { server_id: SERVER_ID, quorum, clients })?;
            for _ in 0..20 {
                self.step()?;
            }
        }
        (self.is_wild, self.is_open) = (true, true);
        for _ in 0..self.rng.range(WILD_STEPS / 3, WILD_STEPS) {
            self.step()?;
        }
        self.is_open = false;
        if self.rng.chance(150) {
            return self.lie();
        }
        // Clients of ZooKeeper are gone; their sessions end in time.
        for _ in 0..CUTOVERS_MAX {
            self.is_wild = false;
            if self.rng.chance(500) {
                self.depose()?;
            }
            if self.is_cut_over {
                break;
            }
            self.is_wild = self.rng.chance(400);
            if self.leading().is_some() {
                self.order(MigrateOrder::CutOver)?;
                if self.rng.chance(100) {
                    self.lose_leader()?;
                }
            }
            for _ in 0..self.rng.range(20, CUTOVER_STEPS) {
                self.step()?;
            }
            if self.is_cut_over {
                break;
            }
            self.seen.refused += 1;
        }
        self.be_quiet()?;
        // A session that was opened for a client that never heard of it has its whole timeout yet.
        for _ in 0..QUIET_CUTOVERS_MAX {
            if self.is_cut_over {
                break;
            }
            self.order(MigrateOrder::CutOver)?;
            for _ in 0..CUTOVER_STEPS {
                self.step()?;
            }
        }
        if !self.is_cut_over {
            return Err("it never takes over".to_owned());
        }
        self.seen.taken_over += 1;
        let answers: Vec<u64> = self.clients.iter().map(|client| client.answers).collect();
        self.until(QUIET_STEPS, "all clients are answered behind the cutover", |world| {
            let counts = world.clients.iter().zip(&answers);
            counts.into_iter().all(|(client, before)| client.answers > before + 3)
        })?;
        self.hush()?;
        self.judge_the_end()?;
        self.seen.answers = self.clients.iter().map(|client| client.answers).sum();
        Ok(())
    }

    /// The leader loses the other servers, and no side is told. Another one comes to lead, and takes over at once,
    /// while the first may not know yet that it is deposed: its clients ask it for the first time then, and its link
    /// with ZooKeeper is there.
    fn depose(&mut self) -> Result<(), Violation> {
        let Some(deposed) = self.leading() else { return Ok(()) };
        let until_us = self.now_us + self.rng.range(1_000_000, 3_000_000);
        self.note(|| format!("server {deposed} hears nothing of the others"));
        self.isolate(deposed, until_us);
        // A request that it cannot log keeps its client waiting, who then asks for nothing more.
        self.hushed = Some(deposed);
        for _ in 0..DEPOSED_STEPS {
            if self.is_cut_over {
                self.seen.beside_deposed += u64::from(self.leads(deposed));
                break;
            }
            if self.leading().is_some_and(|id| id != deposed && self.follows(id)) {
                self.order(MigrateOrder::CutOver)?;
            }
            self.step()?;
        }
        self.hushed = None;
        Ok(())
    }

    /// The leader dies within the time that a cutover takes.
    fn lose_leader(&mut self) -> Result<(), Violation> {
        for _ in 0..self.rng.below(40) {
            self.step()?;
        }
        if let Some(id) = self.leading() {
            self.kill(id);
        }
        Ok(())
    }

    fn leads(&self, id: u8) -> bool {
        let replica = self.hosts[usize::from(id) - 1].replica.as_ref();
        replica.is_some_and(|replica| replica.status().leading_ms.is_some())
    }

    /// ZooKeeper's leader says another digest than it has: no server goes on with that.
    fn lie(&mut self) -> Result<(), Violation> {
        self.be_quiet()?;
        self.until(QUIET_STEPS, "a server that leads follows", |world| {
            world.leading().is_some_and(|id| world.follows(id))
        })?;
        self.has_lied = true;
        let mut lied_to = None;
        for _ in 0..QUIET_STEPS {
            // A link that ends takes its lie along: another server may come to lead just then.
            let link = self.leading().and_then(|id| self.hosts[usize::from(id) - 1].link);
            if let Some(link) = link.filter(|link| lied_to != Some(*link)) {
                self.leader.lie(link, Lie::Digest);
                self.write_elsewhere();
                lied_to = Some(link);
            }
            if self.has_stopped() {
                break;
            }
            self.step()?;
        }
        if !self.has_stopped() {
            return Err("the copy is not given up".to_owned());
        }
        self.seen.stopped += 1;
        if let Some(host) =
            self.hosts.iter().find(|host| host.replica.as_ref().is_some_and(Replica::is_serving))
        {
            return Err(format!("server {} serves a copy that differs", host.id));
        }
        Ok(())
    }

    /// Whether no server takes the copy for ZooKeeper's state any more.
    fn has_stopped(&self) -> bool {
        let phase = |host: &Host| host.replica.as_ref()?.machine().migration().map(|it| it.phase);
        self.hosts.iter().all(|host| phase(host) == Some(Phase::Stopped))
    }

    fn follows(&self, id: u8) -> bool {
        let replica = self.hosts[usize::from(id) - 1].replica.as_ref();
        replica.is_some_and(|replica| {
            let phase = replica.machine().migration().map(|migration| migration.phase);
            phase == Some(Phase::Following) && replica.is_serving()
        })
    }

    /// No more faults.
    fn be_quiet(&mut self) -> Result<(), Violation> {
        self.is_wild = false;
        self.slow_until_us = 0;
        self.cuts.values_mut().for_each(|until_us| *until_us = 0);
        self.until(QUIET_STEPS, "all servers run", |world| {
            let is_whole = world.cuts.is_empty() && world.deposed.is_none();
            is_whole && world.hosts.iter().all(|host| host.replica.is_some())
        })
    }

    /// Clients say nothing more, until all servers have one state.
    fn hush(&mut self) -> Result<(), Violation> {
        self.until(QUIET_STEPS, "nothing is on its way", |world| {
            world.clients.iter().all(|client| client.asked.is_empty())
        })?;
        for _ in 0..200 {
            self.advance()?;
        }
        Ok(())
    }

    fn until(
        &mut self,
        most: u64,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), Violation> {
        for _ in 0..most {
            if is_so(self) {
                return Ok(());
            }
            self.step()?;
        }
        Err(format!("still waiting until {what}"))
    }

    /// The server that leads; of two, the one that was elected later.
    fn leading(&self) -> Option<u8> {
        let leading = self.hosts.iter().filter(|host| self.leads(host.id));
        let term = |host: &&Host| host.replica.as_ref().map(|replica| replica.status().term);
        leading.max_by_key(term).map(|host| host.id)
    }

    /// An operator asks the server that leads.
    fn order(&mut self, order: MigrateOrder) -> Result<(), Violation> {
        let Some(id) = self.leading() else { return Ok(()) };
        self.tokens += 1;
        self.note(|| format!("order {order:?} to {id}"));
        let token = self.tokens;
        if order == MigrateOrder::CutOver {
            self.cutovers.insert(token);
        }
        self.hosts[usize::from(id) - 1].step(Input::Migrate { token, order });
        self.turn(id)
    }

    /// Something happens, and time passes.
    fn step(&mut self) -> Result<(), Violation> {
        if self.is_wild {
            self.go_wrong();
        }
        if self.is_open && self.rng.chance(100) {
            self.write_elsewhere();
        }
        let at = self.rng.index(self.clients.len());
        self.act(at)?;
        self.advance()
    }

    /// Time passes: what is on its way arrives, some of it.
    fn advance(&mut self) -> Result<(), Violation> {
        self.steps += 1;
        self.now_us += self.rng.range(1000, 12_000);
        self.mend();
        let now_ms = (self.now_us / 1000).cast_signed();
        self.leader.tick(now_ms);
        self.mind_deposed();
        let (commits, applies) = (self.rng.index(6), self.rng.index(6));
        if self.now_us >= self.slow_until_us {
            self.leader.commit(commits);
        }
        self.leader.apply(applies);
        self.leader.write_snapshots(self.rng.index(8));
        let leader = &self.leader;
        self.elsewhere.retain(|session| leader.owner_of(*session).is_some());
        let now_us = self.now_us;
        for (id, attempt, _) in self.looks.extract_if(.., |(_, _, at_us)| *at_us <= now_us) {
            // No client reaches ZooKeeper any more; sessions may still be open.
            let closed = Input::ZooKeeperClosed { attempt, closed: Ok(()) };
            self.hosts[usize::from(id) - 1].step(closed);
        }
        for id in 1..=SERVERS {
            self.deliver(id);
            self.carry(id)?;
            let (now_us, wall_ms) = (self.now_us, now_ms + BEGINS_MS);
            self.hosts[usize::from(id) - 1].step(Input::Tick { now_us, wall_ms });
            self.turn(id)?;
        }
        self.nothing_happens_there()
    }

    /// Messages of other servers.
    fn deliver(&mut self, to: u8) {
        for from in (1..=SERVERS).filter(|from| *from != to) {
            let Some(queue) = self.queues.get_mut(&(from, to)) else { continue };
            let count =
                if self.rng.chance(800) { queue.len() } else { self.rng.index(queue.len() + 1) };
            for message in queue.drain(..count) {
                self.hosts[usize::from(to) - 1].step(Input::Peer { from: from.into(), message });
            }
        }
    }

    /// Does what a server wants.
    fn turn(&mut self, id: u8) -> Result<(), Violation> {
        loop {
            let Todo { peers, client, reports, zookeeper } = self.hosts[usize::from(id) - 1]
                .turn()
                .map_err(|why| format!("server {id}: {why}"))?;
            let is_done = peers.is_empty() && client.is_empty() && zookeeper.is_empty();
            for (to, message) in peers {
                let to = u8::try_from(to).expect("a server");
                if !self.is_cut(id, to) && self.hosts[usize::from(to) - 1].replica.is_some() {
                    self.queues.entry((id, to)).or_default().push_back(message);
                }
            }
            for (token, report) in reports {
                self.note(|| format!("server {id} answers {token}: {report:?}"));
                // A leader that was deposed does not know what became of it.
                if matches!(&report, Report::Migrated(Err(why)) if !why.contains("whether")) {
                    self.cutovers.remove(&token);
                }
            }
            for outgoing in client {
                self.answer(id, outgoing)?;
            }
            for work in zookeeper {
                self.link(id, work);
            }
            self.judge(id)?;
            if is_done {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, id: u8, outgoing: Outgoing) -> Result<(), Violation> {
        let Outgoing { conn, frames, close, .. } = outgoing;
        let place = Some((id, conn));
        let Some(at) = self.clients.iter().position(|client| client.place == place) else {
            return Ok(());
        };
        let client = &mut self.clients[at];
        let mut frames = Bytes::from(frames);
        while frames.len() >= 4 {
            let length = usize::try_from(frames.get_i32()).map_err(|bad| bad.to_string())?;
            client.receive(frames.split_to(length), self.now_us)?;
        }
        if close {
            self.seen.unanswered += u64::from(!client.asked.is_empty());
            client.closed();
        }
        let session = self.clients[at].session;
        let same = self.clients.iter().filter(|client| client.session == session).count();
        if session != 0 && same > 1 {
            return Err(format!("{same} clients have session {session:#x}"));
        }
        Ok(())
    }

    /// A client does something.
    fn act(&mut self, at: usize) -> Result<(), Violation> {
        let client = &mut self.clients[at];
        if client.place.is_some_and(|(id, _)| Some(id) == self.hushed) {
            return Ok(());
        }
        let input = match client.place {
            None => {
                let id = self.rng.range(1, SERVERS.into());
                let id = u8::try_from(id).expect("a server");
                let serves = self.hosts[usize::from(id) - 1].replica.as_ref();
                if !serves.is_some_and(Replica::is_serving) {
                    return Ok(());
                }
                self.conns += 1;
                Some((id, client.connect(id, self.conns)))
            }
            Some((id, conn)) if self.is_wild && self.rng.chance(10) => {
                self.seen.unanswered += u64::from(!client.asked.is_empty());
                client.closed();
                Some((id, Input::Closed { conn }))
            }
            Some((id, _)) if client.is_idle() => {
                let asked = match (client.has_created, client.has_mirror) {
                    _ if client.members.is_none() => Asked::Members,
                    (false, _) => Asked::Create,
                    (true, false) => Asked::Mirror,
                    (true, true) if self.is_wild && self.rng.chance(15) => Asked::Close,
                    (true, true) => {
                        self.rng.of(&[Asked::Set, Asked::Set, Asked::Set, Asked::Sync, Asked::Ping])
                    }
                };
                client.committed = if self.is_cut_over { 0 } else { self.leader.last_committed() };
                client.ask(asked).map(|input| (id, input))
            }
            Some((id, _)) => match client.next().filter(|_| self.rng.chance(500)) {
                Some(next) => client.ask(next).map(|input| (id, input)),
                None => None,
            },
        };
        let Some((id, input)) = input else { return Ok(()) };
        self.hosts[usize::from(id) - 1].step(input);
        self.turn(id)
    }

    /// A client of ZooKeeper's own servers does something.
    fn write_elsewhere(&mut self) {
        self.made += 1;
        self.cxid += 1;
        let session = match self.elsewhere.first() {
            Some(session) if self.rng.chance(900) => *session,
            _ => {
                let session = 1 << 56 | self.made.cast_signed();
                self.leader.open_elsewhere(session, ORPHAN_MS);
                self.elsewhere.insert(session);
                session
            }
        };
        let path = format!("/theirs-{}", self.rng.below(30));
        let request = match self.rng.below(4) {
            _ if self.rng.chance(50) => {
                // Also their number changes.
                let lines = (0..=self.made % 3).map(|id| format!("server.{id}=zk{id}:1:2;2181\n"));
                let members =
                    Some(format!("{}version={:x}", lines.collect::<String>(), self.made).into());
                Request::Reconfig { joining: None, leaving: None, members, version: -1 }
            }
            0 => Request::Delete { path: path.into(), version: -1 },
            1 => Request::SetData { path: path.into(), data: Some(Bytes::new()), version: -1 },
            _ => Request::Create(Create {
                path: path.into(),
                data: None,
                acl: Some(vec![Acl::open()]),
                flags: 0,
                ttl_ms: 0,
                kind: CreateKind::Create,
            }),
        };
        self.leader.ask_elsewhere(session, self.cxid, &request, &[]);
    }

    fn note(&self, words: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>9} us: {}", self.now_us, words());
        }
    }
}
