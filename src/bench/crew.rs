//! A run: the znodes that it needs, and its threads, each with a loop over its share of the connections; what they
//! measure counts together.
//!
//! *Invariants*: no thread begins before all connections are open, and none closes its sessions before all
//! have their last answer, so that the servers' own count of events is that of the run; a thread that fails
//! ends the run of all. *Never* starts a thread for a run by one.

use std::thread;
use std::time::Instant;

use super::arena::Arena;
use super::fan::Member;
use super::link::{Link, Task};
use super::load::{Common, Loop, Part};
use super::lock::Lock;
use super::outcome::{Contention, Interim, Outcome, Tally};
use super::plan::{Go, Length, Plan, Work};
use super::script::{self, Script};
use super::session::{self, Session};
use super::sockets::LOOK;
use super::{Fault, files, wire};

/// The connections of one thread, by their numbers among all.
type Share = Vec<(usize, Task)>;

/// Runs a plan, having prepared the znodes it needs. `look` is told how far it has come, some twenty
/// times a second, and can end it.
///
/// # Errors
/// A server cannot be reached, refuses, or errs; the znodes that were made remain.
pub fn run(plan: &Plan, look: &mut dyn FnMut(&Interim<'_>) -> Go) -> Result<Outcome, Fault> {
    let fault = |e: Fault| e.after(&format!("{} at {}", plan.work, plan.addrs[0]));
    files::allow(plan.connections)?;
    let tasks = prepare(plan).map_err(fault)?;
    load(plan, tasks, look).map_err(fault)
}

/// Makes sure that the nodes of the plan are there and finds a task for each connection.
///
/// Sessions that are opened afterwards, at any server of an ensemble, see these nodes: to open a
/// session is a transaction behind those that made them.
fn prepare(plan: &Plan) -> Result<Vec<Task>, Fault> {
    let mut session = Session::open_as(plan.addrs[0], &plan.access)?;
    session.ensure_all(&plan.room_path())?;
    let shares = plan.work.contends() || plan.work == Work::Watches;
    let nodes = if shares { 1 } else { plan.connections };
    let own = |connection: usize| {
        let path = plan.below_path(connection);
        let data = script::data(&path, plan.size);
        (path, data)
    };
    let creates = (0..nodes).map(own).map(|(path, data)| {
        let request = wire::create(&path, &data);
        (path, request)
    });
    session.call_all(creates, |path, answer| session::made(&format!("create {path}"), answer))?;
    let mut tasks = Vec::with_capacity(plan.connections);
    if plan.work == Work::Watches {
        let (path, data) = own(0);
        let (_, version) = session.read(&path)?;
        let members = Member::all(&path, &data, version, plan.connections - 1);
        tasks.extend(members.into_iter().map(|member| Task::Fan(Box::new(member))));
        session.close()?;
        return Ok(tasks);
    }
    let shared = Arena::new();
    for connection in 0..plan.connections {
        if plan.work.contends() {
            let naive = plan.work == Work::Herd;
            let lock = Lock::new(&plan.below_path(0), plan.hold, shared.clone(), naive);
            tasks.push(Task::Lock(Box::new(lock)));
            continue;
        }
        let (path, data) = own(connection);
        if plan.work == Work::Lock {
            let lock = Lock::new(&path, plan.hold, Arena::new(), false);
            tasks.push(Task::Lock(Box::new(lock)));
            continue;
        }
        let (_, version) = session.read(&path)?;
        let limit = match &plan.length {
            Length::Timed { .. } => None,
            Length::Counted(counts) => Some(counts[connection]),
        };
        let script = Script::new(plan.work, &path, data, version, limit).scattered(plan.scatter);
        tasks.push(Task::Script(Box::new(script)));
    }
    session.close()?;
    Ok(tasks)
}

/// Has as many threads as the plan says do these tasks; `look` is told how far it has come.
fn load(
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
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::super::fake::Fake;
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

    /// The path of the only contender.
    const NODE: &[u8] = b"/bench/x/c00000/lock-0000000000";

    /// Serves one session to its end. A list that is `asked` for is answered, after a watch event,
    /// once it `may` be.
    fn serve(mut fake: Fake, asked: &Sender<()>, may: &Receiver<()>) {
        loop {
            let (xid, op) = fake.request();
            let mut body = Vec::new();
            match op {
                wire::CREATE => wire::buffer(&mut body, NODE),
                wire::CHILDREN => {
                    asked.send(()).expect("the test goes on");
                    may.recv().expect("the window ends");
                    fake.event();
                    wire::int(&mut body, 1);
                    wire::buffer(&mut body, b"lock-0000000000");
                }
                _ => assert_eq!(op, wire::CLOSE),
            }
            fake.answer(xid, &body);
            if op == wire::CLOSE {
                return;
            }
        }
    }

    #[test]
    fn at_a_rate_a_lock_that_is_granted_after_the_window_counts_and_an_event_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let ((asked, is_asked), (list, may)) = (channel(), channel());
        let server = std::thread::spawn(move || {
            // The first session prepares the znodes, the second takes the lock.
            for _ in 0..2 {
                serve(Fake::accept(&listener, 40_000, Duration::ZERO), &asked, &may);
            }
        });
        let hour = Duration::from_secs(3600);
        let plan = Plan {
            length: Length::Timed { warm_up: Duration::ZERO, window: hour },
            rate: Some(1.0),
            room: "x".to_owned(),
            asks_counts: false,
            ..Plan::new(vec![addr], Work::Herd, 1, 1)
        };
        let (mut stops, mut list) = (false, Some(list));
        let outcome = run(&plan, &mut |_| {
            // By the look after the one that stops it, the window is over.
            if let Some(list) = list.take_if(|_| stops) {
                list.send(()).expect("the server waits");
            }
            stops |= is_asked.try_recv().is_ok();
            if stops { Go::Stop } else { Go::On }
        });
        let contention = outcome.expect("it is measured").contention.expect("locks contend");
        server.join().expect("the server is content");
        assert_eq!(contention.acquires.len(), 1);
        assert_eq!((contention.events, contention.all_events), (0, 1));
    }
}
