//! What Linux's /proc says about processes and the machine: CPU time, memory, packets.
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
    let text = text_of(&path)?;
    // The command's name is in parentheses and may hold anything, so count from the last one.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) as f64 / TICKS_PER_SECOND),
        _ => Err(Fault::Machine(format!("{path}: no CPU times in it"))),
    }
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

/// Seconds of CPU that everything on this machine has used, idle and I/O wait left out.
///
/// # Errors
/// /proc does not say.
pub fn machine_cpu_seconds() -> Result<f64, Fault> {
    let text = text_of("/proc/stat")?;
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
        _ => Err(Fault::Machine("/proc/stat: no CPU times in its first line".into())),
    }
}

/// Packets that came to this machine and were dropped since it started, because the queue of a
/// processor was full (`net.core.netdev_max_backlog`). On the loopback device, too: whoever sent one waits
/// for its repetition, 200 ms or longer.
///
/// # Errors
/// /proc does not say.
pub fn dropped_packets() -> Result<u64, Fault> {
    let path = "/proc/net/softnet_stat";
    let dropped = dropped_in(&text_of(path)?);
    dropped.ok_or_else(|| Fault::Machine(format!("{path}: no dropped packets in it")))
}

/// A line for each processor, of hexadecimal columns: packets, and those that were dropped.
fn dropped_in(softnet: &str) -> Option<u64> {
    let dropped = |line: &str| {
        let column = line.split_ascii_whitespace().nth(1)?;
        u64::from_str_radix(column, 16).ok()
    };
    softnet.lines().map(dropped).sum()
}

fn text_of(path: &str) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|e| Fault::Machine(format!("{path}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_packets_are_those_of_all_processors() {
        assert_eq!(
            dropped_in("2f6ad530 00001530 00000007\n1c248460 0000000a 0000000c\n"),
            Some(5434)
        );
        assert_eq!(dropped_in("2f6ad530\n"), None);
    }
}
