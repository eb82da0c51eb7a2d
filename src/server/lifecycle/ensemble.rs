//! A whole ensemble in one process: for tests, and for programs that want to see one fail.
//!
//! *Owns* [`Ensemble`]: several servers that find each other over the loopback interface, and the
//! directory of their data. *Invariants*: a server that was stopped or killed comes back with its
//! data at its old addresses; servers that are cut off from each other stay so over a restart; unless
//! a directory was given, nothing of it is left when the ensemble is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::time::{Instant, sleep};

use crate::config::{Config, Draft, HostPort, Role, ServerSpec};
use crate::replica::inspect::Mode;
use crate::server::Server;
use crate::server::error::{ServerError, StartError};
use crate::storage::{Fs, OsFs};

/// Servers of one ensemble in this process, with their ids from 1 on.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let mut ensemble = lockkeeper::Ensemble::start(3).await?;
/// println!("clients connect to {}", ensemble.connect_string());
/// let leader = ensemble.leader().expect("one of them leads");
/// ensemble.kill(leader).await?;
/// let next = ensemble.wait_for_leader().await?;
/// assert_ne!(next, leader);
/// ensemble.restart(leader).await?; // with its data
/// ensemble.shutdown().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Ensemble {
    seats: BTreeMap<u8, Seat>,
    /// The servers that no other one can reach, and that reach no other one but each other.
    apart: BTreeSet<u8>,
    files: Arc<dyn Fs>,
    #[expect(dead_code, reason = "held, not read")]
    directory: Directory,
    #[expect(dead_code, reason = "held, not read")]
    ports: Vec<Reserved>,
}

/// A server's place in the ensemble, whether it runs or not.
#[derive(Debug)]
struct Seat {
    config: Config,
    server: Option<Server>,
}

/// Collects what an ensemble is started with.
#[derive(Clone, Debug)]
pub struct EnsembleBuilder {
    participants: u8,
    observers: u8,
    data_dir: Option<PathBuf>,
    client_port: Option<u16>,
    keys: Vec<(String, String)>,
    files: Arc<dyn Fs>,
}

impl EnsembleBuilder {
    /// Adds this many servers that follow without a vote; their ids come last.
    #[must_use]
    pub fn observers(mut self, count: u8) -> Self {
        self.observers = count;
        self
    }

    /// Keeps the data of server N in the directory `N` in this one, which is created if it is not
    /// there. An ensemble that kept its data there before is continued.
    #[must_use]
    pub fn data_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.data_dir = Some(directory.as_ref().to_path_buf());
        self
    }

    /// Has clients connect to server 1 at this port, and to each further one at the next port. By
    /// default the ports are any free ones. An ensemble that is continued keeps its ports.
    #[must_use]
    pub fn client_port(mut self, first: u16) -> Self {
        self.client_port = Some(first);
        self
    }

    /// Sets one key of every server's configuration, as a line of a zoo.cfg would.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.keys.push((key.to_string(), value.to_string()));
        self
    }

    /// Keeps the logs and images of all servers on this file system. For tests of disks that fail.
    #[doc(hidden)]
    #[must_use]
    pub fn file_system(mut self, files: Arc<dyn Fs>) -> Self {
        self.files = files;
        self
    }

    /// Starts all servers, each in threads of its own. Returns when all of them serve.
    ///
    /// # Errors
    /// Why one of them does not start, or that they do not agree on a leader in time. Nothing is
    /// left running or bound.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn start(self) -> Result<Ensemble, StartError> {
        let directory = match &self.data_dir {
            Some(path) => Directory { path: path.clone(), is_ours: false },
            None => Directory::temporary()?,
        };
        let mut ports = Vec::new();
        let mut seats = BTreeMap::new();
        for (id, config) in self.configurations(&directory.path, &mut ports)? {
            seats.insert(id, Seat { config, server: None });
        }
        let (files, apart) = (Arc::clone(&self.files), BTreeSet::new());
        let mut ensemble = Ensemble { seats, apart, files, directory, ports };
        let ids: Vec<u8> = ensemble.seats.keys().copied().collect();
        for id in ids {
            ensemble.start_server(id).await?;
        }
        ensemble.wait_until_all_serve().await?;
        Ok(ensemble)
    }

    /// One for each server. Members know each other by what was agreed upon, so that a directory that
    /// is continued keeps its addresses.
    fn configurations(
        &self,
        directory: &Path,
        ports: &mut Vec<Reserved>,
    ) -> Result<Vec<(u8, Config)>, StartError> {
        let path = directory.join(ADDRESSES);
        let failed = |error: io::Error| StartError::Data(format!("{}: {error}", path.display()));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *ports = self.reserve()?;
                let text = self.addresses(ports)?;
                std::fs::create_dir_all(directory).map_err(failed)?;
                std::fs::write(&path, &text).map_err(failed)?;
                text
            }
            Err(error) => return Err(failed(error)),
        };
        self.must_be_of(&path, &text)?;
        let origin = "ensemble";
        let config = |id: u8| {
            let mut draft = Draft::without_file();
            draft.set("admin.enableServer", "false", origin);
            draft.set("standaloneEnabled", "false", origin);
            let data = directory.join(id.to_string());
            draft.set("dataDir", &data.display().to_string(), origin);
            for (key, value) in &self.keys {
                draft.set(key, value, origin);
            }
            draft.load_dynamic(ADDRESSES, &text);
            let key = format!("server.{id}=");
            let line = text.lines().find_map(|line| line.strip_prefix(&key)).unwrap_or_default();
            if let Ok(ServerSpec { client: Some(HostPort { host, port }), .. }) =
                ServerSpec::parse(id, line)
            {
                draft.set("clientPortAddress", &host, origin);
                draft.set("clientPort", &port.to_string(), origin);
            }
            draft.set_server_id(&id.to_string(), origin);
            draft.resolve().map(|config| (id, config)).map_err(StartError::Config)
        };
        let servers = u8::try_from(text.lines().count()).unwrap_or(u8::MAX);
        (1..=servers).map(config).collect()
    }

    /// That the servers in a directory are those that were asked for.
    fn must_be_of(&self, path: &Path, text: &str) -> Result<(), StartError> {
        let observers = text.lines().filter(|line| line.contains(":observer;")).count();
        let participants = text.lines().count() - observers;
        if (participants, observers) == (self.participants.into(), self.observers.into()) {
            return Ok(());
        }
        Err(StartError::Data(format!(
            "{}: an ensemble of {participants} participants and {observers} observers is kept \
             here, not of {} and {}",
            path.display(),
            self.participants,
            self.observers
        )))
    }

    fn count(&self) -> u8 {
        self.participants.saturating_add(self.observers)
    }

    /// Two ports for each server.
    fn reserve(&self) -> Result<Vec<Reserved>, StartError> {
        reserve(usize::from(self.count()) * 2)
    }

    /// Server lines with these ports.
    fn addresses(&self, ports: &[Reserved]) -> Result<String, StartError> {
        let ports: Vec<u16> = ports.iter().map(|reserved| reserved.port).collect();
        let mut text = String::new();
        for (id, ports) in (1..=self.count()).zip(ports.chunks_exact(2)) {
            let peer = ports[0];
            let given = self.client_port.map(|first| first.checked_add(u16::from(id - 1)));
            let client = given.unwrap_or(Some(ports[1])).ok_or_else(|| {
                let error = format!("there is no port for server {id}");
                StartError::System { what: "ports", error }
            })?;
            let role = if id > self.participants { "observer" } else { "participant" };
            // The election port is never bound.
            let election = peer ^ 1;
            text += &format!("server.{id}={HOST}:{peer}:{election}:{role};{HOST}:{client}\n");
        }
        Ok(text)
    }
}

impl Ensemble {
    /// An ensemble of `participants` servers.
    #[must_use]
    pub fn builder(participants: u8) -> EnsembleBuilder {
        EnsembleBuilder {
            participants,
            observers: 0,
            data_dir: None,
            client_port: None,
            keys: Vec::new(),
            files: Arc::new(OsFs),
        }
    }

    /// Starts `participants` servers with their data in a directory that is removed with them.
    /// Returns when all of them serve.
    ///
    /// # Errors
    /// See [`EnsembleBuilder::start`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    pub async fn start(participants: u8) -> Result<Self, StartError> {
        Self::builder(participants).start().await
    }

    /// What to give to a client on this machine: the addresses of all servers, whether they run or
    /// not.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> =
            self.seats.values().map(|seat| seat.config.client_addr.to_string()).collect();
        addresses.join(",")
    }

    /// A server; `None` while it does not run.
    #[must_use]
    pub fn server(&self, id: u8) -> Option<&Server> {
        self.seats.get(&id)?.server.as_ref()
    }

    /// The servers that run, with their ids.
    pub fn servers(&self) -> impl Iterator<Item = (u8, &Server)> {
        self.seats.iter().filter_map(|(id, seat)| Some((*id, seat.server.as_ref()?)))
    }

    /// Where a server keeps its data; `None` for one that the ensemble does not have.
    #[must_use]
    pub fn data_dir(&self, id: u8) -> Option<&Path> {
        Some(self.seats.get(&id)?.config.data_dir.as_path())
    }

    /// The server that leads, as far as it knows; if several think so, the one of the latest term.
    /// `None` while there is none.
    #[must_use]
    pub fn leader(&self) -> Option<u8> {
        let statuses = self.servers().map(|(id, server)| (id, server.status()));
        let leaders = statuses.filter(|(_, status)| status.mode == Mode::Leader && status.serving);
        leaders.max_by_key(|(_, status)| status.term).map(|(id, _)| id)
    }

    /// Waits until one of the servers leads that are not cut off, and a majority follows it.
    ///
    /// # Errors
    /// None does within a minute.
    pub async fn wait_for_leader(&self) -> Result<u8, StartError> {
        let mut found = None;
        let what = "no leader with a majority";
        self.wait(what, |ensemble| {
            let leader = ensemble.leader().filter(|id| !ensemble.apart.contains(id));
            let follows = |(id, server): &(u8, &Server)| {
                let status = server.status();
                !ensemble.apart.contains(id) && status.serving && status.leader == leader
            };
            let voters = ensemble.seats.iter().filter(|(_, seat)| seat.votes()).count();
            let following = ensemble
                .servers()
                .filter(|(id, _)| ensemble.seats[id].votes())
                .filter(follows)
                .count();
            found = leader.filter(|_| following * 2 > voters);
            found.is_some()
        })
        .await?;
        Ok(found.expect("waited for"))
    }

    /// Waits until every server that runs serves and has applied what the leader had committed when
    /// this was called, and every participant that runs has its vote: an ensemble begins with a majority
    /// of them, and any one may be lost only once the others vote as well.
    ///
    /// # Errors
    /// They do not within a minute.
    pub async fn wait_until_all_serve(&self) -> Result<(), StartError> {
        let leader = self.wait_for_leader().await?;
        let zxid = self.server(leader).map_or(0, |server| server.status().zxid);
        let what = "not all servers follow the leader";
        self.wait(what, |ensemble| {
            let serve = ensemble.servers().all(|(_, server)| {
                let status = server.status();
                status.serving && status.leader.is_some() && status.zxid >= zxid
            });
            serve && ensemble.all_vote()
        })
        .await
    }

    /// Whether the leader has every other participant that runs, and that it can reach, follow closely with a vote.
    fn all_vote(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(status) = self.server(leader).map(Server::status) else { return false };
        let votes = |id: u8| {
            status.peers.iter().any(|peer| peer.server == id && peer.votes && peer.is_synced)
        };
        let is_apart = |id: u8| self.apart.contains(&id);
        let mut others = self.servers().map(|(id, _)| id).filter(|id| {
            *id != leader && self.seats[id].votes() && is_apart(*id) == is_apart(leader)
        });
        others.all(votes)
    }

    async fn wait(
        &self,
        what: &'static str,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), StartError> {
        let deadline = Instant::now() + WAIT_MAX;
        while !condition(self) {
            if Instant::now() > deadline {
                let error = format!("within {WAIT_MAX:?}: {}", self.in_words());
                return Err(StartError::System { what, error });
            }
            sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// What its servers say of themselves.
    fn in_words(&self) -> String {
        let words = |(id, server): (u8, &Server)| {
            if let Some(error) = server.failure() {
                return format!("server {id} has ended: {error}");
            }
            let status = server.status();
            let serves = if status.serving { "serves" } else { "does not serve" };
            let leader = status.leader.map_or("no leader".to_owned(), |id| format!("leader {id}"));
            let linked: Vec<u8> =
                status.peers.iter().filter(|it| it.is_connected).map(|it| it.server).collect();
            format!(
                "server {id} {serves} ({:?}, {leader}, term {}, zxid {:#x}, log {}/{}, links to {linked:?})",
                status.mode, status.term, status.zxid, status.applied, status.persisted
            )
        };
        self.servers().map(words).collect::<Vec<_>>().join("; ")
    }

    /// Ends a server as [`Server::stop`] does; nothing if it does not run.
    ///
    /// # Errors
    /// Why it had ended before, if it had ended by itself.
    ///
    /// # Panics
    /// The ensemble has no such server.
    pub async fn stop(&mut self, id: u8) -> Result<(), ServerError> {
        match self.seat(id).server.take() {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }

    /// Ends a server without a word to the others: to them it is as if it had died. Nothing if it
    /// does not run.
    ///
    /// # Errors
    /// Why it had ended before, if it had ended by itself.
    ///
    /// # Panics
    /// The ensemble has no such server.
    pub async fn kill(&mut self, id: u8) -> Result<(), ServerError> {
        match self.seat(id).server.take() {
            Some(server) => server.end().await,
            None => Ok(()),
        }
    }

    /// Starts a server again at its old addresses, with the data that it has; one that runs is
    /// stopped first. Returns before it serves.
    ///
    /// # Errors
    /// Why it does not start.
    ///
    /// # Panics
    /// The ensemble has no such server.
    pub async fn restart(&mut self, id: u8) -> Result<(), StartError> {
        self.stop(id).await?;
        self.start_server(id).await
    }

    /// Takes all data from a server that does not run: it comes back empty, joins, and is sent
    /// everything.
    ///
    /// # Errors
    /// The file system failed, or the server runs.
    ///
    /// # Panics
    /// The ensemble has no such server.
    pub fn wipe(&mut self, id: u8) -> io::Result<()> {
        let seat = self.seat(id);
        if seat.server.is_some() {
            return Err(io::Error::other("a server that runs cannot be wiped"));
        }
        match std::fs::remove_dir_all(&seat.config.data_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Cuts these servers off from all others, in both directions; among each other they stay
    /// connected, and clients reach all of them. Replaces an earlier partition.
    pub fn partition(&mut self, apart: &[u8]) {
        self.apart = apart.iter().copied().collect();
        for (id, server) in self.servers() {
            server.cut_off_from(&self.unreachable_from(id));
        }
    }

    /// Lets all servers reach each other again.
    pub fn heal(&mut self) {
        self.partition(&[]);
    }

    /// Ends all servers, the leader last, and removes their data if the directory is the
    /// ensemble's own.
    ///
    /// # Errors
    /// Why one of them had ended before, if one had ended by itself.
    pub async fn shutdown(mut self) -> Result<(), ServerError> {
        let leader = self.leader();
        let mut ids: Vec<u8> = self.seats.keys().copied().collect();
        ids.sort_by_key(|id| (Some(*id) == leader, *id));
        let mut ended = Ok(());
        for id in ids {
            // No server is left to hand over to.
            ended = ended.and(self.kill(id).await);
        }
        ended
    }

    async fn start_server(&mut self, id: u8) -> Result<(), StartError> {
        let unreachable = self.unreachable_from(id);
        let config = self.seat(id).config.clone();
        let files = Arc::clone(&self.files);
        let builder = Server::builder().config(config).cut_off_from(&unreachable);
        let server = builder.file_system(files).start().await?;
        self.seat(id).server = Some(server);
        Ok(())
    }

    fn unreachable_from(&self, id: u8) -> Vec<u8> {
        let side = self.apart.contains(&id);
        self.seats.keys().copied().filter(|other| self.apart.contains(other) != side).collect()
    }

    fn seat(&mut self, id: u8) -> &mut Seat {
        self.seats.get_mut(&id).unwrap_or_else(|| panic!("there is no server {id} here"))
    }
}

impl Seat {
    fn votes(&self) -> bool {
        let own = self.config.own_server();
        own.is_some_and(|own| own.role == Role::Participant)
    }
}

/// Where the data of all servers is.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    is_ours: bool,
}

impl Directory {
    fn temporary() -> Result<Self, StartError> {
        let what = "temporary directory";
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(StartError::system(what))?;
        let name = format!("lockkeeper-ensemble-{:016x}", u64::from_le_bytes(random));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| StartError::System {
            what,
            error: format!("{}: {error}", path.display()),
        })?;
        Ok(Self { path, is_ours: true })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a temporary directory stays behind");
        }
    }
}

/// A port that a socket is bound to which does not listen: no other program is given it, while a server, which sets
/// `SO_REUSEADDR` as the socket does, can bind it, stop, and bind it again.
#[derive(Debug)]
struct Reserved {
    port: u16,
    #[expect(dead_code, reason = "held, not read")]
    socket: Socket,
}

impl Reserved {
    /// `Err` if somebody else has it.
    fn new(port: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into())?;
        socket.set_reuse_address(true)?;
        Ok(Self { port, socket })
    }
}

/// Ports from a range that systems do not give to outgoing connections: an ensemble that is continued finds its
/// ports free.
fn reserve(count: usize) -> Result<Vec<Reserved>, StartError> {
    let mut reserved: Vec<Reserved> = Vec::new();
    for _ in 0..PORT_ATTEMPTS {
        if reserved.len() == count {
            break;
        }
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(StartError::system("random port"))?;
        let port = PORTS.start + u16::from_le_bytes(random) % (PORTS.end - PORTS.start);
        reserved.extend(Reserved::new(port).ok());
    }
    if reserved.len() < count {
        let error = format!("no {count} of {}..{} are free", PORTS.start, PORTS.end);
        return Err(StartError::System { what: "ports", error });
    }
    Ok(reserved)
}

/// The server lines of an ensemble's directory.
const ADDRESSES: &str = "servers";
const HOST: &str = "127.0.0.1";
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const PORT_ATTEMPTS: usize = 2000;
/// How long the servers may take to agree: far longer than they do, for a machine that is busy with other tests.
const WAIT_MAX: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
