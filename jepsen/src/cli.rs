//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lockkeeper_jepsen::calibration::{self, Calibration};
use lockkeeper_jepsen::cluster::{Backend, Software, namespaces};
use lockkeeper_jepsen::doctor;
use lockkeeper_jepsen::nemesis::{Faults, Kind};
use lockkeeper_jepsen::run::Settings;
use lockkeeper_jepsen::suite::{self, Suite};
use lockkeeper_jepsen::workload::{self, Named};

/// Strikes a ZooKeeper-compatible ensemble with faults and has what its clients saw judged.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// One run (also without this word)
    Run(Run),
    /// Judge an earlier run again, from its directory
    Check { folder: PathBuf },
    /// Write the report of an earlier run again, from its directory
    Report { folder: PathBuf },
    /// Many runs, one after the other, and a table of what they came to
    TestAll(TestAll),
    /// Whether runs find deliberate bugs: plants each of a table, and counts the runs that find it
    Calibrate(Calibrate),
    /// Which faults this machine offers
    Doctor,
}

/// Where servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// Namespaces if a fault needs them, else loopback
    Auto,
    Local,
    /// A network namespace for each server
    Netns,
}

/// What servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    Lockkeeper,
    /// Apache ZooKeeper, the control
    Zookeeper,
}

#[derive(Clone, Debug, Args)]
pub struct Run {
    /// What clients do
    #[arg(long, default_value = "register")]
    pub workload: Named,
    /// Faults, separated by commas, as `doctor` names them; with leader beside them they strike at
    /// nobody else, and leader alone is kill, pause and partition; or all; or none
    #[arg(long, default_value = "none")]
    pub nemesis: String,
    /// Seconds for which clients work
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub time_limit: u64,
    /// Decides the plan of faults and what each client intends
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub nodes: u8,
    /// Number of clients, or so many for each server: 2n
    #[arg(long, default_value = "2n")]
    pub concurrency: String,
    /// Steps of all clients together, a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Operations on a znode before the clients turn to another one
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub ops_per_key: u64,
    /// Session timeout, milliseconds
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(400..=4000))]
    pub session_timeout: u64,
    /// About how long faults last and are apart, seconds
    #[arg(long, default_value_t = 5.0)]
    pub nemesis_interval: f64,
    /// Have the servers write an image (or snapshot) after about so many transactions
    #[arg(long)]
    pub snapshot_every: Option<u64>,
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Place,
    #[arg(long, value_enum, default_value = "lockkeeper")]
    pub server: Server,
    /// The lockkeeper to test; else the release build beside this program, or the debug one
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Start the servers with this deliberate bug; the binary must be built with the feature `mutants`
    #[arg(long, value_name = "NAME")]
    pub plant: Option<String>,
    /// Directory of ZooKeeper's jars: where tests/clients put them, or benches/vs_zookeeper does
    #[arg(long)]
    pub jars: Option<PathBuf>,
    /// Where the directories of runs are made
    #[arg(long, default_value = "target/jepsen")]
    pub out: PathBuf,
    /// Keep the servers' data of a good run too
    #[arg(long)]
    pub keep_data: bool,
    /// What the run should come to: `fail` for one that must be found out
    #[arg(long, value_enum, default_value = "pass")]
    pub expect: Expect,
}

#[derive(Clone, Debug, Args)]
pub struct TestAll {
    /// The most important workloads, 15 s each: below 15 minutes on two cores
    #[arg(long)]
    pub quick: bool,
    /// Seconds for which the clients of a run work
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub time_limit: Option<u64>,
    /// Only these workloads, separated by commas
    #[arg(long)]
    pub workloads: Option<String>,
    /// Only these nemeses, separated by commas; several at once with + between them
    #[arg(long)]
    pub nemeses: Option<String>,
    /// Seed of the first run; each further one has the next
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[arg(long, default_value = "target/jepsen")]
    pub out: PathBuf,
    /// Arguments for every run
    #[arg(last = true)]
    pub others: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub struct Calibrate {
    /// A lockkeeper that is built with the feature `mutants`
    #[arg(long)]
    pub binary: PathBuf,
    /// Only these bugs, separated by commas
    #[arg(long)]
    pub mutant: Option<String>,
    /// Runs for each of them
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub runs: u64,
    /// Runs at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub jobs: u64,
    /// Seed of the first run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Plant nothing, and expect that no run finds anything
    #[arg(long)]
    pub control: bool,
    #[arg(long, default_value = "target/jepsen/calibration")]
    pub out: PathBuf,
}

/// What a run should come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Expect {
    Pass,
    Fail,
}

/// Where tests/clients keeps the jars of the control, and where benches/vs_zookeeper does.
const JARS: [&str; 2] = ["/tmp/lockkeeper-clients/zookeeper-3.9.5", "target/zookeeper-jars"];
/// Longest name of a file system path that is shown as a suggestion.
const FETCH: &str = "benches/vs_zookeeper/fetch_zookeeper";

impl Calibrate {
    /// The runs.
    ///
    /// # Errors
    /// A bug that the table does not have, or no such binary.
    pub fn calibration(&self) -> Result<Calibration, String> {
        let binary = first_file(std::slice::from_ref(&self.binary))
            .ok_or_else(|| format!("no file {}", self.binary.display()))?;
        let named = self.mutant.as_deref().map(|names| names.split(',').collect::<Vec<_>>());
        Ok(Calibration {
            rows: calibration::rows(named.as_deref())?,
            binary,
            runs: self.runs,
            jobs: self.jobs,
            seed: self.seed,
            is_control: self.control,
            out: self.out.clone(),
        })
    }
}

impl TestAll {
    /// The runs.
    ///
    /// # Errors
    /// A workload or nemesis that there is not.
    pub fn suite(&self) -> Result<Suite, String> {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
        let every = || workload::ALL.iter().map(|known| known.name.to_owned()).collect();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (workloads, nemeses, seconds) = match self.quick {
            true => (owned(&suite::QUICK), owned(&suite::QUICK_NEMESES), suite::QUICK_SECONDS),
            false => (every(), owned(&suite::NEMESES), suite::SECONDS),
        };
        let workloads = self.workloads.as_deref().map_or(workloads, list);
        let nemeses = self.nemeses.as_deref().map_or(nemeses, list);
        for name in &workloads {
            name.parse::<Named>()?;
        }
        for nemesis in &nemeses {
            nemesis.replace('+', ",").parse::<Faults>()?;
        }
        Ok(Suite {
            workloads,
            nemeses,
            seconds: self.time_limit.unwrap_or(seconds),
            seed: self.seed,
            out: self.out.clone(),
            others: self.others.clone(),
        })
    }
}

impl Run {
    /// The settings of the run.
    ///
    /// # Errors
    /// An argument that does not fit, or a server that is not to be found.
    pub fn settings(&self) -> Result<Settings, String> {
        let nodes = usize::from(self.nodes);
        let interval = Duration::try_from_secs_f64(self.nemesis_interval)
            .ok()
            .filter(|interval| *interval >= Duration::from_millis(100))
            .ok_or("--nemesis-interval must be at least 0.1")?;
        let software = match self.server {
            Server::Lockkeeper => Software::Lockkeeper { binary: self.binary()? },
            Server::Zookeeper => Software::ZooKeeper { jars: self.jars()? },
        };
        let (faults, mut skipped) = offered(self.nemesis.parse()?, &software, nodes);
        let wants =
            self.backend == Place::Netns || faults.kinds.iter().any(|kind| kind.needs_networks());
        let backend = match (wants, namespaces::probe()) {
            (false, _) => Backend::Loopback,
            (true, Ok(())) if self.backend != Place::Local => Backend::Namespaces,
            (true, Ok(())) => return Err("to cut servers off needs --backend netns".to_owned()),
            (true, Err(why)) => {
                skipped.push(format!("network namespaces: {why}"));
                Backend::Loopback
            }
        };
        Ok(Settings {
            workload: self.workload,
            faults,
            software,
            plant: self.plant.clone(),
            backend,
            nodes,
            clients: clients(&self.concurrency, nodes)?,
            length: Duration::from_secs(self.time_limit),
            interval,
            rate: self.rate,
            timeout: Duration::from_millis(self.session_timeout),
            ops_per_key: self.ops_per_key,
            snapshot_every: self.snapshot_every,
            seed: self.seed,
            out: self.out.clone(),
            keep_data: self.keep_data,
            skipped,
        })
    }

    fn binary(&self) -> Result<PathBuf, String> {
        let given = self.binary.clone().map_or_else(built, |binary| vec![binary]);
        first_file(&given).ok_or_else(|| {
            let tried: Vec<String> = given.iter().map(|file| file.display().to_string()).collect();
            format!("no lockkeeper at {}; cargo build --release makes one", tried.join(" or "))
        })
    }

    fn jars(&self) -> Result<PathBuf, String> {
        let given = self
            .jars
            .clone()
            .map_or_else(|| JARS.iter().map(PathBuf::from).collect(), |jars| vec![jars]);
        let found = given.iter().find(|folder| has_zookeeper(folder));
        let found = found.ok_or_else(|| format!("no jars of ZooKeeper; {FETCH} fetches them"))?;
        found.canonicalize().map_err(|error| format!("{}: {error}", found.display()))
    }
}

/// Where cargo puts a lockkeeper: beside this program, release before debug.
fn built() -> Vec<PathBuf> {
    let target = std::env::current_exe()
        .ok()
        .and_then(|this| this.parent().and_then(Path::parent).map(Path::to_owned));
    let target = target.unwrap_or_else(|| PathBuf::from("target"));
    ["release", "debug"].iter().map(|profile| target.join(profile).join("lockkeeper")).collect()
}

fn first_file(files: &[PathBuf]) -> Option<PathBuf> {
    files.iter().find(|file| file.is_file()).and_then(|file| file.canonicalize().ok())
}

fn has_zookeeper(folder: &Path) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("zookeeper-3") && name.ends_with(".jar")
    })
}

/// The faults that this machine offers, and those that it does not, each with the reason.
fn offered(mut faults: Faults, software: &Software, nodes: usize) -> (Faults, Vec<String>) {
    let mut skipped = Vec::new();
    let offers = |kind: Kind| match kind.needs_a_majority_of_others() && nodes < 3 {
        true => Err("the others are no majority".to_owned()),
        false => doctor::offers(kind, Some(software)),
    };
    faults.kinds.retain(|kind| match offers(*kind) {
        Ok(()) => true,
        Err(why) => {
            skipped.push(format!("{}: {why}", kind.name()));
            false
        }
    });
    (faults, skipped)
}

fn clients(text: &str, nodes: usize) -> Result<usize, String> {
    let (number, times) = match text.strip_suffix('n') {
        Some(number) => (number, nodes),
        None => (text, 1),
    };
    let number = number.parse::<usize>().ok().filter(|number| (1..=1000).contains(number));
    number.map(|number| number * times).ok_or_else(|| {
        format!("--concurrency is a number from 1 to 1000, or one with an n behind it: {text}")
    })
}
