//! A load that stays the same for minutes beside a full tree, while sessions come and go in storms:
//! whether the server stalls, or gets slower or larger.
//!
//! A thread probes the disk all the time and another makes the storms, on the processors that the server
//! and the load also use. *Invariants*: a server is measured alone; whatever fails, in a storm too, ends
//! the run; both threads end with it.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockkeeper::internals::bench::{
    self, Fault, Go, Interim, Length, Outcome, Plan, Work, histogram, milliseconds, proc,
};

use crate::disk::{self, Patrolled};
use crate::figures::median;
use crate::kinds::Kind;
use crate::load::{self, TREE};
use crate::mode::Mode;
use crate::packets::dropped_packets;
use crate::peers::Peer;
use crate::steady_figures::{DiskProbe, STALL_MS, Steadiness, SteadyPeer, Stormed, Window};
use crate::storm::{Passed, Storm};
use crate::{machine, peers};

/// Windows in which the most is found out, and the length of each.
const PROBES: usize = 3;
const PROBE: Duration = Duration::from_secs(3);
/// Unmeasured load before each measurement.
const WARM_UP: Duration = Duration::from_secs(2);
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// Sessions of a storm that come back and that do not; of the middle one come back more.
const RETURNING: usize = 1_000;
const RETURNING_MOST: usize = 10_000;
const EXPIRING: usize = 1_000;
/// Their session timeout.
const TIMEOUT: Duration = Duration::from_secs(20);
/// None begins later than this before the end.
const STORM_MAX: Duration = Duration::from_secs(50);
/// How often the client looks round.
const LOOK: Duration = Duration::from_millis(50);

pub struct Settings {
    pub kinds: Vec<Kind>,
    pub servers: u16,
    pub mode: Mode,
    pub znodes: u64,
    pub share: f64,
    pub length: Duration,
    /// From one storm to the next.
    pub storm_every: Duration,
    pub base_port: u16,
    pub data: PathBuf,
}

/// Measures one kind after the other; `note` is told what is going on.
pub fn run(settings: &Settings, note: impl Fn(&str)) -> Result<Steadiness, String> {
    let mut figures = Steadiness {
        site: machine::site(&settings.data),
        servers: settings.servers,
        mode: settings.mode,
        znodes: settings.znodes,
        share: settings.share,
        peers: Vec::new(),
    };
    let mut port = settings.base_port;
    for kind in &settings.kinds {
        let mut peer = Peer::new(kind.clone(), settings.servers, port, &settings.data)?;
        port += peers::PORTS_PER_SERVER * settings.servers;
        peer.start("/")?;
        figures.peers.push(measure(settings, &peer, &note)?);
    }
    Ok(figures)
}

fn measure(settings: &Settings, peer: &Peer, note: &impl Fn(&str)) -> Result<SteadyPeer, String> {
    let failed = |e: Fault| peer.failure(&e.to_string());
    let Mode { work, connections, depth } = settings.mode;
    let each = load::create_numbered(peer, connections, settings.znodes).map_err(failed)?;
    note(&format!("{}: {} znodes are there", peer.kind.describe(), each.iter().sum::<u64>()));
    let stays = matches!(work, Work::Get | Work::Set | Work::Mixed);
    let plan = Plan {
        pids: peer.pids(),
        length: Length::Timed { warm_up: WARM_UP, window: PROBE },
        room: if stays { TREE } else { "steady" }.to_owned(),
        scatter: each.first().copied().filter(|_| stays),
        ..Plan::new(peer.addrs(), work, connections, depth)
    };
    let mut probes = Vec::new();
    for _ in 0..PROBES {
        load::rest([peer]);
        probes.push(bench::run(&plan, &mut |_| Go::On).map_err(failed)?.per_second());
        if !stays {
            bench::clear(&plan).map_err(failed)?;
        }
    }
    let most = median(&probes);
    let rate = (settings.share < 1.0).then_some(most * settings.share);
    note(&format!("{}: at most {most:.0}/s of {probes:.0?}", peer.kind.name()));
    load::rest([peer]);
    let length = Length::Timed { warm_up: WARM_UP, window: settings.length };
    let plan = Plan { length, rate, ..plan };
    let (windows, storms) = observe(settings, peer, &plan, note)?;
    Ok(SteadyPeer { peer: peer.kind.peer(), most, offered: rate, windows, storms })
}

/// Runs the load with the probe and the storms beside it.
fn observe(
    settings: &Settings,
    peer: &Peer,
    plan: &Plan,
    note: &impl Fn(&str),
) -> Result<(Vec<Window>, Vec<Stormed>), String> {
    thread::scope(|scope| {
        let (stop, stopped) = channel();
        let (told, patrolled) = channel();
        let patrol = scope.spawn(move || disk::patrol(&settings.data, &stopped, &told));
        let (wanted, wants) = channel::<Storm>();
        let (has_passed, passed) = channel();
        scope.spawn(move || {
            for storm in wants {
                // Nobody hears of it if the run has failed.
                let _ = has_passed.send(storm.run());
            }
        });
        let mut watch = Watch::begin(settings, peer, wanted, patrolled, passed)?;
        let outcome = bench::run(plan, &mut |interim| watch.look(interim, note));
        drop(stop);
        let patrol = patrol.join().expect("the probe does not panic");
        let outcome = outcome.map_err(|e| peer.failure(&e.to_string()))?;
        patrol?;
        watch.end(&outcome, note)
    })
}

/// What is seen from within the run.
struct Watch<'a> {
    settings: &'a Settings,
    peer: &'a Peer,
    wanted: Sender<Storm>,
    patrolled: Receiver<Patrolled>,
    passed: Receiver<Result<Passed, Fault>>,
    /// Storms that have begun, and those that are over.
    began: Vec<(f64, Storm)>,
    storms: Vec<Stormed>,
    windows: Vec<Window>,
    /// What there was when the window began.
    before: Counted,
    looked: Option<Instant>,
    late: Duration,
    fault: Option<String>,
}

/// What only grows.
struct Counted {
    elapsed: Duration,
    ops: u64,
    latencies: Histogram<u64>,
    /// CPU seconds of the server, the client, the machine.
    cpu: [f64; 4],
    dropped_packets: u64,
}

impl<'a> Watch<'a> {
    fn begin(
        settings: &'a Settings,
        peer: &'a Peer,
        wanted: Sender<Storm>,
        patrolled: Receiver<Patrolled>,
        passed: Receiver<Result<Passed, Fault>>,
    ) -> Result<Self, String> {
        let before = Counted {
            elapsed: Duration::ZERO,
            ops: 0,
            latencies: histogram(),
            cpu: cpu(peer).map_err(|e| peer.failure(&e.to_string()))?,
            dropped_packets: dropped_packets().map_err(|e| e.to_string())?,
        };
        Ok(Watch {
            settings,
            peer,
            wanted,
            patrolled,
            passed,
            began: Vec::new(),
            storms: Vec::new(),
            windows: Vec::new(),
            before,
            looked: None,
            late: Duration::ZERO,
            fault: None,
        })
    }

    /// Sees to windows and storms.
    fn look(&mut self, interim: &Interim<'_>, note: &impl Fn(&str)) -> Go {
        if !interim.measured {
            return Go::On;
        }
        match self.looks(interim, note) {
            Ok(()) => Go::On,
            Err(e) => {
                self.fault.get_or_insert(e);
                Go::Stop
            }
        }
    }

    fn looks(&mut self, interim: &Interim<'_>, note: &impl Fn(&str)) -> Result<(), String> {
        let Some(before) = self.looked.replace(Instant::now()) else {
            // What came before the first window is not its.
            self.patrolled.try_iter().for_each(drop);
            self.before.cpu = cpu(self.peer).map_err(|e| e.to_string())?;
            self.before.dropped_packets = dropped_packets().map_err(|e| e.to_string())?;
            return Ok(());
        };
        self.late = self.late.max(before.elapsed().saturating_sub(LOOK));
        self.see_storms(interim.elapsed, note)?;
        let ends = WINDOW * (self.windows.len() as u32 + 1);
        if interim.elapsed >= ends && ends < self.settings.length {
            self.end_window(interim.elapsed, interim.ops, interim.latencies, note)?;
            // The time that this took is not the load's.
            self.looked = Some(Instant::now());
        }
        Ok(())
    }

    /// Begins a storm when it is time, and hears of those that are over.
    fn see_storms(&mut self, elapsed: Duration, note: &impl Fn(&str)) -> Result<(), String> {
        let every = self.settings.storm_every;
        let room = self.settings.length.saturating_sub(STORM_MAX);
        let count = (room.as_secs_f64() / every.as_secs_f64()) as usize;
        if self.began.len() < count && elapsed >= every * (self.began.len() as u32 + 1) {
            let returning = if self.began.len() == count / 2 { RETURNING_MOST } else { RETURNING };
            let storm = Storm {
                addrs: self.peer.addrs(),
                room: "/bench/storm".to_owned(),
                returning,
                expiring: EXPIRING,
                timeout: TIMEOUT,
            };
            self.wanted.send(storm.clone()).map_err(|_| "the storms have ended")?;
            self.began.push((elapsed.as_secs_f64(), storm));
        }
        while let Ok(passed) = self.passed.try_recv() {
            self.take_in(passed, note)?;
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        passed: Result<Passed, Fault>,
        note: &impl Fn(&str),
    ) -> Result<(), String> {
        let passed = passed.map_err(|e| self.peer.failure(&format!("in a storm: {e}")))?;
        let (began, storm) = &self.began[self.storms.len()];
        note(&format!("from {began:.0} s: {storm:?} {passed:.1?}"));
        self.storms.push(Stormed {
            began_s: *began,
            opened_s: began + passed.opened,
            returning: storm.returning,
            returned_s: began + passed.returned,
            expiring: storm.expiring,
            expired_s: began + passed.expired,
            closed_s: began + passed.closed,
            refused: passed.refused,
        });
        Ok(())
    }

    fn end_window(
        &mut self,
        elapsed: Duration,
        ops: u64,
        latencies: &Histogram<u64>,
        note: &impl Fn(&str),
    ) -> Result<(), String> {
        disk::keep_room(&self.settings.data)?;
        let failed = |e: Fault| self.peer.failure(&e.to_string());
        let now = Counted {
            elapsed,
            ops,
            latencies: latencies.clone(),
            cpu: cpu(self.peer).map_err(failed)?,
            dropped_packets: dropped_packets().map_err(failed)?,
        };
        let mut own = now.latencies.clone();
        own.subtract(&self.before.latencies).map_err(|e| format!("latencies: {e}"))?;
        let seconds = (elapsed - self.before.elapsed).as_secs_f64();
        let [server_cpu, client_cpu, all_cpu, stolen_cpu] =
            [0, 1, 2, 3].map(|at| (now.cpu[at] - self.before.cpu[at]) / seconds);
        let window = Window {
            from_s: self.before.elapsed.as_secs_f64(),
            seconds,
            per_second: (ops - self.before.ops) as f64 / seconds,
            p50_ms: milliseconds(&own, 0.5),
            p99_ms: milliseconds(&own, 0.99),
            p999_ms: milliseconds(&own, 0.999),
            max_ms: milliseconds(&own, 1.0),
            server_cpu,
            client_cpu,
            other_cpu: (all_cpu - server_cpu - client_cpu).max(0.0),
            stolen_cpu: Some(stolen_cpu),
            client_late_ms: self.late.as_secs_f64() * 1e3,
            // The kernel counts in 32 bits, and only processors that are there.
            dropped_packets: Some(now.dropped_packets.saturating_sub(self.before.dropped_packets)),
            rss_mib: proc::rss_mib_of(&self.peer.pids()).map_err(failed)?,
            logs: self.peer.logs(),
            images: self.peer.images(),
            disk: disk_probe(self.patrolled.try_iter()),
        };
        note(&format!("{window:.2?}"));
        self.windows.push(window);
        self.before = now;
        self.late = Duration::ZERO;
        Ok(())
    }

    /// The last window, and the storms that are still on.
    fn end(
        mut self,
        outcome: &Outcome,
        note: &impl Fn(&str),
    ) -> Result<(Vec<Window>, Vec<Stormed>), String> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let elapsed = Duration::from_secs_f64(outcome.seconds);
        self.end_window(elapsed, outcome.ops, &outcome.latencies, note)?;
        while self.storms.len() < self.began.len() {
            let passed = self.passed.recv().map_err(|_| "a storm did not end")?;
            self.take_in(passed, note)?;
        }
        Ok((self.windows, self.storms))
    }
}

/// CPU seconds of the server, of this process and of all, and those the host took.
fn cpu(peer: &Peer) -> Result<[f64; 4], Fault> {
    let server = proc::cpu_seconds_of(&peer.pids())?;
    let client = proc::cpu_seconds(std::process::id())?;
    let all = proc::processors()?;
    Ok([server, client, all.used, all.stolen])
}

fn disk_probe(patrolled: impl Iterator<Item = Patrolled>) -> DiskProbe {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let all: Vec<Patrolled> = patrolled.collect();
    let took: Vec<f64> = all.iter().map(|append| ms(append.took)).collect();
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    DiskProbe {
        appends: all.len() as u64,
        p50_ms: if took.is_empty() { 0.0 } else { median(&took) },
        max_ms: most(&mut took.iter().copied()),
        stalls: took.iter().filter(|ms| **ms > STALL_MS).count() as u64,
        late_max_ms: most(&mut all.iter().map(|append| ms(append.late))),
    }
}
