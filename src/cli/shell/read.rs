//! The verbs that only look: ls, get, stat, getAcl, getAllChildrenNumber, getEphemerals.

use bytes::Bytes;
use serde_json::json;

use super::acl;
use super::given::Given;
use super::hexdump::hexdump;
use super::output::{Answer, Watch, base64, data_field, list};
use super::state::{Outcome, Shell};
use super::znodes::odd;
use crate::proto::{Request, Response};

pub(super) fn ls(shell: &mut Shell, given: &Given) -> Outcome {
    let znodes = shell.znodes()?;
    let (path, watches) = (given.path(), given.has('w'));
    let answer = Answer::default().field("path", path).watch(Watch::once(watches));
    if given.has('R') {
        let paths = znodes.subtree(path, watches)?;
        let answer = paths.iter().fold(answer, Answer::line);
        return Ok(answer.field("paths", paths));
    }
    let (names, stat) = znodes.children(path, watches)?;
    let answer = answer.line(list(&names)).field("children", names);
    Ok(answer.stat(&stat, given.has('s')))
}

pub(super) fn get(shell: &mut Shell, given: &Given) -> Outcome {
    let (path, watches) = (given.path(), given.has('w'));
    let (data, stat) = shell.znodes()?.data(path, watches)?;
    let bytes = data.clone().unwrap_or(Bytes::from_static(b"null"));
    let answer = Answer::default().field("path", path).watch(Watch::once(watches));
    let answer = if given.has('x') {
        answer.line(hexdump(&bytes))
    } else if given.has('b') {
        answer.line(base64(&bytes))
    } else {
        answer.line(&bytes)
    };
    let (name, value) = match data.as_ref().filter(|_| given.has('b')) {
        Some(data) => ("dataBase64", base64(data).into()),
        None => data_field(data.as_ref()),
    };
    Ok(answer.field(name, value).stat(&stat, given.has('s')))
}

pub(super) fn stat(shell: &mut Shell, given: &Given) -> Outcome {
    let stat = shell.znodes()?.stat(given.path(), given.has('w'))?;
    Ok(Answer::default()
        .field("path", given.path())
        .stat(&stat, true)
        .watch(Watch::once(given.has('w'))))
}

pub(super) fn get_acl(shell: &mut Shell, given: &Given) -> Outcome {
    let path = given.path();
    let (entries, stat) = match shell.znodes()?.call(path, |path| Request::GetAcl { path })? {
        Response::Acl(entries, stat) => (entries, stat),
        other => return Err(odd(other)),
    };
    let mut answer = Answer::default().field("path", path);
    let mut list = Vec::new();
    for entry in entries {
        let (scheme, id) = (entry.scheme.as_str(), entry.id.as_str());
        let letters = acl::letters(entry.perms);
        answer = answer.line(format!("'{scheme},'{id}\n: {letters}"));
        list.push(json!({ "scheme": scheme, "id": id, "perms": letters }));
    }
    Ok(answer.field("acl", list).stat(&stat, given.has('s')))
}

pub(super) fn all_children_number(shell: &mut Shell, given: &Given) -> Outcome {
    let path = given.path();
    match shell.znodes()?.call(path, |path| Request::GetAllChildrenNumber { path })? {
        Response::Number(number) => {
            let answer = Answer::default().line(number.to_string());
            Ok(answer.field("path", path).field("number", number))
        }
        other => Err(odd(other)),
    }
}

pub(super) fn ephemerals(shell: &mut Shell, given: &Given) -> Outcome {
    let znodes = shell.znodes()?;
    let path = given.arguments.first().map_or("/", String::as_str);
    let found = znodes.call(path, |path| Request::GetEphemerals { prefix: Some(path) })?;
    match found {
        Response::Names(paths) => {
            let mut paths: Vec<String> =
                paths.iter().map(|path| znodes.shown(path.as_str()).to_string()).collect();
            paths.sort();
            Ok(Answer::default().line(list(&paths)).field("ephemerals", paths))
        }
        other => Err(odd(other)),
    }
}
