//! `lockkeeper locks break` and `locks revoke`: taking a lock away, or asking for it.
//!
//! *Owns* the commands' flags, words and exit codes: 0 done, 1 refused, 2 the command is wrong, 69 no server
//! answers, 75 not now, 77 no permission. *Invariants*: speaks the client protocol alone, so permissions
//! hold, the audit log has it, and it works against ZooKeeper; a contender is deleted only in the state
//! that was shown, and only after somebody has said yes. *Never* touches what is no contender.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};

use super::failed;
use crate::cli::client::{Client, ClientError};
use crate::cli::exit::{
    EXIT_NO_PERMISSION, EXIT_NOT_NOW, EXIT_REFUSED, EXIT_UNAVAILABLE, EXIT_USAGE,
};
use crate::cli::flags::{Output, OutputFlag, ServersFlags};
use crate::locks::contender::release_word;
use crate::locks::species::Species;
use crate::proto::{ErrorCode, Request, Response, Stat, Text};

/// `lockkeeper locks break`
#[derive(Debug, Args)]
pub(super) struct BreakFlags {
    /// The path of the contender's znode, as `lockkeeper locks -o json` shows it
    #[arg(value_name = "NODE", value_parser = super::path)]
    node: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// `lockkeeper locks revoke`
#[derive(Debug, Args)]
pub(super) struct RevokeFlags {
    /// The path of the contender's znode, as `lockkeeper locks -o json` shows it
    #[arg(value_name = "NODE", value_parser = super::path)]
    node: String,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// The exit code, and what to tell.
struct Failure(i32, String);

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Unreachable(_) => {
                Self(EXIT_UNAVAILABLE, format!("{error}; --server host:port,... names others"))
            }
            ClientError::Unproven { .. } => Self(EXIT_NO_PERMISSION, error.to_string()),
            ClientError::Lost { .. } => Self(
                EXIT_NOT_NOW,
                format!("{error}; look with `lockkeeper locks` what became of it"),
            ),
            ClientError::Refused { code, .. } => {
                let (exit, why) = match ErrorCode::from_wire(*code) {
                    Some(ErrorCode::NoAuth | ErrorCode::AuthFailed) => {
                        (EXIT_NO_PERMISSION, "; --auth says who asks")
                    }
                    Some(ErrorCode::SessionClosedRequireSaslAuth) => (
                        EXIT_NO_PERMISSION,
                        ": it serves only clients that authenticate; --auth says who asks, or, by SASL, a file for \
                         --client-configuration",
                    ),
                    Some(ErrorCode::NoNode) => (EXIT_REFUSED, ": it is not there"),
                    Some(ErrorCode::BadVersion) => {
                        (EXIT_NOT_NOW, ": its data were changed meanwhile; nothing was done")
                    }
                    Some(_) | None => (EXIT_REFUSED, ""),
                };
                Self(exit, format!("{error}{why}"))
            }
        }
    }
}

/// Runs `lockkeeper locks break`.
pub(super) fn run_break(flags: &BreakFlags) -> ExitCode {
    end(break_lock(flags), flags.output)
}

/// Runs `lockkeeper locks revoke`.
pub(super) fn run_revoke(flags: &RevokeFlags) -> ExitCode {
    end(revoke(flags), flags.output)
}

/// What was done: for people, and for programs.
struct Done {
    text: String,
    json: Value,
}

impl Done {
    fn new(what: &str, node: &str, stat: &Stat, text: String) -> Self {
        let session = format!("{:#x}", stat.ephemeral_owner);
        Self {
            text,
            json: json!({ "done": what, "node": node, "session": session, "token": stat.czxid }),
        }
    }
}

fn end(done: Result<Done, Failure>, output: OutputFlag) -> ExitCode {
    match done {
        Ok(Done { text, json }) => {
            let said = match output.output {
                Output::Text => text,
                Output::Json => format!("{json}\n"),
            };
            // A reader that has closed standard output does not want to see it.
            let _ = io::stdout().write_all(said.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Failure(code, text)) => failed(code, &text),
    }
}

fn break_lock(flags: &BreakFlags) -> Result<Done, Failure> {
    let access = flags.servers.access().map_err(|reason| Failure(EXIT_USAGE, reason))?;
    let node = &format!("{}{}", access.root, flags.node);
    let mut client = Client::connect(&access)?;
    let stat = contender(&mut client, node)?;
    let who = format!("{node}\n  session {:#x}, token {}\n", stat.ephemeral_owner, stat.czxid);
    if !flags.yes {
        client.close();
        confirm(&who)?;
        // The user may have taken longer to answer than a session lasts.
        client = Client::connect(&access)?;
        if contender(&mut client, node)?.czxid != stat.czxid {
            let text = format!("{node} is another contender by now; nothing was done");
            return Err(Failure(EXIT_NOT_NOW, text));
        }
    }
    client.call(&Request::Delete { path: Text::copy_from(node), version: stat.version })?;
    client.close();
    let text = format!(
        "broken: {who}Its client is not stopped by that: it may go on until it looks, or until a \
         resource refuses its token.\n"
    );
    Ok(Done::new("broken", node, &stat, text))
}

fn revoke(flags: &RevokeFlags) -> Result<Done, Failure> {
    let access = flags.servers.access().map_err(|reason| Failure(EXIT_USAGE, reason))?;
    let node = &format!("{}{}", access.root, flags.node);
    let mut client = Client::connect(&access)?;
    let stat = contender(&mut client, node)?;
    if stat.ephemeral_owner == 0 {
        let text = format!("{node} is not ephemeral: no client listens there");
        return Err(Failure(EXIT_REFUSED, text));
    }
    let word = release_word(name(node));
    let data = Some(Bytes::from_static(word.as_bytes()));
    client.call(&Request::SetData { path: Text::copy_from(node), data, version: stat.version })?;
    client.close();
    let text = format!(
        "asked to release: {node}\n  session {:#x}, token {}\nIt is up to its client, if that \
         listens for \"{word}\" at all: kazoo and go-zookeeper do not.\n",
        stat.ephemeral_owner, stat.czxid
    );
    Ok(Done::new("asked", node, &stat, text))
}

/// The stat of a contender.
fn contender(client: &mut Client, node: &str) -> Result<Stat, Failure> {
    let stat = match client.call(&Request::Exists { path: Text::copy_from(node), watch: false })? {
        Response::Stat(stat) => stat,
        other => return Err(Failure(EXIT_REFUSED, format!("an odd answer: {other:?}"))),
    };
    if Species::of(name(node)).is_none() || stat.num_children > 0 {
        let text = format!(
            "{node} is no contender of a lock that is known: `lockkeeper locks` lists them"
        );
        return Err(Failure(EXIT_REFUSED, text));
    }
    Ok(stat)
}

/// Asks the user at the terminal.
///
/// # Errors
/// The answer is not yes, or there is no terminal.
fn confirm(who: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        let text = "there is no terminal to ask at: --yes breaks it without that".to_owned();
        return Err(Failure(EXIT_USAGE, text));
    }
    let mut answer = String::new();
    let mut out = io::stdout();
    let asked = write!(out, "{who}Take the lock away from it? [y/N] ").and_then(|()| out.flush());
    asked
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .map_err(|error| Failure(EXIT_REFUSED, format!("cannot ask: {error}")))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure(EXIT_REFUSED, "nothing was done".to_owned())),
    }
}

fn name(node: &str) -> &str {
    node.rsplit('/').next().unwrap_or(node)
}
