//! The `lockkeeper` binary: see [`lockkeeper::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper::cli::run()
}
