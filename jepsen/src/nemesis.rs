//! The nemesis: which faults strike when.
//!
//! *Owns* the names of the faults and the plan, drawn from the seed before anything runs; [`strike`]
//! carries it out. *Invariant*: the same settings and seed give the same plan. Whom a fault hits may
//! depend on who leads then; that goes into the journal.

pub mod strike;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::cluster::switch::Weather;
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
    /// They cannot in one direction.
    OneWay,
    /// Each reaches a majority, and no two the same one.
    Ring,
    /// The disk loses what it was not asked to keep.
    Power,
    /// The disk has no room, and the server is started again on it.
    DiskFull,
    /// What is to be made durable cannot be.
    DiskErrors,
    /// What is to be made durable takes its time.
    SlowDisk,
    /// The wall clock jumps.
    Clock,
    /// A server joins and leaves again.
    Membership,
    /// Bytes of a server's data change while it is down.
    Corruption,
    /// Packets between servers take their time.
    Delay,
    /// Some of them are lost.
    Loss,
    /// Some of them come behind later ones, some twice.
    Reorder,
    /// There is room for few of them.
    Bandwidth,
}

/// What is damaged of a server's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A record of the log with others behind it: the server must refuse to start, by name.
    Log,
    /// Every image and the state store: the server must fetch an image from another one.
    Copies,
    /// The newest image: the server must do without it.
    Image,
    /// The state store: the server must make it anew.
    State,
}

/// Damage that a strike does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harm {
    pub part: Part,
    /// Decides which bytes change, and how.
    pub chance: u64,
}

/// The faults of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// In order, each once.
    pub kinds: Vec<Kind>,
    /// Whom they hit is always who leads.
    pub at_leader: bool,
    /// Two kinds may strike at once.
    pub at_once: bool,
}

/// The word for no faults.
const NONE: &str = "none";
/// The word that aims all faults at the leader.
const LEADER: &str = "leader";
/// The faults of `leader`, if no others are named.
const OF_LEADER: [Kind; 3] = [Kind::Kill, Kind::Pause, Kind::Partition];
/// The word for all of them, two at once.
const ALL: &str = "all";

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
    /// By how much a clock jumps, seconds.
    pub jump_s: i64,
    /// Of a corruption.
    pub harm: Option<Harm>,
    /// After the start of the run.
    pub at: Duration,
    pub lasts: Duration,
}

impl Kind {
    /// All of them, with the names of the command line, the journal and the coverage.
    pub const ALL: [(Kind, &'static str); 16] = [
        (Kind::Kill, "kill"),
        (Kind::Pause, "pause"),
        (Kind::Partition, "partition"),
        (Kind::OneWay, "one-way"),
        (Kind::Ring, "ring"),
        (Kind::Power, "power"),
        (Kind::DiskFull, "disk-full"),
        (Kind::DiskErrors, "disk-errors"),
        (Kind::SlowDisk, "slow-disk"),
        (Kind::Clock, "clock"),
        (Kind::Membership, "membership"),
        (Kind::Corruption, "corruption"),
        (Kind::Delay, "delay"),
        (Kind::Loss, "loss"),
        (Kind::Reorder, "reorder"),
        (Kind::Bandwidth, "bandwidth"),
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).expect("all are there").1
    }

    /// It cuts servers off from each other.
    #[must_use]
    pub fn needs_networks(self) -> bool {
        matches!(self, Kind::Partition | Kind::OneWay | Kind::Ring) || self.weather().is_some()
    }

    /// What it does to packets between those whom it hits and all others.
    #[must_use]
    pub fn weather(self) -> Option<Weather> {
        let ms = Duration::from_millis;
        let weather = Weather::FAIR;
        match self {
            Kind::Delay => Some(Weather { delay: ms(80), jitter: ms(40), ..weather }),
            Kind::Loss => Some(Weather { lost: 20, ..weather }),
            Kind::Reorder => Some(Weather { late: 30, twice: 5, ..weather }),
            Kind::Bandwidth => Some(Weather { bytes_per_s: Some(NARROW), ..weather }),
            Kind::Kill
            | Kind::Pause
            | Kind::Partition
            | Kind::OneWay
            | Kind::Ring
            | Kind::Power
            | Kind::DiskFull
            | Kind::DiskErrors
            | Kind::SlowDisk
            | Kind::Clock
            | Kind::Membership
            | Kind::Corruption => None,
        }
    }

    /// Servers must have disks of their own.
    #[must_use]
    pub fn needs_disks(self) -> bool {
        matches!(self, Kind::Power | Kind::DiskFull)
    }

    /// A server may lose all that it has: the others must have it, and vote without it.
    #[must_use]
    pub fn needs_a_majority_of_others(self) -> bool {
        self == Kind::Corruption
    }

    /// A server under this fault may end by itself, and must not go on as if nothing were.
    #[must_use]
    pub fn may_end_a_server(self) -> bool {
        matches!(self, Kind::DiskFull | Kind::DiskErrors)
    }
}

impl Part {
    /// In the order of a run's strikes, with the name in the journal of what a server must make of
    /// it.
    pub const ALL: [(Part, &'static str); 4] = [
        (Part::Log, "log-refused"),
        (Part::Copies, "image-fetched"),
        (Part::Image, "image-set-aside"),
        (Part::State, "state-made-anew"),
    ];

    /// The name in the journal of what a server must make of it.
    #[must_use]
    pub fn found(self) -> &'static str {
        Part::ALL.iter().find(|(part, _)| *part == self).expect("all are there").1
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Log => "the log",
            Part::Copies => "every image and the state store",
            Part::Image => "the newest image",
            Part::State => "the state store",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Kind::ALL.iter().find(|(_, known)| *known == name);
        let names: Vec<&str> = Kind::ALL.iter().map(|(_, name)| *name).collect();
        known.map(|(kind, _)| *kind).ok_or_else(|| {
            let names = names.join(", ");
            format!("no nemesis is called {name}; there are {NONE}, {names}, {LEADER}, {ALL}")
        })
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self::default());
        }
        let mut faults = Self::default();
        for word in text.split(',') {
            match word {
                LEADER => faults.at_leader = true,
                ALL => {
                    faults.at_once = true;
                    faults.kinds.extend(Kind::ALL.iter().map(|(kind, _)| *kind));
                }
                name => faults.kinds.push(name.parse()?),
            }
        }
        if faults.kinds.is_empty() {
            faults.kinds.extend(OF_LEADER);
        }
        faults.kinds.sort_unstable();
        faults.kinds.dedup();
        Ok(faults)
    }
}

impl Faults {
    /// The name of a run with these faults.
    #[must_use]
    pub fn name(&self) -> String {
        let mut words: Vec<&str> = Vec::new();
        if self.at_leader {
            words.push(LEADER);
        }
        match self.at_once {
            true => words.push(ALL),
            false if self.at_leader && self.kinds == OF_LEADER => {}
            false if self.kinds.is_empty() => words.push(NONE),
            false => words.extend(self.kinds.iter().map(|kind| kind.name())),
        }
        words.join("+")
    }

    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
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

impl Strike {
    /// What is to be said of it beside its kind and target.
    fn details(&self) -> String {
        if let Some(harm) = self.harm {
            return format!(", {}", harm.part);
        }
        match (self.kind, self.way) {
            (Kind::Clock, _) => format!(", by {} s", self.jump_s),
            (_, Way::Both) => String::new(),
            (_, Way::Deaf) => ", deaf".to_owned(),
            (_, Way::Mute) => ", mute".to_owned(),
        }
    }

    /// Whoever leads cannot go on, and somebody else can.
    #[must_use]
    pub fn makes_an_election_certain(&self) -> bool {
        let ends_a_leader =
            matches!(self.kind, Kind::Kill | Kind::Pause | Kind::Partition | Kind::Power);
        ends_a_leader && self.target == Target::Leader && self.way == Way::Both
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "at {at:.2} s: {}", self.kind.name())?;
        // Who joins and leaves again is none of those who are there.
        if self.kind != Kind::Membership {
            write!(f, " {}{}", self.target, self.details())?;
        }
        write!(f, " for {lasts:.2} s")
    }
}

/// The faults of a run, with quiet between them, the last over before the end: one at a time, or
/// now and then a second one of another kind within the first.
#[must_use]
pub fn plan(
    seed: u64,
    faults: &Faults,
    nodes: usize,
    length: Duration,
    interval: Duration,
) -> Vec<Strike> {
    let mut random = Random::new(seed, FAULTS);
    let mut plan = Vec::new();
    let kinds = &faults.kinds;
    if kinds.is_empty() {
        return plan;
    }
    let (least, most) = (interval.mul_f64(0.4), interval.mul_f64(1.2));
    let mut at = random.between(least / 2, least);
    let mut turns = 0;
    loop {
        // Each kind in turn first, so that none is left out by chance.
        let kind = match kinds.get(turns) {
            Some(kind) => *kind,
            None => *random.pick(kinds),
        };
        let target = one_if_damaged(kind, target(&mut random, faults, nodes, turns));
        let way = way(&mut random, kind, turns);
        let jump_s = jump(&mut random, kind, &plan);
        let harm = damage(&mut random, kind, &plan);
        let lasts = random.between(least, most);
        if at + lasts > length {
            return plan;
        }
        plan.push(Strike { kind, target, way, jump_s, harm, at, lasts });
        turns += 1;
        if faults.at_once {
            let second = match kinds.get(turns) {
                Some(kind) => *kind,
                None => *random.pick(kinds),
            };
            if second != kind && (turns < kinds.len() || random.chance(50)) {
                let at = at + random.between(Duration::ZERO, lasts / 2);
                let target = target_of_second(&mut random, second, nodes);
                let way = way_of_second(second);
                let jump_s = jump(&mut random, second, &plan);
                let harm = damage(&mut random, second, &plan);
                let lasts = lasts / 2;
                plan.push(Strike { kind: second, target, way, jump_s, harm, at, lasts });
                turns += 1;
            }
        }
        at += lasts + random.between(least, most);
    }
}

/// The first strikes are aimed at the leader: nothing else makes an election certain.
fn target(random: &mut Random, faults: &Faults, nodes: usize, before: usize) -> Target {
    let one = random.index(nodes);
    let chance = random.below(10);
    match chance {
        _ if nodes == 1 => Target::All,
        _ if before < 2 || faults.at_leader => Target::Leader,
        0..4 => Target::Leader,
        4..7 => Target::One(one),
        7..9 => Target::Minority(one),
        _ => Target::All,
    }
}

/// A second fault hits one of them. A clock is the leader's: whose else it is, nobody sees.
fn target_of_second(random: &mut Random, kind: Kind, nodes: usize) -> Target {
    match kind == Kind::Clock || random.chance(50) {
        true => Target::Leader,
        false => Target::One(random.index(nodes)),
    }
}

/// Data that every server has lost is lost: one is damaged at a time.
fn one_if_damaged(kind: Kind, target: Target) -> Target {
    match (kind, target) {
        (Kind::Corruption, Target::Minority(at)) => Target::One(at),
        (Kind::Corruption, Target::All) => Target::Leader,
        _ => target,
    }
}

/// Every part in turn.
fn damage(random: &mut Random, kind: Kind, before: &[Strike]) -> Option<Harm> {
    let turn = before.iter().filter(|strike| strike.harm.is_some()).count();
    let (part, _) = Part::ALL[turn % Part::ALL.len()];
    (kind == Kind::Corruption).then(|| Harm { part, chance: random.below(u64::MAX) })
}

/// The first partitions cut both ways: nothing else makes an election certain.
fn way(random: &mut Random, kind: Kind, before: usize) -> Way {
    match kind {
        Kind::Partition => {}
        Kind::OneWay => return if random.chance(50) { Way::Deaf } else { Way::Mute },
        Kind::Kill
        | Kind::Pause
        | Kind::Ring
        | Kind::Power
        | Kind::DiskFull
        | Kind::DiskErrors
        | Kind::SlowDisk
        | Kind::Clock
        | Kind::Membership
        | Kind::Corruption
        | Kind::Delay
        | Kind::Loss
        | Kind::Reorder
        | Kind::Bandwidth => return Way::Both,
    }
    match random.below(10) {
        _ if before < 2 => Way::Both,
        0..6 => Way::Both,
        6..8 => Way::Deaf,
        _ => Way::Mute,
    }
}

fn way_of_second(kind: Kind) -> Way {
    if kind == Kind::OneWay { Way::Mute } else { Way::Both }
}

/// Minutes, forth or back. The first forth: servers' times never go back, so nothing else is sure to
/// be seen, and nobody can take it for a slow machine.
fn jump(random: &mut Random, kind: Kind, before: &[Strike]) -> i64 {
    if kind != Kind::Clock {
        return 0;
    }
    let by = i64::try_from(random.below(JUMP_SECONDS_MAX - JUMP_SECONDS_MIN)).expect("minutes");
    let by = by + i64::try_from(JUMP_SECONDS_MIN).expect("a minute");
    let is_back = !before.is_empty() && random.chance(50);
    let is_first = before.iter().all(|strike| strike.kind != Kind::Clock);
    if is_back && !is_first { -by } else { by }
}

/// Bytes a second of a link that is narrow: a third of what busy servers have for each other.
const NARROW: u64 = 24 << 10;
/// Seconds by which a clock jumps, at least and at most.
const JUMP_SECONDS_MIN: u64 = 60;
const JUMP_SECONDS_MAX: u64 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const INTERVAL: Duration = Duration::from_secs(5);

    fn faults(text: &str) -> Faults {
        text.parse().unwrap()
    }

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another_one() {
        let plan = |seed| plan(seed, &faults("kill,pause"), 3, MINUTE, INTERVAL);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_kind_strikes_at_the_leader_first_and_all_is_over_before_the_end() {
        for seed in 0..200 {
            let plan = plan(seed, &faults("kill,pause"), 3, MINUTE, INTERVAL);
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
        let plans = (0..50).map(|seed| plan(seed, &faults("partition"), 3, MINUTE, INTERVAL));
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
        assert_eq!(plan(7, &faults("none"), 3, MINUTE, INTERVAL), []);
    }

    #[test]
    fn faults_keep_their_names() {
        for name in ["none", "kill", "kill+pause", "leader", "leader+kill", "all", "one-way+ring"] {
            assert_eq!(faults(&name.replace('+', ",")).name(), name);
        }
        assert!("none,kill".parse::<Faults>().is_err() && "".parse::<Faults>().is_err());
        assert_eq!(faults("all").kinds.len(), Kind::ALL.len());
    }

    #[test]
    fn faults_of_the_leader_hit_nobody_else() {
        for seed in 0..50 {
            let plan = plan(seed, &faults("leader"), 3, MINUTE, INTERVAL);
            assert!(plan.len() > 3 && plan.iter().all(|strike| strike.target == Target::Leader));
        }
    }

    #[test]
    fn one_way_cuts_have_one_direction_and_both_come() {
        let all: Vec<Strike> =
            (0..20).flat_map(|seed| plan(seed, &faults("one-way"), 3, MINUTE, INTERVAL)).collect();
        for way in [Way::Deaf, Way::Mute] {
            assert!(all.iter().any(|strike| strike.way == way));
        }
        assert!(all.iter().all(|strike| strike.way != Way::Both));
    }

    #[test]
    fn a_second_fault_strikes_within_the_first_and_every_kind_has_its_turn() {
        for seed in 0..50 {
            let plan = plan(seed, &faults("all"), 3, MINUTE * 3, INTERVAL);
            for (kind, name) in Kind::ALL {
                assert!(plan.iter().any(|strike| strike.kind == kind), "seed {seed}: no {name}");
            }
            let is_within = |pair: &[Strike]| {
                let end = pair[0].at + pair[0].lasts;
                pair[1].at < end && pair[1].at + pair[1].lasts <= end
            };
            assert!(plan.windows(2).any(is_within));
            assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at));
        }
    }

    #[test]
    fn one_server_is_damaged_at_a_time_and_every_part_in_turn() {
        for seed in 0..50 {
            let plan = plan(seed, &faults("corruption"), 3, MINUTE, INTERVAL);
            let parts: Vec<Part> = plan.iter().map(|strike| strike.harm.unwrap().part).collect();
            assert_eq!(parts[..4], Part::ALL.map(|(part, _)| part));
            let is_one = |strike: &Strike| matches!(strike.target, Target::Leader | Target::One(_));
            assert!(plan.iter().all(is_one));
        }
    }

    #[test]
    fn the_first_clock_that_jumps_is_the_leaders_and_jumps_forth() {
        for seed in 0..50 {
            for (name, length) in [("clock", MINUTE), ("all", MINUTE * 3)] {
                let plan = plan(seed, &faults(name), 3, length, INTERVAL);
                let jumps = plan.iter().filter(|strike| strike.kind == Kind::Clock);
                let jumps: Vec<&Strike> = jumps.collect();
                assert!(jumps[0].jump_s >= 60 && jumps[0].target == Target::Leader);
                assert!(jumps.iter().all(|strike| strike.jump_s.abs() >= 60));
            }
        }
    }
}
