//! The rules of the house: what no compiler checks of sources and documents.

mod dependencies;
mod imports;
mod links;
mod ports;
mod records;
mod sources;
mod tidy;
