//! Deliberate bugs that the simulation must catch, and how they are hunted.
//!
//! *Owns* the catalogue: in which world each bug is hunted, and within how many seeds it must be found.
//! jepsen/TRACK_RECORD.md is the table for people. *Invariant*: nothing helps a bug to be found: these are the
//! seeds that every test run plays, with the same checks. *Never* says what a bug is: `mutant!` stands where it lives.

use std::fmt;

use lockkeeper_core::mutants;

use super::conn::Violation;
use super::founding;
use super::migration;
use super::run::{run, run_slow};
use super::{busy, changes, removals};
use Kind::{Busy, Changes, Five, Founding, Losses, Migration, One, Removals, Slow, Three};

/// A deliberate bug.
#[derive(Debug)]
pub struct Mutant {
    /// As `mutant!` has it.
    pub name: &'static str,
    /// Where it is hunted.
    pub kind: Kind,
    /// It must be caught by one of the seeds from 1 to this. Any change of the product may give a seed
    /// another course, so that there is room behind the one that does it now.
    pub seeds: u64,
}

/// A kind of simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The life of a lone server.
    One,
    /// Of three, and of five.
    Three,
    Five,
    /// Of three in a slow world.
    Slow,
    /// See `removals.rs`.
    Removals,
    /// See `changes.rs`.
    Changes,
    /// See `busy.rs`.
    Busy,
    /// See `founding.rs`. Its seeds take milliseconds.
    Founding,
    /// Of ensembles that lose their majority for ever: see `founding/world/lost_majority.rs`.
    Losses,
    /// Of live migrations: see `migration.rs`.
    Migration,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            One => "1",
            Three => "3",
            Five => "5",
            Slow => "slow",
            Removals => "removals",
            Changes => "changes",
            Busy => "busy",
            Founding => "founding",
            Losses => "losses",
            Migration => "migration",
        })
    }
}

impl Kind {
    /// How many seeds a count tries at most unless it is told: those that take some tens of seconds.
    fn counted_seeds_max(self) -> u64 {
        match self {
            One | Slow => 150,
            Three => 30,
            Five => 15,
            Removals | Changes => 3000,
            Busy => 100,
            Founding | Losses => 1000,
            Migration => 300,
        }
    }
}

impl Mutant {
    /// Whether it is one of the quick set, which is hunted more often.
    pub fn is_quick(&self) -> bool {
        [Founding, Losses].contains(&self.kind) || self.seeds <= QUICK_SEEDS_MAX
    }

    /// The first of these seeds that catches it, and how.
    pub fn hunt(&self, mut seeds: impl Iterator<Item = u64>) -> Option<(u64, Violation)> {
        mutants::plant(Some(self.name));
        let caught = seeds.find_map(|seed| Some((seed, self.play(seed)?)));
        mutants::plant(None);
        caught
    }

    /// How many seeds it takes to catch it: the median of five counts that begin far apart from each other and from
    /// the seeds of the tests. Each count tries so many seeds at most. `Err` is how many were not enough.
    pub fn seeds_to_catch(&self, most: Option<u64>) -> Result<u64, u64> {
        let most = most.unwrap_or(self.kind.counted_seeds_max());
        let mut counts: Vec<Result<u64, u64>> = Vec::new();
        for begin in (1..=MEDIAN_OF).map(|at| at * MEDIAN_STEP) {
            let caught = self.hunt(begin + 1..=begin + most);
            counts.push(caught.map_or(Err(most), |(seed, _)| Ok(seed - begin)));
            // The others cannot bring the median down any more.
            if counts.iter().filter(|count| count.is_err()).count() > MEDIAN_OF as usize / 2 {
                return Err(most);
            }
        }
        counts.sort_by_key(|count| count.unwrap_or(u64::MAX));
        counts[counts.len() / 2]
    }

    /// What rule a seed breaks.
    fn play(&self, seed: u64) -> Option<Violation> {
        let life = |servers| run(seed, servers, false).err().map(|failure| failure.violation);
        match self.kind {
            One => life(1),
            Three => life(3),
            Five => life(5),
            Slow => run_slow(seed, 3, false).err().map(|failure| failure.violation),
            Removals => removals::run(seed).err(),
            Changes => changes::run(seed).err(),
            Busy => busy::run(seed).err(),
            Founding => founding::run(seed, false).err(),
            Losses => founding::run_loss(seed, false).err(),
            Migration => migration::run(seed, false).err(),
        }
    }
}

const fn mutant(name: &'static str, kind: Kind, seeds: u64) -> Mutant {
    Mutant { name, kind, seeds }
}

/// How far apart the seeds are from which the median counts.
const MEDIAN_STEP: u64 = 10_000;
/// How often it counts.
const MEDIAN_OF: u64 = 5;

/// A bug that is found within so many seeds is one of the quick set.
const QUICK_SEEDS_MAX: u64 = 20;

/// A product that panics because of its bug is caught; what it says then interests no reader.
pub fn silence_the_hunted() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if mutants::planted().is_none() {
            usual(panic);
        }
    }));
}

/// All of them.
pub const CATALOGUE: &[Mutant] = &[
    // --- consensus
    mutant("acknowledge-before-sync", Three, 20),
    mutant("vote-before-sync", Three, 20),
    mutant("vote-forgotten-at-restart", Three, 20),
    mutant("commit-without-quorum", Three, 20),
    mutant("lead-before-caught-up", Three, 20),
    mutant("emptied-server-keeps-identity", Three, 20),
    mutant("local-extended-types", Three, 20),
    mutant("local-quotas", Three, 20),
    mutant("local-skip-acl", Three, 20),
    mutant("local-digest-scheme", Three, 20),
    mutant("applies-wrongly", Three, 20),
    mutant("flipped-byte", Three, 20),
    // --- a disk that was put back to an older copy
    mutant("votes-before-asking", Three, 20),
    mutant("rollback-unnoticed", Three, 20),
    mutant("remembers-no-acknowledgements", Three, 20),
    mutant("remembers-no-votes", Three, 20),
    mutant("silent-voters-not-awaited", Three, 200),
    mutant("rollback-mark-not-synced", Three, 20),
    mutant("answer-counts-what-came-later", Three, 60),
    mutant("cut-entry-counts-as-lost", Five, 60),
    // --- the disk
    mutant("log-not-synced", One, 20),
    mutant("segment-name-not-synced", One, 20),
    mutant("image-not-synced", One, 20),
    mutant("log-checksum-unchecked", One, 20),
    mutant("damaged-image-served", One, 60),
    mutant("log-cut-to-newest-image", One, 20),
    mutant("checkpoint-ahead-of-log", Three, 60),
    mutant("image-keeps-clients", Three, 60),
    mutant("overwritten-entry-comes-back", Three, 20),
    mutant("overwrites-one-too-many", Three, 20),
    mutant("entry-applied-twice-at-restart", One, 20),
    mutant("lost-entries-unnoticed", Removals, 20_000),
    mutant("hung-leader-stays", Three, 60),
    mutant("stands-again-at-once", Three, 200),
    mutant("moving-session-expires", Three, 200),
    // --- members
    mutant("removal-acknowledged-early", Removals, 20),
    mutant("removal-without-mark", Removals, 400),
    mutant("joint-change-cuts-links", Changes, 100),
    mutant("leads-on-without-vote", Changes, 100),
    mutant("leaving-voters-removed-at-once", Changes, 200),
    mutant("checkpoint-forgets-leaving", Changes, 400),
    mutant("vote-beside-the-old-one", Five, 40),
    mutant("new-voters-unchecked", Changes, 100),
    mutant("later-voters-not-told", Changes, 1500),
    // --- busy leaders
    mutant("turn-without-bound", Busy, 20),
    mutant("write-sets-out-behind-reads", Busy, 20),
    // --- how an ensemble is founded
    mutant("majority-founds", Founding, 20),
    mutant("forgets-who-served", Founding, 300),
    mutant("word-beside-anything", Founding, 100),
    mutant("word-of-another-life", Founding, 400),
    mutant("consent-of-any-age", Founding, 400),
    mutant("late-state-joins", Founding, 100),
    mutant("first-of-two-states-founds", Founding, 40),
    mutant("founder-serves-alone", Founding, 20),
    mutant("absent-voters-count", Founding, 300),
    mutant("state-counts-as-empty", Founding, 100),
    mutant("unused-counts-as-state", Founding, 100),
    mutant("unequal-lines-found", Founding, 40),
    // --- a majority that is lost for ever
    mutant("restore-goes-back", Losses, 200),
    mutant("recovery-beside-running-server", Losses, 100),
    mutant("silent-holder-counts-as-dead", Losses, 100),
    mutant("shorter-log-goes-on", Losses, 300),
    mutant("empty-servers-found-beside-recovery", Losses, 100),
    // --- a live migration
    mutant("digest-not-compared", Migration, 40),
    mutant("cutover-keeps-epoch", Migration, 10),
    mutant("cutover-without-all-sessions", Migration, 60),
    mutant("cutover-without-fence", Migration, 100),
    mutant("lost-requests-unanswered", Migration, 20),
    mutant("session-numbers-repeat", Migration, 40),
    mutant("config-of-the-other-ensemble", Migration, 10),
    mutant("given-up-cutover-goes-on", Migration, 200),
    mutant("writes-behind-lost-go-on", Migration, 40),
    mutant("expired-without-proof", Migration, 20),
    mutant("write-before-its-sync", Migration, 10),
    // --- what is read
    mutant("sync-without-quorum", Three, 20),
    mutant("read-index-not-awaited", Three, 20),
    mutant("read-index-one-early", Three, 20),
    mutant("reads-by-lease", Slow, 20),
    mutant("read-index-asked-again-alike", Slow, 100),
    mutant("read-overtakes-write", One, 20),
    // --- the order of writes
    mutant("next-term-does-not-wait", Three, 60),
    mutant("waiting-behind-lost-is-given", Three, 60),
    mutant("broken-link-unnoticed", Three, 100),
    mutant("failure-takes-no-zxid", One, 20),
    mutant("zxid-forgets-term", Three, 20),
    mutant("time-of-each-server", Three, 20),
    // --- time
    mutant("time-never-goes-back", One, 20),
    mutant("time-goes-back-alone", Three, 60),
    mutant("clocks-not-awaited", Three, 200),
    mutant("steady-clock-is-the-wall-clock", One, 20),
    mutant("steady-clock-not-heard", Three, 20),
    // --- sessions
    mutant("sessions-never-expire", One, 20),
    mutant("touch-ignored", One, 20),
    mutant("touches-not-passed-on", Three, 20),
    mutant("new-leader-knows-no-mercy", Three, 20),
    mutant("attach-keeps-deadline", Three, 20),
    mutant("reports-not-awaited", Three, 200),
    mutant("given-up-sessions-not-spared", Slow, 20),
    mutant("standstill-counts", Slow, 20),
    mutant("report-lost-with-its-link", Slow, 200),
    mutant("deposed-leader-tells-nothing", Slow, 100),
    mutant("report-counts-from-arrival", Slow, 200),
    mutant("answer-is-no-touch", Slow, 200),
    mutant("any-password", One, 20),
    mutant("request-counts-for-later-identities", One, 20),
    mutant("reads-between-portions", One, 200),
    mutant("two-connections-one-session", One, 60),
    mutant("moved-session-writes", One, 20),
    mutant("expiry-leaves-ephemerals", One, 20),
    mutant("grace-not-given", One, 20),
    // --- znodes
    mutant("sequence-from-child-count", One, 20),
    mutant("multi-keeps-half", One, 20),
    mutant("version-unchecked", One, 20),
    mutant("delete-past-acl", One, 20),
    mutant("deletion-keeps-pzxid", One, 20),
    mutant("ttl-unchecked", One, 20),
    mutant("reaper-allowance-unspent", One, 20),
    mutant("usage-outlives-session", One, 20),
    // --- watches
    mutant("event-twice", One, 20),
    mutant("events-reversed", One, 20),
    mutant("nearest-recursive-watch-only", One, 20),
    mutant("event-behind-reply", One, 20),
    mutant("event-past-acl", One, 20),
    mutant("deletion-spares-child-watch", One, 20),
    mutant("watch-lost-at-reconnect", One, 20),
    mutant("missed-change-untold", One, 20),
    mutant("watch-outlives-connection", One, 20),
];
