//! What clients do to a replica.
#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)]
mod bodies;
#[path = "../history.rs"]
mod history;

libfuzzer_sys::fuzz_target!(|data: &[u8]| history::history(data));
