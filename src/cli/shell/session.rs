//! The verbs about the session and the shell itself: connect, close, addauth, whoami, sync, history,
//! redo, version, help, quit.

use serde_json::json;

use super::failure::Failure;
use super::given::Given;
use super::lines;
use super::output::Answer;
use super::state::{Outcome, Shell};
use super::verbs::{VERBS, verb};
use super::znodes::odd;
use crate::cli::credential::Credential;
use crate::proto::{Request, Response};

/// Lines that `history` shows.
const HISTORY_SHOWN: usize = 11;

pub(super) fn connect(shell: &mut Shell, given: &Given) -> Outcome {
    shell.connect(given.arguments.first().map(String::as_str))?;
    Ok(described(shell))
}

/// The session, for programs.
fn described(shell: &Shell) -> Answer {
    let id = shell.session().map(|znodes| format!("{:#x}", znodes.session.id()));
    Answer::default().field("session", id)
}

pub(super) fn close(shell: &mut Shell, _: &Given) -> Outcome {
    shell.close();
    Ok(Answer::silent())
}

pub(super) fn quit(shell: &mut Shell, _: &Given) -> Outcome {
    shell.quit();
    Ok(Answer::silent())
}

pub(super) fn add_auth(shell: &mut Shell, given: &Given) -> Outcome {
    let secret = given.arguments.get(1).map_or("", String::as_str);
    let credential = Credential::new(given.path(), secret);
    let added = shell.znodes()?.session.authenticate(&credential);
    added.map_err(|error| Failure::of(&error, "/"))?;
    shell.remember(credential);
    Ok(Answer::default().field("scheme", given.path()))
}

pub(super) fn who_am_i(shell: &mut Shell, _: &Given) -> Outcome {
    match shell.znodes()?.ask("/", &Request::WhoAmI)? {
        Response::Identities(identities) => {
            let mut answer = Answer::default().line("Auth scheme: User");
            let mut list = Vec::new();
            for (scheme, user) in identities {
                answer = answer.line(format!("{scheme}: {user}"));
                list.push(json!({ "scheme": scheme.as_str(), "user": user.as_str() }));
            }
            Ok(answer.field("identities", list))
        }
        other => Err(odd(other)),
    }
}

pub(super) fn sync(shell: &mut Shell, given: &Given) -> Outcome {
    shell.znodes()?.call(given.path(), |path| Request::Sync { path: Some(path) })?;
    Ok(Answer::default().line("Sync is OK").field("path", given.path()))
}

pub(super) fn history(shell: &mut Shell, _: &Given) -> Outcome {
    let first = shell.history.len().saturating_sub(HISTORY_SHOWN);
    let mut answer = Answer::default();
    let mut list = Vec::new();
    for (number, line) in shell.history.iter().enumerate().skip(first) {
        answer = answer.line(format!("{number} - {line}"));
        list.push(json!({ "number": number, "line": line }));
    }
    Ok(answer.field("history", list))
}

pub(super) fn redo(shell: &mut Shell, given: &Given) -> Outcome {
    let number: usize = given
        .path()
        .parse()
        .map_err(|_| Failure::usage(format!("`{}` is no number of a command", given.path())))?;
    // The last line is this one.
    let before = shell.history.len().saturating_sub(1);
    let line = match shell.history.get(number) {
        Some(line) if number < before => line.clone(),
        Some(_) | None => return Err(Failure::usage("Command index out of range")),
    };
    let words = lines::words(&line).map_err(Failure::usage)?;
    if words.first().is_some_and(|word| word == "redo") {
        return Err(Failure::usage("No redoing redos"));
    }
    shell.history[before] = line;
    shell.execute(&words)
}

pub(super) fn version(_: &mut Shell, _: &Given) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    Ok(Answer::default()
        .line(format!("Lockkeeper CLI version: {version}"))
        .field("version", version))
}

pub(super) fn help(_: &mut Shell, given: &Given) -> Outcome {
    let verbs: Vec<_> = match given.arguments.first() {
        None => VERBS.iter().collect(),
        Some(name) => {
            let unknown = || Failure::usage(format!("Command not found {name}"));
            vec![verb(name).ok_or_else(unknown)?]
        }
    };
    let width = verbs.iter().map(|verb| verb.line().len()).max().unwrap_or(0);
    let mut answer = Answer::default();
    let mut list = Vec::new();
    for verb in verbs {
        answer = answer.line(format!("{:width$}  {}", verb.line(), verb.help));
        list.push(json!({ "command": verb.name, "usage": verb.line(), "help": verb.help }));
    }
    Ok(answer.field("commands", list))
}
