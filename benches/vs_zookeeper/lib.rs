//! Figures beside Apache ZooKeeper: null server and comparison, by the load generator of
//! `lockkeeper bench` (`lockkeeper::internals::bench`). See README.md.

#![allow(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "its users are the programs of this repository, not the public"
)]

pub mod abuse;
pub mod abuse_figures;
pub mod abuser;
pub mod by_thread;
pub mod bystanders;
pub mod chart;
pub mod children;
pub mod children_figures;
pub mod cli;
pub mod cli_scale;
pub mod crowd;
pub mod crowds;
pub mod disk;
pub mod document;
pub mod figures;
pub mod fill;
pub mod filled;
pub mod grown;
pub mod growth;
pub mod growth_chart;
pub mod idle;
pub mod idle_figures;
pub mod kinds;
pub mod load;
pub mod machine;
pub mod mode;
pub mod null;
pub mod null_tree;
pub mod overload;
pub mod overload_figures;
pub mod packets;
pub mod peers;
pub mod results;
pub mod rivals;
pub mod rounds;
pub mod run;
pub mod sessions;
pub mod sessions_figures;
pub mod steady;
pub mod steady_figures;
pub mod stolen;
pub mod storm;
pub mod svg;
pub mod table;
pub mod witness;
