//! Records written and read by hand, byte for byte, from the protocol's description.
//!
//! *Owns* its own idea of the wire. *Never* uses the crate's codec: a mistake there must not be able
//! to hide behind the same mistake here.

/// Opcodes.
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const DELETE_CONTAINER: i32 = 20;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const EPHEMERALS: i32 = 103;
    pub const ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    pub const CREATE_SESSION: i32 = -10;
    pub const CLOSE_SESSION: i32 = -11;
}

/// Error codes of reply headers and multi results.
pub mod err {
    pub const RUNTIME_INCONSISTENCY: i32 = -2;
    pub const MARSHALLING: i32 = -5;
    pub const UNIMPLEMENTED: i32 = -6;
    pub const BAD_ARGUMENTS: i32 = -8;
    pub const NO_NODE: i32 = -101;
    pub const NO_AUTH: i32 = -102;
    pub const BAD_VERSION: i32 = -103;
    pub const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub const NODE_EXISTS: i32 = -110;
    pub const NOT_EMPTY: i32 = -111;
    pub const INVALID_ACL: i32 = -114;
    pub const AUTH_FAILED: i32 = -115;
    pub const NO_WATCHER: i32 = -121;
    pub const RECONFIG_DISABLED: i32 = -123;
    pub const QUOTA_EXCEEDED: i32 = -125;
}

/// Create modes: the `flags` of a create.
pub mod mode {
    pub const PERSISTENT: i32 = 0;
    pub const EPHEMERAL: i32 = 1;
    pub const PERSISTENT_SEQUENTIAL: i32 = 2;
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
    pub const CONTAINER: i32 = 4;
    pub const PERSISTENT_WITH_TTL: i32 = 5;
    pub const PERSISTENT_SEQUENTIAL_WITH_TTL: i32 = 6;
}

/// Permission bits.
pub mod perms {
    pub const READ: i32 = 1;
    pub const WRITE: i32 = 2;
    pub const CREATE: i32 = 4;
    pub const DELETE: i32 = 8;
    pub const ADMIN: i32 = 16;
    pub const ALL: i32 = 31;
}

/// One ACL entry: permissions, scheme, id.
pub type AclEntry = (i32, String, String);

/// An ACL of one entry.
pub fn acl(perms: i32, scheme: &str, id: &str) -> Vec<AclEntry> {
    vec![(perms, scheme.to_owned(), id.to_owned())]
}

/// Everyone may do everything.
pub fn open_acl() -> Vec<AclEntry> {
    acl(perms::ALL, "world", "anyone")
}

/// A record being written; each call appends one field.
#[derive(Clone, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn int(self, value: i32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn long(self, value: i64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn boolean(self, value: bool) -> Self {
        self.raw(&[u8::from(value)])
    }

    /// The null buffer, string or vector.
    pub fn null(self) -> Self {
        self.int(-1)
    }

    pub fn buffer(self, value: &[u8]) -> Self {
        self.int(length(value.len())).raw(value)
    }

    pub fn buffer_or_null(self, value: Option<&[u8]>) -> Self {
        match value {
            Some(bytes) => self.buffer(bytes),
            None => self.null(),
        }
    }

    pub fn string(self, value: &str) -> Self {
        self.buffer(value.as_bytes())
    }

    pub fn strings(self, values: &[&str]) -> Self {
        values.iter().fold(self.int(length(values.len())), |body, value| body.string(value))
    }

    pub fn acl(self, entries: &[AclEntry]) -> Self {
        entries.iter().fold(self.int(length(entries.len())), |body, (perms, scheme, id)| {
            body.int(*perms).string(scheme).string(id)
        })
    }

    /// The body of a create: path, data, ACL, flags.
    pub fn create(self, path: &str, data: Option<&[u8]>, acl: &[AclEntry], flags: i32) -> Self {
        self.string(path).buffer_or_null(data).acl(acl).int(flags)
    }

    /// The header in front of each operation and each result of a multi.
    pub fn multi_header(self, kind: i32, done: bool, err: i32) -> Self {
        self.int(kind).boolean(done).int(err)
    }
}

/// A multi being written: operations in order, ended by [`Multi::done`].
#[derive(Clone, Default)]
pub struct Multi(Body);

impl Multi {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn op(self, kind: i32, record: Body) -> Self {
        Self(self.0.multi_header(kind, false, -1).raw(&record.0))
    }

    pub fn create(self, path: &str) -> Self {
        self.create_as(op::CREATE, path, mode::PERSISTENT)
    }

    pub fn create_as(self, kind: i32, path: &str, flags: i32) -> Self {
        self.op(kind, Body::new().create(path, Some(b""), &open_acl(), flags))
    }

    pub fn create_ttl(self, path: &str, ttl_ms: i64) -> Self {
        let record = Body::new().create(path, Some(b""), &open_acl(), mode::PERSISTENT_WITH_TTL);
        self.op(op::CREATE_TTL, record.long(ttl_ms))
    }

    pub fn delete(self, path: &str, version: i32) -> Self {
        self.op(op::DELETE, Body::new().string(path).int(version))
    }

    pub fn set_data(self, path: &str, data: &[u8], version: i32) -> Self {
        self.op(op::SET_DATA, Body::new().string(path).buffer(data).int(version))
    }

    pub fn check(self, path: &str, version: i32) -> Self {
        self.op(op::CHECK, Body::new().string(path).int(version))
    }

    pub fn data(self, path: &str) -> Self {
        self.op(op::DATA, Body::new().string(path).boolean(false))
    }

    pub fn children(self, path: &str) -> Self {
        self.op(op::CHILDREN, Body::new().string(path).boolean(false))
    }

    pub fn done(self) -> Body {
        self.0.multi_header(-1, true, -1)
    }
}

/// What a client may know of a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

/// One result of a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiResult {
    Create(String),
    /// Type 15: path and Stat.
    Create2(String, Stat),
    Delete,
    SetData(Stat),
    Check,
    Data(Option<Vec<u8>>, Stat),
    Children(Vec<String>),
    Error(i32),
}

/// Reads fields from the front of a payload. Panics, failing the test, when they are not there.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        assert!(self.0.len() >= count, "{count} more bytes expected, there are {:?}", self.0);
        let (front, rest) = self.0.split_at(count);
        self.0 = rest;
        front
    }

    pub fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    /// A boolean as a server writes it: 0 or 1.
    pub fn boolean(&mut self) -> bool {
        match self.take(1)[0] {
            0 => false,
            1 => true,
            other => panic!("a boolean of {other}"),
        }
    }

    pub fn buffer(&mut self) -> Option<Vec<u8>> {
        match self.int() {
            -1 => None,
            count => Some(self.take(usize::try_from(count).expect("a length")).to_vec()),
        }
    }

    pub fn string(&mut self) -> String {
        String::from_utf8(self.buffer().expect("a string that is not null")).expect("UTF-8")
    }

    pub fn strings(&mut self) -> Vec<String> {
        let count = self.int();
        assert!(count >= 0, "a vector of {count}");
        (0..count).map(|_| self.string()).collect()
    }

    pub fn acl(&mut self) -> Vec<AclEntry> {
        let count = self.int();
        (0..count).map(|_| (self.int(), self.string(), self.string())).collect()
    }

    pub fn stat(&mut self) -> Stat {
        Stat {
            czxid: self.long(),
            mzxid: self.long(),
            ctime: self.long(),
            mtime: self.long(),
            version: self.int(),
            cversion: self.int(),
            aversion: self.int(),
            ephemeral_owner: self.long(),
            data_length: self.int(),
            num_children: self.int(),
            pzxid: self.long(),
        }
    }

    pub fn multi_results(&mut self) -> Vec<MultiResult> {
        let mut results = Vec::new();
        loop {
            let (kind, done, code) = (self.int(), self.boolean(), self.int());
            if done {
                assert_eq!((kind, code), (-1, -1), "the end of a multi's results");
                return results;
            }
            results.push(match kind {
                op::CREATE => MultiResult::Create(self.string()),
                op::CREATE2 => MultiResult::Create2(self.string(), self.stat()),
                op::DELETE => MultiResult::Delete,
                op::SET_DATA => MultiResult::SetData(self.stat()),
                op::CHECK => MultiResult::Check,
                op::DATA => MultiResult::Data(self.buffer(), self.stat()),
                op::CHILDREN => MultiResult::Children(self.strings()),
                -1 => {
                    assert_eq!(self.int(), code, "the code is said twice");
                    MultiResult::Error(code)
                }
                other => panic!("a multi result of type {other}"),
            });
        }
    }

    /// Nothing may be left.
    pub fn end(&self) {
        assert!(self.0.is_empty(), "bytes left over: {:?}", self.0);
    }
}

/// A length as the wire's signed 32 bits.
pub fn length(count: usize) -> i32 {
    i32::try_from(count).expect("a length below 2 GiB")
}
