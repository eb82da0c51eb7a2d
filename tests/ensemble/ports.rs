//! Ports of tests (tests/testkit/ports.rs) are nobody else's.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use testkit::ports::{Network, Reserved, ports};

#[test]
fn a_reserved_port_is_refused_until_a_server_has_it_and_is_kept_behind_its_end() {
    let reserved = Reserved::new();
    let address = (Ipv4Addr::LOCALHOST, reserved.port());
    for _ in 0..2 {
        let refused = TcpStream::connect(address).expect_err("nothing listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // As servers do, the listener of the standard library sets SO_REUSEADDR.
        let server = TcpListener::bind(address).expect("it is the test's");
        drop(TcpStream::connect(address).expect("a server listens"));
        drop(server);
    }
}

#[test]
fn a_reserved_port_is_given_to_nobody_who_asks_for_any() {
    // Most of the range from which systems choose is there.
    let reserved: Vec<Reserved> = (0..2000).map(|_| Reserved::new()).collect();
    let mut all: Vec<u16> = reserved.iter().map(Reserved::port).collect();
    let listeners: Vec<TcpListener> =
        (0..2000).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    all.extend(listeners.iter().map(|one| one.local_addr().expect("bound").port()));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4000);
    assert_ne!(ports::<2>()[0], ports::<2>()[1]);
}

#[test]
fn a_network_is_given_once() {
    let [one, other] = [Network::new(), Network::new()];
    assert_ne!(one.host(1), other.host(1));
    assert!(TcpListener::bind(format!("{}:17181", one.host(1))).is_ok());
}
