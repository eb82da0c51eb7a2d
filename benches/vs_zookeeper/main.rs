//! Figures beside Apache ZooKeeper: null server and comparison, by the load generator of
//! `lockkeeper bench` (`lockkeeper::internals::bench`). See README.md.

mod chart;
mod cli;
mod disk;
mod document;
mod figures;
mod fill;
mod filled;
mod grown;
mod growth;
mod growth_chart;
mod idle;
mod idle_figures;
mod kinds;
mod load;
mod machine;
mod mode;
mod null;
mod null_tree;
mod peers;
mod results;
mod rivals;
mod rounds;
mod run;
mod steady;
mod steady_figures;
mod stolen;
mod svg;
mod table;

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
