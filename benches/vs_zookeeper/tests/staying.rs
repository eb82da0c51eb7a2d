//! The table of a load that stays the same for minutes.

use crate::site;
use lockkeeper_vs_zookeeper::figures::{DiskUse, PeerName};
use lockkeeper_vs_zookeeper::results::Results;
use lockkeeper_vs_zookeeper::steady_figures::{DiskProbe, Steadiness, SteadyPeer, Stormed, Window};

/// Twelve windows, of which the seventh stalls while sessions are opened.
fn steadiness() -> Steadiness {
    let window = |number: u32| Window {
        from_s: f64::from(number) * 10.0,
        seconds: 10.0,
        per_second: 1000.0,
        p50_ms: 1.0,
        p99_ms: 2.0,
        p999_ms: if number == 6 { 51.0 } else { 4.0 },
        max_ms: 60.0,
        server_cpu: 0.5,
        client_cpu: 0.2,
        other_cpu: 0.0,
        stolen_cpu: Some(0.03),
        client_late_ms: 3.0,
        dropped_packets: Some(u64::from(number == 6) * 9),
        rss_mib: 100.0 + f64::from(number),
        logs: DiskUse { files: 2, mib: 128.0 },
        images: DiskUse { files: 1, mib: 20.0 },
        disk: DiskProbe { appends: 200, p50_ms: 0.2, max_ms: 7.0, stalls: 0, late_max_ms: 1.0 },
    };
    let storm = Stormed {
        began_s: 61.0,
        opened_s: 62.0,
        returning: 1000,
        returned_s: 72.0,
        expiring: 500,
        expired_s: 95.0,
        closed_s: 96.0,
        refused: 0,
    };
    Steadiness {
        site: site(),
        servers: 1,
        mode: "mixed:16x16".parse().expect("a mode"),
        znodes: 1_000_000,
        share: 0.5,
        peers: vec![SteadyPeer {
            peer: PeerName { name: "lockkeeper".to_owned(), description: "1.0".to_owned() },
            most: 2000.0,
            offered: Some(1000.0),
            windows: (0..12).map(window).collect(),
            storms: vec![storm],
        }],
    }
}

#[test]
fn a_line_is_a_minute_and_a_stall_is_told_with_what_went_on() {
    let text = Results::Steady(steadiness()).to_markdown();
    for row in [
        "| 1 | 1000 | 1.00 (1.00) | 2.00 (2.00) | 4.00 (4.00) | 60.0 | 0 of 6 | 0.20 | 7.0 | 0.50 | 0.00 | 0.03 | 105 \
         | 2, 128 | 1, 20 |  |",
        "| 2 | 1000 | 1.00 (1.00) | 2.00 (2.00) | 4.00 (51.00) | 60.0 | 1 of 6 | 0.20 | 7.0 | 0.50 | 0.00 | 0.03 | 111 \
         | 2, 128 | 1, 20 | 1500 open, 1000 return, 500 expire, 1000 close |",
        "1 of 12 windows have a p99.9 above 50 ms; the disk probe had 0 such appends in all, 9 packets dropped.",
        "* From 60 s: p99.9 51 ms, max 60 ms; disk probe max 7 ms, up to 1 ms late, the client up to 3 ms \
         late; other CPU 0.00 s/s, stolen 0.03 s/s, 9 packets dropped; sessions: 1500 open, 1000 return",
        "The last minute beside the first: 1.00 of the operations, 1.00 of the p50, 1.00 of the p99, 1.00 of \
         the p99.9; RSS 111 and 105 MiB.",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}: {text}");
    }
}

#[test]
fn figures_of_a_steady_load_are_read_back() {
    let text = serde_json::to_string(&Results::Steady(steadiness())).expect("plain data");
    let back: Results = serde_json::from_str(&text).expect("the same");
    assert_eq!(back.to_markdown(), Results::Steady(steadiness()).to_markdown());
}
