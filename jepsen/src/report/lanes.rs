//! Who held locks, and who led.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_check::audit::AuditLine;
use lockkeeper_check::belief::{beliefs, overlaps};
use lockkeeper_check::history::{CLIENT_SLEEP, History, NoticeKind};

use super::svg::{Band, Panel, Span, TOP, seconds};

/// Height of a lane, pixels.
const LANE: f64 = 16.0;
/// Locks that are drawn.
const LOCKS_MAX: usize = 8;
/// What is shown before and behind the first overlap.
const AROUND_NS: u64 = 1_500_000_000;

/// Which server led when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Led {
    pub from_ns: u64,
    /// `None`: nobody said that it leads.
    pub leader: Option<String>,
}

/// The lanes of each lock: a row for each client, a bar for each time that it took itself for the
/// holder, red where another one did too; where sessions ended and where clients slept.
#[must_use]
pub fn locks(history: &History, span: Span, bands: &[Band]) -> String {
    let names: BTreeSet<&str> = beliefs(history).iter().map(|belief| belief.lock).collect();
    let mut out = String::new();
    for lock in names.into_iter().take(LOCKS_MAX) {
        out.push_str(&format!("<h3>{}</h3>\n", super::svg::escape(lock)));
        out.push_str(&lanes(history, lock, span, bands));
        let first = overlaps(history).into_iter().find(|overlap| overlap.newer.lock == lock);
        if let Some(overlap) = first {
            let at = overlap.newer.from.time_ns;
            let near = Span {
                from_ns: at.saturating_sub(AROUND_NS),
                to_ns: (at + AROUND_NS).min(span.to_ns),
            };
            out.push_str("<p>The first time that two clients believed in it, from near:</p>\n");
            out.push_str(&lanes(history, lock, near, bands));
        }
    }
    out
}

fn lanes(history: &History, lock: &str, span: Span, bands: &[Band]) -> String {
    let all = beliefs(history);
    let of_lock = || all.iter().filter(|belief| belief.lock == lock);
    let processes: BTreeSet<u64> = of_lock().map(|belief| belief.process).collect();
    let rows: BTreeMap<u64, f64> =
        processes.into_iter().zip(0_u32..).map(|(process, at)| (process, f64::from(at))).collect();
    let height = LANE * f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let mut panel = Panel::new(span, height, bands);
    let y = |process: u64| rows.get(&process).map(|row| TOP + row * LANE);
    for (process, row) in &rows {
        panel.label(4.0, TOP + row * LANE + 12.0, "axis", &format!("process {process}"));
    }
    for fault in history.faults.iter().filter(|fault| fault.name == CLIENT_SLEEP) {
        let Some((process, lasts_ns)) = slept(&fault.what) else { continue };
        let (from_ns, to_ns) = (fault.at.time_ns, fault.at.time_ns + lasts_ns);
        if let Some(y) = y(process).filter(|_| span.shows(from_ns, to_ns)) {
            panel.bar(from_ns, to_ns, (y + 1.0, LANE - 2.0), "asleep", &fault.what);
        }
    }
    let title = |belief: &lockkeeper_check::belief::Belief<'_>| {
        let from = seconds(belief.from.time_ns);
        format!("process {} token {:#x} from {from:.3} s", belief.process, belief.token)
    };
    for belief in of_lock() {
        let to_ns = belief.until.map_or(span.to_ns, |until| until.time_ns);
        if let Some(y) = y(belief.process).filter(|_| span.shows(belief.from.time_ns, to_ns)) {
            let class = if belief.is_shared { "reads" } else { "holds" };
            panel.bar(belief.from.time_ns, to_ns, (y + 3.0, LANE - 6.0), class, &title(belief));
        }
    }
    for overlap in overlaps(history).iter().filter(|overlap| overlap.newer.lock == lock) {
        let from_ns = overlap.newer.from.time_ns;
        let ends = [overlap.older.until, overlap.newer.until];
        let to_ns = ends.iter().flatten().map(|until| until.time_ns).min().unwrap_or(span.to_ns);
        for belief in [&overlap.older, &overlap.newer] {
            if let Some(y) = y(belief.process).filter(|_| span.shows(from_ns, to_ns)) {
                let title = format!("two believe: {}", title(belief));
                panel.bar(from_ns, to_ns, (y + 3.0, LANE - 6.0), "overlap", &title);
            }
        }
    }
    for notice in history.notices.iter().filter(|notice| notice.kind == NoticeKind::Expired) {
        let at = notice.at.time_ns;
        if let Some(y) = y(notice.process).filter(|_| span.shows(at, at)) {
            let title = format!("process {} is told that its session is over", notice.process);
            panel.mark(at, (y, LANE), "expired", &title);
        }
    }
    panel.finish(&format!("lock {lock}"))
}

/// Process and nanoseconds of what the journal says about a client that slept.
fn slept(what: &str) -> Option<(u64, u64)> {
    let (process, time) = what.strip_prefix("process ")?.split_once(" for ")?;
    let time: f64 = time.strip_suffix(" s")?.parse().ok()?;
    let time = std::time::Duration::try_from_secs_f64(time).ok()?;
    Some((process.parse().ok()?, u64::try_from(time.as_nanos()).ok()?))
}

/// Terms, as far as something was applied in them, and who said that it leads.
#[must_use]
pub fn leaders(
    lines: &[AuditLine],
    led: &[Led],
    began_at_ms: i64,
    span: Span,
    bands: &[Band],
) -> String {
    let mut panel = Panel::new(span, LANE * 2.0, bands);
    panel.label(4.0, TOP + 12.0, "axis", "leader");
    panel.label(4.0, TOP + LANE + 12.0, "axis", "term");
    let ends = led.iter().skip(1).map(|next| next.from_ns).chain([span.to_ns]);
    for (one, to_ns) in led.iter().zip(ends) {
        let Some(leader) = &one.leader else { continue };
        let class = format!("leader {leader}");
        panel.bar(one.from_ns, to_ns, (TOP + 1.0, LANE - 2.0), &class, leader);
        panel.label(span.x(one.from_ns) + 3.0, TOP + 12.0, "inbar", leader);
    }
    let mut begins: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines {
        let ms = u64::try_from(line.time_ms - began_at_ms).unwrap_or_default();
        let at = begins.entry(line.term).or_insert(u64::MAX);
        *at = (*at).min(ms.saturating_mul(1_000_000));
    }
    let ends: Vec<u64> = begins.values().skip(1).copied().chain([span.to_ns]).collect();
    for ((term, from_ns), to_ns) in begins.into_iter().zip(ends) {
        let (name, y) = (format!("term {term}"), TOP + LANE);
        panel.bar(from_ns, to_ns, (y + 1.0, LANE - 2.0), "term", &name);
        panel.label(span.x(from_ns) + 3.0, y + 12.0, "inbar", &term.to_string());
    }
    panel.finish("leaders and terms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sleep_of_a_client_is_read_as_it_is_written() {
        assert_eq!(slept("process 3 for 2.50 s"), Some((3, 2_500_000_000)));
        assert_eq!(slept("n1 (the leader)"), None);
    }
}
