//! The rules of the house: what no compiler checks of sources and documents.

mod dependencies;
mod links;
mod ports;
mod tidy;
