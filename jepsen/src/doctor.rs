//! The doctor: which faults this machine offers, found out by trying.
//!
//! *Never* leaves anything behind: what it tries, it tries in a namespace that is thrown away.

use std::fmt;
use std::path::Path;

use crate::cluster::namespaces;
use crate::cluster::process::has_program;
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

/// Why a fault cannot be had here.
///
/// # Errors
/// It cannot.
pub fn offers(kind: Kind) -> Result<(), String> {
    match kind {
        Kind::Kill | Kind::Pause => Ok(()),
        Kind::Partition => namespaces::probe(),
    }
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
        offer: offers(kind).err().map_or(Offer::Used, Offer::Missing),
    };
    let unused = |fault, by, tried: Result<(), String>| Finding {
        fault,
        by,
        offer: tried.err().map_or(Offer::Unused, Offer::Missing),
    };
    let loop_file = file("/dev/loop-control").and_then(|()| program("losetup"));
    vec![
        used("kill", "SIGKILL", Kind::Kill),
        used("pause", "SIGSTOP", Kind::Pause),
        used("partition", "network namespaces and routing rules", Kind::Partition),
        unused("partition (other means)", "nftables", program("nft")),
        unused("delay, loss, reordering", "netem", netem()),
        unused("delay, loss, reordering (other means)", "a TUN device", file("/dev/net/tun")),
        unused("power cut, full disk", "a file system on a loop device", loop_file),
        unused("disk errors", "FUSE", file("/dev/fuse")),
        unused("disk errors (other means)", "device mapper", file("/dev/mapper/control")),
        unused("clock skew", "faketime", program("faketime")),
    ]
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
