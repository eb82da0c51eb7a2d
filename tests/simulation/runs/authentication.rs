//! Deliberate bugs of authentication, each of which a check here must catch:
//! `cargo test -p lockkeeper-simulation-runs --features mutants authentication`.
//!
//! *Owns* the catalogue and its checks, which drive the core in the test's own thread, where a bug is planted.
//! *Invariant*: without a bug every check passes.

use std::net::IpAddr;
use std::panic::catch_unwind;

use lockkeeper_core::mutants;
use lockkeeper_core::proto::ConnectRequest;
use lockkeeper_core::replica::{ClientRequest, Input, Machine, Replica, Restored, Setup};
use lockkeeper_core::sasl::SaslUsers;
use lockkeeper_core::sasl::{Negotiation, Refused, Step};
use lockkeeper_core::tree::Options as TreeOptions;

/// A deliberate bug.
struct Mutant {
    /// As `mutant!` has it.
    name: &'static str,
    /// What has to fail because of it.
    check: fn(),
}

const CATALOGUE: [Mutant; 2] = [
    Mutant { name: "sasl-any-response", check: a_wrong_response_is_refused },
    Mutant { name: "enforces-no-scheme", check: a_client_that_has_proved_nothing_is_turned_away },
];

fn a_wrong_response_is_refused() {
    let mut users = SaslUsers::default();
    users.add("bob", "bobsecret").unwrap();
    for user in ["bob", "eve"] {
        let mut negotiation = Negotiation::default();
        let step = negotiation.step(b"", &users, || [7; 24]).unwrap();
        let Step::Challenge(challenge) = step else { panic!("no challenge: {step:?}") };
        let challenge = String::from_utf8(challenge).unwrap();
        let (_, rest) = challenge.split_once("nonce=\"").unwrap();
        let (nonce, _) = rest.split_once('"').unwrap();
        let response = "0".repeat(32);
        let said = format!(
            "username=\"{user}\",realm=\"zk-sasl-md5\",nonce=\"{nonce}\",nc=00000001,cnonce=\"c\",qop=auth,\
             digest-uri=\"zookeeper/zk-sasl-md5\",response={response}"
        );
        let step = negotiation.step(said.as_bytes(), &users, || panic!("no second challenge"));
        assert_eq!(step, Err(Refused), "{user}");
    }
}

/// What the replica sends.
fn turn(replica: &mut Replica) -> Vec<u8> {
    let mut sent = Vec::new();
    while let Some(ready) = replica.ready().unwrap() {
        for outgoing in ready.client {
            sent.extend_from_slice(&outgoing.frames);
        }
        if let Some(append) = ready.append {
            replica.persisted(append.number);
        }
    }
    sent
}

fn a_client_that_has_proved_nothing_is_turned_away() {
    let setup = Setup { enforced_schemes: vec!["sasl".to_owned()], ..Setup::default() };
    let machine = Machine::fresh(TreeOptions::default());
    let mut replica = Replica::new(setup, machine, Restored::default()).unwrap();
    replica.step(Input::Tick { now_us: 50_000, wall_ms: 1_700_000_000_000 });
    turn(&mut replica);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 10_000,
        session_id: 0,
        password: vec![0; 16].into(),
        read_only: Some(false),
    };
    let remote = IpAddr::from([127, 0, 0, 1]);
    let (remote_port, proven) = (40_000, Vec::new());
    replica.step(Input::Connected { conn: 1, remote, remote_port, proven, request });
    turn(&mut replica);
    // xid 1, opcode 3 (exists), the path, no watch
    let payload = b"\0\0\0\x01\0\0\0\x03\0\0\0\x01/\0".to_vec();
    let requests = vec![ClientRequest::decode(payload.into()).expect("it has a header")];
    replica.step(Input::Requests { conn: 1, requests });
    let reply = turn(&mut replica);
    assert_eq!(reply.get(16..20), Some(&(-124_i32).to_be_bytes()[..]), "{reply:?}");
}

#[test]
fn quick_ones_are_caught() {
    for Mutant { name, check } in &CATALOGUE {
        check();
        mutants::plant(Some(name));
        let result = catch_unwind(check);
        mutants::plant(None);
        assert!(result.is_err(), "{name} is not caught");
    }
}
