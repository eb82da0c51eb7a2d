//! Contenders that are killed, vanish, are cut off, run out of time or think better of it at random
//! moments of their attempts, among others who only want the lock: nothing is left of them, and nobody
//! waits for them. `LOCKKEEPER_LOCK_MISHAPS=200` for the figures of docs/LOCKS.md,
//! `LOCKKEEPER_LOCK_SEED=7` for other moments.

use std::future::pending;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::Ensemble;
use lockkeeper::recipes::{
    Guard, LockError, MultiGuard, MultiLock, NamedMutex, ReadWriteLock, Semaphore, Wait, WriteGuard,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::{client_for, lock, take_steps};
use testkit::proxy::{Proxy, Weather};
use testkit::rng::Rng;
use testkit::{PATIENCE, wait_until};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Mutex,
    Reader,
    Writer,
    /// One of two.
    Lease,
    /// Two of three.
    Several(u8),
    /// One of two names.
    Named(u8),
}

/// What was got.
#[derive(Debug)]
enum Held {
    One(Box<Guard>),
    Writer(Box<WriteGuard>),
    Several(MultiGuard),
}

impl Held {
    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
        }
    }
}

impl Want {
    const ALL: [Self; 9] = [
        Self::Mutex,
        Self::Reader,
        Self::Writer,
        Self::Lease,
        Self::Several(0),
        Self::Several(1),
        Self::Several(2),
        Self::Named(0),
        Self::Named(1),
    ];

    async fn acquire(self, client: &Client, wait: Wait) -> Result<Held, LockError> {
        let shared = ReadWriteLock::new("/shared").expect("a path");
        let guard = match self {
            Self::Mutex => lock("/mutex").acquire(client, wait).await,
            Self::Reader => shared.read(client, wait).await,
            Self::Writer => {
                let writer = shared.write(client, wait).await;
                return writer.map(|guard| Held::Writer(Box::new(guard)));
            }
            Self::Lease => {
                let lease = Semaphore::new("/lease", 2).expect("a path");
                lease.acquire(client, wait).await
            }
            Self::Several(but) => {
                // Two of them named in the wrong order, by some.
                let paths = [["/c", "/b"], ["/a", "/c"], ["/b", "/a"]][usize::from(but)];
                let locks = MultiLock::new(paths.map(lock)).expect("different paths");
                return locks.acquire(client, wait).await.map(Held::Several);
            }
            Self::Named(number) => {
                let name = ["report", "my-report"][usize::from(number)];
                NamedMutex::new("/named", name).expect("a name").acquire(client, wait).await
            }
        };
        guard.map(|guard| Held::One(Box::new(guard)))
    }
}

/// What befalls a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    /// It is a process, and gets SIGKILL.
    Killed,
    /// Its machine is gone: nothing is heard of it any more, and nobody is told.
    Vanished,
    /// It loses its connection for a while, and goes on.
    CutOff,
    /// Its time to wait is over.
    TimedOut,
    /// Its time to wait is over while it has no connection.
    TimedOutCutOff,
    /// Its future is dropped.
    Dropped,
    /// Its future is dropped at the moment at which the connection is lost.
    DroppedCutOff,
}

impl Mishap {
    const ALL: [Self; 7] = [
        Self::Killed,
        Self::Vanished,
        Self::CutOff,
        Self::TimedOut,
        Self::TimedOutCutOff,
        Self::Dropped,
        Self::DroppedCutOff,
    ];
}

/// A contender to whom something happens.
#[derive(Clone, Debug)]
struct Plan {
    mishap: Mishap,
    want: Want,
    arrival: Duration,
    /// With which piece of what is said the weather changes: 1 is the first request.
    pieces: u32,
    weather: Weather,
    /// How long the weather is bad, if it gets better again.
    spell: Duration,
    /// How long the contender is ready to wait.
    patience: Duration,
    /// Steps before it drops its future.
    steps: u64,
}

impl Plan {
    fn new(mishap: Mishap, dice: &mut Rng) -> Self {
        Self {
            mishap,
            want: dice.of(&Want::ALL),
            arrival: dice.millis(0..300),
            pieces: 1 + u32::try_from(dice.below(14)).expect("small"),
            weather: dice.of(&[Weather::Deaf, Weather::BlackHole, Weather::Down]),
            spell: dice.millis(0..SESSION.as_millis() as u64 / 4),
            patience: dice.millis(1..300),
            steps: 1 + dice.below(12),
        }
    }

    async fn play(self, servers: &[SocketAddr]) -> Story {
        let network = Proxy::before(servers).await;
        if self.mishap == Mishap::Killed {
            sleep(self.arrival).await;
            self.be_killed(&network).await;
            return Story::of(None, network, Instant::now());
        }
        let client = client_for(&network.connect_string(), SESSION).await;
        sleep(self.arrival).await;
        match self.mishap {
            Mishap::Killed => {}
            Mishap::Vanished => self.vanish(&client, &network).await,
            Mishap::CutOff => {
                let attempt = self.enjoy(&client, Wait::Forever);
                let (over, served) = tokio::join!(self.storm(&network), attempt);
                let served = served.unwrap_or_else(|error| panic!("{self:?}: {error}"));
                return Story { served: Some(served), ..Story::of(Some(client), network, over) };
            }
            Mishap::TimedOut => {
                let got = self.enjoy(&client, Wait::For(self.patience)).await;
                assert!(matches!(got, Ok(_) | Err(LockError::Held { .. })), "{self:?}: {got:?}");
            }
            Mishap::TimedOutCutOff => {
                let attempt = self.enjoy(&client, Wait::For(self.patience));
                let (_, got) = tokio::join!(self.storm(&network), attempt);
                let is_fine =
                    matches!(got, Ok(_) | Err(LockError::Held { .. } | LockError::Unreachable));
                assert!(is_fine, "{self:?}: {got:?}");
            }
            Mishap::Dropped => self.drop_anywhere(&client).await,
            Mishap::DroppedCutOff => self.drop_cut_off(&client, &network).await,
        }
        Story::of(Some(client), network, Instant::now())
    }

    /// Whether it gets the lock or not: it has no way to tell anybody.
    async fn vanish(&self, client: &Client, network: &Proxy) {
        network.forecast(self.pieces, Weather::BlackHole);
        let gone = async {
            let _ = timeout(LATEST, network.is_now(Weather::BlackHole)).await;
            network.set(Weather::BlackHole);
        };
        tokio::select! {
            () = gone => {}
            () = self.hold(client) => {}
        }
    }

    /// After so many steps, unless it has the lock by then or just waits.
    async fn drop_anywhere(&self, client: &Client) {
        drop(take_steps(self.want.acquire(client, Wait::Forever), self.steps, LATEST).await);
    }

    async fn drop_cut_off(&self, client: &Client, network: &Proxy) {
        network.forecast(self.pieces, self.weather);
        tokio::select! {
            _ = timeout(LATEST, network.is_now(self.weather)) => {}
            () = self.hold(client) => {}
        }
        network.set(self.weather);
        sleep(self.spell).await;
        network.cut();
    }

    /// Acquires, and never gives it away by itself.
    async fn hold(&self, client: &Client) {
        let held = self.want.acquire(client, Wait::Forever).await;
        pending::<()>().await;
        drop(held);
    }

    /// Has the weather turn bad for a spell, with the planned piece or late at last. When it is over.
    async fn storm(&self, network: &Proxy) -> Instant {
        network.forecast(self.pieces, self.weather);
        let _ = timeout(LATEST, network.is_now(self.weather)).await;
        network.set(self.weather);
        sleep(self.spell).await;
        network.cut();
        Instant::now()
    }

    /// Acquires, tells when that was, and gives it away.
    async fn enjoy(&self, client: &Client, wait: Wait) -> Result<Instant, LockError> {
        let held = self.want.acquire(client, wait).await?;
        let served = Instant::now();
        sleep(self.patience / 10).await;
        // It may have no connection at the moment: then it goes on being tried.
        match held.release().await {
            Ok(()) | Err(LockError::Unreachable) => Ok(served),
            Err(error) => Err(error),
        }
    }

    async fn be_killed(&self, network: &Proxy) {
        let at = Want::ALL.iter().position(|want| *want == self.want).expect("one of them");
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "recipes::mishaps::a_contender_in_a_process_of_its_own"]);
        command.env(CONTENDER, format!("{} {at}", network.connect_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Mortal(command.spawn().expect("this test runs"));
        network.forecast(self.pieces, Weather::BlackHole);
        // Else nobody was there to be killed.
        timeout(PATIENCE, network.is_used()).await.expect("the contender says something");
        let _ = timeout(LATEST, network.is_now(Weather::BlackHole)).await;
        drop(process);
        if self.weather == Weather::Down {
            // The servers hear of it: its connection was closed.
            network.cut();
        }
    }
}

/// What has become of a contender. Its session goes on until this is dropped, so that the servers do
/// not tidy up behind it.
struct Story {
    /// When its mishap was over.
    over: Option<Instant>,
    /// When it got what it wanted, if it was to get it.
    served: Option<Instant>,
    _client: Option<Client>,
    _network: Option<Proxy>,
}

impl Story {
    fn of(client: Option<Client>, network: Proxy, over: Instant) -> Self {
        Self { over: Some(over), served: None, _client: client, _network: Some(network) }
    }
}

/// A process that gets SIGKILL with the end of this.
struct Mortal(Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: what [`Plan::be_killed`] starts. On its own it ends at once.
#[tokio::test]
async fn a_contender_in_a_process_of_its_own() {
    let Ok(told) = std::env::var(CONTENDER) else { return };
    let (servers, want) = told.split_once(' ').expect("two words");
    let want: usize = want.parse().expect("a number");
    let client = client_for(servers, SESSION).await;
    let _held = Want::ALL[want].acquire(&client, Wait::Forever).await;
    pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_mishaps_of_all_kinds_nothing_is_left_and_nobody_waits_for_ever() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
    };
    let (count, seed) = (number("LOCKKEEPER_LOCK_MISHAPS", 20), number("LOCKKEEPER_LOCK_SEED", 1));
    println!("LOCKKEEPER_LOCK_SEED={seed}");
    let mut dice = Rng::new(seed, 0);
    let builder = Ensemble::builder(3).set("tickTime", "200").set("minSessionTimeout", "400");
    let ensemble = builder.start().await.unwrap();
    let mut kinds = [0; Mishap::ALL.len()];
    let (mut longest, mut served) = (Duration::ZERO, 0);
    // All kinds in turn, so that none is left out by chance.
    let mut turns = Mishap::ALL.into_iter().cycle();
    for first in (0..count).step_by(TOGETHER) {
        let together = usize::try_from(count - first).expect("few").min(TOGETHER);
        let turns = turns.by_ref().take(together);
        let plans: Vec<Plan> = turns.map(|mishap| Plan::new(mishap, &mut dice)).collect();
        for plan in &plans {
            kinds[plan.mishap as usize] += 1;
        }
        let (wait, who) = round(&ensemble, &mut dice, plans).await;
        longest = longest.max(wait);
        served += who;
    }
    let kinds: Vec<String> =
        Mishap::ALL.iter().zip(kinds).map(|(kind, count)| format!("{count} {kind:?}")).collect();
    println!(
        "{count} mishaps ({}): {served} who waited were served, the last of them {longest:?} after \
         the last mishap of its round; sessions of {SESSION:?}",
        kinds.join(", ")
    );
    ensemble.shutdown().await.unwrap();
}

/// Plays these among others who only want the locks, all of which are held at first. Tells how long it
/// took from the last mishap until all were served, and how many that were.
async fn round(ensemble: &Ensemble, dice: &mut Rng, plans: Vec<Plan>) -> (Duration, usize) {
    let servers: Vec<SocketAddr> = ensemble.servers().map(|(_, one)| one.local_addr()).collect();
    let observer = client_for(&ensemble.connect_string(), SESSION).await;
    let mut held = Vec::new();
    for want in [Want::Mutex, Want::Writer, Want::Lease, Want::Lease, Want::Named(0)] {
        held.push(want.acquire(&observer, Wait::No).await.unwrap());
    }
    for path in ["/a", "/b", "/c"] {
        held.push(Held::One(Box::new(lock(path).acquire(&observer, Wait::No).await.unwrap())));
    }
    let mut running: JoinSet<Story> = JoinSet::new();
    for want in Want::ALL {
        let (servers, arrival) = (ensemble.connect_string(), dice.millis(0..300));
        let stay = dice.millis(0..30);
        running.spawn(async move { wait_in_peace(&servers, want, arrival, stay).await });
    }
    for plan in plans {
        let servers = servers.clone();
        running.spawn(async move { plan.play(&servers).await });
    }
    for one in held {
        sleep(dice.millis(0..60)).await;
        one.release().await.unwrap();
    }
    let stories = timeout(PATIENCE, running.join_all()).await.expect("nobody waits for ever");
    let over = stories.iter().filter_map(|story| story.over).max().expect("there are some");
    let served: Vec<Instant> = stories.iter().filter_map(|story| story.served).collect();
    let last = served.iter().max().expect("there are some").saturating_duration_since(over);
    assert!(last <= SESSION * 2, "somebody was served {last:?} after the last mishap");
    wait_until("no contender is left, and no watch", async || {
        let mut statuses = ensemble.servers().map(|(_, server)| server.status());
        statuses.all(|status| status.ephemerals_count == 0 && status.watch_count == 0)
    })
    .await;
    let gone = over.elapsed();
    assert!(gone <= SESSION * 2, "it took {gone:?} until nothing was left");
    for want in Want::ALL {
        let held = want.acquire(&observer, Wait::No).await;
        held.unwrap_or_else(|error| panic!("{want:?}: {error}")).release().await.unwrap();
    }
    (last, served.len())
}

/// One who wants the lock, gets it, and gives it away.
async fn wait_in_peace(servers: &str, want: Want, arrival: Duration, stay: Duration) -> Story {
    let client = client_for(servers, SESSION).await;
    sleep(arrival).await;
    let held = want.acquire(&client, Wait::Forever).await.unwrap();
    let served = Some(Instant::now());
    sleep(stay).await;
    held.release().await.unwrap();
    Story { over: None, served, _client: Some(client), _network: None }
}

/// The session timeout.
const SESSION: Duration = Duration::from_secs(3);
/// By then the weather has changed, whatever was said.
const LATEST: Duration = Duration::from_millis(800);
/// So many mishaps in a round.
const TOGETHER: usize = 20;
/// Tells a process of this test that it is a contender, and whose.
const CONTENDER: &str = "LOCKKEEPER_TEST_CONTENDER";
