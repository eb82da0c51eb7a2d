//! What `benches/vs_zookeeper` makes of figures that were kept, tables and charts, without measuring; and
//! how it drives the locks of other systems.
//!
//! The modules are the benchmark's own, which has no test harness.

mod crowding;
#[allow(dead_code, reason = "the unit tests of the load generator use all of it")]
#[path = "../../../src/bench/fake.rs"]
mod fake;
mod growing;
mod idling;
mod rival_locks;
mod staying;
mod storming;

use std::fs;

// What the server of tests goes by.
use lockkeeper::internals::bench::{PATIENCE, wire};
use lockkeeper_vs_zookeeper::{chart, document, results, stolen, svg};

use lockkeeper_vs_zookeeper::figures::{
    Cell, Comparison, LockCell, ModeFigures, PeerName, Site, Spread, ThreadCell, median,
};
use lockkeeper_vs_zookeeper::results::Results;
use lockkeeper_vs_zookeeper::stolen::Repeats;

/// A cell in which only the rate and the CPU matter.
fn cell(per_second: f64, server_cpu_us: f64) -> Cell {
    Cell {
        per_second,
        p50_ms: 1.0,
        p99_ms: 2.0,
        p999_ms: 3.0,
        max_ms: 4.0,
        server_cpu_us,
        threads: Vec::new(),
        client_cpu_us: 5.0,
        rss_mib: 6.0,
        other_cpu: 0.0,
        stolen_cpu: Some(0.01),
        lock: None,
    }
}

fn site() -> Site {
    Site { machine: "2 x a processor".to_owned(), commit: "0123456789".to_owned() }
}

/// Three rounds of one mode, in which the servers' speeds change together.
fn comparison() -> Comparison {
    let peer = |name: &str| PeerName { name: name.to_owned(), description: format!("{name} 1.0") };
    let zookeeper = vec![cell(100.0, 40.0), cell(1000.0, 40.0), cell(10.0, 40.0)];
    let lockkeeper = vec![cell(300.0, 10.0), cell(3100.0, 8.0), cell(29.0, 20.0)];
    Comparison {
        site: site(),
        servers: 3,
        peers: vec![peer("zookeeper"), peer("lockkeeper")],
        rounds: 3,
        window_ms: 2000,
        share: None,
        repeats: None,
        modes: vec![ModeFigures {
            mode: "set:32x1".parse().expect("a mode"),
            offered: None,
            cells: vec![zookeeper, lockkeeper],
        }],
        durable_appends_per_second: vec![7000.0],
    }
}

#[test]
fn a_ratio_is_the_median_of_those_within_the_rounds() {
    let text = Results::Comparison(comparison()).to_markdown();
    let row = text.lines().find(|line| line.starts_with("| set 32x1 | lockkeeper |"));
    let row = row.expect("a row");
    assert!(row.ends_with("| 3.00 (2.90-3.10) | 0.25 (0.20-0.50) |"), "{row}");
    assert!(
        text.starts_with("2 x a processor; commit 0123456789.\n3 servers of each kind;"),
        "{text}"
    );
}

#[test]
fn threads_stand_beside_each_other_and_what_is_small_is_among_the_others() {
    let mut figures = comparison();
    for cell in &mut figures.modes[0].cells[1] {
        cell.server_cpu_us = 10.0;
        let thread =
            |name: &str, us| ThreadCell { name: name.to_owned(), us, busiest_us: us / 2.0 };
        cell.threads =
            vec![thread("lk-io", 2.0), thread("lk-server", 7.0), thread("lk-state", 0.05)];
    }
    let text = Results::Comparison(figures).to_markdown();
    for row in [
        "| mode | all | lk-server | lk-io | others |",
        "| set 32x1 | 10.00 | 7.00 (3.50) | 2.00 (1.00) | 1.00 |",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}: {text}");
    }
    assert!(!Results::Comparison(comparison()).to_markdown().contains("by thread"), "not asked");
}

#[test]
fn what_nobody_did_is_no_figure() {
    assert!(cell(1.0, 40.0).measured().is_ok());
    assert!(cell(0.0, 40.0).measured().is_err(), "no latency is that of no operation");
    let mut figures = comparison();
    figures.modes[0].mode = "contended:1x1".parse().expect("a mode");
    for cell in figures.modes[0].cells.iter_mut().flatten() {
        cell.lock = Some(LockCell {
            acquire_p50_ms: 1.0,
            acquire_p99_ms: 1.0,
            handoff_p50_ms: None,
            handoff_p99_ms: None,
            events_per_release: None,
            server_events_per_release: None,
            tries: None,
        });
    }
    let text = Results::Comparison(figures).to_markdown();
    assert!(text.contains("| 1 (1-1) | 1 (1-1) | - | - | - | - | - |"), "{text}");
}

#[test]
fn peers_that_are_offered_the_same_are_compared_by_p99_and_are_in_no_chart() {
    let mut figures = comparison();
    figures.share = Some(0.5);
    figures.modes[0].offered = Some(500.0);
    figures.modes[0].cells[1][2].p99_ms = 0.5;
    let text = Results::Comparison(figures.clone()).to_markdown();
    let row = text.lines().find(|line| line.starts_with("| set 32x1 | 500 | lockkeeper | 300 |"));
    let row = row.expect("a row");
    assert!(row.ends_with("| 1.00 (0.25-1.00) |"), "{row}");
    assert!(chart::ratios_to_zookeeper(&[&figures]).is_none(), "they have done the same");
}

#[test]
fn a_window_that_the_host_spoilt_is_measured_again_and_the_best_one_counts() {
    let measure = |took: &'static [f64]| {
        let mut took = took.iter();
        let mut repeats = Repeats::above(0.02);
        let best = repeats.least_stolen(|| {
            let stolen_cpu = Some(*took.next().ok_or("no more")?);
            Ok(Cell { stolen_cpu, ..cell(1.0, 2.0) })
        });
        (best.map(|best| best.stolen_cpu), repeats.count, repeats.spoilt)
    };
    assert_eq!(measure(&[0.02]), (Ok(Some(0.02)), 0, 0));
    assert_eq!(measure(&[0.3, 0.4, 0.01]), (Ok(Some(0.01)), 2, 0));
    assert_eq!(measure(&[0.3, 0.4, 0.05, 0.6, 0.7, 0.8]), (Ok(Some(0.05)), 5, 1));
    assert_eq!(measure(&[0.3]).0, Err("no more".to_owned()), "a window that fails is told");

    let mut figures = comparison();
    figures.repeats = Some(Repeats { stolen_max: 0.02, count: 7, spoilt: 1 });
    let text = Results::Comparison(figures).to_markdown();
    let told = "A window of which the machine's host took more than 0.02 CPU s/s was measured again: \
                7 times; it was no better then in 1 that count.";
    assert!(text.lines().any(|line| line == told), "{text}");
}

#[test]
fn what_a_host_took_is_unknown_if_nobody_asked() {
    assert_eq!(stolen::show([Some(0.1), Some(0.3), Some(0.2)]), "0.20");
    assert_eq!(stolen::show([Some(0.1), None]), "-");
}

#[test]
fn the_chart_shows_both_ratios_so_that_longer_is_better() {
    let figures = comparison();
    let svg = chart::ratios_to_zookeeper(&[&figures]).expect("ZooKeeper and another");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    for text in ["lockkeeper  set 32x1", ">3.00</text>", ">4.00</text>", "commit 0123456789"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    let mut alone = comparison();
    alone.peers[0].name = "another".to_owned();
    assert!(chart::ratios_to_zookeeper(&[&alone]).is_none(), "there is nothing to compare with");
}

#[test]
fn figures_that_were_kept_make_the_same_tables_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = folder.path().join("DOC.md");
    let place = |name| format!("<!-- figures: {name} -->\n<!-- end of figures -->\n");
    let words = format!("# Words\n\n{}{}More words.\n", place("a"), place("ratios"));
    fs::write(&document, words).expect("written");
    let kept = folder.path().join("kept");
    let figures = Results::Comparison(comparison());
    figures.keep(&kept, "a").expect("kept");
    results::render(&kept, Some(&document)).expect("rendered");
    let once = fs::read_to_string(&document).expect("read");
    assert!(once.contains(figures.to_markdown().trim()), "{once}");
    assert!(once.starts_with("# Words\n") && once.ends_with("\nMore words.\n"), "{once}");
    assert!(once.contains("](kept/ratios.svg)"), "{once}");
    assert!(kept.join("ratios.svg").is_file());
    results::render(&kept, Some(&document)).expect("rendered");
    assert_eq!(fs::read_to_string(&document).expect("read"), once);
    figures.keep(&kept, "b").expect("kept");
    let error = results::render(&kept, Some(&document)).expect_err("no place for b");
    assert!(error.contains("<!-- figures: b -->"), "{error}");
}

#[test]
fn a_median_is_the_middle_or_between_the_two() {
    assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).show(1), "2.0 (1.0-3.0)");
}

#[test]
fn only_the_part_of_a_document_that_is_named_changes() {
    let place =
        |name, text| format!("<!-- figures: {name} -->\n\n{text}\n\n<!-- end of figures -->\n");
    let text = |b| format!("# Top\n{}between\n{}last\n", place("a", "1"), place("b", b));
    let once = document::replace(&text("2"), "b", "3").expect("it has the place");
    assert_eq!(once, text("3"));
    assert_eq!(document::replace(&once, "b", "3"), Ok(once.clone()), "again, and nothing changes");
    let lacking = document::replace(&once, "c", "3").expect_err("no place");
    assert_eq!(lacking, "has no place for c (<!-- figures: c -->)");
}

#[test]
fn a_part_of_a_document_without_its_end_takes_nothing_of_what_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("DOC.md");
    let kept = folder.path().join("kept");
    Results::Comparison(comparison()).keep(&kept, "a").expect("kept");
    let begun = "<!-- figures: a -->\n\nwords of people\n";
    let next = "<!-- figures: ratios -->\n<!-- end of figures -->\n";
    for text in [format!("{begun}{next}"), format!("{next}{begun}")] {
        fs::write(&path, &text).expect("written");
        let error = results::render(&kept, Some(&path)).expect_err("the end of a is not there");
        let place = path.display();
        assert_eq!(
            error,
            format!("{place} has no <!-- end of figures --> for <!-- figures: a -->")
        );
        assert_eq!(fs::read_to_string(&path).expect("read"), text);
    }
}

#[test]
fn text_cannot_end_an_element_of_a_drawing() {
    let mut drawing = svg::Drawing::new();
    drawing.text("q", 1.0, 2.0, "a < b & c");
    let file = drawing.finish(10.0, 10.0, "x > y");
    assert!(file.contains(">a &lt; b &amp; c</text>"), "{file}");
    assert!(file.contains("<title>x &gt; y</title>"), "{file}");
}
