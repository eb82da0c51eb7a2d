//! The budget of file descriptors: client connections have what the rest of the server leaves.
//!
//! *Owns* the division, once at the start. *Invariants*: what the disk, the operators and the other
//! servers may need at most is kept apart from what client connections may take, and from what those
//! may take who only connect; a server that could not serve [`CLIENT_CONNECTIONS_MIN`] clients does
//! not start. *Never* assumes that the process is the server's own: what else is open at the start is
//! counted, and what a program that embeds the server opens later is seen by the number of each
//! accepted socket. The system gives the lowest free one, so a number close to the limit says that
//! the process has few left.

use std::os::fd::{AsRawFd as _, RawFd};

use crate::admin::Descriptors;
use crate::config::Config;

use crate::server::cpu_policy;
use crate::server::error::StartError;
use crate::server::limits::{
    CLIENT_CONNECTIONS_MIN, FILES_IN_USE_UNKNOWN, HTTP_CONNECTIONS_MIN, IMAGE_RECEIVED_FILES,
    IO_THREAD_FILES, LISTEN_FILES, LOG_FILES, OTHER_FILES, PEER_CONNECTIONS_UNKNOWN_MAX,
    PEER_CONNECTIONS_UNKNOWN_MIN, PEER_FILES, SHARE_OF_STRANGERS, STORE_FILES,
};

/// Who may have how many files open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Files {
    /// Client connections.
    pub clients: u64,
    /// Connections of each HTTP port.
    pub http: usize,
    /// Connections to the port for other servers that have not proved to be one.
    pub unknown_peers: usize,
    /// A socket with this number or a higher one leaves too few for the disk.
    number_max: u64,
}

/// What a server has to open besides client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Needs {
    /// Files open already in this process.
    in_use: u64,
    io_threads: u64,
    http_ports: u64,
    /// Other servers of the ensemble, and the addresses that they find this one at.
    peers: u64,
    peer_ports: u64,
}

impl Files {
    /// Divides what this process may open.
    ///
    /// # Errors
    /// Too few are left for clients.
    pub(in crate::server) fn of(config: &Config) -> Result<Self, StartError> {
        let now = Descriptors::now();
        let others = config.servers.len().saturating_sub(1) as u64;
        let own = config.own_server().filter(|_| config.is_ensemble());
        let needs = Needs {
            in_use: now.open.unwrap_or(FILES_IN_USE_UNKNOWN),
            io_threads: cpu_policy::io_threads(cpu_policy::cores(), config.io_threads) as u64,
            http_ports: [
                config.admin.enabled,
                config.metrics_addr.is_some(),
                config.metrics_secure_addr.is_some(),
            ]
            .map(u64::from)
            .iter()
            .sum(),
            peers: if own.is_some() { others } else { 0 },
            peer_ports: own.map_or(0, |own| own.addresses.len() as u64),
        };
        let files = Self::divide(now.max.unwrap_or(u64::MAX), needs)?;
        tracing::debug!(limit = now.max, in_use = needs.in_use, ?files, "open files");
        Ok(files)
    }

    fn divide(limit: u64, needs: Needs) -> Result<Self, StartError> {
        let share = usize::try_from(limit / SHARE_OF_STRANGERS).unwrap_or(usize::MAX);
        let http = share.clamp(HTTP_CONNECTIONS_MIN, crate::admin::CONNECTIONS_MAX);
        let unknown_peers = share.clamp(PEER_CONNECTIONS_UNKNOWN_MIN, PEER_CONNECTIONS_UNKNOWN_MAX);
        let mut kept = needs.in_use + LISTEN_FILES + LOG_FILES + STORE_FILES + OTHER_FILES;
        kept += needs.io_threads * IO_THREAD_FILES + needs.http_ports * http as u64;
        if needs.peer_ports > 0 {
            let received = IMAGE_RECEIVED_FILES + needs.peer_ports + unknown_peers as u64;
            kept += received + needs.peers * PEER_FILES;
        }
        let clients = limit.saturating_sub(kept);
        if clients < CLIENT_CONNECTIONS_MIN {
            let needed = kept + CLIENT_CONNECTIONS_MIN;
            return Err(StartError::OpenFiles { limit, needed });
        }
        let number_max = limit - LOG_FILES - STORE_FILES;
        Ok(Self { clients, http, unknown_peers, number_max })
    }

    /// Whether an accepted socket leaves the disk what it needs, whatever else this process has open.
    #[must_use]
    pub(in crate::server) fn leaves_enough(&self, socket: &impl std::os::fd::AsFd) -> bool {
        self.is_low(socket.as_fd().as_raw_fd())
    }

    fn is_low(&self, number: RawFd) -> bool {
        u64::try_from(number).is_ok_and(|number| number < self.number_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Needs =
        Needs { in_use: 10, io_threads: 0, http_ports: 1, peers: 0, peer_ports: 0 };
    const OF_THREE: Needs =
        Needs { in_use: 10, io_threads: 0, http_ports: 1, peers: 2, peer_ports: 1 };

    #[test]
    fn clients_have_what_is_left_and_the_sum_is_the_limit() {
        let files = Files::divide(1000, ALONE).unwrap();
        let rest = 10 + LISTEN_FILES + LOG_FILES + STORE_FILES + OTHER_FILES + files.http as u64;
        assert_eq!(files.clients + rest, 1000);
        let with_others = Files::divide(1000, OF_THREE).unwrap();
        let others = with_others.unknown_peers as u64 + 1 + IMAGE_RECEIVED_FILES + 2 * PEER_FILES;
        assert_eq!(with_others.clients + others, files.clients);
        let embedded = Files::divide(1000, Needs { in_use: 500, ..ALONE }).unwrap();
        assert_eq!(embedded.clients + 490, files.clients, "what else the process has open counts");
        let threaded = Files::divide(1000, Needs { io_threads: 8, ..ALONE }).unwrap();
        assert_eq!(threaded.clients + 8 * IO_THREAD_FILES, files.clients);
    }

    #[test]
    fn one_server_and_one_of_three_serve_with_160_files() {
        for needs in [ALONE, OF_THREE] {
            let files = Files::divide(160, needs).unwrap();
            assert_eq!((files.http, files.unknown_peers), (10, 10), "{files:?}");
            assert!(files.clients >= 2 * CLIENT_CONNECTIONS_MIN, "{files:?}");
        }
    }

    #[test]
    fn without_a_limit_only_operators_and_strangers_have_one() {
        let files = Files::divide(u64::MAX, OF_THREE).unwrap();
        assert_eq!(files.http, crate::admin::CONNECTIONS_MAX);
        assert_eq!(files.unknown_peers, PEER_CONNECTIONS_UNKNOWN_MAX);
        assert!(files.clients > u64::MAX / 2 && files.is_low(RawFd::MAX));
    }

    #[test]
    fn too_few_files_refuse_to_start_and_the_needed_number_is_enough() {
        for needs in [ALONE, OF_THREE] {
            let error = Files::divide(40, needs).unwrap_err();
            let StartError::OpenFiles { limit: 40, needed } = error else { panic!("{error}") };
            let files = Files::divide(needed, needs).unwrap();
            assert_eq!(files.clients, CLIENT_CONNECTIONS_MIN);
            Files::divide(needed - 1, needs).unwrap_err();
        }
    }

    #[test]
    fn a_socket_with_a_number_close_to_the_limit_does_not_leave_enough() {
        let files = Files::divide(200, ALONE).unwrap();
        let number_max = RawFd::try_from(200 - LOG_FILES - STORE_FILES).unwrap();
        assert!(files.is_low(number_max - 1));
        assert!(!files.is_low(number_max));
        assert!(!files.is_low(-1));
    }
}
