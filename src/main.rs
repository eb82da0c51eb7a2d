//! The `lockkeeper` binary: the commands of `src/cli`.
//!
//! *Owns* the allocator of the process. What a server allocates is small, of a few sizes, and often
//! freed by another thread than the one that asked for it. How it is set up: `build.rs`.

use std::process::ExitCode;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    lockkeeper::run()
}
