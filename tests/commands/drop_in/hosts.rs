//! Where a server listens that is told to by a file alone.

use std::net::TcpStream;

use super::{ALONE, start, stop};

#[test]
fn a_server_that_is_to_listen_on_all_addresses_is_reached_by_the_others_at_each() {
    for (line, everywhere) in [("", false), ("quorumListenOnAllIPs=true\n", true)] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        std::fs::write(directory.path().join("data/myid"), "1\n").unwrap();
        let port = testkit::ports::port();
        let own = format!("standaloneEnabled=false\nserver.1=127.0.0.2:{port}:1\n");
        let server = start(directory.path(), &format!("{ALONE}{own}{line}"));
        TcpStream::connect(("127.0.0.2", port)).expect("the address of its line");
        assert_eq!(TcpStream::connect(("127.0.0.1", port)).is_ok(), everywhere, "{line}");
        stop(server);
    }
}
