//! ENSEMBLE: who its servers are, and how they found it.
//!
//! *Owns* the founding protocol, what this server knows of the others, and how far a change of the members is.
//! *Invariant*: one source says who votes: the replicated configuration.
//! *Never* opens a connection.

pub mod founding;
#[cfg(test)]
mod founding_tests;
pub mod lost_majority;
#[cfg(test)]
mod membership_tests;
mod servers;
#[cfg(test)]
mod tests;

pub(in crate::replica) use servers::Ensemble;
