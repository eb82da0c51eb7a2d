//! What the server's inner parts cost in instructions, which a busy machine does not change.
//!
//! `cargo bench --bench counts` runs each body once under `valgrind --tool=callgrind`, which counts the
//! instructions of [`bodies::counted`] and what it calls, and nothing else. `--save FILE` keeps the counts,
//! `--compare FILE` fails if one has grown. Counts of two compilers say nothing about the sources.

mod bodies;
#[path = "../common/logs.rs"]
mod logs;
mod rig;
mod valgrind;
#[path = "../common/woods.rs"]
mod woods;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use serde::{Deserialize, Serialize};

/// Counts instructions of the codec, the tree, the replica, the watches and the log.
#[derive(Parser)]
#[command(name = "counts")]
struct Cli {
    /// Given by `cargo bench`; without a meaning here.
    #[arg(long, hide = true)]
    bench: bool,
    /// Runs one body as it is; what valgrind is given.
    #[arg(long, hide = true, value_name = "NAME")]
    body: Option<String>,
    /// Only what has this in its name.
    filter: Option<String>,
    /// Keep the counts in this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Fail if a count has grown since it was kept in this file.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// By how many percent a count may grow.
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    tolerance: f64,
}

/// Instructions per operation, by the names of the bodies.
#[derive(Serialize, Deserialize)]
struct Counts {
    /// As it names itself.
    compiler: String,
    architecture: String,
    instructions: BTreeMap<String, f64>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.body {
        Some(name) => bodies::run(name),
        None => count_all(&cli),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("counts: {message}");
            ExitCode::FAILURE
        }
    }
}

fn count_all(cli: &Cli) -> Result<(), String> {
    valgrind::find()?;
    let before: Option<Counts> = cli.compare.as_deref().map(read).transpose()?;
    let mut counts = Counts {
        compiler: compiler(),
        architecture: std::env::consts::ARCH.to_owned(),
        instructions: BTreeMap::new(),
    };
    if let Some(before) = &before {
        let built = |counts: &Counts| format!("{} for {}", counts.compiler, counts.architecture);
        if built(before) != built(&counts) {
            return Err(format!(
                "the counts to compare with are of {}, these of {}: save them again",
                built(before),
                built(&counts)
            ));
        }
    }
    let mut grown = Vec::new();
    for body in bodies::ALL {
        let name = body.name;
        if cli.filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let each = valgrind::instructions(name)? as f64 / body.operations as f64;
        let known = before.as_ref().and_then(|before| before.instructions.get(name));
        let change = known.map(|known| (each / known - 1.0) * 100.0);
        let shown = change.map_or(String::new(), |percent| format!("{percent:>+8.1} %"));
        println!("{each:>12.1} instructions{shown}  {name}: {}", body.what);
        if change.is_some_and(|percent| percent > cli.tolerance) {
            grown.push(name);
        }
        counts.instructions.insert(name.to_owned(), each);
    }
    if let Some(path) = &cli.save {
        let text = serde_json::to_string_pretty(&counts).expect("counts are plain data");
        fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(format!("more instructions than before by over {} %: {}", cli.tolerance, grown.join(", ")))
}

fn read(path: &Path) -> Result<Counts, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What `rustc` says it is, which is taken to be what has compiled this.
fn compiler() -> String {
    match Command::new("rustc").arg("--version").output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(_) | Err(_) => "an unknown compiler".to_owned(),
    }
}
