//! Many runs: workloads times nemeses, one after the other, each a process of its own.
//!
//! *Owns* which runs make a suite, and the table of what they came to. *Invariant*: the worst run
//! decides the exit code; what a run had to skip is said in the table.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::process::Process;
use crate::store;

/// Workloads of the quick suite.
pub const QUICK: [&str; 6] = ["lock", "session", "watch", "register", "tree", "sequence"];
/// Seconds for which clients work in one of its runs.
pub const QUICK_SECONDS: u64 = 15;
/// The same in the full suite.
pub const SECONDS: u64 = 30;
/// Nemeses of the quick suite.
pub const QUICK_NEMESES: [&str; 6] = ["none", "kill", "pause", "partition", "corruption", "loss"];
/// The same in the full suite.
pub const NEMESES: [&str; 7] =
    ["none", "kill", "pause", "partition", "power", "corruption", "loss+reorder"];
/// A run that takes so much longer than its clients work is ended.
const BESIDE_MAX: Duration = Duration::from_secs(300);
/// Pause between looks at a run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Exit code of a run whose harness failed.
pub(crate) const HARNESS_FAILED: u8 = 3;

/// The runs.
#[derive(Clone, Debug)]
pub struct Suite {
    pub workloads: Vec<String>,
    /// Each one kind, or several with + between them.
    pub nemeses: Vec<String>,
    pub seconds: u64,
    /// Of the first run.
    pub seed: u64,
    pub out: PathBuf,
    /// Further arguments of each run.
    pub others: Vec<String>,
}

/// What a run came to.
#[derive(Clone, Debug)]
struct Ran {
    name: String,
    code: u8,
    took: Duration,
    folder: String,
    skipped: Value,
    coverage: Value,
}

impl Suite {
    /// Runs all. The exit code.
    ///
    /// # Errors
    /// A run cannot be started.
    pub fn run(&self, is_interrupted: &AtomicBool) -> Result<u8, String> {
        let shown = self.out.display();
        fs::create_dir_all(&self.out).map_err(|error| format!("{shown}: {error}"))?;
        let began = Instant::now();
        let mut all = Vec::new();
        let pairs = self.workloads.iter().flat_map(|workload| {
            self.nemeses.iter().map(move |nemesis| (workload.as_str(), nemesis.as_str()))
        });
        for ((workload, nemesis), seed) in pairs.zip(self.seed..) {
            if is_interrupted.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            let ran = self.one(workload, nemesis, seed, is_interrupted)?;
            println!("{}", ran.line());
            all.push(ran);
        }
        let worst = all.iter().map(|ran| ran.code).max().unwrap_or(HARNESS_FAILED);
        let valid = all.iter().filter(|ran| ran.code == 0).count();
        let took = began.elapsed().as_secs();
        println!("{valid} of {} runs valid, {took} s", all.len());
        let table = json!({
            "valid": valid, "runs": all.iter().map(Ran::to_json).collect::<Vec<_>>(), "took_s": took,
        });
        let file = self.out.join("test-all.json");
        fs::write(&file, format!("{table:#}\n"))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(worst)
    }

    fn one(
        &self,
        workload: &str,
        nemesis: &str,
        seed: u64,
        is_interrupted: &AtomicBool,
    ) -> Result<Ran, String> {
        let name = format!("{workload} {nemesis}");
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = vec![this.display().to_string(), "run".to_owned()];
        let nemeses = nemesis.replace('+', ",");
        let (seconds, seed) = (self.seconds.to_string(), seed.to_string());
        let out = self.out.canonicalize().map_err(|error| error.to_string())?;
        let out = out.display().to_string();
        let pairs = [
            ("--workload", workload),
            ("--nemesis", &nemeses),
            ("--time-limit", &seconds),
            ("--seed", &seed),
            ("--out", &out),
        ];
        for (option, value) in pairs {
            command.extend([option.to_owned(), value.to_owned()]);
        }
        command.extend(self.others.iter().cloned());
        let log = self.out.join(format!("{workload}-{nemesis}.log"));
        let _ = fs::remove_file(&log);
        let began = Instant::now();
        let last = began + Duration::from_secs(self.seconds) + BESIDE_MAX;
        let code = play(&command, &log, last, is_interrupted)?;
        let folder = folder_of(&log);
        let results = read(&folder.join(store::RESULTS));
        Ok(Ran {
            name,
            code: code.unwrap_or(HARNESS_FAILED),
            took: began.elapsed(),
            folder: folder.display().to_string(),
            skipped: results["skipped"].clone(),
            coverage: results["coverage"].clone(),
        })
    }
}

/// A run as a process of its own, with what it says in a file. Its exit code, if it ended in time.
pub(crate) fn play(
    command: &[String],
    log: &Path,
    last: Instant,
    is_interrupted: &AtomicBool,
) -> Result<Option<u8>, String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let mut process = Process::start(command, &here, log)?;
    loop {
        if let Some(status) = process.ended() {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()));
        }
        if Instant::now() >= last || is_interrupted.load(Ordering::Relaxed) {
            process.kill();
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The directory that a run names in its last line.
pub(crate) fn folder_of(log: &Path) -> PathBuf {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().last().and_then(|line| line.split_once(": "));
    last.map(|(_, folder)| PathBuf::from(folder)).unwrap_or_default()
}

/// Results, or nothing of a run that left none.
fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

impl Ran {
    fn word(&self) -> &'static str {
        match self.code {
            0 => "VALID",
            1 => "INVALID",
            2 => "UNKNOWN",
            _ => "NO RUN",
        }
    }

    fn line(&self) -> String {
        let Self { name, took, folder, skipped, .. } = self;
        let skipped = match skipped.as_array() {
            Some(list) if !list.is_empty() => format!(" skipped {skipped}"),
            Some(_) | None => String::new(),
        };
        format!("{:8} {name:20} {:3} s {folder}{skipped}", self.word(), took.as_secs())
    }

    fn to_json(&self) -> Value {
        json!({
            "run": self.name, "verdict": self.word(), "took_s": self.took.as_secs_f64(),
            "folder": self.folder, "skipped": self.skipped, "coverage": self.coverage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_suite_fits_its_budget() {
        let runs = QUICK.len() * QUICK_NEMESES.len();
        // Twice what it is on two cores that have nothing else to do; with corruption it is seven.
        let beside = 8;
        let took = u64::try_from(runs).unwrap() * (QUICK_SECONDS + beside);
        assert!(took < 15 * 60, "{took} s");
        for name in QUICK {
            name.parse::<crate::workload::Named>().unwrap();
        }
    }

    #[test]
    fn the_last_line_of_a_run_names_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "plan: none\nVALID: /tmp/a run/x\n").unwrap();
        assert_eq!(folder_of(&log), PathBuf::from("/tmp/a run/x"));
    }
}
