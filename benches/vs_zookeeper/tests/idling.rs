//! The tables of servers that nobody asks anything.

use crate::site;
use lockkeeper_vs_zookeeper::figures::PeerName;
use lockkeeper_vs_zookeeper::idle_figures::{IdlePeer, Idleness, Node, Stand};
use lockkeeper_vs_zookeeper::results::Results;

/// One kind, as one server and as two, without sessions and with a thousand.
fn idleness() -> Idleness {
    let stand = |sessions, rss: &[f64]| Stand {
        sessions,
        nodes: rss.iter().map(|&rss_mib| Node { rss_mib, cpu: 0.001 }).collect(),
    };
    Idleness {
        site: site(),
        settle_ms: 15_000,
        window_ms: 30_000,
        peers: vec![IdlePeer {
            peer: PeerName { name: "lockkeeper".to_owned(), description: "1.0".to_owned() },
            starts_ms: vec![20.0, 30.0, 90.0],
            stands: vec![
                stand(0, &[10.0]),
                stand(0, &[20.0, 21.0]),
                stand(1000, &[12.0]),
                stand(1000, &[30.0, 41.0]),
            ],
        }],
    }
}

#[test]
fn memory_of_sessions_stands_above_that_of_the_same_servers_without() {
    let text = Results::Idle(idleness()).to_markdown();
    for row in [
        "| 1.0 | 1 | 0 | 10.0 | 0.10 |  |",
        "| 1.0 | 1 | 1000 | 12.0 | 0.10 | 2.1 |",
        "| 1.0 | 2 | 1000 | 30.0, 41.0 | 0.10, 0.10 | 10.5, 21.0 |",
        "| 1.0 | 3 | 30 (20-90) |",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}: {text}");
    }
}

#[test]
fn figures_of_idle_servers_are_read_back() {
    let text = serde_json::to_string(&Results::Idle(idleness())).expect("plain data");
    let back: Results = serde_json::from_str(&text).expect("the same");
    assert_eq!(back.to_markdown(), Results::Idle(idleness()).to_markdown());
}
