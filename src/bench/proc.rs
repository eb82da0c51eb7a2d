//! Figures of processes and the machine from Linux's /proc: CPU time, memory.
//!
//! Reads only; a process that is gone is an error that names its pid.

use std::fs;

use super::Fault;

/// Ticks per second of the times in /proc; part of the kernel's interface (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU, user and system, that the process and its threads have used.
///
/// # Errors
/// /proc does not say.
pub fn cpu_seconds(pid: u32) -> Result<f64, Fault> {
    let path = format!("/proc/{pid}/stat");
    let ticks = cpu_ticks(&text_of(&path)?);
    ticks.map(seconds).ok_or_else(|| Fault::Machine(format!("{path}: no CPU times in it")))
}

/// CPU time, user and system, in the `stat` of a process or a thread.
pub(super) fn cpu_ticks(stat: &str) -> Option<u64> {
    // The command's name is in parentheses and may hold anything, so count from the last one.
    let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

/// Seconds of such times.
pub(super) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

/// CPU seconds of several processes together.
///
/// # Errors
/// /proc does not say.
pub fn cpu_seconds_of(pids: &[u32]) -> Result<f64, Fault> {
    pids.iter().map(|&pid| cpu_seconds(pid)).sum()
}

/// Resident memory of several processes together, in MiB.
///
/// # Errors
/// /proc does not say.
pub fn rss_mib_of(pids: &[u32]) -> Result<f64, Fault> {
    pids.iter().map(|&pid| rss_mib(pid)).sum()
}

fn rss_mib(pid: u32) -> Result<f64, Fault> {
    let path = format!("/proc/{pid}/status");
    let text = text_of(&path)?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| Fault::Machine(format!("{path}: no VmRSS in it")))
}

/// What became of the processors since the machine started, all of them together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    /// Seconds that something on this machine has used; idle and I/O wait left out.
    pub used: f64,
    /// Seconds for which something was ready to run, and a virtual machine's host ran something of
    /// others. What waits for the processor then waits some milliseconds more.
    pub stolen: f64,
}

/// What became of the processors of this machine.
///
/// # Errors
/// /proc does not say.
pub fn processors() -> Result<Processors, Fault> {
    let path = "/proc/stat";
    let processors = processors_in(&text_of(path)?);
    processors.ok_or_else(|| Fault::Machine(format!("{path}: no CPU times in its first line")))
}

/// The first line is of all processors.
fn processors_in(stat: &str) -> Option<Processors> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else {
        return None;
    };
    let used = seconds(user + nice + system + irq + softirq);
    Some(Processors { used, stolen: seconds(steal) })
}

fn text_of(path: &str) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|e| Fault::Machine(format!("{path}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_not_used_time() {
        let stat = "cpu  100 20 300 4000 50 6 7 80 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(processors_in(stat), Some(Processors { used: 4.33, stolen: 0.8 }));
        assert_eq!(processors_in("cpu  100 20 300\n"), None);
    }
}
