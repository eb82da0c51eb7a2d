//! The other servers of an ensemble: who they are, and who connects to whom.
//!
//! *Owns* [`Peers`], which the tasks of all links share. *Invariants*: there is one task for each
//! other member, which connects to it, again and again; a link has a number that no link before it
//! had; a complaint is made once, until its cause changes or is gone. *Never* ends because of what
//! another server does, or does not.
//!
//! Takes the place of `QuorumCnxManager`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::hello::{self, Hello, Kind};
use super::images::Transfers;
use super::lines::{Line, Lines};
use super::security::Security;
use crate::admin::LinkCounts;
use crate::config::{PeerAddress, Role, ServerSpec};
use crate::replica::founding::Introduction;
use crate::replica::txn_version::FIRST;
use crate::server::mailbox::{LinkEvent, Message};
use crate::server::metrics::{Figures, Measures, Striped};
use crate::supervision::{self, Task};

/// Things said of a server and one cause that are not said again: it is looked for at so many lines at most.
const COMPLAINTS_KEPT: usize = 4;

#[derive(Debug, Default)]
struct Complaints {
    said: BTreeMap<(u8, &'static str), VecDeque<String>>,
    lines: Lines,
}

/// The servers that this one connects to.
#[derive(Debug)]
struct Followed {
    members: Vec<ServerSpec>,
    /// See [`Peers::takes_guest`].
    guests: BTreeMap<u8, ServerSpec>,
}

/// Shared by the tasks that serve links.
#[derive(Debug)]
pub(crate) struct Peers {
    /// This server's id.
    pub own: u8,
    /// The way to the driver.
    pub driver: mpsc::Sender<Message>,
    /// Images on their way.
    pub transfers: Transfers,
    /// Held while the driver answers a question of another server: one at a time, however many come.
    pub questions: tokio::sync::Mutex<()>,
    /// How other servers are known.
    pub security: Security,
    /// What is counted; see [`Peers::count`].
    figures: Arc<Figures>,
    /// Who this server is, at the moment.
    introduction: watch::Sender<Introduction>,
    /// Members, and guests.
    known: Mutex<Followed>,
    /// Whether clients are served.
    serves: AtomicBool,
    /// Whom to connect to.
    pub(super) members: watch::Sender<Vec<ServerSpec>>,
    /// The server lines that the configuration file had at the start: hints.
    file: Vec<ServerSpec>,
    /// By server id: where the last link to it was made.
    reached: Mutex<BTreeMap<u8, Vec<PeerAddress>>>,
    /// By server id: where it says that it listens, as of the last link that it has made.
    heard: Mutex<BTreeMap<u8, Vec<PeerAddress>>>,
    /// Links for messages that others have made to this server, by a number of their own: from whom, and
    /// through which port.
    incoming: Mutex<BTreeMap<u64, (u8, u16)>>,
    /// Servers that there is to be no link with.
    barred: watch::Sender<BTreeSet<u8>>,
    /// By server id: the version that is spoken with it, as agreed last.
    versions: Mutex<BTreeMap<u8, u16>>,
    links: AtomicU64,
    /// The term in which this server is.
    term: AtomicU64,
    /// The version of the ensemble, as this server has applied it.
    ensemble_version: AtomicU8,
    /// By server id: a reason to try again at once.
    nudges: Vec<Notify>,
    /// What was said last of a server, by cause, and how much more may be said.
    complaints: Mutex<Complaints>,
}

impl Peers {
    /// Those that the configuration names.
    #[must_use]
    pub(crate) fn new(
        own: u8,
        servers: Vec<ServerSpec>,
        introduction: Introduction,
        driver: mpsc::Sender<Message>,
        transfers: Transfers,
        figures: Arc<Figures>,
    ) -> Self {
        // A reader of the counters finds none counted so far, and not a server without others.
        figures.links();
        Self {
            own,
            driver,
            transfers,
            questions: tokio::sync::Mutex::default(),
            introduction: watch::Sender::new(introduction),
            known: Mutex::new(Followed { members: servers.clone(), guests: BTreeMap::new() }),
            serves: AtomicBool::new(false),
            members: watch::Sender::new(servers.clone()),
            file: servers,
            reached: Mutex::default(),
            heard: Mutex::default(),
            incoming: Mutex::default(),
            barred: watch::Sender::default(),
            versions: Mutex::default(),
            links: AtomicU64::new(0),
            term: AtomicU64::new(0),
            ensemble_version: AtomicU8::new(FIRST),
            nudges: (0..=u8::MAX).map(|_| Notify::new()).collect(),
            complaints: Mutex::default(),
            security: Security::default(),
            figures,
        }
    }

    /// Knows other servers so, before there is a link.
    #[must_use]
    pub(crate) fn secured_by(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Where links and images are counted.
    pub(crate) fn counts(&self) -> &LinkCounts<Striped> {
        self.figures.links()
    }

    /// Where it is measured how much waits for other servers.
    pub(crate) fn measures(&self) -> &Measures {
        &self.figures.measures
    }

    /// Who this server is.
    #[must_use]
    pub(crate) fn introduction(&self) -> Introduction {
        self.introduction.borrow().clone()
    }

    /// Says something else of this server from now on. What it decided must be durable before.
    pub(crate) fn introduce(&self, introduction: Introduction) {
        tell(&self.introduction, introduction);
    }

    /// Told when this server has something else to say of itself.
    pub(crate) fn introductions(&self) -> watch::Receiver<Introduction> {
        self.introduction.subscribe()
    }

    /// Connects to these servers from now on.
    pub(crate) fn follow(&self, members: Vec<ServerSpec>) {
        self.known(|known| known.members = members);
    }

    /// Where the members of the ensemble say that a server is; `None` if this one does not follow it.
    pub(crate) fn line(&self, server: u8) -> Option<Vec<PeerAddress>> {
        let members = self.members.borrow();
        members.iter().find(|spec| spec.id == server).map(|spec| spec.addresses.clone())
    }

    /// Where a server may be reached, in the order in which that is tried: where the members of the
    /// ensemble say, where it was reached last, where the configuration file said at the start, and where it
    /// says itself that it listens. Which server it is says its hello. Empty if this one does not follow it.
    pub(crate) fn lines(&self, server: u8) -> Vec<Vec<PeerAddress>> {
        let Some(line) = self.line(server) else { return Vec::new() };
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.file.iter().find(|spec| spec.id == server);
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let hints = reached.get(&server).into_iter().chain(file.map(|spec| &spec.addresses));
        let hints = hints.chain(heard.get(&server));
        let key = |address: &PeerAddress| (address.host.clone(), address.peer_port);
        let mut lines = vec![line];
        for hint in hints {
            let is_known = |address: &PeerAddress| {
                lines.iter().flatten().any(|known| key(known) == key(address))
            };
            if hint.iter().any(|address| !is_known(address)) {
                lines.push(hint.clone());
            }
        }
        lines
    }

    /// The hosts of a server, as the members of the ensemble say and the configuration file: what it says itself is
    /// none of that.
    pub(super) fn hosts(&self, server: u8) -> Vec<String> {
        let file = self.file.iter().find(|spec| spec.id == server);
        let file = file.into_iter().flat_map(|spec| &spec.addresses);
        let known = self.line(server).unwrap_or_default();
        let mut hosts: Vec<String> = Vec::new();
        for address in known.iter().chain(file) {
            if !hosts.contains(&address.host) {
                hosts.push(address.host.clone());
            }
        }
        hosts
    }

    /// All addresses at which a server may be reached, that of its last link first.
    pub(crate) fn addresses(&self, server: u8) -> Option<Vec<PeerAddress>> {
        let mut lines = self.lines(server);
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        // It is one of them.
        lines.sort_by_key(|line| reached.get(&server) != Some(line));
        (!lines.is_empty()).then(|| lines.concat())
    }

    /// A link was made to a server.
    pub(crate) fn reached(&self, server: u8, line: Vec<PeerAddress>) {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).insert(server, line);
    }

    /// Where this server listens, for the others: what stands for all addresses of a machine is none.
    pub(crate) fn listens(&self) -> Vec<PeerAddress> {
        let is_any = |address: &PeerAddress| {
            address.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_unspecified())
        };
        let mut listens = self.lines(self.own).concat();
        if listens.is_empty() {
            let own = self.file.iter().find(|spec| spec.id == self.own);
            listens = own.map_or(Vec::new(), |spec| spec.addresses.clone());
        }
        listens.retain(|address| !is_any(address));
        listens
    }

    /// A member has made a link to this server, and says that it listens there.
    pub(crate) fn heard_of(&self, server: u8, listens: Vec<PeerAddress>) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).insert(server, listens);
    }

    /// Waits until the members of the ensemble say another address of a server than `line`.
    pub(crate) async fn moved(&self, server: u8, line: &[PeerAddress]) {
        let is_elsewhere = |members: &Vec<ServerSpec>| {
            let known = members.iter().find(|spec| spec.id == server);
            known.is_some_and(|spec| spec.addresses != line)
        };
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.members.subscribe().wait_for(is_elsewhere).await;
    }

    /// A server has made a link through one of this one's ports. Dropping what is returned ends that.
    pub(crate) fn incoming(&self, server: u8, port: u16) -> Incoming<'_> {
        let number = self.next_link();
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        incoming.insert(number, (server, port));
        Incoming { peers: self, number }
    }

    /// The ports through which a server has links to this one.
    pub(crate) fn incoming_ports(&self, server: u8) -> Vec<u16> {
        let incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        incoming.values().filter(|(from, _)| *from == server).map(|(_, port)| *port).collect()
    }

    /// The servers that this one follows.
    pub(crate) fn others(&self) -> Vec<u8> {
        let members = self.members.borrow();
        members.iter().map(|spec| spec.id).filter(|id| *id != self.own).collect()
    }

    /// Whether a server is this one or one that it follows: a member by what is replicated, and before
    /// that is known by the lines of the configuration. Others are told nothing.
    #[must_use]
    pub(crate) fn is_member(&self, server: u8) -> bool {
        server == self.own || self.members.borrow().iter().any(|spec| spec.id == server)
    }

    /// Takes a server for a member that is none by what this one knows, if that belongs to this ensemble, is in no
    /// earlier term, and this one does not serve: it may have been away, and the members may be others by now. Until
    /// it serves, it is linked with such a guest where that says that it listens.
    pub(super) fn takes_guest(&self, hello: &Hello) -> bool {
        let own = (self.own, &*self.introduction.borrow());
        let is_ours = hello.kind == Kind::Messages
            && hello::judge(own, (hello.server, &hello.introduction), hello.kind).is_ok();
        let may_be_away = !self.serves.load(Ordering::Relaxed) && hello.term >= self.term();
        if !is_ours || !may_be_away || hello.listens.is_empty() {
            return false;
        }
        let guest = ServerSpec {
            id: hello.server,
            addresses: hello.listens.clone(),
            role: Role::Participant,
            client: None,
            secure_client: None,
        };
        self.known(|known| {
            known.guests.insert(guest.id, guest);
        });
        true
    }

    /// This server serves from now on, or does not: who serves knows the members.
    pub(crate) fn set_serving(&self, serves: bool) {
        if self.serves.swap(serves, Ordering::Relaxed) != serves && serves {
            self.known(|known| known.guests.clear());
        }
    }

    /// Changes whom this server knows, and connects to them.
    fn known(&self, change: impl FnOnce(&mut Followed)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        let Followed { members, guests } = &*known;
        let is_guest = |spec: &&ServerSpec| members.iter().all(|member| member.id != spec.id);
        let all = members.iter().chain(guests.values().filter(is_guest)).cloned();
        tell(&self.members, all.collect());
    }

    /// What is said of a server that is no member.
    #[must_use]
    pub(crate) fn stranger(&self, server: u8) -> String {
        let own = self.own;
        match *self.introduction.borrow() {
            Introduction::Founded(_) => format!(
                "is no member of the ensemble of server {own}: to add it there, use `lockkeeper member add \
                 'server.{server}=...'`"
            ),
            Introduction::Founding(_) => {
                format!("has no line in the configuration of server {own}")
            }
        }
    }

    /// Waits until a server is a member no longer.
    pub(crate) async fn dismissed(&self, server: u8) {
        let is_gone = |members: &Vec<ServerSpec>| !members.iter().any(|spec| spec.id == server);
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.members.subscribe().wait_for(is_gone).await;
    }

    /// A version was agreed upon with a server.
    pub(crate) fn speaks(&self, server: u8, version: u16) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(server, version);
    }

    /// The version that is spoken with a server; 0 for one that was never met.
    pub(crate) fn version(&self, server: u8) -> u16 {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(&server).copied().unwrap_or(0)
    }

    /// Whether a server takes messages that 0.1.0-rc.1 does not know, by the protocol that was agreed with it last.
    pub(super) fn knows_later(&self, server: u8) -> bool {
        self.version(server) >= hello::LATER_SINCE
    }

    /// Whether a server knows this version of ensembles, by the protocol that was agreed with it last.
    pub(crate) fn knows_version(&self, server: u8, ensemble_version: u8) -> bool {
        self.version(server) >= hello::protocol_of(ensemble_version)
    }

    /// The term in which this server is, as of the driver's last batch; 0 before it has one.
    pub(crate) fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    /// This server is in this term from now on.
    pub(crate) fn set_term(&self, term: u64) {
        self.term.store(term, Ordering::Relaxed);
    }

    /// The ensemble is at this version from now on.
    pub(crate) fn set_ensemble_version(&self, version: u8) {
        self.ensemble_version.store(version, Ordering::Relaxed);
    }

    /// Lowest and highest version of the protocol that is spoken with others.
    pub(crate) fn spoken(&self) -> (u16, u16) {
        hello::spoken_at(self.ensemble_version.load(Ordering::Relaxed))
    }

    /// A number for a new link.
    pub(crate) fn next_link(&self) -> u64 {
        self.links.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Waits for a reason to connect to a server at once.
    pub(crate) async fn nudged(&self, server: u8) {
        self.nudges[usize::from(server)].notified().await;
    }

    /// A server is there: connect to it now.
    pub(crate) fn nudge(&self, server: u8) {
        self.nudges[usize::from(server)].notify_one();
    }

    /// Has no links with these servers from now on; returns those that it had none with.
    pub(crate) fn bar(&self, servers: BTreeSet<u8>) -> BTreeSet<u8> {
        let before = self.barred.send_replace(servers);
        for nudge in &self.nudges {
            nudge.notify_one();
        }
        before
    }

    /// Whether there is to be no link with a server.
    pub(crate) fn is_barred(&self, server: u8) -> bool {
        self.barred.borrow().contains(&server)
    }

    /// Waits until there is to be no link with a server.
    pub(crate) async fn barred(&self, server: u8) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.barred.subscribe().wait_for(|barred| barred.contains(&server)).await;
    }

    /// Says something about a server in the log, unless that was among the last things said: there is
    /// one for each of the addresses at which it is looked for.
    pub(crate) fn complain(&self, server: u8, cause: &'static str, words: String) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let Complaints { said, lines } = &mut *complaints;
        let known = said.entry((server, cause)).or_default();
        if known.contains(&words) {
            return;
        }
        match lines.take(Instant::now()) {
            Line::Free => {}
            Line::Last => {
                tracing::warn!("{words}");
                tracing::warn!(
                    "more is wrong with links between servers than the log has room for: lines of that \
                     are left out from here on"
                );
                return;
            }
            Line::None => return,
        }
        tracing::warn!("{words}");
        known.truncate(COMPLAINTS_KEPT - 1);
        known.push_front(words);
    }

    /// There is a link that lasts: what is wrong later is worth saying again.
    pub(crate) fn content(&self, server: u8) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        complaints.said.retain(|(known, _), _| *known != server);
    }
}

/// A link that another server has made.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    peers: &'a Peers,
    number: u64,
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let mut incoming = self.peers.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        incoming.remove(&self.number);
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Ends(JoinHandle<()>);

impl Ends {
    /// Begins it.
    pub(crate) fn spawn(task: Task, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(supervision::spawn(task, future))
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A link that the driver knows. Dropping it tells the driver of its end, also when the task is
/// cancelled or panics.
pub(crate) struct Known {
    /// Its number.
    pub link: u64,
    /// The other server's raft id.
    pub peer: u64,
    driver: mpsc::Sender<Message>,
}

impl Known {
    /// Tells the driver of a new link: `event` makes that from its number. `None`: it has ended.
    pub(crate) async fn tell(
        peers: &Peers,
        peer: u64,
        event: impl FnOnce(u64) -> LinkEvent,
    ) -> Option<Self> {
        let link = peers.next_link();
        peers.driver.send(Message::Link(event(link))).await.ok()?;
        Some(Self { link, peer, driver: peers.driver.clone() })
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let down = Message::Link(LinkEvent::Down { link: self.link, peer: self.peer });
        // A full queue is the rare case; a closed one means that the driver has ended.
        if let Err(mpsc::error::TrySendError::Full(down)) = self.driver.try_send(down)
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let driver = self.driver.clone();
            supervision::spawn(Task::Notice, async move { driver.send(down).await.ok() });
        }
    }
}

/// Tells of a value, if it is another one than before.
pub(super) fn tell<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|known| {
        let is_new = *known != value;
        *known = value;
        is_new
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::LinkCounters;
    use crate::replica::founding::Undecided;
    use crate::supervision::{End, Failure, Supervisor};

    /// Hears of a panic.
    struct Told(std::sync::mpsc::Sender<Task>);

    impl End for Told {
        fn ask(&self, failure: &Failure) {
            self.0.send(failure.task).unwrap();
        }

        fn is_late(&self, _: &Failure) {}
    }

    /// The one task that tests/server/panics.rs cannot have run.
    #[test]
    fn a_panic_of_what_tells_a_busy_driver_of_an_end_ends_the_server() {
        let (sender, told) = std::sync::mpsc::channel();
        let supervisor = Supervisor::new(Told(sender));
        supervisor.panic_in(Task::Notice);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let run = async {
            let (driver, _messages) = mpsc::channel(1);
            driver.try_send(Message::Wake).unwrap();
            drop(Known { link: 1, peer: 2, driver });
            while supervision::current().unwrap().failure().is_none() {
                tokio::task::yield_now().await;
            }
        };
        supervisor.thread(Task::Server, move || runtime.block_on(run)).unwrap().join().unwrap();
        let patience = std::time::Duration::from_secs(20);
        assert_eq!(told.recv_timeout(patience), Ok(Task::Notice));
    }

    #[test]
    fn a_server_with_others_has_counts_of_links_before_there_is_one() {
        let figures: Arc<Figures> = Arc::default();
        assert_eq!(figures.snapshot().links, None);
        let introduction = Introduction::Founding(Undecided::default());
        let (driver, transfers) = (mpsc::channel(1).0, Transfers::new().0);
        let _peers =
            Peers::new(1, Vec::new(), introduction, driver, transfers, Arc::clone(&figures));
        assert_eq!(figures.snapshot().links, Some(LinkCounters::default()));
    }
}
