//! The doctor: which faults this machine offers, found out by trying.
//!
//! *Never* leaves anything behind: what it tries, it tries in a namespace that is thrown away.

use std::fmt;
use std::path::Path;

use crate::cluster::disk::Disk;
use crate::cluster::process::has_program;
use crate::cluster::{Software, clock, namespaces, switch, tracer};
use crate::nemesis::Kind;

/// What is said of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// This machine offers it and the harness uses it.
    Used,
    /// This machine offers what it takes; no nemesis uses it.
    Unused,
    /// Why it is not to be had.
    Missing(String),
}

/// A fault, and whether it can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub fault: &'static str,
    pub by: &'static str,
    pub offer: Offer,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, by, offer } = self;
        match offer {
            Offer::Used => write!(f, "{fault}: yes, by {by}"),
            Offer::Unused => write!(f, "{fault}: no nemesis does it; the machine offers {by}"),
            Offer::Missing(why) => write!(f, "{fault}: no, {by} cannot be had: {why}"),
        }
    }
}

/// Whether a fault can be had here, and with this software, if one is named.
///
/// # Errors
/// Why not.
pub fn offers(kind: Kind, software: Option<&Software>) -> Result<(), String> {
    match kind {
        Kind::Kill | Kind::Pause => Ok(()),
        Kind::Partition | Kind::OneWay | Kind::Ring => namespaces::probe(),
        Kind::Delay | Kind::Loss | Kind::Reorder | Kind::Bandwidth => {
            namespaces::probe().and_then(|()| switch::probe())
        }
        Kind::Power | Kind::DiskFull => disk(),
        Kind::DiskErrors | Kind::SlowDisk => tracer::available(),
        Kind::Clock => clock::probe(),
        Kind::Membership | Kind::Corruption => match software {
            Some(Software::ZooKeeper { .. }) => Err("only of a lockkeeper is it known how".into()),
            Some(Software::Lockkeeper { .. }) | None if kind == Kind::Corruption => Ok(()),
            Some(Software::Lockkeeper { .. }) | None => program("timeout"),
        },
    }
}

/// Tries a disk.
fn disk() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("lockkeeper-doctor-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let tried = Disk::new(&folder, "disk").and_then(|disk| disk.cut_power());
    let removed = std::fs::remove_dir_all(&folder);
    tried.and(removed.map_err(|error| format!("{}: {error}", folder.display())))
}

fn program(name: &str) -> Result<(), String> {
    match has_program(name) {
        true => Ok(()),
        false => Err(format!("there is no {name}")),
    }
}

fn file(path: &str) -> Result<(), String> {
    match Path::new(path).exists() {
        true => Ok(()),
        false => Err(format!("there is no {path}")),
    }
}

fn netem() -> Result<(), String> {
    program("tc")?;
    let words = "ip link set lo up && tc qdisc add dev lo root netem delay 1ms";
    namespaces::run("unshare", &["--net", "--", "sh", "-c", words])
}

/// Everything that was tried.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let used = |fault, by, kind| Finding {
        fault,
        by,
        offer: offers(kind, None).err().map_or(Offer::Used, Offer::Missing),
    };
    let unused = |fault, by, tried: Result<(), String>| Finding {
        fault,
        by,
        offer: tried.err().map_or(Offer::Unused, Offer::Missing),
    };
    let disk = "a file system on a loop device";
    vec![
        used("kill", "SIGKILL", Kind::Kill),
        used("pause", "SIGSTOP", Kind::Pause),
        used("partition", "network namespaces and routing rules", Kind::Partition),
        used("one-way", "the same", Kind::OneWay),
        used("ring", "the same", Kind::Ring),
        used("power", disk, Kind::Power),
        used("disk-full", disk, Kind::DiskFull),
        used("disk-errors", "strace", Kind::DiskErrors),
        used("slow-disk", "strace", Kind::SlowDisk),
        used("clock", "libfaketime, the wall clock alone", Kind::Clock),
        used("membership", "`lockkeeper member`", Kind::Membership),
        used("corruption", "changing files of a server that is down", Kind::Corruption),
        unused("partition (other means)", "nftables", program("nft")),
        used("delay", "a switch of our own behind a TUN device", Kind::Delay),
        used("loss", "the same", Kind::Loss),
        used("reorder", "the same", Kind::Reorder),
        used("bandwidth", "the same", Kind::Bandwidth),
        unused("delay, loss, reorder (other means)", "netem", netem()),
        unused("disk errors (other means)", "FUSE", file("/dev/fuse")),
        unused("disk errors, slow disk (other means)", "device mapper", device_mapper()),
    ]
}

/// The file may be there although the kernel has none.
fn device_mapper() -> Result<(), String> {
    program("dmsetup")?;
    namespaces::run("dmsetup", &["targets"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_named_whether_it_can_be_had_or_not() {
        let findings = examine();
        for (_, name) in Kind::ALL {
            assert!(findings.iter().any(|finding| finding.fault == name), "{name}");
        }
        assert!(findings.iter().any(|finding| finding.to_string() == "kill: yes, by SIGKILL"));
    }
}
