//! The threads of a run: each has a loop over its share of the connections, and what they measure counts
//! together.
//!
//! *Invariants*: no thread begins before all connections are open, and none closes its sessions before all
//! have their last answer, so that the servers' own count of events is that of the run; a thread that fails
//! ends the run of all. *Never* starts a thread for a run by one.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::link::{Link, Task};
use super::load::{Loop, Part};
use super::outcome::{Contention, Interim, Outcome, Tally};
use super::plan::{Go, Plan};
use super::sockets::LOOK;
use super::{Fault, count};

/// Time between two looks at whether the others have opened their connections.
const WAIT: Duration = Duration::from_millis(1);

/// What the threads of a run know of each other.
pub(super) struct Common {
    /// Threads that have all their connections, and threads that have all their answers.
    ready: AtomicUsize,
    drained: AtomicUsize,
    may_close: AtomicBool,
    stops: AtomicBool,
    failed: AtomicBool,
    /// Operations of each thread.
    ops: Vec<AtomicU64>,
    /// The servers' count of events at the start and at the end, if they say.
    events_before: Option<u64>,
    events_after: OnceLock<Option<u64>>,
}

/// The connections of one thread, by their numbers among all.
type Share = Vec<(usize, Task)>;

/// Has as many threads as the plan says do these tasks; `look` is told how far it has come.
pub(super) fn run(
    plan: &Plan,
    tasks: Vec<Task>,
    look: &mut dyn FnMut(&Interim<'_>) -> Go,
) -> Result<Outcome, Fault> {
    let threads = if plan.work.spreads() { plan.threads.clamp(1, tasks.len().max(1)) } else { 1 };
    let mut shares: Vec<Share> = (0..threads).map(|_| Vec::new()).collect();
    for (number, task) in tasks.into_iter().enumerate() {
        shares[number % threads].push((number, task));
    }
    let common = Common::new(plan, threads);
    let mut shares = shares.into_iter().enumerate();
    let first = shares.next();
    let parts: Vec<Result<Option<Part>, Fault>> = thread::scope(|scope| {
        let common = &common;
        let begin = |(number, share)| {
            let name = format!("lk-bench-{number}");
            let body = move || one(plan, common, number, share, &mut |_| Go::On);
            let failed = |e| Fault::Machine(format!("a thread cannot be started: {e}"));
            thread::Builder::new().name(name).spawn_scoped(scope, body).map_err(failed)
        };
        let others: Vec<_> = shares.map(begin).collect();
        if others.iter().any(Result::is_err) {
            common.fail();
        }
        let own = first.map(|(number, share)| one(plan, common, number, share, look));
        let joined = others.into_iter().map(|thread| {
            thread.and_then(|thread| thread.join().expect("a thread of the load does not panic"))
        });
        own.into_iter().chain(joined).collect()
    });
    let parts: Vec<Option<Part>> = parts.into_iter().collect::<Result<_, _>>()?;
    Ok(together(plan, &common, &parts.into_iter().flatten().collect::<Vec<_>>()))
}

/// One thread; it has nothing to tell if another has failed before all were ready.
fn one(
    plan: &Plan,
    common: &Common,
    thread: usize,
    share: Share,
    look: &mut dyn FnMut(&Interim<'_>) -> Go,
) -> Result<Option<Part>, Fault> {
    let outcome = open_all(plan, share).and_then(|mut links| {
        if !common.wait(&mut links)? {
            return Ok(None);
        }
        Loop::new(links, plan, common, thread)?.run(look).map(Some)
    });
    if outcome.is_err() {
        common.fail();
    }
    outcome
}

/// Opens a session for each task, and keeps those alive that are open already.
fn open_all(plan: &Plan, share: Share) -> Result<Vec<Link>, Fault> {
    let mut links = Vec::with_capacity(share.len());
    let mut looked = Instant::now();
    for (number, task) in share {
        let addr = plan.addrs[number % plan.addrs.len()];
        links.push(Link::open(addr, task, plan.depth, &plan.access)?);
        let now = Instant::now();
        if now.duration_since(looked) >= LOOK {
            looked = now;
            links.iter_mut().try_for_each(|link| link.live_on(now))?;
        }
    }
    Ok(links)
}

impl Common {
    fn new(plan: &Plan, threads: usize) -> Self {
        let events_before = plan.asks_counts.then(|| count::events_sent(&plan.addrs)).flatten();
        Common {
            ready: AtomicUsize::new(0),
            drained: AtomicUsize::new(0),
            may_close: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            ops: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            events_before,
            events_after: OnceLock::new(),
        }
    }

    pub(super) fn threads(&self) -> usize {
        self.ops.len()
    }

    /// Ends the run before its time.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
    }

    /// Whether it has been ended so.
    pub(super) fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.stop();
    }

    /// Waits until all threads have their connections, and keeps these alive; false if one has failed.
    fn wait(&self, links: &mut [Link]) -> Result<bool, Fault> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        let mut looked = Instant::now();
        while self.ready.load(Ordering::Acquire) < self.threads() {
            if self.failed.load(Ordering::Acquire) {
                return Ok(false);
            }
            thread::sleep(WAIT);
            let now = Instant::now();
            if now.duration_since(looked) >= LOOK {
                looked = now;
                links.iter_mut().try_for_each(|link| link.live_on(now))?;
            }
        }
        Ok(true)
    }

    /// Notes how many operations a thread has done; returns those of all.
    pub(super) fn count(&self, thread: usize, ops: u64) -> u64 {
        self.ops[thread].store(ops, Ordering::Relaxed);
        self.ops.iter().map(|ops| ops.load(Ordering::Relaxed)).sum()
    }

    /// Notes that a thread has its last answer. The last one has the servers' events counted.
    pub(super) fn drained(&self, addrs: &[SocketAddr]) {
        if self.drained.fetch_add(1, Ordering::AcqRel) + 1 == self.threads() {
            let after = self.events_before.and_then(|_| count::events_sent(addrs));
            self.events_after.get_or_init(|| after);
            self.may_close.store(true, Ordering::Release);
        }
    }

    /// Whether sessions may be closed: all threads have their last answer, or one never will.
    pub(super) fn may_close(&self) -> bool {
        self.may_close.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire)
    }

    fn server_events(&self) -> Option<u64> {
        let after = self.events_after.get().copied().flatten()?;
        Some(after.saturating_sub(self.events_before?))
    }
}

/// What the threads have measured together: from when the first window began until the last one ended.
fn together(plan: &Plan, common: &Common, parts: &[Part]) -> Outcome {
    let opening = parts.iter().map(|part| &part.opening).min_by_key(|reading| reading.at);
    let closing = parts.iter().map(|part| &part.closing).max_by_key(|closing| closing.reading.at);
    let (Some(opening), Some(closing)) = (opening, closing) else {
        unreachable!("a run that has not failed has a thread")
    };
    let reading = &closing.reading;
    let mut tally = Tally::new();
    parts.iter().for_each(|part| tally.add(&part.tally));
    let server_cpu = reading.server - opening.server;
    let client_cpu = reading.client - opening.client;
    let machine_cpu = reading.machine.used - opening.machine.used;
    let contention = plan.work.locks().then(|| Contention {
        acquires: tally.acquires.clone(),
        handoffs: tally.handoffs.clone(),
        events: parts.iter().map(|part| part.closing.events).sum(),
        all_releases: parts.iter().map(|part| part.completed).sum(),
        all_events: parts.iter().map(|part| part.all_events).sum(),
        server_events: common.server_events(),
    });
    let answered = |number: usize| parts[number % parts.len()].answered[number / parts.len()];
    Outcome {
        ops: parts.iter().map(|part| part.ops).sum(),
        seconds: (reading.at - opening.at).as_secs_f64(),
        latencies: tally.latencies,
        server_cpu,
        server_threads: reading.threads.since(&opening.threads),
        client_cpu,
        other_cpu: (machine_cpu - server_cpu - client_cpu).max(0.0),
        stolen_cpu: reading.machine.stolen - opening.machine.stolen,
        server_rss_mib: closing.rss_mib,
        answered: (0..plan.connections).map(answered).collect(),
        unsent: parts.iter().map(|part| part.closing.unsent).sum(),
        contention,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::fake::Fake;
    use super::super::plan::Work;
    use super::super::script::Script;
    use super::super::wire;
    use super::*;

    #[test]
    fn sessions_that_are_open_are_kept_alive_while_others_are_opened() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let mut first = Fake::accept(&listener, 30, Duration::ZERO);
            let second = Fake::accept(&listener, 30, LOOK);
            // There is no third session before the first was heard of again.
            assert_eq!(first.request(), (wire::PING_XID, wire::PING));
            (Fake::accept(&listener, 30, Duration::ZERO), first, second)
        });
        let plan = Plan::new(vec![addr], Work::Get, 3, 1);
        let task = |_| Task::Script(Box::new(Script::new(plan.work, "/a", Vec::new(), 0, None)));
        let links =
            open_all(&plan, (0..3).map(task).enumerate().collect()).expect("they are opened");
        assert_eq!(links.len(), 3);
        drop(server.join().expect("the server is content"));
    }
}
