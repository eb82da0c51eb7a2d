//! What the tasks of a live migration tell the driver.

use crate::replica::LinkInput;

/// See the module.
#[derive(Debug)]
pub(in crate::server) enum ZooKeeperEvent {
    /// Of the link with this number.
    Link {
        /// The number.
        number: u64,
        /// What.
        input: LinkInput,
    },
    /// The look before a cutover has ended.
    Looked {
        /// The order that it is for.
        token: u64,
        /// Whether all ports are closed.
        closed: Result<(), String>,
    },
    /// The look while requests are held has ended.
    LookedAgain {
        /// The attempt that it is for.
        attempt: u64,
        /// Whether all ports are closed.
        closed: Result<(), String>,
    },
    /// A majority of ZooKeeper's servers is stopped.
    Stopped,
}
