//! `lockkeeper member`: who belongs to an ensemble, and changing that while it runs.
//!
//! *Owns* the command's output, and which failure has which exit code of `exit.rs`. *Invariants*: speaks
//! the client protocol alone, so it works from anywhere and against ZooKeeper, too; says what it did
//! only after reading it back or being told so, and of a removal only after being told: what was removed
//! may be stopped then. `bootstrap`, `can-stop` and `finish-upgrade` ask at HTTP
//! ports, for only Lockkeeper's servers know. A
//! change of members that is there already is no error, so a command whose answer was lost may be repeated.

mod bootstrap;
mod can_stop;
mod finish_upgrade;
mod modes;
mod recover;
mod refusal;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use super::client::{Client, ClientError};
use super::exit::EXIT_NOT_NOW;
use super::flags::{Access, OutputFlag, ServersFlags};
use super::output::{Failure, Said, shown};
use crate::config::{Membership, Role, ServerSpec};
use crate::proto::{ErrorCode, Request, Response, Text};
use crate::tree::path::CONFIG;
use refusal::failed;

/// How long a change waits for an earlier one to be finished.
const EARLIER_CHANGE_MAX: Duration = Duration::from_secs(10);
/// Pause before asking again for that.
const EARLIER_CHANGE_PAUSE: Duration = Duration::from_millis(250);

/// `lockkeeper member ...`
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show the members, and what each is right now
    List {
        #[command(flatten)]
        flags: MemberFlags,
    },
    /// Add servers, or change what is said of them
    Add {
        /// As in a zoo.cfg, such as server.4=host:2888:3888:observer;2181
        #[arg(required = true, value_name = "SERVER")]
        servers: Vec<String>,
        #[command(flatten)]
        flags: MemberFlags,
    },
    /// Remove servers
    Remove {
        /// The N of server.N
        #[arg(required = true, value_name = "N")]
        ids: Vec<u8>,
        #[command(flatten)]
        flags: MemberFlags,
    },
    /// Say whether a server may be stopped now without the clients losing anything: before each step of
    /// a rolling restart
    CanStop(can_stop::CanStopFlags),
    /// After all servers were upgraded: go on with the formats of the new release, and give up the way back
    FinishUpgrade(finish_upgrade::FinishUpgradeFlags),
    /// Found an ensemble although participants are missing that were never there, or are lost for ever
    Bootstrap(bootstrap::BootstrapFlags),
    /// After the majority was lost for ever: have this server, which is stopped, go on alone with its data
    Recover(recover::RecoverFlags),
}

/// Flags of each of them.
#[derive(Debug, Args)]
pub(crate) struct MemberFlags {
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    output: OutputFlag,
}

impl MemberFlags {
    fn access(&self) -> Result<Access, Failure> {
        self.servers.access().map_err(Failure::usage)
    }
}

/// The members, as they are now, and in front of them what has become of the command.
fn listed(done: &str, next: &str, members: &Membership, access: &Access) -> Said {
    let shown = modes::shown(members, &access.servers);
    let mut json = json!({ "version": format!("{:x}", members.version), "members": shown.json() });
    if !done.is_empty() {
        json["done"] = done.into();
    }
    Said { text: format!("{next}{}", shown.table(members.version)), json }
}

/// Runs the command.
pub(super) fn run(command: &MemberCommand) -> ExitCode {
    let (done, output) = match command {
        MemberCommand::CanStop(flags) => (can_stop::run(flags), flags.output),
        MemberCommand::FinishUpgrade(flags) => (finish_upgrade::run(flags), flags.output),
        MemberCommand::Bootstrap(flags) => (bootstrap::run(flags), flags.output),
        MemberCommand::Recover(flags) => (recover::run(flags), flags.output),
        MemberCommand::List { flags } => {
            (flags.access().and_then(|access| list(&access)), flags.output)
        }
        MemberCommand::Add { servers, flags } => {
            let change = parse_servers(servers).map(Change::Add);
            (change.and_then(|change| carry_out(&flags.access()?, &change)), flags.output)
        }
        MemberCommand::Remove { ids, flags } => {
            let change = Change::Remove(ids.clone());
            (flags.access().and_then(|access| carry_out(&access, &change)), flags.output)
        }
    };
    shown(done, output.output, false)
}

/// What is to become of the members.
enum Change {
    Add(Vec<ServerSpec>),
    Remove(Vec<u8>),
}

impl Change {
    fn is_done(&self, members: &Membership) -> bool {
        match self {
            Self::Add(servers) => servers.iter().all(|spec| members.servers.contains(spec)),
            Self::Remove(ids) => members.servers.iter().all(|spec| !ids.contains(&spec.id)),
        }
    }

    /// Leaves the rest as it is, also what another client changes at the same time.
    fn request(&self) -> Request {
        let joined = |parts: Vec<String>| Some(Text::from(parts.join(",")));
        let (joining, leaving) = match self {
            Self::Add(servers) => (
                joined(servers.iter().map(|spec| format!("server.{}={spec}", spec.id)).collect()),
                None,
            ),
            Self::Remove(ids) => (None, joined(ids.iter().map(ToString::to_string).collect())),
        };
        Request::Reconfig { joining, leaving, members: None, version: -1 }
    }

    /// The members that it leads to.
    fn applied(&self, members: &Membership) -> Vec<ServerSpec> {
        let mut servers = members.servers.clone();
        match self {
            Self::Add(added) => {
                servers.retain(|spec| added.iter().all(|new| new.id != spec.id));
                servers.extend(added.iter().cloned());
            }
            Self::Remove(ids) => servers.retain(|spec| !ids.contains(&spec.id)),
        }
        servers
    }

    /// The word for it, for programs.
    fn done(&self) -> &'static str {
        match self {
            Self::Add(_) => "added",
            Self::Remove(_) => "removed",
        }
    }

    /// What an operator has to do now.
    fn what_next(&self) -> String {
        match self {
            Self::Add(servers) => servers
                .iter()
                .map(|ServerSpec { id, role, .. }| {
                    let then = match role {
                        Role::Participant => "it votes as soon as it has caught up",
                        Role::Observer => "it follows without a vote",
                    };
                    format!("server {id} is a member: if it does not run yet, start it; {then}\n")
                })
                .collect(),
            Self::Remove(ids) => ids
                .iter()
                .map(|id| format!("server {id} is no member any more: stop it\n"))
                .collect(),
        }
    }
}

fn parse_servers(lines: &[String]) -> Result<Vec<ServerSpec>, Failure> {
    let fault = |line: &str, reason: &str| Failure::usage(format!("`{line}`: {reason}"));
    lines
        .iter()
        .map(|line| {
            // The same reader as for the text of the members, one line at a time.
            let members = Membership::parse(line).map_err(Failure::usage)?;
            match members.servers.as_slice() {
                [spec] if spec.client.is_none() && spec.secure_client.is_none() => {
                    Err(fault(line, "it must say where its clients connect: append ;<clientPort>"))
                }
                [spec] => Ok(spec.clone()),
                _ => Err(fault(line, "expected one server.N=...")),
            }
        })
        .collect()
}

fn list(access: &Access) -> Result<Said, Failure> {
    let client = Client::connect(access).map_err(failed)?;
    let members = read(&client)?;
    client.close();
    Ok(listed("", "", &members, access))
}

/// The members, as of now.
fn read(client: &Client) -> Result<Membership, Failure> {
    let path = Text::from_static(CONFIG);
    client.call(&Request::Sync { path: Some(path.clone()) }).map_err(failed)?;
    let answer = client.call(&Request::GetData { path, watch: false });
    let data = match answer.map_err(failed)? {
        Response::Data(data, _) => data.unwrap_or_default(),
        other => return Err(Failure::odd(other)),
    };
    let members = Membership::parse(&String::from_utf8_lossy(&data))
        .map_err(|reason| Failure::refused(format!("{CONFIG}: {reason}")))?;
    if members.servers.is_empty() {
        let text = "this server runs on its own: it has no members. An ensemble begins with the \
                    same server.N lines in the zoo.cfg of each of its servers";
        return Err(Failure::refused(text));
    }
    Ok(members)
}

fn carry_out(access: &Access, change: &Change) -> Result<Said, Failure> {
    let client = Client::connect(access).map_err(failed)?;
    let before = read(&client)?;
    // Who is no member any more may have a vote still: the servers answer when it has none.
    if change.is_done(&before) && matches!(change, Change::Add(_)) {
        client.close();
        return Ok(listed("nothing", "nothing to change\n", &before, access));
    }
    match ask(client, change, &before)? {
        Ok(after) => Ok(listed(change.done(), &change.what_next(), &after, access)),
        Err(why) => lost(access, change, &why),
    }
}

/// Asks for a change: the members that it led to, or why the answer was lost.
fn ask(
    client: Client,
    change: &Change,
    before: &Membership,
) -> Result<Result<Membership, String>, Failure> {
    let begun = Instant::now();
    loop {
        let code = match client.call(&change.request()) {
            Ok(Response::Data(text, _)) => {
                let text = text.unwrap_or_default();
                let after =
                    Membership::parse(&String::from_utf8_lossy(&text)).map_err(Failure::refused)?;
                client.close();
                return Ok(Ok(after));
            }
            Ok(other) => {
                return Err(Failure::odd(other));
            }
            Err(ClientError::Refused { code, .. }) => code,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if code != ErrorCode::ReconfigInProgress as i32 || begun.elapsed() > EARLIER_CHANGE_MAX {
            let asked = change.applied(before);
            let failure = refusal::explain(code, &client, before, &asked);
            client.close();
            return Err(failure);
        }
        std::thread::sleep(EARLIER_CHANGE_PAUSE);
    }
}

/// The answer was lost: the members themselves say what became of it. Of a removal they do not say
/// whether what was removed has a vote still: it is asked for once more, which changes nothing else.
fn lost(access: &Access, change: &Change, why: &str) -> Result<Said, Failure> {
    let client = Client::connect(access).map_err(failed)?;
    let members = read(&client)?;
    if !change.is_done(&members) {
        client.close();
        let text = format!("{why}; the members are as before so far: repeat the command");
        return Err(Failure::new(EXIT_NOT_NOW, text));
    }
    let members = match change {
        Change::Add(_) => {
            client.close();
            members
        }
        Change::Remove(ids) => ask(client, change, &members)?.map_err(|again| {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let ids = ids.join(", ");
            let text = format!(
                "{why}, and again: {again}; no member any more is: {ids}. No server has said that its \
                 vote has ceased to count: repeat the command before it is stopped"
            );
            Failure::new(EXIT_NOT_NOW, text)
        })?,
    };
    Ok(listed(change.done(), &change.what_next(), &members, access))
}
