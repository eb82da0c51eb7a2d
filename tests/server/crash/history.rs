//! One data directory through many deaths.
//!
//! *Owns* the writers, and what was learned from every server that ever ran on the data. After each
//! death: the data is examined, a new server is started on it, and every promise is verified.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::crash::autopsy::{self, Digests};
use crate::crash::link::Link;
use crate::crash::model::{Found, SHARED, writer_of};
use crate::crash::process::{self, Layout, Process};
use crate::crash::writer::{Promises, Writer, make_parents};
use testkit::rng::Rng;

/// Figures for people.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Deaths by what they were.
    pub deaths: BTreeMap<String, u64>,
    /// Acknowledged writes that were verified after a death.
    pub acknowledged: u64,
    /// Requests in flight at a death that took effect.
    pub in_flight: u64,
    /// Znodes compared.
    pub znodes: u64,
    /// Recoveries that began from an image, and all.
    pub images: u64,
    pub recoveries: u64,
    /// Ends of the log that were cut off.
    pub torn: u64,
    /// Digests compared with what a dead server had told.
    pub digests: u64,
    /// Recoveries that passed through exactly the highest acknowledged zxid.
    pub highest: u64,
}

pub struct History {
    pub layout: Layout,
    pub random: Rng,
    pub tally: Tally,
    pub promises: Promises,
    scratch: tempfile::TempDir,
    writers: Vec<Writer>,
    digests: Digests,
    generation: u32,
    counted: u64,
}

impl History {
    /// A new directory `data`, with a few writers.
    pub fn new(name: &str, data: &Path, outside: &Path) -> Self {
        let seed = seed();
        eprintln!("{name}: LOCKKEEPER_SEED={seed}");
        let layout = Layout { data: data.to_path_buf(), outside: outside.to_path_buf() };
        Self {
            layout,
            random: Rng::new(seed, 0),
            tally: Tally::default(),
            promises: Promises::default(),
            scratch: tempfile::tempdir().expect("a temporary directory"),
            writers: (0..WRITERS).map(|index| Writer::new(index, seed)).collect(),
            digests: Digests::default(),
            generation: 0,
            counted: 0,
        }
    }

    /// Starts the first server, on nothing.
    pub fn begin(&mut self) -> Process {
        let process = Process::start(&self.layout, self.generation, &[]);
        make_parents(process.serving(&self.layout, self.generation), WRITERS);
        process
    }

    /// Which server runs, or ran last.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// What the server that runs, or ran last, said on its standard error.
    pub fn said(&self) -> String {
        self.layout.said(self.generation)
    }

    /// Lets all writers write until the server is gone, and meanwhile `bring_about` its end.
    pub fn load<T>(
        &mut self,
        process: &mut Process,
        bring_about: impl FnOnce(&mut Process, &mut Rng) -> T,
    ) -> T {
        self.load_with_promises(process, |process, random, _| bring_about(process, random))
    }

    /// As [`History::load`], for an end that is not that of the server alone.
    pub fn load_with_promises<T>(
        &mut self,
        process: &mut Process,
        bring_about: impl FnOnce(&mut Process, &mut Rng, &Promises) -> T,
    ) -> T {
        let address = process.serving(&self.layout, self.generation);
        let Self { writers, promises, random, .. } = self;
        let promises = &*promises;
        std::thread::scope(|scope| {
            for writer in writers {
                scope.spawn(move || writer.run(address, promises));
            }
            let brought = AssertUnwindSafe(|| bring_about(process, random, promises));
            catch_unwind(brought).unwrap_or_else(|panic| {
                // The writers end with the server, and the test that fails behind them.
                process.kill();
                resume_unwind(panic)
            })
        })
    }

    /// Notes how a server has ended.
    pub fn died(&mut self, how: &str) {
        *self.tally.deaths.entry(how.to_string()).or_default() += 1;
        self.digests.read(&self.layout.audit());
    }

    /// Starts a server that is not expected to live.
    pub fn start_in_vain(&mut self, wrapper: &[String]) -> Process {
        self.generation += 1;
        Process::start(&self.layout, self.generation, wrapper)
    }

    /// Starts a server and kills it so much later, whether it serves by then or not.
    pub fn kill_after_start(&mut self, wait: Duration) {
        self.generation += 1;
        let mut command = process::command(&self.layout, self.generation, &[]);
        let mut child = command.spawn().expect("it can be run");
        std::thread::sleep(wait);
        child.kill().expect("our child");
        child.wait().expect("our child");
    }

    /// Examines the data, starts a server on it and verifies every promise.
    pub fn recover(&mut self) -> Process {
        let highest = self.promises.zxid.load(Ordering::SeqCst);
        let data = self.layout.data.clone();
        let found = autopsy::examine(&data, self.scratch.path(), &mut self.digests, highest);
        self.tally.recoveries += 1;
        self.tally.images += u64::from(found.from_image);
        self.tally.torn += u64::from(found.is_torn);
        self.tally.digests += found.compared as u64;
        self.tally.highest += u64::from(found.compared_highest);

        self.generation += 1;
        let process = Process::start(&self.layout, self.generation, &[]);
        let address = process.serving(&self.layout, self.generation);
        let said = self.said();
        let serves = said.lines().find(|line| line.contains("serves zxid=")).expect("it says so");
        let expected = format!("zxid={} digest={:032x}", found.zxid, found.digest);
        assert!(serves.ends_with(&expected), "it serves another state: {serves}, not {expected}");
        self.verify(address);
        self.digests.read(&self.layout.audit());
        self.digests.all_told();
        process
    }

    fn verify(&mut self, address: SocketAddr) {
        let highest = self.promises.zxid.load(Ordering::SeqCst);
        let mut link = Link::open(address, None, highest).expect("it runs").expect("a session");
        let mut found: Vec<BTreeMap<String, Found>> = vec![BTreeMap::new(); WRITERS];
        for (path, value, stat) in link.children(SHARED).expect("it runs") {
            let writer = writer_of(&value).expect("every value tells its writer");
            found[writer].insert(path, (value, stat));
        }
        for (index, found) in found.iter_mut().enumerate() {
            for (path, value, stat) in link.children(&format!("/w{index}")).expect("it runs") {
                found.insert(path, (value, stat));
            }
        }
        for (writer, found) in self.writers.iter_mut().zip(&found) {
            let took_effect = writer.verify(address, found, &self.promises).expect("it runs");
            self.tally.in_flight += took_effect as u64;
            self.tally.znodes += writer.len() as u64;
        }
        let acknowledged = self.promises.acknowledged.load(Ordering::SeqCst);
        self.tally.acknowledged += acknowledged - self.counted;
        self.counted = acknowledged;
    }

    /// Prints the figures.
    pub fn report(&self, name: &str, begun: Instant) {
        let seconds = begun.elapsed().as_secs_f32();
        eprintln!("{name}: nothing lost in {seconds:.1} s: {:#?}", self.tally);
    }
}

/// How many deaths a test brings about: `full` is what the whole suite is asked for by `variable`,
/// of which it takes its share.
pub fn count(variable: &str, default: u64, share: u64, of: u64) -> u64 {
    let asked = std::env::var(variable).ok();
    let all = asked.map_or(default, |text| text.parse().expect("a number"));
    (all * share).div_ceil(of)
}

/// From the environment, to choose the same again; otherwise a new one every time.
fn seed() -> u64 {
    match std::env::var("LOCKKEEPER_SEED") {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap_or(Duration::ZERO).as_nanos() as u64
        }
    }
}

const WRITERS: usize = 4;
