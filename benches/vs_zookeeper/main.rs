//! Figures beside Apache ZooKeeper: null server and comparison, by the load generator of
//! `lockkeeper bench` (`lockkeeper::internals::bench`). See README.md.

mod abuse;
mod abuse_figures;
mod abuser;
mod by_thread;
mod chart;
mod children;
mod children_figures;
mod cli;
mod cli_scale;
mod crowds;
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
mod overload;
mod overload_figures;
mod peers;
mod results;
mod rivals;
mod rounds;
mod run;
mod sessions;
mod sessions_figures;
mod steady;
mod steady_figures;
mod stolen;
mod svg;
mod table;
mod witness;

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
