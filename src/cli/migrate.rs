//! `lockkeeper migrate`: from a running ensemble of Apache ZooKeeper to this one, without a stop.
//!
//! *Owns* the commands' flags, words and exit codes: 0 it is done, 1 it was refused and nothing was changed, 64 a flag
//! is wrong, 69 no server answers, or not in time, 75 not now, or it is not known yet. *Invariant*: what is no clear
//! yes of a server is no success. *Never*
//! judges whether a step may be done: the server that leads does.

mod check;
mod place;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin::{self, AdminError};
use super::exit::{EXIT_NOT_NOW, EXIT_UNAVAILABLE};
use super::flags::{AdminFlags, OutputFlag};
use super::output::{Failure, Said, shown};
use crate::config::HostPort;
use check::CheckFlags;
use place::{WhereFlags, ZooKeeper, parsed, zookeeper};

/// How long `follow` waits until the ensemble follows.
const FOLLOWS_MAX: Duration = Duration::from_secs(60);
/// Time between two looks for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long an order may take: a server answers in 75 seconds, also that it does not know what became of it.
const DECIDED_MAX: Duration = Duration::from_secs(90);
/// `lockkeeper migrate ...`
#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Look at both ensembles before anything is changed, and print the plan
    Check(CheckFlags),
    /// Follow a running ensemble of ZooKeeper: this one serves its clients, and ZooKeeper decides
    Follow(FollowFlags),
    /// Say how far it has come
    Status(StatusFlags),
    /// Take over: from then on this ensemble decides, and ZooKeeper's clients are all here
    Cutover(CutoverFlags),
    /// Stop following and forget the copy; before that, clients go back to ZooKeeper
    Abort(StatusFlags),
    /// End the watch over a ZooKeeper that is stopped for good, after the cutover
    Finish(FinishFlags),
}

/// Flags of `lockkeeper migrate follow`.
#[derive(Debug, Args)]
pub(crate) struct FollowFlags {
    #[command(flatten)]
    place: WhereFlags,
    /// Do not wait until the ensemble follows
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Flags of `lockkeeper migrate status` and `abort`.
#[derive(Debug, Args)]
pub(crate) struct StatusFlags {
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Flags of `lockkeeper migrate cutover`.
#[derive(Debug, Args)]
pub(crate) struct CutoverFlags {
    /// ZooKeeper's AdminServers, which are to say at which ports clients may be, and that none is connected [default:
    /// port 8080 of each server, where one answers]
    #[arg(long, value_name = "HOST:PORT,...")]
    zookeeper_admin: Option<String>,
    /// All ports at which a machine of ZooKeeper takes clients, secure ones too, where no AdminServer says them
    #[arg(long, value_name = "HOST=PORT,...", value_parser = host_ports)]
    ports: Vec<HostPorts>,
    /// Machines of ZooKeeper whose ports are closed by a firewall that drops: silence is no other sign of that
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    silent: Vec<String>,
    /// Servers of this ensemble that are away and may be: it has fewer to lose
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    with_down: Vec<u8>,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Flags of `lockkeeper migrate finish`.
#[derive(Debug, Args)]
pub(crate) struct FinishFlags {
    /// Machines of ZooKeeper that are gone: silence is no other sign of that
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    silent: Vec<String>,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Ports of one machine, each as `host:port`.
#[derive(Clone, Debug)]
pub(crate) struct HostPorts(Vec<String>);

fn host_ports(text: &str) -> Result<HostPorts, String> {
    let (host, ports) = text.split_once('=').ok_or("a host, `=`, and its ports")?;
    let port = |port: &str| -> Result<String, String> {
        let number = port.trim().parse().map_err(|_| format!("{port:?} is no port"))?;
        Ok(HostPort::new(host.trim(), number)?.to_string())
    };
    ports.split(',').map(port).collect::<Result<_, _>>().map(HostPorts)
}

/// Runs the command.
pub(super) fn run(command: &MigrateCommand) -> ExitCode {
    let (done, output) = match command {
        MigrateCommand::Check(flags) => (check::run(flags), flags.output),
        MigrateCommand::Follow(flags) => (follow(flags), flags.output),
        MigrateCommand::Status(flags) => (status(&flags.admin), flags.output),
        MigrateCommand::Cutover(flags) => (cutover(flags), flags.output),
        MigrateCommand::Abort(flags) => (abort(flags), flags.output),
        MigrateCommand::Finish(flags) => (finish(flags), flags.output),
    };
    shown(done, output.output, false)
}

fn follow(flags: &FollowFlags) -> Result<Said, Failure> {
    let ZooKeeper { clients, quorum, server_id, .. } = zookeeper(&flags.place)?;
    let (quorum, clients): (_, Vec<String>) =
        (quorum.join(","), clients.iter().map(ToString::to_string).collect());
    let target = format!(
        "/migration/follow?server_id={server_id}&quorum={quorum}&clients={}",
        clients.join(",")
    );
    let json = post(&flags.admin, &target)?;
    if flags.no_wait {
        return Ok(Said { text: text(&json), json });
    }
    let begun = Instant::now();
    loop {
        let json = get(&flags.admin)?;
        match json["state"].as_str() {
            Some("following") => return Ok(Said { text: text(&json), json }),
            Some("stopped" | "aborted") => return Err(Failure::refused(text(&json))),
            _ if begun.elapsed() > FOLLOWS_MAX => {
                let words = format!("it does not follow yet: {}", text(&json));
                return Err(Failure::new(EXIT_NOT_NOW, words));
            }
            _ => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn status(admin: &AdminFlags) -> Result<Said, Failure> {
    let json = get(admin)?;
    Ok(Said { text: text(&json), json })
}

fn cutover(flags: &CutoverFlags) -> Result<Said, Failure> {
    let admins = flags.zookeeper_admin.clone().unwrap_or_default();
    let ports: Vec<&str> = flags.ports.iter().flat_map(|of| &of.0).map(String::as_str).collect();
    let (ports, silent) = (ports.join(","), flags.silent.join(","));
    let down: Vec<String> = flags.with_down.iter().map(u8::to_string).collect();
    let down = down.join(",");
    let target =
        format!("/migration/cutover?admin={admins}&ports={ports}&silent={silent}&with_down={down}");
    let json = post(&flags.admin, &target)?;
    let zxid = json["zxid"].as_str().unwrap_or("unknown");
    let text = format!(
        "this ensemble has taken over at zxid {zxid}; {}\nstop ZooKeeper now, keep it from starting again, and then: \
         lockkeeper migrate finish\n",
        expired(&json)
    );
    Ok(Said { text, json })
}

fn finish(flags: &FinishFlags) -> Result<Said, Failure> {
    let target = format!("/migration/finish?silent={}", flags.silent.join(","));
    let json = post(&flags.admin, &target)?;
    let text = "the migration is over: ZooKeeper is not watched any more\n";
    Ok(Said { text: text.to_owned(), json })
}

fn abort(flags: &StatusFlags) -> Result<Said, Failure> {
    post(&flags.admin, "/migration/abort")?;
    let json = get(&flags.admin)?;
    let text = "this ensemble follows no more and has forgotten its copy: it serves no client\n";
    Ok(Said { text: text.to_owned(), json })
}

/// The status of the server that leads, or of one that answers.
fn get(flags: &AdminFlags) -> Result<Value, Failure> {
    let access = flags.access().map_err(Failure::usage)?;
    let mut found = None;
    let mut failure = None;
    for server in &access.servers {
        let mut one = access.clone();
        one.servers = vec![server.clone()];
        match admin::fetch(&one, "/migration").map_err(|error| error.to_string()).and_then(parsed) {
            Ok(json) if json["leads"] == Value::Bool(true) => return Ok(json),
            Ok(json) => found = Some(json),
            Err(why) => failure = Some(why),
        }
    }
    found.ok_or_else(|| Failure::new(EXIT_UNAVAILABLE, failure.unwrap_or_default()))
}

fn post(flags: &AdminFlags, target: &str) -> Result<Value, Failure> {
    let access = flags.access().map_err(Failure::usage)?.waiting_for(DECIDED_MAX);
    let (status, body) = admin::change(&access, target).map_err(|error| {
        let hint = match &error {
            AdminError::Unreachable(_) => "--admin host:port,... names all servers",
            AdminError::Refused { .. } => "`lockkeeper migrate status` says whether it was done",
        };
        Failure::new(EXIT_UNAVAILABLE, format!("{error}; {hint}"))
    })?;
    let words = body.trim().to_owned();
    match (status, serde_json::from_str(&body)) {
        (200, Ok(json)) => Ok(json),
        (404, _) => Err(Failure::refused(
            "the server does not know /migration: it is no lockkeeper server, or an older one",
        )),
        (421, _) => {
            Err(Failure::refused(format!("{words}; --admin host:port,... names all servers")))
        }
        (503, _) => Err(Failure::new(EXIT_NOT_NOW, words)),
        (_, _) => Err(Failure::refused(words)),
    }
}

/// Sessions that have ended since it follows because their clients were not heard from.
fn expired(json: &Value) -> String {
    match (json["expired"].as_u64(), json["expired_last"].as_str()) {
        (Some(count), Some(last)) => {
            format!("{count} sessions have ended unheard since it follows, {last} the last one")
        }
        (_, _) => "no session has ended unheard since it follows".to_owned(),
    }
}

/// A status for people.
fn text(json: &Value) -> String {
    let state = json["state"].as_str().unwrap_or("unknown");
    let mut lines = vec![format!("state      {state}")];
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{name:<10} {value}"));
        }
    };
    let words = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    line("why", words("why"));
    line("copy", words("copy").trim_start_matches("copy ").to_owned());
    if state != "none" {
        line("zxid", words("zxid"));
        line(
            "compared",
            format!("{} digests, the last one at {}", json["compared"], words("compared_zxid")),
        );
        line(
            "sessions",
            format!(
                "{}, of which {} are not connected here",
                json["sessions"], json["sessions_elsewhere"]
            ),
        );
        line("expired", expired(json));
        for note in json["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            line("note", note.to_owned());
        }
        line("leader", words("leader"));
        line("next", words("next"));
        if json["alarms"].as_u64().unwrap_or(0) > 0 {
            line(
                "alarms",
                format!("{}: ZooKeeper still has clients, as the log says", json["alarms"]),
            );
        }
    }
    lines.join("\n") + "\n"
}
