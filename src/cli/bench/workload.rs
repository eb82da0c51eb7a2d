//! The workloads by the names that users know.

use clap::ValueEnum;

use crate::bench::Work;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Workload {
    /// Read one znode per client
    Get,
    /// Set one znode per client
    Set,
    /// Create znodes
    Create,
    /// Delete znodes that were made before
    Delete,
    /// Seven reads to three sets
    Mixed,
    /// A transaction that checks the version of a znode and sets it
    Multi,
    /// Take and release a lock that no other client wants
    #[value(alias = "lock-uncontended")]
    Lock,
    /// Take and release the one lock that all want, each watching the contender before it
    LockContended,
    /// The same with everybody watching everybody, which is how not to do it
    Herd,
    /// All but one client watch a znode, that one sets it; an operation is a notification
    Watches,
    /// Open sessions, --pipeline at a time, each with an ephemeral znode; then drop the connections and
    /// see when the znodes are gone
    Sessions,
    /// Create many znodes, and see what they take
    Fill,
}

impl Workload {
    /// What of the load generator it is.
    pub(super) fn work(self) -> Work {
        match self {
            // Sessions are not looked at for their work.
            Workload::Get | Workload::Sessions => Work::Get,
            Workload::Set => Work::Set,
            Workload::Create | Workload::Fill => Work::Create,
            Workload::Delete => Work::Delete,
            Workload::Mixed => Work::Mixed,
            Workload::Multi => Work::Multi,
            Workload::Lock => Work::Lock,
            Workload::LockContended => Work::Contended,
            Workload::Herd => Work::Herd,
            Workload::Watches => Work::Watches,
        }
    }

    /// Whether several threads can do it together.
    pub(super) fn spreads(self) -> bool {
        self != Workload::Sessions && self.work().spreads()
    }

    /// As it is written on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("no workload is skipped");
        value.get_name().to_owned()
    }

    /// How many znodes make the whole of it, if it is a number of them.
    pub(super) fn nodes(self) -> Option<u64> {
        match self {
            Workload::Delete => Some(100_000),
            Workload::Fill => Some(1_000_000),
            Workload::Get
            | Workload::Set
            | Workload::Create
            | Workload::Mixed
            | Workload::Multi
            | Workload::Lock
            | Workload::LockContended
            | Workload::Herd
            | Workload::Watches
            | Workload::Sessions => None,
        }
    }
}
