//! The command of the benchmark. See README.md.

use std::process::ExitCode;

use lockkeeper_vs_zookeeper::cli;

fn main() -> ExitCode {
    // Cargo runs it in the folder of its package; paths on its command line are of the repository.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::env::set_current_dir(root).expect("the repository is where it was built");
    match cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("vs_zookeeper: {message}");
            ExitCode::FAILURE
        }
    }
}
