//! Figures beside Apache ZooKeeper: load generator, null server, comparison. See README.md.

mod cli;
mod disk;
mod fill;
mod frames;
mod link;
mod load;
mod lock;
mod null;
mod null_tree;
mod peers;
mod proc;
mod report;
mod run;
mod session;
mod wire;
mod work;

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
