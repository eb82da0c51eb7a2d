//! Times that several rooms of the replica agree on.

/// Longest time in milliseconds that may pass between two ticks.
pub const TICK_MS: u64 = 50;
/// How long a server without a leader keeps its clients, in milliseconds: reads go on, writes wait.
pub const LEADERLESS_MS_MAX: u64 = 1000;
