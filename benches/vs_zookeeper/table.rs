//! The figures of a comparison as Markdown tables.

use std::fmt::{self, Write};

use crate::by_thread;
use crate::figures::{
    Cell, Comparison, LockCell, ModeFigures, REFERENCE, Site, Spread, median, ratios,
};
use crate::stolen::{self, Repeats};

/// The peers that others are set in relation to.
const REFERENCES: [&str; 2] = [REFERENCE, "null"];

/// The line about the machine and the commit, with which every table begins.
pub fn site(site: &Site) -> String {
    format!("{}; commit {}.\n", site.machine, site.commit)
}

/// So many servers, in words.
pub fn servers(count: u16) -> String {
    match count {
        1 => "1 server".to_owned(),
        several => format!("{several} servers"),
    }
}

/// With commas between them.
pub fn list(values: impl Iterator<Item = f64>, digits: usize) -> String {
    values.map(|value| format!("{value:.digits$}")).collect::<Vec<_>>().join(", ")
}

/// Everything there is to say about a comparison.
pub fn comparison(figures: &Comparison) -> String {
    let mut out = site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &Comparison, out: &mut String) -> fmt::Result {
    let appends = Spread::of(&figures.durable_appends_per_second).show(0);
    let servers = servers(figures.servers);
    writeln!(
        out,
        "{servers} of each kind; {} rounds of {} ms; median (min-max), of ratios that of the ratios \
         within a round. Disk: {appends} durable appends/s.\n",
        figures.rounds, figures.window_ms
    )?;
    for peer in &figures.peers {
        writeln!(out, "* {}: {}", peer.name, peer.description)?;
    }
    if let Some(Repeats { stolen_max, count, spoilt }) = figures.repeats {
        writeln!(
            out,
            "\nA window of which the machine's host took more than {stolen_max} CPU s/s was measured again: \
             {count} times; it was no better then in {spoilt} that count."
        )?;
    }
    if let Some(share) = figures.share {
        return write_offered(figures, share, out);
    }
    let against: Vec<usize> = REFERENCES.iter().filter_map(|name| figures.peer(name)).collect();
    write!(out, "\n| mode | server | ops/s | p50 ms | p99 ms | p99.9 ms | max ms ")?;
    write!(
        out,
        "| server CPU us/op | client CPU us/op | RSS MiB | other CPU s/s | stolen CPU s/s |"
    )?;
    for &at in &against {
        write!(out, " / {0} | CPU / {0} |", figures.peers[at].name)?;
    }
    writeln!(out, "\n|{}", "---|".repeat(12 + 2 * against.len()))?;
    for of_mode in &figures.modes {
        for at in 0..figures.peers.len() {
            write_row(figures, of_mode, at, &against, out)?;
        }
    }
    write_contention(figures, out)?;
    by_thread::write(figures, out)
}

/// The table of peers that were all offered the same.
fn write_offered(figures: &Comparison, share: f64, out: &mut String) -> fmt::Result {
    let reference = figures.reference();
    let of = figures.peers.get(reference).map_or("", |peer| &peer.name);
    writeln!(
        out,
        "\nEach is offered, at fixed moments, {share} of what {of} does when asked for as much as it \
         takes; latency counts from these moments.\n"
    )?;
    write!(out, "| mode | offered/s | server | done/s | p50 ms | p99 ms | p99.9 ms | max ms ")?;
    writeln!(
        out,
        "| server CPU us/op | other CPU s/s | stolen CPU s/s | p99 / {of} |\n|{}",
        "---|".repeat(12)
    )?;
    for of_mode in &figures.modes {
        for (at, (peer, cells)) in figures.peers.iter().zip(&of_mode.cells).enumerate() {
            let all = |field: fn(&Cell) -> f64| cells.iter().map(field).collect::<Vec<_>>();
            write!(out, "| {} ", of_mode.mode.name())?;
            write!(out, "| {:.0} ", of_mode.offered.unwrap_or(f64::NAN))?;
            write!(out, "| {} | {:.0} ", peer.name, median(&all(|c| c.per_second)))?;
            write!(out, "| {:.2} ", median(&all(|c| c.p50_ms)))?;
            write!(out, "| {} ", Spread::of(&all(|c| c.p99_ms)).show(2))?;
            write!(out, "| {:.2} ", median(&all(|c| c.p999_ms)))?;
            write!(out, "| {:.1} ", median(&all(|c| c.max_ms)))?;
            write!(out, "| {:.2} ", median(&all(|c| c.server_cpu_us)))?;
            write!(out, "| {:.2} ", median(&all(|c| c.other_cpu)))?;
            write!(out, "| {} ", stolen::show(cells.iter().map(|cell| cell.stolen_cpu)))?;
            match at == reference {
                true => writeln!(out, "| 1 |")?,
                false => {
                    let beside = ratios(cells, &of_mode.cells[reference], |c| c.p99_ms);
                    writeln!(out, "| {} |", Spread::of(&beside).show(2))?;
                }
            }
        }
    }
    Ok(())
}

fn write_row(
    figures: &Comparison,
    of_mode: &ModeFigures,
    at: usize,
    against: &[usize],
    out: &mut String,
) -> fmt::Result {
    let cells = &of_mode.cells[at];
    if cells.is_empty() {
        return Ok(());
    }
    let all = |field: fn(&Cell) -> f64| cells.iter().map(field).collect::<Vec<_>>();
    write!(out, "| {} | {} ", of_mode.mode.name(), figures.peers[at].name)?;
    write!(out, "| {} ", Spread::of(&all(|c| c.per_second)).show(0))?;
    write!(out, "| {:.2} ", median(&all(|c| c.p50_ms)))?;
    write!(out, "| {:.2} ", median(&all(|c| c.p99_ms)))?;
    write!(out, "| {:.2} ", median(&all(|c| c.p999_ms)))?;
    write!(out, "| {:.1} ", median(&all(|c| c.max_ms)))?;
    write!(out, "| {} ", Spread::of(&all(|c| c.server_cpu_us)).show(2))?;
    write!(out, "| {:.2} ", median(&all(|c| c.client_cpu_us)))?;
    write!(out, "| {:.0} ", median(&all(|c| c.rss_mib)))?;
    write!(out, "| {:.2} ", median(&all(|c| c.other_cpu)))?;
    write!(out, "| {} |", stolen::show(cells.iter().map(|cell| cell.stolen_cpu)))?;
    for &reference in against {
        let those = &of_mode.cells[reference];
        for figure in [|c: &Cell| c.per_second, |c: &Cell| c.server_cpu_us] {
            match (reference == at, those.is_empty()) {
                (true, _) => write!(out, " 1 |")?,
                (false, true) => write!(out, " |")?,
                (false, false) => {
                    write!(out, " {} |", Spread::of(&ratios(cells, those, figure)).show(2))?;
                }
            }
        }
    }
    writeln!(out)
}

/// A second table, of the modes in which all connections want one lock.
fn write_contention(figures: &Comparison, out: &mut String) -> fmt::Result {
    let contended = figures.modes.iter().filter(|of_mode| of_mode.mode.work.contends());
    for (number, of_mode) in contended.enumerate() {
        if number == 0 {
            write!(out, "\n| mode | server | hand-offs/s | acquire p50 ms | acquire p99 ms ")?;
            write!(out, "| release sent to next holds p50 ms | p99 ms ")?;
            write!(out, "| events per release, received | sent by the server's count ")?;
            writeln!(out, "| tries per lock |\n|{}", "---|".repeat(10))?;
        }
        for (peer, cells) in figures.peers.iter().zip(&of_mode.cells) {
            let rates: Vec<f64> = cells.iter().map(|c| c.per_second).collect();
            let locks: Vec<&LockCell> = cells.iter().filter_map(|c| c.lock.as_ref()).collect();
            if locks.is_empty() {
                continue;
            }
            let show = |field: fn(&LockCell) -> f64, digits| {
                Spread::of(&locks.iter().map(|lock| field(lock)).collect::<Vec<_>>()).show(digits)
            };
            write!(out, "| {} | {} ", of_mode.mode.name(), peer.name)?;
            write!(out, "| {} ", Spread::of(&rates).show(0))?;
            write!(out, "| {} ", show(|l| l.acquire_p50_ms, 0))?;
            write!(out, "| {} ", show(|l| l.acquire_p99_ms, 0))?;
            let known = |field: fn(&LockCell) -> Option<f64>, digits| {
                let values: Vec<f64> = locks.iter().filter_map(|lock| field(lock)).collect();
                match values.len() == locks.len() {
                    true => Spread::of(&values).show(digits),
                    false => "-".to_owned(),
                }
            };
            write!(out, "| {} ", known(|l| l.handoff_p50_ms, 2))?;
            write!(out, "| {} ", known(|l| l.handoff_p99_ms, 2))?;
            write!(out, "| {} ", known(|l| l.events_per_release, 3))?;
            write!(out, "| {} ", known(|l| l.server_events_per_release, 3))?;
            writeln!(out, "| {} |", known(|l| l.tries, 2))?;
        }
    }
    Ok(())
}
