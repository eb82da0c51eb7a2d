//! The table of CPU per operation by thread, of a comparison.
//!
//! What a thread uses for an operation bounds what it can do in a second, however many processors there are.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::figures::{Cell, Comparison, ModeFigures, REFERENCE, ThreadCell, median};

/// Names of threads that are shown of a peer, and what they must at least have used of its CPU in a mode.
const COLUMNS_MAX: usize = 6;
const SHARE_MIN: f64 = 0.01;

/// A table for each peer; ZooKeeper's has hundreds of threads by names of its own, and is left out.
pub fn write(figures: &Comparison, out: &mut String) -> fmt::Result {
    for (at, peer) in figures.peers.iter().enumerate().filter(|(_, peer)| peer.name != REFERENCE) {
        let columns = columns(&figures.modes, at);
        if columns.is_empty() {
            continue;
        }
        writeln!(
            out,
            "\nServer CPU us/op by thread: {}{}.\n",
            peer.description,
            if figures.servers > 1 {
                ", all servers together; in brackets the one that used most"
            } else {
                ""
            }
        )?;
        writeln!(out, "| mode | all | {} | others |", columns.join(" | "))?;
        writeln!(out, "|{}", "---|".repeat(columns.len() + 3))?;
        for of_mode in figures.modes.iter().filter(|of_mode| !of_mode.cells[at].is_empty()) {
            write_row(of_mode, &of_mode.cells[at], &columns, figures.servers, out)?;
        }
    }
    Ok(())
}

/// The names that are shown, by what they have used in all modes.
fn columns(modes: &[ModeFigures], at: usize) -> Vec<String> {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for cell in modes.iter().flat_map(|of_mode| &of_mode.cells[at]) {
        for thread in cell.threads.iter().filter(|t| t.us > SHARE_MIN * cell.server_cpu_us) {
            *shares.entry(&thread.name).or_default() += thread.us / cell.server_cpu_us;
        }
    }
    let mut columns: Vec<(&str, f64)> = shares.into_iter().collect();
    columns.sort_by(|a, b| b.1.total_cmp(&a.1));
    columns.into_iter().take(COLUMNS_MAX).map(|(name, _)| name.to_owned()).collect()
}

fn write_row(
    of_mode: &ModeFigures,
    cells: &[Cell],
    columns: &[String],
    servers: u16,
    out: &mut String,
) -> fmt::Result {
    let all = |field: &dyn Fn(&Cell) -> f64| median(&cells.iter().map(field).collect::<Vec<_>>());
    write!(out, "| {} | {:.2} ", of_mode.mode.name(), all(&|cell| cell.server_cpu_us))?;
    let of = |cell: &Cell, name: &str, field: fn(&ThreadCell) -> f64| {
        cell.threads.iter().find(|thread| thread.name == name).map_or(0.0, field)
    };
    for name in columns {
        write!(out, "| {:.2} ", all(&|cell| of(cell, name, |thread| thread.us)))?;
        if servers > 1 {
            write!(out, "({:.2}) ", all(&|cell| of(cell, name, |thread| thread.busiest_us)))?;
        }
    }
    let shown = |cell: &Cell| columns.iter().map(|name| of(cell, name, |t| t.us)).sum::<f64>();
    writeln!(out, "| {:.2} |", all(&|cell| (cell.server_cpu_us - shown(cell)).max(0.0)))
}
