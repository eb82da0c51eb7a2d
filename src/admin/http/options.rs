//! Options of an HTTP port.

use std::time::Duration;

use super::guard::Guard;
use super::secure::PortTls;

/// Connections served at once, unless [`Options`] says fewer; for one more, another one is closed.
pub const CONNECTIONS_MAX: usize = 128;
/// Longest time between two requests on a connection, as ZooKeeper's `admin.idleTimeout`. Less would
/// keep no place free: an idle connection yields to a new one anyway.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for the head of a request, and for the first one from the beginning of the connection.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time in which a client takes an answer.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Paths that a port offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// Everything.
    #[default]
    All,
    /// `/metrics` alone.
    Metrics,
}

/// Options of one port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Paths that are offered.
    pub surface: Surface,
    /// Path of the commands, without a slash at the end (`admin.commandURL`).
    pub commands_path: String,
    /// Permissions of those who ask.
    pub guard: Guard,
    /// Keys and certificates of the port; `None`: it takes plain text alone.
    pub(crate) tls: Option<PortTls>,
    /// Longest time between two requests on a connection (`admin.idleTimeout`).
    pub idle_timeout: Duration,
    /// Longest time for the head of a request.
    pub request_timeout: Duration,
    /// Longest time in which a client takes an answer.
    pub write_timeout: Duration,
    /// Connections served at once: fewer than [`CONNECTIONS_MAX`] where few files may be open.
    pub connections_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            surface: Surface::All,
            commands_path: "/commands".to_string(),
            guard: Guard::default(),
            tls: None,
            idle_timeout: IDLE_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            connections_max: CONNECTIONS_MAX,
        }
    }
}
