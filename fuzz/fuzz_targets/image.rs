//! An image, as it lies on a disk.
#![no_main]

#[path = "../disk.rs"]
#[allow(dead_code)]
mod disk;

libfuzzer_sys::fuzz_target!(|data: &[u8]| disk::image(data));
