//! Faults at exact system calls, by `strace --inject`.

#[path = "../../../jepsen/src/cluster/tracer.rs"]
mod tracer;

pub use tracer::{Tracer, available};

/// The calls by which a server changes what is on its disk, and about how many of each kind one
/// thread does while it is under load here.
pub const CALLS: [(&str, u64); 8] = [
    ("fdatasync", 800),
    ("pwrite64", 1000),
    ("write", 800),
    ("rename", 8),
    ("fsync", 24),
    ("unlink", 8),
    ("fallocate", 8),
    ("sync_file_range", 30),
];

/// Calls of a server that starts.
pub const CALLS_AT_START: [(&str, u64); 9] = [
    ("openat", 60),
    ("pread64", 30),
    ("pwrite64", 4),
    ("fdatasync", 3),
    ("fsync", 3),
    ("rename", 2),
    ("write", 4),
    ("unlink", 2),
    ("flock", 1),
];

/// The command line before the server's that makes `call` do `what` at its `n`-th time in a thread.
pub fn wrapper(call: &str, what: &str, n: u64) -> Vec<String> {
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:{what}:when={n}");
    let line = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    line.map(str::to_string).to_vec()
}
