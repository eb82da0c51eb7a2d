//! What a test run leaves out because the machine lacks something.
//!
//! *Owns* the line that says so. `cargo test` shows nothing of a test that passes, so the line also goes to the file
//! that `LOCKKEEPER_LEFT_OUT` names: `.ci/run` shows the lines of that file at its end.

use std::io::Write as _;

/// Says that `what` is not tested here, and why.
///
/// # Panics
///
/// When the file that `LOCKKEEPER_LEFT_OUT` names cannot be written.
pub fn left_out(what: &str, why: &str) {
    let line = format!("LEFT OUT: {what}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("LOCKKEEPER_LEFT_OUT") {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(&path)
            .expect("the file that LOCKKEEPER_LEFT_OUT names can be written");
        // Whole lines: tests run side by side.
        file.write_all(format!("{line}\n").as_bytes()).expect("it takes the line");
    }
}
