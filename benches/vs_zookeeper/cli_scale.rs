//! The command line of what is about scale: very many sessions, too much load, abusive clients, a parent with
//! very many children.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use lockkeeper::internals::bench::Work;

use crate::abuser::Abuse;
use crate::cli::{PeerArgs, finish, kinds_for, seconds};
use crate::crowd::Gathering;
use crate::mode::Mode;
use crate::results::Results;
use crate::{abuse, children, crowds, overload, sessions};

#[derive(Args)]
pub struct SessionsArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// Servers of each kind, which are measured one kind after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    servers: u16,
    /// Sessions in all. A server has a connection for each, which is an open file: more than `ulimit
    /// -Hn` over all servers are refused by some. The leader of three is killed if the next server has room for
    /// its sessions as well.
    #[arg(long, default_value_t = 18_000)]
    sessions: usize,
    /// Their timeout.
    #[arg(long, value_name = "SECONDS", default_value = "40", value_parser = seconds)]
    timeout: Duration,
    /// Rest before figures are taken.
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    settle: Duration,
    /// How long CPU time is counted.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    window: Duration,
}

#[derive(Args)]
pub struct OverloadArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// Servers of each kind, which are measured one kind after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    servers: u16,
    /// The load whose most is found out.
    #[arg(long, default_value = "mixed:16x16")]
    mode: Mode,
    /// Connections, and requests in flight on each, when more than that is offered: as many as the server
    /// lets wait.
    #[arg(long, default_value = "64x2000")]
    deep: String,
    /// What is offered, in multiples of the most.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    factors: Vec<f64>,
    /// Length of one measurement.
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    window: Duration,
    /// Unmeasured load on each ZooKeeper at first.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    first_warm_up: Duration,
}

#[derive(Args)]
pub struct AbuseArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// What the abusive client does. Default: everything, in this order.
    #[arg(long, value_delimiter = ',', value_enum)]
    abuses: Vec<Abuse>,
    /// Length of one measurement.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    window: Duration,
    /// Unmeasured load on each ZooKeeper at first.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    first_warm_up: Duration,
}

#[derive(Args)]
pub struct ChildrenArgs {
    #[command(flatten)]
    peers: PeerArgs,
    /// How many.
    #[arg(long, default_value_t = 1_000_000)]
    children: usize,
    /// Unmeasured load on each ZooKeeper at first.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    first_warm_up: Duration,
}

#[derive(Args)]
pub struct CrowdArgs {
    #[arg(long, value_delimiter = ',')]
    addrs: Vec<SocketAddr>,
    #[arg(long)]
    count: usize,
    #[arg(long)]
    number: u8,
    #[arg(long)]
    room: String,
    #[arg(long)]
    watched: String,
    #[arg(long, value_parser = seconds)]
    timeout: Duration,
}

pub fn sessions(args: SessionsArgs) -> Result<(), String> {
    let settings = sessions::Settings {
        kinds: kinds_for("sessions", &args.peers)?,
        servers: args.servers,
        sessions: args.sessions,
        timeout: args.timeout,
        settle: args.settle,
        window: args.window,
        base_port: args.peers.base_port,
        data: args.peers.data,
    };
    let figures = sessions::run(&settings, |line| eprintln!("{line}"))?;
    let name = match args.servers {
        1 => "sessions".to_owned(),
        several => format!("sessions-{several}"),
    };
    finish(&Results::Sessions(figures), &args.peers.keep, &name)
}

pub fn overload(args: OverloadArgs) -> Result<(), String> {
    if !matches!(args.mode.work, Work::Get | Work::Set | Work::Mixed) {
        return Err(format!("{} is no load that stays the same", args.mode.name()));
    }
    let deep: Mode = format!("{}:{}", args.mode.work, args.deep).parse()?;
    let settings = overload::Settings {
        kinds: kinds_for("overload", &args.peers)?,
        servers: args.servers,
        mode: args.mode,
        deep,
        factors: args.factors,
        window: args.window,
        first_warm_up: args.first_warm_up,
        base_port: args.peers.base_port,
        data: args.peers.data,
    };
    let figures = overload::run(&settings, |line| eprintln!("{line}"))?;
    let name = match args.servers {
        1 => "overload".to_owned(),
        several => format!("overload-{several}"),
    };
    finish(&Results::Overload(figures), &args.peers.keep, &name)
}

pub fn abuse(args: AbuseArgs) -> Result<(), String> {
    let all = Abuse::value_variants().to_vec();
    let settings = abuse::Settings {
        kinds: kinds_for("abuse", &args.peers)?,
        abuses: if args.abuses.is_empty() { all } else { args.abuses },
        window: args.window,
        first_warm_up: args.first_warm_up,
        base_port: args.peers.base_port,
        data: args.peers.data,
    };
    let figures = abuse::run(&settings, |line| eprintln!("{line}"))?;
    finish(&Results::Abuse(figures), &args.peers.keep, "abuse")
}

pub fn children(args: ChildrenArgs) -> Result<(), String> {
    let settings = children::Settings {
        kinds: kinds_for("children", &args.peers)?,
        children: args.children,
        first_warm_up: args.first_warm_up,
        base_port: args.peers.base_port,
        data: args.peers.data,
    };
    let figures = children::run(&settings, |line| eprintln!("{line}"))?;
    finish(&Results::Children(figures), &args.peers.keep, "children")
}

/// A part of the sessions, in this process.
pub fn crowd(args: CrowdArgs) -> Result<(), String> {
    crowds::serve(Gathering {
        addrs: args.addrs,
        count: args.count,
        number: args.number,
        room: args.room,
        watched: args.watched,
        timeout: args.timeout,
    })
}
