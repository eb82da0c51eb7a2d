//! The calibration: deliberate bugs in real servers, and how many runs find them.
//!
//! *Owns* the table: which bug, under which workload and faults. A run is made of short slices, each a
//! process of its own with servers of its own, which is judged as any other; it ends with the first slice
//! that is invalid, or with its time. *Invariants*: only a verdict of the checks is a catch, never a
//! harness that failed or a run of unknown outcome; nothing helps a bug to be found but the choice of
//! workload and faults. What each bug does: TRACK_RECORD.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::store;
use crate::suite::{self, HARNESS_FAILED};

/// A bug, and what finds it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As `mutant!` has it in the server's source.
    pub mutant: &'static str,
    pub workload: &'static str,
    /// As on the command line.
    pub nemesis: &'static str,
    /// Seconds for which the clients of a slice work.
    pub slice_s: u64,
    /// Further arguments of the runs.
    pub others: &'static [&'static str],
}

const fn row(
    mutant: &'static str,
    workload: &'static str,
    nemesis: &'static str,
    slice_s: u64,
    others: &'static [&'static str],
) -> Row {
    Row { mutant, workload, nemesis, slice_s, others }
}

/// Faults in quick succession.
const OFTEN: &[&str] = &["--nemesis-interval", "2"];

/// All of them.
pub const TABLE: &[Row] = &[
    // --- sessions
    row("attach-keeps-deadline", "session", "none", 8, &[]),
    row("new-leader-knows-no-mercy", "session", "kill", 8, OFTEN),
    // Shorter than a server without its leader answers its clients.
    row("reports-not-awaited", "session", "ring", 10, &["--session-timeout", "1000"]),
    row("touches-not-passed-on", "ephemeral", "one-way", 8, OFTEN),
    row("touch-ignored", "rw-lock", "bandwidth", 8, OFTEN),
    row("expiry-leaves-ephemerals", "lock", "leader,pause", 8, OFTEN),
    // --- what is read
    row("read-index-one-early", "sync", "leader,slow-disk", 10, &["--rate", "20"]),
    row("read-index-not-awaited", "sync", "leader,slow-disk", 8, OFTEN),
    row("sync-without-quorum", "sync", "partition", 8, OFTEN),
    // --- the order of writes
    row("read-overtakes-write", "fifo", "delay", 6, OFTEN),
    // --- the disk
    row("log-not-synced", "register", "power", 8, OFTEN),
    row("log-checksum-unchecked", "register", "corruption", 10, &[]),
    // --- watches
    row("events-reversed", "watch", "none", 5, &[]),
    row("nearest-recursive-watch-only", "watch", "loss", 6, OFTEN),
    row("missed-change-untold", "watch", "kill", 6, OFTEN),
    // --- znodes
    row("version-unchecked", "register", "none", 4, &[]),
    row("sequence-from-child-count", "sequence", "membership", 8, OFTEN),
    row("sequence-from-child-count", "queue", "reorder", 6, OFTEN),
    row("deletion-keeps-pzxid", "tree", "disk-full", 8, OFTEN),
    row("multi-keeps-half", "multi", "disk-errors", 8, OFTEN),
    row("ttl-unchecked", "mortal", "none", 5, &[]),
    row("steady-clock-is-the-wall-clock", "mortal", "clock", 8, OFTEN),
    row("failure-takes-no-zxid", "mixed", "all", 10, &[]),
];

/// A run takes no longer.
const RUN_MAX: Duration = Duration::from_secs(60);
/// A slice that takes so much longer than its clients work is ended.
const BESIDE_MAX: Duration = Duration::from_secs(120);
/// Exit code of a run that the checks find invalid.
const INVALID: u8 = 1;
/// Runs of one bug have seeds so far apart.
const SEEDS_PER_RUN: u64 = 100;

/// Rows by the names of their bugs; all, if none are named.
///
/// # Errors
/// The table does not have one.
pub fn rows(named: Option<&[&str]>) -> Result<Vec<Row>, String> {
    let Some(named) = named else { return Ok(TABLE.to_vec()) };
    for name in named {
        if !TABLE.iter().any(|row| row.mutant == *name) {
            return Err(format!("the table has no bug {name}"));
        }
    }
    Ok(TABLE.iter().copied().filter(|row| named.contains(&row.mutant)).collect())
}

/// Runs with deliberate bugs.
#[derive(Clone, Debug)]
pub struct Calibration {
    pub rows: Vec<Row>,
    pub binary: PathBuf,
    /// For each row.
    pub runs: u64,
    /// At a time.
    pub jobs: u64,
    /// Of the first run of each row.
    pub seed: u64,
    /// Nothing is planted.
    pub is_control: bool,
    pub out: PathBuf,
}

/// What one run came to.
#[derive(Clone, Debug)]
struct Ran {
    row: usize,
    seed: u64,
    /// How long it took to find the bug.
    caught: Option<Duration>,
    /// The checks that found it, or what the slices came to.
    how: String,
}

impl Calibration {
    /// Runs all of them, and says what was found. The exit code: 0 if every run found its bug, or, as a
    /// control, none found anything.
    ///
    /// # Errors
    /// A run cannot be started.
    pub fn run(&self, is_interrupted: &AtomicBool) -> Result<u8, String> {
        let told = |error| format!("{}: {error}", self.out.display());
        fs::create_dir_all(&self.out).map_err(told)?;
        // A build in the meantime must not change what is under test.
        let binary = self.out.join("lockkeeper");
        fs::copy(&self.binary, &binary).map_err(told)?;
        let binary = binary.canonicalize().map_err(told)?;
        let all = (0..self.rows.len()).flat_map(|row| (0..self.runs).map(move |run| (row, run)));
        let all: Vec<(usize, u64)> = all.collect();
        let (next, ran) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || -> Result<(), String> {
            while let Some((row, run)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                if is_interrupted.load(Ordering::Relaxed) {
                    return Err("interrupted".to_owned());
                }
                let one = self.one(*row, *run, &binary, is_interrupted)?;
                println!("{}", self.line(&one));
                ran.lock().expect("no thread panics while it holds it").push(one);
            }
            Ok(())
        };
        let done: Result<(), String> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
        });
        let ran = ran.into_inner().expect("no thread panics while it holds it");
        let table: Vec<Value> = (0..self.rows.len()).map(|row| self.tell(row, &ran)).collect();
        let file = self.out.join("calibration.json");
        fs::write(&file, format!("{:#}\n", json!({"rows": table}))).map_err(told)?;
        done?;
        let as_it_should = |one: &Ran| one.caught.is_some() != self.is_control;
        Ok(u8::from(!ran.iter().all(as_it_should)))
    }

    /// One run, slice after slice.
    fn one(
        &self,
        row: usize,
        run: u64,
        binary: &Path,
        is_interrupted: &AtomicBool,
    ) -> Result<Ran, String> {
        let Row { mutant, workload, slice_s, .. } = self.rows[row];
        let began = Instant::now();
        let first = self.seed + run * SEEDS_PER_RUN;
        let (mut longest, mut how) = (Duration::from_secs(slice_s), Vec::new());
        for seed in first.. {
            if began.elapsed() + longest > RUN_MAX || is_interrupted.load(Ordering::Relaxed) {
                break;
            }
            let slice = Instant::now();
            let log = self.out.join(format!("{mutant}-{workload}-{seed}.log"));
            let last = slice + Duration::from_secs(slice_s) + BESIDE_MAX;
            let command = self.command(row, seed, binary)?;
            let code = suite::play(&command, &log, last, is_interrupted)?.unwrap_or(HARNESS_FAILED);
            let folder = suite::folder_of(&log);
            if folder.parent() == binary.parent() {
                remove_servers(&folder);
            }
            if code == INVALID {
                let how = broken(&folder.join(store::RESULTS));
                return Ok(Ran { row, seed, caught: Some(began.elapsed()), how });
            }
            how.push(code.to_string());
            longest = longest.max(slice.elapsed());
        }
        let how = format!("slices ended with {}", how.join(", "));
        Ok(Ran { row, seed: first, caught: None, how })
    }

    fn command(&self, row: usize, seed: u64, binary: &Path) -> Result<Vec<String>, String> {
        let Row { mutant, workload, nemesis, slice_s, others } = self.rows[row];
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let (slice_s, seed) = (slice_s.to_string(), seed.to_string());
        let (out, binary) = (self.out.display().to_string(), binary.display().to_string());
        let mut command = vec![this.display().to_string(), "run".to_owned()];
        let pairs = [
            ("--workload", workload),
            ("--nemesis", nemesis),
            ("--time-limit", &slice_s),
            ("--seed", &seed),
            ("--out", &out),
            ("--binary", &binary),
        ];
        for (option, value) in pairs {
            command.extend([option.to_owned(), value.to_owned()]);
        }
        if !self.is_control {
            command.extend(["--plant".to_owned(), mutant.to_owned()]);
        }
        command.extend(others.iter().map(|word| (*word).to_owned()));
        Ok(command)
    }

    fn line(&self, one: &Ran) -> String {
        let Row { mutant, workload, nemesis, .. } = self.rows[one.row];
        let took =
            one.caught.map_or("NOT FOUND".to_owned(), |took| format!("{} s", took.as_secs()));
        format!("{mutant}: {workload} {nemesis}, seed {}: {took}, {}", one.seed, one.how)
    }

    /// Says what a row came to, as a line of a table.
    fn tell(&self, row: usize, ran: &[Ran]) -> Value {
        let Row { mutant, workload, nemesis, .. } = self.rows[row];
        let of_row: Vec<&Ran> = ran.iter().filter(|one| one.row == row).collect();
        let mut took: Vec<Duration> = of_row.iter().filter_map(|one| one.caught).collect();
        took.sort_unstable();
        let median_s = took.get(took.len() / 2).map(Duration::as_secs);
        let (caught, runs) = (took.len(), of_row.len());
        let median = median_s.map_or("-".to_owned(), |seconds| format!("{seconds} s"));
        println!("| `{mutant}` | `{workload}` | `{nemesis}` | {caught} of {runs} | {median} |");
        let runs: Vec<Value> = of_row
            .iter()
            .map(|one| {
                let took_s = one.caught.map(|took| took.as_secs_f64());
                json!({"seed": one.seed, "took_s": took_s, "how": one.how})
            })
            .collect();
        json!({
            "mutant": mutant, "workload": workload, "nemesis": nemesis, "caught": caught,
            "median_s": median_s, "runs": runs,
        })
    }
}

/// What the servers of a run left behind: hundreds of such directories would fill a disk, and what was judged stays.
fn remove_servers(folder: &Path) {
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    for servers in below.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        // What cannot be removed takes room and does no other harm.
        let _ = fs::remove_dir_all(servers);
    }
}

/// The checks that a run broke, from its results.
fn broken(results: &Path) -> String {
    let text = fs::read_to_string(results).unwrap_or_default();
    let results: Value = serde_json::from_str(&text).unwrap_or_default();
    let checks = results["checks"].as_array().into_iter().flatten();
    let broken = checks.filter(|check| check["valid"] == json!(false));
    broken.filter_map(|check| check["check"].as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nemesis::Faults;
    use crate::workload::Named;

    #[test]
    fn every_row_names_a_bug_of_the_source_and_what_there_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
        let mut planted = String::new();
        let mut waiting = vec![root];
        while let Some(path) = waiting.pop() {
            match path.is_dir() {
                true => {
                    waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()))
                }
                // Recorded streams are no text.
                false => planted.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap())),
            }
        }
        for row in TABLE {
            let place = format!("mutant!(\"{}\")", row.mutant);
            assert!(planted.contains(&place), "{}", row.mutant);
            row.workload.parse::<Named>().unwrap();
            row.nemesis.parse::<Faults>().unwrap();
        }
    }
}
