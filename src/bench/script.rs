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
    numbered: Numbered,
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
            numbered: Numbered::new(work, own, &data),
            data,
        }
    }

    /// Appends the next request; false when there is none left.
    pub(super) fn next(&mut self, xid: i32, out: &mut Vec<u8>) -> bool {
        if self.issued >= self.limit {
            return false;
        }
        let index = self.issued;
        self.issued += 1;
        let request: &mut [u8] = match self.work {
            Work::Get => &mut self.own.get,
            Work::Set => &mut self.own.set,
            Work::Mixed if reads(index) => &mut self.own.get,
            Work::Mixed => &mut self.own.set,
            Work::Multi => self.own.check_and_set(self.first_version.wrapping_add(index as i32)),
            Work::Create | Work::ReadBack => self.numbered.request(index),
            Work::Delete => self.numbered.request(self.limit - 1 - index),
            Work::Lock | Work::Contended | Work::Herd | Work::Watches => {
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
            Work::Get => self.check_own_data(body),
            Work::Mixed if reads(index) => self.check_own_data(body),
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
            Work::Create => match wire::buffer_at(body, 0) {
                Some(path) if path == self.numbered.path(index) => Ok(()),
                _ => Err(Fault::wrong("create answered with another path")),
            },
            Work::Delete if body.is_empty() => Ok(()),
            Work::Delete => Err(Fault::wrong("delete answered with a body")),
            Work::ReadBack => check_data(body, &self.data),
            Work::Lock | Work::Contended | Work::Herd | Work::Watches => {
                unreachable!("{NO_SCRIPT}")
            }
        }
    }

    fn check_own_data(&self, body: &[u8]) -> Result<(), Fault> {
        check_data(body, &self.data)?;
        check_version(body, 4 + self.data.len(), self.version)
    }
}

impl Frames {
    fn check_and_set(&mut self, version: i32) -> &mut [u8] {
        self.check_and_set[self.version_at..][..4].copy_from_slice(&version.to_be_bytes());
        &mut self.check_and_set
    }
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
    fn new(work: Work, below: &str, data: &[u8]) -> Self {
        let directory = format!("{below}/d{:0DIRECTORY_DIGITS$}", 0);
        let child = format!("{directory}/{:0CHILD_DIGITS$}", 0);
        let prepare = |path: &str| match work {
            Work::Create => wire::create(path, data),
            Work::Delete => wire::delete(path),
            Work::Get | Work::Set | Work::Mixed | Work::Multi | Work::ReadBack => wire::get(path),
            Work::Lock | Work::Contended | Work::Herd | Work::Watches => {
                unreachable!("{NO_SCRIPT}")
            }
        };
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
