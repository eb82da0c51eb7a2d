//! What else can be done to servers than to kill and to stop them: to their disks and clocks, and how
//! all of it is ended.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};

use super::disk::Disk;
use super::namespaces::Namespaces;
use super::process::Process;
use super::switch::Switch;
use super::{Cluster, Met, Node, clock};
use crate::cluster::tracer::Tracer;

/// A log has its room before it needs it: a full disk is met by what is written beside it.
pub(super) const CHECKPOINT_OFTEN: &str = "lockkeeper.checkpointMillis=500\n";
/// Takes the room of a full disk.
const BALLAST: &str = "ballast";
/// What a server says that finds no room.
const NO_ROOM: &str = "No space left on device";
/// Room below which a disk is full, bytes: a block.
const ROOM_MIN: u64 = 4096;
/// The calls by which servers make something durable.
const DURABLE: &str = "fdatasync,fsync";
/// What a disk says that fails.
const FAILS: &str = "error=EIO";
/// How much longer a slow disk takes, microseconds.
const SLOW: &str = "delay_enter=150000";
/// From now on, always.
const ALWAYS: &str = "1+";
/// A server that has met with an error of its disk ends within this time.
const END_MAX: Duration = Duration::from_secs(1);
/// Pause between looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Cluster {
    /// It is there and does not stand still.
    #[must_use]
    pub fn runs(&self, at: usize) -> bool {
        self.nodes[at].process.as_ref().is_some_and(|process| !process.is_paused())
    }

    /// It runs, and nothing was done to it or its disk.
    #[must_use]
    pub fn is_up(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        self.runs(at) && node.tracer.is_none() && !node.is_dark && !node.is_full
    }

    /// Nothing is done to any of them now, nor to what is between them.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let is_whole = self.networks.as_ref().is_none_or(Namespaces::is_whole);
        let is_clear = self.switch.as_ref().is_none_or(Switch::is_clear);
        is_whole && is_clear && (0..self.nodes.len()).all(|at| self.is_up(at))
    }

    /// Cuts the power of servers at once: what they did not make durable is lost.
    ///
    /// # Errors
    /// They have no disks of their own, or there is no power to cut.
    pub fn cut_power(&mut self, places: &[usize]) -> Result<(), String> {
        // Nobody hears from a server any more by the time its disk forgets.
        for at in places {
            self.nodes[*at].process.as_mut().map_or(Ok(()), Process::pause)?;
        }
        for at in places {
            let node = &mut self.nodes[*at];
            node.disk.as_ref().ok_or("there is no disk")?.cut_power()?;
            node.is_dark = true;
        }
        for at in places {
            self.kill(*at);
        }
        Ok(())
    }

    /// Leaves no room on a server's disk, and starts the server again on it.
    ///
    /// # Errors
    /// It has no disk of its own, or cannot be started.
    pub fn fill_disk(&mut self, at: usize) -> Result<(), String> {
        let ballast = self.nodes[at].ballast()?;
        let fault = |error: std::io::Error| format!("{}: {error}", ballast.display());
        let file = OpenOptions::new().create(true).append(true).open(&ballast).map_err(fault)?;
        let folder = ballast.parent().ok_or("a disk has a root")?;
        let mut length = 0;
        let mut step = u64::MAX;
        while step >= ROOM_MIN {
            let room = statvfs(folder).map_err(|error| fault(error.into()))?;
            step = step.min(room.f_bavail * room.f_frsize);
            match fallocate(&file, FallocateFlags::empty(), length, step) {
                Ok(()) => length += step,
                // The file system needs some of the room itself.
                Err(_) => step /= 2,
            }
        }
        let node = &mut self.nodes[at];
        (node.is_full, node.may_end) = (true, true);
        self.kill(at);
        self.start(at)
    }

    /// From now on nothing that a server does becomes durable.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn break_disk(&mut self, at: usize) -> Result<(), String> {
        self.nodes[at].may_end = true;
        self.nodes[at].trace(FAILS)
    }

    /// From now on what a server makes durable takes its time.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn slow_disk(&mut self, at: usize) -> Result<(), String> {
        self.nodes[at].trace(SLOW)
    }

    /// Has a server's wall clock jump.
    ///
    /// # Errors
    /// It has none that can.
    pub fn jump(&mut self, at: usize, by_s: i64) -> Result<(), String> {
        clock::set(&self.nodes[at].clock_file(), by_s)
    }

    /// Makes everything run again and right: the network, disks, clocks, what was killed and what was
    /// paused. What it did.
    ///
    /// # Errors
    /// A server cannot be started, or a disk not be mended.
    pub fn heal(&mut self) -> Result<Vec<String>, String> {
        let mut healed = Vec::new();
        if let Some(networks) = &mut self.networks
            && networks.mend()? > 0
        {
            healed.push("mend the network".to_owned());
        }
        if let Some(switch) = &mut self.switch
            && let Some(tally) = switch.clear()?
        {
            healed.push(format!("clear the weather ({tally})"));
            self.met.push(Met::Switched(tally));
        }
        for node in &mut self.nodes {
            if node.is_full && node.output().contains(NO_ROOM) {
                self.met.push(Met::NoRoom(node.name.clone()));
            }
            node.mend(&mut healed)?;
        }
        self.look_for_crashes();
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            (node.tracer, node.is_full, node.may_end) = (None, false, false);
            match &mut node.process {
                Some(process) if process.is_paused() => {
                    process.resume()?;
                    healed.push(format!("resume {}", node.name));
                }
                Some(_) => {}
                // Behind all others, for it needs them.
                None if node.wound.is_some() => {}
                None => {
                    healed.push(format!("start {}", node.name));
                    self.start(at)?;
                }
            }
        }
        if self.is_joined {
            healed.push(self.leave()?);
        }
        for at in 0..self.nodes.len() {
            healed.extend(self.revive(at)?);
        }
        Ok(healed)
    }
}

impl Node {
    /// What is on its own disk now, its operator's files above all, outlives a power cut.
    pub(super) fn flush(&self) -> Result<(), String> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let fault = |error: std::io::Error| format!("{}: {error}", disk.path().display());
        let root = fs::File::open(disk.path()).map_err(fault)?;
        syncfs(&root).map_err(|error| fault(error.into()))
    }

    /// Removes its data for good, with the disk that they are on.
    pub(super) fn remove_all_data(&self) -> Result<(), String> {
        self.remove_data()?;
        // The disk itself goes when it is unmounted.
        self.disk.as_ref().map_or(Ok(()), Disk::remove_image)
    }

    fn ballast(&self) -> Result<PathBuf, String> {
        let disk = self.disk.as_ref().ok_or("the server has no disk of its own")?;
        Ok(disk.path().join(BALLAST))
    }

    fn trace(&mut self, what: &str) -> Result<(), String> {
        let process = self.process.as_ref().ok_or("the server does not run")?;
        self.tracer = Some(Tracer::attach(process.id(), true, DURABLE, what, ALWAYS)?);
        Ok(())
    }

    /// Mends disk and clock. The marks stay until it is known whether the server ended of it.
    fn mend(&mut self, healed: &mut Vec<String>) -> Result<(), String> {
        let name = &self.name;
        if std::mem::take(&mut self.is_dark) {
            self.disk.as_ref().ok_or("there is no disk")?.restart()?;
            healed.push(format!("switch on {name}"));
        }
        if self.is_full {
            let ballast = self.ballast()?;
            fs::remove_file(&ballast).map_err(|error| format!("{}: {error}", ballast.display()))?;
            healed.push(format!("make room for {name}"));
        }
        let clock = self.clock_file();
        if clock.exists() {
            clock::set(&clock, 0)?;
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.let_go().ok_or("strace does not let go")?;
            healed.push(format!("mend the disk of {name}"));
        }
        if self.may_end {
            self.wait_for_end();
        }
        Ok(())
    }

    fn wait_for_end(&mut self) {
        let deadline = Instant::now() + END_MAX;
        while Instant::now() < deadline
            && self.process.as_mut().is_some_and(|process| process.ended().is_none())
        {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
