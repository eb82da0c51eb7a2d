//! No setting of a server decides an entry that carries rules: two machines whose settings are all different come to
//! the same results and digests.
//!
//! A new field of [`Options`] or [`Rules`] does not compile here until the other machine has another value of it.

use bytes::Bytes;

use super::state::{Machine, SessionChange, open_entry};
use super::txn::{BatchBuilder, EntryTime, Origin, TxnOp, stamp};
use super::version;
use crate::proto::request::{Create, CreateKind, Request};
use crate::proto::{Acl, MultiOp};
use crate::replica::durable::{Entry, EntryKind};
use crate::tree::acl::Identity;
use crate::tree::{Options, Rules};

/// Nothing as in `options`.
fn opposite(options: &Options) -> Options {
    let Options { rules, super_digest, legacy_digest, hash_seed } = options.clone();
    let Rules { extended_types, enforce_quota, skip_acl, digest_auth } = rules;
    Options {
        rules: Rules {
            extended_types: !extended_types,
            enforce_quota: !enforce_quota,
            skip_acl: !skip_acl,
            digest_auth: !digest_auth,
        },
        super_digest: super_digest.map_or_else(|| Some("super:x".to_owned()), |_| None),
        legacy_digest: !legacy_digest,
        hash_seed: !hash_seed,
    }
}

/// Every combination of rules.
fn all_rules() -> Vec<Rules> {
    let is = |number: u8, bit: u8| number & bit != 0;
    let rules = |number| Rules {
        extended_types: is(number, 1),
        enforce_quota: is(number, 2),
        skip_acl: is(number, 4),
        digest_auth: is(number, 8),
    };
    (0..16).map(rules).collect()
}

fn create(kind: CreateKind, path: &str, acl: Acl) -> Request {
    let (flags, ttl_ms) = match kind {
        CreateKind::Ttl => (5, 1000),
        CreateKind::Container => (4, 0),
        CreateKind::Create | CreateKind::Create2 => (0, 0),
    };
    let data = Some(Bytes::from_static(b"12345"));
    Request::Create(Create { kind, path: path.into(), data, acl: Some(vec![acl]), flags, ttl_ms })
}

/// Requests of which each rule decides some.
fn requests() -> Vec<Request> {
    let plain = |path: &str| create(CreateKind::Create, path, Acl::open());
    let digest = |perms, id: &str| Acl { perms, scheme: "digest".into(), id: id.into() };
    let limits = |path: &str, data: &'static str| {
        Request::Create(Create {
            kind: CreateKind::Create,
            path: path.into(),
            data: Some(Bytes::from_static(data.as_bytes())),
            acl: Some(vec![Acl::open()]),
            flags: 0,
            ttl_ms: 0,
        })
    };
    let set = |path: &str| Request::SetData {
        path: path.into(),
        data: Some(Bytes::from_static(b"another value, a long one")),
        version: -1,
    };
    let delete = |path: &str| Request::Delete { path: path.into(), version: -1 };
    vec![
        plain("/q"),
        plain("/zookeeper/quota/q"),
        limits(
            "/zookeeper/quota/q/zookeeper_limits",
            "count=-1,bytes=-1=;byteHardLimit=9;countHardLimit=2",
        ),
        limits("/zookeeper/quota/q/zookeeper_stats", "count=0,bytes=0"),
        plain("/q/a"),
        plain("/q/b"),
        set("/q"),
        create(CreateKind::Ttl, "/ttl", Acl::open()),
        create(CreateKind::Container, "/container", Acl::open()),
        create(CreateKind::Create2, "/own", digest(31, "u:x")),
        create(CreateKind::Create, "/others", digest(31, "v:y")),
        create(CreateKind::Create, "/read", Acl { perms: 1, ..Acl::open() }),
        create(
            CreateKind::Create,
            "/auth",
            Acl { perms: 31, scheme: "auth".into(), id: "".into() },
        ),
        set("/own"),
        set("/others"),
        set("/auth"),
        plain("/others/below"),
        plain("/read/below"),
        Request::SetAcl { path: "/read".into(), acl: Some(vec![digest(1, "w:z")]), version: -1 },
        Request::Multi(vec![
            MultiOp::Check { path: "/own".into(), version: 0 },
            MultiOp::Delete { path: "/others".into(), version: -1 },
        ]),
        delete("/own"),
        delete("/ttl"),
    ]
}

fn entry(index: u64, session: i64, op: &TxnOp, rules: Rules) -> Entry {
    let mut batch = BatchBuilder::default();
    let digest = Identity { scheme: "digest".into(), id: "u:x".into() };
    batch.push(Origin::default(), session, 0, &[digest], op);
    let mut data = batch.take();
    let time = EntryTime { wall_ms: 1_700_000_000_000, is_agreed: true, steady_ms: Some(1) };
    stamp(&mut data, &time, rules, version::SECOND);
    Entry { term: 1, index, kind: EntryKind::Normal, data: data.into() }
}

/// Results, digests and events of all requests, decided by the rules of their entries.
fn outcomes(machine: &mut Machine, rules: Rules) -> Vec<String> {
    let (mut session, mut outcomes) = (1 << 56, Vec::new());
    let open = TxnOp::OpenSession { timeout_ms: 4000, password: Some([7; 16]) };
    let requests = requests().into_iter().map(|request| {
        let mut body = Vec::new();
        request.encode(&mut body);
        TxnOp::Client { op: request.op() as i32, body: body.into() }
    });
    let last = [TxnOp::Reap { path: "/container".into() }, TxnOp::CloseSession];
    for (index, op) in (1..).zip([open].into_iter().chain(requests).chain(last)) {
        let entry = entry(index, session, &op, rules);
        for txn in open_entry(machine, &entry).unwrap() {
            let applied = machine.apply(entry.term, &txn);
            if let Some(SessionChange::Opened(id, _)) = applied.session_change {
                session = id;
            }
            outcomes.push(format!("{applied:?} {:032x}", machine.digest()));
        }
    }
    outcomes
}

#[test]
fn the_rules_of_the_entry_decide_and_no_setting_of_the_server() {
    let here = Options::default();
    let there = opposite(&here);
    let mut different = std::collections::BTreeSet::new();
    for rules in all_rules() {
        let (mut one, mut other) = (Machine::fresh(here.clone()), Machine::fresh(there.clone()));
        let outcomes_here = outcomes(&mut one, rules);
        assert_eq!(outcomes_here, outcomes(&mut other, rules), "{rules:?}");
        different.insert(outcomes_here);
    }
    assert_eq!(different.len(), 16, "each rule decides something of this");
}
