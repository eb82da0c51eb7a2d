//! Fate: when the server dies, how, and what its disk looks like then.
//!
//! *Owns* crashes, restarts and damage at rest. *Invariant*: a server that will not open its data is
//! a violation, unless this file damaged something that nothing but a refusal could answer; then the
//! damage is undone and it must open.

use std::path::{Path, PathBuf};

use lockkeeper_storage::{Identity, OpenError};

use super::config::STANDSTILL_US_MAX;
use super::conn::Violation;
use super::disk::Crash;
use super::server::{DATA, LOG, Opened, Server, Stop};
use super::world::{Event, World};

/// A bit that was turned over.
#[derive(Clone, Debug)]
pub(super) struct Flip {
    path: PathBuf,
    offset: usize,
    bit: u8,
}

impl World {
    /// A time for something to go wrong.
    pub(super) fn fault(&mut self, host: usize) -> Result<(), Violation> {
        if !self.faults_are_on {
            return Ok(());
        }
        let every_us = self.config.crash_every_us.unwrap_or(1_000_000);
        let in_us = 1 + self.hosts[host].rng.below(2 * every_us);
        self.at(in_us, Event::Fault(host));
        if self.hosts[host].server.is_none() || self.is_spared() || self.rollbacks.is_pending() {
            return Ok(());
        }
        if self.config.sync_errors && self.hosts[host].rng.chance(300) {
            let syncs = self.hosts[host].rng.range(1, 4);
            self.hosts[host].fs.disk().sync_error_in(syncs);
            return Ok(());
        }
        if self.config.full_disks && self.hosts[host].rng.chance(300) {
            let room = self.hosts[host].rng.below(4000) as usize;
            self.hosts[host].fs.disk().limit_room(Some(room));
            return Ok(());
        }
        if self.hosts[host].rng.chance(self.config.clean_stops) {
            return self.stop_cleanly(host);
        }
        let crash = self.draw_crash(host);
        if self.hosts[host].rng.chance(self.config.crashes_at_operations) {
            let operations = self.hosts[host].rng.range(1, 40);
            self.hosts[host].fs.disk().crash_in(operations, crash);
            return Ok(());
        }
        self.hosts[host].fs.disk().crash(crash);
        self.die(host, crash);
        Ok(())
    }

    pub(super) fn draw_crash(&mut self, host: usize) -> Crash {
        if self.hosts[host].rng.chance(self.config.power_cuts) {
            Crash::PowerCut
        } else {
            Crash::Kill
        }
    }

    /// A time for something to go wrong between servers, or with time.
    pub(super) fn trouble(&mut self) {
        if !self.faults_are_on {
            return;
        }
        let every_us = self.config.trouble_every_us.unwrap_or(1_000_000);
        let rng = &mut self.hosts[0].rng;
        let next_us = 1 + rng.below(2 * every_us);
        // Now and then for so long that a server is given up.
        let lasts_us = match self.config.is_slow && rng.chance(200) {
            true => rng.range(2_200_000, 5_000_000),
            false => rng.below(2 * every_us),
        };
        let kind = rng.weighted(&self.config.trouble_weights);
        let victim = match rng.chance(500) {
            true => self.checker.agreement.newest_leader().unwrap_or(0),
            false => rng.index(self.config.servers),
        };
        self.at(next_us, Event::Trouble);
        if self.is_spared() || self.rollbacks.is_pending() {
            return;
        }
        self.disturbed();
        self.troubles += 1;
        match kind {
            0 => self.cut_some_link(),
            1 if !self.is_partitioned() => {
                let ways = self.draw_partition();
                self.trace.note(self.now_us, format_args!("partition {ways:?}"));
                self.coverage.partitions += 1;
                self.block(&ways);
                self.at(lasts_us, Event::Relief(self.troubles));
            }
            2 => {
                // Short, or long enough that another one is elected, and then perhaps not so long that
                // all clients have gone to that one.
                let rng = &mut self.hosts[0].rng;
                let us = match rng.below(4) {
                    0 => lasts_us,
                    1 => rng.range(600_000, 2_000_000),
                    _ => rng.range(450_000, 900_000),
                };
                let us = us.min(STANDSTILL_US_MAX);
                // The machine that all of them run on, at times.
                if self.config.is_slow && self.hosts[0].rng.chance(200) {
                    (0..self.config.servers).for_each(|host| self.pause(host, us));
                } else {
                    self.pause(victim, us);
                }
            }
            3 if self.config.is_slow
                && self.config.servers > 1
                && self.hosts[0].rng.chance(600) =>
            {
                self.answer_late();
            }
            3 => self.slow_down(true),
            _ => self.slow_down(false),
        }
    }

    /// A leader's answers take long, so that they are asked for again, and then it stands still, until another
    /// one is elected or nearly so.
    fn answer_late(&mut self) {
        let leader = self.checker.agreement.newest_leader().unwrap_or(0);
        let rng = &mut self.hosts[0].rng;
        let other = (leader + 1 + rng.index(self.config.servers - 1)) % self.config.servers;
        let (late_us, in_us) = (rng.range(100_000, 400_000), rng.range(60_000, 500_000));
        let lasts_us = rng.range(450_000, 1_200_000);
        self.slow_between(leader, other, late_us);
        self.at(in_us, Event::Pause(leader, lasts_us));
    }

    /// A machine stands still, if something may still go wrong.
    pub(super) fn stand_still(&mut self, host: usize, us: u64) {
        if self.faults_are_on && !self.is_spared() && !self.rollbacks.is_pending() {
            self.disturbed();
            self.pause(host, us);
        }
    }

    /// A partition is over.
    pub(super) fn relief(&mut self, _number: u64) {
        self.trace.note(self.now_us, format_args!("partition over"));
        self.disturbed();
        self.unblock();
    }

    /// The server came to an end by itself.
    pub(super) fn stopped(&mut self, host: usize, stop: Stop) -> Result<(), Violation> {
        let reason = match stop {
            Stop::Violation(violation) => return Err(violation),
            Stop::Died(reason) => reason,
            Stop::Refused(words) => return self.refused(host, &words),
        };
        let (down, figures) = {
            let disk = self.hosts[host].fs.disk();
            (disk.down(), disk.figures)
        };
        let faults = (figures.sync_errors, figures.full);
        let crash = match down {
            Some(crash) => {
                self.coverage.crashes_at_an_operation += 1;
                crash
            }
            None if faults != self.hosts[host].known_faults => {
                // An honest end. It is started again, or somebody pulls the plug first. What a
                // failed sync lost shows only if the page cache hides it in between.
                self.count_disk_faults(host);
                let crash = if self.hosts[host].rng.chance(700) {
                    Crash::Kill
                } else {
                    self.draw_crash(host)
                };
                self.hosts[host].fs.disk().crash(crash);
                crash
            }
            None => return Err(format!("the server ended, but no fault is known: {reason}")),
        };
        self.trace.note(self.now_us, format_args!("{} died: {reason}", host + 1));
        self.die(host, crash);
        Ok(())
    }

    /// What the disk has refused so far is known, and has had its death.
    fn count_disk_faults(&mut self, host: usize) {
        let figures = self.hosts[host].fs.disk().figures;
        let known = &mut self.hosts[host].known_faults;
        self.coverage.sync_errors += figures.sync_errors - known.0;
        self.coverage.full_stops += figures.full - known.1;
        *known = (figures.sync_errors, figures.full);
    }

    pub(super) fn die(&mut self, host: usize, crash: Crash) {
        self.trace.note(self.now_us, format_args!("crash {crash:?} of {}", host + 1));
        self.disturbed();
        match crash {
            Crash::Kill => self.coverage.kills += 1,
            Crash::PowerCut => self.coverage.power_cuts += 1,
        }
        self.cut_links(host, crash);
        self.checker.crashed(host);
        self.hosts[host].state.sled().crashed(crash);
        let in_us = 1 + self.hosts[host].rng.below(self.config.down_us_max);
        self.at(in_us, Event::Restart(host));
        self.call_off(host);
    }

    /// An operator stops the server.
    fn stop_cleanly(&mut self, host: usize) -> Result<(), Violation> {
        let Some(server) = self.hosts[host].server.take() else { return Ok(()) };
        if let Err(stop) = server.stop(host, &mut self.checker) {
            return self.stopped(host, stop);
        }
        self.trace.note(self.now_us, format_args!("{} stopped cleanly", host + 1));
        self.coverage.clean_stops += 1;
        self.cut_links(host, Crash::Kill);
        self.checker.crashed(host);
        let in_us = 1 + self.hosts[host].rng.below(self.config.down_us_max);
        self.at(in_us, Event::Restart(host));
        Ok(())
    }

    /// The server is started.
    pub(super) fn restart(&mut self, host: usize) -> Result<(), Violation> {
        let is_first = self.hosts[host].incarnation == 0;
        {
            let mut disk = self.hosts[host].fs.disk();
            disk.restart();
            disk.limit_room(None);
        }
        let Some(new) = self.decide(host)? else { return Ok(()) };
        if self.faults_are_on && !self.rollbacks.is_pending() {
            if !is_first {
                self.flip_bits(host);
            }
            if self.hosts[host].rng.chance(self.config.crashes_while_opening) {
                let (operations, crash) =
                    (self.hosts[host].rng.range(1, 12), self.draw_crash(host));
                self.hosts[host].fs.disk().crash_in(operations, crash);
            }
        }
        match self.open(host, new) {
            Ok(opened) => self.opened(host, opened),
            Err(error) => self.not_opened(host, &error),
        }
    }

    pub(super) fn open(&mut self, host: usize, new: Identity) -> Result<Opened, OpenError> {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.hosts[host].rng.next().to_le_bytes());
        }
        let known_version = self.known_version(host);
        let rules = self.config.rules(host, self.hosts[host].incarnation);
        self.checker.configured(host, rules);
        let of_start = (seed, known_version, rules);
        let opened = Server::open(&self.hosts[host], &self.config, new, of_start);
        // It got through all that was to stop it.
        if opened.is_ok() {
            self.hosts[host].fs.disk().disarm();
        }
        opened
    }

    fn opened(&mut self, host: usize, opened: Opened) -> Result<(), Violation> {
        let Opened { server, report, audit } = opened;
        self.disturbed();
        let name = host + 1;
        self.hosts[host].incarnation += 1;
        self.trace.note(
            self.now_us,
            format_args!("{name} opened from {} and {} entries", report.begun_from, report.entries),
        );
        self.checker.observer.now_us = self.now_us;
        let (id, log) = (server.identity.raft_id, server.log_entries()?);
        match self.rollbacks.held_by(host) {
            Some(held) => self.checker.agreement.rolled_back(id, held, log)?,
            None => self.checker.agreement.recovered(host, id, log)?,
        }
        let local_us = self.hosts[host].local_us(self.now_us);
        self.checker.recovered(host, &audit, server.replica.machine(), local_us)?;
        let coverage = &mut self.coverage;
        coverage.torn_tails += u64::from(report.torn.is_some());
        coverage.images_set_aside += report.set_aside.len() as u64;
        match report.begun_from.as_str() {
            "the log alone" => coverage.log_alone += 1,
            name if name.ends_with(".image") => coverage.images_loaded += 1,
            _ => coverage.started_from_state += 1,
        }
        if report.new && self.checker.view(host).farthest > 0 {
            return Err("it believes that its data directory is new".to_owned());
        }
        if self.hosts[host].flips.iter().any(|flip| is_image(&flip.path)) {
            coverage.flips_of_images_survived += 1;
        }
        self.hosts[host].flips.clear();
        self.started(host, server);
        Ok(())
    }

    fn not_opened(&mut self, host: usize, error: &OpenError) -> Result<(), Violation> {
        self.trace.note(self.now_us, format_args!("{} not opened: {error}", host + 1));
        let down = self.hosts[host].fs.disk().down();
        if let Some(crash) = down {
            self.coverage.crashes_while_opening += 1;
            self.die(host, crash);
            return Ok(());
        }
        let sync_errors = self.hosts[host].fs.disk().figures.sync_errors;
        if sync_errors > self.hosts[host].known_faults.0 {
            self.count_disk_faults(host);
            let crash = self.draw_crash(host);
            self.hosts[host].fs.disk().crash(crash);
            self.die(host, crash);
            return Ok(());
        }
        if self.hosts[host].flips.is_empty() && self.hosts[host].copies.is_empty() {
            return Err(format!("it does not open its data: {error}"));
        }
        // It noticed. What was damaged is brought back from a copy.
        self.coverage.refused_to_open += 1;
        for flip in std::mem::take(&mut self.hosts[host].flips) {
            self.hosts[host].fs.disk().flip(&flip.path, flip.offset, flip.bit);
        }
        for (path, contents) in std::mem::take(&mut self.hosts[host].copies) {
            self.trace.note(self.now_us, format_args!("restored {}", path.display()));
            self.hosts[host].fs.disk().put_back(&path, &contents);
        }
        self.at(1, Event::Restart(host));
        Ok(())
    }

    /// Damages what lies on the disk of the stopped server, where a checksum must notice.
    fn flip_bits(&mut self, host: usize) {
        if self.hosts[host].rng.chance(self.config.image_flips) {
            let images = self.hosts[host].fs.disk().files(Path::new(DATA), ".image");
            // All of them, now and then: only the state store can help then.
            let all = self.hosts[host].rng.chance(300);
            let one = self.hosts[host].rng.index(images.len().max(1));
            for (at, (path, len, _)) in images.into_iter().enumerate() {
                if all || at == one {
                    self.coverage.flips_of_images += 1;
                    let contents = self.hosts[host].fs.disk().contents(&path);
                    // A copy from before the first damage.
                    self.hosts[host].copies.entry(path.clone()).or_insert(contents);
                    self.flip(host, path, len);
                }
            }
        }
        if self.hosts[host].rng.chance(self.config.log_flips) {
            let segments = self.hosts[host].fs.disk().files(Path::new(LOG), ".log");
            if segments.is_empty() {
                return;
            }
            let at = self.hosts[host].rng.index(segments.len());
            let (path, len, before_last) = segments[at].clone();
            // The last record of all cannot be told from one that was cut off.
            let len = if at + 1 == segments.len() { before_last } else { len };
            if len > 0 {
                self.coverage.flips_of_logs += 1;
                self.flip(host, path, len);
            }
        }
    }

    fn flip(&mut self, host: usize, path: PathBuf, len: usize) {
        let flip = Flip {
            path,
            offset: self.hosts[host].rng.index(len),
            bit: self.hosts[host].rng.below(8) as u8,
        };
        self.trace.note(self.now_us, format_args!("{flip:?}"));
        self.hosts[host].fs.disk().flip(&flip.path, flip.offset, flip.bit);
        self.hosts[host].flips.push(flip);
    }

    /// The log may be cut only up to the older of two images that are durable.
    pub(super) fn images_reach_back_to(
        &mut self,
        host: usize,
        index: u64,
    ) -> Result<(), Violation> {
        let images = self.hosts[host].fs.disk().durable_names(Path::new(DATA), ".image");
        let indexes: Vec<u64> = images
            .iter()
            .filter_map(|path| u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok())
            .collect();
        if indexes.len() < 2 || indexes[indexes.len() - 2] < index {
            return Err(format!("the log is to be cut up to {index}, images: {indexes:?}"));
        }
        Ok(())
    }
}

fn is_image(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "image")
}
