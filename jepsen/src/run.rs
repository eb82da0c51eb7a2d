//! A run: servers, clients and faults together, and the verdict.
//!
//! *Owns* the order of things: servers up, znodes made, clients at work while faults strike, everything
//! healed, clients done, a last look at all, quiet, accounts collected, servers down, judgement.
//! *Invariant*: whatever happens, the servers are gone when it returns or unwinds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::trial::{self, Opinion};
use lockkeeper_check::verdict::Verdict;
use serde_json::{Value, json};

use crate::client::{Client, Server, Terms};
use crate::cluster::{self, Backend, Blueprint, Cluster, Met, Software, namespaces};
use crate::journal::Journal;
use crate::judgement::{self, Case};
use crate::nemesis::plan::plan;
use crate::nemesis::{Faults, Kind, Strike, strike};
use crate::report::lanes::Led;
use crate::report::{self, Material};
use crate::store::{self, Store};
use crate::worker::{self, Times};
use crate::workload::{self, Named, Workload};

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    pub workload: Named,
    pub faults: Faults,
    pub software: Software,
    /// A deliberate bug that every server is to have, by its name.
    pub plant: Option<String>,
    pub backend: Backend,
    pub nodes: usize,
    pub clients: usize,
    /// How long clients work.
    pub length: Duration,
    pub interval: Duration,
    /// Steps of all clients together, a second.
    pub rate: u32,
    pub timeout: Duration,
    pub ops_per_key: u64,
    pub snapshot_every: Option<u64>,
    pub seed: u64,
    pub out: PathBuf,
    pub keep_data: bool,
    /// What was asked for and cannot be had here.
    pub skipped: Vec<String>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub store: Store,
    pub opinions: Vec<Opinion>,
    pub verdict: Verdict,
    pub results: Value,
}

/// Servers' ticks; session timeouts are at most 20 of them.
const TICK_MS: u64 = 200;
/// The process that makes the znodes and looks at them at the end.
const FIRST_PROCESS: u64 = 0;
/// An election, a start of a server, and what a busy machine adds.
const SLACK: Duration = Duration::from_secs(3);
/// How much later than its time a session may end: a tick, and what a busy machine adds.
const LATE_MS: i64 = 1000;
/// Setting up and the last look take no longer.
const INSIST_MAX: Duration = Duration::from_secs(30);
/// Servers left in peace are even after this time.
const EVEN_MAX: Duration = Duration::from_secs(15);
/// The main thread looks at the servers and at interrupts so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Written until there are so many images, where they are to be damaged.
const BALLAST: &str = "/ballast";
const BALLAST_BYTES: usize = 32 << 10;
const IMAGES_MIN: usize = 2;
/// Who leads is asked so often, for the report.
const ASK_LEADERS_EVERY: Duration = Duration::from_millis(100);
/// A leader that is back hears of what its followers have heard within this time.
const DEAF_MAX: Duration = Duration::from_secs(1);
/// A run with fewer answers than this part of the intended steps has shown nothing, in percent.
const ANSWERED_PERCENT_MIN: u64 = 10;

/// Runs.
///
/// # Errors
/// The harness could not do its part; that says nothing about the servers.
pub fn run(settings: &Settings, is_interrupted: &AtomicBool) -> Result<Outcome, String> {
    let store = Store::create(&settings.out, &settings.name())?;
    let plan = settings.plan();
    let mut cluster = Cluster::new(Blueprint {
        software: settings.software.clone(),
        plant: settings.plant.clone(),
        backend: settings.backend,
        nodes: settings.nodes,
        tick_ms: TICK_MS,
        snapshot_every: settings.snapshot_every,
        faults: settings.faults.clone(),
        seed: settings.seed,
        folder: store.folder().to_owned(),
    })?;
    cluster.start_all()?;
    let workload = settings.workload.make(workload::Settings {
        ops_per_key: settings.ops_per_key,
        clients: settings.clients,
        timeout: settings.timeout,
    });
    let journal = Arc::new(Journal::new());
    let terms = Terms {
        journal: journal.clone(),
        servers: cluster.servers().into(),
        timeout: settings.timeout,
    };
    let mut first = Client::new(terms.clone(), FIRST_PROCESS, settings.seed);
    worker::insist(&mut first, INSIST_MAX, |client| {
        workload.setup(client).and_then(|()| client.close())
    })?;
    if settings.faults.has(Kind::Corruption) {
        fill(&mut first, &cluster)?;
    }
    let Worked { closed, leaders, is_whole } =
        work(settings, &plan, &mut cluster, &workload, &terms, is_interrupted)?;
    let mut is_even = true;
    if is_whole {
        worker::insist(&mut first, INSIST_MAX, |client| {
            workload.finale(client).and_then(|()| client.close())
        })?;
        if !closed {
            // The sessions that no client closed end by themselves, and their znodes with them.
            thread::sleep(settings.timeout + SLACK);
        }
        is_even = cluster.wait_until_even(EVEN_MAX);
    }
    for (node, text) in cluster.accounts()? {
        store.write_audit(&node, &text)?;
    }
    cluster.stop_all();
    let (history, oddities) = journal.finish();
    store.write_history(&history)?;
    let mut case = settings.case(&plan, &workload, journal.began_at_ms());
    case.departed.extend(cluster.departed().map(str::to_owned));
    case.crashes = cluster.crashes().to_vec();
    if !is_even {
        case.crashes.push(format!("the servers were not even {EVEN_MAX:?} after the last write"));
    }
    case.oddities = oddities;
    store.write_json(store::TEST, &settings.to_json(&plan, &case, &leaders))?;
    let outcome = judge(store)?;
    if outcome.verdict == Verdict::Valid && !settings.keep_data {
        cluster.remove_data()?;
    }
    Ok(outcome)
}

/// Writes until every server has two images and a log that begins behind one: else there is nothing
/// to damage.
fn fill(client: &mut Client, cluster: &Cluster) -> Result<(), String> {
    let deadline = Instant::now() + INSIST_MAX;
    let data = "-".repeat(BALLAST_BYTES);
    worker::insist(client, INSIST_MAX, |client| {
        workload::ensure(client, BALLAST)?;
        while !cluster.have_images(IMAGES_MIN) && Instant::now() < deadline {
            client.call(workload::set(BALLAST, &data, -1))?;
        }
        client.close()
    })?;
    match cluster.have_images(IMAGES_MIN) {
        true => Ok(()),
        false => Err(format!("the servers have written no {IMAGES_MIN} images in {INSIST_MAX:?}")),
    }
}

/// What came of the clients' work.
struct Worked {
    /// All of them could close their sessions.
    closed: bool,
    /// Who led when.
    leaders: Vec<Led>,
    /// All servers came back when the faults were over.
    is_whole: bool,
}

/// Asks who leads, until the time is over.
fn watch_leaders(servers: &[Server], journal: &Journal, times: &Times) -> Vec<Led> {
    let mut leaders: Vec<Led> = Vec::new();
    while !times.is_over.load(Ordering::Relaxed) {
        let now = cluster::leaders(servers);
        let leader = (!now.is_empty()).then(|| now.join(", "));
        if leaders.last().is_none_or(|last| last.leader != leader) {
            leaders.push(Led { from_ns: journal.now_ns(), leader });
        }
        thread::sleep(ASK_LEADERS_EVERY);
    }
    leaders
}

/// Clients at work while faults strike.
fn work(
    settings: &Settings,
    plan: &[Strike],
    cluster: &mut Cluster,
    workload: &Arc<dyn Workload>,
    terms: &Terms,
    is_interrupted: &AtomicBool,
) -> Result<Worked, String> {
    let began = Instant::now();
    let clients = u32::try_from(settings.clients).expect("a few clients");
    let times = Arc::new(Times {
        is_over: AtomicBool::new(false),
        is_broken: AtomicBool::new(false),
        last: began + settings.length + Duration::from_secs(120),
        pace: Duration::from_secs(1) * clients / settings.rate.max(1),
    });
    let mut workers = Vec::new();
    for process in 1..=settings.clients {
        let process = u64::try_from(process).expect("a few clients");
        let mut client = Client::new(terms.clone(), process, settings.seed);
        let (mut body, times) = (workload.body(), times.clone());
        let worker = thread::Builder::new().name(format!("client {process}"));
        let spawned = worker.spawn(move || worker::work(&mut client, &mut *body, &times));
        workers.push(spawned.map_err(|error| format!("no thread: {error}"))?);
    }
    let (servers, journal, ends) = (terms.servers.clone(), terms.journal.clone(), times.clone());
    let leaders = thread::spawn(move || watch_leaders(&servers, &journal, &ends));
    let struck = strike_all(settings, plan, cluster, &terms.journal, began, is_interrupted);
    let healed = struck
        .and_then(|()| strike::heal(cluster, &terms.journal))
        .and_then(|()| cluster.wait_until_healthy());
    tell_met(cluster, &terms.journal);
    // Servers that have ended by themselves and do not come back have broken a promise, not the harness.
    let is_whole = match healed {
        Ok(()) => true,
        Err(_) if !cluster.crashes().is_empty() => false,
        Err(what) => {
            times.is_over.store(true, Ordering::Relaxed);
            return Err(what);
        }
    };
    times.is_broken.store(!is_whole, Ordering::Relaxed);
    times.is_over.store(true, Ordering::Relaxed);
    let mut closed = true;
    for worker in workers {
        closed &= worker.join().map_err(|_| "a client panicked".to_owned())?;
    }
    let leaders = leaders.join().map_err(|_| "the look at leaders panicked".to_owned())?;
    Ok(Worked { closed, leaders, is_whole })
}

/// The faults, each at its time, until the run has its length.
fn strike_all(
    settings: &Settings,
    plan: &[Strike],
    cluster: &mut Cluster,
    journal: &Journal,
    began: Instant,
    is_interrupted: &AtomicBool,
) -> Result<(), String> {
    let mut strikes = plan.iter().peekable();
    let mut heal_at: Option<Duration> = None;
    while began.elapsed() < settings.length && !is_interrupted.load(Ordering::Relaxed) {
        cluster.look_for_crashes();
        tell_met(cluster, journal);
        if heal_at.is_some_and(|at| began.elapsed() >= at) {
            strike::heal(cluster, journal)?;
            heal_at = None;
        }
        // A fault within another is healed with it.
        let may_strike =
            |next: &&Strike| began.elapsed() >= next.at && heal_at.is_none_or(|at| next.at < at);
        if let Some(next) = strikes.next_if(may_strike) {
            strike::strike(next, cluster, journal)?;
            heal_at = heal_at.max(Some(next.at + next.lasts));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// The names in the journal of what servers made of faults of their disks.
const STOPPED: &str = "stopped-by-disk";
const NO_ROOM: &str = "no-room";

fn tell_met(cluster: &mut Cluster, journal: &Journal) {
    for met in cluster.take_met() {
        match met {
            Met::Stopped(told) => journal.fault(STOPPED, &told),
            Met::NoRoom(who) => journal.fault(NO_ROOM, &who),
            Met::Found(part, what) => journal.fault(part.found(), &what),
            Met::Switched(tally) => {
                for (name, _) in tally.counts().into_iter().filter(|(_, count)| *count > 0) {
                    journal.fault(name, &tally.to_string());
                }
            }
        }
    }
}

/// Judges what is in a run's directory, and writes the results there.
///
/// # Errors
/// The directory is not that of a whole run.
pub fn judge(store: Store) -> Result<Outcome, String> {
    let test = store.read_json(store::TEST)?;
    let case = Case::from_json(&test["case"])?;
    let (history, audit) = (store.history()?, store.audit()?);
    let opinions = case.judge(&history, &audit);
    let verdict = trial::verdict(&opinions);
    let results = judgement::results(&case, &opinions, &history, &audit);
    store.write_json(store::RESULTS, &results)?;
    let material = Material { test: &test, results: &results, history: &history, audit: &audit };
    store.write(store::REPORT, &report::html(material))?;
    store.write(store::EDN, &report::edn::from_lines(&store.history_lines()?)?)?;
    Ok(Outcome { store, opinions, verdict, results })
}

impl Settings {
    /// The faults that will strike.
    #[must_use]
    pub fn plan(&self) -> Vec<Strike> {
        plan(self.seed, &self.faults, self.nodes, self.length, self.interval)
    }

    /// The namespaces that the harness must have: networks that can be cut, and mounts that are gone
    /// when it is.
    #[must_use]
    pub fn namespaces(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        if self.backend == Backend::Namespaces {
            kinds.push(namespaces::NET);
        }
        if self.faults.kinds.iter().any(|kind| kind.weather().is_some()) {
            kinds.push(namespaces::SWITCH);
        }
        if self.faults.kinds.iter().any(|kind| kind.needs_disks()) {
            kinds.push(namespaces::MOUNT);
        }
        kinds
    }

    fn software_name(&self) -> &'static str {
        match self.software {
            Software::Lockkeeper { .. } => "lockkeeper",
            Software::ZooKeeper { .. } => "zookeeper",
        }
    }

    /// The name of the run's directory.
    fn name(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let control = match self.software {
            Software::Lockkeeper { .. } => "",
            Software::ZooKeeper { .. } => "zookeeper-",
        };
        let (workload, nemesis) = (self.workload.name, self.faults.name());
        let planted = self.plant.as_ref().map(|name| format!("{name}-")).unwrap_or_default();
        format!("{control}{planted}{workload}-{nemesis}-{}-{}", self.seed, since.as_secs())
    }

    fn case(&self, plan: &[Strike], workload: &Arc<dyn Workload>, began_at_ms: i64) -> Case {
        let has_account = matches!(self.software, Software::Lockkeeper { .. });
        let mut planned = workload.planned();
        let steps = u64::from(self.rate) * self.length.as_secs();
        let at_least = (steps * ANSWERED_PERCENT_MIN / 100).max(1);
        planned.push(Planned { event: Event::Answered, at_least });
        let mut fault = |name: &str| {
            planned.push(Planned { event: Event::Fault(name.to_owned()), at_least: 1 });
        };
        self.faults.kinds.iter().for_each(|kind| fault(kind.name()));
        let weather = self.faults.kinds.iter().filter_map(|kind| kind.weather());
        weather.for_each(|weather| fault(weather.shows_in()));
        if self.faults.has(Kind::DiskErrors) {
            fault(STOPPED);
        }
        if self.faults.has(Kind::DiskFull) {
            fault(NO_ROOM);
        }
        let harms = plan.iter().filter_map(|strike| strike.harm);
        harms.for_each(|harm| fault(harm.part.found()));
        if self.faults.has(Kind::Clock) {
            planned.push(Planned { event: Event::ClockJump, at_least: 1 });
        }
        if plan.iter().any(Strike::makes_an_election_certain) {
            planned.push(Planned { event: Event::Election, at_least: 1 });
        }
        // Without the servers' account nobody can count these.
        let counted = |planned: &Planned| {
            has_account
                || !matches!(planned.event, Event::Election | Event::Expiry | Event::ClockJump)
        };
        planned.retain(counted);
        let required = workload.required();
        let with_account = if has_account { required.with_account } else { &[] };
        let ensemble: &[&str] =
            if has_account && self.nodes > 1 { &["convergence", "log-matching"] } else { &[] };
        let required = [required.always, with_account, ensemble].concat();
        Case {
            began_at_ms,
            late_ms: LATE_MS,
            is_alone: self.nodes == 1,
            planned,
            required: required.into_iter().map(str::to_owned).collect(),
            skipped: self.skipped.clone(),
            is_control: self.is_control(),
            clocks_differ: self.faults.has(Kind::Clock),
            allowed: self.allowed(),
            deaf_ms: self.deaf(plan),
            ..Case::default()
        }
    }

    fn is_control(&self) -> bool {
        matches!(self.software, Software::ZooKeeper { .. })
    }

    /// A ZooKeeper that leads and cannot be heard, or stands still, ends sessions of which it does not
    /// hear, and goes through with it when it is back, though others have heard of them.
    fn deaf(&self, plan: &[Strike]) -> Vec<(i64, i64)> {
        let ms = |at: Duration| i64::try_from(at.as_millis()).expect("a few minutes");
        let cannot_hear = |strike: &&Strike| self.is_control() && strike.kind != Kind::Kill;
        let span = |strike: &Strike| {
            (ms(strike.at), ms(strike.at + strike.lasts + strike.lasts.max(DEAF_MAX)))
        };
        plan.iter().filter(cannot_hear).map(span).collect()
    }

    /// ZooKeeper's `sync` asks nobody else: a leader that is cut off shows old states behind it.
    fn allowed(&self) -> Vec<String> {
        match self.is_control() && self.faults.kinds.iter().any(|kind| *kind != Kind::Kill) {
            true => ["sync", "search"].map(str::to_owned).to_vec(),
            false => Vec::new(),
        }
    }

    fn to_json(&self, plan: &[Strike], case: &Case, leaders: &[Led]) -> Value {
        let led = |led: &Led| json!({"from_ns": led.from_ns, "leader": led.leader});
        let leaders: Vec<Value> = leaders.iter().map(led).collect();
        let plan: Vec<String> = plan.iter().map(Strike::to_string).collect();
        json!({
            "workload": self.workload.name, "nemesis": self.faults.name(), "seed": self.seed,
            "server": self.software_name(), "planted": self.plant, "nodes": self.nodes, "clients": self.clients,
            "time_limit_s": self.length.as_secs_f64(), "rate": self.rate,
            "session_timeout_ms": self.timeout.as_secs_f64() * 1000.0,
            "ops_per_key": self.ops_per_key, "snapshot_every": self.snapshot_every,
            "plan": plan, "leaders": leaders, "case": case.to_json(),
        })
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_check::history::CONSEQUENCES;

    use super::*;
    use crate::cluster::switch::Tally;
    use crate::nemesis::Part;
    use crate::nemesis::strike::MISSED;

    #[test]
    fn what_came_of_faults_is_taken_for_no_fault() {
        let counts = Tally::default().counts().map(|(name, _)| name);
        let found = Part::ALL.map(|(part, _)| part.found());
        let told = [&[MISSED, STOPPED, NO_ROOM][..], &counts, &found].concat();
        assert!(told.iter().all(|name| CONSEQUENCES.contains(name)), "{told:?}");
        assert_eq!(told.len(), CONSEQUENCES.len());
    }
}
