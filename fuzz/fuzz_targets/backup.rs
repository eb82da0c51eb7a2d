//! A backup of the state.
#![no_main]

#[path = "../disk.rs"]
#[allow(dead_code)]
mod disk;

libfuzzer_sys::fuzz_target!(|data: &[u8]| disk::backup(data));
