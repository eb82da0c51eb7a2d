//! Wall clocks that are wrong, and the time that entries carry.
//!
//! *Owns* when clocks are wrong, by how much and whose; and the rules of time: stamps go back only from more
//! than a minute ahead of a leader with whose clock others agree, and then to that clock; once all clocks are
//! right, stamps are; the steady clock never runs ahead of the world, and a new leader goes on from what it was
//! told. *Invariant*: what clocks show is known for the whole run. *Never* asks a replica what it thinks of
//! another one's clock.

use lockkeeper_core::replica::AuditLine;
use lockkeeper_core::replica::clocks::AGREED_MS_MAX;
use lockkeeper_core::replica::machine::STAMP_LEAD_MS_MAX;

use super::agreement::Proposal;
use super::checker::Checker;
use super::conn::Violation;
use super::host::WALL_MS;
use super::world::{Event, World};

/// How far ahead or behind a wrong clock is, in milliseconds: less than may be and more, a day, ten years.
const ERRORS_MS: [i64; 5] = [20_000, 65_000, 3_600_000, 86_400_000, 315_360_000_000];
/// How old what a leader knows of another clock may be, and how far off.
const READING_US_MAX: u64 = 2_000_000;
const READING_MS_MAX: i64 = 2_500;
/// For so long clocks must have been right before stamps must be: what a leader knows may be that old.
const RIGHT_US_MIN: u64 = 3_000_000;
/// Clocks that are right differ by this much at most.
const JUMPS_MS_MAX: i64 = 4_000;

/// What the wall clocks have shown, and what servers were told of the steady one.
#[derive(Debug)]
pub struct Clocks {
    /// By server: from when on its clock was ahead by how much; world's time, milliseconds.
    shown: Vec<Vec<(u64, i64)>>,
    /// By server: the highest steady time that a leader has told it since it started.
    told: Vec<i64>,
}

impl Clocks {
    pub fn new(servers: usize) -> Self {
        Self { shown: vec![vec![(0, 0)]; servers], told: vec![0; servers] }
    }

    /// From now on, a clock is ahead by this much.
    pub fn set(&mut self, server: usize, now_us: u64, ahead_ms: i64) {
        self.shown[server].push((now_us, ahead_ms));
    }

    /// A server was started anew.
    pub fn forget(&mut self, server: usize) {
        self.told[server] = 0;
    }

    /// The leader that a server follows has told it the steady time.
    pub fn told(&mut self, server: usize, steady_ms: i64) {
        self.told[server] = self.told[server].max(steady_ms);
    }

    pub fn highest_told(&self, server: usize) -> i64 {
        self.told[server]
    }

    /// Whether all clocks have been right for some seconds.
    fn are_right_since(&self, at_us: u64) -> bool {
        let from_us = at_us.saturating_sub(RIGHT_US_MIN);
        self.shown.iter().all(|shown| {
            let first =
                shown.partition_point(|(since_us, _)| *since_us <= from_us).saturating_sub(1);
            shown[first..]
                .iter()
                .filter(|(since_us, _)| *since_us <= at_us)
                .all(|(_, ahead_ms)| *ahead_ms == 0)
        })
    }

    /// Whether a server's clock has shown about this time, just before `at_us`.
    fn agrees(&self, server: usize, at_us: u64, wall_ms: i64) -> bool {
        let from_us = at_us.saturating_sub(READING_US_MAX + READING_MS_MAX as u64 * 1000);
        let shown = &self.shown[server];
        let first = shown.partition_point(|(since_us, _)| *since_us <= from_us).saturating_sub(1);
        shown[first..].iter().filter(|(since_us, _)| *since_us <= at_us).any(|(_, ahead_ms)| {
            let shows_ms = WALL_MS + (at_us / 1000) as i64 + ahead_ms;
            (shows_ms - wall_ms).abs() <= AGREED_MS_MAX + READING_MS_MAX + JUMPS_MS_MAX
        })
    }
}

impl Checker {
    /// The steady time of a transaction, if its stamp is right.
    pub(super) fn time_of(&self, line: &AuditLine, proposal: &Proposal) -> Result<i64, Violation> {
        let last = self.history.lines.last();
        let (stamp_ms, steady_ms) =
            last.map_or((0, 0), |last| (last.audit.time_ms, last.steady_ms));
        if last.is_some_and(|last| last.audit.index == line.index) {
            return match line.time_ms == stamp_ms {
                true => Ok(steady_ms),
                false => Err(format!("the transaction before has the stamp {stamp_ms}")),
            };
        }
        let time = &proposal.time;
        let goes_back = time.is_agreed && stamp_ms - time.wall_ms > STAMP_LEAD_MS_MAX;
        let expected_ms = if goes_back { time.wall_ms } else { stamp_ms.max(time.wall_ms) };
        if line.time_ms != expected_ms {
            return Err(format!("the stamp is not {expected_ms}: {time:?} behind {stamp_ms}"));
        }
        let world_us = proposal.at_us * 1000 / self.rules.clock_rates[proposal.server];
        let agrees = |server| self.clocks.agrees(server, world_us, time.wall_ms);
        // What earlier leaders have put in front of it, and is not applied, its leader cannot know.
        let knows_it = proposal.place >= self.history.len();
        let is_too_far = expected_ms - time.wall_ms > STAMP_LEAD_MS_MAX;
        if is_too_far && knows_it && self.clocks.are_right_since(world_us) {
            return Err(format!("the stamp is {} ms ahead", expected_ms - time.wall_ms));
        }
        let mut others = (0..self.rules.servers).filter(|server| *server != proposal.server);
        if goes_back && self.rules.servers > 1 && !others.any(agrees) {
            return Err(format!("time goes back from {stamp_ms} by a clock that stands alone"));
        }
        let told_ms = time.steady_ms.ok_or("it has no steady time")?;
        if told_ms as u64 > proposal.at_us.max(world_us) / 1000 * 21 / 20 + 1000 {
            return Err(format!("the steady clock shows {told_ms} at {world_us} us of the world"));
        }
        if told_ms < proposal.told_ms {
            let before_ms = proposal.told_ms;
            return Err(format!("its leader was told the steady time {before_ms}, not {told_ms}"));
        }
        Ok(steady_ms.max(told_ms))
    }

    /// Whether the last stamp is what clocks that have long been right show.
    pub(super) fn stamps_are_right(&self) -> Result<(), Violation> {
        let Some(last) = self.history.lines.last() else { return Ok(()) };
        let proposal = self.agreement.proposal(last.audit.index, last.audit.term);
        let proposal = proposal.ok_or("nobody has proposed the last transaction")?;
        let world_us = proposal.at_us * 1000 / self.rules.clock_rates[proposal.server];
        let ahead_ms = last.audit.time_ms - WALL_MS - (world_us / 1000) as i64;
        let is_right = (-JUMPS_MS_MAX..=STAMP_LEAD_MS_MAX + JUMPS_MS_MAX).contains(&ahead_ms);
        match is_right {
            true => Ok(()),
            false => Err(format!("the last stamp is {ahead_ms} ms ahead of all clocks: {last:?}")),
        }
    }
}

impl World {
    /// A time for clocks to go wrong, or for all of them to be set right.
    pub(super) fn clocks_change(&mut self) {
        let Some(every_us) = self.config.wrong_clocks_every_us.filter(|_| self.faults_are_on)
        else {
            return;
        };
        let servers = self.config.servers;
        let next_us = 1 + self.time.below(2 * every_us);
        self.at(next_us, Event::Clocks);
        if self.hosts.iter().any(|host| host.wall_error_ms != 0) {
            return self.set_clocks_right();
        }
        let rng = &mut self.time;
        let one = match rng.chance(600) {
            true => self.checker.agreement.newest_leader().unwrap_or(0),
            false => rng.index(servers),
        };
        let many = match rng.below(6) {
            0 => servers,
            1 => servers / 2 + 1,
            _ => 1,
        };
        let error_ms = *rng.pick(&ERRORS_MS);
        let error_ms = if rng.chance(600) { error_ms } else { -error_ms };
        self.coverage.wrong_clocks += 1;
        for more in 0..many {
            self.set_clock((one + more) % servers, error_ms);
        }
    }

    /// All clocks are right from now on.
    pub(super) fn set_clocks_right(&mut self) {
        for host in 0..self.hosts.len() {
            self.set_clock(host, 0);
        }
    }

    fn set_clock(&mut self, host: usize, error_ms: i64) {
        if std::mem::replace(&mut self.hosts[host].wall_error_ms, error_ms) != error_ms {
            self.trace.note(
                self.now_us,
                format_args!("the clock of {} is {error_ms} ms ahead", host + 1),
            );
            self.checker.clocks.set(host, self.now_us, error_ms);
        }
    }
}
