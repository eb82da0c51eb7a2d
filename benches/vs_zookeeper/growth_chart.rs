//! What grows and what that costs, drawn: a row for each thing, operations per second on the left, the
//! latency that one in a hundred exceeds on the right.
//!
//! Sizes stand at equal distances; figures are on a scale in which every step is tenfold.

use lockkeeper::internals::bench::Work;

use crate::grown::{Axis, Growth, Point};
use crate::svg::Drawing;
use crate::table;

const WIDTH: f64 = 800.0;
/// Above the first row: title, machine, legend.
const HEAD: f64 = 100.0;
/// A row with its title and the sizes below it.
const ROW: f64 = 190.0;
/// Within a row: where the plot begins, and how high it is.
const PLOT_TOP: f64 = 40.0;
const PLOT: f64 = 110.0;
/// The two plots of a row.
const LEFTS: [f64; 2] = [70.0, 460.0];
const PLOT_WIDTH: f64 = 310.0;

/// One of the two figures of a point.
type Figure = fn(&Point, usize) -> f64;

/// The whole drawing.
pub fn draw(growth: &Growth) -> String {
    let mut drawing = Drawing::new();
    let title = "What the cost depends on";
    drawing.text("t", 16.0, 26.0, title);
    let servers = table::servers(growth.servers);
    let site = &growth.site;
    drawing.text("q", 16.0, 44.0, format!("{}; commit {}", site.machine, site.commit));
    let versions: Vec<&str> = growth.peers.iter().map(|peer| peer.description.as_str()).collect();
    drawing.text("q", 16.0, 60.0, format!("{servers} of each kind; {}", versions.join("; ")));
    let keys = [("s1", "get"), ("s2", "set"), ("s3", "create"), ("s4", "notification, hand-off")];
    for (number, (class, word)) in keys.into_iter().enumerate() {
        let x = 16.0 + 90.0 * number as f64;
        drawing.bar(class, x, x + 12.0, 74.0, 11.0);
        drawing.text("", x + 18.0, 84.0, word);
    }
    for (number, peer) in growth.peers.iter().enumerate() {
        let x = 460.0 + 150.0 * number as f64;
        drawing.path(&format!("a{}", dashes(number)), &[(x, 80.0), (x + 30.0, 80.0)]);
        drawing.text("", x + 36.0, 84.0, &peer.name);
    }
    let mut top = HEAD;
    for axis in &growth.axes {
        let figures: [(&str, Figure); 2] =
            [("operations per second", Point::rate), ("p99, ms", Point::p99_ms)];
        for ((words, figure), left) in figures.into_iter().zip(LEFTS) {
            drawing.text("h", left, top + 16.0, axis.grows.title());
            drawing.text("q", left, top + 32.0, words);
            plot(&mut drawing, growth, axis, figure, (left, top + PLOT_TOP));
        }
        top += ROW;
    }
    drawing.finish(WIDTH, top, title)
}

fn dashes(peer: usize) -> &'static str {
    if peer == 0 { "" } else { " d" }
}

fn class(work: Work) -> &'static str {
    match work {
        Work::Get | Work::ReadBack => "l1",
        Work::Set | Work::Mixed | Work::Multi => "l2",
        Work::Create | Work::Delete | Work::Churn => "l3",
        Work::Lock | Work::Contended | Work::Herd | Work::Watches => "l4",
    }
}

fn plot(
    drawing: &mut Drawing,
    growth: &Growth,
    axis: &Axis,
    figure: Figure,
    (left, top): (f64, f64),
) {
    let peers = 0..growth.peers.len();
    let points = || axis.curves.iter().flat_map(|curve| &curve.points);
    let values = points().flat_map(|point| peers.clone().map(move |peer| figure(point, peer)));
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min).log10().floor();
    let most = values.iter().copied().fold(0.0, f64::max).log10().ceil().max(least + 1.0);
    if !least.is_finite() || !most.is_finite() {
        return;
    }
    let y = |value: f64| top + PLOT * (most - value.log10()) / (most - least);
    let mut power = least;
    while power <= most {
        let at = y(10_f64.powf(power));
        drawing.line("g", (left, at), (left + PLOT_WIDTH, at));
        drawing.text("q e", left - 6.0, at + 4.0, number(10_f64.powf(power)));
        power += 1.0;
    }
    let sizes = axis.curves.first().map_or(0, |curve| curve.points.len());
    let last = sizes.saturating_sub(1).max(1) as f64;
    let x = |at: usize| left + 12.0 + (PLOT_WIDTH - 24.0) * at as f64 / last;
    for (at, point) in axis.curves.iter().take(1).flat_map(|c| &c.points).enumerate() {
        drawing.text("q m", x(at), top + PLOT + 18.0, number(point.size as f64));
    }
    for curve in &axis.curves {
        for peer in peers.clone() {
            let line: Vec<(f64, f64)> = curve
                .points
                .iter()
                .enumerate()
                .map(|(at, point)| (x(at), figure(point, peer)))
                .filter(|(_, value)| *value > 0.0)
                .map(|(x, value)| (x, y(value)))
                .collect();
            let work = curve.points.first().map_or(Work::Get, |point| point.mode.work);
            drawing.path(&format!("{}{}", class(work), dashes(peer)), &line);
        }
    }
}

/// Short.
fn number(value: f64) -> String {
    match value {
        millions if millions >= 1e6 => format!("{}M", millions / 1e6),
        thousands if thousands >= 1e3 => format!("{}k", thousands / 1e3),
        small => format!("{small}"),
    }
}
