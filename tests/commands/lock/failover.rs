//! The command while its network, its supervisor and the leader fail, alone and together: it is dead
//! before the servers can give the lock away.

use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tokio::time::sleep;

use super::loss::{OBEDIENT, Running, STUBBORN, deaths};
use testkit::proxy::{Proxy, Weather};
use testkit::trio::Trio;
use testkit::{account, trials};

/// What happens to a command beside the death of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    CutOff,
    /// Its supervisor is stopped.
    Stopped,
    /// Both.
    CutOffAndStopped,
    /// Nothing. If the next leader is there in time, it keeps the lock.
    Spared,
}

impl Fate {
    fn of(trial: usize, leader_dies: bool) -> Self {
        match trial % 4 {
            0 => Self::CutOff,
            1 => Self::Stopped,
            2 => Self::CutOffAndStopped,
            _ if leader_dies => Self::Spared,
            _ => Self::CutOff,
        }
    }

    fn is_cut_off(self) -> bool {
        matches!(self, Self::CutOff | Self::CutOffAndStopped)
    }

    fn is_stopped(self) -> bool {
        matches!(self, Self::Stopped | Self::CutOffAndStopped)
    }
}

/// What has become of a command.
struct Outcome {
    fate: Fate,
    /// How long it was dead when the servers gave its lock away, unless it kept it.
    early: Option<Duration>,
    is_by_another_leader: bool,
}

/// Has commands fail one after another, and the leader with the `death`-th of them.
async fn round(trio: &mut Trio, trials: &[usize], death: Option<usize>) -> Vec<Outcome> {
    let leader = trio.leader().await;
    let (mut running, mut networks, mut fates) = (Vec::new(), Vec::new(), Vec::new());
    for trial in trials {
        let fate = Fate::of(*trial, death.is_some());
        let proxy = Proxy::before(&trio.addresses()).await;
        let (path, servers) = (format!("/l{trial}"), proxy.connect_string());
        let script = if fate == Fate::Spared { OBEDIENT } else { STUBBORN };
        running.push(Running::start_on(&path, &servers, &FLAGS, script).await);
        networks.push(proxy);
        fates.push(fate);
    }
    for (number, fate) in fates.iter().enumerate() {
        if death == Some(number) {
            trio.kill(leader);
        }
        if fate.is_stopped() {
            running[number].lock.signal(Signal::STOP);
        }
        if fate.is_cut_off() {
            networks[number].set(Weather::BlackHole);
        }
        sleep(STEP).await;
    }
    let deaths = deaths(&running, |number| fates[number] != Fate::Spared).await;
    let mut outcomes = Vec::new();
    for ((one, fate), death) in running.into_iter().zip(fates).zip(deaths) {
        outcomes.push(outcome(trio, one, fate, death).await);
    }
    if death.is_some() {
        trio.run(leader);
    }
    outcomes
}

async fn outcome(trio: &Trio, running: Running, fate: Fate, death: Option<SystemTime>) -> Outcome {
    let Some(death) = death else {
        running.lock.signal(Signal::TERM);
        assert_eq!(running.lock.end().await.code, Some(0));
        return Outcome { fate, early: None, is_by_another_leader: false };
    };
    let ending = account::ending(&trio.audit_log(), running.session).await;
    let early = ending.at.duration_since(death);
    let early = early.unwrap_or_else(|late| panic!("{fate:?}: {late}"));
    running.lock.signal(Signal::CONT);
    assert_eq!(running.lock.end().await.code, Some(75), "{fate:?}");
    let is_by_another_leader = ending.is_by_another_leader;
    Outcome { fate, early: Some(early), is_by_another_leader }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_trial_the_command_is_dead_first_whichever_of_three_servers_leads() {
    let mut trio = Trio::start(&["tickTime=500"]).await;
    let numbers: Vec<usize> = (0..trials()).collect();
    let mut outcomes = Vec::new();
    let mut by_another_leader = 0;
    for (round_number, together) in numbers.chunks(TOGETHER).enumerate() {
        // In the middle of the other failures, before them, behind them; and not at all.
        let deaths = [Some(together.len() / 2), Some(0), Some(together.len() - 1), None];
        let death = deaths[round_number % deaths.len()];
        let ended = round(&mut trio, together, death).await;
        let given_away = ended.iter().filter(|one| one.early.is_some()).count();
        let by_another = ended.iter().filter(|one| one.is_by_another_leader).count();
        assert_eq!(by_another, if death.is_some() { given_away } else { 0 });
        by_another_leader += by_another;
        outcomes.extend(ended);
    }
    let count = |fate| outcomes.iter().filter(|one| one.fate == fate).count();
    let kept = outcomes.iter().filter(|one| one.early.is_none()).count();
    let shortest = outcomes.iter().filter_map(|one| one.early).min().expect("there are some");
    println!(
        "{} trials on three servers: {} cut off, {} with a stopped supervisor, {} with both; {} who \
         lost but the leader, of whom {kept} kept the lock. The others were dead at least \
         {shortest:?} before the servers gave the lock away, {by_another_leader} times by another \
         leader than had granted it",
        outcomes.len(),
        count(Fate::CutOff),
        count(Fate::Stopped),
        count(Fate::CutOffAndStopped),
        count(Fate::Spared),
    );
}

/// Long enough that a lock can outlive a leader.
const FLAGS: [&str; 2] = ["--session-timeout", "4s"];
/// As many commands at a time.
const TOGETHER: usize = 10;
/// From one failure to the next: all of them are over before the first session ends.
const STEP: Duration = Duration::from_millis(200);
