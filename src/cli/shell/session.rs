//! The verbs about the session and the shell itself: connect, close, addauth, whoami, sync, history,
//! version, quit.

use serde_json::json;

use super::failure::Failure;
use super::given::Given;
use super::output::Answer;
use super::state::{Outcome, Shell};
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

pub(super) fn version(_: &mut Shell, _: &Given) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    Ok(Answer::default()
        .line(format!("Lockkeeper CLI version: {version}"))
        .field("version", version))
}
