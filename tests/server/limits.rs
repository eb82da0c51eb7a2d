//! What a server does at its limits: at the limit, one above it, and far above it.

use std::time::Duration;

use lockkeeper::Server;
use testkit::{Client, connect_frame, fresh, get, request_frame, say, set, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

#[tokio::test]
async fn the_longest_frame_is_served_and_one_byte_more_closes() {
    let server = testkit::builder().frame_bytes_max(2000).start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"", 0).await.unwrap();
    let around = request_frame(1, &set("/a", b"")).len() - 4;
    client.set("/a", &vec![7; 2000 - around]).await.unwrap();
    client.send(&set("/a", &vec![7; 2000 - around + 1])).await;
    client.closed().await;

    for absurd in [[0x7f, 0xff, 0xff, 0xff], [0xff; 4], *b"GET "] {
        let mut client = Client::connect(server.local_addr()).await;
        client.send_bytes(&absurd).await;
        client.closed().await;
        assert_eq!(say(server.local_addr(), &absurd).await, "", "as a first frame");
    }
    assert_eq!(server.counters().connections_cut_malformed, 7);
    assert_eq!(
        server.counters().other_protocols_http,
        1,
        "a first frame that is a request of HTTP"
    );
    let mut client = Client::connect(server.local_addr()).await;
    assert_eq!(client.data("/a").await.unwrap().len(), 2000 - around, "the server still serves");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_too_long_for_a_first_frame_closes_at_once_and_what_clients_say_does_not() {
    const BYTES_MAX: u32 = 1024;
    let server = testkit::builder().start().await.unwrap();
    assert_eq!(say(server.local_addr(), &(BYTES_MAX + 1).to_be_bytes()).await, "");
    let counters = server.counters();
    assert_eq!((counters.connections_cut_malformed, counters.large_requests_refused), (1, 1));
    let mut long = fresh(4000);
    let around = u32::try_from(connect_frame(&long).len() - 4).unwrap();
    long.password = vec![7; (BYTES_MAX - around) as usize].into();
    let mut client = Client::open(server.local_addr(), &long).await.expect("a session");
    assert!(client.exists("/").await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn unfinished_requests_of_all_clients_are_bounded_and_the_longest_are_cut_off_first() {
    const MAX: u64 = 1 << 20;
    const CLIENTS: u64 = 10;
    let server = testkit::builder()
        .set("lockkeeper.incomingBytesMax", &MAX.to_string())
        .start()
        .await
        .unwrap();
    let arrived = async |bytes: u64| {
        let what = format!("{bytes} bytes have arrived");
        wait_until(&what, async || server.counters().incoming_bytes == bytes).await;
    };
    let mut many = Vec::new();
    for _ in 0..CLIENTS {
        many.push(Client::connect(server.local_addr()).await);
    }
    many[0].create("/a", b"", 0).await.unwrap();
    let frame = request_frame(9, &set("/a", &[7; 100_000]));
    // What is short does not count, however many there are.
    let mut short = Client::connect(server.local_addr()).await;
    short.send_bytes(&frame[..4096]).await;
    let mut all = 0;
    for client in &mut many {
        client.send_bytes(&frame[..60_000]).await;
        all += 60_000;
        arrived(all).await;
    }
    let mut long = Client::connect(server.local_addr()).await;
    let long_frame = request_frame(9, &set("/a", &[7; 900_000]));
    long.send_bytes(&long_frame[..400_000]).await;
    arrived(all + 400_000).await;
    // All together are too long now, and the one that was not the last is the longest.
    let mut last = Client::connect(server.local_addr()).await;
    last.send_bytes(&frame[..60_000]).await;
    long.closed().await;
    arrived(all + 60_000).await;
    assert_eq!(server.counters().connections_cut_unfinished, 1);
    short.send_bytes(&frame[4096..]).await;
    last.send_bytes(&frame[60_000..]).await;
    for client in [&mut short, &mut last] {
        assert_eq!(client.receive().await.expect("a reply").err, 0);
    }
    arrived(all).await;
    let again = Client::open(server.local_addr(), &long.again()).await.expect("an answer");
    assert_eq!(again.session.session_id, long.session.session_id, "its session lives on");
    drop(many);
    arrived(0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn requests_in_front_of_a_malformed_frame_are_executed() {
    let server = testkit::builder().start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"", 0).await.unwrap();
    let mut bytes = request_frame(9, &set("/a", b"in front"));
    bytes.extend_from_slice(&[0xff; 4]);
    client.send_bytes(&bytes).await;
    client.closed().await;
    let mut other = Client::connect(server.local_addr()).await;
    wait_until("the write in front", async || other.data("/a").await.unwrap() == b"in front").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn one_address_may_have_so_many_connections_and_no_more() {
    let server = testkit::builder().connections_max(2, 0).start().await.unwrap();
    let first = Client::connect(server.local_addr()).await;
    let mut second = Client::connect(server.local_addr()).await;
    for _ in 0..3 {
        assert!(Client::open(server.local_addr(), &fresh(4000)).await.is_none(), "one too many");
    }
    assert_eq!(server.counters().connections_rejected_per_ip, 3);
    assert!(second.exists("/").await, "those who are in stay in");
    drop(first);
    wait_until("room for another", async || {
        Client::open(server.local_addr(), &fresh(4000)).await.is_some()
    })
    .await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_may_have_so_many_connections_and_no_more() {
    let server = testkit::builder().connections_max(0, 1).start().await.unwrap();
    let mut first = Client::connect(server.local_addr()).await;
    assert!(Client::open(server.local_addr(), &fresh(4000)).await.is_none(), "one too many");
    let counters = server.counters();
    assert_eq!((counters.connections_rejected_total, counters.connections_alive), (1, 1));
    assert!(first.exists("/").await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_storm_is_accepted_at_once_and_served_in_its_order_and_no_client_of_it_yields() {
    const MAX: u64 = 20;
    let server = testkit::builder()
        .set("lockkeeper.admissionRate", "1")
        .set("lockkeeper.admissionBurst", "1")
        .set("maxCnxns", &MAX.to_string())
        .start()
        .await
        .unwrap();
    let mut storm = Vec::new();
    for _ in 0..MAX {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(&connect_frame(&fresh(4000))).await.unwrap();
        storm.push(stream);
    }
    wait_until("all are accepted", async || server.counters().connections_alive == MAX).await;
    let one_more = TcpStream::connect(server.local_addr()).await.unwrap();
    let mut answers = [0; 4];
    storm[0].read_exact(&mut answers).await.expect("the first one has its session");
    let last = storm[MAX as usize - 1].try_read(&mut answers);
    assert_eq!(last.expect_err("it waits").kind(), std::io::ErrorKind::WouldBlock);
    let counters = server.counters();
    assert_eq!((counters.connections_rejected_total, counters.connections_cut_yielded), (0, 0));
    drop(one_more);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_asks_for_no_session_is_closed() {
    let server = testkit::builder().set("nio.sessionlessCnxnTimeout", "100").start().await.unwrap();
    for beginning in [&b""[..], b"r", b"\0\0\0\x2d\0\0\0\0"] {
        assert_eq!(say(server.local_addr(), beginning).await, "");
    }
    assert_eq!(server.counters().connections_cut_sessionless, 3);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn above_the_global_limit_every_request_is_still_answered_in_order() {
    let server = testkit::builder().set("globalOutstandingLimit", "1").start().await.unwrap();
    let address = server.local_addr();
    let clients = (0..4).map(|number| {
        tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            let path = format!("/{number}");
            client.create(&path, b"", 0).await.unwrap();
            let mut bytes = Vec::new();
            for xid in 1..=2000 {
                bytes.extend(request_frame(xid, &set(&path, &xid.to_be_bytes())));
            }
            client.send_bytes(&bytes).await;
            for xid in 1..=2000 {
                assert_eq!(client.receive().await.expect("a reply").xid, xid);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    server.stop().await.unwrap();
}

/// A client that has a small receive buffer, so that little is in flight when it does not read.
async fn reluctant_client(server: &Server) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream: TcpStream = socket.connect(server.local_addr()).await.unwrap();
    // It says nothing for as long as the machine needs to send it much.
    Client::open_on(stream, &fresh(SILENT_MS)).await.expect("a session")
}

/// Timeout of sessions that are silent in a test, milliseconds, where the server grants it.
const SILENT_MS: i32 = 600_000;

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_not_read_from() {
    const REQUESTS: u64 = 5000;
    let limit = Duration::from_secs(60);
    let server =
        testkit::builder().outgoing_bytes_max(64 << 10, 1 << 30, limit).start().await.unwrap();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", &[7; 10_000], 0).await.unwrap();
    let before = server.counters().packets_received;
    let mut bytes = Vec::new();
    for xid in 1..=REQUESTS {
        bytes.extend(request_frame(i32::try_from(xid).unwrap(), &get("/a")));
    }
    client.send_bytes(&bytes).await;
    let mut other = Client::connect(server.local_addr()).await;
    for _ in 0..100 {
        other.ping().await;
    }
    let read = server.counters().packets_received - before;
    assert!(read < REQUESTS, "all of {read} requests were read, and 50 MB of answers are queued");
    for xid in 1..=REQUESTS {
        let reply = client.receive().await.expect("a reply");
        assert_eq!((reply.xid, reply.err), (i32::try_from(xid).unwrap(), 0));
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_burst_of_requests_for_long_answers_is_not_answered_all_at_once() {
    const REQUESTS: i32 = 60;
    const ANSWERS_MAX: u64 = 8;
    let server = testkit::builder().start().await.unwrap();
    let mut other = Client::connect(server.local_addr()).await;
    other.create("/a", &[7; 1_000_000], 0).await.unwrap();
    let mut client = reluctant_client(&server).await;
    let before = server.counters();
    let bytes: Vec<u8> = (1..=REQUESTS).flat_map(|xid| request_frame(xid, &get("/a"))).collect();
    client.send_bytes(&bytes).await;
    let frame_bytes = bytes.len() as u64 / REQUESTS as u64;
    wait_until("more of them arrive than may be answered", async || {
        server.counters().bytes_received - before.bytes_received > (ANSWERS_MAX + 1) * frame_bytes
    })
    .await;
    for _ in 0..100 {
        other.ping().await;
    }
    let read = server.counters().packets_received - before.packets_received - 100;
    assert!(read <= ANSWERS_MAX, "{read} MB of answers wait for a client that reads none");
    for xid in 1..=REQUESTS {
        let reply = client.receive().await.expect("a reply");
        assert_eq!((reply.xid, reply.err), (xid, 0));
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_take_its_events_is_cut_off_and_keeps_its_session() {
    let stall = Duration::from_millis(50);
    let server =
        testkit::builder().outgoing_bytes_max(64 << 10, 256 << 10, stall).start().await.unwrap();
    let mut slow = reluctant_client(&server).await;
    let mut busy = Client::connect(server.local_addr()).await;
    let path = format!("/{}", "long".repeat(1000));
    busy.create(&path, b"", 0).await.unwrap();
    slow.watch_all("/").await;
    // The system's own buffers take some megabytes before anything is queued.
    let mut events = 0;
    while server.counters().connections_cut_slow == 0 {
        busy.set(&path, b"").await.unwrap();
        events += 1;
        assert!(events < 100_000, "{} MB of events, and not cut off", events * 4000 / 1_000_000);
    }
    slow.closed().await;
    let again = Client::open(server.local_addr(), &slow.again()).await.expect("an answer");
    assert_eq!(again.session.session_id, slow.session.session_id);
    assert!(busy.exists("/").await, "nobody else has noticed");
    server.stop().await.unwrap();
}

/// Whether a server lives, is ready and how it does is answered whatever strangers hold open.
#[tokio::test]
async fn health_and_metrics_are_answered_however_many_http_connections_are_held_open() {
    let server = testkit::builder().admin_address("127.0.0.1", 0).start().await.unwrap();
    let address = server.admin_addr().expect("there is one");
    let mut held = Vec::new();
    for number in 0..400 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number >= 300 {
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ").await.unwrap();
        }
        held.push(stream);
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        let answer = timeout(
            testkit::at_this_load(Duration::from_secs(1)),
            say(address, request.as_bytes()),
        )
        .await;
        let answer = answer.unwrap_or_else(|_| panic!("{path}: not within a second"));
        assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
    }
    drop(held);
    server.stop().await.unwrap();
}

/// Takes whatever comes, until the end.
async fn take_all(mut client: Client) -> u64 {
    let mut events = 0;
    while client.next_event().await.is_some() {
        events += 1;
    }
    events
}

#[tokio::test]
async fn what_waits_for_all_clients_is_bounded_and_those_that_owe_the_most_are_cut_off_first() {
    const MAX: u64 = 64 << 20;
    const CLIENTS: usize = 20;
    // One connection has no bound of its own here, and none has waited for long enough.
    let never = Duration::from_secs(600);
    let server = testkit::builder()
        .set("lockkeeper.outgoingBytesMax", &MAX.to_string())
        .outgoing_bytes_max(1 << 20, 1 << 40, never)
        .session_timeouts(Duration::from_millis(400), never)
        .start()
        .await
        .unwrap();
    let mut busy = Client::connect(server.local_addr()).await;
    let [much, little] = ["m", "l"].map(|letter| format!("/{}", letter.repeat(4000)));
    busy.create(&much, b"", 0).await.unwrap();
    busy.create(&little, b"", 0).await.unwrap();
    let (mut all, mut some) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let mut client = reluctant_client(&server).await;
        client.watch_all("/").await;
        all.push(client);
        let mut client = reluctant_client(&server).await;
        client.watch_all(&little).await;
        some.push(client);
    }
    let mut reading =
        Client::open(server.local_addr(), &fresh(SILENT_MS)).await.expect("a session");
    reading.watch_all("/").await;
    let reading = tokio::spawn(take_all(reading));
    let mut most = 0;
    let mut sets: u64 = 0;
    while server.counters().connections_cut_debtors == 0 {
        let path = if sets.is_multiple_of(4) { &little } else { &much };
        busy.set(path, b"").await.unwrap();
        most = most.max(server.counters().outgoing_bytes);
        sets += 1;
        assert!(sets < 20_000, "{most} bytes wait, and none was cut off");
    }
    assert!((MAX * 7 / 8..=MAX).contains(&most), "{most} bytes waited");
    assert!(server.counters().outgoing_bytes <= MAX, "fewer wait now");
    let cut = server.counters().connections_cut_debtors;
    assert!((1..=CLIENTS as u64 / 2).contains(&cut), "{cut}: an eighth of the bytes had to go");
    for mut client in some {
        client.ping().await;
    }
    let mut left = 0;
    for client in &mut all {
        client.send(&get("/")).await;
        left += u64::from(client.receive().await.is_some());
    }
    assert_eq!(left + cut, CLIENTS as u64, "of those that owed the most");
    drop((all, busy));
    let counters = server.counters();
    assert_eq!((counters.connections_cut_debtors, counters.connections_cut_slow), (cut, 0));
    server.stop().await.unwrap();
    assert_eq!(reading.await.unwrap(), sets, "the one that reads has missed nothing");
}
