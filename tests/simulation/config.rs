//! What a seed is: which faults are on, how often, and what the clients do.
//!
//! *Owns* the swarm: every seed draws its own world, so that rare combinations are somebody's
//! everyday life.

use lockkeeper_core::tree::Rules;

use super::rng::Rng;

/// Longest time for which a machine stands still, microseconds.
pub const STANDSTILL_US_MAX: u64 = 3_000_000;

/// So many may be removed in a minute that there is no limit.
pub const REAPED_PER_MINUTE: u32 = 60_000;

/// Kinds of operations, in the order of [`Config::op_weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    CreateEphemeral,
    CreateSequential,
    CreateContainer,
    CreateTtl,
    Delete,
    Set,
    SetAcl,
    Multi,
    Get,
    Exists,
    Children,
    GetAcl,
    OtherRead,
    MultiRead,
    Sync,
    Ping,
    AddWatch,
    RemoveWatch,
    CheckWatch,
    Auth,
    Odd,
}

pub const KINDS: [Kind; 22] = [
    Kind::Create,
    Kind::CreateEphemeral,
    Kind::CreateSequential,
    Kind::CreateContainer,
    Kind::CreateTtl,
    Kind::Delete,
    Kind::Set,
    Kind::SetAcl,
    Kind::Multi,
    Kind::Get,
    Kind::Exists,
    Kind::Children,
    Kind::GetAcl,
    Kind::OtherRead,
    Kind::MultiRead,
    Kind::Sync,
    Kind::Ping,
    Kind::AddWatch,
    Kind::RemoveWatch,
    Kind::CheckWatch,
    Kind::Auth,
    Kind::Odd,
];

/// A seed's world. Times in microseconds unless their names say otherwise; rates in 1000.
#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    pub servers: usize,
    pub clients: usize,
    pub lock_clients: usize,
    /// Clients say little, and what goes wrong takes seconds.
    pub is_slow: bool,
    /// A program that is no server is in the network, and links prove a secret.
    pub is_foreign: bool,
    /// Servers are of two releases, until an operator finishes the upgrade.
    pub upgrades: bool,
    /// Clients that say as little as keeps their sessions alive, and come back as late as that.
    pub quiet_clients: usize,
    pub locks: u64,
    pub operations: u64,
    pub op_weights: Vec<u32>,
    pub pipeline_max: u64,
    pub think_us_max: u64,
    pub latency_us_max: u64,
    pub splits_bytes: bool,
    pub data_bytes_max: u64,
    pub timeouts_ms: (i32, i32),
    pub batch_max: usize,
    /// Ephemerals that the end of a session removes in one turn.
    pub leaving_at_once: usize,
    pub log_us: (u64, u64),
    pub told_late_us_max: u64,
    pub state_us_max: u64,
    pub drain_records_max: usize,
    pub changes_queue_max: usize,
    pub segment_bytes: u64,
    pub image_every_bytes: u64,
    pub crash_every_us: Option<u64>,
    pub power_cuts: u64,
    pub crashes_at_operations: u64,
    pub crashes_while_opening: u64,
    pub clean_stops: u64,
    pub down_us_max: u64,
    pub sync_errors: bool,
    pub full_disks: bool,
    pub image_flips: u64,
    pub log_flips: u64,
    pub sled_error_one_in: u64,
    pub drops: u64,
    pub silences: u64,
    pub closes: u64,
    pub malformed: u64,
    pub wall_jumps: bool,
    pub extended_types: bool,
    pub container_interval_ms: u64,
    pub container_never_used_ms: i64,
    pub linearizable_reads: bool,
    pub peer_latency_us_max: u64,
    pub trouble_every_us: Option<u64>,
    /// Cuts, partitions, pauses, slow links, nothing.
    pub trouble_weights: [u32; 5],
    /// How fast each server's monotonic clock runs, in 1000.
    pub clock_rates: Vec<u64>,
    /// Servers that do not vote.
    pub observers: Vec<usize>,
    /// How often an operator thinks of emptying a server.
    pub wipe_every_us: Option<u64>,
    /// How often wall clocks go wrong, or are set right.
    pub wrong_clocks_every_us: Option<u64>,
    /// How often disks hang, and after how long a server takes its own for hung.
    pub hang_every_us: Option<u64>,
    pub disk_stall_ms: u64,
    /// How often a copy of a server's disk is made, or put in the place of what it has.
    pub old_copies_every_us: Option<u64>,
    /// How much longer than its timeout a silent session lives.
    pub expiry_grace_ms: u64,
    /// How many containers and TTL znodes may be removed in a minute.
    pub reaped_per_minute: u32,
    /// Whether clients give quotas, which are not enforced.
    pub has_quotas: bool,
}

impl Config {
    /// Rules in the file of a server at one of its starts: they differ from server to server and from start to start,
    /// but for worlds that begin with an earlier version, whose entries are decided by the files.
    pub fn rules(&self, host: usize, start: u64) -> Rules {
        let of_files = Rules { extended_types: self.extended_types, ..Rules::DEFAULT };
        if self.upgrades {
            return of_files;
        }
        let mut rng = Rng::new(self.seed ^ (start << 8 | host as u64) << 20, 29);
        Rules {
            extended_types: self.extended_types ^ rng.chance(100),
            enforce_quota: rng.chance(500),
            skip_acl: rng.chance(80),
            // Clients that prove who they are find another server, where there is one.
            digest_auth: host > 0 || self.servers == 1 || !rng.chance(100),
        }
    }

    /// The world of a seed, with so many servers.
    pub fn draw(seed: u64, servers: usize) -> Self {
        let mut rng = Rng::new(seed, 0);
        let rng = &mut rng;
        let timeout_min = rng.range(200, 600) as i32;
        let crashes = rng.chance(800);
        let log_fast = rng.chance(500);
        let mut config = Self {
            seed,
            servers,
            clients: rng.range(2, 7) as usize,
            lock_clients: rng.range(0, 4) as usize,
            is_slow: false,
            is_foreign: false,
            upgrades: false,
            quiet_clients: 0,
            locks: rng.range(1, 2),
            operations: rng.range(2000, 2400),
            op_weights: op_weights(rng),
            pipeline_max: *rng.pick(&[1, 4, 16, 40]),
            think_us_max: *rng.pick(&[500, 5_000, 40_000]),
            latency_us_max: *rng.pick(&[50, 500, 5_000]),
            splits_bytes: rng.chance(500),
            data_bytes_max: *rng.pick(&[8, 64, 600, 3000]),
            timeouts_ms: (timeout_min, timeout_min + rng.range(100, 2500) as i32),
            batch_max: *rng.pick(&[1, 8, 64]),
            leaving_at_once: [1, 2, 1000][(seed % 3) as usize],
            log_us: if log_fast { (20, 300) } else { (500, 60_000) },
            told_late_us_max: *rng.pick(&[1, 100, 5_000]),
            state_us_max: *rng.pick(&[200, 5_000, 50_000]),
            drain_records_max: *rng.pick(&[1, 5, 40, 1000]),
            changes_queue_max: *rng.pick(&[1, 4]),
            segment_bytes: *rng.pick(&[512, 2048, 8192, 65_536]),
            image_every_bytes: *rng.pick(&[300, 1500, 6000, 40_000]),
            crash_every_us: crashes.then(|| *rng.pick(&[150_000, 600_000, 2_000_000])),
            power_cuts: *rng.pick(&[0, 500, 1000]),
            crashes_at_operations: *rng.pick(&[0, 500, 900]),
            crashes_while_opening: *rng.pick(&[0, 200, 500]),
            clean_stops: *rng.pick(&[0, 100, 400]),
            down_us_max: *rng.pick(&[1_000, 200_000, 3_000_000]),
            sync_errors: rng.chance(250),
            full_disks: rng.chance(400),
            image_flips: if rng.chance(400) { 500 } else { 0 },
            log_flips: if rng.chance(250) { 300 } else { 0 },
            sled_error_one_in: if rng.chance(250) { *rng.pick(&[20, 200]) } else { 0 },
            drops: *rng.pick(&[0, 5, 30]),
            silences: *rng.pick(&[0, 2, 8]),
            closes: *rng.pick(&[0, 2, 10]),
            malformed: *rng.pick(&[0, 5, 20]),
            wall_jumps: rng.chance(300),
            extended_types: rng.chance(850),
            container_interval_ms: *rng.pick(&[100, 700]),
            container_never_used_ms: *rng.pick(&[0, 400, 300_000]),
            linearizable_reads: false,
            peer_latency_us_max: 1,
            trouble_every_us: None,
            trouble_weights: [0; 5],
            clock_rates: vec![1000; servers],
            observers: Vec::new(),
            wipe_every_us: None,
            hang_every_us: None,
            wrong_clocks_every_us: None,
            disk_stall_ms: 5000,
            old_copies_every_us: None,
            expiry_grace_ms: 0,
            reaped_per_minute: REAPED_PER_MINUTE,
            has_quotas: false,
        };
        if servers > 1 {
            config.draw_ensemble(rng);
            config.draw_members(&mut Rng::new(seed, 6));
            config.draw_old_copies(&mut Rng::new(seed, 11));
        }
        config.draw_hangs(&mut Rng::new(seed, 8));
        config.draw_clocks(&mut Rng::new(seed, 13));
        config.draw_settings(&mut Rng::new(seed, 17));
        config
    }

    /// The same world, with a foreign program in the network between the servers.
    pub fn draw_foreign(seed: u64, servers: usize) -> Self {
        Self { is_foreign: true, ..Self::draw(seed, servers) }
    }

    /// The same world, but slow: clients say little, and what goes wrong takes seconds. What becomes of a
    /// session whose client is silent for most of its timeout is told here, where one lost sign of life counts.
    pub fn draw_slow(seed: u64, servers: usize) -> Self {
        let mut config = Self::draw(seed, servers);
        let rng = &mut Rng::new(seed, 16);
        config.is_slow = true;
        config.operations = rng.range(400, 600);
        config.clients = rng.range(1, 2) as usize;
        config.lock_clients = 0;
        config.quiet_clients = rng.range(4, 8) as usize;
        config.think_us_max = *rng.pick(&[200_000, 1_000_000]);
        config.pipeline_max = 1;
        config.latency_us_max = config.latency_us_max.min(1000);
        config.drops = *rng.pick(&[0, 30, 100]);
        let timeout_min = *rng.pick(&[600, 1500, 3000]);
        config.timeouts_ms = (timeout_min, timeout_min + rng.range(100, 3000) as i32);
        config.peer_latency_us_max = *rng.pick(&[1000, 20_000, 60_000]);
        config.crash_every_us = rng.chance(500).then(|| *rng.pick(&[4_000_000, 15_000_000]));
        config.down_us_max = *rng.pick(&[200_000, 3_000_000]);
        config.trouble_every_us = Some(*rng.pick(&[700_000, 2_000_000]));
        config.trouble_weights = [1, 4, 2, 5, 1].map(|most| rng.range(1, most) as u32);
        config.wipe_every_us = None;
        config.old_copies_every_us = None;
        config.expiry_grace_ms = 0;
        config.reaped_per_minute = REAPED_PER_MINUTE;
        config.has_quotas = false;
        config
    }

    /// What only several servers can suffer from.
    fn draw_ensemble(&mut self, rng: &mut Rng) {
        self.linearizable_reads = rng.chance(200);
        self.peer_latency_us_max = *rng.pick(&[100, 1000, 10_000, 40_000]);
        self.trouble_every_us = rng.chance(850).then(|| *rng.pick(&[200_000, 600_000, 2_000_000]));
        self.trouble_weights = [(); 5].map(|()| *rng.pick(&[0, 1, 3]));
        self.trouble_weights[4] = 1;
        if rng.chance(300) {
            self.clock_rates.fill_with(|| rng.range(950, 1050));
        }
        // Each server has these of its own.
        let servers = self.servers as u64;
        self.crash_every_us = self.crash_every_us.map(|us| us * servers);
        // Or there would hardly ever be a majority.
        self.down_us_max = self.down_us_max.min(self.crash_every_us.unwrap_or(u64::MAX));
        self.timeouts_ms.0 += 400;
        self.timeouts_ms.1 += 2000;
    }

    /// What becomes of the members.
    fn draw_members(&mut self, rng: &mut Rng) {
        if self.servers > 3 && rng.chance(400) {
            let first = rng.index(self.servers);
            let second = (first + 1 + rng.index(self.servers - 1)) % self.servers;
            self.observers = vec![first.min(second), first.max(second)];
        }
        self.wipe_every_us = rng.chance(400).then(|| *rng.pick(&[20_000, 500_000, 3_000_000]));
    }

    /// Whether disks hang.
    fn draw_hangs(&mut self, rng: &mut Rng) {
        if rng.chance(300) {
            self.hang_every_us = Some(*rng.pick(&[300_000, 2_000_000]));
            self.disk_stall_ms = *rng.pick(&[300, 600, 1500]);
        }
    }

    /// Whether wall clocks are wrong.
    fn draw_clocks(&mut self, rng: &mut Rng) {
        let is_on = rng.chance(300);
        self.wrong_clocks_every_us = is_on.then(|| *rng.pick(&[300_000, 1_000_000, 4_000_000]));
    }

    /// Whether disks are put back to older copies.
    fn draw_old_copies(&mut self, rng: &mut Rng) {
        let is_on = rng.chance(400);
        self.old_copies_every_us = is_on.then(|| *rng.pick(&[100_000, 300_000, 1_000_000]));
    }

    /// What operators set, and whether there are quotas.
    fn draw_settings(&mut self, rng: &mut Rng) {
        if rng.chance(250) {
            self.expiry_grace_ms = *rng.pick(&[150, 700]);
        }
        if rng.chance(300) {
            self.reaped_per_minute = *rng.pick(&[60, 240]);
        }
        self.has_quotas = rng.chance(300);
    }

    /// How long the server may take to remove so many znodes, beyond a look at them.
    pub fn reaping_us(&self, znodes: u64) -> u64 {
        match self.reaped_per_minute {
            REAPED_PER_MINUTE => 0,
            per_minute => znodes * 60_000_000 / u64::from(per_minute),
        }
    }

    /// How late the removal of a znode may be proposed after the look that found it, and that look come.
    pub fn reaped_late_us(&self) -> u64 {
        let hang_us = if self.hang_every_us.is_some() { self.hang_us_max() } else { 0 };
        // Nothing is proposed while leadership is being handed over.
        let handed_over_us = if self.servers > 1 { 5_000_000 } else { 0 };
        self.container_interval_ms * 1000 + 500_000 + handed_over_us + hang_us
    }

    /// Longest time that anything of the server's own may take, besides timeouts.
    pub fn grace_us(&self) -> u64 {
        // Two hangs may follow each other closely.
        let hang_us = if self.hang_every_us.is_some() { self.hang_us_max() } else { 0 };
        self.calm_grace_us() + 2 * hang_us
    }

    /// The same, while no disk hangs.
    pub fn calm_grace_us(&self) -> u64 {
        let own_us = 20 * (self.log_us.1 + self.told_late_us_max + self.state_us_max);
        let alone_us = 500_000 + own_us;
        if self.servers == 1 {
            // Two standstills may follow each other closely, and no other server ends a session meanwhile.
            let still_us = if self.is_slow { STANDSTILL_US_MAX } else { 0 };
            return alone_us + 2 * still_us;
        }
        // Half-open links are found out, a leader is elected, and whoever is behind catches up.
        alone_us + 10_000_000 + 100 * self.peer_latency_us_max
    }

    /// Longest time that a disk hangs: longer than a handover may take.
    pub fn hang_us_max(&self) -> u64 {
        2000 * self.disk_stall_ms + 4_000_000
    }
}

fn op_weights(rng: &mut Rng) -> Vec<u32> {
    // Some kinds rare or absent, some frequent.
    let weights: Vec<u32> = KINDS.iter().map(|_| *rng.pick(&[0, 1, 1, 2, 4, 8])).collect();
    let mut weights = weights;
    // Without these, nothing much happens.
    weights[0] = weights[0].max(3);
    weights[5] = weights[5].max(1);
    weights
}
