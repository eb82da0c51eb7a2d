//! Many sessions: that they live, come back and are counted; and the tables of what is measured of them, of
//! overload, of abuse and of many children.

use std::time::{Duration, Instant};

use lockkeeper::Server;
use lockkeeper::internals::bench::{PATIENCE, Session, wire};
use tokio::runtime::Runtime;

use crate::{cell, site};
use lockkeeper_vs_zookeeper::abuse_figures::{Abused, AbusedPeer, Abuses, Stand};
use lockkeeper_vs_zookeeper::abuser::Abuse;
use lockkeeper_vs_zookeeper::children_figures::{ManyChildren, Parent};
use lockkeeper_vs_zookeeper::crowd::{Crowd, Gathering, Standing};
use lockkeeper_vs_zookeeper::figures::PeerName;
use lockkeeper_vs_zookeeper::idle_figures::Node;
use lockkeeper_vs_zookeeper::overload_figures::{Overloaded, OverloadedPeer, Overloads};
use lockkeeper_vs_zookeeper::results::Results;
use lockkeeper_vs_zookeeper::sessions_figures::{Event, ManySessions, Quantiles, SessionsPeer};
use lockkeeper_vs_zookeeper::witness::Waited;

const COUNT: usize = 300;
const TURN: Duration = Duration::from_millis(5);

/// A server, and what prepares and looks.
struct Site {
    _runtime: Runtime,
    _server: Server,
    session: Session,
    gathering: Gathering,
}

impl Site {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let builder = Server::builder()
            .in_memory()
            .tick_time(Duration::from_millis(100))
            .session_timeouts(Duration::from_millis(400), Duration::from_secs(60));
        let server = runtime.block_on(builder.start()).expect("a server");
        let addr = server.connect_string().parse().expect("an address");
        let mut session = Session::open(addr, PATIENCE).expect("a session");
        session.ensure("/crowd", b"").expect("a znode");
        session.ensure("/watched", b"").expect("a znode");
        let gathering = Gathering {
            addrs: vec![addr],
            count: COUNT,
            number: 7,
            room: "/crowd".to_owned(),
            watched: "/watched".to_owned(),
            timeout: Duration::from_secs(2),
        };
        Site { _runtime: runtime, _server: server, session, gathering }
    }

    fn children(&mut self) -> u32 {
        self.session.children("/crowd").expect("an answer")
    }
}

fn wait(crowd: &mut Crowd, until: impl Fn(Standing) -> bool) {
    let began = Instant::now();
    while !until(crowd.standing()) {
        assert!(began.elapsed() < PATIENCE, "{:?}", crowd.standing());
        crowd.step(TURN).expect("the server is content");
    }
}

#[test]
fn a_crowd_lives_comes_back_with_its_watches_and_goes() {
    let mut site = Site::new();
    let mut crowd = Crowd::new(site.gathering.clone()).expect("so many files");
    wait(&mut crowd, |standing| standing.held == COUNT);
    assert_eq!(site.children(), COUNT as u32);
    for _ in 0..2 {
        crowd.mark();
        site.session.call(wire::set("/watched", b"x")).expect("an answer");
        wait(&mut crowd, |standing| standing.events == COUNT as u64);
        let earliest = crowd.drop_all(true);
        assert!(earliest > Instant::now());
        wait(&mut crowd, |standing| standing.held == COUNT);
        assert_eq!(crowd.returns().len(), COUNT as u64);
    }
    // They ping, and so they outlast their timeout.
    crowd.mark();
    let began = Instant::now();
    while began.elapsed() < 2 * site.gathering.timeout {
        crowd.step(TURN).expect("the server is content");
    }
    let alive = Standing { held: COUNT, expired: 0, lost: 0, events: 0 };
    assert_eq!((crowd.standing(), site.children()), (alive, COUNT as u32));
    assert!(crowd.pings().len() >= 2 * COUNT as u64);
    crowd.drop_all(false);
    let began = Instant::now();
    while site.children() > 0 {
        assert!(began.elapsed() < PATIENCE, "they do not expire");
        std::thread::sleep(TURN);
    }
}

#[test]
fn a_session_that_comes_back_too_late_is_counted() {
    let mut site = Site::new();
    site.gathering.count = 3;
    let mut crowd = Crowd::new(site.gathering.clone()).expect("so many files");
    wait(&mut crowd, |standing| standing.held == 3);
    crowd.drop_all(true);
    std::thread::sleep(2 * site.gathering.timeout);
    wait(&mut crowd, |standing| standing.expired == 3);
}

fn peer() -> PeerName {
    PeerName { name: "lockkeeper".to_owned(), description: "1.0".to_owned() }
}

fn waited(p99_ms: f64) -> Waited {
    Waited { operations: 2000, p50_ms: 0.5, p99_ms, max_ms: 9.0 }
}

/// Whether a table has the row, and the figures are read back.
fn check(results: &Results, rows: &[&str]) {
    let text = results.to_markdown();
    for row in rows {
        assert!(text.lines().any(|line| line == *row), "{row}: {text}");
    }
    let kept = serde_json::to_string(results).expect("plain data");
    let back: Results = serde_json::from_str(&kept).expect("the same");
    assert_eq!(back.to_markdown(), text);
}

#[test]
fn many_sessions_stand_with_their_memory_and_what_happened_to_them() {
    let quantiles = Quantiles { p50_ms: 100.0, p99_ms: 200.0, max_ms: 300.0 };
    let node = |rss_mib| Node { rss_mib, cpu: 0.01 };
    let event = Event {
        what: "all come back".to_owned(),
        seconds: 1.5,
        first_s: Some(0.5),
        expired: 2,
        returns: Some(quantiles),
        returned: 998,
        overflows: Some(7),
        beside: waited(3.0),
        rss_mib: 40.0,
    };
    let of = SessionsPeer {
        peer: peer(),
        opened_s: 2.0,
        opens: quantiles,
        without: vec![node(10.0), node(10.0)],
        with: vec![node(12.0), node(13.0)],
        pings: Quantiles { p50_ms: 0.1, p99_ms: 0.2, max_ms: 0.3 },
        alone: waited(1.0),
        events: vec![event],
    };
    let figures = ManySessions {
        site: site(),
        servers: 2,
        sessions: 1000,
        timeout_ms: 40_000,
        window_ms: 30_000,
        peers: vec![of],
    };
    check(
        &Results::Sessions(figures),
        &[
            "| 1.0 | 2.0 | 10.0, 10.0 | 12.0, 13.0 | 5243 | 1.00, 1.00 | 1.00, 1.00 | 0.10 | 0.20 |",
            "| lockkeeper | nothing | | | | | | 0.50 | 1.00 | 9.0 | |",
            "| lockkeeper | all come back | 1.50 (the first 0.50) | 998 \
             | 100, 200, 300 | 2 | 7 | 0.50 | 3.00 | 9.0 | 40 |",
        ],
    );
}

#[test]
fn what_is_done_of_too_much_stands_beside_the_most() {
    let load = Overloaded {
        factor: 2.0,
        cell: cell(95.0, 10.0),
        unsent: 5,
        beside: waited(4.0),
        pings: Quantiles { p50_ms: 0.1, p99_ms: 0.2, max_ms: 0.3 },
        expired: 0,
        lost: 1,
        rss_max_mib: 50.0,
    };
    let of = OverloadedPeer {
        peer: peer(),
        probes: vec![cell(90.0, 10.0), cell(100.0, 10.0), cell(110.0, 10.0)],
        most: 100.0,
        alone: waited(1.0),
        loads: vec![load],
    };
    let figures = Overloads {
        site: site(),
        servers: 1,
        mode: "mixed:16x16".parse().expect("a mode"),
        deep: "mixed:64x2000".parse().expect("a mode"),
        window_ms: 20_000,
        bystanders: 1000,
        timeout_ms: 6000,
        peers: vec![of],
    };
    check(
        &Results::Overload(figures),
        &[
            "| lockkeeper | 100 (90-110) | 0 | | | | | | | | | 1.00 | 9.0 | | | |",
            "| lockkeeper | | 2 | 0.95 | 1 | 2 | 4 | 0 | 1 | 0.20 | 0.3 | 4.00 | 9.0 | 10.00 | 0.00 | 50 |",
        ],
    );
}

#[test]
fn an_abuse_stands_beside_the_same_of_another_server_or_says_how_it_failed() {
    let stand = |p99_ms| Stand {
        waited: waited(p99_ms),
        per_second: 1000.0,
        cut_off: 1,
        rss_max_mib: 50.0,
        server_cpu: 0.5,
    };
    let abused = |beside: Option<Stand>, failed: Option<&str>| Abused {
        abuse: Abuse::Sets,
        alone: waited(1.0),
        elsewhere: stand(2.0),
        beside,
        failed: failed.map(str::to_owned),
    };
    let abuses = vec![abused(Some(stand(3.0)), None), abused(None, Some("it lost its connection"))];
    let figures = Abuses {
        site: site(),
        window_ms: 10_000,
        peers: vec![AbusedPeer { peer: peer(), abuses }],
    };
    let name = Abuse::Sets.title();
    check(
        &Results::Abuse(figures),
        &[
            &format!(
                "| {name} | lockkeeper | 1.00 | 2.00 | 3.00 | 3.00 | 1.50 | 9.0, 9.0, 9.0 | 1000 | 1 | 0.50 | 50 |"
            ),
            &format!(
                "| {name} | lockkeeper | 1.00 | 2.00 | it lost its connection | | | 9.0, 9.0, | | | | |"
            ),
        ],
    );
}

#[test]
fn many_children_stand_with_the_length_of_their_list() {
    let parent = Parent {
        peer: peer(),
        created_per_second: 1000.0,
        rss_before_mib: 10.0,
        rss_mib: 11.0,
        lists_ms: vec![5.0],
        list_bytes: 1_048_575,
        stat_ms: 0.1,
        alone: waited(1.0),
        beside: waited(2.0),
        deleted_per_second: 2000.0,
    };
    let figures = ManyChildren { site: site(), children: 1000, peers: vec![parent] };
    check(
        &Results::Children(figures),
        &["| 1.0 | 1000 | 1049 | 5 (5-5) | 1048575 | 1.0 | 0.10 | 1.00, 9.0 | 2.00, 9.0 | 2000 |"],
    );
}
