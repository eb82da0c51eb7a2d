//! What can be compared: how each kind of server is named, configured, started, asked.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper::internals::bench::{Session, Work};

use crate::figures::PeerName;
use crate::rivals::{Rival, etcd, redis};

/// Servers of a Redlock: a majority of three must give the lock.
const REDLOCK_SERVERS: u16 = 3;

/// What runs as a peer.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Apache ZooKeeper from a directory of jars, with a heap such as `2g`.
    ZooKeeper { jars: PathBuf, heap: String },
    /// A lockkeeper binary, with lines such as `lockkeeper.ioThreads=2` for its configuration.
    Lockkeeper { binary: PathBuf, settings: Vec<String> },
    /// The null server of this program.
    Null,
    /// One redis-server, every write forced to disk.
    Redis { binary: PathBuf },
    /// Three of them, which know nothing of each other: the clients ask all.
    Redlock { binary: PathBuf },
    /// An etcd binary.
    Etcd { binary: PathBuf },
}

/// Where one server of a peer is.
#[derive(Clone, Debug)]
pub struct Place {
    pub addr: SocketAddr,
    /// For its peers, and for elections if that is another.
    pub peers: [SocketAddr; 2],
    /// With a directory `data` in it.
    pub dir: PathBuf,
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::ZooKeeper { .. } => "zookeeper",
            Kind::Lockkeeper { .. } => "lockkeeper",
            Kind::Null => "null",
            Kind::Redis { .. } => "redis",
            Kind::Redlock { .. } => "redlock",
            Kind::Etcd { .. } => "etcd",
        }
    }

    /// What exactly is run, for the report.
    pub fn describe(&self) -> String {
        let redis = |binary: &Path| {
            let said = said(binary);
            let version =
                said.split(' ').find_map(|word| word.strip_prefix("v=")).map(str::to_owned);
            format!("Redis {}", version.unwrap_or(said))
        };
        match self {
            Kind::ZooKeeper { jars, heap } => {
                format!("Apache ZooKeeper {}, G1, heap {heap}", zookeeper_version(jars))
            }
            Kind::Lockkeeper { binary, settings } => {
                [&[said(binary)], settings.as_slice()].concat().join(", ")
            }
            Kind::Null => "null server, one fdatasync per turn".into(),
            Kind::Redis { binary } => format!("one {}, fsync always", redis(binary)),
            Kind::Redlock { binary } => {
                format!("Redlock over {REDLOCK_SERVERS} {}, fsync always", redis(binary))
            }
            Kind::Etcd { binary } => said(binary).replace("etcd Version:", "etcd"),
        }
    }

    /// As figures name it.
    pub fn peer(&self) -> PeerName {
        PeerName { name: self.name().to_owned(), description: self.describe() }
    }

    /// How many servers it has if so many of each kind are asked for.
    pub fn servers(&self, asked: u16) -> u16 {
        match self {
            Kind::ZooKeeper { .. } | Kind::Lockkeeper { .. } | Kind::Etcd { .. } => asked,
            Kind::Null | Kind::Redis { .. } => 1,
            Kind::Redlock { .. } => REDLOCK_SERVERS,
        }
    }

    /// The client that drives it, if it is not that of ZooKeeper.
    pub fn rival(&self) -> Option<Rival> {
        match self {
            Kind::ZooKeeper { .. } | Kind::Lockkeeper { .. } | Kind::Null => None,
            Kind::Redis { .. } | Kind::Redlock { .. } => Some(Rival::Redis),
            Kind::Etcd { .. } => Some(Rival::Etcd),
        }
    }

    /// Whether it is measured by this: rivals have locks and nothing else here, the null server has
    /// no sessions, and no lists by which to take back what churn has left.
    pub fn does(&self, work: Work) -> bool {
        match self {
            Kind::ZooKeeper { .. } | Kind::Lockkeeper { .. } => true,
            Kind::Null => !work.locks() && !matches!(work, Work::Watches | Work::Churn),
            Kind::Redis { .. } | Kind::Redlock { .. } | Kind::Etcd { .. } => {
                matches!(work, Work::Lock | Work::Contended)
            }
        }
    }

    /// Whether a server serves: it has answered a read of `path` with data, or what comes nearest.
    /// Returns the session that this took, to be closed.
    pub fn ask(
        &self,
        addr: SocketAddr,
        path: &str,
        patience: Duration,
    ) -> Result<Option<Session>, String> {
        match self.rival() {
            Some(Rival::Redis) => redis::prepare(addr, patience).map(|_| None),
            Some(Rival::Etcd) => {
                etcd::Control::open(addr, patience).and_then(|mut c| c.probe()).map(|()| None)
            }
            None => {
                let mut session = Session::open(addr, patience).map_err(|e| e.to_string())?;
                session.read(path).map_err(|e| e.to_string())?;
                Ok(Some(session))
            }
        }
    }

    /// Writes what the server number `at` of these needs to find, and says how it is started.
    pub fn command(&self, places: &[Place], at: usize) -> Result<Command, String> {
        let place = &places[at];
        let config = place.dir.join("zoo.cfg");
        let command = match self {
            Kind::ZooKeeper { jars, heap } => {
                write_config(places, at, &[], &config)?;
                let jars = found(jars)?;
                let mut command = Command::new("java");
                command
                    .args(["-XX:+UseG1GC", &format!("-Xms{heap}"), &format!("-Xmx{heap}")])
                    .arg("-cp")
                    .arg(jars.join("*"))
                    .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                    .arg(config);
                command
            }
            Kind::Lockkeeper { binary, settings } => {
                write_config(places, at, settings, &config)?;
                let mut command = Command::new(found(binary)?);
                command.arg("server").arg(config);
                command
            }
            Kind::Null => {
                let this = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
                let mut command = Command::new(this);
                command.arg("null").arg("--port").arg(place.addr.port().to_string());
                command.arg("--log").arg(place.dir.join("data").join("log"));
                command
            }
            Kind::Redis { binary } | Kind::Redlock { binary } => {
                let mut command = with_libraries(binary)?;
                command
                    .args(["--bind", "127.0.0.1", "--port", &place.addr.port().to_string()])
                    .args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""])
                    .arg("--dir")
                    .arg(place.dir.join("data"));
                command
            }
            Kind::Etcd { binary } => {
                let mut command = with_libraries(binary)?;
                command.args(etcd_flags(places, at)).arg("--data-dir").arg(place.dir.join("data"));
                command
            }
        };
        Ok(command)
    }
}

/// The configuration of ZooKeeper, which is also that of Lockkeeper, and more lines for it.
fn write_config(
    places: &[Place],
    at: usize,
    settings: &[String],
    path: &Path,
) -> Result<(), String> {
    let place = &places[at];
    let write = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let data = place.dir.join("data");
    let mut config = format!(
        "tickTime=2000\ndataDir={}\nclientPort={}\nclientPortAddress={}\n\
         maxClientCnxns=0\nadmin.enableServer=false\n\
         4lw.commands.whitelist=srvr,mntr\n",
        data.display(),
        place.addr.port(),
        place.addr.ip(),
    );
    if places.len() > 1 {
        write(&data.join("myid"), &format!("{}\n", at + 1))?;
        for (number, place) in places.iter().enumerate() {
            let [peers, elections] = place.peers;
            config += &format!("server.{}={peers}:{}\n", number + 1, elections.port());
        }
        config += "initLimit=10\nsyncLimit=5\n";
    }
    settings.iter().for_each(|line| config += &format!("{line}\n"));
    write(path, &config)
}

fn etcd_flags(places: &[Place], at: usize) -> Vec<String> {
    let place = &places[at];
    let [peers, _] = place.peers;
    let all: Vec<String> = places
        .iter()
        .enumerate()
        .map(|(number, place)| format!("n{number}=http://{}", place.peers[0]))
        .collect();
    vec![
        format!("--name=n{at}"),
        format!("--listen-client-urls=http://{}", place.addr),
        format!("--advertise-client-urls=http://{}", place.addr),
        format!("--listen-peer-urls=http://{peers}"),
        format!("--initial-advertise-peer-urls=http://{peers}"),
        format!("--initial-cluster={}", all.join(",")),
        "--logger=zap".to_owned(),
    ]
}

fn found(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))
}

/// A program of a package that was unpacked and not installed: its libraries are beside it. Not by its
/// canonical path, because what it does depends on its name.
fn with_libraries(binary: &Path) -> Result<Command, String> {
    let binary = std::path::absolute(binary).map_err(|e| format!("{}: {e}", binary.display()))?;
    let mut command = Command::new(&binary);
    let below = binary.parent().and_then(Path::parent).map(|usr| usr.join("lib"));
    let folders: Vec<PathBuf> = below
        .into_iter()
        .flat_map(|below| fs::read_dir(below).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
        .collect();
    let paths = std::env::join_paths(folders).map_err(|e| format!("{}: {e}", binary.display()))?;
    if !paths.is_empty() {
        command.env("LD_LIBRARY_PATH", paths);
    }
    Ok(command)
}

/// The version in the name of the server's jar.
fn zookeeper_version(jars: &Path) -> String {
    let names = fs::read_dir(jars).into_iter().flatten().flatten();
    names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
        })
        .next()
        .unwrap_or_else(|| "of unknown version".into())
}

/// The first line that a program says about its version.
fn said(binary: &Path) -> String {
    let output = with_libraries(binary).and_then(|mut c| {
        c.arg("--version").stdin(Stdio::null()).output().map_err(|e| e.to_string())
    });
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            text.trim().lines().next().unwrap_or_default().to_owned()
        }
        Ok(_) | Err(_) => binary.display().to_string(),
    }
}
