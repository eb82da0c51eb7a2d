//! How early who loses a lock is told, many times over.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lockkeeper::recipes::{Guard, Hold, LostReason};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{SESSION, acquire, client};
use testkit::account::{self, Ending};
use testkit::proxy::{Proxy, Weather};
use testkit::trio::Trio;
use testkit::{PATIENCE, trials};

/// As many trials at a time, each with a session and a network of its own.
const TOGETHER: usize = 10;

/// What has become of a holder that was cut off.
struct Trial {
    cut: SystemTime,
    jeopardy: SystemTime,
    lost: SystemTime,
    ending: Ending,
}

/// A holder behind a network of its own.
struct Holder {
    proxy: Proxy,
    guard: Guard,
}

impl Holder {
    async fn new(servers: &[SocketAddr], path: &str) -> Self {
        let proxy = Proxy::before(servers).await;
        let guard = acquire(&client(&proxy.connect_string()).await, path).await;
        Self { proxy, guard }
    }

    /// Cuts it off after this time, without a word to anybody.
    async fn lose(self, after: Duration, log: &Path) -> Trial {
        let mut watch = self.guard.watch();
        sleep(after).await;
        self.proxy.set(Weather::BlackHole);
        let cut = SystemTime::now();
        let mut jeopardy = None;
        let lost = loop {
            match timeout(PATIENCE, watch.changed()).await.expect("it is told") {
                Hold::Held => {}
                Hold::Jeopardy => jeopardy = Some(SystemTime::now()),
                Hold::Lost(reason) => {
                    let now = SystemTime::now();
                    assert_eq!(reason, LostReason::Silence);
                    break now;
                }
            }
        };
        let jeopardy = jeopardy.expect("a word of warning comes first");
        let ending = account::ending(log, self.guard.session()).await;
        Trial { cut, jeopardy, lost, ending }
    }
}

/// Holders that are cut off at different moments of a session timeout.
async fn round(
    servers: &[SocketAddr],
    log: &Path,
    paths: impl Iterator<Item = usize>,
) -> JoinSet<Trial> {
    let mut holders = Vec::new();
    for path in paths {
        holders.push(Holder::new(servers, &format!("/l{path}")).await);
    }
    let (mut running, step) = (JoinSet::new(), SESSION / 10);
    for (holder, number) in holders.into_iter().zip(0..) {
        let log = log.to_path_buf();
        running.spawn(async move { holder.lose(step * number, &log).await });
    }
    running
}

/// Judges them, and prints them as a line of the table.
fn judge(what: &str, trials: &[Trial]) {
    let span = |moment: fn(&Trial) -> SystemTime| {
        let mut after: Vec<f64> = trials.iter().map(|one| seconds(one.cut, moment(one))).collect();
        after.sort_by(f64::total_cmp);
        format!("{:.2} to {:.2} s", after[0], after[after.len() - 1])
    };
    let early = trials.iter().map(|one| seconds(one.lost, one.ending.at));
    let smallest = early.reduce(f64::min).expect("there are some");
    println!(
        "| {what} | {} | {} | {} | {} | {:.2} s |",
        trials.len(),
        span(|one| one.jeopardy),
        span(|one| one.lost),
        span(|one| one.ending.at),
        smallest
    );
    assert!(smallest > 0.0, "{what}: told {} s after the znode was deleted", -smallest);
}

/// How long it is from one moment to another; less than zero if that comes before.
fn seconds(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_trial_who_is_cut_off_from_a_server_is_told_first() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let builder = testkit::builder().tick_time(TICK).audit_log(&log);
    let server = builder.start().await.unwrap();
    let mut done = Vec::new();
    for first in (0..trials()).step_by(TOGETHER) {
        let paths = first..trials().min(first + TOGETHER);
        done.extend(round(&[server.local_addr()], &log, paths).await.join_all().await);
    }
    judge("one server; cut off", &done);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_trial_who_is_cut_off_from_three_servers_is_told_first() {
    let trio = Trio::start(&[&format!("tickTime={}", TICK.as_millis())]).await;
    let mut done = Vec::new();
    for first in (0..trials()).step_by(TOGETHER) {
        let paths = first..trials().min(first + TOGETHER);
        let round = round(&trio.addresses(), &trio.audit_log(), paths).await;
        done.extend(round.join_all().await);
    }
    judge("three servers; cut off", &done);
}

/// The leader dies in the middle of each round: some are cut off before that, some after it.
#[tokio::test(flavor = "multi_thread")]
async fn in_every_trial_who_is_cut_off_while_the_leader_dies_is_told_first() {
    let mut trio = Trio::start(&[&format!("tickTime={}", TICK.as_millis())]).await;
    let mut done = Vec::new();
    for first in (0..trials()).step_by(TOGETHER) {
        let paths = first..trials().min(first + TOGETHER);
        let leader = trio.leader().await;
        let middle = SESSION / 20 * u32::try_from(paths.len()).expect("small");
        let round = round(&trio.addresses(), &trio.audit_log(), paths).await;
        sleep(middle).await;
        trio.kill(leader);
        done.extend(round.join_all().await);
        trio.run(leader);
        trio.leader().await;
    }
    assert!(done.iter().all(|one| one.ending.is_by_another_leader));
    judge("three servers; cut off, and the leader killed meanwhile", &done);
}

/// As in the measurements of other clients.
const TICK: Duration = Duration::from_millis(500);
