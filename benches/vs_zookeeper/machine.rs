//! What machine this is, for a report.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::figures::{DiskUse, Site};

/// The machine, with the file system that holds `data`, and the commit of these sources.
pub fn site(data: &Path) -> Site {
    Site { machine: describe(data), commit: commit() }
}

/// Short, with a mark if the sources differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).stderr(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        "src",
        "benches",
        "Cargo.lock",
    ]) {
        Some(changes) if changes.is_empty() => commit,
        Some(_) | None => format!("{commit} with changes"),
    }
}

/// One line about the machine: processors, kernel, and the file system that holds `data`.
fn describe(data: &Path) -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} x {model}, Linux {}, data on {}", kernel.trim(), file_system(data))
}

/// Type and device of the file system under `path`, from the longest mount point above it.
fn file_system(path: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            real.starts_with(point).then(|| (point.len(), format!("{kind} ({device})")))
        })
        .max_by_key(|(length, _)| *length)
        .map_or_else(|| "an unknown file system".into(), |(_, name)| name)
}

/// Handshakes that this machine has dropped since it started because a server's queue of connections to accept
/// was full, if it says. The client tries again after 1 s, 3 s, 7 s and so on.
pub fn listen_overflows() -> Option<u64> {
    listen_overflows_in(&fs::read_to_string("/proc/net/netstat").ok()?)
}

/// Each line of names is followed by one of values.
fn listen_overflows_in(netstat: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|name| name == "ListenOverflows")?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// All files below `path` with such names.
pub fn disk_use(path: &Path, counts: impl Fn(&str) -> bool) -> DiskUse {
    use std::os::unix::fs::MetadataExt;
    let mut waiting = vec![path.to_path_buf()];
    let (mut files, mut blocks) = (0, 0);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                waiting.push(entry.path());
            } else if counts(&entry.file_name().to_string_lossy()) {
                files += 1;
                blocks += meta.blocks();
            }
        }
    }
    DiskUse { files, mib: blocks as f64 * 512.0 / (1024.0 * 1024.0) }
}
