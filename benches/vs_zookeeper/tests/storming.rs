//! Storms of sessions, against a server of tests.

use std::net::TcpListener;
use std::time::Duration;

use lockkeeper::internals::bench::{Fault, wire};
use lockkeeper_vs_zookeeper::packets::dropped_in;
use lockkeeper_vs_zookeeper::storm::{Passed, Storm};

use crate::fake::Fake;

/// A Stat with so many children, behind no data.
fn stat(children: u8) -> Vec<u8> {
    let mut body = vec![0; 4 + wire::STAT];
    body[4 + wire::STAT_CHILDREN_AT + 3] = children;
    body
}

/// A storm of two sessions, one of which comes back, at a server on which so many znodes are left
/// then.
fn two_sessions(left: u8) -> Result<Passed, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let accept = || Fake::accept(&listener, 1, Duration::ZERO);
        let mut counter = accept();
        assert!(counter.serves_next(b"")); // the room
        // The znodes, and then as many pings as the client has time for.
        let crowd = [accept(), accept()];
        let serve = |mut fake: Fake| while fake.serves_next(b"") {};
        std::thread::scope(|scope| {
            crowd.into_iter().for_each(|fake| drop(scope.spawn(move || serve(fake))));
        });
        let back = accept();
        // Pings until the client has counted, and the close if it goes on.
        std::thread::scope(|scope| {
            scope.spawn(|| serve(back));
            while counter.serves_next(&stat(left)) {}
        });
    });
    let storm = Storm {
        addrs: vec![addr],
        room: "/storm".to_owned(),
        returning: 1,
        expiring: 1,
        timeout: Duration::from_millis(1),
    };
    let passed = storm.run();
    server.join().expect("the server is content");
    passed
}

#[test]
fn a_client_that_comes_back_keeps_its_znode() {
    let passed = two_sessions(1).expect("it passes");
    assert_eq!(passed.refused, 0);
    assert!(passed.opened <= passed.returned && passed.returned <= passed.expired);
    let error = two_sessions(0).expect_err("a znode is lost");
    assert!(error.to_string().contains("alive"), "{error}");
}

#[test]
fn dropped_packets_are_those_of_all_processors() {
    assert_eq!(dropped_in("2f6ad530 00001530 00000007\n1c248460 0000000a 0000000c\n"), Some(5434));
    assert_eq!(dropped_in("2f6ad530\n"), None);
}
