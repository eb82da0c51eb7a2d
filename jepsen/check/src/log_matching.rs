//! Log matching (C17): at one place of the log all servers have the same entry, and a server that has
//! applied an entry applies what follows it.
//!
//! *Owns* the places of the log by server. A server that starts again, or is given an image, may leave
//! places out or tell them twice; where it tells of a place, it tells of all its transactions, unless
//! it was killed while it wrote.

use std::collections::BTreeMap;

use crate::audit::{AuditLine, AuditLog};
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// A place as a server tells of it.
#[derive(Debug)]
struct Place<'a> {
    node: &'a str,
    /// In order; the first of one entry stands for its term.
    lines: Vec<&'a AuditLine>,
    /// The server told nothing more before it ended.
    is_cut: bool,
}

/// Checks the accounts against each other.
#[must_use]
pub fn check(logs: &[AuditLog]) -> Verdict {
    if logs.len() < 2 {
        return Verdict::Moot("fewer than two servers gave an account".to_owned());
    }
    let mut known: BTreeMap<u64, Place<'_>> = BTreeMap::new();
    for place in logs.iter().flat_map(places) {
        let index = place.lines[0].index;
        match known.get(&index) {
            None => drop(known.insert(index, place)),
            Some(before) => {
                if let Err(violation) = same(before, &place) {
                    return Verdict::Invalid(violation);
                }
                if before.lines.len() < place.lines.len() {
                    known.insert(index, place);
                }
            }
        }
    }
    let mut newest: Option<&AuditLine> = None;
    for place in known.values() {
        let first = place.lines[0];
        if let Some(before) = newest.filter(|before| before.term > first.term) {
            let what = format!("the term falls from {} to {}", before.term, first.term);
            let around = vec![report::line(before), format!("> {}", report::line(first))];
            return Verdict::Invalid(Violation { rule: Rule::LogMatching, what, around });
        }
        newest = Some(first);
    }
    match newest {
        Some(_) => Verdict::Valid,
        None => Verdict::Moot("no server has applied anything".to_owned()),
    }
}

/// The places of a server's account, each time that it tells of them.
fn places(log: &AuditLog) -> Vec<Place<'_>> {
    let mut places: Vec<Place<'_>> = Vec::new();
    for line in &log.lines {
        match places.last_mut() {
            Some(last) if last.lines[0].index == line.index && last.lines[0].zxid < line.zxid => {
                last.lines.push(line);
            }
            last => {
                if let Some(last) = last {
                    last.is_cut = last.lines[0].index >= line.index;
                }
                places.push(Place { node: &log.node, lines: vec![line], is_cut: false });
            }
        }
    }
    if let Some(last) = places.last_mut() {
        last.is_cut = true;
    }
    places
}

fn same(one: &Place<'_>, other: &Place<'_>) -> Result<(), Violation> {
    let told = |place: &Place<'_>| -> Vec<(u64, i64)> {
        place.lines.iter().map(|line| (line.term, line.zxid)).collect()
    };
    let (first, second) = (told(one), told(other));
    let is_part =
        (one.is_cut && second.starts_with(&first)) || (other.is_cut && first.starts_with(&second));
    if first == second || is_part {
        return Ok(());
    }
    let lines = |place: &Place<'_>| -> Vec<String> {
        let text = |line: &&AuditLine| {
            format!("{}: term {} {}", place.node, line.term, report::line(line))
        };
        place.lines.iter().map(text).collect()
    };
    let what =
        format!("{} and {} have different entries at {}", one.node, other.node, one.lines[0].index);
    Err(Violation { rule: Rule::LogMatching, what, around: [lines(one), lines(other)].concat() })
}
