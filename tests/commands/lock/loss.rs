//! A lock that is lost while the command runs: it is dead before the server can give the lock away.

use std::time::{Duration, SystemTime};

use lockkeeper::Ensemble;
use lockkeeper::recipes::{Mutex, Wait};
use rustix::process::{Pid, Signal, kill_process};

use super::{Lock, Site, children_of, death_of, is_alive, threads_of};
use testkit::proxy::{Proxy, Weather};
use testkit::{trials, wait_until};

/// Says who it is, and will not end by itself: it and what it starts do not heed SIGTERM.
pub const STUBBORN: &str =
    "trap '' TERM; echo $LOCKKEEPER_SESSION; echo $$; sleep 1000 & echo $!; wait";
/// Ends when it is told to.
pub const OBEDIENT: &str = "trap 'echo told; exit 0' TERM; echo $LOCKKEEPER_SESSION; echo $$; echo $$; \
                        while :; do sleep 0.02; done";

/// A command that runs under the lock.
pub struct Running {
    pub lock: Lock,
    pub session: i64,
    /// The command's own, and those that it has started.
    pub pids: Vec<Pid>,
}

impl Running {
    async fn start(servers: &str, flags: &[&str], script: &str) -> Self {
        Self::start_on("/l", servers, flags, script).await
    }

    pub async fn start_on(path: &str, servers: &str, flags: &[&str], script: &str) -> Self {
        let mut lock = Lock::start(servers, &[flags, &[path, "-c", script]].concat());
        let session = lock.line().await;
        let session = u64::from_str_radix(session.trim_start_matches("0x"), 16);
        let session = session.expect("a number").cast_signed();
        let mut pids = Vec::new();
        for _ in 0..2 {
            let pid = lock.line().await.parse().expect("a number");
            pids.push(Pid::from_raw(pid).expect("not zero"));
        }
        Self { lock, session, pids }
    }

    pub fn is_alive(&self) -> bool {
        self.pids.iter().any(|pid| is_alive(*pid))
    }

    /// The watchdog's number, once it watches: the command may be there a moment before that.
    async fn watchdog(&self) -> Pid {
        let [watchdog] = children_of(self.lock.pid())[..] else { panic!("one child") };
        wait_until("it watches", async || threads_of(watchdog) > 1).await;
        watchdog
    }
}

/// The next in the queue; tells when it got the lock, and whether the command was alive then.
fn successor(site: &Site, pids: &[Pid]) -> tokio::task::JoinHandle<(SystemTime, bool)> {
    let (client, pids) = (site.observer.clone(), pids.to_vec());
    tokio::spawn(async move {
        let mutex = Mutex::new("/l").unwrap();
        let guard = mutex.acquire(&client, Wait::Forever).await.unwrap();
        let found = (SystemTime::now(), pids.iter().any(|pid| is_alive(*pid)));
        guard.release().await.unwrap();
        found
    })
}

/// Looks at all of them until those are dead that must die, and tells when each was.
pub async fn deaths(
    running: &[Running],
    must_die: impl Fn(usize) -> bool,
) -> Vec<Option<SystemTime>> {
    let mut deaths = vec![None; running.len()];
    wait_until("all commands are dead", async || {
        for (one, death) in running.iter().zip(&mut deaths) {
            if death.is_none() && !one.is_alive() {
                *death = Some(SystemTime::now());
            }
        }
        deaths.iter().enumerate().all(|(number, death)| death.is_some() || !must_die(number))
    })
    .await;
    deaths
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_trial_the_command_is_dead_first() {
    let trials = trials();
    let site = Site::new().await;
    let proxy = Proxy::start(site.server.local_addr()).await;
    let mut running = Vec::new();
    for trial in 0..trials {
        let path = format!("/l{trial}");
        let servers = proxy.connect_string();
        running.push(Running::start_on(&path, &servers, &SHORT, STUBBORN).await);
    }
    // Half of them are stopped, and all of them are cut off.
    for (trial, one) in running.iter().enumerate() {
        if trial % 2 == 0 {
            one.lock.signal(Signal::STOP);
        }
    }
    proxy.set(Weather::BlackHole);
    let deaths = deaths(&running, |_| true).await;
    let mut shortest = Duration::MAX;
    for (trial, (one, death)) in running.into_iter().zip(deaths).enumerate() {
        let (death, expiry) = (death.expect("it must die"), site.session_end(one.session).await);
        let early = expiry.duration_since(death);
        shortest = shortest.min(early.unwrap_or_else(|late| panic!("trial {trial}: {late}")));
        one.lock.signal(Signal::CONT);
        assert_eq!(one.lock.end().await.code, Some(75), "trial {trial}");
    }
    println!("{trials} trials: dead at least {shortest:?} before the server gave the lock away");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_outlives_the_leader() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let flags = ["--session-timeout", "4s"];
    let running = Running::start(&ensemble.connect_string(), &flags, OBEDIENT).await;
    let leader = ensemble.leader().expect("there is one");
    ensemble.kill(leader).await.unwrap();
    // Longer than the hold would have lasted without another answer.
    tokio::time::sleep(Duration::from_millis(3800)).await;
    assert!(running.pids.iter().all(|pid| is_alive(*pid)));
    running.lock.signal(Signal::TERM);
    let end = running.lock.end().await;
    assert_eq!(end.code, Some(0), "{end:?}");
    ensemble.shutdown().await.unwrap();
}

const SHORT: [&str; 2] = ["--session-timeout", "2s"];

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_cut_off_is_dead_before_the_server_gives_the_lock_away() {
    let site = Site::new().await;
    let proxy = Proxy::start(site.server.local_addr()).await;
    let running = Running::start(&proxy.connect_string(), &SHORT, STUBBORN).await;
    let next = successor(&site, &running.pids);
    site.wait_for_contenders("/l", 2).await;
    proxy.set(Weather::BlackHole);
    let death = death_of(&running.pids).await;
    let expiry = site.session_end(running.session).await;
    assert!(
        death < expiry,
        "dead {:?} after the server's end of the session",
        death.duration_since(expiry)
    );
    let (_, was_alive) = next.await.unwrap();
    assert!(!was_alive);
    let end = running.lock.end().await;
    assert_eq!(end.code, Some(75), "{end:?}");
    assert!(end.stderr.contains("told to end"), "{end:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_does_not_keep_the_command_alive() {
    let site = Site::new().await;
    let servers = site.server.connect_string();
    let running = Running::start(&servers, &SHORT, STUBBORN).await;
    let next = successor(&site, &running.pids);
    site.wait_for_contenders("/l", 2).await;
    running.lock.signal(Signal::STOP);
    let death = death_of(&running.pids).await;
    let expiry = site.session_end(running.session).await;
    assert!(
        death < expiry,
        "dead {:?} after the server's end of the session",
        death.duration_since(expiry)
    );
    let (_, was_alive) = next.await.unwrap();
    assert!(!was_alive);
    running.lock.signal(Signal::CONT);
    assert_eq!(running.lock.end().await.code, Some(75));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_takes_its_command_with_it() {
    let site = Site::new().await;
    let servers = site.server.connect_string();
    let running = Running::start(&servers, &SHORT, STUBBORN).await;
    running.lock.signal(Signal::KILL);
    let death = death_of(&running.pids).await;
    let expiry = site.session_end(running.session).await;
    assert!(death < expiry);
    site.wait_for_contenders("/l", 0).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_watchdog_takes_its_command_with_it() {
    let site = Site::new().await;
    let servers = site.server.connect_string();
    let running = Running::start(&servers, &[], STUBBORN).await;
    let watchdog = running.watchdog().await;
    kill_process(watchdog, Signal::KILL).unwrap();
    death_of(&running.pids).await;
    let end = running.lock.end().await;
    assert_eq!(end.code, Some(75), "{end:?}");
    assert_eq!(site.contenders("/l").await, 0);
    site.stop().await;
}

/// As when a service manager ends all processes of a service.
#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_that_is_told_to_end_stays_until_the_command_has_ended() {
    let site = Site::new().await;
    let servers = site.server.connect_string();
    let mut running = Running::start(&servers, &[], OBEDIENT).await;
    let watchdog = running.watchdog().await;
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        kill_process(watchdog, signal).unwrap();
    }
    running.lock.signal(Signal::TERM);
    assert_eq!(running.lock.line().await, "told");
    assert_eq!(running.lock.end().await.code, Some(0));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_watchdog_is_stood_in_for() {
    let site = Site::new().await;
    let proxy = Proxy::start(site.server.local_addr()).await;
    let running = Running::start(&proxy.connect_string(), &SHORT, STUBBORN).await;
    let watchdog = running.watchdog().await;
    kill_process(watchdog, Signal::STOP).unwrap();
    proxy.set(Weather::BlackHole);
    let death = death_of(&running.pids).await;
    let expiry = site.session_end(running.session).await;
    assert!(death < expiry);
    kill_process(watchdog, Signal::CONT).unwrap();
    assert_eq!(running.lock.end().await.code, Some(75));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_its_grace_to_end_by_itself() {
    let site = Site::new().await;
    let proxy = Proxy::start(site.server.local_addr()).await;
    let running = Running::start(&proxy.connect_string(), &SHORT, OBEDIENT).await;
    proxy.set(Weather::BlackHole);
    let mut lock = running.lock;
    assert_eq!(lock.line().await, "told");
    let end = lock.end().await;
    assert_eq!(end.code, Some(75), "{end:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_cut_does_not_trouble_the_command() {
    let site = Site::new().await;
    let proxy = Proxy::start(site.server.local_addr()).await;
    let flags = ["--session-timeout", "3s"];
    let running = Running::start(&proxy.connect_string(), &flags, OBEDIENT).await;
    proxy.cut();
    // Longer than the hold would have lasted without another answer.
    tokio::time::sleep(Duration::from_millis(2800)).await;
    assert!(running.pids.iter().all(|pid| is_alive(*pid)));
    running.lock.signal(Signal::TERM);
    assert_eq!(running.lock.end().await.code, Some(0));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_breaks_ends_the_command() {
    let site = Site::new().await;
    let servers = site.server.connect_string();
    let flags = [&SHORT[..], &["--on-lost", "kill"]].concat();
    let running = Running::start(&servers, &flags, STUBBORN).await;
    let node = site.observer.list_children("/l").await.unwrap().remove(0);
    site.observer.delete(&format!("/l/{node}"), None).await.unwrap();
    death_of(&running.pids).await;
    let end = running.lock.end().await;
    assert_eq!(end.code, Some(75), "{end:?}");
    assert!(end.stderr.contains("its znode was removed"), "{end:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_to_be_left_alone_is_left_alone() {
    let site = Site::new().await;
    let proxy = Proxy::start(site.server.local_addr()).await;
    let flags = [&SHORT[..], &["--on-lost", "ignore"]].concat();
    let running = Running::start(&proxy.connect_string(), &flags, OBEDIENT).await;
    let next = successor(&site, &running.pids);
    site.wait_for_contenders("/l", 2).await;
    proxy.set(Weather::BlackHole);
    let (_, was_alive) = next.await.unwrap();
    assert!(was_alive);
    running.lock.signal(Signal::TERM);
    let end = running.lock.end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "told\n"), "{end:?}");
    assert!(end.stderr.contains("lost"), "{end:?}");
    site.stop().await;
}
