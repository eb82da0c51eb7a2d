//! A part of a tree, written into an ensemble that runs: for `snapshot restore --subtree`, and `import` of the shell.
//!
//! *Owns* what is a conflict, and the order of the writes. *Invariants*: it speaks the client protocol alone, so that
//! access control holds and ZooKeeper can be written into, too; nothing is written before all conflicts are known; no
//! ephemeral is ever created and no session touched; the next sequential child gets a number above all that were given
//! where the part comes from. What was cut off is completed by the same command. *Never* removes a znode that was
//! there, and never keeps the znodes in memory: where they come from gives them several times.

use bytes::Bytes;
use clap::ValueEnum;

use super::client::ClientError;
use super::exit::{EXIT_NO_PERMISSION, EXIT_UNAVAILABLE};
use super::output::Failure;
use crate::proto::multi::{MultiOp, MultiResult};
use crate::proto::request::{Create, CreateKind};
use crate::proto::{Acl, ErrorCode, Request, Response, Stat, Text};
use crate::tree::{Owner, path};

/// What becomes of a znode that is there and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OnConflict {
    /// Nothing is written; up to 20 such znodes are named, and the others counted
    #[default]
    Fail,
    /// It stays as it is
    #[value(alias = "keep")]
    Skip,
    /// It gets the data and the access control list that it had where this comes from
    Overwrite,
}

/// Operations in one multi.
const OPS_MAX: usize = 100;
/// Bytes in one multi of several operations: below ZooKeeper's limit of a request. A larger znode goes alone.
const BYTES_MAX: usize = 256 << 10;
/// Bytes of an operation, and of an entry of its access control list, beside the texts and the data, at most.
const OVERHEAD_BYTES: usize = 48;
/// Conflicts that are named; the others are counted.
const NAMED_MAX: usize = 20;
/// How a znode differs that belongs to a session.
const EPHEMERAL: &str = "it is an ephemeral";
/// By how much a counter is raised at most: a million takes some ten seconds.
const RAISED_MAX: i64 = 10_000_000;
/// The child that is created and deleted so that a counter rises.
const COUNTED: &str = "lockkeeper-restore-counter";

/// A znode that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) path: String,
    pub(super) data: Option<Bytes>,
    pub(super) acl: Vec<Acl>,
    pub(super) owner: Owner,
    /// How many children were created there.
    pub(super) creates: i64,
    /// Whether it is part of what is written, and not only on the way there.
    pub(super) is_part: bool,
}

/// Takes a znode.
pub(super) type Take<'a> = &'a mut dyn FnMut(&Wanted) -> Result<(), Failure>;

/// Where the znodes come from.
pub(super) trait Source {
    /// Gives all of them, the same ones each time, in the order of their names: parents before their children.
    ///
    /// # Errors
    /// Its own, or the first one of `take`.
    fn each(&mut self, take: Take<'_>) -> Result<(), Failure>;
}

/// Asks a server, and waits for the answer.
pub(super) type Ask<'a> = &'a mut dyn FnMut(&Request) -> Result<Response, ClientError>;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) created: u64,
    pub(super) overwritten: u64,
    pub(super) equal: u64,
    pub(super) kept: u64,
    pub(super) counters: u64,
}

/// What becomes of a znode: one byte for each, because there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is not there.
    Missing,
    /// It is there, and is to be as it is.
    Stays,
    /// It is there with other data or another access control list.
    Differs,
}

/// How many children were created below a znode, by what clients see of it. Deletes count there, too: twice the
/// creates less the children that are there.
pub(super) fn creates(stat: &Stat) -> i64 {
    i64::from(stat.cversion.wrapping_add(stat.num_children).cast_unsigned() >> 1)
}

/// Writes all znodes of `source` below `root`, which is empty or a path.
///
/// # Errors
/// There are conflicts, or a server refuses or does not answer.
pub(super) fn run(
    source: &mut dyn Source,
    ask: Ask<'_>,
    root: &str,
    on_conflict: OnConflict,
) -> Result<Done, Failure> {
    let mut target = Target { ask, root };
    let (fates, conflicts, mut done) = target.compare(source)?;
    if conflicts.count > 0 && on_conflict == OnConflict::Fail {
        return Err(conflicts.refusal());
    }
    let mut batch = Batch::default();
    for_each_with(source, &fates, Fate::Missing, &mut |znode| {
        let create = target.create_of(znode);
        if !batch.has_room_for(&create) {
            batch.send(&mut target, &mut done)?;
        }
        batch.add(create, znode);
        Ok(())
    })?;
    batch.send(&mut target, &mut done)?;
    if on_conflict == OnConflict::Overwrite {
        for_each_with(source, &fates, Fate::Differs, &mut |znode| {
            target.overwrite(znode)?;
            done.overwritten += 1;
            Ok(())
        })?;
    }
    // An ephemeral belongs to a client that is there.
    done.kept = conflicts.count - done.overwritten;
    source.each(&mut |znode| target.raise_counter(znode, &mut done))?;
    Ok(done)
}

/// Takes the znodes of this fate.
fn for_each_with(
    source: &mut dyn Source,
    fates: &[Fate],
    fate: Fate,
    take: Take<'_>,
) -> Result<(), Failure> {
    let mut fates = fates.iter();
    source.each(&mut |znode| if fates.next() == Some(&fate) { take(znode) } else { Ok(()) })
}

/// Znodes that are there and differ.
#[derive(Debug, Default)]
struct Conflicts {
    count: u64,
    named: Vec<String>,
}

impl Conflicts {
    fn add(&mut self, path: &str, what: &str) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("  {path}: {what}"));
        }
    }

    fn refusal(&self) -> Failure {
        let more = self.count - self.named.len() as u64;
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        Failure::refused(format!(
            "nothing was written: {} znodes are there and differ (--on-conflict skip, overwrite)\n{}{more}",
            self.count,
            self.named.join("\n")
        ))
    }
}

/// Creations that are carried out together.
#[derive(Default)]
struct Batch {
    ops: Vec<MultiOp>,
    paths: Vec<String>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, create: Create, znode: &Wanted) {
        self.bytes += bytes_of(&create);
        self.ops.push(MultiOp::Create(create));
        self.paths.push(znode.path.clone());
    }

    fn has_room_for(&self, create: &Create) -> bool {
        self.ops.len() < OPS_MAX && self.bytes + bytes_of(create) <= BYTES_MAX
    }

    fn send(&mut self, target: &mut Target<'_>, done: &mut Done) -> Result<(), Failure> {
        let Self { ops, paths, bytes: _ } = std::mem::take(self);
        if ops.is_empty() {
            return Ok(());
        }
        let named: Vec<&str> = paths.iter().map(String::as_str).collect();
        target.multi(ops, &named)?;
        done.created += paths.len() as u64;
        Ok(())
    }
}

/// About as many as the operation has on the wire, and no fewer.
fn bytes_of(create: &Create) -> usize {
    let entry =
        |entry: &Acl| OVERHEAD_BYTES + entry.scheme.as_str().len() + entry.id.as_str().len();
    let acl: usize = create.acl.iter().flatten().map(entry).sum();
    let data = create.data.as_ref().map_or(0, Bytes::len);
    OVERHEAD_BYTES + create.path.as_str().len() + data + acl
}

/// What a request about `at` came to.
pub(super) fn failed(error: &ClientError, at: &str) -> Failure {
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
    ask: Ask<'a>,
    root: &'a str,
}

/// Whether a path is that of a znode below another one.
fn is_below(at: &str, above: &str) -> bool {
    above == path::ROOT || at.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a path, as a server knows it, is one that every ensemble has for itself.
pub(super) fn is_of_servers(at: &str) -> bool {
    at == path::ZOOKEEPER || is_below(at, path::ZOOKEEPER)
}

/// A path with another root, which is empty or a path, in front of it.
pub(super) fn placed(root: &str, at: &str) -> String {
    match (root, at) {
        ("" | path::ROOT, at) => at.to_owned(),
        (root, path::ROOT) => root.to_owned(),
        (root, at) => format!("{root}{at}"),
    }
}

impl Target<'_> {
    fn at(&self, path: &str) -> Text {
        Text::from(placed(self.root, path))
    }

    fn call(&mut self, at: &str, request: &Request) -> Result<Option<Response>, Failure> {
        match (self.ask)(request) {
            Ok(response) => Ok(Some(response)),
            Err(ClientError::Refused { code, .. }) if code == ErrorCode::NoNode as i32 => Ok(None),
            Err(error) => Err(failed(&error, at)),
        }
    }

    /// Which znodes are missing, and which differ.
    fn compare(
        &mut self,
        source: &mut dyn Source,
    ) -> Result<(Vec<Fate>, Conflicts, Done), Failure> {
        let (mut fates, mut conflicts, mut done) =
            (Vec::new(), Conflicts::default(), Done::default());
        // The last znode that is missing, and the last ephemeral: what is below is missing, or cannot be.
        let (mut missing, mut ephemeral): (Option<String>, Option<String>) = (None, None);
        source.each(&mut |znode| {
            let is_under = |above: &Option<String>| {
                above.as_ref().is_some_and(|above| is_below(&znode.path, above))
            };
            if is_under(&missing) {
                fates.push(Fate::Missing);
                return Ok(());
            }
            if is_under(&ephemeral) {
                conflicts.add(&znode.path, "what is above it is an ephemeral");
                fates.push(Fate::Stays);
                return Ok(());
            }
            let path = self.at(&znode.path);
            let there =
                self.call(&znode.path, &Request::GetData { path: path.clone(), watch: false });
            fates.push(match there? {
                None => {
                    missing = Some(znode.path.clone());
                    Fate::Missing
                }
                Some(Response::Data(_, stat)) if stat.ephemeral_owner != 0 => {
                    ephemeral = Some(znode.path.clone());
                    conflicts.add(&znode.path, EPHEMERAL);
                    Fate::Stays
                }
                Some(_) if !znode.is_part => Fate::Stays,
                Some(Response::Data(data, _)) => {
                    let acl = match self.call(&znode.path, &Request::GetAcl { path })? {
                        Some(Response::Acl(acl, _)) => acl,
                        _ => Vec::new(),
                    };
                    match difference(znode, data.as_ref(), &acl) {
                        Some(what) => {
                            conflicts.add(&znode.path, what);
                            Fate::Differs
                        }
                        None => {
                            done.equal += 1;
                            Fate::Stays
                        }
                    }
                }
                Some(other) => return Err(Failure::odd(other)),
            });
            Ok(())
        })?;
        Ok((fates, conflicts, done))
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
        match (self.ask)(&Request::Multi(ops)) {
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
            Ok(other) => Err(Failure::odd(other)),
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
        if znode.creates <= 0 || !znode.is_part {
            return Ok(());
        }
        let path = self.at(&znode.path);
        let Some(Response::Stat(stat)) =
            self.call(&znode.path, &Request::Exists { path, watch: false })?
        else {
            return Ok(());
        };
        if stat.ephemeral_owner != 0 {
            return Ok(());
        }
        let mut lacking = znode.creates - creates(&stat);
        if lacking > RAISED_MAX {
            return Err(Failure::refused(format!(
                "{}: all znodes are there, but the counter of its children lacks {lacking}, and no more than \
                 {RAISED_MAX} \
                 are made up for",
                znode.path
            )));
        }
        done.counters += u64::from(lacking > 0);
        let counted = self.at(&path::child(&znode.path, COUNTED));
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

fn difference(znode: &Wanted, data: Option<&Bytes>, acl: &[Acl]) -> Option<&'static str> {
    let is_empty = |data: Option<&Bytes>| data.is_none_or(Bytes::is_empty);
    // Clients do not tell no data from empty data.
    if data != znode.data.as_ref() && !(is_empty(data) && is_empty(znode.data.as_ref())) {
        return Some("other data");
    }
    (acl != znode.acl).then_some("another access control list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostPort;

    #[test]
    fn creates_are_counted_from_what_clients_see() {
        let stat = |cversion, num_children| Stat { cversion, num_children, ..Stat::default() };
        assert_eq!(creates(&stat(0, 0)), 0);
        assert_eq!(creates(&stat(3, 1)), 2, "two creates, one delete");
        // ZooKeeper's number wraps long before its counter does.
        let creates_made = i32::MAX;
        assert_eq!(
            creates(&stat(creates_made.wrapping_mul(2).wrapping_sub(5), 5)),
            i64::from(i32::MAX)
        );
    }

    struct Znodes(Vec<Wanted>);

    impl Source for Znodes {
        fn each(&mut self, take: Take<'_>) -> Result<(), Failure> {
            self.0.iter().try_for_each(take)
        }
    }

    /// A server that has a root alone, and notes the paths of each multi.
    #[derive(Default)]
    struct Server(Vec<Vec<String>>);

    impl Server {
        fn ask(&mut self, request: &Request) -> Result<Response, ClientError> {
            match request {
                Request::GetData { .. } => Err(ClientError::Refused {
                    server: HostPort { host: "zk1".into(), port: 2181 },
                    code: ErrorCode::NoNode as i32,
                }),
                Request::Multi(ops) => {
                    let path = |op: &MultiOp| match op {
                        MultiOp::Create(create) => create.path.as_str().to_owned(),
                        _ => panic!("{op:?}"),
                    };
                    self.0.push(ops.iter().map(path).collect());
                    Ok(Response::Multi(Vec::new()))
                }
                _ => panic!("{request:?}"),
            }
        }
    }

    fn wanted(path: &str, kib: usize) -> Wanted {
        Wanted {
            path: path.to_owned(),
            data: Some(vec![0; kib << 10].into()),
            acl: vec![Acl::open()],
            owner: Owner::Persistent,
            creates: 0,
            is_part: true,
        }
    }

    #[test]
    fn no_request_exceeds_the_bound_and_a_znode_that_does_goes_alone() {
        let sizes = [("/a", 200), ("/b", 900), ("/c", 10), ("/d", 200), ("/e", 50), ("/f", 0)];
        let mut source = Znodes(sizes.map(|(path, kib)| wanted(path, kib)).to_vec());
        let mut server = Server::default();
        let done =
            run(&mut source, &mut |request| server.ask(request), "", OnConflict::Fail).unwrap();
        assert_eq!(server.0, [vec!["/a"], vec!["/b"], vec!["/c", "/d"], vec!["/e", "/f"]]);
        assert_eq!(done.created, 6);
    }

    #[test]
    fn what_is_below_ends_at_a_slash() {
        assert!(is_below("/a/b", "/a") && is_below("/a", "/"));
        assert!(!is_below("/ab", "/a") && !is_below("/a", "/a"));
    }
}
