//! The greatest and least values that keys may have, each with its reason.
//!
//! *Owns* the numbers; `table.rs` says which key has which.

/// Longest tick, ms: twenty ticks, the default of the longest session timeout, stay below 2^31.
pub(super) const TICK_TIME_MS_MAX: i64 = 3_600_000;
/// Greatest frame a client may be allowed to send, bytes.
pub(super) const JUTE_MAX_BUFFER_MAX: i64 = 128 << 20;
/// Least value of `jute.maxbuffer`, bytes: every request without data fits.
pub(super) const JUTE_MAX_BUFFER_MIN: i64 = 1024;
/// Most requests in flight that may be allowed.
pub(super) const OUTSTANDING_LIMIT_MAX: i64 = 1_000_000;
/// Fewest bytes that may wait for all clients, or of what all of them have begun to send.
pub(super) const TOTAL_BYTES_MAX_MIN: i64 = 1 << 20;
/// Most bytes of either that may be allowed.
pub(super) const TOTAL_BYTES_MAX_MAX: i64 = 1 << 40;
/// Longest listen backlog; systems cut it down further (`net.core.somaxconn`).
pub(super) const LISTEN_BACKLOG_MAX: i64 = 65_535;
/// Listen backlog unless configured, as long as systems allow unless they are told otherwise: thousands
/// of clients may reconnect at once, and a client that does not fit in waits a second before it tries again.
pub(super) const LISTEN_BACKLOG_DEFAULT: u32 = 4096;
/// Most log bytes between two images.
pub(super) const IMAGE_LOG_BYTES_MAX: i64 = 1 << 40;
/// Least log bytes between two images.
pub(super) const IMAGE_LOG_BYTES_MIN: i64 = 1 << 20;
/// Longest time between two checkpoints, ms.
pub(super) const CHECKPOINT_MS_MAX: i64 = 3_600_000;
/// Longest time that the log's disk may take before it counts as hung, ms.
pub(super) const DISK_STALL_MS_MAX: i64 = 3_600_000;
/// Shortest: several elections fit in.
pub(super) const DISK_STALL_MS_MIN: i64 = 200;
/// Unless configured, it is no longer than this, ms.
pub(super) const DISK_STALL_MS_DEFAULT_MAX: i64 = 5000;
/// Longest time that may be added to session timeouts, ms.
pub(super) const SESSION_EXPIRY_GRACE_MS_MAX: i64 = 3_600_000;
/// Longest `admin.commandURL`, bytes.
pub(super) const COMMAND_URL_BYTES_MAX: usize = 255;
/// Longest path of a file or directory, bytes (what Linux takes).
pub const PATH_BYTES_MAX: usize = 4095;
/// Greatest millisecond value and count: ZooKeeper's settings are 32-bit integers.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// Least value of the settings that ZooKeeper's parser reads as 32-bit integers and does not bound.
pub(super) const INT_MIN: i64 = i32::MIN as i64;
/// Clients that may be let in in a second, or at one moment: more than any machine has.
pub(super) const ADMISSION_MAX: i64 = 1_000_000;
/// Most threads for the sockets of clients.
pub(super) const IO_THREADS_MAX: u8 = 64;
