//! `lockkeeper locks break` and `locks revoke`: taking a lock away, or asking for it.
//!
//! *Owns* the commands' flags, words and exit codes: 0 done, 1 refused, 2 the command is wrong, 69 no server
//! answers, 75 not now, 77 no permission. *Invariants*: speaks the client protocol alone, so permissions
//! hold, the audit log has it, and it works against ZooKeeper; a contender is deleted only in the state
//! that was shown, and only after somebody has said yes. *Never* touches what is no contender.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use bytes::Bytes;
use clap::Args;
use serde_json::json;

use crate::cli::client::{Client, ClientError, WANTS_LOGIN};
use crate::cli::exit::{EXIT_NO_PERMISSION, EXIT_NOT_NOW, EXIT_REFUSED, EXIT_UNAVAILABLE};
use crate::cli::flags::{OutputFlag, ServersFlags};
use crate::cli::output::{Failure, Said};
use crate::locks::contender::release_word;
use crate::locks::species::Species;
use crate::proto::{ErrorCode, Request, Response, Stat, Text};
use crate::tree::path;

/// `lockkeeper locks break`
#[derive(Debug, Args)]
pub(super) struct BreakFlags {
    /// The path of the contender's znode, as `lockkeeper locks -o json` shows it
    #[arg(value_name = "NODE", value_parser = node_path)]
    node: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// `lockkeeper locks revoke`
#[derive(Debug, Args)]
pub(super) struct RevokeFlags {
    /// The path of the contender's znode, as `lockkeeper locks -o json` shows it
    #[arg(value_name = "NODE", value_parser = node_path)]
    node: String,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// A path of a znode, as far as it has the form of one.
///
/// # Errors
/// It has not.
pub(super) fn node_path(text: &str) -> Result<String, String> {
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    Err("a path begins with a slash".to_owned())
}

/// What a request came to.
fn failed(error: ClientError) -> Failure {
    let (exit, why) = match &error {
        ClientError::Unreachable(_) => (EXIT_UNAVAILABLE, "; --server host:port,... names others"),
        ClientError::Unproven { .. } => (EXIT_NO_PERMISSION, ""),
        ClientError::Lost { .. } => {
            (EXIT_NOT_NOW, "; look with `lockkeeper locks` what became of it")
        }
        ClientError::Refused { code, .. } => match ErrorCode::from_wire(*code) {
            Some(ErrorCode::NoAuth | ErrorCode::AuthFailed) => {
                (EXIT_NO_PERMISSION, "; --auth says who asks")
            }
            Some(ErrorCode::SessionClosedRequireSaslAuth) => (EXIT_NO_PERMISSION, WANTS_LOGIN),
            Some(ErrorCode::NoNode) => (EXIT_REFUSED, ": it is not there"),
            Some(ErrorCode::BadVersion) => {
                (EXIT_NOT_NOW, ": its data were changed meanwhile; nothing was done")
            }
            Some(_) | None => (EXIT_REFUSED, ""),
        },
    };
    Failure::new(exit, format!("{error}{why}"))
}

/// What was done: for people, and for programs.
fn said(what: &str, node: &str, stat: &Stat, text: String) -> Said {
    let session = format!("{:#x}", stat.ephemeral_owner);
    let json = json!({ "done": what, "node": node, "session": session, "token": stat.czxid });
    Said { text, json }
}

/// Runs `lockkeeper locks break`.
pub(super) fn break_lock(flags: &BreakFlags) -> Result<Said, Failure> {
    let access = flags.servers.access().map_err(Failure::usage)?;
    let node = &format!("{}{}", access.root, flags.node);
    let mut client = Client::connect(&access).map_err(failed)?;
    let stat = contender(&client, node)?;
    let who = format!("{node}\n  session {:#x}, token {}\n", stat.ephemeral_owner, stat.czxid);
    if !flags.yes {
        client.close();
        confirm(&who)?;
        // The user may have taken longer to answer than a session lasts.
        client = Client::connect(&access).map_err(failed)?;
        if contender(&client, node)?.czxid != stat.czxid {
            let text = format!("{node} is another contender by now; nothing was done");
            return Err(Failure::new(EXIT_NOT_NOW, text));
        }
    }
    let delete = Request::Delete { path: Text::copy_from(node), version: stat.version };
    client.call(&delete).map_err(failed)?;
    client.close();
    let text = format!(
        "broken: {who}Its client is not stopped by that: it may go on until it looks, or until a \
         resource refuses its token.\n"
    );
    Ok(said("broken", node, &stat, text))
}

/// Runs `lockkeeper locks revoke`.
pub(super) fn revoke(flags: &RevokeFlags) -> Result<Said, Failure> {
    let access = flags.servers.access().map_err(Failure::usage)?;
    let node = &format!("{}{}", access.root, flags.node);
    let client = Client::connect(&access).map_err(failed)?;
    let stat = contender(&client, node)?;
    if stat.ephemeral_owner == 0 {
        let text = format!("{node} is not ephemeral: no client listens there");
        return Err(Failure::refused(text));
    }
    let word = release_word(path::name(node));
    let data = Some(Bytes::from_static(word.as_bytes()));
    let set = Request::SetData { path: Text::copy_from(node), data, version: stat.version };
    client.call(&set).map_err(failed)?;
    client.close();
    let text = format!(
        "asked to release: {node}\n  session {:#x}, token {}\nIt is up to its client, if that \
         listens for \"{word}\" at all: kazoo and go-zookeeper do not.\n",
        stat.ephemeral_owner, stat.czxid
    );
    Ok(said("asked", node, &stat, text))
}

/// The stat of a contender.
fn contender(client: &Client, node: &str) -> Result<Stat, Failure> {
    let answer = client.call(&Request::Exists { path: Text::copy_from(node), watch: false });
    let stat = match answer.map_err(failed)? {
        Response::Stat(stat) => stat,
        other => return Err(Failure::odd(other)),
    };
    if Species::of(path::name(node)).is_none() || stat.num_children > 0 {
        let text = format!(
            "{node} is no contender of a lock that is known: `lockkeeper locks` lists them"
        );
        return Err(Failure::refused(text));
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
        return Err(Failure::usage(text));
    }
    let mut answer = String::new();
    let mut out = io::stdout();
    let asked = write!(out, "{who}Take the lock away from it? [y/N] ").and_then(|()| out.flush());
    asked
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .map_err(|error| Failure::refused(format!("cannot ask: {error}")))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::refused("nothing was done".to_owned())),
    }
}
