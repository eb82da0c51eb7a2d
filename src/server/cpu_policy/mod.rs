//! CPU POLICY: how the threads of a server share the machine's cores among themselves and with other processes.
//!
//! *Owns* the decision, which is a function of the number of cores and the key `lockkeeper.cpuPolicy`, and what
//! carries it out. *Invariants*: threads are scheduled as those of any other process; from [`CORES_PLAIN`] cores
//! on, and by `plain`, work in the background never rests for them. *Never* pins a thread, raises a priority or needs
//! a privilege, and never knows what the threads do.
//!
//! The background budget of the sharing policy (`cpu_policy/background.rs`, `storage/throttle.rs`) was fitted to
//! servers and clients that share two cores. On a machine with many cores and one server it would cost a read of the
//! thread's CPU clock and a yield every some ten microseconds of background work, about 1 % of it; and when all cores
//! are busy a checkpoint of a million znodes takes ten seconds instead of one, so a restart replays more log.
//!
//! By either policy the thread that writes checkpoints and images has a niceness of 5, which costs nothing while a core
//! is free; and images leave the disk to the log (`storage/disk_throttle.rs`), which has nothing to do with cores.

mod background;
mod cores;
mod sharing;

use crate::config::CpuPolicyKey;

pub(super) use background::{BackgroundBudget, lower_priority};
pub(super) use sharing::CoreSharing;

/// From so many cores on the server's threads do not have to share one with each other: one that serves, one that
/// writes the log, one for the background, and one for everything else.
const CORES_PLAIN: usize = 4;

/// How a server shares the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuPolicy {
    /// With others, who are short of them, too: while they are short, work in the background rests.
    Sharing,
    /// As any other process.
    Plain,
}

impl CpuPolicy {
    /// What a server with so many cores does by this value of `lockkeeper.cpuPolicy`.
    #[must_use]
    pub(crate) fn new(cores: usize, key: CpuPolicyKey) -> Self {
        match key {
            CpuPolicyKey::Auto if cores < CORES_PLAIN => Self::Sharing,
            CpuPolicyKey::Auto | CpuPolicyKey::Plain => Self::Plain,
        }
    }

    /// That of this process, by its affinity and its quota.
    #[must_use]
    pub(crate) fn of_process(key: CpuPolicyKey) -> Self {
        Self::new(cores(), key)
    }
}

/// I/O threads where they are not given, at most: by then the driver's thread has as much to do as it can.
const IO_THREADS_AUTO_MAX: usize = 8;

/// How many threads own the sockets of clients on a machine with so many cores; `given`: `lockkeeper.ioThreads`.
/// With few cores it is the server's thread that does: a request that crosses threads costs more CPU.
#[must_use]
pub(crate) fn io_threads(cores: usize, given: Option<u8>) -> usize {
    match given {
        Some(count) => count.into(),
        None if cores < CORES_PLAIN => 0,
        None => (cores / 2).min(IO_THREADS_AUTO_MAX),
    }
}

/// The cores of this process, by its affinity and its quota.
#[must_use]
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_four_cores_on_auto_is_plain() {
        let auto = [1, 2, 3, 4, 16].map(|cores| CpuPolicy::new(cores, CpuPolicyKey::Auto));
        use CpuPolicy::{Plain, Sharing};
        assert_eq!(auto, [Sharing, Sharing, Sharing, Plain, Plain]);
    }

    #[test]
    fn sockets_have_threads_of_their_own_from_four_cores_on_or_where_they_are_given() {
        let auto = [1, 2, 3, 4, 8, 16, 64].map(|cores| io_threads(cores, None));
        assert_eq!(auto, [0, 0, 0, 2, 4, 8, 8]);
        for cores in [1, 2, 16] {
            assert_eq!([0, 1, 64].map(|given| io_threads(cores, Some(given))), [0, 1, 64]);
        }
    }

    #[test]
    fn plain_is_plain_with_any_number_of_cores() {
        for cores in [1, 2, 4, 16] {
            assert_eq!(CpuPolicy::new(cores, CpuPolicyKey::Plain), CpuPolicy::Plain);
        }
    }
}
