//! `lockkeeper bench`: load on a server, Lockkeeper's or ZooKeeper's, and what it came to.
//!
//! *Owns* the command's flags and exit codes: 0 measured, 1 a server refused or answered wrongly, 2
//! the command is wrong, 69 no server answers or a connection ended, 71 this machine lacks something,
//! 77 no permission, 130 interrupted (with the figures so far). `crate::bench` does the work.
//! *Invariants*: it ends by itself; the znodes that it made are deleted, or named if they cannot be;
//! figures go to standard output, everything else to standard error.

mod interrupt;
mod progress;
mod report;
mod workload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::client::{self, Port};
use super::client_configuration::ClientConfiguration;
use super::duration::{duration, now_ms};
use super::exit::{
    EXIT_INTERRUPTED, EXIT_NO_PERMISSION, EXIT_OS, EXIT_REFUSED, EXIT_UNAVAILABLE, EXIT_USAGE,
};
use super::flags::{Output, OutputFlag, ServersFlags};
use super::graft::is_of_servers;
use super::output::{exit_code, print, say};
use crate::bench::{
    self, Access, CONNECTIONS_MAX, DEPTH_MAX, Fault, Length, Plan, THREADS_MAX, Work, wire,
};
use crate::config::HostPort;
use crate::tree::ZnodePath;
use crate::tree::path::ROOT;
use interrupt::Interrupt;
use progress::Progress;
use report::{Figures, Report};
use workload::Workload;

/// Longest measurement.
const DURATION_MAX: Duration = Duration::from_secs(86_400);
/// Most data in a znode: with its path it must fit into a frame of ZooKeeper's default length.
const SIZE_MAX: usize = 1_000_000;

/// Flags of `lockkeeper bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 measured; 1 a server refused or answered wrongly; 2 wrong usage; 69 no server \
                        answers; 71 this machine lacks something; 77 no permission; 130 interrupted, with the \
                        figures so far."
)]
pub(crate) struct BenchFlags {
    /// What the clients do
    #[arg(short, long, value_name = "WORK", default_value = "mixed")]
    workload: Workload,
    /// Sessions, each with a connection
    #[arg(short, long, value_name = "N", default_value_t = 32, value_parser = clients)]
    clients: usize,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = pipeline)]
    pipeline: usize,
    /// Threads of this tool, which share the clients: as many as it takes to fill a large machine
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = threads)]
    threads: usize,
    /// Data in each znode, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = size)]
    size: usize,
    /// How long to measure: seconds, or 500ms, 10s, 2m; fill and delete end with --nodes
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Load before that, which is not measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    warm_up: Duration,
    /// Begin so many operations per second, all clients together, whether or not earlier ones are
    /// answered; latency counts from when each was due
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// How long a lock is held
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    hold: Duration,
    /// What the workload sessions asks for
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    session_timeout: Duration,
    /// Znodes that fill creates, or delete deletes, at most [default: fill 1000000, delete 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    nodes: Option<u64>,
    /// Process ids of the servers, if they run here: for their CPU time per operation and memory
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pids: Vec<u32>,
    /// The znode below which everything is made and taken away again
    #[arg(long, value_name = "PATH", default_value = "/lockkeeper-bench", value_parser = path)]
    path: String,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    output: OutputFlag,
}

fn clients(text: &str) -> Result<usize, String> {
    within(text, 1, CONNECTIONS_MAX)
}

fn pipeline(text: &str) -> Result<usize, String> {
    within(text, 1, DEPTH_MAX)
}

fn threads(text: &str) -> Result<usize, String> {
    within(text, 1, THREADS_MAX)
}

fn size(text: &str) -> Result<usize, String> {
    within(text, 0, SIZE_MAX)
}

fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from {least} to {most}"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1.0..=10_000_000.0).contains(rate));
    rate.ok_or_else(|| "expected a number from 1 to 10000000".to_owned())
}

fn path(text: &str) -> Result<String, String> {
    if ZnodePath::parse(text).is_ok() && text != ROOT && !is_of_servers(text) {
        return Ok(text.to_owned());
    }
    Err("expected the path of a znode that may be made, such as /bench".to_owned())
}

/// Runs `lockkeeper bench`.
pub(super) fn run(flags: &BenchFlags) -> ExitCode {
    let plan = match flags.plan() {
        Ok(plan) => plan,
        Err(reason) => return failed(EXIT_USAGE, &reason),
    };
    let interrupt = match Interrupt::catch() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(EXIT_OS, &format!("signals: {error}")),
    };
    if let Err(fault) = bench::reach(&plan) {
        return failed(code_of(&fault), &fault.to_string());
    }
    let measured = flags.measure(plan.clone(), &interrupt);
    let cleared = bench::clear(&plan);
    let code = match measured {
        Ok(Some(report)) => {
            let text = match flags.output.output {
                Output::Text => report.text(),
                Output::Json => format!("{}\n", report.json()),
            };
            print(&text);
            if report.interrupted { EXIT_INTERRUPTED } else { 0 }
        }
        Ok(None) => {
            say("lockkeeper bench: interrupted before anything was measured");
            EXIT_INTERRUPTED
        }
        Err(fault) => {
            say(&format!("lockkeeper bench: {fault}"));
            code_of(&fault)
        }
    };
    if let Err(fault) = cleared {
        say(&format!("lockkeeper bench: {}/{} is left behind: {fault}", plan.root, plan.room));
        return exit_code(if code == 0 { code_of(&fault) } else { code });
    }
    exit_code(code)
}

fn failed(code: i32, text: &str) -> ExitCode {
    say(&format!("lockkeeper bench: {text}"));
    exit_code(code)
}

fn code_of(fault: &Fault) -> i32 {
    match fault {
        Fault::Unreachable(_) => EXIT_UNAVAILABLE,
        Fault::Refused { code: wire::NO_AUTH, .. } => EXIT_NO_PERMISSION,
        Fault::Refused { .. } | Fault::Wrong(_) => EXIT_REFUSED,
        Fault::Machine(_) => EXIT_OS,
    }
}

impl BenchFlags {
    /// What is to be done, or what is wrong with the flags.
    fn plan(&self) -> Result<Plan, String> {
        let work = self.workload.work();
        let name = self.workload.name();
        if work.is_stepwise() && self.pipeline > 1 {
            return Err(format!("--pipeline: with {name} each request waits for an answer"));
        }
        if !work.locks() && !self.hold.is_zero() {
            return Err(format!("--hold: {name} takes no lock"));
        }
        if matches!(work, Work::Herd | Work::Watches) && self.clients < 2 {
            return Err(format!("--clients: {name} needs two at least"));
        }
        if self.threads > 1 && !self.workload.spreads() {
            return Err(format!("--threads: {name} is the work of one"));
        }
        if self.threads > self.clients {
            return Err("--threads: each needs one of the --clients at least".to_owned());
        }
        let counted = self.workload.nodes();
        if counted.is_none() && self.nodes.is_some() {
            return Err(format!("--nodes: {name} ends after --duration"));
        }
        let is_paced =
            counted.is_none() && !matches!(self.workload, Workload::Watches | Workload::Sessions);
        if !is_paced && self.rate.is_some() {
            return Err(format!("--rate: {name} goes as fast as it can"));
        }
        if self.duration.is_zero() || self.duration > DURATION_MAX || self.warm_up > DURATION_MAX {
            return Err("--duration: more than nothing, and at most a day".to_owned());
        }
        let length = match counted.map(|usual| self.nodes.unwrap_or(usual)) {
            None => Length::Timed { warm_up: self.warm_up, window: self.duration },
            Some(nodes) => {
                let clients = self.clients as u64;
                Length::Counted((0..clients).map(|at| (nodes + at) / clients).collect())
            }
        };
        let access = self.servers.access()?;
        let ClientConfiguration { tls, login } = access.configuration;
        if login.is_some() {
            return Err("--client-configuration: the load generator does not speak SASL".to_owned());
        }
        if tls.is_some() && matches!(self.workload, Workload::Sessions) {
            return Err("--client-configuration: the workload of sessions has no TLS".to_owned());
        }
        let (addrs, hosts) = addresses(&access.servers)?;
        let auth =
            access.credentials.iter().map(|one| (one.scheme().to_owned(), one.secret().to_owned()));
        Ok(Plan {
            pids: self.pids.clone(),
            threads: self.threads,
            length,
            root: format!("{}{}", access.root, self.path),
            room: room(),
            size: self.size,
            rate: self.rate,
            hold: self.hold,
            access: Access { auth: auth.collect(), tls, hosts },
            ..Plan::new(addrs, work, self.clients, self.pipeline)
        })
    }

    /// Nothing is measured if it is interrupted before.
    fn measure(&self, plan: Plan, interrupt: &Interrupt) -> Result<Option<Report>, Fault> {
        let workload = self.workload.name();
        let rss_before_mib = bench::proc::rss_mib_of(&plan.pids)?;
        let mut progress = Progress::new();
        if self.workload == Workload::Sessions {
            let lives = bench::live(&plan, self.session_timeout, &mut |interim| {
                progress.show(interim);
                interrupt.go()
            });
            progress.end();
            let interrupted = interrupt.has_come();
            let figures = Figures::Lives(lives?);
            return Ok(Some(Report { workload, plan, figures, interrupted, rss_before_mib }));
        }
        if self.workload == Workload::Delete {
            // What is to be deleted must be there; making it is not measured.
            let made = Plan { work: Work::Create, ..plan.clone() };
            bench::run(&made, &mut |_| interrupt.go())?;
            if interrupt.has_come() {
                return Ok(None);
            }
        }
        let outcome = bench::run(&plan, &mut |interim| {
            progress.show(interim);
            interrupt.go()
        });
        progress.end();
        let interrupted = interrupt.has_come();
        let figures = Figures::Load(outcome?);
        Ok(Some(Report { workload, plan, figures, interrupted, rss_before_mib }))
    }
}

/// The servers' addresses, and their names.
fn addresses(
    servers: &[HostPort],
) -> Result<(Vec<SocketAddr>, BTreeMap<SocketAddr, String>), String> {
    let mut addrs = Vec::new();
    let mut hosts = BTreeMap::new();
    for server in servers {
        let addr = client::resolve(server).map_err(|error| {
            format!("--server: {server}: {}", client::why(&error, Port::Client, false))
        })?;
        addrs.push(addr);
        hosts.insert(addr, server.host.clone());
    }
    Ok((addrs, hosts))
}

/// A name for this run's znode that no other run has.
fn room() -> String {
    format!("{:x}-{}", now_ms(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_works_below_any_znode_that_is_not_the_servers() {
        for text in ["/bench", "/a/b", "/zookeeper-bench", "/zookeepers/x"] {
            assert_eq!(path(text).as_deref(), Ok(text));
        }
        for text in ["", "bench", "/", "/a/", "/a//b", "/a/../b", "/a\u{1}", "/zookeeper"] {
            assert!(path(text).is_err(), "{text:?}");
        }
        assert!(path("/zookeeper/x").is_err());
    }
}
