//! Striking: the faults of the plan done to servers, and ended again.
//!
//! *Owns* whom a strike hits. *Invariant*: what is done goes into the journal under the fault's name
//! once it is done; what could not be done goes there under another name, so that nobody counts it.

use std::time::Duration;

use lockkeeper_check::liveness::HEAL;

use super::{Kind, Strike, Target, Way};
use crate::cluster::Cluster;
use crate::journal::Journal;

/// The name of a strike that came to nothing.
pub(crate) const MISSED: &str = "missed";

/// Servers that a fault has left alone follow their leader within this time.
const IN_STEP_MAX: Duration = Duration::from_secs(3);

/// Whoever is to lead does within this time, if anybody can.
const ELECTED_MAX: Duration = Duration::from_secs(2);

/// The places that a strike hits now.
fn places(target: Target, cluster: &Cluster) -> Vec<usize> {
    let nodes = cluster.len();
    match target {
        Target::Leader => vec![cluster.next_leader(ELECTED_MAX).unwrap_or(0)],
        Target::One(at) => vec![at],
        Target::Minority(at) => (0..(nodes - 1) / 2).map(|step| (at + step) % nodes).collect(),
        Target::All => (0..nodes).collect(),
    }
}

/// Strikes.
///
/// # Errors
/// A signal cannot be sent, or a server not be started.
pub fn strike(strike: &Strike, cluster: &mut Cluster, journal: &Journal) -> Result<(), String> {
    let places = unhurt(strike, cluster);
    let name = strike.kind.name();
    let names: Vec<&str> = places.iter().map(|at| cluster.name(*at)).collect();
    let mut what = format!("{} ({}{})", names.join(" "), strike.target, strike.details());
    // A server that joins takes a while, and damage is done or cannot be: both are told of behind.
    let missed = if strike.kind == Kind::Membership {
        cluster.join().map(|who| what = who).err()
    } else if strike.kind == Kind::Corruption && !cluster.is_in_step(IN_STEP_MAX) {
        Some("the servers are not in step".to_owned())
    } else if places.is_empty() {
        Some("everybody is hit already".to_owned())
    } else if strike.kind == Kind::Corruption {
        let harm = strike.harm.expect("a corruption is planned with what it damages");
        let done = cluster.damage(places[0], harm);
        done.map(|done| what = format!("{what}: {done}")).err()
    } else {
        None
    };
    if let Some(why) = missed {
        journal.fault(MISSED, &format!("{name}: {why}"));
        return Ok(());
    }
    journal.fault(name, &what);
    match strike.kind {
        Kind::Kill => {
            for at in &places {
                cluster.kill(*at);
            }
        }
        Kind::Pause => places.iter().try_for_each(|at| cluster.pause(*at).map(drop))?,
        Kind::Partition
        | Kind::OneWay
        | Kind::Delay
        | Kind::Loss
        | Kind::Reorder
        | Kind::Bandwidth => {
            places.iter().try_for_each(|at| isolate(*at, &places, strike, cluster))?;
        }
        Kind::Ring => ring(places[0], cluster)?,
        Kind::Power => cluster.cut_power(&places)?,
        Kind::DiskFull => places.iter().try_for_each(|at| cluster.fill_disk(*at))?,
        Kind::DiskErrors => places.iter().try_for_each(|at| cluster.break_disk(*at))?,
        Kind::SlowDisk => places.iter().try_for_each(|at| cluster.slow_disk(*at))?,
        Kind::Clock => places.iter().try_for_each(|at| cluster.jump(*at, strike.jump_s))?,
        Kind::Membership | Kind::Corruption => {}
    }
    Ok(())
}

/// Two faults may strike at once, but what is down or stands still cannot be hit again: then it is
/// those of the target that are up, or somebody else. A clock may jump whatever else is wrong, as long
/// as there is somebody who looks at it: a leader whose disk is slow goes on leading.
fn unhurt(strike: &Strike, cluster: &Cluster) -> Vec<usize> {
    let can_be_hit = |at: &usize| match strike.kind {
        Kind::Clock => cluster.runs(*at),
        _ => cluster.is_up(*at),
    };
    let mut places = places(strike.target, cluster);
    places.retain(can_be_hit);
    if places.is_empty() {
        places.extend((0..cluster.len()).find(can_be_hit));
    }
    places
}

/// Cuts a server off from those whom the strike does not hit, or gives the links to them its weather;
/// to all, if it hits all.
fn isolate(at: usize, hit: &[usize], strike: &Strike, cluster: &mut Cluster) -> Result<(), String> {
    let nodes = cluster.len();
    let is_each_alone = hit.len() == nodes;
    let mut strike_link = |from, to| match strike.kind.weather() {
        Some(weather) => cluster.weather(from, to, weather),
        None => cluster.cut(from, to),
    };
    for other in 0..nodes {
        if other == at || (hit.contains(&other) && !is_each_alone) {
            continue;
        }
        if strike.way != Way::Mute {
            strike_link(other, at)?;
        }
        if strike.way != Way::Deaf {
            strike_link(at, other)?;
        }
    }
    Ok(())
}

/// Leaves each server a majority around its own place in a ring that begins with the one that is hit.
fn ring(first: usize, cluster: &mut Cluster) -> Result<(), String> {
    for (one, other) in ring_cuts(cluster.len()) {
        let (one, other) = ((first + one) % cluster.len(), (first + other) % cluster.len());
        cluster.cut(one, other)?;
        cluster.cut(other, one)?;
    }
    Ok(())
}

/// Who is cut off from whom, counted from the first. Of three servers it is the first from the one
/// behind it: the third sees both.
fn ring_cuts(nodes: usize) -> Vec<(usize, usize)> {
    if nodes == 3 {
        return vec![(0, 1)];
    }
    let reach = (nodes / 2).div_ceil(2);
    let pairs = (0..nodes).flat_map(|one| (one + 1..nodes).map(move |other| (one, other)));
    let distance = |(one, other): &(usize, usize)| (other - one).min(nodes - (other - one));
    pairs.filter(|pair| distance(pair) > reach).collect()
}

/// Ends all faults.
///
/// # Errors
/// A server cannot be started.
pub fn heal(cluster: &mut Cluster, journal: &Journal) -> Result<(), String> {
    let healed = cluster.heal()?;
    journal.fault(HEAL, &healed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_ring_everybody_sees_a_majority_and_nobody_sees_all() {
        for nodes in [4, 5, 6, 7, 9] {
            let cuts = ring_cuts(nodes);
            for at in 0..nodes {
                let lost = cuts.iter().filter(|(one, other)| *one == at || *other == at).count();
                assert!(nodes - lost > nodes / 2, "{nodes} servers: {at} sees {}", nodes - lost);
                assert!(lost > 0, "{nodes} servers: {at} sees all");
            }
        }
        assert_eq!(ring_cuts(3), [(0, 1)]);
        assert_eq!(ring_cuts(5), [(0, 2), (0, 3), (1, 3), (1, 4), (2, 4)]);
    }
}
