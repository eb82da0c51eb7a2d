//! The table and the chart of what grows.

use crate::{cell, site};
use lockkeeper_vs_zookeeper::figures::PeerName;
use lockkeeper_vs_zookeeper::grown::{Axis, Curve, Grows, Growth, Point};
use lockkeeper_vs_zookeeper::results::Results;

/// Two rounds at two sizes, of which the second round was on a machine half as fast.
fn growth() -> Growth {
    let point = |size, rates: [f64; 2]| Point {
        size,
        mode: "get:16x16".parse().expect("a mode"),
        cells: vec![rates.map(|rate| cell(rate, 1000.0 / rate)).to_vec()],
    };
    Growth {
        site: site(),
        servers: 1,
        peers: vec![PeerName { name: "lockkeeper".to_owned(), description: "1.0".to_owned() }],
        rounds: 2,
        window_ms: 2000,
        axes: vec![Axis {
            grows: Grows::Znodes,
            curves: vec![Curve {
                points: vec![point(10_000, [100.0, 50.0]), point(1_000_000, [90.0, 45.0])],
            }],
        }],
        durable_appends_per_second: vec![7000.0],
    }
}

#[test]
fn a_size_stands_beside_the_least_within_a_round() {
    let text = Results::Growth(growth()).to_markdown();
    let row = text.lines().find(|line| line.starts_with("| znodes | 1000000 | get 16x16 |"));
    let row = row.expect("a row");
    assert!(row.ends_with("| 0.90 (0.90-0.90) | 1.11 (1.11-1.11) |"), "{row}");
}

#[test]
fn the_chart_of_what_grows_has_a_line_for_each_figure() {
    let svg = lockkeeper_vs_zookeeper::growth_chart::draw(&growth());
    assert_eq!(svg.matches("<polyline class=\"l1\"").count(), 2, "{svg}");
    for text in ["1 server of each kind; 1.0", ">10k</text>", ">1M</text>", ">znodes</text>"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn figures_of_what_grows_are_read_back() {
    let text = serde_json::to_string(&Results::Growth(growth())).expect("plain data");
    let back: Results = serde_json::from_str(&text).expect("the same");
    assert_eq!(back.to_markdown(), Results::Growth(growth()).to_markdown());
}
