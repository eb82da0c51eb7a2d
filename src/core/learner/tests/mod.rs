//! What the tests share: a leader that says what it is told to say, and what a learner makes of it.

mod following;
mod hostile;
mod joining;
mod login;
mod recorded;

use bytes::Bytes;

use super::packet::{self, kind};
use super::{Ended, Event, Joining, Learner};
use crate::proto::{Acl, Reader, Text, Writer as _};
use crate::zookeeper::snapshot::{OPEN_ACL_KEY, put_acls, put_end, put_node, put_sessions};
use crate::zookeeper::txn::kind as txn_kind;
use crate::zookeeper::{StatPersisted, Txn, TxnBody, TxnHeader};

const EPOCH: i64 = 5;
const BASE: i64 = EPOCH << 32;

fn joining(from_zxid: i64) -> Joining {
    Joining { server_id: 201, from_zxid, accepted_epoch: from_zxid >> 32, login: None }
}

/// Bytes of a leader.
#[derive(Clone, Debug, Default)]
struct Said(Vec<u8>);

impl Said {
    fn packet(mut self, kind: i32, zxid: i64, data: Option<&[u8]>) -> Self {
        packet::put(kind, zxid, data, None, &mut self.0);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn led() -> Self {
        Self::default().packet(kind::LEADER_INFO, BASE, Some(&[0, 1, 0, 0]))
    }

    fn diff(self, zxid: i64) -> Self {
        self.packet(kind::DIFF, zxid, None)
    }

    fn snapshot(self, zxid: i64) -> Self {
        self.packet(kind::SNAP, zxid, None).raw(&body()).raw(b"\0\0\0\x0aBenWasHere")
    }

    fn propose(self, zxid: i64) -> Self {
        self.packet(kind::PROPOSAL, zxid, Some(&txn_bytes(zxid)))
    }

    fn commit(self, zxid: i64) -> Self {
        self.packet(kind::COMMIT, zxid, None)
    }

    fn inform(self, zxid: i64) -> Self {
        self.packet(kind::INFORM, zxid, Some(&txn_bytes(zxid)))
    }

    fn new_leader(self) -> Self {
        self.packet(kind::NEW_LEADER, BASE, Some(b"version=1"))
    }

    fn up_to_date(self) -> Self {
        self.packet(kind::UP_TO_DATE, -1, None)
    }

    fn ping(self, zxid: i64) -> Self {
        self.packet(kind::PING, zxid, None)
    }
}

/// A request that failed: the shortest transaction.
fn txn(zxid: i64) -> Txn {
    let header = TxnHeader { client_id: 7, cxid: 1, zxid, time_ms: 9, kind: txn_kind::ERROR };
    Txn { header, body: TxnBody::Error { code: -101 }, digest: None }
}

fn txn_bytes(zxid: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    txn(zxid).encode(&mut bytes);
    bytes
}

/// Of a snapshot: two sessions, a list, three znodes.
fn body() -> Vec<u8> {
    let mut out = Vec::new();
    put_sessions(&[(7, 4000), (-9, 30_000)], &mut out);
    let list = [Acl { perms: 1, ..Acl::open() }];
    put_acls([(3, &list[..])].into_iter(), &mut out);
    let stat = StatPersisted { czxid: 1, mzxid: 2, pzxid: 3, ..StatPersisted::default() };
    put_node("/", Some(b""), OPEN_ACL_KEY, &stat, &mut out);
    put_node("/a", None, 3, &stat, &mut out);
    put_node("/a/b", Some(&[1; 300]), OPEN_ACL_KEY, &stat, &mut out);
    put_end(&mut out);
    out
}

fn committed(zxid: i64) -> Event {
    Event::Committed { txn: txn(zxid), bytes: txn_bytes(zxid).into(), designated: None }
}

fn caught_up() -> Event {
    Event::CaughtUp { config: Some(Bytes::from_static(b"version=1")) }
}

const LED: Event = Event::Led { epoch: EPOCH };

/// Feeds bytes in portions, and gives what came of them; the pieces of a snapshot are put together.
fn fed(learner: &mut Learner, bytes: &[u8], portion: usize) -> (Vec<Event>, Option<Ended>) {
    let mut events: Vec<Event> = Vec::new();
    for portion in bytes.chunks(portion) {
        learner.feed(portion, 0);
        loop {
            match (learner.next_event(), events.last_mut()) {
                (Ok(None), _) => break,
                (Ok(Some(Event::SnapshotBytes(more))), Some(Event::SnapshotBytes(bytes))) => {
                    *bytes = [&bytes[..], &more[..]].concat().into();
                }
                (Ok(Some(event)), _) => events.push(event),
                (Err(ended), _) => return (events, Some(ended)),
            }
        }
    }
    (events, None)
}

/// What a learner that joins behind `from_zxid` makes of it.
fn heard_of(from_zxid: i64, said: &Said) -> (Vec<Event>, Option<Ended>) {
    fed(&mut Learner::new(joining(from_zxid), 0), &said.0, usize::MAX)
}

/// How the connection ends.
fn end_of(from_zxid: i64, said: &Said) -> Ended {
    heard_of(from_zxid, said).1.expect("it ends")
}

/// One that follows, having sent what is sent up to there.
fn following() -> Learner {
    let mut learner = Learner::new(joining(BASE + 7), 0);
    let said = Said::led().diff(BASE + 7).new_leader().up_to_date();
    let (events, ended) = fed(&mut learner, &said.0, usize::MAX);
    assert_eq!((events, ended), (vec![LED, caught_up(), Event::UpToDate], None));
    let _ = learner.take_output();
    learner
}

/// A packet that a learner sends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    kind: i32,
    zxid: i64,
    data: Option<Vec<u8>>,
    identities: Option<Vec<(Text, Text)>>,
}

impl Sent {
    fn bare(kind: i32, zxid: i64, data: Option<&[u8]>) -> Self {
        Self { kind, zxid, data: data.map(<[u8]>::to_vec), identities: None }
    }
}

fn sent(learner: &mut Learner) -> Vec<Sent> {
    packets(learner.take_output())
}

fn packets(bytes: Vec<u8>) -> Vec<Sent> {
    let mut reader = Reader::new(bytes.into());
    let mut found = Vec::new();
    while reader.remaining() > 0 {
        let (kind, zxid) = (reader.int("kind").unwrap(), reader.long("zxid").unwrap());
        let data = reader.buffer("data").unwrap().map(|data| data.to_vec());
        let identities = reader.count("authinfo", 8).unwrap().map(|count| {
            let mut text = || reader.string("authinfo").unwrap();
            (0..count).map(|_| (text(), text())).collect()
        });
        found.push(Sent { kind, zxid, data, identities });
    }
    found
}
