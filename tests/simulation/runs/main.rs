//! Rules that hold in every simulated and explored life of a server: one file for each kind of life.

#[cfg(feature = "mutants")]
mod authentication;
mod exploration;
mod exploration_raft;
mod learner;
#[cfg(feature = "mutants")]
mod mutants;
mod own_rules;
mod peer_auth;
mod releases;
mod seeds;
