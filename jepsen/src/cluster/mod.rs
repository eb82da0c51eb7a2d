//! The servers of a run: real processes from zoo.cfg files, and what can be done to them.
//!
//! *Owns* their configuration, and which of them run. *Invariant*: a server that ends without being asked
//! to is remembered. *Never* knows who the clients are.

pub mod clock;
mod damage;
pub mod disk;
mod faults;
mod guest;
pub mod namespaces;
mod node;
pub mod ports;
pub mod process;
pub mod switch;
pub mod tracer;
mod words;
pub mod zookeeper_log;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::client::Server;
use crate::nemesis::{Faults, Kind, Part};
use guest::GUESTS;
use namespaces::Namespaces;
use node::Node;
use process::Process;
use switch::{Switch, Tally, Weather};

/// Which software is under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Software {
    /// A lockkeeper binary.
    Lockkeeper { binary: PathBuf },
    /// Apache ZooKeeper, the control, from a directory of jars.
    ZooKeeper { jars: PathBuf },
}

/// Where the servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// On free ports of 127.0.0.1.
    Loopback,
    /// Each in a network namespace of its own.
    Namespaces,
}

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub software: Software,
    /// A deliberate bug that every server is to have (src/core/mutants.rs of the server), by its name.
    pub plant: Option<String>,
    pub backend: Backend,
    pub nodes: usize,
    /// Milliseconds; session timeouts lie between 2 and 20 of them.
    pub tick_ms: u64,
    /// A new image (or snapshot) after about so many transactions, if it is not to be the default.
    pub snapshot_every: Option<u64>,
    /// What will be done to it.
    pub faults: Faults,
    /// Of the chance that decides which packets are hit.
    pub seed: u64,
    /// The run's directory.
    pub folder: PathBuf,
}

/// The servers.
#[derive(Debug)]
pub struct Cluster {
    blueprint: Blueprint,
    nodes: Vec<Node>,
    /// A server that joins and leaves, if faults ask for one.
    guest: Option<Node>,
    is_joined: bool,
    /// `None` on loopback. Behind the servers, for they end before it does.
    networks: Option<Namespaces>,
    /// Where packets between servers may pass, if faults ask for it.
    switch: Option<Switch>,
    /// What ended without being asked to, and how.
    crashes: Vec<String>,
    /// What servers made of faults of their disks and of damage, and was not told of yet.
    met: Vec<Met>,
}

/// What servers made of a fault of a disk or of damage to their data, and what became of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// It ended, as it should.
    Stopped(String),
    /// It found no room.
    NoRoom(String),
    /// It found the damage.
    Found(Part, String),
    /// Packets passed through the switch.
    Switched(Tally),
}

/// A cluster that does not serve after this long has failed.
const START_MAX: Duration = Duration::from_secs(60);
/// An asked server ends within this time.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Pause between looks at the servers.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Bytes of log per transaction, about.
const TRANSACTION_BYTES: u64 = 200;
/// The least that a lockkeeper takes, bytes.
const IMAGE_LOG_BYTES_MIN: u64 = 1 << 20;
/// Containers and znodes with a time to live are looked at so often; of a ZooKeeper it is no configuration.
const REAP_OFTEN: &str =
    "znode.container.checkIntervalMs=200\nznode.container.maxPerMinute=60000\n";
/// Ports of a server: clients, peers, elections.
const PORTS_PER_NODE: usize = 3;
/// The ports of a server with a network of its own.
const PORTS_OF_ITS_OWN: [u16; PORTS_PER_NODE] = [2181, 2888, 3888];
impl Cluster {
    /// Writes the configurations; nothing runs yet.
    ///
    /// # Errors
    /// A file cannot be written, or there are no free ports.
    pub fn new(blueprint: Blueprint) -> Result<Self, String> {
        let guests = if blueprint.faults.has(Kind::Membership) { GUESTS } else { 0 };
        let count = blueprint.nodes + guests;
        let networks = match blueprint.backend {
            Backend::Loopback => None,
            Backend::Namespaces => Some(Namespaces::new(count, &blueprint.folder)?),
        };
        let mut nodes = Vec::new();
        for (at, (host, ports)) in places(blueprint.backend, count)?.into_iter().enumerate() {
            nodes.push(Node::new(at, host, ports, &blueprint)?);
        }
        let guest = if guests > 0 { nodes.pop() } else { None };
        let is_switched = blueprint.faults.kinds.iter().any(|kind| kind.weather().is_some());
        let switch = is_switched.then(|| Switch::new(blueprint.seed)).transpose()?;
        let (crashes, met) = (Vec::new(), Vec::new());
        let is_joined = false;
        let cluster = Self { blueprint, nodes, guest, is_joined, networks, switch, crashes, met };
        let ensemble = cluster.ensemble();
        for (at, node) in cluster.nodes.iter().enumerate() {
            cluster.configure(node, at, &ensemble)?;
        }
        Ok(cluster)
    }

    /// The lines that name the members from the start.
    fn ensemble(&self) -> String {
        match self.nodes.len() {
            0 | 1 => String::new(),
            _ => (1..).zip(&self.nodes).map(|(id, node)| node.line(id, "participant")).collect(),
        }
    }

    fn configure(&self, node: &Node, at: usize, ensemble: &str) -> Result<(), String> {
        let data = node.data();
        fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let Blueprint { software, tick_ms, snapshot_every, faults, .. } = &self.blueprint;
        let mut text = format!(
            "tickTime={tick_ms}\ninitLimit=50\nsyncLimit=25\ndataDir={}\nclientPort={}\n\
             clientPortAddress={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\nextendedTypesEnabled=true\n{ensemble}",
            data.display(),
            node.address.port(),
            node.address.ip(),
        );
        if faults.has(Kind::Membership) {
            text.push_str(guest::SETTINGS);
        }
        match (software, snapshot_every) {
            (Software::Lockkeeper { .. }, every) => {
                text.push_str(&format!("lockkeeper.auditLog={}\n", node.audit_file().display()));
                text.push_str(REAP_OFTEN);
                // Sockets on the server's own thread in one server, on others in the next.
                text.push_str(&format!("lockkeeper.ioThreads={}\n", at % 2 * 2));
                if faults.has(Kind::DiskFull) || faults.has(Kind::Corruption) {
                    text.push_str(faults::CHECKPOINT_OFTEN);
                }
                let bytes = every.map(|every| every * TRANSACTION_BYTES);
                let small = faults.has(Kind::Corruption).then_some(damage::SMALL_IMAGES);
                if let Some(bytes) = small.or(bytes) {
                    let bytes = bytes.max(IMAGE_LOG_BYTES_MIN);
                    text.push_str(&format!("lockkeeper.imageLogBytes={bytes}\n"));
                }
            }
            (Software::ZooKeeper { .. }, Some(every)) => {
                text.push_str(&format!("snapCount={}\n", (*every).max(2)));
            }
            (Software::ZooKeeper { .. }, None) => {}
        }
        write(&node.folder.join("zoo.cfg"), &text)?;
        if !ensemble.is_empty() {
            write(&data.join("myid"), &format!("{}\n", at + 1))?;
        }
        node.flush()
    }

    /// The command of the server at a place, the guest's behind all others.
    fn command(&self, node: &Node, at: usize) -> Vec<String> {
        let prefix = self.networks.as_ref().map(|networks| networks.prefix(at));
        let mut words = prefix.unwrap_or_default();
        if self.blueprint.faults.has(Kind::Clock) {
            words.extend(clock::prefix(&node.clock_file()));
        }
        words.extend(self.server_command(node));
        words
    }

    fn server_command(&self, node: &Node) -> Vec<String> {
        let config = node.folder.join("zoo.cfg").display().to_string();
        match &self.blueprint.software {
            Software::Lockkeeper { binary } => {
                let mut words = vec![binary.display().to_string(), "server".to_owned(), config];
                let plant = self.blueprint.plant.as_ref();
                words.extend(
                    plant.into_iter().flat_map(|name| ["--plant".to_owned(), name.clone()]),
                );
                words
            }
            Software::ZooKeeper { jars } => {
                let heap =
                    ["-Xms256m", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"];
                let mut words = vec!["java".to_owned()];
                words.extend(heap.map(str::to_owned));
                words.extend(REAP_OFTEN.lines().map(|line| format!("-D{line}")));
                words.extend(["-cp".to_owned(), format!("{}/*", jars.display())]);
                words.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned());
                words.push(config);
                words
            }
        }
    }

    /// How many servers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The name of a server.
    #[must_use]
    pub fn name(&self, at: usize) -> &str {
        &self.nodes[at].name
    }

    /// The servers as clients know them.
    #[must_use]
    pub fn servers(&self) -> Vec<Server> {
        let server = |node: &Node| Server { name: node.name.clone(), address: node.address };
        self.nodes.iter().map(server).collect()
    }

    /// Starts a server, which must not run.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self, at: usize) -> Result<(), String> {
        self.start_with(at, &[])
    }

    /// As [`start`](Self::start), with further words.
    fn start_with(&mut self, at: usize, words: &[&str]) -> Result<(), String> {
        let mut command = self.command(&self.nodes[at], at);
        command.extend(words.iter().map(|word| (*word).to_owned()));
        self.nodes[at].start(&command)
    }

    /// Starts all of them and waits until they serve.
    ///
    /// # Errors
    /// They do not.
    pub fn start_all(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            self.start(at)?;
        }
        self.wait_until_healthy()
    }

    /// Waits until every server serves and one of them leads.
    ///
    /// # Errors
    /// They do not, for a minute.
    pub fn wait_until_healthy(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_MAX;
        loop {
            self.look_for_crashes();
            let modes: Vec<Option<String>> =
                self.nodes.iter().map(|node| words::mode(node.address)).collect();
            let leads = |mode: &Option<String>| mode.as_deref().is_some_and(words::is_leading);
            if modes.iter().all(Option::is_some) && modes.iter().any(leads) {
                return Ok(());
            }
            if Instant::now() >= deadline || self.nodes.iter().any(|node| node.process.is_none()) {
                let crashes = self.crashes.join("; ");
                return Err(format!("the servers do not serve: {modes:?} {crashes}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Which server leads, if one says so.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| {
            node.process.as_ref().is_some_and(|process| !process.is_paused())
                && words::mode(node.address).as_deref().is_some_and(words::is_leading)
        };
        self.nodes.iter().position(leads)
    }

    /// Which server leads, once one says so.
    #[must_use]
    pub fn next_leader(&self, patience: Duration) -> Option<usize> {
        let deadline = Instant::now() + patience;
        loop {
            let leader = self.leader();
            if leader.is_some() || Instant::now() >= deadline {
                return leader;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills a server, as a crash does. Whether it ran.
    pub fn kill(&mut self, at: usize) -> bool {
        let process = self.nodes[at].process.take();
        process.map(Process::kill).is_some()
    }

    /// Makes a server stand still. Whether it ran.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&mut self, at: usize) -> Result<bool, String> {
        let process = self.nodes[at].process.as_mut();
        process.map(Process::pause).transpose().map(|paused| paused.is_some())
    }

    /// From now on nothing gets from one server to another; the other way is not touched.
    ///
    /// # Errors
    /// The servers have no networks of their own.
    pub fn cut(&mut self, from: usize, to: usize) -> Result<(), String> {
        let networks = self.networks.as_mut();
        networks.ok_or("servers on loopback cannot be cut off")?.cut(from, to)
    }

    /// From now on packets from one server to another have this weather.
    ///
    /// # Errors
    /// There is no switch.
    pub fn weather(&mut self, from: usize, to: usize, weather: Weather) -> Result<(), String> {
        self.switch.as_mut().ok_or("there is no switch")?.set((from, to), weather)
    }

    /// Remembers servers that have ended by themselves.
    pub fn look_for_crashes(&mut self) {
        for node in self.nodes.iter_mut().chain(&mut self.guest) {
            let Some(status) = node.process.as_mut().and_then(Process::ended) else { continue };
            node.process = None;
            let said = node.last_words();
            match node.may_end && process::ends_in_order(status, &node.output()) {
                true => {
                    let told = format!("{} ended with {status}: {said}", node.name);
                    self.met.push(Met::Stopped(told));
                }
                false => {
                    let name = &node.name;
                    self.crashes.push(format!("{name} ended by itself with {status}: {said}"));
                }
            }
        }
    }

    /// What servers made of faults of their disks and of damage, each told once.
    pub fn take_met(&mut self) -> Vec<Met> {
        std::mem::take(&mut self.met)
    }

    /// Servers that have ended by themselves, or would not end.
    #[must_use]
    pub fn crashes(&self) -> &[String] {
        &self.crashes
    }

    /// Waits until every server has applied the same. Whether that came in time.
    pub fn wait_until_even(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut before = None;
        loop {
            self.look_for_crashes();
            let zxids: Vec<Option<i64>> =
                self.nodes.iter().map(|node| words::zxid(node.address)).collect();
            let is_even = zxids.iter().all(|zxid| zxid.is_some() && *zxid == zxids[0]);
            // Twice, for one look takes a while.
            if is_even && before == zxids[0] {
                return true;
            }
            before = zxids[0].filter(|_| is_even);
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_EVERY * 4);
        }
    }

    /// What each server wrote about the transactions that it applied, by its name. Of ZooKeepers it
    /// is the leader's log, for others may hold what was never committed.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn accounts(&self) -> Result<Vec<(String, String)>, String> {
        let account = |node: &Node| Ok((node.name.clone(), node.account()?));
        match self.blueprint.software {
            Software::Lockkeeper { .. } => {
                let guest = self.guest.iter().filter(|guest| guest.starts > 0);
                self.nodes.iter().chain(guest).map(account).collect()
            }
            Software::ZooKeeper { .. } => {
                let Some(leader) = self.leader() else { return Ok(Vec::new()) };
                let node = &self.nodes[leader];
                let account = zookeeper_log::account(&node.data())?;
                Ok(account.map(|text| (node.name.clone(), text)).into_iter().collect())
            }
        }
    }

    /// Ends all servers as an operator does; what does not end so is a crash.
    pub fn stop_all(&mut self) {
        self.look_for_crashes();
        for node in &mut self.nodes {
            if let Some(process) = node.process.take()
                && let Err(what) = process.stop(STOP_MAX)
            {
                self.crashes.push(format!("{}: {what}: {}", node.name, node.last_words()));
            }
        }
        for node in self.nodes.iter().chain(&self.guest) {
            if let Some(line) = node.panic_line() {
                self.crashes.push(format!("{} panicked: {line}", node.name));
            }
        }
    }

    /// Removes the servers' data; configurations and logs stay.
    ///
    /// # Errors
    /// A directory cannot be removed.
    pub fn remove_data(&self) -> Result<(), String> {
        self.nodes.iter().chain(&self.guest).try_for_each(Node::remove_all_data)
    }
}

/// The names of those who say that they lead.
#[must_use]
pub fn leaders(servers: &[Server]) -> Vec<String> {
    let leads =
        |server: &&Server| words::mode(server.address).as_deref().is_some_and(words::is_leading);
    servers.iter().filter(leads).map(|server| server.name.clone()).collect()
}

/// Host and ports of each server.
fn places(
    backend: Backend,
    count: usize,
) -> Result<Vec<(Ipv4Addr, [u16; PORTS_PER_NODE])>, String> {
    Ok(match backend {
        Backend::Loopback => {
            let ports = ports::free(count * PORTS_PER_NODE)?;
            let chunks = ports.as_chunks::<PORTS_PER_NODE>().0;
            chunks.iter().map(|ports| (Ipv4Addr::LOCALHOST, *ports)).collect()
        }
        Backend::Namespaces => {
            (0..count).map(|at| (namespaces::address(at), PORTS_OF_ITS_OWN)).collect()
        }
    })
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
