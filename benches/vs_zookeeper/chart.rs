//! The ratios to Apache ZooKeeper as a chart of bars: one panel for each comparison.
//!
//! Both bars of a row grow to the right with what is better, on a scale in which every step doubles:
//! operations per second as a multiple of ZooKeeper's, and ZooKeeper's server CPU per operation as a
//! multiple of the other's. The thin line of a bar reaches from the worst round to the best.

use crate::figures::{Cell, Comparison, REFERENCE, Spread, ratios};
use crate::svg::Drawing;
use crate::table;

/// What the machine allows at most is no server to compare.
const LIMIT: &str = "null";

const WIDTH: f64 = 800.0;
/// Where the scale begins and ends.
const LEFT: f64 = 200.0;
const RIGHT: f64 = WIDTH - 60.0;
const ROW: f64 = 34.0;
const BAR: f64 = 11.0;
/// Above the first row of a panel: its title, the machine, the numbers of the scale.
const HEAD: f64 = 62.0;
const LEGEND: f64 = 62.0;

struct Row {
    label: String,
    rate: Spread,
    cpu: Spread,
}

/// The chart of these comparisons; `None` if none of them has ZooKeeper and another server.
pub fn ratios_to_zookeeper(comparisons: &[&Comparison]) -> Option<String> {
    let panels: Vec<(&Comparison, Vec<Row>)> = comparisons
        .iter()
        .map(|&figures| (figures, rows(figures)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    if panels.is_empty() {
        return None;
    }
    let all = || panels.iter().flat_map(|(_, rows)| rows).flat_map(|row| [row.rate, row.cpu]);
    let scale = Scale {
        least: all().map(|s| s.least).fold(0.5, f64::min).log2().floor(),
        most: all().map(|s| s.most).fold(2.0, f64::max).log2().ceil(),
    };
    let mut drawing = Drawing::new();
    let title = "Beside Apache ZooKeeper on the same machine: longer is better";
    drawing.text("t", 16.0, 26.0, title);
    drawing.bar("s1", 16.0, 28.0, 38.0, BAR);
    drawing.text("", 34.0, 48.0, "operations per second / ZooKeeper's");
    drawing.bar("s2", 272.0, 284.0, 38.0, BAR);
    drawing.text("", 290.0, 48.0, "ZooKeeper's server CPU per operation / its own");
    drawing.text("q", 586.0, 48.0, "thin line: worst to best round");
    let mut top = LEGEND;
    for (figures, rows) in &panels {
        panel(&mut drawing, figures, rows, &scale, top);
        top += HEAD + ROW * rows.len() as f64 + 14.0;
    }
    Some(drawing.finish(WIDTH, top, title))
}

fn rows(figures: &Comparison) -> Vec<Row> {
    if figures.share.is_some() {
        // All have done the same.
        return Vec::new();
    }
    let Some(reference) = figures.peer(REFERENCE) else { return Vec::new() };
    let mut rows = Vec::new();
    for of_mode in &figures.modes {
        let those = &of_mode.cells[reference];
        for (peer, cells) in figures.peers.iter().zip(&of_mode.cells) {
            let is_limit = peer.name == LIMIT;
            if peer.name == REFERENCE || is_limit || cells.is_empty() || those.is_empty() {
                continue;
            }
            let of = |these, those, figure: fn(&Cell) -> f64| ratios(these, those, figure);
            rows.push(Row {
                label: format!("{}  {}", peer.name, of_mode.mode.name()),
                rate: Spread::of(&of(cells, those, |c| c.per_second)),
                cpu: Spread::of(&of(those, cells, |c| c.server_cpu_us)),
            });
        }
    }
    rows
}

/// Powers of two at the ends of the scale.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn x(&self, ratio: f64) -> f64 {
        let at = (ratio.log2() - self.least) / (self.most - self.least);
        LEFT + at.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

fn panel(drawing: &mut Drawing, figures: &Comparison, rows: &[Row], scale: &Scale, top: f64) {
    drawing.text("h", 16.0, top + 20.0, table::servers(figures.servers));
    let machine = format!("{}; commit {}", figures.site.machine, figures.site.commit);
    drawing.text("q", 90.0, top + 20.0, machine);
    let versions: Vec<&str> = figures.peers.iter().map(|peer| peer.description.as_str()).collect();
    drawing.text("q", 16.0, top + 36.0, versions.join("; "));
    let bottom = top + HEAD + ROW * rows.len() as f64;
    let mut power = scale.least;
    while power <= scale.most {
        let x = scale.x(power.exp2());
        let class = if power == 0.0 { "a" } else { "g" };
        drawing.line(class, (x, top + HEAD), (x, bottom));
        drawing.text("q m", x, top + HEAD - 6.0, format!("{}x", power.exp2()));
        power += 1.0;
    }
    for (number, row) in rows.iter().enumerate() {
        let y = top + HEAD + ROW * number as f64 + 5.0;
        drawing.text("e", LEFT - 10.0, y + BAR + 4.0, &row.label);
        for (class, spread, y) in [("s1", row.rate, y), ("s2", row.cpu, y + BAR + 2.0)] {
            let ends = scale.x(spread.least)..scale.x(spread.most);
            drawing.bar(class, scale.x(1.0), scale.x(spread.median), y, BAR);
            let middle = y + BAR / 2.0;
            drawing.line("w", (ends.start, middle), (ends.end, middle));
            drawing.text("q", ends.end.max(scale.x(1.0)) + 5.0, y + BAR - 1.5, shown(spread));
        }
    }
}

fn shown(spread: Spread) -> String {
    let digits = if spread.median < 10.0 { 2 } else { 1 };
    format!("{:.digits$}", spread.median)
}
