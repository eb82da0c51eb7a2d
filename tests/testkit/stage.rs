//! Three servers, an audience, and contenders in processes of their own.
//!
//! *Owns* the processes of one performance, what they say, and what the servers count. *Invariants*:
//! each line that a contender prints gets its stamp when it arrives, whether anybody waits for it or
//! not; events are counted when all servers have applied what there is to apply; whatever becomes of
//! a performance, no process outlives it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Ensemble;
use lockkeeper_check::audit;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::mpsc;
use zookeeper_client::{Acls, Client, CreateMode};

use super::judge::{Claim, Departure, Word, judge};
use super::{PATIENCE, wait_until};

/// A program that contends for a lock.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The command; behind it come the servers, the path and `rest`.
    pub command: Vec<PathBuf>,
    pub environment: Vec<(String, String)>,
    pub rest: Vec<String>,
    /// How many watches of other things it has (Curator's: the list of servers).
    pub watches: u64,
}

/// How a holder goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By Enter.
    Release,
    /// By SIGKILL: its session times out.
    Kill,
}

/// What a lock promises.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// How many hold it at a time.
    pub permits: usize,
    /// Of how many locks a holder says that it holds them.
    pub claims: usize,
    /// How many watches a holder has.
    pub watches: u64,
    /// How many events the end of a holder is worth, with so many who wait.
    pub events: fn(u64) -> u64,
}

impl Promise {
    /// One holder, who watches nothing; each departure wakes one.
    pub const FAIR: Self =
        Self { permits: 1, claims: 1, watches: 0, events: |waiting| waiting.min(1) };
    /// All who wait are woken.
    pub const HERD: Self = Self { events: |waiting| waiting, ..Self::FAIR };
}

/// What a contender has printed.
#[derive(Clone, Debug)]
pub struct Heard {
    pub who: usize,
    pub line: String,
    /// The zxid of the write that was made when it arrived.
    pub stamp: i64,
}

#[derive(Debug)]
struct Contender {
    child: Child,
    stdin: ChildStdin,
    /// Its watches of other things, while it runs.
    watches: u64,
}

impl Drop for Contender {
    fn drop(&mut self) {
        // It has ended, unless the performance has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One performance.
pub struct Stage {
    ensemble: Ensemble,
    observer: Client,
    directory: TempDir,
    path: String,
    contenders: Vec<Contender>,
    heard: Arc<Mutex<Vec<Heard>>>,
    arrivals: mpsc::UnboundedSender<(usize, String)>,
    departures: Vec<Departure>,
    /// Events that are accounted for.
    events: u64,
}

impl Stage {
    /// Three servers that grant sessions of [`SESSION`]; the lock is at `path`.
    pub async fn new(path: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // One file for all: what they do not agree on, `audit::join` finds.
        let log = directory.path().join(AUDIT).display().to_string();
        let session = SESSION.as_millis().to_string();
        let builder = Ensemble::builder(3).set("tickTime", "200").set("lockkeeper.auditLog", &log);
        let builder = builder.set("minSessionTimeout", &session).set("maxSessionTimeout", &session);
        let ensemble = builder.start().await.expect("three servers");
        let observer = Client::connect(&ensemble.connect_string()).await.expect("a session");
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        observer.create(MARK, b"", &options).await.expect("created");
        let heard = Arc::default();
        let (arrivals, arriving) = mpsc::unbounded_channel();
        tokio::spawn(stamp(observer.clone(), arriving, Arc::clone(&heard)));
        let path = path.to_string();
        let (contenders, departures, events) = (Vec::new(), Vec::new(), 0);
        Self {
            ensemble,
            observer,
            directory,
            path,
            contenders,
            heard,
            arrivals,
            departures,
            events,
        }
    }

    /// Starts a contender, and returns its number.
    pub fn start(&mut self, program: &Program) -> usize {
        self.start_at(program, &self.path.clone())
    }

    /// As [`Stage::start`], at another path.
    pub fn start_at(&mut self, program: &Program, path: &str) -> usize {
        let who = self.contenders.len();
        let (first, rest) = program.command.split_first().expect("a program");
        let mut command = Command::new(first);
        command.args(rest).arg(self.ensemble.connect_string()).arg(path).args(&program.rest);
        command.envs(program.environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{first:?}: {error}"));
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let arrivals = self.arrivals.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The performance may have ended.
                let _ = arrivals.send((who, line));
            }
        });
        let stdin = child.stdin.take().expect("piped");
        self.contenders.push(Contender { child, stdin, watches: program.watches });
        who
    }

    /// Presses Enter.
    pub fn enter(&mut self, who: usize) {
        self.contenders[who].stdin.write_all(b"\n").expect("it reads");
    }

    pub fn kill(&mut self, who: usize) {
        self.contenders[who].child.kill().expect("it runs");
        self.contenders[who].child.wait().expect("our child");
        self.contenders[who].watches = 0;
    }

    /// Has it stand still, or go on.
    pub fn signal(&self, who: usize, signal: Signal) {
        let pid = Pid::from_child(&self.contenders[who].child);
        kill_process(pid, signal).expect("it runs");
    }

    /// What was heard up to now that begins with this word.
    pub fn said(&self, word: &str) -> Vec<Heard> {
        let heard = self.heard.lock().expect("no thread panics while it holds it");
        heard.iter().filter(|heard| heard.line.split(' ').next() == Some(word)).cloned().collect()
    }

    /// Waits until the contender has said this word so often.
    pub async fn hear(&self, who: usize, word: &str, times: usize) {
        let what = format!("contender {who} says {word}");
        let said = || self.said(word).iter().filter(|heard| heard.who == who).count();
        wait_until(&what, async || said() >= times).await;
    }

    /// Waits until the contender has ended as it should.
    pub async fn end(&mut self, who: usize) {
        let child = &mut self.contenders[who].child;
        wait_until("it ends", async || child.try_wait().expect("our child").is_some()).await;
        let status = child.wait().expect("our child");
        assert!(status.success(), "contender {who}: {status}");
        self.contenders[who].watches = 0;
    }

    /// Waits until so many watch the lock.
    pub async fn watches(&self, count: u64) {
        let what = format!("{count} watches");
        let others: u64 = self.contenders.iter().map(|one| one.watches).sum();
        let status = |(_, server): (u8, &lockkeeper::Server)| server.status().watch_count;
        let watches = || self.ensemble.servers().map(status).sum::<u64>();
        wait_until(&what, async || watches() == count + others).await;
    }

    /// The zxid of a write that is made now and applied by all servers: what they have counted then is
    /// all that there is to count.
    pub async fn mark(&self) -> i64 {
        let zxid = self.observer.set_data(MARK, b"", None).await.expect("written").mzxid;
        let servers = || self.ensemble.servers().all(|(_, server)| server.status().zxid >= zxid);
        wait_until("all servers have it", async || servers()).await;
        zxid
    }

    /// The events since this was asked the last time; if it is less, after some time for more.
    pub async fn events(&mut self, promised: u64) -> u64 {
        self.mark().await;
        let status = |(_, server): (u8, &lockkeeper::Server)| server.status().events_fired;
        let fired = || self.ensemble.servers().flat_map(status).sum::<u64>();
        let before = self.events;
        let all = wait_until("events", async || fired() >= before + promised);
        // Too few of them are for the judge.
        let _ = tokio::time::timeout(PATIENCE / 4, all).await;
        self.mark().await;
        self.events = fired();
        self.events - before
    }

    /// Has `cast` queue for a lock and hold it, one after another as long as there is one, in whatever
    /// order they get it; the first holders go as `exits` says, the others by Enter.
    pub async fn play(&mut self, cast: &[Program], exits: &[Exit], promise: &Promise) {
        let mut holders = Vec::new();
        let mut has_held: Vec<usize> = self.said(HELD).iter().map(|heard| heard.who).collect();
        let mut waiting = 0;
        for program in cast {
            let who = self.start(program);
            if holders.len() < promise.permits {
                self.hear(who, HELD, promise.claims).await;
                holders.push(who);
                has_held.push(who);
            } else {
                waiting += 1;
                self.watches(waiting + promise.watches * promise.permits as u64).await;
            }
        }
        // Arrivals may cost what they like: it is departures that are judged.
        self.events(0).await;
        let mut exits = exits.iter();
        while !holders.is_empty() {
            let who = holders.remove(0);
            let exit = *exits.next().unwrap_or(&Exit::Release);
            self.exit(who, exit, promise.claims).await;
            let departure = waiting;
            if waiting > 0 {
                let next = self.next_holder(&has_held).await;
                self.hear(next, HELD, promise.claims).await;
                holders.push(next);
                has_held.push(next);
                waiting -= 1;
            }
            let promised = (promise.events)(departure);
            let events = self.events(promised).await;
            self.watches(waiting + promise.watches * holders.len() as u64).await;
            self.departures.push(Departure { waiting: departure, promised, events });
        }
    }

    async fn exit(&mut self, who: usize, exit: Exit, claims: usize) {
        match exit {
            Exit::Release => {
                self.enter(who);
                self.hear(who, RELEASED, claims).await;
                self.end(who).await;
            }
            Exit::Kill => self.kill(who),
        }
    }

    /// Whoever says to hold the lock and has not held it before.
    async fn next_holder(&self, has_held: &[usize]) -> usize {
        let new = |heard: &Heard| (!has_held.contains(&heard.who)).then_some(heard.who);
        let next = || self.said(HELD).iter().find_map(new);
        wait_until("the next one holds it", async || next().is_some()).await;
        next().expect("it was there")
    }

    /// How the holder that goes next may be accounted for: for plays of their own.
    pub async fn departure(&mut self, waiting: u64, promised: u64) {
        let events = self.events(promised).await;
        self.departures.push(Departure { waiting, promised, events });
    }

    /// The claims of all contenders.
    fn claims(&self) -> Vec<Claim> {
        let claim = |heard: &Heard| {
            let mut words = heard.line.split(' ');
            let word = match words.next()? {
                HELD => Word::Held,
                RELEASED => Word::Released,
                _ => return None,
            };
            let node = words.next().expect("a znode").to_string();
            let token = words.next().and_then(|token| token.parse().ok()).expect("a token");
            Some(Claim { who: heard.who, word, node, token, stamp: heard.stamp })
        };
        self.heard
            .lock()
            .expect("no thread panics while it holds it")
            .iter()
            .filter_map(claim)
            .collect()
    }

    /// What the servers say that they did, on which they agree.
    pub async fn audit(&self) -> Vec<audit::AuditLine> {
        self.mark().await;
        let text = std::fs::read_to_string(self.directory.path().join(AUDIT)).expect("written");
        let log = audit::read_audit(AUDIT, "all", &text).unwrap_or_else(|error| panic!("{error}"));
        audit::join(&[log]).unwrap_or_else(|violation| panic!("{violation:?}"))
    }

    /// Asks the servers whether what was claimed is true, and whether anything is left.
    pub async fn close(self, permits: usize) {
        let ephemerals =
            || self.ensemble.servers().all(|(_, one)| one.status().ephemerals_count == 0);
        wait_until("no contender is left", async || ephemerals()).await;
        self.watches(0).await;
        let claims = self.claims();
        let violations = judge(&self.audit().await, &claims, &self.departures, permits);
        let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}\nof {claims:#?}", violations.join("\n"));
        self.leave().await;
    }

    pub async fn leave(self) {
        let Self { ensemble, observer, contenders, .. } = self;
        drop((contenders, observer));
        ensemble.shutdown().await.expect("they stop");
    }
}

/// Gives each line its place among the transactions, in the order of their arrival.
async fn stamp(
    observer: Client,
    mut arriving: mpsc::UnboundedReceiver<(usize, String)>,
    heard: Arc<Mutex<Vec<Heard>>>,
) {
    while let Some((who, line)) = arriving.recv().await {
        // The servers may have been stopped; who waits for the line says so.
        let Ok(stat) = observer.set_data(MARK, b"", None).await else { return };
        let heard_now = Heard { who, line, stamp: stat.mzxid };
        heard.lock().expect("no thread panics while it holds it").push(heard_now);
    }
}

/// The timeout of all sessions, whatever the clients ask for.
const SESSION: Duration = Duration::from_secs(4);
/// What stamps are written to.
const MARK: &str = "/mark";
const AUDIT: &str = "audit.log";
const HELD: &str = "HELD";
const RELEASED: &str = "RELEASED";
