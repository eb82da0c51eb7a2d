//! What one connection asks for and what it must be told: the workloads and their checks.
//!
//! A script is driven by the load generator: `next` appends the next request, `check` judges the
//! body of the reply to request number `index`. Requests are patched copies of a few prepared
//! frames, so that the client costs about a microsecond per request.
//!
//! Numbered paths: index i is a directory when i is divisible by 1001, else a child of the
//! directory before it; every node holds the same data.

use super::plan::Work;
use super::{Fault, wire};

/// Children of one directory in the numbered paths.
const CHILDREN: u64 = 1000;
/// Digits of a directory's number behind its `d`, and of a child's name.
const DIRECTORY_DIGITS: usize = 7;
const CHILD_DIGITS: usize = 8;
/// Numbered paths per script at most: what the digits of a directory can name.
const INDEX_MAX: u64 = 9_999_999 * (CHILDREN + 1);

/// Numbered znodes of a connection that [`Work::Churn`] leaves between the one it creates and the one it
/// deletes.
pub(crate) const CHURN_LAG: u64 = 2 * CHILDREN;

/// A prime above any count of numbered znodes that a scattered order has been asked of.
const SCATTER_STEP: u64 = 2_654_435_761;

/// Why no script is made for some workloads.
const NO_SCRIPT: &str = "what is next depends on what is answered: lock.rs, fan.rs";

/// One connection's requests.
#[derive(Debug)]
pub(super) struct Script {
    work: Work,
    data: Vec<u8>,
    issued: u64,
    limit: u64,
    /// Version that the connection's own node had at first.
    first_version: i32,
    /// Version the connection's own node must have once all requests so far are answered.
    version: i32,
    own: Frames,
    /// The numbered znodes: to create, delete or read them, and to set them.
    numbered: Numbered,
    numbered_set: Numbered,
    numbered_delete: Numbered,
    /// Reads and sets go to so many of these, not to the own node.
    scatter: Option<u64>,
}

/// Prepared requests for the connection's own node.
#[derive(Debug)]
struct Frames {
    get: Vec<u8>,
    set: Vec<u8>,
    check_and_set: Vec<u8>,
    /// Where the version is in the last one.
    version_at: usize,
}

impl Script {
    /// A script of `limit` requests, or of any number. `own` is the connection's node, which holds
    /// `data` in `version`, and under which the numbered paths are.
    pub(super) fn new(
        work: Work,
        own: &str,
        data: Vec<u8>,
        version: i32,
        limit: Option<u64>,
    ) -> Self {
        let numbered = Numbered::new(own, |path| match work {
            Work::Create | Work::Churn => wire::create(path, &data),
            Work::Delete => wire::delete(path),
            Work::Get | Work::Set | Work::Mixed | Work::Multi | Work::ReadBack => wire::get(path),
            Work::Lock | Work::Contended | Work::Herd | Work::Watches => {
                unreachable!("{NO_SCRIPT}")
            }
        });
        Script {
            work,
            issued: 0,
            limit: limit.unwrap_or(INDEX_MAX),
            first_version: version,
            version,
            own: Frames {
                get: wire::get(own),
                set: wire::set(own, &data),
                check_and_set: wire::check_and_set(own, &data),
                version_at: wire::checked_version_at(own.len()),
            },
            numbered,
            numbered_set: Numbered::new(own, |path| wire::set(path, &data)),
            numbered_delete: Numbered::new(own, wire::delete),
            scatter: None,
            data,
        }
    }

    /// The same, of which reads and sets go to the first `count` numbered znodes, which must be there,
    /// in scattered order.
    pub(super) fn scattered(mut self, count: Option<u64>) -> Self {
        self.scatter = count;
        self
    }

    /// Appends the next request; false when there is none left.
    pub(super) fn next(&mut self, xid: i32, out: &mut Vec<u8>) -> bool {
        if self.issued >= self.limit {
            return false;
        }
        let index = self.issued;
        self.issued += 1;
        let reads = self.work == Work::Get || self.work == Work::Mixed && reads(index);
        let request: &mut [u8] = match (self.work, self.scatter) {
            (Work::Get | Work::Set | Work::Mixed, Some(count)) => {
                let numbered = if reads { &mut self.numbered } else { &mut self.numbered_set };
                numbered.request(scattered(index, count))
            }
            (Work::Get | Work::Set | Work::Mixed, None) if reads => &mut self.own.get,
            (Work::Get | Work::Set | Work::Mixed, None) => &mut self.own.set,
            (Work::Multi, _) => {
                self.own.check_and_set(self.first_version.wrapping_add(index as i32))
            }
            (Work::Create | Work::ReadBack, _) => self.numbered.request(index),
            (Work::Churn, _) => match Turn::of(index) {
                Turn::Create(at) => self.numbered.request(at),
                Turn::Delete(at) => self.numbered_delete.request(at),
            },
            (Work::Delete, _) => self.numbered.request(self.limit - 1 - index),
            (Work::Lock | Work::Contended | Work::Herd | Work::Watches, _) => {
                unreachable!("{NO_SCRIPT}")
            }
        };
        wire::patch_xid(request, xid);
        out.extend_from_slice(request);
        true
    }

    /// Judges the body of the answer to the request number `index`, counted from 0.
    pub(super) fn check(&mut self, index: u64, body: &[u8]) -> Result<(), Fault> {
        match self.work {
            Work::Get => self.check_read(body),
            Work::Mixed if reads(index) => self.check_read(body),
            // Versions of so many are not remembered.
            Work::Set | Work::Mixed if self.scatter.is_some() => match body.len() {
                wire::STAT => Ok(()),
                _ => Err(Fault::wrong("a Stat is missing")),
            },
            Work::Set | Work::Mixed => {
                self.version += 1;
                check_version(body, 0, self.version)
            }
            Work::Multi => {
                self.version += 1;
                let stat = body.len().checked_sub(wire::STAT + wire::MULTI_HEADER);
                match stat.and_then(|at| body.get(at..at + wire::STAT)) {
                    Some(stat) if wire::int_at(body, 0) == Some(wire::CHECK) => {
                        check_version(stat, 0, self.version)
                    }
                    _ => Err(Fault::wrong(format!(
                        "a transaction failed where version {} was due",
                        self.version
                    ))),
                }
            }
            Work::Create => self.check_created(index, body),
            Work::Churn => match Turn::of(index) {
                Turn::Create(at) => self.check_created(at, body),
                Turn::Delete(_) => check_deleted(body),
            },
            Work::Delete => check_deleted(body),
            Work::ReadBack => check_data(body, &self.data),
            Work::Lock | Work::Contended | Work::Herd | Work::Watches => {
                unreachable!("{NO_SCRIPT}")
            }
        }
    }

    fn check_created(&mut self, at: u64, body: &[u8]) -> Result<(), Fault> {
        match wire::buffer_at(body, 0) {
            Some(path) if path == self.numbered.path(at) => Ok(()),
            _ => Err(Fault::wrong("create answered with another path")),
        }
    }

    fn check_read(&self, body: &[u8]) -> Result<(), Fault> {
        check_data(body, &self.data)?;
        if self.scatter.is_some() {
            return Ok(());
        }
        check_version(body, 4 + self.data.len(), self.version)
    }
}

impl Frames {
    fn check_and_set(&mut self, version: i32) -> &mut [u8] {
        self.check_and_set[self.version_at..][..4].copy_from_slice(&version.to_be_bytes());
        &mut self.check_and_set
    }
}

/// What [`Work::Churn`] does to which numbered znode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Create(u64),
    Delete(u64),
}

impl Turn {
    /// By its request number `index`.
    fn of(index: u64) -> Self {
        let Some(since) = index.checked_sub(CHURN_LAG) else { return Turn::Create(index) };
        let number = since / 2;
        if since.is_multiple_of(2) {
            return Turn::Create(CHURN_LAG + number);
        }
        // A directory has the first number of its own and goes last.
        let (directory, child) = (number / (CHILDREN + 1), number % (CHILDREN + 1));
        let at = if child == CHILDREN { 0 } else { child + 1 };
        Turn::Delete(directory * (CHILDREN + 1) + at)
    }
}

/// The path of a numbered znode below `own`, the znode of a connection.
#[must_use]
pub fn numbered_path(own: &str, index: u64) -> String {
    String::from_utf8_lossy(Numbered::new(own, wire::get).path(index)).into_owned()
}

/// The numbered znode that request number `index` goes to: each of `count` once before any is met again,
/// and none near the one before.
fn scattered(index: u64, count: u64) -> u64 {
    (index % count).wrapping_mul(SCATTER_STEP) % count
}

/// Whether the mixed workload's request number `index` is a read.
fn reads(index: u64) -> bool {
    index % 10 < 7
}

/// A node's data: the same for the same name, different between names, and not compressible to
/// nothing, so that no server gains by guessing it.
pub(super) fn data(name: &str, size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut data = Vec::with_capacity(size);
    while data.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.push((state >> 24) as u8);
    }
    data
}

fn check_data(body: &[u8], expected: &[u8]) -> Result<(), Fault> {
    match wire::buffer_at(body, 0) {
        Some(data) if data == expected && body.len() == 4 + data.len() + wire::STAT => Ok(()),
        _ => Err(Fault::wrong("a read answered with other data")),
    }
}

fn check_deleted(body: &[u8]) -> Result<(), Fault> {
    match body {
        [] => Ok(()),
        [..] => Err(Fault::wrong("delete answered with a body")),
    }
}

fn check_version(body: &[u8], stat_at: usize, expected: i32) -> Result<(), Fault> {
    match wire::int_at(body, stat_at + wire::STAT_VERSION_AT) {
        Some(version) if version == expected && body.len() == stat_at + wire::STAT => Ok(()),
        Some(version) => {
            Err(Fault::wrong(format!("data version {version} where {expected} was due")))
        }
        None => Err(Fault::wrong("a Stat is missing")),
    }
}

/// The numbered paths below one node, as two prepared requests whose digits are patched.
#[derive(Debug)]
struct Numbered {
    directory: Vec<u8>,
    child: Vec<u8>,
    /// Where the directory's digits begin, counted from the start of the path.
    directory_at: usize,
    /// Where the child's digits begin.
    child_at: usize,
}

impl Numbered {
    /// Requests as `prepare` makes them for a path.
    fn new(below: &str, prepare: impl Fn(&str) -> Vec<u8>) -> Self {
        let directory = format!("{below}/d{:0DIRECTORY_DIGITS$}", 0);
        let child = format!("{directory}/{:0CHILD_DIGITS$}", 0);
        Numbered {
            directory_at: directory.len() - DIRECTORY_DIGITS,
            child_at: child.len() - CHILD_DIGITS,
            directory: prepare(&directory),
            child: prepare(&child),
        }
    }

    fn request(&mut self, index: u64) -> &mut [u8] {
        let (directory, child) = (index / (CHILDREN + 1), index % (CHILDREN + 1));
        let at = wire::PATH_AT + self.directory_at;
        let request = if child == 0 { &mut self.directory } else { &mut self.child };
        wire::patch_digits(&mut request[at..at + DIRECTORY_DIGITS], directory);
        if child > 0 {
            let at = wire::PATH_AT + self.child_at;
            wire::patch_digits(&mut request[at..at + CHILD_DIGITS], child - 1);
        }
        request
    }

    fn path(&mut self, index: u64) -> &[u8] {
        let length = if index.is_multiple_of(CHILDREN + 1) {
            self.directory_at + DIRECTORY_DIGITS
        } else {
            self.child_at + CHILD_DIGITS
        };
        &self.request(index)[wire::PATH_AT..wire::PATH_AT + length]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_scattered_order_meets_each_znode_once_before_any_again() {
        for count in [1, 7, 1001, 62_500] {
            let met: BTreeSet<u64> = (0..count).map(|index| scattered(index, count)).collect();
            assert_eq!(met, (0..count).collect());
            assert_eq!(scattered(count, count), scattered(0, count));
        }
    }

    #[test]
    fn churn_deletes_what_is_there_and_a_directory_when_it_is_empty() {
        let mut there = BTreeSet::new();
        for index in 0..10 * CHURN_LAG {
            match Turn::of(index) {
                Turn::Create(at) => assert!(there.insert(at)),
                Turn::Delete(at) => {
                    assert!(there.remove(&at), "{at} is there");
                    let last = at + CHILDREN;
                    let is_directory = at % (CHILDREN + 1) == 0;
                    assert!(!is_directory || there.range(at..=last).next().is_none(), "{at}");
                    assert!(!is_directory || Some(&last) < there.last(), "{at} is complete");
                }
            }
            assert!(there.len() as u64 <= CHURN_LAG + 1);
        }
    }

    #[test]
    fn scattered_requests_name_the_numbered_znodes() {
        let mut script =
            Script::new(Work::Mixed, "/own", vec![1; 3], 0, None).scattered(Some(1002));
        let mut out = Vec::new();
        for xid in 0..10 {
            assert!(script.next(xid, &mut out));
        }
        let frames = String::from_utf8_lossy(&out);
        assert_eq!(frames.matches("/own/d000000").count(), 10, "{frames}");
    }
}
