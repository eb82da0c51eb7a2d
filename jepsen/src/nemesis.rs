//! The nemesis: which faults strike when.
//!
//! *Owns* the names of the faults and what each is; [`plan`] draws them from the seed before anything
//! runs, and [`strike`] carries them out.

pub mod plan;
pub mod strike;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::cluster::switch::Weather;

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

/// Bytes a second of a link that is narrow: a third of what busy servers have for each other.
const NARROW: u64 = 24 << 10;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Faults {
        text.parse().unwrap()
    }

    #[test]
    fn faults_keep_their_names() {
        for name in ["none", "kill", "kill+pause", "leader", "leader+kill", "all", "one-way+ring"] {
            assert_eq!(faults(&name.replace('+', ",")).name(), name);
        }
        assert!("none,kill".parse::<Faults>().is_err() && "".parse::<Faults>().is_err());
        assert_eq!(faults("all").kinds.len(), Kind::ALL.len());
    }
}
