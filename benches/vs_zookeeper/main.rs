//! Figures beside Apache ZooKeeper: null server and comparison, by the load generator of
//! `lockkeeper bench` (`lockkeeper::bench`). See README.md.

mod cli;
mod disk;
mod fill;
mod machine;
mod null;
mod null_tree;
mod peers;
mod report;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("vs_zookeeper: {message}");
            ExitCode::FAILURE
        }
    }
}
