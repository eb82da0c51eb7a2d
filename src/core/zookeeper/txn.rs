//! Transactions of ZooKeeper: header, body, and the digest of the tree behind them.
//!
//! *Owns* the bytes of an entry of a transaction log, which are those of PROPOSAL and INFORM in the quorum protocol.
//! *Invariants*: every form since 3.4 is read: creates without the parent's cversion, ends of sessions without a list
//! of paths, transactions without a digest. Encoding what was decoded gives a form that decodes to the same.
//! *Never* applies anything.

use bytes::Bytes;

use crate::proto::jute::wire_len;
use crate::proto::{Acl, Malformed, Reader, Text, Writer};

/// Numbers of the kinds of transactions (`ZooDefs.OpCode`).
pub mod kind {
    /// A request that failed, or (in a multi) one that did not happen.
    pub const ERROR: i32 = -1;
    /// A session begins.
    pub const CREATE_SESSION: i32 = -10;
    /// A session ends.
    pub const CLOSE_SESSION: i32 = -11;
    /// create.
    pub const CREATE: i32 = 1;
    /// delete.
    pub const DELETE: i32 = 2;
    /// setData.
    pub const SET_DATA: i32 = 5;
    /// setACL.
    pub const SET_ACL: i32 = 7;
    /// check, in a multi.
    pub const CHECK: i32 = 13;
    /// multi.
    pub const MULTI: i32 = 14;
    /// create2.
    pub const CREATE2: i32 = 15;
    /// reconfig.
    pub const RECONFIG: i32 = 16;
    /// createContainer.
    pub const CREATE_CONTAINER: i32 = 19;
    /// deleteContainer.
    pub const DELETE_CONTAINER: i32 = 20;
    /// createTTL.
    pub const CREATE_TTL: i32 = 21;
}

/// Version and digest.
const DIGEST_BYTES: usize = 12;

/// What every transaction begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnHeader {
    /// The session that asked, or that the transaction is about.
    pub client_id: i64,
    /// The number that the client gave its request.
    pub cxid: i32,
    /// The zxid.
    pub zxid: i64,
    /// The leader's wall clock, milliseconds since the epoch.
    pub time_ms: i64,
    /// One of [`kind`].
    pub kind: i32,
}

/// ZooKeeper's digest of the tree behind a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnDigest {
    /// Of the way it is computed; 2 since 3.6.
    pub version: i32,
    /// The digest.
    pub digest: u64,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Who, when, what kind.
    pub header: TxnHeader,
    /// What it does.
    pub body: TxnBody,
    /// What the tree is to be like then, if the server kept digests.
    pub digest: Option<TxnDigest>,
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnBody {
    /// The session of the header begins.
    CreateSession {
        /// Its timeout.
        timeout_ms: i32,
    },
    /// The session of the header ends.
    CloseSession {
        /// Its ephemerals; without a list, whatever it owns.
        paths: Option<Vec<Text>>,
    },
    /// Nothing: a request failed.
    Error {
        /// With this code.
        code: i32,
    },
    /// A znode comes.
    Create(CreateTxn),
    /// A znode goes.
    Delete {
        /// Its path.
        path: Text,
    },
    /// The data of a znode is replaced.
    SetData {
        /// Its path.
        path: Text,
        /// The new data.
        data: Option<Bytes>,
        /// The version that it has then.
        version: i32,
    },
    /// The list of a znode is replaced.
    SetAcl {
        /// Its path.
        path: Text,
        /// The new list.
        acl: Vec<Acl>,
        /// The version that the list has then.
        version: i32,
    },
    /// Nothing: a version was as a multi expected it.
    Check {
        /// Of this znode.
        path: Text,
        /// The version.
        version: i32,
    },
    /// All of these, or none if one of them is an error.
    Multi(Vec<SubTxn>),
}

/// One operation of a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubTxn {
    /// One of [`kind`].
    pub kind: i32,
    /// What it does; never another multi.
    pub body: TxnBody,
}

/// A znode that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTxn {
    /// Its path, with the number of a sequential one.
    pub path: Text,
    /// Its data.
    pub data: Option<Bytes>,
    /// Its list.
    pub acl: Vec<Acl>,
    /// When it goes by itself.
    pub lifetime: Lifetime,
    /// The number of children that its parent ever had, with this one; -1 in old logs: one more than before.
    pub parent_cversion: i32,
}

/// When a znode goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Never.
    Persistent,
    /// With the session of the header.
    Ephemeral,
    /// After its last child.
    Container,
    /// This long after its last change, in milliseconds.
    Ttl(i64),
}

impl Txn {
    /// Reads the bytes of an entry.
    ///
    /// # Errors
    /// They are no transaction.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let header = TxnHeader {
            client_id: reader.long("clientId")?,
            cxid: reader.int("cxid")?,
            zxid: reader.long("zxid")?,
            time_ms: reader.long("time")?,
            kind: reader.int("type")?,
        };
        let body = if header.kind == kind::MULTI {
            decode_multi(&mut reader)?
        } else {
            decode_body(header.kind, &mut reader)?
        };
        let digest = match reader.remaining() {
            0 => None,
            DIGEST_BYTES => Some(TxnDigest {
                version: reader.int("digest version")?,
                digest: reader.long("digest")?.cast_unsigned(),
            }),
            _ => return Err(Malformed::new("transaction", "has bytes behind its end")),
        };
        Ok(Self { header, body, digest })
    }

    /// Appends the bytes of an entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let TxnHeader { client_id, cxid, zxid, time_ms, kind } = self.header;
        out.put_long(client_id);
        out.put_int(cxid);
        out.put_long(zxid);
        out.put_long(time_ms);
        out.put_int(kind);
        encode_body(&self.body, out);
        if let Some(TxnDigest { version, digest }) = self.digest {
            out.put_int(version);
            out.put_long(digest.cast_signed());
        }
    }
}

fn decode_multi(reader: &mut Reader) -> Result<TxnBody, Malformed> {
    // A type, and the length of a body.
    let count = reader.count("txns", 8)?.unwrap_or(0);
    let mut subs = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = reader.int("type")?;
        let mut body = Reader::new(reader.buffer("data")?.unwrap_or_default());
        let sub = SubTxn { kind, body: decode_body(kind, &mut body)? };
        // A server that has applied a multi that failed makes errors of all its operations and leaves their bodies as
        // they were: so they are in what it sends and what others log, and the first four bytes are read for the error.
        if body.remaining() > 0 && kind != kind::ERROR {
            return Err(Malformed::new("txns", "have bytes behind their end"));
        }
        subs.push(sub);
    }
    Ok(TxnBody::Multi(subs))
}

fn decode_body(kind: i32, reader: &mut Reader) -> Result<TxnBody, Malformed> {
    Ok(match kind {
        kind::CREATE_SESSION => TxnBody::CreateSession { timeout_ms: reader.int("timeOut")? },
        kind::CLOSE_SESSION => TxnBody::CloseSession { paths: decode_paths(reader)? },
        kind::ERROR => TxnBody::Error { code: reader.int("err")? },
        kind::CREATE | kind::CREATE2 | kind::CREATE_CONTAINER | kind::CREATE_TTL => {
            TxnBody::Create(decode_create(kind, reader)?)
        }
        kind::DELETE | kind::DELETE_CONTAINER => TxnBody::Delete { path: reader.string("path")? },
        kind::SET_DATA | kind::RECONFIG => TxnBody::SetData {
            path: reader.string("path")?,
            data: reader.buffer("data")?,
            version: reader.int("version")?,
        },
        kind::SET_ACL => TxnBody::SetAcl {
            path: reader.string("path")?,
            acl: Acl::decode_list(reader)?.unwrap_or_default(),
            version: reader.int("version")?,
        },
        kind::CHECK => {
            TxnBody::Check { path: reader.string("path")?, version: reader.int("version")? }
        }
        _ => {
            return Err(Malformed::new(
                "type",
                "is no kind of transaction that this version knows",
            ));
        }
    })
}

/// A list, nothing (before 3.6), or, where ZooKeeper was told to write none, nothing in front of the digest.
fn decode_paths(reader: &mut Reader) -> Result<Option<Vec<Text>>, Malformed> {
    if reader.remaining() == 0 {
        return Ok(None);
    }
    let mut ahead = reader.clone();
    let paths = ahead.strings("paths2Delete");
    if paths.is_ok() && [0, DIGEST_BYTES].contains(&ahead.remaining()) {
        *reader = ahead;
        return paths.map(Some);
    }
    if reader.remaining() == DIGEST_BYTES {
        return Ok(None);
    }
    paths.map(Some)
}

fn decode_create(kind: i32, reader: &mut Reader) -> Result<CreateTxn, Malformed> {
    let path = reader.string("path")?;
    let data = reader.buffer("data")?;
    let acl = Acl::decode_list(reader)?.unwrap_or_default();
    let (lifetime, parent_cversion) = match kind {
        kind::CREATE_CONTAINER => (Lifetime::Container, reader.int("parentCVersion")?),
        kind::CREATE_TTL => {
            let parent_cversion = reader.int("parentCVersion")?;
            (Lifetime::Ttl(reader.long("ttl")?), parent_cversion)
        }
        _ => {
            let is_ephemeral = reader.boolean("ephemeral")?;
            let lifetime = if is_ephemeral { Lifetime::Ephemeral } else { Lifetime::Persistent };
            let is_old = reader.remaining() == 0;
            (lifetime, if is_old { -1 } else { reader.int("parentCVersion")? })
        }
    };
    Ok(CreateTxn { path, data, acl, lifetime, parent_cversion })
}

fn encode_body(body: &TxnBody, out: &mut Vec<u8>) {
    match body {
        TxnBody::CreateSession { timeout_ms } => out.put_int(*timeout_ms),
        TxnBody::CloseSession { paths: None } => {}
        TxnBody::CloseSession { paths: Some(paths) } => {
            out.put_int(wire_len(paths.len()));
            paths.iter().for_each(|path| out.put_string(path.as_str()));
        }
        TxnBody::Error { code } => out.put_int(*code),
        TxnBody::Create(create) => {
            out.put_string(create.path.as_str());
            out.put_buffer(create.data.as_deref());
            Acl::encode_list(&create.acl, out);
            match create.lifetime {
                Lifetime::Persistent => out.put_bool(false),
                Lifetime::Ephemeral => out.put_bool(true),
                Lifetime::Container | Lifetime::Ttl(_) => {}
            }
            out.put_int(create.parent_cversion);
            if let Lifetime::Ttl(ttl_ms) = create.lifetime {
                out.put_long(ttl_ms);
            }
        }
        TxnBody::Delete { path } => out.put_string(path.as_str()),
        TxnBody::SetData { path, data, version } => {
            out.put_string(path.as_str());
            out.put_buffer(data.as_deref());
            out.put_int(*version);
        }
        TxnBody::SetAcl { path, acl, version } => {
            out.put_string(path.as_str());
            Acl::encode_list(acl, out);
            out.put_int(*version);
        }
        TxnBody::Check { path, version } => {
            out.put_string(path.as_str());
            out.put_int(*version);
        }
        TxnBody::Multi(subs) => {
            out.put_int(wire_len(subs.len()));
            for sub in subs {
                out.put_int(sub.kind);
                let mut bytes = Vec::new();
                // No deeper than this: decoding gives no multi inside of a multi.
                if !matches!(sub.body, TxnBody::Multi(_)) {
                    encode_body(&sub.body, &mut bytes);
                }
                out.put_buffer(Some(&bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(kind: i32, body: TxnBody) -> Txn {
        let header = TxnHeader { client_id: 7, cxid: 3, zxid: 0x1_0000_0002, time_ms: 99, kind };
        Txn { header, body, digest: None }
    }

    fn create(path: &str, lifetime: Lifetime) -> CreateTxn {
        CreateTxn {
            path: path.into(),
            data: Some(Bytes::from_static(b"data")),
            acl: vec![Acl::open()],
            lifetime,
            parent_cversion: 4,
        }
    }

    fn all() -> Vec<Txn> {
        let path = Text::from_static("/a");
        vec![
            txn(kind::CREATE_SESSION, TxnBody::CreateSession { timeout_ms: 4000 }),
            txn(kind::CLOSE_SESSION, TxnBody::CloseSession { paths: None }),
            txn(kind::CLOSE_SESSION, TxnBody::CloseSession { paths: Some(vec![path.clone()]) }),
            txn(kind::ERROR, TxnBody::Error { code: -101 }),
            txn(kind::CREATE, TxnBody::Create(create("/p", Lifetime::Persistent))),
            txn(kind::CREATE2, TxnBody::Create(create("/e", Lifetime::Ephemeral))),
            txn(kind::CREATE_CONTAINER, TxnBody::Create(create("/c", Lifetime::Container))),
            txn(kind::CREATE_TTL, TxnBody::Create(create("/t", Lifetime::Ttl(5000)))),
            txn(kind::DELETE, TxnBody::Delete { path: path.clone() }),
            txn(kind::DELETE_CONTAINER, TxnBody::Delete { path: path.clone() }),
            txn(kind::SET_DATA, TxnBody::SetData { path: path.clone(), data: None, version: 2 }),
            txn(
                kind::SET_ACL,
                TxnBody::SetAcl { path: path.clone(), acl: vec![Acl::open()], version: 1 },
            ),
            txn(
                kind::MULTI,
                TxnBody::Multi(vec![
                    SubTxn { kind: kind::CHECK, body: TxnBody::Check { path, version: 1 } },
                    SubTxn { kind: kind::ERROR, body: TxnBody::Error { code: -2 } },
                    SubTxn {
                        kind: kind::CREATE2,
                        body: TxnBody::Create(create("/m", Lifetime::Persistent)),
                    },
                ]),
            ),
        ]
    }

    fn encoded(txn: &Txn) -> Vec<u8> {
        let mut bytes = Vec::new();
        txn.encode(&mut bytes);
        bytes
    }

    #[test]
    fn every_kind_reads_back_with_and_without_a_digest() {
        for mut txn in all() {
            assert_eq!(Txn::decode(encoded(&txn).into()).as_ref(), Ok(&txn));
            txn.digest = Some(TxnDigest { version: 2, digest: 0xfedc_ba98_7654_3210 });
            assert_eq!(Txn::decode(encoded(&txn).into()).as_ref(), Ok(&txn));
        }
    }

    #[test]
    fn a_create_of_an_old_log_counts_one_more_child() {
        let txn = txn(kind::CREATE, TxnBody::Create(create("/p", Lifetime::Ephemeral)));
        let mut bytes = encoded(&txn);
        bytes.truncate(bytes.len() - 4);
        let TxnBody::Create(read) = Txn::decode(bytes.into()).unwrap().body else { panic!() };
        assert_eq!((read.parent_cversion, read.lifetime), (-1, Lifetime::Ephemeral));
    }

    /// As a leader of ZooKeeper 3.9.4 sent it to a server that was behind: a check, and two writes.
    #[test]
    fn operations_of_a_failed_multi_keep_their_bodies_under_the_type_of_an_error() {
        let mut bytes = Vec::new();
        bytes.put_long(1);
        bytes.put_int(39);
        bytes.put_long(0x1_0000_0c07);
        bytes.put_long(1_795_858_918_596);
        bytes.put_int(kind::MULTI);
        bytes.put_int(3);
        for body in [&b"\0\0\0\x05/live\0\0\0\x01"[..], b"\xff\xff\xff\x99", b"\xff\xff\xff\xfe"] {
            bytes.put_int(kind::ERROR);
            bytes.put_int(i32::try_from(body.len()).unwrap());
            bytes.extend_from_slice(body);
        }
        let read = Txn::decode(Bytes::from(bytes)).unwrap();
        let TxnBody::Multi(subs) = read.body else { panic!("{read:?}") };
        assert_eq!(subs.len(), 3);
        assert!(subs.iter().all(|sub| sub.kind == kind::ERROR));
        assert_eq!(subs[1].body, TxnBody::Error { code: -103 });
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        for txn in all() {
            let bytes = encoded(&txn);
            for bit in 0..bytes.len() * 8 {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(read) = Txn::decode(bytes.into()) {
                    assert_eq!(Txn::decode(encoded(&read).into()), Ok(read));
                }
            }
            for len in 0..bytes.len() {
                let _ = Txn::decode(Bytes::copy_from_slice(&bytes[..len]));
            }
        }
    }
}
