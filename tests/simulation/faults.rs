//! Fate: when the server dies, how, and what its disk looks like then.
//!
//! *Owns* crashes, restarts and damage at rest. *Invariant*: a server that will not open its data is
//! a violation, unless this file damaged something that nothing but a refusal could answer; then the
//! damage is undone and it must open.

use std::path::{Path, PathBuf};

use lockkeeper::storage::{OpenError, Report};

use super::conn::Violation;
use super::disk::Crash;
use super::server::{DATA, LOG, Server, Stop};
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
    pub(super) fn fault(&mut self) -> Result<(), Violation> {
        if !self.faults_are_on {
            return Ok(());
        }
        let every_us = self.config.crash_every_us.unwrap_or(1_000_000);
        let in_us = 1 + self.rng.below(2 * every_us);
        self.at(in_us, Event::Fault);
        if self.server.is_none() {
            return Ok(());
        }
        if self.config.sync_errors && self.rng.chance(300) {
            let syncs = self.rng.range(1, 4);
            self.fs.disk().sync_error_in(syncs);
            return Ok(());
        }
        if self.config.full_disks && self.rng.chance(150) {
            let room = self.rng.below(4000) as usize;
            self.fs.disk().limit_room(Some(room));
            return Ok(());
        }
        if self.rng.chance(self.config.clean_stops) {
            return self.stop_cleanly();
        }
        let crash = self.draw_crash();
        if self.rng.chance(self.config.crashes_at_operations) {
            let operations = self.rng.range(1, 40);
            self.fs.disk().crash_in(operations, crash);
            return Ok(());
        }
        self.fs.disk().crash(crash);
        self.die(crash);
        Ok(())
    }

    fn draw_crash(&mut self) -> Crash {
        if self.rng.chance(self.config.power_cuts) { Crash::PowerCut } else { Crash::Kill }
    }

    /// The server came to an end by itself.
    pub(super) fn stopped(&mut self, stop: Stop) -> Result<(), Violation> {
        let reason = match stop {
            Stop::Violation(violation) => return Err(violation),
            Stop::Died(reason) => reason,
        };
        let (down, figures) = {
            let disk = self.fs.disk();
            (disk.down(), disk.figures)
        };
        let faults = figures.sync_errors + figures.full;
        let crash = match down {
            Some(crash) => {
                self.coverage.crashes_at_an_operation += 1;
                crash
            }
            None if faults > self.coverage.sync_errors + self.coverage.full_stops => {
                // An honest end. It is started again, or somebody pulls the plug first. What a
                // failed sync lost shows only if the page cache hides it in between.
                self.coverage.full_stops += figures.full - self.coverage.full_stops;
                self.coverage.sync_errors += figures.sync_errors - self.coverage.sync_errors;
                let crash = if self.rng.chance(700) { Crash::Kill } else { self.draw_crash() };
                self.fs.disk().crash(crash);
                crash
            }
            None => return Err(format!("the server ended, but no fault is known: {reason}")),
        };
        self.trace.note(self.now_us, format_args!("died: {reason}"));
        self.die(crash);
        Ok(())
    }

    fn die(&mut self, crash: Crash) {
        self.trace.note(self.now_us, format_args!("crash {crash:?}"));
        match crash {
            Crash::Kill => self.coverage.kills += 1,
            Crash::PowerCut => self.coverage.power_cuts += 1,
        }
        self.cut_links();
        self.checker.crashed();
        self.state.sled().crashed(crash);
        let in_us = 1 + self.rng.below(self.config.down_us_max);
        self.at(in_us, Event::Restart);
    }

    /// An operator stops the server.
    fn stop_cleanly(&mut self) -> Result<(), Violation> {
        let Some(server) = self.server.take() else { return Ok(()) };
        if let Err(stop) = server.stop() {
            return self.stopped(stop);
        }
        self.trace.note(self.now_us, format_args!("stopped cleanly"));
        self.coverage.clean_stops += 1;
        self.cut_links();
        self.checker.crashed();
        let in_us = 1 + self.rng.below(self.config.down_us_max);
        self.at(in_us, Event::Restart);
        Ok(())
    }

    /// The server is started.
    pub(super) fn restart(&mut self) -> Result<(), Violation> {
        let is_first = self.incarnation == 0 && self.checker.zxid() == 0;
        {
            let mut disk = self.fs.disk();
            disk.restart();
            disk.limit_room(None);
        }
        if self.faults_are_on {
            if !is_first {
                self.flip_bits();
            }
            if self.rng.chance(self.config.crashes_while_opening) {
                let (operations, crash) = (self.rng.range(1, 12), self.draw_crash());
                self.fs.disk().crash_in(operations, crash);
            }
        }
        match self.open() {
            Ok((server, report)) => self.opened(server, &report),
            Err(error) => self.not_opened(&error),
        }
    }

    fn open(&mut self) -> Result<(Server, Report), OpenError> {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.rng.next().to_le_bytes());
        }
        let opened = Server::open(&self.fs, &self.state, &self.config, seed);
        // It got through all that was to stop it.
        if opened.is_ok() {
            self.fs.disk().disarm();
        }
        opened
    }

    fn opened(&mut self, server: Server, report: &Report) -> Result<(), Violation> {
        self.incarnation += 1;
        self.trace.note(
            self.now_us,
            format_args!("opened from {} and {} entries", report.begun_from, report.entries),
        );
        let machine = server.replica.machine();
        self.checker.recovered(machine.last_zxid(), machine.digest(), machine.tree())?;
        let coverage = &mut self.coverage;
        coverage.torn_tails += u64::from(report.torn.is_some());
        coverage.images_set_aside += report.set_aside.len() as u64;
        match report.begun_from.as_str() {
            "the log alone" => coverage.log_alone += 1,
            name if name.ends_with(".image") => coverage.images_loaded += 1,
            _ => coverage.started_from_state += 1,
        }
        if report.new && self.checker.zxid() > 0 {
            return Err("it believes that its data directory is new".to_owned());
        }
        if self.flips.iter().any(|flip| is_image(&flip.path)) {
            coverage.flips_of_images_survived += 1;
        }
        self.flips.clear();
        self.started(server);
        Ok(())
    }

    fn not_opened(&mut self, error: &OpenError) -> Result<(), Violation> {
        self.trace.note(self.now_us, format_args!("not opened: {error}"));
        let down = self.fs.disk().down();
        if let Some(crash) = down {
            self.coverage.crashes_while_opening += 1;
            self.die(crash);
            return Ok(());
        }
        let sync_errors = self.fs.disk().figures.sync_errors;
        if sync_errors > self.coverage.sync_errors {
            self.coverage.sync_errors = sync_errors;
            let crash = self.draw_crash();
            self.fs.disk().crash(crash);
            self.die(crash);
            return Ok(());
        }
        if self.flips.is_empty() && self.copies.is_empty() {
            return Err(format!("it does not open its data: {error}"));
        }
        // It noticed. What was damaged is brought back from a copy.
        self.coverage.refused_to_open += 1;
        for flip in std::mem::take(&mut self.flips) {
            self.fs.disk().flip(&flip.path, flip.offset, flip.bit);
        }
        for (path, contents) in std::mem::take(&mut self.copies) {
            self.trace.note(self.now_us, format_args!("restored {}", path.display()));
            self.fs.disk().put_back(&path, &contents);
        }
        self.at(1, Event::Restart);
        Ok(())
    }

    /// Damages what lies on the disk of the stopped server, where a checksum must notice.
    fn flip_bits(&mut self) {
        if self.rng.chance(self.config.image_flips) {
            let images = self.fs.disk().files(Path::new(DATA), ".image");
            // All of them, now and then: only the state store can help then.
            let all = self.rng.chance(300);
            let one = self.rng.index(images.len().max(1));
            for (at, (path, len, _)) in images.into_iter().enumerate() {
                if all || at == one {
                    self.coverage.flips_of_images += 1;
                    let contents = self.fs.disk().contents(&path);
                    // A copy from before the first damage.
                    self.copies.entry(path.clone()).or_insert(contents);
                    self.flip(path, len);
                }
            }
        }
        if self.rng.chance(self.config.log_flips) {
            let segments = self.fs.disk().files(Path::new(LOG), ".log");
            if segments.is_empty() {
                return;
            }
            let at = self.rng.index(segments.len());
            let (path, len, before_last) = segments[at].clone();
            // The last record of all cannot be told from one that was cut off.
            let len = if at + 1 == segments.len() { before_last } else { len };
            if len > 0 {
                self.coverage.flips_of_logs += 1;
                self.flip(path, len);
            }
        }
    }

    fn flip(&mut self, path: PathBuf, len: usize) {
        let flip = Flip { path, offset: self.rng.index(len), bit: self.rng.below(8) as u8 };
        self.trace.note(self.now_us, format_args!("{flip:?}"));
        self.fs.disk().flip(&flip.path, flip.offset, flip.bit);
        self.flips.push(flip);
    }

    /// The log may be cut only up to the older of two images that are durable.
    pub(super) fn images_reach_back_to(&mut self, index: u64) -> Result<(), Violation> {
        let copy = self.fs.durable_copy();
        let images = copy.disk().files(Path::new(DATA), ".image");
        let indexes: Vec<u64> = images
            .iter()
            .filter_map(|(path, ..)| u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok())
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
