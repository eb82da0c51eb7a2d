//! What a server that was on its own finds on its disk: made and read by the replica itself, once.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};

use lockkeeper_core::proto::request::{Create, CreateKind, Request};
use lockkeeper_core::proto::{Acl, ConnectRequest, RequestHeader};
use lockkeeper_core::replica::founding::{Identified, Past};
use lockkeeper_core::replica::{
    ClientRequest, Entry, HardState, Input, Machine, Replica, Restore as _, Restored, Setup,
};

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    Member,
    Served { znodes: u64 },
    Unused,
}

thread_local! {
    /// What was found without and with a state, by the bug that was planted meanwhile.
    static KNOWN: RefCell<Vec<(Option<&'static str>, [Found; 2])>> = const { RefCell::new(Vec::new()) };
}

#[cfg(feature = "mutants")]
fn planted() -> Option<&'static str> {
    lockkeeper_core::mutants::planted()
}

#[cfg(not(feature = "mutants"))]
fn planted() -> Option<&'static str> {
    None
}

/// The replica's word for the data of a server on its own, with or without a write in it.
pub fn read(identity: &Identified, has_state: bool) -> Found {
    let bug = planted();
    let of = |known: &[(Option<&str>, [Found; 2])]| {
        known.iter().find(|(of, _)| *of == bug).map(|(_, found)| found[usize::from(has_state)])
    };
    if let Some(found) = KNOWN.with_borrow(|known| of(known)) {
        return found;
    }
    let found = [false, true].map(|has_state| make(identity, has_state));
    KNOWN.with_borrow_mut(|known| known.push((bug, found)));
    found[usize::from(has_state)]
}

fn make(identity: &Identified, has_state: bool) -> Found {
    let setup = Setup { raft_id: identity.raft_id, ..Setup::default() };
    let restored = Restored { membership: identity.initial.clone(), ..Restored::default() };
    let machine = Machine::fresh(Default::default());
    let mut replica = Replica::new(setup, machine, restored).expect("a fresh disk");
    let (mut entries, mut hard_state) = (Vec::new(), HardState::default());
    replica.step(Input::Tick { now_us: 1_000_000, wall_ms: 1_000_000 });
    turn(&mut replica, &mut entries, &mut hard_state);
    if has_state {
        for input in [connect(), create()] {
            replica.step(input);
            turn(&mut replica, &mut entries, &mut hard_state);
        }
    }
    let mut machine = Machine::fresh(Default::default());
    let commit = usize::try_from(hard_state.commit).expect("a short log");
    for entry in &entries[..commit] {
        machine.entry(entry).expect("it was applied before");
    }
    let applied = entries[..commit].last().map_or((0, 0), |last| (last.index, last.term));
    let restored = Restored {
        hard_state,
        membership: identity.initial.clone(),
        image: None,
        begun_after: (0, 0),
        applied: applied.0,
        applied_term: applied.1,
        tail: entries.split_off(commit),
    };
    match Past::of(identity.raft_id, &machine, &restored) {
        Past::Member => Found::Member,
        Past::Served { znodes } => Found::Served { znodes },
        Past::Unused => Found::Unused,
    }
}

fn turn(replica: &mut Replica, entries: &mut Vec<Entry>, hard_state: &mut HardState) {
    while let Some(ready) = replica.ready().expect("no broken invariant") {
        let Some(append) = ready.append else { continue };
        entries.extend(append.entries);
        *hard_state = append.hard_state.unwrap_or(*hard_state);
        replica.persisted(append.number);
    }
}

fn connect() -> Input {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 40_000,
        session_id: 0,
        password: bytes::Bytes::new(),
        read_only: None,
    };
    let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Input::Connected { conn: 1, remote, remote_port: 1, proven: Vec::new(), request }
}

fn create() -> Input {
    let request = Request::Create(Create {
        path: "/kept".into(),
        data: Some(bytes::Bytes::new()),
        acl: Some(vec![Acl::open()]),
        flags: 0,
        ttl_ms: 0,
        kind: CreateKind::Create,
    });
    let mut payload = Vec::new();
    RequestHeader { xid: 1, op: request.op() as i32 }.encode(&mut payload);
    request.encode(&mut payload);
    let request = ClientRequest::decode(payload.into()).expect("it has a header");
    Input::Requests { conn: 1, requests: vec![request] }
}
