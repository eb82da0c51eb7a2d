//! What Linux's /proc says about processes and the machine: CPU time, memory, file system.
//!
//! Reads only; a process that is gone is an error that names its pid.

use std::fs;
use std::path::Path;

/// Ticks per second of the times in /proc; part of the kernel's interface (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU, user and system, that the process and its threads have used.
pub fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    // The command's name is in parentheses and may hold anything, so count from the last one.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) as f64 / TICKS_PER_SECOND),
        _ => Err(format!("{path}: no CPU times in it")),
    }
}

/// CPU seconds of several processes together.
pub fn cpu_seconds_of(pids: &[u32]) -> Result<f64, String> {
    pids.iter().map(|&pid| cpu_seconds(pid)).sum()
}

/// Resident memory of several processes together, in MiB.
pub fn rss_mib_of(pids: &[u32]) -> Result<f64, String> {
    pids.iter().map(|&pid| rss_mib(pid)).sum()
}

fn rss_mib(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| format!("{path}: no VmRSS in it"))
}

/// Seconds of CPU that everything on this machine has used, idle and I/O wait left out.
pub fn machine_cpu_seconds() -> Result<f64, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq
    match fields[..] {
        [user, nice, system, _, _, irq, softirq, ..] => {
            Ok((user + nice + system + irq + softirq) as f64 / TICKS_PER_SECOND)
        }
        _ => Err("/proc/stat: no CPU times in its first line".into()),
    }
}

/// One line about the machine: processors, kernel, and the file system that holds `data`.
pub fn machine(data: &Path) -> String {
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

/// Bytes of all files below `path`, in MiB as allocated on the disk.
pub fn disk_mib(path: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt;
    let mut waiting = vec![path.to_path_buf()];
    let mut blocks = 0;
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                blocks += meta.blocks();
            }
        }
    }
    blocks as f64 * 512.0 / (1024.0 * 1024.0)
}
