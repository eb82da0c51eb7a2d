//! `lockkeeper snapshot restore --subtree`: a part of a backup, into an ensemble that runs.
//!
//! *Owns* what is a conflict, and the order of the writes. *Invariants*: it speaks the client protocol alone, so that
//! access control holds and ZooKeeper can be restored into, too; nothing is written before all conflicts are known; no
//! ephemeral is ever created and no session touched; the next sequential child gets a number above all that the backup
//! has seen. What was cut off is completed by the same command. *Never* removes a znode that was there.

use bytes::Bytes;
use clap::ValueEnum;
use serde_json::json;

use super::{Failure, Said};
use crate::backup::Selection;
use crate::cli::client::{Client, ClientError};
use crate::cli::exit::{EXIT_NO_PERMISSION, EXIT_UNAVAILABLE};
use crate::cli::flags::Access;
use crate::proto::multi::{MultiOp, MultiResult};
use crate::proto::request::{Create, CreateKind};
use crate::proto::{Acl, ErrorCode, Request, Response, Stat, Text};
use crate::server::offline::Machine;
use crate::tree::{Owner, path};

/// What becomes of a znode that is there and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    /// Nothing is restored, and all such znodes are named
    #[default]
    Fail,
    /// It stays as it is
    Keep,
    /// It gets the data and the access control list of the backup
    Overwrite,
}

/// Operations in one multi.
const OPS_MAX: usize = 100;
/// Bytes of data in one multi: below ZooKeeper's limit of a request.
const BYTES_MAX: usize = 256 << 10;
/// Conflicts that are named.
const NAMED_MAX: usize = 20;
/// How a znode differs that belongs to a session.
const EPHEMERAL: &str = "it is an ephemeral";
/// By how much a counter is raised at most: a million takes some ten seconds.
const RAISED_MAX: i64 = 10_000_000;
/// The child that is created and deleted so that a counter rises.
const COUNTED: &str = "lockkeeper-restore-counter";

/// A znode of the backup.
struct Wanted {
    path: String,
    data: Option<Bytes>,
    acl: Vec<Acl>,
    owner: Owner,
    creates: i32,
    /// Whether it is part of what is restored, and not only on the way there.
    is_part: bool,
}

/// What was done.
#[derive(Default)]
struct Done {
    created: u64,
    overwritten: u64,
    equal: u64,
    kept: u64,
    counters: u64,
    ephemerals: u64,
}

/// Restores the znode at `subtree` and those below.
pub(super) fn run(
    machine: &Machine,
    subtree: &str,
    on_conflict: OnConflict,
    access: &Access,
) -> Result<Said, Failure> {
    let selection = Selection::below(subtree)
        .map_err(|reason| Failure::usage(format!("--subtree: {reason}")))?;
    let mut done = Done::default();
    let wanted = wanted(machine, &selection, &mut done);
    if !wanted.iter().any(|znode| znode.is_part) {
        return Err(Failure::refused(format!(
            "the backup has no znode {subtree} that can be restored"
        )));
    }
    let mut client = Client::connect(access).map_err(|error| failed(&error, subtree))?;
    let mut target = Target { client: &mut client, root: &access.root };
    let (missing, differing) = target.compare(&wanted, &mut done)?;
    if !differing.is_empty() && on_conflict == OnConflict::Fail {
        return Err(conflicts(&differing));
    }
    target.create(&missing, &mut done)?;
    match on_conflict {
        OnConflict::Overwrite => {
            // An ephemeral belongs to a client that is there.
            for (znode, _) in differing.iter().filter(|(_, what)| *what != EPHEMERAL) {
                target.overwrite(znode)?;
                done.overwritten += 1;
            }
            done.kept = differing.len() as u64 - done.overwritten;
        }
        OnConflict::Fail | OnConflict::Keep => done.kept = differing.len() as u64,
    }
    for znode in wanted.iter().filter(|znode| znode.is_part) {
        target.raise_counter(znode, &mut done)?;
    }
    client.close();
    Ok(said(subtree, &done))
}

fn said(subtree: &str, done: &Done) -> Said {
    let Done { created, overwritten, equal, kept, counters, ephemerals } = done;
    let text = format!(
        "{subtree}: {created} znodes created, {overwritten} overwritten, {equal} were as in the backup, {kept} kept; \
         {counters} \
         counters raised; {ephemerals} ephemerals left out\n"
    );
    let json = json!({
        "done": "restored",
        "subtree": subtree,
        "created": created,
        "overwritten": overwritten,
        "equal": equal,
        "kept": kept,
        "counters": counters,
        "ephemerals_left_out": ephemerals,
    });
    Said { text, json }
}

fn wanted(machine: &Machine, selection: &Selection, done: &mut Done) -> Vec<Wanted> {
    let mut all = Vec::new();
    let taken = machine.tree().for_each_persisted(|at, data, acl, stat| {
        let is_part = selection.has(at);
        let is_there_anyway = path::is_special(at) || at.starts_with("/zookeeper/");
        if is_there_anyway || !(is_part || selection.includes(at.as_bytes())) {
            return Ok::<(), ()>(());
        }
        let owner = Owner::from_encoded(stat.ephemeral_owner);
        if matches!(owner, Owner::Session(_)) {
            done.ephemerals += u64::from(is_part);
            return Ok(());
        }
        all.push(Wanted {
            path: at.to_owned(),
            data: data.map(Bytes::copy_from_slice),
            acl: acl.to_vec(),
            owner,
            creates: stat.cversion,
            is_part,
        });
        Ok(())
    });
    debug_assert!(taken.is_ok(), "nothing objects");
    // Parents come before their children.
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all
}

fn conflicts(differing: &[(&Wanted, &'static str)]) -> Failure {
    let named: Vec<String> = differing
        .iter()
        .take(NAMED_MAX)
        .map(|(znode, what)| format!("  {}: {what}", znode.path))
        .collect();
    let more = differing.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    Failure::refused(format!(
        "nothing was restored: {} znodes are there and differ (--on-conflict keep, overwrite)\n{}{more}",
        differing.len(),
        named.join("\n")
    ))
}

fn failed(error: &ClientError, at: &str) -> Failure {
    match error {
        ClientError::Unreachable(_) | ClientError::Lost { .. } => {
            Failure::new(EXIT_UNAVAILABLE, format!("{error}; the same command goes on"))
        }
        ClientError::Unproven { .. } => Failure::new(EXIT_NO_PERMISSION, error.to_string()),
        ClientError::Refused { code, .. } => refused(*code, at, &error.to_string()),
    }
}

fn refused(code: i32, at: &str, words: &str) -> Failure {
    match ErrorCode::from_wire(code) {
        Some(ErrorCode::NoAuth) => Failure::new(
            EXIT_NO_PERMISSION,
            format!(
                "{at}: permission is missing: --auth or --auth-file says who asks; the same command goes on"
            ),
        ),
        Some(ErrorCode::NodeExists) => {
            Failure::refused(format!("{at}: it was created meanwhile: the same command goes on"))
        }
        Some(ErrorCode::Unimplemented) => Failure::refused(format!(
            "{at}: the servers create no znodes with a time to live: extendedTypesEnabled=true"
        )),
        _ => Failure::refused(format!("{at}: {words}")),
    }
}

/// The ensemble, below its root.
struct Target<'a> {
    client: &'a mut Client,
    root: &'a str,
}

/// A znode of the backup, and how the one that is there differs.
type Differing<'a> = (&'a Wanted, &'static str);

impl Target<'_> {
    fn at(&self, path: &str) -> Text {
        Text::from(format!("{}{path}", self.root))
    }

    fn call(&mut self, at: &str, request: &Request) -> Result<Option<Response>, Failure> {
        match self.client.call(request) {
            Ok(response) => Ok(Some(response)),
            Err(ClientError::Refused { code, .. }) if code == ErrorCode::NoNode as i32 => Ok(None),
            Err(error) => Err(failed(&error, at)),
        }
    }

    /// Which znodes are missing, and which differ.
    fn compare<'w>(
        &mut self,
        wanted: &'w [Wanted],
        done: &mut Done,
    ) -> Result<(Vec<&'w Wanted>, Vec<Differing<'w>>), Failure> {
        let (mut missing, mut differing): (Vec<&Wanted>, Vec<Differing<'_>>) = Default::default();
        for znode in wanted {
            // What is below a missing one is missing.
            let is_below = |above: &&&Wanted| {
                znode.path.strip_prefix(&above.path).is_some_and(|rest| rest.starts_with('/'))
            };
            if missing.last().as_ref().is_some_and(is_below) {
                missing.push(znode);
                continue;
            }
            let path = self.at(&znode.path);
            let data =
                self.call(&znode.path, &Request::GetData { path: path.clone(), watch: false })?;
            match data {
                None => missing.push(znode),
                Some(_) if !znode.is_part => {}
                Some(Response::Data(data, stat)) => {
                    let acl = match self.call(&znode.path, &Request::GetAcl { path })? {
                        Some(Response::Acl(acl, _)) => acl,
                        _ => Vec::new(),
                    };
                    match difference(znode, data.as_ref(), &stat, &acl) {
                        Some(what) => differing.push((znode, what)),
                        None => done.equal += 1,
                    }
                }
                Some(other) => return Err(Failure::refused(format!("an odd answer: {other:?}"))),
            }
        }
        Ok((missing, differing))
    }

    fn create(&mut self, missing: &[&Wanted], done: &mut Done) -> Result<(), Failure> {
        let mut ops = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        for (index, znode) in missing.iter().enumerate() {
            ops.push(MultiOp::Create(self.create_of(znode)));
            bytes += znode.path.len() + znode.data.as_ref().map_or(0, Bytes::len);
            if ops.len() == OPS_MAX || bytes >= BYTES_MAX || index + 1 == missing.len() {
                let paths: Vec<&str> =
                    missing[first..=index].iter().map(|znode| znode.path.as_str()).collect();
                self.multi(std::mem::take(&mut ops), &paths)?;
                done.created += paths.len() as u64;
                (first, bytes) = (index + 1, 0);
            }
        }
        Ok(())
    }

    fn create_of(&self, znode: &Wanted) -> Create {
        let (kind, flags, ttl_ms) = match znode.owner {
            Owner::Container => (CreateKind::Container, 4, 0),
            Owner::Ttl(ttl_ms) => (CreateKind::Ttl, 5, ttl_ms),
            Owner::Persistent | Owner::Session(_) => (CreateKind::Create, 0, 0),
        };
        Create {
            kind,
            path: self.at(&znode.path),
            data: znode.data.clone(),
            acl: Some(znode.acl.clone()),
            flags,
            ttl_ms,
        }
    }

    /// Carries out all or nothing; `paths`: of the operations, for a refusal.
    fn multi(&mut self, ops: Vec<MultiOp>, paths: &[&str]) -> Result<(), Failure> {
        let first = paths.first().copied().unwrap_or_default();
        match self.client.call(&Request::Multi(ops)) {
            Ok(Response::Multi(results)) => {
                let fault =
                    results.iter().zip(paths.iter().cycle()).find_map(
                        |(result, at)| match result {
                            MultiResult::Error(Some(code)) if !is_of_another(*code) => {
                                Some((*code, *at))
                            }
                            _ => None,
                        },
                    );
                match fault {
                    Some((code, at)) => Err(refused(code as i32, at, code.name())),
                    None => Ok(()),
                }
            }
            Ok(other) => Err(Failure::refused(format!("an odd answer: {other:?}"))),
            Err(error) => Err(failed(&error, first)),
        }
    }

    fn overwrite(&mut self, znode: &Wanted) -> Result<(), Failure> {
        let (path, data) = (self.at(&znode.path), znode.data.clone());
        let acl = Some(znode.acl.clone());
        let set = Request::SetData { path: path.clone(), data, version: -1 };
        for request in [set, Request::SetAcl { path, acl, version: -1 }] {
            if self.call(&znode.path, &request)?.is_none() {
                let words =
                    format!("{}: it was removed meanwhile: the same command goes on", znode.path);
                return Err(Failure::refused(words));
            }
        }
        Ok(())
    }

    /// Children were created there that are gone: as many numbers are used up.
    fn raise_counter(&mut self, znode: &Wanted, done: &mut Done) -> Result<(), Failure> {
        if znode.creates <= 0 {
            return Ok(());
        }
        let path = self.at(&znode.path);
        let Some(Response::Stat(stat)) =
            self.call(&znode.path, &Request::Exists { path, watch: false })?
        else {
            return Ok(());
        };
        // Creates plus deletes, which is twice the creates less the children that are there.
        let used = (i64::from(stat.cversion) + i64::from(stat.num_children)) / 2;
        let mut lacking = i64::from(znode.creates) - used;
        if lacking > RAISED_MAX {
            return Err(Failure::refused(format!(
                "{}: all znodes are restored, but the counter of its children lacks {lacking}, and no more than \
                 {RAISED_MAX} \
                 are made up for",
                znode.path
            )));
        }
        done.counters += u64::from(lacking > 0);
        let counted = self.at(&format!("{}/{COUNTED}", znode.path));
        while lacking > 0 {
            let pairs = lacking.min(OPS_MAX as i64 / 2);
            let pair = || {
                let create = Create {
                    kind: CreateKind::Create,
                    path: counted.clone(),
                    data: None,
                    acl: Some(vec![Acl::open()]),
                    flags: 0,
                    ttl_ms: 0,
                };
                let delete = MultiOp::Delete { path: counted.clone(), version: -1 };
                [MultiOp::Create(create), delete]
            };
            let ops = (0..pairs).flat_map(|_| pair()).collect();
            self.multi(ops, &[&znode.path])?;
            lacking -= pairs;
        }
        Ok(())
    }
}

/// Of the operations of a multi that failed, all but one say only that another one did.
fn is_of_another(code: ErrorCode) -> bool {
    code == ErrorCode::RuntimeInconsistency
}

fn difference(
    znode: &Wanted,
    data: Option<&Bytes>,
    stat: &Stat,
    acl: &[Acl],
) -> Option<&'static str> {
    let is_empty = |data: Option<&Bytes>| data.is_none_or(Bytes::is_empty);
    if stat.ephemeral_owner != 0 {
        return Some(EPHEMERAL);
    }
    // Clients do not tell no data from empty data.
    if data != znode.data.as_ref() && !(is_empty(data) && is_empty(znode.data.as_ref())) {
        return Some("other data");
    }
    (acl != znode.acl).then_some("another access control list")
}
