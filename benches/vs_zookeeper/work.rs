//! What one connection asks for and what it must be told: the workloads and their checks.
//!
//! A script is driven by the load generator: `next` appends the next request, `check` judges the
//! body of the reply to request number `index`. Requests are patched copies of a few prepared
//! frames, so that the client costs about a microsecond per request.
//!
//! Numbered paths: index i is a directory when i is divisible by 1001, else a child of the
//! directory before it; every node holds 100 bytes.

use std::str::FromStr;

use crate::wire;

/// Bytes of data in every node.
pub const DATA: usize = 100;
/// Children of one directory in the numbered paths.
const CHILDREN: u64 = 1000;
/// Digits of a directory's number behind its `d`, and of a child's name.
const DIRECTORY_DIGITS: usize = 7;
const CHILD_DIGITS: usize = 8;
/// Numbered paths per script at most: what the digits of a directory can name.
const INDEX_MAX: u64 = 9_999_999 * (CHILDREN + 1);

/// Why no script is made for some workloads.
const NO_SCRIPT: &str = "a lock cycle depends on what is answered: lock.rs";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Reads the connection's own node.
    Get,
    /// Sets the connection's own node.
    Set,
    /// Seven reads to three sets of the connection's own node.
    Mixed,
    /// Creates numbered paths, in order.
    Create,
    /// Takes and releases a lock of the connection's own.
    Lock,
    /// Takes and releases the one lock for which all connections contend.
    Contended,
    /// Deletes the numbered paths below `limit`, the last one first.
    Delete,
    /// Reads the numbered paths below `limit`, in order.
    ReadBack,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Get => "get",
            Work::Set => "set",
            Work::Mixed => "mixed",
            Work::Create => "create",
            Work::Lock => "lock",
            Work::Contended => "contended",
            Work::Delete => "delete",
            Work::ReadBack => "read-back",
        }
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "get" => Ok(Work::Get),
            "set" => Ok(Work::Set),
            "mixed" => Ok(Work::Mixed),
            "create" => Ok(Work::Create),
            "lock" => Ok(Work::Lock),
            "contended" => Ok(Work::Contended),
            _ => Err(format!(
                "{text}: no such workload; there are get, set, mixed, create, lock and contended"
            )),
        }
    }
}

/// One connection's requests.
pub struct Script {
    work: Work,
    data: Vec<u8>,
    issued: u64,
    limit: u64,
    /// Version the connection's own node must have once all requests so far are answered.
    version: i32,
    own: Frames,
    numbered: Numbered,
}

/// Prepared requests for the connection's own node.
struct Frames {
    get: Vec<u8>,
    set: Vec<u8>,
}

impl Script {
    /// A script that never ends by itself. `own` is the connection's node, whose data version is
    /// `version`; `below` is the node under which the numbered paths are.
    pub fn endless(work: Work, own: &str, version: i32, below: &str) -> Self {
        Script::limited(work, own, version, below, INDEX_MAX)
    }

    /// A script of `limit` requests.
    pub fn limited(work: Work, own: &str, version: i32, below: &str, limit: u64) -> Self {
        let data = data(own);
        Script {
            work,
            issued: 0,
            limit,
            version,
            own: Frames { get: wire::get(own), set: wire::set(own, &data) },
            numbered: Numbered::new(work, below, &data),
            data,
        }
    }

    /// Appends the next request; false when there is none left.
    pub fn next(&mut self, xid: i32, out: &mut Vec<u8>) -> bool {
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
            Work::Create | Work::ReadBack => self.numbered.request(index),
            Work::Delete => self.numbered.request(self.limit - 1 - index),
            Work::Lock | Work::Contended => unreachable!("{NO_SCRIPT}"),
        };
        wire::patch_xid(request, xid);
        out.extend_from_slice(request);
        true
    }

    /// Judges the body of the answer to the request number `index`, counted from 0.
    pub fn check(&mut self, index: u64, body: &[u8]) -> Result<(), String> {
        match self.work {
            Work::Get => self.check_own_data(body),
            Work::Mixed if reads(index) => self.check_own_data(body),
            Work::Set | Work::Mixed => {
                self.version += 1;
                check_version(body, 0, self.version)
            }
            Work::Create => match wire::buffer_at(body, 0) {
                Some(path) if path == self.numbered.path(index) => Ok(()),
                _ => Err("create answered with another path".into()),
            },
            Work::Delete if body.is_empty() => Ok(()),
            Work::Delete => Err("delete answered with a body".into()),
            Work::ReadBack => check_data(body, &self.data),
            Work::Lock | Work::Contended => unreachable!("{NO_SCRIPT}"),
        }
    }

    /// Requests handed out so far.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    fn check_own_data(&self, body: &[u8]) -> Result<(), String> {
        check_data(body, &self.data)?;
        check_version(body, 4 + DATA, self.version)
    }
}

/// Whether the mixed workload's request number `index` is a read.
fn reads(index: u64) -> bool {
    index % 10 < 7
}

/// A node's data: the same for the same name, different between names, and not compressible to
/// nothing, so that no server gains by guessing it.
pub fn data(name: &str) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut data = Vec::with_capacity(DATA);
    while data.len() < DATA {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.push((state >> 24) as u8);
    }
    data
}

fn check_data(body: &[u8], expected: &[u8]) -> Result<(), String> {
    match wire::buffer_at(body, 0) {
        Some(data) if data == expected && body.len() == 4 + DATA + wire::STAT => Ok(()),
        _ => Err("a read answered with other data".into()),
    }
}

fn check_version(body: &[u8], stat_at: usize, expected: i32) -> Result<(), String> {
    match wire::int_at(body, stat_at + wire::STAT_VERSION_AT) {
        Some(version) if version == expected && body.len() == stat_at + wire::STAT => Ok(()),
        Some(version) => Err(format!("data version {version} where {expected} was due")),
        None => Err("a Stat is missing".into()),
    }
}

/// The numbered paths below one node, as two prepared requests whose digits are patched.
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
            Work::Get | Work::Set | Work::Mixed | Work::ReadBack => wire::get(path),
            Work::Lock | Work::Contended => unreachable!("{NO_SCRIPT}"),
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
        digits(&mut request[at..at + DIRECTORY_DIGITS], directory);
        if child > 0 {
            let at = wire::PATH_AT + self.child_at;
            digits(&mut request[at..at + CHILD_DIGITS], child - 1);
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

/// Writes `number` in decimal over the whole of `out`, with leading zeros.
fn digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
