//! The verb export: a znode and those below it as a file.
//!
//! *Owns* the walk. *Invariants*: parents come before their children, in the order of their names; ephemerals are left
//! out and named; a file has its name only once it is whole. It keeps the names of the directories that lead to where
//! it is, and no more. *Never* claims to be a picture of one moment: clients go on writing meanwhile.

use std::io::Write as _;
use std::path::Path;

use super::document::{self, Seen};
use super::failure::Failure;
use super::given::Given;
use super::output::Answer;
use super::state::{Outcome, Shell};
use super::znodes::{Znodes, data, odd};
use crate::cli::exit::EXIT_NO_PERMISSION;
use crate::cli::graft::is_of_servers;
use crate::cli::new_file::NewFile;
use crate::proto::{Request, Response};
use crate::tree::path;

/// Ephemerals that are named; the others are counted.
const NAMED_MAX: usize = 1000;
/// What a server gives instead of a hash to those who may not see it.
const HASH_KEPT_BACK: &str = ":x";

/// What was found.
#[derive(Default)]
struct Found {
    znodes: u64,
    ephemerals: u64,
    /// The first of them, by their paths.
    named: Vec<String>,
    /// Znodes that were removed while this went on.
    gone: u64,
}

pub(super) fn export(shell: &mut Shell, given: &Given) -> Outcome {
    let (root, file) = (given.path(), given.value("o").unwrap_or("-"));
    let znodes = shell.znodes()?;
    znodes.refuse_servers(root)?;
    znodes.call(root, |path| Request::Sync { path: Some(path) })?;
    let Some(first) = seen(znodes, root)? else {
        return Err(Failure::refused(format!("Node does not exist: {root}")));
    };
    if first.0.stat.ephemeral_owner != 0 {
        return Err(Failure::refused(format!("{root} is an ephemeral: it ends with its session")));
    }
    let mut out = NewFile::begin(Path::new(file)).map_err(Failure::usage)?;
    let found = walk(znodes, root, first, &mut out)?;
    let bytes = out.finish().map_err(Failure::refused)?;
    let answer = said(root, file, &found, bytes);
    if file == "-" {
        shell.screen.report(&answer);
        return Ok(Answer::silent());
    }
    Ok(answer)
}

fn said(root: &str, file: &str, found: &Found, bytes: u64) -> Answer {
    let Found { znodes, ephemerals, named, gone } = found;
    let mut answer = Answer::default().line(format!(
        "{root}: {znodes} znodes, {bytes} bytes; {ephemerals} ephemerals left out; {gone} znodes went away meanwhile"
    ));
    for path in named {
        answer = answer.line(format!("left out: {path}"));
    }
    let more = ephemerals - named.len() as u64;
    if more > 0 {
        answer = answer.line(format!("left out: {more} more"));
    }
    answer
        .field("done", "exported")
        .field("path", root)
        .field("file", file)
        .field("bytes", bytes)
        .field("znodes", *znodes)
        .field("ephemerals_left_out", *ephemerals)
        .field("named", named.clone())
        .field("gone", *gone)
}

/// A znode and the names of its children, in their order.
type ZnodeSeen = (Seen, Vec<String>);

fn walk(
    znodes: &Znodes,
    root: &str,
    first: ZnodeSeen,
    out: &mut NewFile,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut write = |text: String| {
        let written = out.write_all(text.as_bytes());
        written.map_err(|error| Failure::refused(format!("{}: {error}", out.file.display())))
    };
    write(document::beginning(root))?;
    // The directories that lead to where this is, with the children that are still to come.
    let mut open = vec![(root.to_owned(), first.1.into_iter())];
    write(format!("\n{}", document::znode(path::ROOT, &first.0)))?;
    found.znodes += 1;
    while let Some((parent, names)) = open.last_mut() {
        let Some(name) = names.next() else {
            open.pop();
            continue;
        };
        let at = path::child(parent, &name);
        if is_of_servers(znodes.at(&at)?.as_str()) {
            continue;
        }
        let Some((seen, names)) = seen(znodes, &at)? else {
            found.gone += 1;
            continue;
        };
        if seen.stat.ephemeral_owner != 0 {
            found.ephemerals += 1;
            if found.named.len() < NAMED_MAX {
                found.named.push(at);
            }
            continue;
        }
        write(format!(",\n{}", document::znode(below(root, &at), &seen)))?;
        found.znodes += 1;
        open.push((at, names.into_iter()));
    }
    write(document::end(&found.named))?;
    Ok(found)
}

/// A path below the root, with that as its own root.
fn below<'a>(root: &str, at: &'a str) -> &'a str {
    if root == path::ROOT { at } else { at.strip_prefix(root).unwrap_or(at) }
}

/// A znode; `None`: it is not there any more.
fn seen(znodes: &Znodes, at: &str) -> Result<Option<ZnodeSeen>, Failure> {
    let there = |answer: Result<Response, Failure>| match answer {
        Err(failure) if failure.is_no_node() => Ok(None),
        answer => answer.map(Some),
    };
    let Some(answer) = there(znodes.call(at, |path| Request::GetData { path, watch: false }))?
    else {
        return Ok(None);
    };
    let (data, mut stat) = data(answer)?;
    if stat.ephemeral_owner != 0 {
        return Ok(Some((Seen { data, acl: Vec::new(), stat }, Vec::new())));
    }
    let acl = match there(znodes.call(at, |path| Request::GetAcl { path }))? {
        None => return Ok(None),
        Some(Response::Acl(acl, _)) => acl,
        Some(other) => return Err(odd(other)),
    };
    let is_kept_back = |scheme: &str, id: &str| scheme == "digest" && id.ends_with(HASH_KEPT_BACK);
    if acl.iter().any(|entry| is_kept_back(entry.scheme.as_str(), entry.id.as_str())) {
        let text = format!(
            "Insufficient permission : {at}: the server shows the hashes of its access control list to those alone who \
             have the permission `a`: addauth, or --auth"
        );
        return Err(Failure { exit: EXIT_NO_PERMISSION, text, code: None });
    }
    match znodes.children(at, false) {
        Ok((names, later)) => {
            // The counter belongs to the names.
            (stat.cversion, stat.num_children) = (later.cversion, later.num_children);
            stat.pzxid = later.pzxid;
            Ok(Some((Seen { data, acl, stat }, names)))
        }
        Err(failure) if failure.is_no_node() => Ok(None),
        Err(failure) => Err(failure),
    }
}
