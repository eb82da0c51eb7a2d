//! The rules of the house: what no compiler checks of sources and documents.

mod dependencies;
mod imports;
mod lexer;
mod links;
mod records;
mod sources;
mod structure;
mod tidy;
mod walls;
