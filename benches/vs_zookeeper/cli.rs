//! The command line of the benchmark.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum as _};
use lockkeeper::internals::bench::{self, Go, Length, Plan, Work};

use crate::cli_scale::{AbuseArgs, ChildrenArgs, CrowdArgs, OverloadArgs, SessionsArgs};
use crate::figures::Cell;
use crate::filled::Fills;
use crate::grown::Grows;
use crate::kinds::Kind;
use crate::mode::Mode;
use crate::results::{self, Results};
use crate::rounds::Rounds;
use crate::{cli_scale, fill, growth, idle, machine, null, run, steady};

/// The nine modes that are compared unless others are asked for.
const MODES: [&str; 9] = [
    "get:1x1",
    "get:32x1",
    "get:16x16",
    "set:1x1",
    "set:32x1",
    "set:16x16",
    "create:1x1",
    "create:32x1",
    "create:16x16",
];

/// The modes that ensembles are compared by.
const ENSEMBLE_MODES: [&str; 8] = [
    "set:32x1",
    "set:16x16",
    "create:32x1",
    "create:16x16",
    "mixed:32x1",
    "mixed:16x16",
    "lock:32x1",
    "contended:64x1",
];

/// The modes in which latency at the same rate is compared: where the processors are the limit.
const OFFERED_MODES: [&str; 5] =
    ["get:16x16", "set:16x16", "create:16x16", "mixed:16x16", "lock:32x1"];

/// Measures ZooKeeper-compatible servers: `run` compares, `fill` restarts with a full tree, `load`
/// loads a server that is already there, `null` is the limit they are compared with.
#[derive(Parser)]
#[command(name = "vs_zookeeper")]
struct Cli {
    /// Given by `cargo bench`; without a meaning here.
    #[arg(long, hide = true, global = true)]
    bench: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Compare servers: all up at once, measured in turns.
    Run(RunArgs),
    /// Fill a tree, kill the server, and time its return.
    Fill(FillArgs),
    /// Measure the same load while znodes, sessions, watches or contenders grow.
    Growth(GrowthArgs),
    /// See what servers take that nobody asks anything, and how soon a new one answers.
    Idle(IdleArgs),
    /// See whether a load stays what it is for minutes, with a full tree, while sessions come and go in storms.
    Steady(SteadyArgs),
    /// See what many sessions take, and what happens when all of them lose their connections, their
    /// leader or their clients.
    Sessions(SessionsArgs),
    /// Offer more than a server can take, and see what it does, and what that does to other clients.
    Overload(OverloadArgs),
    /// See what one abusive client costs a well-behaved one.
    Abuse(AbuseArgs),
    /// Create, list and delete very many children of one znode.
    Children(ChildrenArgs),
    /// A part of those sessions: what this program starts itself as, and tells what to do.
    #[command(hide = true)]
    Crowd(CrowdArgs),
    /// Make tables and charts again of figures that were kept.
    Render(RenderArgs),
    /// Put load on one running server.
    Load(LoadArgs),
    /// Serve from memory with a log and nothing else: what the machine allows.
    Null(NullArgs),
}

#[derive(Args)]
pub struct PeerArgs {
    /// A lockkeeper binary.
    #[arg(long, value_name = "FILE")]
    pub lockkeeper: Option<PathBuf>,
    /// A line for Lockkeeper's configuration, such as lockkeeper.ioThreads=2; may be given several times.
    #[arg(long = "setting", value_name = "KEY=VALUE", requires = "lockkeeper")]
    pub settings: Vec<String>,
    /// A directory with Apache ZooKeeper's jars (see fetch_zookeeper).
    #[arg(long, value_name = "DIR")]
    pub zookeeper: Option<PathBuf>,
    /// Heap of ZooKeeper, as -Xms and -Xmx take it.
    #[arg(long, default_value = "2g")]
    pub heap: String,
    /// Where the servers keep their data; must not be a RAM disk.
    #[arg(long, value_name = "DIR", default_value = "target/tmp")]
    pub data: PathBuf,
    /// The servers take this port and the ones after it, on 127.0.0.1.
    #[arg(long, default_value_t = 19_700)]
    pub base_port: u16,
    #[command(flatten)]
    pub keep: KeepArgs,
}

#[derive(Args)]
pub struct KeepArgs {
    /// Keep every figure in this directory, as NAME.json, and make its charts.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Name of the file there. Default: the command, of `run` with the number of servers.
    #[arg(long, requires = "out")]
    name: Option<String>,
    /// Also put the tables of all that is kept there into this document, between its marks
    /// (`<!-- figures: NAME -->`, `<!-- end of figures -->`).
    #[arg(long, value_name = "FILE", requires = "out")]
    document: Option<PathBuf>,
}

#[derive(Args)]
struct TimesArgs {
    /// Length of one measurement.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    window: Duration,
    /// Unmeasured load directly before each measurement.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,
    /// Unmeasured load on each ZooKeeper before the first round.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    first_warm_up: Duration,
}

#[derive(Args)]
struct RenderArgs {
    /// Where `--out` has kept the figures.
    out: PathBuf,
    /// A document with places for the tables, which are replaced.
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// Servers of each kind: 3 or 5 are an ensemble, which the null server cannot be.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    servers: u16,
    /// A redis-server, for locks in one and for Redlock over three (see fetch_rivals).
    #[arg(long, value_name = "FILE")]
    redis: Option<PathBuf>,
    /// An etcd binary, for the locks of as many as --servers (see fetch_rivals).
    #[arg(long, value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// Modes such as get:16x16 (connections x requests in flight), set, create, mixed, lock:32x1,
    /// contended:64x1. Default: nine shapes of get, set and create; with more than one server
    /// shapes of set, create, mixed, lock and contended.
    #[arg(long, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Compare latency at the same rate: all are offered this share of what ZooKeeper does at most
    /// in that mode, measured first. Default modes: five that the processors limit.
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with_all = ["redis", "etcd"])]
    share: Option<f64>,
    /// Measure a window again of which a virtual machine's host took more than so many CPU seconds per
    /// second, up to five times, and count the one with the least. For latencies on a busy host.
    #[arg(long, value_name = "CPU", value_parser = stolen)]
    stolen_max: Option<f64>,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    times: TimesArgs,
}

#[derive(Args)]
struct FillArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// How many znodes of 100 bytes.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(8..))]
    nodes: u64,
    /// How often the server is killed and started again.
    #[arg(long, default_value_t = 3)]
    restarts: usize,
}

#[derive(Args)]
struct GrowthArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// Servers of each kind. There is one of these for each size at a time: mind ZooKeeper's --heap.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    servers: u16,
    /// What grows. Default: everything, in this order.
    #[arg(long, value_delimiter = ',', value_enum)]
    grows: Vec<Grows>,
    /// Leave larger sizes out.
    #[arg(long, value_name = "SIZE", default_value_t = 1_000_000)]
    most: u64,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    times: TimesArgs,
}

#[derive(Args)]
struct IdleArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// Servers of each kind: one, and an ensemble. All are up at once: mind ZooKeeper's --heap.
    #[arg(long, value_delimiter = ',', default_value = "1,3", value_parser = clap::value_parser!(u16).range(1..=9))]
    servers: Vec<u16>,
    /// Sessions that only live, in the second part.
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// How often an empty server of each kind is started to see how long that takes.
    #[arg(long, default_value_t = 9)]
    starts: usize,
    /// Rest before figures are taken.
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    settle: Duration,
    /// How long CPU time is counted.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    window: Duration,
}

#[derive(Args)]
struct SteadyArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// Servers of each kind, which are measured one kind after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    servers: u16,
    /// The load: get, set and mixed go to all znodes in scattered order. Not one that only grows or
    /// ends, such as create.
    #[arg(long, default_value = "mixed:16x16")]
    mode: Mode,
    /// Znodes of 100 bytes that are there.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    nodes: u64,
    /// Share of the most that it does, measured first, that is offered; 1 is as much as it takes.
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = share)]
    share: f64,
    #[arg(long, default_value = "600", value_parser = seconds)]
    seconds: Duration,
    /// From one storm of sessions to the next.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    storm_every: Duration,
}

#[derive(Args)]
struct LoadArgs {
    /// The server, or several with commas between them.
    #[arg(value_delimiter = ',', required = true)]
    addrs: Vec<SocketAddr>,
    /// A mode such as set:16x16.
    mode: Mode,
    /// Process ids of the server, for its CPU time and memory.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    window: Duration,
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    warm_up: Duration,
    /// Node below /bench for the created ones; must be new for each run of create.
    #[arg(long, default_value_t = format!("load-{}", std::process::id()))]
    room: String,
}

#[derive(Args)]
struct NullArgs {
    #[arg(long)]
    port: u16,
    /// The log file; an old one is overwritten.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
}

pub fn main() -> Result<(), String> {
    match Cli::parse().command {
        Some(Command::Run(args)) => compare(args),
        Some(Command::Fill(args)) => fill(&args),
        Some(Command::Growth(args)) => grow(args),
        Some(Command::Idle(args)) => see_idle(args),
        Some(Command::Steady(args)) => stay_steady(args),
        Some(Command::Sessions(args)) => cli_scale::sessions(args),
        Some(Command::Overload(args)) => cli_scale::overload(args),
        Some(Command::Abuse(args)) => cli_scale::abuse(args),
        Some(Command::Children(args)) => cli_scale::children(args),
        Some(Command::Crowd(args)) => cli_scale::crowd(args),
        Some(Command::Render(args)) => results::render(&args.out, args.document.as_deref()),
        Some(Command::Load(args)) => load(args),
        Some(Command::Null(args)) => null::serve(args.port, &args.log),
        None => {
            println!("nothing was measured; see benches/vs_zookeeper/README.md for what to say");
            Ok(())
        }
    }
}

fn compare(args: RunArgs) -> Result<(), String> {
    let usual: &[&str] = match (args.share, args.servers) {
        (Some(_), _) => &OFFERED_MODES,
        (None, 1) => &MODES,
        (None, _) => &ENSEMBLE_MODES,
    };
    let modes: Vec<Mode> = match args.modes {
        chosen if chosen.is_empty() => usual.iter().map(|m| m.parse()).collect::<Result<_, _>>()?,
        chosen => chosen,
    };
    let mut kinds = kinds(&args.peers);
    // The null server has no sessions, so no locks and no ensemble.
    if args.servers == 1 && args.share.is_none() && !modes.iter().any(|mode| mode.work.locks()) {
        kinds.push(Kind::Null);
    }
    if let Some(binary) = args.redis {
        kinds.push(Kind::Redis { binary: binary.clone() });
        kinds.push(Kind::Redlock { binary });
    }
    kinds.extend(args.etcd.map(|binary| Kind::Etcd { binary }));
    if kinds.is_empty() {
        return Err("ensembles, locks and shares need --lockkeeper or --zookeeper".into());
    }
    let rounds = rounds(kinds, args.servers, args.rounds, &args.times, &args.peers);
    let figures =
        run::run(&rounds, &modes, args.share, args.stolen_max, |line| eprintln!("{line}"))?;
    let name = format!("{}-{}", args.share.map_or("run", |_| "latency"), args.servers);
    finish(&Results::Comparison(figures), &args.peers.keep, &name)
}

fn fill(args: &FillArgs) -> Result<(), String> {
    let kinds = kinds_for("fill", &args.peers)?;
    let mut all = Vec::new();
    for (kind, port) in kinds.into_iter().zip(args.peers.base_port..) {
        let settings = fill::Settings {
            kind,
            nodes: args.nodes,
            restarts: args.restarts,
            port,
            data: args.peers.data.clone(),
        };
        all.push(fill::run(&settings, |line| eprintln!("{line}"))?);
    }
    let fills = Fills { site: machine::site(&args.peers.data), servers: all };
    finish(&Results::Fill(fills), &args.peers.keep, "fill")
}

fn grow(args: GrowthArgs) -> Result<(), String> {
    let kinds = kinds_for("growth", &args.peers)?;
    let all = Grows::value_variants().to_vec();
    let settings = growth::Settings {
        rounds: rounds(kinds, args.servers, args.rounds, &args.times, &args.peers),
        axes: if args.grows.is_empty() { all } else { args.grows },
        size_max: args.most,
    };
    let figures = growth::run(&settings, |line| eprintln!("{line}"))?;
    let name = match args.servers {
        1 => "growth".to_owned(),
        several => format!("growth-{several}"),
    };
    finish(&Results::Growth(figures), &args.peers.keep, &name)
}

fn see_idle(args: IdleArgs) -> Result<(), String> {
    let settings = idle::Settings {
        kinds: kinds_for("idle", &args.peers)?,
        servers: args.servers,
        sessions: args.sessions,
        starts: args.starts,
        settle: args.settle,
        window: args.window,
        base_port: args.peers.base_port,
        data: args.peers.data,
    };
    let figures = idle::run(&settings, |line| eprintln!("{line}"))?;
    finish(&Results::Idle(figures), &args.peers.keep, "idle")
}

fn stay_steady(args: SteadyArgs) -> Result<(), String> {
    if matches!(args.mode.work, Work::Create | Work::Delete | Work::ReadBack) {
        return Err(format!("{} is no steady load", args.mode.name()));
    }
    let settings = steady::Settings {
        kinds: kinds_for("steady", &args.peers)?,
        servers: args.servers,
        mode: args.mode,
        znodes: args.nodes,
        share: args.share,
        length: args.seconds,
        storm_every: args.storm_every.max(Duration::from_secs(1)),
        base_port: args.peers.base_port,
        data: args.peers.data,
    };
    let figures = steady::run(&settings, |line| eprintln!("{line}"))?;
    let name = match args.servers {
        1 => "steady".to_owned(),
        several => format!("steady-{several}"),
    };
    finish(&Results::Steady(figures), &args.peers.keep, &name)
}

/// Shows what was measured, and keeps it if that was asked for.
pub fn finish(results: &Results, keep: &KeepArgs, name: &str) -> Result<(), String> {
    println!("{}", results.to_markdown());
    let Some(out) = &keep.out else { return Ok(()) };
    results.keep(out, keep.name.as_deref().unwrap_or(name))?;
    results::render(out, keep.document.as_deref())
}

fn load(args: LoadArgs) -> Result<(), String> {
    let Mode { work, connections, depth } = args.mode;
    let plan = Plan {
        pids: args.pids,
        length: Length::Timed { warm_up: args.warm_up, window: args.window },
        room: args.room,
        ..Plan::new(args.addrs, work, connections, depth)
    };
    let outcome = bench::run(&plan, &mut |_| Go::On).map_err(|e| e.to_string())?;
    let text = serde_json::to_string_pretty(&Cell::from(&outcome));
    println!("{}", text.expect("a cell is plain data"));
    Ok(())
}

fn kinds(args: &PeerArgs) -> Vec<Kind> {
    let zookeeper =
        args.zookeeper.clone().map(|jars| Kind::ZooKeeper { jars, heap: args.heap.clone() });
    let settings = args.settings.clone();
    let lockkeeper = args.lockkeeper.clone().map(|binary| Kind::Lockkeeper { binary, settings });
    zookeeper.into_iter().chain(lockkeeper).collect()
}

/// The kinds for a command that needs one.
pub fn kinds_for(command: &str, args: &PeerArgs) -> Result<Vec<Kind>, String> {
    match kinds(args) {
        none if none.is_empty() => Err(format!("{command} needs --lockkeeper or --zookeeper")),
        some => Ok(some),
    }
}

fn rounds(
    kinds: Vec<Kind>,
    servers: u16,
    count: u32,
    times: &TimesArgs,
    peers: &PeerArgs,
) -> Rounds {
    Rounds {
        kinds,
        servers,
        count: count as usize,
        warm_up: times.warm_up,
        window: times.window,
        first_warm_up: times.first_warm_up,
        base_port: peers.base_port,
        data: peers.data.clone(),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text} is not a share such as 0.5"))?;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(format!("{text}: above 0, and 1 at most, please")),
    }
}

fn stolen(text: &str) -> Result<f64, String> {
    let stolen: f64 = text.parse().map_err(|_| format!("{text} is not a number such as 0.02"))?;
    match stolen >= 0.0 && stolen.is_finite() {
        true => Ok(stolen),
        false => Err(format!("{text}: 0 or more, please")),
    }
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is not a number of seconds"))?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(format!("{text} seconds: between 0 and a day, please"));
    }
    Ok(Duration::from_secs_f64(seconds))
}
