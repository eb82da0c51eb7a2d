//! The nemesis: which faults strike when, and striking them.
//!
//! *Owns* the plan of faults, drawn from the seed before anything runs, and its execution. *Invariant*:
//! the same settings and seed give the same plan. Whom a fault hits may depend on who leads then; that
//! goes into the journal.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::journal::Journal;
use crate::random::{FAULTS, Random};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL, and a start later.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Pause,
    /// Servers cannot reach each other.
    Partition,
}

/// Whom it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Who leads when it strikes.
    Leader,
    /// One of them, by its place.
    One(usize),
    /// As many as the others can do without, from one place on.
    Minority(usize),
    /// All at once.
    All,
}

/// In which directions a partition cuts, seen from those whom it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Both,
    /// They hear nobody, and are heard.
    Deaf,
    /// Nobody hears them, and they hear.
    Mute,
}

/// A fault, from its strike to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    pub kind: Kind,
    pub target: Target,
    /// Of a partition.
    pub way: Way,
    /// After the start of the run.
    pub at: Duration,
    pub lasts: Duration,
}

impl Kind {
    /// All of them, with the names of the command line, the journal and the coverage.
    pub const ALL: [(Kind, &'static str); 3] =
        [(Kind::Kill, "kill"), (Kind::Pause, "pause"), (Kind::Partition, "partition")];

    #[must_use]
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).expect("all are there").1
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Kind::ALL.iter().find(|(_, known)| *known == name);
        let names: Vec<&str> = Kind::ALL.iter().map(|(_, name)| *name).collect();
        known.map(|(kind, _)| *kind).ok_or_else(|| {
            format!("no nemesis is called {name}; there are none, {}", names.join(", "))
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Leader => f.write_str("the leader"),
            Target::One(at) => write!(f, "n{}", at + 1),
            Target::Minority(at) => write!(f, "a minority from n{} on", at + 1),
            Target::All => f.write_str("all"),
        }
    }
}

impl Way {
    fn words(self) -> &'static str {
        match self {
            Way::Both => "",
            Way::Deaf => ", deaf",
            Way::Mute => ", mute",
        }
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        let (kind, way) = (self.kind.name(), self.way.words());
        write!(f, "at {at:.2} s: {kind} {}{way} for {lasts:.2} s", self.target)
    }
}

/// The faults of a run: one at a time, with quiet between them, the last over before the end.
#[must_use]
pub fn plan(
    seed: u64,
    kinds: &[Kind],
    nodes: usize,
    length: Duration,
    interval: Duration,
) -> Vec<Strike> {
    let mut random = Random::new(seed, FAULTS);
    let mut plan = Vec::new();
    if kinds.is_empty() {
        return plan;
    }
    let (least, most) = (interval.mul_f64(0.4), interval.mul_f64(1.2));
    let mut at = random.between(least / 2, least);
    loop {
        // Each kind in turn first, so that none is left out by chance.
        let kind = match kinds.get(plan.len()) {
            Some(kind) => *kind,
            None => *random.pick(kinds),
        };
        let target = target(&mut random, nodes, plan.len());
        let way = way(&mut random, kind, plan.len());
        let lasts = random.between(least, most);
        if at + lasts > length {
            return plan;
        }
        plan.push(Strike { kind, target, way, at, lasts });
        at += lasts + random.between(least, most);
    }
}

/// The first strikes are aimed at the leader: nothing else makes an election certain.
fn target(random: &mut Random, nodes: usize, before: usize) -> Target {
    let one = random.index(nodes);
    let chance = random.below(10);
    match chance {
        _ if nodes == 1 => Target::All,
        _ if before < 2 => Target::Leader,
        0..4 => Target::Leader,
        4..7 => Target::One(one),
        7..9 => Target::Minority(one),
        _ => Target::All,
    }
}

/// The first partitions cut both ways: nothing else makes an election certain.
fn way(random: &mut Random, kind: Kind, before: usize) -> Way {
    if kind != Kind::Partition {
        return Way::Both;
    }
    match random.below(10) {
        _ if before < 2 => Way::Both,
        0..6 => Way::Both,
        6..8 => Way::Deaf,
        _ => Way::Mute,
    }
}

/// The places that a strike hits now.
fn places(target: Target, cluster: &Cluster) -> Vec<usize> {
    let nodes = cluster.len();
    match target {
        Target::Leader => vec![cluster.leader().unwrap_or(0)],
        Target::One(at) => vec![at],
        Target::Minority(at) => (0..(nodes - 1) / 2).map(|step| (at + step) % nodes).collect(),
        Target::All => (0..nodes).collect(),
    }
}

/// Strikes.
///
/// # Errors
/// A signal cannot be sent.
pub fn strike(strike: &Strike, cluster: &mut Cluster, journal: &Journal) -> Result<(), String> {
    let places = places(strike.target, cluster);
    let names: Vec<&str> = places.iter().map(|at| cluster.name(*at)).collect();
    let what = format!("{} ({}{})", names.join(" "), strike.target, strike.way.words());
    journal.fault(strike.kind.name(), &what);
    for at in places.iter().copied() {
        match strike.kind {
            Kind::Kill => {
                cluster.kill(at);
            }
            Kind::Pause => {
                cluster.pause(at)?;
            }
            Kind::Partition => isolate(at, &places, strike, cluster)?,
        }
    }
    Ok(())
}

/// Cuts a server off from those whom the strike does not hit; from all, if it hits all.
fn isolate(at: usize, hit: &[usize], strike: &Strike, cluster: &mut Cluster) -> Result<(), String> {
    let is_each_alone = hit.len() == cluster.len();
    for other in 0..cluster.len() {
        if other == at || (hit.contains(&other) && !is_each_alone) {
            continue;
        }
        if strike.way != Way::Mute {
            cluster.cut(other, at)?;
        }
        if strike.way != Way::Deaf {
            cluster.cut(at, other)?;
        }
    }
    Ok(())
}

/// The name of the end of a fault in the journal.
pub const HEAL: &str = "heal";

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

    const MINUTE: Duration = Duration::from_secs(60);
    const INTERVAL: Duration = Duration::from_secs(5);

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another_one() {
        let plan = |seed| plan(seed, &[Kind::Kill, Kind::Pause], 3, MINUTE, INTERVAL);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_kind_strikes_at_the_leader_first_and_all_is_over_before_the_end() {
        for seed in 0..200 {
            let plan = plan(seed, &[Kind::Kill, Kind::Pause], 3, MINUTE, INTERVAL);
            assert_eq!((plan[0].kind, plan[0].target), (Kind::Kill, Target::Leader));
            assert_eq!((plan[1].kind, plan[1].target), (Kind::Pause, Target::Leader));
            for pair in plan.windows(2) {
                assert!(pair[0].at + pair[0].lasts < pair[1].at);
            }
            let last = plan.last().unwrap();
            assert!(last.at + last.lasts <= MINUTE);
        }
    }

    #[test]
    fn partitions_come_in_all_directions_and_the_first_cuts_both() {
        let plans = (0..50).map(|seed| plan(seed, &[Kind::Partition], 3, MINUTE, INTERVAL));
        let strikes: Vec<Strike> = plans
            .flat_map(|plan| {
                assert_eq!((plan[0].way, plan[0].target), (Way::Both, Target::Leader));
                plan
            })
            .collect();
        for way in [Way::Both, Way::Deaf, Way::Mute] {
            assert!(strikes.iter().any(|strike| strike.way == way));
        }
    }

    #[test]
    fn a_run_without_faults_has_no_plan() {
        assert_eq!(plan(7, &[], 3, MINUTE, INTERVAL), []);
    }
}
