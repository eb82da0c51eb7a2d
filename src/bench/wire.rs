//! The ZooKeeper wire format, as far as a benchmark needs it: frames out, frames in.
//!
//! Written apart from the library's codec on purpose: a mistake in that codec must not be able to
//! hide by being made on both ends. Nothing here checks what the peer may not send; callers turn a
//! short or odd frame into an error, never into a figure.

use std::time::Duration;

/// Operation: create a znode.
pub const CREATE: i32 = 1;
/// Operation: delete a znode.
pub const DELETE: i32 = 2;
/// Operation: read a znode.
pub const GET: i32 = 4;
/// Operation: change a znode's data.
pub const SET: i32 = 5;
/// Operation: list a znode's children.
pub const CHILDREN: i32 = 8;
/// Operation: keep the session alive.
pub const PING: i32 = 11;
/// Operation: check a version, within a transaction.
pub(super) const CHECK: i32 = 13;
/// Operation: a transaction of several.
const MULTI: i32 = 14;
/// Operation: name a credential.
const AUTH: i32 = 100;
/// Operation: end the session.
pub const CLOSE: i32 = -11;

/// Error code: there is no such znode.
pub const NO_NODE: i32 = -101;
/// Error code: the session may not do that to the znode.
pub const NO_AUTH: i32 = -102;
/// Error code: the znode is there already.
pub const NODE_EXISTS: i32 = -110;
/// Error code: the znode has children.
pub const NOT_EMPTY: i32 = -111;
/// Error code: the znode has another version.
pub const BAD_VERSION: i32 = -103;
/// Error code: the operation is not known.
pub const UNIMPLEMENTED: i32 = -6;

/// The xid of a watch event.
pub const EVENT_XID: i32 = -1;
/// The xid of a ping.
pub const PING_XID: i32 = -2;
/// The xid of a credential.
pub const AUTH_XID: i32 = -4;

/// Where a request's xid is, counted from the start of the frame (length prefix included).
pub const XID_AT: usize = 4;
/// Where the bytes of a request's path begin, for every operation used here.
pub const PATH_AT: usize = 16;
/// Bytes of a reply's header: xid, zxid, err.
pub const REPLY_HEADER: usize = 16;
/// Bytes in front of each operation of a transaction, and of each of its results.
pub const MULTI_HEADER: usize = 9;
/// Bytes of a Stat.
pub const STAT: usize = 68;
/// Where the data version is within a Stat.
pub const STAT_VERSION_AT: usize = 32;
/// Where the number of children is within a Stat.
pub const STAT_CHILDREN_AT: usize = 56;
/// The largest frame either side accepts; ZooKeeper's own default is the same.
pub const FRAME_MAX: usize = 0xf_ffff;

/// Appends a frame: reserves the length, lets `body` write, patches the length.
pub fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a 32-bit number.
pub fn int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a 64-bit number.
pub fn long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends bytes behind their length.
pub fn buffer(out: &mut Vec<u8>, bytes: &[u8]) {
    int(out, bytes.len() as i32);
    out.extend_from_slice(bytes);
}

/// A new session's connect request; `timeout_ms` is what the client asks for.
#[must_use]
pub fn connect(timeout_ms: i32) -> Vec<u8> {
    connect_as(timeout_ms, 0, &[0; 16])
}

/// A connect request of a session with this password; 0 is none yet.
#[must_use]
pub fn connect_as(timeout_ms: i32, session: i64, password: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |f| {
        int(f, 0);
        long(f, 0);
        int(f, timeout_ms);
        long(f, session);
        buffer(f, password);
        f.push(0);
    });
    out
}

/// A request with a path and nothing after it but what `rest` appends. The xid is 0 until patched.
fn request(op: i32, path: &str, rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |f| {
        int(f, 0);
        int(f, op);
        buffer(f, path.as_bytes());
        rest(f);
    });
    out
}

/// Reads a znode.
#[must_use]
pub fn get(path: &str) -> Vec<u8> {
    request(GET, path, |f| f.push(0))
}

/// Sets the data whatever the version is.
#[must_use]
pub fn set(path: &str, data: &[u8]) -> Vec<u8> {
    request(SET, path, |f| {
        buffer(f, data);
        int(f, -1);
    })
}

/// Reads the data and asks to be told of the next change.
#[must_use]
pub fn get_and_watch(path: &str) -> Vec<u8> {
    request(GET, path, |f| f.push(1))
}

/// Lists the children, and asks to be told of the next change if so wanted.
#[must_use]
pub fn children(path: &str, watch: bool) -> Vec<u8> {
    request(CHILDREN, path, |f| f.push(watch.into()))
}

/// Names a credential.
#[must_use]
pub fn auth(scheme: &str, secret: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |f| {
        int(f, AUTH_XID);
        int(f, AUTH);
        int(f, 0);
        buffer(f, scheme.as_bytes());
        buffer(f, secret.as_bytes());
    });
    out
}

/// Where the version is in [`check_and_set`] of a path of this length.
#[must_use]
pub const fn checked_version_at(path_length: usize) -> usize {
    PATH_AT - 4 + MULTI_HEADER + 4 + path_length
}

/// Sets the data in a transaction that checks the version first: 0 until patched.
#[must_use]
pub fn check_and_set(path: &str, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |f| {
        int(f, 0);
        int(f, MULTI);
        multi_header(f, CHECK, false);
        buffer(f, path.as_bytes());
        int(f, 0);
        multi_header(f, SET, false);
        buffer(f, path.as_bytes());
        buffer(f, data);
        int(f, -1);
        multi_header(f, -1, true);
    });
    out
}

fn multi_header(out: &mut Vec<u8>, op: i32, last: bool) {
    int(out, op);
    out.push(last.into());
    int(out, -1);
}

/// Creates a persistent node that anyone may use.
#[must_use]
pub fn create(path: &str, data: &[u8]) -> Vec<u8> {
    create_as(path, data, 0)
}

/// Creates an empty node with a sequence number behind its name, which goes with the session.
#[must_use]
pub fn create_ephemeral_sequential(path: &str) -> Vec<u8> {
    create_as(path, b"", 3)
}

/// Creates a node that anyone may use, of the kind that the flags say.
#[must_use]
pub fn create_as(path: &str, data: &[u8], flags: i32) -> Vec<u8> {
    request(CREATE, path, |f| {
        buffer(f, data);
        int(f, 1);
        int(f, 0x1f);
        buffer(f, b"world");
        buffer(f, b"anyone");
        int(f, flags);
    })
}

/// Deletes whatever the version is.
#[must_use]
pub fn delete(path: &str) -> Vec<u8> {
    request(DELETE, path, |f| int(f, -1))
}

/// A request without a body: ping, close.
#[must_use]
pub fn bare(op: i32) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |f| {
        int(f, 0);
        int(f, op);
    });
    out
}

/// What tells the server that the session lives.
#[must_use]
pub fn ping() -> Vec<u8> {
    let mut request = bare(PING);
    patch_xid(&mut request, PING_XID);
    request
}

/// Gives a prepared request its xid.
pub fn patch_xid(request: &mut [u8], xid: i32) {
    request[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
}

/// Writes `number` in decimal over the whole of `out`, with leading zeros.
pub(super) fn patch_digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The 32-bit number at `at`.
#[must_use]
pub fn int_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The 64-bit number at `at`.
#[must_use]
pub fn long_at(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A length-prefixed run of bytes at `at`; null and negative lengths are `None`.
#[must_use]
pub fn buffer_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let length = usize::try_from(int_at(bytes, at)?).ok()?;
    bytes.get(at + 4..at.checked_add(4)?.checked_add(length)?)
}

/// The names in a list of children, `None` where it is cut short; as a whole, if it has no count.
pub(super) fn names(body: &[u8]) -> Option<impl Iterator<Item = Option<&[u8]>>> {
    let count = usize::try_from(int_at(body, 0)?).ok()?;
    let mut at = 4;
    Some((0..count).map(move |_| {
        let name = buffer_at(body, at)?;
        at += 4 + name.len();
        Some(name)
    }))
}

/// A reply's header and the bytes behind it.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The request's, or that of an event or a ping.
    pub xid: i32,
    /// The transaction that the answer shows: a write's own.
    pub zxid: i64,
    /// The error code; 0 is none.
    pub err: i32,
    /// What follows.
    pub body: &'a [u8],
}

/// Splits a reply frame (without its length prefix).
#[must_use]
pub fn reply(frame: &[u8]) -> Option<Reply<'_>> {
    Some(Reply {
        xid: int_at(frame, 0)?,
        zxid: long_at(frame, 4)?,
        err: int_at(frame, 12)?,
        body: frame.get(REPLY_HEADER..)?,
    })
}

/// What a connect reply grants.
#[derive(Debug)]
pub struct Granted {
    /// The session's timeout; not above 0 if there is none.
    pub timeout_ms: i32,
    /// The session's id.
    pub session: i64,
    /// What proves to be its client.
    pub password: Vec<u8>,
}

impl Granted {
    /// The session's timeout; `None` if there is no session.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let is_session = self.timeout_ms > 0 && self.session != 0;
        is_session.then(|| Duration::from_millis(self.timeout_ms.unsigned_abs().into()))
    }
}

/// Reads a connect reply (without its length prefix).
#[must_use]
pub fn connect_reply(frame: &[u8]) -> Option<Granted> {
    Some(Granted {
        timeout_ms: int_at(frame, 4)?,
        session: long_at(frame, 8)?,
        password: buffer_at(frame, 16).unwrap_or_default().to_vec(),
    })
}
