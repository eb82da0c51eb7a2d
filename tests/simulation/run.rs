//! One run of one seed: wild life, then healing, then the reckoning.
//!
//! *Owns* the phases. *Invariant*: once the faults are over, everything must come right: all clients
//! are served, waiters get their locks, sessions of the dead end, and nothing of them stays.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lockkeeper_core::replica::Member;

use super::client::Mood;
use super::config::Config;
use super::conn::Violation;
use super::coverage::Coverage;
use super::host::Host;
use super::observer::Told;
use super::server::Server;
use super::world::{BEGIN_US, World};

/// A run that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success {
    pub hash: u64,
    pub coverage: Coverage,
}

/// For how long a run that went well was simulated.
pub fn simulated_ms(outcome: &Result<Success, Box<Failure>>) -> Option<u64> {
    outcome.as_ref().ok().map(|success| success.coverage.simulated_ms)
}

/// A run that did not.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub servers: usize,
    /// Flag by which `simulate` plays such a world, with a space in front; empty for the usual one.
    pub world: &'static str,
    pub violation: Violation,
    pub step: u64,
    pub config: String,
    pub tail: String,
}

/// Longest time of the faults. In some worlds there is hardly ever a majority: what is not done by
/// then is done afterwards.
const WILD_US_MAX: u64 = 600_000_000;
/// Most steps of it, for the same reason: clients that are sent away come back at once.
const WILD_STEPS_MAX: u64 = 1_000_000;
/// Most steps of a phase; no seed comes near.
const STEPS_MAX: u64 = 2_000_000;

/// Runs a seed.
///
/// # Errors
/// The rule that was broken, and how it came to that.
pub fn run(seed: u64, servers: usize, prints: bool) -> Result<Success, Box<Failure>> {
    run_in(Config::draw(seed, servers), prints)
}

/// Runs a seed in a slow world.
///
/// # Errors
/// The rule that was broken, and how it came to that.
pub fn run_slow(seed: u64, servers: usize, prints: bool) -> Result<Success, Box<Failure>> {
    let outcome = run_in(Config::draw_slow(seed, servers), prints);
    outcome.map_err(|failure| Box::new(Failure { world: " --slow", ..*failure }))
}

/// Runs a seed with a foreign program in the network.
///
/// # Errors
/// The rule that was broken, and how it came to that.
pub fn run_foreign(seed: u64, servers: usize, prints: bool) -> Result<Success, Box<Failure>> {
    let outcome = run_in(Config::draw_foreign(seed, servers), prints);
    outcome.map_err(|failure| Box::new(Failure { world: " --foreign", ..*failure }))
}

/// Runs a seed with programs of two releases.
///
/// # Errors
/// The rule that was broken, and how it came to that.
pub fn run_upgraded(seed: u64, servers: usize, prints: bool) -> Result<Success, Box<Failure>> {
    let outcome = run_in(Config { upgrades: true, ..Config::draw(seed, servers) }, prints);
    outcome.map_err(|failure| Box::new(Failure { world: " --upgrades", ..*failure }))
}

fn run_in(config: Config, prints: bool) -> Result<Success, Box<Failure>> {
    let (seed, servers) = (config.seed, config.servers);
    let mut world = World::new(config);
    world.trace.is_printed = prints;
    play(&mut world, seed, servers)
}

/// Runs a seed, and tells what an observer sees of it, whether it goes well or not.
pub fn observe(seed: u64, servers: usize) -> (Result<Success, Box<Failure>>, Told) {
    let mut world = World::new(Config::draw(seed, servers));
    world.checker.observer.is_on = true;
    let outcome = play(&mut world, seed, servers);
    let rate_max = world.config.clock_rates.iter().copied().max().unwrap_or(1000);
    (outcome, world.checker.observer.tell(rate_max))
}

fn play(world: &mut World, seed: u64, servers: usize) -> Result<Success, Box<Failure>> {
    world.begin();
    let outcome = catch_unwind(AssertUnwindSafe(|| phases(world)));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of unknown kind")))
    });
    match outcome {
        Ok(()) => Ok(Success { hash: world.trace.hash(), coverage: world.total_coverage() }),
        Err(violation) => Err(Box::new(Failure {
            seed,
            servers,
            world: "",
            violation,
            step: world.steps,
            config: format!("{:?}", world.config),
            tail: world.trace.tail(),
        })),
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.tail)?;
        writeln!(f, "{}", self.config)?;
        writeln!(f, "seed {} failed at step {}: {}", self.seed, self.step, self.violation)?;
        let Self { seed, servers, world, .. } = self;
        write!(
            f,
            "replay: cargo run --release --example simulate -- --servers {servers}{world} --seed {seed} --trace"
        )
    }
}

fn phases(world: &mut World) -> Result<(), Violation> {
    let operations = world.config.operations;
    let is_done = |world: &World| world.operations() >= operations;
    let wild_us = world.now_us + WILD_US_MAX;
    until(world, "the operations are done", |world| {
        is_done(world) || world.now_us >= wild_us || world.steps >= WILD_STEPS_MAX
    })?;
    world.coverage.starved += u64::from(!is_done(world));
    world.heal()?;
    let quiet_us = world.config.calm_grace_us() + world.config.timeouts_ms.1 as u64 * 1000;
    let working_us = world.now_us + quiet_us;
    until(world, "time passes", |world| world.now_us >= working_us)?;
    world.checker.is_strict = true;
    for client in &mut world.clients {
        client.be(Mood::Tame);
    }
    let served_us = world.now_us + quiet_us;
    until(world, "clients work", |world| world.now_us >= served_us && is_done(world))?;
    world.everybody_is_served()?;
    world.send_clients_away();
    let ended_us = world.now_us
        + 2 * quiet_us
        + world.config.container_interval_ms * 3000
        + world.config.reaping_us(world.mortal_znodes());
    until(world, "sessions end", |world| world.now_us >= ended_us)?;
    world.nothing_stays()?;
    world.survives_a_last_restart()
}

fn until(world: &mut World, what: &str, done: impl Fn(&World) -> bool) -> Result<(), Violation> {
    for _ in 0..STEPS_MAX {
        if done(world) {
            return Ok(());
        }
        world.steps += 1;
        world.step()?;
        world.holds_no_more_than_it_may()?;
    }
    Err(format!("still waiting until {what}"))
}

impl World {
    fn operations(&self) -> u64 {
        self.clients.iter().map(|client| client.operations).sum()
    }

    /// No more faults from here on.
    fn heal(&mut self) -> Result<(), Violation> {
        self.faults_are_on = false;
        self.trace.note(self.now_us, format_args!("heal"));
        for host in &self.hosts {
            host.fs.disk().disarm();
            host.state.sled().fail_one_in(0);
        }
        self.unblock();
        self.slow_down(false);
        self.set_clocks_right();
        for host in 0..self.hosts.len() {
            self.hosts[host].hangs_until_us = 0;
            if self.hosts[host].paused_until_us > 0 {
                self.hosts[host].paused_until_us = self.now_us;
                self.resume(host)?;
            }
        }
        self.coverage.operations = self.operations();
        // All clients go on, slowly.
        self.config.think_us_max = self.config.think_us_max.max(40_000);
        self.config.pipeline_max = self.config.pipeline_max.min(2);
        for client in &mut self.clients {
            client.be(Mood::Tame);
        }
        Ok(())
    }

    fn everybody_is_served(&self) -> Result<(), Violation> {
        for (number, client) in self.clients.iter().enumerate() {
            if client.answers == 0 {
                return Err(format!("client {number} is not served after all faults: {client:?}"));
            }
            if let Some(lock) = client.lock.as_ref().filter(|lock| lock.grants == 0) {
                return Err(format!("client {number} never gets its lock: {lock:?}"));
            }
        }
        Ok(())
    }

    /// Every other client closes its session; the rest is never heard of again.
    fn send_clients_away(&mut self) {
        self.trace.note(self.now_us, format_args!("clients leave and die"));
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.be(if number % 2 == 0 { Mood::Leave } else { Mood::Dead });
        }
    }

    /// How many znodes may still go by themselves, besides ephemerals.
    fn mortal_znodes(&self) -> u64 {
        use super::model::Owner::{Container, Ttl};
        let newest = self.checker.newest();
        let owners = newest.znodes.values().map(|znode| znode.owner);
        owners.filter(|owner| matches!(owner, Container | Ttl(_))).count() as u64
    }

    fn nothing_stays(&mut self) -> Result<(), Violation> {
        let left: Vec<i64> = self.checker.open_sessions().collect();
        if !left.is_empty() {
            return Err(format!("sessions that never end: {left:x?}"));
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let name = index + 1;
            let Some(server) = &host.server else {
                return Err(format!("server {name} does not run at the end"));
            };
            let machine = server.replica.machine();
            if machine.last_zxid() != self.checker.zxid() {
                let (zxid, last) = (machine.last_zxid(), self.checker.zxid());
                return Err(format!(
                    "server {name} is at zxid {zxid:#x} at the end, not {last:#x}"
                ));
            }
            let (sessions, ephemerals) =
                (machine.session_count(), machine.tree().ephemeral_count());
            if sessions != 0 || ephemerals != 0 {
                return Err(format!("server {name}: {sessions} sessions, {ephemerals} ephemerals"));
            }
            self.checker.compare(index, machine.tree())?;
            self.members_are_right(server)?;
        }
        self.checker.stamps_are_right()?;
        for (path, znode) in &self.checker.view(0).model.znodes {
            let is_due = match znode.owner {
                super::model::Owner::Container => znode.creates > 0,
                super::model::Owner::Ttl(_) => true,
                super::model::Owner::Nobody | super::model::Owner::Session(_) => false,
            };
            if is_due && znode.children.is_empty() {
                return Err(format!("{path} should have been removed long ago: {znode:?}"));
            }
        }
        Ok(())
    }

    /// Everybody takes part as who it is now, and votes if it is meant to.
    fn members_are_right(&self, server: &Server) -> Result<(), Violation> {
        if self.config.servers == 1 {
            return Ok(());
        }
        let known = |member: &Member| (member.spec.id, member.raft_id, member.votes);
        let known: Vec<_> = server.members.iter().map(known).collect();
        let is_member = |(at, host): (usize, &Host)| {
            let raft_id = host.server.as_ref().map(|server| server.identity.raft_id);
            (host.id, raft_id, !self.config.observers.contains(&at))
        };
        let expected: Vec<_> = self.hosts.iter().enumerate().map(is_member).collect();
        if known != expected {
            return Err(format!("the members are {known:x?}, they should be {expected:x?}"));
        }
        Ok(())
    }

    /// Stops every server cleanly and opens its data once more.
    fn survives_a_last_restart(&mut self) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            let server = self.hosts[host].server.take().ok_or("no server runs at the end")?;
            let (zxid, digest) =
                (server.replica.machine().last_zxid(), server.replica.machine().digest());
            server.stop(host, &mut self.checker).map_err(|stop| format!("{stop:?}"))?;
            self.cut_links(host, super::disk::Crash::Kill);
            self.checker.crashed(host);
            self.restart(host)?;
            let server = &self.hosts[host].server.as_ref().ok_or("it did not open at the end")?;
            let machine = server.replica.machine();
            let again = machine.last_zxid();
            if again > zxid || (again == zxid && machine.digest() != digest) {
                return Err(format!("zxid {again:#x} after a clean stop at {zxid:#x}"));
            }
        }
        Ok(())
    }

    fn total_coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        coverage.simulated_ms = (self.now_us - BEGIN_US) / 1000;
        coverage.add(&self.checker.coverage);
        coverage.elections += self.checker.agreement.elections();
        coverage.membership_changes += self.checker.agreement.changes();
        coverage.observer_worlds += u64::from(!self.config.observers.is_empty());
        for host in &self.hosts {
            let disk = host.fs.disk().figures;
            coverage.writes_dropped += disk.writes_dropped;
            coverage.writes_torn += disk.writes_torn;
            coverage.names_dropped += disk.names_dropped;
            let sled = host.state.sled().figures;
            coverage.sled_broken += sled.broken;
            coverage.sled_emptied += sled.emptied;
            coverage.sled_older += sled.older;
            coverage.sled_altered += sled.altered;
            coverage.sled_errors += sled.errors;
            coverage.checkpoints += sled.checkpoints;
        }
        coverage
    }
}
