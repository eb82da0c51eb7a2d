//! The verbs that change znodes: create, set, delete, deleteall, setAcl.

use bytes::Bytes;

use super::acl;
use super::failure::Failure;
use super::given::Given;
use super::output::{Answer, from_base64};
use super::state::{Outcome, Shell};
use super::znodes::{Znodes, odd, stat};
use crate::proto::request::{Create, CreateKind};
use crate::proto::{Acl, MultiOp, MultiResult, Request, Response};

/// Znodes that one request of `deleteall` deletes unless it is said.
const BATCH_DEFAULT: usize = 1000;

pub(super) fn create(shell: &mut Shell, given: &Given) -> Outcome {
    let (kind, flags) = mode(given)?;
    let ttl_ms = given.number("t")?.unwrap_or(0);
    let data = given.arguments.get(1).map(|data| Bytes::copy_from_slice(data.as_bytes()));
    let acl = match given.arguments.get(2) {
        Some(text) => acl::parse(text).map_err(Failure::usage)?,
        None => vec![Acl::open()],
    };
    let znodes = shell.znodes()?;
    let answer = znodes.call(given.path(), |path| {
        Request::Create(Create { kind, path, data, acl: Some(acl), flags, ttl_ms })
    })?;
    match answer {
        Response::PathStat(path, stat) => {
            let path = znodes.shown(path.as_str());
            let answer = Answer::default().line(format!("Created {path}")).field("path", path);
            Ok(answer.stat(&stat, false))
        }
        other => Err(odd(other)),
    }
}

/// The request, and `CreateMode` as a number.
fn mode(given: &Given) -> Result<(CreateKind, i32), Failure> {
    let [ephemeral, sequential, container] = ['e', 's', 'c'].map(|flag| given.has(flag));
    let ttl = given.value("t").is_some();
    match (ephemeral, sequential, container, ttl) {
        (true, _, true, _) | (_, true, true, _) => {
            Err(Failure::usage("-c cannot be combined with -s or -e"))
        }
        (true, _, _, true) => Err(Failure::usage("TTLs cannot be used with Ephemeral znodes")),
        (_, _, true, true) => Err(Failure::usage("TTLs cannot be used with Container znodes")),
        (false, false, false, false) => Ok((CreateKind::Create2, 0)),
        (true, false, false, false) => Ok((CreateKind::Create2, 1)),
        (false, true, false, false) => Ok((CreateKind::Create2, 2)),
        (true, true, false, false) => Ok((CreateKind::Create2, 3)),
        (false, false, true, false) => Ok((CreateKind::Container, 4)),
        (false, false, false, true) => Ok((CreateKind::Ttl, 5)),
        (false, true, false, true) => Ok((CreateKind::Ttl, 6)),
    }
}

pub(super) fn set(shell: &mut Shell, given: &Given) -> Outcome {
    let version = given.version()?;
    let text = &given.arguments[1];
    let data = match given.has('b') {
        true => from_base64(text).map_err(Failure::usage)?,
        false => text.as_bytes().to_vec(),
    };
    let data = Some(Bytes::from(data));
    let path = given.path();
    let set = shell.znodes()?.call(path, |path| Request::SetData { path, data, version })?;
    Ok(Answer::default().field("path", path).stat(&stat(set)?, given.has('s')))
}

pub(super) fn delete(shell: &mut Shell, given: &Given) -> Outcome {
    let version = given.version()?;
    shell.znodes()?.call(given.path(), |path| Request::Delete { path, version })?;
    Ok(Answer::default().field("path", given.path()).field("deleted", 1))
}

pub(super) fn delete_all(shell: &mut Shell, given: &Given) -> Outcome {
    let batch = given.number("b")?.unwrap_or(BATCH_DEFAULT).max(1);
    let znodes = shell.znodes()?;
    let mut paths = znodes.subtree(given.path(), false)?;
    // Children first.
    paths.reverse();
    for paths in paths.chunks(batch) {
        if !at_once(znodes, paths)? {
            one_by_one(znodes, paths)?;
        }
    }
    Ok(Answer::default().field("path", given.path()).field("deleted", paths.len()))
}

/// Deletes all or none, and says which.
fn at_once(znodes: &Znodes, paths: &[String]) -> Result<bool, Failure> {
    let delete = |path: &String| Ok(MultiOp::Delete { path: znodes.at(path)?, version: -1 });
    let deletes = paths.iter().map(delete).collect::<Result<_, Failure>>()?;
    match znodes.ask(&paths[0], &Request::Multi(deletes)) {
        Ok(Response::Multi(results)) => {
            Ok(!results.iter().any(|result| matches!(result, MultiResult::Error(_))))
        }
        Ok(other) => Err(odd(other)),
        Err(failure) if failure.code.is_some() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Somebody else deletes here as well, or something may not be deleted.
fn one_by_one(znodes: &Znodes, paths: &[String]) -> Result<(), Failure> {
    for path in paths {
        match znodes.call(path, |path| Request::Delete { path, version: -1 }) {
            Ok(_) => {}
            Err(failure) if failure.is_no_node() => {}
            Err(Failure { exit, text, code }) => {
                let text = format!("Failed to delete some node(s) in the subtree! {text}");
                return Err(Failure { exit, text, code });
            }
        }
    }
    Ok(())
}

pub(super) fn set_acl(shell: &mut Shell, given: &Given) -> Outcome {
    let version = given.version()?;
    let acl = acl::parse(&given.arguments[1]).map_err(Failure::usage)?;
    let znodes = shell.znodes()?;
    let set = |path: &str| {
        let acl = Some(acl.clone());
        stat(znodes.call(path, |path| Request::SetAcl { path, acl, version })?)
    };
    let path = given.path();
    let answer = Answer::default().field("path", path);
    if !given.has('R') {
        return Ok(answer.stat(&set(path)?, given.has('s')));
    }
    let paths = znodes.subtree(path, false)?;
    // A client that takes away its own permission to go on has done the rest before.
    for path in paths.iter().rev() {
        set(path)?;
    }
    Ok(answer.field("paths", paths))
}
