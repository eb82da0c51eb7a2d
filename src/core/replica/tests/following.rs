//! What clients of a server that follows another ensemble see of its members, and may do to them.

use super::*;
use crate::proto::request::SetWatches;
use crate::proto::{MultiOp, MultiResult, RequestHeader, Response, Stat, Text};
use crate::replica::clients::{Authentication, Clients, Connection, Phase, Rules};
use crate::replica::machine::{Identities, MigrateOp, Origin, Txn, TxnOp};
use crate::sasl::SaslSetup;
use crate::zookeeper::txn::kind;
use crate::zookeeper::{StatPersisted, Txn as ForeignTxn, TxnBody, TxnHeader, snapshot};

const CONFIG: &str = "/zookeeper/config";
const THEIRS: &str = "server.1=zk:1:2:participant;0.0.0.0:2181\nversion=500000001";
const CONN: ConnId = 1;

/// A state, and a client that reads it.
struct Rig {
    machine: Machine,
    clients: Clients,
}

impl Rig {
    /// That of an ensemble with these server lines, which follows one with other members.
    fn following(own: &str) -> Self {
        let setup = Setup { reconfig_enabled: true, ..Setup::default() };
        let authentication = Authentication::new(SaslSetup::default(), Vec::new(), [0; 32]);
        let mut clients = Clients::new(Rules::of(&setup), authentication, 0);
        let mut connection =
            Connection::new(CONN, (IpAddr::V4(Ipv4Addr::LOCALHOST), 1), Vec::new(), (0, 0));
        (connection.phase, connection.session) = (Phase::Open, Some(7));
        clients.opened(CONN, connection);
        let mut rig = Self { machine: Machine::fresh(Options::default()), clients };
        if !own.is_empty() {
            rig.apply(TxnOp::Found { members: own.into(), opens_term: true });
        }
        let (quorum, clients) = (vec!["zk:2888".into()], Vec::new());
        rig.apply(TxnOp::Migrate(MigrateOp::Follow { server_id: 200, quorum, clients }));
        rig.apply(TxnOp::Migrate(MigrateOp::SnapshotBegins { is_for_comparison: false }));
        let mut bytes = Vec::new();
        snapshot::put_sessions(&[(7, 4000)], &mut bytes);
        snapshot::put_acls(std::iter::empty::<(i64, &[Acl])>(), &mut bytes);
        snapshot::put_node("", Some(b""), -1, &StatPersisted::default(), &mut bytes);
        snapshot::put_end(&mut bytes);
        rig.apply(TxnOp::Migrate(MigrateOp::SnapshotPart(bytes.into())));
        rig.apply(TxnOp::Migrate(MigrateOp::SnapshotEnds { zxid: 5 << 32 }));
        rig.apply(TxnOp::Migrate(MigrateOp::Linked { epoch: 5 }));
        rig.reconfigured(1);
        assert_eq!(rig.machine.tree().config_text(), THEIRS);
        rig
    }

    fn apply(&mut self, op: TxnOp) {
        let origin = Origin::default();
        let txn = Txn { origin, session: 0, cxid: 0, ids: Identities::new(), op };
        let applied = self.machine.apply(1, &txn);
        assert!(applied.result.is_ok(), "{:?}: {:?}", txn.op, applied.result);
        self.clients.notify(&self.machine, &applied, (None, 0, 0));
    }

    /// ZooKeeper's members are changed.
    fn reconfigured(&mut self, counter: i64) {
        let kind = kind::RECONFIG;
        let header = TxnHeader { client_id: 0, cxid: 0, zxid: 5 << 32 | counter, time_ms: 9, kind };
        let (path, data) = (CONFIG.into(), Some(Bytes::from_static(THEIRS.as_bytes())));
        let body = TxnBody::SetData { path, data, version: -1 };
        self.apply(TxnOp::Foreign(Box::new(ForeignTxn { header, body, digest: None })));
    }

    /// The answer: its error and what is behind that. `None`: it sets out for who decides.
    fn ask(&mut self, request: &Request) -> Option<(i32, Reader)> {
        let mut payload = Vec::new();
        RequestHeader { xid: 1, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        let request = ClientRequest::decode(payload.into()).unwrap();
        let decider = self.machine.decider();
        if self.clients.request(&self.machine, decider, CONN, request).is_some() {
            return None;
        }
        let mut answers = self.frames();
        let mut reader = answers.pop().expect("an answer");
        let header = ReplyHeader::decode(&mut reader).unwrap();
        assert!(answers.is_empty() && header.xid == 1);
        Some((header.err, reader))
    }

    fn frames(&mut self) -> Vec<Reader> {
        let mut frames = Vec::new();
        for outgoing in self.clients.take_output() {
            let mut bytes = BytesMut::from(&outgoing.frames[..]);
            while let Some(payload) = frame::next(&mut bytes, usize::MAX).unwrap() {
                frames.push(Reader::new(payload));
            }
        }
        frames
    }

    fn read(&mut self) -> (String, Stat) {
        let (err, mut reader) = self.ask(&get(CONFIG, true)).expect("a read");
        let data = reader.buffer("data").unwrap().unwrap();
        assert_eq!(err, 0);
        (String::from_utf8(data.to_vec()).unwrap(), Stat::decode(&mut reader).unwrap())
    }

    /// Events since the last look.
    fn events(&mut self) -> usize {
        let headers = self.frames().into_iter().map(|mut it| ReplyHeader::decode(&mut it).unwrap());
        headers.filter(|header| header.xid == -1).count()
    }
}

const OWN: &str = "server.1=own:1:2:participant;0.0.0.0:2181\n";

fn own_text() -> String {
    format!("{OWN}version=100000000")
}

#[test]
fn a_client_sees_the_members_of_the_ensemble_that_serves_it_and_not_of_the_one_that_decides() {
    let mut rig = Rig::following(OWN);
    let digest = rig.machine.digest();
    let (text, stat) = rig.read();
    assert_eq!(text, own_text());
    let of_state = rig.machine.tree().stat_unchecked(CONFIG).unwrap();
    assert_eq!(stat, Stat { data_length: text.len().try_into().unwrap(), ..of_state });
    let (_, mut exists) = rig.ask(&Request::Exists { path: CONFIG.into(), watch: false }).unwrap();
    assert_eq!(Stat::decode(&mut exists).unwrap(), stat);
    let one = vec![ReadOp::GetData { path: CONFIG.into() }];
    let (_, results) = rig.ask(&Request::MultiRead(one)).unwrap();
    let mut expected = Vec::new();
    let read = MultiResult::GetData { data: Some(text.into()), stat };
    Response::Multi(vec![read]).encode(&mut expected);
    assert_eq!(results.rest(), expected);
    assert_eq!(rig.machine.digest(), digest);
}

#[test]
fn without_server_lines_it_is_empty_which_clients_ignore() {
    let mut rig = Rig::following("");
    let (text, stat) = rig.read();
    assert_eq!((text.as_str(), stat.data_length), ("", 0));
}

#[test]
fn a_watch_of_the_members_fires_when_what_is_shown_changes_and_not_when_the_other_ensemble_changes()
{
    let mut rig = Rig::following(OWN);
    let (before, _) = rig.read();
    rig.reconfigured(2);
    assert_eq!((rig.events(), rig.read().0), (0, before));
    rig.apply(TxnOp::Migrate(MigrateOp::CutOver));
    assert_eq!(rig.events(), 1);
    let (text, stat) = rig.read();
    assert_eq!(text, format!("{OWN}version={:x}", stat.mzxid));
    assert_eq!(text, rig.machine.tree().config_text());
}

#[test]
fn a_client_that_comes_with_a_watch_of_the_members_reads_them_anew() {
    let mut rig = Rig::following(OWN);
    let data = vec![Text::from_static(CONFIG)];
    let watches =
        SetWatches { relative_zxid: rig.machine.last_zxid(), data, ..SetWatches::default() };
    let set = Request::SetWatches { watches, two: false };
    let mut payload = Vec::new();
    RequestHeader { xid: -8, op: set.op() as i32 }.encode(&mut payload);
    set.encode(&mut payload);
    let request = ClientRequest::decode(payload.into()).unwrap();
    let decider = rig.machine.decider();
    assert!(rig.clients.request(&rig.machine, decider, CONN, request).is_none());
    assert_eq!(rig.events(), 1);
}

#[test]
fn no_client_changes_members_from_here_while_the_other_ensemble_decides() {
    let mut rig = Rig::following(OWN);
    let disabled = ErrorCode::ReconfigDisabled as i32;
    let joining = Some(Text::from_static("server.2=b:1:2;9"));
    let reconfig = Request::Reconfig { joining, leaving: None, members: None, version: -1 };
    for request in [&reconfig, &set(CONFIG)] {
        assert_eq!(rig.ask(request).map(|(err, _)| err), Some(disabled));
    }
    let sets = |path: &str| MultiOp::SetData { path: path.into(), data: None, version: -1 };
    let (err, results) = rig.ask(&Request::Multi(vec![sets("/a"), sets(CONFIG)])).unwrap();
    let mut expected = Vec::new();
    Response::Multi(crate::tree::multi_failure(1, ErrorCode::ReconfigDisabled, 2))
        .encode(&mut expected);
    assert_eq!((err, &results.rest()[..]), (0, &expected[..]));
    assert!(rig.ask(&set("/a")).is_none(), "that is ZooKeeper's to decide");
}
